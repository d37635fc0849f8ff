//! Configured canaries: each creates an object that the operator chose, as a dry run.

use http::Method;

use super::{CanaryWriter, JSON, OBJECT, interpret, outcome, percent_encoded};
use crate::domain::observe::canary::{CanaryOutcome, FurtherCanary};
use crate::io::client::request::base;

/// Statuses by which a busy API server refuses any object.
const BUSY: [u16; 2] = [408, 429];

/// Creates the canary's object as a dry run. With strict validation a field that the API server does not know is an error, which
/// the operator reads.
pub(super) async fn create(canaries: &CanaryWriter, canary: &FurtherCanary) -> CanaryOutcome {
    let (group, version) = canary.group_version();
    // Namespace and resource were checked when the configuration was read; `apiVersion` may be any text.
    let base = base(&percent_encoded(group), &percent_encoded(version));
    let path = format!("{base}/namespaces/{}/{}", canary.namespace, canary.resource);
    let strict = "&fieldValidation=Strict";
    let answer = canaries
        .send(Method::POST, &path, JSON, strict, &canary.object)
        .await;
    outcome(answer, |status, message| explain(canary, status, message))
}

/// What the API server itself refuses, Pod Security included, is the operator's to correct and no evidence about any webhook.
/// The canary is tried again every 60 s.
fn explain(canary: &FurtherCanary, status: u16, message: &str) -> CanaryOutcome {
    let name = canary.target.as_str();
    let (resource, namespace) = (&canary.resource, &canary.namespace);
    let missing = |what: String, message: &str| CanaryOutcome::Missing {
        message: format!("canary {name:?}: {what} ({message})"),
    };
    match interpret(status, message) {
        CanaryOutcome::Forbidden { message } if status == 403 => CanaryOutcome::Forbidden {
            message: format!(
                "canary {name:?} is not permitted: grant create on {resource} in namespace {namespace:?} ({message})"
            ),
        },
        CanaryOutcome::Missing { message } => missing(
            format!(
                "namespace {namespace:?} does not exist, or has no resource {resource} of its apiVersion"
            ),
            &message,
        ),
        CanaryOutcome::Refused { status: 409, message } => missing(
            format!("{resource} {OBJECT:?} exists in namespace {namespace:?}; remove it"),
            &message,
        ),
        CanaryOutcome::Refused {
            status: status @ 400..500,
            message,
        } if !BUSY.contains(&status) => missing(
            format!("the API server refuses its object with status {status}; correct the object"),
            &message,
        ),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::io::testing::{ReceivedRequest, TestReply, TestServer, clock, soon};

    fn pods() -> FurtherCanary {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}});
        FurtherCanary::new("tenant-pods", "team-a", "pods", pod).unwrap()
    }

    async fn written(
        canary: FurtherCanary,
        handler: impl Fn(&ReceivedRequest) -> TestReply + Send + Sync + 'static,
    ) -> (CanaryOutcome, Vec<ReceivedRequest>) {
        let server = TestServer::start(handler).await;
        let canaries = CanaryWriter {
            deadline: Duration::from_secs(30),
            further: Arc::new([canary.clone()]),
            ..CanaryWriter::new(&server.connection().await, "hookwatch", clock())
        };
        let report = soon(canaries.write(canary.target, |_| {})).await;
        assert_eq!(report.target, canary.target);
        (report.outcome, server.asked())
    }

    #[tokio::test]
    async fn it_is_created_in_its_namespace_and_never_stored() {
        let (outcome, asked) = written(pods(), |_| TestReply::json(201, "{}")).await;
        assert_eq!(outcome, CanaryOutcome::Written);
        assert_eq!((asked.len(), asked[0].method.as_str()), (1, "POST"));
        assert!(
            asked[0]
                .target
                .starts_with("/api/v1/namespaces/team-a/pods?dryRun=All&")
        );
        assert!(asked[0].target.contains("fieldValidation=Strict"));
        let object: Value = serde_json::from_str(&asked[0].body).unwrap();
        assert_eq!(object["metadata"]["name"], OBJECT);
        assert_eq!(object["spec"], json!({"containers": []}));
        let workflow = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"});
        let workflow = FurtherCanary::new("flows", "team-a", "workflows", workflow).unwrap();
        let (_, asked) = written(workflow, |_| TestReply::json(201, "{}")).await;
        assert!(
            asked[0]
                .target
                .starts_with("/apis/argoproj.io/v1alpha1/namespaces/team-a/workflows?")
        );
    }

    #[tokio::test]
    async fn what_is_wrong_with_the_object_or_the_permission_is_said_with_the_canary_s_name() {
        let told = async |status: u16, message: &'static str| {
            let (outcome, _) = written(pods(), move |_| TestReply::status(status, message)).await;
            outcome
        };
        let invalid = told(
            422,
            "Pod \"hookwatch-canary\" is invalid: spec.containers: Required value",
        )
        .await;
        assert!(
            matches!(&invalid, CanaryOutcome::Missing { message }
                if message.contains("tenant-pods") && message.contains("422") && message.contains("Required value")),
            "{invalid:?}"
        );
        let unknown = told(404, "the server could not find the requested resource").await;
        assert!(
            matches!(&unknown, CanaryOutcome::Missing { message } if message.contains("no resource pods"))
        );
        let there = told(409, "pods \"hookwatch-canary\" already exists").await;
        assert!(matches!(&there, CanaryOutcome::Missing { message } if message.contains("remove it")));
        let forbidden = told(
            403,
            "pods is forbidden: User \"system:serviceaccount:h:h\" cannot create resource \"pods\"",
        );
        let forbidden = forbidden.await;
        assert!(
            matches!(&forbidden, CanaryOutcome::Forbidden { message } if message.contains("grant create on pods"))
        );
        let hook = told(
            500,
            "Internal error occurred: failed calling webhook \"w\": failed to call webhook: EOF",
        );
        assert!(matches!(hook.await, CanaryOutcome::CallFailed(_)));
        for status in [302, 429] {
            let outcome = told(status, "later").await;
            assert!(
                matches!(&outcome, CanaryOutcome::Refused { status: said, .. } if *said == status),
                "{outcome:?}"
            );
        }
        let (page, _) = written(pods(), |_| {
            TestReply::Whole(200, "text/html", "log in".to_owned())
        })
        .await;
        assert!(
            matches!(&page, CanaryOutcome::Refused { status: 200, .. }),
            "{page:?}"
        );
        let expired = told(401, "Unauthorized").await;
        assert!(
            matches!(&expired, CanaryOutcome::Forbidden { message } if message.contains("renew them")),
            "{expired:?}"
        );
    }
}
