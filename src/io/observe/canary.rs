//! Canaries: dry-run writes through the API server, through every hook that matches a real write.
//!
//! Where there may be several API servers, each canary opens a new connection (`Connection: close` on a client of its own), so that
//! all are reached. With a single one the connection is kept, which costs that server less than half, but only while canaries
//! return within [`OVERDUE_AFTER`]: a silently dead connection hangs until the deadline and looks just like a hook that hangs.

mod further;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::domain::observe::canary::{
    CanaryOutcome, CanaryOverdue, CanaryReport, CanaryTarget, FurtherCanary,
};
use crate::domain::text::NOT_ACCEPTED;
use crate::domain::time::Time;
use crate::io::Clock;
use crate::io::client::Connection;
use crate::io::client::answer::{percent_encoded, read_body};
use crate::io::client::request::{ApiRequest, JSON, RequestError, within};
use crate::io::missing::MissingFeatures;

pub use crate::domain::observe::canary::OBJECT;

/// A canary without an answer after this time is reported as overdue. Until its own timeout, a hook that hangs shows in nothing
/// else; from here on the hooks that match the canary are observed closely.
pub const OVERDUE_AFTER: Duration = Duration::from_millis(300);
/// Longest wait for an answer. The API server ends a write at 34 s and a hook's timeout is 30 s at most, so the API
/// server answers first, and with a reason.
pub const DEADLINE: Duration = Duration::from_secs(36);
/// Most bytes read of the answer to a successful write.
const MAX_DRAINED: usize = 64 * 1024;
/// Longest wait for those bytes.
const DRAINED_WITHIN: Duration = Duration::from_secs(1);
/// The message for a success without the object.
const NO_OBJECT: &str = "an answer without the object: something other than an API server answers";
/// The `timeout` parameter for the API server: its own limit for writes.
const SERVER_TIMEOUT: Duration = Duration::from_secs(34);

/// Sends canaries as dry-run writes.
#[derive(Clone)]
pub struct CanaryWriter {
    on_new: Client,
    on_kept: Client,
    /// Whether there is only one API server: then the connection is kept between canaries.
    pub one_process: watch::Receiver<bool>,
    /// Whether the last canary returned within [`OVERDUE_AFTER`].
    at_once: Arc<AtomicBool>,
    namespace: String,
    /// The configured canaries, which [`CanaryTarget::Further`] names.
    pub further: Arc<[FurtherCanary]>,
    clock: Clock,
    deadline: Duration,
    missing: Arc<MissingFeatures>,
}

impl CanaryWriter {
    /// A writer whose [`CanaryTarget::OwnNamespace`] is `namespace`.
    pub fn new(connection: &Connection, namespace: &str, clock: Clock) -> Self {
        Self {
            on_new: connection.canaries().clone(),
            on_kept: connection.calls().clone(),
            one_process: watch::channel(false).1,
            at_once: Arc::default(),
            namespace: namespace.to_owned(),
            further: Arc::from([]),
            clock,
            deadline: DEADLINE,
            missing: Arc::default(),
        }
    }

    /// Writes one canary and returns its outcome; every failure is an outcome.
    ///
    /// `on_overdue` is called at most once, [`OVERDUE_AFTER`] after the start. Dropping the future cancels the canary.
    pub async fn write(
        &self,
        target: CanaryTarget,
        on_overdue: impl FnOnce(CanaryOverdue) + Send,
    ) -> CanaryReport {
        let started = (self.clock)();
        let mut created = false;
        let outcome = {
            let attempt = self.outcome(target, started, &mut created);
            let mut writing = pin!(tokio::time::timeout(self.deadline, attempt));
            match tokio::time::timeout(OVERDUE_AFTER, &mut writing).await {
                Ok(outcome) => {
                    self.at_once.store(true, Ordering::Relaxed);
                    outcome
                }
                Err(_) => {
                    self.at_once.store(false, Ordering::Relaxed);
                    on_overdue(CanaryOverdue {
                        target,
                        started,
                        waiting: (self.clock)().since(started),
                    });
                    writing.await
                }
            }
        };
        let outcome = outcome.unwrap_or(CanaryOutcome::TimedOut);
        self.note(target, &outcome);
        CanaryReport {
            target,
            started,
            took: (self.clock)().since(started),
            created,
            outcome,
        }
    }

    fn note(&self, target: CanaryTarget, outcome: &CanaryOutcome) {
        let why = match outcome {
            CanaryOutcome::Written => None,
            CanaryOutcome::Forbidden { message } | CanaryOutcome::Missing { message } => Some(&**message),
            // This does not show whether the permission is missing.
            _ => return,
        };
        self.missing.note(&format!("the canary {}", target.as_str()), why);
    }

    async fn outcome(&self, target: CanaryTarget, now: Time, created: &mut bool) -> CanaryOutcome {
        let object = match target {
            CanaryTarget::OwnNamespace => CanaryObject::config_map(&self.namespace),
            CanaryTarget::KubeSystem => CanaryObject::config_map("kube-system"),
            CanaryTarget::NodeLease => CanaryObject::lease(),
            CanaryTarget::Further(name) => {
                *created = true;
                let mut further = self.further.iter();
                return match further.find(|canary| canary.target == target) {
                    Some(canary) => further::create(self, canary).await,
                    None => CanaryOutcome::Missing {
                        message: format!("no canary {:?} is configured", name.as_str()),
                    },
                };
            }
        };
        self.attempt(&object, now, created).await
    }

    /// Patches the object, so that webhooks that match only UPDATE are called too; creates it when it does not exist. Both are dry
    /// runs: nothing is stored.
    async fn attempt(&self, object: &CanaryObject<'_>, now: Time, created: &mut bool) -> CanaryOutcome {
        let (path, patch) = (format!("{}/{OBJECT}", object.collection()), object.content(now));
        let update = self
            .send(Method::PATCH, &path, "application/merge-patch+json", "", &patch)
            .await;
        let Err(RequestError::Refused { status: 404, .. }) = update else {
            return outcome(update, |status, message| object.explain_update(status, message));
        };
        *created = true;
        let (path, whole) = (object.collection(), object.whole(now));
        let creation = self.send(Method::POST, &path, JSON, "", &whole).await;
        outcome(creation, |status, message| {
            object.explain_creation(status, message)
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        parameters: &str,
        body: &Value,
    ) -> Result<(), RequestError> {
        let timeout = SERVER_TIMEOUT.as_secs();
        let target = format!("{path}?dryRun=All&fieldManager=hookwatch&timeout={timeout}s{parameters}");
        let request =
            |client| ApiRequest::write(client, method.clone(), &target, content_type, body.to_string());
        if self.at_once.load(Ordering::Relaxed) && *self.one_process.borrow() {
            let answer = answered(request(&self.on_kept)).await;
            // Without an answer, the API server may have closed the kept connection in the meantime: try again on a new one.
            if matches!(answer, Ok(()) | Err(RequestError::Refused { .. })) {
                return answer;
            }
        }
        answered(request(&self.on_new).on_new_connection()).await
    }
}

/// Sends a request and returns its outcome. The body is read as well: otherwise the connection could not be reused.
async fn answered(request: ApiRequest<'_>) -> Result<(), RequestError> {
    let answer = request.open().await?;
    if is_object(answer.headers()) {
        drop(within(DRAINED_WITHIN, read_body(answer.into_body(), MAX_DRAINED)).await);
        return Ok(());
    }
    // A proxy's login page comes with a 200 as well, and must not pass for a write.
    Err(RequestError::Refused {
        status: answer.status().as_u16(),
        message: NO_OBJECT.to_owned(),
        headers: Box::default(),
    })
}

/// Whether a success has the content type of an API server's answer.
fn is_object(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}

fn outcome(
    answer: Result<(), RequestError>,
    explain: impl FnOnce(u16, &str) -> CanaryOutcome,
) -> CanaryOutcome {
    let why = match answer {
        Ok(()) => return CanaryOutcome::Written,
        Err(RequestError::Refused { status, message, .. }) => return explain(status, &message),
        Err(RequestError::NoConnection(why) | RequestError::NoAnswer(why)) => why,
        Err(why) => why.to_string(),
    };
    CanaryOutcome::Unreachable { why }
}

struct CanaryObject<'a> {
    kind: &'static str,
    api_version: &'static str,
    base: &'static str,
    resource: &'static str,
    namespace: &'a str,
}

impl<'a> CanaryObject<'a> {
    const fn lease() -> Self {
        Self {
            kind: "Lease",
            api_version: "coordination.k8s.io/v1",
            base: "/apis/coordination.k8s.io/v1",
            resource: "leases",
            namespace: "kube-node-lease",
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

    fn whole(&self, now: Time) -> Value {
        let mut object = self.content(now);
        object["apiVersion"] = self.api_version.into();
        object["kind"] = self.kind.into();
        object["metadata"] = json!({"name": OBJECT, "namespace": self.namespace});
        object
    }

    fn collection(&self) -> String {
        format!(
            "{}/namespaces/{}/{}",
            self.base,
            percent_encoded(self.namespace),
            self.resource
        )
    }

    fn explain_update(&self, status: u16, message: &str) -> CanaryOutcome {
        match interpret(status, message) {
            CanaryOutcome::Forbidden { message } if status == 403 => CanaryOutcome::Forbidden {
                message: format!(
                    "{message}; grant patch on {} {OBJECT:?} in namespace {:?}",
                    self.resource, self.namespace
                ),
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

/// Reads a refusal; with what to do about credentials that are not accepted.
fn interpret(status: u16, message: &str) -> CanaryOutcome {
    match CanaryOutcome::from_status(status, message) {
        CanaryOutcome::Forbidden { message } if status == 401 => CanaryOutcome::Forbidden {
            message: format!("{message}; {NOT_ACCEPTED}"),
        },
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::domain::observe::canary::CallFailureReason;
    use crate::io::testing::{ReceivedRequest, TestReply, TestServer, clock, soon};

    const RBAC: &str = "configmaps \"hookwatch-canary\" is forbidden: User \"system:serviceaccount:h:h\" cannot \
                        patch resource \"configmaps\" in API group \"\" in the namespace \"hookwatch\"";

    async fn canaries(server: &TestServer) -> CanaryWriter {
        CanaryWriter::new(&server.connection().await, "hookwatch", clock())
    }

    async fn outcome(
        handler: impl Fn(&ReceivedRequest) -> TestReply + Send + Sync + 'static,
    ) -> CanaryOutcome {
        let server = TestServer::start(handler).await;
        let canaries = canaries(&server).await;
        soon(canaries.write(CanaryTarget::OwnNamespace, |_| {}))
            .await
            .outcome
    }

    fn update_only(
        reply: impl Fn() -> TestReply + Send + Sync + 'static,
    ) -> impl Fn(&ReceivedRequest) -> TestReply {
        move |asked| {
            assert_eq!(asked.method, "PATCH", "nothing but a 404 leads to a creation");
            reply()
        }
    }

    #[tokio::test]
    async fn each_target_is_an_update_that_changes_something_and_stores_nothing() {
        let server = TestServer::start(|_| TestReply::json(200, "{}")).await;
        let canaries = canaries(&server).await;
        for target in CanaryTarget::ALL {
            let report = soon(canaries.write(target, |_| {})).await;
            assert_eq!(report.outcome, CanaryOutcome::Written);
            assert_eq!(report.target, target);
        }
        let asked = server.asked();
        let paths: Vec<_> = asked
            .iter()
            .map(|asked| asked.target.split_once('?').expect("a query"))
            .collect();
        assert_eq!(
            paths.iter().map(|(path, _)| *path).collect::<Vec<_>>(),
            [
                "/api/v1/namespaces/hookwatch/configmaps/hookwatch-canary",
                "/api/v1/namespaces/kube-system/configmaps/hookwatch-canary",
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/hookwatch-canary",
            ]
        );
        for (asked, (_, query)) in asked.iter().zip(&paths) {
            assert_eq!(*query, "dryRun=All&fieldManager=hookwatch&timeout=34s");
            assert_eq!(asked.headers["content-type"], "application/merge-patch+json");
            assert_eq!(
                asked.headers["connection"], "close",
                "a kept connection may be dead"
            );
            assert!(asked.headers["user-agent"].starts_with("hookwatch/"));
        }
        let renewed = asked[2].body.split('"').find(|word| word.ends_with('Z'));
        assert_eq!(
            renewed.map(str::len),
            Some("2026-11-21T00:11:02.156000Z".len()),
            "MicroTime has six digits"
        );
    }

    /// What became of so many canaries that meet one API server alone, and which requests asked for a new connection.
    async fn one_after_the_other(
        replies: impl Fn(usize) -> TestReply + Send + Sync + 'static,
        canaries: usize,
    ) -> (Vec<CanaryOutcome>, Vec<bool>) {
        let asked = AtomicUsize::new(0);
        let server = TestServer::start(move |_| replies(asked.fetch_add(1, Ordering::Relaxed))).await;
        let (_several, one_process) = watch::channel(true);
        let writer = CanaryWriter {
            deadline: OVERDUE_AFTER * 2,
            one_process,
            ..self::canaries(&server).await
        };
        let mut outcomes = Vec::new();
        for _ in 0..canaries {
            outcomes.push(
                soon(writer.write(CanaryTarget::OwnNamespace, |_| {}))
                    .await
                    .outcome,
            );
        }
        let asked = server.asked();
        let on_new = asked
            .iter()
            .map(|asked| asked.headers.get("connection").is_some_and(|it| it == "close"));
        (outcomes, on_new.collect())
    }

    #[tokio::test]
    async fn of_one_api_server_alone_the_connection_is_kept_until_a_canary_does_not_come_back_at_once() {
        let replies = |number| match number {
            2 => TestReply::Hang,
            _ => TestReply::json(200, "{}"),
        };
        let (outcomes, on_new) = one_after_the_other(replies, 5).await;
        let mut expected = vec![CanaryOutcome::Written; 5];
        expected[2] = CanaryOutcome::TimedOut;
        assert_eq!(outcomes, expected);
        assert_eq!(on_new, [true, false, false, true, false]);
    }

    #[tokio::test]
    async fn a_kept_connection_that_was_closed_is_no_failure_of_the_api_server() {
        let replies = |number| match number {
            1 => TestReply::Raw(Vec::new()),
            _ => TestReply::json(200, "{}"),
        };
        let (outcomes, on_new) = one_after_the_other(replies, 2).await;
        assert_eq!(outcomes, [CanaryOutcome::Written, CanaryOutcome::Written]);
        assert_eq!(on_new, [true, false, true]);
    }

    #[tokio::test]
    async fn an_object_that_is_not_there_is_created_without_being_stored() {
        let server = TestServer::start(|asked| match asked.method.as_str() {
            "PATCH" => TestReply::status(404, "configmaps \"hookwatch-canary\" not found"),
            _ => TestReply::json(201, "{}"),
        })
        .await;
        let canaries = canaries(&server).await;
        let report = soon(canaries.write(CanaryTarget::NodeLease, |_| {})).await;
        assert_eq!(report.outcome, CanaryOutcome::Written);
        assert!(report.created);
        let created = &server.asked()[1];
        assert_eq!(created.method, "POST");
        assert!(
            created
                .target
                .ends_with("/kube-node-lease/leases?dryRun=All&fieldManager=hookwatch&timeout=34s")
        );
        let object: Value = serde_json::from_str(&created.body).expect("JSON");
        assert_eq!(object["kind"], "Lease");
        assert_eq!(object["metadata"]["name"], OBJECT);
    }

    #[tokio::test]
    async fn a_refusal_that_names_a_hook_is_a_call_failure_also_on_creation() {
        const MESSAGE: &str = "Internal error occurred: failed calling webhook \"w.example\": failed to call \
                               webhook: Post \"https://s.n.svc:443/?timeout=10s\": context deadline exceeded";
        let named = |outcome| match outcome {
            CanaryOutcome::CallFailed(failure) => (failure.webhook, failure.reason),
            other => panic!("{other:?}"),
        };
        let expected = ("w.example".to_owned(), CallFailureReason::DeadlineExceeded);
        let updated = outcome(update_only(|| TestReply::status(500, MESSAGE))).await;
        assert_eq!(named(updated), expected);
        let created = outcome(|asked| match asked.method.as_str() {
            "PATCH" => TestReply::status(404, "not found"),
            _ => TestReply::status(500, MESSAGE),
        })
        .await;
        assert_eq!(named(created), expected);
        let denied = outcome(update_only(|| {
            TestReply::status(403, "admission webhook \"w\" denied the request: no")
        }));
        assert_eq!(denied.await, CanaryOutcome::Denied { webhook: "w".into() });
    }

    #[tokio::test]
    async fn a_missing_permission_says_what_to_grant() {
        let CanaryOutcome::Forbidden { message } =
            outcome(update_only(|| TestReply::status(403, RBAC))).await
        else {
            panic!("not forbidden");
        };
        assert!(
            message.contains("grant patch on configmaps \"hookwatch-canary\" in namespace \"hookwatch\""),
            "{message}"
        );
        let CanaryOutcome::Forbidden { message } =
            outcome(update_only(|| TestReply::status(401, "Unauthorized"))).await
        else {
            panic!("not forbidden");
        };
        assert!(message.contains("credentials"), "{message}");
    }

    #[tokio::test]
    async fn what_is_missing_is_named_with_what_to_create() {
        let on_creation = |code, message: &'static str| {
            outcome(move |asked| match asked.method.as_str() {
                "PATCH" => TestReply::status(404, "configmaps \"hookwatch-canary\" not found"),
                _ => TestReply::status(code, message),
            })
        };
        let CanaryOutcome::Missing { message } = on_creation(403, RBAC).await else {
            panic!("not missing");
        };
        assert!(
            message.starts_with(
                "ConfigMap \"hookwatch-canary\" in namespace \"hookwatch\" does not exist; create it"
            ),
            "{message}"
        );
        let CanaryOutcome::Missing { message } = on_creation(404, "namespaces \"hookwatch\" not found").await
        else {
            panic!("not missing");
        };
        assert!(message.starts_with("create namespace \"hookwatch\""), "{message}");
    }

    #[tokio::test]
    async fn a_403_that_is_no_missing_permission_does_not_switch_the_canary_off() {
        let message = "configmaps \"hookwatch-canary\" is forbidden: expression 'request.namespace' resulted in \
                       error: no such key: namespace";
        let outcome = outcome(update_only(move || TestReply::status(403, message))).await;
        assert!(
            matches!(outcome, CanaryOutcome::Refused { status: 403, .. }),
            "{outcome:?}"
        );
    }

    #[tokio::test]
    async fn a_body_that_is_no_status_keeps_the_code() {
        let page = "<html>\u{1F4A5}</html>".to_owned();
        let html = outcome(update_only(move || {
            TestReply::Whole(502, "text/html", page.clone())
        }))
        .await;
        assert_eq!(
            html,
            CanaryOutcome::Refused {
                status: 502,
                message: "<html>\u{1F4A5}</html>".into()
            }
        );
        let empty = outcome(update_only(|| TestReply::json(503, ""))).await;
        assert!(
            matches!(empty, CanaryOutcome::Refused { status: 503, .. }),
            "{empty:?}"
        );
        let cut = b"HTTP/1.1 500 X\r\ncontent-length: 500\r\n\r\n{\"message\":\"half".to_vec();
        let cut = outcome(update_only(move || TestReply::Raw(cut.clone()))).await;
        assert!(
            matches!(&cut, CanaryOutcome::Refused { status: 500, message } if message.contains("half")),
            "{cut:?}"
        );
        let huge = "x".repeat(1 << 22);
        let huge = outcome(update_only(move || {
            TestReply::Whole(500, "text/plain", huge.clone())
        }))
        .await;
        assert!(
            matches!(huge, CanaryOutcome::Refused { status: 500, .. }),
            "{huge:?}"
        );
    }

    #[tokio::test]
    async fn retries_and_throttling_are_the_callers_business() {
        let server = TestServer::start(|_| {
            let head = "HTTP/1.1 429 X\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            TestReply::Raw(head.into())
        })
        .await;
        let canaries = canaries(&server).await;
        let report = soon(canaries.write(CanaryTarget::KubeSystem, |_| {})).await;
        assert!(matches!(
            report.outcome,
            CanaryOutcome::Refused { status: 429, .. }
        ));
        assert_eq!(server.asked().len(), 1);
    }

    #[tokio::test]
    async fn a_canary_that_hangs_is_reported_once_as_overdue_and_then_given_up() {
        let server = TestServer::start(|_| TestReply::Hang).await;
        let canaries = CanaryWriter {
            deadline: OVERDUE_AFTER + Duration::from_millis(50),
            ..canaries(&server).await
        };
        let calls = AtomicUsize::new(0);
        let mut overdue_since = None;
        let report = soon(canaries.write(CanaryTarget::KubeSystem, |overdue| {
            calls.fetch_add(1, Ordering::Relaxed);
            assert!(overdue.waiting >= OVERDUE_AFTER);
            overdue_since = Some(overdue.started);
        }))
        .await;
        assert_eq!(report.outcome, CanaryOutcome::TimedOut);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert_eq!(
            overdue_since,
            Some(report.started),
            "both have to speak of the same canary"
        );
    }

    #[tokio::test]
    async fn an_api_server_that_is_gone_is_unreachable() {
        let server = TestServer::start(|_| TestReply::Hang).await;
        let canaries = canaries(&server).await;
        let address = server.address;
        server.stop().await;
        let report = soon(canaries.write(CanaryTarget::KubeSystem, |_| {})).await;
        let CanaryOutcome::Unreachable { why } = report.outcome else {
            panic!("{report:?}");
        };
        assert!(why.to_lowercase().contains("refused"), "{address}: {why}");
    }

    #[tokio::test]
    async fn a_login_page_with_a_200_is_no_write() {
        for page in [
            || TestReply::Whole(200, "text/html", "<html>Please log in</html>".to_owned()),
            || TestReply::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec()),
        ] {
            let outcome = outcome(update_only(page)).await;
            assert!(
                matches!(&outcome, CanaryOutcome::Refused { status: 200, message } if message == NO_OBJECT),
                "{outcome:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_namespace_cannot_leave_its_place_in_the_path() {
        let server = TestServer::start(|_| TestReply::json(200, "{}")).await;
        let canaries = CanaryWriter::new(&server.connection().await, "a/../b?x", clock());
        soon(canaries.write(CanaryTarget::OwnNamespace, |_| {})).await;
        let target = &server.asked()[0].target;
        assert!(
            target.starts_with("/api/v1/namespaces/a%2F..%2Fb%3Fx/configmaps/"),
            "{target}"
        );
    }
}
