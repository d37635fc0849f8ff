//! The heartbeat of a kubelet: its Lease (`component-helpers/apimachinery/lease`), and its node's condition Ready
//! after a controller cleared it.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::lease::{LeaseRecord, LeaseStore, RemoteLease, now, within};
use super::ledger::LossLedger;
use super::requests::{RequestFailure, send};
use crate::lab::api::random;
use crate::lab::workload::WorkloadRecord;

/// What a kubelet writes as its Lease's duration: `nodeLeaseDurationSeconds`.
pub(super) const LEASE_DURATION: Duration = Duration::from_secs(40);
/// Pause between two renewals: a quarter of the duration (kubelet, `nodeLeaseRenewIntervalFraction`).
pub(super) const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// By up to this fraction an interval is longer at random.
const JITTER_FACTOR: f64 = 0.04;
/// Timeout of a single request, also sent as `?timeout=`: `nodeStatusUpdateFrequency`, which is less than the Lease's duration.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(10);
/// Attempts of an update, one right after the other: `maxUpdateRetries`.
const MAX_UPDATE_RETRIES: u32 = 5;
/// Pause when the Lease can be neither read nor created. A real kubelet doubles it each time, from 200 ms up to 7 s.
const ENSURE_AGAIN: Duration = Duration::from_millis(200);

/// One node's kubelet.
pub(super) struct Kubelet {
    client: Client,
    node: String,
    agent: String,
    heartbeat: Heartbeat<RemoteLease>,
    ledger: Arc<LossLedger>,
}

impl Kubelet {
    /// The kubelet of a node. The outcomes of its writes go into `record` as well.
    pub(super) fn new(
        client: Client,
        node: &str,
        record: Arc<WorkloadRecord>,
        ledger: Arc<LossLedger>,
    ) -> Self {
        let agent = "kubelet/v1.36.2 (linux/amd64)".to_owned();
        let place = ("kube-node-lease", node);
        let lease = RemoteLease::new(client.clone(), place, ATTEMPT_LIMIT, agent.clone(), record);
        Self {
            client,
            node: node.to_owned(),
            agent,
            heartbeat: Heartbeat {
                lease,
                node: node.to_owned(),
                latest: None,
                ledger: Arc::clone(&ledger),
            },
            ledger,
        }
    }

    /// Renews the Lease without end, for the second time after `first`.
    pub(super) async fn run(mut self, first: Duration) {
        let mut pause = first;
        loop {
            if self.heartbeat.sync().await && self.ledger.is_marked(&self.node) {
                self.be_ready().await;
            }
            sleep(pause).await;
            let unit = f64::midpoint(random::signed(), 1.0);
            pause = RENEW_INTERVAL.mul_f64(unit.mul_add(JITTER_FACTOR, 1.0));
        }
    }

    /// Sets the condition Ready, as the next update of the node's status does when it finds another value.
    async fn be_ready(&self) {
        let condition = json!({"type": "Ready", "status": "True", "reason": "KubeletReady"});
        let path = format!("/api/v1/nodes/{}/status", self.node);
        let status = json!({"status": {"conditions": [condition]}});
        let request = send(&self.client, "PATCH", &path, &self.agent, &status);
        if let Ok(Ok(_)) = timeout(ATTEMPT_LIMIT, request).await {
            self.ledger.ready(&self.node);
        }
    }
}

/// A node's Lease and who renews it.
struct Heartbeat<S> {
    lease: S,
    node: String,
    /// The Lease as last written.
    latest: Option<LeaseRecord>,
    ledger: Arc<LossLedger>,
}

impl<S: LeaseStore> Heartbeat<S> {
    /// One renewal attempt; true when the Lease was written.
    async fn sync(&mut self) -> bool {
        if let Some(latest) = self.latest.clone()
            && self.update(latest).await
        {
            return true;
        }
        let (lease, created) = self.ensure().await;
        self.latest = Some(lease.clone());
        created || self.update(lease).await
    }

    /// Reads or creates the Lease, however long that takes; true when it was created.
    async fn ensure(&self) -> (LeaseRecord, bool) {
        loop {
            match within(ATTEMPT_LIMIT, self.lease.get()).await {
                Ok(lease) => return (lease, false),
                Err(RequestFailure::NotFound) => {
                    let began = Instant::now();
                    if let Ok(lease) = within(ATTEMPT_LIMIT, self.lease.create(&self.wanted(""))).await {
                        self.ledger.renewed(&self.node, began);
                        return (lease, true);
                    }
                }
                Err(_) => {}
            }
            sleep(ENSURE_AGAIN).await;
        }
    }

    async fn update(&mut self, mut base: LeaseRecord) -> bool {
        for _ in 0..MAX_UPDATE_RETRIES {
            let began = Instant::now();
            match within(ATTEMPT_LIMIT, self.lease.replace(&self.wanted(&base.version))).await {
                Ok(lease) => {
                    self.latest = Some(lease);
                    self.ledger.renewed(&self.node, began);
                    return true;
                }
                Err(RequestFailure::Conflict) => base = self.ensure().await.0,
                Err(_) => {}
            }
        }
        false
    }

    fn wanted(&self, version: &str) -> LeaseRecord {
        LeaseRecord {
            holder: self.node.clone(),
            duration: LEASE_DURATION,
            renewed: now(),
            acquired: None,
            transitions: 0,
            version: version.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lease::tests::{MemoryLease, Writes};
    use super::*;

    fn heartbeat(lease: &MemoryLease) -> Heartbeat<MemoryLease> {
        Heartbeat {
            lease: lease.clone(),
            node: "node-1".to_owned(),
            latest: None,
            ledger: Arc::new(LossLedger::new(Arc::default())),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_hangs_is_tried_five_times_in_a_row_and_then_five_times_from_a_fresh_read() {
        let lease = MemoryLease::new();
        let mut heartbeat = heartbeat(&lease);
        assert!(heartbeat.sync().await);
        lease.take_attempts();
        lease.set(Writes::Hang);
        let began = Instant::now();
        assert!(!heartbeat.sync().await);
        assert_eq!(lease.take_attempts(), 2 * MAX_UPDATE_RETRIES);
        assert_eq!(began.elapsed(), ATTEMPT_LIMIT * 2 * MAX_UPDATE_RETRIES);
        assert_eq!(heartbeat.ledger.casualties().node_leases_expired, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_whose_writes_hang_for_less_than_forty_seconds_keeps_its_lease() {
        let lease = MemoryLease::new();
        let mut heartbeat = heartbeat(&lease);
        assert!(heartbeat.sync().await);
        sleep(RENEW_INTERVAL).await;
        lease.set(Writes::Hang);
        let healed = async {
            sleep(LEASE_DURATION - RENEW_INTERVAL - ATTEMPT_LIMIT).await;
            lease.set(Writes::Succeed);
        };
        let (renewed, ()) = tokio::join!(heartbeat.sync(), healed);
        assert!(renewed);
        assert_eq!(heartbeat.ledger.casualties().node_leases_expired, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_another_process_wrote_is_read_again_and_renewed() {
        let lease = MemoryLease::new();
        let mut heartbeat = heartbeat(&lease);
        assert!(heartbeat.sync().await);
        let found = lease.lease().unwrap();
        lease.replace(&found).await.unwrap();
        let began = Instant::now();
        assert!(heartbeat.sync().await);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
