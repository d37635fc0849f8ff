//! Reads and writes single objects and classifies the answers; used for the Lease, the ledger and Events.

use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::Value;

use super::client::request::{ApiRequest, JSON, RequestError};
use crate::domain::act::leadership::BidOutcome;
use crate::domain::observe::canary::CanaryOutcome;
use crate::domain::text::{NOT_ACCEPTED, bounded};

/// Longest wait for the answer to a write. A hanging hook holds a write until the API server ends it after 34 s (the `timeout`
/// parameter of the request), and only that answer names the hook.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(36);
/// Longest wait for an answer that no hook can delay, such as that to a read.
pub const READ_DEADLINE: Duration = Duration::from_secs(5);
/// Most bytes of an object. Its annotations have at most 256 KiB; the rest leaves room for managed fields.
const MAX_OBJECT: usize = 2 << 20;

/// The object in the answer, or why there is none.
pub(super) type Answer = Result<Value, RequestError>;

/// Reads an object, or writes `body` if there is one, within `limit`. A PATCH is a JSON merge patch.
pub(super) async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
    limit: Duration,
) -> Answer {
    let request = match body {
        None => ApiRequest::get(client, path, JSON),
        Some(body) => {
            let content_type = match method {
                Method::PATCH => "application/merge-patch+json",
                _ => JSON,
            };
            let target = format!("{path}?fieldManager=hookwatch&timeout=34s");
            ApiRequest::write(client, method, &target, content_type, body.to_string())
        }
    };
    request.json(limit, MAX_OBJECT).await
}

/// Whether the failure is the API server's (429, 5xx or no usable answer), so that another one, or a retry, may succeed.
pub(super) fn is_of_the_server(why: &RequestError) -> bool {
    match why {
        RequestError::Refused { status, .. } => matches!(status, 429 | 500..),
        _ => true,
    }
}

/// `metadata.resourceVersion`; `None` if it is missing or empty.
pub(super) fn version(object: &Value) -> Option<&str> {
    object
        .pointer("/metadata/resourceVersion")?
        .as_str()
        .filter(|version| !version.is_empty())
}

/// `metadata.uid`; empty if it is missing.
pub(super) fn uid(object: &Value) -> &str {
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
    uid.unwrap_or_default()
}

/// The outcome of a write of `what`, and a sentence about what went wrong. `created`: whether the write was a creation, so
/// that a 404 is not about the object itself.
pub(super) fn written(answer: Answer, what: &str, created: bool) -> (BidOutcome, Option<String>) {
    let (status, message) = match answer {
        Ok(object) => {
            return match version(&object) {
                Some(version) => {
                    let version = version.to_owned();
                    (BidOutcome::Done { version }, None)
                }
                None => (
                    BidOutcome::Unclear,
                    Some(format!("{what}: the answer has no version")),
                ),
            };
        }
        Err(RequestError::Refused { status, message, .. }) => (status, message),
        Err(why @ RequestError::NoConnection(_)) => {
            return (
                BidOutcome::Conflict,
                Some(format!("{what} was not written: {why}")),
            );
        }
        Err(why) => {
            let said = format!("it is not clear whether {what} was written: {why}");
            return (BidOutcome::Unclear, Some(said));
        }
    };
    match CanaryOutcome::from_status(status, &message) {
        CanaryOutcome::CallFailed(failure) => {
            let said = format!(
                "webhook {:?} keeps {what} from being written: {}",
                failure.webhook, failure.text
            );
            (BidOutcome::Refused, Some(bounded(&said)))
        }
        CanaryOutcome::Denied { webhook } => {
            let said = format!("webhook {webhook:?} denies writing {what}: {message}");
            (BidOutcome::Refused, Some(bounded(&said)))
        }
        _ => match status {
            409 => (BidOutcome::Conflict, None),
            // The object was deleted since it was read.
            404 if !created => (BidOutcome::Conflict, None),
            // Includes flow control (429): the version that was read is still valid, and hookwatch can bid for the other
            // leadership object at once.
            400..500 => (
                BidOutcome::Refused,
                Some(refusal(status, &message, what, "written")),
            ),
            // A 5xx may come after the write was stored.
            _ => {
                let said = format!("it is not clear whether {what} was written: {message}");
                (BidOutcome::Unclear, Some(bounded(&said)))
            }
        },
    }
}

/// Why an object was not read.
pub(super) fn unread(answer: Answer, what: &str) -> String {
    match answer {
        Ok(_) => format!("{what} has no version"),
        Err(RequestError::Refused { status, message, .. }) => refusal(status, &message, what, "read"),
        Err(why) => format!("{what} cannot be read: {why}"),
    }
}

fn refusal(status: u16, message: &str, what: &str, done: &str) -> String {
    let said = match status {
        401 => format!("{what} cannot be {done}: {message}; {NOT_ACCEPTED}"),
        403 => format!("{what} may not be {done}; see deploy/README.md ({message})"),
        _ => format!("{what} cannot be {done}: {message}"),
    };
    bounded(&said)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(status: u16, message: &str) -> Answer {
        Err(RequestError::Refused {
            status,
            message: message.to_owned(),
            headers: Box::default(),
        })
    }

    fn of(status: u16, message: &str) -> BidOutcome {
        written(refused(status, message), "the Lease", false).0
    }

    #[test]
    fn what_was_certainly_not_written_is_told_from_what_may_have_been() {
        let hook = "Internal error occurred: failed calling webhook \"w\": failed to call webhook: Post \
                    \"https://s.n.svc:443/?timeout=10s\": context deadline exceeded";
        assert_eq!(of(500, hook), BidOutcome::Refused);
        assert_eq!(
            of(403, "admission webhook \"w\" denied the request: no"),
            BidOutcome::Refused
        );
        assert_eq!(of(409, "the object has been modified"), BidOutcome::Conflict);
        assert_eq!(of(404, "leases \"hookwatch\" not found"), BidOutcome::Conflict);
        assert_eq!(of(403, "User \"u\" cannot update"), BidOutcome::Refused);
        assert_eq!(of(429, "too many requests"), BidOutcome::Refused);
        for status in [500, 502, 503, 504] {
            assert_eq!(of(status, "etcdserver: request timed out"), BidOutcome::Unclear);
        }
        let unsent = Err(RequestError::NoConnection("connection refused".to_owned()));
        let (outcome, said) = written(unsent, "the Lease", false);
        assert_eq!(outcome, BidOutcome::Conflict);
        assert!(
            said.expect("a sentence")
                .starts_with("the Lease was not written: cannot connect")
        );
        let nothing = Err(RequestError::NoAnswer("connection reset".to_owned()));
        assert_eq!(written(nothing, "the Lease", false).0, BidOutcome::Unclear);
        let odd = Ok(json!({"metadata": {}}));
        assert_eq!(written(odd, "the Lease", false).0, BidOutcome::Unclear);
    }

    #[test]
    fn a_creation_without_its_namespace_is_refused_and_no_conflict() {
        let answer = refused(404, "namespaces \"h\" not found");
        let (outcome, said) = written(answer, "the Lease", true);
        assert_eq!(outcome, BidOutcome::Refused);
        assert!(said.expect("a sentence").contains("namespaces \"h\" not found"));
    }
}
