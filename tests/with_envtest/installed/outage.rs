//! What an outage refuses and what works in it: each row of the tables in docs/outage.md is played while a catch-all hangs.

use std::path::Path;

use serde_json::{Value, json};

use super::lab::{CATCHES_ALL, HANGS, Hanging, done, everything, hanging, shell};
use super::node::{by_kubelet, is_named, read};
use crate::documents::rows;
use crate::privileges::cluster::{Cluster, manifests};

/// What kubectl prints of a write that no backend of the webhook answered.
const REFUSED: &str = "failed calling webhook \"hangs.example.com\"";
/// In seconds, and what the document says.
const TIMEOUT: u8 = 10;

/// What people of the cluster have before the outage.
async fn with_an_application(cluster: &Cluster) {
    let container = json!([{"name": "app", "image": "example/app:1"}]);
    let labels = json!({"app": "app"});
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "apps"}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app", "namespace": "apps"}}),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app", "namespace": "apps"},
            "spec": {"nodeName": "node-1", "containers": container},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "app", "namespace": "apps"},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": container}},
            },
        }),
    ] {
        cluster.apply(&object).await;
    }
    // port-forward waits for a Pod that runs, and no kubelet says so here.
    let running = json!({"status": {"phase": "Running"}});
    cluster
        .admin(
            http::Method::PATCH,
            "/api/v1/namespaces/apps/pods/app/status",
            &running,
        )
        .await;
}

/// Begins the outage, and returns once a write has been refused by it.
async fn begin(cluster: &Cluster, kubeconfig: &Path) -> Hanging {
    let mut hanging = hanging(&everything()).await;
    hanging.hook["webhooks"][0]["timeoutSeconds"] = TIMEOUT.into();
    cluster.apply(&hanging.hook).await;
    let write = "kubectl create namespace tried --dry-run=server";
    for _ in 0..20 {
        let tried = shell(kubeconfig, write).await;
        if !tried.status.success() {
            return hanging;
        }
    }
    panic!("the webhook is never called");
}

pub async fn what_is_refused_and_what_works_is_what_the_document_says() {
    let cluster = Cluster::start().await;
    let kubeconfig = cluster.admin_kubeconfig();
    with_an_application(&cluster).await;
    let _hanging = begin(&cluster, &kubeconfig).await;
    let (commands, _) = tokio::join!(commands(&kubeconfig), by_kind(&kubeconfig, 1));
    assert!(commands > 15, "{commands} commands");
    assert!(
        is_applied(&cluster, &kubeconfig).await,
        "under a skip nothing is refused"
    );
    // The namespace is there now, and so is everything else; what the webhook does not answer is refused all the same.
    by_kind(&kubeconfig, 2).await;
    shield(&kubeconfig).await;
    by_kind(&kubeconfig, 3).await;
}

/// Shields the webhook, which is still asked about what people write.
async fn shield(kubeconfig: &Path) {
    done(
        kubeconfig,
        &format!("hookwatch break {CATCHES_ALL}/{HANGS} --reason outage --yes"),
    )
    .await;
    is_refused(kubeconfig, "kubectl create namespace another").await;
}

/// Plays the first table and returns how many rows it has. What is refused changes nothing, so it is played at the same
/// time; and `diagnose` with it, for an outage that no client meets is none.
async fn commands(kubeconfig: &Path) -> usize {
    let rows = &rows("outage-commands")[1..];
    let (mut together, mut later) = (Vec::new(), Vec::new());
    for row in rows {
        let command = row[0].trim_matches('`');
        let command = command.replace("CONFIG/WEBHOOK", &format!("{CATCHES_ALL}/{HANGS}"));
        let command = command.replace("CONFIG", CATCHES_ALL);
        let refused = row[1] == "refused";
        assert!(refused || row[1].starts_with("works"), "{command}: {}", row[1]);
        if refused || command == "hookwatch diagnose" {
            together.push((command, refused));
        } else {
            later.push(command);
        }
    }
    let all = together.iter().map(async |(command, refused)| {
        if *refused {
            is_refused(kubeconfig, command).await;
        } else {
            let output = shell(kubeconfig, command).await;
            let names = String::from_utf8_lossy(&output.stdout).contains(HANGS);
            assert!(output.status.code() == Some(1) && names, "{command}: {output:?}");
        }
    });
    futures::future::join_all(all).await;
    for command in later {
        let output = shell(kubeconfig, &command).await;
        // The exit code of an audit is what it found.
        let works = output.status.success() || command == "hookwatch audit" && !output.stdout.is_empty();
        assert!(works, "{command}: {output:?}");
    }
    rows.len()
}

async fn is_refused(kubeconfig: &Path, command: &str) {
    // What is not refused may never end.
    let output = shell(kubeconfig, &format!("timeout 60 {command}")).await;
    let said = String::from_utf8_lossy(&output.stderr);
    // `kubectl cordon` says so, and exits with 0.
    assert!(said.contains(REFUSED), "{command}: {output:?}");
}

/// Plays a column of the second table.
async fn by_kind(kubeconfig: &Path, column: usize) {
    let rows = &rows("outage-kinds")[1..];
    let mut objects = manifests("overlays/breaker");
    objects.retain(|object| {
        // Of the control plane's own namespaces the document speaks apart.
        let namespace = object["metadata"]["namespace"].as_str();
        namespace.is_none_or(|namespace| namespace == "hookwatch")
    });
    let all = objects.iter().map(async |object| {
        let kind = object["kind"].as_str().unwrap();
        let row = rows.iter().find(|row| row[0].trim_matches('`') == kind);
        let row = row.unwrap_or_else(|| panic!("the document has no row for {kind}"));
        let script =
            format!("kubectl apply --server-side --force-conflicts -f - <<'OBJECT'\n{object}\nOBJECT");
        let output = shell(kubeconfig, &script).await;
        let said = String::from_utf8_lossy(&output.stderr);
        let found = if output.status.success() {
            "written"
        } else if said.contains(REFUSED) {
            "refused"
        } else if said.contains("namespaces \"hookwatch\" not found") {
            "not found"
        } else {
            &*said
        };
        assert_eq!(found, row[column], "{kind} {}", object["metadata"]["name"]);
    });
    futures::future::join_all(all).await;
    for row in rows {
        let kind = row[0].trim_matches('`').to_owned();
        assert!(
            objects.iter().any(|object| object["kind"] == *kind),
            "there is no {kind} in deploy/"
        );
    }
}

/// Whether the manifests are taken under a skip, and not under a shield; the webhook is restored afterwards.
async fn is_applied(cluster: &Cluster, kubeconfig: &Path) -> bool {
    let webhook = format!("{CATCHES_ALL}/{HANGS}");
    let apply = "kubectl apply --server-side --force-conflicts -k deploy/overlays/breaker";
    shield(kubeconfig).await;
    done(kubeconfig, &format!("hookwatch restore {webhook} --yes")).await;
    done(
        kubeconfig,
        &format!("hookwatch break {webhook} --rung skip --reason outage --yes"),
    )
    .await;
    let applied = shell(kubeconfig, apply).await.status.success();
    let deployment = "/apis/apps/v1/namespaces/hookwatch/deployments/hookwatch";
    let there = super::lab::get(cluster, deployment).await["kind"] == "Deployment";
    done(kubeconfig, &format!("hookwatch restore {webhook} --yes")).await;
    applied && there
}

/// A static Pod where nothing was applied beforehand: with the account's kubeconfig, and with an administrator's.
pub async fn on_a_node_without_roles_it_starts_and_says_what_it_lacks() {
    let cluster = Cluster::start().await;
    let kubeconfig = cluster.admin_kubeconfig();
    let _hanging = begin(&cluster, &kubeconfig).await;
    let account = "system:serviceaccount:hookwatch:hookwatch";
    let envtest = cluster.envtest();
    let of = |user: &str, group: &str| {
        envtest
            .kubeconfig_of((user, group), false, envtest.address())
            .unwrap()
    };
    let acting = read("hookwatch.yaml").replace("autoBreak: plan", "autoBreak: on");

    let mut daemon = by_kubelet(acting.clone(), of(account, "system:serviceaccounts:hookwatch"));
    let assessment = daemon
        .assessed("it says that it may not read webhooks", |it| {
            it["sources"]["inventory_trouble"]
                .to_string()
                .contains("webhookconfigurations")
        })
        .await;
    assert_eq!(assessment["hooks"], json!([]), "{assessment:#}");
    assert!(daemon.terminate().await, "it did not end when it was asked to");

    let mut daemon = by_kubelet(acting, of("kubernetes-super-admin", "system:masters"));
    let assessment: Value = daemon.assessed("the culprit is named", is_named).await;
    assert_eq!(
        assessment["sources"]["inventory_trouble"],
        json!([]),
        "{assessment:#}"
    );
    assert_eq!(assessment["breaker"]["effective"], "plan", "{assessment:#}");
    assert!(daemon.terminate().await, "it did not end when it was asked to");
    done(
        &kubeconfig,
        &format!("hookwatch break {CATCHES_ALL}/{HANGS} --rung skip --reason outage --yes"),
    )
    .await;
    done(&kubeconfig, "kubectl create namespace another").await;
}
