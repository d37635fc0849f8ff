//! HTTP answers, as JSON or as text.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::kinds::ServedKind;
use super::status::ApiFailure;
use super::store::StoredObject;

/// The body of every answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An answer with a JSON body.
pub(super) fn json(code: u16, body: impl Into<Bytes>) -> Response<Body> {
    whole(code, "application/json", body)
}

/// An answer whose body is complete, as opposed to that of a watch.
pub(super) fn whole(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(super) fn object(code: u16, kind: &ServedKind, stored: &StoredObject) -> Response<Body> {
    json(code, stored.encode(kind))
}

/// Any JSON value.
pub(super) fn value(code: u16, value: &Value) -> Response<Body> {
    json(code, value.to_string())
}

/// A refusal; with `Retry-After: 1` when it is a 429.
pub(super) fn failure(failure: &ApiFailure) -> Response<Body> {
    let mut response = value(failure.code, &failure.status);
    if failure.code == 429 {
        response
            .headers_mut()
            .insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Adds the first 16 of the hooks' warnings for the client, without those that are no valid header value.
pub(super) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings.iter().take(16) {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response
                .headers_mut()
                .append(HeaderName::from_static("warning"), value);
        }
    }
}
