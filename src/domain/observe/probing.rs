//! The state of one backend, from its last probes.
//!
//! One failed attempt is not an outage: the backend counts as dead only when a second attempt also fails, or when one attempt
//! has been hanging for long enough. Of two attempts, the one that began later counts.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::history::{Slowest, Usual};
use super::probe::{
    CertificateFacts, ConnectionKind, ProbeAnswer, ProbeOutcome, ProbeOverdue, ProbePhase, ProbeReport,
    TlsFault,
};
use crate::cluster::hook::ProbeLevel;
use crate::text::human;
use crate::time::Time;
use crate::vocabulary::Cause;
use crate::{row, thresholds as t};

/// Finished probes on fresh connections kept per backend, and at most as many late ones in flight.
const KEPT: usize = 12;

/// The part of a finished probe that is kept. With thousands of hooks these make up most of hookwatch's memory.
#[derive(Debug, Clone)]
struct FinishedProbe {
    started: Time,
    took: Duration,
    level: ProbeLevel,
    outcome: ProbeOutcome,
}

impl FinishedProbe {
    fn ended(&self) -> Time {
        self.started + self.took
    }

    /// False for a probe that was not sent: it counts neither as a failure nor as an answer.
    const fn was_made(&self) -> bool {
        !matches!(self.outcome, ProbeOutcome::NotProbed { .. })
    }
}

/// The last probes of one backend.
#[derive(Debug, Clone, Default)]
pub struct BackendMemory {
    /// Finished probes on fresh connections, the oldest first.
    fresh: VecDeque<FinishedProbe>,
    /// Late probes in flight, by start. A finished probe removes those that did not begin after it.
    under_way: BTreeMap<Time, ProbeOverdue>,
    usual: Usual,
    slowest: Slowest,
    /// When hookwatch last resumed after a stall.
    resumed: Time,
    was_alive: bool,
    /// When the last answer came, on whichever connection.
    answered: Time,
    /// When the first of the latest consecutive failures began, even if that attempt is no longer in `fresh`.
    failing_since: Option<Time>,
    /// From the last handshakes on fresh connections.
    pub(crate) certificates: CertificateFacts,
}

/// The state of one backend, according to direct probes.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendState {
    /// No probe has ended recently, or none is sent.
    Untried {
        /// The reason, if probes are not sent or the last one is too old; `None` before the first.
        why: Option<String>,
    },
    /// The last answer was good.
    Alive {
        /// When the attempt began.
        at: Time,
        /// How long it took.
        took: Duration,
    },
    /// The latest answers were good and slow, at least two of them from probes that did not overlap; or the last answer was, and
    /// the next probe hangs, though not yet for an unusual time.
    Slow {
        /// When the first of the late attempts began.
        since: Time,
        /// The shortest of its last three slow answers.
        took: Duration,
    },
    /// The last attempt failed or is late, and no other attempt confirms it yet.
    Wavering {
        /// What the attempt observed, as a sentence.
        detail: String,
    },
    /// The backend does not serve.
    Dead(Dead),
}

impl BackendState {
    /// Whether it is alive and its last answer was slow. One slow answer alone is no evidence.
    pub fn answered_late(&self) -> bool {
        matches!(self, Self::Alive { took, .. } if took.as_secs_f64() >= t::slow_probe_always())
    }
}

/// What is known of a backend that does not serve.
#[derive(Debug, Clone, PartialEq)]
pub struct Dead {
    /// How it fails.
    pub cause: Cause,
    /// When the first of the consecutive failed attempts began.
    pub since: Time,
    /// How many consecutive attempts failed or hang.
    pub attempts: usize,
    /// Whether a probe from here ever reached it. If none did, the network path may be at fault.
    pub was_alive: bool,
    /// False for an HTTP error or an invalid answer to hookwatch's synthetic review, and for a name that does not resolve
    /// here: without other evidence these accuse no webhook.
    pub certain: bool,
    /// False only while the first failed attempt hangs for less than an unusual time: twice the slowest answer of the last
    /// ten minutes, or [`t::late_at_most`] for a backend that never answered.
    pub is_unusual: bool,
    /// What the last attempt observed, as a sentence without the address.
    pub detail: String,
}

impl BackendMemory {
    /// Records a finished probe.
    pub fn finished(&mut self, report: ProbeReport) {
        self.was_alive |= report.outcome.is_alive();
        if report.outcome.is_alive() {
            let ended = report.started + report.took;
            self.answered = self.answered.max(ended);
            self.slowest.take(ended, report.took);
        }
        if report.connection == ConnectionKind::Kept {
            return;
        }
        // Certificates come from fresh connections only: a server may rotate its certificate and keep old connections open.
        let seen = &report.certificates;
        if seen.served_not_after.is_some() {
            self.certificates = CertificateFacts {
                ca_not_after: self.certificates.ca_not_after,
                ..*seen
            };
        }
        // A failed probe reports the latest `notAfter` of the whole caBundle, so it does not replace a verified value.
        if report.outcome.is_alive() || self.certificates.ca_not_after.is_none() {
            self.certificates.ca_not_after = seen.ca_not_after;
        }
        self.under_way.retain(|started, _| *started > report.started);
        // A handshake shared from another hook's probe says nothing about how long this hook's own request takes.
        let partial = report.shared && report.level == ProbeLevel::Handshake;
        let partial = partial && self.fresh.iter().any(|known| known.level > ProbeLevel::Handshake);
        if report.outcome.is_alive() && !self.is_slow(report.took) && !partial {
            self.usual.learn(Some(report.took.as_secs_f64()));
        }
        let attempt = FinishedProbe {
            started: report.started,
            took: report.took,
            level: report.level,
            outcome: report.outcome,
        };
        // A probe that was not sent clears the list, and the next one that is sent replaces it.
        self.fresh.retain(|known| attempt.was_made() && known.was_made());
        // Attempts overlap and may come back out of order.
        row::insert(&mut self.fresh, KEPT, attempt, |attempt| attempt.started);
        let first_failed = self.fresh.len() - self.failed_in_a_row();
        // If every kept attempt failed, older attempts that were dropped may have failed before them.
        let before = self.failing_since.filter(|_| first_failed == 0);
        let first = self.fresh.get(first_failed).map(|first| first.started);
        self.failing_since = first.map(|first| before.map_or(first, |before| before.min(first)));
    }

    /// How many of the newest kept attempts failed in a row.
    fn failed_in_a_row(&self) -> usize {
        let newest = self.fresh.iter().rev();
        let failed = |attempt: &&FinishedProbe| attempt.was_made() && !attempt.outcome.is_healthy();
        newest.take_while(failed).count()
    }

    /// Records that a probe is late.
    pub fn overdue(&mut self, overdue: ProbeOverdue) {
        let mut fresh = self.fresh.iter();
        let came_back_meanwhile = fresh.any(|attempt| attempt.started >= overdue.started);
        if overdue.connection == ConnectionKind::Fresh && !came_back_meanwhile {
            self.under_way.insert(overdue.started, overdue);
            if self.under_way.len() > KEPT {
                self.under_way.pop_last();
            }
        }
    }

    /// Notes that hookwatch was stalled until now: silence during the stall is no evidence.
    pub fn resumed(&mut self, now: Time) {
        self.resumed = now;
    }

    /// When the newest of the fresh probes that were answered by `until` began; `None` if none is kept.
    pub fn reached_by(&self, until: Time) -> Option<Time> {
        let mut alive = self.fresh.iter().filter(|known| known.outcome.is_alive());
        let ended = alive.rfind(|known| known.ended() <= until);
        ended.map(|known| known.started)
    }

    /// Whether it has answered nothing since an instant, on fresh or pooled connections, and hookwatch was not stalled since.
    pub fn is_silent_since(&self, since: Time) -> bool {
        self.answered < since && self.resumed < since
    }

    /// The backend's state now.
    pub fn state(&self, now: Time) -> BackendState {
        let failed = self.failed_in_a_row();
        if let Some(hang) = self.hang(now) {
            return self.hanging(hang, failed, now);
        }
        let Some(last) = self.fresh.back() else {
            return BackendState::Untried { why: None };
        };
        let untried = |why: &str| BackendState::Untried {
            why: Some(why.to_owned()),
        };
        let detail = || last.outcome.sentence(last.took);
        let is_stale = now.since(last.ended()) >= t::probe_stale();
        match (&last.outcome, last.outcome.mechanism()) {
            _ if is_stale => untried("not probed recently"),
            (ProbeOutcome::NotProbed { why }, _) => untried(why),
            _ if failed == 0 => self.answering(last),
            (_, Some(found)) if self.is_confirmed(failed) => BackendState::Dead(self.dead(
                found,
                self.failing_since.unwrap_or(last.started),
                failed,
                detail(),
            )),
            _ => BackendState::Wavering { detail: detail() },
        }
    }

    /// Whether finished probes confirm that it does not serve: two consecutive failures, or one timeout after [`t::late`].
    fn is_confirmed(&self, failed: usize) -> bool {
        let timed_out = |last: &FinishedProbe| {
            matches!(last.outcome, ProbeOutcome::TimedOut { .. }) && last.took >= t::late()
        };
        failed >= 2 || self.fresh.back().is_some_and(timed_out)
    }

    /// The oldest late attempt in flight, and how long it has hung without hookwatch being stalled.
    fn hang(&self, now: Time) -> Option<(&ProbeOverdue, Duration)> {
        // Of several, the one that has hung longest is the strongest evidence.
        let (_, under_way) = self.under_way.first_key_value()?;
        let waiting = if under_way.started < self.resumed {
            now.since(self.resumed)
        } else {
            under_way.waiting.max(now.since(under_way.started))
        };
        (waiting < t::probe_stale()).then_some((under_way, waiting))
    }

    fn hanging(&self, hang: (&ProbeOverdue, Duration), failed_before: usize, now: Time) -> BackendState {
        let (under_way, waiting) = hang;
        let detail = format!("has been hanging for {} ({})", human(waiting), under_way.phase);
        // A hook that recently took seconds to answer counts as slow until it has been silent for much longer than that.
        let unusual_after = if self.was_alive {
            self.slowest.unusual_after(now)
        } else {
            t::late_at_most()
        };
        let last_good = self.fresh.back().filter(|last| last.outcome.is_healthy());
        if let Some(last) = last_good.filter(|last| waiting < unusual_after && self.is_slow(last.took)) {
            let since = self
                .slow_in_a_row()
                .last()
                .map_or(last.started, |first| first.started);
            let took = self.takes(last);
            return BackendState::Slow { since, took };
        }
        // A backend already known to be dead stays so while the next attempt is late.
        if waiting < self.slowest.patience(now) && !self.is_confirmed(failed_before) {
            return BackendState::Wavering { detail };
        }
        let since = self.failing_since.unwrap_or(under_way.started);
        let (found, detail) = self
            .may_end_as_the_last(waiting, now)
            .unwrap_or(((Cause::Hanging, true), detail));
        BackendState::Dead(Dead {
            is_unusual: failed_before > 0 || waiting >= unusual_after,
            ..self.dead(found, since, failed_before + 1, detail)
        })
    }

    /// The cause and sentence of the last failure, as long as the attempt in flight may still end like it: a network may take
    /// seconds to report that a host is unreachable.
    fn may_end_as_the_last(&self, waiting: Duration, now: Time) -> Option<((Cause, bool), String)> {
        let last = self.fresh.back().filter(|last| !last.outcome.is_healthy())?;
        let found = last.outcome.mechanism()?;
        (waiting < last.took.saturating_add(self.slowest.patience(now)))
            .then(|| (found, last.outcome.sentence(last.took)))
    }

    fn dead(&self, found: (Cause, bool), since: Time, attempts: usize, detail: String) -> Dead {
        let (cause, certain) = found;
        Dead {
            cause,
            since,
            attempts,
            was_alive: self.was_alive,
            certain,
            is_unusual: true,
            detail,
        }
    }

    fn answering(&self, last: &FinishedProbe) -> BackendState {
        let slow: Vec<&FinishedProbe> = self.slow_in_a_row().collect();
        // Attempts in flight at the same time may have been late for the same reason, so one must begin after another ended.
        let at = last.started;
        let twice = slow.iter().any(|known| known.ended() <= at);
        match slow.last().map(|first| first.started) {
            Some(since) if twice => BackendState::Slow {
                since,
                took: self.takes(last),
            },
            _ => BackendState::Alive { at, took: last.took },
        }
    }

    /// The newest attempts that were good and slow, the newest first.
    fn slow_in_a_row(&self) -> impl Iterator<Item = &FinishedProbe> {
        let newest = self.fresh.iter().rev();
        newest.take_while(|attempt| attempt.outcome.is_healthy() && self.is_slow(attempt.took))
    }

    /// How long a slow backend takes at least: the shortest of its three newest slow answers. A single one may have been late by
    /// chance, and the estimated cost of requests is based on this.
    fn takes(&self, last: &FinishedProbe) -> Duration {
        let slow = |known: &&FinishedProbe| known.outcome.is_healthy() && self.is_slow(known.took);
        let slow = self.fresh.iter().rev().filter(slow).take(3);
        slow.map(|known| known.took).min().unwrap_or(last.took)
    }

    fn is_slow(&self, took: Duration) -> bool {
        let limits = t::slow_probe_at_least()..t::slow_probe_always();
        self.usual
            .is_slow(took.as_secs_f64(), t::slow_probe_factor(), limits)
    }
}

impl ProbeOutcome {
    /// Whether it is evidence that the hook works. An HTTP error in answer to a review is not.
    pub(crate) fn is_healthy(&self) -> bool {
        self.is_alive() && !matches!(self.mechanism(), Some((Cause::Erroring, _)))
    }

    /// The cause that it indicates, and whether that is certain; `None` if it indicates no fault.
    fn mechanism(&self) -> Option<(Cause, bool)> {
        match self {
            Self::Answered(answer) => {
                let fails = match answer {
                    // A working hook may send 401, 403 and 429 to hookwatch alone. The API server's client follows 307 and 308 to
                    // another place.
                    ProbeAnswer::ReviewRefused { status } => !matches!(status, 307 | 308 | 401 | 403 | 429),
                    ProbeAnswer::NotAnAdmissionReview { .. } => true,
                    ProbeAnswer::Discovery { status } => ProbeAnswer::is_no_discovery(*status),
                    _ => false,
                };
                fails.then_some((Cause::Erroring, false))
            }
            Self::ClientCertificateWanted | Self::VerifierDiffers { .. } | Self::NotProbed { .. } => None,
            Self::TimedOut { .. } => Some((Cause::Hanging, true)),
            Self::Refused => Some((Cause::Refused, true)),
            Self::Unreachable { .. } => Some((Cause::Unreachable, true)),
            // API servers may use other name servers than hookwatch.
            Self::Unresolvable { .. } => Some((Cause::Unreachable, false)),
            Self::TlsRejected { .. } => Some((Cause::TlsInvalid, true)),
            Self::Lost { phase, .. } if *phase == ProbePhase::Connect => Some((Cause::Refused, true)),
            Self::Lost { .. } => Some((Cause::Erroring, true)),
        }
    }

    /// What was observed, as a sentence whose subject is the backend.
    pub fn sentence(&self, took: Duration) -> String {
        let took = human(took);
        match self {
            Self::Answered(ProbeAnswer::Handshake) => format!("completed the TLS handshake in {took}"),
            Self::Answered(ProbeAnswer::Http { status }) => format!("answered with HTTP {status} in {took}"),
            Self::Answered(ProbeAnswer::Discovery { status }) => {
                format!("answered the request for its discovery document with HTTP {status} in {took}")
            }
            Self::Answered(ProbeAnswer::Review { allowed }) => {
                let said = if *allowed { "allowed" } else { "denied" };
                format!("answered a dry-run review in {took} ({said})")
            }
            Self::Answered(ProbeAnswer::ReviewRefused { status }) => {
                format!("answered a dry-run review with HTTP {status}")
            }
            Self::Answered(ProbeAnswer::NotAnAdmissionReview { why }) => {
                format!("answered a dry-run review with something the API server does not accept: {why}")
            }
            Self::ClientCertificateWanted => {
                "is alive and wants a client certificate that only the API server has".to_owned()
            }
            Self::VerifierDiffers { why } => {
                format!("serves a certificate that only the API server's verifier accepts ({why})")
            }
            Self::TimedOut { phase } => format!("timed out after {took} ({phase})"),
            Self::Refused => "refused the connection: nothing listens there".to_owned(),
            Self::Unreachable { why } => format!("cannot be reached: {why}"),
            Self::Unresolvable { why } => format!("has no address: {why}"),
            Self::TlsRejected { fault, why } => format!("{}: {why}", fault.sentence()),
            Self::Lost { phase, why } => format!("broke the connection ({phase}): {why}"),
            Self::NotProbed { why } => format!("is not probed: {why}"),
        }
    }
}

impl TlsFault {
    /// What is wrong, as a sentence whose subject is the backend.
    const fn sentence(self) -> &'static str {
        match self {
            Self::Expired => "serves a certificate that has expired",
            Self::NotYetValid => "serves a certificate that is not valid yet",
            Self::UnknownAuthority => "serves a certificate that the caBundle does not trust",
            Self::WrongName => "serves a certificate for another name",
            Self::JunkCaBundle => "cannot be verified because the caBundle holds no certificate",
            Self::Protocol => "does not speak TLS as the API server does",
            Self::Other => "failed the TLS handshake",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::hook::{Backend, BackendAddress, BackendPath, HookId, HookKind};
    use crate::observe::probe::PhaseDurations;

    fn at(ms: u64) -> Time {
        Time::from_unix_millis(1_000_000 + ms)
    }

    fn backend() -> Backend {
        Backend {
            path: BackendPath::Endpoint,
            address: BackendAddress::Host("b".into(), 1),
        }
    }

    fn hook() -> HookId {
        HookId::new(HookKind::Validating, "c", "w")
    }

    fn report(started_ms: u64, took_ms: u64, outcome: ProbeOutcome) -> ProbeReport {
        ProbeReport {
            hook: hook(),
            backend: backend(),
            level: ProbeLevel::Http,
            connection: ConnectionKind::Fresh,
            started: at(started_ms),
            took: Duration::from_millis(took_ms),
            phases: PhaseDurations::default(),
            outcome,
            certificates: CertificateFacts::default(),
            shared: false,
        }
    }

    fn late(started_ms: u64, waiting_ms: u64) -> ProbeOverdue {
        ProbeOverdue {
            hook: hook(),
            backend: backend(),
            connection: ConnectionKind::Fresh,
            started: at(started_ms),
            waiting: Duration::from_millis(waiting_ms),
            phase: ProbePhase::Tls,
        }
    }

    fn ok() -> ProbeOutcome {
        ProbeOutcome::Answered(ProbeAnswer::Http { status: 405 })
    }

    fn dead(state: BackendState) -> Option<(Cause, usize)> {
        match state {
            BackendState::Dead(dead) => Some((dead.cause, dead.attempts)),
            _ => None,
        }
    }

    #[test]
    fn one_refused_attempt_is_no_outage_and_two_are() {
        let mut memory = BackendMemory::default();
        memory.finished(report(0, 2, ok()));
        memory.finished(report(5_000, 1, ProbeOutcome::Refused));
        assert!(matches!(memory.state(at(5_001)), BackendState::Wavering { .. }));
        memory.finished(report(5_500, 1, ProbeOutcome::Refused));
        assert_eq!(dead(memory.state(at(5_501))), Some((Cause::Refused, 2)));
        memory.finished(report(6_000, 2, ok()));
        assert!(matches!(memory.state(at(6_002)), BackendState::Alive { .. }));
    }

    #[test]
    fn an_attempt_two_seconds_late_is_hanging_long_before_it_times_out() {
        let mut memory = BackendMemory::default();
        memory.finished(report(0, 2, ok()));
        memory.overdue(late(5_000, 1_000));
        assert!(matches!(memory.state(at(6_000)), BackendState::Wavering { .. }));
        memory.overdue(late(5_000, 2_000));
        assert_eq!(dead(memory.state(at(7_000))), Some((Cause::Hanging, 1)));
    }

    #[test]
    fn a_hook_that_takes_three_seconds_is_slow_once_an_answer_was_seen() {
        let mut memory = BackendMemory::default();
        memory.finished(report(0, 2, ok()));
        memory.overdue(late(5_000, 2_000));
        assert_eq!(dead(memory.state(at(7_000))), Some((Cause::Hanging, 1)));
        memory.finished(report(5_000, 3_000, ok()));
        memory.overdue(late(10_000, 2_000));
        assert!(matches!(memory.state(at(12_000)), BackendState::Slow { .. }));
    }

    #[test]
    fn how_long_a_slow_backend_takes_is_told_by_the_quickest_of_three_answers() {
        let mut memory = BackendMemory::default();
        memory.finished(report(0, 2, ok()));
        let takes = |memory: &BackendMemory, now| match memory.state(at(now)) {
            BackendState::Slow { took, .. } => took.as_millis(),
            other => panic!("{other:?}"),
        };
        memory.finished(report(5_000, 2_000, ok()));
        memory.finished(report(10_000, 3_200, ok()));
        memory.finished(report(15_000, 3_300, ok()));
        assert_eq!(takes(&memory, 19_000), 2_000);
        memory.finished(report(20_000, 3_400, ok()));
        assert_eq!(takes(&memory, 24_000), 3_200);
    }

    #[test]
    fn a_slow_backend_hangs_once_it_is_silent_for_twice_its_slowest_answer() {
        let mut memory = BackendMemory::default();
        memory.finished(report(0, 2, ok()));
        memory.finished(report(5_000, 3_000, ok()));
        memory.finished(report(10_000, 1_600, ok()));
        let slow_since = |memory: &BackendMemory, now: u64| match memory.state(at(now)) {
            BackendState::Slow { since, .. } => since,
            other => panic!("{other:?}"),
        };
        assert_eq!(slow_since(&memory, 14_000), at(5_000));
        memory.overdue(late(15_000, 2_000));
        assert_eq!(slow_since(&memory, 20_900), at(5_000));
        assert_eq!(dead(memory.state(at(21_100))), Some((Cause::Hanging, 1)));
    }

    #[test]
    fn silence_is_unusual_after_a_failure_or_for_longer_than_answers_lately_took() {
        let told = |before: &[(u64, ProbeOutcome)], waiting: u64| {
            let mut memory = BackendMemory::default();
            for (took, outcome) in before {
                memory.finished(report(0, *took, outcome.clone()));
            }
            memory.overdue(late(15_000, waiting));
            match memory.state(at(15_000 + waiting)) {
                BackendState::Dead(dead) => dead.is_unusual,
                other => panic!("{other:?}"),
            }
        };
        let quick = [(5_000, ok()), (2, ok())];
        assert!(!told(&quick, 3_500));
        assert!(told(&quick, 10_000));
        let failed = [(5_000, ok()), (2, ok()), (2, ProbeOutcome::Refused)];
        assert!(told(&failed, 3_500));
        assert!(!told(&[], 2_900));
        assert!(told(&[], 3_000));
        assert!(told(&[(2, ProbeOutcome::Refused)], 2_900));
        let why = "too many open files".to_owned();
        assert!(!told(&[(0, ProbeOutcome::NotProbed { why })], 2_900));
    }

    #[test]
    fn silence_is_held_against_answers_on_kept_connections_too() {
        let after = |connection, took| {
            let mut memory = BackendMemory::default();
            memory.finished(ProbeReport {
                connection,
                ..report(14_000, took, ok())
            });
            memory.overdue(late(14_500, 2_000));
            dead(memory.state(at(16_500)))
        };
        let hangs = Some((Cause::Hanging, 1));
        assert_eq!(after(ConnectionKind::Kept, 5), hangs);
        assert_eq!(after(ConnectionKind::Kept, 1_900), None);
    }

    #[test]
    fn the_certificate_is_that_of_the_last_fresh_probe() {
        let mut memory = BackendMemory::default();
        let mut sees = |connection, served_ms| {
            memory.finished(ProbeReport {
                connection,
                certificates: CertificateFacts {
                    served_not_after: Some(at(served_ms)),
                    ..CertificateFacts::default()
                },
                ..report(0, 2, ok())
            });
            memory.certificates.served_not_after
        };
        assert_eq!(sees(ConnectionKind::Fresh, 9_000), Some(at(9_000)));
        assert_eq!(sees(ConnectionKind::Kept, 1_000), Some(at(9_000)));
    }

    #[test]
    fn the_beginning_of_a_certificate_and_whether_it_is_trusted_are_of_the_handshake_that_showed_its_end() {
        let mut memory = BackendMemory::default();
        let mut sees = |certificates, outcome| {
            memory.finished(ProbeReport {
                certificates,
                ..report(0, 2, outcome)
            });
            let facts = memory.certificates;
            (facts.served_not_before, facts.served_is_trusted)
        };
        let trusted = CertificateFacts {
            served_not_after: Some(at(9_000)),
            served_not_before: Some(at(1_000)),
            served_is_trusted: true,
            ca_not_after: None,
        };
        let untrusted = CertificateFacts {
            served_not_before: Some(at(2_000)),
            served_is_trusted: false,
            ..trusted
        };
        let nothing = CertificateFacts::default();
        assert_eq!(sees(trusted, ok()), (Some(at(1_000)), true));
        assert_eq!(sees(nothing, ProbeOutcome::Refused), (Some(at(1_000)), true));
        assert_eq!(sees(untrusted, ok()), (Some(at(2_000)), false));
    }

    #[test]
    fn the_end_of_the_authority_that_vouched_last_is_remembered_while_probes_fail() {
        let mut memory = BackendMemory::default();
        let mut sees = |outcome, ca_ms| {
            memory.finished(ProbeReport {
                certificates: CertificateFacts {
                    served_not_after: Some(at(5_000)),
                    ca_not_after: Some(at(ca_ms)),
                    ..CertificateFacts::default()
                },
                ..report(0, 2, outcome)
            });
            memory.certificates.ca_not_after
        };
        let refused = || ProbeOutcome::Refused;
        assert_eq!(sees(refused(), 99_000), Some(at(99_000)), "nothing vouched yet");
        assert_eq!(sees(ok(), 9_000), Some(at(9_000)));
        assert_eq!(sees(refused(), 99_000), Some(at(9_000)));
        assert_eq!(sees(ok(), 12_000), Some(at(12_000)));
    }

    #[test]
    fn what_takes_seconds_to_be_unreachable_does_not_hang_in_between() {
        let mut memory = BackendMemory::default();
        let unreachable = || ProbeOutcome::Unreachable {
            why: "no route to host".to_owned(),
        };
        memory.finished(report(0, 2, ok()));
        memory.finished(report(5_000, 3_050, unreachable()));
        memory.finished(report(9_000, 3_050, unreachable()));
        memory.overdue(late(13_000, 2_000));
        let (unreachable, hanging) = (Some((Cause::Unreachable, 3)), Some((Cause::Hanging, 3)));
        assert_eq!(dead(memory.state(at(15_000))), unreachable);
        assert_eq!(dead(memory.state(at(16_100))), unreachable);
        assert_eq!(
            dead(memory.state(at(17_600))),
            hanging,
            "it now says nothing at all"
        );
    }

    #[test]
    fn an_answer_to_a_later_attempt_outweighs_an_earlier_one_that_hangs() {
        let mut memory = BackendMemory::default();
        memory.overdue(late(5_000, 2_000));
        memory.finished(report(6_500, 2, ok()));
        assert!(matches!(memory.state(at(8_000)), BackendState::Alive { .. }));
        memory.overdue(late(5_000, 4_000));
        assert!(matches!(memory.state(at(9_000)), BackendState::Alive { .. }));
    }

    #[test]
    fn of_several_late_attempts_the_end_of_the_earliest_leaves_the_others() {
        let timed_out = || {
            let phase = ProbePhase::Tls;
            report(0, 10_000, ProbeOutcome::TimedOut { phase })
        };
        let mut one = BackendMemory::default();
        one.overdue(late(0, 2_000));
        let mut other = one.clone();
        one.overdue(late(8_000, 2_000));
        one.finished(timed_out());
        other.finished(timed_out());
        other.overdue(late(8_000, 2_000));
        assert_eq!(dead(one.state(at(10_000))), Some((Cause::Hanging, 2)));
        assert_eq!(one.state(at(10_000)), other.state(at(10_000)));
    }

    #[test]
    fn a_backend_that_timed_out_is_dead_while_the_next_attempt_is_not_yet_late() {
        let mut memory = BackendMemory::default();
        let phase = ProbePhase::Tls;
        memory.finished(report(0, 2_000, ProbeOutcome::TimedOut { phase }));
        assert_eq!(dead(memory.state(at(2_000))), Some((Cause::Hanging, 1)));
        memory.overdue(late(1_500, 1_000));
        assert_eq!(dead(memory.state(at(2_500))), Some((Cause::Hanging, 2)));
    }

    #[test]
    fn a_backend_is_dead_since_its_first_failure_however_many_attempts_follow() {
        let mut memory = BackendMemory::default();
        let since = |memory: &BackendMemory, now| match memory.state(at(now)) {
            BackendState::Dead(dead) => Some(dead.since),
            _ => None,
        };
        for n in 0..100 {
            memory.finished(report(n * 1_000, 1, ProbeOutcome::Refused));
        }
        assert_eq!(since(&memory, 100_000), Some(at(0)));
        memory.finished(report(100_000, 1, ok()));
        for n in 101..200 {
            memory.finished(report(n * 1_000, 1, ProbeOutcome::Refused));
        }
        assert_eq!(since(&memory, 200_000), Some(at(101_000)));
    }

    #[test]
    fn an_http_error_given_to_a_review_is_not_certain_and_neither_401_nor_a_redirect_is_one() {
        let mut memory = BackendMemory::default();
        let refused = |status| ProbeOutcome::Answered(ProbeAnswer::ReviewRefused { status });
        memory.finished(report(0, 2, refused(500)));
        memory.finished(report(100, 2, refused(500)));
        assert!(matches!(
            memory.state(at(200)),
            BackendState::Dead(Dead {
                certain: false,
                cause: Cause::Erroring,
                ..
            })
        ));
        for (ms, status) in [(300, 401), (400, 307), (500, 308)] {
            memory.finished(report(ms, 2, refused(status)));
            assert!(matches!(memory.state(at(ms + 50)), BackendState::Alive { .. }));
        }
    }

    #[test]
    fn two_answers_many_times_as_slow_as_usual_are_slow_and_a_long_slowness_does_not_become_usual() {
        let mut memory = BackendMemory::default();
        for n in 0..5 {
            memory.finished(report(n * 100, 3, ok()));
        }
        for n in 0..40 {
            memory.finished(report(1_000 + n * 1_000, 800, ok()));
        }
        assert!(matches!(memory.state(at(50_000)), BackendState::Slow { .. }));
    }

    #[test]
    fn a_single_attempt_that_timed_out_needs_no_second_one() {
        let mut memory = BackendMemory::default();
        memory.finished(report(
            0,
            10_000,
            ProbeOutcome::TimedOut {
                phase: ProbePhase::Tls,
            },
        ));
        let BackendState::Dead(dead) = memory.state(at(10_001)) else {
            panic!("expected dead")
        };
        assert!(!dead.was_alive);
    }
}
