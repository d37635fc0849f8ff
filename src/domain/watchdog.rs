//! The core: observations go in, an assessment and the wish to look closer come out.
//!
//! [`Watchdog`] owns all memory and does nothing by itself. It is handed every observation as an [`Event`] and,
//! at least once a second, a [`Event::Tick`]; what it wants done comes back as [`Effect`]s. So any incident is a
//! list of events, and a recording replays to the same verdicts.

mod account;
mod attention;
mod hearing;
mod messages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::canaries::Canaries;
use super::canary::CanaryTarget;
use super::history::History;
use super::hook::{Backend, Hook, HookId, HookKind, ServiceState, Target};
use super::inventory::{Inventory, InventoryHealth, WatchReport};
use super::judge::Before;
use super::matching::RequestShape;
use super::plane::{Plane, summary};
use super::probe::CertificateFacts;
use super::probing::{BackendMemory, BackendState};
use super::snapshot::{Scrape, ScrapeFailure, ScrapeFailureReason};
use super::time::Time;
use super::verdict::{Assessment, Cause, ControlPlane, Health, Verdict, Writes};

pub use messages::{Attention, Change, Effect, Event};

/// A scrape target that nothing was heard of for this long is gone.
const FORGET_TARGET: Duration = Duration::from_secs(300);
/// What is suspect for longer than this is how things are: there is nothing to wait for before learning what is
/// usual.
const LASTING: Duration = Duration::from_secs(60);
/// Scrape targets that are remembered at most.
const MAX_TARGETS: usize = 64;

/// Who a verdict is about: kind, configuration where known, webhook.
type Subject = (HookKind, Option<Arc<str>>, Arc<str>);

#[derive(Debug, Clone, Default)]
struct TargetState {
    heard_of: Time,
    last_good: Option<Time>,
    failure: Option<ScrapeFailure>,
}

/// The core's memory. See the module's head.
#[derive(Debug)]
pub struct Watchdog {
    own_namespace: String,
    inventory: Option<Arc<Inventory>>,
    watches: Vec<WatchReport>,
    /// Which canaries meet a hook.
    met_by: BTreeMap<HookId, Vec<CanaryTarget>>,
    backends: BTreeMap<HookId, BTreeMap<Backend, BackendMemory>>,
    without_backends: BTreeMap<HookId, Time>,
    /// When endpoints of a hook last came or went, since it is known.
    endpoints_changed: BTreeMap<HookId, Time>,
    history: History,
    targets: BTreeMap<String, TargetState>,
    canaries: Canaries,
    verdicts: BTreeMap<Subject, Before>,
    plane: Option<(Writes, Time)>,
    attention: Attention,
}

impl Watchdog {
    /// A watchdog that has seen nothing. `own_namespace` is where hookwatch's own canary lives.
    pub fn new(own_namespace: &str) -> Self {
        Self {
            own_namespace: own_namespace.to_owned(),
            inventory: None,
            watches: Vec::new(),
            met_by: BTreeMap::new(),
            backends: BTreeMap::new(),
            without_backends: BTreeMap::new(),
            endpoints_changed: BTreeMap::new(),
            history: History::default(),
            targets: BTreeMap::new(),
            canaries: Canaries::default(),
            verdicts: BTreeMap::new(),
            plane: None,
            attention: Attention::default(),
        }
    }

    /// Takes one observation in and says what is wanted. Only a tick assesses.
    pub fn handle(&mut self, event: Event, now: Time) -> Vec<Effect> {
        match event {
            Event::Inventory(inventory) => self.take_inventory(inventory, now),
            Event::Watches(watches) => return self.take_watches(watches),
            Event::Scraped(scrape) => return self.take_scrape(*scrape),
            Event::ScrapeFailed(failure) => return self.take_scrape_failure(failure),
            Event::Probed(report) => {
                if let Some(memory) = self.memory(&report.hook, &report.backend) {
                    memory.finished(*report);
                }
            }
            Event::ProbeOverdue(overdue) => {
                if let Some(memory) = self.memory(&overdue.hook, &overdue.backend) {
                    memory.overdue(*overdue);
                }
            }
            Event::CanaryWritten(report) => self.canaries.finished(report),
            Event::CanaryOverdue(overdue) => self.canaries.overdue(&overdue),
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
        let mut endpoints_changed = BTreeMap::new();
        self.met_by.clear();
        for hook in &inventory.hooks {
            let before = self.backends.remove(&hook.id);
            let is_new = before.is_none();
            let mut known = before.unwrap_or_default();
            let count = known.len();
            let memories: BTreeMap<Backend, BackendMemory> = hook
                .backends()
                .into_iter()
                .map(|backend| (backend.clone(), known.remove(&backend).unwrap_or_default()))
                .collect();
            let changed = !is_new && (!known.is_empty() || memories.len() != count);
            let changed = changed.then_some(now);
            if let Some(at) = changed.or_else(|| self.endpoints_changed.get(&hook.id).copied()) {
                endpoints_changed.insert(hook.id.clone(), at);
            }
            backends.insert(hook.id.clone(), memories);
            if has_no_backend(hook) {
                let since = self.without_backends.get(&hook.id).copied().unwrap_or(now);
                without_backends.insert(hook.id.clone(), since);
            }
            let met_by = CanaryTarget::ALL
                .into_iter()
                .filter(|target| meets(hook, *target, &self.own_namespace, &inventory))
                .collect();
            self.met_by.insert(hook.id.clone(), met_by);
        }
        self.backends = backends;
        self.without_backends = without_backends;
        self.endpoints_changed = endpoints_changed;
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
        let state = self.target(&target);
        state.heard_of = scrape.at;
        let recovered = state.failure.take().is_some();
        state.last_good = Some(scrape.at);
        self.history.take(scrape);
        match recovered {
            true => vec![Effect::Tell(Change::Scrape {
                target,
                failure: None,
            })],
            false => Vec::new(),
        }
    }

    fn take_scrape_failure(&mut self, failure: ScrapeFailure) -> Vec<Effect> {
        let (target, why, reason) = (failure.target.clone(), failure.why.clone(), failure.reason);
        let state = self.target(&target);
        state.heard_of = failure.at;
        let before = state.failure.replace(failure);
        match before.is_none_or(|before| before.reason != reason) {
            true => vec![Effect::Tell(Change::Scrape {
                target,
                failure: Some(why),
            })],
            false => Vec::new(),
        }
    }

    fn target(&mut self, target: &str) -> &mut TargetState {
        if self.targets.len() >= MAX_TARGETS && !self.targets.contains_key(target) {
            let stalest = self.targets.iter().min_by_key(|(_, state)| state.last_good);
            if let Some(stalest) = stalest.map(|(target, _)| target.clone()) {
                self.targets.remove(&stalest);
            }
        }
        self.targets.entry(target.to_owned()).or_default()
    }

    /// Judges everything anew.
    fn assess(&mut self, now: Time) -> Vec<Effect> {
        self.targets
            .retain(|_, target| now.since(target.heard_of) < FORGET_TARGET);
        let windows = self.history.windows(now);
        let states = self.states(now);
        let self_doubt = self.self_doubt(&states, now);
        let (verdicts, plane, write_seconds, elsewhere, problems) = {
            let plane = Plane {
                now,
                windows: &windows,
                baseline: &self.history.baseline,
                canaries: &self.canaries,
                unanswered: self.unanswered(),
            };
            let (verdicts, problems) = self.judge_all(&plane, &states, self_doubt, now);
            let elsewhere = plane.elsewhere(&verdicts);
            (
                verdicts,
                plane.writes(),
                plane.write_seconds(),
                elsewhere,
                problems,
            )
        };
        let since = self
            .plane
            .filter(|(writes, _)| *writes == plane)
            .map_or(now, |(_, since)| since);
        let control_plane = ControlPlane {
            writes: plane,
            since,
            summary: summary(plane, &verdicts, elsewhere.as_ref()),
            write_seconds,
            usual_write_seconds: self.history.baseline.write.median(),
            not_a_hook: elsewhere,
            canaries: self.canaries.views(now),
        };
        let mut effects = self.changes(&verdicts, &control_plane);
        let attention = self.attend(&verdicts, &states, &control_plane, now);
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
        self.verdicts = verdicts
            .iter()
            .map(|verdict| {
                let before = Before {
                    health: verdict.health,
                    cause: verdict.cause,
                    since: verdict.since,
                };
                (subject(verdict), before)
            })
            .collect();
        let assessment = Assessment {
            at: now,
            control_plane,
            hooks: verdicts,
            sources: self.sources(now, self_doubt),
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

    /// Why scrapes are not answered, when none is. A refusal is an answer.
    fn unanswered(&self) -> Option<&str> {
        let unanswered = |target: &TargetState| {
            target.failure.as_ref().is_some_and(|failure| {
                matches!(
                    failure.reason,
                    ScrapeFailureReason::Unreachable | ScrapeFailureReason::TimedOut
                )
            })
        };
        let first = self.targets.values().next()?.failure.as_ref()?;
        self.targets
            .values()
            .all(unanswered)
            .then_some(first.why.as_str())
    }
}

/// Something is wrong with the hook that a calm time would not have.
fn is_trouble(verdict: &Verdict) -> bool {
    !matches!(verdict.cause, None | Some(Cause::Denying))
}

/// Trouble that is new, or somebody's to act on: whatever else is measured may come from it.
fn is_news(verdict: &Verdict, now: Time) -> bool {
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

/// Whether a canary's write would be shown to the hook, as far as rules and selectors tell.
fn meets(hook: &Hook, target: CanaryTarget, own_namespace: &str, inventory: &Inventory) -> bool {
    let (group, resource, namespace) = match target {
        CanaryTarget::OwnNamespace => ("", "configmaps", own_namespace),
        CanaryTarget::KubeSystem => ("", "configmaps", "kube-system"),
        CanaryTarget::NodeLease => ("coordination.k8s.io", "leases", "kube-node-lease"),
    };
    // Where the object is missing the canary is a CREATE instead.
    hook.dry_run_safe
        && ["UPDATE", "CREATE"].into_iter().any(|operation| {
            hook.could_match(&RequestShape {
                operation,
                group,
                version: "v1",
                resource,
                namespace: Some(namespace),
                namespace_labels: inventory.namespaces.get(namespace),
                ..RequestShape::default()
            })
        })
}

#[cfg(test)]
mod tests;
