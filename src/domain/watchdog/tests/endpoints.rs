//! Incidents that begin with a change of endpoints.

use super::*;
use crate::act::breaker::Doubt;
use crate::cluster::inventory::NodeState;

/// The hook without the endpoint with this number.
fn without(hook: &Hook, number: u8) -> Hook {
    let mut hook = hook.clone();
    if let HookTarget::Service(target) = &mut hook.target
        && let ServiceState::Found { endpoints, .. } = &mut target.service
    {
        let gone = ([10, 0, 0, number], 8443).into();
        endpoints.retain(|endpoint| endpoint.address != gone);
    }
    hook
}

impl Incident {
    /// A probe on the kept connection to the hook's first backend.
    pub(super) fn kept(&mut self, ms: u64, took: u64, hook: &Hook, outcome: ProbeOutcome) {
        let report = ProbeReport {
            hook: hook.id.clone(),
            backend: hook.backends()[0].clone(),
            level: ProbeLevel::Http,
            connection: ConnectionKind::Kept,
            started: Self::at(ms),
            took: Duration::from_millis(took),
            phases: PhaseDurations::default(),
            outcome,
            certificates: CertificateFacts::default(),
            shared: false,
        };
        self.event(ms + took, Event::Probed(Box::new(report)));
    }

    fn kept_late(&mut self, ms: u64, hook: &Hook) {
        let overdue = ProbeOverdue {
            hook: hook.id.clone(),
            backend: hook.backends()[0].clone(),
            connection: ConnectionKind::Kept,
            started: Self::at(ms),
            waiting: Duration::from_secs(2),
            phase: ProbePhase::FirstByte,
        };
        self.event(ms + 2 * SECOND, Event::ProbeOverdue(Box::new(overdue)));
    }

    /// Every backend answers at 20 s, and three of a hundred calls have timed out by 21.5 s. Returns the verdict then.
    fn three_of_a_hundred_time_out(&mut self, hook: &Hook) -> Verdict {
        self.answers(20 * SECOND, hook);
        self.count_writes(100.0, 0.005, 0.004);
        self.count_calls("opa", 100.0, 0.001);
        let series = self.count_calls("opa", 3.0, 10.0);
        series.rejections.calling += 3.0;
        add(&mut series.rejected, 3.0, 10.0);
        self.scrape(21 * SECOND + 500);
        self.verdict(22 * SECOND, "opa")
    }

    /// Two seconds of calls, of which `skipped` fail open, and a scrape at the end.
    pub(super) fn calls(&mut self, ms: u64, webhook: &str, calls: f64, skipped: f64) {
        self.count_writes(calls, 0.005, 0.004);
        self.count_calls(webhook, calls, 0.001).fail_open += skipped;
        self.scrape(ms);
    }
}

const SILENCE: ProbeOutcome = ProbeOutcome::TimedOut {
    phase: ProbePhase::FirstByte,
};

#[test]
fn a_late_canary_and_a_kept_connection_that_is_silent_tell_of_a_stale_one_before_the_first_timeout() {
    let opa = hook("opa", 3);
    let mut incident = Incident::calm(&[&opa]);
    let left = without(&opa, 1);
    incident.inventory(11 * SECOND, vec![left.clone()]);
    incident.kept_late(11 * SECOND, &opa);
    incident.answers(12 * SECOND, &left);
    let verdict = incident.verdict(13 * SECOND + 10, "opa");
    assert_eq!(
        found(&verdict),
        (Health::Suspect, Some(Cause::StaleConnection), Effect::None),
        "one witness is a suspicion"
    );
    incident.canary_late(11 * SECOND + 100);
    incident.scrape(13 * SECOND + 100);
    let verdict = incident.verdict(13 * SECOND + 200, "opa");
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::StaleConnection), Effect::Blocking)
    );
    let said = verdict.evidence.join(" ");
    assert!(
        said.contains("pooled connection to endpoint 10.0.0.1:8443 was silent for 2.0 s"),
        "{said}"
    );
    incident.canary(13 * SECOND + 300, 5, CanaryOutcome::Written);
    let later = incident.verdict(13 * SECOND + 400, "opa");
    assert_eq!(
        later.health,
        Health::Failing,
        "others get through on new connections; the late one hangs on"
    );
}

#[test]
fn timeouts_count_from_the_departure_to_which_the_kept_connection_is_silent() {
    let opa = hook("opa", 3);
    let mut incident = Incident::calm(&[&opa]);
    incident.inventory(11 * SECOND, vec![without(&opa, 1)]);
    incident.kept_late(11 * SECOND, &opa);
    let left = without(&without(&opa, 1), 2);
    incident.inventory(16 * SECOND, vec![left.clone()]);
    let verdict = incident.three_of_a_hundred_time_out(&left);
    assert_judged(&verdict, Health::Failing, Some(Cause::StaleConnection));
}

#[test]
fn timeouts_after_an_endpoint_left_are_no_stale_connections_where_it_closed_the_one_that_hookwatch_kept() {
    let opa = hook("opa", 3);
    let mut incident = Incident::calm(&[&opa]);
    let left = without(&opa, 1);
    incident.inventory(11 * SECOND, vec![left.clone()]);
    let closed = ProbeOutcome::Lost {
        phase: ProbePhase::FirstByte,
        why: "reset".into(),
    };
    incident.kept(11_500, 1, &opa, closed);
    let verdict = incident.three_of_a_hundred_time_out(&left);
    assert_judged(&verdict, Health::Suspect, Some(Cause::Hanging));
}

#[test]
fn timeouts_after_an_endpoint_left_are_stale_connections_also_without_a_witness_of_our_own() {
    let opa = hook("opa", 3);
    let mut incident = Incident::calm(&[&opa]);
    let left = without(&opa, 1);
    incident.inventory(11 * SECOND, vec![left.clone()]);
    let verdict = incident.three_of_a_hundred_time_out(&left);
    // Failures of 3 % are not an outage: the webhook is a suspect, with the right cause.
    assert_judged(&verdict, Health::Suspect, Some(Cause::StaleConnection));
    // The suspicion ends with the failures.
    for step in 0..8 {
        let ms = 23 * SECOND + step * 2 * SECOND;
        incident.answers(ms, &left);
        incident.calls(ms, "opa", 100.0, 0.0);
        incident.canary(ms, 5, CanaryOutcome::Written);
    }
    assert_eq!(incident.verdict(38 * SECOND, "opa").health, Health::Healthy);
}

#[test]
fn timeouts_without_any_change_of_endpoints_are_a_hang() {
    let opa = hook("opa", 3);
    let mut incident = Incident::calm(&[&opa]);
    incident.canary(
        11 * SECOND,
        10 * SECOND,
        refusal("opa", "context deadline exceeded"),
    );
    incident.answers(21 * SECOND, &opa);
    let verdict = incident.verdict(21 * SECOND + 100, "opa");
    assert_eq!(verdict.cause, Some(Cause::Hanging));
}

#[test]
fn a_hang_that_was_there_before_an_endpoint_left_stays_a_hang() {
    let opa = hook("opa", 3);
    let mut incident = Incident::hung(&opa);
    assert_eq!(
        incident.verdict(13 * SECOND + 10, "opa").cause,
        Some(Cause::Hanging)
    );
    let left = without(&opa, 1);
    incident.inventory(14 * SECOND, vec![left.clone()]);
    incident.canary(
        11 * SECOND,
        10 * SECOND,
        refusal("opa", "context deadline exceeded"),
    );
    incident.canary(
        14 * SECOND,
        10 * SECOND,
        refusal("opa", "context deadline exceeded"),
    );
    incident.answers(24 * SECOND, &left);
    let verdict = incident.verdict(24 * SECOND + 100, "opa");
    assert_eq!(verdict.cause, Some(Cause::Hanging), "{verdict:#?}");
}

#[test]
fn a_kept_connection_that_delays_no_call_is_forgotten() {
    let opa = hook("opa", 3);
    let mut incident = Incident::calm(&[&opa]);
    let left = without(&opa, 1);
    incident.inventory(11 * SECOND, vec![left.clone()]);
    incident.kept(11 * SECOND, 10 * SECOND, &opa, SILENCE);
    for step in 0..12 {
        let ms = 12 * SECOND + step * 2 * SECOND;
        incident.answers(ms, &left);
        incident.calls(ms, "opa", 100.0, 0.0);
    }
    // Every call was answered for longer than a stale connection could stay unnoticed.
    assert_eq!(incident.verdict(35 * SECOND, "opa").health, Health::Healthy);
    // A canary that is late now has another cause.
    incident.canary_late(35 * SECOND);
    incident.scrape(37 * SECOND);
    assert_eq!(incident.verdict(37 * SECOND + 10, "opa").health, Health::Healthy);
}

/// A mutating policy with `failurePolicy: Ignore`, as in a rollout in which one Pod in fifty was admitted unmutated.
fn skippable() -> Hook {
    let mut policy = hook("policy", 2);
    policy.failure_policy = FailurePolicy::Ignore;
    policy
}

#[test]
fn calls_skipped_around_endpoint_changes_only_are_a_gap_in_rollouts() {
    let policy = skippable();
    let mut incident = Incident::calm(&[&policy]);
    for step in 0..12 {
        let ms = 11 * SECOND + step * 2 * SECOND;
        // One endpoint leaves every twelve seconds and returns six seconds later.
        match step % 6 {
            0 => incident.inventory(ms, vec![without(&policy, 1)]),
            3 => incident.inventory(ms, vec![policy.clone()]),
            _ => {}
        }
        incident.answers(ms + 100, &policy);
        let skipped = if step % 6 == 0 { 4.0 } else { 0.0 };
        incident.calls(ms + 1_000, "policy", 100.0, skipped);
        incident.tick(ms + 1_100);
    }
    let verdict = incident.verdict(35 * SECOND, "policy");
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::RolloutGap), Effect::FailingOpen)
    );
    let said = verdict.evidence.join(" ");
    assert!(
        said.contains("8 of 1200 calls (under 1 %) were skipped within 10 s"),
        "{said}"
    );
    assert!(said.contains("in 2 bursts; at other times 0"), "{said}");
}

#[test]
fn a_rollout_in_which_nothing_failed_is_nothing() {
    let policy = skippable();
    let mut incident = Incident::calm(&[&policy]);
    for step in 0..6 {
        let ms = 11 * SECOND + step * 2 * SECOND;
        let now = if step % 2 == 0 {
            without(&policy, 1)
        } else {
            policy.clone()
        };
        incident.inventory(ms, vec![now.clone()]);
        incident.answers(ms + 100, &now);
        incident.calls(ms + 1_000, "policy", 100.0, 0.0);
        assert_eq!(incident.verdict(ms + 1_100, "policy").health, Health::Healthy);
    }
}

#[test]
fn one_refused_probe_of_an_endpoint_that_just_became_ready_is_a_suspicion_for_a_while() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    incident.inventory(11 * SECOND, vec![without(&opa, 1)]);
    incident.inventory(15 * SECOND, vec![opa.clone()]);
    incident.probe(15 * SECOND + 300, &opa, 0, ProbeOutcome::Refused);
    incident.probe(15 * SECOND + 300, &opa, 1, alive());
    incident.answers(16 * SECOND, &opa);
    let verdict = incident.verdict(16 * SECOND + 100, "opa");
    assert_eq!(
        found(&verdict),
        (Health::Suspect, Some(Cause::RolloutGap), Effect::None)
    );
    let said = verdict.evidence.join(" ");
    assert!(
        said.contains(
            "Endpoint 10.0.0.1:8443 took no connection 300 ms after endpoint 10.0.0.1:8443 became Ready"
        ),
        "{said}"
    );
    incident.answers(61 * SECOND, &opa);
    assert_eq!(incident.verdict(61 * SECOND, "opa").health, Health::Healthy);
}

#[test]
fn a_probe_refused_a_moment_before_the_news_of_a_removal_is_nothing_and_one_well_before_it_is() {
    for (before, cause) in [(100, None), (900, Some(Cause::RolloutGap))] {
        let opa = hook("opa", 2);
        let mut incident = Incident::calm(&[&opa]);
        incident.probe(15 * SECOND - before, &opa, 0, ProbeOutcome::Refused);
        let left = without(&opa, 1);
        incident.inventory(15 * SECOND, vec![left.clone()]);
        incident.answers(15 * SECOND, &left);
        assert_eq!(incident.verdict(16 * SECOND, "opa").cause, cause, "{before} ms");
    }
}

#[test]
fn a_backend_that_stays_refused_past_its_window_is_no_gap_but_bad() {
    let policy = skippable();
    let mut incident = Incident::calm(&[&policy]);
    incident.inventory(11 * SECOND, vec![without(&policy, 1)]);
    incident.inventory(13 * SECOND, vec![policy.clone()]);
    for step in 0..8 {
        let ms = 14 * SECOND + step * 2 * SECOND;
        incident.probe(ms, &policy, 0, ProbeOutcome::Refused);
        incident.probe(ms + 10, &policy, 1, alive());
        incident.calls(ms + 500, "policy", 100.0, 10.0);
        let verdict = incident.verdict(ms + 600, "policy");
        if ms > 24 * SECOND {
            assert_eq!(
                (verdict.health, verdict.cause),
                (Health::Failing, Some(Cause::Partial)),
                "{ms}"
            );
        }
    }
}

#[test]
fn an_outage_of_all_backends_is_never_called_a_gap_not_even_when_it_is_over() {
    let policy = skippable();
    let mut incident = Incident::calm(&[&policy]);
    incident.inventory(11 * SECOND, vec![without(&without(&policy, 1), 2)]);
    for step in 0..3 {
        let ms = 12 * SECOND + step * 2 * SECOND;
        incident.calls(ms, "policy", 100.0, 100.0);
        let verdict = incident.verdict(ms + 100, "policy");
        assert_eq!(verdict.cause, Some(Cause::NoEndpoints));
    }
    incident.inventory(17 * SECOND, vec![policy.clone()]);
    for step in 0..3 {
        let ms = 18 * SECOND + step * 2 * SECOND;
        incident.answers(ms - 500, &policy);
        incident.calls(ms, "policy", 100.0, 0.0);
        let verdict = incident.verdict(ms + 100, "policy");
        assert_ne!(verdict.cause, Some(Cause::RolloutGap));
    }
    assert_eq!(incident.verdict(23 * SECOND, "policy").health, Health::Healthy);
}

#[test]
fn calls_that_fail_long_after_the_change_as_well_are_no_gap() {
    let policy = skippable();
    let mut incident = Incident::calm(&[&policy]);
    incident.inventory(11 * SECOND, vec![without(&policy, 1)]);
    let left = without(&policy, 1);
    for step in 0..15 {
        let ms = 12 * SECOND + step * 2 * SECOND;
        incident.answers(ms - 500, &left);
        incident.calls(ms, "policy", 100.0, 10.0);
    }
    let verdict = incident.verdict(41 * SECOND, "policy");
    assert_eq!(verdict.cause, Some(Cause::FailingOpen));
}

#[test]
fn endpoints_that_changed_are_probed_more_often_for_a_while() {
    let policy = skippable();
    let mut incident = Incident::calm(&[&policy]);
    assert!(!incident.attention.hooks.contains(&policy.id));
    incident.inventory(11 * SECOND, vec![without(&policy, 1)]);
    incident.tick(11 * SECOND + 100);
    assert!(incident.attention.hooks.contains(&policy.id));
    assert!(
        !incident.attention.everywhere,
        "that costs the API server nothing"
    );
    incident.answers(20 * SECOND, &without(&policy, 1));
    incident.tick(26 * SECOND);
    assert!(!incident.attention.hooks.contains(&policy.id));
}

#[test]
fn dials_that_time_out_while_every_probe_is_fine_speak_of_what_lies_between() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    incident.canary(
        11 * SECOND,
        10 * SECOND,
        refusal("opa", "dial tcp 10.0.0.1:8443: i/o timeout"),
    );
    incident.answers(21 * SECOND, &opa);
    let verdict = incident.verdict(21 * SECOND + 100, "opa");
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::Unreachable), Effect::Blocking)
    );
    let said = verdict.evidence.join(" ");
    assert!(
        said.contains("hookwatch reaches it and the API server does not"),
        "{said}"
    );
}

#[test]
fn dials_that_time_out_after_an_endpoint_left_do_not_speak_of_a_firewall() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    let left = without(&opa, 1);
    incident.inventory(11 * SECOND, vec![left.clone()]);
    incident.canary(
        11 * SECOND,
        10 * SECOND,
        refusal("opa", "dial tcp 10.0.0.1:8443: i/o timeout"),
    );
    incident.answers(21 * SECOND, &left);
    let verdict = incident.verdict(21 * SECOND + 100, "opa");
    assert_eq!(verdict.cause, Some(Cause::Hanging));
}

#[test]
fn a_hook_whose_only_node_is_not_ready_is_well_and_looked_at_closely() {
    let mut opa = hook("opa", 2);
    if let HookTarget::Service(target) = &mut opa.target
        && let ServiceState::Found { endpoints, .. } = &mut target.service
    {
        for endpoint in endpoints {
            endpoint.node = Some("a".into());
        }
    }
    let mut incident = Incident::calm(&[&opa]);
    let standing = incident.verdict(11 * SECOND, "opa");
    assert_eq!(standing.health, Health::Healthy);
    assert!(!incident.attention.hooks.contains(&opa.id));
    let not_ready = NodeState {
        ready: Some(false),
        ..NodeState::default()
    };
    let inventory = Inventory {
        hooks: vec![Arc::new(opa.clone())],
        nodes: [("a".to_owned(), not_ready)].into(),
        ..Inventory::default()
    };
    incident.event(12 * SECOND, Event::Inventory(Arc::new(inventory)));
    let predicted = incident.verdict(12 * SECOND + 100, "opa");
    assert_eq!(predicted.health, Health::Healthy, "it is still well");
    assert!(incident.attention.hooks.contains(&opa.id));
}

#[test]
fn an_endpoint_that_is_removed_after_it_was_not_ready_has_left_once() {
    let opa = hook("opa", 2);
    let mut unready = opa.clone();
    if let HookTarget::Service(target) = &mut unready.target
        && let ServiceState::Found { endpoints, .. } = &mut target.service
    {
        endpoints[0].ready = false;
    }
    let mut incident = Incident::calm(&[&opa]);
    let mut doubt = |second: u64, hook: &Hook| {
        incident.inventory(second * SECOND, vec![hook.clone()]);
        incident.facts(second * SECOND + 100, hook).doubt
    };
    assert_eq!(doubt(12, &unready), None);
    assert_eq!(doubt(14, &without(&opa, 1)), None);
    assert_eq!(doubt(16, &opa), None);
    assert_eq!(doubt(18, &unready), Some(Doubt::EndpointsUnsettled));
}

/// Otherwise anyone who may write an EndpointSlice could make hookwatch forget that the real endpoint left.
#[test]
fn endpoints_that_change_more_often_than_is_remembered_are_unsettled() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    let others = |first: u8| {
        let mut hook = without(&hook("opa", first + 99), 1);
        if let HookTarget::Service(target) = &mut hook.target
            && let ServiceState::Found { endpoints, .. } = &mut target.service
        {
            endpoints.drain(..usize::from(first) - 2);
        }
        hook
    };
    // For each of these instants, at most one departure of the real endpoint is remembered.
    for (second, first) in [(12, 2), (16, 102)] {
        incident.inventory(second * SECOND, vec![others(first)]);
        incident.inventory((second + 2) * SECOND, vec![opa.clone()]);
    }
    let facts = incident.facts(18 * SECOND + 100, &opa);
    assert_eq!(facts.doubt, Some(Doubt::EndpointsUnsettled));
}
