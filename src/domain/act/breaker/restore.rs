//! The way back of a hook that is bypassed.

use std::time::Duration;

use super::action::{NoticeKind, To};
use super::book::{BookEntry, EntryStage};
use super::choice::Choice;
use super::dead::is_skip_while_dead;
use super::guards::Guard;
use super::observed::{BypassState, CanaryWord, ObservedHook};
use super::policy::{AtLimit, PolicyRule, Rung};
use super::step::{BreakerStep, Counts, Does, put_back, strike_out};
use super::{Breaker, HookAt, HookMemory};
use crate::act::bypass::LONGEST_BY_HAND;
use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookId;
use crate::time::Time;
use crate::vocabulary::Cause;

impl Breaker {
    /// A hook that is bypassed, and the book says so.
    pub(super) fn bypassed(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        view: &ObservedHook,
        (rung, probation): (Rung, bool),
    ) -> BreakerStep {
        if let Some(step) = self.bypassed_by_hand(hook, entry, view, rung) {
            return step;
        }
        if entry.contested {
            return self.leave(hook, entry, false, "Something keeps reverting the bypass.");
        }
        if let Some(step) = self.skipped(hook, entry, view, rung) {
            return step;
        }
        let rule = self.rule(hook.id, &hook, entry.cause);
        if !self.may_stay(&hook, rule, rung) {
            let shielded = self.steps_down(
                hook,
                rule,
                rung,
                "This rung is no longer permitted: shielded instead.",
            );
            let original = || self.leave(hook, entry, false, "This rung is no longer permitted.");
            return shielded
                .filter(|_| hook.well_since.is_none())
                .unwrap_or_else(original);
        }
        let limit = self.has_reached_limit(hook, entry, rule);
        if limit && rule.at_limit(rung) == AtLimit::Restore {
            return self.at_limit(hook, entry, rule, rung);
        }
        let justified = self.justify(hook, Some(entry), Rung::Skip);
        let step = if probation {
            self.on_probation(hook, entry, rung)
        } else {
            self.still_bypassed(hook, entry, rung)
        };
        if let Some(step) = step {
            return step;
        }
        if rung == Rung::Shield
            && let Some(step) = self.skips(hook, entry, view, &justified)
        {
            return step;
        }
        if let Ok(choice) = justified
            && choice.rung > rung
            && !probation
            // Its time counts from the beginning of the bypass, so that it would be over at once.
            && !limit
            && !hook.ignores()
            && let Ok(counts) = self.room_for_more(hook.id, entry, choice.rung, hook.now)
        {
            return self.move_to(hook, entry, &choice, counts);
        }
        if rung < entry.rung && hook.now.since(hook.line_since) >= self.settings.times.patience {
            // The step up was refused, or has failed, and cannot arrive any more: another webhook may have its place.
            return self.rewrite(entry, |line| line.rung = rung, Counts::Nothing, hook.now);
        }
        if limit {
            return BreakerStep::default().says(
                NoticeKind::Limit,
                "The bypass reached its time limit. Its rule keeps it in place.",
            );
        }
        self.stays(hook, view)
    }

    /// The step for a bypass that a person made; `None` where it is the breaker's own.
    fn bypassed_by_hand(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        view: &ObservedHook,
        rung: Rung,
    ) -> Option<BreakerStep> {
        let permitted = Self::ceiling(&hook).permits(rung);
        if permitted && wanted_by_hand(view, hook.now).is_some() {
            // A person's bypass stays until the end they gave.
            return Some(if entry.by_hand {
                self.stays(hook, view)
            } else {
                self.rewrite(entry, |line| line.by_hand = true, Counts::Nothing, hook.now)
            });
        }
        if !entry.by_hand {
            return None;
        }
        let why = if permitted {
            "The manual bypass has expired."
        } else {
            "This rung is no longer permitted."
        };
        Some(self.leave(hook, entry, false, why))
    }

    /// Whether rule and owner still permit the rung that a hook is on.
    fn may_stay(&self, hook: &HookMemory, rule: &PolicyRule, rung: Rung) -> bool {
        let guards = self.settings.guards;
        rule.mode == AutoBreak::On
            && (rule.rungs.contains(&rung) || !guards.on(Guard::Policy))
            && (Self::permits(hook, rung) || !guards.on(Guard::Ceiling))
    }

    /// Whether a bypass has lasted as long as its rule lets it.
    fn has_reached_limit(&self, hook: HookAt<'_>, entry: &BookEntry, rule: &PolicyRule) -> bool {
        // An instant that another clock wrote down can only shorten a bypass.
        let own = hook
            .bypassed_since
            .map_or(Duration::ZERO, |since| hook.now.since(since));
        let lasted = own.max(hook.now.since(entry.since));
        lasted >= rule.longest() && self.settings.guards.on(Guard::Longest)
    }

    /// When a bypass at this rung expires by its rule; `None` where the rule lets it stay.
    pub(super) fn ends(&self, id: &HookId, rung: Rung, now: Time) -> Option<Time> {
        let hook = self.memory.hooks.get(id)?;
        let entry = self.book().and_then(|book| book.entries.get(id));
        let (since, cause) = entry.map_or((now, hook.cause()), |entry| (entry.since, Some(entry.cause)));
        let rule = self.rule(id, hook, cause.unwrap_or(Cause::Slow));
        match entry.filter(|entry| is_skip_while_dead(hook, entry, rung)) {
            Some(entry) => Some(entry.skips.map_or(now, |skips| skips.since) + rule.longest_dead()),
            None => (rule.at_limit(rung) == AtLimit::Restore).then(|| since + rule.longest()),
        }
    }

    /// A bypass that has reached its limit and must end: one that goes further falls back to a shield until the webhook is healthy,
    /// if its rule lets that stay.
    fn at_limit(&self, hook: HookAt<'_>, entry: &BookEntry, rule: &PolicyRule, rung: Rung) -> BreakerStep {
        // A hook that is healthy by now may be bypassed again when it fails.
        let spent = hook.well_since.is_none();
        let shield_stays = spent && rule.at_limit(Rung::Shield) == AtLimit::Hold;
        let why = "The bypass reached its limit: shielded instead.";
        if let Some(step) = self.steps_down(hook, rule, rung, why).filter(|_| shield_stays) {
            return step;
        }
        self.leave(hook, entry, spent, "The bypass reached its limit.")
    }

    /// Takes a skip back to a shield, where that is permitted and was not refused. The object first: to enforce more needs no line
    /// in the ledger, and no evidence. A webhook that nothing reaches has one witness at most.
    pub(super) fn steps_down(
        &self,
        hook: HookAt<'_>,
        rule: &PolicyRule,
        rung: Rung,
        why: &str,
    ) -> Option<BreakerStep> {
        let shield = Rung::Shield;
        let refusal = hook.refusal.as_ref().map(|refusal| refusal.to);
        let may = rung > shield && refusal != Some(To::Bypass(shield)) && self.may_stay(&hook, rule, shield);
        may.then(|| BreakerStep::changes(To::Bypass(shield), why).says(NoticeKind::Bypassing(shield), why))
    }

    /// A bypass that stays as it is: made by the breaker, by a person, or by another client where hookwatch may not
    /// act.
    pub(super) fn stays(&self, hook: HookAt<'_>, view: &ObservedHook) -> BreakerStep {
        let (kind, words) = match view.shown {
            BypassState::Ours { probation: true, .. } => (
                NoticeKind::Probation,
                "Only dry-run canaries reach the webhook.".to_owned(),
            ),
            BypassState::Ours { rung, .. } if self.all_show(&hook, view) => (
                NoticeKind::Effective(rung),
                match wanted_by_hand(view, hook.now) {
                    Some(until) => format!("Bypassed with `hookwatch break` until {until}."),
                    None => "Every API server shows the bypass.".to_owned(),
                },
            ),
            _ => return BreakerStep::default(),
        };
        BreakerStep::default().says(kind, words)
    }

    /// Takes a bypass to another rung. The book first, so that the rule is found by the cause that holds now.
    fn move_to(&self, hook: HookAt<'_>, entry: &BookEntry, choice: &Choice, counts: Counts) -> BreakerStep {
        if entry.rung == choice.rung {
            return BreakerStep::bypasses(choice);
        }
        let cause = hook.cause();
        self.rewrite(
            entry,
            |line| {
                line.rung = choice.rung;
                line.cause = cause.unwrap_or(line.cause);
                line.stake = line.stake.max(hook.stake());
            },
            counts,
            hook.now,
        )
    }

    /// How long a hook has been well, by a judgement that is fresh.
    fn well_for(&self, hook: HookAt<'_>) -> Option<Duration> {
        let judged = self.memory.judged.as_ref();
        let known = self.is_fresh(hook.now) && judged.is_some_and(|(_, judged)| !judged.self_doubt);
        hook.well_since
            .filter(|_| known)
            .map(|since| hook.now.since(since))
    }

    /// How long a hook must be healthy after this many relapses.
    pub(super) fn doubled(&self, relapses: u32) -> Duration {
        let times = &self.settings.times;
        times.well_for * 2_u32.saturating_pow(relapses.min(times.doublings))
    }

    fn still_bypassed(&self, hook: HookAt<'_>, entry: &BookEntry, rung: Rung) -> Option<BreakerStep> {
        let guards = self.settings.guards;
        let relapses = entry.relapses.saturating_add(hook.relapses);
        // The least of it without a break: what a relapse adds is not lost to a call that fails once in a while.
        let well = self.well_for(hook)?;
        if well < self.settings.times.well_for || well + hook.well_before < self.doubled(u32::from(relapses))
        {
            return None;
        }
        let met = hook.facts.as_ref().is_some_and(|facts| facts.canary.is_met());
        // Below a shield the tenants are still sent to the hook; to let only canaries through would be to spare them.
        let narrower = rung == Rung::Skip || !guards.on(Guard::Narrowing);
        if met && narrower && guards.on(Guard::Canary) {
            let step = BreakerStep::changes(To::Probation, "Healthy for long enough to go on probation.");
            return Some(step.says(NoticeKind::Probation, "Only dry-run canaries reach the webhook."));
        }
        Some(self.leave(hook, entry, false, "Healthy for long enough."))
    }

    fn on_probation(&self, hook: HookAt<'_>, entry: &BookEntry, rung: Rung) -> Option<BreakerStep> {
        let canary = hook
            .facts
            .as_ref()
            .map_or(CanaryWord::Awaited, |facts| facts.canary);
        if canary == CanaryWord::Failed || hook.fails() {
            // Only dry runs reach it until then, so there is time to wait for a refusal.
            if hook.refusal(hook.now).is_some() {
                return Some(BreakerStep::default());
            }
            let why = "It failed again on probation.";
            return Some(BreakerStep::changes(To::Bypass(rung), why).says(NoticeKind::Relapsed, why));
        }
        let tried = hook
            .probation_since
            .map_or(Duration::ZERO, |since| hook.now.since(since));
        let well = self.well_for(hook)?.min(tried) >= self.settings.times.probation;
        let through = matches!(canary, CanaryWord::Through | CanaryWord::Unmet);
        (well && through).then(|| self.leave(hook, entry, false, "Healthy, canaries included."))
    }

    /// Restores a bypassed hook: the book first, so that other replicas do not take it for a revert.
    pub(super) fn leave(&self, hook: HookAt<'_>, entry: &BookEntry, spent: bool, why: &str) -> BreakerStep {
        let since = hook.leaving_since;
        if since.is_some_and(|since| hook.now.since(since) >= self.settings.times.without_ledger) {
            return put_back(why);
        }
        let relapses = entry.relapses.saturating_add(hook.relapses);
        let step = self.rewrite(
            entry,
            |line| {
                line.place = EntryStage::Leaving;
                line.relapses = relapses;
                line.spent |= spent;
            },
            Counts::Nothing,
            hook.now,
        );
        let kind = if spent {
            NoticeKind::Limit
        } else {
            NoticeKind::Restoring
        };
        step.says(kind, why)
    }

    /// A restore is due and has not happened: the change was refused, or the replica that should make it is gone. A hook that
    /// recovered and fails again stays bypassed.
    pub(super) fn still_there(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        (rung, probation): (Rung, bool),
    ) -> BreakerStep {
        // A skip while dead ends for other reasons than recovery.
        let while_dead = is_skip_while_dead(&hook, entry, rung);
        let was_well = !(entry.contested || entry.spent || entry.by_hand || while_dead);
        let fails_again = was_well && hook.fails() && hook.well_since.is_none();
        if !fails_again || !self.may_stay(&hook, self.rule(hook.id, &hook, entry.cause), rung) {
            return put_back("The ledger already has the order to restore it.");
        }
        // The change by the replica that wrote the order may still arrive, and would look like a revert.
        let mine = entry.by == self.settings.identity;
        if !mine && hook.now.since(hook.line_since) < self.settings.times.request_life {
            return BreakerStep::default();
        }
        // The line has those on probation already, and another one on probation is counted when it ends that.
        let before = entry.relapses.saturating_sub(hook.relapses);
        let relapses = before.saturating_add(u8::from(!probation));
        let stays = |line: &mut BookEntry| (line.place, line.relapses) = (EntryStage::Held, relapses);
        let step = self.rewrite(entry, stays, Counts::Nothing, hook.now);
        step.says(NoticeKind::Relapsed, "It failed again before it was restored.")
    }

    /// The restore has happened. If the hook fails again, it does not wait for API servers that have not shown the restore
    /// yet: the wait for a silent one can outlast a leader.
    pub(super) fn left(&self, hook: HookAt<'_>, entry: &BookEntry, view: &ObservedHook) -> BreakerStep {
        let again = if hook.fails() && !entry.contested {
            self.begin(hook, Some(entry), view)
        } else {
            BreakerStep::default()
        };
        let (out, over) = (self.everywhere(&hook), self.is_limit_over(hook, entry));
        if !matches!(again.does, Does::Nothing) || !(out || over) {
            return again;
        }
        let change = |line: &mut BookEntry| {
            line.spent &= !over;
            if out {
                line.place = EntryStage::Out;
            }
        };
        self.rewrite(entry, change, Counts::Nothing, hook.now)
    }

    /// Whether a limit that a bypass reached no longer counts: the webhook was healthy for as long as a restore requires, so
    /// its next failure is a new one.
    fn is_limit_over(&self, hook: HookAt<'_>, entry: &BookEntry) -> bool {
        let well = self.well_for(hook).map(|well| well + hook.well_before);
        entry.spent && well.is_some_and(|well| well >= self.doubled(u32::from(entry.relapses)))
    }

    /// The original is in place, and the line is still remembered.
    pub(super) fn is_out(&self, hook: HookAt<'_>, entry: &BookEntry, view: &ObservedHook) -> BreakerStep {
        if hook.fails() {
            return self.begin(hook, Some(entry), view);
        }
        let times = &self.settings.times;
        let long = hook.now.since(hook.line_since) >= times.remember;
        let forgotten = match hook.facts {
            Some(_) => self
                .well_for(hook)
                .is_some_and(|well| well + hook.well_before >= times.remember),
            None => true,
        };
        let restored = "Restored; watching it for an hour.";
        if self.is_limit_over(hook, entry) {
            let step = self.rewrite(entry, |line| line.spent = false, Counts::Nothing, hook.now);
            return step.says(NoticeKind::Restored, restored);
        }
        match long && forgotten {
            true => strike_out(),
            false if entry.contested => BreakerStep::default(),
            false => BreakerStep::default().says(NoticeKind::Restored, restored),
        }
    }

    /// What is ours and cannot be written into the ledger, which is out of reach or full, goes back as soon as it can.
    pub(super) fn without_book(&self, hook: HookAt<'_>) -> BreakerStep {
        let Some((_, view)) = &hook.read else {
            return Does::Read.into();
        };
        let BypassState::Ours { rung, .. } = view.shown else {
            return BreakerStep::default();
        };
        if !Self::ceiling(&hook).permits(rung) {
            return put_back(
                "This rung is no longer permitted, and hookwatch cannot write it into its ledger.",
            );
        }
        if wanted_by_hand(view, hook.now).is_some() {
            return BreakerStep::default();
        }
        if view.by_hand_until.is_some() {
            return put_back("The manual bypass has expired.");
        }
        let well = self.well_for(hook);
        if well.is_some_and(|well| well >= self.settings.times.well_for) {
            return put_back("Healthy, and hookwatch cannot write it into its ledger.");
        }
        let rule = self.rule(hook.id, &hook, hook.cause().unwrap_or(Cause::Slow));
        let longest = if rung == Rung::Skip && hook.ignores() {
            rule.longest_dead()
        } else {
            rule.longest()
        };
        let lasted = hook.bypassed_since.map(|since| hook.now.since(since));
        if lasted.is_some_and(|lasted| lasted >= longest) && rule.at_limit(rung) == AtLimit::Restore {
            return put_back("The bypass reached its limit, and hookwatch cannot write it into its ledger.");
        }
        BreakerStep::default()
    }
}

/// How far the clock of a person's machine may be ahead of this one's.
const CLOCKS_APART: Duration = Duration::from_secs(300);

/// Until when a person wants a bypass that they made. `break` takes no longer time than [`LONGEST_BY_HAND`]: more than that was
/// not asked for by a person.
pub(super) fn wanted_by_hand(view: &ObservedHook, now: Time) -> Option<Time> {
    let until = view.by_hand_until.filter(|until| now < *until)?;
    (until.since(now) <= LONGEST_BY_HAND + CLOCKS_APART).then_some(until)
}
