//! What a person is told to type.

use super::*;
use crate::cluster::hook::Labels;
use crate::diagnose::verdict::BypassByHand;

/// The label that every namespace has.
fn named(namespace: &str) -> Labels {
    Labels::from([("kubernetes.io/metadata.name".to_owned(), namespace.to_owned())])
}

/// What is said of a hook that refuses every call, and is asked about Deployments where `selector` says.
fn told(selector: Selector) -> Option<BypassByHand> {
    let mut policy = hook("policy", 1);
    for rule in &mut policy.rules {
        rule.api_groups = vec!["apps".into()];
        rule.resources = vec!["deployments".into()];
    }
    policy.namespace_selector = selector;
    let mut incident = Incident::with(Vec::new());
    let namespaces =
        ["kube-system", "kube-node-lease", "hookwatch"].map(|name| (name.to_owned(), named(name)));
    let inventory = Inventory {
        at: Incident::at(0),
        hooks: vec![Arc::new(policy.clone())],
        namespaces: namespaces.into(),
        ..Inventory::default()
    };
    incident.event(0, Event::Inventory(Arc::new(inventory)));
    for second in [2, 4, 6, 8, 10] {
        incident.probe(second * SECOND - 10, &policy, 0, ProbeOutcome::Refused);
        let series = incident.count_calls("policy", 20.0, 0.001);
        series.rejections.calling += 20.0;
        add(&mut series.rejected, 20.0, 0.001);
        incident.scrape(second * SECOND);
    }
    let verdict = incident.verdict(10 * SECOND + 50, "policy");
    assert_eq!(verdict.health, Health::Failing, "{}", verdict.summary);
    verdict.by_hand
}

#[test]
fn a_shield_is_told_of_where_it_spares_something_and_a_skip_where_only_tenants_are_held_up() {
    let everywhere = told(Selector::default()).unwrap();
    assert!(!everywhere.command.contains("--rung"), "{everywhere:?}");
    assert!(everywhere.meaning.contains("shield"), "{everywhere:?}");
    let only_shop = Selector {
        match_labels: named("shop"),
        expressions: Vec::new(),
    };
    let tenants = told(only_shop).unwrap();
    assert!(tenants.command.contains("--rung skip"), "{tenants:?}");
    assert!(tenants.meaning.contains("without review"), "{tenants:?}");
}
