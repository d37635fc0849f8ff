//! Whether a bypass is justified and permitted: the guard rails, in the order of evaluation.

use std::time::Duration;

use super::book::BookEntry;
use super::choice::{Choice, RungBounds, choose};
use super::guards::{Guard, HeldBack};
use super::observed::{HookFacts, Judged};
use super::policy::{Ceiling, PolicyRule, PolicySubject, Rung};
use super::{Breaker, HookAt, HookMemory, MIN_WITNESSES};
use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookId;
use crate::time::Time;
use crate::vocabulary::Cause;

/// What the guard rails judge: a bypass of a failing hook at some rung.
struct Case<'a> {
    breaker: &'a Breaker,
    hook: HookAt<'a>,
    entry: Option<&'a BookEntry>,
    overall: &'a Judged,
    facts: &'a HookFacts,
    rule: &'a PolicyRule,
    /// The rung that would be taken now, or why there is none.
    choice: Result<&'a Choice, HeldBack>,
}

/// One guard rail: the [`Guard`] by which a test switches it off, if any, and its function, which returns why it holds the
/// breaker back, or `None`.
type GuardRail = (Option<Guard>, fn(&Case<'_>) -> Option<HeldBack>);

/// All guard rails, in order; the first that holds the breaker back gives the published reason. Evidence comes before
/// permission, and what a person can change at once comes last. The limits of each rung are in [`choose`]. The budget is
/// checked when the ledger's line is written.
const GUARD_RAILS: [GuardRail; 12] = [
    // Comes first, as it lasts longest.
    (Some(Guard::Contested), |case| {
        let contested = case.entry.is_some_and(|entry| entry.contested);
        contested.then_some(HeldBack::Contested)
    }),
    (Some(Guard::Evidence), |case| {
        let unambiguous = case.facts.witnesses.len() >= MIN_WITNESSES && case.facts.confident;
        (!unambiguous).then_some(HeldBack::Evidence)
    }),
    (Some(Guard::SelfDoubt), |case| {
        case.overall.self_doubt.then_some(HeldBack::SelfDoubt)
    }),
    (Some(Guard::Stale), |case| {
        let old = case.overall.inventory_is_old || !case.breaker.is_fresh(case.hook.now);
        old.then_some(HeldBack::Stale)
    }),
    (None, |case| case.overall.unread.then_some(HeldBack::NotRead)),
    (None, |case| {
        (case.rule.mode == AutoBreak::Off).then_some(HeldBack::Policy)
    }),
    (None, |case| case.choice.err()),
    (Some(Guard::Limit), |case| {
        let limit_reached = case.entry.is_some_and(|entry| entry.limit_reached);
        limit_reached.then_some(HeldBack::Limit)
    }),
    (Some(Guard::Frozen), |case| {
        let frozen = case.breaker.book().is_some_and(|book| book.frozen.is_some());
        frozen.then_some(HeldBack::Frozen)
    }),
    (Some(Guard::Mode), |case| {
        let on = case.rule.mode == AutoBreak::On && case.breaker.settings.mode == AutoBreak::On;
        (!on).then_some(HeldBack::Plan)
    }),
    (Some(Guard::Fence), |case| {
        (!case.overall.fence_holds).then_some(HeldBack::Fence)
    }),
    (None, |case| {
        case.hook.is_refused(case.hook.now).then_some(HeldBack::Refused)
    }),
];

impl Breaker {
    /// The rule for a hook and the cause of its failure.
    pub(super) fn rule(&self, id: &HookId, hook: &HookMemory, cause: Cause) -> &PolicyRule {
        let none = PolicySubject::default();
        let subject = hook.newest().map_or(&none, |(owner, _)| &*owner.subject);
        self.settings.policy.rule(id, subject, cause)
    }

    /// The rung for a hook, not higher than `highest`.
    ///
    /// # Errors
    /// With the reason to publish, where there is none.
    pub(super) fn choice(
        &self,
        hook: HookAt<'_>,
        entry: Option<&BookEntry>,
        highest: Rung,
    ) -> Result<Choice, HeldBack> {
        let (Some((_, overall)), Some(facts)) = (&self.memory.judged, &hook.facts) else {
            return Err(HeldBack::Stale);
        };
        let guards = self.settings.guards;
        let rule = self.rule(hook.id, &hook, facts.cause.unwrap_or(Cause::Slow));
        let ceiling = if guards.on(Guard::Ceiling) {
            Self::ceiling(&hook)
        } else {
            Ceiling::Open
        };
        let bounds = RungBounds {
            rule,
            ceiling,
            may_skip: Self::may_skip(&hook) || !guards.on(Guard::Ceiling),
            match_conditions: overall.match_conditions,
            highest,
            skip_objection: self.objection_to_skip(hook, entry, rule),
            guards,
        };
        choose(facts, &bounds)
    }

    /// As [`Self::choice`], but a shield while the hook has not failed for long enough for a higher rung.
    ///
    /// # Errors
    /// As for [`Self::choice`]; [`HeldBack::Hold`] while it is too early for a shield as well.
    pub(super) fn choice_for_now(
        &self,
        hook: HookAt<'_>,
        entry: Option<&BookEntry>,
        highest: Rung,
    ) -> Result<Choice, HeldBack> {
        let (Some(cause), Some(since)) = (hook.cause(), hook.failing_since) else {
            return Err(HeldBack::Evidence);
        };
        let rule = self.rule(hook.id, &hook, cause);
        let early = |choice: &Choice| self.is_early(hook, rule, choice.rung, since);
        // A replica that does not lead only shields.
        let highest = if self.memory.leads { highest } else { Rung::Shield };
        match self.choice(hook, entry, highest) {
            Ok(choice) if early(&choice) => {
                let shield = self.choice(hook, entry, Rung::Shield).ok();
                shield.filter(|shield| !early(shield)).ok_or(HeldBack::Hold)
            }
            choice => choice,
        }
    }

    /// The rung at which a bypass is justified and permitted, not higher than `highest`.
    ///
    /// # Errors
    /// With the reason to publish, where it is not.
    pub(super) fn justify(
        &self,
        hook: HookAt<'_>,
        entry: Option<&BookEntry>,
        highest: Rung,
    ) -> Result<Choice, HeldBack> {
        let (Some((_, overall)), Some(facts)) = (&self.memory.judged, &hook.facts) else {
            return Err(HeldBack::Stale);
        };
        let (Some(cause), true) = (facts.cause, hook.fails()) else {
            return Err(HeldBack::Evidence);
        };
        let rule = self.rule(hook.id, &hook, cause);
        let choice = self.choice_for_now(hook, entry, highest);
        let case = Case {
            breaker: self,
            hook,
            entry,
            overall,
            facts,
            rule,
            choice: choice.as_ref().map_err(|reason| *reason),
        };
        let held_back = GUARD_RAILS
            .iter()
            .filter(|(guard, _)| guard.is_none_or(|guard| self.settings.guards.on(guard)))
            .find_map(|(_, holds)| holds(&case));
        if let Some(reason) = held_back {
            return Err(reason);
        }
        let choice = choice?;
        // The fence may have been tightened a moment ago, so that it refuses a skip.
        if choice.rung == Rung::Skip && hook.refusal(hook.now).is_some() {
            let shield = self.choice(hook, entry, Rung::Shield);
            return shield.map_err(|_| HeldBack::Refused);
        }
        Ok(choice)
    }

    /// Whether a hook, failing since `since`, has not failed for long enough for a rung.
    fn is_early(&self, hook: HookAt<'_>, rule: &PolicyRule, rung: Rung, since: Time) -> bool {
        let delay = if self.memory.leads {
            Duration::ZERO
        } else {
            self.settings.times.follower_delay
        };
        let since = if rung == Rung::Shield {
            self.together_since(hook.id, since)
        } else {
            since
        };
        hook.now.since(since) < rule.hold(rung) + delay && self.settings.guards.on(Guard::Hold)
    }

    /// Since when the first of the hooks fails that fail together with this one; merely slow hooks do not count. All of them are
    /// shielded at once, since canaries skip a shielded hook, and are evidence against the other hooks until then.
    fn together_since(&self, id: &HookId, since: Time) -> Time {
        let first = self
            .incident_key(id)
            .and_then(|key| self.overview.failing_since.get(key));
        first.map_or(since, |first| since.min(*first))
    }
}

/// The highest rung that a bypass may begin with. A hook whose failures are ignored is shielded before it may be skipped.
pub(super) fn first_rung(hook: &HookMemory) -> Rung {
    if hook.ignores() { Rung::Shield } else { Rung::Skip }
}
