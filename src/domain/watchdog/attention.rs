//! Where to look more closely.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Attention, Watchdog, is_trouble};
use crate::domain::hook::{Backend, BackendPath, HookId};
use crate::domain::probing::BackendState;
use crate::domain::time::Time;
use crate::domain::verdict::{ControlPlane, Health, Verdict, Writes};

/// What is suspect for longer than this is looked at as often as everything else: somebody was told, and a closer
/// look costs the API server more than it brings.
const TOLD: Duration = Duration::from_secs(300);

/// A hook whose endpoints changed is looked at closely for this long.
const MOVED: Duration = Duration::from_secs(12);

impl Watchdog {
    /// Looks closer wherever something is odd, and everywhere until there is a baseline.
    pub(super) fn attend(
        &self,
        verdicts: &[Verdict],
        states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>,
        control_plane: &ControlPlane,
        now: Time,
    ) -> Attention {
        let odd = |state: &BackendState| {
            !matches!(state, BackendState::Alive { .. } | BackendState::Untried { .. })
        };
        let mut hooks: BTreeSet<HookId> = states
            .iter()
            .filter(|(_, backends)| {
                backends
                    .iter()
                    .any(|(backend, state)| odd(state) && !is_unreached_cluster_ip(backend, state))
            })
            .map(|(hook, _)| (*hook).clone())
            .collect();
        for verdict in verdicts.iter().filter(|verdict| is_trouble(verdict)) {
            let Some(configuration) = &verdict.configuration else {
                continue;
            };
            let id = HookId {
                kind: verdict.kind,
                configuration: Arc::clone(configuration),
                webhook: Arc::clone(&verdict.webhook),
            };
            let lasting = verdict.since.is_some_and(|since| now.since(since) >= TOLD);
            // An API that is unavailable for weeks is common and nobody's emergency.
            let is_to_be_watched = verdict.health == Health::Failing && verdict.kind.is_admission();
            match lasting && !is_to_be_watched {
                true => hooks.remove(&id),
                false => hooks.insert(id),
            };
        }
        // A canary that is late or slow speaks of one of the hooks it meets.
        for (target, memory) in self.canaries.iter() {
            if memory.overdue_for(now).is_some() || memory.slow(now).is_some() {
                let met = self.met_by.iter().filter(|(_, met_by)| met_by.contains(&target));
                hooks.extend(met.map(|(hook, _)| hook.clone()));
            }
        }
        let canary_is_odd = self.canaries.iter().any(|(_, memory)| {
            memory.is_odd(now) || memory.overdue_for(now).is_some() || memory.slow(now).is_some()
        });
        let everywhere = !hooks.is_empty()
            || canary_is_odd
            || control_plane.writes == Writes::Blocked
            || control_plane.writes == Writes::Delayed
            || control_plane.not_a_hook.is_some()
            || self.history.is_young();
        // Whatever a rollout breaks passes within seconds. Probes alone: scrapes cost the API server.
        let moved = self.changes.moved_since(now.before(MOVED));
        let moved = self
            .backends
            .keys()
            .filter(|id| moved.contains(&(id.kind, &*id.webhook)));
        hooks.extend(moved.cloned());
        hooks.extend(self.doomed());
        Attention { everywhere, hooks }
    }
}

impl Watchdog {
    /// Hooks whose only node is not ready.
    fn doomed(&self) -> Vec<HookId> {
        let Some(inventory) = self.inventory.as_ref() else {
            return Vec::new();
        };
        let not_ready = |node: &str| {
            let state = inventory.nodes.get(node);
            state.is_some_and(|state| state.ready == Some(false))
        };
        if !inventory.nodes.keys().any(|node| not_ready(node)) {
            return Vec::new();
        }
        let doomed = inventory
            .hooks
            .iter()
            .filter(|hook| hook.only_node().is_some_and(|(node, _)| not_ready(node)));
        doomed.map(|hook| hook.id.clone()).collect()
    }
}

fn is_unreached_cluster_ip(backend: &Backend, state: &BackendState) -> bool {
    backend.path == BackendPath::ClusterIp && !matches!(state, BackendState::Dead(dead) if dead.was_alive)
}
