//! The real kube-controller-manager and kube-scheduler: restarted as a kubelet would restart them, and observed by their Leases
//! and by what kube-controller-manager writes about nodes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout};

use super::leader_election::RESTART_AFTER;
use super::lease::{LeaseRecord, LeaseStore, RemoteLease};
use super::ledger::LossLedger;
use super::requests::send;
use crate::lab::envtest::Controller;
use crate::lab::workload::WorkloadRecord;

/// Interval between two checks of a Lease and its process: the end of a renewal is known to within this.
const LEASE_POLL: Duration = Duration::from_millis(200);
/// Interval between two checks of all nodes.
const NODE_POLL: Duration = Duration::from_secs(1);
/// Longest wait for an answer to a read, which no webhook sees.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait until a process that was just started leads; seen: 5 s on an idle machine.
const LEADS_WITHIN: Duration = Duration::from_secs(90);
/// The message that the node-lifecycle controller writes with `Unknown`. Nothing else writes it where real leaders run.
const SILENT_NODE: &str = "Kubelet stopped posting node status.";
/// The user agent of these reads.
pub(super) const AGENT: &str = "hookwatch-lab";

/// A process that leads, and its Lease.
pub(super) struct RealLeader {
    controller: Controller,
    lease: RemoteLease,
    tenure: Tenure,
    exited: Option<Instant>,
    record: Arc<WorkloadRecord>,
    ledger: Arc<LossLedger>,
}

impl RealLeader {
    /// Starts the process and waits until it leads.
    ///
    /// # Errors
    /// When it cannot be started, exits, or does not lead in time; with the end of its log.
    pub(super) async fn start(
        controller: Controller,
        lease: RemoteLease,
        (record, ledger): (Arc<WorkloadRecord>, Arc<LossLedger>),
    ) -> anyhow::Result<Self> {
        controller.start()?;
        let mut leader = Self {
            controller,
            lease,
            tenure: Tenure::default(),
            exited: None,
            record,
            ledger,
        };
        let until = Instant::now() + LEADS_WITHIN;
        while !leader.tenure.lasts {
            leader.controller.check()?;
            anyhow::ensure!(
                Instant::now() < until,
                "{} does not lead after {} s",
                leader.controller.name(),
                LEADS_WITHIN.as_secs()
            );
            sleep(LEASE_POLL).await;
            leader.read().await;
        }
        Ok(leader)
    }

    /// Keeps it running and observes its Lease, without end.
    pub(super) async fn run(mut self) {
        let mut looks = paced(LEASE_POLL);
        loop {
            looks.tick().await;
            self.keep_running();
            self.read().await;
        }
    }

    /// Records its exit, and restarts it when a kubelet would.
    fn keep_running(&mut self) {
        match self.exited {
            None if self.controller.check().is_err() => {
                self.exited = Some(Instant::now());
                if self.tenure.exits() {
                    self.ledger.leader_lost(self.controller.name());
                }
            }
            // When that fails, the next check tries again.
            Some(exited) if exited.elapsed() >= RESTART_AFTER && self.controller.start().is_ok() => {
                self.exited = None;
            }
            _ => {}
        }
    }

    /// Reads the Lease. A read that fails changes nothing: without an API server the process soon exits by itself.
    async fn read(&mut self) {
        let Ok(Ok(found)) = timeout(READ_LIMIT, self.lease.get()).await else {
            return;
        };
        let written = Timestamp::now();
        let seen = self.tenure.observe(Instant::now(), found);
        if seen.lost {
            self.ledger.leader_lost(self.controller.name());
        }
        if let Some(began) = seen.renewed {
            self.note_renewal(written, &began);
        }
    }

    /// Records a renewal as a write that succeeded. It began when its `renewTime` was taken.
    fn note_renewal(&self, written: Timestamp, began: &str) {
        let took = began
            .parse()
            .ok()
            .and_then(|began: Timestamp| Duration::try_from(written.duration_since(began)).ok())
            .unwrap_or_default();
        let now = std::time::Instant::now();
        let began = now.checked_sub(took).unwrap_or(now);
        let ticket = self.record.begins(began, "renew leases in kube-system");
        self.record.wrote(now, ticket);
    }
}

/// What one read of a Lease shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct LeaseChange {
    /// Whether a leader was lost that had not been counted yet.
    lost: bool,
    /// The `renewTime` of a renewal that was not seen before.
    renewed: Option<String>,
}

/// The time that one leader leads; it is lost at most once.
#[derive(Debug, Default)]
struct Tenure {
    /// Whether there is a leader that has not been lost.
    lasts: bool,
    /// The Lease as last seen, and when its holder and `renewTime` were first seen.
    latest: Option<(LeaseRecord, Instant)>,
    /// The holder whose process exited. Its last renewal may be read only after that.
    exited: Option<String>,
}

impl Tenure {
    /// Takes in the Lease as just read.
    fn observe(&mut self, now: Instant, found: LeaseRecord) -> LeaseChange {
        let mut seen = LeaseChange::default();
        let renewed = match &self.latest {
            Some((known, since)) if known.renewed == found.renewed && known.holder == found.holder => {
                // By this process's own clock, as in client-go.
                seen.lost = self.lasts && now > *since + known.duration;
                false
            }
            Some((known, _)) => {
                let another = known.holder != found.holder || known.transitions != found.transitions;
                seen.lost = self.lasts && another;
                true
            }
            None => true,
        };
        self.lasts &= !seen.lost;
        let holds = !found.holder.is_empty() && self.exited.as_ref() != Some(&found.holder);
        if renewed {
            self.lasts = holds;
            seen.renewed = holds.then(|| found.renewed.clone());
            self.latest = Some((found, now));
        }
        seen
    }

    /// Takes in that the process exited; true if it led until then, so that the exit counts as a loss.
    fn exits(&mut self) -> bool {
        self.exited = self.latest.as_ref().map(|(lease, _)| lease.holder.clone());
        std::mem::take(&mut self.lasts)
    }
}

/// Ticks at least `period` apart, also after a late one.
pub(super) fn paced(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Reads without end which nodes the real node-lifecycle controller has marked NotReady.
pub(super) async fn watch_nodes(client: Client, ledger: Arc<LossLedger>) {
    let mut looks = paced(NODE_POLL);
    loop {
        looks.tick().await;
        let request = send(&client, "GET", "/api/v1/nodes", AGENT, &Value::Null);
        let Ok(Ok(list)) = timeout(READ_LIMIT, request).await else {
            continue;
        };
        for node in list["items"].as_array().into_iter().flatten() {
            if is_marked(node)
                && let Some(name) = node["metadata"]["name"].as_str()
            {
                ledger.marked(name);
            }
        }
    }
}

/// Whether the node-lifecycle controller wrote that nothing is known of a node.
fn is_marked(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == "Ready"
            && condition["status"] == "Unknown"
            && condition["message"] == SILENT_NODE
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(holder: &str, renewed: &str, transitions: u64) -> LeaseRecord {
        LeaseRecord {
            holder: holder.to_owned(),
            duration: Duration::from_secs(15),
            renewed: renewed.to_owned(),
            acquired: None,
            transitions,
            version: String::new(),
        }
    }

    struct LeaseHistory {
        tenure: Tenure,
        begin: Instant,
    }

    impl LeaseHistory {
        fn begin() -> Self {
            Self {
                tenure: Tenure::default(),
                begin: Instant::now(),
            }
        }

        fn lost(&mut self, second: u64, found: LeaseRecord) -> bool {
            let now = self.begin + Duration::from_secs(second);
            self.tenure.observe(now, found).lost
        }
    }

    #[test]
    fn a_leader_that_exits_is_lost_once_however_its_lease_looks_afterwards() {
        let mut history = LeaseHistory::begin();
        assert!(!history.lost(0, lease("a", "0", 0)) && !history.lost(2, lease("a", "2", 0)));
        assert!(history.tenure.exits());
        // Its last renewal is seen late, grows old, and then the next process leads.
        assert!(!history.lost(3, lease("a", "3", 0)) && !history.lost(30, lease("a", "3", 0)));
        assert!(!history.lost(31, lease("b", "31", 1)));
        assert!(history.tenure.lasts);
        assert!(history.tenure.exits());
    }

    #[test]
    fn a_lease_that_is_not_renewed_for_its_duration_is_lost_once_even_when_the_process_exits_then() {
        let mut history = LeaseHistory::begin();
        history.lost(0, lease("a", "0", 0));
        assert!(!history.lost(15, lease("a", "0", 0)) && history.lost(16, lease("a", "0", 0)));
        assert!(!history.lost(17, lease("a", "0", 0)));
        assert!(!history.tenure.exits());
    }

    #[test]
    fn another_holder_and_a_transition_mean_that_a_leader_was_lost() {
        let mut history = LeaseHistory::begin();
        history.lost(0, lease("a", "0", 0));
        assert!(history.lost(2, lease("b", "2", 1)) && !history.lost(4, lease("b", "4", 1)));
        assert!(
            history.lost(6, lease("b", "6", 3)),
            "it was lost and won in between"
        );
        assert!(history.lost(8, lease("", "8", 3)), "it was given up");
        assert!(!history.tenure.lasts);
    }

    #[test]
    fn each_renewal_is_seen_once() {
        let mut tenure = Tenure::default();
        let now = Instant::now();
        let seen = tenure.observe(now, lease("a", "0", 0));
        assert_eq!(seen.renewed.as_deref(), Some("0"));
        assert_eq!(tenure.observe(now, lease("a", "0", 0)), LeaseChange::default());
    }

    #[test]
    fn a_node_counts_that_its_controller_marked_and_not_one_that_the_lab_did() {
        let node = |message: &str| {
            let condition = json!({"type": "Ready", "status": "Unknown", "message": message});
            json!({"status": {"conditions": [condition]}})
        };
        assert!(is_marked(&node(SILENT_NODE)) && !is_marked(&node("")));
        assert!(!is_marked(&json!({})));
    }
}
