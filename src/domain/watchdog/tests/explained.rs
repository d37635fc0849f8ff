//! The evidence and explanations of a verdict.

use super::*;
use crate::cluster::condition::BypassCondition;
use crate::diagnose::summary::of_control_plane;

fn says(verdict: &Verdict, words: &str) -> bool {
    verdict.evidence.iter().any(|sentence| sentence.contains(words))
}

/// A slow hook, and everything else as usual.
#[test]
fn what_is_as_ever_is_ruled_out_by_its_figures() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    let step = |incident: &mut Incident, ms: u64, each: f64| {
        incident.count_writes(60.0, 0.005 + each, 0.004);
        incident.count_calls("opa", 60.0, each);
        add(&mut incident.counters.etcd, 100.0, 0.002);
        incident.probe(ms, &opa, 0, alive());
        incident.scrape(ms);
        incident.verdict(ms + 10, "opa")
    };
    for ms in (12..60).step_by(2) {
        step(&mut incident, ms * SECOND, 0.001);
    }
    let mut verdict = step(&mut incident, 60 * SECOND, 0.8);
    for ms in [62, 64, 66] {
        verdict = step(&mut incident, ms * SECOND, 0.8);
    }
    assert_judged(&verdict, Health::Failing, Some(Cause::Slow));
    assert!(says(&verdict, "Ruled out: a hang."), "{:?}", verdict.evidence);
    assert!(
        says(&verdict, "etcd (2 ms a request, usually 2 ms)"),
        "{:?}",
        verdict.evidence
    );
    // A client disconnected before the webhook answered.
    let series = incident.count_calls("opa", 0.0, 0.0);
    *series.codes.entry(503).or_default() += 1.0;
    let verdict = step(&mut incident, 68 * SECOND, 0.8);
    assert_judged(&verdict, Health::Failing, Some(Cause::Slow));
    assert!(!says(&verdict, "Ruled out: a hang."), "{:?}", verdict.evidence);
}

/// A daemon that starts during the incident has no baseline.
#[test]
fn an_etcd_that_was_slow_before_the_first_look_is_found_all_the_same() {
    let opa = hook("opa", 1);
    let mut incident = Incident::with(vec![opa.clone()]);
    for step in 0..4 {
        incident.count_writes(60.0, 0.3, 0.3);
        add(&mut incident.counters.etcd, 200.0, 0.12);
        incident.probe(2 * step * SECOND, &opa, 0, alive());
        incident.scrape(2 * step * SECOND);
    }
    let assessment = incident.tick(6 * SECOND + 10);
    let found = assessment.control_plane.not_a_hook.as_ref();
    assert_eq!(found.map(|found| found.cause), Some(NotAHook::EtcdSlow));
}

#[test]
fn a_refusal_rules_out_a_hang_by_how_soon_it_came() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    for ms in [12, 14, 16] {
        incident.count_writes(20.0, 0.005, 0.004);
        let series = incident.count_calls("opa", 20.0, 0.002);
        series.rejections.calling += 20.0;
        add(&mut series.rejected, 20.0, 0.002);
        incident.probe(ms * SECOND, &opa, 0, ProbeOutcome::Refused);
        incident.scrape(ms * SECOND);
    }
    let verdict = incident.verdict(16 * SECOND + 10, "opa");
    assert_judged(&verdict, Health::Failing, Some(Cause::Refused));
    assert!(
        says(&verdict, "Ruled out: a hang. Failed calls came back after 2 ms"),
        "{:?}",
        verdict.evidence
    );
}

#[test]
fn a_hang_that_probes_do_not_see_says_what_else_it_may_be() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    for ms in [22, 24, 26] {
        incident.count_writes(5.0, 10.005, 0.004);
        let series = incident.count_calls("opa", 5.0, 10.0);
        series.rejections.calling += 5.0;
        add(&mut series.rejected, 5.0, 10.0);
        incident.probe(ms * SECOND, &opa, 0, alive());
        incident.scrape(ms * SECOND);
    }
    let verdict = incident.verdict(26 * SECOND + 10, "opa");
    assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
    assert!(
        says(&verdict, "Not ruled out: Unreachable"),
        "{:?}",
        verdict.evidence
    );
}

#[test]
fn who_cannot_tell_says_why() {
    let mut incident = Incident::with(vec![hook("opa", 1)]);
    let verdict = incident.verdict(SECOND, "opa");
    assert_eq!(verdict.health, Health::Unknown);
    assert!(
        says(&verdict, "No evidence yet: no probe result"),
        "{:?}",
        verdict.evidence
    );
}

#[test]
fn a_backend_that_was_not_probed_yet_is_not_counted_as_bad() {
    let opa = hook("opa", 2);
    let mut incident = Incident::with(vec![opa.clone()]);
    for second in 1..6 {
        incident.probe(second * SECOND, &opa, 0, ProbeOutcome::Refused);
    }
    let verdict = incident.verdict(6 * SECOND, "opa");
    assert!(
        says(&verdict, "The only backend with a probe result is bad: "),
        "{:?}",
        verdict.evidence
    );
    for second in 6..10 {
        incident.probe(second * SECOND, &opa, 1, ProbeOutcome::Refused);
    }
    let verdict = incident.verdict(10 * SECOND, "opa");
    assert!(
        says(&verdict, "All 2 backends are bad: "),
        "{:?}",
        verdict.evidence
    );
}

/// A webhook that none of the blocked writes reaches is not blamed for them.
#[test]
fn a_webhook_that_is_skipped_and_fails_is_told_beside_what_blocks_writes() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    for second in 12..20 {
        incident.probe(second * SECOND, &opa, 0, ProbeOutcome::Refused);
        incident.canary(second * SECOND, 5, refusal("opa", "connection refused"));
    }
    let mut verdict = incident.verdict(20 * SECOND, "opa");
    assert_eq!(verdict.health, Health::Failing);
    let mut top = |bypass, writes| {
        verdict.bypass = bypass;
        of_control_plane(writes, std::slice::from_ref(&verdict), None, &[], false)
    };
    assert!(top(None, Writes::Blocked).starts_with("Writes are blocked; opa"));
    assert!(top(Some(BypassCondition::Shield), Writes::Blocked).starts_with("Writes are blocked; opa"));
    let skipped = top(Some(BypassCondition::Skip), Writes::Blocked);
    assert!(
        skipped.starts_with("Writes are blocked; the cause is not known yet. Beside that: opa"),
        "{skipped}"
    );
    assert!(top(Some(BypassCondition::Skip), Writes::Flowing).starts_with("Writes flow; opa"));
}

/// For example a webhook with `failurePolicy: Ignore` whose Service was deleted with its namespace.
#[test]
fn a_webhook_that_was_left_behind_and_holds_nothing_up_takes_no_blame_for_slow_writes() {
    let (opa, mut left) = (hook("opa", 1), hook("left", 0));
    left.failure_policy = FailurePolicy::Ignore;
    if let HookTarget::Service(target) = &mut left.target {
        target.service = ServiceState::Missing;
    }
    for (etcd, cause, said) in [
        (
            0.12,
            NotAHook::EtcdSlow,
            "Writes are slow; no webhook is to blame: etcd takes its time.",
        ),
        (
            0.001,
            NotAHook::Unexplained,
            "Writes are slow; no webhook is known to be failing. The API server's own part",
        ),
    ] {
        let mut incident = Incident::calm(&[&opa]);
        incident.inventory(11 * SECOND, vec![opa.clone(), left.clone()]);
        for second in (12..40).step_by(2) {
            let (writes, etcd) = if second < 26 { (0.004, 0.001) } else { (0.3, etcd) };
            incident.count_writes(60.0, writes + 0.001, writes);
            incident.count_calls("opa", 60.0, 0.001);
            add(&mut incident.counters.etcd, 200.0, etcd);
            incident.probe(second * SECOND, &opa, 0, alive());
            incident.canary(second * SECOND, 5, CanaryOutcome::Written);
            incident.scrape(second * SECOND);
            incident.tick(second * SECOND + 10);
        }
        let verdict = incident.verdict(40 * SECOND, "left");
        assert_eq!(
            found(&verdict),
            (Health::Failing, Some(Cause::NoService), Effect::FailingOpen)
        );
        let plane = &incident.tick(40 * SECOND + 10).control_plane;
        assert_eq!(plane.not_a_hook.as_ref().map(|found| found.cause), Some(cause));
        assert!(
            plane.summary.starts_with(said) && plane.summary.contains("Beside that: left"),
            "{}",
            plane.summary
        );
    }
}
