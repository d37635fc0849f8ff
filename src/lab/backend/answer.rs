//! What a backend answers: AdmissionReview v1, right or wrong in one chosen way.

use std::convert::Infallible;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{BackendCounters, BackendRole, Behaviour, extension};

/// Largest review that is read, in bytes; above the 3 MiB that the API server takes from its own clients.
const MAX_REVIEW: usize = 8 << 20;

/// Annotation that a healthy mutating backend adds.
pub(super) const ANNOTATION: &str = "policy.example.com/seen";

pub(super) type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

/// Answers one request as `behaviour` says, waiting first where it says so.
pub(super) async fn answer(
    request: Request<Incoming>,
    role: BackendRole,
    mut behaviour: watch::Receiver<Behaviour>,
    counters: &BackendCounters,
) -> Response<AnswerBody> {
    let is_review = request.method() == Method::POST;
    let path = request.uri().path().to_owned();
    if let Some(Ok(traceparent)) = request.headers().get("traceparent").map(HeaderValue::to_str) {
        counters.note(traceparent);
    }
    let body = Limited::new(request.into_body(), MAX_REVIEW).collect().await;
    counters.count(is_review);

    let current = behaviour.borrow().clone();
    match &current {
        Behaviour::Slow(delay) => tokio::time::sleep(*delay).await,
        Behaviour::HangAfterTls => {
            // An error means that the backend is gone, and this connection with it.
            let _ = behaviour
                .wait_for(|now| !matches!(now, Behaviour::HangAfterTls))
                .await;
        }
        _ => {}
    }

    // Read again: a request that hung until the fault was removed gets the current answer.
    let current = behaviour.borrow().clone();
    let body = body.ok().map(|body| body.to_bytes());
    let mut answer = match &current {
        Behaviour::HttpStatus(status, body) => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            text(status, body)
        }
        Behaviour::EndlessBody => endless(behaviour),
        _ if role == BackendRole::Aggregated => extension::discover(&path),
        _ if !is_review => text(StatusCode::METHOD_NOT_ALLOWED, "only POST is served here\n"),
        _ if role == BackendRole::Conversion => extension::convert(body.as_ref()),
        _ => reviewed(body, role, &current),
    };
    if current == Behaviour::CloseAfterAnswer {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(header::CONNECTION, close);
    }
    answer
}

/// The answer to a POST of a review; `body` is `None` if it could not be read.
fn reviewed(body: Option<Bytes>, role: BackendRole, behaviour: &Behaviour) -> Response<AnswerBody> {
    let Some(review) = body.and_then(|body| serde_json::from_slice::<Value>(&body).ok()) else {
        return text(StatusCode::BAD_REQUEST, "the body is not JSON\n");
    };
    match review_answer(&review, role, behaviour) {
        Some(answer) => json_answer(&answer),
        None => text(StatusCode::BAD_REQUEST, "the body is not an AdmissionReview\n"),
    }
}

/// The body of the answer to `review`; `None` if that has no `/request/uid`.
fn review_answer(review: &Value, role: BackendRole, behaviour: &Behaviour) -> Option<Value> {
    let uid = review.pointer("/request/uid")?.as_str()?;
    let envelope = |response: Value| json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Some(match behaviour {
        Behaviour::NotAnAdmissionReview => json!({"status": "ok", "service": "not an admission webhook"}),
        Behaviour::WrongUid => envelope(json!({"uid": format!("{uid}-of-another-request"), "allowed": true})),
        Behaviour::Deny(code, message) => envelope(json!({
            "uid": uid,
            "allowed": false,
            "status": {"code": code, "message": message},
        })),
        _ if role == BackendRole::Mutating => envelope(json!({
            "uid": uid,
            "allowed": true,
            "patchType": "JSONPatch",
            "patch": BASE64_STANDARD.encode(annotation_patch(review).to_string()),
        })),
        _ => envelope(json!({"uid": uid, "allowed": true})),
    })
}

/// The patch that annotates the object, and adds the map of annotations if there is none.
fn annotation_patch(review: &Value) -> Value {
    let annotated = review
        .pointer("/request/object/metadata/annotations")
        .is_some_and(Value::is_object);
    if annotated {
        let path = format!("/metadata/annotations/{}", ANNOTATION.replace('/', "~1"));
        json!([{"op": "add", "path": path, "value": "true"}])
    } else {
        json!([{"op": "add", "path": "/metadata/annotations", "value": {ANNOTATION: "true"}}])
    }
}

pub(super) fn text(status: StatusCode, body: &str) -> Response<AnswerBody> {
    let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
    with_type(status, "text/plain; charset=utf-8", body.boxed_unsync())
}

pub(super) fn json_answer(body: &Value) -> Response<AnswerBody> {
    let body = Full::new(Bytes::from(body.to_string()));
    with_type(StatusCode::OK, "application/json", body.boxed_unsync())
}

fn with_type(status: StatusCode, content_type: &'static str, body: AnswerBody) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// A 200 whose body does not end while the behaviour lasts.
///
/// It sends 16 KiB every 10 ms: enough to exceed any bound within a timeout, at little cost for the machine.
fn endless(behaviour: watch::Receiver<Behaviour>) -> Response<AnswerBody> {
    let chunk = Bytes::from(vec![b' '; 16 << 10]);
    let chunks = futures::stream::unfold(behaviour, move |behaviour| {
        let chunk = chunk.clone();
        async move {
            if !matches!(*behaviour.borrow(), Behaviour::EndlessBody) {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            Some((chunk, behaviour))
        }
    });
    let frames = chunks.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
    let body = StreamBody::new(frames).boxed_unsync();
    with_type(StatusCode::OK, "application/json", body)
}
