//! Every object under deploy/, before an API server that passes over nothing that it does not know.

use serde_json::{Value, json};

use super::lab::{done, shell};
use crate::privileges::cluster::{Cluster, manifests};

const FOLDERS: [&str; 8] = [
    "base",
    "overlays/observe",
    "overlays/breaker",
    "overlays/expiry",
    "overlays/control-plane",
    "overlays/unchecked",
    "overlays/view",
    "monitoring",
];

/// The kinds of the Prometheus operator, as far as it takes to have any.
fn monitoring(plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
        "spec": {
            "group": "monitoring.coreos.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    })
}

/// Makes these kinds known to a cluster whose administrator has this kubeconfig.
pub async fn with_kinds_of_the_prometheus_operator(cluster: &Cluster, kubeconfig: &std::path::Path) {
    for (plural, kind) in [
        ("servicemonitors", "ServiceMonitor"),
        ("prometheusrules", "PrometheusRule"),
    ] {
        cluster.apply(&monitoring(plural, kind)).await;
    }
    done(
        kubeconfig,
        "kubectl wait --for=condition=Established crd --all --timeout=60s",
    )
    .await;
}

pub async fn every_object_is_taken() {
    let cluster = Cluster::start().await;
    let kubeconfig = cluster.admin_kubeconfig();
    with_kinds_of_the_prometheus_operator(&cluster, &kubeconfig).await;
    // Nothing can be tried in a namespace that is not there.
    done(&kubeconfig, "kubectl apply -f deploy/base/namespace.yaml").await;
    let trial = "--server-side --force-conflicts --dry-run=server --validate=strict";
    for folder in FOLDERS {
        let said = done(&kubeconfig, &format!("kubectl apply {trial} -k deploy/{folder}")).await;
        let expected = manifests(folder).len();
        assert!(
            expected > 0 && said.lines().count() >= expected,
            "{folder}: {said}"
        );
    }
    let own = one_of_your_own();
    let said = done(
        &kubeconfig,
        &format!("kubectl apply {trial} -o yaml -k {}", own.path().display()),
    )
    .await;
    for chosen in [
        "admission.gatekeeper.sh/ignore: \"true\"",
        "hostNetwork: true",
        "image: images.example.com/hookwatch:",
        "autoBreak: on",
    ] {
        assert!(said.contains(chosen), "{chosen}: {said}");
    }
    let pod = "deploy/control-plane-node/static-pod.yaml";
    done(&kubeconfig, &format!("kubectl apply {trial} -f {pod}")).await;
    // That this finds anything: a field that nobody knows, and a value out of its range.
    for (from, to) in [
        ("hostPort: 9881", "hostport: 9881"),
        ("hostPort: 9881", "hostPort: 98810"),
    ] {
        let script = format!("sed 's/{from}/{to}/' {pod} | kubectl apply {trial} -f -");
        assert!(!shell(&kubeconfig, &script).await.status.success(), "{to}");
    }
    may_its_pods_run(&kubeconfig).await;
}

/// The kustomization that deploy/README.md shows, in a folder from which these paths lead to deploy/.
fn one_of_your_own() -> tempfile::TempDir {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("deploy/README.md")).unwrap();
    let (_, rest) = text
        .split_once("## A kustomization of your own\n\n```yaml\n")
        .unwrap();
    let (yaml, _) = rest.split_once("```\n").unwrap();
    // Beside everything else that is made in a build: kustomize follows no absolute path.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::os::unix::fs::symlink(root.join("deploy"), folder.path().join("deploy")).unwrap();
    std::fs::write(folder.path().join("kustomization.yaml"), yaml).unwrap();
    folder
}

/// Whether Pods of the templates are admitted where the templates are: by pod security, priority and all.
async fn may_its_pods_run(kubeconfig: &std::path::Path) {
    for (of, namespace, admitted) in [
        ("overlays/expiry", "overlays/expiry", true),
        // As restricted as the namespace is, nobody gets the host's network in it.
        ("overlays/control-plane", "base", false),
        ("overlays/control-plane", "overlays/control-plane", true),
    ] {
        done(
            kubeconfig,
            &format!("kubectl apply --server-side --force-conflicts -k deploy/{namespace}"),
        )
        .await;
        let all = done(
            kubeconfig,
            &format!("kubectl apply --server-side --force-conflicts --dry-run=server -o json -k deploy/{of}"),
        )
        .await;
        let all: Value = serde_json::from_str(&all).unwrap();
        let mut tried = 0;
        for object in all["items"].as_array().unwrap() {
            let template = match object["kind"].as_str().unwrap() {
                "Deployment" => &object["spec"]["template"],
                "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
                _ => continue,
            };
            let mut pod = template.clone();
            pod["apiVersion"] = "v1".into();
            pod["kind"] = "Pod".into();
            pod["metadata"]["name"] = "tried".into();
            pod["metadata"]["namespace"] = "hookwatch".into();
            let script = format!("kubectl create --dry-run=server -f - <<'POD'\n{pod}\nPOD");
            let output = shell(kubeconfig, &script).await;
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(
                output.status.success(),
                admitted,
                "a Pod of {of} beside {namespace}: {said}"
            );
            assert!(
                admitted || said.contains("violates PodSecurity") && said.contains("hostNetwork"),
                "{said}"
            );
            tried += 1;
        }
        assert!(tried > 0, "{of}");
    }
}
