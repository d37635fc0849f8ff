//! The real kube-controller-manager and kube-scheduler: what an outage costs is read from their Leases and from the Nodes.

use std::time::Duration;

use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::clients::{ControlPlaneClients, Leaders};
use hookwatch::lab::cluster::{Cluster, LabHook};
use hookwatch::lab::control_plane::{BackendReach, LabControlPlane};
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::{Envtest, binaries};
use hookwatch::lab::workload::{LabWorkload, WorkloadOptions};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use super::outage::until;
use super::{Named, Outcome, named};

const LEADERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];
/// Both exit within 15 s of the fault; the Leases of nodes are not old yet.
const OUTAGE: Duration = Duration::from_secs(20);

pub fn tests() -> Vec<Named> {
    vec![
        named("leaders_that_cannot_renew_are_lost_once_each", || {
            play(lost_once_each())
        }),
        named("leaders_that_live_mark_nodes_that_cannot_renew", || {
            play(nodes_are_marked())
        }),
    ]
}

fn play(test: impl Future<Output = ()>) -> Outcome {
    if binaries::find().unwrap().controllers.is_none() {
        let why = "no kube-controller-manager and kube-scheduler beside kube-apiserver";
        return Outcome::Skipped(why.to_owned());
    }
    super::privileges::cluster::play(test)
}

/// In the order in which they end.
struct RealLeadersLab {
    clients: ControlPlaneClients,
    cluster: Cluster,
    _users: LabWorkload,
    _control_plane: LabControlPlane,
    _directory: PrivateDirectory,
}

impl RealLeadersLab {
    async fn set() -> Self {
        let directory = PrivateDirectory::create().unwrap();
        let control_plane = LabControlPlane::Envtest(Envtest::start(directory.path()).await.unwrap());
        let kubeconfig = control_plane.kubeconfig();
        let cluster = Cluster::start(&kubeconfig, BackendReach::Url).await.unwrap();
        let nobody = WorkloadOptions {
            clients: 0,
            ..WorkloadOptions::default()
        };
        let users = LabWorkload::start(&kubeconfig, &nobody).await.unwrap();
        let clients = ControlPlaneClients::start(&control_plane, None, &cluster.nodes(), &users)
            .await
            .unwrap();
        assert_eq!(clients.leaders(), Leaders::Real);
        clients.count_casualties();
        Self {
            clients,
            cluster,
            _users: users,
            _control_plane: control_plane,
            _directory: directory,
        }
    }

    /// Who holds each leader's Lease, and how often that changed.
    async fn holders(&self) -> Vec<(String, i32)> {
        let leases: Api<Lease> = Api::namespaced(self.cluster.client().clone(), "kube-system");
        let mut holders = Vec::new();
        for name in LEADERS {
            let spec = leases.get(name).await.unwrap().spec.unwrap();
            holders.push((
                spec.holder_identity.unwrap_or_default(),
                spec.lease_transitions.unwrap_or_default(),
            ));
        }
        holders
    }

    async fn all_nodes_are(&self, ready: &str) -> bool {
        let nodes: Api<Node> = Api::all(self.cluster.client().clone());
        nodes.list(&Default::default()).await.unwrap().iter().all(|node| {
            let conditions = node.status.iter().flat_map(|status| &status.conditions).flatten();
            conditions
                .filter(|condition| condition.type_ == "Ready")
                .all(|condition| condition.status == ready)
        })
    }
}

async fn lost_once_each() {
    let stage = RealLeadersLab::set().await;
    let before = stage.holders().await;
    let opa = LabHook::Opa;
    let behave = async |behaviour| {
        stage
            .cluster
            .behave(opa, opa.backends(), &behaviour)
            .await
            .unwrap()
    };
    behave(Behaviour::HangAfterTls).await;
    tokio::time::sleep(OUTAGE).await;
    assert_eq!(stage.clients.casualties().leaders_lost, 2);
    assert_eq!(
        stage.holders().await,
        before,
        "nobody can take a Lease while it hangs"
    );

    behave(Behaviour::Healthy).await;
    until("both lead again", async || {
        let now = stage.holders().await;
        now.iter().zip(&before).all(|(now, before)| now.0 != before.0)
    })
    .await;
    // Each shows in its Lease what it was counted for, and is not counted for it again.
    let transitions = |holders: &[(String, i32)]| holders.iter().map(|(_, changes)| changes).sum::<i32>();
    assert_eq!(transitions(&stage.holders().await) - transitions(&before), 2);
    let lost = stage.clients.casualties();
    assert_eq!((lost.leaders_lost, lost.nodes_not_ready), (2, 0), "{lost:?}");
    stage.clients.stop().await;
}

/// A webhook refuses the Leases of nodes and nothing else: the leaders live to see it.
async fn nodes_are_marked() {
    let stage = RealLeadersLab::set().await;
    assert!(stage.all_nodes_are("True").await);
    let before = stage.holders().await;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(stage.cluster.client().clone());
    let refused = json!({
        "metadata": {"name": "refused"},
        "webhooks": [{
            "name": "refused.lab.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail", "timeoutSeconds": 1, "clientConfig": {"url": "https://127.0.0.1:1/"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-node-lease"}},
            "rules": [{
                "operations": ["*"], "apiGroups": ["coordination.k8s.io"], "apiVersions": ["v1"],
                "resources": ["leases"],
            }],
        }],
    });
    let refused = serde_json::from_value(refused).unwrap();
    api.create(&PostParams::default(), &refused).await.unwrap();
    let nodes = u64::try_from(stage.cluster.nodes().len()).unwrap();
    until("every node is counted as NotReady", async || {
        stage.clients.casualties().nodes_not_ready == nodes
    })
    .await;
    assert!(stage.all_nodes_are("Unknown").await);
    let lost = stage.clients.casualties();
    assert_eq!(
        (lost.leaders_lost, lost.node_leases_expired),
        (0, nodes),
        "{lost:?}"
    );

    api.delete("refused", &DeleteParams::default()).await.unwrap();
    until("every kubelet has said that its node is well", async || {
        stage.all_nodes_are("True").await
    })
    .await;
    assert_eq!(stage.holders().await, before);
    stage.clients.stop().await;
}
