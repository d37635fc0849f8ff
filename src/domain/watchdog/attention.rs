//! Where to look more closely.

use std::collections::{BTreeMap, BTreeSet};

use super::messages::Attention;
use crate::cluster::hook::{Backend, BackendPath, HookId};
use crate::diagnose::verdict::Verdict;
use crate::observe::observations::Observations;
use crate::observe::probing::BackendState;
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::{Cause, Effect, Health};

impl Attention {
    /// Looks closer wherever something is odd, and everywhere until there is a baseline. `in_trouble`: writes are slow or
    /// blocked, or another cause than a hook was found.
    pub(super) fn of(
        seen: &Observations,
        verdicts: &[Verdict],
        states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>,
        in_trouble: bool,
        now: Time,
    ) -> Attention {
        let odd = |(backend, state): &(Backend, BackendState)| match state {
            BackendState::Alive { .. } | BackendState::Untried { .. } => false,
            BackendState::Dead(dead) if dead.was_alive => true,
            // A ClusterIP may be unreachable from here.
            _ => backend.path != BackendPath::ClusterIp,
        };
        let odd = states.iter().filter(|(_, backends)| backends.iter().any(odd));
        let mut hooks: BTreeSet<HookId> = odd.map(|(hook, _)| (*hook).clone()).collect();
        for verdict in verdicts.iter().filter(|verdict| is_trouble(verdict)) {
            let Some(id) = verdict.hook() else { continue };
            // A hook that has been suspect for long is probed as often as the others: a closer look costs more than it brings.
            // An aggregated API that has been unavailable for weeks is common and no emergency.
            let since = verdict.since.filter(|_| !verdict.fails_admission());
            if since.is_some_and(|since| now.since(since) >= t::attended()) {
                hooks.remove(&id);
            } else {
                hooks.insert(id);
            }
        }
        // One of the hooks that a slow canary meets may be the reason. While a canary waits, all hooks that meet canaries are
        // probed more often, and all others once: a fault at many places shows at one canary after the other.
        let mut canary_is_odd = false;
        let mut waiting_since: Option<Time> = None;
        for (target, memory) in seen.canaries.iter() {
            let waits = memory.waiting_since(now);
            let slow = memory.slow(now).is_some();
            if slow {
                hooks.extend(seen.coverage.by(target).cloned());
            }
            waiting_since = waiting_since.into_iter().chain(waits).min();
            canary_is_odd |= waits.is_some() || slow || memory.is_odd(now);
        }
        if waiting_since.is_some() {
            hooks.extend(seen.coverage.hooks().cloned());
        }
        let everywhere = !hooks.is_empty() || canary_is_odd || in_trouble || seen.history.is_young();
        // What a rollout breaks passes within seconds. Only probes get faster: scrapes cost the API server. Hooks of the same
        // name in other configurations are included, as they share the counters.
        let since = now.before(t::moved());
        let moved = |id: &&&HookId| seen.changes.moved_since(id.kind, &id.webhook, since);
        hooks.extend(states.keys().filter(moved).map(|id| (*id).clone()));
        hooks.extend(seen.doomed.iter().cloned());
        Self {
            everywhere,
            hooks,
            waiting_since,
        }
    }
}

/// Something is wrong with the hook. That it denies most requests does not count.
pub(super) fn is_trouble(verdict: &Verdict) -> bool {
    !matches!(verdict.cause, None | Some(Cause::Denying))
}

/// Trouble of an admission hook that is new, or slows writes down: it may affect other measurements, so that nothing is learnt
/// from them. A hook that has failed for long without slowing writes may never be fixed, and must not prevent learning.
pub(super) fn is_news(verdict: &Verdict, now: Time) -> bool {
    let young = verdict.since.is_none_or(|since| now.since(since) < t::lasting());
    let delays = verdict.health == Health::Failing && verdict.effect == Effect::Delaying;
    verdict.kind.is_admission() && is_trouble(verdict) && (young || delays)
}
