//! All observations that still count as evidence: the memory that the diagnosis reads.

mod canary_write;
mod coverage;
mod matched_traffic;
mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::canaries::Canaries;
use super::canary::CanaryReport;
use super::history::{History, Windows};
use super::pooled::PooledConnections;
use super::probing::{BackendMemory, BackendState};
use super::rollouts::Rollouts;
use super::schedule::{ProbePace, Stretch};
use super::stored::{PrometheusMemory, StoredWindows};
use super::views::{ProbeView, Sources};
use crate::cluster::changes::{Changes, HookChangeKind};
use crate::cluster::hook::{Backend, BackendAddress, BackendPath, Hook, HookId};
use crate::cluster::inventory::InventoryHealth::{Current, Limited, Stale, Starting};
use crate::cluster::inventory::{Inventory, WatchReport};
use crate::thresholds as t;
use crate::time::Time;

pub use coverage::Coverage;
pub use matched_traffic::{MatchedTraffic, Spared, TrafficByHook};
pub(crate) use servers::TargetState;
pub use servers::{Servers, Sick};

/// The common end of the names of both watches of webhook configurations.
const CONFIGURATIONS: &str = "WebhookConfigurations";

/// The memory of everything that was observed.
#[derive(Debug, Default)]
pub struct Observations {
    pub(crate) coverage: Coverage,
    pub(crate) traffic: TrafficByHook,
    pub(crate) inventory: Option<Arc<Inventory>>,
    /// The hooks of the inventory, by webhook name.
    named: BTreeMap<Arc<str>, Vec<Arc<Hook>>>,
    pub(crate) addresses: BTreeSet<BackendAddress>,
    /// Hooks whose only node is not ready.
    pub(crate) doomed: Vec<HookId>,
    pub(crate) watches: Vec<WatchReport>,
    pub(crate) backends: BTreeMap<HookId, BTreeMap<Backend, BackendMemory>>,
    pub(crate) without_backends: BTreeMap<HookId, Time>,
    pub(crate) changes: Changes,
    pub(crate) pooled: PooledConnections,
    pub(crate) rollouts: Rollouts,
    pub(crate) history: History,
    pub(crate) servers: Servers,
    pub(crate) stored: PrometheusMemory,
    pub(crate) canaries: Canaries,
    /// Whether probes keep up with their intervals.
    pub(crate) pace: ProbePace,
    /// Why some API servers are not read at their own address.
    pub(crate) unlisted_api_servers: Option<String>,
}

impl Observations {
    /// Takes a new inventory: updates the backends, coverage and changes, and forgets removed hooks.
    pub fn take_inventory(&mut self, inventory: Arc<Inventory>, now: Time) {
        let mut backends = BTreeMap::new();
        let mut without_backends = BTreeMap::new();
        (self.named, self.addresses) = Default::default();
        for hook in &inventory.hooks {
            let mut known = self.backends.remove(&hook.id).unwrap_or_default();
            let named = self.named.entry(Arc::clone(&hook.id.webhook)).or_default();
            named.push(Arc::clone(hook));
            let before = self.inventory.as_ref().and_then(|before| before.hook(&hook.id));
            // Inventories share unchanged hooks, whose backends are then the same.
            if known.is_empty() || before.is_none_or(|before| !Arc::ptr_eq(before, hook)) {
                let there = hook.backends().into_iter();
                let memories =
                    there.map(|backend| (backend.clone(), known.remove(&backend).unwrap_or_default()));
                known = memories.collect();
            }
            self.addresses
                .extend(known.keys().map(|backend| backend.address.clone()));
            backends.insert(hook.id.clone(), known);
            if hook.without_backends().is_some() {
                let since = self.without_backends.get(&hook.id).copied().unwrap_or(now);
                without_backends.insert(hook.id.clone(), since);
            }
        }
        self.canaries
            .spare(inventory.hooks.iter().any(|hook| hook.bypass().is_some()));
        self.traffic
            .take(&inventory, &self.coverage.own_namespace, &self.coverage.further);
        self.coverage.take(&inventory, &self.traffic);
        self.changes.take(self.inventory.as_deref(), &inventory, now);
        let there = inventory.hooks.iter().map(|hook| (&hook.id, hook.backends()));
        self.pooled.take(now, there);
        self.rollouts.keep_only(|hook| backends.contains_key(hook), now);
        (self.backends, self.without_backends) = (backends, without_backends);
        self.doomed = doomed(&inventory);
        self.inventory = Some(inventory);
    }

    /// Records a finished canary.
    pub fn take_canary(&mut self, report: CanaryReport) {
        // An UPDATE without an answer does not show whether the object exists.
        let tells = report.created || report.outcome.is_heard();
        let is_news = tells && self.coverage.written(report.target, report.created);
        if let Some(inventory) = self.inventory.as_ref().filter(|_| is_news) {
            self.coverage.take(inventory, &self.traffic);
        }
        self.canaries.finished(report);
    }

    /// All hooks of the inventory; none before the first inventory.
    pub fn hooks(&self) -> impl Iterator<Item = &Hook> + Clone {
        let hooks = self.inventory.iter().flat_map(|inventory| &inventory.hooks);
        hooks.map(Arc::as_ref)
    }

    /// All hooks with this webhook name, in any configuration.
    pub fn named(&self, webhook: &str) -> impl Iterator<Item = &Hook> {
        self.named.get(webhook).into_iter().flatten().map(Arc::as_ref)
    }

    /// When the hook's configuration was last changed; `None` if not within [`t::changes_remembered`].
    pub fn reconfigured_at(&self, hook: &HookId, now: Time) -> Option<Time> {
        let mut changes = self.changes.of(hook, now.before(t::changes_remembered()));
        let changed = changes.rfind(|change| matches!(change.what, HookChangeKind::Reconfigured(_)));
        changed.map(|change| change.at)
    }

    /// The memory of a backend; `None` if the hook no longer has it.
    pub fn memory(&mut self, hook: &HookId, backend: &Backend) -> Option<&mut BackendMemory> {
        self.backends.get_mut(hook)?.get_mut(backend)
    }

    /// Notes that hookwatch was stalled until now.
    pub fn resumed(&mut self, now: Time) {
        self.canaries.resumed(now);
        let backends = self.backends.values_mut().flat_map(BTreeMap::values_mut);
        backends.for_each(|memory| memory.resumed(now));
    }

    /// Whether an API server answered a scrape or canary since an instant, so that it and the path to it work.
    pub fn answered_since(&self, since: Time) -> bool {
        self.servers.scraped_after(since) || self.canaries.heard_since(since)
    }

    /// The windows from a Prometheus; `None` while hookwatch's own scrapes provide some, or were successful recently.
    pub fn stored_windows(&mut self, own: &Windows, now: Time) -> Option<StoredWindows> {
        let scraped = || self.servers.any_scraped_within(t::newest_speaks(), now);
        if own.recent.is_some() || scraped() {
            return None;
        }
        self.stored.speaks(now)
    }

    /// The current state of every backend, by hook.
    pub fn states(&self, now: Time) -> BTreeMap<&HookId, Vec<(Backend, BackendState)>> {
        let states = |(backend, memory): (&Backend, &BackendMemory)| (backend.clone(), memory.state(now));
        let all = self.backends.iter();
        all.map(|(hook, backends)| (hook, backends.iter().map(states).collect()))
            .collect()
    }

    /// Whether every backend of every hook fails, and no answer that came since from a backend or an API server shows that
    /// hookwatch's own network works.
    pub fn self_doubt(&self, states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>, now: Time) -> bool {
        let all = || states.values().flatten().map(|(_, state)| state);
        let dead = || all().filter_map(dead_since);
        let Some(newest) = dead().max() else {
            return false;
        };
        // A backend that has been dead for long says nothing about why the others died together.
        let together = |since: &Time| newest.since(*since) <= t::path_lost_for();
        let first_dead = dead().filter(together).min().unwrap_or(newest);
        // An answer from before the first of these deaths says nothing about the present.
        let alive = |state: &BackendState| match state {
            BackendState::Alive { at, .. } => *at >= first_dead,
            BackendState::Slow { .. } => true,
            _ => false,
        };
        let mut latest = self.canaries.iter().filter_map(|(_, memory)| memory.latest(now));
        let answered = latest.any(|it| it.started + it.took > first_dead && it.outcome.is_heard());
        !all().any(alive) && !self.servers.scraped_after(first_dead) && !answered
    }

    /// Whether a watch has been broken for so long that the known addresses of backends may be wrong.
    pub fn inventory_is_old(&self, now: Time) -> bool {
        let is_old = |good: Time| now.since(good) >= t::old_inventory();
        let mut watches = self.watches.iter();
        watches.any(|report| matches!(report.health, Stale { .. }) && report.known_good.is_none_or(is_old))
    }

    /// Hooks without a working backend, and since when.
    pub fn outages(&self, states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>) -> Vec<(HookId, Time)> {
        let dead = states.iter().filter_map(|(hook, backends)| {
            let direct = backends.iter();
            let direct = direct.filter(|(backend, _)| backend.path != BackendPath::ClusterIp);
            let since: Option<Vec<Time>> = direct.map(|(_, state)| dead_since(state)).collect();
            Some(((*hook).clone(), since?.into_iter().max()?))
        });
        let missing = self.without_backends.iter();
        dead.chain(missing.map(|(hook, since)| (hook.clone(), *since)))
            .collect()
    }

    /// Time since the inventory was last known to be current; `None` before the first complete list.
    pub fn inventory_age(&self, now: Time) -> Option<Duration> {
        // Two kinds of watches do not count: a refused one, which delivers nothing, and one that has only just started when there
        // already is an inventory without it.
        let delivering = self.watches.iter();
        let delivering = delivering.filter(|report| !matches!(report.health, Limited { .. } | Starting));
        let mut ages = delivering.map(|report| report.known_good.map(|good| now.since(good)));
        let age = ages.try_fold(Duration::ZERO, |age, watch| watch.map(|watch| age.max(watch)));
        self.inventory.as_ref().and(age)
    }

    /// The state of all sources for users. `rests_on_stored`: whether verdicts use the Prometheus now.
    pub fn sources(&self, self_doubt: bool, rests_on_stored: bool, now: Time) -> Sources {
        let configurations = self.watches.iter();
        let mut configurations = configurations.filter(|report| report.watch.ends_with(CONFIGURATIONS));
        // Without any watch of configurations, none is known to be refused.
        let hooks_listed = configurations.clone().next().is_none()
            || configurations.any(|report| !matches!(report.health, Limited { .. }));
        let trouble = self.watches.iter().filter_map(|report| match &report.health {
            Current => None,
            Starting => Some(format!("{}: nothing was read yet", report.watch)),
            Stale { why } | Limited { why } => Some(format!("{}: {why}", report.watch)),
        });
        let stretch = self.pace.stretch.as_ref();
        Sources {
            hooks_listed,
            inventory_age_seconds: self.inventory_age(now).map(|age| age.as_secs_f64()),
            inventory_trouble: trouble.collect(),
            scrapes: self.servers.views(&self.history, now),
            prometheus: self.stored.view(rests_on_stored, now),
            api_servers_trouble: self.unlisted_api_servers.clone(),
            node_leases: self.servers.node_leases.view(now),
            probes: ProbeView {
                targets: self.pace.targets,
                late_seconds: stretch
                    .map_or(self.pace.late, |stretch| stretch.late)
                    .as_secs_f64(),
                late: stretch.map(Stretch::sentences).unwrap_or_default(),
            },
            self_doubt,
        }
    }

    /// The certificates last seen at every backend.
    pub fn certificates(&self) -> impl Iterator<Item = (&HookId, &Backend, super::probe::CertificateFacts)> {
        self.backends.iter().flat_map(|(hook, backends)| {
            let backends = backends.iter();
            backends.map(move |(backend, memory)| (hook, backend, memory.certificates))
        })
    }
}

fn doomed(inventory: &Inventory) -> Vec<HookId> {
    let doomed = inventory.hooks.iter().filter(|hook| {
        let node = hook.only_node().and_then(|(node, _)| inventory.nodes.get(node));
        node.is_some_and(|node| node.ready == Some(false))
    });
    doomed.map(|hook| hook.id.clone()).collect()
}

fn dead_since(state: &BackendState) -> Option<Time> {
    match state {
        BackendState::Dead(dead) => Some(dead.since),
        _ => None,
    }
}
