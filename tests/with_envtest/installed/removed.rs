//! From observing to bypassing, from one release to the next, and away again: what hookwatch has done to a cluster outlives
//! no uninstall.

use hookwatch::domain::act::bypass::STATE_ANNOTATION;
use hookwatch::lab::backend::Behaviour;
use http::Method;
use serde_json::{Value, json};

use super::lab::{CATCHES_ALL, HANGS, Hanging, done, get, hanging};
use super::running::pod;
use crate::documents::documented;
use crate::privileges::cluster::{CONFIGURATIONS, Cluster, until};

/// What is in the namespace.
const IN_A_NAMESPACE: [&str; 10] = [
    "/api/v1/configmaps",
    "/api/v1/serviceaccounts",
    "/api/v1/services",
    "/apis/apps/v1/deployments",
    "/apis/batch/v1/cronjobs",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
];

fn configuration() -> String {
    format!("{CONFIGURATIONS}/validatingwebhookconfigurations/{CATCHES_ALL}")
}

/// The object without what counts its changes.
fn kept(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for counter in ["resourceVersion", "generation"] {
        metadata.remove(counter);
    }
    object
}

/// Whatever an API server has that speaks of hookwatch.
async fn traces(kubeconfig: &std::path::Path) -> Vec<String> {
    let script = "kubectl get --show-managed-fields --all-namespaces -o json \
                  \"$(kubectl api-resources --verbs=list -o name | paste -sd, -)\"";
    let all: Value = serde_json::from_str(&done(kubeconfig, script).await).unwrap();
    let objects = all["items"].as_array().unwrap();
    assert!(objects.len() > 50, "only {} objects", objects.len());
    let ours = objects
        .iter()
        .filter(|object| object.to_string().contains("hookwatch"));
    ours.map(|object| {
        format!(
            "{} {} {}",
            object["kind"], object["metadata"]["namespace"], object["metadata"]["name"]
        )
    })
    .collect()
}

/// Ends a namespace when it is deleted and nothing is in it any more, as a controller does that is not here.
async fn ends_the_namespace(cluster: &Cluster) {
    let target = "/api/v1/namespaces/hookwatch";
    until("the namespace is deleted", async || {
        get(cluster, target).await["status"]["phase"] == "Terminating"
    })
    .await;
    until("nothing is in it", async || {
        for kind in IN_A_NAMESPACE {
            let (api, plural) = kind.rsplit_once('/').unwrap();
            let list = get(cluster, &format!("{api}/namespaces/hookwatch/{plural}")).await;
            if list["items"].as_array().is_none_or(|items| !items.is_empty()) {
                return false;
            }
        }
        true
    })
    .await;
    let mut namespace = get(cluster, target).await;
    namespace["spec"]["finalizers"] = json!([]);
    cluster
        .admin(Method::PUT, &format!("{target}/finalize"), &namespace)
        .await;
}

/// The state annotation as another release would have written it: under its own version, and with what only that one
/// knows.
async fn as_written_by(cluster: &Cluster, version: &str) {
    let object = get(cluster, &configuration()).await;
    let text = object["metadata"]["annotations"][STATE_ANNOTATION]
        .as_str()
        .unwrap();
    let mut state: Value = serde_json::from_str(text).unwrap();
    let by = &mut state["webhooks"][HANGS]["by"]["version"];
    assert!(by.is_string(), "no release stands in the annotation: {text}");
    *by = version.into();
    state["unheard-of"] = json!({"a": [1]});
    state["webhooks"][HANGS]["unheard-of"] = json!("b");
    let text = serde_json::to_string_pretty(&state).unwrap();
    let patch = json!({"metadata": {"annotations": {STATE_ANNOTATION: text}}});
    cluster.admin(Method::PATCH, &configuration(), &patch).await;
}

fn is_bypassed(assessment: &Value) -> bool {
    let hooks = assessment["breaker"]["hooks"].as_array();
    hooks.is_some_and(|hooks| {
        hooks
            .iter()
            .any(|hook| hook.to_string().contains(HANGS) && hook["state"] == "bypassed")
    })
}

/// A webhook that the control plane's writes meet, and that answers for now.
async fn with_a_webhook(cluster: &Cluster) -> Hanging {
    let hanging = hanging(&json!([{
        "apiGroups": ["", "coordination.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps", "leases"],
    }]))
    .await;
    hanging.backend.behave(Behaviour::Healthy).await.unwrap();
    cluster.apply(&hanging.hook).await;
    hanging
}

/// The commands of a section without those that wait for Pods or forward a port to one: no node runs any.
fn without_pods(script: &str) -> String {
    let mut lines: Vec<&str> = script.lines().collect();
    lines.retain(|line| !line.contains("rollout status") && !line.contains("--cluster"));
    lines.join("\n")
}

pub async fn from_observing_to_bypassing_and_back() {
    let cluster = Cluster::start().await;
    let kubeconfig = cluster.admin_kubeconfig();
    done(
        &kubeconfig,
        "kubectl apply --server-side -k deploy/overlays/observe",
    )
    .await;
    let hanging = with_a_webhook(&cluster).await;
    let before = get(&cluster, &configuration()).await;
    let mut observing = pod(&cluster).await;
    observing
        .assessed("it observes", |assessment| {
            assessment["breaker"]["effective"] == "plan"
        })
        .await;

    done(&kubeconfig, &without_pods(&documented("bypassing"))).await;
    assert!(observing.terminate().await, "it did not end when it was asked to");
    let mut bypassing = pod(&cluster).await;
    bypassing
        .assessed("the fence is proven", |assessment| {
            assessment["breaker"]["effective"] == "on"
        })
        .await;
    hanging.backend.behave(Behaviour::HangAfterTls).await.unwrap();
    bypassing.assessed("the culprit is bypassed", is_bypassed).await;

    hanging.backend.behave(Behaviour::Healthy).await.unwrap();
    let said = done(&kubeconfig, &without_pods(&documented("observing"))).await;
    assert!(said.contains(HANGS), "nothing was brought back: {said}");
    assert!(bypassing.terminate().await, "it did not end when it was asked to");
    observing = pod(&cluster).await;
    observing
        .assessed("it observes again", |assessment| {
            let breaker = &assessment["breaker"];
            breaker["effective"] == "plan" && breaker["frozen"].is_null() && !is_bypassed(assessment)
        })
        .await;
    assert_eq!(kept(&get(&cluster, &configuration()).await), kept(&before));
    assert!(observing.terminate().await, "it did not end when it was asked to");
}

pub async fn upgraded_and_removed_without_a_trace() {
    let cluster = Cluster::start().await;
    let kubeconfig = cluster.admin_kubeconfig();
    for overlay in ["expiry", "unchecked"] {
        let apply = format!("kubectl apply --server-side -k deploy/overlays/{overlay}");
        done(&kubeconfig, &apply).await;
    }
    let hanging = with_a_webhook(&cluster).await;
    let before = get(&cluster, &configuration()).await;
    let mut old = pod(&cluster).await;
    old.assessed("the fence is proven", |assessment| {
        assessment["breaker"]["effective"] == "on"
    })
    .await;
    hanging.backend.behave(Behaviour::HangAfterTls).await.unwrap();
    old.assessed("the culprit is bypassed", is_bypassed).await;
    assert_ne!(kept(&get(&cluster, &configuration()).await), kept(&before));

    // A rolling upgrade: the next one sees before the last one goes. Each takes the other's bypass for what it is.
    for version in ["0.0.1", "99.0.0"] {
        as_written_by(&cluster, version).await;
        done(&kubeconfig, &without_pods(&documented("upgrade"))).await;
        let mut new = pod(&cluster).await;
        new.assessed("the next one sees it", is_bypassed).await;
        assert!(old.terminate().await, "it did not end when it was asked to");
        old = new;
        old.assessed("the next one leads, and sees it still", |assessment| {
            is_bypassed(assessment) && assessment["replica"]["role"] == "Leader"
        })
        .await;
    }

    // The Deployment goes first, and with it its Pods.
    assert!(old.terminate().await, "it did not end when it was asked to");
    let script = documented("uninstall");
    let (said, ()) = tokio::join!(done(&kubeconfig, &script), ends_the_namespace(&cluster));
    assert!(said.contains(HANGS), "nothing was brought back: {said}");
    assert_eq!(kept(&get(&cluster, &configuration()).await), kept(&before));
    assert_eq!(traces(&kubeconfig).await, [""; 0], "{said}");
    drop(hanging);
}
