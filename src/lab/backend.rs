//! A backend: one real TLS webhook server on a loopback address, whose behaviour can be switched while it runs.

mod answer;
mod extension;
mod gate;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use self::gate::Gate;
use super::certs::ServingCertificate;

/// How a backend behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// Reviews are allowed at once; anything but a POST gets a 405.
    Healthy,
    /// As `Healthy`, but every answer comes this much later.
    Slow(Duration),
    /// As `Healthy`, but each connection is closed after its first answer.
    CloseAfterAnswer,
    /// TCP connections are accepted, but nothing is read from or written to any connection, old ones included.
    AcceptAndHang,
    /// As a process under SIGSTOP: the kernel still completes TCP connections into the listener's backlog, and
    /// existing connections freeze.
    Stopped,
    /// Everything works up to the request, which is read and never answered.
    HangAfterTls,
    /// As a killed process: the listener and all connections are closed, so new ones are refused. Any other
    /// behaviour brings the backend back on the same address and port.
    Refused,
    /// Connections are accepted and reset at once; existing ones are closed.
    Reset,
    /// Every request, with any method, gets this status and body.
    HttpStatus(u16, Cow<'static, str>),
    /// Reviews get a 200 with JSON that is no AdmissionReview.
    NotAnAdmissionReview,
    /// Reviews are allowed under a uid that is not theirs.
    WrongUid,
    /// Reviews are denied with this status code and message. This backend works.
    Deny(u16, Cow<'static, str>),
    /// Every request gets a 200 whose body never ends.
    EndlessBody,
}

impl Behaviour {
    const fn freezes(&self) -> bool {
        matches!(self, Self::AcceptAndHang | Self::Stopped)
    }
}

/// Which kind of hook a backend serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendRole {
    /// Healthy means: allow.
    Validating,
    /// Healthy means: allow, and add an annotation by JSONPatch.
    Mutating,
    /// Healthy means: convert objects of a CustomResourceDefinition by their version alone. Behaviours that are about
    /// reviews count as healthy.
    Conversion,
    /// Healthy means: serve the discovery document of an APIService. Behaviours that are about reviews count as healthy.
    Aggregated,
}

/// What a backend was asked, since it was started.
#[derive(Debug, Default)]
pub struct BackendCounters {
    reviews: AtomicU64,
    others: AtomicU64,
    traceparents: Mutex<VecDeque<String>>,
}

/// How many trace contexts a backend remembers.
const TRACEPARENTS: usize = 256;

impl BackendCounters {
    fn note(&self, traceparent: &str) {
        if let Ok(mut kept) = self.traceparents.lock() {
            kept.truncate(TRACEPARENTS - 1);
            kept.push_front(traceparent.to_owned());
        }
    }

    /// The `traceparent` headers of the last 256 requests that had one, the newest first.
    pub fn traceparents(&self) -> Vec<String> {
        let kept = self.traceparents.lock();
        kept.map(|kept| kept.iter().cloned().collect())
            .unwrap_or_default()
    }

    fn count(&self, is_review: bool) {
        let counter = if is_review { &self.reviews } else { &self.others };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// POST requests read, with any outcome.
    pub fn reviews(&self) -> u64 {
        self.reviews.load(Ordering::Relaxed)
    }

    /// Requests of any other method.
    pub fn others(&self) -> u64 {
        self.others.load(Ordering::Relaxed)
    }
}

/// A running backend. Dropping it closes its listener and its connections.
#[derive(Debug)]
pub struct LabBackend {
    address: SocketAddr,
    counters: Arc<BackendCounters>,
    commands: mpsc::Sender<BackendCommand>,
    _server: JoinSet<()>,
}

/// A command to the server's task; it answers when the change is in force.
enum BackendCommand {
    Behave(Behaviour, oneshot::Sender<()>),
    Serve(TlsAcceptor, oneshot::Sender<()>),
}

impl LabBackend {
    /// Starts healthy backends on all of `hosts`, every one on the same port, so that one EndpointSlice can hold
    /// them.
    ///
    /// # Errors
    /// When no port is free on all of the addresses (after some attempts), or the certificate does not load.
    pub async fn start_group(
        hosts: &[IpAddr],
        role: BackendRole,
        certificate: &ServingCertificate,
    ) -> anyhow::Result<Vec<Self>> {
        let acceptor = TlsAcceptor::from(certificate.server_config()?);
        let listeners = bind_group(hosts).await?;
        listeners
            .into_iter()
            .map(|listener| Self::start(listener, role, acceptor.clone()))
            .collect()
    }

    fn start(listener: TcpListener, role: BackendRole, acceptor: TlsAcceptor) -> anyhow::Result<Self> {
        let address = listener.local_addr().context("the address of a backend")?;
        let counters = Arc::new(BackendCounters::default());
        let (behaviour, _) = watch::channel(Behaviour::Healthy);
        let (commands, received) = mpsc::channel(1);
        let server = BackendServer {
            address,
            role,
            acceptor,
            gate: Arc::new(Gate::default()),
            behaviour,
            counters: Arc::clone(&counters),
            connections: JoinSet::new(),
        };
        Ok(Self {
            address,
            counters,
            commands,
            _server: JoinSet::from_iter([server.run(listener, received)]),
        })
    }

    /// Where it listens (or did, when it refuses).
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it was asked so far.
    pub fn counters(&self) -> &BackendCounters {
        &self.counters
    }

    /// Switches the behaviour, and returns when the new one is in force for old and new connections.
    ///
    /// # Errors
    /// When the backend's task has ended, or a refused backend cannot get its port back.
    pub async fn behave(&self, behaviour: Behaviour) -> anyhow::Result<()> {
        self.command(|done| BackendCommand::Behave(behaviour, done)).await
    }

    /// Serves another certificate from now on. Existing connections are closed, so none stays on the old one.
    ///
    /// # Errors
    /// When the certificate does not load, or the backend's task has ended.
    pub async fn serve_certificate(&self, certificate: &ServingCertificate) -> anyhow::Result<()> {
        let acceptor = TlsAcceptor::from(certificate.server_config()?);
        self.command(|done| BackendCommand::Serve(acceptor, done)).await
    }

    async fn command(
        &self,
        command: impl FnOnce(oneshot::Sender<()>) -> BackendCommand,
    ) -> anyhow::Result<()> {
        let (done, in_force) = oneshot::channel();
        let sent = self.commands.send(command(done)).await.is_ok();
        anyhow::ensure!(
            sent && in_force.await.is_ok(),
            "the backend at {} did not take the change",
            self.address
        );
        Ok(())
    }
}

/// The task of one backend: it owns the listener and every connection.
struct BackendServer {
    address: SocketAddr,
    role: BackendRole,
    acceptor: TlsAcceptor,
    gate: Arc<Gate>,
    behaviour: watch::Sender<Behaviour>,
    counters: Arc<BackendCounters>,
    connections: JoinSet<()>,
}

impl BackendServer {
    async fn run(mut self, listener: TcpListener, mut commands: mpsc::Receiver<BackendCommand>) {
        let mut listener = Some(listener);
        loop {
            let stopped = *self.behaviour.borrow() == Behaviour::Stopped;
            tokio::select! {
                command = commands.recv() => match command {
                    None => return,
                    Some(command) => self.obey(command, &mut listener).await,
                },
                accepted = accept(listener.as_ref()), if !stopped => self.serve(accepted),
                // Ended connections are forgotten as they end, or the set would grow with every probe.
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    async fn obey(&mut self, command: BackendCommand, listener: &mut Option<TcpListener>) {
        let done = match command {
            BackendCommand::Behave(behaviour, done) => {
                if matches!(behaviour, Behaviour::Refused | Behaviour::Reset) {
                    self.connections.shutdown().await;
                }
                if behaviour == Behaviour::Refused {
                    *listener = None;
                } else if listener.is_none() {
                    *listener = rebind(self.address).await;
                    if listener.is_none() {
                        // Without the port the change is not in force; `done` is dropped and says so.
                        return;
                    }
                }
                let frozen = behaviour.freezes();
                // Freezing comes first and thawing last, so that no answer of the one behaviour slips out under
                // the other.
                if frozen {
                    self.gate.set_frozen(true);
                }
                self.behaviour.send_replace(behaviour);
                if !frozen {
                    self.gate.set_frozen(false);
                }
                done
            }
            BackendCommand::Serve(acceptor, done) => {
                self.acceptor = acceptor;
                self.connections.shutdown().await;
                done
            }
        };
        // The caller may be gone; the change is in force all the same.
        let _ = done.send(());
    }

    fn serve(&mut self, stream: TcpStream) {
        if *self.behaviour.borrow() == Behaviour::Reset {
            // Without it the client would see an orderly close instead of a reset. An error means that the connection is gone.
            let _ = stream.set_zero_linger();
            return;
        }
        let stream = self.gate.guard(stream);
        let acceptor = self.acceptor.clone();
        let (role, behaviour) = (self.role, self.behaviour.subscribe());
        let counters = Arc::clone(&self.counters);
        self.connections.spawn(async move {
            // A handshake that fails is the client's business: the lab makes them fail on purpose.
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = hyper::service::service_fn(|request| {
                let (behaviour, counters) = (behaviour.clone(), Arc::clone(&counters));
                async move { Ok::<_, Infallible>(answer::answer(request, role, behaviour, &counters).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(None)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// The next connection; never, without a listener.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // Out of descriptors, or a client that went away in between: both pass.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Gets the port of a killed backend back; another process may hold it for a moment.
async fn rebind(address: SocketAddr) -> Option<TcpListener> {
    for _ in 0..100 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return Some(listener);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

/// One listener per host, all on one port that the system chooses.
async fn bind_group(hosts: &[IpAddr]) -> anyhow::Result<Vec<TcpListener>> {
    let (first, rest) = hosts.split_first().context("a backend needs a host")?;
    let mut last_error = None;
    for _ in 0..32 {
        let listener = TcpListener::bind((*first, 0))
            .await
            .with_context(|| format!("listening on {first}"))?;
        let port = listener.local_addr().context("the address of a backend")?.port();
        let mut group = vec![listener];
        for host in rest {
            match TcpListener::bind((*host, port)).await {
                Ok(listener) => group.push(listener),
                Err(error) => last_error = Some(error),
            }
        }
        if group.len() == hosts.len() {
            return Ok(group);
        }
    }
    let why = last_error.map_or_else(String::new, |error| format!(": {error}"));
    anyhow::bail!("no port is free on all of {hosts:?}{why}")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::Ipv4Addr;

    use base64::Engine;
    use bytes::Bytes;
    use http::{Method, Request, Response, StatusCode};
    use http_body_util::{BodyExt, Full};
    use hyper::body::Incoming;
    use hyper::client::conn::http1::SendRequest;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
    use serde_json::{Value, json};
    use tokio::task::JoinHandle;
    use tokio_rustls::TlsConnector;

    use super::super::certs::Authority;
    use super::*;

    const NAME: &str = "opa.opa.svc";
    /// A guard against a test that hangs, not a measurement.
    const GUARD: Duration = Duration::from_secs(20);
    /// Long enough for an answer that is going to come to be there.
    const SILENCE: Duration = Duration::from_millis(150);

    struct Lab {
        authority: Authority,
        backend: LabBackend,
    }

    impl Lab {
        async fn start(role: BackendRole) -> Self {
            let authority = Authority::new("lab").unwrap();
            let certificate = authority.issue(NAME).unwrap();
            let hosts = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
            let mut group = LabBackend::start_group(&hosts, role, &certificate).await.unwrap();
            Self {
                authority,
                backend: group.remove(0),
            }
        }

        async fn behave(&self, behaviour: Behaviour) {
            self.backend.behave(behaviour).await.unwrap();
        }

        async fn connect(&self) -> io::Result<Client> {
            let mut roots = RootCertStore::empty();
            roots.add(self.authority.der().clone()).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            let stream = TcpStream::connect(self.backend.address()).await?;
            let stream = TlsConnector::from(Arc::new(config))
                .connect(ServerName::try_from(NAME).unwrap(), stream)
                .await?;
            let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .unwrap();
            tokio::spawn(connection);
            Ok(Client { sender })
        }

        /// The answer to one review on a fresh connection.
        async fn ask(&self) -> (StatusCode, Value) {
            let mut client = self.connect().await.unwrap();
            let response = client.review(&plain()).await.unwrap();
            let status = response.status();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (status, serde_json::from_slice(&body).unwrap_or_default())
        }
    }

    struct Client {
        sender: SendRequest<Full<Bytes>>,
    }

    impl Client {
        async fn send(&mut self, method: Method, body: &Value) -> hyper::Result<Response<Incoming>> {
            let request = Request::builder()
                .method(method)
                .uri("/v0/admit?timeout=10s")
                .header("host", NAME)
                .body(Full::new(Bytes::from(body.to_string())))
                .unwrap();
            self.sender.ready().await?;
            self.sender.send_request(request).await
        }

        async fn review(&mut self, object: &Value) -> hyper::Result<Response<Incoming>> {
            let review = json!({
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "request": {"uid": "one", "operation": "CREATE", "object": object},
            });
            self.send(Method::POST, &review).await
        }

        /// Sends a review whose answer is fetched by a task of its own.
        fn review_later(mut self) -> JoinHandle<hyper::Result<(StatusCode, Client)>> {
            tokio::spawn(async move {
                let response = self.review(&plain()).await?;
                let status = response.status();
                response.into_body().collect().await?;
                Ok((status, self))
            })
        }
    }

    fn plain() -> Value {
        json!({"metadata": {"name": "a"}})
    }

    async fn within<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(GUARD, future).await.expect("the test hangs")
    }

    async fn is_silent<T>(future: impl Future<Output = T>) -> bool {
        tokio::time::timeout(SILENCE, future).await.is_err()
    }

    #[tokio::test]
    async fn healthy_allows_echoes_the_uid_keeps_the_connection_and_refuses_other_methods() {
        let lab = Lab::start(BackendRole::Validating).await;
        let mut client = lab.connect().await.unwrap();
        for _ in 0..2 {
            let response = client.review(&plain()).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let answer: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(answer["kind"], "AdmissionReview");
            assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
            assert_eq!(answer["response"], json!({"uid": "one", "allowed": true}));
        }
        let response = client.send(Method::GET, &Value::Null).await.unwrap();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        let counters = lab.backend.counters();
        assert_eq!((counters.reviews(), counters.others()), (2, 1));
    }

    #[tokio::test]
    async fn a_mutating_backend_annotates_with_a_patch_that_applies_to_any_object() {
        let lab = Lab::start(BackendRole::Mutating).await;
        let mut client = lab.connect().await.unwrap();
        for mut object in [
            plain(),
            json!({"metadata": {"name": "a", "annotations": {"kept": "yes"}}}),
        ] {
            let kept = object.pointer("/metadata/annotations/kept").cloned();
            let response = client.review(&object).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let answer: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(answer["response"]["patchType"], "JSONPatch");
            let patch = answer["response"]["patch"].as_str().unwrap();
            let patch = base64::prelude::BASE64_STANDARD.decode(patch).unwrap();
            let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
            json_patch::patch(&mut object, &patch).unwrap();
            assert_eq!(object["metadata"]["annotations"][answer::ANNOTATION], "true");
            assert_eq!(object.pointer("/metadata/annotations/kept").cloned(), kept);
        }
    }

    #[tokio::test]
    async fn slow_answers_late_and_right() {
        let lab = Lab::start(BackendRole::Validating).await;
        let delay = Duration::from_millis(200);
        lab.behave(Behaviour::Slow(delay)).await;
        let mut client = lab.connect().await.unwrap();
        let asked = tokio::time::Instant::now();
        let response = within(client.review(&plain())).await.unwrap();
        assert!(asked.elapsed() >= delay);
        assert_eq!(response.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn stopped_freezes_old_connections_and_lets_the_kernel_accept_new_ones() {
        let lab = Lab::start(BackendRole::Validating).await;
        let old = lab.connect().await.unwrap();
        lab.behave(Behaviour::Stopped).await;
        let mut old = old.review_later();
        assert!(is_silent(&mut old).await, "an old connection got an answer");
        TcpStream::connect(lab.backend.address())
            .await
            .expect("the kernel accepts");
        let mut new = Box::pin(lab.connect());
        assert!(is_silent(&mut new).await, "a TLS handshake got an answer");
        lab.behave(Behaviour::Healthy).await;
        assert_eq!(within(old).await.unwrap().unwrap().0, StatusCode::OK);
        let mut new = within(new).await.unwrap();
        assert_eq!(
            within(new.review(&plain())).await.unwrap().status(),
            StatusCode::OK
        );
    }

    #[tokio::test]
    async fn accept_and_hang_answers_no_call_and_then_resumes_every_call() {
        let lab = Lab::start(BackendRole::Validating).await;
        let old = lab.connect().await.unwrap();
        lab.behave(Behaviour::AcceptAndHang).await;
        let mut old = old.review_later();
        let mut new = Box::pin(lab.connect());
        assert!(is_silent(&mut old).await, "an old connection got an answer");
        assert!(is_silent(&mut new).await, "a TLS handshake got an answer");
        lab.behave(Behaviour::Healthy).await;
        assert_eq!(within(old).await.unwrap().unwrap().0, StatusCode::OK);
        within(new).await.unwrap();
    }

    #[tokio::test]
    async fn hang_after_tls_reads_the_request_and_answers_only_when_it_is_over() {
        let lab = Lab::start(BackendRole::Validating).await;
        lab.behave(Behaviour::HangAfterTls).await;
        let client = lab.connect().await.expect("the handshake works");
        let mut answer = client.review_later();
        assert!(is_silent(&mut answer).await);
        assert_eq!(lab.backend.counters().reviews(), 1);
        lab.behave(Behaviour::Healthy).await;
        assert_eq!(within(answer).await.unwrap().unwrap().0, StatusCode::OK);
    }

    #[tokio::test]
    async fn close_after_answer_takes_no_second_request_on_a_connection() {
        let lab = Lab::start(BackendRole::Validating).await;
        lab.behave(Behaviour::CloseAfterAnswer).await;
        for method in [Method::POST, Method::GET] {
            let mut client = lab.connect().await.unwrap();
            let response = within(client.send(method.clone(), &Value::Null)).await.unwrap();
            within(response.into_body().collect()).await.unwrap();
            assert!(within(client.review_later()).await.unwrap().is_err(), "{method}");
        }
        assert_eq!(lab.ask().await.0, StatusCode::OK, "a new connection is served");
    }

    #[tokio::test]
    async fn refused_closes_everything_and_comes_back_on_the_same_port() {
        let lab = Lab::start(BackendRole::Validating).await;
        let address = lab.backend.address();
        let old = lab.connect().await.unwrap();
        lab.behave(Behaviour::Refused).await;
        assert!(
            within(old.review_later()).await.unwrap().is_err(),
            "an old connection lives"
        );
        let error = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        lab.behave(Behaviour::Healthy).await;
        assert_eq!(lab.ask().await.0, StatusCode::OK);
        assert_eq!(lab.backend.address(), address);
    }

    #[tokio::test]
    async fn an_http_error_meets_every_method() {
        let lab = Lab::start(BackendRole::Validating).await;
        lab.behave(Behaviour::HttpStatus(500, "boom".into())).await;
        let mut client = lab.connect().await.unwrap();
        for method in [Method::POST, Method::GET] {
            let response = client.send(method, &plain()).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(&body[..], b"boom");
        }
    }

    #[tokio::test]
    async fn wrong_answers_are_wrong_in_the_one_way_asked_for() {
        let lab = Lab::start(BackendRole::Validating).await;
        lab.behave(Behaviour::NotAnAdmissionReview).await;
        let (status, answer) = lab.ask().await;
        assert_eq!(
            (status, answer.get("response")),
            (StatusCode::OK, None),
            "{answer}"
        );

        lab.behave(Behaviour::WrongUid).await;
        let (_, answer) = lab.ask().await;
        assert_eq!(answer["response"]["allowed"], true);
        assert_ne!(answer["response"]["uid"], "one");

        lab.behave(Behaviour::Deny(403, "not today".into())).await;
        let (status, answer) = lab.ask().await;
        assert_eq!(
            (status, &answer["response"]["uid"]),
            (StatusCode::OK, &json!("one"))
        );
        assert_eq!(answer["response"]["allowed"], false);
        assert_eq!(
            answer["response"]["status"],
            json!({"code": 403, "message": "not today"})
        );
    }

    #[tokio::test]
    async fn an_endless_body_goes_on_until_the_behaviour_changes() {
        let lab = Lab::start(BackendRole::Validating).await;
        lab.behave(Behaviour::EndlessBody).await;
        let mut client = lab.connect().await.unwrap();
        let mut body = client.review(&plain()).await.unwrap().into_body();
        let mut read = 0;
        while read < 256 << 10 {
            let frame = within(body.frame()).await.expect("the body ended").unwrap();
            read += frame.data_ref().map_or(0, Bytes::len);
        }
        lab.behave(Behaviour::Healthy).await;
        within(body.collect()).await.unwrap();
    }

    #[tokio::test]
    async fn another_certificate_is_served_on_every_connection_at_once() {
        let lab = Lab::start(BackendRole::Validating).await;
        let old = lab.connect().await.unwrap();
        let expired = lab.authority.issue_expired(NAME).unwrap();
        lab.backend.serve_certificate(&expired).await.unwrap();
        assert!(within(old.review_later()).await.unwrap().is_err());
        let error = lab.connect().await.err().expect("an expired certificate");
        assert!(error.to_string().contains("expired"), "{error}");
        let good = lab.authority.issue(NAME).unwrap();
        lab.backend.serve_certificate(&good).await.unwrap();
        assert_eq!(lab.ask().await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn a_group_shares_one_port_on_distinct_addresses() {
        let certificate = Authority::new("lab").unwrap().issue(NAME).unwrap();
        let hosts = [2, 3, 4].map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
        let group = LabBackend::start_group(&hosts, BackendRole::Validating, &certificate)
            .await
            .unwrap();
        assert_eq!(group.len(), 3);
        for (backend, host) in group.iter().zip(hosts) {
            assert_eq!(
                backend.address(),
                SocketAddr::new(host, group[0].address().port())
            );
        }
    }
}
