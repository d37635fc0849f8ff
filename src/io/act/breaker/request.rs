//! One request about webhook configurations, and its answer. It matters above all whether a write may have been done.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Method};
use kube::Client;
use serde_json::{Map, Value};

use crate::domain::cluster::hook::HookKind;
use crate::io::client::answer::percent_encoded;
use crate::io::client::request::{ApiRequest, JSON, RequestError};

/// Largest answer that is read: etcd keeps objects of up to 1.5 MiB, and a list has many.
const MAX_BODY: usize = 64 << 20;
/// Longest that a `Retry-After` is believed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) enum ApiReply {
    /// It was done; this is the object or the list.
    Done(Value),
    /// It was refused, and nothing was written.
    Refused(u16, String),
    /// It was not done, and may succeed later: why, and after which `Retry-After`, if given.
    NotNow(String, Option<Duration>),
    /// Whether it took effect is unknown.
    Unclear(String),
}

/// The path for a consistent list of all objects of a kind, or of the one with this name. hookwatch has no permission to get a
/// single object; a list by its name costs the API server the same.
pub(super) fn list(kind: HookKind, name: Option<&str>) -> String {
    match name {
        Some(name) => format!(
            "{}?fieldSelector={}",
            kind.path(),
            percent_encoded(&format!("metadata.name={name}"))
        ),
        None => kind.path().to_owned(),
    }
}

/// The same from the API server's cache, which it has in force.
pub(super) fn cached(kind: HookKind, name: &str) -> String {
    format!("{}&resourceVersion=0", list(kind, Some(name)))
}

/// The path for a JSON patch of an object.
pub(super) fn patch(kind: HookKind, name: &str, limit: Duration) -> String {
    format!(
        "{}/{}?fieldManager={}&timeout={}s",
        kind.path(),
        percent_encoded(name),
        crate::domain::act::bypass::FIELD_MANAGER,
        limit.as_secs().max(1)
    )
}

/// The text of a patch. The API server's library compares the value of a `test` with the current one as text, in which Go
/// escapes these five characters (evanphx/json-patch, `lazyNode.equal`). Otherwise the test of any condition with `&&` would
/// fail. Outside of strings JSON has none of these characters.
fn as_go_writes(patch: &Value) -> String {
    let mut written = String::new();
    for character in patch.to_string().chars() {
        match character {
            '&' => written.push_str("\\u0026"),
            '<' => written.push_str("\\u003c"),
            '>' => written.push_str("\\u003e"),
            '\u{2028}' => written.push_str("\\u2028"),
            '\u{2029}' => written.push_str("\\u2029"),
            other => written.push(other),
        }
    }
    written
}

/// Sends one request and reads its answer, within `limit`.
pub(super) async fn send(client: &Client, target: &str, body: Option<&Value>, limit: Duration) -> ApiReply {
    let request = match body {
        None => ApiRequest::get(client, target, JSON),
        Some(patch) => {
            let (kind, text) = ("application/json-patch+json", as_go_writes(patch));
            ApiRequest::write(client, Method::PATCH, target, kind, text)
        }
    };
    reply(request.json(limit, MAX_BODY).await)
}

/// Reads over a new connection.
pub(super) async fn read_on_new_connection(client: &Client, target: &str, limit: Duration) -> ApiReply {
    let request = ApiRequest::get(client, target, JSON).on_new_connection();
    reply(request.json(limit, MAX_BODY).await)
}

fn reply(answer: Result<Map<String, Value>, RequestError>) -> ApiReply {
    match answer {
        Ok(object) => ApiReply::Done(Value::Object(object)),
        Err(why @ RequestError::NoConnection(_)) => ApiReply::NotNow(why.to_string(), None),
        Err(RequestError::Refused {
            status,
            message,
            headers,
        }) => refused(status, message, retry_after(&headers)),
        Err(why) => ApiReply::Unclear(why.to_string()),
    }
}

fn refused(status: u16, message: String, wait: Option<Duration>) -> ApiReply {
    match status {
        // Flow control refuses before anything is done.
        429 => ApiReply::NotNow(message, wait),
        // An API server that has just started refuses like this while its policies are not loaded yet.
        403 if message.contains("not yet ready to handle request") => ApiReply::NotNow(message, wait),
        400..500 => ApiReply::Refused(status, message),
        // A server may fail after it has written the object.
        _ => ApiReply::Unclear(format!("HTTP {status}: {message}")),
    }
}

/// The wait in seconds. An API server never sends a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

/// Whether a refusal says that a test of the patch failed: another writer has changed the object. (1.36:
/// `apiserver/pkg/endpoints/handlers/patch.go` answers 422 without a cause to a JSON patch that does not apply, 409 to
/// a resourceVersion that is not the current one.)
pub(super) fn is_conflict(status: u16, message: &str) -> bool {
    status == 409
        || (status == 422 && message.contains("rejected our request due to an error in our request"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_written_as_go_writes_it_and_means_the_same() {
        let patch =
            serde_json::json!([{"op": "test", "value": "a && b < \"c\" > d\u{2028}\u{2029}\u{e9}\n"}]);
        let written = as_go_writes(&patch);
        assert!(!written.contains(['&', '<', '>', '\u{2028}', '\u{2029}']) && written.contains('\u{e9}'));
        assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON"), patch);
    }

    #[test]
    fn what_may_have_been_written_is_told_from_what_was_not() {
        let of = |status| refused(status, "m".to_owned(), None);
        assert!(matches!(of(429), ApiReply::NotNow(..)));
        for status in [400, 401, 403, 404, 409, 413, 422] {
            assert!(matches!(of(status), ApiReply::Refused(..)), "{status}");
        }
        for status in [302, 500, 502, 503, 504] {
            assert!(matches!(of(status), ApiReply::Unclear(_)), "{status}");
        }
    }

    #[test]
    fn a_name_stays_in_its_place() {
        assert!(
            list(HookKind::Validating, Some("a&b=c")).ends_with("?fieldSelector=metadata.name%3Da%26b%3Dc")
        );
    }
}
