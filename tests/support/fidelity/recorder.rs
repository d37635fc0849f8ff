//! A backend that allows everything and records the reviews that it gets.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hookwatch::lab::certs::Authority;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

type Seen = Arc<Mutex<Vec<(String, Value)>>>;

/// The recording backend.
pub struct Recorder {
    pub address: SocketAddr,
    seen: Seen,
    _server: JoinSet<()>,
}

impl Recorder {
    pub async fn start(authority: &Authority) -> Self {
        let config = authority.issue("127.0.0.1").unwrap().server_config().unwrap();
        let acceptor = TlsAcceptor::from(config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Seen::default();
        let mut server = JoinSet::new();
        server.spawn(serve(listener, acceptor, Arc::clone(&seen)));
        Self {
            address,
            seen,
            _server: server,
        }
    }

    /// The reviews since the last call, in order of arrival: the URL's path and the AdmissionRequest.
    pub fn take(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, seen: Seen) {
    let mut open = JoinSet::new();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
        open.spawn(async move {
            let Ok(stream) = acceptor.accept(tcp).await else {
                return;
            };
            let service = service_fn(|request| answer(request, Arc::clone(&seen)));
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(request: Request<Incoming>, seen: Seen) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": true},
    });
    seen.lock().unwrap().push((path, review["request"].clone()));
    Ok(Response::new(Full::new(Bytes::from(answer.to_string()))))
}
