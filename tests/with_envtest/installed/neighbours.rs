//! What others' writes do to a bypass: each way to write that docs/neighbours.md has a row for, on a real API server.

use std::path::Path;

use serde_json::Value;

use super::lab::done;
use crate::privileges::cluster::Cluster;

const WEBHOOK: &str = "w.example.com";

/// The configuration as its owner keeps it, with a condition of the owner's.
fn manifest(timeout: u8) -> String {
    format!(
        r#"{{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {{"name": "owned"}},
        "webhooks": [{{"name": "{WEBHOOK}", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": {timeout},
        "clientConfig": {{"url": "https://127.0.0.1:1/"}}, "matchConditions": [{{"name": "own", "expression": "true"}}],
        "rules": [{{"apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["*"], "resources": ["widgets"]}}]}}]}}"#
    )
}

/// Whether the whole bypass is there, or nothing of it.
async fn is_bypassed(kubeconfig: &Path) -> bool {
    let text = done(
        kubeconfig,
        "kubectl get validatingwebhookconfiguration owned -o json",
    )
    .await;
    let object: Value = serde_json::from_str(&text).unwrap();
    let conditions = object["webhooks"][0]["matchConditions"].as_array().unwrap();
    assert!(
        conditions.iter().any(|condition| condition["name"] == "own"),
        "{object:#}"
    );
    let shielded = conditions
        .iter()
        .any(|condition| condition["name"] == "hookwatch.dev/shield");
    let noted = object["metadata"]["annotations"]["hookwatch.dev/bypass"].is_string();
    assert_eq!(shielded, noted, "{object:#}");
    shielded
}

pub async fn a_bypass_outlives_every_write_but_one_that_replaces_the_object() {
    let cluster = Cluster::start().await;
    let kubeconfig = cluster.admin_kubeconfig();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("manifest.json");
    let file = file.to_str().unwrap();
    let write = |timeout| std::fs::write(file, manifest(timeout)).unwrap();
    let restart = format!("hookwatch break owned/{WEBHOOK} --reason neighbours --yes");
    let get = "kubectl get validatingwebhookconfiguration owned -o json";
    write(10);
    done(&kubeconfig, &format!("kubectl apply -f {file}")).await;
    done(&kubeconfig, &restart).await;
    assert!(is_bypassed(&kubeconfig).await);
    for (timeout, survives, command) in [
        (9, true, format!("kubectl apply -f {file}")),
        (8, true, format!("kubectl apply --server-side --force-conflicts --field-manager=gitops -f {file}")),
        (8, true, "kubectl patch validatingwebhookconfiguration owned --type=json -p \
                   '[{\"op\": \"add\", \"path\": \"/webhooks/0/clientConfig/caBundle\", \"value\": \"Cg==\"}]'".to_owned()),
        (8, true, format!("{get} | sed 's/\"caBundle\": \"Cg==\"/\"caBundle\": \"Cgo=\"/' | kubectl replace -f -")),
        (7, false, format!("kubectl replace -f {file}")),
        (6, false, format!("kubectl replace --force -f {file}")),
    ] {
        if !is_bypassed(&kubeconfig).await {
            done(&kubeconfig, &restart).await;
        }
        write(timeout);
        done(&kubeconfig, &command).await;
        assert_eq!(is_bypassed(&kubeconfig).await, survives, "{command}");
    }
    // Nothing of it is in the way of the owner afterwards.
    done(&kubeconfig, &restart).await;
    done(&kubeconfig, "hookwatch restore --all --yes").await;
    assert!(!is_bypassed(&kubeconfig).await);
    let owners = done(&kubeconfig, &format!("{get} --show-managed-fields")).await;
    assert!(!owners.contains("\"manager\": \"hookwatch\""), "{owners}");
}
