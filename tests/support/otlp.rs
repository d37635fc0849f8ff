//! An OTLP receiver for HTTP and gRPC on one port, with or without TLS. It records what it gets and can misbehave.

#[path = "otlp/samples.rs"]
pub mod samples;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use flate2::read::GzDecoder;
use hookwatch::lab::certs::{Authority, ServingCertificate};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::service::Routes;

/// How the receiver behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Well,
    /// Answers this many requests as overloaded, and works after that.
    Busy(usize),
    /// Accepts each request but rejects one item of it (partial success).
    Rejecting,
    /// Answers 400 or INVALID_ARGUMENT.
    Refusing,
    /// Reads the request and never answers.
    Silent,
    /// Answers every connection with bytes that are neither HTTP nor gRPC.
    Garbage,
    /// A web site: 200 and a page.
    Page,
    /// 200 and a body without an end.
    Endless,
}

/// What was sent.
#[derive(Debug, Default)]
pub struct Sent {
    pub spans: Vec<Span>,
    /// One entry for each request.
    pub metrics: Vec<Vec<Metric>>,
    pub resources: Vec<Resource>,
    /// Headers of all requests, gRPC's metadata among them.
    pub headers: Vec<HeaderMap>,
}

#[derive(Debug)]
struct Inner {
    manner: Manner,
    sent: Mutex<Sent>,
    requests: AtomicUsize,
    connections: AtomicUsize,
}

/// The receiver; dropping it closes its port and connections.
pub struct Receiver {
    pub address: SocketAddr,
    inner: Arc<Inner>,
    _server: JoinSet<()>,
}

impl Receiver {
    pub async fn start(manner: Manner) -> Self {
        Self::serve(manner, None).await
    }

    /// With TLS; accepts only clients with a certificate of this authority.
    pub async fn with_tls(certificate: &ServingCertificate, clients: &Authority) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(clients.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let key = PrivateKeyDer::from_pem_slice(certificate.key_pem().as_bytes()).unwrap();
        let mut config = ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificate.chain().to_vec(), key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self::serve(Manner::Well, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn serve(manner: Manner, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            manner,
            sent: Mutex::default(),
            requests: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
        });
        let mut server = JoinSet::new();
        server.spawn(accept(listener, tls, Arc::clone(&inner)));
        Self {
            address,
            inner,
            _server: server,
        }
    }

    /// Looks at what was sent so far.
    pub fn look<T>(&self, at: impl FnOnce(&Sent) -> T) -> T {
        at(&self.inner.sent.lock().unwrap())
    }

    pub fn requests(&self) -> usize {
        self.inner.requests.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.inner.connections.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, inner: Arc<Inner>) {
    let router = router(&inner);
    let mut open = JoinSet::new();
    loop {
        let (mut tcp, _) = listener.accept().await.unwrap();
        inner.connections.fetch_add(1, Ordering::SeqCst);
        let (router, tls) = (router.clone(), tls.clone());
        let garbage = inner.manner == Manner::Garbage;
        open.spawn(async move {
            if garbage {
                let _ = tcp.write_all(&[0x42; 512]).await;
                return;
            }
            let service = TowerToHyperService::new(router);
            let server = Builder::new(TokioExecutor::new());
            match tls {
                None => drop(server.serve_connection(TokioIo::new(tcp), service).await),
                Some(tls) => {
                    if let Ok(stream) = tls.accept(tcp).await {
                        let _ = server.serve_connection(TokioIo::new(stream), service).await;
                    }
                }
            }
        });
        while open.try_join_next().is_some() {}
    }
}

fn router(inner: &Arc<Inner>) -> Router {
    let gzip = tonic::codec::CompressionEncoding::Gzip;
    let traces = TraceServiceServer::from_arc(Arc::clone(inner)).accept_compressed(gzip);
    let metrics = MetricsServiceServer::from_arc(Arc::clone(inner)).accept_compressed(gzip);
    let grpc = Routes::new(traces).add_service(metrics).into_axum_router();
    Router::new()
        .route("/v1/traces", post(http::<ExportTraceServiceRequest>))
        .route("/v1/metrics", post(http::<ExportMetricsServiceRequest>))
        .with_state(Arc::clone(inner))
        .merge(grpc)
}

/// The common parts of traces and metrics.
trait Request: Message + Default {
    type Answer: Message + Default;

    fn keep(self, sent: &mut Sent);
    fn rejecting() -> Self::Answer;
}

impl Request for ExportTraceServiceRequest {
    type Answer = ExportTraceServiceResponse;

    fn keep(self, sent: &mut Sent) {
        for resource_spans in self.resource_spans {
            sent.resources.extend(resource_spans.resource);
            for scope in resource_spans.scope_spans {
                assert_eq!(scope.scope.unwrap().name, "hookwatch");
                sent.spans.extend(scope.spans);
            }
        }
    }

    fn rejecting() -> Self::Answer {
        let partial_success = Some(ExportTracePartialSuccess {
            rejected_spans: 1,
            error_message: "one too many".to_owned(),
        });
        Self::Answer { partial_success }
    }
}

impl Request for ExportMetricsServiceRequest {
    type Answer = ExportMetricsServiceResponse;

    fn keep(self, sent: &mut Sent) {
        for resource_metrics in self.resource_metrics {
            sent.resources.extend(resource_metrics.resource);
            for scope in resource_metrics.scope_metrics {
                assert_eq!(scope.scope.unwrap().name, "hookwatch");
                sent.metrics.push(scope.metrics);
            }
        }
    }

    fn rejecting() -> Self::Answer {
        let partial_success = Some(ExportMetricsPartialSuccess {
            rejected_data_points: 1,
            error_message: "one too many".to_owned(),
        });
        Self::Answer { partial_success }
    }
}

impl Inner {
    /// Counts a request; returns whether a busy receiver rejects it.
    fn count(&self) -> bool {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        matches!(self.manner, Manner::Busy(busy) if number < busy)
    }

    fn keep(&self, request: impl Request, headers: HeaderMap) {
        let mut sent = self.sent.lock().unwrap();
        sent.headers.push(headers);
        request.keep(&mut sent);
    }
}

async fn http<R: Request>(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    const PROTOBUF: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/x-protobuf")];
    if inner.count() {
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "0")]).into_response();
    }
    assert_eq!(headers[header::CONTENT_TYPE], "application/x-protobuf");
    let mut plain = Vec::new();
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) => {
            assert_eq!(encoding, "gzip");
            std::io::Read::read_to_end(&mut GzDecoder::new(&*body), &mut plain).unwrap();
        }
        None => plain.extend_from_slice(&body),
    }
    inner.keep(R::decode(&*plain).unwrap(), headers);
    match inner.manner {
        Manner::Silent => std::future::pending().await,
        Manner::Refusing => StatusCode::BAD_REQUEST.into_response(),
        Manner::Rejecting => (PROTOBUF, R::rejecting().encode_to_vec()).into_response(),
        Manner::Page => ([(header::CONTENT_TYPE, "text/html")], "<h1>Welcome</h1>").into_response(),
        Manner::Endless => {
            let drops = std::iter::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![0; 4_096])));
            (PROTOBUF, Body::from_stream(futures::stream::iter(drops))).into_response()
        }
        _ => (PROTOBUF, Bytes::new()).into_response(),
    }
}

impl Inner {
    async fn grpc<R: Request>(
        &self,
        request: tonic::Request<R>,
    ) -> Result<tonic::Response<R::Answer>, tonic::Status> {
        if self.count() {
            return Err(tonic::Status::unavailable("busy"));
        }
        let headers = request.metadata().clone().into_headers();
        self.keep(request.into_inner(), headers);
        match self.manner {
            Manner::Silent => std::future::pending().await,
            Manner::Refusing => Err(tonic::Status::invalid_argument("no")),
            Manner::Rejecting => Ok(tonic::Response::new(R::rejecting())),
            _ => Ok(tonic::Response::new(R::Answer::default())),
        }
    }
}

#[tonic::async_trait]
impl TraceService for Inner {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.grpc(request).await
    }
}

#[tonic::async_trait]
impl MetricsService for Inner {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<ExportMetricsServiceResponse>, tonic::Status> {
        self.grpc(request).await
    }
}

/// An attribute that is a text.
pub fn attribute<'a>(
    attributes: &'a [opentelemetry_proto::tonic::common::v1::KeyValue],
    key: &str,
) -> Option<&'a str> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}
