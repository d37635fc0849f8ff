//! Every object under deploy/, before an API server that passes over nothing that it does not know.

use serde_json::{Value, json};

use super::lab::{done, shell};
use crate::documents::documented;
use crate::helm::rendered;
use crate::privileges::cluster::{Cluster, manifests};
use crate::versions::lacking;

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

/// Where the objects of a folder come from: all of them, or what deploy/README.md tells people to leave in on an older release.
async fn source(kubeconfig: &std::path::Path, folder: &str, lacking: &[&str]) -> (String, usize) {
    let kept = manifests(folder)
        .iter()
        .filter(|object| !lacking.iter().any(|kind| object["kind"] == *kind))
        .count();
    if lacking.is_empty() {
        return (format!("-k deploy/{folder}"), kept);
    }
    let all = done(kubeconfig, &format!("kubectl kustomize deploy/{folder}")).await;
    let is_kept = |document: &&str| {
        let kind = document.lines().find_map(|line| line.strip_prefix("kind: "));
        !kind.is_some_and(|kind| lacking.contains(&kind))
    };
    let documents: Vec<&str> = all.split("\n---\n").filter(is_kept).collect();
    (in_a_file(kubeconfig, &documents.join("\n---\n")), kept)
}

/// Objects in a file beside the kubeconfig, as an argument of kubectl's: a command line takes only so much.
fn in_a_file(kubeconfig: &std::path::Path, objects: &str) -> String {
    let file = kubeconfig.with_file_name("objects.yaml");
    std::fs::write(&file, objects).unwrap();
    format!("-f {}", file.display())
}

pub async fn every_object_is_taken() {
    let cluster = Cluster::start().await;
    let lacking = lacking(cluster.minor().await);
    let kubeconfig = cluster.admin_kubeconfig();
    with_kinds_of_the_prometheus_operator(&cluster, &kubeconfig).await;
    // Nothing can be tried in a namespace that is not there.
    done(&kubeconfig, "kubectl apply -f deploy/base/namespace.yaml").await;
    let trial = "--server-side --force-conflicts --dry-run=server --validate=strict";
    for folder in FOLDERS {
        let (objects, expected) = source(&kubeconfig, folder, lacking).await;
        let said = done(&kubeconfig, &format!("kubectl apply {trial} {objects}")).await;
        assert!(
            expected > 0 && said.lines().count() >= expected,
            "{folder}: {said}"
        );
    }
    the_chart_is_taken(&kubeconfig, lacking, trial).await;
    if lacking.is_empty() {
        your_own_is_taken(&kubeconfig, trial).await;
    } else {
        the_rest_is_installed(&kubeconfig, lacking).await;
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
    may_its_pods_run(&kubeconfig, lacking).await;
}

/// `kubectl apply` of a folder as it is, on a release without some of its kinds: it names those, and applies the others.
async fn the_rest_is_installed(kubeconfig: &std::path::Path, lacking: &[&str]) {
    let apply = "kubectl apply --server-side -k deploy/overlays/observe";
    let output = shell(kubeconfig, apply).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    let errors = said
        .lines()
        .filter_map(|line| line.split_once("no matches for kind \""));
    let mut named: Vec<&str> = errors.filter_map(|(_, rest)| rest.split('"').next()).collect();
    named.sort_unstable();
    named.dedup();
    let mut expected = lacking.to_vec();
    expected.sort_unstable();
    assert_eq!(named, expected, "{said}");
    let applied = String::from_utf8_lossy(&output.stdout);
    let left: usize = manifests("overlays/observe")
        .iter()
        .filter(|object| !lacking.iter().any(|kind| object["kind"] == *kind))
        .count();
    assert_eq!(applied.lines().count(), left, "{applied}");
}

/// What the chart makes with everything on that the release has, in the namespace that is there.
async fn the_chart_is_taken(kubeconfig: &std::path::Path, lacking: &[&str], trial: &str) {
    let has = |kind: &str| !lacking.contains(&kind);
    let fence = has("ValidatingAdmissionPolicy");
    let values = json!({
        "fence": {"enabled": fence}, "breaker": {"enabled": fence}, "expiry": {"enabled": fence},
        "flowControl": {"enabled": has("FlowSchema")},
        "unchecked": {"enabled": true}, "view": {"enabled": true}, "monitoring": {"enabled": true},
    });
    let items = rendered("hookwatch", &values).objects;
    let expected = items.len();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let objects = in_a_file(kubeconfig, &list.to_string());
    let said = done(kubeconfig, &format!("kubectl apply {trial} {objects}")).await;
    assert!(expected > 15 && said.lines().count() >= expected, "{said}");
}

async fn your_own_is_taken(kubeconfig: &std::path::Path, trial: &str) {
    let own = one_of_your_own();
    let said = done(
        kubeconfig,
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
}

/// The kustomization that deploy/README.md shows, in a folder from which these paths lead to deploy/.
fn one_of_your_own() -> tempfile::TempDir {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    // Beside everything else that is made in a build: kustomize follows no absolute path.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::os::unix::fs::symlink(root.join("deploy"), folder.path().join("deploy")).unwrap();
    std::fs::write(folder.path().join("kustomization.yaml"), documented("own")).unwrap();
    folder
}

/// Whether Pods of the templates are admitted where the templates are: by pod security, priority and all.
async fn may_its_pods_run(kubeconfig: &std::path::Path, lacking: &[&str]) {
    for (of, namespace, admitted) in [
        ("overlays/expiry", "overlays/expiry", true),
        // As restricted as the namespace is, nobody gets the host's network in it.
        ("overlays/control-plane", "base", false),
        ("overlays/control-plane", "overlays/control-plane", true),
    ] {
        let apply = "kubectl apply --server-side --force-conflicts";
        let (objects, _) = source(kubeconfig, namespace, lacking).await;
        done(kubeconfig, &format!("{apply} {objects}")).await;
        let (objects, _) = source(kubeconfig, of, lacking).await;
        let all = done(kubeconfig, &format!("{apply} --dry-run=server -o json {objects}")).await;
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
