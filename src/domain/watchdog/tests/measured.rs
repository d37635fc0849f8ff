//! Regressions: incidents of the campaign (`examples/campaign`) that were once misjudged, each as a list of events.

use super::*;

fn failing(assessment: &Assessment) -> Vec<&str> {
    let named = assessment.culprits();
    named
        .filter_map(|verdict| verdict.configuration.as_deref())
        .collect()
}

fn timed_out(incident: &mut Incident, hook: &Hook, from_ms: u64, seconds: u64) {
    for step in 0..seconds {
        let outcome = ProbeOutcome::TimedOut {
            phase: ProbePhase::Connect,
        };
        incident.probe_taking(from_ms + step * SECOND, 2 * SECOND, hook, 0, outcome);
    }
}

/// A pause to collect garbage, or a lost packet: one call of three takes 700 ms.
#[test]
fn one_late_call_among_few_names_no_hook_and_a_row_of_them_does() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    let write = |incident: &mut Incident, ms: u64, seconds_each: f64| {
        incident.count_writes(3.0, 0.005 + seconds_each, 0.004);
        incident.count_calls("opa", 3.0, seconds_each);
        incident.probe(ms, &opa, 0, alive());
        incident.scrape(ms);
        incident.verdict(ms + 10, "opa")
    };
    for (ms, seconds_each) in [(12, 0.24), (14, 0.001), (16, 0.001), (40, 0.24), (42, 0.001)] {
        let verdict = write(&mut incident, ms * SECOND, seconds_each);
        assert_ne!(
            verdict.health,
            Health::Failing,
            "at {ms} s: {:?}",
            verdict.evidence
        );
    }
    let mut named = Vec::new();
    for ms in (100..120).step_by(2) {
        named.push(write(&mut incident, ms * SECOND, 0.6).health == Health::Failing);
    }
    assert!(!named[0], "a first time is not over again");
    assert!(named[4..].iter().all(|named| *named), "{named:?}");
}

#[test]
fn a_slow_hook_that_is_called_every_six_seconds_is_named_within_the_minute() {
    let rare = hook("rare", 1);
    let mut incident = Incident::calm(&[&rare]);
    let mut health = Health::Unknown;
    for call in 0..10 {
        let ms = 80 * SECOND + call * 6 * SECOND;
        incident.count_writes(1.0, 1.005, 0.004);
        incident.count_calls("rare", 1.0, 1.0);
        for third in 0..3 {
            incident.probe(ms + third * 2 * SECOND, &rare, 0, alive());
            incident.scrape(ms + third * 2 * SECOND);
            health = incident.verdict(ms + third * 2 * SECOND + 10, "rare").health;
        }
    }
    assert_eq!(health, Health::Failing);
}

/// A baseline from the middle of an incident must not hide it.
#[test]
fn a_hook_that_was_slow_before_the_first_look_is_named_all_the_same() {
    let opa = hook("opa", 1);
    let mut incident = Incident::with(vec![opa.clone()]);
    let mut health = Health::Unknown;
    for step in 0..40 {
        let ms = step * 2 * SECOND;
        incident.count_writes(400.0, 0.005, 0.004);
        incident.count_writes(1.0, 1.005, 0.004);
        incident.count_calls("opa", 1.0, 1.0);
        incident.probe(ms, &opa, 0, alive());
        incident.scrape(ms);
        health = incident.verdict(ms + 10, "opa").health;
    }
    assert_eq!(health, Health::Failing);
}

#[test]
fn a_burst_within_a_rollout_is_a_suspicion_until_it_lasts() {
    let (old, new) = (hook("opa", 2), hook("opa", 3));
    let mut incident = Incident::calm(&[&old]);
    incident.inventory(11 * SECOND, vec![new.clone()]);
    let mut healths = Vec::new();
    for step in 0..8 {
        let ms = 12 * SECOND + step * 2 * SECOND;
        incident.answers(ms, &new);
        incident.canary(ms, 3, refusal("opa", "EOF"));
        healths.push(incident.verdict(ms + 10, "opa").health);
    }
    assert_eq!(healths[0], Health::Suspect, "{healths:?}");
    assert_eq!(healths[7], Health::Failing, "{healths:?}");
}

#[test]
fn a_short_timeout_that_was_exceeded_once_names_no_hook() {
    let mut hasty = hook("hasty", 1);
    hasty.timeout = Duration::from_secs(1);
    let mut incident = Incident::calm(&[&hasty]);
    let why = "context deadline exceeded";
    incident.canary(11 * SECOND, SECOND, refusal("hasty", why));
    assert_eq!(
        incident.verdict(12 * SECOND + 10, "hasty").health,
        Health::Suspect
    );
    incident.canary(13 * SECOND, SECOND, refusal("hasty", why));
    assert_eq!(
        incident.verdict(14 * SECOND + 10, "hasty").health,
        Health::Failing
    );
}

/// The API server is reachable, the Pods are not, and the hooks get no calls meanwhile.
#[test]
fn when_no_backend_of_any_hook_answers_a_scrape_does_not_prove_the_way_to_them() {
    let (a, b) = (hook("a", 1), hook("b", 1));
    let mut incident = Incident::calm(&[&a, &b]);
    for step in 0..10 {
        for one in [&a, &b] {
            timed_out(&mut incident, one, 11 * SECOND + step * SECOND, 1);
        }
        incident.count_writes(100.0, 0.005, 0.004);
        incident.scrape(13 * SECOND + step * SECOND);
        let assessment = incident.tick(13 * SECOND + step * SECOND + 10);
        assert_eq!(failing(&assessment), [] as [&str; 0]);
    }
    // Another backend that answers proves it.
    incident.probe(24 * SECOND, &b, 0, alive());
    timed_out(&mut incident, &a, 24 * SECOND, 4);
    assert_eq!(failing(&incident.tick(30 * SECOND)), ["a-configuration"]);
}

#[test]
fn a_canary_that_was_late_before_a_hook_died_does_not_speak_against_it() {
    let (a, b) = (hook("a", 1), hook("b", 1));
    let mut incident = Incident::calm(&[&a, &b]);
    incident.canary_late(11 * SECOND);
    for one in [&a, &b] {
        incident.probe_late(23 * SECOND, one, 0, 2 * SECOND);
    }
    incident.count_writes(1_500.0, 0.005, 0.004);
    incident.scrape(25 * SECOND);
    assert_eq!(failing(&incident.tick(25 * SECOND + 100)), [] as [&str; 0]);
}

#[test]
fn a_hook_that_was_named_long_before_is_why_canaries_are_late() {
    let (culprit, other) = (hook("culprit", 1), hook("other", 1));
    let mut incident = Incident::calm(&[&culprit, &other]);
    incident.probe_late(11 * SECOND, &culprit, 0, 2 * SECOND);
    incident.canary_late(11 * SECOND);
    incident.probe(12 * SECOND, &other, 0, alive());
    incident.scrape(13 * SECOND);
    assert_eq!(
        failing(&incident.tick(13 * SECOND + 100)),
        ["culprit-configuration"]
    );
    incident.canary_late(28 * SECOND);
    incident.probe_late(29 * SECOND, &other, 0, 2 * SECOND);
    incident.probe_late(29 * SECOND, &culprit, 0, 2 * SECOND);
    incident.scrape(30 * SECOND);
    assert_eq!(
        failing(&incident.tick(31 * SECOND + 100)),
        ["culprit-configuration"]
    );
}

/// Both answer at the moment when the network path works again.
#[test]
fn probes_that_hung_together_and_came_back_together_are_one_late_answer() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    incident.probe_taking(20 * SECOND, 1_900, &opa, 0, alive());
    incident.probe_taking(21 * SECOND, 900, &opa, 0, alive());
    incident.canary(21 * SECOND, 1_500, CanaryOutcome::Written);
    let verdict = incident.verdict(22 * SECOND + 600, "opa");
    assert_judged(&verdict, Health::Healthy, None);
}

#[test]
fn failed_calls_of_another_hook_of_the_same_name_do_not_confirm_our_own_blindness() {
    let (mut a, mut b) = (hook("a", 1), hook("b", 1));
    a.id = HookId::new(HookKind::Validating, "a", "same");
    b.id = HookId::new(HookKind::Validating, "b", "same");
    let mut incident = Incident::calm(&[&a, &b]);
    incident.count_writes(20.0, 0.005, 0.004);
    let series = incident.count_calls("same", 20.0, 0.002);
    series.rejections.calling += 10.0;
    for one in [&a, &b] {
        timed_out(&mut incident, one, 11 * SECOND, 2);
    }
    incident.scrape(14 * SECOND);
    assert_eq!(failing(&incident.tick(14 * SECOND + 10)), [] as [&str; 0]);
}

/// Releases before 1.24 have neither `fail_open_count` nor `webhook_request_total`.
#[test]
fn a_hook_whose_calls_all_take_its_timeout_hangs_even_where_outcomes_are_not_counted() {
    let mut open = hook("open", 1);
    open.failure_policy = FailurePolicy::Ignore;
    let mut incident = Incident::calm(&[&open]);
    let mut verdict = None;
    for step in 0..4 {
        incident.count_writes(10.0, 10.005, 0.004);
        incident.count_calls("open", 10.0, 10.0);
        incident.scrape(21 * SECOND + step * 2 * SECOND);
        verdict = Some(incident.verdict(21 * SECOND + step * 2 * SECOND + 10, "open"));
    }
    let verdict = verdict.expect("judged");
    assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
}

#[test]
fn missing_endpoints_are_an_outage_where_calls_that_fail_open_are_not_counted() {
    let mut open = hook("open", 2);
    open.failure_policy = FailurePolicy::Ignore;
    let mut incident = Incident::calm(&[&open]);
    if let HookTarget::Service(target) = &mut open.target {
        target.service = ServiceState::Found {
            by_hand: false,
            cluster_ip: None,
            endpoints: Vec::new(),
        };
    }
    incident.inventory(11 * SECOND, vec![open]);
    for step in 0..4 {
        incident.count_writes(100.0, 0.005, 0.004);
        incident.count_calls("open", 100.0, 0.0004);
        incident.scrape(12 * SECOND + step * 2 * SECOND);
        incident.tick(12 * SECOND + step * 2 * SECOND + 10);
    }
    assert_eq!(incident.verdict(19 * SECOND, "open").health, Health::Failing);
}

#[test]
fn an_http_error_below_500_is_the_hooks_own_and_a_denial_is_none() {
    let mut open = hook("open", 1);
    open.failure_policy = FailurePolicy::Ignore;
    let mut incident = Incident::calm(&[&open]);
    incident.count_writes(20.0, 0.005, 0.004);
    let series = incident.count_calls("open", 20.0, 0.001);
    series.fail_open += 10.0;
    series.rejections.denied += 10.0;
    series.codes.extend([(404, 10.0), (403, 10.0)]);
    incident.probe(12 * SECOND, &open, 0, alive());
    incident.scrape(12 * SECOND);
    let verdict = incident.verdict(12 * SECOND + 10, "open");
    assert_judged(&verdict, Health::Failing, Some(Cause::Erroring));
}

/// Leaders time out after 5 s, whatever the hook's timeout is.
#[test]
fn calls_that_fail_after_five_seconds_of_thirty_were_not_answered() {
    let mut patient = hook("patient", 1);
    patient.timeout = Duration::from_secs(30);
    let mut incident = Incident::calm(&[&patient]);
    incident.count_writes(10.0, 5.005, 0.004);
    let series = incident.count_calls("patient", 10.0, 5.0);
    series.rejections.calling += 10.0;
    add(&mut series.rejected, 10.0, 5.0);
    incident.scrape(20 * SECOND);
    let verdict = incident.verdict(20 * SECOND + 10, "patient");
    assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
}

#[test]
fn a_hook_that_fails_and_is_not_called_for_a_while_goes_on_failing() {
    let rare = hook("rare", 1);
    let mut incident = Incident::calm(&[&rare]);
    incident.scrape(40 * SECOND);
    incident.count_calls("rare", 10.0, 0.001);
    incident.scrape(55 * SECOND);
    let series = incident.count_calls("rare", 4.0, 0.002);
    series.rejections.calling += 4.0;
    incident.scrape(60 * SECOND);
    for step in 30..40 {
        incident.probe(step * 2 * SECOND, &rare, 0, alive());
        incident.scrape(step * 2 * SECOND + 500);
        let health = incident.verdict(step * 2 * SECOND + 510, "rare").health;
        assert_eq!(health, Health::Failing, "at {} s", step * 2);
    }
}

#[test]
fn a_few_denials_a_minute_are_worth_a_word_where_little_else_is_shown() {
    let strict = hook("strict", 1);
    let mut incident = Incident::calm(&[&strict]);
    let mut cause = None;
    for call in 0..6 {
        let ms = 80 * SECOND + call * 8 * SECOND;
        incident.count_calls("strict", 1.0, 0.001).rejections.denied += 1.0;
        incident.probe(ms, &strict, 0, alive());
        incident.scrape(ms);
        cause = incident.verdict(ms + 10, "strict").cause;
    }
    assert_eq!(cause, Some(Cause::Denying));
}

/// Every request waits for the authorizer, so more of them are in flight; etcd is as fast as usual.
#[test]
fn reads_that_take_longer_without_being_more_do_not_swamp_an_api_server() {
    let mut incident = Incident::calm(&[&hook("opa", 1)]);
    let reads = |incident: &mut Incident, ms: u64, each: f64, at_once: f64, own: f64| {
        incident.count_writes(60.0, own, own);
        add(&mut incident.counters.reads, 200.0, each);
        add(&mut incident.counters.etcd, 200.0, 0.002);
        incident.counters.in_flight = Some(crate::observe::snapshot::ByRequestKind {
            mutating: 1.0,
            read_only: at_once,
        });
        incident.scrape(ms);
        incident.tick(ms + 10)
    };
    for step in 6..30 {
        reads(&mut incident, step * 2 * SECOND, 0.003, 1.0, 0.004);
    }
    let mut found = None;
    for step in 30..33 {
        let assessment = reads(&mut incident, step * 2 * SECOND, 0.5, 60.0, 0.5);
        found = assessment
            .control_plane
            .not_a_hook
            .as_ref()
            .map(|found| found.cause);
    }
    assert_eq!(found, Some(NotAHook::Unexplained));
}

/// Releases before 1.23 have no request duration without webhooks.
#[test]
fn a_slow_etcd_is_found_on_a_release_without_a_clock_of_its_own() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    let write = |incident: &mut Incident, ms: u64, seconds_each: f64, etcd: f64| {
        incident.count_writes(60.0, seconds_each, 0.0);
        for series in incident.counters.writes.values_mut() {
            series.sli = Cumulative::default();
        }
        incident.count_calls("opa", 60.0, 0.001);
        add(&mut incident.counters.etcd, 100.0, etcd);
        incident.scrape(ms);
        incident.tick(ms + 10)
    };
    for step in 6..40 {
        write(&mut incident, step * 2 * SECOND, 0.005, 0.002);
    }
    let mut found = None;
    for step in 40..43 {
        let assessment = write(&mut incident, step * 2 * SECOND, 0.09, 0.06);
        found = assessment
            .control_plane
            .not_a_hook
            .as_ref()
            .map(|found| found.cause);
    }
    assert_eq!(found, Some(NotAHook::EtcdSlow));
}
