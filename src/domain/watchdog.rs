//! The core: observations go in, an assessment and the wish to look closer come out.
//!
//! [`Watchdog`] owns all memory and does nothing by itself. It is handed every observation as an [`Event`] and,
//! whenever one is due, a [`Event::Tick`]; what it wants done comes back as [`Effect`]s. So any incident is a
//! list of events, and a recording replays to the same verdicts.

mod attention;
mod auditing;
mod dead;
mod facts;
mod messages;
mod pace;
mod tampering;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::announcement::Announcer;
use super::breaker::HookStanding;
use super::canary::FurtherCanary;
use super::clocks;
use super::diagnose::evidence::Evidence;
use super::diagnose::plane::{Plane, Witnessed, is_culprit, summary};
use super::diagnose::scene::{Before, Scene, Subject};
use super::diagnose::{LOST_PATH, diagnose, most_urgent_first, unlisted};
use super::fence::{AutoBreak, Breaker, Proof};
use super::history::Windows;
use super::hook::{Backend, HookId, HookKind};
use super::inventory::{Inventory, InventoryHealth, Problem, WatchReport};
use super::leadership::{ReplicaReport, ReplicaView};
use super::observations::{Observations, Sick};
use super::probe::CertificateFacts;
use super::schedule::{ProbePace, Stretch};
use super::snapshot::{Operation, Scrape, ScrapeFailure};
use super::thresholds as t;
use super::time::Time;
use super::verdict::{Assessment, ControlPlane, Elsewhere, Verdict};
use super::vocabulary::{Bypass, Health, NotAHook, Writes};

use attention::{is_news, is_trouble};
use auditing::Auditing;
use facts::Court;
pub use messages::{Attention, Change, Effect, Event};
use pace::Pace;
use tampering::Tampering;

/// The core's memory. See the module's head.
#[derive(Debug, Default)]
pub struct Watchdog {
    seen: Observations,
    tampering: Tampering,
    verdicts: BTreeMap<Subject, Before>,
    plane: Option<(Writes, Time)>,
    witnessed: Witnessed,
    attention: Attention,
    auto_break: AutoBreak,
    fence: Option<Proof>,
    standings: Vec<HookStanding>,
    replica: Option<ReplicaReport>,
    replica_view: Option<ReplicaView>,
    announcer: Announcer,
    auditing: Auditing,
    pace: Pace,
}

impl Watchdog {
    /// A watchdog that has seen nothing. `own_namespace` is where hookwatch's own canary lives.
    pub fn new(own_namespace: &str) -> Self {
        let mut watchdog = Self::default();
        own_namespace.clone_into(&mut watchdog.seen.coverage.own_namespace);
        watchdog
    }

    /// The same with what its operator wants done about a culprit.
    #[must_use]
    pub fn wanting(self, auto_break: AutoBreak) -> Self {
        Self { auto_break, ..self }
    }

    /// The same with what canaries are written beside those that always are.
    #[must_use]
    pub fn with_canaries(mut self, further: Vec<FurtherCanary>) -> Self {
        self.seen.coverage.further = further;
        self
    }

    /// Takes one observation in and says what is wanted. Only a tick assesses.
    pub fn handle(&mut self, event: Event, now: Time) -> Vec<Effect> {
        self.pace.observed(&event, now);
        let seen = &mut self.seen;
        match event {
            Event::Inventory(inventory) => self.take_inventory(inventory, now),
            Event::Watches(watches) => return self.take_watches(watches),
            Event::Scraped(scrape) => return self.take_scrape(*scrape),
            Event::ScrapeFailed(failure) => return self.take_scrape_failure(failure),
            Event::Readiness(report) => seen.servers.take_readiness(report),
            Event::NodeLeases(reading) => seen.servers.node_leases.take(reading),
            Event::Probed(report) => {
                seen.kept.finished(&report);
                // A probe that comes back after its backend left the inventory says nothing of any.
                if let Some(memory) = seen.memory(&report.hook, &report.backend) {
                    memory.finished((*report).clone());
                    seen.rollouts.probed(&report);
                }
            }
            Event::ProbeOverdue(overdue) => {
                seen.kept.overdue(&overdue);
                if let Some(memory) = seen.memory(&overdue.hook, &overdue.backend) {
                    memory.overdue(*overdue);
                }
            }
            Event::ProbePace(pace) => return self.take_pace(pace),
            Event::CanaryWritten(report) => seen.take_canary(report),
            Event::CanaryOverdue(overdue) => seen.canaries.overdue(&overdue),
            Event::Fence(proof) => return self.take_fence(proof),
            Event::Standings(standings) => self.standings = standings,
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
    /// a second after it otherwise. Any other event may bring it forward, never before now.
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

    fn take_watches(&mut self, watches: Vec<WatchReport>) -> Vec<Effect> {
        let known = std::mem::replace(&mut self.seen.watches, watches);
        let before = |watch: &str| {
            let known = known.iter().find(|known| known.watch == watch);
            known.map_or(InventoryHealth::Starting, |known| known.health.clone())
        };
        let changed = self.seen.watches.iter();
        let changed = changed.filter(|report| before(&report.watch) != report.health);
        let changes = changed.map(|WatchReport { watch, health, .. }| {
            let (watch, health) = (watch.clone(), health.clone());
            Effect::Tell(Change::Inventory { watch, health })
        });
        changes.collect()
    }

    fn take_scrape(&mut self, scrape: Scrape) -> Vec<Effect> {
        let target = scrape.target.clone();
        let state = self.seen.servers.get(&target);
        state.succeeded(scrape.at, scrape.snapshot.missing());
        let over = state.is_over(scrape.at, self.seen.history.replicas_behind(&target) > 1);
        if let Some((span, gained, usual)) = self.seen.history.take(scrape) {
            let changed = self.seen.changes.moved_since(span.0.before(t::after_rollout()));
            let changed = |(kind, webhook): &(HookKind, String)| changed.contains(&(*kind, webhook));
            self.seen.rollouts.count(span, (gained, usual), changed);
        }
        let failure = None;
        tell(over, || Change::Scrape { target, failure })
    }

    fn take_scrape_failure(&mut self, failure: ScrapeFailure) -> Vec<Effect> {
        let (target, why) = (failure.target.clone(), failure.why.clone());
        let news = self.seen.servers.get(&target).failed(failure);
        let failure = Some(why);
        tell(news, || Change::Scrape { target, failure })
    }

    fn take_pace(&mut self, pace: ProbePace) -> Vec<Effect> {
        let said = pace.stretch.as_ref().map(Stretch::sentences).unwrap_or_default();
        let before = std::mem::replace(&mut self.seen.pace, pace);
        tell(before.stretch.is_some() == said.is_empty(), || {
            Change::ProbePace(said)
        })
    }

    fn take_fence(&mut self, proof: Proof) -> Vec<Effect> {
        let before = self.breaker();
        self.fence = Some(proof);
        let breaker = self.breaker();
        tell(breaker != before, || Change::Breaker(breaker))
    }

    fn take_api_servers(&mut self, read: Result<(), String>) -> Vec<Effect> {
        let unlisted = &mut self.seen.unlisted_api_servers;
        let before = std::mem::replace(unlisted, read.clone().err());
        tell(before.is_some() != unlisted.is_some(), || {
            Change::ApiServers(read)
        })
    }

    /// Also time alone changes what a replica is: a leader that does not renew is none.
    fn look_at_replica(&mut self, now: Time) -> Vec<Effect> {
        let Some(report) = &self.replica else {
            return Vec::new();
        };
        let before = self.replica_view.take();
        let view = ReplicaView::of(report, before.as_ref(), now);
        self.replica_view = Some(view.clone());
        // The words of a trouble may change with every attempt; that there is one does not.
        let news = before.as_ref().is_none_or(|before| {
            !before.same_place(&view) || before.trouble.is_some() != view.trouble.is_some()
        });
        let (from, view) = (before.map(|before| before.role), Box::new(view));
        tell(news, || Change::Replica { from, view })
    }

    fn breaker(&self) -> Breaker {
        Breaker {
            hooks: self.standings.clone(),
            ..Breaker::new(self.auto_break, self.fence.as_ref())
        }
    }

    /// Judges everything anew.
    fn assess(&mut self, now: Time) -> Vec<Effect> {
        self.seen.servers.forget_the_gone(now);
        let windows = self.seen.history.windows(now);
        let history = &self.seen.history;
        let sick = self.seen.servers.sick(history, now);
        let plane = Plane {
            now,
            windows: &windows,
            baseline: &history.baseline,
            canaries: &self.seen.canaries,
            unanswered: self.seen.servers.unanswered(history, now),
            sick: sick.first().map(|sick| sick.sentence(now)),
        };
        let scene = Scene::new(&self.seen, &plane, &self.verdicts, now);
        let all = judge_all(&scene);
        let hook_named = all.iter().any(|(_, verdict)| is_culprit(verdict));
        let elsewhere = scene.elsewhere.clone();
        let elsewhere = elsewhere.filter(|found| !hook_named || found.cause != NotAHook::Unexplained);
        self.tampering.take_verdicts(&all, now);
        let court = Court::new(&scene, &all, elsewhere.is_some(), &self.tampering);
        let judged = Arc::new(court.judged(self.fence.as_ref()));
        let problems = self.problems(&all, now);
        let outages = self.seen.outages(&scene.states);
        let self_doubt = scene.self_doubt;
        let verdicts: Vec<Verdict> = all.into_iter().map(|(_, verdict)| verdict).collect();
        let mut witnessed = self.witnessed;
        let writes = plane.writes(elsewhere.as_ref(), &witnessed);
        let writes = plane.settled(writes, elsewhere.as_ref(), &mut witnessed);
        let control_plane = self.control_plane(&plane, (writes, elsewhere), &verdicts, &sick);
        let attention = Attention::of(&self.seen, &verdicts, &scene.states, &control_plane, now);
        let mut effects = self.changes(&verdicts, &control_plane);
        for (hook, since) in outages {
            self.seen.rollouts.outage(&hook, since, now);
        }
        effects.extend(self.auditing.wish(&self.seen, now));
        effects.extend(self.look_at_replica(now));
        effects.extend(self.announce(&verdicts, now));
        self.learn(&verdicts, &control_plane, now);
        self.pace.judged(&attention, now);
        if attention != self.attention {
            self.attention = attention.clone();
            effects.push(Effect::Attend(attention));
        }
        (self.plane, self.witnessed) = (Some((control_plane.writes, control_plane.since)), witnessed);
        self.remember(&verdicts, &windows, now);
        let assessment = Assessment {
            at: now,
            control_plane,
            hooks: verdicts,
            sources: self.seen.sources(self_doubt, now),
            breaker: self.breaker(),
            replica: self.replica_view.clone(),
            audit: self.auditing.known(),
            problems,
        };
        effects.push(Effect::Publish(Arc::new(assessment), judged));
        effects
    }

    fn control_plane(
        &self,
        plane: &Plane<'_>,
        (writes, elsewhere): (Writes, Option<Elsewhere>),
        verdicts: &[Verdict],
        sick: &[Sick],
    ) -> ControlPlane {
        let (now, seen) = (plane.now, &self.seen);
        let since = self.plane.filter(|(before, _)| *before == writes);
        let since = since.map_or(now, |(_, since)| since);
        let symptoms = seen.servers.symptoms(&seen.history, verdicts, sick, now);
        let clocks = (writes == Writes::Blocked).then(|| clocks::running(&seen.canaries, since, now));
        ControlPlane {
            writes,
            since,
            summary: summary(writes, verdicts, elsewhere.as_ref(), &symptoms),
            clocks: clocks.unwrap_or_default(),
            write_seconds: plane.write_seconds(),
            create_seconds: plane.write_seconds_of(Operation::Create),
            update_seconds: plane.write_seconds_of(Operation::Update),
            usual_write_seconds: plane.baseline.write.median(),
            not_a_hook: elsewhere,
            symptoms,
            canaries: seen.canaries.views(&seen.coverage.further, now),
        }
    }

    fn remember(&mut self, verdicts: &[Verdict], windows: &Windows, now: Time) {
        let newest = windows.newest.as_ref().map_or(now, |newest| newest.from);
        let before = verdicts.iter().map(|verdict| {
            let subject = verdict.subject();
            let known = self.verdicts.get(&subject);
            let named = known.is_some_and(|known| known.named);
            // Of a hook that is bypassed no call says that it is well; of a shielded one those that it is still asked about.
            let asked = verdict.bypass.is_none_or(|bypass| bypass == Bypass::Shield);
            let is_well = verdict.health == Health::Healthy && asked;
            let is_cleared = named && is_well;
            let cleared = known.and_then(|known| known.cleared);
            let known = known.filter(|known| known.cause == verdict.cause);
            let before = Before {
                health: verdict.health,
                cause: verdict.cause,
                since: verdict.since,
                whole: known.is_some_and(|known| known.whole) || verdict.no_backend_answers(),
                named: verdict.health == Health::Failing || named && !is_cleared,
                cleared: if is_cleared { Some(newest) } else { cleared },
                on_lost_path: verdict.incident == LOST_PATH,
            };
            (subject, before)
        });
        self.verdicts = before.collect();
    }

    /// Learns what is usual from calm times.
    fn learn(&mut self, verdicts: &[Verdict], plane: &ControlPlane, now: Time) {
        let calm = !matches!(plane.writes, Writes::Blocked | Writes::Delayed)
            && plane.not_a_hook.is_none()
            && !verdicts.iter().any(|verdict| is_news(verdict, now));
        if !calm {
            self.seen.history.doubt();
            return;
        }
        // What is out of the usual for long is left alone; the rest goes on being learnt.
        let troubled = verdicts.iter().filter(|verdict| is_trouble(verdict));
        let troubled = troubled.map(|verdict| (verdict.kind, verdict.webhook.to_string()));
        let troubled: BTreeSet<(HookKind, String)> = troubled.collect();
        self.seen.history.learn(now, |key| troubled.contains(key));
    }

    /// What changed since the last tick, as far as a person would want to read about it.
    fn changes(&self, verdicts: &[Verdict], control_plane: &ControlPlane) -> Vec<Effect> {
        let news = verdicts.iter().filter_map(|verdict| {
            let before = self.verdicts.get(&verdict.subject());
            let from = before.map(|before| (before.health, before.cause));
            let changed = from != Some((verdict.health, verdict.cause));
            let verdict = Box::new(changed.then(|| verdict.clone())?);
            Some(Effect::Tell(Change::Hook { from, verdict }))
        });
        let mut effects: Vec<Effect> = news.collect();
        let changed = self.plane.map(|(writes, _)| writes) != Some(control_plane.writes);
        effects.extend(tell(changed, || {
            Change::ControlPlane(Box::new(control_plane.clone()))
        }));
        effects
    }

    /// Objects that could not be made sense of, and refusals in the name of a hook that the inventory does not have.
    fn problems(&self, all: &[(Evidence<'_>, Verdict)], now: Time) -> Vec<Problem> {
        let Some(inventory) = &self.seen.inventory else {
            return Vec::new();
        };
        let mut problems = inventory.all_problems();
        let named: BTreeSet<&str> = self.seen.canaries.named(now).collect();
        let known = all.iter().filter(|(_, verdict)| verdict.kind.is_admission());
        let known: BTreeSet<&str> = known.map(|(_, verdict)| &*verdict.webhook).collect();
        problems.extend(named.difference(&known).map(|name| Problem {
            object: format!("webhook {name:?}"),
            what: "the API server refused a canary because of it, and no webhook configuration that hookwatch can \
                   read has a hook of this name; look for one that came or went just now, or for a manifest-based \
                   one on the API server's own disk"
                .to_owned(),
        }));
        problems
    }

    fn announce(&mut self, verdicts: &[Verdict], now: Time) -> impl Iterator<Item = Effect> {
        let leads = self.replica.as_ref().is_some_and(|report| report.leads(now));
        let inventory = self.seen.inventory.as_ref();
        let uid = |id: &_| {
            let hook = inventory?.hooks.iter().find(|hook| hook.id == *id)?;
            Some(hook.configuration_uid.clone())
        };
        let said = self.announcer.look(verdicts, uid, leads, now);
        said.into_iter().map(|said| Effect::Announce(Box::new(said)))
    }
}

/// Judges every hook that is listed or that metrics name, the most urgent first.
fn judge_all<'a>(scene: &'a Scene<'a>) -> Vec<(Evidence<'a>, Verdict)> {
    let listed = scene.seen.hooks();
    let listed = listed.map(|hook| (hook.id.kind, &*hook.id.webhook, Some(hook)));
    let unlisted = unlisted(scene).into_iter().map(|(kind, name)| (kind, name, None));
    let all = listed.chain(unlisted);
    let mut all = diagnose(all.map(|(kind, name, hook)| Evidence::of(scene, kind, name, hook)));
    all.sort_by(|(_, a), (_, b)| most_urgent_first(a, b));
    all
}

/// One change, if there is one.
fn tell(news: bool, change: impl FnOnce() -> Change) -> Vec<Effect> {
    news.then(|| Effect::Tell(change())).into_iter().collect()
}

#[cfg(test)]
mod tests;
