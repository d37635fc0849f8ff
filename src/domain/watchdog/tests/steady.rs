//! Verdicts are stable until there is new evidence.

use super::acting::changed;
use super::bypassed::outage;
use super::*;

/// Counts two seconds of calls, of which some are answered and some time out.
fn count(incident: &mut Incident, answered: f64, timed_out: f64) {
    incident.count_calls("opa", answered, 0.001);
    let series = incident.count_calls("opa", timed_out, 10.0);
    series.rejections.calling += timed_out;
    add(&mut series.rejected, timed_out, 10.0);
}

fn health(incident: &mut Incident, second: u64, outcome: ProbeOutcome) -> Health {
    let ms = second * SECOND;
    let took = if outcome == alive() { 3 } else { 2 * SECOND };
    incident.probe_taking(ms - took, took, &hook("opa", 1), 0, outcome);
    incident.scrape(ms);
    incident.verdict(ms + 10, "opa").health
}

fn timed_out() -> ProbeOutcome {
    let phase = ProbePhase::Connect;
    ProbeOutcome::TimedOut { phase }
}

/// A hook that hung from 10 s to 20 s, perhaps shielded, and was judged healthy at 22 s.
fn recovered(shielded: bool) -> Incident {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    if shielded {
        incident.inventory(13 * SECOND, vec![changed(&opa, "hookwatch.dev/shield")]);
    }
    for second in [14, 16, 18, 20] {
        count(&mut incident, 0.0, 4.0);
        health(&mut incident, second, timed_out());
    }
    assert_eq!(incident.verdict(20 * SECOND + 20, "opa").health, Health::Failing);
    count(&mut incident, 20.0, 0.0);
    assert_eq!(health(&mut incident, 22, alive()), Health::Healthy);
    incident
}

#[test]
fn a_hook_that_was_found_well_is_not_named_again_for_calls_that_began_before() {
    for shielded in [false, true] {
        let mut incident = recovered(shielded);
        for second in [24, 26, 28, 30] {
            count(&mut incident, 20.0, 4.0);
            assert_eq!(
                health(&mut incident, second, alive()),
                Health::Healthy,
                "{second} s, shielded {shielded}"
            );
        }
    }
}

#[test]
fn a_slow_hook_whose_newest_calls_are_quick_is_steadily_not_named() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    let mut look = |second: u64, calls: f64, seconds_each: f64| {
        incident.count_calls("opa", calls, seconds_each);
        incident.count_writes(calls, seconds_each, 0.004);
        incident.probe(second * SECOND - 3, &opa, 0, alive());
        incident.scrape(second * SECOND);
        let ticks = (1..9).map(|tick| incident.verdict(second * SECOND + 200 * tick, "opa").health);
        ticks.collect::<Vec<_>>()
    };
    for second in [14, 16] {
        look(second, 20.0, 1.2);
    }
    assert_eq!(look(18, 20.0, 1.2), [Health::Failing; 8]);
    // Too few calls by themselves: the ten seconds before still count as slow.
    assert_eq!(look(20, 2.0, 0.001), [Health::Suspect; 8]);
}

#[test]
fn a_hook_that_was_found_well_is_named_again_for_calls_that_began_after() {
    let mut incident = recovered(false);
    for second in (24..=34).step_by(2) {
        count(&mut incident, 20.0, 4.0);
        health(&mut incident, second, alive());
    }
    assert_eq!(incident.verdict(34 * SECOND + 20, "opa").health, Health::Failing);
}

#[test]
fn a_hook_that_was_found_well_is_named_again_at_once_when_its_backends_are_dead() {
    let mut incident = recovered(false);
    count(&mut incident, 0.0, 4.0);
    assert_eq!(health(&mut incident, 24, timed_out()), Health::Failing);
}

#[test]
fn a_hook_that_is_called_rarely_stays_named_until_a_call_is_answered() {
    let mut incident = Incident::calm(&[&hook("opa", 1)]);
    count(&mut incident, 0.0, 3.0);
    assert_eq!(health(&mut incident, 90, alive()), Health::Failing);
    for second in (92..=120).step_by(2) {
        count(&mut incident, 0.0, if second % 10 == 0 { 1.0 } else { 0.0 });
        assert_eq!(
            health(&mut incident, second, alive()),
            Health::Failing,
            "{second} s"
        );
    }
    count(&mut incident, 5.0, 0.0);
    assert_eq!(health(&mut incident, 122, alive()), Health::Healthy);
}

fn writes(incident: &mut Incident, second: u64, ok: f64, failed: f64) -> Writes {
    incident.count_writes(ok, 0.005, 0.004);
    incident.count_writes(failed, 0.005, 0.004);
    incident.counters.write_results.ok -= failed;
    incident.counters.write_results.failed += failed;
    incident.scrape(second * SECOND);
    incident.tick(second * SECOND + 10).control_plane.writes
}

#[test]
fn writes_that_were_blocked_still_are_while_many_of_them_fail() {
    let mut incident = Incident::calm(&[&hook("opa", 1)]);
    assert_eq!(writes(&mut incident, 12, 8.0, 5.0), Writes::Flowing);
    assert_eq!(writes(&mut incident, 14, 7.0, 7.0), Writes::Blocked);
    for second in (16..=40).step_by(2) {
        assert_eq!(
            writes(&mut incident, second, 8.0, 5.0),
            Writes::Blocked,
            "{second} s"
        );
    }
    for second in (42..=50).step_by(2) {
        writes(&mut incident, second, 14.0, 0.0);
    }
    assert_eq!(writes(&mut incident, 52, 14.0, 0.0), Writes::Flowing);
}

#[test]
fn writes_that_flowed_a_moment_ago_do_so_still_when_one_canary_has_no_answer() {
    let mut incident = Incident::calm(&[&hook("opa", 1)]);
    let why = || "connection refused".to_owned();
    incident.canary(11 * SECOND, 3, CanaryOutcome::Unreachable { why: why() });
    let writes = |incident: &mut Incident, ms: u64| incident.tick(ms).control_plane.writes;
    assert_eq!(writes(&mut incident, 12 * SECOND), Writes::Flowing);
    assert_eq!(writes(&mut incident, 25 * SECOND), Writes::Unknown);
}

/// The verdict on a hook that answers every probe but whose calls fail at once, while another hook hangs or not.
fn beside(another_hangs: bool) -> Verdict {
    let (opa, gate) = (hook("opa", 1), hook("gate", 1));
    let mut incident = Incident::calm(&[&opa, &gate]);
    for second in [14, 16, 18, 20] {
        let ms = second * SECOND;
        if another_hangs {
            count(&mut incident, 0.0, 4.0);
            incident.probe_taking(ms - 2_000, 2_000, &opa, 0, timed_out());
        } else {
            incident.probe(ms - 3, &opa, 0, alive());
        }
        let series = incident.count_calls("gate", 4.0, 0.01);
        series.rejections.calling += 4.0;
        add(&mut series.rejected, 4.0, 0.01);
        incident.probe(ms - 3, &gate, 0, alive());
        incident.scrape(ms);
        incident.tick(ms + 10);
    }
    let verdict = incident.verdict(20 * SECOND + 20, "opa").health;
    assert_eq!(verdict == Health::Failing, another_hangs);
    incident.verdict(20 * SECOND + 30, "gate")
}

#[test]
fn calls_that_clients_may_have_given_up_because_another_webhook_hangs_name_no_webhook_that_answers() {
    assert_eq!(beside(false).health, Health::Failing);
    let verdict = beside(true);
    assert_eq!((verdict.health, verdict.rule), (Health::Suspect, "a-call-failed"));
}

#[test]
fn a_webhook_that_was_named_as_hanging_and_then_answers_late_is_not_said_to_be_well() {
    let cases = [
        (3, true, Health::Healthy),
        (2_200, false, Health::Suspect),
        (2_200, true, Health::Failing),
    ];
    for (took, a_write_waits, expected) in cases {
        let opa = hook("opa", 1);
        let mut incident = Incident::calm(&[&opa]);
        let begun = 11 * SECOND;
        incident.canary_late(begun);
        incident.probe_late(begun, &opa, 0, 2 * SECOND);
        incident.scrape(begun + 2_000);
        assert_eq!(incident.verdict(begun + 2_100, "opa").health, Health::Failing);
        let answered = begun + 2_200;
        if !a_write_waits {
            incident.canary(begun, 2_200, CanaryOutcome::Written);
        }
        incident.probe_taking(answered - took, took, &opa, 0, alive());
        let verdict = incident.verdict(answered + 10, "opa");
        assert_eq!(verdict.health, expected, "{took} ms: {}", verdict.rule);
    }
}

#[test]
fn a_bypassed_webhook_on_a_lost_way_goes_on_failing_whether_attempts_hang_or_are_told_that_there_is_no_way() {
    let opa = hook("opa", 2);
    let mut incident = outage(&opa);
    let skipped = changed(&opa, "hookwatch.dev/skip");
    incident.inventory(13 * SECOND + 200, vec![skipped.clone()]);
    for ms in (13_300..20_000).step_by(400) {
        for backend in 0..2 {
            let why = "no route to host".to_owned();
            let outcome = ProbeOutcome::Unreachable { why };
            incident.probe_taking(ms - 10, 10, &skipped, backend, outcome);
        }
        if ms % SECOND == 900 {
            incident.scrape(ms);
            let verdict = incident.verdict(ms + 10, "opa");
            assert_eq!(verdict.health, Health::Failing, "{ms} ms: {verdict:?}");
        }
    }
}

#[test]
fn of_backends_that_are_dead_in_different_ways_the_one_that_died_first_tells_the_cause_for_good() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    for second in 12..40 {
        let ms = second * SECOND;
        incident.probe(ms, &opa, 0, ProbeOutcome::Refused);
        // It is probed twice as often from here on.
        for half in 0..if second > 14 { 2 } else { 0 } {
            let why = "no route to host".to_owned();
            incident.probe(ms + 100 + half * 500, &opa, 1, ProbeOutcome::Unreachable { why });
        }
        let verdict = incident.verdict(ms + 800, "opa");
        if second > 16 {
            assert_eq!(verdict.cause, Some(Cause::Refused), "{second} s");
        }
    }
}

#[test]
fn calls_that_clients_gave_up_at_once_do_not_speak_for_a_hook_that_hangs() {
    let mut opa = hook("opa", 1);
    opa.timeout = Duration::from_secs(30);
    let mut incident = Incident::calm(&[&opa]);
    incident.canary_late(11 * SECOND);
    incident.probe_late(11 * SECOND, &opa, 0, 2 * SECOND);
    for second in (14..40).step_by(2) {
        let series = incident.count_calls("opa", 2.0, 0.05);
        *series.codes.entry(503).or_default() += 2.0;
        incident.scrape(second * SECOND);
        let verdict = incident.verdict(second * SECOND + 10, "opa");
        let named = (verdict.health, verdict.cause);
        assert_eq!(named, (Health::Failing, Some(Cause::Hanging)), "{second} s");
    }
}

/// The state of writes every two seconds from 14 s on, while a webhook hangs until 180 s under a shield that exempts canaries.
/// Other writes are refused until 26 s, `refused` every two seconds, and take a second each while `slow`.
fn told_of_writes(refused: f64, slow: fn(u64) -> bool, heard: fn(u64) -> bool) -> Vec<(u64, Writes)> {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    incident.inventory(13 * SECOND, vec![changed(&opa, "hookwatch.dev/shield")]);
    let seconds = (14..=240).step_by(2);
    let told = seconds.map(|second| {
        let ms = second * SECOND;
        if heard(second) {
            incident.canary(ms - 500, 5, CanaryOutcome::Written);
        }
        if second < 26 {
            incident.counters.write_results.failed += refused;
        }
        if slow(second) {
            incident.count_writes(40.0, 1.0, 0.004);
        }
        if second < 180 {
            if heard(second) {
                count(&mut incident, 0.0, 2.0);
            }
            health(&mut incident, second, timed_out());
        } else {
            count(&mut incident, 20.0, 0.0);
            health(&mut incident, second, alive());
        }
        (second, incident.tick(ms + 30).control_plane.writes)
    });
    told.collect()
}

#[test]
fn writes_that_were_delayed_still_are_until_the_webhook_is_well_that_holds_them_up() {
    use Writes::{Delayed, Flowing};
    let changes = |slow: fn(u64) -> bool| {
        let told = told_of_writes(0.0, slow, |_| true).into_iter();
        let mut told: Vec<Writes> = told.map(|(_, writes)| writes).collect();
        told.dedup();
        told
    };
    assert_eq!(changes(|_| false), [Flowing]);
    assert_eq!(
        changes(|second| matches!(second, 30..40 | 140..180)),
        [Flowing, Delayed, Flowing]
    );
}

#[test]
fn slow_writes_that_nothing_explains_are_delayed_once_they_have_been_slow_for_a_while_and_looked_at_at_once()
{
    let opa = hook("opa", 1);
    let told = |slow_until: u64| -> Vec<Writes> {
        let mut incident = Incident::calm(&[&opa]);
        let told = (30..=44).step_by(2).map(|second| {
            incident.canary(second * SECOND - 500, 5, CanaryOutcome::Written);
            let each = if second < slow_until { 1.0 } else { 0.005 };
            incident.count_writes(40.0, each, 0.004);
            incident.scrape(second * SECOND);
            let writes = incident.tick(second * SECOND + 30).control_plane.writes;
            assert!(
                incident.watchdog.attention.everywhere || second >= slow_until,
                "{second} s"
            );
            writes
        });
        told.collect()
    };
    use Writes::{Delayed, Flowing};
    assert_eq!(told(34), [Flowing; 8]);
    let for_long = [
        Flowing, Flowing, Flowing, Flowing, Delayed, Delayed, Delayed, Delayed,
    ];
    assert_eq!(told(60), for_long);
}

#[test]
fn writes_that_were_delayed_still_are_while_nothing_is_heard_of_them() {
    let slow = |second| matches!(second, 30..40);
    for (second, writes) in told_of_writes(0.0, slow, |second| !matches!(second, 40..140)) {
        if (40..140).contains(&second) {
            assert_eq!(writes, Writes::Delayed, "{second} s");
        }
    }
}

#[test]
fn writes_that_were_blocked_are_merely_slow_only_two_minutes_later_while_the_webhook_fails_that_refused_them()
{
    for (second, writes) in told_of_writes(20.0, |second| matches!(second, 26..180), |_| true) {
        match second {
            26..140 => assert_eq!(writes, Writes::Blocked, "{second} s"),
            160..180 => assert_eq!(writes, Writes::Delayed, "{second} s"),
            225.. => assert_eq!(writes, Writes::Flowing, "{second} s"),
            _ => {}
        }
    }
}

#[test]
fn writes_that_were_blocked_do_not_flow_in_a_pause_between_the_slow_ones() {
    let slow = |second| matches!(second, 26..50 | 140..180);
    for (second, writes) in told_of_writes(20.0, slow, |_| true) {
        if (26..180).contains(&second) {
            assert_ne!(writes, Writes::Flowing, "{second} s");
        }
    }
}
