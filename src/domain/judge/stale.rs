//! Calls on connections that lead nowhere any more.
//!
//! The API server keeps its connections to a hook and does not repeat a call. When a Pod vanishes behind them without
//! closing them (its node is gone, its packets are dropped), each costs one call its whole timeout, while every fresh
//! connection is fine. An endpoint that left just before, timeouts on the API server's side and good probes on ours
//! speak for it; the connection that we kept to that endpoint, if it is silent, proves it.

use std::time::Duration;

use super::witnesses::{Counters, Probes};
use super::{Accusation, Before, Case, Finding};
use crate::domain::canary::CallFailureReason;
use crate::domain::changes::What;
use crate::domain::time::Time;
use crate::domain::verdict::{Cause, Health, human};

/// A connection is used for at most this long after its backend left: 90 s idle, and a last call of 30 s.
const LASTS: Duration = Duration::from_secs(120);
/// A span of counters may begin this much before the endpoint left.
const SCRAPED_BEFORE: Duration = Duration::from_secs(5);
/// A call that took this part of the hook's timeout was ended by it.
const TIMED_OUT: f64 = 0.8;
/// What clients gave up, and what other calls took, is reckoned to those that failed.
const TIMED_OUT_AT_MOST: f64 = 2.0;

/// The finding, where everything speaks for stale connections.
pub(super) fn stale(
    case: &Case<'_>,
    counters: &Counters,
    probes: &Probes<'_>,
    named: &[Accusation<'_>],
    previous: Option<Before>,
) -> Option<Finding> {
    let hook = case.hook?;
    if !matches!(probes, Probes::Good { .. }) {
        return None;
    }
    let left = left(case)?;
    let limit = hook.timeout.mul_f64(TIMED_OUT);
    let refused = named.iter().any(|accusation| {
        let named = &accusation.named;
        accusation.sure
            && named.failure.reason == CallFailureReason::DeadlineExceeded
            && named.took >= limit
            && named.started + named.took >= left + limit
    });
    // A call that ended sooner after the endpoint left was under way before.
    let timeouts = |counters: &Counters| {
        let timeout = hook.timeout.as_secs_f64();
        let mean = counters.failed_mean;
        counters.failed >= 1.0
            && mean.is_some_and(|mean| (TIMED_OUT * timeout..=TIMED_OUT_AT_MOST * timeout).contains(&mean))
            && counters.span.is_some_and(|(_, to)| to >= left + limit)
    };
    // Each of these calls comes back alone, so the newest interval may have none of them while the next ones hang.
    let counted = !case.ambiguous && (timeouts(counters) || timeouts(&Counters::over(case, case.recent)));
    let finding =
        |health, confidence| Some(Finding::new(health, Cause::StaleConnection, confidence).since(Some(left)));
    if let Some(since) = case.silent.iter().map(|silent| silent.gone).min() {
        let finding = |health, confidence| {
            Some(Finding::new(health, Cause::StaleConnection, confidence).since(Some(since)))
        };
        return if refused || counted {
            finding(Health::Failing, 0.95)
        } else if case.canary_late.is_some() && !case.others_hang {
            finding(Health::Failing, 0.85)
        } else if counters.answered_since(since) && case.now.since(since) >= hook.timeout + limit {
            // The API server has none of these connections, or no longer.
            None
        } else if previous.is_some_and(|previous| {
            previous.health == Health::Failing && previous.cause == Some(Cause::StaleConnection)
        }) {
            // A write that hangs is contradicted by no other that got through on a new connection.
            finding(Health::Failing, 0.85)
        } else {
            finding(Health::Suspect, 0.6)
        };
    }
    // Without a witness of our own only a trouble that began after the endpoint left can come from that.
    let older = previous.is_some_and(|previous| {
        let of_its_own = !matches!(
            previous.cause,
            None | Some(Cause::StaleConnection | Cause::RolloutGap | Cause::Partial | Cause::Denying)
        );
        of_its_own && previous.since.is_some_and(|since| since < left)
    });
    let answered = counters.calls - counters.failed >= 1.0
        && counters
            .from()
            .is_some_and(|from| from >= left.before(SCRAPED_BEFORE));
    let others_get_through = answered || named.iter().any(|accusation| !accusation.named.current);
    if older || !others_get_through {
        return None;
    }
    match (counted && counters.failing(), refused || counted) {
        (true, _) => finding(Health::Failing, 0.75),
        (false, true) => finding(Health::Suspect, 0.6),
        (false, false) => None,
    }
}

/// When an endpoint last left those that are dialled.
pub(super) fn left(case: &Case<'_>) -> Option<Time> {
    let changes = case.changes.of(&case.hook?.id, case.now.before(LASTS));
    let leaves = |what: &What| {
        matches!(
            what,
            What::EndpointGone(_) | What::EndpointStopping(_) | What::EndpointUnready(_)
        )
    };
    let mut left = changes.filter(|change| leaves(&change.what));
    left.next_back().map(|change| change.at)
}

/// What our own connections saw, as a sentence.
pub(super) fn sentence(case: &Case<'_>, cause: Option<Cause>) -> Option<String> {
    if cause != Some(Cause::StaleConnection) {
        return None;
    }
    let Some(first) = case.silent.first() else {
        return Some(
            "An endpoint left shortly before, and calls on new connections are answered: those that time out are \
             on connections that the API server kept to it."
                .to_owned(),
        );
    };
    let more = match case.silent.len() {
        1 => String::new(),
        n => format!(" (and to {} more)", n - 1),
    };
    Some(format!(
        "The connection that hookwatch kept to {}{more} was silent for {} after that had left, and was not closed: \
         the API server's own are no better, and each costs one call {}.",
        first.backend,
        human(first.waited),
        human(case.hook.map(|hook| hook.timeout).unwrap_or_default()),
    ))
}
