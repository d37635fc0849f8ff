//! Where kube-system and kube-node-lease are locked, and where only reading is allowed.

use serde_json::{Value, json};

use super::lab::{CATCHES_ALL, HANGS, done, everything_in_namespaces, hanging, shell};
use super::running::pod;
use crate::privileges::GRANTED_TO_ALL;
use crate::privileges::audit::{Asked, asked_by, granted};
use crate::privileges::cluster::{Cluster, manifests, until};

/// Refuses people every write to the namespaces of the control plane, as providers do.
fn lock() -> [Value; 2] {
    let kind = |kind: &str, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "locked"}, "spec": spec});
    let policy = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "scope": "Namespaced",
        }]},
        "matchConditions": [{"name": "people", "expression": "!request.userInfo.username.startsWith(\"system:\")"}],
        "validations": [{
            "expression": "!(request.namespace in [\"kube-system\", \"kube-node-lease\"])", "message": "this namespace is locked",
        }],
    });
    [
        kind("ValidatingAdmissionPolicy", policy),
        kind(
            "ValidatingAdmissionPolicyBinding",
            json!({"policyName": "locked", "validationActions": ["Deny"]}),
        ),
    ]
}

/// Whether a canary is in a state.
fn is(assessment: &Value, name: &str, state: &str) -> bool {
    let canaries = assessment["control_plane"]["canaries"].as_array();
    let mut canaries = canaries.into_iter().flatten();
    canaries.any(|canary| canary["canary"] == name && canary["state"] == state)
}

pub async fn the_base_alone_is_taken_and_works() {
    let cluster = Cluster::start().await;
    let kubeconfig = cluster.admin_kubeconfig();
    for object in lock() {
        cluster.apply(&object).await;
    }
    let write = "kubectl -n kube-system create configmap tried --dry-run=server";
    until("kube-system is locked", async || {
        !shell(&kubeconfig, write).await.status.success()
    })
    .await;
    let apply = "kubectl apply --server-side --validate=strict -k deploy";
    let refused = shell(&kubeconfig, &format!("{apply}/overlays/observe")).await;
    assert!(!refused.status.success(), "nothing is locked");
    done(&kubeconfig, &format!("{apply}/base")).await;

    let mut daemon = pod(&cluster).await;
    let assessment = daemon
        .assessed(
            "it leads, writes flow, and both canaries are known to be missing",
            |it| {
                it["control_plane"]["writes"] == "Flowing"
                    && is(it, "own_namespace", "written")
                    && is(it, "kube_system", "forbidden")
                    && is(it, "node_lease", "forbidden")
                    && it["sources"]["node_leases"]["state"] == "forbidden"
                    && it["replica"]["role"] == "Leader"
            },
        )
        .await;
    assert_eq!(assessment["sources"]["inventory_trouble"], json!([]));
    assert!(daemon.terminate().await, "it did not end when it was asked to");
}

pub async fn what_is_missing_is_logged_once() {
    let cluster = Cluster::start().await;
    cluster.deploy("base").await;
    let mut daemon = pod(&cluster).await;
    daemon
        .assessed("it has noticed", |it| {
            is(it, "kube_system", "forbidden") && is(it, "node_lease", "forbidden")
        })
        .await;
    let lines: Vec<Value> = daemon
        .said()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for what in [
        "the canary kube_system",
        "the canary node_lease",
        "the age of the nodes' Leases",
    ] {
        let about = lines
            .iter()
            .filter(|line| line.to_string().contains(what))
            .count();
        assert_eq!(about, 1, "{what}: {lines:#?}");
    }
    assert!(daemon.terminate().await, "it did not end when it was asked to");
}

const VIEWER: &str = "system:serviceaccount:default:viewer";

/// `diagnose` and `audit` as a user with the role for reading and nothing else: on a quiet day, and in an outage.
pub async fn the_role_for_reading_is_enough_to_diagnose_and_audit() {
    let cluster = Cluster::with("overlays/view").await;
    cluster.with_hooks().await;
    let kubeconfig = cluster.admin_kubeconfig();
    // Both are broken, and not what this is about.
    done(
        &kubeconfig,
        "kubectl delete apiservice v1.policy.example.com && kubectl delete crd policies.hooks.example.com",
    )
    .await;
    done(
        &kubeconfig,
        "kubectl create serviceaccount viewer && kubectl create clusterrolebinding viewer \
         --clusterrole=hookwatch-view --serviceaccount=default:viewer",
    )
    .await;
    let token = cluster.token_in("default", "viewer", None).await;
    let (viewer, _token) = cluster.kubeconfig("viewer", &token);
    let audit = shell(&viewer, "hookwatch audit --output json").await;
    let audited: Value = serde_json::from_slice(&audit.stdout).unwrap();
    let findings = audited["findings"].as_array().unwrap();
    assert!(!findings.is_empty(), "{audited:#}");
    let unread = findings
        .iter()
        .filter(|finding| finding["id"] == "unreadable-input");
    assert_eq!(unread.count(), 0, "{audited:#}");

    let quiet = shell(&viewer, "hookwatch diagnose --output json").await;
    let report: Value = serde_json::from_slice(&quiet.stdout).unwrap();
    assert_eq!(
        report["assessment"]["sources"]["inventory_trouble"],
        json!([]),
        "{report:#}"
    );
    assert_eq!(quiet.status.code(), Some(0), "{report:#}");

    let hanging = hanging(&everything_in_namespaces()).await;
    cluster.apply(&hanging.hook).await;
    // Somebody's writes, by which the API server's own metrics see the outage.
    let writes = "for i in $(seq 40); do kubectl -n default create configmap tried-$i --request-timeout=12s & sleep 0.5; done; wait";
    let (_, outage) = tokio::join!(
        shell(&kubeconfig, writes),
        shell(&viewer, "hookwatch diagnose --output json")
    );
    let report: Value = serde_json::from_slice(&outage.stdout).unwrap();
    assert_eq!(outage.status.code(), Some(1), "{report:#}");
    let hooks = report["assessment"]["hooks"].as_array().unwrap();
    let named = hooks.iter().filter(|hook| hook["health"] == "Failing");
    let named: Vec<&Value> = named.collect();
    assert!(
        named.len() == 1 && named[0]["webhook"] == HANGS && named[0]["configuration"] == CATCHES_ALL,
        "{report:#}"
    );

    let asked = asked_by(cluster.audit_log(), VIEWER);
    let asked: Vec<&Asked> = asked
        .iter()
        .filter(|asked| asked.agent.contains("hookwatch"))
        .collect();
    let role = granted(&manifests("overlays/view"));
    let mut wrong = Vec::new();
    for asked in &asked {
        let (permission, writes) = (
            &asked.permission,
            ["patch", "create"].contains(&&*asked.permission.verb),
        );
        let is_permitted = role.iter().any(|granted| granted.allows(permission))
            || GRANTED_TO_ALL.contains(&&*permission.what)
            // A canary, which has to be refused.
            || writes && asked.dry_run;
        if !is_permitted {
            wrong.push(format!("{permission} is asked for and not granted"));
        }
    }
    for permission in &role {
        if !asked.iter().any(|asked| permission.allows(&asked.permission)) {
            wrong.push(format!("{permission} is never used"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
