//! What the API server counted of one hook over a span of time.

use crate::cluster::hook::{FailurePolicy, Hook, HookKind};
use crate::observe::history::{Window, Windows, is_slow};
use crate::observe::snapshot::{ConversionSeries, Cumulative};
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::Cause;

use super::probes::ProbeEvidence;

/// What the counters say over one span of time.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Calls that ended.
    pub calls: f64,
    /// The calls that the hook answered: those that neither failed nor were given up by their client.
    answered: f64,
    /// The calls that failed, under either failurePolicy.
    pub failed: f64,
    /// Seconds per failed call.
    pub failed_mean: Option<f64>,
    /// Failed calls to which the hook gave an HTTP error of its own, or a patch that cannot be applied.
    pub own_errors: f64,
    /// Failed calls whose patch the API server could not apply: it refuses such a write under either failurePolicy.
    bad_patches: f64,
    /// Calls that the hook denied.
    pub denied: f64,
    /// Seconds per answered call; without the denied ones where calls failed under `Fail`.
    pub mean: Option<f64>,
    /// Failed calls that the policy let pass.
    pub fail_open: f64,
    /// Match conditions that could not be evaluated; zero under `Ignore`, where no request is refused for that.
    pub condition_errors: f64,
    /// The least number of requests that can have been refused for such an error, without a call.
    pub unasked: f64,
    /// The policy is `Ignore`, and no response code was counted: there was no call, or the API server's release counts neither
    /// codes nor ignored failures.
    mute: bool,
    /// Beginning and end of the span.
    pub span: Option<(Time, Time)>,
}

impl Counters {
    /// The span that is the best evidence of the present.
    ///
    /// 1. The newest interval, if it has enough calls and one of these holds: its calls fail; those of the last ten seconds do not;
    ///    none of its calls failed and every backend answers. If only the ten seconds show failures, the newest interval may lie
    ///    between two bursts, as calls that time out end together.
    /// 2. The last minute, if its calls fail, hardly any ended in the ten seconds, and none of those was answered; and the hook was
    ///    named a moment ago, or a call failed in the ten seconds and most of the minute's did.
    /// 3. The last ten seconds.
    pub fn choose(
        [newest, recent, minute]: &[Self; 3],
        probes: &ProbeEvidence<'_>,
        was_failing: bool,
    ) -> Self {
        let healed = newest.failed < 1.0 && matches!(probes, ProbeEvidence::Good { .. });
        if newest.calls >= t::enough_calls() && (newest.failing() || !recent.failing() || healed) {
            return newest.clone();
        }
        let little = recent.calls < t::few_calls() && recent.calls - recent.failed < 1.0;
        let mostly = recent.failed >= 1.0 && minute.failed >= t::most_calls() * minute.calls;
        // A hook whose last calls failed is not healthy again because it is called less.
        if little && minute.failing() && (was_failing || mostly) {
            return minute.clone();
        }
        recent.clone()
    }

    /// The counts of one webhook name in a window. `usual`: what a call usually takes, in seconds.
    pub fn over(
        window: Option<&Window>,
        key: &(HookKind, String),
        hook: Option<&Hook>,
        usual: Option<f64>,
    ) -> Self {
        let Some((window, series)) = window.and_then(|it| Some((it, it.gained.hooks.get(key)?))) else {
            return Self::default();
        };
        let usual = usual.unwrap_or(0.0);
        let timeout = hook.map_or(t::longest_timeout(), |hook| hook.timeout.as_secs_f64());
        let mute = !series.codes.values().any(|count| *count >= 1.0)
            && hook.is_some_and(|hook| hook.failure_policy == FailurePolicy::Ignore);
        // If `mute`, only durations are evidence: calls that take the whole timeout were not answered.
        let all_timed_out = series.calls.mean() >= Some(t::timed_out_part() * timeout);
        // The API server refuses dry runs, such as our canaries, for a hook that takes none, and calls that its own error. A bad
        // patch of such a hook looks the same and is not counted either.
        let internal = if hook.is_some_and(|hook| !hook.dry_run_safe) {
            0.0
        } else {
            series.rejections.internal
        };
        let failed = if mute && all_timed_out {
            series.calls.count
        } else {
            series.rejections.calling + internal + series.fail_open
        };
        let denied = series.rejections.denied;
        // Failed calls that led to a refusal have a series of their own, and only they count for the mean. Where all failed open,
        // they are in the same series as the others: what it has beyond the others' usual time is theirs.
        let refused = series.rejections.calling + internal;
        let (sum, others, count) = if refused >= 1.0 {
            // A denial is an answer like any other.
            (series.rejected.sum, denied, refused)
        } else {
            (series.calls.sum, (series.calls.count - failed).max(0.0), failed)
        };
        // No call takes longer than its timeout. If the mean does, the time includes that of calls whose clients gave up, so
        // count those too; if that is not enough, answered calls took longer than usual, and the mean is not known.
        let took = (sum - others * usual).max(0.0);
        let mut means = [count, count + series.given_up()]
            .map(|count| took / count)
            .into_iter();
        let longest = t::timeout_and_others() * timeout;
        let failed_mean = means.find(|mean| *mean <= longest).filter(|_| failed >= 1.0);
        let limit = t::timeout_alone() * timeout;
        let timed_out = failed_mean.is_some_and(|mean| (t::timeout_like()..=limit).contains(&mean));
        // Every condition may err on the same request, and if another one is false the request passes and is an exclusion.
        let refuses = hook.filter(|hook| hook.failure_policy == FailurePolicy::Fail);
        let (condition_errors, unasked) = refuses.map_or((0.0, 0.0), |hook| {
            let (errors, conditions) = (series.condition_errors, hook.match_conditions.len().max(1) as f64);
            (errors, (errors / conditions - series.exclusions).max(0.0))
        });
        // A call that timed out is no slow answer.
        let mean = if series.rejections.calling >= 1.0 {
            let (calls, rejected) = (series.calls, series.rejected);
            let (sum, count) = (calls.sum - rejected.sum, calls.count - rejected.count);
            Cumulative { sum, count }.mean()
        } else {
            series.calls.mean().filter(|_| !timed_out)
        };
        Self {
            mute,
            calls: series.calls.count,
            answered: series.answered(),
            failed,
            failed_mean,
            own_errors: series.own_errors() + internal,
            bad_patches: internal,
            denied,
            mean,
            fail_open: series.fail_open,
            condition_errors,
            unasked,
            span: Some((window.from, window.to)),
        }
    }

    /// The same without the calls that failed; what answered ones took and the errors of conditions stay.
    pub fn without_failures(&self) -> Self {
        Self {
            calls: (self.calls - self.failed).max(0.0),
            failed: 0.0,
            failed_mean: None,
            own_errors: 0.0,
            bad_patches: 0.0,
            fail_open: 0.0,
            ..self.clone()
        }
    }

    /// The conversions of a CustomResourceDefinition in the shortest window that has any, of a minute at most: the API server
    /// itself repeats a failed one only every half minute.
    pub fn of_conversions(crd: &str, windows: &Windows) -> Self {
        let counted = windows
            .spans()
            .find_map(|window| Some((window.gained.others.conversions.get(crd)?, window)));
        let Some((ConversionSeries { succeeded, failed }, window)) = counted else {
            return Self::default();
        };
        Self {
            calls: succeeded.count + failed.count,
            answered: succeeded.count,
            failed: failed.count,
            failed_mean: failed.mean(),
            mean: succeeded.mean(),
            span: Some((window.from, window.to)),
            ..Self::default()
        }
    }

    /// It denies most of its calls; with few calls, over a minute.
    pub fn denies_much(&self, minute: &Self) -> bool {
        let much = |counters: &Self| {
            counters.denied >= t::enough_calls() && counters.denied >= t::most_calls() * counters.calls
        };
        much(self) || self.calls < 2.0 * t::enough_calls() && much(minute)
    }

    /// Calls were answered, and none failed, in a span that began after `since`.
    pub fn answered_since(&self, since: Time) -> bool {
        self.from().is_some_and(|from| from >= since)
            && self.answered >= 1.0
            && self.failed < 1.0
            && !self.mute
    }

    /// No call failed, and no client gave up before its call was answered.
    pub fn all_answered(&self) -> bool {
        self.failed < 1.0 && self.answered >= self.calls
    }

    /// On average, failed calls take less than the shortest timeout that a webhook can have.
    pub fn failed_at_once(&self) -> bool {
        self.failed_mean.is_some_and(|mean| mean < t::timeout_like())
    }

    /// Most failed calls were answered with a patch that cannot be applied.
    pub fn patches_badly(&self) -> bool {
        self.bad_patches >= 1.0 && self.bad_patches >= t::most_calls() * self.failed
    }

    /// Most failed calls were answered, by an HTTP error of the hook's own or a patch that cannot be applied.
    pub fn mostly_own_errors(&self) -> bool {
        self.own_errors >= 1.0 && self.own_errors >= t::most_calls() * self.failed
    }

    /// Calls fail, more than a rollout's burst.
    pub fn failing(&self) -> bool {
        self.failed >= t::few_calls() && self.failed >= t::notable_part() * self.calls
    }

    fn is_slow(&self, usual: Option<f64>) -> bool {
        let limits = t::slow_at_least()..t::slow_always();
        self.mean
            .is_some_and(|mean| is_slow(mean, usual, t::slow_factor(), limits))
    }

    /// When the span began.
    pub fn from(&self) -> Option<Time> {
        self.span.map(|(from, _)| from)
    }

    /// The most likely cause of the failed calls, from the counters alone. `timeout` and `usual` are in seconds.
    pub fn cause(&self, timeout: Option<f64>, usual: Option<f64>, fails_open: bool) -> Cause {
        // A client's own timeout may be shorter than the hook's: leaders give up after 5 s.
        let timeout_like = timeout.map_or(t::timeout_like(), |timeout| {
            (t::ended_by_timeout() * timeout).clamp(t::timeout_like(), t::impatient())
        });
        let answer_like = |(mean, usual)| mean >= t::answer_like() * usual;
        if self.mostly_own_errors() {
            Cause::Erroring
        } else if self.failed_mean.is_some_and(|mean| mean >= timeout_like) {
            Cause::Hanging
        } else if fails_open {
            Cause::FailingOpen
        } else if self.failed_mean.zip(usual).is_some_and(answer_like) {
            // A refusal comes back much faster than an answer; this took as long as an answer does.
            Cause::Erroring
        } else {
            Cause::Refused
        }
    }
}

/// Slow calls, as the API server counted them.
#[derive(Debug)]
pub struct Slowness {
    /// Seconds per call over a span with enough calls.
    pub mean: f64,
    /// Seconds per call over the last ten seconds; `None` unless the hook was judged slow before they began.
    pub steady: Option<f64>,
    /// When the span of `mean` began.
    pub from: Time,
    /// No call was answered in the last ten seconds.
    pub is_old: bool,
    /// The newest calls are not slow any more.
    pub is_over: bool,
    /// Calls of a span that began after the hook was first judged slow are slow too, by more than a single late call
    /// explains.
    pub goes_on: bool,
}

impl Slowness {
    /// The shortest span with enough calls counts; with few calls, the minute.
    ///
    /// A mean does not show how many calls were slow: if one of two waited for a lost packet, both seem slow. So a hook is
    /// named only when calls that began after it was first suspected, `since`, are slow too.
    pub fn of(spans: &[Counters; 3], usual: Option<f64>, since: Option<Time>) -> Option<Self> {
        let [newest, recent, minute] = spans;
        let enough = spans.iter().find(|counters| counters.calls >= t::enough_calls());
        let judged = enough.unwrap_or(minute);
        let latest = [newest, recent]
            .into_iter()
            .find(|counters| counters.mean.is_some());
        let slow_since = |counters: &Counters, since: Time| {
            let extra = counters.mean.unwrap_or(0.0) - usual.unwrap_or(0.0).min(t::slow_at_least());
            counters.from() >= Some(since)
                && counters.is_slow(usual)
                && extra * counters.calls >= t::one_late_call()
        };
        let judged_before = since.is_some_and(|since| recent.from() >= Some(since));
        Some(Self {
            steady: recent.mean.filter(|_| judged_before),
            mean: judged
                .mean
                .filter(|_| judged.calls >= 2.0 && judged.is_slow(usual))?,
            from: judged.from()?,
            is_old: latest.is_none(),
            is_over: latest.is_some_and(|latest| !latest.is_slow(usual)),
            goes_on: since.is_some_and(|since| spans.iter().any(|span| slow_since(span, since))),
        })
    }
}
