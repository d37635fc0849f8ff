//! Observations of the API servers themselves and of nodes, for which no hook must be blamed.

use super::*;
use crate::observe::node_leases::{LeaseList, LeaseReading, LeaseTrouble, NodeLease};
use crate::observe::readiness::{Readiness, ReadyReport};

const BALANCER: &str = "10.0.0.1:6443";
const BOOTSTRAP: &str = "poststarthook/rbac/bootstrap-roles";

impl Incident {
    fn scrape_of(&mut self, ms: u64, target: &str, started: f64) {
        let snapshot = Snapshot {
            process_start: Some(started),
            ..self.counters.clone()
        };
        self.scraped(ms, target, snapshot);
    }

    fn no_answer(&mut self, ms: u64, target: &str) {
        self.no_scrape(ms, target, ScrapeFailureReason::TimedOut, "not back within 10s");
    }

    fn no_connection(&mut self, ms: u64, target: &str) {
        self.no_scrape(ms, target, ScrapeFailureReason::Unreachable, "connection refused");
    }

    fn no_scrape(&mut self, ms: u64, target: &str, reason: ScrapeFailureReason, why: &str) {
        let failure = ScrapeFailure {
            target: target.to_owned(),
            at: Self::at(ms),
            reason,
            why: why.to_owned(),
        };
        self.event(ms, Event::ScrapeFailed(failure));
    }

    fn readiness(&mut self, ms: u64, target: &str, readiness: Readiness) {
        self.event(
            ms,
            Event::Readiness(ReadyReport {
                target: target.to_owned(),
                at: Self::at(ms),
                readiness,
                version: Some("v1.36.2".to_owned()),
            }),
        );
    }

    fn leases(&mut self, ms: u64, nodes: &[(&str, u64)]) {
        let leases = nodes.iter().map(|(name, renewed)| NodeLease {
            name: (*name).to_owned(),
            renewed: renewed.to_string(),
            duration: Duration::from_secs(40),
        });
        let list = LeaseList {
            leases: leases.collect(),
            left_out: 0,
        };
        let at = Self::at(ms);
        self.event(
            ms,
            Event::NodeLeases(LeaseReading {
                at,
                outcome: Ok(list),
            }),
        );
    }
}

fn not_ready(check: &str) -> Readiness {
    Readiness::NotReady {
        failing: vec![check.to_owned()],
    }
}

fn unreachable() -> CanaryOutcome {
    CanaryOutcome::Unreachable {
        why: "cannot connect: deadline has elapsed".into(),
    }
}

/// Seed 000: the second master cannot start because the hook matches what it writes at its start.
#[test]
fn a_master_that_cannot_start_beside_a_failing_hook_is_told_in_one_sentence() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    incident.readiness(11 * SECOND, "10.0.0.1:6443", Readiness::Ready);
    incident.readiness(11 * SECOND, "10.0.0.2:6443", not_ready(BOOTSTRAP));
    let quiet = incident.tick(11 * SECOND + 100);
    assert_eq!(quiet.control_plane.symptoms.len(), 1);
    assert!(
        quiet.control_plane.symptoms[0].starts_with("API server 10.0.0.2:6443 is starting"),
        "{:?}",
        quiet.control_plane.symptoms
    );
    assert!(!quiet.control_plane.summary.contains("10.0.0.2"));

    for step in 0..2 {
        let refused = refusal("opa", "context deadline exceeded");
        incident.canary(12 * SECOND + step * SECOND, 500, refused);
    }
    let young = incident.tick(14 * SECOND + 100);
    assert_eq!(young.culprits().count(), 1);
    let summary = &young.control_plane.summary;
    assert!(
        summary.contains("10.0.0.2:6443 is starting (for 3.1 s now)"),
        "{summary}"
    );
    incident.readiness(27 * SECOND, "10.0.0.2:6443", not_ready(BOOTSTRAP));
    let assessment = incident.tick(27 * SECOND + 100);
    assert_eq!(assessment.culprits().count(), 1);
    let summary = &assessment.control_plane.summary;
    assert!(
        summary.contains("API server 10.0.0.2:6443 cannot start (for 16.1 s now): poststarthook")
            && summary.contains(BOOTSTRAP)
            && summary.contains("hook opa is failing"),
        "{summary}"
    );
    let views = &assessment.sources.scrapes;
    let second = views.iter().find(|view| view.target.starts_with("10.0.0.2"));
    let second = second.expect("it is a target");
    assert_eq!(second.readiness.state, "not_ready");
    assert_eq!(second.readiness.failing, [BOOTSTRAP]);
    assert_eq!(second.version.as_deref(), Some("v1.36.2"));
}

/// For example a missing metrics server, or a hook that matches only Pods.
#[test]
fn a_failing_webhook_that_nothing_made_at_start_meets_keeps_no_api_server_from_starting() {
    let mut pods = hook("pods", 1);
    pods.rules[0].resources = vec!["pods".into()];
    let mut incident = Incident::calm(&[&pods]);
    incident.readiness(11 * SECOND, "10.0.0.2:6443", not_ready(BOOTSTRAP));
    for second in 12..28 {
        incident.probe(second * SECOND, &pods, 0, ProbeOutcome::Refused);
        incident.canary(second * SECOND, 5, refusal("pods", "connection refused"));
    }
    incident.readiness(28 * SECOND, "10.0.0.2:6443", not_ready(BOOTSTRAP));
    let assessment = incident.tick(28 * SECOND + 100);
    assert_eq!(assessment.culprits().count(), 1);
    let symptoms = &assessment.control_plane.symptoms;
    assert!(
        symptoms[0].starts_with("API server 10.0.0.2:6443 is not ready (for 17.1 s now)"),
        "{symptoms:?}"
    );
}

/// The cause may be hookwatch's network policy or node.
#[test]
fn while_no_backend_answers_either_an_api_server_that_does_not_is_not_said_to_be_down() {
    let (opa, other) = (hook("opa", 1), hook("other", 1));
    let mut incident = Incident::calm(&[&opa, &other]);
    let mut last = None;
    for step in 0..8 {
        let ms = 11 * SECOND + step * 2 * SECOND;
        incident.canary(ms, 1, unreachable());
        incident.no_connection(ms, "10.0.0.1:6443");
        for hook in [&opa, &other] {
            let phase = ProbePhase::Connect;
            incident.probe_taking(ms, SECOND, hook, 0, ProbeOutcome::TimedOut { phase });
        }
        last = Some(incident.tick(ms + SECOND + 100));
    }
    let last = last.unwrap();
    assert!(last.sources.self_doubt);
    let plane = &last.control_plane;
    assert_eq!(plane.writes, Writes::Unknown, "{}", plane.summary);
    let found = plane.not_a_hook.as_ref().expect("it is told");
    assert_eq!((found.cause, found.confidence), (NotAHook::ApiServerDown, 0.5));
    let said = found
        .evidence
        .iter()
        .any(|said| said.contains("hookwatch may be cut off"));
    assert!(said, "{:?}", found.evidence);
}

#[test]
fn nodes_that_cannot_renew_are_a_symptom_and_never_accuse_a_hook() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    for step in 0..=5 {
        let ms = 11 * SECOND + step * 10 * SECOND;
        incident.leases(ms, &[("a", step), ("b", 0), ("c", 0)]);
        incident.probe(ms, &opa, 0, alive());
        incident.canary(ms, 5, CanaryOutcome::Written);
        incident.scrape(ms);
    }
    let assessment = incident.tick(61 * SECOND + 100);
    let symptoms = &assessment.control_plane.symptoms;
    assert_eq!(symptoms.len(), 1, "{symptoms:?}");
    assert!(
        symptoms[0].starts_with("2 of 3 nodes have not renewed their lease for over 40 s"),
        "{symptoms:?}"
    );
    assert_eq!(assessment.culprits().count(), 0);
    assert_eq!(assessment.control_plane.not_a_hook, None);
    assert_eq!(assessment.sources.node_leases.late, 2);

    let why = "grant list on leases".to_owned();
    incident.event(
        120 * SECOND,
        Event::NodeLeases(LeaseReading {
            at: Incident::at(120 * SECOND),
            outcome: Err(LeaseTrouble::Forbidden { why }),
        }),
    );
    let assessment = incident.tick(120 * SECOND + 100);
    assert_eq!(assessment.sources.node_leases.state, "forbidden");
    assert_eq!(assessment.control_plane.symptoms, [] as [&str; 0]);
}

/// Two processes behind one address, one of which stops answering: half of everything hangs.
#[test]
fn of_two_api_servers_behind_one_address_the_silent_one_is_named_and_no_hook_is() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    for step in 0..4 {
        let ms = 11 * SECOND + step * 5 * SECOND;
        for started in [1_000.0, 2_000.0] {
            incident.scrape_of(ms, BALANCER, started);
        }
        incident.probe(ms, &opa, 0, alive());
        incident.canary(ms, 5, CanaryOutcome::Written);
    }
    let before = incident.tick(26 * SECOND + 100);
    // The API server of the calm time is the third.
    assert_eq!(before.sources.scrapes[0].replicas, 3);
    assert_eq!(before.sources.scrapes[0].silent, []);

    for step in 0..6 {
        let ms = 28 * SECOND + step * 3 * SECOND;
        incident.scrape_of(ms, BALANCER, 1_000.0);
        incident.scrape_of(ms, BALANCER, 1.0);
        incident.no_answer(ms + 1, BALANCER);
        incident.probe(ms, &opa, 0, alive());
        match step % 2 {
            0 => incident.canary(ms, 5, CanaryOutcome::Written),
            _ => {
                incident.canary_late(ms - 2 * SECOND);
                incident.canary(ms - 2 * SECOND, 5 * SECOND, unreachable());
            }
        }
        let assessment = incident.tick(ms + 100);
        assert_eq!(assessment.culprits().count(), 0, "step {step}");
        let opa = &assessment.hooks[0];
        assert_eq!(opa.health, Health::Healthy, "step {step}: {:?}", opa.evidence);
    }
    let told = incident.told.iter();
    let told = told.filter(|change| matches!(change, LoggedChange::Scrape { .. }));
    assert_eq!(told.count(), 1, "half of the answers are no recovery");
    let assessment = incident.tick(46 * SECOND + 200);
    let silent = &assessment.sources.scrapes[0].silent;
    assert_eq!(silent.len(), 1);
    assert_eq!(silent[0].started, Some(Time::from_unix_millis(2_000_000)));
    assert_eq!(silent[0].since, Incident::at(26 * SECOND));
    let found = assessment.control_plane.not_a_hook.as_ref();
    let found = found.expect("a cause that is no hook");
    assert_eq!(found.cause, NotAHook::ReplicaDown);
    assert!(
        found.evidence[0].contains(BALANCER) && found.evidence[0].contains("1970-01-01T00:33:20"),
        "{:?}",
        found.evidence
    );
    assert!(
        assessment
            .control_plane
            .summary
            .contains("one of the API servers does not answer"),
        "{}",
        assessment.control_plane.summary
    );
}

#[test]
fn an_api_server_that_was_restarted_is_not_missed() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    // Start times in Unix seconds, before the incident.
    let (old, other) = (900_000.0, 900_001.0);
    for started in [old, other] {
        incident.scrape_of(11 * SECOND, BALANCER, started);
    }
    incident.no_answer(13 * SECOND, BALANCER);
    incident.no_answer(14 * SECOND, BALANCER);
    incident.scrape_of(15 * SECOND, BALANCER, other);
    assert_eq!(incident.tick(15 * SECOND).sources.scrapes[0].silent.len(), 2);
    incident.scrape_of(16 * SECOND, BALANCER, 1_000_014.0);
    assert_eq!(incident.tick(16 * SECOND).sources.scrapes[0].silent, []);
}

#[test]
fn an_api_server_with_an_address_of_its_own_that_stops_answering_is_named_by_it() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    for step in 0..3 {
        incident.scrape_of(11 * SECOND + step * SECOND, "10.0.0.2:6443", 5.0);
    }
    for step in 0..2 {
        let ms = 20 * SECOND + step * 10 * SECOND;
        incident.scrape(ms);
        incident.no_answer(ms, "10.0.0.2:6443");
        incident.probe(ms, &opa, 0, alive());
        incident.canary(ms, 5, CanaryOutcome::Written);
    }
    let assessment = incident.tick(30 * SECOND + 100);
    let symptoms = &assessment.control_plane.symptoms;
    assert!(
        symptoms.len() == 1 && symptoms[0].starts_with("API server 10.0.0.2:6443 has not answered for"),
        "{symptoms:?}"
    );
    // Writes go to the other API servers, so nothing is impaired.
    assert_eq!(assessment.control_plane.not_a_hook, None);
    assert_eq!(assessment.control_plane.writes, Writes::Flowing);
    assert!(assessment.sources.scrapes[1].failing_since.is_some());
}

#[test]
fn an_address_that_never_answered_is_no_api_server_that_stopped() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    for step in 0..4 {
        incident.no_answer(11 * SECOND + step * 10 * SECOND, "10.0.0.2:6443");
        incident.scrape(11 * SECOND + step * 10 * SECOND);
    }
    let assessment = incident.tick(42 * SECOND);
    assert_eq!(assessment.control_plane.symptoms, [] as [&str; 0]);
}

/// A hook behind a firewall never answers probes. A canary that gets no connection to a silent API server is late for up to
/// 5 s before anything shows which API server it is.
#[test]
fn a_canary_without_a_connection_does_not_accuse_a_hook_that_was_never_reached_from_here() {
    let opa = hook("opa", 1);
    let mut incident = Incident::with(vec![opa.clone()]);
    for step in 0..3 {
        let outcome = ProbeOutcome::TimedOut {
            phase: ProbePhase::Connect,
        };
        incident.probe_taking(step * 2 * SECOND, 2 * SECOND, &opa, 0, outcome);
    }
    incident.canary_late(6 * SECOND);
    // Our own network is fine.
    incident.scrape(7 * SECOND);
    for ms in [8_100, 9_000, 11_000] {
        assert_eq!(incident.tick(ms).culprits().count(), 0, "{ms}");
    }
    // A canary that is under way for longer has a connection and waits for something else.
    assert_eq!(incident.tick(12_000).culprits().count(), 1);
    incident.canary(6 * SECOND, 6 * SECOND, unreachable());
    assert_eq!(incident.tick(12_100).culprits().count(), 0);
}

/// The state of writes.
fn writes(incident: &mut Incident, ms: u64) -> Writes {
    incident.tick(ms).control_plane.writes
}

fn forbidden() -> CanaryOutcome {
    CanaryOutcome::Forbidden {
        message: "RBAC: clusterrole not found".into(),
    }
}

#[test]
fn the_death_of_the_only_api_server_blocks_writes_and_its_return_is_known_only_by_a_witness() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    // Nothing listens any more: a canary shows it within 5 s, and the scrape that it triggers.
    incident.canary(15 * SECOND, 1, unreachable());
    incident.no_answer(15 * SECOND + 300, BALANCER);
    assert_eq!(writes(&mut incident, 15 * SECOND + 400), Writes::Blocked);
    assert_eq!(writes(&mut incident, 40 * SECOND), Writes::Blocked);
    // It is back but has not loaded RBAC yet. Counters from before its restart show nothing.
    incident.canary(42 * SECOND, 5, forbidden());
    incident.scrape_of(42 * SECOND, BALANCER, 1_000_042.0);
    assert_eq!(writes(&mut incident, 42 * SECOND + 100), Writes::Unknown);
    incident.canary(46 * SECOND, 5, CanaryOutcome::Written);
    assert_eq!(writes(&mut incident, 46 * SECOND + 100), Writes::Flowing);
}

#[test]
fn writes_that_were_blocked_a_moment_ago_still_are_while_a_canary_gets_no_answer() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    incident.canary(30 * SECOND, 5, refusal("opa", "connection refused"));
    assert_eq!(writes(&mut incident, 30 * SECOND + 100), Writes::Blocked);
    incident.canary(33 * SECOND, 5, CanaryOutcome::Written);
    assert_eq!(writes(&mut incident, 33 * SECOND + 100), Writes::Blocked);
    incident.canary(34 * SECOND, 1, unreachable());
    assert_eq!(writes(&mut incident, 34 * SECOND + 100), Writes::Blocked);
    incident.canary(50 * SECOND, 1, unreachable());
    assert_eq!(writes(&mut incident, 50 * SECOND + 100), Writes::Unknown);
}

#[test]
fn what_was_blocked_before_an_api_server_died_says_nothing_of_writes_once_it_is_back() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    incident.canary(14 * SECOND, 5, refusal("opa", "connection refused"));
    assert_eq!(writes(&mut incident, 14 * SECOND + 100), Writes::Blocked);
    incident.canary(15 * SECOND, 1, unreachable());
    incident.no_answer(15 * SECOND + 300, BALANCER);
    assert_eq!(writes(&mut incident, 15 * SECOND + 400), Writes::Blocked);
    incident.canary(16 * SECOND, 5, CanaryOutcome::Written);
    assert_eq!(writes(&mut incident, 16 * SECOND + 100), Writes::Flowing);
}

#[test]
fn canaries_that_waited_for_an_api_server_to_start_are_no_delay_and_later_ones_are() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    let written = |incident: &mut Incident, ms, took| {
        for target in [CanaryTarget::KubeSystem, CanaryTarget::NodeLease] {
            incident.canary_of(target, ms, took, CanaryOutcome::Written);
        }
    };
    incident.canary(15 * SECOND, 1, unreachable());
    incident.no_answer(15 * SECOND + 300, BALANCER);
    assert_eq!(writes(&mut incident, 15 * SECOND + 400), Writes::Blocked);
    written(&mut incident, 16 * SECOND, 1_500);
    assert_eq!(writes(&mut incident, 17 * SECOND + 600), Writes::Flowing);
    written(&mut incident, 18 * SECOND, 5);
    assert_eq!(writes(&mut incident, 18 * SECOND + 100), Writes::Flowing);
    for second in (30..40).step_by(2) {
        written(&mut incident, second * SECOND, 1_500);
        let for_long = second - 30 >= 8;
        let told = if for_long {
            Writes::Delayed
        } else {
            Writes::Flowing
        };
        assert_eq!(writes(&mut incident, second * SECOND + 1_600), told, "{second} s");
    }
}

#[test]
fn writes_counted_since_an_api_server_returned_show_that_they_flow_though_canaries_are_forbidden() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    incident.canary(15 * SECOND, 1, unreachable());
    incident.no_answer(15 * SECOND + 300, BALANCER);
    incident.canary(30 * SECOND, 5, forbidden());
    for ms in [30 * SECOND, 32 * SECOND] {
        incident.count_writes(200.0, 0.005, 0.004);
        incident.scrape_of(ms, BALANCER, 1_000_030.0);
    }
    let assessment = incident.tick(32 * SECOND + 100);
    assert_eq!(assessment.control_plane.writes, Writes::Flowing);
}

#[test]
fn an_address_that_was_never_reached_does_not_say_that_writes_are_blocked() {
    let mut incident = Incident::with(vec![hook("opa", 1)]);
    incident.canary(SECOND, 1, unreachable());
    incident.no_answer(SECOND, BALANCER);
    let plane = incident.tick(2 * SECOND).control_plane.clone();
    assert_eq!(plane.writes, Writes::Unknown);
    let found = plane.not_a_hook.expect("it is told");
    assert_eq!((found.cause, found.confidence), (NotAHook::ApiServerDown, 0.5));
}

#[test]
fn without_canaries_scrapes_alone_say_with_less_confidence_that_an_api_server_is_down() {
    let mut incident = Incident::with(vec![hook("opa", 1)]);
    for second in (0..20).step_by(2) {
        incident.count_writes(20.0, 0.005, 0.004);
        incident.scrape_of(second * SECOND, BALANCER, 1_000_000.0);
    }
    for second in [20, 22, 24] {
        incident.no_answer(second * SECOND, BALANCER);
    }
    let found = incident.tick(25 * SECOND).control_plane.not_a_hook.clone();
    let found = found.expect("it is told");
    assert_eq!((found.cause, found.confidence), (NotAHook::ApiServerDown, 0.5));
    assert!(
        !found.evidence.join(" ").contains("Canaries"),
        "{:?}",
        found.evidence
    );
}

#[test]
fn a_canary_that_waits_since_before_a_shield_does_not_say_that_it_spares_nothing() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    let shielded = acting::changed(&opa, "hookwatch.dev/shield");
    incident.canary_of_late(CanaryTarget::KubeSystem, 11 * SECOND);
    incident.inventory(12 * SECOND, vec![shielded]);
    let summary = incident.verdict(20 * SECOND, "opa").summary;
    assert!(summary.contains("do not reach it"), "{summary}");
    assert!(!summary.contains("still wait or fail"), "{summary}");
    incident.canary_of_late(CanaryTarget::KubeSystem, 16 * SECOND);
    let summary = incident.verdict(21 * SECOND, "opa").summary;
    assert!(summary.contains("still wait or fail"), "{summary}");
}

#[test]
fn an_api_server_that_left_does_not_hide_that_the_other_one_is_down() {
    let mut incident = Incident::with(vec![hook("opa", 1)]);
    for second in (0..200).step_by(2) {
        incident.count_writes(20.0, 0.005, 0.004);
        incident.scrape_of(second * SECOND, "one", 1_000_000.0);
        incident.canary(second * SECOND, 5, CanaryOutcome::Written);
        if second < 20 {
            incident.scrape_of(second * SECOND, "another", 1_000_000.0);
        }
    }
    for second in [200, 202, 204, 206] {
        incident.no_answer(second * SECOND, "one");
        incident.canary(second * SECOND, 1, unreachable());
    }
    let plane = incident.tick(207 * SECOND).control_plane.clone();
    assert_eq!(
        plane.not_a_hook.map(|found| found.cause),
        Some(NotAHook::ApiServerDown)
    );
    assert_eq!(plane.writes, Writes::Blocked);
}

#[test]
fn what_a_shield_spares_is_said_to_flow_only_when_canaries_of_its_kinds_got_through_since() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    let shielded = acting::changed(&opa, "hookwatch.dev/shield");
    incident.inventory(12 * SECOND, vec![shielded]);
    let mut summary = |ms, canary: Option<(CanaryTarget, u64)>| {
        if let Some((target, took)) = canary {
            incident.canary_of(target, ms - took, took, CanaryOutcome::Written);
        }
        incident.verdict(ms, "opa").summary
    };
    let not_shown = summary(12 * SECOND + 100, None);
    assert!(not_shown.contains("do not reach it"), "{not_shown}");
    let one = summary(14 * SECOND, Some((CanaryTarget::KubeSystem, 5)));
    assert!(one.contains("do not reach it"), "{one}");
    let both = summary(14 * SECOND, Some((CanaryTarget::NodeLease, 5)));
    assert!(both.contains("own writes flow"), "{both}");
    let late = summary(20 * SECOND, Some((CanaryTarget::KubeSystem, 3 * SECOND)));
    assert!(late.contains("still wait or fail"), "{late}");
}

/// The last counters of an API server that is gone show nothing about a fault that began when it went.
#[test]
fn an_api_server_that_goes_down_does_not_hold_up_the_verdict_on_a_webhook_that_gets_slow() {
    let named_at = |goes_down: bool| {
        let opa = hook("opa", 1);
        let mut incident = Incident::calm(&[&opa]);
        for second in [12, 14, 16, 18] {
            incident.count_writes(20.0, 0.005, 0.004);
            incident.count_calls("opa", 20.0, 0.001);
            incident.scrape(second * SECOND);
            incident.scrape_of(second * SECOND, "10.0.0.2:6443", 2.0);
        }
        (20..90).step_by(2).find(|second| {
            let ms = second * SECOND;
            incident.count_writes(20.0, 2.0, 0.004);
            incident.count_calls("opa", 20.0, 1.9);
            incident.scrape(ms);
            if goes_down {
                incident.no_connection(ms, "10.0.0.2:6443");
            } else {
                incident.scrape_of(ms, "10.0.0.2:6443", 2.0);
            }
            incident.verdict(ms + 10, "opa").health == Health::Failing
        })
    };
    assert!(named_at(false).is_some());
    assert_eq!(named_at(true), named_at(false));
}
