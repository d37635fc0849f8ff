//! The daemon's own HTTP server: the status page at `/`, `/metrics`, `/live`, `/ready` and `/api/v1/assessment`.

mod access;
mod cached;
mod patient;
mod room;
mod server;
mod status;
mod tls;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::cached::Cached;
use super::lock;
use super::report::Reported;
use super::report::metrics::Metrics;
use crate::domain::report::assessment::{Assessment, NOTHING_JUDGED};

pub use access::{Access, TokenError};
pub use tls::{Tls, TlsError, TlsFiles};

/// Age of the newest assessment from which `/live` fails. The core judges at least every two seconds, so by then it hangs, and only
/// a restart helps.
const JUDGES_WITHIN: Duration = Duration::from_secs(10);

/// The answer when the thread that renders answers is gone.
const STOPPING: &str = "hookwatch is stopping\n";

/// Where the server listens, and for whom.
#[derive(Debug)]
pub struct Listening {
    /// Serves everything, except `/metrics` when that has an address of its own.
    pub main: TcpListener,
    /// Serves `/metrics`, `/live` and `/ready` without TLS; `None` when `main` serves the metrics.
    pub metrics: Option<TcpListener>,
    /// TLS of `main`; `None` for plain HTTP.
    pub tls: Option<Tls>,
    /// Who may see the page and the API.
    pub access: Access,
    /// What the page calls the cluster; `None` where it has no name.
    pub cluster: Option<String>,
}

impl From<TcpListener> for Listening {
    /// Everything on one listener without TLS; the page and the API only for this host.
    fn from(main: TcpListener) -> Self {
        Self {
            main,
            metrics: None,
            tls: None,
            access: Access::default(),
            cluster: None,
        }
    }
}

/// The server could not begin to listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}; choose another address with {setting}")]
pub struct ListenError {
    address: SocketAddr,
    setting: &'static str,
    source: std::io::Error,
}

/// Begins to listen on the address of a setting.
///
/// # Errors
/// When the address is taken or not ours.
pub async fn listen(address: SocketAddr, setting: &'static str) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError {
        address,
        setting,
        source,
    })
}

/// Serves until `stop` turns true; requests in flight are finished.
pub async fn serve(listening: Listening, shown: Reported, stop: watch::Receiver<bool>) {
    let Listening {
        main,
        metrics,
        tls,
        access,
        cluster,
    } = listening;
    let judged = LastJudged::default();
    let observed = observed(shown.clone(), judged.clone());
    let page = status::StatusPage::new(shown.clone(), judged.clone(), cluster);
    let told = told(shown.clone(), page, access);
    // Each listener has connection slots of its own: clients that fill one port do not keep a scraper or the kubelet from the
    // other.
    let beside = metrics.map(|listener| {
        let router = observed.clone().merge(metrics_of(shown.clone()));
        server::serve(listener, None, router, stop.clone())
    });
    let whole = match beside {
        Some(_) => told.merge(observed).route("/metrics", get(metrics_elsewhere)),
        None => told.merge(observed).merge(metrics_of(shown.clone())),
    };
    let beside = async {
        if let Some(beside) = beside {
            beside.await;
        }
    };
    let serving = async { tokio::join!(server::serve(main, tls, whole, stop), beside) };
    tokio::select! {
        _ = serving => {}
        () = judged.keep(shown.assessment) => {}
    }
}

fn observed(shown: Reported, judged: LastJudged) -> Router {
    Router::new()
        .route("/live", get(move || live(judged)))
        .route("/ready", get(ready))
        .with_state(shown)
}

fn metrics_of(shown: Reported) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .with_state((shown, Cached::default()))
        .layer(axum::middleware::from_fn(access::refuse_other_names))
}

/// Routes that show hooks, under access control.
fn told(shown: Reported, page: status::StatusPage, access: Access) -> Router {
    let page = Router::new()
        .route("/", get(status::whole))
        .route("/fragment", get(status::fragment))
        .with_state(page);
    Router::new()
        .route("/api/v1/assessment", get(assessment))
        .with_state((shown, WrittenAssessment::default()))
        .merge(page)
        .layer(axum::middleware::from_fn_with_state(
            Arc::new(access),
            access::admit,
        ))
}

/// When the newest assessment came.
#[derive(Debug, Clone)]
struct LastJudged(Arc<Mutex<Instant>>);

impl Default for LastJudged {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl LastJudged {
    /// Records when assessments arrive, without end.
    async fn keep(&self, mut assessment: watch::Receiver<Option<Arc<Assessment>>>) {
        while assessment.changed().await.is_ok() {
            *lock(&self.0) = Instant::now();
        }
        // A core that is gone makes no further assessments; the server keeps reporting that.
        std::future::pending().await
    }

    fn elapsed(&self) -> Duration {
        lock(&self.0).elapsed()
    }
}

/// Alive as long as the core judges: a daemon that only answers questions is of no use.
async fn live(judged: LastJudged) -> Response {
    let silent = judged.elapsed();
    if silent < JUDGES_WITHIN {
        "alive\n".into_response()
    } else {
        let said = format!("nothing has been judged for {} s\n", silent.as_secs());
        (StatusCode::SERVICE_UNAVAILABLE, said).into_response()
    }
}

/// The metrics as text, or why they cannot be written as such.
type MetricsText = Result<Bytes, String>;

async fn metrics(State((shown, cached)): State<(Reported, Cached<MetricsText>)>) -> Response {
    let make = move || {
        let text = Metrics::text(&shown.families());
        text.map(Bytes::from).map_err(|error| format!("{error}\n"))
    };
    match cached.get(make).await.unwrap_or_else(|| Err(STOPPING.to_owned())) {
        Ok(text) => (
            [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
            text,
        )
            .into_response(),
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, why).into_response(),
    }
}

async fn metrics_elsewhere() -> (StatusCode, &'static str) {
    (
        StatusCode::NOT_FOUND,
        "metrics are served on the address in serve.metricsListen, without TLS\n",
    )
}

/// Ready once there is an inventory to judge by, and from then on: a daemon with an old inventory still serves, and says how old it
/// is.
async fn ready(State(shown): State<Reported>) -> Response {
    let assessment = shown.assessment.borrow().clone();
    let has_inventory =
        assessment.is_some_and(|assessment| assessment.sources.inventory_age_seconds.is_some());
    if has_inventory {
        "ready\n".into_response()
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "waiting for the first list of webhook configurations\n",
        )
            .into_response()
    }
}

/// The newest requested assessment, as JSON: serialised once for all clients.
type WrittenAssessment = Arc<tokio::sync::Mutex<Option<(Arc<Assessment>, Bytes)>>>;

async fn assessment(State((shown, written)): State<(Reported, WrittenAssessment)>) -> Response {
    let mut written = written.lock().await;
    let Some(newest) = shown.assessment.borrow().clone() else {
        return (StatusCode::SERVICE_UNAVAILABLE, NOTHING_JUDGED).into_response();
    };
    let known = written.take_if(|(known, _)| Arc::ptr_eq(known, &newest));
    let json = match known {
        Some((_, json)) => json,
        None => {
            let read = Arc::clone(&newest);
            // With thousands of webhooks the JSON has megabytes, which would block a runtime thread.
            let made = tokio::task::spawn_blocking(move || serde_json::to_vec(&*read)).await;
            match made.map_err(|_| STOPPING.to_owned()) {
                Ok(Ok(json)) => Bytes::from(json),
                Ok(Err(error)) => {
                    return (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response();
                }
                Err(why) => return (StatusCode::INTERNAL_SERVER_ERROR, why).into_response(),
            }
        }
    };
    *written = Some((newest, json.clone()));
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::domain::time::Time;
    use crate::domain::watchdog::{Event, Watchdog, WatchdogEffect};
    use crate::io::testing::soon;

    /// A server's view of a daemon that has nothing but assessments.
    fn shown(assessment: watch::Receiver<Option<Arc<Assessment>>>) -> Reported {
        Reported {
            assessment,
            metrics: Arc::new(Metrics::new().expect("metrics")),
            certificates: Arc::default(),
            past: Arc::default(),
        }
    }

    /// Everything in one place, the page and the API for this host alone.
    /// A running server with the end by which assessments are published.
    async fn start() -> (
        SocketAddr,
        watch::Sender<Option<Arc<Assessment>>>,
        watch::Sender<bool>,
    ) {
        let listener = listen("127.0.0.1:0".parse().expect("an address"), "--listen").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let (publish, assessment) = watch::channel(None);
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(serve(listener.into(), shown(assessment), stopped));
        (address, publish, stop)
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    #[tokio::test]
    async fn clients_that_send_one_byte_and_wait_delay_no_other_and_are_closed() {
        let (address, _publish, _stop) = start().await;
        let mut slow = Vec::new();
        for _ in 0..160 {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            stream.write_all(b"G").await.expect("one byte");
            slow.push(stream);
        }
        let answer = soon(get(address, "/live")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // Not because their time was over: the last of them is still being waited for.
        let newest = slow.last().expect("a connection").try_read(&mut [0; 1]);
        assert_eq!(newest.map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
        for mut stream in slow {
            let mut rest = Vec::new();
            let closed = soon(stream.read_to_end(&mut rest)).await;
            assert!(rest.is_empty() || closed.is_err() || rest.starts_with(b"HTTP/1.1 408"));
        }
    }

    #[tokio::test]
    async fn a_website_that_resolves_its_name_to_this_host_reads_no_metrics_and_a_scraper_does() {
        let (address, _publish, _stop) = start().await;
        let asked = async |host: &str| {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            let request = format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.expect("a request");
            let mut answer = String::new();
            soon(stream.read_to_string(&mut answer)).await.expect("an answer");
            answer[..12].to_owned()
        };
        for host in ["localhost:9880", "127.0.0.1:9880", "[::1]:9880", "10.1.2.3:9880"] {
            assert_eq!(asked(host).await, "HTTP/1.1 200", "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9880", "x y"] {
            assert_ne!(asked(host).await, "HTTP/1.1 200", "{host}");
        }
    }

    #[tokio::test]
    async fn metrics_are_written_as_text_once_a_second_however_many_ask() {
        let (_publish, assessment) = watch::channel(None);
        let (shown, cached) = (shown(assessment), Cached::default());
        let text = async |cached: &Cached<MetricsText>| {
            let answer = metrics(State((shown.clone(), cached.clone()))).await;
            assert_eq!(answer.status(), StatusCode::OK);
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
            body.expect("a body")
        };
        let before = text(&cached).await;
        shown.metrics.acted("bypass", "applied");
        assert_eq!(text(&cached).await, before);
        assert_ne!(text(&Cached::default()).await, before);
    }

    #[tokio::test]
    async fn an_assessment_is_written_as_json_once_however_many_ask_and_the_next_one_is_another() {
        let judge = |seconds: u64| {
            let now = Time::from_unix_millis(seconds * 1_000);
            let mut told = Watchdog::new("hookwatch").handle(Event::Tick, now).into_iter();
            told.find_map(|effect| match effect {
                WatchdogEffect::Publish(assessment, _) => Some(assessment),
                _ => None,
            })
        };
        let (publish, published) = watch::channel(judge(1));
        let (shown, written) = (shown(published), WrittenAssessment::default());
        let ask = async || {
            let answer = assessment(State((shown.clone(), written.clone()))).await;
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json");
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
            body.expect("a body")
        };
        let first = ask().await;
        // The very same bytes.
        assert_eq!(ask().await.as_ptr(), first.as_ptr());
        publish.send_replace(judge(2));
        let second = ask().await;
        assert!(first != second && second.starts_with(b"{"), "{second:?}");
    }

    #[tokio::test]
    async fn a_stop_ends_the_server_although_a_client_keeps_its_connection() {
        let listener = listen("127.0.0.1:0".parse().expect("an address"), "--listen").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        let (_publish, assessment) = watch::channel(None);
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(serve(listener.into(), shown(assessment), stopped));
        let mut idle = TcpStream::connect(address).await.expect("a connection");
        idle.write_all(b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .expect("a request");
        let mut some = [0; 12];
        soon(idle.read_exact(&mut some)).await.expect("an answer");
        assert_eq!(&some, b"HTTP/1.1 503");
        stop.send_replace(true);
        soon(serving).await.expect("no panic");
    }

    #[tokio::test]
    async fn a_core_that_stopped_judging_is_not_alive() {
        let judged = LastJudged::default();
        assert_eq!(live(judged.clone()).await.status(), StatusCode::OK);
        let long_ago = Instant::now().checked_sub(JUDGES_WITHIN);
        *judged.0.lock().expect("no poison") = long_ago.expect("the machine runs for longer");
        assert_eq!(
            live(judged.clone()).await.status(),
            StatusCode::SERVICE_UNAVAILABLE
        );
        let (publish, assessment) = watch::channel(None);
        let keeping = judged.clone();
        tokio::spawn(async move { keeping.keep(assessment).await });
        tokio::task::yield_now().await;
        publish.send_replace(None);
        tokio::task::yield_now().await;
        assert_eq!(live(judged).await.status(), StatusCode::OK);
    }
}
