//! The next step for one hook: by its line in the book, and by what its object shows.

use std::sync::Arc;

use super::action::NoticeKind;
use super::book::{BookEntry, EntryStage, Skips};
use super::choice::Choice;
use super::guards::{Guard, HeldBack};
use super::justify::first_rung;
use super::observed::{BypassState, ObservedHook};
use super::policy::Rung;
use super::restore::wanted_by_hand;
use super::step::{BreakerStep, Operation, RateChange, remove_leftovers, remove_line};
use super::{Breaker, HookAt, MAX_REVERTS};
use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookId;
use crate::time::Time;
use crate::vocabulary::Cause;

impl Breaker {
    /// The next step for one hook.
    pub(super) fn decide(&self, id: &HookId, now: Time) -> BreakerStep {
        let Some(memory) = self.memory.hooks.get(id) else {
            return BreakerStep::default();
        };
        let hook = HookAt { id, memory, now };
        if !self.settings.acts() {
            // Without reads and writes there are only notices: about another client's bypass, or about what would be done.
            return if let Some(view) = hook.by_server.values().find(|view| view.shown.is_ours()) {
                self.keep(hook, view)
            } else if hook.fails() && self.settings.mode == AutoBreak::Plan {
                self.when_planning(hook)
            } else {
                BreakerStep::default()
            };
        }
        let is_paused = hook.paused_until.is_some_and(|until| now < until);
        if hook.pending.is_some() || is_paused {
            return BreakerStep::default();
        }
        let Some(book) = self.book() else {
            return self.without_any_book(hook);
        };
        let entry = book.entries.get(id);
        if entry.is_none()
            && !hook.is_ours()
            && !hook.is_left_over()
            && let Some(step) = self.when_untouched(hook)
        {
            return step;
        }
        let Some((_, view)) = &hook.last_read else {
            return Operation::Read.into();
        };
        let is_refused = hook.is_refused(now);
        if view.left_over && !is_refused && entry.is_none_or(|entry| entry.stage == EntryStage::Restored) {
            return remove_leftovers();
        }
        if view.shown.is_ours() && is_refused {
            return BreakerStep::default();
        }
        self.by_line_and_object(hook, entry, view)
    }

    /// The step while no book was read yet.
    fn without_any_book(&self, hook: HookAt<'_>) -> BreakerStep {
        if hook.is_ours() && self.is_without_ledger(hook.now) {
            self.when_not_in_book(hook)
        } else if hook.fails() && self.memory.ledger.unreachable_since.is_some() {
            BreakerStep::held_back(HeldBack::Ledger)
        } else {
            BreakerStep::default()
        }
    }

    /// Whether the ledger was unreachable for so long that decisions are made without it.
    fn is_without_ledger(&self, now: Time) -> bool {
        let since = self.memory.ledger.unreachable_since;
        since.is_some_and(|since| now.since(since) >= self.settings.times.without_ledger)
    }

    /// The step for a hook that hookwatch has not touched yet; `None` where a bypass is justified and permitted.
    fn when_untouched(&self, hook: HookAt<'_>) -> Option<BreakerStep> {
        if !hook.fails() {
            return Some(BreakerStep::default());
        }
        let reason = self.justify(hook, None, first_rung(&hook)).err()?;
        let mut step = self.held_back(hook, reason);
        // The hold time is used to read the object.
        if reason == HeldBack::Hold && hook.last_read.is_none() {
            step.operation = Operation::Read;
        }
        Some(step)
    }

    /// The step by the hook's line in the book and the state of its object.
    fn by_line_and_object(
        &self,
        hook: HookAt<'_>,
        entry: Option<&BookEntry>,
        view: &ObservedHook,
    ) -> BreakerStep {
        let culprit = hook.fails();
        match (entry, &view.shown) {
            // After the stage `Restored` no API server has the bypass in force any more.
            (Some(entry), BypassState::Gone) if entry.stage == EntryStage::Restored || self.everywhere(&hook) => {
                remove_line()
            }
            (_, BypassState::Gone) => BreakerStep::default(),
            (None, BypassState::Original) if !culprit => BreakerStep::default(),
            (None, BypassState::Original) => self.begin(hook, None, view),
            (Some(entry), BypassState::Original) => match entry.stage {
                EntryStage::Bypassed => self.when_bypassed_but_original(hook, entry, view),
                EntryStage::Restoring => self.when_restoring_and_original(hook, entry, view),
                EntryStage::Restored => self.when_restored(hook, entry, view),
            },
            // Only a judgement says whether it is skipped because it is dead.
            (None, BypassState::Ours { .. }) if self.memory.judged.is_none() => BreakerStep::default(),
            (None, BypassState::Ours { rung, .. }) => self.adopt(hook, None, *rung, view),
            (Some(entry), BypassState::Ours { rung, probation }) => match entry.stage {
                EntryStage::Bypassed => self.when_bypassed(hook, entry, view, (*rung, *probation)),
                // A person bypassed it meanwhile.
                EntryStage::Restoring
                    if wanted_by_hand(view, hook.now).is_some() && Self::ceiling(&hook).permits(*rung) =>
                {
                    self.adopt(hook, Some(entry), *rung, view)
                }
                EntryStage::Restoring => self.when_restoring_but_bypassed(hook, entry, (*rung, *probation)),
                EntryStage::Restored => self.adopt(hook, Some(entry), *rung, view),
            },
            (None, BypassState::DuplicateName) if culprit => BreakerStep::held_back(HeldBack::Foreign),
            (_, BypassState::DuplicateName) => BreakerStep::default().with_notice(
                NoticeKind::Foreign,
                "Several webhooks of the configuration have this name: hookwatch cannot tell which it changed, and leaves them alone.",
            ),
        }
    }

    /// Reports what the breaker would do in the mode `on`.
    fn when_planning(&self, hook: HookAt<'_>) -> BreakerStep {
        let reason = self.justify(hook, None, first_rung(&hook)).err();
        self.held_back(hook, reason.unwrap_or(HeldBack::Plan))
    }

    /// Reports why a hook is not bypassed.
    fn held_back(&self, hook: HookAt<'_>, reason: HeldBack) -> BreakerStep {
        if let (HeldBack::Refused, Some(refusal)) = (reason, &hook.refusal) {
            let words = format!("{} {}", reason.sentence(), refusal.why);
            return BreakerStep::default().with_notice(NoticeKind::HeldBack(reason), words);
        }
        if reason != HeldBack::Plan {
            return BreakerStep::held_back(reason);
        }
        match self.choice_for_now(hook, None, first_rung(&hook)) {
            Ok(choice) => {
                BreakerStep::default().with_notice(NoticeKind::WouldBypass(choice.rung), &*choice.words())
            }
            Err(reason) => BreakerStep::held_back(reason),
        }
    }

    /// Begins a bypass of a hook that is the original, where that is justified and permitted. `over` is its line of an earlier
    /// bypass, if any.
    pub(super) fn begin(
        &self,
        hook: HookAt<'_>,
        over: Option<&BookEntry>,
        view: &ObservedHook,
    ) -> BreakerStep {
        let within_budget = |choice: Choice| Ok((self.check_budget(hook.id, choice.rung, hook.now)?, choice));
        let shield = || self.justify(hook, over, Rung::Shield).and_then(within_budget);
        let chosen = self.justify(hook, over, first_rung(&hook)).and_then(|choice| {
            // Where the budget has no room for a skip it may have room for a shield.
            within_budget(choice).or_else(|reason| shield().map_err(|_| reason))
        });
        let (rate, choice) = match chosen {
            Ok(chosen) => chosen,
            Err(reason) => return self.held_back(hook, reason),
        };
        let guards = self.settings.guards;
        if !guards.on(Guard::LedgerFirst) {
            return self.bypass(&choice, over.map_or(0, |entry| entry.relapses));
        }
        let line = BookEntry {
            relapses: over.map_or(0, |entry| entry.relapses.saturating_add(1)),
            ..self.line(hook, over, choice.rung, view)
        };
        BreakerStep::write(Some(line), Some(true), rate)
    }

    /// A new line, with the history of the line of an earlier bypass, `over`.
    fn line(&self, hook: HookAt<'_>, over: Option<&BookEntry>, rung: Rung, view: &ObservedHook) -> BookEntry {
        BookEntry {
            stage: EntryStage::Bypassed,
            rung,
            cause: hook.cause().unwrap_or(Cause::Slow),
            stake: hook.stake(),
            by: Arc::clone(&self.settings.identity),
            since: hook.now,
            at: hook.now,
            object_version: view.version.clone(),
            reverts: over.map_or(0, |entry| entry.reverts),
            relapses: over.map_or(0, |entry| entry.relapses),
            contested: over.is_some_and(|entry| entry.contested),
            limit_reached: over.is_some_and(|entry| entry.limit_reached),
            by_hand: false,
            skips: over.and_then(|entry| entry.skips).map(Skips::ended),
        }
    }

    /// Makes the bypass that the book already permits.
    fn bypass(&self, choice: &Choice, relapses: u8) -> BreakerStep {
        let step = BreakerStep::bypass(choice);
        if relapses >= super::FLAPPING_AFTER {
            step.with_notice(
                NoticeKind::Flapping,
                format!("It failed again {relapses} times after a restore."),
            )
        } else {
            step
        }
    }

    /// The book says bypassed and the object is the original: the bypass follows, does not follow any more, or was reverted
    /// by another writer.
    fn when_bypassed_but_original(
        &self,
        hook: HookAt<'_>,
        entry: &BookEntry,
        view: &ObservedHook,
    ) -> BreakerStep {
        let (guards, times) = (self.settings.guards, &self.settings.times);
        let justified = self.justify_line(hook, entry);
        let unchanged = view.version == entry.object_version;
        if let Ok(choice) = &justified
            && choice.rung == entry.rung
            && self.may_begin(hook, unchanged)
        {
            return self.bypass(choice, entry.relapses);
        }
        let clean = hook.licence.is_some_and(|licence| licence.clean);
        let refused = hook.refusal.is_some() && (hook.refusal(hook.now).is_some() || justified.is_err());
        if clean && refused {
            return self.give_up_line(hook, entry);
        }
        let changed_by_us = hook.version_after_our_changes.as_ref() == Some(&view.version);
        let is_revert = !(unchanged || changed_by_us || clean || hook.restored_by_us || entry.by_hand);
        let reverts = entry.reverts.saturating_add(u8::from(is_revert));
        let contested = entry.contested || reverts >= MAX_REVERTS;
        // Until then the writer of the line may still begin the bypass.
        let may_take_over = hook.now.since(hook.line_since) >= times.act_within;
        let is_own_line = entry.by == self.settings.identity;
        if let Ok(choice) = &justified
            && (!contested || !guards.on(Guard::Contested))
            && (is_revert || changed_by_us || is_own_line || may_take_over)
        {
            let line = BookEntry {
                since: entry.since,
                reverts,
                relapses: entry.relapses,
                skips: entry.skips,
                ..self.line(hook, None, choice.rung, view)
            };
            let step = BreakerStep::write(Some(line), Some(clean || !unchanged), RateChange::None);
            return if is_revert { reverted(step) } else { step };
        }
        // A change under this line may still be in flight; one for an outdated version fails.
        let over = hook.now.since(hook.line_since) >= times.write_off_after || !guards.on(Guard::WriteOff);
        if unchanged && !over {
            return match justified {
                Err(reason) if hook.fails() => self.held_back(hook, reason),
                _ => BreakerStep::default(),
            };
        }
        // The line counts as a bypass until no API server has the bypass in force any more.
        if !self.everywhere(&hook) {
            return BreakerStep::default();
        }
        self.write_off(entry, unchanged, (reverts, contested), hook.now)
    }

    /// Whether the bypass of a line is still justified, and whether another rung, if it takes one now, fits into the budget.
    fn justify_line(&self, hook: HookAt<'_>, entry: &BookEntry) -> Result<Choice, HeldBack> {
        let choice = self.justify(hook, Some(entry), entry.rung)?;
        if choice.rung != entry.rung {
            self.check_budget(hook.id, choice.rung, hook.now)?;
        }
        Ok(choice)
    }

    /// Whether this replica may still begin the bypass under its line. `unchanged`: the object still has the version of the
    /// line.
    fn may_begin(&self, hook: HookAt<'_>, unchanged: bool) -> bool {
        let (guards, times) = (self.settings.guards, &self.settings.times);
        (unchanged || !guards.on(Guard::Version))
            && hook.licence.is_some_and(|licence| {
                hook.now.since(licence.sent) < times.act_within || !guards.on(Guard::Licence)
            })
    }

    /// No change can follow under the line any more: removes it, or keeps it for its history.
    fn write_off(
        &self,
        entry: &BookEntry,
        unchanged: bool,
        (reverts, contested): (u8, bool),
        now: Time,
    ) -> BreakerStep {
        if unchanged && !entry.has_history() {
            return remove_line();
        }
        let end = |line: &mut BookEntry| {
            (line.stage, line.reverts, line.contested) = (EntryStage::Restored, reverts, contested);
        };
        let step = self.rewrite(entry, end, RateChange::None, now);
        if contested {
            step.with_notice(
                NoticeKind::Contested,
                "Contested: something keeps reverting the bypass, so hookwatch has stopped.",
            )
        } else if reverts > entry.reverts {
            reverted(step)
        } else {
            step
        }
    }

    /// Every change under this line was refused: another hook may use its share of the budget.
    fn give_up_line(&self, hook: HookAt<'_>, entry: &BookEntry) -> BreakerStep {
        let rate = match entry.rung {
            Rung::Shield => RateChange::None,
            Rung::Skip => RateChange::Undo(entry.since),
        };
        let end = |line: &mut BookEntry| {
            line.stage = EntryStage::Restored;
            // It was counted when the line was written.
            line.relapses = line.relapses.saturating_sub(1);
        };
        let step = if entry.has_history() {
            self.rewrite(entry, end, rate, hook.now)
        } else {
            BreakerStep::write(None, None, rate)
        };
        let notice = self.held_back(hook, HeldBack::Refused).notice;
        BreakerStep { notice, ..step }
    }

    /// The object shows a bypass that the book does not have: writes a line for it.
    fn adopt(
        &self,
        hook: HookAt<'_>,
        over: Option<&BookEntry>,
        rung: Rung,
        view: &ObservedHook,
    ) -> BreakerStep {
        let by_hand = wanted_by_hand(view, hook.now).is_some();
        if self.is_without_ledger(hook.now) || self.is_book_full_for(hook.id) {
            return self.when_not_in_book(hook);
        }
        // A backup that was made during a bypass contains it, and brings it back when it is applied. Before it is restored the
        // book gets a line for it: another replica may have bypassed the hook a moment ago.
        let needed = hook.facts.is_none() || hook.fails() || by_hand;
        let is_from_backup = over.is_some_and(|entry| entry.stage == EntryStage::Restored) && !needed;
        let mut line = BookEntry {
            stage: if is_from_backup {
                EntryStage::Restoring
            } else {
                EntryStage::Bypassed
            },
            by_hand,
            ..self.line(hook, over, rung, view)
        };
        if rung == Rung::Skip && hook.ignores() {
            line.skips = Some(Skips::next(line.skips, hook.now));
        }
        BreakerStep::write(Some(line), None, RateChange::None)
    }
}

/// The step with the notice that another writer reverted the bypass.
fn reverted(step: BreakerStep) -> BreakerStep {
    step.with_notice(NoticeKind::Reverted, "Another client removed the bypass.")
}
