//! Skipping a hook whose failures are ignored, while it is dead.
//!
//! Every matching write is already admitted without its review, after a wait for it. A skip removes that wait. It comes
//! after a shield, and becomes a shield again as soon as the hook may be alive.

use std::sync::Arc;
use std::time::Duration;

use super::book::{BookEntry, Skips};
use super::choice::Choice;
use super::guards::{Guard, HeldBack};
use super::observed::{Doubt, HookFacts, ObservedHook};
use super::policy::{Permit, PolicyRule, Rung};
use super::step::{BreakerStep, Counts};
use super::{Breaker, HookAt, HookMemory};
use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookKind;
use crate::time::Time;

impl Skips {
    pub(super) fn begun(before: Option<Self>, now: Time) -> Self {
        Self {
            on: true,
            since: now,
            times: before.map_or(0, |before| before.times).saturating_add(1),
            spent: before.is_some_and(|before| before.spent),
        }
    }

    pub(super) fn over(self) -> Self {
        Self { on: false, ..self }
    }
}

impl Breaker {
    /// Why a hook whose failures are ignored may not be skipped now; `None` where it may.
    pub(super) fn not_dead(
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
        let wait = self.doubled(u32::from(skips.times));
        // By our own clock: a replica that takes over waits the whole time again.
        let waits = !skips.on && hook.now.since(hook.line_since) < wait;
        if skips.spent {
            Some("its last skip reached the limit")
        } else {
            waits.then_some("it was skipped a short while ago")
        }
    }

    /// Whether a skip would not begin any more, by who may have brought about what is seen.
    fn is_doubtful(&self, facts: &HookFacts) -> bool {
        let doubt = facts.ambiguous || facts.doubt.is_some_and(Doubt::outlives_its_calls);
        doubt && self.settings.guards.on(Guard::WeakEvidence)
    }

    fn is_dead(&self, facts: &HookFacts) -> bool {
        facts.dead || !self.settings.guards.on(Guard::Dead)
    }

    /// The step for a skip while dead that is in force; `None` where there is none.
    pub(super) fn skipped(
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
        let Some(why) = self.skip_is_over(hook, entry, rule) else {
            return Some(self.stays(hook, view));
        };
        let shielded = self.steps_down(hook, rule, rung, why);
        Some(shielded.unwrap_or_else(|| self.leave(hook, entry, false, "The bypass is no longer permitted.")))
    }

    /// Why a skip that is in force is to become a shield.
    fn skip_is_over(&self, hook: HookAt<'_>, entry: &BookEntry, rule: &PolicyRule) -> Option<&'static str> {
        // An instant that another clock wrote down can only shorten it.
        let own = hook.skipped_since.map(|since| hook.now.since(since));
        if own.unwrap_or_default().max(skipped_for(entry, hook.now)) >= rule.longest_dead() {
            return Some("The skip reached its time limit: shielded instead.");
        }
        // A replica that has only just started relies on what was recorded before.
        let (_, judged) = self.memory.judged.as_ref()?;
        let fresh = self.is_fresh(hook.now);
        let known = fresh && !judged.self_doubt && !judged.inventory_is_old && !judged.unread;
        let Some(facts) = hook.facts.as_ref().filter(|_| known) else {
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

    /// Takes a shielded hook that is dead to a skip, and notes in the book when one is over. `justified`: what may be
    /// done about it now.
    pub(super) fn skips(
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
            let counts = self
                .room(hook.id, Rung::Skip, hook.now)
                .ok()
                .filter(|_| skip.is_some())?;
            return Some(self.begin_skip(hook, entry, view, counts));
        };
        let unchanged = view.version == entry.seen;
        let may = hook
            .licence
            .is_some_and(|licence| hook.now.since(licence.sent) < times.act_within);
        if let Some(choice) = skip.filter(|_| unchanged && may) {
            return Some(BreakerStep::bypasses(choice));
        }
        // A change under this line may still be in flight; if it names an outdated version, it fails.
        let over = !unchanged || hook.now.since(hook.line_since) >= times.patience;
        let spent = skipped_for(entry, hook.now) >= self.rule(hook.id, &hook, entry.cause).longest_dead();
        let settle = |line: &mut BookEntry| {
            line.rung = Rung::Shield;
            line.skips = Some(Skips {
                spent: skips.spent || spent,
                ..skips.over()
            });
        };
        over.then(|| self.rewrite(entry, settle, Counts::Nothing, hook.now))
    }

    /// Records in the book that a shielded hook will be skipped next.
    fn begin_skip(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        view: &ObservedHook,
        counts: Counts,
    ) -> BreakerStep {
        let cause = hook.cause();
        let line = BookEntry {
            rung: Rung::Skip,
            cause: cause.unwrap_or(entry.cause),
            by: Arc::clone(&self.settings.identity),
            at: hook.now,
            seen: view.version.clone(),
            skips: Some(Skips::begun(entry.skips, hook.now)),
            ..entry.clone()
        };
        BreakerStep::writes(Some(line), Some(true), counts)
    }
}

/// Whether a bypass that is in force is a skip while dead, by the book or as the hook's failures are ignored.
pub(super) fn is_skip_while_dead(hook: &HookMemory, entry: &BookEntry, rung: Rung) -> bool {
    rung == Rung::Skip && (hook.ignores() || entry.skips.is_some_and(|skips| skips.on))
}

/// How long ago the last skip was decided on.
fn skipped_for(entry: &BookEntry, now: Time) -> Duration {
    entry.skips.map_or(Duration::ZERO, |skips| now.since(skips.since))
}

/// Why neither a rule nor the owner permits to skip a hook while it is dead; `None` where one does.
fn not_permitted(hook: HookAt<'_>, facts: &HookFacts, rule: &PolicyRule) -> Option<&'static str> {
    let (owner, ignores) = hook.newest().unwrap_or((&facts.owner, facts.ignores));
    let by_rule = rule.skip_while_dead;
    match owner.permit {
        _ if !ignores => Some("its failurePolicy is not Ignore"),
        // Its mutations are lost: the operator must have named exactly this one.
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
