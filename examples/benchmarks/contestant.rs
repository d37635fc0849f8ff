//! The processes that are measured while they probe: hookwatch's prober, and a bare handshake with the same TLS library.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use hookwatch::domain::cluster::hook::{Backend, BackendAddress, BackendPath, Hook, ProbeLevel};
use hookwatch::domain::observe::probe::ConnectionKind;
use hookwatch::domain::time::Time;
use hookwatch::io::observe::probe::{ProbeLimits, ProbeRequest, Prober};
use hookwatch::lab::backend::{BackendRole, LabBackend as Served};
use hookwatch::lab::certs::Authority;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsConnector;

use crate::hooks;

/// Name of the contestant that probes as the daemon does: it offers ML-KEM beside X25519, as an API server does.
pub const HYBRID: &str = "hybrid";

const NAMESPACE: &str = "probed";
const SERVICE: &str = "webhook";

/// The name in the certificate of every target.
pub fn server_name() -> String {
    format!("{SERVICE}.{NAMESPACE}.svc")
}

/// The address of a target. One process serves all of them: it listens on every loopback address.
pub fn target(nth: usize, port: u16) -> SocketAddr {
    let [.., high, low] = nth.to_be_bytes();
    (Ipv4Addr::new(127, 1, high, low), port).into()
}

/// Serves all targets until its input ends. Writes its certificate authority to a file and prints its port.
///
/// # Errors
/// When it cannot listen.
pub async fn serve(authority_into: &Path) -> anyhow::Result<()> {
    let authority = Authority::new("benchmarks")?;
    std::fs::write(authority_into, authority.pem())?;
    let certificate = authority.issue(&server_name())?;
    let all = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    let backends = Served::start_group(&[all], BackendRole::Validating, &certificate).await?;
    println!("{}", backends.first().context("a backend")?.address().port());
    tokio::task::spawn_blocking(|| std::io::stdin().lines().last()).await?;
    Ok(())
}

/// One way to probe.
enum Way {
    /// hookwatch's prober, up to this level and on this kind of connection.
    Prober(Arc<Prober>, Arc<Hook>, ProbeLevel, ConnectionKind),
    /// Connect, TLS handshake, close.
    Bare(TlsConnector, ServerName<'static>),
}

impl Way {
    fn new(name: &str, ca: &[u8], targets: usize, port: u16) -> anyhow::Result<Self> {
        let (level, connection) = match name {
            "bare" => return Self::bare(ca),
            "handshake" => (ProbeLevel::Handshake, ConnectionKind::Fresh),
            "http" | HYBRID => (ProbeLevel::Http, ConnectionKind::Fresh),
            "kept" => (ProbeLevel::Http, ConnectionKind::Kept),
            other => anyhow::bail!("no way to probe is called {other}"),
        };
        let provider = if name == HYBRID {
            Arc::new(default_provider())
        } else {
            agreeing_on_x25519()
        };
        let prober = Prober::new(provider, ProbeLimits::default(), Arc::new(now))?;
        Ok(Self::Prober(
            Arc::new(prober),
            Arc::new(hook(ca, targets, port)),
            level,
            connection,
        ))
    }

    fn bare(ca: &[u8]) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca)?)?;
        let mut config = ClientConfig::builder_with_provider(agreeing_on_x25519())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        let name = ServerName::try_from(server_name())?;
        Ok(Self::Bare(TlsConnector::from(Arc::new(config)), name))
    }

    /// Whether the target answered.
    fn probe(&self, target: SocketAddr) -> impl Future<Output = bool> + Send + 'static {
        let prober = match self {
            Self::Prober(prober, hook, level, connection) => {
                let request = ProbeRequest {
                    backend: backend(target),
                    level: *level,
                    connection: *connection,
                    gone: false,
                    deadline: hook.timeout,
                    namespace: "hookwatch".into(),
                    traceparent: None,
                    hook: Arc::clone(hook),
                };
                Ok((Arc::clone(prober), request))
            }
            Self::Bare(connector, name) => Err((connector.clone(), name.clone())),
        };
        async move {
            match prober {
                Ok((prober, request)) => prober.probe(request, |_| ()).await.outcome.is_alive(),
                Err((connector, name)) => bare_handshake(&connector, name, target).await.is_ok(),
            }
        }
    }
}

/// Only X25519, for a fair comparison: Debian's blackbox exporter has no key exchange with ML-KEM.
fn agreeing_on_x25519() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        kx_groups: vec![kx_group::X25519],
        ..default_provider()
    })
}

async fn bare_handshake(
    connector: &TlsConnector,
    name: ServerName<'static>,
    target: SocketAddr,
) -> std::io::Result<()> {
    let tcp = TcpStream::connect(target).await?;
    tcp.set_nodelay(true)?;
    let mut stream = connector.connect(name, tcp).await?;
    stream.shutdown().await
}

/// For each line of input `COUNT RATE`, makes COUNT probes of the targets in turn at RATE per second, and prints how many
/// failed.
///
/// # Errors
/// When the line is something else.
pub async fn run(way: String, ca: PathBuf, targets: usize, port: u16) -> anyhow::Result<()> {
    let way = Way::new(&way, &std::fs::read(ca)?, targets, port)?;
    let mut next = 0;
    println!("ready");
    loop {
        let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await?;
        let Some(line) = line else { return Ok(()) };
        let line = line?;
        let (count, rate) = line.split_once(' ').context("COUNT RATE")?;
        let (count, rate): (usize, f64) = (count.parse()?, rate.parse()?);
        let failed = paced(count, rate, || {
            next += 1;
            way.probe(target(next % targets, port))
        });
        println!("{}", failed.await);
    }
}

/// Starts `count` probes at `rate` per second without waiting for answers; returns how many failed.
pub async fn paced<F>(count: usize, rate: f64, mut start: impl FnMut() -> F) -> usize
where
    F: Future<Output = bool> + Send + 'static,
{
    let failed = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for nth in 0..count {
        sleep_until(begun + Duration::from_secs_f64(nth as f64 / rate)).await;
        let (probe, failed) = (start(), Arc::clone(&failed));
        running.spawn(async move {
            failed.fetch_add(usize::from(!probe.await), Ordering::Relaxed);
        });
        while running.try_join_next().is_some() {}
    }
    while running.join_next().await.is_some() {}
    failed.load(Ordering::Relaxed)
}

fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Time::from_unix(since.unwrap_or_default())
}

fn backend(address: SocketAddr) -> Backend {
    Backend {
        path: BackendPath::Endpoint,
        address: BackendAddress::Socket(address),
    }
}

fn hook(ca: &[u8], targets: usize, port: u16) -> Hook {
    let endpoints: Vec<SocketAddr> = (0..targets).map(|nth| target(nth, port)).collect();
    hooks::hook(SERVICE, NAMESPACE, ca.into(), &endpoints)
}
