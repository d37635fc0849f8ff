//! Webhooks from which one API server alone gets no answer, while others call them without trouble.
//!
//! Summed counters hide this: a third of the calls fails, which looks like a webhook that fails for a third of them.

use std::collections::BTreeMap;

use super::{History, ReplicaHistory, Windows};
use crate::cluster::hook::HookKind;
use crate::observe::snapshot::{Counted, HookSeries};
use crate::text::human;
use crate::thresholds as t;
use crate::time::Time;

/// A process of an API server: its target, and its start time (`None` if it does not expose it).
type ServerKey<'a> = (&'a str, Option<Time>);

/// The only API server that gets no answer from a hook, and what it and the others counted since that began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OnlyAt<'a> {
    /// The API server.
    pub server: ServerKey<'a>,
    /// The start of the earliest interval since which nothing came back from the hook; at most a few minutes ago.
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
        let running = self.running();
        let minute = windows.minute.iter().filter(|_| running.len() > 1);
        let called = minute.flat_map(|minute| &minute.gained.hooks);
        let lost = called.filter(|(_, series)| series.lost() >= t::few_calls());
        lost.filter_map(|(key, _)| Some((key.clone(), only_at(&running, key, now)?)))
            .collect()
    }

    /// The processes whose last interval describes the present.
    fn running(&self) -> Running<'_> {
        let running = self.replicas.iter().filter(|known| !self.is_superseded(*known));
        running
            .map(|((target, started), replica)| ((target.as_str(), *started), replica))
            .collect()
    }

    /// What one API server and the others counted, and where to look, as sentences.
    pub fn sentences(&self, only: &OnlyAt<'_>, now: Time) -> String {
        let (who, lost, answered) = (self.name_of(only.server), only.lost, only.answered);
        let span = human(now.since(only.since));
        let others = match only.others {
            1 => "Another API server".to_owned(),
            n => format!("{n} other API servers"),
        };
        format!(
            "Only {who} gets no answer from it: all its {lost:.0} calls in {span} failed. {others} had {answered:.0} calls \
             answered, and none failed. Look at that API server's path to the Pods, then at requests that only it gets."
        )
    }

    /// What identifies a process, for use within a sentence.
    fn name_of(&self, (target, started): ServerKey<'_>) -> String {
        if self.replicas_behind(target) > 1 {
            behind(target, started)
        } else {
            format!("API server {target}")
        }
    }
}

/// Processes, with what is known of each.
type Running<'a> = Vec<(ServerKey<'a>, &'a ReplicaHistory)>;

/// The only API server of these that gets no answer from a hook. `None` unless others had [`t::enough_calls`] answered since, in
/// time, and none failed.
fn only_at<'a>(running: &Running<'a>, key: &(HookKind, String), now: Time) -> Option<OnlyAt<'a>> {
    let mut silent = running
        .iter()
        .filter_map(|(server, replica)| Some((*server, replica.no_answer_since(key, now)?)));
    let (Some((server, (since, lost))), None) = (silent.next(), silent.next()) else {
        return None;
    };
    let (mut sum, mut others, mut all_answered) = (HookSeries::default(), 0, true);
    // Answers from before may be from before an outage that all of them see.
    let called = running.iter().filter(|(other, _)| *other != server);
    let called = called.map(|(_, replica)| replica.called_since(key, since));
    for series in called.filter(|series| series.calls.count >= 1.0) {
        sum.add(&series);
        others += 1;
        all_answered &= series.unanswered() < 1.0;
    }
    // Where a hook is slow for all, those who give it up may happen to be clients of one API server.
    let in_time = sum.calls.mean().is_some_and(|mean| mean < t::slow_always());
    let answered = sum.answered();
    (all_answered && in_time && answered >= t::enough_calls()).then_some(OnlyAt {
        server,
        since,
        lost,
        answered,
        others,
    })
}

/// What identifies one of several processes at an address, for use within a sentence.
pub fn behind(target: &str, started: Option<Time>) -> String {
    match started {
        Some(started) => format!("the API server behind {target} that started at {started}"),
        None => format!("one of the API servers behind {target}"),
    }
}

impl ReplicaHistory {
    /// The calls of a hook in the intervals that began since an instant.
    fn called_since(&self, key: &(HookKind, String), since: Time) -> HookSeries {
        let mut sum = HookSeries::default();
        // The scrapes of one round do not end at the same instant.
        let counted = self.intervals.iter();
        let counted = counted.filter(|it| it.from + t::together() >= since && !it.is_long());
        counted
            .filter_map(|it| it.gained.hooks.get(key))
            .for_each(|part| sum.add(part));
        sum
    }

    /// Since when nothing came back from a hook, and from how many calls. `None` for fewer than [`t::few_calls`], and without a
    /// recent interval.
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
