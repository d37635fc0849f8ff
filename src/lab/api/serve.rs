//! From an HTTP request to its answer: the user, the limits on requests in flight, and the metrics.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::ApiState;
use super::admission::{HookTime, User};
use super::knobs::cost;
use super::reply::{self, Body};
use super::request::{ResourceRequest, Route, Verb};
use super::status::ApiFailure;
use super::write::WriteRequest;
use super::{discovery, read, watch};

/// Largest request body in bytes, as in a real API server.
const MAX_BODY: usize = 3 * 1_024 * 1_024;
/// Most requests in flight without watches: the defaults of `--max-requests-inflight` and `--max-mutating-requests-inflight`.
const MAX_READING: i64 = 400;
const MAX_MUTATING: i64 = 200;
/// The group of every authenticated user; below, that of every other one.
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// How long after its deadline a write may still take for storage and bookkeeping.
const GRACE: Duration = Duration::from_millis(250);

pub(super) async fn answer(state: Arc<ApiState>, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let content_type = header(&parts, CONTENT_TYPE).to_owned();
    let query = parts.uri.query().unwrap_or_default();
    let route = Route::parse(&parts.method, parts.uri.path(), query, &content_type);
    if matches!(route, Route::Health) {
        return health(&state, query);
    }
    let Some(user) = authenticate(&state, &parts) else {
        return reply::failure(&ApiFailure::unauthorized());
    };
    match route {
        Route::Resource(request) => resource(state, parts, request, user, body, &content_type).await,
        other => plain(&state, &parts, &other).await,
    }
}

/// `/livez`, `/readyz` and `/healthz`, with a line per check for `?verbose` or when a check fails.
fn health(state: &ApiState, query: &str) -> Response<Body> {
    const CHECKS: [&str; 4] = [
        "ping",
        "etcd",
        "informer-sync",
        "poststarthook/rbac/bootstrap-roles",
    ];
    let failing = state.knobs.failing_check();
    let status = if failing.is_some() { 500 } else { 200 };
    if status == 200 && !query.split('&').any(|key| key.starts_with("verbose")) {
        return reply::whole(200, "text/plain; charset=utf-8", "ok");
    }
    let mut text: String = CHECKS
        .iter()
        .filter(|check| failing.as_deref() != Some(**check))
        .map(|check| format!("[+]{check} ok\n"))
        .collect();
    if let Some(check) = failing {
        text.push_str(&format!("[-]{check} failed: reason withheld\n"));
    }
    text.push_str(if status == 200 {
        "readyz check passed\n"
    } else {
        "readyz check failed\n"
    });
    reply::whole(status, "text/plain; charset=utf-8", text)
}

/// Requests for anything but objects.
async fn plain(state: &ApiState, parts: &Parts, route: &Route) -> Response<Body> {
    let begin = Instant::now();
    let path = parts.uri.path();
    let response = match route {
        Route::Metrics => {
            state.knobs.spend(cost::SCRAPE).await;
            let text = state.metrics.expose(&state.knobs);
            let mut response = reply::whole(200, "text/plain; version=0.0.4; charset=utf-8", text);
            if let Ok(started) = HeaderValue::from_str(&state.metrics.started.to_string()) {
                let name = HeaderName::from_static("process-start-time-unix");
                response.headers_mut().insert(name, started);
            }
            response
        }
        Route::Discovery => match discovery::document(path, &state.address.to_string()) {
            Some(document) => reply::value(200, &document),
            None => nothing_there(),
        },
        Route::MethodNotAllowed => reply::failure(&ApiFailure::method_not_allowed()),
        _ if path.starts_with("/api/") || path.starts_with("/apis/") => {
            reply::failure(&ApiFailure::no_such_path())
        }
        _ => nothing_there(),
    };
    if response.status().is_success() {
        state.metrics.other_done(
            parts.method.as_str(),
            path,
            response.status().as_u16(),
            begin.elapsed(),
        );
    }
    response
}

fn nothing_there() -> Response<Body> {
    reply::whole(404, "text/plain; charset=utf-8", "404 page not found\n")
}

async fn resource(
    state: Arc<ApiState>,
    parts: Parts,
    request: ResourceRequest,
    user: User,
    body: Incoming,
    content_type: &str,
) -> Response<Body> {
    let mut recorder = RequestRecorder::new(Arc::clone(&state), &parts, &request);
    if request.verb == Verb::Watch {
        return watch::start(state, request, recorder).await;
    }
    let reads = request.verb.reads();
    let limit = if reads { MAX_READING } else { MAX_MUTATING };
    let Some(_in_flight) = state.metrics.enter(reads, limit) else {
        state.metrics.request_terminated(&request, 429);
        recorder.finish(429);
        return reply::failure(&ApiFailure::too_many_requests());
    };
    let accept = header(&parts, ACCEPT);
    let time = Arc::clone(&recorder.time);
    let outcome = match request.verb {
        Verb::Get => read::get(&state, &request, accept).await,
        Verb::List => read::list(&state, &request, accept).await,
        _ => {
            let asked = asked_time(&request).filter(|asked| *asked < state.request_limit);
            let deadline = recorder.begin + asked.unwrap_or(state.request_limit);
            let written = write(&state, &request, &user, content_type, body, &time, deadline);
            let written = timeout_at(deadline + GRACE, written).await;
            if asked.is_some() && Instant::now() >= deadline {
                // In a real API server a filter around the handler enforces the client's timeout, and counts what it cuts off.
                state.metrics.request_terminated(&request, 504);
                Err(ApiFailure::allotted_time_is_over())
            } else {
                written.unwrap_or_else(|_| Err(ApiFailure::timeout()))
            }
        }
    };
    let mut response = outcome.unwrap_or_else(|failure| reply::failure(&failure));
    reply::warn(&mut response, &time.take_warnings());
    recorder.finish(response.status().as_u16());
    response
}

async fn write(
    state: &ApiState,
    request: &ResourceRequest,
    user: &User,
    content_type: &str,
    body: Incoming,
    time: &HookTime,
    deadline: Instant,
) -> Result<Response<Body>, ApiFailure> {
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            return Err(ApiFailure::too_large(MAX_BODY));
        }
        Err(error) => return Err(ApiFailure::bad_request(format!("the body broke off: {error}"))),
    };
    let body = parse(&body, content_type, request.verb)?;
    let write = WriteRequest {
        state,
        request,
        user,
        content_type,
        body: &body,
        time,
        deadline,
    };
    write.run().await
}

/// Reads a body: JSON, or YAML where the content type says so.
fn parse(body: &Bytes, content_type: &str, verb: Verb) -> Result<Value, ApiFailure> {
    if body.is_empty() && matches!(verb, Verb::Delete | Verb::DeleteCollection | Verb::Connect) {
        return Ok(Value::Null);
    }
    if content_type.contains("protobuf") || content_type.contains("cbor") {
        // `kubectl create configmap` and similar commands send protobuf; `kubectl create -f` and `apply` do not.
        return Err(ApiFailure::unsupported_media_type(
            "the lab speaks JSON and YAML only (with kubectl: create -f, apply, patch) - accepted media types \
             include: application/json, application/yaml",
        ));
    }
    // JSON is YAML, and most of what is sent as YAML is JSON.
    match serde_json::from_slice(body) {
        Ok(value) => Ok(value),
        Err(_) if content_type.contains("yaml") => std::str::from_utf8(body)
            .ok()
            .and_then(|text| serde_saphyr::from_str(text).ok())
            .ok_or_else(|| ApiFailure::bad_request("couldn't get version/kind; yaml parse error")),
        Err(error) => {
            let why = format!("couldn't get version/kind; json parse error: {error}");
            Err(ApiFailure::bad_request(why))
        }
    }
}

/// The client's own limit for a write, from `?timeout=`; `None` when it is absent, zero or not a duration.
fn asked_time(request: &ResourceRequest) -> Option<Duration> {
    let asked = request.query.get("timeout")?;
    let asked = humantime::parse_duration(asked).ok();
    asked.filter(|asked| !asked.is_zero())
}

/// The lab's only user, or the user that it impersonates; `None` without the right token.
fn authenticate(state: &ApiState, parts: &Parts) -> Option<User> {
    let token = header(parts, AUTHORIZATION).strip_prefix("Bearer ")?;
    if token != state.token {
        return None;
    }
    let impersonated = header(parts, HeaderName::from_static("impersonate-user"));
    if impersonated.is_empty() {
        return Some(User {
            name: "lab-admin".to_owned(),
            uid: "lab-admin".to_owned(),
            groups: vec!["system:masters".to_owned(), AUTHENTICATED.to_owned()],
        });
    }
    let groups = parts.headers.get_all("impersonate-group");
    let groups = groups.iter().filter_map(|group| group.to_str().ok());
    Some(User {
        name: impersonated.to_owned(),
        uid: String::new(),
        groups: impersonated_groups(impersonated, groups.map(str::to_owned).collect()),
    })
}

/// The groups of an impersonated user: those that the request names, or without any those of a service account; and the group
/// that says whether the user is authenticated (`endpoints/filters/impersonation.go`).
fn impersonated_groups(name: &str, mut groups: Vec<String>) -> Vec<String> {
    if groups.is_empty()
        && let Some((namespace, _)) = name
            .strip_prefix("system:serviceaccount:")
            .and_then(|account| account.split_once(':'))
    {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    if !groups
        .iter()
        .any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED)
    {
        let known = name != "system:anonymous";
        groups.push(if known { AUTHENTICATED } else { UNAUTHENTICATED }.to_owned());
    }
    groups
}

fn header(parts: &Parts, name: HeaderName) -> &str {
    parts
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// Counts a request when it is over, also when the client went away before.
pub(super) struct RequestRecorder {
    state: Arc<ApiState>,
    request: ResourceRequest,
    dry_run: &'static str,
    system_client: &'static str,
    begin: Instant,
    code: Option<u16>,
    long_running: bool,
    pub time: Arc<HookTime>,
}

impl RequestRecorder {
    fn new(state: Arc<ApiState>, parts: &Parts, request: &ResourceRequest) -> Self {
        let agent = header(parts, USER_AGENT).split_once('/').map(|(name, _)| name);
        let system_clients = [
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "cluster-policy-controller",
        ];
        let dry_run = match request.query.get("dryRun") {
            None => "",
            Some("All") => "All",
            Some(_) => "invalid",
        };
        Self {
            state,
            request: request.clone(),
            dry_run,
            system_client: system_clients
                .into_iter()
                .find(|name| Some(*name) == agent)
                .unwrap_or_default(),
            begin: Instant::now(),
            code: None,
            long_running: false,
            time: Arc::default(),
        }
    }

    /// Sets the status code of the answer.
    pub(super) fn finish(&mut self, code: u16) {
        self.code = Some(code);
    }

    /// Marks the request as a watch that has begun.
    pub(super) fn long_running(&mut self) {
        self.long_running = true;
        self.code = Some(200);
        self.state.metrics.long_running(&self.request, 1);
    }
}

impl Drop for RequestRecorder {
    fn drop(&mut self) {
        if self.long_running {
            self.state.metrics.long_running(&self.request, -1);
        }
        // Without a code the client is gone. The API server ends such a request as timed out.
        let code = self.code.unwrap_or(504);
        self.state.metrics.request_done(
            &self.request,
            self.dry_run,
            code,
            self.system_client,
            self.begin.elapsed(),
            self.time.total(),
        );
    }
}
