//! When the control plane's own writes pass again: measured by writes to one API server, not by hookwatch's word.

use std::time::Duration;

use anyhow::Context;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::lease::now;
use super::real::{AGENT, paced};
use super::requests::{ClientIdentity, send};
use crate::domain::act::bypass::STATE_ANNOTATION;

/// Time between the beginnings of two writes: what the instant is known to.
const PERIOD: Duration = Duration::from_millis(50);
/// Time between two reads of the configurations.
const LOOK: Duration = Duration::from_millis(100);
/// Longest duration of a write that passes, also sent as `?timeout=`, and of a read.
const LIMIT: Duration = Duration::from_secs(1);
/// kube-controller-manager, and permitted to write a Lease that is not its own.
const WRITER: ClientIdentity = ClientIdentity {
    user: "system:kube-controller-manager",
    groups: &["system:masters", "system:authenticated"],
};
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const CONFIGURATIONS: [&str; 2] = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];

/// Passages to every API server, before the fault. See [`Self::watch`].
pub struct Passages(Vec<Passage>);

impl Passages {
    /// # Errors
    /// When an API server refuses its Lease.
    pub(super) async fn prepare(kubeconfigs: &[String]) -> anyhow::Result<Self> {
        let mut all = Vec::new();
        for (number, kubeconfig) in kubeconfigs.iter().enumerate() {
            all.push(Passage::prepare(kubeconfig, number).await?);
        }
        Ok(Self(all))
    }

    /// Observes from now on, by writes of its own, when the control plane's writes pass under a bypass.
    pub fn watch(self) -> PassageWatch {
        PassageWatch(self.0.into_iter().map(Passage::opens).collect())
    }
}

/// Ends when it is dropped.
pub struct PassageWatch(JoinSet<Instant>);

impl PassageWatch {
    /// When the first of these writes was begun that passed, at the API server where that was latest; `None` unless one has
    /// passed at each.
    pub fn passed_at(mut self) -> Option<std::time::Instant> {
        let passed = std::iter::from_fn(|| self.0.try_join_next()).flatten().max();
        passed.filter(|_| self.0.is_empty()).map(Instant::into_std)
    }
}

/// What writes to one API server as kube-controller-manager does, to a Lease of its own in kube-system.
struct Passage {
    client: Client,
    lease: String,
}

impl Passage {
    /// Creates the Lease, at the API server of this kubeconfig.
    ///
    /// # Errors
    /// When there is no client, or the Lease cannot be created.
    async fn prepare(kubeconfig: &str, number: usize) -> anyhow::Result<Self> {
        let client = WRITER.client(kubeconfig).await?;
        let name = format!("lab-passage-{number}");
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name}, "spec": {"holderIdentity": "lab"},
        });
        match send(&client, "POST", LEASES, AGENT, &object).await {
            // Left by clients that were stopped.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.context("creating a Lease of the lab")?),
        }
        Ok(Self {
            client,
            lease: format!("{LEASES}/{name}?timeout={}s", LIMIT.as_secs()),
        })
    }

    /// When the first write that succeeds was begun. It writes nothing until a bypass stands in a webhook configuration, so that
    /// no write of its own hastens the first one.
    async fn opens(self) -> Instant {
        let mut looks = paced(LOOK);
        while !self.is_bypassed().await {
            looks.tick().await;
        }
        let mut begins = paced(PERIOD);
        let mut under_way = JoinSet::new();
        let mut first: Option<Instant> = None;
        loop {
            tokio::select! {
                began = begins.tick(), if first.is_none() => {
                    under_way.spawn(write(self.client.clone(), self.lease.clone(), began));
                }
                Some(ended) = under_way.join_next() => {
                    first = [first, ended.ok().flatten()].into_iter().flatten().min();
                    // Of those that were begun before the one that succeeded first, another may still succeed.
                    if let Some(first) = first.filter(|_| under_way.is_empty()) {
                        return first;
                    }
                }
            }
        }
    }

    /// Whether any configuration records a bypass.
    async fn is_bypassed(&self) -> bool {
        for kind in CONFIGURATIONS {
            let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}");
            let list = send(&self.client, "GET", &path, AGENT, &Value::Null);
            let Ok(Ok(list)) = timeout(LIMIT, list).await else {
                continue;
            };
            let items = list["items"].as_array().into_iter().flatten();
            if items
                .into_iter()
                .any(|item| item["metadata"]["annotations"].get(STATE_ANNOTATION).is_some())
            {
                return true;
            }
        }
        false
    }
}

/// One write; when it was begun, if it succeeded.
async fn write(client: Client, path: String, began: Instant) -> Option<Instant> {
    let body = json!({"spec": {"renewTime": now()}});
    let written = timeout(LIMIT, send(&client, "PATCH", &path, AGENT, &body)).await;
    matches!(written, Ok(Ok(_))).then_some(began)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_pass_once_they_pass_at_every_api_server() {
        let (first, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let at_both = PassageWatch([ready(later), ready(first)].into_iter().collect());
        let mut at_one = PassageWatch(JoinSet::from_iter([ready(first)]));
        at_one.0.spawn(pending());
        yield_now().await;
        assert_eq!(at_both.passed_at(), Some(later.into_std()));
        assert_eq!(at_one.passed_at(), None);
    }
}
