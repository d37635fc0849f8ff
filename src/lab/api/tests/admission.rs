//! Which hooks are asked, in which order, with what, and what their answers do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::backend::{Backend, allow, change};
use super::*;

/// A backend that keeps what it was shown.
async fn recording() -> (Backend, Arc<Mutex<Vec<Value>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let backend = Backend::start(move |review| {
        let answer = allow(&review);
        kept.lock().expect("no panic").push(review);
        async move { answer }
    })
    .await;
    (backend, seen)
}

#[tokio::test]
async fn a_review_says_everything_about_the_request() {
    let lab = Lab::start().await;
    let (backend, seen) = recording().await;
    lab.service("hook", &[(backend.address, true)]).await;
    let webhook = service_webhook("w.test.example", "hook", &backend.ca_bundle());
    lab.register(false, "test", vec![webhook]).await;
    lab.create("x").await.expect("allowed");
    let patch = Patch::Merge(json!({"data": {"k": "new"}}));
    let parameters = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    lab.configmaps()
        .patch("x", &parameters, &patch)
        .await
        .expect("allowed");
    lab.configmaps()
        .delete("x", &DeleteParams::default())
        .await
        .expect("allowed");
    let seen = seen.lock().expect("no panic");
    let [create, update, delete] = seen.as_slice() else {
        panic!("{seen:?}");
    };
    assert_eq!(create["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(create["test"]["url"], "/admit?timeout=5s");
    assert_eq!(create["test"]["agent"], "kube-apiserver-admission");
    let request = &create["request"];
    assert_eq!(
        request["resource"],
        json!({"group": "", "version": "v1", "resource": "configmaps"})
    );
    assert_eq!(request["operation"], "CREATE");
    assert_eq!(request["name"], "x");
    assert_eq!(request["namespace"], "default");
    assert_eq!(request["userInfo"]["username"], "lab-admin");
    assert_eq!(request["object"]["data"]["k"], "v");
    assert_eq!(request["object"]["kind"], "ConfigMap");
    assert!(request["oldObject"].is_null());
    assert_eq!(request["dryRun"], false);
    assert_eq!(request["options"]["kind"], "CreateOptions");
    assert_eq!(update["request"]["operation"], "UPDATE");
    assert_eq!(update["request"]["dryRun"], true);
    assert_eq!(update["request"]["object"]["data"]["k"], "new");
    assert_eq!(update["request"]["oldObject"]["data"]["k"], "v");
    assert_eq!(delete["request"]["operation"], "DELETE");
    assert!(delete["request"]["object"].is_null());
    assert_eq!(delete["request"]["oldObject"]["data"]["k"], "v");
    assert_eq!(
        backend.connections.load(Ordering::Relaxed),
        1,
        "the connection is kept"
    );
}

#[tokio::test]
async fn mutating_hooks_are_asked_one_after_the_other_in_the_order_of_names() {
    let lab = Lab::start().await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let highest = Arc::clone(&most);
    let backend = Backend::start(move |review: Value| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            let running = now.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(running, Ordering::SeqCst);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
            let url = review["test"]["url"].as_str().unwrap_or_default();
            let who = url
                .trim_start_matches("/admit-")
                .split('?')
                .next()
                .unwrap_or_default();
            let before = review["request"]["object"]["data"]["k"]
                .as_str()
                .unwrap_or_default();
            let patch = json!([{"op": "replace", "path": "/data/k", "value": format!("{before}{who}")}]);
            change(&review, &patch)
        }
    })
    .await;
    let of = |who: &str| {
        let mut webhook = webhook(&format!("{who}.test.example"), &backend);
        let url = format!("https://localhost:{}/admit-{who}", backend.address.port());
        webhook["clientConfig"]["url"] = json!(url);
        webhook
    };
    lab.register(true, "second", vec![of("z"), of("a")]).await;
    lab.register(true, "first", vec![of("m")]).await;
    let created = lab.create("x").await.expect("allowed");
    assert_eq!(created.data.expect("data")["k"], "vmza");
    assert_eq!(highest.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_hook_that_asks_for_it_sees_what_later_ones_changed() {
    let lab = Lab::start().await;
    let (first, seen) = recording().await;
    let second = Backend::start(|review| async move {
        let patch = json!([{"op": "add", "path": "/data/late", "value": "1"}]);
        change(&review, &patch)
    })
    .await;
    let mut asks_again = webhook("a.test.example", &first);
    asks_again["reinvocationPolicy"] = json!("IfNeeded");
    let webhooks = vec![asks_again, webhook("b.test.example", &second)];
    lab.register(true, "test", webhooks).await;
    lab.create("x").await.expect("allowed");
    let seen = seen.lock().expect("no panic");
    assert_eq!(seen.len(), 2);
    assert!(seen[0]["request"]["object"]["data"]["late"].is_null());
    assert_eq!(seen[1]["request"]["object"]["data"]["late"], "1");
}

#[tokio::test]
async fn selectors_rules_and_conditions_decide_who_is_asked() {
    let lab = Lab::start().await;
    let (backend, seen) = recording().await;
    let with = |name: &str, field: &str, value: Value| {
        let mut webhook = webhook(&format!("{name}.test.example"), &backend);
        let url = format!("https://localhost:{}/{name}", backend.address.port());
        webhook["clientConfig"]["url"] = json!(url);
        webhook[field] = value;
        webhook
    };
    let in_default = json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
    let elsewhere = json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]},
    ]});
    let condition = |text: &str| json!([{"name": "c", "expression": text}]);
    let webhooks = vec![
        with("in-default", "namespaceSelector", in_default),
        with("elsewhere", "namespaceSelector", elsewhere),
        with(
            "labelled",
            "objectSelector",
            json!({"matchLabels": {"no": "such"}}),
        ),
        with("skipped", "matchConditions", condition("false")),
        with("canaries", "matchConditions", condition("request.dryRun")),
        with(
            "by-user",
            "matchConditions",
            condition("request.userInfo.username == 'lab-admin'"),
        ),
    ];
    lab.register(false, "test", webhooks).await;
    lab.create("x").await.expect("allowed");
    create(&lab.client, "y", true).await.expect("allowed");
    let mut asked: Vec<String> = seen
        .lock()
        .expect("no panic")
        .iter()
        .filter_map(|review| Some(review["test"]["url"].as_str()?.split('?').next()?.to_owned()))
        .collect();
    asked.sort();
    assert_eq!(
        asked,
        ["/by-user", "/by-user", "/canaries", "/in-default", "/in-default"]
    );
    let family = "apiserver_admission_match_condition_exclusions_total";
    let labels = [
        "name=\"skipped.test.example\"",
        "kind=\"webhook\"",
        "type=\"validate\"",
    ];
    assert_eq!(lab.metric(family, &labels).await, 2.0);
}

#[tokio::test]
async fn a_condition_that_cannot_be_evaluated_forbids_or_skips() {
    let lab = Lab::start().await;
    let (backend, seen) = recording().await;
    let mut webhook = webhook("w.test.example", &backend);
    webhook["rules"][0]["resources"] = json!(["nodes"]);
    webhook["matchConditions"] = json!([{"name": "c", "expression": "request.namespace != 'kube-system'"}]);
    lab.register(false, "fail", vec![webhook.clone()]).await;
    let nodes: Api<Node> = Api::all(lab.client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).expect("a Node");
    let parameters = PostParams::default();
    let outcome = nodes.create(&parameters, &node).await;
    assert_eq!(
        refusal(outcome),
        (403, "nodes \"n\" is forbidden: expression 'request.namespace != 'kube-system'' resulted in error: no such \
             key: namespace"
                .to_owned())
    );
    let family = "apiserver_admission_match_condition_evaluation_errors_total";
    assert_eq!(lab.metric(family, &[]).await, 1.0);
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(lab.client.clone());
    let patch = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).expect("a patch"));
    configurations
        .patch("fail", &PatchParams::default(), &patch)
        .await
        .expect("exempt");
    nodes.create(&parameters, &node).await.expect("skipped");
    assert!(seen.lock().expect("no panic").is_empty());
}
