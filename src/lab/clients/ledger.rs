//! Counts what an outage costs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::time::Instant;

use super::kubelet::LEASE_DURATION;
use crate::lab::workload::WorkloadRecord;

/// What users lose in an outage of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Casualties {
    /// Leaders that exited because they could not renew their Lease, or whose Lease expired.
    pub leaders_lost: u64,
    /// Nodes whose Lease was over 40 s old at some time, whether or not a controller was there to mark them.
    pub node_leases_expired: u64,
    /// Nodes that the node-lifecycle controller marked NotReady.
    pub nodes_not_ready: u64,
    /// Writes of users, leaders and kubelets that timed out, at the client or at the API server.
    pub writes_timed_out: u64,
    /// API servers that gave up on what they have to write before they serve.
    pub servers_not_started: u64,
}

/// Where all clients record what they lost.
#[derive(Debug)]
pub(super) struct LossLedger {
    record: Arc<WorkloadRecord>,
    state: Mutex<LossState>,
}

#[derive(Debug, Default)]
struct LossState {
    leaders_lost: Vec<String>,
    /// By node, when the renewal that its Lease shows began.
    renewed: BTreeMap<String, Instant>,
    expired: BTreeSet<String>,
    not_ready: BTreeSet<String>,
    /// The nodes that are marked NotReady now.
    marked: BTreeSet<String>,
    servers_not_started: u64,
    /// When the API server that is started became ready.
    server_started: Option<Instant>,
    /// Writes that had timed out when the count began.
    timed_out_before: u64,
}

impl LossLedger {
    pub(super) fn new(record: Arc<WorkloadRecord>) -> Self {
        Self {
            record,
            state: Mutex::default(),
        }
    }

    pub(super) fn reset_counts(&self) {
        let mut state = self.lock();
        state.leaders_lost.clear();
        state.servers_not_started = 0;
        state.expired.clear();
        state.not_ready.clear();
        state.timed_out_before = self.record.totals().timed_out;
    }

    pub(super) fn leader_lost(&self, name: &str) {
        self.lock().leaders_lost.push(name.to_owned());
    }

    /// The names of the leaders that were lost, one entry for each loss.
    pub(super) fn lost_leaders(&self) -> Vec<String> {
        self.lock().leaders_lost.clone()
    }

    pub(super) fn server_not_started(&self) {
        self.lock().servers_not_started += 1;
    }

    pub(super) fn server_started(&self) {
        self.lock().server_started = Some(Instant::now());
    }

    pub(super) fn server_started_at(&self) -> Option<Instant> {
        self.lock().server_started
    }

    /// Records that a node's Lease was written now, by a renewal that began at `began`.
    pub(super) fn renewed(&self, node: &str, began: Instant) {
        let mut state = self.lock();
        state.expire(Instant::now());
        state.renewed.insert(node.to_owned(), began);
    }

    /// Records that the controller marked a node NotReady.
    pub(super) fn marked(&self, node: &str) {
        let mut state = self.lock();
        state.not_ready.insert(node.to_owned());
        state.marked.insert(node.to_owned());
    }

    /// Whether a node is marked NotReady by the controller.
    pub(super) fn is_marked(&self, node: &str) -> bool {
        self.lock().marked.contains(node)
    }

    /// Records that a node reported that it is Ready.
    pub(super) fn ready(&self, node: &str) {
        self.lock().marked.remove(node);
    }

    pub(super) fn casualties(&self) -> Casualties {
        let mut state = self.lock();
        state.expire(Instant::now());
        let count = |nodes: &BTreeSet<String>| u64::try_from(nodes.len()).unwrap_or(u64::MAX);
        Casualties {
            leaders_lost: u64::try_from(state.leaders_lost.len()).unwrap_or(u64::MAX),
            node_leases_expired: count(&state.expired),
            nodes_not_ready: count(&state.not_ready),
            writes_timed_out: self.record.totals().timed_out - state.timed_out_before,
            servers_not_started: state.servers_not_started,
        }
    }

    fn lock(&self) -> MutexGuard<'_, LossState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LossState {
    /// Records which nodes' Leases have expired.
    fn expire(&mut self, now: Instant) {
        let old = self
            .renewed
            .iter()
            .filter(|(_, began)| now.saturating_duration_since(**began) > LEASE_DURATION)
            .map(|(node, _)| node.clone());
        self.expired.extend(old);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_too_old_once_stays_counted_until_the_count_is_reset() {
        let ledger = LossLedger::new(Arc::default());
        ledger.renewed("node-1", Instant::now());
        advance(LEASE_DURATION).await;
        ledger.renewed("node-2", Instant::now());
        assert_eq!(ledger.casualties(), Casualties::default());
        advance(Duration::from_secs(1)).await;
        ledger.renewed("node-1", Instant::now());
        assert_eq!(ledger.casualties().node_leases_expired, 1);
        ledger.reset_counts();
        assert_eq!(ledger.casualties(), Casualties::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_took_long_is_as_old_as_its_beginning() {
        let ledger = LossLedger::new(Arc::default());
        let began = Instant::now();
        advance(Duration::from_secs(9)).await;
        ledger.renewed("node-1", began);
        advance(LEASE_DURATION - Duration::from_secs(8)).await;
        assert_eq!(ledger.casualties().node_leases_expired, 1);
    }
}
