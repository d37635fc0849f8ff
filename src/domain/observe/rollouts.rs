//! Calls and probes that failed around changes of a hook's endpoints.
//!
//! Each rollout costs a few calls when a Pod is listed before it serves, or still listed while it stops. These failures end
//! within seconds and everything then looks healthy; only their sum over many rollouts shows that a hook is skipped again and
//! again.

use std::collections::{BTreeMap, VecDeque};

use super::history::Baseline;
use super::probe::{ConnectionKind, ProbeOutcome, ProbeReport};
use super::snapshot::{HookSeries, Snapshot};
use crate::cluster::changes::{Changes, HookChange, HookChangeKind};
use crate::cluster::hook::{Backend, BackendAddress, HookId, HookKind};
use crate::time::Time;
use crate::{row, thresholds as t};

/// Counter readings kept per webhook name, and failed probes kept per hook.
const KEPT: usize = 128;

/// What one reading of the counters added for one webhook name.
#[derive(Debug)]
struct CallTally {
    span: (Time, Time),
    /// All calls.
    calls: f64,
    /// The calls that failed without an answer from the hook.
    lost: f64,
}

/// A probe that a backend refused or dropped, or that could not reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missed {
    /// When it was made.
    pub at: Time,
    /// The backend that was probed.
    pub backend: Backend,
}

/// The memory of failed calls and probes that rollouts may explain.
#[derive(Debug, Default)]
pub struct Rollouts {
    tallies: BTreeMap<(HookKind, String), VecDeque<CallTally>>,
    missed: BTreeMap<HookId, VecDeque<Missed>>,
    /// The last span in which all backends of the hook were known to be dead or missing: from, to.
    outages: BTreeMap<HookId, (Time, Time)>,
}

impl Rollouts {
    /// Adds a counter reading. Keeps only hooks with lost calls, and called hooks whose endpoints `changed` recently.
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

    /// Records a finished probe; only failures on fresh connections are kept.
    pub fn probed(&mut self, report: &ProbeReport) {
        use ProbeOutcome::{Lost, Refused, Unreachable};
        let missed = matches!(report.outcome, Refused | Unreachable { .. } | Lost { .. });
        if missed && report.connection == ConnectionKind::Fresh {
            let (at, backend) = (report.started, report.backend.clone());
            let missed = self.missed.entry(report.hook.clone()).or_default();
            row::push(missed, KEPT, Missed { at, backend });
        }
    }

    /// Records that all backends of a hook have been dead or missing since an instant. Failures during and just before the outage
    /// are then not attributed to a rollout.
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

    /// Forgets the probes and outages of removed hooks, and those older than [`t::gap_memory()`].
    pub fn keep_only(&mut self, there: impl Fn(&HookId) -> bool, now: Time) {
        self.missed.retain(|hook, missed| {
            missed.retain(|missed| now.since(missed.at) < t::gap_memory());
            !missed.is_empty() && there(hook)
        });
        self.outages
            .retain(|hook, (_, to)| now.since(*to) < t::gap_memory() && there(hook));
    }

    /// The failures of one hook around its rollouts. `counted` is false if other hooks share the counters.
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

/// Failed calls and probes around endpoint changes of one hook, within [`t::gap_memory()`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RolloutGap {
    /// Calls around endpoint changes.
    pub calls: f64,
    /// Calls around endpoint changes that failed.
    pub lost: f64,
    /// Calls that failed at other times.
    pub elsewhere: f64,
    /// The number of bursts of failed calls; failures less than [`t::bursts_apart()`] apart are one burst.
    pub bursts: usize,
    /// When the first burst began.
    pub first: Option<Time>,
    /// The last failed probe of a backend around that backend's own change: the probe, when the change was seen, and which
    /// change it was.
    pub missed: Option<(Missed, Time, HookChangeKind)>,
    /// When the last of these failures was seen.
    pub last: Option<Time>,
}

/// Whether a rollout makes such a change of endpoints. An endpoint that only stops being Ready is a fault instead.
pub const fn by_rollout(what: &HookChangeKind) -> bool {
    use HookChangeKind::{EndpointGone, EndpointReady, EndpointStopping};
    matches!(what, EndpointReady(_) | EndpointStopping(_) | EndpointGone(_))
}

/// Failed calls that a rollout may have caused. Not counted are timeouts, because a port where nothing listens refuses at once,
/// and calls that the hook itself answered with an HTTP error (503 counts as no answer) or an invalid patch.
///
/// Under `Ignore` failed calls have no duration series of their own: `usual`, the seconds per call in calm times, is subtracted
/// from the total for each other call.
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
