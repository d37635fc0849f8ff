//! What the Lease and the ledger have in common at the edge: one request, one bounded answer, and what it means.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use super::client::answer::{chain, error_message, read_body};
use crate::domain::act::leadership::Written;
use crate::domain::observe::canary::CanaryOutcome;
use crate::domain::text::bounded;

/// Longest wait for the answer to a write. A hook may hold one for as long as the API server lets it, which is 34 s,
/// and only the answer names the hook.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(36);
/// Longest wait for an answer that no hook can hold up.
pub const READ_DEADLINE: Duration = Duration::from_secs(5);
/// Largest object that is read. Annotations have 256 KiB at most; managed fields are the rest.
const MAX_OBJECT: usize = 2 << 20;

/// What came back.
#[derive(Debug)]
pub(super) enum Answer {
    /// The object.
    Object(Value),
    /// A status that is no success, and its message.
    Refused(u16, String),
    /// Nothing that says whether anything was done.
    Nothing(String),
}

/// Sends one request and reads its answer, within `limit`.
pub(super) async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
    limit: Duration,
) -> Answer {
    let content_type = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let query = match method {
        Method::GET => "",
        _ => "?fieldManager=hookwatch&timeout=34s",
    };
    let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}{query}"))
        .header(CONTENT_TYPE, content_type)
        .header(ACCEPT, "application/json")
        .body(Body::from(body));
    let request = match request {
        Ok(request) => request,
        Err(error) => return Answer::Nothing(chain(&error)),
    };
    let asking = async {
        let answer = match client.send(request).await {
            Ok(answer) => answer,
            Err(error) => return Answer::Nothing(chain(&error)),
        };
        let status = answer.status();
        if !status.is_success() {
            let status = status.as_u16();
            return Answer::Refused(status, error_message(answer.into_body()).await);
        }
        match read_body(answer.into_body(), MAX_OBJECT).await {
            Err(error) => Answer::Nothing(error.to_string()),
            Ok(body) => match serde_json::from_slice(&body) {
                Ok(object) => Answer::Object(object),
                Err(error) => Answer::Nothing(format!("the answer is no JSON: {error}")),
            },
        }
    };
    match tokio::time::timeout(limit, asking).await {
        Ok(answer) => answer,
        Err(_) => Answer::Nothing(format!("no answer within {} s", limit.as_secs_f32())),
    }
}

/// `metadata.resourceVersion`.
pub(super) fn version(object: &Value) -> Option<&str> {
    object
        .pointer("/metadata/resourceVersion")?
        .as_str()
        .filter(|version| !version.is_empty())
}

/// What became of a write of `what`, and what is to be said of it.
pub(super) fn written(answer: Answer, what: &str, created: bool) -> (Written, Option<String>) {
    let (status, message) = match answer {
        Answer::Object(object) => {
            return match version(&object) {
                Some(version) => {
                    let version = version.to_owned();
                    (Written::Done { version }, None)
                }
                None => (
                    Written::Unclear,
                    Some(format!("{what}: the answer has no version")),
                ),
            };
        }
        Answer::Nothing(why) => {
            let said = format!("it is not clear whether {what} was written: {why}");
            return (Written::Unclear, Some(said));
        }
        Answer::Refused(status, message) => (status, message),
    };
    match CanaryOutcome::from_status(status, &message) {
        CanaryOutcome::CallFailed(failure) => {
            let said = format!(
                "webhook {:?} keeps {what} from being written: {}",
                failure.webhook, failure.text
            );
            (Written::Blocked, Some(bounded(&said)))
        }
        CanaryOutcome::Denied { webhook } => {
            let said = format!("webhook {webhook:?} denies writing {what}: {message}");
            (Written::Blocked, Some(bounded(&said)))
        }
        _ => match status {
            409 => (Written::Conflict, None),
            // Somebody deleted it since it was read.
            404 if !created => (Written::Conflict, None),
            400..500 => (Written::Refused, Some(refusal(status, &message, what, "written"))),
            // A server's error may come after the fact.
            _ => {
                let said = format!("it is not clear whether {what} was written: {message}");
                (Written::Unclear, Some(bounded(&said)))
            }
        },
    }
}

/// Why an object was not read.
pub(super) fn unread(answer: Answer, what: &str) -> String {
    match answer {
        Answer::Object(_) => format!("{what} has no version"),
        Answer::Nothing(why) => format!("{what} cannot be read: {why}"),
        Answer::Refused(status, message) => refusal(status, &message, what, "read"),
    }
}

fn refusal(status: u16, message: &str, what: &str, done: &str) -> String {
    let said = match status {
        401 => format!("{what} cannot be {done}: hookwatch's credentials are not accepted ({message})"),
        403 => format!("{what} may not be {done}; see deploy/README.md ({message})"),
        _ => format!("{what} cannot be {done}: {message}"),
    };
    bounded(&said)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(status: u16, message: &str) -> Written {
        written(Answer::Refused(status, message.to_owned()), "the Lease", false).0
    }

    #[test]
    fn what_was_certainly_not_written_is_told_from_what_may_have_been() {
        let hook = "Internal error occurred: failed calling webhook \"w\": failed to call webhook: Post \
                    \"https://s.n.svc:443/?timeout=10s\": context deadline exceeded";
        assert_eq!(of(500, hook), Written::Blocked);
        assert_eq!(
            of(403, "admission webhook \"w\" denied the request: no"),
            Written::Blocked
        );
        assert_eq!(of(409, "the object has been modified"), Written::Conflict);
        assert_eq!(of(404, "leases \"hookwatch\" not found"), Written::Conflict);
        assert_eq!(of(403, "User \"u\" cannot update"), Written::Refused);
        assert_eq!(of(429, "too many requests"), Written::Refused);
        for status in [500, 502, 503, 504] {
            assert_eq!(of(status, "etcdserver: request timed out"), Written::Unclear);
        }
        let nothing = Answer::Nothing("connection reset".to_owned());
        assert_eq!(written(nothing, "the Lease", false).0, Written::Unclear);
        let odd = Answer::Object(json!({"metadata": {}}));
        assert_eq!(written(odd, "the Lease", false).0, Written::Unclear);
    }

    #[test]
    fn a_creation_without_its_namespace_is_refused_and_no_conflict() {
        let answer = Answer::Refused(404, "namespaces \"h\" not found".to_owned());
        let (outcome, said) = written(answer, "the Lease", true);
        assert_eq!(outcome, Written::Refused);
        assert!(said.expect("a sentence").contains("namespaces \"h\" not found"));
    }
}
