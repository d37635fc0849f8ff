//! Failed calls in the API server's counters, and their effect on writes.

use super::*;

/// Two seconds in which every backend of the hook answers probes, and the hook answers `calls` calls in 1 ms each.
fn two_seconds(incident: &mut Incident, ms: u64, hook: &Hook, calls: f64) {
    incident.count_writes(calls, 0.005, 0.004);
    incident.count_calls(&hook.id.webhook, calls, 0.001);
    incident.answers(ms, hook);
    for target in [CanaryTarget::KubeSystem, CanaryTarget::NodeLease] {
        incident.canary_of(target, ms, 5, CanaryOutcome::Written);
    }
}

/// Counts calls that failed after this many seconds each, according to the hook's failurePolicy.
fn fail(incident: &mut Incident, hook: &Hook, calls: f64, seconds: f64) {
    let series = incident.count_calls(&hook.id.webhook, calls, seconds);
    *series.codes.entry(503).or_default() += calls;
    match hook.failure_policy {
        FailurePolicy::Fail => {
            series.rejections.calling += calls;
            add(&mut series.rejected, calls, seconds);
        }
        FailurePolicy::Ignore => series.fail_open += calls,
    }
}

fn both_policies() -> [Hook; 2] {
    [FailurePolicy::Fail, FailurePolicy::Ignore].map(|failure_policy| Hook {
        failure_policy,
        ..hook("opa", 1)
    })
}

#[test]
fn a_patch_that_cannot_be_applied_refuses_writes_under_either_policy() {
    for mut opa in both_policies() {
        opa.id.kind = HookKind::Mutating;
        let mut incident = Incident::calm(&[&opa]);
        let key = (HookKind::Mutating, "opa".to_owned());
        for second in (12..20).step_by(2) {
            incident.answers(second * SECOND - 10, &opa);
            let series = incident.counters.hooks.entry(key.clone()).or_default();
            add(&mut series.calls, 20.0, 0.002);
            add(&mut series.rejected, 20.0, 0.002);
            series.rejections.internal += 20.0;
            *series.codes.entry(0).or_default() += 20.0;
            incident.scrape(second * SECOND);
            incident.tick(second * SECOND + 10);
        }
        let verdict = incident.verdict(19 * SECOND, "opa");
        assert_eq!(
            found(&verdict),
            (Health::Failing, Some(Cause::Erroring), Effect::Blocking),
            "{:?}",
            opa.failure_policy
        );
        assert!(!verdict.fails_open && verdict.by_hand.is_some());
        let said = verdict.evidence.join(" ");
        assert!(said.contains("Its patch cannot be applied"), "{said}");
    }
}

#[test]
fn calls_that_run_into_their_timeout_hang_however_many_more_their_clients_gave_up() {
    for opa in both_policies() {
        let mut incident = Incident::calm(&[&opa]);
        for second in (14..30).step_by(4) {
            incident.answers(second * SECOND - 10, &opa);
            fail(&mut incident, &opa, 3.0, 10.0);
            // A call whose client disconnected counts with code 503, and as rejected under `Fail`.
            let series = incident.count_calls("opa", 30.0, 5.0);
            *series.codes.entry(503).or_default() += 30.0;
            if opa.failure_policy == FailurePolicy::Fail {
                add(&mut series.rejected, 30.0, 5.0);
            }
            incident.scrape(second * SECOND);
            incident.tick(second * SECOND + 10);
        }
        let verdict = incident.verdict(27 * SECOND, "opa");
        assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
    }
}

#[test]
fn a_webhook_that_hangs_for_a_part_of_its_calls_blocks_no_writes_that_canaries_show_to_be_in_time() {
    for opa in both_policies() {
        let mut incident = Incident::calm(&[&opa]);
        for second in (14..26).step_by(2) {
            two_seconds(&mut incident, second * SECOND - 500, &opa, 75.0);
            fail(&mut incident, &opa, 5.0, 10.0);
            incident.scrape(second * SECOND);
            incident.tick(second * SECOND + 10);
        }
        let verdict = incident.verdict(25 * SECOND, "opa");
        assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
        let (evidence, summary) = (verdict.evidence.join(" "), &verdict.summary);
        assert!(!evidence.contains("A renewal of a"), "{evidence}");
        assert!(
            summary.contains("leaves 5 of 80 calls unanswered; writes that "),
            "{summary}"
        );
        let ignored = opa.failure_policy == FailurePolicy::Ignore;
        assert_eq!(verdict.effect == Effect::Delaying, ignored);
        assert_eq!(summary.contains("writes that meet that are refused"), !ignored);
    }
}

#[test]
fn what_is_usual_is_learnt_beside_a_webhook_that_fails_for_good_and_holds_no_writes_up() {
    for failure_policy in [FailurePolicy::Fail, FailurePolicy::Ignore] {
        let mut legacy = hook("legacy", 1);
        legacy.failure_policy = failure_policy;
        if let HookTarget::Service(target) = &mut legacy.target {
            target.service = ServiceState::Missing;
        }
        let opa = hook("opa", 1);
        let mut incident = Incident::with(vec![legacy, opa.clone()]);
        let mut usual = Vec::new();
        for second in (2..100).step_by(2) {
            two_seconds(&mut incident, second * SECOND - 500, &opa, 20.0);
            incident.scrape(second * SECOND);
            usual.push(
                incident
                    .tick(second * SECOND + 10)
                    .control_plane
                    .usual_write_seconds,
            );
        }
        let verdict = incident.verdict(100 * SECOND, "legacy");
        assert_judged(&verdict, Health::Failing, Some(Cause::NoService));
        assert_eq!(usual[15], None, "a fault is news for a minute");
        assert!(usual.last().is_some_and(Option::is_some), "{failure_policy:?}");
    }
}
