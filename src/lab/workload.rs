//! Clients of the lab's API server: the users whose writes a bad hook hurts.

mod client;
mod record;
mod timeouts;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

pub use self::record::{FirstFailure, FirstSuccess, Flow, Recent, Totals};
pub(in crate::lab) use self::record::{RequestTicket, WorkloadRecord};
pub(in crate::lab) use self::timeouts::is_timeout;
use super::cluster::{LabHook, client_for};

/// How much load there is.
#[derive(Debug, Clone)]
pub struct WorkloadOptions {
    /// How many clients create, patch, list and delete in the tenants' namespaces; each holds one connection.
    pub clients: usize,
    /// How often each client begins a request, unless its last one is still in flight.
    pub pace: Duration,
}

impl WorkloadOptions {
    /// One client and a write every two seconds.
    pub const fn hardly_any() -> Self {
        Self {
            clients: 1,
            pace: Duration::from_secs(2),
        }
    }
}

impl Default for WorkloadOptions {
    /// Four clients and in all about 80 writes per second.
    fn default() -> Self {
        Self {
            clients: 4,
            pace: Duration::from_millis(40),
        }
    }
}

/// A running workload. Dropping it stops it at once; requests in flight are abandoned.
pub struct LabWorkload {
    record: Arc<WorkloadRecord>,
    clients: JoinSet<()>,
}

impl LabWorkload {
    /// Starts the clients.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn start(kubeconfig: &str, options: &WorkloadOptions) -> anyhow::Result<Self> {
        let record = Arc::new(WorkloadRecord::default());
        let mut clients = JoinSet::new();
        for number in 0..options.clients {
            let client = client_for(kubeconfig).await?;
            let tenant = client::Tenant::new(client, number, options.pace, Arc::clone(&record));
            clients.spawn(tenant.run());
        }
        Ok(Self { record, clients })
    }

    /// Where the control plane's own clients record their writes, so that flows count them too.
    pub(in crate::lab) fn record(&self) -> Arc<WorkloadRecord> {
        Arc::clone(&self.record)
    }

    /// Everything counted since the start.
    pub fn totals(&self) -> Totals {
        self.record.totals()
    }

    /// How requests went in the last `window`, of which at most 30 s count.
    pub fn recent(&self, window: Duration) -> Recent {
        self.record.recent(window)
    }

    /// The first request that failed since the start or the last [`Self::forget_failures`].
    pub fn first_failure(&self) -> Option<FirstFailure> {
        self.record.first_failure()
    }

    /// Resets the first failure, for instance when a fault begins.
    pub fn forget_failures(&self) {
        self.record.forget_failures();
    }

    /// The first create or update that was begun after the last [`Self::await_success`] and succeeded at once: within half a
    /// second or five times the usual median, whichever is longer.
    pub fn first_success(&self) -> Option<FirstSuccess> {
        self.record.first_success()
    }

    /// The median duration of writes that were begun since [`Self::count_flows`] and succeeded, as a multiple of the usual median
    /// before [`Self::await_success`]; `None` if either is missing.
    pub fn slowdown(&self) -> Option<f64> {
        self.record.slowdown()
    }

    /// As [`Self::first_success`], among the control plane's own writes.
    pub fn first_of_control_plane(&self) -> Option<FirstSuccess> {
        self.record.first_of_control_plane()
    }

    /// Looks for a first success among writes that are begun from now on and that one of these hooks is called for, for instance
    /// when a fault is in force.
    pub fn await_success(&self, hooks: &[LabHook]) {
        self.record.await_success(hooks);
    }

    /// Resets the counts, per namespace, of the outcomes of writes that those hooks are called for.
    pub fn count_flows(&self) {
        self.record.count_flows();
    }

    /// The counts since the last [`Self::count_flows`], and the writes that are waiting now; by namespace.
    pub fn flows(&self) -> Vec<Flow> {
        self.record.flows()
    }

    /// Stops all clients and waits until none is left.
    pub async fn stop(mut self) {
        self.clients.shutdown().await;
    }
}

/// Readers that LIST everything as fast as they get answers, until dropped.
#[derive(Debug)]
pub struct ReadFlood {
    // Held for its Drop, which ends the readers.
    _readers: JoinSet<()>,
}

impl ReadFlood {
    /// Starts one reader per client; clients made one by one do not share connections.
    pub fn start(clients: Vec<kube::Client>) -> Self {
        let mut readers = JoinSet::new();
        for client in clients {
            readers.spawn(client::read_without_end(client));
        }
        Self { _readers: readers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::api::{ApiServer, ApiServerOptions};
    use crate::lab::cluster::Cluster;
    use crate::lab::control_plane::BackendReach;

    /// A guard against a test that hangs, not a measurement.
    const GUARD: Duration = Duration::from_secs(30);

    async fn until(condition: impl Fn() -> bool) {
        let wait = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(GUARD, wait).await.expect("the test hangs");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_healthy_lab_fails_no_request_and_a_stopped_workload_sends_none() {
        // The lab's clients take the process's provider; a second test installing it is no error.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let api = ApiServer::start(ApiServerOptions::default()).await.unwrap();
        let kubeconfig = api.kubeconfig();
        let _cluster = Cluster::start(&kubeconfig, BackendReach::Loopback).await.unwrap();
        let options = WorkloadOptions {
            pace: Duration::from_millis(5),
            ..WorkloadOptions::default()
        };
        let workload = LabWorkload::start(&kubeconfig, &options).await.unwrap();
        until(|| workload.totals().written > 200 && workload.totals().listed > 20).await;
        assert_eq!(workload.first_failure(), None);
        assert_eq!(workload.totals().failed, 0);
        assert!(workload.recent(Duration::from_secs(30)).median.is_some());

        let record = Arc::clone(&workload.record);
        workload.stop().await;
        let totals = record.totals();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(record.totals(), totals);
    }
}
