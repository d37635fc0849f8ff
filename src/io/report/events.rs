//! Kubernetes Events on webhook configurations.
//!
//! These are Events of the core group. In `events.k8s.io` only the series of an Event can change, but its message should be
//! that of the last occurrence. Events about cluster-scoped objects are in namespace `default`. A hanging catch-all hook
//! delays Events like any other write, so the caller of [`EventWriter::write`] must be able to wait.

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use strum::{IntoStaticStr, VariantArray};

use crate::domain::observe::canary::CanaryOutcome;
use crate::domain::report::announcement::Announcement;
use crate::domain::text::named;
use crate::domain::time::Time;
use crate::io::client::Connection;
use crate::io::client::request::RequestError;
use crate::io::coordination::{Answer, READ_DEADLINE, WRITE_DEADLINE, ask, is_of_the_server, version};

/// The path of all Events that hookwatch writes.
const COLLECTION: &str = "/api/v1/namespaces/default/events";

/// The outcome of writing an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum EventOutcome {
    /// The Event was created, or was there already from an earlier attempt.
    Written,
    /// The Event existed; its count was increased.
    Repeated,
    /// A hook failed on it or denied it.
    Blocked,
    /// RBAC forbids writing it.
    Forbidden,
    /// The API server refused it for another reason.
    Refused,
    /// No answer in time, no connection, or an answer (429, 5xx) that says that the API server itself is in trouble.
    NoAnswer,
    /// The queue was full, and a later Event with the same meaning for the same hook replaced it.
    Dropped,
    /// This replica was no longer the leader when the Event's turn came.
    NotLeading,
}

named!(EventOutcome, "The value of the `outcome` label in metrics.", all);

impl EventOutcome {
    /// Whether a retry could succeed.
    pub const fn may_pass(self) -> bool {
        matches!(self, Self::Refused) || self.is_of_an_outage()
    }

    /// Whether a retry can be expected to succeed after the outage.
    pub const fn is_of_an_outage(self) -> bool {
        matches!(self, Self::Blocked | Self::NoAnswer)
    }
}

/// Writes Events.
#[derive(Clone)]
pub struct EventWriter {
    client: Client,
    identity: String,
}

impl EventWriter {
    /// A writer whose Events name this replica (`reportingInstance`).
    pub fn new(connection: &Connection, identity: &str) -> Self {
        Self {
            client: connection.calls().clone(),
            identity: identity.to_owned(),
        }
    }

    /// Makes one attempt, without retries. `at`: when the announced change happened; the same in every attempt. Returns also
    /// the reason if it failed. If a hook hangs, each write takes up to 36 s.
    pub async fn write(&self, said: &Announcement, at: Time) -> (EventOutcome, Option<String>) {
        let event = self.event(said, at);
        match self.ask(Method::POST, COLLECTION, Some(&event)).await {
            Ok(_) => (EventOutcome::Written, None),
            Err(RequestError::Refused { status: 409, .. }) => self.count_up(said, &event).await,
            Err(why) => failed(why),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let deadline = if method == Method::GET {
            READ_DEADLINE
        } else {
            WRITE_DEADLINE
        };
        ask(&self.client, method, path, body, deadline).await
    }

    /// Updates an Event that exists already: from an earlier occurrence, from another replica, or from an attempt whose answer
    /// was lost.
    async fn count_up(&self, said: &Announcement, event: &Value) -> (EventOutcome, Option<String>) {
        let path = format!("{COLLECTION}/{}", said.name);
        let there = match self.ask(Method::GET, &path, None).await {
            Ok(there) => there,
            Err(why) => return failed(why),
        };
        let same = |field: &str| there[field] == event[field];
        if same("lastTimestamp") && same("message") {
            return (EventOutcome::Written, None);
        }
        let count = there["count"]
            .as_i64()
            .unwrap_or(1)
            .clamp(1, i64::from(i32::MAX) - 1)
            + 1;
        let patch = json!({
            "metadata": {"resourceVersion": version(&there)},
            "count": count,
            "lastTimestamp": event["lastTimestamp"],
            "message": event["message"],
        });
        match self.ask(Method::PATCH, &path, Some(&patch)).await {
            Ok(_) => (EventOutcome::Repeated, None),
            Err(why) => failed(why),
        }
    }

    fn event(&self, said: &Announcement, at: Time) -> Value {
        // Event times have whole seconds; a `Time` is displayed with milliseconds.
        let at = at.to_string();
        let at = format!("{}Z", at.split('.').next().unwrap_or(&at));
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": said.name, "namespace": "default"},
            "involvedObject": {
                "apiVersion": said.hook.kind.api_version(),
                "kind": said.hook.kind.configuration_kind(),
                "name": said.hook.configuration,
                "uid": said.uid,
            },
            "reason": said.reason,
            "message": said.note,
            "type": if said.warning { "Warning" } else { "Normal" },
            "source": {"component": "hookwatch"},
            "reportingComponent": "hookwatch",
            "reportingInstance": self.identity,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        })
    }
}

fn failed(why: RequestError) -> (EventOutcome, Option<String>) {
    let in_trouble = is_of_the_server(&why);
    match why {
        RequestError::Refused { status, message, .. } => {
            let outcome = match CanaryOutcome::from_status(status, &message) {
                CanaryOutcome::CallFailed(_) | CanaryOutcome::Denied { .. } => EventOutcome::Blocked,
                CanaryOutcome::Forbidden { .. } => EventOutcome::Forbidden,
                _ if in_trouble => EventOutcome::NoAnswer,
                _ => EventOutcome::Refused,
            };
            (outcome, Some(message))
        }
        why => (EventOutcome::NoAnswer, Some(why.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cluster::hook::{HookId, HookKind};
    use crate::io::testing::{TestReply, TestServer, soon};

    fn said() -> Announcement {
        Announcement {
            name: "policy.0123".into(),
            hook: HookId::new(HookKind::Mutating, "policy", "w"),
            uid: "u".into(),
            reason: "Hanging",
            warning: true,
            note: "It hangs.".into(),
        }
    }

    fn at() -> Time {
        Time::from_unix_millis(1_795_219_862_156)
    }

    async fn writer(server: &TestServer) -> EventWriter {
        EventWriter::new(&server.connection().await, "me")
    }

    #[tokio::test]
    async fn an_event_is_about_the_configuration_and_lies_where_kubectl_looks_for_it() {
        let server = TestServer::start(|_| TestReply::json(201, "{}")).await;
        let (outcome, why) = soon(writer(&server).await.write(&said(), at())).await;
        assert_eq!((outcome, why), (EventOutcome::Written, None));
        let asked = &server.asked()[0];
        assert!(
            asked.target.starts_with("/api/v1/namespaces/default/events?"),
            "{}",
            asked.target
        );
        let event: Value = serde_json::from_str(&asked.body).expect("JSON");
        assert_eq!(event["involvedObject"]["kind"], "MutatingWebhookConfiguration");
        assert_eq!(
            event["involvedObject"]["apiVersion"],
            "admissionregistration.k8s.io/v1"
        );
        assert_eq!(event["involvedObject"]["uid"], "u");
        assert_eq!(
            (&event["type"], &event["reason"]),
            (&json!("Warning"), &json!("Hanging"))
        );
        assert_eq!(event["firstTimestamp"], "2026-11-21T00:11:02Z");
    }

    #[tokio::test]
    async fn what_was_said_before_is_counted_up_and_a_lost_answer_is_not() {
        let server = TestServer::start(|asked| match asked.method.as_str() {
            "POST" => TestReply::status(409, "already exists"),
            "GET" => TestReply::json(
                200,
                r#"{"metadata": {"resourceVersion": "5"}, "count": 3, "message": "It hung.",
                    "lastTimestamp": "2026-11-21T00:11:02Z"}"#,
            ),
            _ => TestReply::json(200, "{}"),
        })
        .await;
        let writer = writer(&server).await;
        let (outcome, _) = soon(writer.write(&said(), at())).await;
        assert_eq!(outcome, EventOutcome::Repeated);
        let patch: Value = serde_json::from_str(&server.asked()[2].body).expect("JSON");
        assert_eq!(
            (&patch["count"], &patch["message"]),
            (&json!(4), &json!("It hangs."))
        );
        assert_eq!(patch["metadata"]["resourceVersion"], "5");

        let same = Announcement {
            note: "It hung.".into(),
            ..said()
        };
        let (outcome, _) = soon(writer.write(&same, at())).await;
        assert_eq!(outcome, EventOutcome::Written);
        assert_eq!(server.asked().len(), 5, "nothing is changed");
    }

    #[tokio::test]
    async fn a_refusal_says_whether_it_is_worth_another_attempt() {
        let hook = "Internal error occurred: failed calling webhook \"w\": failed to call webhook: EOF";
        for (status, message, expected, again) in [
            (500, hook, EventOutcome::Blocked, true),
            (403, "User \"u\" cannot create", EventOutcome::Forbidden, false),
            (429, "too many requests", EventOutcome::NoAnswer, true),
            (422, "a name is too long", EventOutcome::Refused, true),
        ] {
            let server = TestServer::start(move |_| TestReply::status(status, message)).await;
            let (outcome, why) = soon(writer(&server).await.write(&said(), at())).await;
            assert_eq!((outcome, outcome.may_pass()), (expected, again));
            assert_eq!(why.as_deref(), Some(message));
        }
    }
}
