//! Webhooks from which one API server alone gets no answer, while others call them without trouble.
//!
//! Summed counters hide this: with three API servers a third of the calls fails, which looks like a webhook that fails for a third
//! of them. An answer of 503 counts as none: the counters do not tell the two apart.

use std::collections::BTreeMap;

use super::{History, ReplicaHistory, ReplicaKey, Windows};
use crate::cluster::hook::HookKind;
use crate::observe::snapshot::{Counted, HookSeries};
use crate::thresholds as t;
use crate::time::Time;

/// The only API server that gets no answer from a hook, and what it and the others counted since that began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OnlyAt<'a> {
    /// The API server: its target, and its start time (`None` if it does not expose it).
    pub server: &'a ReplicaKey,
    /// Whether other API servers answer at its address as well.
    pub shares_address: bool,
    /// The start of the earliest interval with a lost call after the hook's last answer; at most a few minutes ago.
    pub since: Time,
    /// Its calls since then, all without an answer.
    pub lost: f64,
    /// The answered calls of the others since then.
    pub answered: f64,
    /// How many others called the hook since then.
    pub others: usize,
}

impl History {
    /// The hooks from which only one API server gets no answer; looks at those with [`t::few_calls`] lost calls in the last minute.
    pub fn one_sided(&self, windows: &Windows, now: Time) -> BTreeMap<(HookKind, String), OnlyAt<'_>> {
        let current = self.current();
        let Some(minute) = windows.minute.as_ref().filter(|_| current.len() > 1) else {
            return BTreeMap::new();
        };
        let called = minute.gained.hooks.iter();
        let lost = called.filter(|(_, series)| series.lost() >= t::few_calls());
        lost.filter_map(|(key, _)| Some((key.clone(), self.only_at(&current, key, now)?)))
            .collect()
    }

    /// The processes that no later one has superseded. Some may have no recent interval.
    fn current(&self) -> Vec<KnownProcess<'_>> {
        self.replicas
            .iter()
            .filter(|known| !self.is_superseded(*known))
            .collect()
    }

    /// The API server that alone gets no answer from a hook. `None` unless the calls of others since then were answered, at least
    /// [`t::enough_calls`], with a mean below [`t::slow_always`], and none of them failed.
    fn only_at<'a>(
        &self,
        current: &[KnownProcess<'a>],
        key: &(HookKind, String),
        now: Time,
    ) -> Option<OnlyAt<'a>> {
        let mut silent = current
            .iter()
            .filter_map(|(server, replica)| Some((*server, replica.no_answer_since(key, now)?)));
        let (Some((server, (since, lost))), None) = (silent.next(), silent.next()) else {
            return None;
        };
        let (mut sum, mut others, mut all_answered) = (HookSeries::default(), 0, true);
        // Earlier answers do not count: an outage that all API servers see may have begun after them.
        let called = current.iter().filter(|(other, _)| *other != server);
        let called = called.map(|(_, replica)| replica.called_since(key, since));
        for series in called.filter(|series| series.calls.count >= 1.0) {
            sum.add(&series);
            others += 1;
            all_answered &= series.unanswered() < 1.0;
        }
        // Where a hook is slow for all, the lost calls may only be those of the impatient clients of one API server.
        let in_time = sum.calls.mean().is_some_and(|mean| mean < t::slow_always());
        let answered = sum.answered();
        (all_answered && in_time && answered >= t::enough_calls()).then_some(OnlyAt {
            server,
            shares_address: self.replicas_behind(&server.0) > 1,
            since,
            lost,
            answered,
            others,
        })
    }
}

/// A process of an API server, with what is known of it.
type KnownProcess<'a> = (&'a ReplicaKey, &'a ReplicaHistory);

impl ReplicaHistory {
    /// The calls of a hook in the intervals that began since an instant.
    fn called_since(&self, key: &(HookKind, String), since: Time) -> HookSeries {
        let mut sum = HookSeries::default();
        // Scrapes of one round end up to this far apart.
        let counted = self.intervals.iter();
        let counted = counted.filter(|it| it.from + t::together() >= since && !it.is_long());
        counted
            .filter_map(|it| it.gained.hooks.get(key))
            .for_each(|part| sum.add(part));
        sum
    }

    /// Since when nothing came back from a hook, and from how many calls. `None` for fewer than [`t::few_calls`], and without a
    /// recent interval. An interval with an answer in it is left out, as it does not say which of its calls came first.
    fn no_answer_since(&self, key: &(HookKind, String), now: Time) -> Option<(Time, f64)> {
        if now.since(self.intervals.back()?.to) >= t::newest_speaks() {
            return None;
        }
        let mut found: Option<(Time, f64)> = None;
        for interval in self.intervals.iter().rev().take_while(|it| !it.is_long()) {
            let Some(series) = interval.gained.hooks.get(key) else {
                continue;
            };
            if series.reached() >= 1.0 {
                break;
            }
            let lost = series.lost();
            if lost >= 1.0 {
                found = Some((interval.from, lost + found.map_or(0.0, |(_, sum)| sum)));
            }
        }
        found.filter(|(_, lost)| *lost >= t::few_calls())
    }
}
