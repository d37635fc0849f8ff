//! What a daemon finds by itself, beside what the command finds.

use std::collections::BTreeSet;
use std::sync::Arc;

use hookwatch::domain::audit::Estate;
use hookwatch::domain::audit::periodic::{AuditEvidence, AuditRequest};
use hookwatch::domain::cluster::hook::Hook;
use hookwatch::domain::cluster::inventory::Inventory;
use serde_json::json;

use super::{estate_of, found_in, webhook};

/// The same as a daemon's watches would have it.
fn inventory(estate: &Estate) -> Inventory {
    let mut hooks: Vec<Arc<Hook>> = estate
        .subjects
        .iter()
        .map(|subject| Arc::clone(&subject.hook))
        .collect();
    hooks.sort_by(|one, other| one.id.cmp(&other.id));
    Inventory {
        hooks,
        namespaces: estate.namespaces.clone(),
        nodes: estate.nodes.clone(),
        ..Inventory::default()
    }
}

fn asked(estate: &Estate) -> AuditRequest {
    AuditRequest {
        inventory: Arc::new(inventory(estate)),
        evidence: AuditEvidence::default(),
        at: estate.at.unwrap(),
    }
}

#[test]
fn a_daemon_finds_what_the_command_finds_where_it_knows_as_much() {
    let ignored = json!({"failurePolicy": "Ignore", "timeoutSeconds": 20});
    let odd = json!({"matchConditions": [{"name": "c", "expression": "request.namespace != 'x'"}]});
    let opted_in = json!({
        "objectSelector": {"matchLabels": {"inject": "yes"}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "opted-in"}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
    });
    let objects = vec![
        webhook("Validating", "policy", json!({})),
        webhook("Mutating", "inject", ignored),
        webhook("Mutating", "another", odd),
        webhook("Mutating", "opted-in", opted_in),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "labels": {"team": "a"}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "policy", "namespace": "policy"},
               "spec": {"clusterIP": "10.1.0.1", "ports": [{"port": 443, "targetPort": 8443}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
               "metadata": {"name": "policy-x", "namespace": "policy", "labels": {"kubernetes.io/service-name": "policy"}},
               "ports": [{"name": "", "port": 8443, "protocol": "TCP"}],
               "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "a"}, {"addresses": ["10.0.0.2"], "nodeName": "a"}]}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {"unschedulable": true}}),
    ];
    let mut estate = estate_of(objects, true);
    estate.services.clear();
    estate
        .subjects
        .iter_mut()
        .for_each(|subject| subject.source = None);
    let (by_command, mut by_daemon) = (found_in(&estate), asked(&estate).run(&|| {}));
    hookwatch::domain::audit::findings::sort(&mut by_daemon);
    assert_eq!(by_daemon, by_command);
    assert!(
        !by_daemon
            .iter()
            .any(|finding| finding.kind.id == "own-pods-in-reach"),
        "its own Pods do not ask for it: {by_daemon:?}"
    );
    let ids: BTreeSet<&str> = by_daemon.iter().map(|finding| finding.kind.id).collect();
    for id in [
        "control-plane-in-reach",
        "fail-open-in-reach",
        "nodes-going",
        "service-missing",
    ] {
        assert!(ids.contains(id), "{id}: {ids:?}");
    }
}

#[test]
fn two_thousand_webhooks_are_audited_in_small_pieces() {
    let conditions =
        json!([{"name": "c", "expression": "!(request.userInfo.username.startsWith('system:'))"}]);
    let all = (0..2_000).map(|number| {
        let kind = if number % 2 == 0 { "Mutating" } else { "Validating" };
        webhook(
            kind,
            &format!("hook-{number}"),
            json!({"matchConditions": conditions}),
        )
    });
    let request = asked(&estate_of(all.collect(), true));
    let pieces = std::cell::Cell::new(0_u32);
    let found = request.run(&|| pieces.set(pieces.get() + 1));
    assert!(!found.is_empty());
    assert!(pieces.get() >= 6_000, "{}", pieces.get());
}
