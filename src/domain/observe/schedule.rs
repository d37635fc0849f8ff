//! Decides which backend is probed when, and for which hooks the result counts.
//!
//! Hooks with the same backend, server name, caBundle and TLS settings form one *target*. Each interval it gets one fresh
//! handshake, whatever the number of hooks, and the handshake's result counts for all of them. Their requests are sent in turn on
//! one pooled connection, and equal requests only once. A hook whose own request fails, hangs or is slow is judged only by fresh
//! probes with its own request, until one is answered well: a successful handshake is no evidence for its requests.
//!
//! Limits apply to the probes that begin per second (in total and per backend) and to the probes in flight. Past them intervals
//! stretch, which is reported. The schedule is pure: times are arguments, and the same calls give the same schedule.

mod budget;
mod pace;
mod share;
mod target;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::probe::ConnectionKind;
use crate::cluster::hook::{Backend, BackendPath, Hook, HookId, ProbeLevel, ProbeTarget};
use crate::thresholds as t;
use crate::time::Time;
use budget::{ProbeBudget, UsedUp};
use pace::Behind;
pub use pace::{ProbePace, Stretch};
use target::{TargetSchedule, Wanted};

/// A fresh probe that is late by this many intervals is as urgent as those of hooks that are observed closely; a pooled one no
/// longer comes after fresh ones.
const STARVED: u32 = 4;

/// The intervals of probes, and their limits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Time between two fresh probes of one target, and between two equal requests on its pooled connection.
    pub interval: Duration,
    /// The same for hooks that are observed closely.
    pub alert_interval: Duration,
    /// Most probes that begin per second in total.
    pub per_second: u32,
    /// Most probes of one backend per second; never less than one hook alone on it needs.
    pub per_backend: u32,
    /// The same while a hook of the backend is observed closely.
    pub per_backend_alert: u32,
}

/// A probe's level, and a text that identifies its request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    /// How far the probe goes.
    pub level: ProbeLevel,
    /// Identifies the request: equal texts are equal requests, which are sent once.
    pub request: Arc<str>,
}

/// A probe to make now.
#[derive(Debug, Clone)]
pub struct ScheduledProbe {
    /// Identifies the probe when its results are passed to the schedule.
    pub number: u64,
    /// The backend, with the server name and trust to use.
    pub target: Arc<ProbeTarget>,
    /// The hooks that send the same request, at least one. The request can be made for any of them.
    pub hooks: Arc<[Arc<Hook>]>,
    /// The level and request.
    pub ask: Ask,
    /// Whether to dial or to use the pooled connection.
    pub connection: ConnectionKind,
    /// The probe's timeout: the longest timeout of the hooks.
    pub deadline: Duration,
    /// The backend was removed for all hooks: only an existing connection may be used.
    pub gone: bool,
}

/// The limits on probes in flight.
#[derive(Debug, Clone, Copy)]
pub struct ProbeRoom {
    /// How many more probes may be in flight.
    pub free: usize,
    /// While `free` is no more than this, a second probe of a target waits, so that other targets get their first.
    pub scarce: usize,
}

/// The schedule of all probes. See the module's documentation.
#[derive(Debug)]
pub struct Schedule {
    rates: Rates,
    seed: u64,
    targets: HashMap<Arc<ProbeTarget>, TargetSchedule>,
    out: HashMap<u64, ScheduledProbe>,
    budget: ProbeBudget,
    behind: Behind,
    attended: BTreeSet<HookId>,
    waiting_since: Option<Time>,
    /// When `waiting_since` last changed to an instant: every target is due once since then.
    look_since: Option<Time>,
    dropped: Vec<Arc<ProbeTarget>>,
    next: u64,
}

impl Schedule {
    /// An empty schedule. `seed` decides the pseudo-random offsets of probes.
    pub fn new(rates: Rates, seed: u64) -> Self {
        Self {
            rates,
            seed,
            targets: HashMap::new(),
            out: HashMap::new(),
            budget: ProbeBudget::default(),
            behind: Behind::default(),
            attended: BTreeSet::new(),
            waiting_since: None,
            look_since: None,
            dropped: Vec::new(),
            next: 0,
        }
    }

    /// Takes the current hooks with the request of each; `None` for a hook that is not probed. A removed backend stays in the
    /// schedule for as long as the API server may keep its connections.
    pub fn take_inventory(&mut self, hooks: &[(Arc<Hook>, Option<Ask>)], cluster_ips: bool, now: Time) {
        let mut asked: HashMap<Arc<ProbeTarget>, BTreeMap<Ask, Vec<Arc<Hook>>>> = HashMap::new();
        let mut order: Vec<Arc<ProbeTarget>> = Vec::new();
        let mut there: HashMap<&HookId, (Arc<_>, HashSet<Backend>)> = HashMap::new();
        for (hook, ask) in hooks {
            let (Some(ask), Some(terms)) = (ask, hook.connection_terms()) else {
                continue;
            };
            let terms = Arc::new(terms);
            let wanted = |backend: &Backend| cluster_ips || backend.path != BackendPath::ClusterIp;
            let backends: HashSet<Backend> = hook.backends().into_iter().filter(wanted).collect();
            for backend in hook.backends().into_iter().filter(wanted) {
                let terms = Arc::clone(&terms);
                let target = Arc::new(ProbeTarget { backend, terms });
                let asks = asked.entry(Arc::clone(&target)).or_insert_with(|| {
                    order.push(target);
                    BTreeMap::new()
                });
                asks.entry(ask.clone()).or_default().push(Arc::clone(hook));
            }
            there.insert(&hook.id, (terms, backends));
        }
        for (key, target) in &mut self.targets {
            let may_leave = key.backend.path == BackendPath::Endpoint;
            // With other terms the API server has made a new client, and a removed hook is not called any more.
            let left = |hook: &Hook| {
                let now = there.get(&hook.id);
                may_leave
                    && now.is_some_and(|(terms, backends)| {
                        *terms == key.terms && !backends.contains(&key.backend)
                    })
            };
            target.left.retain(|_, known| left(&known.hook));
            let before: Vec<(Ask, Arc<[Arc<Hook>]>)> = target
                .asks
                .iter()
                .map(|(ask, state)| (ask.clone(), Arc::clone(&state.hooks)))
                .collect();
            for (ask, hooks) in before {
                for hook in hooks.iter().filter(|hook| left(hook)) {
                    target.leave(Arc::clone(hook), ask.clone(), now);
                }
            }
            if !asked.contains_key(key) {
                target.asks.clear();
            }
        }
        for key in order {
            let Some(asks) = asked.remove(&key) else { continue };
            let number = self.next;
            self.next += 1;
            let toss = mix(self.seed ^ mix(number));
            let target = self.targets.entry(key);
            let target = target.or_insert_with(|| TargetSchedule::new(number, now, toss));
            target.take(now, toss, asks);
        }
        self.drop_unless(|_, target| !target.has_left() || !target.left.is_empty());
        self.look_at_attended();
    }

    /// Sets which hooks are observed closely, and since when a canary waits. Each time another canary waits, every backend is due
    /// once, after those of these hooks.
    pub fn attend(&mut self, hooks: BTreeSet<HookId>, waiting_since: Option<Time>, now: Time) {
        self.attended = hooks;
        if waiting_since != self.waiting_since {
            (self.waiting_since, self.look_since) = (waiting_since, waiting_since.map(|_| now));
        }
        self.look_at_attended();
    }

    fn look_at_attended(&mut self) {
        for target in self.targets.values_mut() {
            target.wake = Time::default();
            for state in target.asks.values_mut() {
                state.attended = state.hooks.iter().any(|hook| self.attended.contains(&hook.id));
            }
            target.attended = target.asks.values().any(|state| state.attended);
        }
        let mut backends: HashMap<&Backend, bool> = HashMap::new();
        for (key, target) in &self.targets {
            *backends.entry(&key.backend).or_default() |= target.attended || target.has_left();
        }
        self.budget.keep_only(&backends);
    }

    fn drop_unless(&mut self, stays: impl Fn(&ProbeTarget, &TargetSchedule) -> bool) {
        let dropped = &mut self.dropped;
        self.targets.retain(|key, target| {
            let stays = stays(key, target);
            if !stays {
                dropped.push(Arc::clone(key));
            }
            stays
        });
    }

    /// Returns the targets that are no longer probed, so that their connections can be closed.
    pub fn dropped(&mut self) -> Vec<Arc<ProbeTarget>> {
        std::mem::take(&mut self.dropped)
    }

    /// The number of targets.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there are no targets.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The probes to begin now, the most urgent first; from then on they count as in flight. `keeps` tells whether a connection to
    /// a target is open.
    pub fn start(
        &mut self,
        room: ProbeRoom,
        keeps: impl Fn(&ProbeTarget) -> bool,
        now: Time,
    ) -> Vec<ScheduledProbe> {
        self.drop_unless(|key, target| {
            let recent = |left: &target::Left| now.since(left.at) < t::pooled_connection_idle();
            !target.has_left() || target.left.values().any(recent) && (target.is_busy() || keeps(key))
        });
        let rates = self.rates;
        let mut due: Vec<(Arc<ProbeTarget>, u64, Wanted)> = Vec::new();
        for (key, target) in &mut self.targets {
            if now < target.due() {
                continue;
            }
            target.doubt_stalled(now, &rates);
            let number = target.number;
            let mut want = |wanted| due.push((Arc::clone(key), number, wanted));
            target.wake = target.wanted(now, self.look_since, &rates, &mut want);
        }
        let mut free = room.free;
        let mut started = Vec::new();
        for (key, wanted) in in_turn(due) {
            let Some(target) = self.targets.get_mut(&key) else {
                continue;
            };
            if !target.permits(&wanted, now) {
                continue;
            }
            let taken = if free == 0 || wanted.second && free <= room.scarce {
                Err(UsedUp::Concurrency)
            } else {
                self.budget.take(&key.backend, wanted.connection, &rates, now)
            };
            if let Err(used_up) = taken {
                self.behind.waits(used_up, &key.backend, &wanted, now);
                continue;
            }
            free -= 1;
            let number = self.next;
            self.next += 1;
            target.wake = now;
            target.start(&wanted, number, now, mix(self.seed ^ mix(number)));
            let hooks = match target.asks.get(&wanted.ask) {
                Some(state) => Arc::clone(&state.hooks),
                None => target.left.values().map(|left| Arc::clone(&left.hook)).collect(),
            };
            let attempt = ScheduledProbe {
                number,
                target: key,
                deadline: hooks.iter().map(|hook| hook.timeout).max().unwrap_or_default(),
                hooks,
                gone: target.has_left(),
                ask: wanted.ask,
                connection: wanted.connection,
            };
            self.out.insert(number, attempt.clone());
            started.push(attempt);
        }
        started
    }

    /// When to call [`Self::start`] next; in the past if something may be due at any time, `None` without targets.
    pub fn due(&self) -> Option<Time> {
        self.targets.values().map(TargetSchedule::due).min()
    }

    /// A report of whether probes keep up, if it has changed.
    pub fn pace(&mut self, now: Time) -> Option<ProbePace> {
        self.behind.news(self.targets.len(), now)
    }
}

/// The order in which probes begin: first those of hooks that are observed closely, and starved fresh ones. Then Services take
/// turns, so that one with a thousand endpoints delays only itself. Within one Service, fresh probes come before pooled ones,
/// and a request's first fresh probe before its second.
fn in_turn(mut due: Vec<(Arc<ProbeTarget>, u64, Wanted)>) -> Vec<(Arc<ProbeTarget>, Wanted)> {
    let starved = |wanted: &Wanted| wanted.late >= wanted.interval * STARVED;
    due.sort_by_cached_key(|(_, number, wanted)| {
        let kept = wanted.connection == ConnectionKind::Kept && !starved(wanted);
        (kept, wanted.again, Reverse(wanted.late), *number)
    });
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    let turns = due.into_iter().map(|(key, number, wanted)| {
        let turn = places.entry(Arc::clone(&key.terms.authority)).or_default();
        *turn += 1;
        let fresh = wanted.connection == ConnectionKind::Fresh;
        let urgent = wanted.attended || fresh && starved(&wanted);
        ((!urgent, *turn, Reverse(wanted.late), number), key, wanted)
    });
    let mut turns: Vec<_> = turns.collect();
    turns.sort_by_key(|(turn, ..)| *turn);
    turns.into_iter().map(|(_, key, wanted)| (key, wanted)).collect()
}

/// A pseudo-random number (splitmix64).
const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
