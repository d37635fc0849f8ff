//! Proving the fence: the attempts of [`crate::domain::fence`], made at the API server.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;

use super::client::Connection;
use super::client::answer::{chain, error_message};
use crate::domain::fence::{Asking, Attempt, Proof, Reading, Subject};
use crate::domain::hook::HookKind;

/// Longest wait for one answer. No webhook is called on the way; RBAC, the policies and etcd are.
const ANSWER: Duration = Duration::from_secs(10);
/// Objects that are tried, at most, before there is none that will do.
const MAX_SUBJECTS: usize = 10;

/// Proves the fence.
#[derive(Clone)]
pub struct Fence {
    client: Client,
}

impl Fence {
    /// At the API server of this connection.
    pub fn new(connection: &Connection) -> Self {
        Self {
            client: connection.calls().clone(),
        }
    }

    /// Attempts everything at the first of these objects that will do, of each kind there is. Nothing is stored.
    ///
    /// Takes two minutes at most. Every way to fail is an answer: only [`Proof::Proven`] allows to act.
    pub async fn prove(&self, subjects: &[Subject]) -> Proof {
        let mut proof = Proof::Unknown("there is no webhook configuration to try it at".to_owned());
        for kind in [HookKind::Validating, HookKind::Mutating] {
            let of_kind: Vec<_> = subjects.iter().filter(|subject| subject.kind == kind).collect();
            if of_kind.is_empty() {
                continue;
            }
            proof = self.prove_at_any(&of_kind).await;
            if proof != Proof::Proven {
                break;
            }
        }
        proof
    }

    async fn prove_at_any(&self, subjects: &[&Subject]) -> Proof {
        let mut last = String::new();
        for subject in subjects.iter().take(MAX_SUBJECTS) {
            match self.prove_at(subject).await {
                Ok(proof) => return proof,
                Err(why) => last = format!("{} is of no use for it: {why}", subject.configuration),
            }
        }
        Proof::Unknown(last)
    }

    /// `Err` when another object has to be taken.
    async fn prove_at(&self, subject: &Subject) -> Result<Proof, String> {
        for attempt in Attempt::ALL {
            let answer = tokio::time::timeout(ANSWER, self.ask(attempt.asking(subject))).await;
            let (status, message) = match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(why)) => return Ok(Proof::Unknown(why)),
                Err(_) => return Ok(Proof::Unknown(format!("no answer within {} s", ANSWER.as_secs()))),
            };
            match attempt.read(status, &message) {
                Reading::AsItHasToBe => {}
                Reading::AnotherSubject(why) => return Err(why),
                Reading::Settled(proof) => return Ok(proof),
            }
        }
        Ok(Proof::Proven)
    }

    async fn ask(&self, asking: Asking) -> Result<(u16, String), String> {
        let (method, content_type) = match asking.patch {
            true => (Method::PATCH, "application/merge-patch+json"),
            false => (Method::POST, "application/json"),
        };
        let request = Request::builder()
            .method(method)
            .uri(asking.target)
            .header(CONTENT_TYPE, content_type)
            .header(ACCEPT, "application/json")
            .body(Body::from(asking.body.to_string().into_bytes()))
            .map_err(|error| chain(&error))?;
        let answer = self.client.send(request).await.map_err(|error| chain(&error))?;
        let status = answer.status();
        if status.is_success() {
            // What it would have stored is not needed: the connection is given up with it.
            return Ok((status.as_u16(), String::new()));
        }
        Ok((status.as_u16(), error_message(answer.into_body()).await))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fence::{FENCE, OPTED_OUT};
    use crate::io::testing::{Asked, Reply, Server, soon};

    fn subjects(names: &[&str]) -> Vec<Subject> {
        let subject = |name: &&str| Subject {
            kind: HookKind::Validating,
            configuration: (*name).to_owned(),
        };
        names.iter().map(subject).collect()
    }

    fn said(words: &str) -> Reply {
        let message =
            format!("ValidatingAdmissionPolicy '{FENCE}' with binding '{FENCE}' denied request: {words}");
        Reply::status(422, &message)
    }

    /// A fence as it should be.
    fn fenced(asked: &Asked) -> Reply {
        let subject = &subjects(&["c"])[0];
        let body: serde_json::Value = serde_json::from_str(&asked.body).expect("JSON");
        let attempt = Attempt::ALL
            .into_iter()
            .find(|attempt| attempt.asking(subject).body == body);
        match attempt.expect("a known attempt").refusal() {
            None => Reply::json(200, "{}"),
            Some(refusal) => said(refusal),
        }
    }

    async fn proof(handler: impl Fn(&Asked) -> Reply + Send + Sync + 'static, names: &[&str]) -> Proof {
        let server = Server::start(handler).await;
        let fence = Fence::new(&server.connection().await);
        soon(fence.prove(&subjects(names))).await
    }

    #[tokio::test]
    async fn a_fence_that_answers_every_attempt_rightly_is_proven() {
        assert_eq!(proof(fenced, &["c"]).await, Proof::Proven);
    }

    #[tokio::test]
    async fn one_hole_is_enough() {
        for hole in Attempt::ALL
            .into_iter()
            .filter(|attempt| attempt.refusal().is_some())
        {
            let body = hole.asking(&subjects(&["c"])[0]).body.to_string();
            let proof = proof(
                move |asked| match asked.body == body {
                    true => Reply::json(200, "{}"),
                    false => fenced(asked),
                },
                &["c"],
            );
            assert!(matches!(proof.await, Proof::NotProven(_)), "{hole:?}");
        }
    }

    #[tokio::test]
    async fn what_opted_out_or_is_gone_is_passed_over() {
        let handler = |asked: &Asked| match asked.target.contains("/out?") {
            true => said(OPTED_OUT),
            false if asked.target.contains("/gone?") => Reply::status(404, "not found"),
            false => fenced(asked),
        };
        assert_eq!(proof(handler, &["out", "gone", "c"]).await, Proof::Proven);
        assert!(matches!(
            proof(handler, &["out", "gone"]).await,
            Proof::Unknown(_)
        ));
        assert!(matches!(proof(handler, &[]).await, Proof::Unknown(_)));
    }

    #[tokio::test]
    async fn an_api_server_that_is_in_trouble_proves_nothing() {
        let trouble = proof(|_| Reply::status(503, "etcd is away"), &["c"]).await;
        assert!(matches!(trouble, Proof::Unknown(_)), "{trouble:?}");
    }
}
