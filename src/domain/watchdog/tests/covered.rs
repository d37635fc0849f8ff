//! Canaries that the owner's match conditions keep from a webhook.

use super::*;
use crate::domain::act::breaker::CanaryWord;
use crate::domain::cluster::hook::MatchCondition;

/// A catch-all webhook that leaves out what the documentation of Kubernetes tells it to, by match conditions.
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
    for backend in 0..2 {
        incident.probe_late(11 * SECOND, &opa, backend, 2 * SECOND);
    }
    incident.canary_of(CanaryTarget::KubeSystem, 12_500, 5, CanaryOutcome::Written);
    incident.canary_of(CanaryTarget::NodeLease, 12_600, 5, CanaryOutcome::Written);
    incident.count_writes(10.0, 0.005, 0.004);
    incident.scrape(13 * SECOND + 50);
    let verdict = incident.verdict(13 * SECOND + 100, "opa");
    assert_eq!(
        (verdict.health, verdict.cause),
        (Health::Failing, Some(Cause::Hanging)),
        "{:?}",
        verdict.evidence
    );
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
    assert_eq!(facts.canary, CanaryWord::Awaited);
    incident.canary_of(CanaryTarget::OwnNamespace, 15_000, 5, CanaryOutcome::Written);
    let facts = incident.facts(15 * SECOND + 10, &tried);
    assert_eq!(facts.canary, CanaryWord::Through);
}
