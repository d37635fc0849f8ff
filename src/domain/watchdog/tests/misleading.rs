//! Incidents with misleading evidence: it fits two hooks, is old, or comes from hookwatch itself.

use super::*;
use crate::act::breaker::Witness;
use crate::cluster::hook::UrlTarget;

fn failing(assessment: &Assessment) -> Vec<&str> {
    let named = assessment.culprits();
    named
        .filter_map(|verdict| verdict.configuration.as_deref())
        .collect()
}

/// Two hooks with the same name in two configurations, each with its own Service.
fn homonyms() -> (Hook, Hook) {
    let (mut a, mut b) = (hook("a", 1), hook("b", 1));
    a.id = HookId::new(HookKind::Validating, "a", "same");
    b.id = HookId::new(HookKind::Validating, "b", "same");
    (a, b)
}

fn refusal_of(webhook: &str, call: &str) -> CanaryOutcome {
    let message = format!("Internal error occurred: failed calling webhook \"{webhook}\": {call}");
    CanaryOutcome::from_status(500, &message)
}

fn never_answers(incident: &mut Incident, hook: &Hook, from_ms: u64, times: u64) {
    for step in 0..times {
        let outcome = ProbeOutcome::TimedOut {
            phase: ProbePhase::Connect,
        };
        incident.probe_taking(from_ms + step * 2 * SECOND, 2 * SECOND, hook, 0, outcome);
    }
}

#[test]
fn the_url_in_a_refusal_tells_two_hooks_of_one_name_apart() {
    let (a, b) = homonyms();
    let mut incident = Incident::calm(&[&a, &b]);
    let call =
        "failed to call webhook: Post \"https://a.ns.svc:443/?timeout=10s\": context deadline exceeded";
    incident.canary(11 * SECOND, 10 * SECOND, refusal_of("same", call));
    let assessment = incident.tick(21 * SECOND + 10);
    assert_eq!(failing(&assessment), ["a"]);
    let innocent = assessment
        .hooks
        .iter()
        .find(|v| v.configuration.as_deref() == Some("b"));
    let innocent = innocent.expect("b is judged");
    assert_eq!(innocent.cause, None, "{:?}", innocent.evidence);
    assert!(
        !innocent
            .evidence
            .iter()
            .any(|said| said.contains("refused a dry-run write"))
    );
}

#[test]
fn the_url_tells_a_mutating_from_a_validating_hook_of_the_same_name() {
    let (mut a, b) = homonyms();
    a.id.kind = HookKind::Mutating;
    a.target = HookTarget::Url(UrlTarget {
        host: "a.example".into(),
        port: 443,
        path: "/mutate".into(),
    });
    let mut incident = Incident::calm(&[&a, &b]);
    let call = "failed to call webhook: Post \"https://a.example/mutate?timeout=10s\": EOF";
    incident.canary(11 * SECOND, 5, refusal_of("same", call));
    assert_eq!(failing(&incident.tick(11 * SECOND + 10)), ["a"]);
}

#[test]
fn a_refusal_without_a_url_accuses_none_of_two_hooks_of_one_name_until_probes_tell_them_apart() {
    let (a, b) = homonyms();
    let mut incident = Incident::calm(&[&a, &b]);
    let call = "received invalid webhook response: expected response.uid=\"1\", got \"2\"";
    incident.canary(11 * SECOND, 5, refusal_of("same", call));
    let assessment = incident.tick(11 * SECOND + 10);
    assert_eq!(failing(&assessment), [] as [&str; 0]);
    assert!(
        assessment
            .hooks
            .iter()
            .all(|verdict| verdict.health == Health::Suspect)
    );
    for step in 0..2 {
        incident.probe(12 * SECOND + step, &a, 0, ProbeOutcome::Refused);
        incident.probe(12 * SECOND + step, &b, 0, alive());
    }
    assert_eq!(failing(&incident.tick(12 * SECOND + 100)), ["a"]);
}

/// hookwatch cannot reach `far`, which is not the hook's fault, and another hook's outage does not change that.
#[test]
fn a_hook_that_was_never_reached_from_here_is_not_blamed_when_another_one_hangs() {
    let (near, far) = (hook("near", 1), hook("far", 1));
    let mut incident = Incident::with(vec![near.clone(), far.clone()]);
    incident.probe(0, &near, 0, alive());
    never_answers(&mut incident, &far, 0, 4);
    incident.probe(8 * SECOND, &near, 0, alive());
    incident.canary(8 * SECOND, 5, CanaryOutcome::Written);
    incident.tick(9 * SECOND);
    incident.canary_late(11 * SECOND);
    incident.probe_late(11 * SECOND, &near, 0, 2 * SECOND);
    incident.probe_late(11 * SECOND, &far, 0, 2 * SECOND);
    incident.scrape(13 * SECOND);
    assert_eq!(failing(&incident.tick(13 * SECOND + 10)), ["near-configuration"]);
}

#[test]
fn a_hook_that_answers_the_api_server_is_not_blamed_for_another_ones_hang() {
    let (culprit, cut_off) = (hook("culprit", 1), hook("cut-off", 1));
    let mut incident = Incident::calm(&[&culprit, &cut_off]);
    never_answers(&mut incident, &cut_off, 11 * SECOND, 4);
    for step in 0..4 {
        incident.count_writes(100.0, 0.005, 0.004);
        incident.count_calls("culprit", 100.0, 0.001);
        incident.count_calls("cut-off", 100.0, 0.001);
        incident.probe(12 * SECOND + step * 2 * SECOND, &culprit, 0, alive());
        incident.scrape(12 * SECOND + step * 2 * SECOND);
        incident.tick(12 * SECOND + step * 2 * SECOND + 10);
    }
    incident.canary_late(19 * SECOND);
    incident.probe_late(19 * SECOND, &culprit, 0, 2 * SECOND);
    incident.probe_late(19 * SECOND, &cut_off, 0, 2 * SECOND);
    assert_eq!(
        failing(&incident.tick(22 * SECOND + 10)),
        ["culprit-configuration"]
    );
}

#[test]
fn a_slow_way_from_here_is_no_slow_hook_while_the_api_server_is_answered_fast() {
    let (slow, innocent) = (hook("slow", 1), hook("innocent", 1));
    let mut incident = Incident::calm(&[&slow, &innocent]);
    for step in 0..4 {
        let ms = 11 * SECOND + step * 2 * SECOND;
        for one in [&slow, &innocent] {
            incident.probe_taking(ms, 1_200, one, 0, alive());
        }
        incident.canary(ms, 1_200, CanaryOutcome::Written);
        incident.count_writes(20.0, 1.205, 0.004);
        incident.count_calls("slow", 20.0, 1.2);
        incident.count_calls("innocent", 20.0, 0.001);
        incident.scrape(ms + 1_500);
        incident.tick(ms + 1_600);
    }
    assert_eq!(failing(&incident.tick(19 * SECOND)), ["slow-configuration"]);
}

/// Leases and node status are most of a cluster's writes, and few hooks see them.
#[test]
fn a_slow_hook_that_sees_few_of_the_writes_is_a_culprit_all_the_same() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    for step in 1..4 {
        incident.count_writes(990.0, 0.005, 0.004);
        incident.count_writes(10.0, 0.805, 0.004);
        incident.count_calls("opa", 10.0, 0.8);
        incident.scrape(10 * SECOND + step * 2 * SECOND);
        incident.tick(10 * SECOND + step * 2 * SECOND + 10);
    }
    let verdict = incident.verdict(17 * SECOND, "opa");
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::Slow), Effect::Delaying)
    );
}

#[test]
fn two_calls_in_a_hundred_that_time_out_do_not_make_a_hook_slow() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    incident.count_writes(98.0, 0.005, 0.004);
    incident.count_writes(2.0, 10.0, 0.004);
    incident.count_calls("opa", 98.0, 0.001);
    let series = incident.count_calls("opa", 2.0, 10.0);
    series.rejections.calling += 2.0;
    add(&mut series.rejected, 2.0, 10.0);
    incident.scrape(13 * SECOND);
    let verdict = incident.verdict(13 * SECOND + 10, "opa");
    assert_judged(&verdict, Health::Suspect, Some(Cause::Hanging));
}

#[test]
fn where_little_is_written_a_minute_of_failed_calls_is_an_outage() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    let mut verdict = None;
    for step in 0..5 {
        let ms = 75 * SECOND + step * 10 * SECOND;
        let series = incident.count_calls("opa", 1.0, 0.002);
        series.rejections.calling += 1.0;
        add(&mut series.rejected, 1.0, 0.002);
        for tenth in 0..5 {
            incident.probe(ms + tenth * 2 * SECOND, &opa, 0, alive());
            incident.scrape(ms + tenth * 2 * SECOND);
            verdict = Some(incident.verdict(ms + tenth * 2 * SECOND + 10, "opa"));
        }
    }
    let verdict = verdict.expect("judged");
    assert_eq!(verdict.health, Health::Failing, "{:?}", verdict.evidence);
    // One call that succeeds ends it.
    incident.count_calls("opa", 1.0, 0.001);
    incident.probe(126 * SECOND, &opa, 0, alive());
    incident.scrape(126 * SECOND);
    assert_ne!(incident.verdict(126 * SECOND + 10, "opa").health, Health::Failing);
}

#[test]
fn a_hook_that_is_suspect_for_long_does_not_stop_the_baseline() {
    let (good, far) = (hook("good", 1), hook("far", 1));
    let mut incident = Incident::with(vec![good.clone(), far.clone()]);
    for step in 0..200 {
        let ms = step * 2 * SECOND;
        incident.count_writes(200.0, 0.005, 0.004);
        incident.count_calls("good", 200.0, 0.001);
        incident.probe(ms, &good, 0, alive());
        never_answers(&mut incident, &far, ms, 1);
        incident.canary(ms, 5, CanaryOutcome::Written);
        incident.scrape(ms + 2 * SECOND);
        incident.tick(ms + 2 * SECOND + 10);
    }
    let assessment = incident.tick(401 * SECOND);
    assert_eq!(assessment.culprits().count(), 0);
    assert!(assessment.control_plane.usual_write_seconds.is_some());
    assert!(
        !incident.attention.everywhere,
        "nothing is new: the calm pace will do"
    );
}

#[test]
fn metrics_that_may_not_be_read_do_not_make_an_api_server_down() {
    let opa = hook("opa", 1);
    let mut incident = Incident::with(vec![opa.clone()]);
    incident.probe(0, &opa, 0, alive());
    let failure = ScrapeFailure {
        target: "10.0.0.1:6443".into(),
        at: Incident::at(0),
        reason: ScrapeFailureReason::Forbidden,
        why: "HTTP 403".into(),
    };
    incident.event(0, Event::ScrapeFailed(failure));
    assert_eq!(incident.tick(SECOND).control_plane.not_a_hook, None);
}

#[test]
fn an_api_server_replica_that_is_gone_is_forgotten() {
    let mut incident = Incident::calm(&[&hook("opa", 1)]);
    assert_eq!(incident.tick(20 * SECOND).sources.scrapes.len(), 1);
    assert_eq!(incident.tick(1_000 * SECOND).sources.scrapes.len(), 0);
}

#[test]
fn a_probe_of_long_ago_says_nothing_about_now() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    assert_eq!(incident.verdict(1_000 * SECOND, "opa").health, Health::Unknown);
}

#[test]
fn endpoints_that_the_inventory_misses_are_no_outage_while_calls_succeed() {
    let mut opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    if let HookTarget::Service(target) = &mut opa.target {
        target.service = ServiceState::Found {
            by_hand: false,
            cluster_ip: None,
            endpoints: Vec::new(),
        };
    }
    incident.inventory(11 * SECOND, vec![opa]);
    for step in 0..5 {
        incident.count_writes(100.0, 0.005, 0.004);
        incident.count_calls("opa", 100.0, 0.001);
        incident.scrape(12 * SECOND + step * 2 * SECOND);
        incident.tick(12 * SECOND + step * 2 * SECOND + 10);
    }
    let verdict = incident.verdict(21 * SECOND, "opa");
    assert_judged(&verdict, Health::Suspect, Some(Cause::NoEndpoints));
}

#[test]
fn addresses_of_a_broken_watch_accuse_no_hook() {
    let (opa, other) = (hook("opa", 1), hook("other", 1));
    let mut incident = Incident::calm(&[&opa, &other]);
    let broken = WatchReport {
        watch: "EndpointSlices".into(),
        health: InventoryHealth::Stale { why: "gone".into() },
        known_good: Some(Incident::at(0)),
    };
    incident.event(40 * SECOND, Event::Watches(vec![broken]));
    for step in 0..10 {
        incident.probe(41 * SECOND + step * SECOND, &opa, 0, ProbeOutcome::Refused);
        incident.probe(41 * SECOND + step * SECOND, &other, 0, alive());
    }
    let verdict = incident.verdict(51 * SECOND, "opa");
    assert_judged(&verdict, Health::Suspect, Some(Cause::Refused));
}

#[test]
fn an_earlier_refusal_is_over_when_the_api_server_has_counted_good_calls_since() {
    let (mended, broken) = (hook("mended", 1), hook("broken", 1));
    let mut incident = Incident::calm(&[&mended, &broken]);
    incident.canary(11 * SECOND, 3, refusal("mended", "EOF"));
    incident.canary(12 * SECOND, 3, refusal("mended", "EOF"));
    incident.scrape(13 * SECOND);
    for step in 0..3 {
        let ms = 14 * SECOND + step * 2 * SECOND;
        incident.canary(ms, 3, refusal("broken", "EOF"));
        incident.probe(ms, &mended, 0, alive());
        incident.probe(ms, &broken, 0, alive());
        incident.count_calls("mended", 20.0, 0.001);
        incident.count_calls("broken", 20.0, 0.001).rejections.calling += 20.0;
        incident.scrape(ms + 500);
        incident.tick(ms + 510);
    }
    assert_eq!(failing(&incident.tick(19 * SECOND)), ["broken-configuration"]);
}

#[test]
fn what_is_said_of_good_backends_counts_those_that_have_not_answered() {
    let opa = hook("opa", 3);
    let mut incident = Incident::with(vec![opa.clone()]);
    incident.probe(0, &opa, 0, alive());
    incident.probe(0, &opa, 1, alive());
    incident.probe(0, &opa, 2, ProbeOutcome::Refused);
    let verdict = incident.verdict(SECOND, "opa");
    assert!(
        verdict
            .evidence
            .iter()
            .any(|said| said.contains("2 of 3 backends answer")),
        "{:?}",
        verdict.evidence
    );
}

#[test]
fn a_hook_that_refuses_at_once_and_fails_open_is_not_said_to_be_waited_for() {
    let mut mutator = hook("mutator", 1);
    mutator.failure_policy = FailurePolicy::Ignore;
    let mut incident = Incident::calm(&[&mutator]);
    incident.probe(11 * SECOND, &mutator, 0, ProbeOutcome::Refused);
    incident.probe(12 * SECOND, &mutator, 0, ProbeOutcome::Refused);
    incident.count_writes(100.0, 0.003, 0.003);
    incident.count_calls("mutator", 100.0, 0.0005).fail_open += 100.0;
    incident.scrape(13 * SECOND);
    let verdict = incident.verdict(13 * SECOND + 10, "mutator");
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::Refused), Effect::FailingOpen)
    );
    assert!(!verdict.summary.contains("waiting"), "{}", verdict.summary);
}

#[test]
fn a_canary_speaks_for_and_against_those_hooks_alone_that_are_asked_about_what_it_does() {
    let asked_about = |operation: &str| {
        let mut hook = hook(operation, 2);
        hook.rules[0].operations = vec![operation.to_owned()];
        hook
    };
    let (creations, updates) = (asked_about("CREATE"), asked_about("UPDATE"));
    let mut incident = Incident::calm(&[&creations, &updates]);
    let met = |incident: &Incident, hook: &Hook| {
        let coverage = &incident.watchdog.seen.coverage;
        coverage.of(&hook.id).contains(&CanaryTarget::KubeSystem)
    };
    assert!(!met(&incident, &creations) && met(&incident, &updates));
    let mut second = 60;
    let mut report = |created, outcome| {
        second += 1;
        let report = CanaryReport {
            target: CanaryTarget::KubeSystem,
            started: Incident::at(second * SECOND),
            took: Duration::from_millis(5),
            created,
            outcome,
        };
        incident.event(second * SECOND, Event::CanaryWritten(report));
        (met(&incident, &creations), met(&incident, &updates))
    };
    assert_eq!(report(true, CanaryOutcome::Written), (true, false));
    // An update without an answer may not have changed anything.
    assert_eq!(report(false, CanaryOutcome::TimedOut), (true, false));
    assert_eq!(report(false, CanaryOutcome::Written), (false, true));
}

#[test]
fn where_next_to_nothing_is_written_two_writes_that_waited_make_nothing_delayed_and_three_do() {
    for (waited, writes) in [(2.0, Writes::Flowing), (3.0, Writes::Delayed)] {
        let opa = hook("opa", 1);
        let mut incident = Incident::calm(&[&opa]);
        // What was counted before is in no window any more.
        for step in 6..30 {
            incident.canary(step * 2 * SECOND, 5, CanaryOutcome::Written);
            incident.scrape(step * 2 * SECOND);
            incident.tick(step * 2 * SECOND + 10);
        }
        incident.count_writes(waited, 10.0, 0.004);
        for second in (60..70).step_by(2) {
            incident.canary(second * SECOND, 5, CanaryOutcome::Written);
            incident.scrape(second * SECOND);
            let plane = incident.tick(second * SECOND + 10).control_plane.clone();
            let told = if second < 68 { Writes::Flowing } else { writes };
            assert_eq!(plane.writes, told, "{waited}, {second} s: {}", plane.summary);
        }
    }
}

#[test]
fn the_last_calls_of_a_removed_hook_accuse_no_hook_and_calls_that_go_on_do() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    let fails = |incident: &mut Incident, ms: u64| {
        let series = incident.count_calls("opa", 20.0, 10.0);
        series.rejections.calling += 20.0;
        add(&mut series.rejected, 20.0, 10.0);
        incident.scrape(ms);
        incident.tick(ms + 10)
    };
    incident.inventory(12 * SECOND, Vec::new());
    for second in [14, 24, 34, 44, 54] {
        let assessment = fails(&mut incident, second * SECOND);
        assert_eq!(assessment.hooks.len(), 0, "{second} s: {:?}", assessment.hooks);
    }
    let assessment = fails(&mut incident, 64 * SECOND);
    assert_eq!(assessment.culprits().count(), 1, "it is still called");
}

#[test]
fn the_last_calls_of_a_removed_hook_accuse_no_hook_however_seldom_counters_are_read() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    incident.inventory(12 * SECOND, Vec::new());
    let series = incident.count_calls("opa", 20.0, 10.0);
    series.rejections.calling += 20.0;
    add(&mut series.rejected, 20.0, 10.0);
    incident.scrape(70 * SECOND);
    for second in (70..130).step_by(5) {
        let assessment = incident.tick(second * SECOND + 10);
        assert_eq!(assessment.hooks.len(), 0, "{second} s: {:?}", assessment.hooks);
    }
}

/// For example two revisions of a product, installed side by side.
#[test]
fn answers_of_another_hook_of_its_name_do_not_speak_for_a_dead_one() {
    let (a, b) = homonyms();
    let mut incident = Incident::calm(&[&a, &b]);
    let mut healths = Vec::new();
    for second in 11..60 {
        let ms = second * SECOND;
        incident.probe(ms, &a, 0, ProbeOutcome::Refused);
        incident.probe(ms, &b, 0, alive());
        incident.count_writes(50.0, 0.005, 0.004);
        let series = incident.count_calls("same", 50.0, 0.001);
        // A user's write meets the dead one now and then.
        series.rejections.calling += f64::from(u8::from(second % 30 == 0));
        incident.scrape(ms + 10);
        healths.push(failing(&incident.tick(ms + 20)).join(" "));
    }
    let steady = healths.iter().skip(12).all(|named| named == "a");
    assert!(steady, "{healths:?}");
}

#[test]
fn dry_runs_that_are_refused_for_a_hook_that_takes_none_do_not_speak_against_it() {
    let mut legacy = hook("legacy", 1);
    legacy.dry_run_safe = false;
    let mut incident = Incident::calm(&[&legacy]);
    for second in (12..30).step_by(2) {
        let ms = second * SECOND;
        incident.probe(ms, &legacy, 0, alive());
        incident.count_writes(20.0, 0.005, 0.004);
        incident.count_calls("legacy", 20.0, 0.001);
        incident.count_calls("legacy", 6.0, 0.0).rejections.internal += 6.0;
        incident.scrape(ms);
        assert_eq!(
            incident.verdict(ms + 10, "legacy").health,
            Health::Healthy,
            "{second} s"
        );
    }
}

#[test]
fn dry_runs_that_are_refused_for_a_hook_that_takes_none_are_no_witness() {
    let mut legacy = hook("legacy", 1);
    legacy.dry_run_safe = false;
    let mut incident = Incident::calm(&[&legacy]);
    let gone = hook("legacy", 0);
    let gone = Hook {
        dry_run_safe: false,
        ..gone
    };
    incident.inventory(12 * SECOND, vec![gone.clone()]);
    for second in (13..25).step_by(2) {
        incident.count_calls("legacy", 6.0, 0.0).rejections.internal += 6.0;
        incident.scrape(second * SECOND);
    }
    let facts = incident.facts(25 * SECOND, &gone);
    assert_eq!(facts.witnesses, [Witness::Probes].into(), "{facts:?}");
}
