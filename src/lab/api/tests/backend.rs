//! A webhook backend for the tests: a real TLS server that does as it is told.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

type Answering = Pin<Box<dyn Future<Output = Response<Full<Bytes>>> + Send>>;
type Handler = Arc<dyn Fn(Value) -> Answering + Send + Sync>;

pub(super) struct Backend {
    pub address: SocketAddr,
    ca_pem: String,
    pub connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

/// What is wrong with a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Certificate {
    Good,
    Expired,
    /// A self-signed CA that is its own leaf, as `openssl req -x509` makes.
    OwnAuthority,
    /// For another name.
    WrongName,
}

impl Backend {
    /// A backend that answers reviews with `handler`'s answers.
    pub(super) async fn start<F, A>(handler: F) -> Self
    where
        F: Fn(Value) -> A + Send + Sync + 'static,
        A: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        Self::with(Certificate::Good, handler).await
    }

    pub(super) async fn allowing() -> Self {
        Self::start(|review| async move { allow(&review) }).await
    }

    pub(super) async fn with<F, A>(certificate: Certificate, handler: F) -> Self
    where
        F: Fn(Value) -> A + Send + Sync + 'static,
        A: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let (acceptor, ca_pem) = identity(certificate);
        let handler: Handler = Arc::new(move |review| Box::pin(handler(review)));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let (tcp, _) = listener.accept().await.expect("a connection");
                counter.fetch_add(1, Ordering::Relaxed);
                let (acceptor, handler) = (acceptor.clone(), Arc::clone(&handler));
                open.spawn(async move {
                    let Ok(stream) = acceptor.accept(tcp).await else {
                        return;
                    };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let handler = Arc::clone(&handler);
                        async move {
                            let url = request.uri().to_string();
                            let agent = request.headers()["user-agent"]
                                .to_str()
                                .map(str::to_owned)
                                .unwrap_or_default();
                            let body = request.into_body().collect().await.expect("a body").to_bytes();
                            let mut review: Value = serde_json::from_slice(&body).unwrap_or_default();
                            review["test"] = json!({"url": url, "agent": agent});
                            let answer = handler(review).await;
                            // A handler that asks for it hangs up instead of answering.
                            if answer.status() == 599 {
                                return Err(std::io::Error::other("hang up"));
                            }
                            Ok(answer)
                        }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            address,
            ca_pem,
            connections,
            _tasks: tasks,
        }
    }

    /// `caBundle` as a configuration carries it.
    pub(super) fn ca_bundle(&self) -> String {
        BASE64_STANDARD.encode(&self.ca_pem)
    }
}

fn identity(certificate: Certificate) -> (TlsAcceptor, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "test-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    if certificate == Certificate::OwnAuthority {
        params.subject_alt_names = CertificateParams::new(vec!["localhost".to_owned()])
            .expect("parameters")
            .subject_alt_names;
    }
    let ca_key = KeyPair::generate().expect("a key");
    let ca_key_der = ca_key.serialize_der();
    let ca = CertifiedIssuer::self_signed(params, ca_key).expect("a CA");
    let names = match certificate {
        Certificate::WrongName => vec!["elsewhere.example".to_owned()],
        _ => vec!["localhost".to_owned(), "*.default.svc".to_owned()],
    };
    let mut params = CertificateParams::new(names).expect("parameters");
    if certificate == Certificate::Expired {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    }
    let key = KeyPair::generate().expect("a key");
    let leaf = params.signed_by(&key, &ca).expect("a certificate");
    let (chain, key) = if certificate == Certificate::OwnAuthority {
        (vec![ca.der().clone()], ca_key_der)
    } else {
        (vec![leaf.der().clone()], key.serialize_der())
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key.try_into().expect("a key"))
        .expect("a certificate");
    (TlsAcceptor::from(Arc::new(config)), ca.pem())
}

/// Allows what is reviewed.
pub(super) fn allow(review: &Value) -> Response<Full<Bytes>> {
    respond(review, json!({"allowed": true}))
}

/// Allows and changes what is reviewed.
pub(super) fn change(review: &Value, patch: &Value) -> Response<Full<Bytes>> {
    let patch = BASE64_STANDARD.encode(patch.to_string());
    respond(
        review,
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}),
    )
}

/// Answers with a response of one's own.
pub(super) fn respond(review: &Value, mut response: Value) -> Response<Full<Bytes>> {
    response["uid"] = review["request"]["uid"].clone();
    raw(
        200,
        &json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            .to_string(),
    )
}

/// Answers with anything.
pub(super) fn raw(code: u16, body: &str) -> Response<Full<Bytes>> {
    Response::builder()
        .status(code)
        .body(Full::new(Bytes::from(body.to_owned())))
        .expect("a response")
}

/// Hangs up.
pub(super) fn hang_up() -> Response<Full<Bytes>> {
    raw(599, "")
}
