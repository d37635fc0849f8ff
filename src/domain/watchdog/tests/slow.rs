//! Webhooks that are always slow and then get worse, and webhooks that answer most calls.

use std::collections::BTreeSet;

use super::acting::changed;
use super::*;
use crate::act::breaker::Witness;

/// A hook with two backends that has answered probes and calls in two seconds each for a while.
fn always_slow(opa: &Hook) -> Incident {
    let mut incident = Incident::calm(&[opa]);
    for second in [12, 14, 16, 18] {
        for backend in 0..2 {
            incident.probe_taking(second * SECOND - 2_000, 2_000, opa, backend, alive());
        }
        incident.count_calls("opa", 20.0, 2.0);
        incident.scrape(second * SECOND);
    }
    incident
}

fn witnesses(incident: &mut Incident, opa: &Hook, cause: Cause) -> BTreeSet<Witness> {
    incident
        .facts_if(20 * SECOND + 50, opa, Some(cause), false)
        .witnesses
}

#[test]
fn late_answers_speak_for_a_slow_hook_and_for_nothing_that_fails_at_once() {
    let opa = hook("opa", 2);
    let mut incident = always_slow(&opa);
    let speak = |incident: &mut Incident, cause| witnesses(incident, &opa, cause);
    let both = BTreeSet::from([Witness::Probes, Witness::Counters]);
    assert_eq!(speak(&mut incident, Cause::Slow), both);
    let counters = BTreeSet::from([Witness::Counters]);
    assert_eq!(speak(&mut incident, Cause::StaleConnection), counters);
    for cause in [Cause::Erroring, Cause::Refused, Cause::TlsInvalid] {
        assert_eq!(speak(&mut incident, cause), BTreeSet::new(), "{cause}");
    }
}

/// The same; of at least 20 further calls, `failed` broke off.
fn breaking_off(opa: &Hook, failed: f64) -> Incident {
    let mut incident = always_slow(opa);
    incident.canary(19 * SECOND, 500, refusal("opa", "EOF"));
    let series = incident.count_calls("opa", failed.max(20.0), 1.5);
    series.rejections.calling += failed;
    add(&mut series.rejected, failed, 1.5);
    incident.scrape(20 * SECOND);
    incident
}

#[test]
fn calls_that_broke_off_while_endpoints_change_are_no_evidence_as_long_as_most_are_answered() {
    let opa = hook("opa", 2);
    let both = BTreeSet::from([Witness::Canary, Witness::Counters]);
    let speak = |failed: f64, moves: bool| {
        let mut incident = breaking_off(&opa, failed);
        if moves {
            incident.inventory(20 * SECOND + 30, vec![hook("opa", 3)]);
        }
        let hook = if moves { hook("opa", 3) } else { opa.clone() };
        witnesses(&mut incident, &hook, Cause::Erroring)
    };
    assert_eq!(speak(4.0, true), BTreeSet::new());
    assert_eq!(speak(4.0, false), both);
    assert_eq!(speak(100.0, true), both);
}

#[test]
fn a_few_calls_that_took_too_long_are_no_hang_where_every_backend_answers() {
    let opa = hook("opa", 2);
    let speak = |failed: f64| witnesses(&mut breaking_off(&opa, failed), &opa, Cause::Hanging);
    assert_eq!(speak(4.0), BTreeSet::new());
    assert_eq!(speak(20.0), BTreeSet::from([Witness::Canary, Witness::Counters]));
}

#[test]
fn what_a_slow_webhook_costs_now_is_told_by_probes_while_its_mean_still_holds_quick_calls() {
    let effect = |slow: &[usize]| {
        let opa = hook("opa", 2);
        let mut incident = Incident::calm(&[&opa]);
        for second in [18, 24, 30] {
            for backend in 0..2 {
                let took = if slow.contains(&backend) { 5_500 } else { 5 };
                incident.probe_taking(second * SECOND - took, took, &opa, backend, alive());
            }
            incident.canary(second * SECOND - 5_600, 5_500, CanaryOutcome::Written);
            // Half of the calls are answered at once, the other half after 5.5 s.
            incident.count_writes(10.0, 2.755, 0.004);
            incident.count_calls("opa", 10.0, 2.75);
            incident.scrape(second * SECOND);
            incident.tick(second * SECOND + 10);
        }
        let verdict = incident.verdict(30 * SECOND + 200, "opa");
        assert_judged(&verdict, Health::Failing, Some(Cause::Slow));
        verdict.effect
    };
    assert_eq!(effect(&[0, 1]), Effect::Blocking);
    // Only some requests wait that long.
    assert_eq!(effect(&[0]), Effect::Delaying);
}

#[test]
fn writes_that_take_three_seconds_each_are_delayed_and_not_blocked_by_turns() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    incident.canary(11 * SECOND, 3 * SECOND, CanaryOutcome::Written);
    incident.canary(11 * SECOND + 500, 3 * SECOND, CanaryOutcome::Written);
    incident.canary_late(13 * SECOND);
    let mut writes_at = |ms| incident.tick(ms).control_plane.writes;
    // At first, these may be a few large writes.
    assert_eq!(writes_at(15 * SECOND + 100), Writes::Flowing);
    assert_eq!(writes_at(20 * SECOND + 100), Writes::Blocked);
}

#[test]
fn writes_that_always_take_seconds_are_not_blocked_whenever_a_quick_one_precedes_a_slow_one() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    incident.canary(11 * SECOND, 2 * SECOND, CanaryOutcome::Written);
    incident.canary(13 * SECOND + 500, SECOND, CanaryOutcome::Written);
    incident.canary_late(15 * SECOND);
    let mut writes_at = |ms| incident.tick(ms).control_plane.writes;
    assert_eq!(writes_at(18 * SECOND + 500), Writes::Flowing);
    assert_eq!(writes_at(19 * SECOND + 100), Writes::Blocked);
}

#[test]
fn slow_calls_block_no_writes_that_canaries_show_to_be_in_time() {
    let effect = |took: u64| {
        let opa = hook("opa", 1);
        let mut incident = Incident::calm(&[&opa]);
        for second in 13..40 {
            incident.canary(second * SECOND - took, took, CanaryOutcome::Written);
            // A few calls with a lost packet could give such a mean.
            incident.count_writes(100.0, 5.2, 0.004);
            incident.count_calls("opa", 100.0, 5.1);
            incident.scrape(second * SECOND);
            incident.tick(second * SECOND + 10);
        }
        let verdict = incident.verdict(39 * SECOND + 200, "opa");
        assert_eq!(verdict.cause, Some(Cause::Slow));
        verdict.effect
    };
    assert_eq!(effect(4_500), Effect::Delaying);
    assert_eq!(effect(5_100), Effect::Blocking);
}

#[test]
fn what_has_been_slow_for_ten_seconds_costs_what_all_of_its_calls_did() {
    let effect = |steady: f64| {
        let opa = hook("opa", 1);
        let mut incident = Incident::calm(&[&opa]);
        let slow = |incident: &mut Incident, second: u64, seconds: f64| {
            incident.canary(second * SECOND - 5_100, 5_100, CanaryOutcome::Written);
            incident.count_writes(20.0, seconds + 0.1, 0.004);
            incident.count_calls("opa", 20.0, seconds);
            incident.scrape(second * SECOND);
            incident.tick(second * SECOND + 10);
        };
        for step in 0..12 {
            slow(&mut incident, 18 + 2 * step, steady);
        }
        // Two seconds in which a few calls were late.
        slow(&mut incident, 42, 5.2);
        incident.verdict(42 * SECOND + 200, "opa").effect
    };
    assert_eq!(effect(4.4), Effect::Delaying);
    assert_eq!(effect(5.1), Effect::Blocking);
}

/// Whether the shield may be removed depends on how long writes would wait without it, which the exempted canaries do not
/// show.
#[test]
fn a_shielded_webhook_is_held_against_the_deadlines_that_it_would_pass_without_its_shield() {
    let without_shield = |seconds: f64, owners: bool| {
        let mut opa = hook("opa", 1);
        if owners {
            opa.match_conditions = changed(&opa, "only-what-we-own").match_conditions;
        }
        let mut incident = Incident::calm(&[&opa]);
        opa.match_conditions
            .extend(changed(&opa, "hookwatch.dev/shield").match_conditions);
        incident.inventory(12 * SECOND, vec![opa.clone()]);
        for second in (20..44).step_by(2) {
            incident.canary(second * SECOND - 5, 5, CanaryOutcome::Written);
            incident.count_writes(20.0, seconds + 0.1, 0.004);
            incident.count_calls("opa", 20.0, seconds);
            incident.scrape(second * SECOND);
            incident.tick(second * SECOND + 10);
        }
        let verdict = incident.verdict(42 * SECOND + 200, "opa");
        assert_eq!(
            (verdict.cause, verdict.effect),
            (Some(Cause::Slow), Effect::Delaying)
        );
        incident.facts(42 * SECOND + 200, &opa).effect
    };
    assert_eq!(without_shield(4.4, false), Effect::Delaying);
    assert_eq!(without_shield(5.1, false), Effect::Blocking);
    // While the shield exempts the canaries, nothing shows which requests the owner's conditions let through.
    assert_eq!(without_shield(5.1, true), Effect::Blocking);
}

#[test]
fn calls_that_break_off_in_a_rollout_of_a_slow_webhook_are_the_rollouts() {
    let opa = hook("opa", 2);
    let cause = |moves: bool| {
        let mut incident = always_slow(&opa);
        if moves {
            incident.inventory(18 * SECOND + 500, vec![hook("opa", 3)]);
        }
        let series = incident.count_calls("opa", 20.0, 1.5);
        series.rejections.calling += 4.0;
        add(&mut series.rejected, 4.0, 0.5);
        incident.scrape(20 * SECOND);
        incident.verdict(20 * SECOND + 50, "opa").cause
    };
    assert_eq!(cause(true), Some(Cause::RolloutGap));
    assert_eq!(cause(false), Some(Cause::Erroring));
}

#[test]
fn a_failed_call_is_not_said_to_have_taken_what_the_answered_ones_did() {
    let said = |seconds: f64| {
        let mut opa = hook("opa", 1);
        opa.failure_policy = FailurePolicy::Ignore;
        let mut incident = Incident::calm(&[&opa]);
        let series = incident.count_calls("opa", 100.0, seconds);
        series.fail_open += 3.0;
        incident.scrape(12 * SECOND);
        incident.verdict(12 * SECOND + 50, "opa").evidence.join(" ")
    };
    let quick = said(0.1);
    assert!(
        quick.contains(
            "3 failed calls of 100 in 2.0 s, after 3.3 s each; those writes passed without review."
        ),
        "{quick}"
    );
    let slow = said(2.0);
    assert!(
        slow.contains("3 failed calls of 100 in 2.0 s; those writes passed without review."),
        "{slow}"
    );
}

#[test]
fn one_probe_that_is_silent_makes_a_part_dead_where_it_is_silent_for_longer_than_answers_ever_take() {
    let opa = hook("opa", 2);
    let silent = |mut incident: Incident, waiting: u64, reached: bool| {
        incident.count_calls("opa", 20.0, 2.0).rejections.calling += 3.0;
        incident.scrape(18 * SECOND + 900);
        incident.probe_taking(16 * SECOND + 100, 300, &opa, 0, alive());
        incident.probe_late(16 * SECOND + 500, &opa, 0, waiting);
        if reached {
            incident.probe_taking(17 * SECOND, 300, &opa, 1, alive());
        }
        let at = 16 * SECOND + 550 + waiting;
        incident.facts_if(at, &opa, Some(Cause::Partial), false).witnesses
    };
    let both = BTreeSet::from([Witness::Probes, Witness::Counters]);
    assert_eq!(silent(Incident::calm(&[&opa]), 3_500, true), both);
    assert_eq!(silent(always_slow(&opa), 3_500, true), BTreeSet::new());
    assert_eq!(silent(always_slow(&opa), 4_500, true), both);
    // Nothing else has answered since, so the fault may be hookwatch's own path to the Pods.
    assert_eq!(silent(always_slow(&opa), 4_500, false), BTreeSet::new());
}

#[test]
fn one_silent_probe_of_a_webhook_that_never_answered_is_a_witness_once_it_is_silent_for_longer_than_slow_ones()
 {
    let (opa, new) = (hook("opa", 1), hook("new", 1));
    let witnesses = |known: bool, waiting: u64| {
        let mut incident = Incident::calm(&[&opa]);
        incident.inventory(16 * SECOND, vec![opa.clone(), new.clone()]);
        if known {
            incident.probe_taking(16 * SECOND, 100, &new, 0, alive());
        }
        incident.probe_late(16 * SECOND + 200, &new, 0, waiting);
        let at = 16 * SECOND + 250 + waiting;
        incident.facts_if(at, &new, Some(Cause::Hanging), false).witnesses
    };
    let probes = BTreeSet::from([Witness::Probes]);
    assert_eq!(witnesses(true, 1_600), probes);
    assert_eq!(witnesses(false, 2_900), BTreeSet::new());
    assert_eq!(witnesses(false, 3_000), probes);
}

#[test]
fn a_hook_that_sees_nothing_but_deletions_and_is_slow_is_named() {
    let guard = hook("guard", 1);
    let mut incident = Incident::calm(&[&guard]);
    let mut health = Health::Healthy;
    for second in (14..40).step_by(2) {
        incident.count_writes(200.0, 0.005, 0.004);
        let series = incident
            .counters
            .hooks
            .entry((HookKind::Validating, "guard".into()));
        add(&mut series.or_default().calls, 10.0, 3.0);
        incident.probe_taking(second * SECOND - 3_000, 3_000, &guard, 0, alive());
        incident.scrape(second * SECOND);
        health = incident.verdict(second * SECOND + 10, "guard").health;
    }
    assert_eq!(health, Health::Failing);
}
