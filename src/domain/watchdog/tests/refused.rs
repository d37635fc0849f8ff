//! Writes that are refused for other reasons than a failed webhook call.

use super::*;
use crate::cluster::hook::MatchCondition;
use crate::diagnose::rules::CONDITIONS_ERR;
use crate::observe::snapshot::Results;

const LEASE: CanaryTarget = CanaryTarget::NodeLease;
const ERRS: &str = "leases.coordination.k8s.io \"hookwatch-canary\" is forbidden: expression \
                    'object.metadata.labels['app'] == 'x'' resulted in error: no such key: labels";

fn refused(status: u16, message: &str) -> CanaryOutcome {
    let message = message.to_owned();
    CanaryOutcome::Refused { status, message }
}

fn denied() -> CanaryOutcome {
    let webhook = "opa".to_owned();
    CanaryOutcome::Denied { webhook }
}

/// Canaries of `target` with these outcomes, one every two seconds from 12 s on. With `before`, earlier ones succeeded. Other
/// writes flow.
fn answered(target: CanaryTarget, before: bool, outcomes: &[CanaryOutcome]) -> Arc<Assessment> {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    if before {
        incident.canary_of(target, 11 * SECOND, 5, CanaryOutcome::Written);
    }
    let mut ms = 12 * SECOND;
    for outcome in outcomes {
        incident.canary_of(target, ms, 5, outcome.clone());
        incident.count_writes(100.0, 0.005, 0.004);
        incident.count_calls("opa", 100.0, 0.001);
        incident.probe(ms, &opa, 0, alive());
        incident.scrape(ms + 20);
        ms += 2 * SECOND;
        incident.tick(ms - SECOND);
    }
    incident.last.clone().expect("it was judged")
}

#[test]
fn refusals_of_the_control_planes_kinds_that_were_written_before_are_told_in_the_api_servers_words() {
    let policy = "leases \"hookwatch-canary\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no";
    for (outcome, words) in [
        (refused(422, policy), "answered with HTTP 422: leases"),
        (refused(403, policy), "answered with HTTP 403: leases"),
        (denied(), "was denied by webhook opa"),
    ] {
        let assessment = answered(LEASE, true, &[outcome.clone(), outcome]);
        let plane = &assessment.control_plane;
        assert_eq!(plane.writes, Writes::Blocked);
        let found = plane.not_a_hook.as_ref().expect("it is told");
        assert_eq!(found.cause, NotAHook::Unexplained);
        let said =
            "Writes of the control plane's kinds are refused: a dry-run write of a Lease in kube-node-lease ";
        assert!(
            found.evidence[0].starts_with(said) && found.evidence[0].contains(words),
            "{:?}",
            found.evidence
        );
        assert!(plane.summary.contains(words), "{}", plane.summary);
        assert_eq!(assessment.culprits().count(), 0);
        // Leases are not renewed any more.
        assert!(
            plane.clocks[0].starts_with("Nodes turn NotReady"),
            "{:?}",
            plane.clocks
        );
    }
}

#[test]
fn one_refusal_or_such_as_there_always_were_or_of_a_tenants_write_block_nothing() {
    let no = || refused(422, "no");
    for (target, before, outcomes) in [
        (LEASE, true, vec![no()]),
        (LEASE, true, vec![no(), CanaryOutcome::Written]),
        (LEASE, false, vec![denied(), denied()]),
        (CanaryTarget::OwnNamespace, true, vec![denied(), denied()]),
    ] {
        let assessment = answered(target, before, &outcomes);
        let plane = &assessment.control_plane;
        let found = (plane.writes, plane.not_a_hook.is_some());
        assert_eq!(found, (Writes::Flowing, false), "{target} {outcomes:?}");
    }
}

#[test]
fn what_is_refused_while_leases_are_written_is_refused_for_its_own_object() {
    let opa = hook("opa", 1);
    let refused_beside = |target, lease_of_a_node: bool, renewals: f64| {
        let mut incident = Incident::calm(&[&opa]);
        incident.canary_of(target, 11 * SECOND, 5, CanaryOutcome::Written);
        for second in [12, 14, 16] {
            let ms = second * SECOND;
            incident.canary_of(target, ms, 5, denied());
            if lease_of_a_node {
                incident.canary_of(LEASE, ms, 5, CanaryOutcome::Written);
            }
            incident.count_writes(100.0, 0.005, 0.004);
            let key = ("coordination.k8s.io".to_owned(), "leases".to_owned());
            let leases: &mut Results = incident.counters.others.results.entry(key).or_default();
            leases.ok += renewals;
            leases.refused += 1.0;
            incident.scrape(ms + 20);
            incident.tick(ms + 30);
        }
        incident.tick(17 * SECOND).control_plane.writes
    };
    let leaders = CanaryTarget::KubeSystem;
    assert_eq!(refused_beside(leaders, false, 0.0), Writes::Blocked);
    assert_eq!(refused_beside(leaders, true, 0.0), Writes::Flowing);
    assert_eq!(refused_beside(leaders, false, 5.0), Writes::Flowing);
    assert_eq!(refused_beside(LEASE, false, 5.0), Writes::Flowing);
}

/// After a calm time, a store that refuses everything except hookwatch's dry runs, while this many webhook calls fail in two
/// seconds.
fn refusing_store(failed_calls: f64) -> Arc<Assessment> {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    for second in (12..30).step_by(2) {
        let ms = second * SECOND;
        incident.canary(ms, 5, CanaryOutcome::Written);
        incident.canary_of(LEASE, ms, 5, CanaryOutcome::Written);
        incident.count_writes(40.0, 0.005, 0.004);
        incident.counters.write_results.ok -= 40.0;
        incident.counters.write_results.failed += 40.0;
        let key = ("coordination.k8s.io".to_owned(), "leases".to_owned());
        let leases: &mut Results = incident.counters.others.results.entry(key).or_default();
        leases.failed += 10.0;
        let series = incident.count_calls("opa", 40.0, 0.001);
        series.rejections.calling += failed_calls;
        incident.probe(ms, &opa, 0, alive());
        incident.scrape(ms + 20);
        incident.tick(ms + 30);
    }
    incident.last.clone().expect("it was judged")
}

#[test]
fn writes_that_fail_while_webhooks_answer_and_dry_runs_pass_are_said_not_to_be_stored() {
    let assessment = refusing_store(0.0);
    let plane = &assessment.control_plane;
    assert_eq!(plane.writes, Writes::Blocked);
    let found = plane.not_a_hook.as_ref().expect("it is told");
    assert_eq!(found.cause, NotAHook::Unexplained);
    assert!(
        found.evidence[0].starts_with("40 of 40 writes end in 5xx, and webhooks failed 0 of them")
            && plane.summary.contains("Check etcd's space and alarms"),
        "{} {:?}",
        plane.summary,
        found.evidence
    );
    // Although dry runs of these writes pass.
    let clocks = &plane.clocks;
    assert!(
        clocks.len() == 3 && clocks[0].starts_with("Leaders lose their Lease"),
        "{clocks:?}"
    );
    let by_a_webhook = refusing_store(30.0);
    assert_eq!(by_a_webhook.culprits().count(), 1);
    assert_eq!(by_a_webhook.control_plane.not_a_hook, None);
}

/// A catch-all webhook with this failurePolicy and two match conditions. In two seconds, one condition has `errors` errors on
/// unlabelled Leases, and the other excludes `exclusions` Leases.
fn erring(policy: FailurePolicy, errors: f64, exclusions: f64) -> (Incident, Arc<Assessment>) {
    let mut opa = hook("opa", 1);
    let condition = |name: &str| MatchCondition {
        name: name.into(),
        expression: "object.metadata.labels['app'] == 'x'".into(),
    };
    opa.match_conditions = ["a", "b"].map(condition).to_vec();
    opa.failure_policy = policy;
    let mut incident = Incident::calm(&[&opa]);
    incident.canary_of(LEASE, 11 * SECOND, 5, CanaryOutcome::Written);
    for second in (12..20).step_by(2) {
        let ms = second * SECOND;
        if policy == FailurePolicy::Fail && exclusions == 0.0 {
            incident.canary_of(LEASE, ms, 2, refused(403, ERRS));
        }
        incident.count_writes(100.0, 0.005, 0.004);
        let series = incident.count_calls("opa", 100.0, 0.001);
        series.condition_errors += errors;
        series.exclusions += exclusions;
        incident.probe(ms, &opa, 0, alive());
        incident.scrape(ms + 20);
        incident.tick(ms + 30);
    }
    let last = incident.last.clone().expect("it was judged");
    (incident, last)
}

#[test]
fn a_webhook_whose_match_condition_errs_under_fail_is_named_for_the_writes_that_are_refused_for_it() {
    let (mut incident, assessment) = erring(FailurePolicy::Fail, 10.0, 0.0);
    let verdict = incident.verdict(20 * SECOND, "opa");
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::Erroring), Effect::Blocking)
    );
    assert_eq!(verdict.rule, CONDITIONS_ERR);
    assert_eq!(
        verdict.summary,
        "opa (opa-configuration) has a match condition that errs; writes that match it are refused."
    );
    let said = verdict
        .evidence
        .iter()
        .any(|said| said.contains("no such key: labels"));
    assert!(said, "{:?}", verdict.evidence);
    assert!(verdict.by_hand.is_some());
    let plane = &assessment.control_plane;
    assert_eq!(
        (plane.writes, plane.not_a_hook.is_none()),
        (Writes::Blocked, true)
    );
    assert!(
        plane.summary.contains("a match condition that errs"),
        "{}",
        plane.summary
    );
}

#[test]
fn conditions_that_err_under_ignore_or_beside_a_false_one_refuse_nothing_and_accuse_no_webhook() {
    // Ten errors may be two for each of five requests.
    for (policy, errors, exclusions) in [
        (FailurePolicy::Ignore, 10.0, 0.0),
        (FailurePolicy::Fail, 10.0, 10.0),
        (FailurePolicy::Fail, 10.0, 5.0),
    ] {
        let (mut incident, _) = erring(policy, errors, exclusions);
        let verdict = incident.verdict(20 * SECOND, "opa");
        assert_judged(&verdict, Health::Healthy, None);
    }
}
