//! The part of kube-controller-manager's node-lifecycle controller that marks a node as not Ready
//! (`pkg/controller/nodelifecycle`). It forgets everything when its process ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::ledger::LossLedger;
use super::requests::send;

/// Interval between two checks of all nodes: `--node-monitor-period`.
const MONITOR_PERIOD: Duration = Duration::from_secs(5);
/// A node is NotReady when its Lease has not changed for longer: `--node-monitor-grace-period`, 50 s since 1.32.
const GRACE_PERIOD: Duration = Duration::from_secs(50);
/// Longest wait for an answer. The controller has no timeout; an API server ends a write after 34 s.
const REQUEST_LIMIT: Duration = Duration::from_secs(40);
const AGENT: &str = "kube-controller-manager/v1.36.2 (linux/amd64) node-controller";

/// The controller; it runs while its process leads.
pub(super) struct NodeLifecycle {
    client: Client,
    nodes: Vec<String>,
    ledger: Arc<LossLedger>,
}

impl NodeLifecycle {
    /// A controller of these nodes.
    pub(super) fn new(client: Client, nodes: Vec<String>, ledger: Arc<LossLedger>) -> Self {
        Self {
            client,
            nodes,
            ledger,
        }
    }

    /// Checks all nodes without end, with the empty memory of a new process.
    pub(super) async fn run(&self) {
        let mut health = NodeHealth::default();
        let mut looks = interval(MONITOR_PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let leases = self.leases().await;
            let now = Instant::now();
            let silent = self
                .nodes
                .iter()
                .filter(|node| health.is_silent(now, node, leases.get(*node)))
                .filter(|node| !self.ledger.is_marked(node));
            join_all(silent.map(|node| self.mark(node))).await;
        }
    }

    /// The `renewTime` of each node's Lease; empty when they cannot be read.
    async fn leases(&self) -> BTreeMap<String, String> {
        let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?resourceVersion=0";
        let request = send(&self.client, "GET", path, AGENT, &Value::Null);
        let Ok(Ok(list)) = timeout(REQUEST_LIMIT, request).await else {
            return BTreeMap::new();
        };
        let leases = list["items"].as_array().into_iter().flatten();
        leases
            .filter_map(|lease| {
                let name = lease["metadata"]["name"].as_str()?;
                let renewed = lease["spec"]["renewTime"].as_str()?;
                Some((name.to_owned(), renewed.to_owned()))
            })
            .collect()
    }

    /// Sets a node's condition Ready to Unknown. When that fails, the next check tries again.
    async fn mark(&self, node: &str) {
        let condition = json!({
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": format!("{:.0}", Timestamp::now()),
        });
        let path = format!("/api/v1/nodes/{node}/status");
        let status = json!({"status": {"conditions": [condition]}});
        let request = send(&self.client, "PATCH", &path, AGENT, &status);
        if let Ok(Ok(_)) = timeout(REQUEST_LIMIT, request).await {
            self.ledger.marked(node);
        }
    }
}

/// By node, the last `renewTime` seen and when it was first seen, by this process's own clock.
#[derive(Debug, Default)]
struct NodeHealth(BTreeMap<String, (Option<String>, Instant)>);

impl NodeHealth {
    /// Whether a node's Lease, now with `renewTime` `renewed`, has not changed for too long. A node that is new here gets the
    /// whole grace period.
    fn is_silent(&mut self, now: Instant, node: &str, renewed: Option<&String>) -> bool {
        let seen = self.0.entry(node.to_owned()).or_insert_with(|| (None, now));
        if let Some(renewed) = renewed
            && seen.0.as_ref() != Some(renewed)
        {
            *seen = (Some(renewed.clone()), now);
        }
        now > seen.1 + GRACE_PERIOD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_silent_when_its_lease_has_not_changed_for_longer_than_the_grace_period() {
        let (mut health, start) = (NodeHealth::default(), Instant::now());
        let renewed = "12:00:00".to_owned();
        let mut at = |seconds, renewed: &String| {
            health.is_silent(start + Duration::from_secs(seconds), "node-1", Some(renewed))
        };
        assert!(!at(0, &renewed) && !at(50, &renewed) && at(51, &renewed));
        assert!(!at(55, &"12:00:55".to_owned()));
    }

    #[test]
    fn a_list_that_cannot_be_read_renews_nothing_and_a_new_process_waits_the_whole_time() {
        let (mut health, start) = (NodeHealth::default(), Instant::now());
        assert!(!health.is_silent(start, "node-1", None));
        assert!(health.is_silent(start + GRACE_PERIOD + MONITOR_PERIOD, "node-1", None));
        let later = start + GRACE_PERIOD * 2;
        assert!(!NodeHealth::default().is_silent(later, "node-1", Some(&"12:00:00".to_owned())));
    }
}
