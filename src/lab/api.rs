//! The lab's API server: a control plane in this process, with the semantics of kube-apiserver 1.36 wherever
//! hookwatch, kubectl and a webhook touch it.
//!
//! Real HTTPS, real admission calls over TLS to real backends, and the API server's own metrics; no etcd, no
//! controllers, no authorization. Any other difference from a real API server is a bug.

mod admission;
mod call;
mod cel;
mod defaults;
mod discovery;
mod extension;
mod identity;
mod kinds;
mod knobs;
mod metrics;
mod patch;
pub(super) mod random;
mod read;
mod reply;
mod request;
mod seed;
mod select;
mod serve;
mod status;
mod store;
mod table;
mod watch;
mod write;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};
use tokio_rustls::TlsAcceptor;

use admission::Admission;
use call::Caller;
use extension::ExtensionApi;
use identity::ServerIdentity;
pub use knobs::{Knobs, USUAL_MILLICORES};
use metrics::ApiMetrics;
use store::ObjectStore;

/// Most connections open at once.
const MAX_CONNECTIONS: usize = 1_024;
/// How long a client may take for its TLS handshake. Its requests have no such limit.
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);

/// How to start an [`ApiServer`].
#[derive(Debug, Clone)]
pub struct ApiServerOptions {
    /// Where to listen; `None` for a free port of 127.0.0.1.
    pub listen: Option<SocketAddr>,
    /// How long a write may take before it fails with 504. 34 s in a real API server, whatever its `--request-timeout`.
    pub request_limit: Duration,
}

impl Default for ApiServerOptions {
    fn default() -> Self {
        Self {
            listen: None,
            request_limit: Duration::from_secs(34),
        }
    }
}

/// A running API server. Dropping it stops everything it started, open connections included.
#[derive(Debug)]
pub struct ApiServer {
    state: Arc<ApiState>,
    kubeconfig: String,
    _tasks: JoinSet<()>,
}

/// What every request works with.
#[derive(Debug)]
struct ApiState {
    store: ObjectStore,
    knobs: Arc<Knobs>,
    metrics: ApiMetrics,
    admission: Admission,
    address: SocketAddr,
    token: String,
    request_limit: Duration,
}

impl ApiState {
    /// Waits as long as one etcd operation takes, and counts it in the metrics.
    async fn etcd(&self, kind: &kinds::ServedKind, operation: &str) {
        let begin = Instant::now();
        self.knobs.storage_operation().await;
        self.metrics.etcd_done(kind, operation, begin.elapsed());
    }
}

impl ApiServer {
    /// Starts listening, with the namespaces and the `kubernetes` Service that every cluster has.
    ///
    /// # Errors
    /// When the address cannot be listened on or the certificates cannot be made.
    pub async fn start(options: ApiServerOptions) -> anyhow::Result<Self> {
        let listen = options
            .listen
            .unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("cannot listen on {listen}"))?;
        let address = listener.local_addr().context("the listener has no address")?;
        let identity =
            ServerIdentity::new(address).context("cannot make the certificates of the lab's API server")?;
        let metrics = ApiMetrics::new().context("cannot register metrics")?;
        let others = ExtensionApi::new(&metrics).context("cannot register metrics")?;
        let caller = Caller::new(metrics.missing_san.clone());
        let state = Arc::new(ApiState {
            store: ObjectStore::new(),
            knobs: Arc::new(Knobs::new()),
            metrics,
            admission: Admission::new(caller),
            address,
            token: random::uuid(),
            request_limit: options.request_limit,
        });
        seed::seed(&state.store, address);
        let kubeconfig = identity.kubeconfig(address, &state.token);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, identity.acceptor, Arc::clone(&state)));
        tasks.spawn(tick(Arc::clone(&state)));
        tasks.spawn(others.look_after(Arc::clone(&state)));
        Ok(Self {
            state,
            kubeconfig,
            _tasks: tasks,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.state.address
    }

    /// A kubeconfig (YAML) of a user that may do everything, with the lab's own CA in it.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig.clone()
    }

    /// The faults that can be switched on while it runs; shared, so that a scenario can hold them.
    pub fn knobs(&self) -> &Arc<Knobs> {
        &self.state.knobs
    }

    /// Forgets the history of all changes: every watch gets `410 Expired` and has to list again.
    pub fn expire_watches(&self) {
        self.state.store.forget_history();
    }
}

/// Accepts connections. All of them end with this task.
async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<ApiState>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((tcp, _)) => {
                    connections.spawn(connection(tcp, acceptor.clone(), Arc::clone(&state)));
                }
                // Out of file descriptors, most likely: those of open connections come back.
                Err(error) => {
                    tracing::warn!(%error, "the lab's API server could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
}

async fn connection(tcp: TcpStream, acceptor: TlsAcceptor, state: Arc<ApiState>) {
    let _ = tcp.set_nodelay(true);
    let Ok(Ok(stream)) = timeout(CLIENT_PATIENCE, acceptor.accept(tcp)).await else {
        return;
    };
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(serve::answer(state, request).await) }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(None);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250);
    // An error means that the client hung up, which needs no reaction.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// Publishes the most requests in flight once a second.
async fn tick(state: Arc<ApiState>) {
    let mut seconds = interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        state.metrics.roll_inflight();
    }
}
