//! When the control plane's own writes pass again: measured by writes to one API server, not by hookwatch's word.

use std::time::Duration;

use anyhow::Context;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::lease::now;
use super::real::AGENT;
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

/// What writes to one API server as kube-controller-manager does, to a Lease of its own in kube-system.
pub(super) struct Passage {
    client: Client,
    lease: String,
}

impl Passage {
    /// Creates the Lease, at the API server of this kubeconfig.
    ///
    /// # Errors
    /// When there is no client, or the Lease cannot be created.
    pub(super) async fn prepare(kubeconfig: &str, number: usize) -> anyhow::Result<Self> {
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
    pub(super) async fn opens(&self) -> Instant {
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

fn paced(period: Duration) -> tokio::time::Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// One write; when it was begun, if it succeeded.
async fn write(client: Client, path: String, began: Instant) -> Option<Instant> {
    let body = json!({"spec": {"renewTime": now()}});
    let written = timeout(LIMIT, send(&client, "PATCH", &path, AGENT, &body)).await;
    matches!(written, Ok(Ok(_))).then_some(began)
}
