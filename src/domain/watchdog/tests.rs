//! Incidents as lists of events.

mod acting;
mod auditing;
mod by_hand;
mod bypassed;
mod costs;
mod counted;
mod covered;
mod dead;
mod doubt;
mod endpoints;
mod explained;
mod extension;
mod forged;
mod incident;
mod measured;
mod misleading;
mod one_server;
mod overload;
mod path;
mod refused;
mod replica;
mod sabotage;
mod scale;
mod servers;
mod slow;
mod steady;
mod stored;

use std::time::Duration;

use self::incident::{Incident, add, alive, hook, refusal};
use super::*;
use crate::act::breaker::Judged;
use crate::audit::periodic::AuditRequest;
use crate::cluster::hook::{
    BackendAddress, BackendPath, Endpoint, FailurePolicy, Hook, HookRule, HookTarget, ProbeLevel, Scope,
    Selector, ServiceState, ServiceTarget,
};
use crate::observe::canary::{CanaryOutcome, CanaryOverdue, CanaryReport, CanaryTarget};
use crate::observe::probe::{
    ConnectionKind, PhaseDurations, ProbeAnswer, ProbeOutcome, ProbeOverdue, ProbePhase, ProbeReport,
};
use crate::observe::snapshot::{
    Complaints, Cumulative, HookSeries, ScrapeFailureReason, Snapshot, WriteKey, WriteOperation,
};
use crate::report::announcement::Announcement;
use crate::vocabulary::{Cause, Effect, Health, NotAHook};

const SECOND: u64 = 1_000;

fn found(verdict: &Verdict) -> (Health, Option<Cause>, Effect) {
    (verdict.health, verdict.cause, verdict.effect)
}

#[track_caller]
fn assert_judged(verdict: &Verdict, health: Health, cause: Option<Cause>) {
    let evidence = &verdict.evidence;
    assert_eq!((verdict.health, verdict.cause), (health, cause), "{evidence:?}");
}

/// Fact 2 of a real API server: for the first ten seconds of a hang no request completes and no histogram moves.
#[test]
fn a_hang_is_named_before_any_latency_was_measured() {
    let opa = hook("opa", 3);
    let mut incident = Incident::hung(&opa);
    // Nothing at all was counted since the fault.
    incident.scrape(13 * SECOND);
    let verdict = incident.verdict(13 * SECOND + 100, "opa");
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::Hanging), Effect::Blocking)
    );
    assert_eq!(
        incident.tick(13 * SECOND + 200).control_plane.writes,
        Writes::Blocked
    );
}

/// Fact 3: while connections are refused, requests get faster.
#[test]
fn refused_backends_are_named_although_latency_falls() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    incident.count_writes(200.0, 0.0026, 0.002);
    let series = incident.count_calls("opa", 200.0, 0.0004);
    series.rejections.calling += 200.0;
    series.codes.insert(503, 200.0);
    add(&mut series.rejected, 200.0, 0.0004);
    for step in 0..2 {
        for backend in 0..2 {
            incident.probe(11 * SECOND + step * 500, &opa, backend, ProbeOutcome::Refused);
        }
    }
    incident.scrape(12 * SECOND);
    let verdict = incident.verdict(12 * SECOND + 100, "opa");
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::Refused), Effect::Blocking)
    );
    assert!(verdict.confidence > 0.9, "two witnesses: {}", verdict.confidence);
}

/// Fact 4: pooled connections keep to the good backends; only direct probes see the bad one.
#[test]
fn one_refusing_backend_of_three_is_forecast_and_no_hook_is_blamed() {
    let opa = hook("opa", 3);
    let mut incident = Incident::calm(&[&opa]);
    for step in 0..4 {
        let ms = 11 * SECOND + step * SECOND;
        incident.probe(ms, &opa, 0, ProbeOutcome::Refused);
        incident.probe(ms + 10, &opa, 1, alive());
        incident.probe(ms + 10, &opa, 2, alive());
        incident.count_writes(100.0, 0.005, 0.004);
        incident.count_calls("opa", 100.0, 0.001);
        incident.scrape(ms + 500);
    }
    let verdict = incident.verdict(15 * SECOND, "opa");
    assert_eq!(
        found(&verdict),
        (Health::Suspect, Some(Cause::Partial), Effect::None)
    );
    assert!(
        verdict.evidence.iter().any(|said| said.contains("10.0.0.1:8443")),
        "{:?}",
        verdict.evidence
    );
}

#[test]
fn one_backend_of_three_that_users_do_meet_is_a_culprit() {
    let opa = hook("opa", 3);
    let mut incident = Incident::calm(&[&opa]);
    for step in 0..3 {
        incident.probe(11 * SECOND + step * 500, &opa, 0, ProbeOutcome::Refused);
        incident.probe(11 * SECOND + step * 500 + 10, &opa, 1, alive());
    }
    incident.count_writes(100.0, 0.005, 0.004);
    let series = incident.count_calls("opa", 100.0, 0.001);
    series.rejections.calling += 33.0;
    incident.scrape(13 * SECOND);
    let verdict = incident.verdict(13 * SECOND, "opa");
    assert_judged(&verdict, Health::Failing, Some(Cause::Partial));
}

#[test]
fn a_hook_whose_failures_are_ignored_delays_and_blocks_what_it_keeps_past_its_deadline() {
    for (timeout, effect) in [(4, Effect::Delaying), (5, Effect::Blocking)] {
        let mut mutator = hook("mutator", 2);
        mutator.failure_policy = FailurePolicy::Ignore;
        mutator.timeout = Duration::from_secs(timeout);
        let mut incident = Incident::calm(&[&mutator]);
        let took = timeout as f64;
        incident.count_writes(10.0, took + 0.005, 0.004);
        incident.count_calls("mutator", 10.0, took).fail_open += 10.0;
        incident.scrape(20 * SECOND);
        let verdict = incident.verdict(20 * SECOND, "mutator");
        assert_eq!(found(&verdict), (Health::Failing, Some(Cause::Hanging), effect));
        assert!(verdict.fails_open);
        let told = verdict
            .evidence
            .iter()
            .any(|said| said.contains("leaders give an attempt up after 5 s"));
        assert_eq!(told, effect == Effect::Blocking, "{:?}", verdict.evidence);
        let within =
            "A renewal of a leader's Lease waits 4.0 s of its 5.0 s for webhooks now (mutator 4.0 s).";
        let told = verdict.evidence.iter().any(|said| said == within);
        assert_eq!(told, effect == Effect::Delaying, "{:?}", verdict.evidence);
    }
}

#[test]
fn probes_that_never_got_through_accuse_no_hook_of_hanging() {
    let opa = hook("opa", 2);
    let mut incident = Incident::with(vec![opa.clone()]);
    for step in 0..3 {
        for backend in 0..2 {
            let outcome = ProbeOutcome::TimedOut {
                phase: ProbePhase::Connect,
            };
            incident.probe_taking(step * 10 * SECOND, 10 * SECOND, &opa, backend, outcome);
        }
        incident.count_writes(100.0, 0.005, 0.004);
        incident.count_calls("opa", 100.0, 0.001);
        incident.scrape((step + 1) * 10 * SECOND);
        incident.tick((step + 1) * 10 * SECOND);
    }
    let verdict = incident.verdict(30 * SECOND + 100, "opa");
    assert_ne!(verdict.health, Health::Failing, "{:?}", verdict.evidence);
    assert_ne!(verdict.health, Health::Healthy, "no data is never healthy");
}

#[test]
fn an_odd_answer_to_a_forged_review_is_no_verdict_until_the_api_server_agrees() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    let refused = || ProbeOutcome::Answered(ProbeAnswer::ReviewRefused { status: 500 });
    for step in 0..10 {
        incident.probe(11 * SECOND + step * SECOND, &opa, 0, refused());
    }
    incident.canary(20 * SECOND, 5, CanaryOutcome::Written);
    assert_eq!(incident.verdict(21 * SECOND, "opa").health, Health::Suspect);
    let message = "Internal error occurred: failed calling webhook \"opa\": failed to call webhook: an error on the \
                   server (\"boom\") has prevented the request from succeeding";
    incident.canary(22 * SECOND, 5, CanaryOutcome::from_status(500, message));
    let verdict = incident.verdict(22 * SECOND + 10, "opa");
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::Erroring), Effect::Blocking)
    );
}

#[test]
fn a_dead_hook_without_calls_is_named_by_probes_alone_after_a_while() {
    let rare = hook("rare", 1);
    let mut incident = Incident::calm(&[&rare, &hook("busy", 1)]);
    let dead_at = |step| 11 * SECOND + step * SECOND;
    for step in 0..10 {
        incident.probe(dead_at(step), &rare, 0, ProbeOutcome::Refused);
        incident.probe(dead_at(step), &hook("busy", 1), 0, alive());
        let verdict = incident.verdict(dead_at(step) + 10, "rare");
        assert!(
            step >= 5 || verdict.health != Health::Failing,
            "too early: after {step} s"
        );
    }
    assert_eq!(incident.verdict(22 * SECOND, "rare").health, Health::Failing);
}

#[test]
fn missing_endpoints_are_a_rollout_at_first_and_an_outage_after_a_while() {
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
    let verdict = incident.verdict(12 * SECOND, "opa");
    assert_judged(&verdict, Health::Suspect, Some(Cause::NoEndpoints));
    let verdict = incident.verdict(17 * SECOND, "opa");
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::NoEndpoints), Effect::Blocking)
    );
    assert_eq!(verdict.since, Some(Incident::at(11 * SECOND)));
    // The first question of an incident: what happened just then?
    let told = verdict
        .evidence
        .iter()
        .find(|said| said.starts_with("Shortly before:"));
    let told = told.unwrap();
    assert!(
        told.contains("endpoint 10.0.0.1:8443 was removed at 1970-01-12T13:46:51.000Z")
            && told.contains("10.0.0.2:8443"),
        "{told}"
    );
}

#[test]
fn counters_of_a_name_that_two_configurations_share_accuse_neither() {
    let (mut a, mut b) = (hook("same", 1), hook("same", 1));
    a.id = HookId::new(HookKind::Validating, "a", "same");
    b.id = HookId::new(HookKind::Validating, "b", "same");
    let mut incident = Incident::calm(&[&a, &b]);
    incident.count_writes(100.0, 0.005, 0.004);
    incident.count_calls("same", 100.0, 0.001).rejections.calling += 50.0;
    incident.scrape(13 * SECOND);
    let assessment = incident.tick(13 * SECOND);
    assert_eq!(assessment.culprits().count(), 0);
    for verdict in &assessment.hooks {
        assert_eq!(verdict.health, Health::Suspect);
        assert!(
            verdict
                .evidence
                .iter()
                .any(|said| said.contains("Several configurations"))
        );
    }
    // Probes tell the two apart.
    for step in 0..2 {
        incident.probe(14 * SECOND + step, &a, 0, ProbeOutcome::Refused);
        incident.probe(14 * SECOND + step, &b, 0, alive());
    }
    let assessment = incident.tick(14 * SECOND + 100);
    let named: Vec<_> = assessment
        .culprits()
        .filter_map(|verdict| verdict.configuration.as_deref())
        .collect();
    assert_eq!(named, ["a"]);
}

#[test]
fn a_webhook_named_by_metrics_alone_is_reported_without_a_configuration() {
    let mut incident = Incident::calm(&[&hook("known", 1)]);
    incident.count_writes(100.0, 10.0, 0.004);
    let series = incident.count_calls("hidden.static.k8s.io", 100.0, 10.0);
    series.rejections.calling += 100.0;
    add(&mut series.rejected, 100.0, 10.0);
    incident.scrape(13 * SECOND);
    let verdict = incident.verdict(13 * SECOND, "hidden.static.k8s.io");
    assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
    assert_eq!(verdict.configuration, None);
}

#[test]
fn a_webhook_named_by_a_refusal_alone_is_reported_as_a_problem() {
    let mut incident = Incident::calm(&[&hook("known", 1)]);
    incident.canary(11 * SECOND, 10, refusal("ghost", "context deadline exceeded"));
    let assessment = incident.tick(12 * SECOND);
    assert!(
        assessment
            .problems
            .iter()
            .any(|problem| problem.object.contains("ghost"))
    );
    assert_eq!(assessment.culprits().count(), 0);
}

#[test]
fn a_hook_that_denies_is_not_failing_whatever_text_it_denies_with() {
    let (liar, innocent) = (hook("liar", 1), hook("innocent", 1));
    let mut incident = Incident::calm(&[&liar, &innocent]);
    incident.count_writes(100.0, 0.003, 0.002);
    incident.count_calls("innocent", 100.0, 0.001);
    incident.count_calls("liar", 100.0, 0.001).rejections.denied += 100.0;
    let lie = "admission webhook \"liar\" denied the request: Internal error occurred: failed calling webhook \
               \"innocent\": failed to call webhook: context deadline exceeded";
    incident.canary(12 * SECOND, 5, CanaryOutcome::from_status(400, lie));
    incident.scrape(13 * SECOND);
    let assessment = incident.tick(13 * SECOND);
    assert_eq!(assessment.culprits().count(), 0);
    let verdict = incident.verdict(13 * SECOND, "liar");
    assert_eq!(
        found(&verdict),
        (Health::Suspect, Some(Cause::Denying), Effect::None)
    );
    assert_eq!(incident.verdict(13 * SECOND, "innocent").cause, None);
}

#[test]
fn a_hook_that_recovers_is_healthy_again_and_the_way_there_was_told() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    incident.probe(11 * SECOND, &opa, 0, ProbeOutcome::Refused);
    incident.probe(11 * SECOND + 500, &opa, 0, ProbeOutcome::Refused);
    incident.canary(
        11 * SECOND,
        3,
        refusal("opa", "dial tcp 10.0.0.1:8443: connect: connection refused"),
    );
    assert_eq!(incident.verdict(12 * SECOND, "opa").health, Health::Failing);
    assert!(incident.attention.everywhere);
    assert!(incident.attention.hooks.contains(&opa.id));
    incident.probe(13 * SECOND, &opa, 0, alive());
    incident.canary(13 * SECOND, 3, CanaryOutcome::Written);
    incident.count_writes(100.0, 0.005, 0.004);
    incident.count_calls("opa", 100.0, 0.001);
    incident.scrape(14 * SECOND);
    assert_eq!(incident.verdict(14 * SECOND, "opa").health, Health::Healthy);
    incident.tick(14 * SECOND + 100);
    assert!(incident.attention.hooks.is_empty());
    let healths: Vec<Health> = incident
        .told
        .iter()
        .filter_map(|change| match change {
            LoggedChange::Hook { verdict, .. } => Some(verdict.health),
            _ => None,
        })
        .collect();
    assert!(
        healths.ends_with(&[Health::Failing, Health::Healthy]),
        "{healths:?}"
    );
}

#[test]
fn an_api_server_that_answers_nothing_is_down_and_no_hook_is_to_blame() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    for step in 0..3 {
        let ms = 11 * SECOND + step * SECOND;
        incident.canary(
            ms,
            1,
            CanaryOutcome::Unreachable {
                why: "connection refused".into(),
            },
        );
        incident.event(
            ms,
            Event::ScrapeFailed(ScrapeFailure {
                target: "10.0.0.1:6443".into(),
                at: Incident::at(ms),
                reason: ScrapeFailureReason::Unreachable,
                why: "connection refused".into(),
            }),
        );
        incident.probe(ms, &opa, 0, alive());
    }
    let assessment = incident.tick(15 * SECOND);
    assert_eq!(
        assessment.control_plane.not_a_hook.as_ref().map(|f| f.cause),
        Some(NotAHook::ApiServerDown)
    );
    assert_eq!(assessment.culprits().count(), 0);
    let tellings = incident
        .told
        .iter()
        .filter(|change| matches!(change, LoggedChange::Scrape { .. }))
        .count();
    assert_eq!(tellings, 1, "a failure that goes on is told once");
}

#[test]
fn a_cluster_ip_that_cannot_be_reached_from_here_is_no_evidence() {
    let mut opa = hook("opa", 2);
    if let HookTarget::Service(ServiceTarget {
        service: ServiceState::Found { cluster_ip, .. },
        ..
    }) = &mut opa.target
    {
        *cluster_ip = Some(([10, 96, 0, 9], 443).into());
    }
    let mut incident = Incident::with(vec![opa.clone()]);
    let virtual_ip = opa
        .backends()
        .iter()
        .position(|backend| backend.path == BackendPath::ClusterIp);
    let virtual_ip = virtual_ip.expect("the cluster IP is a backend");
    for step in 0..3 {
        for backend in 0..2 {
            incident.probe(step * 10 * SECOND, &opa, backend, alive());
        }
        let outcome = ProbeOutcome::TimedOut {
            phase: ProbePhase::Connect,
        };
        incident.probe_taking(step * 10 * SECOND, 10 * SECOND, &opa, virtual_ip, outcome);
    }
    let verdict = incident.verdict(31 * SECOND, "opa");
    assert_judged(&verdict, Health::Healthy, None);
    assert!(!incident.attention.hooks.contains(&opa.id));
    assert!(!verdict.no_backend_answers());
    for backend in (0..opa.backends().len()).filter(|backend| *backend != virtual_ip) {
        incident.probe(40 * SECOND, &opa, backend, ProbeOutcome::Refused);
        incident.probe(42 * SECOND, &opa, backend, ProbeOutcome::Refused);
    }
    assert!(incident.verdict(43 * SECOND, "opa").no_backend_answers());
}

#[test]
fn a_url_hook_is_judged_like_any_other() {
    let mut by_url = hook("by-url", 0);
    by_url.target = HookTarget::Url(crate::cluster::hook::UrlTarget {
        host: "h".into(),
        port: 1,
        path: "/".into(),
    });
    assert_eq!(by_url.backends()[0].address, BackendAddress::Host("h".into(), 1));
    let mut incident = Incident::calm(&[&by_url]);
    incident.canary_late(11 * SECOND);
    incident.probe_late(11 * SECOND, &by_url, 0, 2 * SECOND);
    assert_eq!(
        incident.verdict(13 * SECOND + 100, "by-url").cause,
        Some(Cause::Hanging)
    );
}

#[test]
fn a_dead_hook_that_matches_nothing_sends_no_page() {
    let mut idle = hook("idle", 1);
    idle.rules.clear();
    let mut incident = Incident::calm(&[&idle, &hook("busy", 1)]);
    for step in 0..10 {
        incident.probe(11 * SECOND + step * SECOND, &idle, 0, ProbeOutcome::Refused);
        incident.probe(11 * SECOND + step * SECOND, &hook("busy", 1), 0, alive());
    }
    let verdict = incident.verdict(22 * SECOND, "idle");
    assert_eq!(
        found(&verdict),
        (Health::Suspect, Some(Cause::Refused), Effect::None)
    );
}
