//! A real server on loopback with scripted answers, including answers that no HTTP library would send.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kube::Config;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

#[path = "../../tests/support/metric_family.rs"]
pub(crate) mod metric_family;

use super::Clock;
use super::client::Connection;
use crate::domain::time::Time;

/// A request as it was received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// How the server answers.
pub(crate) enum TestReply {
    /// Status, content type, body.
    Whole(u16, &'static str, String),
    /// These bytes, then the connection is closed.
    Raw(Vec<u8>),
    /// Nothing, and the connection stays open.
    Hang,
    /// A 200 whose body is these bytes without end.
    Endless(&'static str, Vec<u8>),
    /// A 200 of JSON whose body is what arrives on this channel. It ends when the sender is dropped.
    Stream(mpsc::UnboundedReceiver<String>),
}

impl TestReply {
    pub(crate) fn json(status: u16, body: impl ToString) -> Self {
        Self::Whole(status, "application/json", body.to_string())
    }

    pub(crate) fn status(code: u16, message: &str) -> Self {
        let status =
            serde_json::json!({"kind": "Status", "status": "Failure", "message": message, "code": code});
        Self::json(code, status)
    }
}

type Handler = dyn Fn(&ReceivedRequest) -> TestReply + Send + Sync;

/// The server. Dropping it closes it and all its connections.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// The root certificate in DER; `None` without TLS.
    root: Option<Vec<u8>>,
    task: JoinSet<()>,
}

impl TestServer {
    pub(crate) async fn start(
        handler: impl Fn(&ReceivedRequest) -> TestReply + Send + Sync + 'static,
    ) -> Self {
        Self::listen("127.0.0.1:0", None, handler).await
    }

    /// Starts a server with TLS and a certificate for `name`.
    pub(crate) async fn start_tls(
        name: &str,
        handler: impl Fn(&ReceivedRequest) -> TestReply + Send + Sync + 'static,
    ) -> Self {
        Self::listen("127.0.0.1:0", Some(name), handler).await
    }

    pub(crate) async fn listen(
        at: &str,
        tls_name: Option<&str>,
        handler: impl Fn(&ReceivedRequest) -> TestReply + Send + Sync + 'static,
    ) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = TcpListener::bind(at).await.expect("a free port on loopback");
        let address = listener.local_addr().expect("a bound listener");
        let (root, acceptor) = tls_name.map(certificate).unzip();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, handler): (_, Arc<Handler>) = (Arc::clone(&asked), Arc::new(handler));
        let task = JoinSet::from_iter([async move {
            // Aborting this task drops the set and with it every connection.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, handler, acceptor) = (Arc::clone(&seen), Arc::clone(&handler), acceptor.clone());
                connections.spawn(async move {
                    match acceptor {
                        None => serve(stream, &seen, &*handler).await,
                        Some(acceptor) => {
                            if let Ok(stream) = TlsAcceptor::from(acceptor).accept(stream).await {
                                serve(stream, &seen, &*handler).await;
                            }
                        }
                    }
                });
            }
        }]);
        Self {
            address,
            asked,
            root,
            task,
        }
    }

    /// Ends the server; afterwards its port refuses connections.
    pub(crate) async fn stop(mut self) {
        self.task.shutdown().await;
    }

    /// Every request so far.
    pub(crate) fn asked(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().expect("no poison").clone()
    }

    /// A client configuration that reaches this server under the name `host`.
    pub(crate) fn config(&self, host: &str) -> Config {
        let scheme = if self.root.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{host}:{}", self.address.port());
        let mut config = Config::new(url.parse().expect("a URL"));
        // Without roots kube loads the system's, which a bare container does not have.
        config.root_cert = Some(self.root.clone().into_iter().collect());
        config
    }

    pub(crate) async fn connection(&self) -> Connection {
        Connection::from_config(self.config("127.0.0.1"))
            .await
            .expect("a client")
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    seen: &Mutex<Vec<ReceivedRequest>>,
    handler: &Handler,
) {
    let mut stream = BufReader::new(stream);
    let Some(asked) = read(&mut stream).await else {
        return;
    };
    seen.lock().expect("no poison").push(asked.clone());
    let reply = handler(&asked);
    // In many tests the client gives up in the middle of an answer.
    let _ = answer(&mut stream, reply).await;
}

async fn read(stream: &mut (impl AsyncBufReadExt + Unpin)) -> Option<ReceivedRequest> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
    let mut words = line.split_ascii_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|it| it.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some(ReceivedRequest {
        method,
        target,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin), reply: TestReply) -> std::io::Result<()> {
    match reply {
        TestReply::Whole(status, kind, body) => {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
        }
        TestReply::Raw(bytes) => stream.write_all(&bytes).await?,
        TestReply::Hang => std::future::pending().await,
        TestReply::Endless(kind, bytes) => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            loop {
                stream.write_all(&bytes).await?;
            }
        }
        TestReply::Stream(mut pieces) => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).await?;
            while let Some(piece) = pieces.recv().await {
                stream.write_all(piece.as_bytes()).await?;
                stream.flush().await?;
            }
        }
    }
    stream.flush().await?;
    stream.shutdown().await
}

fn certificate(name: &str) -> (Vec<u8>, Arc<rustls::ServerConfig>) {
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key"))
        .expect("a root certificate");
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(vec![name.to_owned()])
        .and_then(|parameters| parameters.signed_by(&key, &authority))
        .expect("a certificate");
    let chain: Vec<CertificateDer<'static>> = vec![leaf.der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate with its key");
    (authority.der().to_vec(), Arc::new(config))
}

/// A clock that reads the system's wall clock.
pub(crate) fn clock() -> Clock {
    Arc::new(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Time::from_unix(now.unwrap_or_default())
    })
}

/// Fails a test that hangs. The 30 s are no performance limit.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work)
        .await
        .expect("not within 30 s")
}

/// A listener whose queue is full, so that the kernel drops every further SYN. Not every kernel does (gVisor's does not).
pub(crate) async fn full_listener() -> Option<(TcpListener, Vec<TcpStream>)> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind("127.0.0.1:0".parse().expect("an address"))
        .expect("a port");
    let listener = socket.listen(1).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let mut queued = Vec::new();
    while queued.len() < 64 {
        match tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
            Ok(stream) => queued.push(stream.expect("a connection")),
            Err(_) => return Some((listener, queued)),
        }
    }
    let skipped = "this kernel takes connections beyond the backlog";
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "not in CI: {skipped}");
    // Written directly, because the test runner captures what `eprintln!` prints.
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {skipped}\n");
    None
}
