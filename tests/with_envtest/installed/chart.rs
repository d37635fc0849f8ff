//! The chart on a real API server, in a namespace of which the manifests know nothing.

use hookwatch::app::engine::Engine;
use hookwatch::domain::act::fence::{AutoBreak, Proof};
use hookwatch::domain::act::leadership::ReplicaRole;
use hookwatch::io::act::fence::Fence;
use hookwatch::io::client::Connection;
use serde_json::{Value, json};

use super::accepted::with_kinds_of_the_prometheus_operator;
use crate::engines::config;
use crate::helm::rendered;
use crate::privileges::cluster::{Cluster, assessed};

const NAMESPACE: &str = "platform-hooks";

/// Also where nothing may be made in the control plane's own namespaces.
pub async fn a_release_in_another_namespace_does_the_whole_job() {
    let everything = json!({
        "namespace": {"create": true}, "breaker": {"enabled": true}, "expiry": {"enabled": true},
        "unchecked": {"enabled": true}, "monitoring": {"enabled": true},
    });
    does_the_job(everything, &["own_namespace", "kube_system", "node_lease"]).await;
    let locked = json!({
        "namespace": {"create": true}, "breaker": {"enabled": true},
        "canaries": {"kubeSystem": false, "nodeLease": false},
    });
    does_the_job(locked, &["own_namespace"]).await;
}

async fn does_the_job(values: Value, canaries: &[&str]) {
    let cluster = Cluster::start().await;
    with_kinds_of_the_prometheus_operator(&cluster, &cluster.admin_kubeconfig()).await;
    let mut objects = rendered(NAMESPACE, &values).objects;
    objects.sort_by_key(|object| object["kind"] != "Namespace");
    for object in &objects {
        cluster.apply(object).await;
    }
    let token = cluster.token_in(NAMESPACE, "hookwatch", None).await;
    let (kubeconfig, _token) = cluster.kubeconfig("release", &token);
    let text = objects
        .iter()
        .find_map(|object| object["data"]["hookwatch.yaml"].as_str());
    let engine = Engine::start(&config(&kubeconfig, text.unwrap())).await.unwrap();
    assessed(&engine, "it leads, may act, and each canary is written", |it| {
        let mut written: Vec<&str> = Vec::new();
        for view in &it.control_plane.canaries {
            written.extend((view.state == "written").then(|| view.canary.as_str()));
        }
        written == canaries
            && it.breaker.effective == AutoBreak::On
            && it
                .replica
                .as_ref()
                .is_some_and(|replica| replica.role == ReplicaRole::Leader)
    })
    .await;
    engine.stop().await;
    is_proven_for_this_namespace_alone(kubeconfig).await;
}

/// The texts of a daemon in another namespace are not this fence's.
async fn is_proven_for_this_namespace_alone(kubeconfig: std::path::PathBuf) {
    let connection = Connection::open(Some(&kubeconfig), None).await.unwrap();
    for (namespace, proven) in [(NAMESPACE, true), ("hookwatch", false)] {
        let proof = Fence::new(&connection, namespace).prove().await;
        let expected = if proven {
            proof.permits()
        } else {
            matches!(proof, Proof::NotProven(_))
        };
        assert!(expected, "{namespace}: {proof:?}");
    }
}
