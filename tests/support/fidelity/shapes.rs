//! Every match condition that hookwatch writes, with every kind of request.

use std::collections::BTreeSet;

use hookwatch::domain::cluster::condition::BypassCondition;
use hookwatch::domain::cluster::hook::Added;
use serde_json::{Value, json};

use super::ask::Ask;
use super::hooks::{catch_all, configmap, configmaps};
use super::play::Play;
use super::recorder::Recorder;
use super::shield::{access, pod, review};

const OWN: &str = "hookwatch";
const OURSELVES: &str = "system:serviceaccount:hookwatch:hookwatch";
const NODE: &str = "system:node:shapes";
const NODES: &[&str] = &["system:nodes"];

pub async fn no_condition_errs_on_any_shape_of_a_request(play: &mut Play) {
    play.lab.namespace("shapes").await;
    for path in ["kube-system", "shapes"].map(|namespace| format!("/api/v1/namespaces/{namespace}/pods")) {
        for name in ["evicted", "bound", "running"] {
            play.lab.have(&path, pod(name)).await;
        }
    }
    for (path, body) in [
        (
            "/api/v1/namespaces/shapes/serviceaccounts",
            json!({"metadata": {"name": "s"}}),
        ),
        ("/api/v1/nodes", json!({"metadata": {"name": "shapes"}})),
        ("/apis/apps/v1/namespaces/shapes/deployments", deployment()),
        (&configmaps("shapes"), configmap("collected")),
        (&configmaps("shapes"), configmap("changed")),
    ] {
        play.lab.have(path, body).await;
    }
    let recorder = Recorder::start(&play.authority).await;
    for mutating in [false, true] {
        let prefix = if mutating { "mutating" } else { "validating" };
        let hooks: Vec<Value> = [None]
            .into_iter()
            .chain(BypassCondition::ALL.iter().copied().map(Some))
            .map(|condition| {
                let called = condition.map_or("none", |condition| {
                    condition.name().rsplit('/').next().unwrap_or_default()
                });
                let name = format!("{called}.{prefix}.fidelity.example");
                let mut hook = catch_all(&name, recorder.address, &play.authority);
                hook["clientConfig"]["url"] =
                    json!(format!("https://{}/{prefix}/{called}", recorder.address));
                // Long enough for a real API server's first calls on a busy machine.
                hook["timeoutSeconds"] = json!(10);
                if let Some(condition) = condition {
                    hook["matchConditions"] = json!([{
                        "name": condition.name(), "expression": condition.expression(OWN, OURSELVES, &Added::default()),
                    }]);
                }
                hook
            })
            .collect();
        play.register(mutating, "shapes", &hooks).await;
    }
    for (step, ask) in shapes() {
        drop(recorder.take());
        let answer = play.ask(step, ask.clone()).await;
        let refused_for_another_reason =
            ask.path.contains("/exec") && answer.message().contains("does not have a host assigned");
        assert!(
            answer.is_success() || refused_for_another_reason,
            "{step}: {}",
            answer.text
        );
        let seen = of(&ask, recorder.take());
        let mut called: Vec<&str> = seen.iter().map(|(path, _)| path.as_str()).collect();
        called.sort_unstable();
        assert!(called.contains(&"/validating/none"), "{step}: {called:?}");
        assert!(!called.iter().any(|path| path.ends_with("/skip")), "{step}");
        play.note(&format!("{step}: the hooks that were asked"), json!(called));
        for prefix in ["/mutating/none", "/validating/none"] {
            let reviews: Vec<&Value> = seen
                .iter()
                .filter(|(path, _)| path == prefix)
                .map(|(_, review)| review)
                .collect();
            play.note(&format!("{step}: what {prefix} saw"), json!(reviews));
        }
    }
    let metrics = play.lab.metrics().await;
    let errors = "apiserver_admission_match_condition_evaluation_errors_total{";
    for line in metrics.lines().filter(|line| line.starts_with(errors)) {
        assert!(!line.contains("ing.fidelity.example"), "{line}");
    }
}

/// The reviews of one request, without its objects, each once: an API server asks again about a write whose object another write
/// has changed meanwhile. Reviews of the API server's own writes are left out.
fn of(ask: &Ask, seen: Vec<(String, Value)>) -> Vec<(String, Value)> {
    let user = ask.user.as_deref().unwrap_or("lab-admin");
    let mut seen: Vec<(String, Value)> = seen
        .into_iter()
        .filter(|(_, review)| review["userInfo"]["username"] == user)
        .collect();
    for (_, review) in &mut seen {
        for field in ["object", "oldObject"] {
            let kind = review[field]["kind"].take();
            review[field] = kind;
        }
    }
    let mut known = BTreeSet::new();
    seen.retain(|(path, review)| {
        let mut review = review.clone();
        // Each question has its own.
        review["uid"].take();
        known.insert((path.clone(), review.to_string()))
    });
    seen
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "c", "image": "example/c:1"}]},
            },
        },
    })
}

fn shapes() -> Vec<(&'static str, Ask)> {
    let all = configmaps("shapes");
    let one = format!("{all}/changed");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let create = |name: &str| Ask::post(&all, configmap(name));
    let mut applied = Ask::merge_patch(
        &format!("{all}/applied?fieldManager=fidelity"),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"k": "v"},
        }),
    );
    applied.content_type = "application/apply-patch+yaml";
    let role = json!({"metadata": {"name": "shapes"}, "rules": []});
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let below =
        |name: &str, subresource: &str| format!("/api/v1/namespaces/shapes/pods/{name}/{subresource}");
    let mut namespaced = vec![
        ("a creation", create("made")),
        (
            "a creation with a name to be found",
            Ask::post(&all, json!({"metadata": {"generateName": "found-"}})).dry_run(),
        ),
        ("an update", Ask::merge_patch(&one, label.clone())),
        ("an apply that makes", applied),
        ("a dry run", create("dry").dry_run()),
        ("a dry run of ours", create("dry").dry_run().user(OURSELVES, &[])),
        ("a deletion", Ask::delete(&format!("{all}/made"))),
        ("a dry deletion", Ask::delete(&format!("{all}/applied")).dry_run()),
        (
            "a creation by nobody known",
            create("by-nobody").user("system:anonymous", &[]),
        ),
        (
            "a creation by somebody of no group",
            create("by-somebody").user("somebody", &[]),
        ),
        (
            "a creation by a service account",
            create("by-account").user("system:serviceaccount:shapes:s", &[]),
        ),
        ("a creation by a node", create("by-node").user(NODE, NODES)),
        ("a deletion of all", {
            Ask::delete(&format!("{all}?labelSelector=a%3Db"))
        }),
        (
            "a creation in kube-system",
            Ask::post(&configmaps("kube-system"), configmap("shapes")),
        ),
    ];
    namespaced.extend([
        ("a cluster-scoped creation", Ask::post(roles, role)),
        (
            "a cluster-scoped update",
            Ask::merge_patch(&format!("{roles}/shapes"), label.clone()),
        ),
        (
            "a cluster-scoped deletion",
            Ask::delete(&format!("{roles}/shapes")),
        ),
        (
            "a creation of a Namespace",
            Ask::post("/api/v1/namespaces", json!({"metadata": {"name": "shapes-2"}})),
        ),
        (
            "an update of a Namespace",
            Ask::merge_patch("/api/v1/namespaces/shapes-2", label),
        ),
        (
            "a deletion of a Namespace",
            Ask::delete("/api/v1/namespaces/shapes-2").dry_run(),
        ),
        (
            "a status with a namespace",
            Ask::merge_patch(
                &below("running", "status"),
                json!({"status": {"message": "well"}}),
            ),
        ),
        (
            "a status without",
            Ask::merge_patch(
                "/api/v1/nodes/shapes/status",
                json!({"status": {"nodeInfo": {"kubeletVersion": "v1.36.2"}}}),
            )
            .user(NODE, NODES),
        ),
        (
            "a scale",
            Ask::merge_patch(
                "/apis/apps/v1/namespaces/shapes/deployments/d/scale",
                json!({"spec": {"replicas": 3}}),
            ),
        ),
        (
            "a token",
            Ask::post(
                "/api/v1/namespaces/shapes/serviceaccounts/s/token",
                json!({"spec": {"audiences": ["fidelity"]}}),
            ),
        ),
        (
            "an eviction",
            Ask::post(
                &below("evicted", "eviction"),
                json!({"metadata": {"name": "evicted"}}),
            ),
        ),
        (
            "a binding",
            Ask::post(
                &below("bound", "binding"),
                json!({"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "shapes"}}),
            ),
        ),
        ("a connection", {
            Ask::post(&below("running", "exec?command=ls&stdout=true"), Value::Null)
        }),
        (
            "a question without a namespace",
            review(
                "authentication.k8s.io",
                "tokenreviews",
                json!({"token": "nobody's"}),
            ),
        ),
        (
            "a question with a namespace",
            review(
                "authorization.k8s.io",
                "namespaces/shapes/localsubjectaccessreviews",
                json!({"user": "u", "resourceAttributes": {
                    "verb": "get", "resource": "pods", "namespace": "shapes",
                }}),
            ),
        ),
        (
            "a question about access",
            review("authorization.k8s.io", "subjectaccessreviews", access()),
        ),
    ]);
    namespaced
}
