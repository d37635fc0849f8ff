//! What is found of the Pods that serve a webhook, of those that it keeps from coming back, and of nodes.

use hookwatch::domain::audit::{Finding, FindingSeverity};
use serde_json::{Value, json};

use super::findings::rule;
use super::{audit, estate_of, found_in, ids, webhook};

/// A Service `policy` and its Deployment, with these fields of the Deployment and of its container.
fn served(spec: Value, container: Value) -> Vec<Value> {
    let metadata = json!({"namespace": "policy", "name": "policy"});
    let mut serves = json!({"name": "policy", "ports": [{"containerPort": 8443}]});
    json_patch::merge(&mut serves, &container);
    let template = json!({"metadata": {"labels": {"app": "policy"}}, "spec": {"containers": [serves]}});
    let mut deployment = json!({"selector": {"matchLabels": {"app": "policy"}}, "template": template});
    json_patch::merge(&mut deployment, &spec);
    vec![
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
               "spec": {"selector": {"app": "policy"}, "ports": [{"port": 443, "targetPort": 8443}]}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment}),
    ]
}

fn modest(name: &str, more: Value) -> Value {
    let service = json!({"service": {"namespace": "policy", "name": "policy"}});
    let mut entry =
        json!({"rules": rule(&["example.com"], &["widgets"]), "timeoutSeconds": 3, "clientConfig": service});
    json_patch::merge(&mut entry, &more);
    webhook("Validating", name, entry)
}

/// What is found of a modest webhook and its Pods.
fn found(spec: Value, container: Value) -> Vec<Finding> {
    let mut objects = served(spec, container);
    objects.push(modest("policy", json!({})));
    found_in(&estate_of(objects, false))
}

#[test]
fn what_is_wrong_with_pods_is_told_once_of_the_webhook_that_it_costs_most() {
    let mut objects = served(json!({"replicas": 1}), json!({}));
    let ignored = || json!({"failurePolicy": "Ignore"});
    objects.extend([
        modest("a", ignored()),
        modest("b", json!({})),
        modest("c", json!({})),
    ]);
    let found = found_in(&estate_of(objects.clone(), false));
    let of = |id: &str| -> Vec<&Finding> { found.iter().filter(|finding| finding.kind.id == id).collect() };
    for id in [
        "one-replica",
        "no-readiness-probe",
        "no-liveness-probe",
        "no-grace",
    ] {
        let [one] = of(id)[..] else {
            panic!("{id}: {found:?}")
        };
        assert!(one.object.ends_with("/b/b.example.com"), "{}", one.object);
        assert!(
            one.message.ends_with("The same Pods serve 2 other webhooks."),
            "{}",
            one.message
        );
    }
    assert!(of("one-replica")[0].message.contains("is refused"));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let ran = audit(&["--if-down", "c/c.example.com", "-"], &list);
    assert!(
        ran.out.contains("one-replica") && ran.out.contains("b.example.com"),
        "{}{}",
        ran.out,
        ran.err
    );
}

#[test]
fn replicas_that_a_manifest_leaves_to_an_autoscaler_are_not_one() {
    assert!(ids(&found(json!({"replicas": 1}), json!({}))).contains(&"one-replica"));
    assert!(!ids(&found(json!({}), json!({}))).contains(&"one-replica"));
}

#[test]
fn a_pod_whose_startup_probe_looks_at_the_serving_port_is_not_ready_before_it_serves() {
    let probe = |port: u16| json!({"httpGet": {"port": port}});
    let told = |container: Value| {
        let found = ids(&found(json!({}), container));
        ["no-readiness-probe", "readiness-elsewhere"].map(|id| found.contains(&id))
    };
    assert_eq!(told(json!({})), [true, false]);
    assert_eq!(told(json!({"startupProbe": probe(9090)})), [true, false]);
    assert_eq!(told(json!({"startupProbe": probe(8443)})), [false, false]);
    assert_eq!(told(json!({"readinessProbe": probe(9090)})), [false, true]);
    assert_eq!(
        told(json!({"readinessProbe": probe(9090), "startupProbe": probe(8443)})),
        [false, false]
    );
}

#[test]
fn a_readiness_probe_of_another_port_is_a_hint_as_the_program_may_check_the_other_itself() {
    let found = found(json!({}), json!({"readinessProbe": {"httpGet": {"port": 9090}}}));
    let one = found
        .iter()
        .find(|finding| finding.kind.id == "readiness-elsewhere")
        .unwrap();
    assert_eq!(one.severity, FindingSeverity::Info);
    assert!(
        one.message.contains("unless the program itself checks"),
        "{}",
        one.message
    );
}

#[test]
fn a_pause_before_the_end_is_advised_with_a_grace_that_is_longer_than_it() {
    let found = found(json!({}), json!({}));
    let one = found
        .iter()
        .find(|finding| finding.kind.id == "no-grace")
        .unwrap();
    for part in [
        "`sleep: {seconds: 10}`",
        "1.30",
        "terminationGracePeriodSeconds to at least 10 more",
    ] {
        assert!(one.message.contains(part), "{}", one.message);
    }
}

/// What is found of a webhook for Pods in its own namespace, with such an objectSelector.
fn of_own_pods(selector: &Value, pods: Vec<Value>) -> Vec<&'static str> {
    let own = json!({"matchLabels": {"kubernetes.io/metadata.name": "policy"}});
    let more = json!({"rules": rule(&[""], &["pods"]), "namespaceSelector": own, "objectSelector": selector});
    let mut objects = pods;
    objects.push(modest("policy", more));
    ids(&found_in(&estate_of(objects, true)))
}

#[test]
fn own_pods_of_which_nothing_is_known_do_not_opt_in() {
    let opts_in = json!({"matchLabels": {"app": "policy"}});
    let opts_out = json!({"matchExpressions": [{"key": "exempt", "operator": "DoesNotExist"}]});
    let told = |selector: &Value, pods| of_own_pods(selector, pods).contains(&"own-pods-in-reach");
    assert!(told(&json!({}), Vec::new()));
    assert!(told(&opts_out, Vec::new()));
    assert!(!told(&opts_in, Vec::new()));
    assert!(
        told(&opts_in, served(json!({}), json!({}))),
        "they have that label"
    );
}

#[test]
fn a_node_that_can_keep_its_taints_or_has_no_network_does_not_join() {
    let blocked = |rules: Value, namespaces: &[&str]| {
        let mut objects: Vec<Value> = namespaces
            .iter()
            .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .collect();
        let system = json!({"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "cilium"]}]});
        objects.push(modest(
            "policy",
            json!({"rules": rules, "namespaceSelector": system}),
        ));
        let found = found_in(&estate_of(objects, true));
        let one = found
            .into_iter()
            .find(|finding| finding.kind.id == "node-recovery-blocked");
        one.map(|finding| finding.message)
    };
    // longhorn#12578
    let updates =
        json!([{"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"]}]);
    let message = blocked(updates, &[]).unwrap();
    assert!(
        message.contains("a change of a node's taints is refused"),
        "{message}"
    );
    let message = blocked(rule(&[""], &["nodes/status"]), &[]).unwrap();
    assert!(message.contains("the status of a node is refused"), "{message}");
    let pods = || rule(&[""], &["pods"]);
    assert_eq!(blocked(pods(), &["kube-system", "team", "cilium"]), None);
    let message = blocked(pods(), &["calico-system"]).unwrap();
    assert!(message.contains("its network plugin's Pod"), "{message}");
}
