//! The next step for one hook.

use std::sync::Arc;

use super::action::{NoticeKind, To};
use super::book::{BookEntry, EntryStage, Skips};
use super::choice::Choice;
use super::guards::{Guard, HeldBack};
use super::justify::at_first;
use super::observed::{BypassState, ObservedHook};
use super::policy::Rung;
use super::restore::wanted_by_hand;
use super::step::{BreakerStep, Counts, Does, strike_out, tidy};
use super::{Breaker, HookAt, REVERTS};
use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookId;
use crate::time::Time;
use crate::vocabulary::Cause;

impl Breaker {
    pub(super) fn decide(&self, id: &HookId, now: Time) -> BreakerStep {
        let Some(memory) = self.memory.hooks.get(id) else {
            return BreakerStep::default();
        };
        let hook = HookAt { id, memory, now };
        if !self.settings.acts() {
            // Nothing is read or written: only what another client did, or what would be done, is reported.
            return if let Some(view) = hook.shows.values().find(|view| view.shown.is_ours()) {
                self.stays(hook, view)
            } else if hook.fails() && self.settings.mode == AutoBreak::Plan {
                self.plan(hook)
            } else {
                BreakerStep::default()
            };
        }
        let resting = hook.rest_until.is_some_and(|until| now < until);
        if hook.pending.is_some() || resting {
            return BreakerStep::default();
        }
        let Some(book) = self.book() else {
            return self.before_book(hook);
        };
        let entry = book.entries.get(id);
        if entry.is_none()
            && !hook.is_ours()
            && !hook.is_left_over()
            && let Some(step) = self.left_alone(hook)
        {
            return step;
        }
        let Some((_, view)) = &hook.read else {
            return Does::Read.into();
        };
        let refused = hook
            .refusal(now)
            .is_some_and(|refusal| refusal.to != To::Bypass(Rung::Skip));
        if view.left_over && !refused && entry.is_none_or(|entry| entry.place == EntryStage::Out) {
            return tidy();
        }
        if view.shown.is_ours() && refused {
            return BreakerStep::default();
        }
        self.by_book_and_object(hook, entry, view)
    }

    /// No book was read yet, or none can be.
    fn before_book(&self, hook: HookAt<'_>) -> BreakerStep {
        if hook.is_ours() && self.is_without_ledger(hook.now) {
            self.without_book(hook)
        } else if hook.fails() && self.memory.ledger.lost.is_some() {
            BreakerStep::held_back(HeldBack::Ledger)
        } else {
            BreakerStep::default()
        }
    }

    /// Whether the ledger was unreachable for so long that decisions are made without it.
    fn is_without_ledger(&self, now: Time) -> bool {
        let lost = self.memory.ledger.lost;
        lost.is_some_and(|lost| now.since(lost) >= self.settings.times.without_ledger)
    }

    /// The step for a hook that hookwatch has not touched yet; `None` where a bypass is justified and permitted.
    fn left_alone(&self, hook: HookAt<'_>) -> Option<BreakerStep> {
        if !hook.fails() {
            return Some(BreakerStep::default());
        }
        let reason = self.justify(hook, None, at_first(&hook)).err()?;
        let step = self.held_back(hook, reason);
        // The object is read during a hold time.
        let read = reason == HeldBack::Hold && hook.read.is_none();
        Some(if read {
            BreakerStep {
                does: Does::Read,
                ..step
            }
        } else {
            step
        })
    }

    /// By the book's line of a hook, and the state of its object.
    fn by_book_and_object(
        &self,
        hook: HookAt<'_>,
        entry: Option<&BookEntry>,
        view: &ObservedHook,
    ) -> BreakerStep {
        let culprit = hook.fails();
        match (entry, &view.shown) {
            // Once it is restored, no API server has the bypass in force any more.
            (Some(entry), BypassState::Gone) if entry.place == EntryStage::Out || self.everywhere(&hook) => {
                strike_out()
            }
            (_, BypassState::Gone) => BreakerStep::default(),
            (None, BypassState::Original) if !culprit => BreakerStep::default(),
            (None, BypassState::Original) => self.begin(hook, None, view),
            (Some(entry), BypassState::Original) => match entry.place {
                EntryStage::Held => self.not_there(hook, entry, view),
                EntryStage::Leaving => self.left(hook, entry, view),
                EntryStage::Out => self.is_out(hook, entry, view),
            },
            // Whether it is skipped as dead shows with the first judgement.
            (None, BypassState::Ours { .. }) if self.memory.judged.is_none() => BreakerStep::default(),
            (None, BypassState::Ours { rung, .. }) => self.adopt(hook, None, *rung, view),
            (Some(entry), BypassState::Ours { rung, probation }) => match entry.place {
                EntryStage::Held => self.bypassed(hook, entry, view, (*rung, *probation)),
                // A person bypassed it meanwhile.
                EntryStage::Leaving
                    if wanted_by_hand(view, hook.now).is_some() && Self::ceiling(&hook).permits(*rung) =>
                {
                    self.adopt(hook, Some(entry), *rung, view)
                }
                EntryStage::Leaving => self.still_there(hook, entry, (*rung, *probation)),
                EntryStage::Out => self.adopt(hook, Some(entry), *rung, view),
            },
            (None, BypassState::Foreign) if culprit => BreakerStep::held_back(HeldBack::Foreign),
            (_, BypassState::Foreign) => BreakerStep::default().says(
                NoticeKind::Foreign,
                "Several webhooks of the configuration have this name: hookwatch cannot tell which it changed, and leaves them alone.",
            ),
        }
    }

    /// What would be done, where nothing may be.
    fn plan(&self, hook: HookAt<'_>) -> BreakerStep {
        let reason = self.justify(hook, None, at_first(&hook)).err();
        self.held_back(hook, reason.unwrap_or(HeldBack::Plan))
    }

    fn held_back(&self, hook: HookAt<'_>, reason: HeldBack) -> BreakerStep {
        if let (HeldBack::Refused, Some(refusal)) = (reason, &hook.refusal) {
            let words = format!("{} {}", reason.sentence(), refusal.why);
            return BreakerStep::default().says(NoticeKind::HeldBack(reason), words);
        }
        if reason != HeldBack::Plan {
            return BreakerStep::held_back(reason);
        }
        match self.choice_for_now(hook, None, at_first(&hook)) {
            Ok(choice) => BreakerStep::default().says(NoticeKind::WouldBypass(choice.rung), &*choice.words()),
            Err(reason) => BreakerStep::held_back(reason),
        }
    }

    /// A hook that is the original, and for which the book has no line or a finished one.
    pub(super) fn begin(
        &self,
        hook: HookAt<'_>,
        over: Option<&BookEntry>,
        view: &ObservedHook,
    ) -> BreakerStep {
        let room = |choice: Choice| Ok((self.room(hook.id, choice.rung, hook.now)?, choice));
        let shield = || self.justify(hook, over, Rung::Shield).and_then(room);
        let found = self.justify(hook, over, at_first(&hook));
        // Where there is no room for more there may be for a shield, which is one with others.
        let found = found.and_then(|choice| room(choice).or_else(|reason| shield().map_err(|_| reason)));
        let (counts, choice) = match found {
            Ok(found) => found,
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
        BreakerStep::writes(Some(line), Some(true), counts)
    }

    /// A new line, with the history of one that is `over`.
    fn line(&self, hook: HookAt<'_>, over: Option<&BookEntry>, rung: Rung, view: &ObservedHook) -> BookEntry {
        BookEntry {
            place: EntryStage::Held,
            rung,
            cause: hook.cause().unwrap_or(Cause::Slow),
            stake: hook.stake(),
            by: Arc::clone(&self.settings.identity),
            since: hook.now,
            at: hook.now,
            seen: view.version.clone(),
            reverts: over.map_or(0, |entry| entry.reverts),
            relapses: over.map_or(0, |entry| entry.relapses),
            contested: over.is_some_and(|entry| entry.contested),
            spent: over.is_some_and(|entry| entry.spent),
            by_hand: false,
            skips: over.and_then(|entry| entry.skips).map(Skips::over),
        }
    }

    fn bypass(&self, choice: &Choice, relapses: u8) -> BreakerStep {
        let step = BreakerStep::bypasses(choice);
        if relapses >= super::FLAPPING {
            step.says(
                NoticeKind::Flapping,
                format!("It failed again {relapses} times after a restore."),
            )
        } else {
            step
        }
    }

    /// The book says bypassed and the object is the original: the bypass is pending, was given up, or was reverted by
    /// another writer.
    fn not_there(&self, hook: HookAt<'_>, entry: &BookEntry, view: &ObservedHook) -> BreakerStep {
        let (guards, times) = (self.settings.guards, &self.settings.times);
        let justified = self.justify_line(hook, entry);
        let unchanged = view.version == entry.seen;
        if let Ok(choice) = &justified
            && choice.rung == entry.rung
            && self.has_leave(hook, unchanged)
        {
            return self.bypass(choice, entry.relapses);
        }
        let clean = hook.licence.is_some_and(|licence| licence.clean);
        let refused = hook.refusal.is_some() && (hook.refusal(hook.now).is_some() || justified.is_err());
        if clean && refused {
            return self.give_up_line(hook, entry);
        }
        let carried = hook.carried_to.as_ref() == Some(&view.version);
        let untouched = unchanged || carried || clean || hook.restored || entry.by_hand;
        let reverts = if untouched {
            entry.reverts
        } else {
            entry.reverts.saturating_add(1)
        };
        let contested = entry.contested || reverts >= REVERTS;
        let rested = hook.now.since(hook.line_since) >= times.act_within;
        let mine = entry.by == self.settings.identity;
        if let Ok(choice) = &justified
            && (!contested || !guards.on(Guard::Contested))
            && (!untouched || carried || mine || rested)
        {
            let line = BookEntry {
                since: entry.since,
                reverts,
                relapses: entry.relapses,
                skips: entry.skips,
                ..self.line(hook, None, choice.rung, view)
            };
            let step = BreakerStep::writes(Some(line), Some(clean || !unchanged), Counts::Nothing);
            return if untouched { step } else { reverted(step) };
        }
        // A change under this line may still be in flight; if it names an outdated version, it fails.
        let over = hook.now.since(hook.line_since) >= times.patience || !guards.on(Guard::Patience);
        if unchanged && !over {
            return match justified {
                Err(reason) if hook.fails() => self.held_back(hook, reason),
                _ => BreakerStep::default(),
            };
        }
        // It counts until no API server has the bypass in force any more.
        if !self.everywhere(&hook) {
            return BreakerStep::default();
        }
        self.write_off(entry, unchanged, (reverts, contested), hook.now)
    }

    /// Whether the bypass that a line is about is still justified, and whether there is room where it would go another way.
    fn justify_line(&self, hook: HookAt<'_>, entry: &BookEntry) -> Result<Choice, HeldBack> {
        let choice = self.justify(hook, Some(entry), entry.rung)?;
        if choice.rung != entry.rung {
            self.room(hook.id, choice.rung, hook.now)?;
        }
        Ok(choice)
    }

    /// Whether this replica may still begin the bypass under its line; to an object that is `unchanged` since.
    fn has_leave(&self, hook: HookAt<'_>, unchanged: bool) -> bool {
        let (guards, times) = (self.settings.guards, &self.settings.times);
        (unchanged || !guards.on(Guard::Version))
            && hook.licence.is_some_and(|licence| {
                hook.now.since(licence.sent) < times.act_within || !guards.on(Guard::Licence)
            })
    }

    /// No change can follow under the line any more: it is removed, or kept for its history.
    fn write_off(
        &self,
        entry: &BookEntry,
        unchanged: bool,
        (reverts, contested): (u8, bool),
        now: Time,
    ) -> BreakerStep {
        if unchanged && entry.reverts == 0 && entry.relapses == 0 {
            return strike_out();
        }
        let is_over = |line: &mut BookEntry| {
            (line.place, line.reverts, line.contested) = (EntryStage::Out, reverts, contested);
        };
        let step = self.rewrite(entry, is_over, Counts::Nothing, now);
        if contested {
            step.says(
                NoticeKind::Contested,
                "Contested: something keeps reverting the bypass, so hookwatch has stopped.",
            )
        } else if reverts > entry.reverts {
            reverted(step)
        } else {
            step
        }
    }

    /// Every change under this line was refused: its place is free for another hook.
    fn give_up_line(&self, hook: HookAt<'_>, entry: &BookEntry) -> BreakerStep {
        let new = entry.reverts == 0 && entry.relapses == 0 && !entry.contested && !entry.spent;
        let counts = match entry.rung {
            Rung::Shield => Counts::Nothing,
            Rung::Skip => Counts::TakesBack(entry.since),
        };
        let is_over = |line: &mut BookEntry| {
            line.place = EntryStage::Out;
            // It was counted when the line was written, and did not happen.
            line.relapses = line.relapses.saturating_sub(1);
        };
        let step = if new {
            BreakerStep::writes(None, None, counts)
        } else {
            self.rewrite(entry, is_over, counts, hook.now)
        };
        let says = self.held_back(hook, HeldBack::Refused).says;
        BreakerStep { says, ..step }
    }

    /// The object is ours and the book does not say so.
    fn adopt(
        &self,
        hook: HookAt<'_>,
        over: Option<&BookEntry>,
        rung: Rung,
        view: &ObservedHook,
    ) -> BreakerStep {
        let by_hand = wanted_by_hand(view, hook.now).is_some();
        if self.is_without_ledger(hook.now) || self.is_full_for(hook.id) {
            return self.without_book(hook);
        }
        // A backup made during the bypass and applied after it contains the bypass. It still goes through the book:
        // another replica may have bypassed the hook a moment ago, unknown to this one.
        let needed = hook.facts.is_none() || hook.fails() || by_hand;
        let is_old = over.is_some_and(|entry| entry.place == EntryStage::Out) && !needed;
        let mut line = BookEntry {
            place: if is_old {
                EntryStage::Leaving
            } else {
                EntryStage::Held
            },
            by_hand,
            ..self.line(hook, over, rung, view)
        };
        if rung == Rung::Skip && hook.ignores() {
            line.skips = Some(Skips::begun(line.skips, hook.now));
        }
        BreakerStep::writes(Some(line), None, Counts::Nothing)
    }
}

fn reverted(step: BreakerStep) -> BreakerStep {
    step.says(NoticeKind::Reverted, "Another client removed the bypass.")
}
