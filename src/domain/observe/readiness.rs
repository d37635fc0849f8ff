//! An API server's own readiness, from `/readyz?verbose`.
//!
//! The answer has one line per check, `[+]name ok` or `[-]name failed: reason withheld`. Its status is 200 when all pass and 500
//! when one does not. While a `poststarthook/*` check fails, the API server cannot finish starting: these start-up steps write
//! bootstrap objects, and admission webhooks are called for such a write like for any other.

use std::time::Duration;

use serde::Serialize;

use crate::text::{NOT_ACCEPTED, bounded, bounded_to};
use crate::time::Time;

/// Most failing checks kept of one reading. Kubernetes 1.36 has about 60 checks.
pub const MAX_FAILING: usize = 32;
/// Longest kept name of a check, in bytes.
const MAX_NAME: usize = 128;
/// When several API servers share an address, one that was not ready counts as not ready for this long after its answer.
const ECHO: Duration = Duration::from_secs(45);
/// A reading older than this says nothing about the present.
const STALE: Duration = Duration::from_secs(90);

/// The result of one reading.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Readiness {
    /// Every check passes.
    Ready,
    /// These checks fail; empty when the API server does not name them.
    NotReady {
        /// At most [`MAX_FAILING`] names.
        failing: Vec<String>,
    },
    /// The readiness could not be read.
    Unknown {
        /// Why, and what to do about it.
        why: String,
    },
}

/// One reading of one API server.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReadyReport {
    /// The address that was asked.
    pub target: String,
    /// When the answer arrived.
    pub at: Time,
    /// What it said.
    pub readiness: Readiness,
    /// `gitVersion` from `/version`; `None` when that was not asked for, or got no answer.
    pub version: Option<String>,
}

impl Readiness {
    /// Interprets the HTTP status and body of an answer.
    pub fn read(status: u16, body: &str) -> Self {
        let unknown = |why: String| Self::Unknown { why: bounded(&why) };
        let text = match body.trim() {
            "" => "no message",
            text => text,
        };
        let mut checks = 0_usize;
        let mut failing = Vec::new();
        for line in body.lines() {
            if line.starts_with("[+]") {
                checks += 1;
            } else if let Some(check) = line.strip_prefix("[-]") {
                checks += 1;
                let name = check.split_ascii_whitespace().next().unwrap_or_default();
                if failing.len() < MAX_FAILING {
                    failing.push(bounded_to(MAX_NAME, name));
                }
            }
        }
        match status {
            200 if checks > 0 || body.trim() == "ok" => Self::Ready,
            500 if checks > 0 => Self::NotReady { failing },
            401 => unknown(format!("HTTP 401: {NOT_ACCEPTED}")),
            403 => unknown("HTTP 403: grant get on the nonResourceURL \"/readyz\"".to_owned()),
            404 => unknown("HTTP 404: it has no /readyz".to_owned()),
            200 => unknown(format!("HTTP 200 without any check: {text}")),
            status => unknown(format!("HTTP {status}: {text}")),
        }
    }
}

/// The recent readings of one target.
#[derive(Debug, Clone, Default)]
pub struct ReadinessMemory {
    latest: Option<(Time, Readiness)>,
    /// The last reading with a failing check: when, and which checks.
    refusal: Option<(Time, Vec<String>)>,
    /// When the first of these readings came that were less than 45 s apart.
    not_ready_since: Option<Time>,
}

/// The readiness of one API server, for users and the JSON API.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReadinessView {
    /// `ready`, `not_ready` or `unknown`.
    pub state: &'static str,
    /// When the first of the recent readings with a failing check was taken; `None` unless `not_ready`.
    pub since: Option<Time>,
    /// The failing checks.
    pub failing: Vec<String>,
    /// Why the state is unknown; `None` unless it is.
    pub why: Option<String>,
}

impl Default for ReadinessView {
    fn default() -> Self {
        Self {
            state: "unknown",
            since: None,
            failing: Vec::new(),
            why: Some("it was not asked recently".to_owned()),
        }
    }
}

impl ReadinessMemory {
    /// Records a reading.
    pub fn take(&mut self, at: Time, readiness: Readiness) {
        if let Readiness::NotReady { failing } = &readiness {
            let began = match &self.refusal {
                Some((last, _)) if at.since(*last) < ECHO => self.not_ready_since,
                _ => None,
            };
            self.not_ready_since = began.or(Some(at));
            self.refusal = Some((at, failing.clone()));
        }
        self.latest = Some((at, readiness));
    }

    /// The readiness now. With `shared`, several API servers answer at this address: one that is not ready then counts for 45 s,
    /// since the next answer may come from another one.
    pub fn view(&self, now: Time, shared: bool) -> ReadinessView {
        let fresh = |at: Time, within: Duration| now.since(at) < within;
        let not_ready = |failing: &[String]| ReadinessView {
            state: "not_ready",
            since: self.not_ready_since,
            failing: failing.to_vec(),
            why: None,
        };
        if let Some((at, failing)) = &self.refusal
            && shared
            && fresh(*at, ECHO)
        {
            return not_ready(failing);
        }
        match &self.latest {
            Some((at, Readiness::Ready)) if fresh(*at, STALE) => ReadinessView {
                state: "ready",
                why: None,
                ..ReadinessView::default()
            },
            Some((at, Readiness::NotReady { failing })) if fresh(*at, STALE) => not_ready(failing),
            Some((at, Readiness::Unknown { why })) if fresh(*at, STALE) => ReadinessView {
                why: Some(why.clone()),
                ..ReadinessView::default()
            },
            _ => ReadinessView::default(),
        }
    }
}

/// Whether this check is one of the start-up steps, which write bootstrap objects.
pub fn is_start_up(check: &str) -> bool {
    check.starts_with("poststarthook/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTING: &str = "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]informer-sync ok\n\
        [-]poststarthook/rbac/bootstrap-roles failed: reason withheld\n\
        [-]poststarthook/scheduling/bootstrap-system-priority-classes failed: reason withheld\n\
        [+]shutdown ok\nreadyz check failed\n";

    fn at(seconds: u64) -> Time {
        Time::from_unix_millis(1_000_000 + seconds * 1_000)
    }

    #[test]
    fn every_line_of_a_real_answer_is_read_whatever_the_status() {
        assert_eq!(
            Readiness::read(500, STARTING),
            Readiness::NotReady {
                failing: vec![
                    "poststarthook/rbac/bootstrap-roles".to_owned(),
                    "poststarthook/scheduling/bootstrap-system-priority-classes".to_owned(),
                ]
            }
        );
        let passed = "[+]ping ok\n[+]etcd excluded: ok\nreadyz check passed\n";
        assert_eq!(Readiness::read(200, passed), Readiness::Ready);
        assert_eq!(Readiness::read(200, "ok"), Readiness::Ready);
    }

    #[test]
    fn what_is_no_answer_of_an_api_server_is_unknown_and_says_what_to_do() {
        for (status, body, says) in [
            (401, "", "renew them"),
            (403, "", "grant get on the nonResourceURL"),
            (404, "", "no /readyz"),
            (200, "<html>log in</html>", "without any check: <html>"),
            (500, "internal error", "HTTP 500: internal error"),
            (429, "too many", "HTTP 429"),
        ] {
            let Readiness::Unknown { why } = Readiness::read(status, body) else {
                panic!("{status} {body} was believed");
            };
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn an_endless_list_of_failing_checks_is_cut() {
        let body = format!("[-]{} failed\n", "x".repeat(10_000)).repeat(1_000);
        let Readiness::NotReady { failing } = Readiness::read(500, &body) else {
            panic!("not read");
        };
        assert_eq!(failing.len(), MAX_FAILING);
        assert!(failing.iter().all(|name| name.len() == MAX_NAME));
    }

    #[test]
    fn one_of_several_behind_an_address_stays_not_ready_while_the_others_answer() {
        let mut memory = ReadinessMemory::default();
        let failing = || Readiness::read(500, STARTING);
        for step in 0..4 {
            let said = if step % 2 == 0 {
                failing()
            } else {
                Readiness::Ready
            };
            memory.take(at(step * 15), said);
        }
        let shared = memory.view(at(45), true);
        assert_eq!((shared.state, shared.since), ("not_ready", Some(at(0))));
        assert_eq!(memory.view(at(45), false).state, "ready");
        assert_eq!(memory.view(at(80), true).state, "ready");
    }

    #[test]
    fn what_was_not_heard_for_long_is_unknown() {
        let mut memory = ReadinessMemory::default();
        assert_eq!(memory.view(at(0), false).state, "unknown");
        memory.take(at(0), Readiness::Ready);
        assert_eq!(memory.view(at(60), false).state, "ready");
        assert_eq!(memory.view(at(91), false).state, "unknown");
    }
}
