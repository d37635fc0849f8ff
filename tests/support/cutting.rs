//! A proxy between hookwatch and an API server that loses requests and answers, or answers by itself.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hookwatch::app::engine::clock;
use hookwatch::domain::act::bypass::ObjectWriter;
use hookwatch::domain::act::bypass::edit::Author;
use hookwatch::io::act::breaker::{ApiServerClient, ConfigWriter, RetryPolicy};
use hookwatch::io::client::Connection;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub const ACCOUNT: &str = "system:serviceaccount:hookwatch:hookwatch";

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Pass,
    /// The request does not reach the API server.
    Lost,
    /// The request is executed, and its answer is lost.
    AnswerLost,
    /// The request does not reach the API server; this status and `Retry-After` come back.
    Answered(u16, Option<u64>),
    /// The request is executed, and this status comes back.
    Misreported(u16),
}

pub struct Cutting {
    pub address: SocketAddr,
    count: Arc<AtomicUsize>,
    carried_out: Arc<AtomicUsize>,
    writes: Arc<Mutex<Vec<usize>>>,
    _task: JoinSet<()>,
}

impl Cutting {
    /// Passes requests on with the credentials of `client`; the first has number 1.
    pub async fn start(client: Client, fate: impl Fn(usize) -> Fate + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (count, writes) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (numbers, written, fate) = (Arc::clone(&count), Arc::clone(&writes), Arc::new(fate));
        let carried_out = Arc::new(AtomicUsize::new(0));
        let arrived = Arc::clone(&carried_out);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (client, numbers, written) = (client.clone(), Arc::clone(&numbers), Arc::clone(&written));
                let (fate, arrived) = (Arc::clone(&fate), Arc::clone(&arrived));
                connections.spawn(async move {
                    let service = service_fn(|request: Request<Incoming>| {
                        let number = numbers.fetch_add(1, Ordering::SeqCst) + 1;
                        if request.method() == http::Method::PATCH {
                            written.lock().unwrap().push(number);
                        }
                        answer(
                            client.clone(),
                            request,
                            fate(number),
                            (number, Arc::clone(&arrived)),
                        )
                    });
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self {
            address,
            count,
            carried_out,
            writes,
            _task: task,
        }
    }

    /// Requests so far.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// The number of the last request that the API server has answered.
    pub fn carried_out(&self) -> usize {
        self.carried_out.load(Ordering::SeqCst)
    }

    /// The numbers of the requests that write.
    pub fn writes(&self) -> Vec<usize> {
        self.writes.lock().unwrap().clone()
    }

    pub async fn server(&self) -> ApiServerClient {
        let mut config = Config::new(format!("http://{}", self.address).parse().unwrap());
        config.root_cert = Some(Vec::new());
        let connection = Connection::from_config(config).await.unwrap();
        ApiServerClient::new(&self.address.to_string(), connection.calls().clone(), true)
    }

    pub async fn writer(&self) -> ConfigWriter {
        writer(vec![self.server().await])
    }
}

async fn answer(
    client: Client,
    request: Request<Incoming>,
    fate: Fate,
    (number, arrived): (usize, Arc<AtomicUsize>),
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let lost = || std::io::Error::other("lost");
    let made_up = |status: u16, retry_after: Option<u64>| {
        let mut answer = Response::builder().status(status);
        if let Some(seconds) = retry_after {
            answer = answer.header("retry-after", seconds);
        }
        let text = format!("{{\"kind\":\"Status\",\"message\":\"made up\",\"code\":{status}}}");
        Ok(answer.body(Full::from(text)).unwrap())
    };
    match fate {
        Fate::Lost => return Err(lost()),
        Fate::Answered(status, retry_after) => return made_up(status, retry_after),
        Fate::Pass | Fate::AnswerLost | Fate::Misreported(_) => {}
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| lost())?.to_bytes();
    let mut onward = Request::builder()
        .method(head.method)
        .uri(head.uri.path_and_query().map_or("/", |path| path.as_str()));
    for name in ["content-type", "accept"] {
        if let Some(value) = head.headers.get(name) {
            onward = onward.header(name, value);
        }
    }
    let onward = onward.body(Body::from(body.to_vec())).unwrap();
    let answer = client.send(onward).await.map_err(|_| lost())?;
    let (status, body) = (answer.status(), answer.into_body());
    let body = body.collect().await.map_err(|_| lost())?.to_bytes();
    arrived.fetch_max(number, Ordering::SeqCst);
    match fate {
        Fate::AnswerLost => Err(lost()),
        Fate::Misreported(status) => made_up(status, None),
        _ => {
            let answer = Response::builder()
                .status(status)
                .header("content-type", "application/json");
            Ok(answer.body(Full::from(body)).unwrap())
        }
    }
}

/// A writer with short waits between retries.
pub fn writer(servers: Vec<ApiServerClient>) -> ConfigWriter {
    let patience = RetryPolicy {
        first_wait: std::time::Duration::from_millis(20),
        longest_wait: std::time::Duration::from_millis(200),
        ..RetryPolicy::default()
    };
    ConfigWriter::new(servers, clock(), patience)
}

pub fn author() -> Author {
    Author {
        namespace: "hookwatch".to_owned(),
        account: ACCOUNT.to_owned(),
        writer: ObjectWriter {
            identity: "replica-1".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        match_conditions: true,
        fenced: false,
    }
}
