//! What a webhook that is slow anyway says of anything worse, and what most calls being answered says.

use std::collections::BTreeSet;

use super::*;
use crate::domain::act::breaker::Witness;

/// A hook with two backends that has answered probes and calls after two seconds each for a while.
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

/// The same, and of 20 further calls or more so many broke off.
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
            // As many calls are answered at once as are after 5.5 s.
            incident.count_writes(10.0, 2.755, 0.004);
            incident.count_calls("opa", 10.0, 2.75);
            incident.scrape(second * SECOND);
            incident.tick(second * SECOND + 10);
        }
        let verdict = incident.verdict(30 * SECOND + 200, "opa");
        assert_eq!(
            (verdict.health, verdict.cause),
            (Health::Failing, Some(Cause::Slow))
        );
        verdict.effect
    };
    assert_eq!(effect(&[0, 1]), HookEffect::Blocking);
    // Some requests wait so long, and others do not.
    assert_eq!(effect(&[0]), HookEffect::Delaying);
}
