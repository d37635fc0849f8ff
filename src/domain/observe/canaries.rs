//! What the last canaries show about the control plane, and about the hooks that their refusals name.
//!
//! A canary without an answer after 0.3 s is *overdue*. It *waits* once it takes longer than canaries usually do. It is *late*
//! after twice the time of the slowest recent one, but at least 1.5 s and at most 3 s. It *hangs* when it is late and, if the last
//! one was slow, has taken twice as long as that. A later canary of the same target that is written ends all of these states.

use std::collections::{BTreeMap, VecDeque, vec_deque};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use super::canary::{
    CallFailure, CallFailureReason, CanaryOutcome, CanaryOverdue, CanaryReport, CanaryTarget, FurtherCanary,
};
use super::history::{Slowest, Usual};
use super::views::CanaryView;
use crate::text::human;
use crate::time::Time;
use crate::{row, thresholds as t};

/// Finished canaries kept per target.
const KEPT: usize = 16;
/// How long ended canaries are kept to compare them with the API servers' counters: longer than any span that is compared.
const ENDED_FOR: Duration = Duration::from_secs(180);
/// Most ended canaries kept per target.
const ENDED_KEPT: usize = 512;

/// The last canaries of all targets.
#[derive(Debug, Clone, Default)]
pub struct Canaries {
    memories: BTreeMap<CanaryTarget, CanaryMemory>,
    /// Whether a webhook is bypassed now: then durations of canaries are not added to the baseline.
    spared: bool,
}

/// The last canaries of one target.
#[derive(Debug, Clone, Default)]
pub struct CanaryMemory {
    finished: VecDeque<CanaryReport>,
    ended: VecDeque<EndedCanary>,
    /// Overdue canaries in flight: when each was sent, and how long it had waited when it was last reported.
    overdue: BTreeMap<Time, Duration>,
    /// The written canaries that took less time than every later one: when each ended, and how long it took.
    written: VecDeque<(Time, Duration)>,
    /// Whether an API server has ever answered a canary of this target.
    heard: bool,
    usual: Usual,
    slowest: Slowest,
    /// When hookwatch last resumed after a stall.
    resumed: Time,
}

/// An ended canary, for comparison with the calls that API servers count.
#[derive(Debug, Clone)]
struct EndedCanary {
    at: Time,
    took: Duration,
    /// The webhook because of which it was refused.
    named: Option<Arc<str>>,
}

/// A hook named by a refused canary.
#[derive(Debug, Clone, PartialEq)]
pub struct CanaryAccusation<'a> {
    /// The canary that was refused.
    pub target: CanaryTarget,
    /// When it was sent.
    pub started: Time,
    /// How long it took until it was refused.
    pub took: Duration,
    /// The failed call that the API server reported.
    pub failure: &'a CallFailure,
    /// Whether no later canary of this target was written.
    pub current: bool,
    /// Whether the newest canary of this target does not name this hook. Something else may have stopped it before it reached
    /// this hook, so canaries no longer show whether the hook has recovered.
    pub superseded: bool,
}

impl CanaryAccusation<'_> {
    /// Whether the call timed out after so short a time that any pause may have caused it.
    pub fn is_short(&self) -> bool {
        use CallFailureReason::{DeadlineExceeded, TlsHandshakeTimeout};
        let timed_out = matches!(self.failure.reason, DeadlineExceeded | TlsHandshakeTimeout);
        timed_out && self.took < t::short_timeout()
    }
}

impl Canaries {
    /// Takes whether a webhook is bypassed now.
    pub fn spare(&mut self, spared: bool) {
        self.spared = spared;
    }

    /// Records a finished canary.
    pub fn finished(&mut self, report: CanaryReport) {
        let memory = self.memories.entry(report.target).or_default();
        memory.overdue.remove(&report.started);
        let lasts = |started: Time| report.started.since(started) < t::canary_stale();
        memory.overdue.retain(|started, _| lasts(*started));
        memory.heard |= report.outcome.is_heard();
        if is_written(&report) {
            let (ended, took) = (report.started + report.took, report.took);
            memory.slowest.take(ended, took);
            memory.written.retain(|known| known.0 > ended || known.1 < took);
            row::insert(&mut memory.written, KEPT, (ended, took), |known| known.0);
        }
        if is_written(&report) && !self.spared && !memory.is_slow(report.took) {
            memory.usual.learn(Some(report.took.as_secs_f64()));
        }
        memory.remember_end(&report);
        row::insert(&mut memory.finished, KEPT, report, |report| report.started);
    }

    /// Records that a canary is overdue.
    pub fn overdue(&mut self, overdue: &CanaryOverdue) {
        let memory = self.memories.entry(overdue.target).or_default();
        let mut finished = memory.finished.iter();
        if !finished.any(|report| report.started == overdue.started) {
            memory.overdue.insert(overdue.started, overdue.waiting);
        }
    }

    /// Notes that hookwatch was stalled until now: silence during the stall is no evidence.
    pub fn resumed(&mut self, now: Time) {
        for memory in self.memories.values_mut() {
            memory.resumed = now;
        }
    }

    /// Whether an API server answered a canary that was sent since an instant.
    pub fn heard_since(&self, since: Time) -> bool {
        let mut finished = self.memories.values().flat_map(|memory| &memory.finished);
        finished.any(|report| report.started >= since && report.outcome.is_heard())
    }

    /// Whether writes hang: two canaries hang, or one does and no canary of any target sent since then was written promptly.
    pub fn hung(&self, now: Time) -> bool {
        let hung = self.memories.values().flat_map(|memory| memory.hung_sent(now));
        let hung: Vec<Time> = hung.collect();
        let memories = self.memories.values();
        let passed = memories.filter_map(|memory| memory.passed_at(now)).max();
        hung.len() >= 2
            || hung
                .first()
                .is_some_and(|sent| passed.is_none_or(|passed| passed < *sent))
    }

    /// Whether writes take at least `span`. Both of the two newest canaries with evidence must, since a single one may have been
    /// delayed by chance. `since`: when writes became slow; a quick canary sent before is no evidence. `None` without evidence.
    pub fn take_as_long_as(
        &self,
        targets: impl Iterator<Item = CanaryTarget>,
        span: Duration,
        since: Option<Time>,
        now: Time,
    ) -> Option<bool> {
        let memories = targets.filter_map(|target| self.get(target));
        let told = memories.flat_map(|memory| memory.taking(span, since, now));
        let mut told: Vec<(Time, bool)> = told.collect();
        told.sort_unstable();
        match told[..] {
            [] => None,
            [.., (_, before), (_, last)] => Some(before && last),
            _ => Some(false),
        }
    }

    /// Whether at least two recent canaries were slow: the newest of two targets, or the two newest of one.
    pub fn several_slow(&self, now: Time) -> bool {
        let slow = self.memories.values().map(|memory| {
            let latest = memory.recent(now).rev().take(2);
            latest
                .take_while(|report| is_written(report) && memory.is_slow(report.took))
                .count()
        });
        slow.sum::<usize>() >= 2
    }

    /// The targets of which a canary has been reported, each with its memory.
    pub fn iter(&self) -> impl Iterator<Item = (CanaryTarget, &CanaryMemory)> {
        self.memories.iter().map(|(target, memory)| (*target, memory))
    }

    /// The memory of one target; `None` before its first canary is reported.
    pub fn get(&self, target: CanaryTarget) -> Option<&CanaryMemory> {
        self.memories.get(&target)
    }

    /// Every recent refusal that names this webhook.
    pub fn naming<'a>(&'a self, webhook: &'a str, now: Time) -> impl Iterator<Item = CanaryAccusation<'a>> {
        let names = move |report: &CanaryReport| named_by(report).is_some_and(|it| it.webhook == webhook);
        self.memories.values().flat_map(move |memory| {
            let superseded = memory.latest(now).is_some_and(|latest| !names(latest));
            let refusals = memory.recent(now).filter(move |report| names(report));
            refusals.filter_map(move |report| {
                Some(CanaryAccusation {
                    target: report.target,
                    started: report.started,
                    took: report.took,
                    failure: named_by(report)?,
                    current: !memory.got_through_after(report.started),
                    superseded,
                })
            })
        })
    }

    /// Webhook names in recent refusals.
    pub fn named(&self, now: Time) -> impl Iterator<Item = &str> {
        let recent = self.memories.values().flat_map(move |memory| memory.recent(now));
        let failures = recent.filter_map(named_by);
        failures.map(|failure| failure.webhook.as_str())
    }

    /// How long each canary of a target took that ended from `from` to `to`. Only the last three minutes are kept.
    pub fn ended_within(
        &self,
        target: CanaryTarget,
        from: Time,
        to: Time,
    ) -> impl ExactSizeIterator<Item = Duration> {
        let ended = self.get(target).map(|memory| memory.ended_within(from, to));
        ended.unwrap_or_default().map(|canary| canary.took)
    }

    /// How many canaries that ended from `from` to `to` were refused because of a webhook. Only the last three minutes are kept.
    pub fn refused_within(&self, webhook: &str, from: Time, to: Time) -> usize {
        let memories = self.memories.values();
        let ended = memories.flat_map(|memory| memory.ended_within(from, to));
        ended
            .filter(|canary| canary.named.as_deref() == Some(webhook))
            .count()
    }

    /// One view per canary, built-in ones first.
    pub fn views(&self, further: &[FurtherCanary], now: Time) -> Vec<CanaryView> {
        let further = further.iter().map(|canary| canary.target);
        let targets = CanaryTarget::ALL.into_iter().chain(further);
        let views = targets.map(|canary| {
            let untried = || ("untried", "not written yet".to_owned());
            let memory = self.get(canary);
            let (state, detail) = memory.map_or_else(untried, |memory| memory.describe(now));
            CanaryView {
                canary,
                state,
                detail,
            }
        });
        views.collect()
    }
}

fn is_written(report: &CanaryReport) -> bool {
    report.outcome == CanaryOutcome::Written
}

/// The failed call that the API server named when it refused this canary.
fn named_by(report: &CanaryReport) -> Option<&CallFailure> {
    match &report.outcome {
        CanaryOutcome::CallFailed(failure) => Some(failure),
        _ => None,
    }
}

impl CanaryMemory {
    /// The canaries that ended from `from` to `to`, in the order in which they ended.
    fn ended_within(&self, from: Time, to: Time) -> vec_deque::Iter<'_, EndedCanary> {
        let first = self.ended.partition_point(|canary| canary.at < from);
        let after = self.ended.partition_point(|canary| canary.at <= to);
        self.ended.range(first..after.max(first))
    }

    fn remember_end(&mut self, report: &CanaryReport) {
        let ended = EndedCanary {
            at: report.started + report.took,
            took: report.took,
            named: named_by(report).map(|failure| failure.webhook.as_str().into()),
        };
        row::insert(&mut self.ended, ENDED_KEPT, ended, |canary| canary.at);
        let newest = self.ended.back().map(|newest| newest.at);
        self.ended
            .retain(|canary| newest.is_none_or(|newest| newest.since(canary.at) < ENDED_FOR));
    }

    fn recent(&self, now: Time) -> impl DoubleEndedIterator<Item = &CanaryReport> {
        self.within(now, t::canary_stale())
    }

    fn within(&self, now: Time, span: Duration) -> impl DoubleEndedIterator<Item = &CanaryReport> {
        let finished = self.finished.iter();
        finished.filter(move |report| now.since(report.started + report.took) < span)
    }

    /// The newest finished canary that is not stale.
    pub fn latest(&self, now: Time) -> Option<&CanaryReport> {
        self.recent(now).next_back()
    }

    /// The newest canary, if the last two were denied or refused with a 4xx (other than 429, which is flow control's) and
    /// earlier ones of this target were written: what refuses them also refuses the writes that they represent.
    pub fn turned_away(&self, now: Time) -> Option<&CanaryReport> {
        use CanaryOutcome::{Denied, Refused};
        let is_refused = |report: &&CanaryReport| match report.outcome {
            Denied { .. } => true,
            Refused { status, .. } => (400..500).contains(&status) && status != 429,
            _ => false,
        };
        let mut latest = self.recent(now).rev();
        let (last, before) = (latest.next()?, latest.next()?);
        let was_written = !self.written.is_empty();
        (was_written && is_refused(&last) && is_refused(&before)).then_some(last)
    }

    /// Whether a canary that ended within this span had such an outcome.
    pub fn any_within(&self, now: Time, span: Duration, is: impl Fn(&CanaryOutcome) -> bool) -> bool {
        self.within(now, span).any(|report| is(&report.outcome))
    }

    /// When the newest recent canary without an answer from an API server was sent.
    pub fn unheard_at(&self, now: Time) -> Option<Time> {
        let unheard = self.recent(now).filter(|report| !report.outcome.is_heard());
        unheard.map(|report| report.started).max()
    }

    /// Whether an API server has ever answered a canary of this target.
    pub const fn was_heard(&self) -> bool {
        self.heard
    }

    /// When the newest recent canary was sent that was written promptly: no webhook that matches it delayed it.
    pub fn passed_at(&self, now: Time) -> Option<Time> {
        let quick = |report: &&CanaryReport| {
            is_written(report) && report.took < t::passed_at_once() && !self.is_slow(report.took)
        };
        self.recent(now).filter(quick).map(|report| report.started).max()
    }

    /// When the newest canary that was written in less than `limit` ended, however long ago that was.
    pub fn written_within(&self, limit: Duration) -> Option<Time> {
        let in_time = self.written.iter().filter(|(_, took)| *took < limit);
        in_time.map(|(ended, _)| *ended).max()
    }

    /// Whether canaries sent since an instant are written promptly; `None` without evidence.
    pub fn passes_since(&self, since: Time, now: Time) -> Option<bool> {
        if self.late_since(now).is_some() {
            return Some(false);
        }
        let latest = self.latest(now).filter(|report| report.started >= since)?;
        Some(self.passed_at(now) == Some(latest.started))
    }

    /// The canaries that show whether writes take at least `span`: when each was sent, and whether it took that long. One in flight
    /// counts once it has waited that long. One refused sooner does not count; one sent before `since` counts only if it was slow.
    fn taking(&self, span: Duration, since: Option<Time>, now: Time) -> impl Iterator<Item = (Time, bool)> {
        let was_slow = |report: &CanaryReport| report.took.as_secs_f64() >= t::slow_always();
        let tells = move |report: &CanaryReport| {
            since.is_none_or(|since| report.started >= since) || was_slow(report)
        };
        let finished = self
            .recent(now)
            .filter(move |report| tells(report) && (is_written(report) || report.took >= span));
        let finished = finished.map(move |report| (report.started, report.took >= span));
        let under_way = self.overdue.keys().copied();
        let under_way = under_way.filter(move |sent| now.since((*sent).max(self.resumed)) >= span);
        finished.chain(under_way.map(|sent| (sent, true)))
    }

    fn got_through_after(&self, started: Time) -> bool {
        let mut finished = self.finished.iter();
        finished.any(|report| report.started > started && is_written(report))
    }

    /// The oldest overdue canary after which none was written: when it was sent, and how long it has waited.
    pub fn overdue_for(&self, now: Time) -> Option<(Time, Duration)> {
        let mut overdue = self.overdue.iter().map(|(started, waiting)| (*started, *waiting));
        let is_told = |started| now.since(started) < t::canary_stale() && !self.got_through_after(started);
        let (started, waiting) = overdue.find(|(started, _)| is_told(*started))?;
        if started < self.resumed {
            Some((started, now.since(self.resumed)))
        } else {
            Some((started, now.since(started).max(waiting)))
        }
    }

    /// When the oldest overdue canary was sent, if it has been in flight for longer than usual.
    pub fn waiting_since(&self, now: Time) -> Option<Time> {
        let (sent, waiting) = self.overdue_for(now)?;
        self.is_slow(waiting).then_some(sent)
    }

    /// How long a canary may take before it is late. Until one was written, their usual duration here is unknown.
    fn patience(&self, now: Time) -> Duration {
        if self.slowest.is_empty() {
            return t::late_at_most();
        }
        self.slowest.patience(now)
    }

    /// The oldest overdue canary, if it is late: when it was sent, and how long it has waited.
    pub fn late(&self, now: Time) -> Option<(Time, Duration)> {
        self.overdue_for(now)
            .filter(|(_, waiting)| *waiting >= self.patience(now))
    }

    /// When the oldest overdue canary was sent, if it is late.
    pub fn late_since(&self, now: Time) -> Option<Time> {
        self.late(now).map(|(started, _)| started)
    }

    /// How long the late canary has been in flight, if it hangs: `None` while it has not taken twice as long as a slow last one.
    pub fn hung_for(&self, now: Time) -> Option<Duration> {
        let (_, waiting) = self.late(now)?;
        let merely_slow = self
            .slow(now)
            .is_some_and(|took| waiting < took.saturating_mul(2));
        (!merely_slow).then_some(waiting)
    }

    /// When each late canary was sent; empty unless the oldest hangs.
    fn hung_sent(&self, now: Time) -> impl Iterator<Item = Time> {
        let first = self.hung_for(now).and_then(|_| self.late_since(now));
        let late = self
            .overdue
            .keys()
            .filter(move |sent| first.is_some_and(|first| **sent >= first));
        let resumed = self.resumed;
        late.copied()
            .filter(move |sent| now.since((*sent).max(resumed)) >= self.patience(now))
    }

    /// Whether a canary that was sent in this range is late now, even if later ones were written.
    pub fn any_late(&self, sent: impl RangeBounds<Time>, now: Time) -> bool {
        let (resumed, patience) = (self.resumed, self.patience(now));
        let mut sent = self.overdue.range(sent).map(|(sent, _)| *sent);
        sent.any(|sent| now.since(sent.max(resumed)) >= patience)
    }

    /// When the first recent canary was sent that failed without an answer after the time of a late one, or is late now, and
    /// after which none was written. Not before hookwatch last resumed.
    pub fn unanswered_since(&self, now: Time) -> Option<Time> {
        use CanaryOutcome::{CallFailed, TimedOut};
        let unanswered = |report: &&CanaryReport| {
            matches!(report.outcome, CallFailed(_) | TimedOut) && report.took >= self.patience(now)
        };
        let sent = self.recent(now).filter(unanswered).map(|report| report.started);
        let sent = sent.chain(self.late_since(now));
        let uncontradicted = sent.filter(|sent| !self.got_through_after(*sent));
        uncontradicted.map(|sent| sent.max(self.resumed)).min()
    }

    /// Whether a recently written canary took more than half of `span`: the next one may then take all of it.
    /// [`Self::hung_for`] finds a hang sooner; the state of all writes waits for this.
    pub fn may_take(&self, span: Duration, now: Time) -> bool {
        self.recent(now)
            .any(|report| is_written(report) && report.took.saturating_mul(2) > span)
    }

    /// How long the newest canary took, if it was written and slow.
    pub fn slow(&self, now: Time) -> Option<Duration> {
        let latest = self.latest(now).filter(|report| is_written(report))?;
        self.is_slow(latest.took).then_some(latest.took)
    }

    /// Whether to observe more closely. The newest canary failed (not for lack of a permission or object); or it was denied, though
    /// others were written; or it and the one before it took at least twice the usual and 30 ms more.
    pub fn is_odd(&self, now: Time) -> bool {
        use CanaryOutcome::{Denied, Forbidden, Missing, Written};
        let mut latest = self.recent(now).rev();
        let Some(last) = latest.next() else { return false };
        match &last.outcome {
            Written => self.is_slowish(last) && latest.next().is_some_and(|before| self.is_slowish(before)),
            Denied { .. } => self.finished.iter().any(is_written),
            Forbidden { .. } | Missing { .. } => false,
            _ => true,
        }
    }

    fn is_slowish(&self, report: &CanaryReport) -> bool {
        let took = report.took.as_secs_f64();
        let usual = self.usual.median();
        usual.is_some_and(|usual| took >= t::more_than_usual() * usual && took >= usual + t::slowish_by())
    }

    fn is_slow(&self, took: Duration) -> bool {
        let limits = t::slow_at_least()..t::slow_probe_always();
        self.usual.is_slow(took.as_secs_f64(), t::slow_factor(), limits)
    }

    fn describe(&self, now: Time) -> (&'static str, String) {
        if let Some((sent, _)) = self.overdue_for(now) {
            let ago = human(now.since(sent));
            return ("overdue", format!("sent {ago} ago and not back"));
        }
        let Some(report) = self.latest(now) else {
            return ("untried", "not written recently".to_owned());
        };
        let took = human(report.took);
        let detail = match &report.outcome {
            CanaryOutcome::Written => format!("written in {took}"),
            CanaryOutcome::CallFailed(CallFailure { webhook, text, .. }) => {
                format!("refused after {took}: {webhook:?}: {text}")
            }
            CanaryOutcome::Denied { webhook } => format!("denied by {webhook:?}"),
            CanaryOutcome::Forbidden { message } | CanaryOutcome::Missing { message } => message.clone(),
            CanaryOutcome::Refused { status, message } => format!("HTTP {status}: {message}"),
            CanaryOutcome::TimedOut => format!("no answer within {took}"),
            CanaryOutcome::Unreachable { why } => why.clone(),
        };
        (report.outcome.as_str(), detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_unix_millis(1_000_000 + ms)
    }

    fn report(started_ms: u64, took_ms: u64, outcome: CanaryOutcome) -> CanaryReport {
        CanaryReport {
            target: CanaryTarget::KubeSystem,
            started: at(started_ms),
            took: Duration::from_millis(took_ms),
            created: false,
            outcome,
        }
    }

    fn refusal(webhook: &str) -> CanaryOutcome {
        CanaryOutcome::from_status(
            500,
            &format!(
                "Internal error occurred: failed calling webhook \"{webhook}\": failed to call webhook: Post \
                 \"https://a.b.svc:443/?timeout=10s\": context deadline exceeded"
            ),
        )
    }

    #[test]
    fn a_refusal_is_current_until_a_canary_sent_later_gets_through() {
        let mut canaries = Canaries::default();
        canaries.finished(report(0, 10_000, refusal("w")));
        let current = |canaries: &Canaries, now| -> Vec<bool> {
            canaries.naming("w", now).map(|named| named.current).collect()
        };
        assert_eq!(current(&canaries, at(10_000)), [true]);
        canaries.finished(report(12_000, 5, CanaryOutcome::Written));
        assert_eq!(current(&canaries, at(12_005)), [false]);
        assert_eq!(canaries.naming("other", at(12_005)).count(), 0);
    }

    #[test]
    fn what_canaries_take_while_a_webhook_is_bypassed_is_not_what_they_usually_take() {
        let slow_after = |spared| {
            let mut canaries = Canaries::default();
            for n in 0..20 {
                canaries.finished(report(n * 100, 200, CanaryOutcome::Written));
            }
            canaries.spare(spared);
            for n in 20..80 {
                canaries.finished(report(n * 100, 5, CanaryOutcome::Written));
            }
            for n in 80..82 {
                canaries.finished(report(n * 100, 200, CanaryOutcome::Written));
            }
            canaries.several_slow(at(8_500))
        };
        assert!(slow_after(false) && !slow_after(true));
    }

    #[test]
    fn two_canaries_twice_as_slow_as_usual_are_odd_and_so_is_a_denial_out_of_the_blue() {
        let mut canaries = Canaries::default();
        let odd = |canaries: &Canaries| canaries.iter().any(|(_, memory)| memory.is_odd(at(9_000)));
        canaries.finished(report(0, 50, CanaryOutcome::Denied { webhook: "w".into() }));
        assert!(!odd(&canaries), "it was never otherwise");
        for n in 0..5 {
            canaries.finished(report(1_000 + n * 100, 50, CanaryOutcome::Written));
        }
        canaries.finished(report(2_000, 150, CanaryOutcome::Written));
        assert!(!odd(&canaries), "once is nothing");
        canaries.finished(report(3_000, 150, CanaryOutcome::Written));
        assert!(odd(&canaries));
        canaries.finished(report(4_000, 50, CanaryOutcome::Written));
        assert!(!odd(&canaries));
        canaries.finished(report(5_000, 50, CanaryOutcome::Denied { webhook: "w".into() }));
        assert!(odd(&canaries));
    }

    #[test]
    fn what_was_sent_before_hookwatch_itself_was_late_is_told_by_when_it_was_sent() {
        let mut canaries = Canaries::default();
        canaries.overdue(&CanaryOverdue {
            target: CanaryTarget::KubeSystem,
            started: at(1_000),
            waiting: Duration::from_millis(500),
        });
        canaries.resumed(at(6_000));
        let said = canaries.iter().map(|(_, memory)| memory.describe(at(6_000)));
        assert_eq!(
            said.collect::<Vec<_>>(),
            [("overdue", "sent 5.0 s ago and not back".to_owned())]
        );
    }

    #[test]
    fn a_canary_is_waited_for_the_longest_until_one_was_written() {
        let late_after = |written: bool| {
            let mut canaries = Canaries::default();
            if written {
                canaries.finished(report(0, 10, CanaryOutcome::Written));
            }
            canaries.overdue(&CanaryOverdue {
                target: CanaryTarget::KubeSystem,
                started: at(1_000),
                waiting: Duration::from_millis(500),
            });
            let memory = canaries.get(CanaryTarget::KubeSystem).unwrap().clone();
            (500..5_000).find(|ms| memory.late(at(1_000 + ms)).is_some())
        };
        assert_eq!(late_after(true), Some(1_500));
        assert_eq!(late_after(false), Some(3_000));
    }

    #[test]
    fn writes_take_as_long_as_the_quicker_of_the_two_newest_canaries_that_tell() {
        let span = Duration::from_secs(5);
        let both = [CanaryTarget::KubeSystem, CanaryTarget::NodeLease];
        let told = |canaries: &Canaries, now| canaries.take_as_long_as(both.into_iter(), span, None, at(now));
        let overdue = |started_ms| CanaryOverdue {
            target: both[started_ms as usize / 1_000 % 2],
            started: at(started_ms),
            waiting: Duration::from_secs(1),
        };
        let mut canaries = Canaries::default();
        assert_eq!(told(&canaries, 0), None, "none was written");
        canaries.finished(report(0, 10, CanaryOutcome::Written));
        assert_eq!(told(&canaries, 10), Some(false));
        canaries.overdue(&overdue(1_000));
        canaries.overdue(&overdue(2_000));
        assert_eq!(told(&canaries, 6_500), Some(false), "one is no more than one");
        assert_eq!(told(&canaries, 7_000), Some(true));
        canaries.finished(report(1_000, 6_100, CanaryOutcome::Written));
        assert_eq!(told(&canaries, 7_100), Some(true), "back, and as late");
        canaries.finished(report(3_000, 4_500, refusal("w")));
        assert_eq!(
            told(&canaries, 7_500),
            Some(true),
            "a refusal in time tells nothing"
        );
        canaries.finished(report(4_000, 4_500, CanaryOutcome::Written));
        assert_eq!(told(&canaries, 8_500), Some(false));
        canaries.resumed(at(9_000));
        canaries.overdue(&overdue(5_000));
        assert_eq!(
            told(&canaries, 13_000),
            Some(false),
            "hookwatch stood still meanwhile"
        );
    }

    #[test]
    fn a_canary_that_was_quick_before_writes_were_slow_tells_nothing_of_them() {
        let span = Duration::from_secs(5);
        let target = [CanaryTarget::KubeSystem];
        let told = |took, since| {
            let mut canaries = Canaries::default();
            canaries.finished(report(1_000, took, CanaryOutcome::Written));
            canaries.take_as_long_as(target.into_iter(), span, Some(at(since)), at(9_000))
        };
        assert_eq!(told(10, 2_000), None);
        assert_eq!(told(10, 1_000), Some(false));
        assert_eq!(told(2_600, 2_000), Some(false), "slow already, and in time");
    }

    #[test]
    fn a_success_that_was_sent_earlier_contradicts_nothing() {
        let mut canaries = Canaries::default();
        canaries.finished(report(5_000, 1, refusal("w")));
        canaries.finished(report(4_000, 1_500, CanaryOutcome::Written));
        let current: Vec<bool> = canaries
            .naming("w", at(6_000))
            .map(|named| named.current)
            .collect();
        assert_eq!(current, [true]);
    }

    #[test]
    fn the_last_success_is_remembered_however_many_failed_since() {
        let mut canaries = Canaries::default();
        canaries.finished(report(0, 3_000, CanaryOutcome::Written));
        canaries.finished(report(2_000, 5_000, CanaryOutcome::Written));
        for failed in 0..2 * KEPT as u64 {
            let unreachable = CanaryOutcome::Unreachable { why: String::new() };
            canaries.finished(report(10_000 + 2_000 * failed, 5, unreachable));
        }
        let (_, memory) = canaries.iter().next().unwrap();
        let within = |limit| memory.written_within(Duration::from_secs(limit));
        assert_eq!(
            (within(3), within(4), within(10)),
            (None, Some(at(3_000)), Some(at(7_000)))
        );
        assert!(memory.was_heard());
    }

    #[test]
    fn a_late_canary_stops_being_late_when_it_is_back_or_a_later_one_got_through() {
        let mut canaries = Canaries::default();
        let late = |started_ms| CanaryOverdue {
            target: CanaryTarget::KubeSystem,
            started: at(started_ms),
            waiting: Duration::from_secs(2),
        };
        canaries.overdue(&late(0));
        let overdue =
            |canaries: &Canaries, now| canaries.iter().find_map(|(_, memory)| memory.overdue_for(now));
        assert_eq!(
            overdue(&canaries, at(4_000)).map(|(_, waiting)| waiting),
            Some(Duration::from_secs(4))
        );
        canaries.finished(report(3_000, 5, CanaryOutcome::Written));
        assert_eq!(overdue(&canaries, at(4_000)), None);
        canaries.finished(report(0, 10_000, refusal("w")));
        canaries.overdue(&late(0));
        assert_eq!(overdue(&canaries, at(11_000)), None);
    }
}
