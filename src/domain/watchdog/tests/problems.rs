//! What is said about Services that probes can hardly judge.

use super::*;

impl Incident {
    fn problems(&mut self, ms: u64) -> Vec<String> {
        let problems = &self.tick(ms).problems;
        let said = problems
            .iter()
            .map(|problem| format!("{}: {}", problem.object, problem.what));
        said.collect()
    }
}

/// The hook with these endpoints, by the last byte of each.
fn with(hook: &Hook, lasts: impl Iterator<Item = u8>) -> Hook {
    let mut hook = hook.clone();
    if let HookTarget::Service(target) = &mut hook.target
        && let ServiceState::Found { endpoints, .. } = &mut target.service
    {
        *endpoints = lasts
            .map(|last| Endpoint::ready(([10, 0, 0, last], 8443).into()))
            .collect();
    }
    hook
}

#[test]
fn endpoints_that_change_a_hundred_times_a_second_are_a_problem_of_their_service_until_they_settle() {
    let opa = hook("opa", 5);
    let mut twin = opa.clone();
    twin.id.webhook = "twin".into();
    let mut incident = Incident::calm(&[&opa, &twin]);
    for round in 0..20 {
        // Five leave and five come.
        let lasts = if round % 2 == 0 { 11..16 } else { 1..6 };
        let hooks = [&opa, &twin].map(|hook| with(hook, lasts.clone()));
        incident.inventory(11 * SECOND + round * 100, hooks.into());
    }
    let said = incident.problems(13 * SECOND);
    let [said] = &said[..] else { panic!("{said:?}") };
    assert!(
        said.starts_with("Service ns/opa: its endpoints change more than six times a second."),
        "{said}"
    );
    assert_eq!(incident.problems(33 * SECOND), [""; 0]);
}

#[test]
fn a_rollout_of_fifty_pods_within_ten_seconds_is_no_problem() {
    let opa = hook("opa", 50);
    let mut incident = Incident::calm(&[&opa]);
    for replaced in 1..=50 {
        let lasts = replaced + 1..=replaced + 50;
        incident.inventory(11 * SECOND + u64::from(replaced) * 200, vec![with(&opa, lasts)]);
    }
    assert_eq!(incident.problems(21 * SECOND), [""; 0]);
}

#[test]
fn a_backend_that_closes_each_connection_after_its_answer_is_a_problem_of_its_service_until_it_keeps_one() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    let mut now = 11 * SECOND;
    let mut answers = |incident: &mut Incident, dialled: bool| {
        now += 5 * SECOND;
        let report = ProbeReport {
            hook: opa.id.clone(),
            backend: opa.backends()[1].clone(),
            level: ProbeLevel::Http,
            connection: ConnectionKind::Kept,
            started: Incident::at(now),
            took: Duration::from_millis(3),
            phases: PhaseDurations {
                connect: dialled.then_some(Duration::from_millis(1)),
                ..PhaseDurations::default()
            },
            outcome: alive(),
            certificates: CertificateFacts::default(),
            shared: false,
        };
        incident.event(now, Event::Probed(Box::new(report)));
        incident.problems(now + 10)
    };
    for _ in 0..5 {
        assert_eq!(
            answers(&mut incident, true),
            [""; 0],
            "it may have been restarted"
        );
    }
    let said = answers(&mut incident, true);
    let [said] = &said[..] else { panic!("{said:?}") };
    assert!(
        said.starts_with("Service ns/opa: endpoint 10.0.0.2:8443 closes each connection"),
        "{said}"
    );
    // With more backends than connections may be kept, hookwatch closes them.
    for (targets, problems) in [(513, 0), (512, 1)] {
        let pace = ProbePace {
            targets,
            ..ProbePace::default()
        };
        incident.event(60 * SECOND, Event::ProbePace(pace));
        assert_eq!(answers(&mut incident, true).len(), problems, "{targets} backends");
    }
    assert_eq!(answers(&mut incident, false), [""; 0]);
}
