//! Evidence from pooled connections, which hookwatch keeps open as the API server does.
//!
//! A Pod that vanishes without closing its connections leaves the API server with dead ones. Its endpoint is soon removed and
//! every fresh probe succeeds, so only an older connection shows the fault. hookwatch therefore keeps its own connection after
//! the backend's removal, for as long as the API server may keep one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::probe::{ConnectionKind, ProbeOutcome, ProbeOverdue, ProbePhase, ProbeReport};
use crate::cluster::hook::{Backend, BackendPath, HookId};
use crate::thresholds as t;
use crate::time::Time;

/// Most removed backends remembered per hook; the latest are kept.
const MAX_GONE: usize = 32;

/// A removed backend whose pooled connection no longer answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadConnection {
    /// The backend.
    pub backend: Backend,
    /// When the backend was first missing from the hook's endpoints.
    pub gone: Time,
    /// How long the last request on the connection has waited, or waited until its timeout, without an answer.
    pub waited: Duration,
}

/// The pooled connections of all hooks, by backend.
#[derive(Debug, Default)]
pub struct PooledConnections(BTreeMap<HookId, BTreeMap<Backend, PooledBackend>>);

#[derive(Debug, Default)]
struct PooledBackend {
    gone: Option<Time>,
    /// The newest attempt that is evidence: its start, and how long it got no answer (`None` if the connection was answered
    /// or closed properly).
    newest: Option<(Time, Option<Duration>)>,
}

impl PooledConnections {
    /// Takes the current backends of every hook; backends that are missing now are remembered for a while.
    pub fn take<'a>(&mut self, now: Time, there: impl IntoIterator<Item = (&'a HookId, Vec<Backend>)>) {
        let mut before = std::mem::take(&mut self.0);
        let is_remembered = |gone: Time| now.since(gone) < t::pooled_connections_last();
        for (hook, backends) in there {
            let mut known = before.remove(hook).unwrap_or_default();
            for memory in known.values_mut() {
                memory.gone = memory.gone.or(Some(now));
            }
            // Behind a cluster IP or a DNS name the Pods change, so only endpoints are tracked.
            let fixed = |backend: &Backend| backend.path == BackendPath::Endpoint;
            for backend in backends.into_iter().filter(fixed) {
                let memory = known.entry(backend).or_default();
                if memory.gone.is_some_and(|gone| gone < now) {
                    // The address is back, perhaps for another Pod.
                    *memory = PooledBackend::default();
                }
                memory.gone = None;
            }
            known.retain(|_, memory| memory.gone.is_none_or(is_remembered));
            let gone = known.iter();
            let gone = gone.filter_map(|(backend, memory)| Some((memory.gone?, backend.clone())));
            let gone: BTreeSet<(Time, Backend)> = gone.collect();
            for (_, backend) in gone.iter().rev().skip(MAX_GONE) {
                known.remove(backend);
            }
            self.0.insert(hook.clone(), known);
        }
    }

    /// Records a finished probe. Probes on fresh connections are ignored.
    pub fn finished(&mut self, report: &ProbeReport) {
        let waited = match &report.outcome {
            ProbeOutcome::TimedOut {
                phase: ProbePhase::FirstByte | ProbePhase::Body,
            } => {
                // This probe had to dial, so it did not test a pooled connection, and the backend accepted the new one.
                let dialled = report.phases.connect.is_some();
                (!dialled).then_some(report.took)
            }
            // Dialling failed, or nothing was sent: no evidence about the older connection.
            ProbeOutcome::TimedOut { .. }
            | ProbeOutcome::Unreachable { .. }
            | ProbeOutcome::NotProbed { .. } => return,
            // A connection that was closed properly costs the API server nothing: it dials again.
            _ => None,
        };
        if report.connection == ConnectionKind::Kept {
            self.note(&report.hook, &report.backend, report.started, waited);
        }
    }

    /// Records that a probe is late.
    pub fn overdue(&mut self, overdue: &ProbeOverdue) {
        let waits = overdue.connection == ConnectionKind::Kept && overdue.phase == ProbePhase::FirstByte;
        if waits && overdue.waiting >= t::late() {
            let silent = Some(overdue.waiting);
            self.note(&overdue.hook, &overdue.backend, overdue.started, silent);
        }
    }

    fn note(&mut self, hook: &HookId, backend: &Backend, started: Time, silent: Option<Duration>) {
        let memory = self.0.get_mut(hook).and_then(|known| known.get_mut(backend));
        if let Some(memory) = memory
            && memory.newest.is_none_or(|(newest, _)| newest <= started)
        {
            memory.newest = Some((started, silent));
        }
    }

    /// Whether a hook has recently removed backends and, since its removal, the pooled connection to each was answered or
    /// closed properly.
    pub fn are_closed(&self, hook: &HookId, now: Time) -> bool {
        let known = self.0.get(hook).into_iter().flatten();
        let gone = known.filter_map(|(_, memory)| Some((memory.gone?, memory.newest)));
        let mut gone = gone
            .filter(|(gone, _)| now.since(*gone) < t::pooled_connections_last())
            .peekable();
        let is_closed = |gone, newest: Option<(Time, Option<Duration>)>| {
            newest.is_some_and(|(at, silent)| at >= gone && silent.is_none())
        };
        gone.peek().is_some() && gone.all(|(gone, newest)| is_closed(gone, newest))
    }

    /// The recently removed backends of a hook whose pooled connection does not answer.
    pub fn silent(&self, hook: &HookId, now: Time) -> Vec<DeadConnection> {
        let known = self.0.get(hook).into_iter().flatten();
        let silent = known.filter_map(|(backend, memory)| {
            let gone = memory
                .gone
                .filter(|gone| now.since(*gone) < t::pooled_connections_last())?;
            let (backend, waited) = (backend.clone(), memory.newest?.1?);
            Some(DeadConnection {
                backend,
                gone,
                waited,
            })
        });
        silent.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::hook::{BackendAddress, HookKind, ProbeLevel};
    use crate::observe::probe::{CertificateFacts, PhaseDurations, ProbeAnswer};

    fn at(ms: u64) -> Time {
        Time::from_unix_millis(1_000_000 + ms)
    }

    fn hook() -> HookId {
        HookId::new(HookKind::Validating, "c", "w")
    }

    fn backend(last: u8) -> Backend {
        Backend {
            path: BackendPath::Endpoint,
            address: BackendAddress::Socket(([10, 0, 0, last], 8443).into()),
        }
    }

    /// A probe that had to dial, and was not answered.
    fn dialled(ms: u64) -> ProbeReport {
        let mut report = report(ms, 10_000, SILENCE);
        report.phases.connect = Some(Duration::from_millis(1));
        report
    }

    fn report(ms: u64, took: u64, outcome: ProbeOutcome) -> ProbeReport {
        ProbeReport {
            hook: hook(),
            backend: backend(1),
            level: ProbeLevel::Http,
            connection: ConnectionKind::Kept,
            started: at(ms),
            took: Duration::from_millis(took),
            phases: PhaseDurations::default(),
            outcome,
            certificates: CertificateFacts::default(),
            shared: false,
        }
    }

    fn overdue(waiting: Duration) -> ProbeOverdue {
        ProbeOverdue {
            hook: hook(),
            backend: backend(1),
            connection: ConnectionKind::Kept,
            started: at(1_100),
            waiting,
            phase: ProbePhase::FirstByte,
        }
    }

    const SILENCE: ProbeOutcome = ProbeOutcome::TimedOut {
        phase: ProbePhase::FirstByte,
    };

    /// Two backends, of which the first is gone since 1 s.
    fn one_is_gone() -> PooledConnections {
        let id = hook();
        let mut kept = PooledConnections::default();
        kept.take(at(0), [(&id, vec![backend(1), backend(2)])]);
        kept.take(at(1_000), [(&id, vec![backend(2)])]);
        kept
    }

    #[test]
    fn silence_counts_only_once_the_backend_is_gone_and_until_the_api_server_has_given_it_up() {
        let id = hook();
        let mut kept = PooledConnections::default();
        kept.take(at(0), [(&id, vec![backend(1)])]);
        kept.finished(&report(10, 10_000, SILENCE));
        assert_eq!(kept.silent(&id, at(11_000)), [], "listed: fresh probes say more");
        kept.take(at(12_000), [(&id, Vec::new())]);
        let silent = kept.silent(&id, at(13_000));
        assert_eq!(
            (silent[0].gone, silent[0].waited),
            (at(12_000), Duration::from_secs(10))
        );
        assert_eq!(kept.silent(&id, at(12_000) + t::pooled_connections_last()), []);
    }

    #[test]
    fn a_call_that_is_late_is_silence_until_it_is_answered_after_all() {
        let id = hook();
        let mut kept = one_is_gone();
        kept.overdue(&overdue(Duration::from_secs(1)));
        assert_eq!(kept.silent(&id, at(2_100)), []);
        kept.overdue(&overdue(t::late()));
        assert_eq!(kept.silent(&id, at(3_100)).len(), 1);
        let answer = ProbeOutcome::Answered(ProbeAnswer::Http { status: 405 });
        kept.finished(&report(1_100, 2_500, answer));
        assert_eq!(kept.silent(&id, at(3_700)), []);
    }

    #[test]
    fn a_connection_that_was_closed_or_had_to_be_dialled_is_no_stale_one() {
        let id = hook();
        let mut kept = one_is_gone();
        let broken = ProbeOutcome::Lost {
            phase: ProbePhase::FirstByte,
            why: "reset".into(),
        };
        kept.finished(&report(1_100, 1, broken));
        assert_eq!(kept.silent(&id, at(2_000)), []);
        kept.finished(&dialled(1_200));
        assert_eq!(kept.silent(&id, at(12_000)), []);
    }

    #[test]
    fn a_call_that_is_late_on_a_new_connection_leaves_no_silence_behind() {
        let id = hook();
        let mut kept = one_is_gone();
        // While it waits nothing tells that it had to dial.
        kept.overdue(&overdue(t::late()));
        kept.finished(&dialled(1_100));
        assert_eq!(kept.silent(&id, at(12_000)), []);
    }

    #[test]
    fn that_there_is_no_way_to_dial_again_makes_no_silent_connection_speak() {
        let id = hook();
        let mut kept = PooledConnections::default();
        kept.take(at(0), [(&id, vec![backend(1)])]);
        kept.finished(&report(10, 10_000, SILENCE));
        let no_way = ProbeOutcome::Unreachable {
            why: "no route to host".into(),
        };
        kept.finished(&report(11_000, 3_000, no_way));
        kept.take(at(15_000), [(&id, Vec::new())]);
        assert_eq!(kept.silent(&id, at(16_000)).len(), 1);
    }

    #[test]
    fn an_address_that_comes_back_has_no_history() {
        let id = hook();
        let mut kept = one_is_gone();
        kept.finished(&report(1_100, 10_000, SILENCE));
        assert_eq!(kept.silent(&id, at(12_000)).len(), 1);
        kept.take(at(13_000), [(&id, vec![backend(1), backend(2)])]);
        kept.take(at(14_000), [(&id, vec![backend(2)])]);
        assert_eq!(kept.silent(&id, at(15_000)), []);
    }

    #[test]
    fn the_memory_of_removed_backends_is_bounded() {
        let id = hook();
        let mut kept = PooledConnections::default();
        for last in 0..=200 {
            kept.take(at(u64::from(last)), [(&id, vec![backend(last)])]);
        }
        assert_eq!(kept.0[&id].len(), MAX_GONE + 1);
        kept.take(at(300), []);
        assert!(kept.0.is_empty());
    }
}
