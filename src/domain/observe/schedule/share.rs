//! Distributes the results of a probe to all hooks for which it counts.

use std::sync::Arc;
use std::time::Duration;

use super::target::may_be_slow;
use super::{Schedule, ScheduledProbe};
use crate::cluster::hook::{Hook, ProbeLevel};
use crate::observe::probe::{
    ConnectionKind, PhaseDurations, ProbeAnswer, ProbeOutcome, ProbeOverdue, ProbePhase, ProbeReport,
};
use crate::time::Time;

/// An answer within this time after the request is not slow, however long the handshake took.
const PROMPT: Duration = Duration::from_millis(100);

impl Schedule {
    /// Records that a probe is late. Returns the event once for each hook for which it counts.
    pub fn overdue(&mut self, number: u64, overdue: &ProbeOverdue, now: Time) -> Vec<ProbeOverdue> {
        let Some(attempt) = self.out.get(&number) else {
            return Vec::new();
        };
        let Some(target) = self.targets.get_mut(&attempt.target) else {
            return Vec::new();
        };
        target.wake = Time::default();
        let asked = matches!(overdue.phase, ProbePhase::FirstByte | ProbePhase::Body);
        if asked && let Some(state) = target.asks.get_mut(&attempt.ask) {
            state.answered(Some(false), attempt.connection, now);
        }
        // A pending handshake counts for all hooks of the target, and a pooled connection for all that share it. A missing
        // answer on a new connection counts only for the hooks with that request.
        let for_all = asked == (attempt.connection == ConnectionKind::Kept);
        let of = |hook: &Arc<Hook>| ProbeOverdue {
            hook: hook.id.clone(),
            ..overdue.clone()
        };
        let left = target.left.values().map(|left| &left.hook);
        if for_all {
            target.hooks().chain(left).map(of).collect()
        } else {
            attempt.hooks.iter().map(of).collect()
        }
    }

    /// Records that the handshake of a fresh probe succeeded. Returns `report`, which describes the handshake, for each hook with
    /// another request.
    pub fn shaken(&mut self, number: u64, report: &ProbeReport, now: Time) -> Vec<ProbeReport> {
        let Some(attempt) = self.out.get(&number) else {
            return Vec::new();
        };
        let Some(target) = self.targets.get_mut(&attempt.target) else {
            return Vec::new();
        };
        target.wake = Time::default();
        if !target.shaken(number, Some(now)) {
            return Vec::new();
        }
        let others = target.asks.iter().filter(|(ask, _)| **ask != attempt.ask);
        let others = others.filter(|(_, state)| state.goes_by_handshake());
        let hooks = others.flat_map(|(_, state)| &*state.hooks);
        hooks.map(|hook| report.handshake_for(hook)).collect()
    }

    /// Records a finished probe. Returns its report once for each hook for which it counts.
    pub fn finished(&mut self, number: u64, report: &ProbeReport, now: Time) -> Vec<ProbeReport> {
        let Some(attempt) = self.out.remove(&number) else {
            return Vec::new();
        };
        let mut told: Vec<ProbeReport> = Vec::new();
        let asking = attempt.hooks.iter().enumerate();
        told.extend(asking.map(|(nth, hook)| ProbeReport {
            shared: nth > 0,
            ..report.for_hook(hook)
        }));
        let Some(target) = self.targets.get_mut(&attempt.target) else {
            return told;
        };
        target.wake = Time::default();
        let unshaken = target.shaken(number, None);
        target.ended(number, &attempt.ask);
        if let Some(state) = target.asks.get_mut(&attempt.ask) {
            state.answered(well(report), attempt.connection, now);
        }
        let others = |(ask, _): &(&super::Ask, _)| **ask != attempt.ask;
        if attempt.connection == ConnectionKind::Kept {
            let alive = report.outcome.is_alive();
            let interval = self.rates.interval(target.attended);
            let known = target.kept_told;
            if known.is_none_or(|(at, known)| known != alive || !alive || now.since(at) >= interval) {
                target.kept_told = Some((now, alive));
                let rest = target.asks.iter().filter(others);
                let rest = rest.flat_map(|(_, state)| &*state.hooks);
                let left = target.left.values().map(|left| &left.hook);
                let left = left.filter(|hook| !attempt.is_for(hook));
                told.extend(rest.chain(left).map(|hook| report.shared_with(hook)));
            }
        } else if unshaken && !matches!(report.outcome, ProbeOutcome::NotProbed { .. }) {
            let good = matches!(report.outcome, ProbeOutcome::Answered(_));
            let rest = target.asks.iter().filter(others);
            let rest = rest.filter(|(_, state)| !good || state.goes_by_handshake());
            for hook in rest.flat_map(|(_, state)| &*state.hooks) {
                told.push(if good {
                    report.handshake_for(hook)
                } else {
                    report.shared_with(hook)
                });
            }
        }
        told
    }
}

impl ScheduledProbe {
    fn is_for(&self, hook: &Hook) -> bool {
        self.hooks.iter().any(|known| known.id == hook.id)
    }
}

/// Whether the request was answered well and without delay; `None` if no request was sent.
fn well(report: &ProbeReport) -> Option<bool> {
    let asking = [report.phases.first_byte, report.phases.body];
    let asking: Duration = asking.into_iter().flatten().sum();
    match &report.outcome {
        ProbeOutcome::NotProbed { .. } => Some(false),
        outcome if outcome.is_healthy() => {
            Some(!may_be_slow(report.took) || asking < PROMPT && report.phases.tls.is_some())
        }
        ProbeOutcome::Answered(_) => Some(false),
        ProbeOutcome::TimedOut { phase } | ProbeOutcome::Lost { phase, .. } => matches!(
            phase,
            ProbePhase::FirstByte | ProbePhase::Body | ProbePhase::Withheld
        )
        .then_some(false),
        _ => None,
    }
}

impl ProbeReport {
    /// The report for another hook with the same request; cut off at that hook's own timeout.
    fn for_hook(&self, hook: &Hook) -> Self {
        let report = Self {
            hook: hook.id.clone(),
            ..self.clone()
        };
        let limit = hook.timeout;
        if self.took <= limit || matches!(self.outcome, ProbeOutcome::NotProbed { .. }) {
            return report;
        }
        let mut rest = limit;
        let ran_out = ProbePhase::ALL.into_iter().find(|phase| {
            let spent = self.phases.get(*phase).unwrap_or_default();
            let is_it = spent > rest;
            rest = rest.saturating_sub(spent);
            is_it
        });
        // No phase ran past the limit: the time between phases does not count.
        let Some(phase) = ran_out else { return report };
        Self {
            took: limit,
            outcome: ProbeOutcome::TimedOut { phase },
            ..report
        }
    }

    /// The report for a hook with another request.
    fn shared_with(&self, hook: &Hook) -> Self {
        Self {
            level: if self.connection == ConnectionKind::Fresh {
                ProbeLevel::Handshake
            } else {
                self.level
            },
            shared: true,
            ..self.for_hook(hook)
        }
    }

    /// The handshake alone, as a report for a hook with another request.
    fn handshake_for(&self, hook: &Hook) -> Self {
        let phases = PhaseDurations {
            first_byte: None,
            body: None,
            ..self.phases
        };
        let handshake = Self {
            phases,
            outcome: ProbeOutcome::Answered(ProbeAnswer::Handshake),
            ..self.clone()
        };
        handshake.shared_with(hook)
    }
}
