//! What happens to a bypass: it stays, changes its rung, goes on probation, or is restored.

use std::time::Duration;

use super::action::{NoticeKind, To};
use super::book::{BookEntry, EntryStage};
use super::choice::Choice;
use super::dead::is_skip_while_dead;
use super::guards::Guard;
use super::observed::{BypassState, CanaryEvidence, ObservedHook};
use super::policy::{AtLimit, PolicyRule, Rung};
use super::step::{BreakerStep, Operation, RateChange, remove_line, restore_object};
use super::{Breaker, HookAt, HookMemory};
use crate::act::bypass::LONGEST_BY_HAND;
use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookId;
use crate::time::Time;
use crate::vocabulary::Cause;

impl Breaker {
    /// The step for a hook that is bypassed, as the book says.
    pub(super) fn when_bypassed(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        view: &ObservedHook,
        (rung, probation): (Rung, bool),
    ) -> BreakerStep {
        if let Some(step) = self.when_bypassed_by_hand(hook, entry, view, rung) {
            return step;
        }
        if entry.contested {
            return self.restore(hook, entry, false, "Something keeps reverting the bypass.");
        }
        if let Some(step) = self.when_skipped_while_dead(hook, entry, view, rung) {
            return step;
        }
        let rule = self.rule(hook.id, &hook, entry.cause);
        if !self.may_stay(&hook, rule, rung) {
            let why = "This rung is no longer permitted: shielded instead.";
            if hook.healthy_since.is_none()
                && let Some(step) = self.step_down(hook, rule, rung, why)
            {
                return step;
            }
            return self.restore(hook, entry, false, "This rung is no longer permitted.");
        }
        let is_at_limit = self.has_reached_limit(hook, entry, rule);
        if is_at_limit && rule.at_limit(rung) == AtLimit::Restore {
            return self.end_at_limit(hook, entry, rule, rung);
        }
        let justified = self.justify(hook, Some(entry), Rung::Skip);
        let step = if probation {
            self.on_probation(hook, entry, rung)
        } else {
            self.end_if_healthy(hook, entry, rung)
        };
        if let Some(step) = step {
            return step;
        }
        if rung == Rung::Shield
            && let Some(step) = self.begin_or_settle_skip(hook, entry, view, &justified)
        {
            return step;
        }
        if let Ok(choice) = justified
            && choice.rung > rung
            && !probation
            // The time limit counts from the start of the bypass, so a higher rung would end at once.
            && !is_at_limit
            && !hook.ignores()
            && let Ok(rate) = self.check_budget_for_rung(hook.id, entry, choice.rung, hook.now)
        {
            return self.move_to(hook, entry, &choice, rate);
        }
        if rung < entry.rung && hook.now.since(hook.line_since) >= self.settings.times.write_off_after {
            // The step to the higher rung was refused or failed, and cannot follow any more: another hook may use its budget.
            return self.rewrite(entry, |line| line.rung = rung, RateChange::None, hook.now);
        }
        if is_at_limit {
            return BreakerStep::default().with_notice(
                NoticeKind::Limit,
                "The bypass reached its time limit. Its rule keeps it in place.",
            );
        }
        self.keep(hook, view)
    }

    /// The step for a bypass that a person made; `None` for one that the breaker made.
    fn when_bypassed_by_hand(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        view: &ObservedHook,
        rung: Rung,
    ) -> Option<BreakerStep> {
        let permitted = Self::ceiling(&hook).permits(rung);
        if permitted && wanted_by_hand(view, hook.now).is_some() {
            // A person's bypass stays until the end that the person gave.
            return Some(if entry.by_hand {
                self.keep(hook, view)
            } else {
                self.rewrite(entry, |line| line.by_hand = true, RateChange::None, hook.now)
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
        Some(self.restore(hook, entry, false, why))
    }

    /// Whether rule, owner and fence permit a hook's current rung.
    fn may_stay(&self, hook: &HookMemory, rule: &PolicyRule, rung: Rung) -> bool {
        let guards = self.settings.guards;
        rule.mode == AutoBreak::On
            && (rule.rungs.contains(&rung) || !guards.on(Guard::Policy))
            && (Self::permits(hook, rung) || !guards.on(Guard::Ceiling))
    }

    /// Whether a bypass has reached the time limit of its rule.
    fn has_reached_limit(&self, hook: HookAt<'_>, entry: &BookEntry, rule: &PolicyRule) -> bool {
        // The start by another replica's clock can only shorten a bypass.
        let own = hook
            .bypassed_since
            .map_or(Duration::ZERO, |since| hook.now.since(since));
        let lasted = own.max(hook.now.since(entry.since));
        lasted >= rule.longest() && self.settings.guards.on(Guard::Longest)
    }

    /// When a bypass at this rung expires by its rule; `None` where it stays at the limit.
    pub(super) fn expiry(&self, id: &HookId, rung: Rung, now: Time) -> Option<Time> {
        let hook = self.memory.hooks.get(id)?;
        let entry = self.book().and_then(|book| book.entries.get(id));
        let (since, cause) = entry.map_or((now, hook.cause()), |entry| (entry.since, Some(entry.cause)));
        let rule = self.rule(id, hook, cause.unwrap_or(Cause::Slow));
        match entry.filter(|entry| is_skip_while_dead(hook, entry, rung)) {
            Some(entry) => Some(entry.skips.map_or(now, |skips| skips.since) + rule.longest_dead()),
            None => (rule.at_limit(rung) == AtLimit::Restore).then(|| since + rule.longest()),
        }
    }

    /// Ends a bypass that has reached its limit. A skip becomes a shield until the webhook is healthy, if its rule lets a shield
    /// stay at the limit.
    fn end_at_limit(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        rule: &PolicyRule,
        rung: Rung,
    ) -> BreakerStep {
        // A hook that is healthy already may be bypassed again when it fails again.
        let limit_reached = hook.healthy_since.is_none();
        let why = "The bypass reached its limit: shielded instead.";
        if limit_reached
            && rule.at_limit(Rung::Shield) == AtLimit::Hold
            && let Some(step) = self.step_down(hook, rule, rung, why)
        {
            return step;
        }
        self.restore(hook, entry, limit_reached, "The bypass reached its limit.")
    }

    /// Changes a skip to a shield; `None` where that is not permitted, or was refused. It needs no line in the ledger and no
    /// evidence, as a shield enforces more than a skip. There could not be evidence: no request reaches a skipped webhook, so
    /// it has one witness at most.
    pub(super) fn step_down(
        &self,
        hook: HookAt<'_>,
        rule: &PolicyRule,
        rung: Rung,
        why: &str,
    ) -> Option<BreakerStep> {
        let shield = Rung::Shield;
        let refused = hook.refusal.as_ref().map(|refusal| refusal.to);
        let may = rung > shield && refused != Some(To::Bypass(shield)) && self.may_stay(&hook, rule, shield);
        may.then(|| {
            BreakerStep::change(To::Bypass(shield), why).with_notice(NoticeKind::Bypassing(shield), why)
        })
    }

    /// Leaves a bypass as it is, and reports it: one of the breaker or of a person, or of another client where hookwatch may
    /// not act.
    pub(super) fn keep(&self, hook: HookAt<'_>, view: &ObservedHook) -> BreakerStep {
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
        BreakerStep::default().with_notice(kind, words)
    }

    /// Changes a bypass to another rung. The book is written first, with the current cause, by which the rule is found.
    fn move_to(&self, hook: HookAt<'_>, entry: &BookEntry, choice: &Choice, rate: RateChange) -> BreakerStep {
        if entry.rung == choice.rung {
            return BreakerStep::bypass(choice);
        }
        let cause = hook.cause();
        self.rewrite(
            entry,
            |line| {
                line.rung = choice.rung;
                line.cause = cause.unwrap_or(line.cause);
                line.stake = line.stake.max(hook.stake());
            },
            rate,
            hook.now,
        )
    }

    /// How long a hook has been healthy without a break, by a recent judgement; `None` where it is not, or that is unknown.
    fn healthy_time(&self, hook: HookAt<'_>) -> Option<Duration> {
        let judged = self.memory.judged.as_ref();
        let is_known = self.is_fresh(hook.now) && judged.is_some_and(|(_, judged)| !judged.self_doubt);
        hook.healthy_since
            .filter(|_| is_known)
            .map(|since| hook.now.since(since))
    }

    /// How long a hook must have been healthy after this many relapses before its restore begins.
    pub(super) fn healthy_time_needed(&self, relapses: u32) -> Duration {
        let times = &self.settings.times;
        times.healthy_for * 2_u32.saturating_pow(relapses.min(times.doublings))
    }

    /// Ends a bypass, or begins its probation, when the hook was healthy for long enough; `None` before that.
    fn end_if_healthy(&self, hook: HookAt<'_>, entry: &BookEntry, rung: Rung) -> Option<BreakerStep> {
        let guards = self.settings.guards;
        let relapses = entry.relapses.saturating_add(hook.relapses);
        // Only `healthy_for` must pass without a break. The time that relapses add is not lost to a call that fails now and
        // then.
        let well = self.healthy_time(hook)?;
        if well < self.settings.times.healthy_for
            || well + hook.healthy_before < self.healthy_time_needed(u32::from(relapses))
        {
            return None;
        }
        let has_canary = hook.facts.as_ref().is_some_and(|facts| facts.canary.has_canary());
        // A shield still enforces the hook for tenants. Probation would let their writes pass without review.
        let enforces_more = rung == Rung::Skip || !guards.on(Guard::Narrowing);
        if has_canary && enforces_more && guards.on(Guard::Canary) {
            let step = BreakerStep::change(To::Probation, "Healthy for long enough to go on probation.");
            return Some(step.with_notice(NoticeKind::Probation, "Only dry-run canaries reach the webhook."));
        }
        Some(self.restore(hook, entry, false, "Healthy for long enough."))
    }

    /// The step for a hook on probation; `None` while the outcome is open.
    fn on_probation(&self, hook: HookAt<'_>, entry: &BookEntry, rung: Rung) -> Option<BreakerStep> {
        let canary = hook
            .facts
            .as_ref()
            .map_or(CanaryEvidence::Awaited, |facts| facts.canary);
        if canary == CanaryEvidence::Failed || hook.fails() {
            // After a refusal there is time to wait: only dry runs reach the hook.
            if hook.refusal(hook.now).is_some() {
                return Some(BreakerStep::default());
            }
            let why = "It failed again on probation.";
            return Some(BreakerStep::change(To::Bypass(rung), why).with_notice(NoticeKind::Relapsed, why));
        }
        let on_probation_for = hook
            .probation_since
            .map_or(Duration::ZERO, |since| hook.now.since(since));
        let well = self.healthy_time(hook)?.min(on_probation_for) >= self.settings.times.probation_for;
        let through = matches!(canary, CanaryEvidence::Through | CanaryEvidence::NoCanary);
        (well && through).then(|| self.restore(hook, entry, false, "Healthy, canaries included."))
    }

    /// Restores a bypassed hook. The book is written first, so that other replicas do not mistake the restore for a revert.
    /// `limit_reached`: the bypass reached its time limit, and the hook was not healthy since.
    pub(super) fn restore(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        limit_reached: bool,
        why: &str,
    ) -> BreakerStep {
        let since = hook.restore_due_since;
        if since.is_some_and(|since| hook.now.since(since) >= self.settings.times.without_ledger) {
            return restore_object(why);
        }
        let relapses = entry.relapses.saturating_add(hook.relapses);
        let step = self.rewrite(
            entry,
            |line| {
                line.stage = EntryStage::Restoring;
                line.relapses = relapses;
                line.limit_reached |= limit_reached;
            },
            RateChange::None,
            hook.now,
        );
        let kind = if limit_reached {
            NoticeKind::Limit
        } else {
            NoticeKind::Restoring
        };
        step.with_notice(kind, why)
    }

    /// The book says restoring and the object shows the bypass: the change was refused or not made yet, or its replica is gone.
    /// A hook that was healthy and fails again stays bypassed.
    pub(super) fn when_restoring_but_bypassed(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        (rung, probation): (Rung, bool),
    ) -> BreakerStep {
        // The skip of a dead hook ends for other reasons than its health.
        let while_dead = is_skip_while_dead(&hook, entry, rung);
        let was_well = !(entry.contested || entry.limit_reached || entry.by_hand || while_dead);
        let fails_again = was_well && hook.fails() && hook.healthy_since.is_none();
        if !fails_again || !self.may_stay(&hook, self.rule(hook.id, &hook, entry.cause), rung) {
            return restore_object("The ledger already has the order to restore it.");
        }
        // The restore by the replica that wrote the line may still follow, and would look like a revert.
        let is_own_line = entry.by == self.settings.identity;
        if !is_own_line && hook.now.since(hook.line_since) < self.settings.times.request_life {
            return BreakerStep::default();
        }
        // `restore` has added the relapses on probation to the line. This one, if on probation, is added when probation ends.
        let before = entry.relapses.saturating_sub(hook.relapses);
        let relapses = before.saturating_add(u8::from(!probation));
        let stays = |line: &mut BookEntry| (line.stage, line.relapses) = (EntryStage::Bypassed, relapses);
        let step = self.rewrite(entry, stays, RateChange::None, hook.now);
        step.with_notice(NoticeKind::Relapsed, "It failed again before it was restored.")
    }

    /// The book says restoring and the object is the original. A hook that fails again is bypassed at once: an API server that
    /// does not answer, and so does not show the restore, can take longer than a leader survives.
    pub(super) fn when_restoring_and_original(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        view: &ObservedHook,
    ) -> BreakerStep {
        let again = if hook.fails() && !entry.contested {
            self.begin(hook, Some(entry), view)
        } else {
            BreakerStep::default()
        };
        let (is_restored, limit_over) = (self.everywhere(&hook), self.is_limit_over(hook, entry));
        if !matches!(again.operation, Operation::Nothing) || !(is_restored || limit_over) {
            return again;
        }
        let change = |line: &mut BookEntry| {
            line.limit_reached &= !limit_over;
            if is_restored {
                line.stage = EntryStage::Restored;
            }
        };
        self.rewrite(entry, change, RateChange::None, hook.now)
    }

    /// Whether the limit that a bypass reached no longer counts: the hook was healthy for as long as a restore requires, so its
    /// next failure is a new one.
    fn is_limit_over(&self, hook: HookAt<'_>, entry: &BookEntry) -> bool {
        let well = self.healthy_time(hook).map(|well| well + hook.healthy_before);
        entry.limit_reached
            && well.is_some_and(|well| well >= self.healthy_time_needed(u32::from(entry.relapses)))
    }

    /// The book says restored and the object is the original. The line is removed after a while.
    pub(super) fn when_restored(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        view: &ObservedHook,
    ) -> BreakerStep {
        if hook.fails() {
            return self.begin(hook, Some(entry), view);
        }
        let times = &self.settings.times;
        let was_healthy = hook.facts.is_none()
            || self
                .healthy_time(hook)
                .is_some_and(|healthy| healthy + hook.healthy_before >= times.remember_for);
        let restored = "Restored; watching it for an hour.";
        if self.is_limit_over(hook, entry) {
            let step = self.rewrite(
                entry,
                |line| line.limit_reached = false,
                RateChange::None,
                hook.now,
            );
            return step.with_notice(NoticeKind::Restored, restored);
        }
        if was_healthy && hook.now.since(hook.line_since) >= times.remember_for {
            remove_line()
        } else if entry.contested {
            BreakerStep::default()
        } else {
            BreakerStep::default().with_notice(NoticeKind::Restored, restored)
        }
    }

    /// The step for a bypass that cannot be written into the ledger, as it is unreachable or full: restores it as soon as
    /// possible.
    pub(super) fn when_not_in_book(&self, hook: HookAt<'_>) -> BreakerStep {
        let Some((_, view)) = &hook.last_read else {
            return Operation::Read.into();
        };
        let BypassState::Ours { rung, .. } = view.shown else {
            return BreakerStep::default();
        };
        if !Self::ceiling(&hook).permits(rung) {
            return restore_object(
                "This rung is no longer permitted, and hookwatch cannot write it into its ledger.",
            );
        }
        if wanted_by_hand(view, hook.now).is_some() {
            return BreakerStep::default();
        }
        if view.by_hand_until.is_some() {
            return restore_object("The manual bypass has expired.");
        }
        let well = self.healthy_time(hook);
        if well.is_some_and(|well| well >= self.settings.times.healthy_for) {
            return restore_object("Healthy, and hookwatch cannot write it into its ledger.");
        }
        let rule = self.rule(hook.id, &hook, hook.cause().unwrap_or(Cause::Slow));
        let longest = if rung == Rung::Skip && hook.ignores() {
            rule.longest_dead()
        } else {
            rule.longest()
        };
        let lasted = hook.bypassed_since.map(|since| hook.now.since(since));
        if lasted.is_some_and(|lasted| lasted >= longest) && rule.at_limit(rung) == AtLimit::Restore {
            return restore_object(
                "The bypass reached its limit, and hookwatch cannot write it into its ledger.",
            );
        }
        BreakerStep::default()
    }
}

/// How far the clock of a person's machine may be ahead of the clock here.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(300);

/// Until when a person wants the bypass that is in force; `None` where it expired, or no person made it. An end further away
/// than [`LONGEST_BY_HAND`], which is all that `break` accepts, is not a person's.
pub(super) fn wanted_by_hand(view: &ObservedHook, now: Time) -> Option<Time> {
    let until = view.by_hand_until.filter(|until| now < *until)?;
    (until.since(now) <= LONGEST_BY_HAND + MAX_CLOCK_SKEW).then_some(until)
}
