//! One API server of three gets no answer from webhooks that the others call without trouble.

use super::incident::{count_calls, count_writes};
use super::*;

/// The first is the one that is cut off.
const SERVERS: [&str; 3] = ["10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443"];

/// How calls of one API server end.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Call {
    Answered,
    /// No packet comes back: each runs into its timeout of 10 s.
    Hangs,
    /// No connection.
    Fails,
    /// The webhook answers with an HTTP error.
    Errs,
    /// It takes 6 s, and its client waits for 5.
    GivenUp,
    /// It takes 6 s, and its client waits.
    Slow,
}

/// What one API server counted of calls in two seconds.
fn call(counters: &mut Snapshot, hook: &Hook, how: Call) {
    let (calls, seconds) = match how {
        Call::Answered => (20.0, 0.001),
        Call::Hangs => (4.0, 10.0),
        Call::Fails | Call::Errs => (20.0, 0.000_4),
        Call::GivenUp => (4.0, 5.0),
        Call::Slow => (4.0, 6.0),
    };
    let series = count_calls(counters, &hook.id.webhook, calls, seconds);
    let code = match how {
        Call::Answered | Call::Slow => 200,
        Call::Hangs | Call::Fails | Call::GivenUp => 503,
        Call::Errs => 500,
    };
    *series.codes.entry(code).or_default() += calls;
    if matches!(how, Call::Hangs | Call::Fails | Call::Errs) {
        match hook.failure_policy {
            FailurePolicy::Fail => {
                series.rejections.calling += calls;
                add(&mut series.rejected, calls, seconds);
            }
            FailurePolicy::Ignore => series.fail_open += calls,
        }
    }
}

/// Three API servers, each with its own counters.
struct Plane {
    incident: Incident,
    counters: [Snapshot; 3],
    /// How each is reached and when it started, in seconds of the Unix epoch.
    servers: [(&'static str, f64); 3],
    hooks: Vec<Hook>,
    ms: u64,
}

impl Plane {
    /// Ten calm seconds.
    fn calm(hooks: &[Hook]) -> Self {
        let [a, b, c] = SERVERS;
        Self::reached(hooks, [(a, 1.0), (b, 2.0), (c, 3.0)])
    }

    fn reached(hooks: &[Hook], servers: [(&'static str, f64); 3]) -> Self {
        let mut plane = Self {
            incident: Incident::with(hooks.to_vec()),
            counters: servers.map(|(_, started)| Snapshot {
                process_start: Some(started),
                ..Snapshot::default()
            }),
            servers,
            hooks: hooks.to_vec(),
            ms: 0,
        };
        for _ in 0..5 {
            plane.round([Call::Answered; 3]);
        }
        plane
    }

    /// Two seconds in which every API server calls every hook, and every backend answers probes.
    fn round(&mut self, how: [Call; 3]) -> Arc<Assessment> {
        self.ms += 2 * SECOND;
        for hook in &self.hooks {
            self.incident.answers(self.ms - 500, hook);
        }
        self.counted(how)
    }

    /// What was counted until now; not before it was said to be read.
    fn counted(&mut self, how: [Call; 3]) -> Arc<Assessment> {
        for (counters, how) in self.counters.iter_mut().zip(how) {
            for hook in &self.hooks {
                call(counters, hook, how);
            }
            if how == Call::Answered {
                count_writes(counters, 20.0, 0.005, 0.004);
            }
        }
        self.read();
        self.incident.tick(self.ms + 10)
    }

    fn read(&mut self) {
        for ((target, _), counters) in self.servers.into_iter().zip(&self.counters) {
            self.incident.scraped(self.ms, target, counters.clone());
        }
    }

    fn verdict(&mut self, webhook: &str) -> Verdict {
        self.incident.verdict(self.ms + 20, webhook)
    }

    /// Whether the verdict says that one API server alone gets no answer.
    fn says_one(&mut self, webhook: &str) -> bool {
        let verdict = self.verdict(webhook);
        verdict.evidence.iter().any(|said| said.starts_with("Only "))
    }
}

const CUT_OFF: [Call; 3] = [Call::Hangs, Call::Answered, Call::Answered];

#[test]
fn the_one_api_server_that_gets_no_answer_is_named_in_the_evidence() {
    for (how, cause) in [(Call::Hangs, Cause::Hanging), (Call::Fails, Cause::Refused)] {
        let mut plane = Plane::calm(&[hook("opa", 1)]);
        for _ in 0..3 {
            plane.round([how, Call::Answered, Call::Answered]);
        }
        let verdict = plane.verdict("opa");
        assert_judged(&verdict, Health::Failing, Some(cause));
        let calls = if how == Call::Hangs { 12 } else { 60 };
        let said = format!(
            "Only API server 10.0.0.1:6443 gets no answer from it: all its {calls} calls in 6.0 s failed. 2 other API servers had \
             120 calls answered, and none failed. Look at that API server's path to the Pods, then at requests that only it gets."
        );
        assert!(verdict.evidence.contains(&said), "{:?}", verdict.evidence);
    }
}

#[test]
fn behind_a_balancer_the_one_that_gets_no_answer_is_named_by_its_start() {
    let mut plane = Plane::reached(
        &[hook("opa", 1)],
        [1_000.0, 2_000.0, 3_000.0].map(|at| ("lb:6443", at)),
    );
    for _ in 0..3 {
        plane.round(CUT_OFF);
    }
    let verdict = plane.verdict("opa");
    let said =
        "Only the API server behind lb:6443 that started at 1970-01-01T00:16:40.000Z gets no answer from it";
    assert!(
        verdict.evidence.iter().any(|it| it.starts_with(said)),
        "{:?}",
        verdict.evidence
    );
}

#[test]
fn calls_that_fail_otherwise_are_the_fault_of_no_single_api_server() {
    use Call::{Answered, Errs, Fails, GivenUp, Hangs, Slow};
    let cases = [
        ("all hang", [Hangs; 3]),
        ("two hang", [Hangs, Hangs, Answered]),
        ("another one fails, too", [Hangs, Answered, Fails]),
        ("it answers with errors", [Errs, Answered, Answered]),
        ("it is slow for all", [GivenUp, Slow, Slow]),
    ];
    for (what, how) in cases {
        let mut plane = Plane::calm(&[hook("opa", 1)]);
        for _ in 0..5 {
            plane.round(how);
        }
        assert_ne!(plane.verdict("opa").health, Health::Healthy, "{what}");
        assert!(!plane.says_one("opa"), "{what}");
    }
}

#[test]
fn counters_of_a_shared_name_show_no_api_server_that_one_webhook_does_not_answer() {
    let one = hook("opa", 1);
    let mut other = hook("opa", 1);
    other.id = HookId::new(HookKind::Validating, "another", "opa");
    let mut plane = Plane::calm(&[one, other]);
    for _ in 0..5 {
        plane.round(CUT_OFF);
    }
    assert!(!plane.says_one("opa"));
}

#[test]
fn the_sentence_ends_with_the_first_answer() {
    let mut plane = Plane::calm(&[hook("opa", 1)]);
    for _ in 0..3 {
        plane.round(CUT_OFF);
    }
    assert!(plane.says_one("opa"));
    plane.round([Call::Answered; 3]);
    assert!(!plane.says_one("opa"));
}

/// A webhook that hangs for all, while most API servers hardly call it: what they were answered before shows nothing.
#[test]
fn an_outage_for_all_never_looks_as_if_one_api_server_were_cut_off() {
    for timeout in [0, 10 * SECOND] {
        for phase in (0..2 * SECOND).step_by(100) {
            let mut plane = Plane::calm(&[hook("opa", 1)]);
            let begun = plane.ms + phase;
            // The first is called all the time, the others once in seven seconds.
            for ms in (plane.ms..plane.ms + 30 * SECOND).step_by(100) {
                for (at, counters) in plane.counters.iter_mut().enumerate() {
                    let every = if at == 0 { 100 } else { 7 * SECOND };
                    let sent = ms.saturating_sub(if ms >= begun { timeout } else { 0 });
                    if sent % every != 0 || (sent < begun && ms >= begun) {
                        continue;
                    }
                    let failed = ms >= begun;
                    let took = if failed { timeout as f64 / 1_000.0 } else { 0.001 };
                    let series = count_calls(counters, "opa", 1.0, took);
                    if failed {
                        *series.codes.entry(503).or_default() += 1.0;
                        series.rejections.calling += 1.0;
                    }
                }
                if ms % (2 * SECOND) == 0 {
                    plane.ms = ms;
                    plane.read();
                }
                let verdict = plane.incident.verdict(ms + 10, "opa");
                let told = verdict.evidence.iter().any(|said| said.starts_with("Only "));
                assert!(!told, "begun at {begun} ms, at {ms} ms");
            }
        }
    }
}

#[test]
fn an_api_server_that_was_restarted_is_judged_by_what_it_counted_since() {
    let mut plane = Plane::calm(&[hook("opa", 1)]);
    for _ in 0..3 {
        plane.round(CUT_OFF);
    }
    plane.servers[0].1 = 1_000_016.5;
    plane.counters[0] = Snapshot {
        process_start: Some(1_000_016.5),
        ..Snapshot::default()
    };
    plane.round([Call::Answered; 3]);
    plane.round([Call::Answered; 3]);
    assert!(!plane.says_one("opa"));
    // A timeout counts once it can only be that of a call from after the recovery.
    for _ in 0..6 {
        plane.round(CUT_OFF);
    }
    assert!(plane.says_one("opa"));
}
