//! Skipping a hook whose failures are ignored, while it is dead.
//!
//! Every matching write waits for the hook, and is then admitted without its review. A skip removes that wait. It follows a
//! shield, and becomes a shield again as soon as the hook may be alive.

use std::sync::Arc;
use std::time::Duration;

use super::book::{BookEntry, Skips};
use super::choice::Choice;
use super::guards::{Guard, HeldBack};
use super::observed::{Doubt, HookFacts, ObservedHook};
use super::policy::{Permit, PolicyRule, Rung};
use super::step::{BreakerStep, RateChange};
use super::{Breaker, HookAt, HookMemory};
use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookKind;
use crate::time::Time;

impl Skips {
    /// One skip more, decided on now.
    pub(super) fn next(before: Option<Self>, now: Time) -> Self {
        Self {
            on: true,
            since: now,
            times: before.map_or(0, |before| before.times).saturating_add(1),
            limit_reached: before.is_some_and(|before| before.limit_reached),
        }
    }

    /// The same history after the last skip.
    pub(super) fn ended(self) -> Self {
        Self { on: false, ..self }
    }
}

impl Breaker {
    /// Why a hook whose failures are ignored may not be skipped now; `None` where it may.
    pub(super) fn objection_to_skip(
        &self,
        hook: HookAt<'_>,
        entry: Option<&BookEntry>,
        rule: &PolicyRule,
    ) -> Option<&'static str> {
        let facts = hook.facts.as_ref()?;
        if let Some(why) = not_permitted(hook, facts, rule) {
            return Some(why);
        }
        if !self.is_dead(facts) {
            return Some("there is no proof that it is dead");
        }
        let skips = entry.and_then(|entry| entry.skips)?;
        if skips.limit_reached {
            return Some("its last skip reached the limit");
        }
        let wait = self.healthy_time_needed(u32::from(skips.times));
        // By this replica's clock: one that takes over waits the whole time again.
        let waits = !skips.on && hook.now.since(hook.line_since) < wait;
        waits.then_some("it was skipped a short while ago")
    }

    /// Whether the evidence would not justify to begin a skip now, as a tenant or another hook of that name may have caused it.
    fn is_doubtful(&self, facts: &HookFacts) -> bool {
        let doubt = facts.ambiguous || facts.doubt.is_some_and(Doubt::outlives_its_calls);
        doubt && self.settings.guards.on(Guard::WeakEvidence)
    }

    /// Whether the hook is dead.
    fn is_dead(&self, facts: &HookFacts) -> bool {
        facts.dead || !self.settings.guards.on(Guard::Dead)
    }

    /// The step for a skip while dead that is in force; `None` where there is none.
    pub(super) fn when_skipped_while_dead(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        view: &ObservedHook,
        rung: Rung,
    ) -> Option<BreakerStep> {
        if !is_skip_while_dead(&hook, entry, rung) {
            return None;
        }
        let rule = self.rule(hook.id, &hook, entry.cause);
        let Some(why) = self.why_skip_ends(hook, entry, rule) else {
            return Some(self.keep(hook, view));
        };
        let shielded = self.step_down(hook, rule, rung, why);
        Some(
            shielded
                .unwrap_or_else(|| self.restore(hook, entry, false, "The bypass is no longer permitted.")),
        )
    }

    /// Why a skip that is in force is to become a shield.
    fn why_skip_ends(&self, hook: HookAt<'_>, entry: &BookEntry, rule: &PolicyRule) -> Option<&'static str> {
        // The start by another replica's clock can only shorten it.
        let own = hook.skipped_since.map(|since| hook.now.since(since));
        if own.unwrap_or_default().max(skipped_for(entry, hook.now)) >= rule.longest_dead() {
            return Some("The skip reached its time limit: shielded instead.");
        }
        // Before its first judgement a replica leaves the skip in force.
        let (_, judged) = self.memory.judged.as_ref()?;
        let fresh = self.is_fresh(hook.now);
        let is_known = fresh && !judged.self_doubt && !judged.inventory_is_old && !judged.unread;
        let Some(facts) = hook.facts.as_ref().filter(|_| is_known) else {
            return Some("hookwatch can no longer tell whether it answers: shielded instead.");
        };
        let permitted = rule.mode == AutoBreak::On
            && Self::permits(&hook, Rung::Skip)
            && not_permitted(hook, facts, rule).is_none();
        if !facts.ignores {
            Some("Its failurePolicy is no longer Ignore: shielded instead.")
        } else if !self.is_dead(facts) {
            Some("The proof that it is dead no longer holds: shielded instead.")
        } else if self.is_doubtful(facts) {
            Some("What speaks of it may come from a tenant: shielded instead.")
        } else if !permitted {
            Some("The skip is no longer permitted: shielded instead.")
        } else {
            None
        }
    }

    /// Skips a shielded hook that is dead, or writes into the book that its last skip is over; `None` where neither is due.
    /// `justified`: the rung that is justified now.
    pub(super) fn begin_or_settle_skip(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        view: &ObservedHook,
        justified: &Result<Choice, HeldBack>,
    ) -> Option<BreakerStep> {
        let times = &self.settings.times;
        let skip = justified.as_ref().ok();
        let skip = skip.filter(|choice| choice.rung == Rung::Skip && hook.ignores());
        let Some(skips) = entry.skips.filter(|skips| skips.on) else {
            skip?;
            let rate = self.check_budget(hook.id, Rung::Skip, hook.now).ok()?;
            return Some(self.begin_skip(hook, entry, view, rate));
        };
        let unchanged = view.version == entry.object_version;
        let may_begin = hook
            .licence
            .is_some_and(|licence| hook.now.since(licence.sent) < times.act_within);
        if let Some(choice) = skip.filter(|_| unchanged && may_begin) {
            return Some(BreakerStep::bypass(choice));
        }
        // A change under this line may still be in flight; one for an outdated version fails.
        let over = !unchanged || hook.now.since(hook.line_since) >= times.write_off_after;
        let limit_reached =
            skipped_for(entry, hook.now) >= self.rule(hook.id, &hook, entry.cause).longest_dead();
        let settle = |line: &mut BookEntry| {
            line.rung = Rung::Shield;
            line.skips = Some(Skips {
                limit_reached: skips.limit_reached || limit_reached,
                ..skips.ended()
            });
        };
        over.then(|| self.rewrite(entry, settle, RateChange::None, hook.now))
    }

    /// Writes into the book that a shielded hook will be skipped next.
    fn begin_skip(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        view: &ObservedHook,
        rate: RateChange,
    ) -> BreakerStep {
        let cause = hook.cause();
        let line = BookEntry {
            rung: Rung::Skip,
            cause: cause.unwrap_or(entry.cause),
            by: Arc::clone(&self.settings.identity),
            at: hook.now,
            object_version: view.version.clone(),
            skips: Some(Skips::next(entry.skips, hook.now)),
            ..entry.clone()
        };
        BreakerStep::write(Some(line), Some(true), rate)
    }
}

/// Whether a bypass in force is the skip of a dead hook: the book says so, or the hook's failures are ignored.
pub(super) fn is_skip_while_dead(hook: &HookMemory, entry: &BookEntry, rung: Rung) -> bool {
    rung == Rung::Skip && (hook.ignores() || entry.skips.is_some_and(|skips| skips.on))
}

/// How long ago the last skip was decided on.
fn skipped_for(entry: &BookEntry, now: Time) -> Duration {
    entry.skips.map_or(Duration::ZERO, |skips| now.since(skips.since))
}

/// Why neither the rule nor the owner permits to skip a hook while it is dead; `None` where one of them does.
fn not_permitted(hook: HookAt<'_>, facts: &HookFacts, rule: &PolicyRule) -> Option<&'static str> {
    let (owner, ignores) = hook.newest().unwrap_or((&facts.owner, facts.ignores));
    let by_rule = rule.skip_while_dead;
    match owner.permit {
        _ if !ignores => Some("its failurePolicy is not Ignore"),
        // A skip loses its mutations, so the operator must have named exactly this configuration.
        _ if hook.id.kind == HookKind::Mutating && !(by_rule && rule.names(&hook.id.configuration)) => {
            Some("a mutating webhook is skipped while dead only by a rule that names its configuration")
        }
        _ if by_rule => None,
        Permit::SkipWhileDead => None,
        Permit::Nothing => {
            Some("no rule permits to skip a webhook whose failures are ignored, while it is dead")
        }
        Permit::Unreadable => {
            Some("the annotation hookwatch.dev/permit is not skip-while-dead, and permits nothing")
        }
    }
}
