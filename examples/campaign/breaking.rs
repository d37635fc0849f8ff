//! Runs the breaker on the model: applies its changes to the model's webhook configurations, so that bypassed webhooks
//! are no longer called, and reports the outcomes back to it.

mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clap::ValueEnum;
use hookwatch::domain::act::breaker::action::NoticeKind;
use hookwatch::domain::act::breaker::{
    Action, Breaker, BreakerSettings, HeldBack, Judged, Observation, Pattern, Policy, PolicyRule, RuleMatch,
    Rung, To,
};
use hookwatch::domain::act::fence::AutoBreak;
use hookwatch::domain::cluster::hook::HookId;
use hookwatch::domain::vocabulary::Cause;

use crate::model::cluster::{Cluster, Release};
use crate::model::inventory::time;
use crate::model::world::World;
use crate::model::{At, SECOND, seconds};
use crate::random::Random;

use store::{Served, Store};

/// Interval at which the API servers are asked which configurations they have: in calm times, and during an incident.
const CALM: At = 10 * SECOND;
const AT_WORK: At = SECOND / 2;
/// A webhook is observed for this long after the last reason to observe it.
const LINGER: At = 60 * SECOND;
/// An API server that has not answered for this long counts as gone.
const ANSWERS: At = 25 * SECOND;
/// Time after which a request fails when no API server serves.
const UNACCEPTED: At = SECOND;

/// The highest rung that the breaker may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Farthest {
    /// Shield only: exempt the writes that keep the control plane alive
    Shield,
    /// Shield, and skip the webhook where a shield does not restore writes
    Skip,
}

impl Farthest {
    /// A policy that permits these rungs for every webhook. It has no limits on number and rate, which could hide a mistake
    /// of the breaker. With `Skip`, dead webhooks that fail open may be skipped as well.
    fn policy(self, cluster: &Cluster) -> Policy {
        let rungs: &[Rung] = match self {
            Self::Shield => &[Rung::Shield],
            Self::Skip => &[Rung::Shield, Rung::Skip],
        };
        let names = cluster.hooks.iter().map(|hook| &*hook.id.configuration);
        let named = PolicyRule {
            matches: RuleMatch {
                configurations: names.filter_map(|name| Pattern::parse(name).ok()).collect(),
                ..RuleMatch::default()
            },
            rungs: rungs.iter().copied().collect(),
            skip_while_dead: self != Self::Shield,
            ..PolicyRule::fallback()
        };
        Policy {
            rules: vec![named],
            most_shielded: usize::MAX,
            most_skipped: usize::MAX,
            rate: usize::MAX,
            ..Policy::default()
        }
    }
}

/// A change that the breaker made to a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Act {
    pub at: At,
    pub hook: usize,
    pub to: To,
    /// The cause of the webhook's harm to writes at that time, if there was one.
    pub cause: Option<Cause>,
}

/// A notice of the breaker about a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    pub at: At,
    pub hook: usize,
    pub news: NoticeKind,
}

/// What the breaker did in one incident.
#[derive(Debug, Default)]
pub struct Broken {
    pub acts: Vec<Act>,
    pub said: Vec<Said>,
    /// Webhooks that were still bypassed or on probation in the end.
    pub left: Vec<usize>,
}

/// A planned step.
enum Due {
    /// The API server receives a request.
    Serve(Action),
    /// The breaker receives an answer.
    Answer(Observation),
    /// The API servers are asked which configurations they have.
    Look,
}

/// The breaker and its connection to the model.
pub struct Breaking {
    cluster: Arc<Cluster>,
    breaker: Breaker,
    store: Store,
    random: Random,
    due: BTreeMap<(At, u64), Due>,
    order: u64,
    index: BTreeMap<HookId, usize>,
    causes: BTreeMap<HookId, Cause>,
    followed: BTreeMap<HookId, At>,
    answered: BTreeMap<Arc<str>, At>,
    told: BTreeSet<Arc<str>>,
    looked: Option<At>,
    broken: Broken,
}

impl Breaking {
    pub fn new(cluster: Arc<Cluster>, farthest: Farthest, random: Random, begin: At) -> Self {
        let settings = BreakerSettings::new("campaign", AutoBreak::On, farthest.policy(&cluster));
        let hooks = cluster.hooks.iter().enumerate();
        let mut breaking = Self {
            breaker: Breaker::new(settings),
            store: Store::new(&cluster),
            random,
            due: BTreeMap::new(),
            order: 0,
            index: hooks.map(|(index, hook)| (hook.id.clone(), index)).collect(),
            causes: BTreeMap::new(),
            followed: BTreeMap::new(),
            answered: BTreeMap::new(),
            told: BTreeSet::new(),
            looked: None,
            broken: Broken::default(),
            cluster,
        };
        breaking.plan(begin, Due::Answer(Observation::Leads(true)));
        breaking.plan(begin, Due::Look);
        breaking
    }

    fn plan(&mut self, at: At, due: Due) {
        self.order += 1;
        self.due.insert((at, self.order), due);
    }

    /// The instant of the next step; `At::MAX` when there is none.
    pub fn next(&self) -> At {
        self.due.first_key_value().map_or(At::MAX, |((at, _), _)| *at)
    }

    /// Executes the next step; returns whether it changed a webhook configuration.
    pub fn step(&mut self, world: &mut World) -> bool {
        let Some(((now, _), due)) = self.due.pop_first() else {
            return false;
        };
        match due {
            Due::Serve(action) => return self.serve(action, world, now),
            Due::Answer(observation) => self.take(observation, now),
            Due::Look => self.look(now),
        }
        false
    }

    /// Hands the breaker a new judgement of every webhook.
    pub fn judged(&mut self, mut judged: Judged, now: At) {
        let knows = |replica: usize| *self.cluster.replicas[replica].release.at(now) == Release::New;
        judged.match_conditions = (0..self.cluster.replicas.len()).all(knows);
        // The fence is not simulated; tests with a real API server check it.
        judged.fence_holds = true;
        self.causes = judged
            .hooks
            .iter()
            .filter(|(_, facts)| facts.harms_writes())
            .filter_map(|(hook, facts)| Some((hook.clone(), facts.cause?)))
            .collect();
        self.take(Observation::Judged(judged), now);
    }

    /// Whether no webhook is bypassed or on probation.
    pub fn is_at_rest(&self) -> bool {
        self.store.touched().is_empty()
    }

    /// Ends the run and returns what the breaker did.
    pub fn over(self) -> Broken {
        Broken {
            left: self.store.touched(),
            ..self.broken
        }
    }

    fn take(&mut self, observation: Observation, now: At) {
        for action in self.breaker.take([observation], time(now)) {
            match action {
                Action::Tell(told) => {
                    if let Some(hook) = self.index.get(&told.hook) {
                        let said = Said {
                            at: now,
                            hook: *hook,
                            news: told.kind,
                        };
                        self.broken.said.push(said);
                    }
                }
                request => {
                    let there = now + seconds(self.random.log_normal(0.01, 0.6));
                    self.plan(there, Due::Serve(request));
                }
            }
        }
    }

    /// Executes a request if an API server serves; otherwise answers that it failed. Returns whether it changed a configuration.
    fn serve(&mut self, action: Action, world: &mut World, now: At) -> bool {
        let served = match self.cluster.up(now).next() {
            Some(_) => self.store.serve(&action, now),
            None => Served::refused(&action),
        };
        let Some(Served { answer, reformed }) = served else {
            return false;
        };
        let took = match self.cluster.up(now).next() {
            Some(_) => seconds(self.random.log_normal(0.01, 0.6)),
            None => UNACCEPTED,
        };
        self.plan(now + took, Due::Answer(answer));
        let Some((hook, form)) = reformed else {
            return false;
        };
        world.reform(hook, form);
        if let Action::Change(change) = &action {
            self.broken.acts.push(Act {
                at: now,
                hook,
                to: change.to,
                cause: self.causes.get(&change.hook).copied(),
            });
        }
        true
    }

    /// Reports the ledger's version and the observed webhooks' configurations from every API server that serves. They may be
    /// up to one second old.
    fn look(&mut self, now: At) {
        let involved = self.breaker.involved();
        let at_work = !self.causes.is_empty() || !involved.is_empty();
        for hook in self.causes.keys().cloned().chain(involved) {
            self.followed.insert(hook, now + LINGER);
        }
        self.followed.retain(|_, until| now < *until);
        self.plan(now + AT_WORK, Due::Look);
        if !at_work && self.looked.is_some_and(|at| now < at + CALM) {
            return;
        }
        self.looked = Some(now);
        let up: Vec<usize> = self.cluster.up(now).collect();
        for replica in up {
            let server: Arc<str> = format!("10.1.0.{}:6443", replica + 1).into();
            self.answered.insert(Arc::clone(&server), now);
            self.servers(now);
            let as_of = now.saturating_sub(seconds(self.random.log_normal(0.1, 0.8).min(1.0)));
            let (ledger, views) = self.store.shown(self.followed.keys(), as_of);
            if let Some(version) = ledger {
                self.take(Observation::LedgerShows(version), now);
            }
            for (hook, view) in views {
                let server = Arc::clone(&server);
                self.take(Observation::Shows { hook, server, view }, now);
            }
        }
        self.servers(now);
    }

    /// Tells the breaker which API servers answer, when the set has changed.
    fn servers(&mut self, now: At) {
        self.answered.retain(|_, at| now < *at + ANSWERS);
        let names: BTreeSet<Arc<str>> = self.answered.keys().cloned().collect();
        if names != self.told {
            self.told.clone_from(&names);
            self.take(Observation::Servers(names), now);
        }
    }
}

impl Broken {
    /// The last reason in a span for which the breaker did not bypass a webhook.
    pub fn held_back(&self, hook: usize, (from, until): (At, At)) -> Option<HeldBack> {
        let mut said = self.said.iter().rev();
        said.find_map(|said| match said.news {
            NoticeKind::HeldBack(reason) if said.hook == hook && (from..=until).contains(&said.at) => {
                Some(reason)
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
