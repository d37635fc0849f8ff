//! Certificates and TLS servers for the tests.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::NAME;

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// An authority that signs what it is given.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    /// One that differs from the usual.
    pub(super) fn with(customise: impl FnOnce(&mut CertificateParams)) -> Self {
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(Self::params(customise), key).expect("an authority"))
    }

    /// One with another kind of key.
    pub(super) fn with_key(algorithm: &'static rcgen::SignatureAlgorithm) -> Self {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        Self(CertifiedIssuer::self_signed(Self::params(|_| {}), key).expect("an authority"))
    }

    /// An authority below this one, and its certificate.
    pub(super) fn intermediate(&self, name: &str) -> (Self, CertificateDer<'static>) {
        let params = Self::params(|params| params.distinguished_name.push(DnType::CommonName, name));
        let key = KeyPair::generate().expect("a key");
        let below = CertifiedIssuer::signed_by(params, key, &self.0).expect("an authority");
        let certificate = below.der().clone();
        (Self(below), certificate)
    }

    fn params(customise: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "probe test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        customise(&mut params);
        params
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A leaf for [`NAME`].
    pub(super) fn leaf(&self) -> Identity {
        self.leaf_with(|_| {})
    }

    /// A leaf that differs from the usual.
    pub(super) fn leaf_with(&self, customise: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).expect("parameters");
        customise(&mut params);
        let key = KeyPair::generate().expect("a key");
        let leaf = params.signed_by(&key, &self.0).expect("a leaf");
        Identity::new(leaf.der().clone(), &key)
    }
}

/// What a server shows.
pub(super) struct Identity {
    pub(super) leaf: CertificateDer<'static>,
    pub(super) intermediates: Vec<CertificateDer<'static>>,
    pub(super) pem: String,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn new(leaf: CertificateDer<'static>, key: &KeyPair) -> Self {
        use base64::Engine;
        let text = base64::engine::general_purpose::STANDARD.encode(&leaf);
        Self {
            pem: format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"),
            leaf,
            intermediates: Vec::new(),
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        }
    }

    pub(super) fn self_signed(customise: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).expect("parameters");
        customise(&mut params);
        let key = KeyPair::generate().expect("a key");
        Self::new(
            params.self_signed(&key).expect("a certificate").der().clone(),
            &key,
        )
    }

    pub(super) fn from_pem(leaf: &[u8], key: &[u8]) -> Self {
        use rustls::pki_types::pem::PemObject;
        Self {
            leaf: CertificateDer::from_pem_slice(leaf).expect("a certificate"),
            intermediates: Vec::new(),
            pem: String::from_utf8(leaf.to_vec()).expect("text"),
            key: PrivateKeyDer::from_pem_slice(key).expect("a key"),
        }
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        std::iter::once(&self.leaf)
            .chain(&self.intermediates)
            .cloned()
            .collect()
    }

    /// The usual server: TLS 1.2 and 1.3, HTTP/1.1, no client certificate.
    pub(super) fn config(&self) -> ServerConfig {
        self.config_of(rustls::DEFAULT_VERSIONS)
    }

    /// The same for these versions of TLS alone.
    pub(super) fn config_of(&self, versions: &[&'static rustls::SupportedProtocolVersion]) -> ServerConfig {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(self.chain(), self.key.clone_key())
            .expect("a server configuration");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }

    /// A server that wants to know its client.
    pub(super) fn mutual(
        &self,
        clients: &Authority,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> ServerConfig {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(clients.0.der().clone()).expect("a root");
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider())
            .build()
            .expect("a verifier");
        ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain(), self.key.clone_key())
            .expect("a server configuration")
    }
}

/// A listener on loopback and the task behind it.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    task: JoinSet<()>,
}

impl Server {
    /// Hands every TCP connection to `serve`, with its number from 0.
    pub(super) async fn tcp<F, S>(serve: S) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
        S: Fn(TcpStream, usize) -> F + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let task = JoinSet::from_iter([async move {
            // Dropped with the server, so that no connection outlives it.
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(serve(stream, count.fetch_add(1, Ordering::SeqCst)));
            }
        }]);
        Self {
            address,
            accepted,
            task,
        }
    }

    /// Hands every TLS connection to `serve`; one whose handshake fails is dropped.
    pub(super) async fn tls<F, S>(config: ServerConfig, serve: S) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
        S: Fn(Conversation, usize) -> F + Send + Sync + 'static,
    {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let serve = Arc::new(serve);
        Self::tcp(move |stream, nth| {
            let (acceptor, serve) = (acceptor.clone(), Arc::clone(&serve));
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(Conversation(stream), nth).await;
                }
            }
        })
        .await
    }

    /// Takes TCP connections and says nothing.
    pub(super) async fn hung() -> Self {
        Self::tcp(|stream, _| async move {
            std::future::pending::<()>().await;
            drop(stream);
        })
        .await
    }

    /// Shakes hands and says no more.
    pub(super) async fn silent(config: ServerConfig) -> Self {
        Self::tls(config, |conversation, _| conversation.stay_silent()).await
    }

    /// Answers every request on every connection with what `answer` makes of it.
    pub(super) async fn http<S>(config: ServerConfig, answer: S) -> Self
    where
        S: Fn(Heard) -> String + Send + Sync + 'static,
    {
        let answer = Arc::new(answer);
        Self::tls(config, move |mut conversation, _| {
            let answer = Arc::clone(&answer);
            async move {
                while let Ok(heard) = conversation.hear().await {
                    if conversation.say(&answer(heard)).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// How many connections were accepted so far.
    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Closes the listener and every connection.
    pub(super) async fn stop(mut self) {
        self.task.shutdown().await;
    }
}

/// One TLS connection, seen from the server.
pub(super) struct Conversation(pub(super) TlsStream<TcpStream>);

/// One request.
pub(super) struct Heard {
    /// The request line and the headers.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    /// The server name of the handshake.
    pub(super) server_name: Option<String>,
    /// The protocol agreed on in the handshake.
    pub(super) protocol: Option<Vec<u8>>,
}

impl Heard {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    pub(super) fn has_header(&self, line: &str) -> bool {
        self.head.lines().any(|header| header.eq_ignore_ascii_case(line))
    }
}

impl Conversation {
    pub(super) async fn hear(&mut self) -> io::Result<Heard> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if self.0.read_buf(&mut bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let mut body = bytes.split_off(end);
        let head = String::from_utf8(bytes).expect("a readable head");
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            })
            .unwrap_or(0);
        while body.len() < length {
            if self.0.read_buf(&mut body).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let (_, session) = self.0.get_ref();
        Ok(Heard {
            head,
            body,
            server_name: session.server_name().map(str::to_owned),
            protocol: session.alpn_protocol().map(<[u8]>::to_vec),
        })
    }

    pub(super) async fn say(&mut self, answer: &str) -> io::Result<()> {
        self.0.write_all(answer.as_bytes()).await?;
        self.0.flush().await
    }

    /// Stays open and silent until the peer goes.
    pub(super) async fn stay_silent(mut self) {
        let mut sink = Vec::new();
        let _ = self.0.read_to_end(&mut sink).await;
    }
}

/// An HTTP answer with a JSON body.
pub(super) fn ok(body: &Value) -> String {
    with_status("200 OK", &body.to_string())
}

pub(super) fn with_status(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// What a decent hook answers to a review.
pub(super) fn allow(heard: &Heard) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": heard.json()["request"]["uid"], "allowed": true},
    })
}
