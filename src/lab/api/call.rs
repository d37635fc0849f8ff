//! One HTTPS call to a hook, as the API server makes it: HTTP/1.1, kept-alive connections, its error texts.
//!
//! Connections are pooled per clientConfig. A call takes an idle connection if there is one and dials otherwise. A call that
//! breaks is not retried; a call that is answered with `Retry-After` is. So when a Pod vanishes behind live connections, each
//! of these connections costs one call its whole timeout.

mod dial;
mod trust;

use std::collections::VecDeque;
use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use prometheus::IntCounter;
use rustls::pki_types::ServerName;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;

use super::store::ObjectStore;
use dial::DEADLINE;

/// Idle connections kept per clientConfig, as the API server's transport keeps them.
const MAX_IDLE: usize = 25;
/// How long an idle connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Most clientConfigs whose connections are kept; beyond that the least recently used one makes room.
const MAX_CLIENTS: usize = 200;
/// Largest answer body that is read, in bytes.
const MAX_ANSWER: usize = 3 * 1_024 * 1_024;
/// Most retries of one call after answers with `Retry-After`, all within the hook's timeout.
const MAX_RETRIES: u32 = 10;

/// Where a hook's calls go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallDestination {
    /// `clientConfig.service`.
    Service { namespace: String, name: String },
    /// `clientConfig.url`.
    Url,
}

/// A hook's clientConfig, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallTarget {
    pub destination: CallDestination,
    /// The host of the URL and the TLS server name.
    pub host: String,
    pub port: u16,
    /// Scheme, host, port as written and path: the URL without its query.
    pub url: String,
    /// PEM; empty for the system's roots.
    pub ca_bundle: Vec<u8>,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallError {
    /// No client could be made of the clientConfig.
    NoClient(String),
    /// The request did not go through: `Post "URL": WHY`.
    Post(String),
    /// The request went through, but its answer cannot be used.
    Other(String),
    /// The hook answered with an HTTP error.
    Status { code: u16, message: String },
}

/// Makes calls and keeps connections.
#[derive(Debug)]
pub(super) struct Caller {
    clients: Mutex<VecDeque<(CallTarget, Arc<Client>)>>,
    missing_san: IntCounter,
}

struct Client {
    connector: TlsConnector,
    idle: Mutex<Vec<IdleConnection>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

struct IdleConnection {
    connection: CallConnection,
    since: Instant,
}

struct CallConnection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Ends with the connection and says what ended it.
    driver: JoinHandle<hyper::Result<()>>,
    local: Option<SocketAddr>,
    peer: SocketAddr,
}

impl Caller {
    /// A caller without connections.
    pub(super) fn new(missing_san: IntCounter) -> Self {
        Self {
            clients: Mutex::default(),
            missing_san,
        }
    }

    /// Posts a review and returns the body of a 2xx answer.
    pub(super) async fn post(
        &self,
        store: &ObjectStore,
        target: &CallTarget,
        review: Bytes,
        deadline: Instant,
    ) -> Result<Bytes, CallError> {
        let client = self.client(target).map_err(CallError::NoClient)?;
        let timeout = deadline.saturating_duration_since(Instant::now());
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        let query = format!("timeout={seconds}s");
        let mut retries = 0;
        loop {
            let sent = self.send(store, &client, target, &query, review.clone(), deadline);
            let post = |why: String| CallError::Post(format!("Post \"{}?{query}\": {why}", target.url));
            let (answer, connection) = sent.await.map_err(post)?;
            let (parts, body) = answer.into_parts();
            let body = timeout_at(deadline, Limited::new(body, MAX_ANSWER).collect()).await;
            let body = match body {
                Ok(Ok(body)) => body.to_bytes(),
                Ok(Err(_)) => return Err(unreadable("unexpected EOF")),
                Err(_) => return Err(unreadable(DEADLINE)),
            };
            client.put_back(connection);
            let code = parts.status.as_u16();
            if (200..=206).contains(&code) {
                return if body.is_empty() {
                    let content_type = header(&parts, CONTENT_TYPE).unwrap_or_default();
                    Err(CallError::Other(format!(
                        "0-length response with status code: {code} and content type: {content_type}"
                    )))
                } else {
                    Ok(body)
                };
            }
            let pause = header(&parts, RETRY_AFTER).and_then(|seconds| seconds.parse().ok());
            match pause.filter(|_| (code == 429 || code >= 500) && retries < MAX_RETRIES) {
                Some(seconds) => {
                    retries += 1;
                    let pause = sleep(Duration::from_secs(seconds));
                    if timeout_at(deadline, pause).await.is_err() {
                        return Err(post(DEADLINE.to_owned()));
                    }
                }
                None => return Err(refusal(code, header(&parts, CONTENT_TYPE), &body)),
            }
        }
    }

    /// Opens a new connection, TLS included, and closes it.
    pub(super) async fn reach(
        &self,
        store: &ObjectStore,
        target: &CallTarget,
        deadline: Instant,
    ) -> Result<(), String> {
        let client = self.client(target)?;
        self.dial(store, &client, target, deadline).await.map(drop)
    }

    /// The call when a firewall drops every packet: waits for the deadline and fails as a dial that timed out.
    pub(super) async fn dial_until_timeout(
        &self,
        store: &ObjectStore,
        target: &CallTarget,
        deadline: Instant,
    ) -> CallError {
        let seconds = deadline
            .saturating_duration_since(Instant::now())
            .as_secs_f64()
            .ceil();
        let why = match dial::resolve(store, target).await {
            Ok(peer) => {
                tokio::time::sleep_until(deadline).await;
                format!("dial tcp {peer}: i/o timeout")
            }
            Err(why) => why,
        };
        CallError::Post(format!("Post \"{}?timeout={seconds}s\": {why}", target.url))
    }

    async fn send(
        &self,
        store: &ObjectStore,
        client: &Client,
        target: &CallTarget,
        query: &str,
        review: Bytes,
        deadline: Instant,
    ) -> Result<(Response<Incoming>, CallConnection), String> {
        let mut connection = match client.take() {
            Some(connection) => connection,
            None => self.dial(store, client, target, deadline).await?,
        };
        let request = Request::post(format!("{}?{query}", path_of(&target.url)))
            .header(HOST, authority_of(&target.url))
            .header(USER_AGENT, "kube-apiserver-admission")
            .header(CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json, */*")
            .body(Full::new(review))
            .map_err(|error| error.to_string())?;
        match timeout_at(deadline, connection.sender.send_request(request)).await {
            Ok(Ok(answer)) => Ok((answer, connection)),
            Ok(Err(error)) => Err(connection.fate(error, deadline).await),
            Err(_) => Err(DEADLINE.to_owned()),
        }
    }

    async fn dial(
        &self,
        store: &ObjectStore,
        client: &Client,
        target: &CallTarget,
        deadline: Instant,
    ) -> Result<CallConnection, String> {
        let peer = timeout_at(deadline, dial::resolve(store, target))
            .await
            .map_err(|_| DEADLINE.to_owned())??;
        let name = target
            .host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
        let stream = dial::connect(peer, name, &client.connector, deadline).await?;
        let local = stream.get_ref().0.local_addr().ok();
        let shaken = timeout_at(deadline, http1::handshake(TokioIo::new(stream))).await;
        let (sender, driver) = shaken
            .map_err(|_| DEADLINE.to_owned())?
            .map_err(|error| http_text(&error, local, peer))?;
        Ok(CallConnection {
            sender,
            driver: tokio::spawn(driver),
            local,
            peer,
        })
    }

    /// The client of a clientConfig, made on first use; the least recently used client makes room for it.
    fn client(&self, target: &CallTarget) -> Result<Arc<Client>, String> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = clients.iter().position(|(known, _)| known == target)
            && let Some(found) = clients.remove(at)
        {
            let client = Arc::clone(&found.1);
            clients.push_back(found);
            return Ok(client);
        }
        let config = trust::client_config(&target.ca_bundle, self.missing_san.clone())?;
        let client = Arc::new(Client {
            connector: TlsConnector::from(Arc::new(config)),
            idle: Mutex::default(),
        });
        if clients.len() == MAX_CLIENTS {
            clients.pop_front();
        }
        clients.push_back((target.clone(), Arc::clone(&client)));
        Ok(client)
    }
}

impl CallConnection {
    /// Why a request on this connection failed, in Go's words.
    async fn fate(self, mut error: hyper::Error, deadline: Instant) -> String {
        let Self {
            sender,
            driver,
            local,
            peer,
        } = self;
        drop(sender);
        // If a connection broke before the request was sent, only its driver has the reason.
        if (error.is_canceled() || error.is_closed())
            && let Ok(Ok(Err(earlier))) = timeout_at(deadline, driver).await
        {
            error = earlier;
        }
        http_text(&error, local, peer)
    }
}

impl Client {
    /// The idle connection used last that is still open.
    fn take(&self) -> Option<CallConnection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(IdleConnection { connection, since }) = idle.pop() {
            if since.elapsed() < IDLE_TIMEOUT && connection.sender.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    fn put_back(&self, connection: CallConnection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|idle| idle.since.elapsed() < IDLE_TIMEOUT && !idle.connection.sender.is_closed());
        if !connection.sender.is_closed() && idle.len() < MAX_IDLE {
            idle.push(IdleConnection {
                connection,
                since: Instant::now(),
            });
        }
    }
}

fn header(parts: &http::response::Parts, name: http::HeaderName) -> Option<&str> {
    parts.headers.get(name).and_then(|value| value.to_str().ok())
}

fn path_of(url: &str) -> &str {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    rest.find('/').map_or("/", |at| &rest[at..])
}

fn authority_of(url: &str) -> &str {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    rest.split('/').next().unwrap_or_default()
}

fn unreadable(why: &str) -> CallError {
    CallError::Other(format!(
        "unexpected error when reading response body. Please retry. Original error: {why}"
    ))
}

fn http_text(error: &hyper::Error, local: Option<SocketAddr>, peer: SocketAddr) -> String {
    let io = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>());
    match io {
        Some(io) => dial::connection_text(io, local, peer),
        None if error.is_parse() => {
            "net/http: HTTP/1.x transport connection broken: malformed HTTP response".to_owned()
        }
        // The connection ended before the answer began.
        None => "EOF".to_owned(),
    }
}

/// An HTTP error in the words of the API server's client (`NewGenericServerResponse`).
fn refusal(code: u16, content_type: Option<&str>, body: &[u8]) -> CallError {
    // The message of a Status object is passed on as it is.
    if let Ok(status) = serde_json::from_slice::<serde_json::Value>(body)
        && status["kind"] == "Status"
        && let Some(message) = status["message"].as_str()
    {
        return CallError::Status {
            code,
            message: message.to_owned(),
        };
    }
    let text = content_type.is_none_or(|content_type| content_type.starts_with("text/"));
    let said = if text {
        let body = String::from_utf8_lossy(&body[..body.len().min(2_048)]);
        body.trim().to_owned()
    } else {
        "unknown".to_owned()
    };
    let message = match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 415 => said,
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 if said == "unknown" || said.is_empty() => {
            "the server was unable to respond with a content type that the client supports".to_owned()
        }
        406 => said,
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        500.. => format!("an error on the server ({said:?}) has prevented the request from succeeding"),
        _ => format!("the server responded with the status code {code} but did not return more information"),
    };
    CallError::Status { code, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_errors_are_worded_as_the_api_servers_client_words_them() {
        for (code, content_type, body, wanted) in [
            (
                500,
                Some("text/plain"),
                "boom\n",
                "an error on the server (\"boom\") has prevented the request from succeeding",
            ),
            (
                500,
                Some("application/json"),
                "{}",
                "an error on the server (\"unknown\") has prevented the request from succeeding",
            ),
            (
                503,
                None,
                "busy",
                "the server is currently unable to handle the request",
            ),
            (403, None, "go away", "go away"),
            (
                302,
                None,
                "",
                "the server responded with the status code 302 but did not return more information",
            ),
            (
                500,
                Some("application/json"),
                r#"{"kind":"Status","message":"said so"}"#,
                "said so",
            ),
        ] {
            assert_eq!(
                refusal(code, content_type, body.as_bytes()),
                CallError::Status {
                    code,
                    message: wanted.to_owned()
                }
            );
        }
    }

    #[test]
    fn a_url_is_split_as_it_was_written() {
        assert_eq!(path_of("https://opa.opa.svc:443/v0/admit"), "/v0/admit");
        assert_eq!(
            authority_of("https://opa.opa.svc:443/v0/admit"),
            "opa.opa.svc:443"
        );
        assert_eq!(path_of("https://127.0.0.1:8443"), "/");
    }
}
