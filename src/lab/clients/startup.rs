//! An API server that starts while another one serves. It must write before it is ready: the post-start hook
//! `rbac/bootstrap-roles` (`pkg/registry/rbac/rest/storage_rbac.go`). A new version brings changed ClusterRoles, and cannot
//! start without them. On a real control plane it is a real process; on the embedded one only these writes are simulated.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Client;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::ledger::LossLedger;
use super::requests::{RequestFailure, send};
use crate::lab::envtest::SecondLaunch;

/// Pause before each attempt.
const POLL: Duration = Duration::from_secs(1);
/// After this time no attempt begins: the hook fails, and with it the API server. It waits for the attempt in flight, which
/// is why a real one (1.36) was seen to exit after 48 s.
const DEADLINE: Duration = Duration::from_secs(30);
/// Longest wait for an answer. The real client has no limit; an API server ends a write after 34 s.
const REQUEST_LIMIT: Duration = Duration::from_secs(40);
/// How long the kubelet waits before it restarts a static Pod's container that exited: the first step of its crash
/// back-off.
const RESTART_AFTER: Duration = Duration::from_secs(10);
/// ClusterRoles that the simulated new version brings.
pub(super) const ROLES: [&str; 3] = ["system:lab-viewer", "system:lab-editor", "system:lab-controller"];
const AGENT: &str = "kube-apiserver/v1.36.2 (linux/amd64)";
/// A ClusterRole that every API server makes at its start if it is missing, and that no part of a lab needs.
const MISSING_ROLE: &str = "system:monitoring";
/// Longest start of a real API server. One that cannot write exits well before.
const REAL_LIMIT: Duration = Duration::from_secs(120);

/// An API server that is not started yet.
pub(super) enum StartingServer {
    /// Only its writes, made by this client.
    Simulated(Client),
    /// A real process.
    Real(SecondLaunch),
}

impl StartingServer {
    /// A real one. A ClusterRole is deleted first, so that it has to write, as a new version has to.
    ///
    /// # Errors
    /// When the ClusterRole cannot be deleted.
    pub(super) async fn real(launch: SecondLaunch, admin: Client) -> anyhow::Result<Self> {
        let roles: Api<ClusterRole> = Api::all(admin);
        let deleted = roles.delete(MISSING_ROLE, &DeleteParams::default()).await;
        deleted.context("deleting a role that the next API server makes")?;
        Ok(Self::Real(launch))
    }

    /// Starts it again and again until it is ready, and keeps it running. All failed starts count as one loss.
    pub(super) async fn run(self, ledger: &LossLedger) {
        let mut gave_up = false;
        loop {
            match &self {
                Self::Simulated(client) => {
                    if bootstrap(|| reconcile(client)).await {
                        ledger.server_started();
                        return;
                    }
                }
                Self::Real(launch) => {
                    if let Ok(server) = launch.start()
                        && server.ready(REAL_LIMIT).await.is_ok()
                    {
                        ledger.server_started();
                        // It serves until this task ends and drops it.
                        return std::future::pending().await;
                    }
                }
            }
            if !gave_up {
                ledger.server_not_started();
            }
            gave_up = true;
            sleep(RESTART_AFTER).await;
        }
    }
}

/// One start; false when it gave up.
async fn bootstrap<F>(reconcile: impl Fn() -> F) -> bool
where
    F: Future<Output = bool>,
{
    let began = Instant::now();
    loop {
        sleep(POLL).await;
        if began.elapsed() >= DEADLINE {
            return false;
        }
        if reconcile().await {
            return true;
        }
    }
}

/// One attempt to create all missing roles; true when all of them exist. A role that fails does not stop the next.
async fn reconcile(client: &Client) -> bool {
    let mut all = true;
    for role in ROLES {
        all &= ensure(client, role).await;
    }
    all
}

async fn ensure(client: &Client, role: &str) -> bool {
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let bounded = async |method, path: &str, body: &Value| {
        timeout(REQUEST_LIMIT, send(client, method, path, AGENT, body))
            .await
            .map_or(Err(RequestFailure::Failed), |answer| {
                answer.map_err(|error| RequestFailure::from(&error))
            })
    };
    let found = bounded("GET", &format!("{ROLES}/{role}"), &Value::Null).await;
    if found != Err(RequestFailure::NotFound) {
        return found.is_ok();
    }
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": role, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "rules": [{"apiGroups": ["lab.example.com"], "resources": ["*"], "verbs": ["get"]}],
    });
    bounded("POST", ROLES, &object).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_whose_writes_hang_ends_its_last_attempt_and_gives_up() {
        let hang = Duration::from_secs(10);
        let began = Instant::now();
        let started = bootstrap(|| async {
            sleep(hang).await;
            false
        });
        assert!(!started.await);
        assert!((DEADLINE..DEADLINE + hang + POLL).contains(&began.elapsed()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_whose_writes_succeed_has_started_with_its_first_attempt() {
        let began = Instant::now();
        assert!(bootstrap(|| async { true }).await);
        assert_eq!(began.elapsed(), POLL);
    }
}
