//! Whether a hook answers late, and whether it is to be named for it.

use super::witnesses::{Counters, ENOUGH_CALLS, Probes, SLOW_ALWAYS, SLOW_AT_LEAST};
use super::{Before, Case, Finding};
use crate::domain::time::Time;
use crate::domain::verdict::{Cause, Health};

/// A slow hook is a culprit when this part of the extra time per write is its own.
const CULPRIT_SHARE: f64 = 0.25;
/// Or when this part of the extra time of the writes that meet it is.
const CULPRIT_CALL_SHARE: f64 = 0.5;
/// Seconds that a single call may be late by, for a lost packet or a pause to collect garbage.
const ONE_LATE_CALL: f64 = 1.2;

/// Calls are slow by the API server's account.
#[derive(Debug)]
pub(super) struct Slowness {
    /// Seconds per call over a span with enough calls.
    pub(super) mean: f64,
    /// When that span began.
    pub(super) from: Time,
    /// From the shortest span to the longest.
    spans: [Counters; 3],
    usual: Option<f64>,
}

impl Slowness {
    /// The shortest span with enough calls in it tells; where little is called, the minute.
    ///
    /// A mean says nothing of how many calls were slow: of two calls one that waited for a lost packet makes both
    /// slow. So who is to be named for it has to be slow over again ([`Self::goes_on_since`]).
    pub(super) fn of(case: &Case<'_>) -> Option<Self> {
        let spans = [case.newest, case.recent, case.minute].map(|counted| Counters::over(case, counted));
        let enough = spans.iter().find(|counters| counters.calls >= ENOUGH_CALLS);
        let told = enough.unwrap_or(&spans[2]);
        Some(Self {
            mean: told.slow(case.usual)?,
            from: told.from()?,
            usual: case.usual,
            spans,
        })
    }

    /// Calls of a span that began after `since` are slow as well, by more than one of them can make up.
    pub(super) fn goes_on_since(&self, since: Time) -> bool {
        self.spans.iter().any(|counters| {
            let extra = counters.mean.unwrap_or(0.0) - self.usual.unwrap_or(0.0).min(SLOW_AT_LEAST);
            counters.from().is_some_and(|from| from >= since)
                && counters.is_slow(self.usual)
                && extra * counters.calls >= ONE_LATE_CALL
        })
    }

    /// Not even the last ten seconds hold an answer.
    pub(super) fn is_stale(&self) -> bool {
        self.latest().is_none()
    }

    /// The newest calls are not slow any more.
    pub(super) fn is_over(&self) -> bool {
        self.latest().is_some_and(|latest| !latest.is_slow(self.usual))
    }

    fn latest(&self) -> Option<&Counters> {
        self.spans[..2].iter().find(|counters| counters.mean.is_some())
    }
}

/// The finding that it is slow, if it is; `None` lets the other witnesses speak.
pub(super) fn slow(
    case: &Case<'_>,
    counters: &Counters,
    probes: &Probes<'_>,
    previous: Option<Before>,
) -> Option<Finding> {
    let by_counters = Slowness::of(case);
    let by_probes = match probes {
        Probes::Slow { since, took } => Some((*since, *took)),
        _ => None,
    };
    let slow_before = previous.filter(|previous| previous.cause == Some(Cause::Slow));
    let goes_on = |slowness: &Slowness| match slow_before {
        Some(before) if before.health == Health::Failing => !slowness.is_over(),
        Some(before) => before.since.is_some_and(|since| slowness.goes_on_since(since)),
        None => false,
    };
    // Over all writes a hook that sees few of them hides; over its own calls it cannot.
    let is_the_excess = case.excess_share.is_some_and(|share| share >= CULPRIT_SHARE)
        || case.call_share.is_some_and(|share| share >= CULPRIT_CALL_SHARE);
    match (by_counters, by_probes) {
        (Some(_), Some((since, _))) if is_the_excess || case.canary_slow.is_some() => {
            Some(Finding::new(Health::Failing, Cause::Slow, 0.95).since(Some(since)))
        }
        (Some(slowness), None) if is_the_excess && !case.ambiguous && goes_on(&slowness) => {
            let confidence = if slowness.mean >= SLOW_ALWAYS { 0.85 } else { 0.75 };
            Some(Finding::new(Health::Failing, Cause::Slow, confidence).since(Some(slowness.from)))
        }
        // What was slow a while ago may be dead by now.
        (Some(slowness), None) if slowness.is_stale() && matches!(probes, Probes::All { .. }) => None,
        (Some(_), _) => Some(Finding::new(Health::Suspect, Cause::Slow, 0.6)),
        // Between two scrapes a slow canary that meets the hook is the API server's word, if it is slow enough
        // to have met it as we did.
        (None, Some((since, took)))
            if case.canary_slow.is_some_and(|canary| canary * 2 >= took)
                && !(case.self_doubt || case.explained)
                && !counters.answered_since(since) =>
        {
            Some(Finding::new(Health::Failing, Cause::Slow, 0.8).since(Some(since)))
        }
        (None, _) => None,
    }
}
