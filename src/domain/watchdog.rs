//! The core: observations go in, an assessment and the wish to look closer come out.
//!
//! [`Watchdog`] owns all memory and does nothing by itself. It is handed every observation as an [`Event`] and,
//! at least once a second, a [`Event::Tick`]; what it wants done comes back as [`Effect`]s. So any incident is a
//! list of events, and a recording replays to the same verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::canaries::Canaries;
use super::canary::{CanaryOutcome, CanaryOverdue, CanaryReport, CanaryTarget};
use super::history::History;
use super::hook::{Backend, Hook, HookId, HookKind, ServiceState, Target};
use super::inventory::{Inventory, InventoryHealth, Problem, WatchReport};
use super::judge::{Case, Counted, judge};
use super::matching::RequestShape;
use super::plane::{Plane, summary};
use super::probe::{CertificateFacts, ProbeOverdue, ProbeReport};
use super::probing::{BackendMemory, BackendState};
use super::snapshot::{Scrape, ScrapeFailure};
use super::time::Time;
use super::verdict::{Assessment, Cause, ControlPlane, Health, ScrapeView, Sources, Verdict, Writes};

/// Hooks named by metrics alone that are reported at most.
const MAX_UNLISTED: usize = 200;
/// Scrape targets that are remembered at most.
const MAX_TARGETS: usize = 64;

/// Everything that can be observed.
#[derive(Debug, Clone)]
pub enum Event {
    /// The hooks and what is behind them, as a whole.
    Inventory(Arc<Inventory>),
    /// How each watch of the inventory is doing; replaces what was known of all.
    Watches(Vec<WatchReport>),
    /// A replica's metrics.
    Scraped(Box<Scrape>),
    /// A scrape that failed.
    ScrapeFailed(ScrapeFailure),
    /// A probe that came back.
    Probed(Box<ProbeReport>),
    /// A probe that is late.
    ProbeOverdue(Box<ProbeOverdue>),
    /// A canary that came back.
    CanaryWritten(CanaryReport),
    /// A canary that is late.
    CanaryOverdue(CanaryOverdue),
    /// Time has passed.
    Tick,
}

/// Everything the core can want.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// This is how things are.
    Publish(Arc<Assessment>),
    /// Something changed that a person would want to read about.
    Tell(Change),
    /// Where to look more closely; replaces the wish before it.
    Attend(Attention),
}

/// Where to look more closely than usual.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attention {
    /// Something is odd: scrape and write canaries more often.
    pub everywhere: bool,
    /// Probe these hooks more often.
    pub hooks: BTreeSet<HookId>,
}

/// A change worth a line in the log.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A hook's health or cause changed.
    Hook {
        /// The verdict before; `None` for a hook seen for the first time.
        from: Option<(Health, Option<Cause>)>,
        /// The verdict now.
        verdict: Box<Verdict>,
    },
    /// The control plane's state changed.
    ControlPlane(Box<ControlPlane>),
    /// A watch of the inventory changed its state.
    Inventory {
        /// What is watched.
        watch: String,
        /// How it is now.
        health: InventoryHealth,
    },
    /// Scrapes of a target began to fail or to succeed again.
    Scrape {
        /// The address.
        target: String,
        /// The failure; `None` when it succeeds again.
        failure: Option<String>,
    },
}

/// Who a verdict is about: kind, configuration where known, webhook.
type Subject = (HookKind, Option<Arc<str>>, Arc<str>);

#[derive(Debug, Clone, Default)]
struct TargetState {
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
    history: History,
    targets: BTreeMap<String, TargetState>,
    canaries: Canaries,
    verdicts: BTreeMap<Subject, Verdict>,
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
            let met_by = CanaryTarget::ALL
                .into_iter()
                .filter(|target| meets(hook, *target, &self.own_namespace, &inventory))
                .collect();
            self.met_by.insert(hook.id.clone(), met_by);
        }
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
        let state = self.target(&target);
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
        let before = self.target(&target).failure.replace(failure);
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
        let (recent, newest) = (self.history.recent(now), self.history.newest(now));
        let states = self.states(now);
        let self_doubt = self.self_doubt(&states, now);
        let (verdicts, plane, write_seconds, elsewhere, problems) = {
            let plane = Plane {
                now,
                recent: recent.as_ref(),
                newest: newest.as_ref(),
                baseline: &self.history.baseline,
                canaries: &self.canaries,
                scrapes_fail: self.scrapes_fail(),
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
            && !verdicts.iter().any(is_trouble);
        if calm {
            self.history.learn(now);
        }
        if attention != self.attention {
            self.attention = attention.clone();
            effects.push(Effect::Attend(attention));
        }
        self.plane = Some((plane, since));
        self.verdicts = verdicts
            .iter()
            .map(|verdict| (subject(verdict), verdict.clone()))
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

    /// Every backend of every hook fails, and nothing that came back since from the API server shows that our
    /// own network is fine.
    fn self_doubt(&self, states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>, now: Time) -> bool {
        let mut first_dead = None;
        for (_, state) in states.values().flatten() {
            match state {
                BackendState::Dead(dead) => {
                    first_dead = Some(first_dead.map_or(dead.since, |first: Time| first.min(dead.since)));
                }
                BackendState::Untried { .. } => {}
                _ => return false,
            }
        }
        let Some(first_dead) = first_dead else {
            return false;
        };
        let scraped = self
            .targets
            .values()
            .any(|target| target.last_good.is_some_and(|at| at > first_dead));
        let answered = self.canaries.iter().any(|(_, memory)| {
            memory.latest(now).is_some_and(|report| {
                report.started + report.took > first_dead
                    && !matches!(
                        report.outcome,
                        CanaryOutcome::TimedOut | CanaryOutcome::Unreachable { .. }
                    )
            })
        });
        !(scraped || answered)
    }

    fn scrapes_fail(&self) -> bool {
        !self.targets.is_empty() && self.targets.values().all(|target| target.failure.is_some())
    }

    fn judge_all(
        &self,
        plane: &Plane<'_>,
        states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>,
        self_doubt: bool,
        now: Time,
    ) -> (Vec<Verdict>, Vec<Problem>) {
        let mut problems = self
            .inventory
            .as_ref()
            .map_or_else(Vec::new, |inventory| inventory.problems.clone());
        let hooks: &[Arc<Hook>] = self.inventory.as_ref().map_or(&[], |inventory| &inventory.hooks);
        let mut listed: BTreeMap<(HookKind, &str), usize> = BTreeMap::new();
        for hook in hooks {
            *listed.entry((hook.id.kind, &hook.id.webhook)).or_default() += 1;
        }
        let case = |kind, webhook: &str, hook: Option<&Hook>| -> Verdict {
            let key = (kind, webhook.to_owned());
            let met_by = hook
                .and_then(|hook| self.met_by.get(&hook.id))
                .map_or(&[][..], Vec::as_slice);
            let memories = || {
                self.canaries
                    .iter()
                    .filter(|(target, _)| met_by.contains(target))
                    .map(|(_, memory)| memory)
            };
            let case = Case {
                now,
                kind,
                webhook,
                hook,
                backends: hook
                    .and_then(|hook| states.get(&hook.id))
                    .cloned()
                    .unwrap_or_default(),
                recent: plane.recent.and_then(|window| Counted::of(&key, window)),
                newest: plane.newest.and_then(|window| Counted::of(&key, window)),
                usual: plane.baseline.hook(&key),
                excess_share: plane.excess_share(&key),
                ambiguous: listed.get(&(kind, webhook)).is_some_and(|count| *count > 1),
                canaries: &self.canaries,
                canary_late: memories()
                    .filter_map(|memory| memory.overdue_for(now))
                    .map(|(_, waiting)| waiting)
                    .filter(|waiting| *waiting >= Duration::from_secs(2))
                    .max(),
                canary_slow: memories().filter_map(|memory| memory.slow(now)).max(),
                stalled: plane.stalled(),
                without_backends_since: hook.and_then(|hook| self.without_backends.get(&hook.id)).copied(),
                self_doubt,
            };
            let subject = (
                kind,
                hook.map(|hook| Arc::clone(&hook.id.configuration)),
                Arc::from(webhook),
            );
            judge(&case, self.verdicts.get(&subject))
        };
        let mut verdicts: Vec<Verdict> = hooks
            .iter()
            .map(|hook| case(hook.id.kind, &hook.id.webhook, Some(hook.as_ref())))
            .collect();
        let unlisted = plane.recent.into_iter().flat_map(|window| &window.gained.hooks);
        let unlisted = unlisted.filter(|((kind, name), series)| {
            (series.calls.count >= 1.0 || series.failed() >= 1.0)
                && !listed.contains_key(&(*kind, name.as_str()))
        });
        for ((kind, name), _) in unlisted.take(MAX_UNLISTED) {
            verdicts.push(case(*kind, name, None));
        }
        let named: BTreeSet<&str> = self.canaries.named(now).collect();
        for name in named {
            if self.inventory.is_some() && !verdicts.iter().any(|verdict| &*verdict.webhook == name) {
                problems.push(Problem {
                    object: format!("webhook {name:?}"),
                    what: "the API server refused a canary because of it, and no webhook configuration that \
                           hookwatch can read has a hook of this name; look for one that came or went just now, \
                           or for a manifest-based one on the API server's own disk"
                        .to_owned(),
                });
            }
        }
        verdicts.sort_by(|a, b| {
            let order = |verdict: &Verdict| match verdict.health {
                Health::Failing => 0,
                Health::Suspect => 1,
                Health::Unknown => 2,
                Health::Healthy => 3,
            };
            order(a)
                .cmp(&order(b))
                .then(b.confidence.total_cmp(&a.confidence))
                .then_with(|| subject(a).cmp(&subject(b)))
        });
        (verdicts, problems)
    }

    fn changes(&self, verdicts: &[Verdict], control_plane: &ControlPlane) -> Vec<Effect> {
        let mut effects = Vec::new();
        for verdict in verdicts {
            let before = self
                .verdicts
                .get(&subject(verdict))
                .map(|before| (before.health, before.cause));
            if before != Some((verdict.health, verdict.cause)) {
                effects.push(Effect::Tell(Change::Hook {
                    from: before,
                    verdict: Box::new(verdict.clone()),
                }));
            }
        }
        if self
            .plane
            .is_none_or(|(writes, _)| writes != control_plane.writes)
        {
            effects.push(Effect::Tell(Change::ControlPlane(Box::new(
                control_plane.clone(),
            ))));
        }
        effects
    }

    /// Looks closer wherever something is odd, and everywhere until there is a baseline.
    fn attend(
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
            if let Some(configuration) = &verdict.configuration {
                hooks.insert(HookId {
                    kind: verdict.kind,
                    configuration: Arc::clone(configuration),
                    webhook: Arc::clone(&verdict.webhook),
                });
            }
        }
        // A canary that is late or slow speaks of one of the hooks it meets.
        for (target, memory) in self.canaries.iter() {
            if memory.overdue_for(now).is_some() || memory.slow(now).is_some() {
                let met = self.met_by.iter().filter(|(_, met_by)| met_by.contains(&target));
                hooks.extend(met.map(|(hook, _)| hook.clone()));
            }
        }
        let canary_is_odd = self.canaries.iter().any(|(_, memory)| {
            memory.overdue_for(now).is_some()
                || memory.slow(now).is_some()
                || memory.latest(now).is_some_and(|report| {
                    matches!(
                        report.outcome,
                        CanaryOutcome::CallFailed(_)
                            | CanaryOutcome::TimedOut
                            | CanaryOutcome::Unreachable { .. }
                            | CanaryOutcome::Refused { .. }
                    )
                })
        });
        let everywhere = !hooks.is_empty()
            || canary_is_odd
            || control_plane.writes == Writes::Blocked
            || control_plane.writes == Writes::Delayed
            || control_plane.not_a_hook.is_some()
            || self.history.baseline.write_rate.median().is_none();
        Attention { everywhere, hooks }
    }

    fn sources(&self, now: Time, self_doubt: bool) -> Sources {
        // A watch that is refused delivers nothing that could grow old.
        let age = self
            .watches
            .iter()
            .filter(|report| !matches!(report.health, InventoryHealth::Limited { .. }))
            .map(|report| report.known_good.map(|good| now.since(good)))
            .try_fold(Duration::ZERO, |age, watch| watch.map(|watch| age.max(watch)));
        Sources {
            inventory_age_seconds: self.inventory.as_ref().and(age).map(|age| age.as_secs_f64()),
            inventory_trouble: self
                .watches
                .iter()
                .filter_map(|report| match &report.health {
                    InventoryHealth::Current => None,
                    InventoryHealth::Starting => Some(format!("{}: nothing was read yet", report.watch)),
                    InventoryHealth::Stale { why } | InventoryHealth::Limited { why } => {
                        Some(format!("{}: {why}", report.watch))
                    }
                })
                .collect(),
            scrapes: self
                .targets
                .iter()
                .map(|(target, state)| ScrapeView {
                    target: target.clone(),
                    replicas: self.history.replicas_behind(target),
                    age_seconds: state.last_good.map(|at| now.since(at).as_secs_f64()),
                    failure: state.failure.as_ref().map(|failure| failure.why.clone()),
                })
                .collect(),
            self_doubt,
        }
    }
}

/// Something is wrong with the hook that a calm time would not have.
fn is_trouble(verdict: &Verdict) -> bool {
    !matches!(verdict.cause, None | Some(Cause::Denying))
}

fn is_unreached_cluster_ip(backend: &Backend, state: &BackendState) -> bool {
    backend.path == super::hook::BackendPath::ClusterIp
        && !matches!(state, BackendState::Dead(dead) if dead.was_alive)
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
