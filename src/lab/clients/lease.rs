//! The Lease by which a leader or a node shows that it lives.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::requests::{RequestFailure, recorded, send};
use crate::lab::workload::WorkloadRecord;

/// What a Lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseRecord {
    /// Who holds it.
    pub holder: String,
    /// How long the Lease is valid after a renewal, in whole seconds.
    pub duration: Duration,
    /// `spec.renewTime`.
    pub renewed: String,
    /// `spec.acquireTime`, which nodes do not write.
    pub acquired: Option<String>,
    /// How often the holder changed.
    pub transitions: u64,
    /// The object's version, which an update must name; empty before the object is created.
    pub version: String,
}

/// The present time as the API server takes it: with microseconds, and nothing finer.
pub(super) fn now() -> String {
    format!("{:.6}", Timestamp::now())
}

/// Cancels a request after `limit`, as HTTP clients do.
pub(super) async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, RequestFailure>>,
) -> Result<T, RequestFailure> {
    timeout(limit, request)
        .await
        .unwrap_or(Err(RequestFailure::Failed))
}

/// Where one Lease is kept.
pub(super) trait LeaseStore {
    fn get(&self) -> impl Future<Output = Result<LeaseRecord, RequestFailure>> + Send;
    fn create(&self, lease: &LeaseRecord)
    -> impl Future<Output = Result<LeaseRecord, RequestFailure>> + Send;
    /// Replaces the version that the record names.
    fn replace(
        &self,
        lease: &LeaseRecord,
    ) -> impl Future<Output = Result<LeaseRecord, RequestFailure>> + Send;
}

/// A Lease in an API server.
#[derive(Clone)]
pub(super) struct RemoteLease {
    client: Client,
    namespace: &'static str,
    name: String,
    /// Sent as `?timeout=`, as client-go sends its own timeout.
    limit: Duration,
    agent: String,
    record: Arc<WorkloadRecord>,
}

impl RemoteLease {
    /// The Lease of that namespace and name, for a client whose requests have this limit.
    pub(super) fn new(
        client: Client,
        (namespace, name): (&'static str, &str),
        limit: Duration,
        agent: String,
        record: Arc<WorkloadRecord>,
    ) -> Self {
        Self {
            client,
            namespace,
            name: name.to_owned(),
            limit,
            agent,
            record,
        }
    }

    /// The Lease's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn path(&self, name: &str) -> String {
        let (namespace, seconds) = (self.namespace, self.limit.as_secs());
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases{name}?timeout={seconds}s")
    }

    fn object(&self, lease: &LeaseRecord) -> Value {
        let mut object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "holderIdentity": lease.holder,
                "leaseDurationSeconds": lease.duration.as_secs(),
                "renewTime": lease.renewed,
            },
        });
        if !lease.version.is_empty() {
            object["metadata"]["resourceVersion"] = json!(lease.version);
        }
        if let Some(acquired) = &lease.acquired {
            object["spec"]["acquireTime"] = json!(acquired);
            object["spec"]["leaseTransitions"] = json!(lease.transitions);
        }
        object
    }

    async fn write(
        &self,
        method: &str,
        name: &str,
        verb: &str,
        lease: &LeaseRecord,
    ) -> Result<LeaseRecord, RequestFailure> {
        let (path, object) = (self.path(name), self.object(lease));
        let request = send(&self.client, method, &path, &self.agent, &object);
        let what = format!("{verb} leases in {}", self.namespace);
        match recorded(&self.record, &what, request).await {
            Ok(object) => Ok(read(&object)),
            Err(error) => Err(RequestFailure::from(&error)),
        }
    }
}

impl LeaseStore for RemoteLease {
    async fn get(&self) -> Result<LeaseRecord, RequestFailure> {
        let path = self.path(&format!("/{}", self.name));
        match send(&self.client, "GET", &path, &self.agent, &Value::Null).await {
            Ok(object) => Ok(read(&object)),
            Err(error) => Err(RequestFailure::from(&error)),
        }
    }

    async fn create(&self, lease: &LeaseRecord) -> Result<LeaseRecord, RequestFailure> {
        self.write("POST", "", "create", lease).await
    }

    async fn replace(&self, lease: &LeaseRecord) -> Result<LeaseRecord, RequestFailure> {
        self.write("PUT", &format!("/{}", self.name), "renew", lease)
            .await
    }
}

/// Reads a Lease; an absent field becomes empty or 0.
fn read(object: &Value) -> LeaseRecord {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let number = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_u64)
            .unwrap_or_default()
    };
    LeaseRecord {
        holder: text("/spec/holderIdentity").unwrap_or_default(),
        duration: Duration::from_secs(number("/spec/leaseDurationSeconds")),
        renewed: text("/spec/renewTime").unwrap_or_default(),
        acquired: text("/spec/acquireTime"),
        transitions: number("/spec/leaseTransitions"),
        version: text("/metadata/resourceVersion").unwrap_or_default(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Mutex;

    use super::*;

    /// How a Lease in memory answers writes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(in crate::lab::clients) enum Writes {
        Succeed,
        Hang,
        Fail,
    }

    /// A Lease in memory. Reads always succeed, as no webhook is asked about them.
    #[derive(Debug, Clone)]
    pub(in crate::lab::clients) struct MemoryLease(Arc<Mutex<Memory>>);

    #[derive(Debug)]
    struct Memory {
        writes: Writes,
        lease: Option<LeaseRecord>,
        version: u64,
        attempts: u32,
    }

    impl MemoryLease {
        pub(in crate::lab::clients) fn new() -> Self {
            Self(Arc::new(Mutex::new(Memory {
                writes: Writes::Succeed,
                lease: None,
                version: 0,
                attempts: 0,
            })))
        }

        pub(in crate::lab::clients) fn set(&self, writes: Writes) {
            self.0.lock().unwrap().writes = writes;
        }

        pub(in crate::lab::clients) fn lease(&self) -> Option<LeaseRecord> {
            self.0.lock().unwrap().lease.clone()
        }

        /// How many writes were begun since the last call.
        pub(in crate::lab::clients) fn take_attempts(&self) -> u32 {
            std::mem::take(&mut self.0.lock().unwrap().attempts)
        }

        async fn store(&self, lease: &LeaseRecord) -> Result<LeaseRecord, RequestFailure> {
            let writes = {
                let mut memory = self.0.lock().unwrap();
                memory.attempts += 1;
                memory.writes
            };
            match writes {
                Writes::Succeed => {}
                Writes::Hang => std::future::pending().await,
                Writes::Fail => return Err(RequestFailure::Failed),
            }
            let mut memory = self.0.lock().unwrap();
            if memory
                .lease
                .as_ref()
                .is_some_and(|kept| kept.version != lease.version)
            {
                return Err(RequestFailure::Conflict);
            }
            memory.version += 1;
            let stored = LeaseRecord {
                version: memory.version.to_string(),
                ..lease.clone()
            };
            memory.lease = Some(stored.clone());
            Ok(stored)
        }
    }

    impl LeaseStore for MemoryLease {
        async fn get(&self) -> Result<LeaseRecord, RequestFailure> {
            self.lease().ok_or(RequestFailure::NotFound)
        }

        async fn create(&self, lease: &LeaseRecord) -> Result<LeaseRecord, RequestFailure> {
            self.store(lease).await
        }

        async fn replace(&self, lease: &LeaseRecord) -> Result<LeaseRecord, RequestFailure> {
            self.store(lease).await
        }
    }

    #[test]
    fn a_version_is_sent_only_where_there_is_one_and_a_node_writes_no_acquire_time() {
        let object = json!({
            "metadata": {"resourceVersion": "7"},
            "spec": {"holderIdentity": "node-1", "leaseDurationSeconds": 40, "renewTime": "t"},
        });
        let lease = read(&object);
        assert_eq!((lease.version.as_str(), lease.acquired), ("7", None));
        assert_eq!(lease.duration, Duration::from_secs(40));
    }
}
