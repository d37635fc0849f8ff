//! What the evidence on all hooks shares, put together once per tick.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::excess::Excess;
use super::plane::PlaneEvidence;
use super::probes::{ProbeEvidence, counted};
use crate::cluster::hook::{Backend, BackendAddress, Hook, HookId, HookTarget, Subject};
use crate::diagnose::verdict::NonHookCause;
use crate::observe::canaries::CanaryMemory;
use crate::observe::canary::CanaryTarget;
use crate::observe::observations::Observations;
use crate::observe::probing::BackendState;
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::{Cause, Health, NotAHook};

/// What is remembered of a hook's verdict at the last tick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Before {
    /// The health that it had.
    pub health: Health,
    /// What was wrong.
    pub cause: Option<Cause>,
    /// Since when it has had this cause.
    pub since: Option<Time>,
    /// While it has had this cause, there was a tick at which none of its backends answered.
    pub whole: bool,
    /// It was named as failing, and has not been found healthy since.
    pub named: bool,
    /// It lost its path together with all others, and no backend has answered since.
    pub on_lost_path: bool,
    /// When it was last found healthy after it had been named: the beginning of the API server's interval that showed it.
    pub cleared: Option<Time>,
    /// The last tick at which it was named as hanging and could hold users' writes up.
    pub hung_until: Option<Time>,
}

/// What the evidence on all hooks shares.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The instant of the tick.
    pub now: Time,
    /// Everything that was observed.
    pub seen: &'a Observations,
    /// The control plane as a whole.
    pub plane: &'a PlaneEvidence<'a>,
    /// What slows or blocks writes and is no hook, if that is known without a verdict.
    pub elsewhere: Option<NonHookCause>,
    /// The other causes that are ruled out, as a sentence, and the end of the span for which that is known.
    pub ruled_out: Option<(Time, String)>,
    /// Every probe of every backend fails, and nothing shows that hookwatch's own network works.
    pub self_doubt: bool,
    /// The path to all webhooks was lost at once.
    pub path_lost: bool,
    /// The inventory has been old for a while: addresses may have changed.
    pub inventory_is_old: bool,
    /// Every backend of every hook with what its probes add up to.
    pub states: BTreeMap<&'a HookId, Vec<(Backend, BackendState)>>,
    pub(super) excess: Excess<'a>,
    /// Writes have all but stopped being answered.
    pub stalled: bool,
    pub(super) before: &'a BTreeMap<Subject, Before>,
    /// Hooks that a late canary meets and that hang by our probes.
    pub(super) hanging: BTreeSet<&'a HookId>,
    /// What the slow hooks that a late canary meets take together, by our probes.
    slow: BTreeMap<CanaryTarget, Duration>,
    /// When the newest answered probe of any backend began.
    pub(super) reached_at: Option<Time>,
    named: AccusedHooks<'a>,
    /// The hooks that were failing at the last tick, with since when; the earliest first.
    failing: Vec<(Time, &'a Subject)>,
    /// Hooks that were named as hanging at the last tick.
    named_hanging: BTreeSet<&'a Subject>,
}

/// Admission hooks that were named at the last tick, for a cause with which none of their backends answered.
#[derive(Debug, Default)]
struct AccusedHooks<'a> {
    hooks: BTreeSet<&'a HookId>,
    /// How many of them each place has, by [`HookTarget::place`].
    at: BTreeMap<String, usize>,
}

impl<'a> Scene<'a> {
    /// Puts together what all hooks share.
    pub fn new(
        seen: &'a Observations,
        plane: &'a PlaneEvidence<'a>,
        before: &'a BTreeMap<Subject, Before>,
        now: Time,
    ) -> Self {
        let states = seen.states(now);
        let elsewhere = plane.elsewhere(before.values().filter_map(|it| it.hung_until).max());
        // When a lost path works again, the probes that hung on it come back within a moment, but not all at once. An answer
        // that is newer than that does not count yet.
        let a_moment_ago = now.before(t::together());
        let late = seen
            .canaries
            .iter()
            .filter(|(_, memory)| memory.late(now).is_some());
        let late: BTreeSet<CanaryTarget> = late.map(|(target, _)| target).collect();
        let backends = seen.backends.values().flatten();
        let reached_at = backends.filter_map(|(_, memory)| memory.reached_by(a_moment_ago));
        Self {
            now,
            seen,
            plane,
            ruled_out: plane.ruled_out(elsewhere.as_ref()),
            elsewhere,
            self_doubt: seen.self_doubt(&states, now),
            path_lost: path_is_lost(seen, &states, before, now),
            inventory_is_old: seen.inventory_is_old(now),
            excess: plane.excess(),
            stalled: plane.stalled(),
            before,
            hanging: hanging(seen, &states, &late),
            slow: slow(seen, &states, &late),
            reached_at: reached_at.max(),
            named: AccusedHooks::of(seen, before),
            failing: failing_since(before),
            named_hanging: before
                .iter()
                .filter(|(_, it)| it.health == Health::Failing && it.cause == Some(Cause::Hanging))
                .map(|(subject, _)| subject)
                .collect(),
            states,
        }
    }

    /// Admission hooks of this name.
    pub fn listed(&self, webhook: &str) -> impl Iterator<Item = &'a Hook> {
        let listed = self.seen.named(webhook);
        listed.filter(|hook| hook.id.kind.is_admission())
    }

    /// How long a late canary waits for the slow hooks that match it, according to our probes.
    pub(super) fn slow_for(&self, target: CanaryTarget) -> Duration {
        self.slow.get(&target).copied().unwrap_or_default()
    }

    /// How long a canary has hung because of a hook, if that is known: an API server answered something else since it was
    /// sent, or it has been silent for so long that nothing else answers either.
    pub fn hung_for(&self, memory: &CanaryMemory) -> Option<Duration> {
        let waiting = memory.hung_for(self.now)?;
        let answers = self.seen.answered_since(self.now.before(waiting));
        (answers || waiting >= t::late_at_most()).then_some(waiting)
    }

    /// Whether the path to all webhooks is lost for the API server, too: a canary hangs. Where hookwatch alone reaches none,
    /// canaries pass.
    pub fn path_hangs(&self) -> bool {
        let mut canaries = self.seen.canaries.iter();
        self.path_lost && canaries.any(|(_, memory)| self.hung_for(memory).is_some())
    }

    /// Whether another hook that is called at the same place, or that lost the same path, was named at the last tick. The place
    /// comes from the configurations alone, so that a tenant who may write EndpointSlices cannot change it.
    pub(super) fn is_named_beside(&self, hook: &Hook) -> bool {
        let itself = usize::from(self.named.hooks.contains(&hook.id));
        if self.named.hooks.len() == itself {
            return false;
        }
        let at = |place: &String| self.named.at.get(place).copied().unwrap_or(0);
        self.path_hangs() || hook.target.place().is_some_and(|place| at(&place) > itself)
    }

    /// Since when another hook has been failing, as of the last tick; the earliest.
    pub(super) fn another_fails_since(&self, subject: &Subject) -> Option<Time> {
        let mut others = self.failing.iter().filter(|(_, other)| *other != subject);
        others.next().map(|(since, _)| *since)
    }

    /// Whether another hook was named as hanging at the last tick: requests wait for it until their clients give up, and
    /// the API server counts the call in flight at that moment as failed, whichever hook's it was.
    pub(super) fn another_hangs(&self, subject: &Subject) -> bool {
        self.named_hanging.iter().any(|other| *other != subject)
    }

    /// Writes are slow for a known reason other than a hook, which may also be why a canary is late.
    pub fn is_explained(&self) -> bool {
        let known = self.elsewhere.as_ref();
        known.is_some_and(|found| found.cause != NotAHook::Unexplained)
    }
}

impl<'a> AccusedHooks<'a> {
    fn of(seen: &'a Observations, before: &BTreeMap<Subject, Before>) -> Self {
        let mut all = Self::default();
        // A slow one was named for its calls, whatever its probes show.
        let is_named = |known: &Before| {
            known.health == Health::Failing && known.whole && known.cause != Some(Cause::Slow)
        };
        if !before.values().any(is_named) {
            return all;
        }
        for hook in seen.hooks().filter(|hook| hook.id.kind.is_admission()) {
            if before.get(&hook.id.subject()).is_some_and(is_named) {
                all.hooks.insert(&hook.id);
                if let Some(place) = hook.target.place() {
                    *all.at.entry(place).or_default() += 1;
                }
            }
        }
        all
    }
}

fn failing_since(before: &BTreeMap<Subject, Before>) -> Vec<(Time, &Subject)> {
    let failing = before.iter().filter(|(_, it)| it.health == Health::Failing);
    let mut failing: Vec<(Time, &Subject)> = failing
        .filter_map(|(subject, it)| Some((it.since?, subject)))
        .collect();
    failing.sort_unstable();
    failing
}

fn slow(
    seen: &Observations,
    states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>,
    late: &BTreeSet<CanaryTarget>,
) -> BTreeMap<CanaryTarget, Duration> {
    let mut slow = BTreeMap::new();
    for (id, backends) in states {
        let mut met = seen
            .coverage
            .of(id)
            .iter()
            .filter(|target| late.contains(target))
            .peekable();
        let took = met.peek().and_then(|_| ProbeEvidence::of(backends).late());
        for (target, (took, _)) in met.zip(took.into_iter().cycle()) {
            let together: &mut Duration = slow.entry(*target).or_default();
            *together = together.saturating_add(took);
        }
    }
    slow
}

fn hanging<'a>(
    seen: &'a Observations,
    states: &BTreeMap<&'a HookId, Vec<(Backend, BackendState)>>,
    late: &BTreeSet<CanaryTarget>,
) -> BTreeSet<&'a HookId> {
    let is_late = |target: &CanaryTarget| late.contains(target);
    let hangs = |(_, state): &&(Backend, BackendState)| matches!(state, BackendState::Dead(dead) if dead.cause == Cause::Hanging);
    let hooks = states.iter().filter(|(id, backends)| {
        seen.coverage.of(id).iter().any(is_late) && counted(backends).iter().any(hangs)
    });
    hooks.map(|(id, _)| *id).collect()
}

/// The number of distinct destinations of these addresses. A Service whose endpoints the cluster's controller does not
/// manage does not count by an address that another destination has too: the two fall silent together.
fn places(silent: &[(&HookTarget, &BackendAddress)]) -> usize {
    let mut listed: BTreeMap<&BackendAddress, BTreeSet<Option<String>>> = BTreeMap::new();
    for (target, address) in silent {
        listed.entry(address).or_default().insert(target.place());
    }
    let counts = |(target, address): &&(&HookTarget, &BackendAddress)| {
        !target.is_listed_by_hand() || listed.get(address).is_some_and(|places| places.len() == 1)
    };
    let places = silent.iter().filter(counts).map(|(target, _)| target.place());
    places.collect::<BTreeSet<_>>().len()
}

/// Whether the path to all webhooks was lost at once: at three destinations or more, every backend fell silent recently,
/// all within a few seconds, and none answers. Then it is one fault, and a canary that waits for any of them is evidence
/// against each. Only the owners of all their backends could fake that.
fn path_is_lost(
    seen: &Observations,
    states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>,
    before: &BTreeMap<Subject, Before>,
    now: Time,
) -> bool {
    let hooks = seen.hooks().filter(|hook| hook.id.kind.is_admission());
    let mut silent = Vec::new();
    let mut fell = BTreeSet::new();
    for hook in hooks {
        let probed = states.get(&hook.id).map(|states| counted(states));
        let Some(probed) = probed.filter(|probed| !probed.is_empty()) else {
            continue;
        };
        for (backend, state) in probed {
            match state {
                BackendState::Dead(dead) if dead.is_path() => fell.insert(dead.since),
                _ => return false,
            };
            silent.push((&hook.target, &backend.address));
        }
    }
    let Some((first, last)) = fell.first().zip(fell.last()) else {
        return false;
    };
    // What was late or silent before the rest is another fault, and the one that canaries may be waiting for.
    let is_older = |since: Option<Time>| since.is_some_and(|since| first.since(since) >= t::between_probes());
    let was_late = |known: &Before| {
        let late = matches!(known.cause, Some(Cause::Hanging | Cause::Slow));
        known.health == Health::Failing && late && is_older(known.since)
    };
    let mut canaries = seen.canaries.iter();
    now.since(*first) <= t::path_lost_for()
        && last.since(*first) <= t::path_lost_within()
        && places(&silent) as f64 >= t::path_places()
        && !before.values().any(was_late)
        && !canaries.any(|(_, memory)| is_older(memory.unanswered_since(now)))
}
