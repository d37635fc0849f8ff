//! What is found, each where its source says so and not elsewhere.

use hookwatch::domain::audit::findings::KINDS;
use hookwatch::domain::audit::{Finding, FindingSeverity};
use serde_json::{Value, json};

use super::{estate_of, found_in, ids, webhook};

fn found(more: Value) -> Vec<&'static str> {
    ids(&found_in(&estate_of(
        vec![webhook("Validating", "policy", more)],
        false,
    )))
}

pub(super) fn rule(groups: &[&str], resources: &[&str]) -> Value {
    json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": groups, "apiVersions": ["*"], "resources": resources}])
}

/// A webhook of which nothing is worth a word but what `more` says.
fn modest(more: Value) -> Vec<&'static str> {
    let mut entry = json!({"rules": rule(&["example.com"], &["widgets"]), "timeoutSeconds": 3});
    for (field, value) in more.as_object().unwrap() {
        entry[field] = value.clone();
    }
    found(entry)
}

#[test]
fn every_name_is_used_once_and_plain() {
    let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.id).collect();
    assert!(
        names
            .iter()
            .all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
    );
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn a_modest_hook_has_no_finding() {
    assert_eq!(modest(json!({})), Vec::<&str>::new());
}

#[test]
fn fields_are_judged_as_their_sources_judge_them() {
    for (more, id) in [
        // Gardener: leases wait 3 s at most, also where failures are ignored.
        (
            json!({"rules": rule(&["coordination.k8s.io"], &["leases"]), "timeoutSeconds": 4, "failurePolicy": "Ignore"}),
            "lease-timeout",
        ),
        // Gardener: 15 s; clusterlint: 29 s.
        (json!({"timeoutSeconds": 16}), "long-timeout"),
        (json!({"timeoutSeconds": null}), "timeout-not-set"),
        // Gardener's and GKE's critical resources.
        (json!({"rules": rule(&[""], &["pods"])}), "critical-resources"),
        (json!({"rules": rule(&[""], &["nodes"])}), "critical-resources"),
        (
            json!({"rules": rule(&["apiregistration.k8s.io"], &["apiservices/status"])}),
            "critical-resources",
        ),
        (
            json!({"rules": rule(&["certificates.k8s.io"], &["certificatesigningrequests"])}),
            "node-recovery-blocked",
        ),
        // OpenShift's virtual resources, GKE's reviews.
        (
            json!({"rules": rule(&["authentication.k8s.io"], &["tokenreviews"])}),
            "virtual-resources",
        ),
        (
            json!({"rules": rule(&["authorization.k8s.io"], &["subjectaccessreviews"])}),
            "virtual-resources",
        ),
        (json!({"rules": rule(&[""], &["bindings"])}), "virtual-resources"),
        // EKS: no rule for everything.
        (json!({"rules": rule(&["*"], &["*"])}), "catch-all-rules"),
        (json!({"sideEffects": "Unknown"}), "dry-run-refused"),
        (json!({"matchPolicy": "Exact"}), "exact-match-policy"),
        (
            json!({"clientConfig": {"url": "http://plain.example"}}),
            "invalid-target",
        ),
        (
            json!({"matchConditions": [{"name": "c", "expression": "request.("}]}),
            "condition-not-cel",
        ),
        (json!({"timeoutSeconds": 31}), "unreadable-field"),
        (json!({"rules": []}), "never-called"),
        (
            json!({"objectSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}),
            "never-called",
        ),
        (
            json!({"namespaceSelector": {"matchExpressions": [
            {"key": "a", "operator": "In", "values": ["b"]}, {"key": "a", "operator": "NotIn", "values": ["b"]}]}}),
            "never-called",
        ),
    ] {
        let found = modest(more.clone());
        assert!(found.contains(&id), "{id} of {more}: {found:?}");
        assert!(!modest(json!({})).contains(&id));
    }
}

/// The first finding of this name about a modest webhook.
fn one(id: &str, more: Value, is_cluster: bool) -> Option<Finding> {
    let mut entry = json!({"rules": rule(&["example.com"], &["widgets"]), "timeoutSeconds": 3});
    json_patch::merge(&mut entry, &more);
    let findings = found_in(&estate_of(vec![webhook("Mutating", "policy", entry)], is_cluster));
    findings.into_iter().find(|finding| finding.kind.id == id)
}

#[test]
fn what_opts_in_by_a_label_is_not_asked_about_the_control_plane_and_what_opts_out_by_one_is() {
    let with =
        |selector: Value| json!({"rules": rule(&[""], &["pods", "secrets"]), "objectSelector": selector});
    let requirement = |operator: &str| json!({"matchExpressions": [{"key": "team", "operator": operator}]});
    for (selector, wanted) in [
        (json!({}), true),
        (json!({"matchLabels": {"object.istio.io/inject": "true"}}), false),
        (requirement("Exists"), false),
        (requirement("DoesNotExist"), true),
    ] {
        for id in ["critical-resources", "mutates-control-plane"] {
            assert_eq!(
                one(id, with(selector.clone()), false).is_some(),
                wanted,
                "{id} {selector}"
            );
        }
    }
}

#[test]
fn a_shorter_timeout_is_advised_for_leases_only_where_failures_are_ignored() {
    let with = |policy: &str| {
        let more = json!({"rules": rule(&["coordination.k8s.io"], &["leases"]), "timeoutSeconds": 10, "failurePolicy": policy});
        one("lease-timeout", more, false).unwrap()
    };
    let (refused, ignored) = (with("Fail"), with("Ignore"));
    assert_eq!(refused.patch, None);
    assert!(
        refused.message.ends_with(" Leave Leases out."),
        "{}",
        refused.message
    );
    assert!(ignored.patch.is_some() && ignored.message.contains("set timeoutSeconds to 3"));
}

#[test]
fn what_reviews_cost_and_how_to_leave_them_out_follows_from_policy_and_rules() {
    let with = |policy: &str, groups: &[&str], resources: &[&str]| {
        let more = json!({"rules": rule(groups, resources), "failurePolicy": policy});
        one("virtual-resources", more, false).unwrap().message
    };
    let reviews = |policy| with(policy, &["authentication.k8s.io"], &["tokenreviews"]);
    let refused = reviews("Fail");
    assert!(
        refused.contains("tokens are not checked") && refused.ends_with("out of its rules."),
        "{refused}"
    );
    let ignored = reviews("Ignore");
    assert!(
        ignored.contains("may wait 3 s") && !ignored.contains("not checked"),
        "{ignored}"
    );
    let all = with("Fail", &["*"], &["*"]);
    assert!(all.ends_with("out by matchConditions."), "{all}");
}

#[test]
fn no_other_version_passes_a_webhook_by_that_takes_all_of_them() {
    let with = |groups: &[&str], version: &str| {
        let mut rules = rule(groups, &["widgets"]);
        rules[0]["apiVersions"] = json!([version]);
        let more = json!({"matchPolicy": "Exact", "rules": rules});
        one("exact-match-policy", more, false).is_some()
    };
    assert_eq!(
        [with(&["*"], "*"), with(&["*"], "v1"), with(&["example.com"], "*")],
        [false, true, true]
    );
}

#[test]
fn a_webhook_that_is_never_called_may_get_its_rules_later_where_it_is_only_a_manifest() {
    let severity = |is_cluster| {
        one("never-called", json!({"rules": []}), is_cluster)
            .unwrap()
            .severity
    };
    assert_eq!(severity(false), FindingSeverity::Info);
    assert_eq!(severity(true), FindingSeverity::Warning);
}

#[test]
fn a_condition_that_errs_refuses_writes_today_under_fail_and_is_told_lightly_under_ignore() {
    let conditions = json!([{"name": "c", "expression": "request.namespace != 'x'"}]);
    for (policy, severity) in [
        ("Fail", FindingSeverity::Critical),
        ("Ignore", FindingSeverity::Info),
    ] {
        let more = json!({"matchConditions": conditions, "failurePolicy": policy, "timeoutSeconds": 1});
        let findings = found_in(&estate_of(vec![webhook("Validating", "policy", more)], false));
        let found = findings
            .iter()
            .find(|finding| finding.kind.id == "conditions-err")
            .unwrap();
        assert_eq!(found.severity, severity);
        assert!(
            found
                .message
                .contains("what an API server writes while it starts"),
            "{}",
            found.message
        );
    }
}

#[test]
fn a_hook_about_its_own_pods_alone_keeps_them_away_and_its_patch_leaves_its_namespace_out() {
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": "policy"}});
    let more = json!({"rules": rule(&[""], &["pods"]), "namespaceSelector": selector});
    let findings = found_in(&estate_of(vec![webhook("Validating", "policy", more)], false));
    let found = findings
        .iter()
        .find(|finding| finding.kind.id == "own-pods-in-reach")
        .unwrap();
    assert_eq!(found.severity, FindingSeverity::Critical);
    let patch = found.patch.as_ref().unwrap();
    assert_eq!(
        patch[1]["value"]["matchExpressions"][0]["values"],
        json!(["policy"]),
        "{patch}"
    );
}

#[test]
fn no_patch_leaves_a_namespace_out_that_all_share() {
    let patched = |name: &str| {
        let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
        let more = json!({"rules": rule(&[""], &["pods"]), "namespaceSelector": selector});
        let findings = found_in(&estate_of(vec![webhook("Validating", name, more)], false));
        let mut found = findings.into_iter();
        let found = found.find(|finding| finding.kind.id == "own-pods-in-reach");
        found.unwrap().patch.is_some()
    };
    assert_eq!(
        ["policy", "default", "kube-public"].map(patched),
        [true, false, false]
    );
}

#[test]
fn a_patch_adds_one_condition_and_leaves_the_others_alone() {
    let patched = |conditions: Value| {
        let more = json!({"matchConditions": conditions});
        let findings = found_in(&estate_of(vec![webhook("Validating", "tenant", more)], false));
        let found = findings
            .into_iter()
            .find(|finding| finding.kind.id == "control-plane-in-reach");
        found.unwrap().patch
    };
    let other = |name: &str| json!({"name": name, "expression": "true"});
    let operation = |conditions: Value| {
        let patch = patched(conditions).unwrap();
        let last = patch.as_array().unwrap().last().unwrap().clone();
        [last["op"].clone(), last["path"].clone()]
    };
    let first = operation(json!([]));
    assert_eq!(first, ["add", "/webhooks/0/matchConditions"]);
    let more = operation(json!([other("a"), other("b")]));
    assert_eq!(more, ["add", "/webhooks/0/matchConditions/-"]);
    let again = operation(json!([other("a"), other("spares-control-plane")]));
    assert_eq!(again, ["replace", "/webhooks/0/matchConditions/1"]);
    let full: Vec<Value> = (0..64).map(|number| other(&format!("c{number}"))).collect();
    assert_eq!(patched(full.into()), None, "an API server takes 64");
}

#[test]
fn a_patch_takes_no_namespace_of_a_webhook_for_that_of_a_tenant() {
    let patched = |name: &str| {
        let more = json!({"rules": rule(&[""], &["pods/binding"])});
        let findings = found_in(&estate_of(vec![webhook("Validating", name, more)], false));
        let found = findings.into_iter().find(|finding| finding.patch.is_some());
        let patch = found.unwrap().patch.unwrap().to_string();
        patch.replace(name, "NAME")
    };
    assert_eq!(patched("tenant"), patched("landlord"));
}

#[test]
fn hooks_that_wait_for_each_other_are_a_loop_and_one_that_leaves_the_other_out_is_not() {
    let pods = rule(&[""], &["pods"]);
    let not = |namespaces: Value| json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": namespaces}]});
    let pair = |second: Value| {
        let one = json!({"rules": pods, "namespaceSelector": not(json!(["kube-system", "mesh"]))});
        let two = json!({"rules": pods, "namespaceSelector": not(second)});
        ids(&found_in(&estate_of(
            vec![
                webhook("Mutating", "mesh", one),
                webhook("Validating", "images", two),
            ],
            false,
        )))
    };
    assert!(pair(json!(["kube-system", "images"])).contains(&"hook-loop"));
    assert!(!pair(json!(["kube-system", "images", "mesh"])).contains(&"hook-loop"));
}

#[test]
fn a_chain_of_ignored_hooks_is_over_the_deadline_of_leaders_though_none_alone_is() {
    let more = || json!({"failurePolicy": "Ignore", "timeoutSeconds": 3});
    let chain = |names: &[&str]| {
        let hooks = names.iter().map(|name| webhook("Mutating", name, more()));
        ids(&found_in(&estate_of(hooks.collect(), false)))
    };
    assert!(chain(&["one", "two"]).contains(&"chain-over-deadline"));
    assert!(!chain(&["one"]).contains(&"chain-over-deadline"));
}

#[test]
fn an_ignored_hook_that_leaders_wait_too_long_for_is_critical() {
    let more = json!({"failurePolicy": "Ignore", "timeoutSeconds": 10});
    let findings = found_in(&estate_of(vec![webhook("Mutating", "inject", more)], false));
    let found = findings
        .iter()
        .find(|finding| finding.kind.id == "fail-open-in-reach")
        .unwrap();
    assert!(
        found.message.contains("leader-election after 9.5 to 12.5 s"),
        "{}",
        found.message
    );
    assert!(ids(&findings).contains(&"unwatched-fail-open"));
    assert!(ids(&findings).contains(&"mutates-control-plane"));
}

#[test]
fn two_webhooks_of_one_name_cannot_be_told_apart() {
    let (one, mut two) = (
        webhook("Validating", "one", json!({})),
        webhook("Validating", "two", json!({})),
    );
    two["webhooks"][0]["name"] = one["webhooks"][0]["name"].clone();
    assert!(ids(&found_in(&estate_of(vec![one.clone(), two], false))).contains(&"duplicate-name"));
    assert!(!ids(&found_in(&estate_of(vec![one], false))).contains(&"duplicate-name"));
}

/// A cluster with one modest webhook, its Service and what is behind it.
fn cluster(endpoints: &[(&str, bool)], nodes: Vec<Value>) -> Vec<&'static str> {
    ids(&found_in(&estate_of(
        webhook_with_endpoints(endpoints, nodes),
        true,
    )))
}

fn webhook_with_endpoints(endpoints: &[(&str, bool)], nodes: Vec<Value>) -> Vec<Value> {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .enumerate()
        .map(|(at, (node, ready))| json!({"addresses": [format!("10.0.0.{}", at + 1)], "conditions": {"ready": ready}, "nodeName": node}))
        .collect();
    let mut objects = vec![
        webhook(
            "Validating",
            "policy",
            json!({"rules": rule(&["example.com"], &["widgets"]), "timeoutSeconds": 3}),
        ),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "policy", "namespace": "policy"},
               "spec": {"selector": {"app": "policy"}, "clusterIP": "10.1.0.1", "ports": [{"port": 443, "targetPort": 8443}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
               "metadata": {"name": "policy-x", "namespace": "policy", "labels": {"kubernetes.io/service-name": "policy"}},
               "ports": [{"name": "", "port": 8443, "protocol": "TCP"}], "endpoints": endpoints}),
    ];
    objects.extend(nodes);
    objects
}

fn node(name: &str, zone: &str, ready: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
           "status": {"conditions": [{"type": "Ready", "status": ready}]}})
}

#[test]
fn in_a_cluster_services_endpoints_nodes_and_zones_are_looked_at() {
    let apart = || vec![node("a", "z1", "True"), node("b", "z2", "True")];
    assert_eq!(cluster(&[("a", true), ("b", true)], apart()), Vec::<&str>::new());
    assert_eq!(cluster(&[("a", false)], apart()), ["no-endpoints"]);
    assert_eq!(cluster(&[("a", true), ("a", true)], apart()), ["one-node"]);
    let one_zone = vec![
        node("a", "z1", "True"),
        node("b", "z1", "True"),
        node("c", "z2", "True"),
    ];
    assert_eq!(cluster(&[("a", true), ("b", true)], one_zone), ["one-zone"]);
    let alone = webhook(
        "Validating",
        "policy",
        json!({"rules": rule(&["example.com"], &["widgets"]), "timeoutSeconds": 3}),
    );
    assert_eq!(
        ids(&found_in(&estate_of(vec![alone.clone()], true))),
        ["service-missing"]
    );
    assert_eq!(
        ids(&found_in(&estate_of(vec![alone], false))),
        Vec::<&str>::new(),
        "elsewhere it may be"
    );
}

#[test]
fn all_endpoints_on_a_node_in_trouble_are_critical() {
    let objects = |state: Value| {
        let mut node = node("a", "z1", "True");
        json_patch::merge(&mut node, &state);
        cluster(&[("a", true), ("a", true)], vec![node])
    };
    assert_eq!(objects(json!({"spec": {"unschedulable": true}})), ["nodes-going"]);
    let taint = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
    assert_eq!(objects(json!({"spec": {"taints": taint}})), ["nodes-going"]);
    let under_pressure = json!({"status": {"conditions": [{"type": "MemoryPressure", "status": "True"}]}});
    assert_eq!(objects(under_pressure), ["nodes-going"]);
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    assert_eq!(objects(not_ready), ["nodes-going"]);
    assert_eq!(objects(json!({})), ["one-node"]);
}

#[test]
fn all_nodes_that_have_its_endpoints_may_be_about_to_go_and_then_so_is_the_webhook() {
    let (well, lost) = (node("a", "z1", "True"), node("a", "z1", "Unknown"));
    let mut drained = node("b", "z1", "True");
    drained["spec"] = json!({"unschedulable": true});
    let elsewhere = node("c", "z2", "True");
    let both = [("a", true), ("b", true)];
    let with = |first: &Value, endpoints: &[(&str, bool)]| {
        cluster(endpoints, vec![first.clone(), drained.clone(), elsewhere.clone()])
    };
    assert_eq!(with(&lost, &both), ["nodes-going"], "a zone");
    assert_eq!(with(&well, &both), ["one-zone"], "one of them stays");
    assert_eq!(
        with(&well, &[("a", false), ("b", true)]),
        ["nodes-going"],
        "the other is not ready"
    );
    assert_eq!(with(&lost, &[("a", true), ("c", true)]), Vec::<&str>::new());
    assert_eq!(with(&lost, &[("a", true)]), ["nodes-going"], "one Pod alone");
}

#[test]
fn nodes_that_go_are_told_with_the_time_and_with_what_comes_next() {
    let mut lost = node("a", "z1", "Unknown");
    lost["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
    let objects = webhook_with_endpoints(&[("a", true), ("a", true)], vec![lost]);
    let findings = found_in(&estate_of(objects, true));
    let found = findings
        .iter()
        .find(|finding| finding.kind.id == "nodes-going")
        .unwrap();
    assert_eq!(found.severity, FindingSeverity::Critical);
    assert_eq!(
        found.since.map(|since| since.to_string()).as_deref(),
        Some("2026-01-01T00:00:00.000Z")
    );
    for part in [
        "Both ready endpoints are on node \"a\", which is NotReady since 2026-01-01T00:00:00.000Z",
        "replaced elsewhere at 2026-01-01T00:05:00.000Z",
        "kubectl rollout restart",
    ] {
        assert!(found.message.contains(part), "{part}: {}", found.message);
    }
}

/// Gardener: `conversion=Webhook` and more than one stored version. OpenShift: the Service must be there.
#[test]
fn a_webhook_that_converts_stored_objects_is_found_and_one_whose_service_is_missing_in_a_cluster() {
    let converted = |strategy: &str, stored: Value, service: &str, is_cluster: bool| {
        ids(&found_in(&estate_of(
            vec![
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "converter", "namespace": "widgets"},
                       "spec": {"ports": [{"port": 443}]}}),
                json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                       "metadata": {"name": "widgets.example.com"}, "status": {"storedVersions": stored},
                       "spec": {"conversion": {"strategy": strategy, "webhook": {"clientConfig": {"service":
                           {"namespace": "widgets", "name": service}}}}}}),
            ],
            is_cluster,
        )))
    };
    let both = || json!(["v1", "v2"]);
    assert_eq!(
        converted("Webhook", both(), "converter", true),
        ["conversion-stored-versions"]
    );
    assert_eq!(
        converted("Webhook", json!(["v2"]), "gone", true),
        ["conversion-service-missing"]
    );
    assert!(converted("Webhook", json!(["v2"]), "gone", false).is_empty());
    assert!(converted("None", both(), "gone", true).is_empty());
}
