//! Canaries that the owner's match conditions or an objectSelector exclude from a webhook.

use super::*;
use crate::act::breaker::CanaryEvidence;
use crate::cluster::hook::{Added, MatchCondition};
use crate::observe::canary::FurtherCanary;

/// A catch-all webhook whose match conditions exclude what the Kubernetes documentation recommends.
fn hook_but_for_kube_system() -> Hook {
    let leaves_out = |namespace: &str| MatchCondition {
        name: format!("not-{namespace}"),
        expression: format!("request.namespace != '{namespace}'"),
    };
    Hook {
        match_conditions: vec![leaves_out("kube-system"), leaves_out("kube-node-lease")],
        ..hook("opa", 2)
    }
}

#[test]
fn a_canary_that_a_condition_keeps_from_a_webhook_that_hangs_does_not_speak_for_it() {
    let opa = hook_but_for_kube_system();
    let mut incident = Incident::calm(&[&opa]);
    incident.canary_of(CanaryTarget::OwnNamespace, 10_500, 5, CanaryOutcome::Written);
    incident.canary_of_late(CanaryTarget::OwnNamespace, 11 * SECOND);
    incident.silent(11 * SECOND, &opa, 2 * SECOND);
    incident.canary_of(CanaryTarget::KubeSystem, 12_500, 5, CanaryOutcome::Written);
    incident.canary_of(CanaryTarget::NodeLease, 12_600, 5, CanaryOutcome::Written);
    incident.count_writes(10.0, 0.005, 0.004);
    incident.scrape(13 * SECOND + 50);
    let verdict = incident.verdict(13 * SECOND + 100, "opa");
    assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
}

#[test]
fn on_probation_a_webhook_waits_for_a_canary_that_it_is_asked_about() {
    let opa = hook_but_for_kube_system();
    let mut incident = Incident::calm(&[&opa]);
    let mut tried = opa.clone();
    tried.match_conditions.push(MatchCondition {
        name: "hookwatch.dev/probation".to_owned(),
        expression: "request.dryRun".to_owned(),
    });
    incident.inventory(12 * SECOND, vec![tried.clone()]);
    incident.canary_of(CanaryTarget::KubeSystem, 14_000, 5, CanaryOutcome::Written);
    let facts = incident.facts(14 * SECOND + 10, &tried);
    assert_eq!(facts.canary, CanaryEvidence::Awaited);
    incident.canary_of(CanaryTarget::OwnNamespace, 15_000, 5, CanaryOutcome::Written);
    let facts = incident.facts(15 * SECOND + 10, &tried);
    assert_eq!(facts.canary, CanaryEvidence::Through);
}

#[test]
fn a_configured_canary_covers_no_webhook_whose_conditions_keep_it_away() {
    let asking = |expression: &str| {
        let mut pods = hook("pods", 1);
        pods.rules[0].resources = vec!["pods".to_owned()];
        pods.match_conditions = vec![MatchCondition {
            name: "only".to_owned(),
            expression: expression.to_owned(),
        }];
        let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod"});
        let further = FurtherCanary::new("tenant-pods", "team-a", "pods", pod).unwrap();
        let mut incident = Incident::with(Vec::new());
        incident.watchdog = Watchdog::new("hookwatch").with_canaries(vec![further]);
        incident.inventory(20, vec![pods]);
        incident.tick(30).hooks[0].canaries.len()
    };
    assert_eq!(
        asking("request.namespace == 'team-a' && request.kind.kind == 'Pod'"),
        1
    );
    assert_eq!(asking("has(object.metadata.labels)"), 1, "it may be asked");
    for kept in [
        "request.namespace != 'team-a'",
        "request.operation == 'UPDATE'",
        "!request.dryRun",
    ] {
        assert_eq!(asking(kept), 0, "{kept}");
    }
}

#[test]
fn a_canary_without_the_label_that_a_webhook_selects_by_does_not_speak_for_it() {
    let (mut opa, other) = (hook("opa", 2), hook("other", 1));
    opa.object_selector.match_labels = [("policy".to_owned(), "on".to_owned())].into();
    let mut incident = Incident::calm(&[&opa, &other]);
    for second in 11..=32 {
        let timed_out = ProbeOutcome::TimedOut {
            phase: ProbePhase::Tls,
        };
        for backend in (0..2).filter(|_| [21, 31].contains(&second)) {
            let began = (second - 10) * SECOND;
            incident.probe_taking(began, 10 * SECOND, &opa, backend, timed_out.clone());
        }
        incident.probe(second * SECOND + 10, &other, 0, alive());
        incident.canary(second * SECOND + 20, 5, CanaryOutcome::Written);
        incident.count_writes(200.0, 0.005, 0.004);
        incident.scrape(second * SECOND + 100);
    }
    let verdict = incident.verdict(32 * SECOND + 200, "opa");
    assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
}

#[test]
fn a_shield_keeps_a_configured_canary_from_a_webhook_where_its_owner_added_what_it_writes() {
    let reaching = |added: Added| {
        let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod"});
        let further = FurtherCanary::new("tenant-pods", "team-a", "pods", pod).unwrap();
        let target = further.target;
        let mut incident = Incident::with(Vec::new());
        incident.watchdog = Watchdog::new("hookwatch").with_canaries(vec![further]);
        let mut shielded = acting::changed(&hook("opa", 1), "hookwatch.dev/shield");
        shielded.added = added;
        incident.inventory(20, vec![shielded.clone()]);
        incident
            .watchdog
            .seen
            .coverage
            .reaching(&shielded)
            .contains(&target)
    };
    assert!(reaching(Added::default()));
    let own = Added {
        own: Some("team-a".to_owned()),
        leases: Vec::new(),
    };
    assert!(!reaching(own));
    let leases = Added {
        own: None,
        leases: vec!["team-a".to_owned()],
    };
    assert!(reaching(leases), "a Pod is no Lease");
}
