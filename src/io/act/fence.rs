//! Proves the fence: makes the attempts of [`crate::domain::act::fence`] at the API server.

use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::Value;

use crate::domain::act::fence::{AttemptRequest, AttemptResult, FENCE, FenceAttempt, MaySkip, Proof};
use crate::domain::cluster::hook::HookKind;
use crate::domain::text::bounded;
use crate::io::client::Connection;
use crate::io::client::request::{ApiRequest, JSON, RequestError, within};

/// Longest wait for one answer. No webhook is called on the way; RBAC, the policies and etcd are.
const ANSWER: Duration = Duration::from_secs(10);
/// Most bytes of the policy: more than etcd keeps.
const MAX_POLICY: usize = 2 << 20;
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

/// Proves the fence.
#[derive(Clone)]
pub struct Fence {
    client: Client,
    namespace: String,
}

impl Fence {
    /// The fence at the API server of this connection, around a hookwatch in this namespace.
    pub fn new(connection: &Connection, namespace: &str) -> Self {
        Self {
            client: connection.calls().clone(),
            namespace: namespace.to_owned(),
        }
    }

    /// Reads which skips the fence permits, and makes every attempt at [`crate::domain::act::fence::PROOF`] of both kinds. Nothing
    /// is stored.
    ///
    /// Takes four minutes at most. Every failure is a result: only [`Proof::Proven`] permits acting.
    pub async fn prove(&self) -> Proof {
        match self.attempt_all().await {
            Ok(may_skip) => Proof::Proven(may_skip),
            Err(proof) => proof,
        }
    }

    /// Makes every attempt. The error is the proof at the first answer that is not as expected.
    async fn attempt_all(&self) -> Result<MaySkip, Proof> {
        let may_skip = self.may_skip().await?;
        for kind in [HookKind::Validating, HookKind::Mutating] {
            for attempt in FenceAttempt::ALL {
                let request = attempt.request(kind, &self.namespace);
                let (status, message) = self.send(request).await?;
                let refusal = attempt.refusal(kind, &may_skip);
                if let AttemptResult::Failed(proof) = attempt.read(refusal, status, &message) {
                    return Err(proof);
                }
            }
        }
        Ok(may_skip)
    }

    /// Reads which configurations the policy permits to skip.
    async fn may_skip(&self) -> Result<MaySkip, Proof> {
        let target = format!("{POLICIES}/{FENCE}");
        let policy = ApiRequest::get(&self.client, &target, JSON);
        let policy = policy
            .json::<Value>(ANSWER, MAX_POLICY)
            .await
            .map_err(|error| match error {
                RequestError::Refused {
                    status: 404, message, ..
                } => Proof::NotProven(missing(&message)),
                RequestError::Refused {
                    status: 403, message, ..
                } => Proof::NotAllowedToAct(bounded(&message)),
                other => unknown(&other),
            })?;
        MaySkip::read(&policy).map_err(Proof::NotProven)
    }

    /// Sends an attempt. Returns the status of the answer, and the message of a refusal.
    async fn send(&self, attempt: AttemptRequest) -> Result<(u16, String), Proof> {
        let (method, kind) = match attempt.patch {
            Some(patch) => (Method::PATCH, patch),
            None => (Method::POST, JSON),
        };
        let body = attempt.body.to_string();
        let request = ApiRequest::write(&self.client, method, &attempt.target, kind, body);
        match within(ANSWER, request.open()).await {
            // The body is not needed. The connection is closed without reading it.
            Ok(answer) => Ok((answer.status().as_u16(), String::new())),
            Err(RequestError::Refused { status, message, .. }) => Ok((status, message)),
            Err(other) => Err(unknown(&other)),
        }
    }
}

fn unknown(why: &RequestError) -> Proof {
    Proof::Unknown(bounded(&why.to_string()))
}

/// Why there is no policy. An API server that has the kind names the object in its message; one before Kubernetes 1.30 does
/// not know the kind.
fn missing(message: &str) -> String {
    if message.contains(FENCE) {
        format!("there is no policy {FENCE}; apply deploy/base of this release")
    } else {
        "the API server has no ValidatingAdmissionPolicy (Kubernetes 1.30), so there is no fence".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::testing::{ReceivedRequest, TestReply, TestServer, soon};

    fn said(words: &str) -> TestReply {
        let message =
            format!("ValidatingAdmissionPolicy '{FENCE}' with binding '{FENCE}' denied request: {words}");
        TestReply::status(422, &message)
    }

    fn policy(may_skip: &str) -> TestReply {
        let variable = serde_json::json!({"name": "maySkip", "expression": may_skip});
        TestReply::json(
            200,
            serde_json::json!({"metadata": {}, "spec": {"variables": [variable]}}).to_string(),
        )
    }

    /// A fence as it should be.
    fn fenced(asked: &ReceivedRequest) -> TestReply {
        if asked.target.contains("validatingadmissionpolicies") {
            return policy("[]");
        }
        let body: serde_json::Value = serde_json::from_str(&asked.body).expect("JSON");
        let kinds = [HookKind::Validating, HookKind::Mutating];
        let mut attempts = kinds
            .into_iter()
            .flat_map(|kind| FenceAttempt::ALL.map(|attempt| (kind, attempt)));
        let attempt = attempts.find(|(kind, attempt)| {
            let asking = attempt.request(*kind, "hookwatch");
            asking.body == body && asking.target == asked.target
        });
        let (kind, attempt) = attempt.expect("a known attempt");
        match attempt.refusal(kind, &MaySkip::default()) {
            None => TestReply::json(200, "{}"),
            Some(refusal) => said(refusal),
        }
    }

    async fn proof(handler: impl Fn(&ReceivedRequest) -> TestReply + Send + Sync + 'static) -> Proof {
        let server = TestServer::start(handler).await;
        let fence = Fence::new(&server.connection().await, "hookwatch");
        soon(fence.prove()).await
    }

    #[tokio::test]
    async fn a_fence_that_answers_every_attempt_rightly_is_proven() {
        assert_eq!(proof(fenced).await, Proof::Proven(MaySkip::default()));
    }

    #[tokio::test]
    async fn a_fence_whose_parameter_cannot_be_read_is_not_proven() {
        for text in ["['opa']", "true"] {
            let proof = proof(move |asked| {
                if asked.target.contains("policies") {
                    policy(text)
                } else {
                    fenced(asked)
                }
            });
            assert!(
                matches!(proof.await, Proof::NotProven(why) if why.contains(text)),
                "{text}"
            );
        }
    }

    #[tokio::test]
    async fn a_policy_that_is_not_there_or_may_not_be_read_permits_nothing() {
        let read = async |status, message: &'static str| {
            let proof = proof(move |asked| {
                if asked.target.contains("policies") {
                    TestReply::status(status, message)
                } else {
                    fenced(asked)
                }
            });
            proof.await
        };
        for (message, why) in [
            (
                "validatingadmissionpolicies.admissionregistration.k8s.io \"hookwatch-fence\" not found",
                "apply deploy/base",
            ),
            (
                "the server could not find the requested resource",
                "Kubernetes 1.30",
            ),
        ] {
            let proof = read(404, message).await;
            assert!(
                matches!(&proof, Proof::NotProven(said) if said.contains(why)),
                "{proof:?}"
            );
        }
        assert!(matches!(
            read(403, "User \"x\" cannot get").await,
            Proof::NotAllowedToAct(_)
        ));
    }

    #[tokio::test]
    async fn one_hole_is_enough() {
        for hole in FenceAttempt::ALL.into_iter().filter(|attempt| {
            let refusal = attempt.refusal(HookKind::Mutating, &MaySkip::default());
            refusal.is_some()
        }) {
            let body = hole.request(HookKind::Mutating, "hookwatch").body.to_string();
            let proof = proof(move |asked| {
                if asked.body == body {
                    TestReply::json(200, "{}")
                } else {
                    fenced(asked)
                }
            });
            assert!(matches!(proof.await, Proof::NotProven(_)), "{hole:?}");
        }
    }

    #[tokio::test]
    async fn a_fence_of_another_release_and_nothing_to_try_it_at_prove_nothing() {
        let outdated = proof(|asked| {
            if asked.body.contains("hookwatch.dev/shield") {
                said("another text")
            } else {
                fenced(asked)
            }
        });
        assert!(matches!(outdated.await, Proof::NotProven(_)));
        let nothing = proof(|asked| {
            if asked.target.contains("hookwatch-proof?") {
                TestReply::status(404, "not found")
            } else {
                fenced(asked)
            }
        });
        assert!(matches!(nothing.await, Proof::NotProven(_)));
    }

    #[tokio::test]
    async fn an_api_server_that_is_in_trouble_proves_nothing() {
        let trouble = proof(|_| TestReply::status(503, "etcd is away")).await;
        assert!(matches!(trouble, Proof::Unknown(_)), "{trouble:?}");
    }
}
