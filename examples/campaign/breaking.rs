//! The breaker at work on the model: what it wants done is done to the model's webhook configurations, so that a
//! bypassed hook is called no more, and what comes of it is told to it.

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

/// How often each API server is asked what it goes by, while nothing is the matter and while something is.
const CALM: At = 10 * SECOND;
const AT_WORK: At = SECOND / 2;
/// A hook is looked at for so long after there was a reason to.
const LINGER: At = 60 * SECOND;
/// An API server that has not answered for so long is not waited for.
const ANSWERS: At = 25 * SECOND;
/// A request that no server accepts is given up after this.
const UNACCEPTED: At = SECOND;

/// How far the breaker may go, where its evidence permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Farthest {
    /// Only what keeps the control plane alive is spared
    Shield,
    /// Hooks are skipped where a shield does not give the writes back
    Skip,
}

impl Farthest {
    /// Permits so much, of as many hooks at once as there are: neither budget nor rate is to hide a mistake. Beyond a
    /// shield, hooks that fail open may be skipped while they are dead as well, of whichever configuration.
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

/// Something that the breaker did to a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Act {
    pub at: At,
    pub hook: usize,
    pub to: To,
    /// What the hook failed from at that time.
    pub cause: Option<Cause>,
}

/// Something that it said of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    pub at: At,
    pub hook: usize,
    pub news: NoticeKind,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Broken {
    pub acts: Vec<Act>,
    pub said: Vec<Said>,
    /// Hooks that were not as their owners have them in the end.
    pub left: Vec<usize>,
}

/// What is still to come.
enum Due {
    /// The API server takes a request.
    Serve(Action),
    /// Its answer is back.
    Answer(Observation),
    /// The API servers are asked what they go by.
    Look,
}

/// See the module's head.
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

    /// When something happens next.
    pub fn next(&self) -> At {
        self.due.first_key_value().map_or(At::MAX, |((at, _), _)| *at)
    }

    /// Lets it happen; says whether a configuration was changed.
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

    /// Everything was judged anew.
    pub fn judged(&mut self, mut judged: Judged, now: At) {
        let knows = |replica: usize| *self.cluster.replicas[replica].release.at(now) == Release::New;
        judged.match_conditions = (0..self.cluster.replicas.len()).all(knows);
        // What the account may do is proven elsewhere.
        judged.fence_holds = true;
        self.causes = judged
            .hooks
            .iter()
            .filter(|(_, facts)| facts.harms_writes())
            .filter_map(|(hook, facts)| Some((hook.clone(), facts.cause?)))
            .collect();
        self.take(Observation::Judged(judged), now);
    }

    /// Every hook is as its owner has it.
    pub fn is_at_rest(&self) -> bool {
        self.store.touched().is_empty()
    }

    /// What came of it all.
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

    /// A request reaches the store, or nobody.
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

    /// Asks every API server that answers what it goes by, which may be a moment old.
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

    /// Tells which API servers answer, when that is news.
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
    /// What held the breaker back last from bypassing a hook within a span.
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
