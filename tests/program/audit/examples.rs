//! The incident reports: the day before, the audit names what happened.

use serde_json::Value;

use super::{audit, example};

/// What it says of an example: the exit code, and the findings with their messages.
fn said(name: &str) -> (i32, Vec<(String, String)>, Value) {
    let path = example(name);
    let ran = audit(&["--output", "json", path.to_str().unwrap()], "");
    let document: Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.err));
    let findings = document["findings"].as_array().unwrap().iter().map(|finding| {
        let text = |field: &str| finding[field].as_str().unwrap().to_owned();
        assert!(text("object").contains(&format!("{name}:")), "{finding}");
        (text("id"), text("message"))
    });
    let findings = findings.collect();
    (ran.code, findings, document)
}

fn message<'a>(findings: &'a [(String, String)], id: &str) -> &'a str {
    let found = findings.iter().find(|(known, _)| known == id);
    &found.unwrap_or_else(|| panic!("no {id} in {findings:?}")).1
}

#[test]
fn a_catch_all_hook_without_a_liveness_probe_takes_the_api_server_and_the_nodes_down() {
    let (code, findings, document) = said("gke-opa-outage.yaml");
    assert_eq!(code, 2);
    let reach = message(&findings, "control-plane-in-reach");
    for lost in [
        "api-server-start after 30 to 45 s",
        "node-heartbeat after 29 to 41 s",
        "leader-election after 9.5 to 12.5 s",
    ] {
        assert!(reach.contains(lost), "{reach}");
    }
    message(&findings, "no-liveness-probe");
    message(&findings, "one-replica");
    message(&findings, "catch-all-rules");
    let forecasts = document["forecasts"].as_array().unwrap();
    let ifs: Vec<&str> = forecasts
        .iter()
        .map(|forecast| forecast["if"].as_str().unwrap())
        .collect();
    assert_eq!(ifs, ["hang", "refuse", "slow"]);
    assert_eq!(forecasts[0]["configuration"], "opa-validating-webhook");
    assert_eq!(forecasts[0]["webhook"], "validating-webhook.openpolicyagent.org");
    let first = &forecasts[0]["casualties"][0];
    assert_eq!(
        *first,
        serde_json::json!({"what": "leader-election", "after_seconds": [9.5, 12.5]})
    );
}

#[test]
fn a_timeout_of_30_s_is_what_each_dead_connection_costs_when_a_zone_is_lost() {
    let (code, findings, _) = said("zone-lost.yaml");
    assert_eq!(code, 1);
    let timeout = message(&findings, "long-timeout");
    assert!(
        timeout.contains("30 s") && timeout.contains("pooled connection"),
        "{timeout}"
    );
}

#[test]
fn pods_that_nothing_keeps_apart_go_with_one_node_and_stop_before_requests_do() {
    let (_, findings, _) = said("all-on-one-node.yaml");
    assert!(message(&findings, "not-spread").contains("may be on one node"));
    assert!(message(&findings, "no-grace").contains("preStop"));
}

#[test]
fn a_readiness_probe_of_another_port_and_no_pre_stop_let_objects_in_unchanged() {
    let (code, findings, _) = said("gatekeeper-rollout.yaml");
    assert_eq!(code, 1);
    assert!(message(&findings, "readiness-elsewhere").contains("port 9090"));
    assert!(message(&findings, "no-grace").contains("in every rollout"));
    assert!(message(&findings, "unwatched-fail-open").contains("go in unchanged"));
}

#[test]
fn a_well_scoped_hook_with_three_spread_replicas_has_nothing_worse_than_info() {
    let (code, findings, document) = said("well-scoped.yaml");
    assert_eq!(code, 0, "{findings:?}");
    for forecast in document["forecasts"].as_array().unwrap() {
        let lost = forecast["casualties"].as_array().unwrap().iter();
        let lost: Vec<&str> = lost.map(|casualty| casualty["what"].as_str().unwrap()).collect();
        assert!(lost.iter().all(|lost| *lost == "tenant-writes"), "{forecast}");
    }
}

#[test]
fn the_patch_of_every_critical_example_leaves_none_critical() {
    for name in ["gke-opa-outage.yaml", "all-on-one-node.yaml"] {
        let (_, _, document) = said(name);
        let patches: Vec<Value> = document["findings"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|finding| finding["severity"] == "critical")
            .map(|finding| finding["patch"].clone())
            .collect();
        assert_eq!(patches.len(), 1, "{name}");
        let text = std::fs::read_to_string(example(name)).unwrap();
        let documents = text
            .split("\n---\n")
            .map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
        let mut documents: Vec<Value> = documents.collect();
        let patch: json_patch::Patch = serde_json::from_value(patches[0].clone()).unwrap();
        json_patch::patch(&mut documents[0], &patch).unwrap();
        let patched = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": documents}).to_string();
        let ran = audit(&["-"], &patched);
        assert_eq!(ran.code, 1, "{}", ran.out);
        assert!(ran.out.contains(" 0 critical"), "{}", ran.out);
    }
}
