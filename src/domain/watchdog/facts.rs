//! The breaker's facts: the verdicts, their witnesses, and how far each witness can be trusted.
//!
//! A verdict may name a culprit on little evidence. To act, the breaker needs independent witnesses. They are determined here,
//! from the same evidence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::tampering::Tampering;
use crate::act::breaker::{CanaryEvidence, Doubt, HookFacts, Judged, OwnerAnnotations, Stake, Witness};
use crate::act::fence::Proof;
use crate::cluster::hook::{Backend, FailurePolicy, Hook, MAX_CONDITIONS};
use crate::diagnose::LOST_PATH;
use crate::diagnose::evidence::Evidence;
use crate::diagnose::probes::counted;
use crate::diagnose::rules::suffices;
use crate::diagnose::scene::Scene;
use crate::diagnose::verdict::Verdict;
use crate::observe::canaries::{CanaryAccusation, CanaryMemory};
use crate::observe::canary::{CanaryOutcome, CanaryTarget};
use crate::observe::history::Window;
use crate::observe::observations::Spared;
use crate::observe::probing::{BackendState, Dead};
use crate::observe::snapshot::HookSeries;
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::{Cause, Effect, Health};

/// What the facts on every hook are made from.
pub(super) struct FactFinder<'a> {
    pub(super) scene: &'a Scene<'a>,
    /// Another cause than a hook is known to hold requests up.
    elsewhere: bool,
    tampering: &'a Tampering,
    /// What [`suspect_places`] returned.
    suspects: BTreeMap<CanaryTarget, BTreeSet<SuspectPlace>>,
}

/// Where a failing or suspect hook is called, and since when it has been silent ([`silent_since`]).
type SuspectPlace = (Option<String>, Option<Time>);

/// For each canary, the places of the failing or suspect hooks that it meets and that may be why it is late.
fn suspect_places(all: &[(Evidence<'_>, Verdict)]) -> BTreeMap<CanaryTarget, BTreeSet<SuspectPlace>> {
    use Cause::{Hanging, Slow, StaleConnection, Unreachable};
    let mut places: BTreeMap<CanaryTarget, BTreeSet<SuspectPlace>> = BTreeMap::new();
    for (evidence, verdict) in all {
        if let Some(Hanging | Slow | Unreachable | StaleConnection) = verdict.cause
            && let Health::Failing | Health::Suspect = verdict.health
            && let Some(hook) = evidence.hook
        {
            for target in evidence.covered_by {
                let suspect = (hook.target.place(), silent_since(evidence));
                places.entry(*target).or_default().insert(suspect);
            }
        }
    }
    places
}

/// Since when all backends of a hook have been silent, if all of them answered before and another hook's backend has answered
/// hookwatch since.
fn silent_since(evidence: &Evidence<'_>) -> Option<Time> {
    let fell = counted(evidence.backends)
        .into_iter()
        .map(|(_, state)| match state {
            BackendState::Dead(dead) if dead.is_path() && dead.is_unusual && dead.was_alive => {
                Some(dead.since)
            }
            _ => None,
        });
    let fell: Vec<Time> = fell.collect::<Option<_>>()?;
    fell.into_iter().max().filter(|last| evidence.way_is_open(*last))
}

/// Other explanations for late canaries that match a hook: the stronger, the weaker the evidence against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Beside {
    Nothing,
    /// Hooks that fell silent at the same time, for example with their node: which of them writes wait for is not known.
    SilentToo,
    /// At least one other hook that is failing or suspect.
    Another,
}

/// The key under which the breaker counts hooks that fail together: where they are called, or the path that all lost.
fn incident_key(hook: &Hook, verdict: &Verdict) -> Option<String> {
    if verdict.incident == LOST_PATH {
        return Some(LOST_PATH.to_owned());
    }
    hook.target.place()
}

/// The facts for the breaker. The owners' annotations, and whether all API servers support `matchConditions`, are not known here:
/// `app/engine/breaker` fills them in.
pub(super) fn judged(
    scene: &Scene<'_>,
    all: &[(Evidence<'_>, Verdict)],
    elsewhere: bool,
    tampering: &Tampering,
    fence: Option<&Proof>,
) -> Judged {
    let finder = FactFinder {
        scene,
        elsewhere,
        tampering,
        suspects: suspect_places(all),
    };
    let age = scene.seen.inventory_age(scene.now);
    // Only admission hooks that the inventory has can be bypassed.
    let listed = all.iter().filter_map(|(evidence, verdict)| {
        let hook = evidence.hook.filter(|hook| hook.id.kind.is_admission())?;
        let mut facts = finder.facts(evidence, hook, verdict);
        facts.may_skip = fence.is_none_or(|proof| proof.lets_skip(&hook.id.configuration));
        Some((hook.id.clone(), facts))
    });
    Judged {
        self_doubt: scene.self_doubt,
        inventory_is_old: scene.inventory_is_old || age.is_none_or(|age| age > t::silent_inventory()),
        unread: false,
        fence_holds: fence.is_some_and(Proof::permits),
        match_conditions: false,
        hooks: listed.collect(),
    }
}

impl FactFinder<'_> {
    fn facts(&self, evidence: &Evidence<'_>, hook: &Hook, verdict: &Verdict) -> HookFacts {
        let now = self.scene.now;
        let beside = self.beside(evidence, hook, evidence.covered_by);
        let elsewhere = self.elsewhere || beside == Beside::Another;
        let canary = self.canary_evidence(evidence, hook, elsewhere);
        let denies = verdict.health == Health::Suspect && self.merely_denies(evidence, hook, verdict.cause);
        let is_well =
            canary != CanaryEvidence::Failed && (denies || is_well_though_uncalled(evidence, verdict.cause));
        let accused = matches!(verdict.health, Health::Suspect | Health::Failing) && !is_well;
        let witnesses = accused.then(|| self.witnesses(evidence, hook, verdict));
        let matters = accused || evidence.bypass.is_some();
        let (health, cause, effect) = if is_well {
            (Health::Healthy, None, Effect::None)
        } else {
            (verdict.health, verdict.cause, would_be(hook, evidence, verdict))
        };
        let health = match health {
            Health::Healthy if !self.may_be_back(evidence) => Health::Suspect,
            health => health,
        };
        let ambiguous = self.tampering.is_shared(&hook.id.webhook, now);
        let witnesses = witnesses.unwrap_or_default();
        let doubt = self.tampering.doubt(hook, &self.scene.seen.changes, now);
        let counted = witnesses.contains(&Witness::Counters);
        let together = (beside == Beside::SilentToo && !counted).then_some(Doubt::SilentTogether);
        HookFacts {
            health,
            cause,
            effect,
            confident: suffices(verdict),
            witnesses,
            ambiguous,
            doubt: doubt.or(together),
            canary,
            meets_control_plane: matters && self.gives_back(hook, ambiguous),
            stake: if matters {
                self.stake(hook, verdict.cause, ambiguous)
            } else {
                Stake::default()
            },
            ignores: hook.failure_policy == FailurePolicy::Ignore,
            dead: self.is_dead(evidence, hook),
            incident_key: matters
                .then(|| incident_key(hook, verdict))
                .flatten()
                .map(Arc::from),
            conditions_full: hook.owners_conditions().count() >= MAX_CONDITIONS,
            owner: OwnerAnnotations::default(),
            may_skip: true,
        }
    }

    fn witnesses(&self, evidence: &Evidence<'_>, hook: &Hook, verdict: &Verdict) -> BTreeSet<Witness> {
        // A rollout's failures are over by the time they are known: a bypass would come too late.
        let is_over = verdict.cause == Some(Cause::RolloutGap);
        if is_over
            || self.is_mostly_answered(evidence, hook, verdict.cause)
            || is_hardly_partial(evidence, verdict)
        {
            return BTreeSet::new();
        }
        // Where hardly anything is written, ten seconds may have no call: the minute counts too.
        let mut spans = self.scene.plane.windows.lately();
        let speak = [
            probes_speak(evidence, verdict.cause),
            // For a dead hook, every API server counted only failed calls.
            spans.any(|window| self.counters_speak(hook, verdict.cause, window))
                || !evidence.is_uncalled() && self.is_dead(evidence, hook),
            self.canary_speaks(evidence, hook),
        ];
        let witnesses = [Witness::Probes, Witness::Counters, Witness::Canary];
        let speaking = witnesses.into_iter().zip(speak).filter(|(_, speaks)| *speaks);
        speaking.map(|(witness, _)| witness).collect()
    }

    /// Most calls are answered, and a bypass would not help the others, or would come too late for them.
    fn is_mostly_answered(&self, evidence: &Evidence<'_>, hook: &Hook, cause: Option<Cause>) -> bool {
        match cause {
            Some(Cause::Erroring | Cause::Partial) => self.lost_some_to_a_rollout(hook),
            Some(Cause::Hanging) => self.hung_for_a_few(evidence, hook),
            _ => false,
        }
    }

    /// Most calls are answered, and endpoints were changing while they were counted: those that failed went to Pods that
    /// were stopping.
    fn lost_some_to_a_rollout(&self, hook: &Hook) -> bool {
        let recent = self.scene.plane.windows.recent.as_ref();
        recent.is_some_and(|recent| self.moved_since(hook, recent.from) && are_mostly_answered(hook, recent))
    }

    /// Every backend answers probes, and either the calls that hung were sent while endpoints changed and canaries pass now,
    /// or most calls are answered.
    fn hung_for_a_few(&self, evidence: &Evidence<'_>, hook: &Hook) -> bool {
        let windows = self.scene.plane.windows;
        let mut states = counted(evidence.backends).into_iter();
        if states.any(|(_, state)| matches!(state, BackendState::Dead(_))) {
            return false;
        }
        // A call that hangs is counted when it ends, so a span that is longer than the hook's timeout includes answers from before
        // the hang: then the newest interval counts.
        let outlasts = |recent: &&Window| hook.timeout.as_secs_f64() > recent.seconds();
        let recent = windows.recent.as_ref().filter(outlasts);
        let Some(window) = recent.or(windows.newest.as_ref()) else {
            return false;
        };
        let sent_meanwhile = self.moved_since(hook, window.from.before(hook.timeout));
        let passes = || self.canary_evidence(evidence, hook, self.elsewhere) == CanaryEvidence::Through;
        sent_meanwhile && passes() || are_mostly_answered(hook, window)
    }

    /// The hook's endpoints changed since then, or so shortly before that calls were still in flight.
    fn moved_since(&self, hook: &Hook, since: Time) -> bool {
        let changes = &self.scene.seen.changes;
        changes.moved_since(hook.id.kind, &hook.id.webhook, since.before(t::moved()))
    }

    /// The API servers counted failed or slow calls that the canaries of all replicas do not explain.
    fn counters_speak(&self, hook: &Hook, cause: Option<Cause>, window: &Window) -> bool {
        if self.failed_of_others(hook, window) >= 1.0 {
            return true;
        }
        if cause.is_some_and(Cause::fails_at_once) {
            return false;
        }
        let own = self.own_calls(hook, window);
        counted_calls(hook, window).is_some_and(|series| {
            let users = series.calls.count - t::replicas() * own.len() as f64;
            let took = series.calls.sum - t::replicas() * own.iter().sum::<f64>();
            users >= 2.0 && took / users >= t::slow_always()
        })
    }

    /// How many failed calls the canaries of all replicas do not explain. Below zero where they explain more than was counted.
    fn failed_of_others(&self, hook: &Hook, window: &Window) -> f64 {
        let canaries = &self.scene.seen.canaries;
        let own_failed = match hook.failure_policy {
            FailurePolicy::Fail => canaries.refused_within(&hook.id.webhook, window.from, window.to),
            // Canaries are not refused then, so that each of them may have failed.
            FailurePolicy::Ignore => self.own_calls(hook, window).len(),
        };
        // The API server refuses dry runs, such as canaries, for a hook that takes none, and counts that as its own error.
        let refused = |series: &HookSeries| {
            if hook.dry_run_safe {
                0.0
            } else {
                series.rejections.internal
            }
        };
        let failed = |series: &HookSeries| series.failed() - refused(series);
        let failed = counted_calls(hook, window).map_or(0.0, failed);
        failed - own_failed as f64 * t::replicas()
    }

    /// The durations in seconds of this replica's canaries that match the hook and ended within a window.
    fn own_calls(&self, hook: &Hook, window: &Window) -> Vec<f64> {
        let Scene { seen, .. } = *self.scene;
        let own = seen.coverage.of(&hook.id).iter();
        let own = own.flat_map(|target| seen.canaries.ended_within(*target, window.from, window.to));
        own.map(|took| took.as_secs_f64()).collect()
    }

    /// Whether a shield would let requests of other clients than hookwatch through. Where rules, selectors and conditions do not
    /// show that such requests reach the hook, more calls must have failed than hookwatch made: otherwise an attacker who may
    /// install webhooks could use up the budget with webhooks that only hookwatch's requests reach. For an `ambiguous` name the
    /// counters show nothing: a canary that meets two webhooks of one name is counted twice.
    fn gives_back(&self, hook: &Hook, ambiguous: bool) -> bool {
        match self.scene.seen.traffic.spared(&hook.id) {
            Spared::Renewals | Spared::ControlPlane => true,
            Spared::NoKnownWriter if ambiguous => false,
            Spared::NoKnownWriter => {
                let mut spans = self.scene.plane.windows.lately();
                spans.any(|window| {
                    self.failed_of_others(hook, window) >= 1.0 + window.seconds() * t::renewals()
                })
            }
            Spared::Nothing => false,
        }
    }

    /// Which other clients than hookwatch the hook affects. Only counted calls show tenants' writes, and for an `ambiguous` name
    /// they do not.
    fn stake(&self, hook: &Hook, cause: Option<Cause>, ambiguous: bool) -> Stake {
        let spans = || self.scene.plane.windows.spans().filter(|_| !ambiguous);
        let called = |window: &Window| {
            let own = self.own_calls(hook, window).len() as f64 * t::replicas();
            let counted = counted_calls(hook, window).map_or(0.0, |series| series.calls.count);
            counted - own >= 1.0 + window.seconds() * t::renewals()
        };
        match self.scene.seen.traffic.spared(&hook.id) {
            Spared::Renewals => Stake::Renewals,
            _ if spans().any(|window| self.counters_speak(hook, cause, window)) => Stake::Failed,
            Spared::ControlPlane => Stake::Called,
            Spared::Nothing | Spared::NoKnownWriter if spans().any(called) => Stake::Called,
            Spared::Nothing | Spared::NoKnownWriter => Stake::Hookwatch,
        }
    }

    /// A canary was refused because of the hook; or one that matches it is late, and no other matching hook or known cause
    /// explains that.
    fn canary_speaks(&self, evidence: &Evidence<'_>, hook: &Hook) -> bool {
        let now = self.scene.now;
        let canaries = &self.scene.seen.canaries;
        // A call to another URL was to another hook of that name, even if that one is gone.
        let called_here = |url: &Option<String>| url.as_deref().is_none_or(|url| hook.is_called_at(url));
        // Canaries from before the shield still count: it spares the ones that are sent now.
        let shielded = evidence.reconfigured.filter(|_| evidence.is_shielded());
        let counts =
            |named: &CanaryAccusation<'_>| named.current || shielded.is_some_and(|at| named.started < at);
        let mut named = canaries.naming(&hook.id.webhook, now);
        if named.any(|named| counts(&named) && called_here(&named.failure.url)) {
            return true;
        }
        let met = self.scene.seen.coverage.of(&hook.id);
        if self.elsewhere || met.is_empty() {
            return false;
        }
        // Where the path to all hooks is lost, a late canary is evidence against every hook that matches a canary.
        if self.scene.path_hangs() {
            return true;
        }
        let reaching = self.scene.seen.coverage.reaching(hook);
        let is_late =
            |memory: &CanaryMemory| self.scene.hung_for(memory).is_some() || memory.slow(now).is_some();
        let waits = |memory: &CanaryMemory| shielded.is_some_and(|at| memory.any_late(..at, now));
        let speaks = |target: &&CanaryTarget| {
            let memory = canaries.get(**target);
            memory.is_some_and(|memory| (reaching.contains(*target) && is_late(memory)) || waits(memory))
        };
        let late: Vec<CanaryTarget> = met.iter().filter(speaks).copied().collect();
        // A canary that waits longer than all other slow hooks take waits for this one.
        let is_reason =
            || evidence.canary_waits.is_some() || self.beside(evidence, hook, &late) != Beside::Another;
        !late.is_empty() && is_reason()
    }

    /// Which other hooks may explain that these canaries are late. One that is called at the same place as this one, or lost the
    /// same path, does not count: a canary that waits for either is evidence against both.
    fn beside(&self, evidence: &Evidence<'_>, hook: &Hook, canaries: &[CanaryTarget]) -> Beside {
        let mut suspected = canaries
            .iter()
            .filter_map(|target| self.suspects.get(target))
            .peekable();
        if self.scene.path_lost || suspected.peek().is_none() {
            return Beside::Nothing;
        }
        let (place, silent) = (hook.target.place(), silent_since(evidence));
        let others = suspected.flatten().filter(|(other, _)| *other != place);
        let others = others.map(|(_, other)| match silent.zip(*other) {
            Some((one, other)) if one.max(other).since(one.min(other)) <= t::path_lost_within() => {
                Beside::SilentToo
            }
            _ => Beside::Another,
        });
        others.max().unwrap_or(Beside::Nothing)
    }

    /// What the canaries show that were sent since the hook was last changed. `elsewhere`: another cause, or another hook, is
    /// known to hold canaries up.
    fn canary_evidence(&self, evidence: &Evidence<'_>, hook: &Hook, elsewhere: bool) -> CanaryEvidence {
        if evidence.covered_by.is_empty() {
            return CanaryEvidence::NoCanary;
        }
        let Scene { seen, now, .. } = *self.scene;
        let since = evidence.reconfigured.map(|at| at + t::propagated());
        let is_news = |started: Time| since.is_none_or(|since| started >= since);
        let mut word = CanaryEvidence::Awaited;
        // Canaries that a bypass keeps from the hook show nothing about it.
        let reaching = seen.coverage.reaching(hook).into_iter();
        for memory in reaching.filter_map(|target| seen.canaries.get(target)) {
            if memory.late_since(now).is_some_and(is_news) {
                if elsewhere {
                    // It may be late for that reason. If it fails because of this hook, the refusal will name it.
                    continue;
                }
                return CanaryEvidence::Failed;
            }
            let latest = memory.latest(now).filter(|report| is_news(report.started));
            match latest.map(|report| &report.outcome) {
                Some(CanaryOutcome::CallFailed(failure)) if *failure.webhook == *hook.id.webhook => {
                    return CanaryEvidence::Failed;
                }
                // A denial is an answer.
                Some(CanaryOutcome::Denied { webhook }) if **webhook == *hook.id.webhook => {
                    word = CanaryEvidence::Through;
                }
                Some(CanaryOutcome::Written) => word = CanaryEvidence::Through,
                _ => {}
            }
        }
        word
    }
}

/// What the API servers counted of the hook within a window.
pub(super) fn counted_calls<'w>(hook: &Hook, window: &'w Window) -> Option<&'w HookSeries> {
    window.gained.hooks.get(&hook.id.counted_as())
}

/// More calls were answered within a window than failed.
fn are_mostly_answered(hook: &Hook, window: &Window) -> bool {
    counted_calls(hook, window).is_some_and(|series| series.answered() > series.failed())
}

/// A bypass keeps users' calls from the hook, so that counters say nothing about its present state. It then counts as healthy
/// if every backend answers, and its Service and endpoints are not missing.
fn is_well_though_uncalled(evidence: &Evidence<'_>, cause: Option<Cause>) -> bool {
    let states = counted(evidence.backends);
    let alive = |(_, state): &&(Backend, BackendState)| matches!(state, BackendState::Alive { .. });
    evidence.is_uncalled()
        && !matches!(cause, Some(Cause::NoEndpoints | Cause::NoService))
        && !states.is_empty()
        && states.iter().all(alive)
}

/// Probes are a witness: every backend is dead, or there is none; for a partly bad hook, at least one is dead. Slow backends
/// are evidence for a slow hook only: some always are slow, and occasionally one takes longer than any timeout.
fn probes_speak(evidence: &Evidence<'_>, cause: Option<Cause>) -> bool {
    if matches!(cause, Some(Cause::NoEndpoints | Cause::NoService)) {
        return evidence.without_backends_since.is_some();
    }
    let states = counted(evidence.backends);
    let bad = |(_, state): &&(Backend, BackendState)| match state {
        // A backend that never answered may always be that slow.
        BackendState::Dead(dead) => dead.certain && (dead.is_unusual || dead.was_alive),
        BackendState::Slow { .. } => cause == Some(Cause::Slow),
        // A single late answer is evidence only while a canary waits too.
        state => state.answered_late() && cause == Some(Cause::Slow) && evidence.canary_waits.is_some(),
    };
    match cause {
        Some(Cause::Partial) => states.iter().any(bad),
        _ => !states.is_empty() && states.iter().all(bad),
    }
}

/// Some backends seem dead, but none for certain: each has been silent for less than is unusual for it, or no other backend has
/// answered us since. Late calls and canaries then only show that the hook is slow.
fn is_hardly_partial(evidence: &Evidence<'_>, verdict: &Verdict) -> bool {
    let is_dead = |dead: &Dead| dead.is_unusual && (!dead.is_path() || evidence.way_is_open(dead.since));
    let mut parts = counted(evidence.backends).into_iter();
    verdict.cause == Some(Cause::Partial)
        && !parts.any(|(_, state)| matches!(state, BackendState::Dead(dead) if is_dead(dead)))
}

/// The hook's effect on writes; while it is bypassed, the effect that it would have without the bypass, on which the decision to
/// restore it depends.
fn would_be(hook: &Hook, evidence: &Evidence<'_>, verdict: &Verdict) -> Effect {
    match (verdict.cause, hook.failure_policy) {
        (None | Some(Cause::Denying), _) => verdict.effect,
        (Some(Cause::Slow), _) if verdict.needs_shield => Effect::Blocking,
        _ if !evidence.is_uncalled() => verdict.effect,
        (Some(Cause::Slow), _) => Effect::Delaying,
        (Some(_), FailurePolicy::Fail) => Effect::Blocking,
        (Some(_), FailurePolicy::Ignore) => Effect::FailingOpen,
    }
}
