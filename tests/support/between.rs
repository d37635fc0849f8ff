//! A proxy between a running daemon and an API server that decides the fate of every write of webhook configurations. It
//! passes everything else on, including watches.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hookwatch::domain::act::ledger;
use hookwatch::lab::certs::Authority;
use hookwatch::lab::cluster::client_for;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// The object of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Ledger,
    Configuration(String),
}

/// A write that a daemon asks for.
#[derive(Debug, Clone)]
pub struct Write {
    pub target: Target,
    /// Writes so far, this one included.
    pub number: usize,
    /// The same, counting only writes of the ledger or only those of configurations.
    pub of_kind: usize,
    /// What is sent.
    pub text: String,
}

/// What happens to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Pass,
    /// The write does not reach the API server, and the connection breaks.
    Lost,
    /// The write is executed, and the connection breaks.
    AnswerLost,
    /// The write does not reach the API server, and no answer comes.
    Silence,
    /// The write is executed, and no answer comes.
    SilenceAfter,
    /// The write does not reach the API server, and this status comes back.
    Answered(u16),
    /// The write is executed, and this status comes back.
    Misreported(u16),
    /// The write is delayed until [`Between::let_arrive`].
    Late,
    /// If the write succeeds, no answer comes and no further write arrives. If it is refused, the refusal comes back.
    Last,
}

/// A write that has ended.
#[derive(Debug, Clone)]
pub struct Done {
    pub write: Write,
    pub fate: Fate,
    /// The API server's status; `None` when the write did not reach it.
    pub status: Option<u16>,
    /// What it answered.
    pub object: Value,
    /// When that was.
    pub at: Instant,
}

impl Done {
    pub fn was_made(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

struct State {
    client: Client,
    /// The API server's port, and ours.
    ports: (u16, u16),
    /// Whether answers keep the API server's own address.
    others: bool,
    decide: Box<dyn Fn(&Write) -> Fate + Send + Sync>,
    counts: Mutex<(usize, usize, usize)>,
    done: watch::Sender<Vec<Done>>,
    arrive: watch::Sender<bool>,
    over: AtomicBool,
    cut: watch::Sender<bool>,
}

pub struct Between {
    pub kubeconfig: String,
    state: Arc<State>,
    _task: JoinSet<()>,
}

impl Between {
    /// Starts a proxy to the API server of this kubeconfig, with its credentials. Clients learn no other address.
    pub async fn start(kubeconfig: &str, decide: impl Fn(&Write) -> Fate + Send + Sync + 'static) -> Self {
        Self::with(kubeconfig, false, decide).await
    }

    /// The same, but clients also learn the API server's own address.
    pub async fn beside(kubeconfig: &str, decide: impl Fn(&Write) -> Fate + Send + Sync + 'static) -> Self {
        Self::with(kubeconfig, true, decide).await
    }

    async fn with(
        upstream: &str,
        others: bool,
        decide: impl Fn(&Write) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let authority = Authority::new("between").unwrap();
        let certificate = authority.issue("127.0.0.1").unwrap();
        let acceptor = TlsAcceptor::from(certificate.server_config().unwrap());
        let (kubeconfig, port) = redirected(upstream, &authority.pem(), address);
        let state = Arc::new(State {
            client: client_for(upstream).await.unwrap(),
            ports: (port, address.port()),
            others,
            decide: Box::new(decide),
            counts: Mutex::default(),
            done: watch::channel(Vec::new()).0,
            arrive: watch::channel(false).0,
            over: AtomicBool::new(false),
            cut: watch::channel(false).0,
        });
        let serving = Arc::clone(&state);
        let task = JoinSet::from_iter([async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&serving));
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(|request| answer(Arc::clone(&state), request));
                    let server = hyper::server::conn::http1::Builder::new();
                    let mut cut = state.cut.subscribe();
                    tokio::select! {
                        _ = server.serve_connection(TokioIo::new(stream), service) => {}
                        _ = cut.wait_for(|cut| *cut) => {}
                    }
                });
            }
        }]);
        Self {
            kubeconfig,
            state,
            _task: task,
        }
    }

    /// The writes that have ended so far.
    pub fn done(&self) -> Vec<Done> {
        self.state.done.borrow().clone()
    }

    /// Those that changed a webhook configuration.
    pub fn changes(&self) -> Vec<Done> {
        let of_configurations = |done: &Done| done.was_made() && done.write.target != Target::Ledger;
        self.done().into_iter().filter(of_configurations).collect()
    }

    /// Waits until `is_so` holds for the writes that have ended.
    pub async fn until(&self, is_so: impl Fn(&[Done]) -> bool) {
        let mut done = self.state.done.subscribe();
        done.wait_for(|done| is_so(done)).await.unwrap();
    }

    /// Breaks every open and every new connection until it is called with `false`.
    pub fn cut(&self, cut: bool) {
        self.state.cut.send_replace(cut);
    }

    /// The number of delayed writes.
    pub fn late(&self) -> usize {
        self.state.arrive.receiver_count()
    }

    /// Lets the delayed writes arrive.
    pub fn let_arrive(&self) {
        self.state.arrive.send_replace(true);
    }
}

/// The kubeconfig with another address and certificate authority, and the port that it had before.
fn redirected(kubeconfig: &str, authority: &str, address: SocketAddr) -> (String, u16) {
    let mut port = 0;
    let lines = kubeconfig.lines().map(|line| {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        match key.trim() {
            "server" => {
                port = value.rsplit(':').next().unwrap().trim().parse().unwrap();
                format!("{key}: https://{address}\n")
            }
            "certificate-authority-data" => {
                let mut bundle = BASE64_STANDARD.decode(value).unwrap();
                bundle.push(b'\n');
                bundle.extend_from_slice(authority.as_bytes());
                format!("{key}: {}\n", BASE64_STANDARD.encode(bundle))
            }
            _ => format!("{line}\n"),
        }
    });
    let text = lines.collect();
    (text, port)
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Answer, std::io::Error> {
    let (head, body) = request.into_parts();
    let target = target(&head.method, head.uri.path(), head.uri.query());
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let mut onward = Request::builder()
        .method(head.method)
        .uri(head.uri.path_and_query().map_or("/", |path| path.as_str()));
    for name in ["content-type", "accept", "user-agent"] {
        if let Some(value) = head.headers.get(name) {
            onward = onward.header(name, value);
        }
    }
    let text = String::from_utf8_lossy(&body).into_owned();
    let onward = onward.body(Body::from(body.to_vec())).unwrap();
    let Some(target) = target else {
        let answer = state.client.send(onward).await.map_err(std::io::Error::other)?;
        let names_servers = head.uri.path() == "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
            && !head.uri.query().is_some_and(|query| query.contains("watch="));
        return if names_servers && !state.others {
            renamed(answer, state.ports).await
        } else {
            Ok(answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync()))
        };
    };
    // The client may disconnect before the write has ended.
    let doing = tokio::spawn(written(state, target, text, onward));
    doing.await.map_err(std::io::Error::other)?
}

fn target(method: &Method, path: &str, query: Option<&str>) -> Option<Target> {
    let rest = path.strip_prefix("/apis/admissionregistration.k8s.io/v1/")?;
    let (kind, name) = rest.split_once('/').unwrap_or((rest, ""));
    let tries = query.is_some_and(|query| query.contains("dryRun"));
    if !kind.ends_with("webhookconfigurations") || tries {
        return None;
    }
    match (method.as_str(), name) {
        ("POST", "") => Some(Target::Ledger),
        ("PATCH", name) if name == ledger::OBJECT => Some(Target::Ledger),
        ("PATCH", name) => Some(Target::Configuration(name.to_owned())),
        _ => None,
    }
}

/// The answer with the proxy's port in place of the API server's.
async fn renamed(answer: Response<Body>, (real, ours): (u16, u16)) -> Result<Answer, std::io::Error> {
    let (head, body) = answer.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let text =
        String::from_utf8_lossy(&body).replace(&format!("\"port\":{real}"), &format!("\"port\":{ours}"));
    let mut answer = Response::builder().status(head.status);
    if let Some(kind) = head.headers.get("content-type") {
        answer = answer.header("content-type", kind);
    }
    Ok(answer.body(full(text.into())).unwrap())
}

async fn written(
    state: Arc<State>,
    target: Target,
    text: String,
    onward: Request<Body>,
) -> Result<Answer, std::io::Error> {
    let write = {
        let mut counts = state.counts.lock().unwrap();
        counts.0 += 1;
        let of_kind = match target {
            Target::Ledger => &mut counts.1,
            Target::Configuration(_) => &mut counts.2,
        };
        *of_kind += 1;
        let of_kind = *of_kind;
        Write {
            target,
            number: counts.0,
            of_kind,
            text,
        }
    };
    let mut fate = if state.over.load(Ordering::SeqCst) {
        Fate::Silence
    } else {
        (state.decide)(&write)
    };
    if fate == Fate::Late {
        state
            .arrive
            .subscribe()
            .wait_for(|arrives| *arrives)
            .await
            .unwrap();
    }
    let arrives = !matches!(fate, Fate::Lost | Fate::Silence | Fate::Answered(_));
    let (mut status, mut text) = (None, Bytes::new());
    if arrives {
        let answer = state.client.send(onward).await.map_err(std::io::Error::other)?;
        status = Some(answer.status().as_u16());
        let body = answer.into_body().collect().await;
        text = body.map_err(std::io::Error::other)?.to_bytes();
    }
    if fate == Fate::Last {
        match status {
            Some(200..300) => state.over.store(true, Ordering::SeqCst),
            _ => fate = Fate::Pass,
        }
    }
    let object = serde_json::from_slice(&text).unwrap_or_default();
    let done = Done {
        write,
        fate,
        status,
        object,
        at: Instant::now(),
    };
    state.done.send_modify(|all| all.push(done));
    match fate {
        Fate::Lost | Fate::AnswerLost => Err(std::io::Error::other("lost")),
        Fate::Silence | Fate::SilenceAfter | Fate::Last => std::future::pending().await,
        Fate::Answered(status) | Fate::Misreported(status) => {
            let text = format!("{{\"kind\":\"Status\",\"message\":\"made up\",\"code\":{status}}}");
            Ok(Response::builder()
                .status(status)
                .body(full(text.into()))
                .unwrap())
        }
        Fate::Pass | Fate::Late => Ok(Response::builder()
            .status(status.unwrap_or(500))
            .header("content-type", "application/json")
            .body(full(text))
            .unwrap()),
    }
}

fn full(text: Bytes) -> UnsyncBoxBody<Bytes, std::io::Error> {
    Full::new(text).map_err(|never| match never {}).boxed_unsync()
}
