//! What the two quantitative witnesses add up to: the probes of all backends, and the API server's counters.

use std::time::Duration;

use super::Case;
use crate::domain::history::Window;
use crate::domain::hook::BackendPath::ClusterIp;
use crate::domain::hook::{Backend, FailurePolicy, HookKind};
use crate::domain::probing::{BackendState, Dead};
use crate::domain::snapshot::{Cumulative, HookSeries};
use crate::domain::time::Time;
use crate::domain::verdict::Cause;

/// Fewer failed calls than this may be a rollout's burst.
const FEW: f64 = 3.0;
/// With fewer calls in the newest interval a longer span is looked at.
pub(super) const ENOUGH_CALLS: f64 = 5.0;
/// A smaller part of failed calls is no outage.
const NOTABLE_PART: f64 = 0.05;
/// A call faster than this is never slow.
pub(super) const SLOW_AT_LEAST: f64 = 0.1;
/// And between the two it is slow when it takes this many times the usual.
const SLOW_FACTOR: f64 = 5.0;
/// A failed call at least this long was ended by a timeout: `timeoutSeconds` is at least 1.
const TIMEOUT_LIKE: f64 = 0.9;
/// And one that took this long was, whatever the hook's own timeout.
const IMPATIENT: f64 = 4.0;
/// A mean time of failed calls beyond this many timeouts is not theirs alone: others were slow too.
const TIMED_OUT_AT_MOST: f64 = 1.2;
/// Calls that take this part of their timeout on average were ended by it.
const MUTE_TIMEOUT: f64 = 0.9;
/// The largest `timeoutSeconds`.
const LONGEST_TIMEOUT: f64 = 30.0;
/// A call slower than this is slow whatever is usual.
pub(super) const SLOW_ALWAYS: f64 = 0.5;

/// The API server's counters of one webhook name over a span of time.
#[derive(Debug, Clone, Copy)]
pub struct Counted<'a> {
    /// The gains.
    pub series: &'a HookSeries,
    /// The beginning of the span.
    pub from: Time,
    /// Its end.
    pub to: Time,
}

impl<'a> Counted<'a> {
    /// What a window says of one webhook name, if anything.
    pub fn of(key: &(HookKind, String), window: &'a Window) -> Option<Self> {
        let series = window.gained.hooks.get(key)?;
        Some(Self {
            series,
            from: window.from,
            to: window.to,
        })
    }
}

/// What the probes of all backends add up to.
#[derive(Debug)]
pub(super) enum Probes<'a> {
    Silent,
    Good {
        answered: usize,
        of: usize,
    },
    Slow {
        took: Duration,
        since: Time,
    },
    Some {
        dead: Vec<(&'a Backend, &'a Dead)>,
        of: usize,
    },
    All {
        worst: &'a Dead,
        dead: Vec<(&'a Backend, &'a Dead)>,
    },
}

/// Denials are worth a word when there are this many of them.
const MANY_DENIALS: f64 = 5.0;
/// Where little is written: most calls of a minute have to fail.
const MOST: f64 = 0.5;

/// What the counters say over one span of time.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) calls: f64,
    pub(super) failed: f64,
    pub(super) failed_mean: Option<f64>,
    /// Failed calls to which the hook gave an HTTP error of its own.
    pub(super) own_errors: f64,
    pub(super) denied: f64,
    pub(super) mean: Option<f64>,
    pub(super) fail_open: f64,
    /// What fails is let pass, and this release of the API server counts neither that nor outcomes.
    mute: bool,
    pub(super) span: Option<(Time, Time)>,
}

impl Counters {
    /// The newest interval tells best how things are now, if enough was called in it; a burst of failures that
    /// comes back with every timeout shows only over a longer span.
    ///
    /// When calls succeed again and every backend answers, the failures of a moment ago are over.
    ///
    /// Where there were next to no calls of late, a minute in which most of them failed counts, from a failed call
    /// on until one succeeds.
    pub(super) fn of(case: &Case<'_>, probes: &Probes<'_>, was_failing: bool) -> Self {
        let newest = Self::over(case, case.newest);
        let recent = Self::over(case, case.recent);
        let healed = newest.failed < 1.0 && matches!(probes, Probes::Good { .. });
        let speaks = newest.calls >= ENOUGH_CALLS && (newest.failing() || !recent.failing() || healed);
        if speaks {
            return newest;
        }
        let little = recent.calls < FEW && recent.calls - recent.failed < 1.0;
        if little && (recent.failed >= 1.0 || was_failing) {
            let minute = Self::over(case, case.minute);
            // No call is no news: what failed last is not well for not being called.
            let no_news = was_failing && recent.calls < 1.0;
            if minute.failing() && (no_news || minute.failed >= MOST * minute.calls) {
                return minute;
            }
        }
        recent
    }

    pub(super) fn over(case: &Case<'_>, counted: Option<Counted<'_>>) -> Self {
        let Some(Counted { series, from, to }) = counted else {
            return Self::default();
        };
        let timeout = case
            .hook
            .map_or(LONGEST_TIMEOUT, |hook| hook.timeout.as_secs_f64());
        let tells = series.codes.values().any(|count| *count >= 1.0);
        let mute = !tells
            && case
                .hook
                .is_some_and(|hook| hook.failure_policy == FailurePolicy::Ignore);
        let failed = match series.calls.mean() {
            // Nothing but the time tells then; whoever takes all of it has not answered.
            Some(mean) if mute && mean >= MUTE_TIMEOUT * timeout => series.calls.count,
            _ => series.failed(),
        };
        let denied = series.rejections.denied;
        // Under Fail the refused calls have their own series; under Ignore what failed hides among the rest
        // and shows by what it adds to them.
        let refused = series.rejections.calling + series.rejections.internal;
        let failed_mean = if failed < 1.0 {
            None
        } else if refused >= 1.0 {
            // A denial is an answer like any other.
            Some(((series.rejected.sum - denied * case.usual.unwrap_or(0.0)) / refused).max(0.0))
        } else {
            let others = (series.calls.count - failed).max(0.0);
            Some(((series.calls.sum - others * case.usual.unwrap_or(0.0)) / failed).max(0.0))
        };
        let limit = TIMED_OUT_AT_MOST * timeout;
        let timed_out = failed_mean.is_some_and(|mean| (TIMEOUT_LIKE..=limit).contains(&mean));
        // A call that timed out is no slow answer.
        let mean = if failed >= 1.0 && series.rejections.calling >= 1.0 {
            let answered = Cumulative {
                sum: series.calls.sum - series.rejected.sum,
                count: series.calls.count - series.rejected.count,
            };
            answered.mean()
        } else if timed_out {
            None
        } else {
            series.calls.mean()
        };
        let own_errors = series
            .codes
            .iter()
            .filter(|(code, _)| (400..=600).contains(*code) && **code != 503);
        // A denial has a code of that kind as well.
        let own_errors = own_errors.map(|(_, count)| count).sum::<f64>() - denied;
        Self {
            mute,
            calls: series.calls.count,
            failed,
            failed_mean,
            own_errors: own_errors.max(0.0),
            denied,
            mean,
            fail_open: series.fail_open,
            span: Some((from, to)),
        }
    }

    /// It denies most of what it is shown; where little is shown to it, the minute tells.
    pub(super) fn denies_much(&self, case: &Case<'_>) -> bool {
        let much =
            |counters: &Self| counters.denied >= MANY_DENIALS && counters.denied >= 0.5 * counters.calls;
        much(self) || self.calls < 2.0 * MANY_DENIALS && much(&Self::over(case, case.minute))
    }

    /// Calls were answered, and none failed, in a span that began after `since`.
    pub(super) fn answered_since(&self, since: Time) -> bool {
        self.from().is_some_and(|from| from >= since) && self.calls >= 1.0 && self.failed < 1.0 && !self.mute
    }

    /// Calls fail, and not at once.
    pub(super) fn timed_out(&self) -> bool {
        self.failed >= 1.0 && !self.failed_at_once()
    }

    /// Calls fail sooner than any timeout is over.
    pub(super) fn failed_at_once(&self) -> bool {
        self.failed_mean.is_some_and(|mean| mean < TIMEOUT_LIKE)
    }

    /// Calls fail, more than a rollout's burst.
    pub(super) fn failing(&self) -> bool {
        self.failed >= FEW && self.failed >= NOTABLE_PART * self.calls
    }

    pub(super) fn slow(&self, usual: Option<f64>) -> Option<f64> {
        self.mean.filter(|_| self.calls >= 2.0 && self.is_slow(usual))
    }

    pub(super) fn is_slow(&self, usual: Option<f64>) -> bool {
        self.mean.is_some_and(|mean| {
            mean >= SLOW_ALWAYS
                || mean >= SLOW_AT_LEAST && usual.is_some_and(|usual| mean >= SLOW_FACTOR * usual)
        })
    }

    pub(super) fn from(&self) -> Option<Time> {
        self.span.map(|(from, _)| from)
    }

    /// What the counters alone let guess.
    pub(super) fn cause(&self, timeout: Option<Duration>, usual: Option<f64>, fails_open: bool) -> Cause {
        // Whoever asks with a timeout of his own may have less than the hook's: leaders give up after 5 s.
        let timeout_like = timeout.map_or(TIMEOUT_LIKE, |timeout| {
            (0.8 * timeout.as_secs_f64()).clamp(TIMEOUT_LIKE, IMPATIENT)
        });
        if self.own_errors >= 0.5 * self.failed {
            Cause::Erroring
        } else if self.failed_mean.is_some_and(|mean| mean >= timeout_like) {
            Cause::Hanging
        } else if fails_open {
            Cause::FailingOpen
        } else if self
            .failed_mean
            .zip(usual)
            .is_some_and(|(mean, usual)| mean >= 0.5 * usual)
        {
            // A refusal comes back much faster than an answer; this took as long as an answer does.
            Cause::Erroring
        } else {
            Cause::Refused
        }
    }
}
impl<'a> Probes<'a> {
    /// Adds the backends up. The ClusterIP counts only when it has ever answered or nothing else is there:
    /// where hookwatch runs there may be no way to it at all.
    pub(super) fn of(backends: &'a [(Backend, BackendState)]) -> Self {
        let direct = backends.iter().any(|(backend, _)| backend.path != ClusterIp);
        let counted: Vec<&(Backend, BackendState)> = backends
            .iter()
            .filter(|(backend, state)| match state {
                BackendState::Untried { .. } => false,
                BackendState::Dead(dead) => backend.path != ClusterIp || !direct && dead.was_alive,
                _ => backend.path != ClusterIp || !direct,
            })
            .collect();
        let dead: Vec<(&Backend, &Dead)> = counted
            .iter()
            .filter_map(|(backend, state)| match state {
                BackendState::Dead(dead) => Some((backend, dead)),
                _ => None,
            })
            .collect();
        let first_dead = dead.iter().map(|(_, dead)| dead.since).min();
        // An answer from before the first backend died says nothing about now.
        let good_since = counted
            .iter()
            .filter(|(_, state)| match state {
                BackendState::Alive { at, .. } => first_dead.is_none_or(|since| *at >= since),
                BackendState::Slow { .. } => true,
                _ => false,
            })
            .count();
        let worst = dead.iter().max_by_key(|(_, candidate)| {
            let alike = dead
                .iter()
                .filter(|(_, other)| other.cause == candidate.cause)
                .count();
            (alike, candidate.attempts)
        });
        match worst {
            Some((_, worst)) if dead.len() == counted.len() => return Self::All { worst, dead },
            Some(_) if good_since > 0 => {
                return Self::Some {
                    of: counted.len(),
                    dead,
                };
            }
            Some(_) => return Self::Silent,
            None => {}
        }
        let slow: Vec<(Duration, Time)> = counted
            .iter()
            .filter_map(|(_, state)| match state {
                BackendState::Slow { took, since, .. } => Some((*took, *since)),
                _ => None,
            })
            .collect();
        let alive = counted
            .iter()
            .filter(|(_, state)| matches!(state, BackendState::Alive { .. }))
            .count();
        match slow.iter().max() {
            Some((took, since)) => Self::Slow {
                took: *took,
                since: *since,
            },
            None if alive > 0 => Self::Good {
                answered: alive,
                of: match direct {
                    true => backends
                        .iter()
                        .filter(|(backend, _)| backend.path != ClusterIp)
                        .count(),
                    false => counted.len(),
                },
            },
            None => Self::Silent,
        }
    }
}
