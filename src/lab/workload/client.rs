//! The single clients of a workload.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use http::header::ACCEPT_ENCODING;
use http_body_util::BodyExt;
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

use super::record::{FailedRequest, WorkloadRecord};
use super::timeouts::is_timeout;

/// Tenants wait as long as the API server may take (34 s) and a little more, as kubectl does.
const PATIENCE: Duration = Duration::from_secs(40);

/// Times requests, limits them to [`PATIENCE`], and records how they end.
struct TimedRequests {
    record: Arc<WorkloadRecord>,
}

impl TimedRequests {
    /// One write; true when it succeeded.
    async fn write<T>(&self, what: &str, request: impl Future<Output = kube::Result<T>>) -> bool {
        let ticket = self.record.begins(Instant::now(), what);
        match self.settle(request).await {
            Ok(_) => self.record.wrote(Instant::now(), ticket),
            Err(why) => {
                self.record.refused(Instant::now(), ticket, &why);
                return false;
            }
        }
        true
    }

    /// One list.
    async fn list<T>(&self, what: &str, request: impl Future<Output = kube::Result<T>>) {
        let began = Instant::now();
        match self.settle(request).await {
            Ok(_) => self.record.listed(),
            Err(why) => {
                let now = Instant::now();
                self.record.failed(now, now - began, what, &why.text);
            }
        }
    }

    async fn settle<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, FailedRequest> {
        let Ok(answer) = tokio::time::timeout(PATIENCE, request).await else {
            return Err(FailedRequest {
                text: format!("no answer within {} s", PATIENCE.as_secs()),
                timed_out: true,
            });
        };
        answer.map_err(|error| FailedRequest {
            timed_out: is_timeout(&error),
            text: match error {
                kube::Error::Api(status) => status.message,
                error => error.to_string(),
            },
        })
    }
}

/// One closed-loop client: it begins a request only when the one before has ended.
pub(super) struct Tenant {
    client: Client,
    number: usize,
    namespace: &'static str,
    pace: Interval,
    requests: TimedRequests,
}

impl Tenant {
    pub(super) fn new(client: Client, number: usize, pace: Duration, record: Arc<WorkloadRecord>) -> Self {
        Self {
            client,
            number,
            namespace: if number.is_multiple_of(2) {
                "team-a"
            } else {
                "team-b"
            },
            pace: interval(pace),
            requests: TimedRequests { record },
        }
    }

    pub(super) async fn run(mut self) {
        let mut round = 0_u64;
        loop {
            // A new name for every round: leftovers of a refused request do not collide.
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

/// Lists the ConfigMaps of all namespaces again and again, and throws away what comes.
///
/// Compression with gzip costs a real API server CPU time and leaves less for us to read, so the API server is the first to be
/// short of CPU.
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
