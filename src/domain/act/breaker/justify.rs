//! Whether a bypass is justified and permitted: the guard rails, in the order of evaluation.

use std::time::Duration;

use super::action::To;
use super::book::BookEntry;
use super::choice::{Choice, RungBounds, choose};
use super::guards::{Guard, HeldBack};
use super::observed::{HookFacts, Judged};
use super::policy::{Ceiling, PolicyRule, PolicySubject, Rung};
use super::{Breaker, HookAt, HookMemory, WITNESSES};
use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookId;
use crate::time::Time;
use crate::vocabulary::Cause;

/// What the guard rails are asked about: a hook that fails, and the rung that would be taken.
struct Case<'a> {
    breaker: &'a Breaker,
    hook: HookAt<'a>,
    entry: Option<&'a BookEntry>,
    overall: &'a Judged,
    facts: &'a HookFacts,
    rule: &'a PolicyRule,
    /// The rung for now, or why there is none.
    choice: Result<&'a Choice, HeldBack>,
}

/// One guard rail: what a test switches it off by, to show that it is needed, and why it holds the breaker back, where it does.
/// What no test can switch off holds in every test, too.
type GuardRail = (Option<Guard>, fn(&Case<'_>) -> Option<HeldBack>);

/// All of them. The first that holds gives the reason that is published: what is known comes before what is permitted, and
/// what a person can change at once comes last. Those of the rung itself are in [`choose`]; those of a place in the budget
/// are asked when the ledger's line is written.
const GUARD_RAILS: [GuardRail; 12] = [
    // It outlasts all other guards.
    (Some(Guard::Contested), |case| {
        let contested = case.entry.is_some_and(|entry| entry.contested);
        contested.then_some(HeldBack::Contested)
    }),
    (Some(Guard::Evidence), |case| {
        let unambiguous = case.facts.witnesses.len() >= WITNESSES && case.facts.sure;
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
        let spent = case.entry.is_some_and(|entry| entry.spent);
        spent.then_some(HeldBack::Limit)
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
        let refusal = case.hook.refusal(case.hook.now);
        refusal
            .is_some_and(|refusal| refusal.to != To::Bypass(Rung::Skip))
            .then_some(HeldBack::Refused)
    }),
];

impl Breaker {
    /// The rule for a hook, with the cause that it fails from or failed from.
    pub(super) fn rule(&self, id: &HookId, hook: &HookMemory, cause: Cause) -> &PolicyRule {
        let none = PolicySubject::default();
        let subject = hook.newest().map_or(&none, |(owner, _)| &*owner.subject);
        self.settings.policy.rule(id, subject, cause)
    }

    /// The rung for a hook, `most` at most.
    pub(super) fn choice(
        &self,
        hook: HookAt<'_>,
        entry: Option<&BookEntry>,
        most: Rung,
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
            most,
            not_dead: self.not_dead(hook, entry, rule),
            guards,
        };
        choose(facts, &bounds)
    }

    /// The rung for now, `most` at most: a shield as long as it is too early for more.
    pub(super) fn choice_for_now(
        &self,
        hook: HookAt<'_>,
        entry: Option<&BookEntry>,
        most: Rung,
    ) -> Result<Choice, HeldBack> {
        let (Some(cause), Some(since)) = (hook.cause(), hook.failing_since) else {
            return Err(HeldBack::Evidence);
        };
        let rule = self.rule(hook.id, &hook, cause);
        let early = |choice: &Choice| self.is_early(hook, rule, choice.rung, since);
        // A replica that does not lead goes no deeper than a shield.
        let most = if self.memory.leads { most } else { Rung::Shield };
        match self.choice(hook, entry, most) {
            Ok(choice) if early(&choice) => {
                let shield = self.choice(hook, entry, Rung::Shield).ok();
                shield.filter(|shield| !early(shield)).ok_or(HeldBack::Hold)
            }
            choice => choice,
        }
    }

    /// Whether a bypass is justified and permitted, and how far: `most` at most.
    ///
    /// # Errors
    /// With the reason to publish, where it is not.
    pub(super) fn justify(
        &self,
        hook: HookAt<'_>,
        entry: Option<&BookEntry>,
        most: Rung,
    ) -> Result<Choice, HeldBack> {
        let (Some((_, overall)), Some(facts)) = (&self.memory.judged, &hook.facts) else {
            return Err(HeldBack::Stale);
        };
        let (Some(cause), true) = (facts.cause, hook.fails()) else {
            return Err(HeldBack::Evidence);
        };
        let rule = self.rule(hook.id, &hook, cause);
        let choice = self.choice_for_now(hook, entry, most);
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
        // A skip is refused where the fence was tightened a moment ago.
        if choice.rung == Rung::Skip && hook.refusal(hook.now).is_some() {
            let shield = self.choice(hook, entry, Rung::Shield);
            return shield.map_err(|_| HeldBack::Refused);
        }
        Ok(choice)
    }

    /// Whether a hook that fails since `since` has not failed for long enough for a rung.
    fn is_early(&self, hook: HookAt<'_>, rule: &PolicyRule, rung: Rung, since: Time) -> bool {
        let behind = if self.memory.leads {
            Duration::ZERO
        } else {
            self.settings.times.follows_after
        };
        let since = if rung == Rung::Shield {
            self.together_since(hook.id, since)
        } else {
            since
        };
        hook.now.since(since) < rule.hold(rung) + behind && self.settings.guards.on(Guard::Hold)
    }

    /// Since when the first of the hooks that fail together fails, the merely slow ones apart: they are shielded at one
    /// time. The first shield spares the canaries that are evidence against the others.
    fn together_since(&self, id: &HookId, since: Time) -> Time {
        let first = self.place(id).and_then(|place| self.among.failing.get(place));
        first.map_or(since, |first| since.min(*first))
    }
}

/// The first rung of a bypass. A hook whose failures are ignored may be skipped after that, if it is dead.
pub(super) fn at_first(hook: &HookMemory) -> Rung {
    if hook.ignores() { Rung::Shield } else { Rung::Skip }
}
