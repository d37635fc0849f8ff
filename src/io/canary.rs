//! Canaries: dry-run writes through the API server, past every hook that a real write would meet.
//!
//! Each canary dials anew (`Connection: close` on a client of its own). A kept connection to a replica that
//! died without a word would hang until the deadline and look just like a hook that hangs, on all three
//! targets at once.

use std::pin::pin;
use std::time::Duration;

use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::Clock;
use super::client::Connection;
use super::client::answer::{chain, error_message, query_value};
use crate::domain::canary::{CanaryOutcome, CanaryOverdue, CanaryReport, CanaryTarget};
use crate::domain::time::Time;

/// The name of every canary object.
pub const OBJECT: &str = "hookwatch-canary";
/// A canary that is not back by then is reported as overdue. A hook that hangs shows in nothing else for as
/// long as its own timeout.
pub const OVERDUE_AFTER: Duration = Duration::from_secs(2);
/// Our own patience. The API server cuts a write at 34 s and a hook's timeout is 30 s at most, so the API
/// server answers first, and with a reason.
pub const DEADLINE: Duration = Duration::from_secs(36);
/// What the API server is told of our patience: its own limit for writes.
const SERVER_TIMEOUT: Duration = Duration::from_secs(34);

/// Writes canaries.
#[derive(Clone)]
pub struct Canaries {
    client: Client,
    namespace: String,
    clock: Clock,
    deadline: Duration,
}

impl Canaries {
    /// A writer whose [`CanaryTarget::OwnNamespace`] is `namespace`.
    pub fn new(connection: &Connection, namespace: &str, clock: Clock) -> Self {
        Self {
            client: connection.canaries().clone(),
            namespace: namespace.to_owned(),
            clock,
            deadline: DEADLINE,
        }
    }

    /// The same writer with less patience than [`DEADLINE`], for one-shot use.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Writes one canary and says how it ended; every way to fail is an outcome.
    ///
    /// `on_overdue` is called at most once, [`OVERDUE_AFTER`] after the start. Dropping the future gives the
    /// canary up.
    pub async fn write(
        &self,
        target: CanaryTarget,
        on_overdue: impl FnOnce(CanaryOverdue) + Send,
    ) -> CanaryReport {
        let started = (self.clock)();
        let object = CanaryObject::of(target, &self.namespace);
        let mut writing = pin!(tokio::time::timeout(
            self.deadline,
            self.attempt(&object, started)
        ));
        let outcome = match tokio::time::timeout(OVERDUE_AFTER, &mut writing).await {
            Ok(outcome) => outcome,
            Err(_) => {
                on_overdue(CanaryOverdue {
                    target,
                    started,
                    waiting: (self.clock)().since(started),
                });
                writing.await
            }
        };
        CanaryReport {
            target,
            started,
            took: (self.clock)().since(started),
            outcome: outcome.unwrap_or(CanaryOutcome::TimedOut),
        }
    }

    /// An update, so that hooks which only match UPDATE are met too; where there is nothing to update, a
    /// creation that is never stored.
    async fn attempt(&self, object: &CanaryObject<'_>, now: Time) -> CanaryOutcome {
        let update = self.send(object.update(now)).await;
        let Answered::Refused(404, _) = update else {
            return update.outcome(|status, message| object.explain_update(status, message));
        };
        let creation = self.send(object.creation(now)).await;
        creation.outcome(|status, message| object.explain_creation(status, message))
    }

    async fn send(&self, request: Result<Request<Body>, http::Error>) -> Answered {
        let request = match request {
            Ok(request) => request,
            // Only a namespace that is no name at all gets here.
            Err(error) => return Answered::Nothing(chain(&error)),
        };
        match self.client.send(request).await {
            Ok(answer) if answer.status().is_success() => Answered::Written,
            Ok(answer) => {
                let status = answer.status().as_u16();
                Answered::Refused(status, error_message(status, answer.into_body()).await)
            }
            Err(error) => Answered::Nothing(chain(&error)),
        }
    }
}

/// What came of one request.
enum Answered {
    Written,
    Refused(u16, String),
    Nothing(String),
}

impl Answered {
    fn outcome(self, explain: impl FnOnce(u16, &str) -> CanaryOutcome) -> CanaryOutcome {
        match self {
            Self::Written => CanaryOutcome::Written,
            Self::Refused(status, message) => explain(status, &message),
            Self::Nothing(why) => CanaryOutcome::Unreachable { why },
        }
    }
}

/// The object behind a target.
struct CanaryObject<'a> {
    kind: &'static str,
    api_version: &'static str,
    base: &'static str,
    resource: &'static str,
    namespace: &'a str,
}

impl<'a> CanaryObject<'a> {
    fn of(target: CanaryTarget, own_namespace: &'a str) -> Self {
        match target {
            CanaryTarget::OwnNamespace => Self::config_map(own_namespace),
            CanaryTarget::KubeSystem => Self::config_map("kube-system"),
            CanaryTarget::NodeLease => Self {
                kind: "Lease",
                api_version: "coordination.k8s.io/v1",
                base: "/apis/coordination.k8s.io/v1",
                resource: "leases",
                namespace: "kube-node-lease",
            },
        }
    }

    const fn config_map(namespace: &'a str) -> Self {
        Self {
            kind: "ConfigMap",
            api_version: "v1",
            base: "/api/v1",
            resource: "configmaps",
            namespace,
        }
    }

    /// What changes from canary to canary: an update that changes nothing is cut short by the API server.
    fn content(&self, now: Time) -> Value {
        match self.kind {
            // MicroTime wants six digits; a Time shows three.
            "Lease" => json!({"spec": {"holderIdentity": OBJECT,
                "renewTime": now.to_string().replace('Z', "000Z")}}),
            _ => json!({"data": {"written": now.to_string()}}),
        }
    }

    fn update(&self, now: Time) -> Result<Request<Body>, http::Error> {
        let path = format!("{}/{OBJECT}", self.collection());
        request(
            Method::PATCH,
            &path,
            "application/merge-patch+json",
            &self.content(now),
        )
    }

    fn creation(&self, now: Time) -> Result<Request<Body>, http::Error> {
        let mut object = self.content(now);
        object["apiVersion"] = self.api_version.into();
        object["kind"] = self.kind.into();
        object["metadata"] = json!({"name": OBJECT, "namespace": self.namespace});
        request(Method::POST, &self.collection(), "application/json", &object)
    }

    fn collection(&self) -> String {
        format!(
            "{}/namespaces/{}/{}",
            self.base,
            query_value(self.namespace),
            self.resource
        )
    }

    fn explain_update(&self, status: u16, message: &str) -> CanaryOutcome {
        match interpret(status, message) {
            CanaryOutcome::Forbidden { message } => CanaryOutcome::Forbidden {
                message: match status {
                    401 => format!("{message}: hookwatch's credentials are not accepted; renew them"),
                    _ => format!(
                        "{message}; grant patch on {} {OBJECT:?} in namespace {:?}",
                        self.resource, self.namespace
                    ),
                },
            },
            other => other,
        }
    }

    fn explain_creation(&self, status: u16, message: &str) -> CanaryOutcome {
        let Self { kind, namespace, .. } = self;
        match interpret(status, message) {
            CanaryOutcome::Forbidden { message } if status == 403 => CanaryOutcome::Missing {
                message: format!(
                    "{kind} {OBJECT:?} in namespace {namespace:?} does not exist; create it, or grant create on \
                     {} there ({message})",
                    self.resource
                ),
            },
            CanaryOutcome::Missing { message } => CanaryOutcome::Missing {
                message: format!("create namespace {namespace:?} with {kind} {OBJECT:?} in it ({message})"),
            },
            other => other,
        }
    }
}

/// Reads a refusal. A 403 is a missing permission only in the authorizer's own words: an unfulfillable
/// matchCondition, a quota and a terminating namespace answer 403 as well, and are what canaries are for.
fn interpret(status: u16, message: &str) -> CanaryOutcome {
    match CanaryOutcome::from_status(status, message) {
        CanaryOutcome::Forbidden { message }
            if status == 403 && !(message.contains("User \"") && message.contains(" cannot ")) =>
        {
            CanaryOutcome::Refused { status, message }
        }
        outcome => outcome,
    }
}

fn request(
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<Request<Body>, http::Error> {
    let timeout = SERVER_TIMEOUT.as_secs();
    Request::builder()
        .method(method)
        .uri(format!(
            "{path}?dryRun=All&fieldManager=hookwatch&timeout={timeout}s"
        ))
        .header(CONTENT_TYPE, content_type)
        .header(ACCEPT, "application/json")
        .header(CONNECTION, "close")
        .body(Body::from(body.to_string().into_bytes()))
}
