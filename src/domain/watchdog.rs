//! The core: observations go in, an assessment and requests for closer observation come out.
//!
//! [`Watchdog`] owns all memory and does no I/O. It receives every observation as an [`Event`] and, whenever a tick is
//! due, an [`Event::Tick`]; it returns [`WatchdogEffect`]s. So any incident is a list of events, and a recording replays
//! to the same verdicts.

mod alone;
mod attention;
mod auditing;
mod by_hand;
mod dead;
mod deadlines;
mod facts;
mod messages;
mod pace;
mod tampering;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::act::breaker::{Freeze, HookStanding, Judged};
use super::act::fence::{AutoBreak, BreakerView, Proof};
use super::act::leadership::{ReplicaReport, ReplicaView};
use super::cluster::hook::{Backend, HookId, HookKind, Subject};
use super::cluster::inventory::{Inventory, InventoryHealth, Problem, WatchReport};
use super::diagnose::evidence::Evidence;
use super::diagnose::plane::{LastWitnessed, PlaneEvidence};
use super::diagnose::scene::{Before, Scene};
use super::diagnose::summary;
use super::diagnose::verdict::{ControlPlane, NonHookCause, Verdict};
use super::diagnose::{diagnose, meets_starts, most_urgent_first, unlisted};
use super::observe::canary::FurtherCanary;
use super::observe::observations::{Observations, Sick};
use super::observe::probe::CertificateFacts;
use super::observe::schedule::{ProbePace, Stretch};
use super::observe::snapshot::{Scrape, ScrapeFailure, ScrapeFailureReason, WriteOperation};
use super::observe::stored::PrometheusReading;
use super::report::announcement::Announcer;
use super::report::assessment::Assessment;
use super::thresholds as t;
use super::time::Time;
use super::vocabulary::Writes;

use alone::{Alone, Lesson, elsewhere, plane, remembered, temper, temper_elsewhere};
use auditing::Auditing;
use deadlines::running_deadlines;
pub use messages::{Attention, Event, LoggedChange, WatchdogEffect};
use pace::TickPace;
use tampering::Tampering;

/// The core with its memory. See the module's documentation.
#[derive(Debug, Default)]
pub struct Watchdog {
    seen: Observations,
    tampering: Tampering,
    verdicts: BTreeMap<Subject, Before>,
    plane: Option<(Writes, Time)>,
    witnessed: LastWitnessed,
    /// The memory of the judgement without a Prometheus; `None` while the diagnosis uses none.
    alone: Option<Alone>,
    attention: Attention,
    auto_break: AutoBreak,
    fence: Option<Proof>,
    /// When the fence was last proven; `None` after a check that disproved it.
    proven: Option<Time>,
    standings: Vec<HookStanding>,
    frozen: Option<Freeze>,
    replica: Option<ReplicaReport>,
    replica_view: Option<ReplicaView>,
    announcer: Announcer,
    auditing: Auditing,
    pace: TickPace,
}

impl Watchdog {
    /// A watchdog without any observation. `own_namespace`: the namespace of hookwatch and of its own canary.
    pub fn new(own_namespace: &str) -> Self {
        let mut watchdog = Self::default();
        own_namespace.clone_into(&mut watchdog.seen.coverage.own_namespace);
        watchdog
    }

    /// Sets what the operator permits hookwatch to do about a culprit.
    #[must_use]
    pub fn wanting(self, auto_break: AutoBreak) -> Self {
        Self { auto_break, ..self }
    }

    /// Sets the canaries that are configured in addition to the built-in ones.
    #[must_use]
    pub fn with_canaries(mut self, further: Vec<FurtherCanary>) -> Self {
        self.seen.coverage.further = further;
        self
    }

    /// Takes one observation in and returns the effects. Only an [`Event::Tick`] makes verdicts and publishes them.
    pub fn handle(&mut self, event: Event, now: Time) -> Vec<WatchdogEffect> {
        self.pace.observed(&event, now);
        let seen = &mut self.seen;
        match event {
            Event::Inventory(inventory) => self.take_inventory(inventory, now),
            Event::Watches(watches) => return self.take_watches(watches),
            Event::Scraped(scrape) => return self.take_scrape(*scrape),
            Event::ScrapeFailed(failure) => return self.take_scrape_failure(failure),
            Event::Stored(reading) => return self.take_stored(*reading),
            Event::StoredFailed(failure) => return self.take_stored_failure(failure),
            Event::Readiness(report) => seen.servers.take_readiness(report),
            Event::NodeLeases(reading) => seen.servers.node_leases.take(reading),
            Event::Probed(report) => {
                seen.pooled.finished(&report);
                // A probe that comes back after its backend left the inventory only matters as a pooled connection.
                if let Some(memory) = seen.memory(&report.hook, &report.backend) {
                    memory.finished((*report).clone());
                    seen.rollouts.probed(&report);
                }
            }
            Event::ProbeOverdue(overdue) => {
                seen.pooled.overdue(&overdue);
                if let Some(memory) = seen.memory(&overdue.hook, &overdue.backend) {
                    memory.overdue(*overdue);
                }
            }
            Event::ProbePace(pace) => return self.take_pace(pace),
            Event::CanaryWritten(report) => seen.take_canary(report),
            Event::CanaryOverdue(overdue) => seen.canaries.overdue(&overdue),
            Event::Fence(proof) => return self.tell_of_breaker(|it| it.take_proof(proof, now)),
            Event::Standings(standings) => self.standings = standings,
            Event::Frozen(order) => return self.tell_of_breaker(|it| it.frozen = order),
            Event::ApiServers(read) => return self.take_api_servers(read),
            Event::Replica(report) => {
                self.replica = Some(report);
                return self.look_at_replica(now);
            }
            Event::Audited(audited) => return self.auditing.take(*audited, now),
            Event::Resumed => seen.resumed(now),
            Event::Tick => return self.assess(now),
        }
        Vec::new()
    }

    /// When the next [`Event::Tick`] is due: a fifth of a second after the last one while anything is out of the ordinary,
    /// two seconds after it otherwise. Any other event may bring it forward, never before now.
    pub const fn due(&self) -> Time {
        self.pace.due()
    }

    /// Certificates of every backend as last seen, for metrics.
    pub fn certificates(&self) -> impl Iterator<Item = (&HookId, &Backend, CertificateFacts)> {
        self.seen.certificates()
    }

    fn take_inventory(&mut self, inventory: Arc<Inventory>, now: Time) {
        self.tampering.take_inventory(&inventory, now);
        self.seen.take_inventory(inventory, now);
    }

    fn take_watches(&mut self, watches: Vec<WatchReport>) -> Vec<WatchdogEffect> {
        let known = std::mem::replace(&mut self.seen.watches, watches);
        let before = |watch: &str| {
            let known = known.iter().find(|known| known.watch == watch);
            known.map_or(InventoryHealth::Starting, |known| known.health.clone())
        };
        let changed = self.seen.watches.iter();
        let changed = changed.filter(|report| before(&report.watch) != report.health);
        let changes = changed.map(|WatchReport { watch, health, .. }| {
            let (watch, health) = (watch.clone(), health.clone());
            WatchdogEffect::Tell(LoggedChange::Inventory { watch, health })
        });
        changes.collect()
    }

    fn take_scrape(&mut self, scrape: Scrape) -> Vec<WatchdogEffect> {
        let target = scrape.target.clone();
        let state = self.seen.servers.get(&target);
        state.succeeded(scrape.at, scrape.snapshot.missing());
        let over = state.is_over(scrape.at, self.seen.history.replicas_behind(&target) > 1);
        if let Some((span, gained, usual)) = self.seen.history.take(scrape) {
            let since = span.0.before(t::after_rollout());
            let changes = &self.seen.changes;
            let moved = |(kind, webhook): &(HookKind, String)| changes.moved_since(*kind, webhook, since);
            self.seen.rollouts.count(span, (gained, usual), moved);
        }
        let failure = None;
        tell(over, || LoggedChange::Scrape { target, failure })
    }

    fn take_scrape_failure(&mut self, failure: ScrapeFailure) -> Vec<WatchdogEffect> {
        let (target, why) = (failure.target.clone(), failure.why.clone());
        if failure.reason == ScrapeFailureReason::Unreachable {
            self.seen.history.lost(&target, failure.at);
        }
        let news = self.seen.servers.get(&target).failed(failure);
        let failure = Some(why);
        tell(news, || LoggedChange::Scrape { target, failure })
    }

    /// A proven fence stays proven for [`Proof::VALID_FOR`] when a check could not be made: an API server that restarts forbids
    /// everything until it has read its roles, and that must not keep hookwatch from acting. Any other result counts at once.
    fn take_proof(&mut self, proof: Proof, now: Time) {
        let lasts = self.proven.is_some_and(|at| now.since(at) < Proof::VALID_FOR);
        if matches!(proof, Proof::Unknown(_) | Proof::NotAllowedToAct(_)) && lasts {
            return;
        }
        self.proven = matches!(proof, Proof::Proven(_)).then_some(now);
        self.fence = Some(proof);
    }

    fn take_stored(&mut self, reading: PrometheusReading) -> Vec<WatchdogEffect> {
        let target = prometheus(&reading.source);
        let over = self.seen.stored.take(reading);
        let failure = None;
        tell(over, || LoggedChange::Scrape { target, failure })
    }

    fn take_stored_failure(&mut self, failure: ScrapeFailure) -> Vec<WatchdogEffect> {
        let (target, why) = (prometheus(&failure.target), failure.why.clone());
        let news = self.seen.stored.failed(failure);
        let failure = Some(why);
        tell(news, || LoggedChange::Scrape { target, failure })
    }

    fn take_pace(&mut self, pace: ProbePace) -> Vec<WatchdogEffect> {
        let said = pace.stretch.as_ref().map(Stretch::sentences).unwrap_or_default();
        let before = std::mem::replace(&mut self.seen.pace, pace);
        tell(before.stretch.is_some() == said.is_empty(), || {
            LoggedChange::ProbePace(said)
        })
    }

    /// Applies a change to what the breaker may do, and logs what is different then.
    fn tell_of_breaker(&mut self, take: impl FnOnce(&mut Self)) -> Vec<WatchdogEffect> {
        let before = self.breaker();
        take(self);
        let breaker = self.breaker();
        tell(breaker != before, || LoggedChange::Breaker(breaker))
    }

    fn take_api_servers(&mut self, read: Result<(), String>) -> Vec<WatchdogEffect> {
        let unlisted = &mut self.seen.unlisted_api_servers;
        let before = std::mem::replace(unlisted, read.clone().err());
        tell(before.is_some() != unlisted.is_some(), || {
            LoggedChange::ApiServers(read)
        })
    }

    /// Updates the view of this replica, also at every tick: a leader that does not renew in time is none any more.
    fn look_at_replica(&mut self, now: Time) -> Vec<WatchdogEffect> {
        let Some(report) = &self.replica else {
            return Vec::new();
        };
        let before = self.replica_view.take();
        let view = ReplicaView::of(report, before.as_ref(), now);
        self.replica_view = Some(view.clone());
        // The text of a trouble may change with every attempt; only its presence counts.
        let news = before.as_ref().is_none_or(|before| {
            !before.same_leadership(&view) || before.trouble.is_some() != view.trouble.is_some()
        });
        let (from, view) = (before.map(|before| before.role), Box::new(view));
        tell(news, || LoggedChange::Replica { from, view })
    }

    fn breaker(&self) -> BreakerView {
        BreakerView {
            hooks: self.standings.clone(),
            frozen: self.frozen.as_ref().map(Freeze::sentence),
            frozen_since: self.frozen.as_ref().and_then(Freeze::since),
            ..BreakerView::new(self.auto_break, self.fence.as_ref())
        }
    }

    fn assess(&mut self, now: Time) -> Vec<WatchdogEffect> {
        self.seen.servers.forget_the_gone(now);
        let own = self.seen.history.windows(now);
        let stored = self.seen.stored_windows(&own, now);
        let sick = self.seen.servers.sick(&self.seen.history, now);
        let alone = stored.as_ref().map(|_| self.judge_alone(&own, &sick, now));
        // When the Prometheus is no longer used, the memory of the rounds without it replaces that of the rounds with it.
        let left = self.alone.take_if(|_| stored.is_none());
        let mut witnessed = left.as_ref().map_or(self.witnessed, |left| left.witnessed);
        let before = left.as_ref().map_or(&self.verdicts, |left| &left.verdicts);
        let windows = stored.as_ref().map_or(&own, |stored| &stored.windows);
        let plane = plane(&self.seen, windows, stored.is_some(), &sick, now);
        let scene = Scene::new(&self.seen, &plane, before, now);
        let mut all = judge_all(&scene);
        let mut elsewhere = elsewhere(&scene, &all);
        let judged = if let (Some(alone), Some(stored)) = (&alone, &stored) {
            temper(&mut all, &alone.verdicts, stored);
            temper_elsewhere(elsewhere.as_mut(), alone.elsewhere.as_ref(), stored);
            Arc::clone(&alone.judged)
        } else {
            let (tampering, fence) = (&mut self.tampering, self.fence.as_ref());
            for_breaker(&scene, &all, elsewhere.is_some(), tampering, fence)
        };
        let problems = self.problems(&all, now);
        let outages = self.seen.outages(&scene.states);
        let self_doubt = scene.self_doubt;
        let verdicts: Vec<Verdict> = all.into_iter().map(|(_, verdict)| verdict).collect();
        let remembered = remembered(before, &verdicts, windows, now);
        let writes = plane.settled(elsewhere.as_ref(), &verdicts, &remembered, &mut witnessed);
        let in_trouble = writes.in_trouble || elsewhere.is_some();
        let sources = self.seen.sources(self_doubt, stored.is_some(), now);
        let seen = (verdicts.as_slice(), sources.blind_to().is_some());
        let control_plane = self.control_plane(&plane, (writes.state, elsewhere), seen, &sick);
        let attention = Attention::of(&self.seen, &verdicts, &scene.states, in_trouble, now);
        let mut effects = self.changes(&verdicts, &control_plane);
        for (hook, since) in outages {
            self.seen.rollouts.outage(&hook, since, now);
        }
        effects.extend(self.auditing.request_if_due(&self.seen, now));
        effects.extend(self.look_at_replica(now));
        effects.extend(self.announce(&verdicts, now));
        let lesson = Lesson::of(&verdicts, in_trouble, now);
        let own_lesson = alone.as_ref().map_or(&lesson, |alone| &alone.lesson);
        self.teach(&lesson, own_lesson, now);
        effects.extend(self.attend(attention, now));
        (self.plane, self.witnessed) = (Some((control_plane.writes, control_plane.since)), witnessed);
        self.verdicts = remembered;
        let assessment = Assessment {
            at: now,
            control_plane,
            hooks: verdicts,
            sources,
            breaker: self.breaker(),
            replica: self.replica_view.clone(),
            audit: self.auditing.published(),
            problems,
        };
        effects.push(WatchdogEffect::Publish(Arc::new(assessment), judged));
        effects
    }

    /// Updates both baselines: that of the Prometheus by all evidence, that of hookwatch's scrapes by hookwatch's own evidence.
    fn teach(&mut self, lesson: &Lesson, own: &Lesson, now: Time) {
        if let Some((history, newest)) = self.seen.stored.pupil(now) {
            lesson.teach(history, newest);
        }
        own.teach(&mut self.seen.history, now);
    }

    /// Returns what needs closer observation, if that changed.
    fn attend(&mut self, attention: Attention, now: Time) -> Option<WatchdogEffect> {
        self.pace.judged(&attention, now);
        if attention == self.attention {
            return None;
        }
        self.attention = attention.clone();
        Some(WatchdogEffect::Attend(attention))
    }

    fn control_plane(
        &self,
        plane: &PlaneEvidence<'_>,
        (writes, elsewhere): (Writes, Option<NonHookCause>),
        (verdicts, blind): (&[Verdict], bool),
        sick: &[Sick],
    ) -> ControlPlane {
        let (now, seen) = (plane.now, &self.seen);
        let since = self.plane.filter(|(before, _)| *before == writes);
        let since = since.map_or(now, |(_, since)| since);
        let listed = |verdict: &Verdict| seen.inventory.as_ref()?.hook(&verdict.hook()?);
        let mut failing = verdicts.iter().filter(|verdict| verdict.can_hold_writes_up());
        let failing = failing.find(|verdict| listed(verdict).is_none_or(|hook| meets_starts(hook)));
        let failing = failing.map(|verdict| &*verdict.webhook);
        let symptoms = seen.servers.symptoms(&seen.history, failing, sick, now);
        ControlPlane {
            writes,
            since,
            summary: summary::of_control_plane(writes, verdicts, elsewhere.as_ref(), &symptoms, blind),
            clocks: running_deadlines(seen, plane, (writes, since), verdicts),
            write_seconds: plane.write_seconds(),
            create_seconds: plane.write_seconds_of(WriteOperation::Create),
            update_seconds: plane.write_seconds_of(WriteOperation::Update),
            usual_write_seconds: plane.baseline.write.median(),
            not_a_hook: elsewhere,
            symptoms,
            canaries: seen.canaries.views(&seen.coverage.further, now),
        }
    }

    /// The changes since the last tick that are worth a log line.
    fn changes(&self, verdicts: &[Verdict], control_plane: &ControlPlane) -> Vec<WatchdogEffect> {
        let news = verdicts.iter().filter_map(|verdict| {
            let before = self.verdicts.get(&verdict.subject());
            let from = before.map(|before| (before.health, before.cause));
            let changed = from != Some((verdict.health, verdict.cause));
            let verdict = Box::new(changed.then(|| verdict.clone())?);
            Some(WatchdogEffect::Tell(LoggedChange::Hook { from, verdict }))
        });
        let mut effects: Vec<WatchdogEffect> = news.collect();
        let changed = self.plane.map(|(writes, _)| writes) != Some(control_plane.writes);
        effects.extend(tell(changed, || {
            LoggedChange::ControlPlane(Box::new(control_plane.clone()))
        }));
        effects
    }

    /// Objects that could not be read, and refused canaries that name a webhook which the inventory does not have.
    fn problems(&self, all: &[(Evidence<'_>, Verdict)], now: Time) -> Vec<Problem> {
        let Some(inventory) = &self.seen.inventory else {
            return Vec::new();
        };
        let mut problems = inventory.all_problems();
        let named: BTreeSet<&str> = self.seen.canaries.named(now).collect();
        let is_known = |name: &str| {
            let mut judged = all.iter().map(|(_, verdict)| verdict);
            judged.any(|verdict| verdict.kind.is_admission() && *verdict.webhook == *name)
        };
        let unknown = named.into_iter().filter(|name| !is_known(name));
        problems.extend(unknown.map(|name| Problem {
            object: format!("webhook {name:?}"),
            what: "the API server refused a canary because of it, and no webhook configuration that hookwatch can \
                   read has a webhook of this name; look for one that came or went just now, or for a manifest-based \
                   one on the API server's own disk"
                .to_owned(),
        }));
        problems
    }

    fn announce(&mut self, verdicts: &[Verdict], now: Time) -> impl Iterator<Item = WatchdogEffect> {
        let leads = self.replica.as_ref().is_some_and(|report| report.leads(now));
        let inventory = self.seen.inventory.as_ref();
        let uid = |id: &_| Some(inventory?.hook(id)?.configuration_uid.clone());
        let said = self.announcer.look(verdicts, uid, leads, now);
        said.into_iter()
            .map(|said| WatchdogEffect::Announce(Box::new(said)))
    }
}

/// The name of a Prometheus in place of an API server's address.
fn prometheus(source: &str) -> String {
    format!("Prometheus {source}")
}

/// Judges every hook that is listed or that metrics name, the most urgent first.
fn judge_all<'a>(scene: &'a Scene<'a>) -> Vec<(Evidence<'a>, Verdict)> {
    let listed = scene.seen.hooks();
    let listed = listed.map(|hook| (hook.id.kind, &*hook.id.webhook, Some(hook)));
    let unlisted = unlisted(scene).into_iter().map(|(kind, name)| (kind, name, None));
    let all = listed.chain(unlisted);
    let mut all = diagnose(all.map(|(kind, name, hook)| Evidence::of(scene, kind, name, hook)));
    all.sort_by(|(_, a), (_, b)| most_urgent_first(a, b));
    by_hand::advise(&mut all);
    all
}

/// The breaker's facts of a round. Its verdicts first go into `tampering`, on which the facts depend.
fn for_breaker(
    scene: &Scene<'_>,
    all: &[(Evidence<'_>, Verdict)],
    elsewhere: bool,
    tampering: &mut Tampering,
    fence: Option<&Proof>,
) -> Arc<Judged> {
    tampering.take_verdicts(all, scene.now);
    Arc::new(facts::judged(scene, all, elsewhere, tampering, fence))
}

/// One line for the log, if there is `news`.
fn tell(news: bool, change: impl FnOnce() -> LoggedChange) -> Vec<WatchdogEffect> {
    news.then(|| WatchdogEffect::Tell(change())).into_iter().collect()
}

#[cfg(test)]
mod tests;
