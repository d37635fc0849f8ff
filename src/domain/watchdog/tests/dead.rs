//! When a hook with `failurePolicy: Ignore` is dead, so that every request already passes without review.

use super::*;
use crate::act::breaker::HookFacts;

/// What is observed of the hook in each second.
#[derive(Clone)]
struct Case {
    /// Milliseconds that each backend takes to answer a probe on a fresh connection; `None`: it does not answer.
    fresh: [Option<u64>; 2],
    /// Whether kept connections still answer.
    kept: bool,
    /// Whether another hook's backend answers.
    others: bool,
    /// Calls that failed open and calls that were answered, as each of two API servers counts them.
    counted: [(f64, f64); 2],
    /// How many of the API servers are scraped.
    scraped: usize,
    /// Whether canaries return.
    canaries: bool,
    /// Seconds that writes, except dry runs, waited.
    waited: f64,
    policy: FailurePolicy,
}

/// No backend answers.
const DEAD: Case = Case {
    fresh: [None; 2],
    kept: false,
    others: true,
    counted: [(3.0, 0.0); 2],
    scraped: 2,
    canaries: false,
    waited: 0.0,
    policy: FailurePolicy::Ignore,
};

const NO_CALL_FAILS: [(f64, f64); 2] = [(0.0, 20.0); 2];

struct Watched {
    incident: Incident,
    hook: Hook,
    other: Hook,
    second_server: Snapshot,
    ms: u64,
}

impl Watched {
    fn new(policy: FailurePolicy) -> Self {
        Self::waiting(policy, 10)
    }

    /// A hook with this timeout in seconds.
    fn waiting(policy: FailurePolicy, seconds: u64) -> Self {
        let mut hook = hook("opa", 2);
        (hook.failure_policy, hook.timeout) = (policy, Duration::from_secs(seconds));
        let mut other = super::hook("other", 1);
        other.target = HookTarget::Service(ServiceTarget {
            namespace: "ns".into(),
            name: "other".into(),
            port: 443,
            path: "/".into(),
            service: ServiceState::Found {
                by_hand: false,
                cluster_ip: None,
                endpoints: vec![Endpoint::ready(([10, 0, 1, 1], 8443).into())],
            },
        });
        Self {
            incident: Incident::calm(&[&hook, &other]),
            hook,
            other,
            second_server: Snapshot {
                process_start: Some(2.0),
                ..Snapshot::default()
            },
            ms: 12 * SECOND,
        }
    }

    /// Plays one second; returns the facts for the breaker.
    fn second(&mut self, case: &Case) -> HookFacts {
        self.ms += SECOND;
        let (ms, hook, other) = (self.ms, self.hook.clone(), self.other.clone());
        for (backend, takes) in case.fresh.into_iter().enumerate() {
            self.probed(&hook, backend, takes);
        }
        self.probed(&other, 0, case.others.then_some(3));
        if case.kept {
            self.incident.kept(ms - 3, 3, &hook, alive());
        }
        if case.canaries {
            self.incident.canary(ms - 2, 1, CanaryOutcome::Written);
        }
        if (ms / SECOND).is_multiple_of(2) {
            self.scrapes(case);
        }
        self.incident.tick(ms + 200);
        self.incident.judged.hooks[&hook.id].clone()
    }

    fn probed(&mut self, hook: &Hook, backend: usize, takes: Option<u64>) {
        let ms = self.ms;
        if takes.is_none_or(|takes| takes > 2 * SECOND) {
            self.incident
                .probe_late(ms - 2 * SECOND, hook, backend, 2 * SECOND);
        }
        if let Some(takes) = takes {
            self.incident
                .probe_taking(ms - takes, takes, hook, backend, alive());
        }
    }

    /// Delivers the results, due now, of the probes that begin twice a second from the onset on. As in production, a probe
    /// ends at the hook's timeout.
    fn begun(&mut self, onset: u64, fresh: Fresh) {
        let (ms, hook) = (self.ms, self.hook.clone());
        let timeout = hook.timeout.as_secs() * SECOND;
        let timed_out = ProbeOutcome::TimedOut {
            phase: ProbePhase::FirstByte,
        };
        let (takes, outcome) = match fresh {
            Fresh::Answered(takes) if takes <= timeout => (takes, alive()),
            Fresh::Answered(_) | Fresh::Silent => (timeout, timed_out),
            Fresh::Refused => (0, ProbeOutcome::Refused),
        };
        let begun = |ago: u64| ms >= onset + ago && (ms - onset - ago).is_multiple_of(500);
        for backend in 0..2 {
            if begun(takes) {
                self.incident
                    .probe_taking(ms - takes, takes, &hook, backend, outcome.clone());
            }
            if takes > OVERDUE && begun(OVERDUE) {
                self.incident.probe_late(ms - OVERDUE, &hook, backend, OVERDUE);
            }
        }
    }

    fn scrapes(&mut self, case: &Case) {
        let servers = [&mut self.incident.counters, &mut self.second_server];
        for (server, (failed, answered)) in servers.into_iter().zip(case.counted) {
            let key = (HookKind::Validating, "opa".to_owned());
            let series = server.hooks.entry(key).or_default();
            add(&mut series.calls, failed, 10.0);
            add(&mut series.calls, answered, 0.003);
            series.fail_open += failed;
        }
        self.incident.count_writes(4.0, 0.005 + case.waited / 4.0, 0.005);
        if case.scraped > 0 {
            self.incident.scrape(self.ms + 100);
        }
        if case.scraped > 1 {
            let scrape = Scrape {
                target: "10.0.0.2:6443".into(),
                at: Incident::at(self.ms + 100),
                took: Duration::ZERO,
                bytes: 0,
                snapshot: self.second_server.clone(),
                complaints: Complaints::default(),
            };
            self.incident
                .event(self.ms + 100, Event::Scraped(Box::new(scrape)));
        }
    }

    fn is_bypassed(&mut self, condition: &str) {
        self.hook = acting::changed(&self.hook, condition);
        let hooks = vec![self.hook.clone(), self.other.clone()];
        self.incident.inventory(self.ms + 300, hooks);
    }
}

/// Whether the hook counts as dead at any time within a minute.
fn is_ever_dead(case: &Case) -> bool {
    let mut watched = Watched::new(case.policy);
    (0..60).any(|_| watched.second(case).dead)
}

#[test]
fn a_hook_is_dead_once_no_call_was_answered_for_its_whole_timeout() {
    let mut watched = Watched::new(FailurePolicy::Ignore);
    let dead: Vec<bool> = (0..40).map(|_| watched.second(&DEAD).dead).collect();
    let first = dead.iter().position(|dead| *dead).expect("it is dead");
    assert!((9..=14).contains(&first), "{first}: its timeout is 10 s");
    assert!(dead[first..].iter().all(|dead| *dead), "{dead:?}");
    let refused = is_ever_dead(&Case {
        counted: [(20.0, 0.0); 2],
        ..DEAD
    });
    assert!(refused);
}

/// Milliseconds after which a probe is first reported as overdue.
const OVERDUE: u64 = 1_000;

/// What becomes of a request on a fresh connection.
#[derive(Clone, Copy)]
enum Fresh {
    /// Answered after this many milliseconds, which may be longer than its client waits.
    Answered(u64),
    Refused,
    Silent,
}

/// Milliseconds after the onset at which a hook with this timeout (in seconds) counts as dead, when every call already
/// failed long before.
fn dead_after(timeout: u64, fresh: Fresh) -> Option<u64> {
    let mut watched = Watched::waiting(FailurePolicy::Ignore, timeout);
    let quick = Case {
        fresh: [Some(3); 2],
        ..DEAD
    };
    assert!(!(0..12).any(|_| watched.second(&quick).dead));
    let onset = watched.ms + 500;
    (0..300).map(|step| step * 100).find(|after| {
        watched.ms = onset + after;
        watched.begun(onset, fresh);
        if watched.ms.is_multiple_of(SECOND) {
            let other = watched.other.clone();
            watched.probed(&other, 0, Some(3));
        }
        if watched.ms.is_multiple_of(2 * SECOND) {
            watched.scrapes(&DEAD);
        }
        watched.incident.tick(watched.ms + 50);
        watched.incident.judged.hooks[&watched.hook.id].dead
    })
}

#[test]
fn a_hook_that_turns_slow_is_not_dead_as_long_as_it_answers_within_its_timeout() {
    for (timeout, takes) in [(3, 1_200), (3, 2_900), (7, 4_000)] {
        let after = dead_after(timeout, Fresh::Answered(takes));
        assert_eq!(after, None, "{takes} ms, of a timeout of {timeout} s");
    }
}

/// Neither an API server nor a probe waits for such an answer, so every request passes unreviewed already.
#[test]
fn a_hook_whose_every_answer_comes_after_its_timeout_is_dead_like_one_that_gives_none() {
    for (timeout, takes) in [(1, 1_200), (3, 4_000)] {
        let after = dead_after(timeout, Fresh::Answered(takes));
        assert!(after.is_some(), "{takes} ms, of a timeout of {timeout} s");
        assert_eq!(
            after,
            dead_after(timeout, Fresh::Silent),
            "{takes} ms, of {timeout} s"
        );
    }
}

#[test]
fn a_hook_with_a_short_timeout_is_dead_once_it_was_silent_for_five_seconds() {
    for timeout in [1, 3] {
        let after = dead_after(timeout, Fresh::Silent);
        assert!(matches!(after, Some(5_000..=5_500)), "{after:?}: {timeout} s");
    }
    let after = dead_after(7, Fresh::Silent);
    assert!(
        matches!(after, Some(7_000..=7_500)),
        "{after:?}: longer if its timeout is"
    );
}

#[test]
fn a_hook_that_refuses_need_not_do_so_for_longer_than_its_timeout() {
    let after = dead_after(1, Fresh::Refused);
    assert!(matches!(after, Some(1_000..=2_000)), "{after:?}");
    let after = dead_after(3, Fresh::Refused);
    assert!(matches!(after, Some(3_000..=4_000)), "{after:?}");
}

/// No probe is answered, but every third scrape shows answered calls.
#[test]
fn a_hook_with_a_short_timeout_that_answers_one_call_in_ten_is_not_dead_in_between() {
    for timeout in [1, 3] {
        let mut watched = Watched::waiting(FailurePolicy::Ignore, timeout);
        let dead = (0..60).any(|second| {
            let answered = f64::from(u8::from(second / 2 % 3 == 0));
            let case = Case {
                counted: [(3.0, answered); 2],
                ..DEAD
            };
            watched.second(&case).dead
        });
        assert!(!dead, "{timeout} s");
    }
}

#[test]
fn a_call_that_its_client_gave_up_was_not_answered() {
    let mut watched = Watched::new(FailurePolicy::Ignore);
    let key = (HookKind::Validating, "opa".to_owned());
    let dead = (0..40).filter(|_| {
        for server in [&mut watched.incident.counters, &mut watched.second_server] {
            let series = server.hooks.entry(key.clone()).or_default();
            add(&mut series.calls, 1.0, 5.0);
            *series.codes.entry(503).or_default() += 4.0;
        }
        watched.second(&DEAD).dead
    });
    assert!(dead.count() > 20);
}

#[test]
fn canaries_prove_that_a_hook_is_dead_once_other_writes_waited_as_long_as_for_it() {
    let canaries = Case {
        counted: [(1.0, 0.0); 2],
        canaries: true,
        ..DEAD
    };
    let waited = |waited| Case {
        waited,
        ..canaries.clone()
    };
    assert!(is_ever_dead(&waited(4.0)));
    assert!(!is_ever_dead(&waited(0.2)));
}

#[test]
fn a_hook_that_answers_any_call_is_never_dead() {
    let cases = [
        (
            "alive at 1.2 s",
            Case {
                fresh: [Some(1_200); 2],
                kept: true,
                counted: NO_CALL_FAILS,
                ..DEAD
            },
        ),
        (
            "slow at 4 s",
            Case {
                fresh: [Some(4_000); 2],
                ..DEAD
            },
        ),
        (
            "one call in ten is answered",
            Case {
                counted: [(18.0, 2.0); 2],
                ..DEAD
            },
        ),
        (
            "one call in ten is answered, by one API server's count",
            Case {
                counted: [(18.0, 2.0), (20.0, 0.0)],
                ..DEAD
            },
        ),
        (
            "an attacker's own requests alone fail, or the way is lost on the API server's side",
            Case {
                fresh: [Some(3); 2],
                kept: true,
                ..DEAD
            },
        ),
        (
            "one backend of two answers",
            Case {
                fresh: [None, Some(3)],
                ..DEAD
            },
        ),
        ("only kept connections answer", Case { kept: true, ..DEAD }),
    ];
    for (name, case) in cases {
        assert!(!is_ever_dead(&case), "{name}");
    }
}

#[test]
fn a_hook_that_only_some_witnesses_accuse_is_never_dead() {
    let cases = [
        (
            "hookwatch alone is cut off",
            Case {
                others: false,
                counted: NO_CALL_FAILS,
                ..DEAD
            },
        ),
        (
            "hookwatch is cut off, and would not see it answer",
            Case {
                others: false,
                ..DEAD
            },
        ),
        (
            "nobody calls it",
            Case {
                counted: [(0.0, 0.0); 2],
                ..DEAD
            },
        ),
        (
            "one API server calls it",
            Case {
                counted: [(20.0, 0.0), (0.0, 0.0)],
                ..DEAD
            },
        ),
        (
            "canaries alone fail open",
            Case {
                counted: [(1.0, 0.0); 2],
                canaries: true,
                ..DEAD
            },
        ),
        ("no API server is scraped", Case { scraped: 0, ..DEAD }),
        (
            "its failures are not ignored",
            Case {
                policy: FailurePolicy::Fail,
                ..DEAD
            },
        ),
    ];
    for (name, case) in cases {
        assert!(!is_ever_dead(&case), "{name}");
    }
}

#[test]
fn an_api_server_that_is_not_heard_any_more_may_have_been_answered() {
    let mut watched = Watched::new(FailurePolicy::Ignore);
    for _ in 0..20 {
        watched.second(&DEAD);
    }
    let unheard = Case { scraped: 1, ..DEAD };
    let dead: Vec<bool> = (0..20).map(|_| watched.second(&unheard).dead).collect();
    assert!(dead[0] && !dead[12..].iter().any(|dead| *dead), "{dead:?}");
}

#[test]
fn what_hookwatch_did_not_see_because_it_stood_still_proves_nothing() {
    let mut watched = Watched::new(FailurePolicy::Ignore);
    for _ in 0..20 {
        watched.second(&DEAD);
    }
    let ms = watched.ms;
    watched.incident.event(ms, Event::Resumed);
    let dead: Vec<bool> = (0..20).map(|_| watched.second(&DEAD).dead).collect();
    assert!(!dead[..9].iter().any(|dead| *dead) && dead[15], "{dead:?}");
}

#[test]
fn while_it_is_skipped_a_hook_is_dead_until_the_first_answer_of_any_backend() {
    for (name, answers) in [
        (
            "fresh",
            Case {
                fresh: [None, Some(3)],
                ..DEAD
            },
        ),
        ("kept", Case { kept: true, ..DEAD }),
    ] {
        let mut watched = Watched::new(FailurePolicy::Ignore);
        for _ in 0..20 {
            watched.second(&DEAD);
        }
        watched.is_bypassed("hookwatch.dev/skip");
        // The skipped hook is not called, and canaries do not match it.
        let skipped = Case {
            counted: [(0.0, 0.0); 2],
            canaries: true,
            ..DEAD
        };
        assert!((0..30).all(|_| watched.second(&skipped).dead), "{name}");
        let answered = Case {
            counted: skipped.counted,
            canaries: true,
            ..answers
        };
        assert!(!watched.second(&answered).dead, "{name}");
    }
}

#[test]
fn a_shield_is_lifted_once_every_backend_answers_and_no_call_fails_open_any_more() {
    let mut watched = Watched::new(FailurePolicy::Ignore);
    for _ in 0..20 {
        watched.second(&DEAD);
    }
    watched.is_bypassed("hookwatch.dev/shield");
    let back = Case {
        fresh: [Some(3); 2],
        kept: true,
        canaries: true,
        counted: NO_CALL_FAILS,
        ..DEAD
    };
    let healthy = |watched: &mut Watched, case: &Case| {
        let seconds = (0..40).map(|_| watched.second(case).health == Health::Healthy);
        seconds.filter(|healthy| *healthy).count()
    };
    let one_answers = Case {
        fresh: [None, Some(3)],
        ..back.clone()
    };
    assert_eq!(healthy(&mut watched, &one_answers), 0, "one backend answers");
    // Every fifth scrape shows one more call that failed open, among many that were answered.
    let still_fails = Case {
        counted: [(1.0, 60.0); 2],
        ..back.clone()
    };
    let well = (0..40).filter(|second| {
        let fails = second % 10 < 2;
        watched.second(if fails { &still_fails } else { &back }).health == Health::Healthy
    });
    assert!(well.count() <= 2, "calls fail open");
    // Every second probe of one backend is refused.
    let well = (0..40).filter(|_| {
        watched.second(&back);
        let (ms, hook) = (watched.ms + 300, watched.hook.clone());
        watched.incident.probe(ms, &hook, 0, ProbeOutcome::Refused);
        watched.incident.tick(ms + 100);
        let refused = &watched.incident.judged.hooks[&hook.id];
        refused.health == Health::Healthy
    });
    assert_eq!(well.count(), 0, "a backend was refused last");
    assert!(healthy(&mut watched, &back) > 20);
}
