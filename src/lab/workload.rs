//! Clients of the lab's API server: the users whose writes a bad hook hurts.

mod client;
mod record;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use self::record::Record;
pub use self::record::{FirstFailure, Recent, Totals};
use super::cluster::client_for;

/// How much load there is.
#[derive(Debug, Clone)]
pub struct WorkloadOptions {
    /// How many clients create, patch, list and delete in the tenants' namespaces; each holds one connection.
    pub clients: usize,
    /// How often each client begins a request, unless its last one is still under way.
    pub pace: Duration,
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

/// A running workload. Dropping it stops it at once; requests under way are abandoned.
pub struct Workload {
    record: Arc<Record>,
    clients: JoinSet<()>,
}

impl Workload {
    /// Starts the clients, and one more that renews the nodes' Leases twice a second.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn start(kubeconfig: &str, options: &WorkloadOptions) -> anyhow::Result<Self> {
        let record = Arc::new(Record::default());
        let mut clients = JoinSet::new();
        for number in 0..options.clients {
            let client = client_for(kubeconfig).await?;
            let tenant = client::Tenant::new(client, number, options.pace, Arc::clone(&record));
            clients.spawn(tenant.run());
        }
        let heartbeats = client::Heartbeats::new(client_for(kubeconfig).await?, Arc::clone(&record));
        clients.spawn(heartbeats.run());
        Ok(Self { record, clients })
    }

    /// Everything counted since the start.
    pub fn totals(&self) -> Totals {
        self.record.totals()
    }

    /// What the last `window` looked like; never further back than 30 s.
    pub fn recent(&self, window: Duration) -> Recent {
        self.record.recent(window)
    }

    /// The first request that failed since the start or the last [`Self::forget_failures`].
    pub fn first_failure(&self) -> Option<FirstFailure> {
        self.record.first_failure()
    }

    /// Starts looking for a first failure anew, for instance when a fault begins.
    pub fn forget_failures(&self) {
        self.record.forget_failures();
    }

    /// Stops all clients and waits until none is left.
    pub async fn stop(mut self) {
        self.clients.shutdown().await;
    }
}

/// Readers that LIST everything as fast as they get answers, until dropped.
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
