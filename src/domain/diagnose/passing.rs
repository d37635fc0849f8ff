//! Transient failures of calls: on pooled connections to a removed backend, and around a rollout.
//!
//! The API server keeps its connections to a hook and does not repeat a call. When a Pod vanishes behind them without
//! closing them (its node is gone, its packets are dropped), each costs one call its whole timeout, while every fresh
//! connection is fine. An endpoint removed just before, timeouts on the API server's side and good probes on ours are
//! evidence for it; a silent pooled connection of hookwatch to that endpoint proves it.

use super::counters::Counters;
use super::evidence::Evidence;
use super::probes::ProbeEvidence;
use crate::cluster::hook::{Backend, BackendAddress};
use crate::observe::canary::CallFailureReason;
use crate::observe::rollouts::by_rollout;
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::Cause;

/// The evidence for calls on dead pooled connections.
#[derive(Debug, Clone, Copy)]
pub struct Stale {
    /// When the endpoint left.
    pub since: Time,
    /// The connection that hookwatch itself kept to it is silent.
    pub own: bool,
    /// A canary or users' calls ran into the timeout.
    pub timed_out: bool,
    /// Users' calls ran into the timeout.
    pub calls_timed_out: bool,
    /// The endpoint left at least 1.8 timeouts ago, and since then calls were answered and none failed: the API server has no
    /// such connection, or no longer.
    pub drained: bool,
}

impl Stale {
    /// `None` unless every probe is good and an endpoint left within [`t::pooled_connections_last`]. Also, hookwatch's own
    /// connection to it must be silent; or other calls get through, the trouble is not older than that, and hookwatch did not see
    /// all of its own connections to removed endpoints closed properly.
    pub fn of(evidence: &Evidence<'_>) -> Option<Self> {
        let hook = evidence
            .hook
            .filter(|_| evidence.is_admission() && evidence.is_good() && !evidence.uncalled)?;
        let left = evidence.left_at()?;
        let counters = &evidence.counters;
        let own = evidence.silent.iter().map(|silent| silent.gone).min();
        let since = own.unwrap_or(left);
        // A call that ended sooner after the endpoint's removal had started before it.
        let limit = hook.timeout.mul_f64(t::ended_by_timeout());
        let refused = evidence.accusations.iter().any(|accusation| {
            let named = &accusation.named;
            let timed_out = named.failure.reason == CallFailureReason::DeadlineExceeded;
            let ended_late = named.started + named.took >= since + limit;
            accusation.unambiguous && timed_out && named.took >= limit && ended_late
        });
        let timeouts = |counters: &Counters| {
            let timeout = hook.timeout.as_secs_f64();
            let timed_out = t::ended_by_timeout() * timeout..=t::timeout_and_others() * timeout;
            counters.failed >= 1.0
                && counters.failed_mean.is_some_and(|mean| timed_out.contains(&mean))
                && counters.span.is_some_and(|(_, to)| to >= since + limit)
        };
        // Each of these calls comes back alone, so the newest interval may have none of them while the next ones hang.
        let counted = !evidence.ambiguous && (timeouts(counters) || timeouts(&evidence.spans[1]));
        let now = evidence.scene.now;
        let over = evidence.was_answered_since(since) && now.since(since) >= hook.timeout + limit;
        // Without a silent connection of our own, only trouble that began after the endpoint left can come from that.
        let is_older = evidence.before.is_some_and(|before| {
            use Cause::{Denying, Partial, RolloutGap, StaleConnection};
            let passes = [StaleConnection, RolloutGap, Partial, Denying].map(Some);
            let lasts = before.cause.is_some() && !passes.contains(&before.cause);
            lasts && before.since.is_some_and(|since| since < left)
        });
        let scraped = left.before(t::scraped_before());
        let answered =
            counters.calls - counters.failed >= 1.0 && counters.from().is_some_and(|from| from >= scraped);
        let others_get_through = answered || evidence.accusations.iter().any(|other| !other.named.current);
        // If the backends closed hookwatch's connections properly, they closed the API server's too.
        let closed = evidence.scene.seen.pooled.are_closed(&hook.id, now);
        (own.is_some() || !is_older && !closed && others_get_through).then_some(Self {
            since,
            own: own.is_some(),
            timed_out: refused || counted,
            calls_timed_out: counted,
            drained: over,
        })
    }
}

/// When calls began to be lost around changes of the endpoints, and whether that happened often enough to name the webhook
/// (three calls, or two bursts). `None` where another cause explains it better; `found` is the cause that the rules after those
/// for rollouts would give.
///
/// Only a transient fault counts: a backend that still does not serve long after its own change is bad, and if all backends are
/// dead it is an outage, whatever changed before.
pub fn rollout_gap(evidence: &Evidence<'_>, found: impl FnOnce() -> Option<Cause>) -> Option<(Time, bool)> {
    use Cause::{Denying, Erroring, FailingOpen, Partial, Refused, Unreachable};
    let (gap, now, hook) = (&evidence.gap, evidence.scene.now, evidence.hook?);
    let last = gap.last.filter(|last| now.since(*last) < t::gap_told())?;
    let may_be = match found() {
        // A slow hook without other evidence is slow.
        None => !matches!(evidence.probes, ProbeEvidence::Slow { .. }),
        Some(Refused | FailingOpen | Unreachable | Partial | Denying) => true,
        found => found == Some(Erroring) && evidence.counters.own_errors < 1.0,
    };
    let changes = &evidence.scene.seen.changes;
    let in_its_window = |backend: &Backend| {
        let changes = changes.of(&hook.id, now.before(t::after_rollout()));
        let changes = changes.filter(|change| by_rollout(&change.what));
        let mut moved = changes.filter_map(|change| change.what.endpoint());
        moved.any(|address| backend.address == BackendAddress::Socket(address))
    };
    let passes = match &evidence.probes {
        ProbeEvidence::Some { dead, .. } => dead.iter().all(|(backend, _)| in_its_window(backend)),
        ProbeEvidence::Good { .. } | ProbeEvidence::Slow { .. } => true,
        ProbeEvidence::NoData | ProbeEvidence::All { .. } => false,
    };
    // When more calls failed at other times, rollouts are not why.
    let elsewhere = gap.elsewhere > t::gap_elsewhere() * gap.lost;
    if !may_be || !passes || evidence.structural.is_some() || elsewhere {
        return None;
    }
    let missed = gap.missed.as_ref().map(|(missed, ..)| missed.at);
    let since = gap.first.or(missed).unwrap_or(last);
    Some((since, gap.lost >= t::few_calls() || gap.bursts >= 2))
}
