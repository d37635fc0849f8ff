//! Proving the fence: the attempts of [`crate::domain::fence`], made at the API server.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;

use super::client::Connection;
use super::client::answer::{chain, error_message};
use crate::domain::fence::{Account, Asking, Attempt, Proof, Reading};
use crate::domain::hook::HookKind;

/// Longest wait for one answer. No webhook is called on the way; RBAC, the policies and etcd are.
const ANSWER: Duration = Duration::from_secs(10);
/// Proves the fence.
#[derive(Clone)]
pub struct Fence {
    client: Client,
    account: Account,
}

impl Fence {
    /// At the API server of this connection, as this account.
    pub fn new(connection: &Connection, account: Account) -> Self {
        Self {
            client: connection.calls().clone(),
            account,
        }
    }

    /// Attempts everything at [`crate::domain::fence::PROOF`] of both kinds. Nothing is stored.
    ///
    /// Takes four minutes at most. Every way to fail is an answer: only [`Proof::Proven`] allows to act.
    pub async fn prove(&self) -> Proof {
        for kind in [HookKind::Validating, HookKind::Mutating] {
            for attempt in Attempt::ALL {
                let asking = attempt.asking(kind, &self.account);
                let answer = tokio::time::timeout(ANSWER, self.ask(asking)).await;
                let (status, message) = match answer {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(why)) => return Proof::Unknown(why),
                    Err(_) => return Proof::Unknown(format!("no answer within {} s", ANSWER.as_secs())),
                };
                if let Reading::Settled(proof) = attempt.read(status, &message) {
                    return proof;
                }
            }
        }
        Proof::Proven
    }

    async fn ask(&self, asking: Asking) -> Result<(u16, String), String> {
        let (method, content_type) = match asking.patch {
            Some(patch) => (Method::PATCH, patch),
            None => (Method::POST, "application/json"),
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
    use crate::domain::fence::FENCE;
    use crate::io::testing::{Asked, Reply, Server, soon};

    fn account() -> Account {
        Account {
            namespace: "hookwatch".to_owned(),
            user: "system:serviceaccount:hookwatch:hookwatch".to_owned(),
        }
    }

    fn said(words: &str) -> Reply {
        let message =
            format!("ValidatingAdmissionPolicy '{FENCE}' with binding '{FENCE}' denied request: {words}");
        Reply::status(422, &message)
    }

    /// A fence as it should be.
    fn fenced(asked: &Asked) -> Reply {
        let body: serde_json::Value = serde_json::from_str(&asked.body).expect("JSON");
        let kinds = [HookKind::Validating, HookKind::Mutating];
        let mut attempts = kinds
            .into_iter()
            .flat_map(|kind| Attempt::ALL.map(|attempt| (kind, attempt)));
        let attempt = attempts.find(|(kind, attempt)| attempt.asking(*kind, &account()).body == body);
        match attempt.expect("a known attempt").1.refusal() {
            None => Reply::json(200, "{}"),
            Some(refusal) => said(refusal),
        }
    }

    async fn proof(handler: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Proof {
        let server = Server::start(handler).await;
        let fence = Fence::new(&server.connection().await, account());
        soon(fence.prove()).await
    }

    #[tokio::test]
    async fn a_fence_that_answers_every_attempt_rightly_is_proven() {
        assert_eq!(proof(fenced).await, Proof::Proven);
    }

    #[tokio::test]
    async fn one_hole_is_enough() {
        for hole in Attempt::ALL
            .into_iter()
            .filter(|attempt| attempt.refusal().is_some())
        {
            let body = hole.asking(HookKind::Mutating, &account()).body.to_string();
            let proof = proof(move |asked| match asked.body == body {
                true => Reply::json(200, "{}"),
                false => fenced(asked),
            });
            assert!(matches!(proof.await, Proof::NotProven(_)), "{hole:?}");
        }
    }

    #[tokio::test]
    async fn a_fence_of_another_release_and_nothing_to_try_it_at_prove_nothing() {
        let outdated = proof(|asked| match asked.body.contains("hookwatch.dev/shield") {
            true => said("another text"),
            false => fenced(asked),
        });
        assert!(matches!(outdated.await, Proof::NotProven(_)));
        let nothing = proof(|asked| match asked.target.contains("hookwatch-proof?") {
            true => Reply::status(404, "not found"),
            false => fenced(asked),
        });
        assert!(matches!(nothing.await, Proof::NotProven(_)));
    }

    #[tokio::test]
    async fn an_api_server_that_is_in_trouble_proves_nothing() {
        let trouble = proof(|_| Reply::status(503, "etcd is away")).await;
        assert!(matches!(trouble, Proof::Unknown(_)), "{trouble:?}");
    }
}
