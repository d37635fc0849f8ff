//! The core: observations go in, an assessment and the wish to look closer come out.
//!
//! [`Watchdog`] owns all memory and does nothing by itself. It is handed every observation as an [`Event`] and,
//! at least once a second, a [`Event::Tick`]; what it wants done comes back as [`Effect`]s. So any incident is a
//! list of events, and a recording replays to the same verdicts.

mod account;
mod attention;
mod breaking;
mod coverage;
mod doubts;
mod hearing;
mod messages;
mod replica;
mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::announcement::Announcer;
use super::breaker::HookStanding;
use super::canaries::Canaries;
use super::canary::{CanaryTarget, FurtherCanary};
use super::changes::Changes;
use super::clocks;
use super::fence::{AutoBreak, Proof};
use super::history::History;
use super::hook::{Backend, BackendPath, Hook, HookId, HookKind, ServiceState, Target};
use super::inventory::{Inventory, InventoryHealth, WatchReport};
use super::judge::Before;
use super::kept::KeptConnections;
use super::leadership::{ReplicaReport, ReplicaView};
use super::plane::{Plane, summary};
use super::probe::CertificateFacts;
use super::probing::{BackendMemory, BackendState};
use super::rollouts::{self, Rollouts};
use super::snapshot::{Operation, Scrape, ScrapeFailure};
use super::time::Time;
use super::verdict::{Assessment, Cause, ControlPlane, Health, Verdict, Writes};

use doubts::{SharedNames, SomeAnswered};
pub use messages::{Attention, Change, Effect, Event};
use servers::Servers;

/// What is suspect for longer than this is how things are: there is nothing to wait for before learning what is
/// usual.
const LASTING: Duration = Duration::from_secs(60);

/// Who a verdict is about: kind, configuration where known, webhook.
type Subject = (HookKind, Option<Arc<str>>, Arc<str>);

/// The core's memory. See the module's head.
#[derive(Debug)]
pub struct Watchdog {
    own_namespace: String,
    further: Vec<FurtherCanary>,
    inventory: Option<Arc<Inventory>>,
    watches: Vec<WatchReport>,
    /// Which canaries meet a hook.
    met_by: BTreeMap<HookId, Vec<CanaryTarget>>,
    /// Hooks that are asked about something that a shield spares.
    shieldable: BTreeSet<HookId>,
    backends: BTreeMap<HookId, BTreeMap<Backend, BackendMemory>>,
    without_backends: BTreeMap<HookId, Time>,
    shared_names: SharedNames,
    some_answered: SomeAnswered,
    changes: Changes,
    kept: KeptConnections,
    rollouts: Rollouts,
    history: History,
    servers: Servers,
    canaries: Canaries,
    verdicts: BTreeMap<Subject, Before>,
    plane: Option<(Writes, Time)>,
    attention: Attention,
    auto_break: AutoBreak,
    fence: Option<Proof>,
    standings: Vec<HookStanding>,
    /// Why the list of API-server replicas cannot be read.
    unlisted_api_servers: Option<String>,
    replica: Option<ReplicaReport>,
    replica_view: Option<ReplicaView>,
    announcer: Announcer,
}

impl Watchdog {
    /// A watchdog that has seen nothing. `own_namespace` is where hookwatch's own canary lives.
    pub fn new(own_namespace: &str) -> Self {
        Self {
            own_namespace: own_namespace.to_owned(),
            further: Vec::new(),
            inventory: None,
            watches: Vec::new(),
            met_by: BTreeMap::new(),
            shieldable: BTreeSet::new(),
            backends: BTreeMap::new(),
            without_backends: BTreeMap::new(),
            shared_names: SharedNames::default(),
            some_answered: SomeAnswered::default(),
            changes: Changes::default(),
            kept: KeptConnections::default(),
            rollouts: Rollouts::default(),
            history: History::default(),
            servers: Servers::default(),
            canaries: Canaries::default(),
            verdicts: BTreeMap::new(),
            plane: None,
            attention: Attention::default(),
            auto_break: AutoBreak::default(),
            fence: None,
            standings: Vec::new(),
            unlisted_api_servers: None,
            replica: None,
            replica_view: None,
            announcer: Announcer::default(),
        }
    }

    /// The same with what its operator wants done about a culprit.
    #[must_use]
    pub fn wanting(self, auto_break: AutoBreak) -> Self {
        Self { auto_break, ..self }
    }

    /// The same with what canaries are written beside those that always are.
    #[must_use]
    pub fn with_canaries(self, further: Vec<FurtherCanary>) -> Self {
        Self { further, ..self }
    }

    /// Takes one observation in and says what is wanted. Only a tick assesses.
    pub fn handle(&mut self, event: Event, now: Time) -> Vec<Effect> {
        match event {
            Event::Inventory(inventory) => self.take_inventory(inventory, now),
            Event::Watches(watches) => return self.take_watches(watches),
            Event::Scraped(scrape) => return self.take_scrape(*scrape),
            Event::ScrapeFailed(failure) => return self.take_scrape_failure(failure),
            Event::Readiness(report) => self.servers.take_readiness(report),
            Event::NodeLeases(reading) => self.servers.node_leases.take(reading),
            Event::Probed(report) => {
                self.kept.finished(&report);
                if let Some(memory) = self.memory(&report.hook, &report.backend) {
                    memory.finished((*report).clone());
                    self.rollouts.probed(&report);
                }
            }
            Event::ProbeOverdue(overdue) => {
                self.kept.overdue(&overdue);
                if let Some(memory) = self.memory(&overdue.hook, &overdue.backend) {
                    memory.overdue(*overdue);
                }
            }
            Event::CanaryWritten(report) => self.canaries.finished(report),
            Event::CanaryOverdue(overdue) => self.canaries.overdue(&overdue),
            Event::Fence(proof) => return self.take_fence(proof),
            Event::Standings(standings) => self.standings = standings,
            Event::ApiServers(read) => return self.take_api_servers(read),
            Event::Replica(report) => return self.take_replica(report, now),
            Event::Tick => return self.assess(now),
        }
        Vec::new()
    }

    /// Certificates of every backend as last seen, for metrics.
    pub fn certificates(&self) -> impl Iterator<Item = (&HookId, &Backend, CertificateFacts)> {
        self.backends.iter().flat_map(|(hook, backends)| {
            backends
                .iter()
                .map(move |(backend, memory)| (hook, backend, memory.certificates()))
        })
    }

    fn memory(&mut self, hook: &HookId, backend: &Backend) -> Option<&mut BackendMemory> {
        // A probe that comes back after its backend left the inventory has nobody to speak for.
        self.backends.get_mut(hook)?.get_mut(backend)
    }

    fn take_inventory(&mut self, inventory: Arc<Inventory>, now: Time) {
        let mut backends = BTreeMap::new();
        let mut without_backends = BTreeMap::new();
        self.met_by.clear();
        for hook in &inventory.hooks {
            let mut known = self.backends.remove(&hook.id).unwrap_or_default();
            let memories = hook
                .backends()
                .into_iter()
                .map(|backend| (backend.clone(), known.remove(&backend).unwrap_or_default()))
                .collect();
            backends.insert(hook.id.clone(), memories);
            if has_no_backend(hook) {
                let since = self.without_backends.get(&hook.id).copied().unwrap_or(now);
                without_backends.insert(hook.id.clone(), since);
            }
            let met_by = coverage::met_by(hook, &self.own_namespace, &self.further, &inventory);
            self.met_by.insert(hook.id.clone(), met_by);
        }
        self.shieldable = breaking::shieldable(&inventory, &self.own_namespace);
        self.changes.take(self.inventory.as_deref(), &inventory, now);
        self.shared_names.take(&inventory, now);
        let there = inventory.hooks.iter().map(|hook| (&hook.id, hook.backends()));
        self.kept.take(now, there);
        self.rollouts.keep_only(|hook| backends.contains_key(hook), now);
        self.backends = backends;
        self.without_backends = without_backends;
        self.inventory = Some(inventory);
    }

    fn take_watches(&mut self, watches: Vec<WatchReport>) -> Vec<Effect> {
        let before = |watch: &str| {
            let known = self.watches.iter().find(|known| known.watch == watch);
            known.map_or(InventoryHealth::Starting, |known| known.health.clone())
        };
        let changes = watches
            .iter()
            .filter(|report| before(&report.watch) != report.health)
            .map(|report| {
                Effect::Tell(Change::Inventory {
                    watch: report.watch.clone(),
                    health: report.health.clone(),
                })
            })
            .collect();
        self.watches = watches;
        changes
    }

    fn take_scrape(&mut self, scrape: Scrape) -> Vec<Effect> {
        let target = scrape.target.clone();
        let state = self.servers.get(&target);
        state.succeeded(scrape.at, scrape.snapshot.missing());
        let over = state.is_over(scrape.at, self.history.replicas_behind(&target) > 1);
        if let Some((span, gained, usual)) = self.history.take(scrape) {
            let changed = self.changes.moved_since(span.0.before(rollouts::AFTER));
            self.rollouts.count(span, (gained, usual), |(kind, webhook)| {
                changed.contains(&(*kind, webhook))
            });
        }
        match over {
            true => vec![Effect::Tell(Change::Scrape {
                target,
                failure: None,
            })],
            false => Vec::new(),
        }
    }

    fn take_scrape_failure(&mut self, failure: ScrapeFailure) -> Vec<Effect> {
        let (target, why) = (failure.target.clone(), failure.why.clone());
        match self.servers.get(&target).failed(failure) {
            true => vec![Effect::Tell(Change::Scrape {
                target,
                failure: Some(why),
            })],
            false => Vec::new(),
        }
    }

    /// Judges everything anew.
    fn assess(&mut self, now: Time) -> Vec<Effect> {
        self.servers.forget_the_gone(now);
        let sick = self.sick(now);
        let windows = self.history.windows(now);
        let states = self.states(now);
        let self_doubt = self.self_doubt(&states, now);
        let (verdicts, plane, seconds, elsewhere, problems) = {
            let plane = Plane {
                now,
                windows: &windows,
                baseline: &self.history.baseline,
                canaries: &self.canaries,
                unanswered: self.unanswered(now),
                sick: sick.first().map(|sick| sick.sentence(now)),
            };
            let (verdicts, problems) = self.judge_all(&plane, &states, self_doubt, now);
            let elsewhere = plane.elsewhere(&verdicts);
            (
                verdicts,
                plane.writes(),
                (
                    plane.write_seconds(),
                    plane.write_seconds_of(Operation::Create),
                    plane.write_seconds_of(Operation::Update),
                ),
                elsewhere,
                problems,
            )
        };
        let since = self
            .plane
            .filter(|(writes, _)| *writes == plane)
            .map_or(now, |(_, since)| since);
        let symptoms = self.symptoms(&verdicts, &sick, now);
        let control_plane = ControlPlane {
            writes: plane,
            since,
            summary: summary(plane, &verdicts, elsewhere.as_ref(), &symptoms),
            clocks: match plane {
                Writes::Blocked => clocks::running(&self.canaries, since, now),
                _ => Vec::new(),
            },
            write_seconds: seconds.0,
            create_seconds: seconds.1,
            update_seconds: seconds.2,
            usual_write_seconds: self.history.baseline.write.median(),
            not_a_hook: elsewhere,
            symptoms,
            canaries: self.canaries.views(&self.further, now),
        };
        let mut effects = self.changes(&verdicts, &control_plane);

        let attention = self.attend(&verdicts, &states, &control_plane, now);
        for (hook, since) in outages(&states, &self.without_backends) {
            self.rollouts.outage(&hook, since, now);
        }
        effects.extend(self.look_at_replica(now));
        effects.extend(self.announce(&verdicts, now));
        let calm = plane != Writes::Blocked
            && plane != Writes::Delayed
            && control_plane.not_a_hook.is_none()
            && !verdicts.iter().any(|verdict| is_news(verdict, now));
        if calm {
            // What is out of the usual for long is left alone; the rest goes on being learnt.
            let troubled = verdicts.iter().filter(|verdict| is_trouble(verdict));
            let troubled: BTreeSet<(HookKind, String)> = troubled
                .map(|verdict| (verdict.kind, verdict.webhook.to_string()))
                .collect();
            self.history.learn(now, |key| troubled.contains(key));
        } else {
            self.history.doubt();
        }
        if attention != self.attention {
            self.attention = attention.clone();
            effects.push(Effect::Attend(attention));
        }
        self.plane = Some((plane, since));
        let before = |verdict: &Verdict| {
            let subject = subject(verdict);
            let known = self.verdicts.get(&subject);
            let known = known.filter(|known| known.cause == verdict.cause);
            let before = Before {
                health: verdict.health,
                cause: verdict.cause,
                since: verdict.since,
                whole: known.is_some_and(|known| known.whole) || verdict.no_backend_answers(),
            };
            (subject, before)
        };
        self.verdicts = verdicts.iter().map(before).collect();
        let assessment = Assessment {
            at: now,
            control_plane,
            hooks: verdicts,
            sources: self.sources(now, self_doubt),
            breaker: self.breaker(),
            replica: self.replica_view.clone(),
            problems,
        };
        effects.push(Effect::Publish(Arc::new(assessment)));
        effects
    }

    fn states(&self, now: Time) -> BTreeMap<&HookId, Vec<(Backend, BackendState)>> {
        self.backends
            .iter()
            .map(|(hook, backends)| {
                let states = backends
                    .iter()
                    .map(|(backend, memory)| (backend.clone(), memory.state(now)))
                    .collect();
                (hook, states)
            })
            .collect()
    }
}

/// Hooks of which no backend serves, each with the instant since which that is so.
fn outages(
    states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>,
    without_backends: &BTreeMap<HookId, Time>,
) -> Vec<(HookId, Time)> {
    let dead = states.iter().filter_map(|(hook, backends)| {
        let direct = backends
            .iter()
            .filter(|(backend, _)| backend.path != BackendPath::ClusterIp);
        let since = direct.map(|(_, state)| match state {
            BackendState::Dead(dead) => Some(dead.since),
            _ => None,
        });
        let since: Option<Vec<Time>> = since.collect();
        Some(((*hook).clone(), since?.into_iter().max()?))
    });
    let missing = without_backends
        .iter()
        .map(|(hook, since)| (hook.clone(), *since));
    dead.chain(missing).collect()
}

/// Something is wrong with the hook that a calm time would not have.
fn is_trouble(verdict: &Verdict) -> bool {
    !matches!(verdict.cause, None | Some(Cause::Denying))
}

/// Trouble that is new, or somebody's to act on: whatever else is measured may come from it. What is wrong beside
/// admission is measured apart.
fn is_news(verdict: &Verdict, now: Time) -> bool {
    if !verdict.kind.is_admission() {
        return false;
    }
    let young = verdict.since.is_none_or(|since| now.since(since) < LASTING);
    is_trouble(verdict) && (young || verdict.health == Health::Failing)
}

fn subject(verdict: &Verdict) -> Subject {
    (
        verdict.kind,
        verdict.configuration.clone(),
        Arc::clone(&verdict.webhook),
    )
}

fn has_no_backend(hook: &Hook) -> bool {
    match &hook.target {
        Target::Service(target) => match &target.service {
            ServiceState::Missing | ServiceState::NoSuchPort { .. } => true,
            ServiceState::Found { endpoints, .. } => !endpoints.iter().any(|endpoint| endpoint.ready),
            ServiceState::Unknown { .. } => false,
        },
        Target::Url(_) | Target::Invalid(_) => false,
    }
}

#[cfg(test)]
mod tests;
