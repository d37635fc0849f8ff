//! The single clients of a workload.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use http::header::ACCEPT_ENCODING;
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior};

use super::record::Record;

/// Tenants wait as long as the API server may take (34 s) and a little more, as kubectl does.
const PATIENCE: Duration = Duration::from_secs(40);
/// A node gives up on renewing its Lease after this time (kubelet: a quarter of its 40 s lease).
const NODE_PATIENCE: Duration = Duration::from_secs(10);
/// How many nodes the heartbeats stand for.
const NODES: usize = 4;
/// How often one of them, or of the controllers, renews its Lease.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// Times requests, bounds them, and writes down how they end.
struct Requests {
    record: Arc<Record>,
    patience: Duration,
}

impl Requests {
    /// One write; true when it succeeded.
    async fn write<T>(&self, what: &str, request: impl Future<Output = kube::Result<T>>) -> bool {
        let ticket = self.record.begins(Instant::now(), what);
        match self.settle(request).await {
            Ok(_) => self.record.wrote(Instant::now(), ticket),
            Err(text) => {
                self.record.refused(Instant::now(), ticket, &text);
                return false;
            }
        }
        true
    }

    /// One list; true when it succeeded.
    async fn list<T>(&self, what: &str, request: impl Future<Output = kube::Result<T>>) {
        let began = Instant::now();
        match self.settle(request).await {
            Ok(_) => self.record.listed(),
            Err(text) => {
                let now = Instant::now();
                self.record.failed(now, now - began, what, &text);
            }
        }
    }

    async fn settle<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
        match tokio::time::timeout(self.patience, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(status.message.clone()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", self.patience.as_secs())),
        }
    }
}

/// One closed-loop client: it begins a request only when the one before has ended.
pub(super) struct Tenant {
    client: Client,
    number: usize,
    namespace: &'static str,
    pace: Interval,
    requests: Requests,
}

impl Tenant {
    pub(super) fn new(client: Client, number: usize, pace: Duration, record: Arc<Record>) -> Self {
        Self {
            client,
            number,
            namespace: if number.is_multiple_of(2) {
                "team-a"
            } else {
                "team-b"
            },
            pace: interval(pace),
            requests: Requests {
                record,
                patience: PATIENCE,
            },
        }
    }

    pub(super) async fn run(mut self) {
        let mut round = 0_u64;
        loop {
            // A name of its own for every round: what a refused request leaves behind is in nobody's way.
            let name = format!("lab-{}-{round}", self.number);
            self.life::<ConfigMap>(&name, "configmaps", json!({"data": {"k": "v"}}))
                .await;
            self.life::<Secret>(&name, "secrets", json!({"stringData": {"k": "v"}}))
                .await;
            let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
            let spec = json!({"clusterIP": "None", "ports": ports});
            self.life::<Service>(&name, "services", json!({"spec": spec}))
                .await;
            let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 15});
            self.life::<Lease>(&name, "leases", json!({"spec": spec})).await;
            round += 1;
        }
    }

    /// Creates one object, patches it twice, lists its kind and deletes it.
    async fn life<K>(&mut self, name: &str, plural: &str, mut manifest: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), self.namespace);
        let what = |verb: &str| format!("{verb} {plural} in {}", self.namespace);
        manifest["metadata"] = json!({"name": name, "namespace": self.namespace});
        let Ok(object) = serde_json::from_value::<K>(manifest) else {
            return;
        };

        self.pace.tick().await;
        let post = PostParams::default();
        if !self
            .requests
            .write(&what("create"), api.create(&post, &object))
            .await
        {
            return;
        }
        for turn in 0..2 {
            self.pace.tick().await;
            let annotations = json!({"lab.example.com/turn": turn.to_string()});
            let change = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
            let patch = PatchParams::default();
            self.requests
                .write(&what("patch"), api.patch(name, &patch, &change))
                .await;
        }
        self.pace.tick().await;
        let page = ListParams::default().limit(50);
        self.requests.list(&what("list"), api.list(&page)).await;
        self.pace.tick().await;
        let delete = DeleteParams::default();
        self.requests
            .write(&what("delete"), api.delete(name, &delete))
            .await;
    }
}

/// The Leases by which nodes and controllers show that they live: what a control plane dies of when they stop.
pub(super) struct Heartbeats {
    client: Client,
    requests: Requests,
}

impl Heartbeats {
    pub(super) fn new(client: Client, record: Arc<Record>) -> Self {
        Self {
            client,
            requests: Requests {
                record,
                patience: NODE_PATIENCE,
            },
        }
    }

    pub(super) async fn run(self) {
        let mut beat = interval(HEARTBEAT);
        let nodes = (1..=NODES).map(|node| ("kube-node-lease", format!("node-{node}"), 40));
        let controller = ("kube-system", "lab-controller-manager".to_owned(), 15);
        let mut leases: Vec<_> = nodes.chain([controller]).map(|lease| (lease, false)).collect();
        loop {
            for ((namespace, name, seconds), known) in &mut leases {
                beat.tick().await;
                let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
                let spec = json!({
                    "holderIdentity": name,
                    "leaseDurationSeconds": seconds,
                    // The API server takes microseconds and nothing finer.
                    "renewTime": format!("{:.6}", Timestamp::now()),
                });
                if *known {
                    let change = Patch::Merge(json!({"spec": spec}));
                    let patch = PatchParams::default();
                    let request = api.patch(name, &patch, &change);
                    self.requests
                        .write(&format!("renew leases in {namespace}"), request)
                        .await;
                } else {
                    let manifest = json!({"metadata": {"name": name}, "spec": spec});
                    let Ok(lease) = serde_json::from_value::<Lease>(manifest) else {
                        return;
                    };
                    let post = PostParams::default();
                    let request = api.create(&post, &lease);
                    *known = self
                        .requests
                        .write(&format!("create leases in {namespace}"), request)
                        .await;
                }
            }
        }
    }
}

/// Lists the ConfigMaps of all namespaces again and again, and throws away what comes.
///
/// Asked for gzip, a real API server works harder and we have less to read: it is the one to be short of CPU.
pub(super) async fn read_without_end(client: Client) {
    loop {
        if read(&client).await.is_err() {
            // An API server that refuses at once would otherwise be asked in a busy loop.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn read(client: &Client) -> anyhow::Result<()> {
    let request = Request::get("/api/v1/configmaps")
        .header(ACCEPT_ENCODING, "gzip")
        .body(Body::empty())?;
    let mut body = client.send(request).await?.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

fn interval(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    // Closed loop: time lost in a slow request is not made up for by a burst.
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
