//! Calls and probes that failed around changes of a hook's endpoints.
//!
//! A Pod that is listed before it serves, or still listed while it stops, costs a few calls at each rollout. No failure
//! lasts, so a moment later everything looks healthy; only the sum over many rollouts shows that a hook is skipped
//! again and again.

use std::collections::{BTreeMap, VecDeque};

use super::history::Baseline;
use super::probe::{ConnectionKind, ProbeOutcome, ProbeReport};
use super::snapshot::{HookSeries, Snapshot};
use crate::cluster::changes::{Changes, HookChange, HookChangeKind};
use crate::cluster::hook::{Backend, BackendAddress, HookId, HookKind};
use crate::time::Time;
use crate::{row, thresholds as t};

/// Readings and probes kept of one hook.
const KEPT: usize = 128;

/// What one reading of the counters added.
#[derive(Debug)]
struct CallTally {
    span: (Time, Time),
    /// All calls.
    calls: f64,
    /// The calls that failed without any answer from the hook.
    lost: f64,
}

/// A probe that a Ready backend did not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missed {
    /// When it was made.
    pub at: Time,
    /// Of which backend.
    pub backend: Backend,
}

/// The memory of failed calls and probes that rollouts may explain.
#[derive(Debug, Default)]
pub struct Rollouts {
    tallies: BTreeMap<(HookKind, String), VecDeque<CallTally>>,
    missed: BTreeMap<HookId, VecDeque<Missed>>,
    /// When all backends were last known to be dead, or missing: from and to.
    outages: BTreeMap<HookId, (Time, Time)>,
}

impl Rollouts {
    /// Adds a reading: failures for all hooks, and everything for hooks whose endpoints `changed` recently.
    pub fn count(
        &mut self,
        span: (Time, Time),
        (gained, usual): (&Snapshot, &Baseline),
        changed: impl Fn(&(HookKind, String)) -> bool,
    ) {
        for (key, series) in &gained.hooks {
            let lost = lost(series, usual.hook(key));
            if lost >= 1.0 || series.calls.count >= 1.0 && changed(key) {
                let calls = series.calls.count.max(lost);
                let tallies = self.tallies.entry(key.clone()).or_default();
                row::push(tallies, KEPT, CallTally { span, calls, lost });
            }
        }
        self.tallies.retain(|_, tallies| {
            tallies.retain(|tally| span.1.since(tally.span.1) < t::gap_memory());
            !tallies.is_empty()
        });
    }

    /// Takes a finished probe in.
    pub fn probed(&mut self, report: &ProbeReport) {
        use ProbeOutcome::{Lost, Refused, Unreachable};
        let missed = matches!(report.outcome, Refused | Unreachable { .. } | Lost { .. });
        if missed && report.connection == ConnectionKind::Fresh {
            let (at, backend) = (report.started, report.backend.clone());
            let missed = self.missed.entry(report.hook.clone()).or_default();
            row::push(missed, KEPT, Missed { at, backend });
        }
    }

    /// All backends of a hook are dead, or there are none, since an instant. What fails meanwhile, or has failed, is
    /// an outage's and no rollout's.
    pub fn outage(&mut self, hook: &HookId, since: Time, now: Time) {
        let span = self.outages.entry(hook.clone()).or_insert((since, now));
        let goes_on = since <= span.1 + t::before_rollout();
        *span = (if goes_on { span.0.min(since) } else { since }, now);
        let from = span.0.before(t::before_rollout());
        if let Some(tallies) = self.tallies.get_mut(&hook.counted_as()) {
            tallies.retain(|tally| tally.span.1 < from);
        }
        if let Some(missed) = self.missed.get_mut(hook) {
            missed.retain(|missed| missed.at < from);
        }
    }

    fn in_outage(&self, hook: &HookId, (from, to): (Time, Time)) -> bool {
        self.outages.get(hook).is_some_and(|(began, ended)| {
            to + t::before_rollout() >= *began && from <= *ended + t::before_rollout()
        })
    }

    /// Forgets hooks that are gone, and probes of long ago.
    pub fn keep_only(&mut self, there: impl Fn(&HookId) -> bool, now: Time) {
        self.missed.retain(|hook, missed| {
            missed.retain(|missed| now.since(missed.at) < t::gap_memory());
            !missed.is_empty() && there(hook)
        });
        self.outages
            .retain(|hook, (_, to)| now.since(*to) < t::gap_memory() && there(hook));
    }

    /// What is known of one hook; `counted` is false where the counters are another hook's, too.
    pub fn gap(&self, hook: &HookId, counted: bool, changes: &Changes, now: Time) -> RolloutGap {
        let tallies = self.tallies.get(&hook.counted_as()).filter(|_| counted);
        let since = now.before(t::gap_memory());
        let moved = changes.of(hook, since.before(t::after_rollout()));
        let moved: Vec<&HookChange> = moved.filter(|change| by_rollout(&change.what)).collect();
        let is_near = |(from, to): (Time, Time), change: &HookChange| {
            to + t::before_rollout() >= change.at && from <= change.at + t::after_rollout()
        };
        let counts = |span: (Time, Time)| span.1 >= since && !self.in_outage(hook, span);
        let mut gap = RolloutGap::default();
        for tally in tallies.into_iter().flatten().filter(|tally| counts(tally.span)) {
            if !moved.iter().any(|change| is_near(tally.span, change)) {
                gap.elsewhere += tally.lost;
                continue;
            }
            gap.calls += tally.calls;
            if tally.lost >= 1.0 {
                let (from, to) = tally.span;
                let is_new = gap.last.is_none_or(|last| from >= last + t::bursts_apart());
                gap.lost += tally.lost;
                gap.bursts += usize::from(is_new);
                gap.first.get_or_insert(from);
                gap.last = gap.last.max(Some(to));
            }
        }
        for missed in self.missed.get(hook).into_iter().flatten() {
            let at = missed.at;
            let own = moved.iter().filter(|change| {
                let too_early = at < change.at && at + t::news_lag() > change.at;
                let address = change.what.endpoint().map(BackendAddress::Socket);
                address.as_ref() == Some(&missed.backend.address) && is_near((at, at), change) && !too_early
            });
            let own = own.min_by_key(|change| at.since(change.at) + change.at.since(at));
            if let Some(change) = own.filter(|_| counts((at, at))) {
                gap.missed = Some((missed.clone(), change.at, change.what.clone()));
                gap.last = gap.last.max(Some(at));
            }
        }
        gap
    }
}

/// Failures of calls and probes around changes of one hook's endpoints, within [`t::gap_memory()`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RolloutGap {
    /// Calls around changes.
    pub calls: f64,
    /// Those of them that failed.
    pub lost: f64,
    /// Calls that failed at other times.
    pub elsewhere: f64,
    /// In how many bursts: failed calls that follow each other closely are one.
    pub bursts: usize,
    /// When the first of them began.
    pub first: Option<Time>,
    /// The last probe that a Ready backend did not take around its own change: the probe, when the change was seen,
    /// and what it was.
    pub missed: Option<(Missed, Time, HookChangeKind)>,
    /// When the last of all that was seen.
    pub last: Option<Time>,
}

/// Whether a rollout changes endpoints like that. One that merely stops being Ready is ill.
pub const fn by_rollout(what: &HookChangeKind) -> bool {
    use HookChangeKind::{EndpointGone, EndpointReady, EndpointStopping};
    matches!(what, EndpointReady(_) | EndpointStopping(_) | EndpointGone(_))
}

/// Failed calls, except timeouts and those that the hook itself answered, with an HTTP error (503 counts as no answer) or a
/// patch that cannot be applied: where nothing listens, the refusal is immediate.
///
/// Under `Ignore` they have no duration of their own: what the others usually take, in seconds, is subtracted.
fn lost(series: &HookSeries, usual: Option<f64>) -> f64 {
    let refused = series.rejections.calling + series.rejections.internal;
    let longest = if refused >= 1.0 {
        series.rejected.mean()
    } else {
        let others = (series.calls.count - series.failed()).max(0.0) * usual.unwrap_or(0.0);
        Some((series.calls.sum - others) / series.failed().max(1.0))
    };
    if longest >= Some(t::timeout_like()) {
        return 0.0;
    }
    (series.failed() - series.own_errors() - series.rejections.internal).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::snapshot::Cumulative;

    fn tally_of(calls: f64, failed: f64, own_errors: f64) -> HookSeries {
        HookSeries {
            calls: Cumulative {
                sum: 0.0,
                count: calls,
            },
            fail_open: failed,
            codes: [(500, own_errors), (503, failed - own_errors)].into(),
            ..HookSeries::default()
        }
    }

    #[test]
    fn an_http_error_of_the_hook_itself_is_no_call_that_a_rollout_lost() {
        assert_eq!(lost(&tally_of(10.0, 4.0, 3.0), None), 1.0);
    }

    #[test]
    fn a_call_that_failed_at_once_is_lost_however_long_the_others_took_together() {
        let mut series = tally_of(40.0, 1.0, 0.0);
        series.calls.sum = 39.0 * 0.034;
        assert_eq!(lost(&series, Some(0.034)), 1.0);
        series.calls.sum += 10.0;
        assert_eq!(lost(&series, Some(0.034)), 0.0, "it timed out");
    }

    #[test]
    fn readings_without_failures_are_kept_only_around_changes_and_all_are_bounded() {
        let key = (HookKind::Mutating, "w".to_owned());
        let mut gained = Snapshot::default();
        let at = |n: u64| Time::from_unix_millis(1_000_000 + n * 1_000);
        let mut rollouts = Rollouts::default();
        gained.hooks.insert(key.clone(), tally_of(10.0, 0.0, 0.0));
        rollouts.count((at(0), at(1)), (&gained, &Baseline::default()), |_| false);
        assert!(rollouts.tallies.is_empty());
        for n in 1..300 {
            rollouts.count((at(n), at(n + 1)), (&gained, &Baseline::default()), |_| true);
        }
        assert_eq!(rollouts.tallies[&key].len(), KEPT);
        rollouts.count(
            (at(2_000), at(2_001)),
            (&Snapshot::default(), &Baseline::default()),
            |_| true,
        );
        assert!(rollouts.tallies.is_empty());
    }
}
