//! A step for one hook, and how its reads, writes and changes are requested.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::action::{Action, Expects, Notice, NoticeKind, ObjectChange, To};
use super::book::{BookEntry, EntryStage, ResourceVersion};
use super::budget::recent_skips;
use super::choice::Choice;
use super::guards::{Guard, HeldBack};
use super::observed::BypassState;
use super::policy::Rung;
use super::{Breaker, Licence, PendingChange, Writing};
use crate::cluster::hook::HookId;
use crate::time::Time;
use crate::vocabulary::Cause;

/// The decision for one hook: one operation at most, and a notice about it.
#[derive(Debug, Default)]
pub(super) struct BreakerStep {
    pub(super) operation: Operation,
    pub(super) notice: Option<(NoticeKind, String)>,
}

#[derive(Debug, Default)]
pub(super) enum Operation {
    #[default]
    Nothing,
    /// Reads the hook's object.
    Read,
    /// Writes the hook's line into the book; `None` removes it.
    Write {
        line: Option<BookEntry>,
        /// Whether this line gives a [`Licence`], and then whether that is [clean](Licence::clean).
        licence: Option<bool>,
        rate: RateChange,
    },
    /// Changes the hook's object.
    Change { to: To, why: Arc<str> },
}

/// What a write of a line means for the rate of skips.
#[derive(Debug)]
pub(super) enum RateChange {
    None,
    /// Another skip begins.
    Begin,
    /// The skip that was counted at this time never happened.
    Undo(Time),
}

impl From<Operation> for BreakerStep {
    fn from(operation: Operation) -> Self {
        Self {
            operation,
            notice: None,
        }
    }
}

impl BreakerStep {
    /// Writes the hook's line; see [`Operation::Write`].
    pub(super) fn write(line: Option<BookEntry>, licence: Option<bool>, rate: RateChange) -> Self {
        let operation = Operation::Write { line, licence, rate };
        operation.into()
    }

    /// Changes the hook's object.
    pub(super) fn change(to: To, why: impl Into<Arc<str>>) -> Self {
        Operation::Change { to, why: why.into() }.into()
    }

    /// Bypasses the hook at the chosen rung.
    pub(super) fn bypass(choice: &Choice) -> Self {
        let why = choice.words();
        Self::change(To::Bypass(choice.rung), Arc::clone(&why))
            .with_notice(NoticeKind::Bypassing(choice.rung), &*why)
    }

    pub(super) fn with_notice(mut self, kind: NoticeKind, words: impl Into<String>) -> Self {
        self.notice = Some((kind, words.into()));
        self
    }

    pub(super) fn held_back(reason: HeldBack) -> Self {
        Self::default().with_notice(NoticeKind::HeldBack(reason), reason.sentence())
    }
}

impl Breaker {
    /// The part of a step that a replica may take that does not lead: it may only begin a shield. The leader may have died
    /// in the outage, and the next leader would come too late for the control plane. If both begin one, the ledger permits
    /// only one of them, as it does with two replicas that believe they lead.
    pub(super) fn as_follower(&self, id: &HookId, step: BreakerStep) -> BreakerStep {
        let Some(hook) = self.memory.hooks.get(id) else {
            return BreakerStep::default();
        };
        let view = hook.last_read.as_ref().map(|(_, view)| &view.shown);
        // Only the leader changes an existing bypass.
        let is_enforced = view.is_some_and(|shown| *shown == BypassState::Original);
        let is_own_shield = |line: &BookEntry| {
            (line.rung, line.stage) == (Rung::Shield, EntryStage::Bypassed)
                && line.by == self.settings.identity
        };
        match &step.operation {
            Operation::Read if hook.fails() => step.operation.into(),
            Operation::Write {
                line: Some(line),
                licence: Some(_),
                ..
            } if is_enforced && is_own_shield(line) => step,
            Operation::Change {
                to: To::Bypass(Rung::Shield),
                ..
            } if is_enforced => step,
            _ => BreakerStep::default(),
        }
    }

    /// Requests what a step needs, and sends its notice.
    pub(super) fn carry_out(&mut self, id: &HookId, step: BreakerStep, now: Time, actions: &mut Vec<Action>) {
        match step.operation {
            Operation::Nothing => {}
            Operation::Read => {
                self.request_read(id, now, actions);
                // A read does not make the last notice untrue.
                if step.notice.is_none() {
                    return;
                }
            }
            Operation::Write { line, licence, rate } => {
                if let Some(hook) = self.memory.hooks.get_mut(id)
                    && line
                        .as_ref()
                        .is_some_and(|line| line.stage == EntryStage::Restoring)
                {
                    hook.restore_due_since.get_or_insert(now);
                }
                // The notice waits until the line can be written.
                if !self.add_to_draft(id, line, licence, &rate, now) {
                    if licence.is_some() && self.memory.ledger.unreachable_since.is_some() {
                        self.notify(id, BreakerStep::held_back(HeldBack::Ledger).notice, actions);
                    }
                    return;
                }
            }
            Operation::Change { to, why } => match self.change(id, to, why, now) {
                Some(change) => actions.push(Action::Change(change)),
                None => return,
            },
        }
        self.notify(id, step.notice, actions);
    }

    /// Remembers a change of a hook's object as in flight, and returns it; `None` where the object was not read.
    fn change(&mut self, id: &HookId, to: To, why: Arc<str>, now: Time) -> Option<ObjectChange> {
        let ticket = self.ticket();
        let versioned = self.settings.guards.on(Guard::Version);
        let until = match to {
            To::Bypass(rung) => self.expiry(id, rung, now),
            To::Probation | To::Original => None,
        };
        let hook = self.memory.hooks.get_mut(id)?;
        let (_, view) = hook.last_read.as_ref()?;
        let expects = Expects {
            uid: Arc::clone(&view.uid),
            version: if versioned {
                view.version.clone()
            } else {
                ResourceVersion::new("")
            },
            shown: view.shown.clone(),
        };
        hook.pending = Some(PendingChange {
            ticket,
            sent: now,
            from: view.version.clone(),
            to,
        });
        Some(ObjectChange {
            ticket,
            hook: id.clone(),
            to,
            until,
            expects,
            why,
        })
    }

    /// Requests a read of a hook's object, unless one is in flight.
    fn request_read(&mut self, id: &HookId, now: Time, actions: &mut Vec<Action>) {
        let ticket = self.ticket();
        if let Some(hook) = self.memory.hooks.get_mut(id)
            && hook.read_request.is_none()
        {
            hook.read_request = Some((ticket, now));
            let hook = id.clone();
            actions.push(Action::Read { ticket, hook });
        }
    }

    /// Updates what is remembered of the hook's restore, before a step is carried out.
    pub(super) fn note_step(&mut self, id: &HookId, operation: &Operation, now: Time) {
        let Some(hook) = self.memory.hooks.get_mut(id) else {
            return;
        };
        // Whether this change is made may never be known.
        hook.restored_by_us &= !matches!(operation, Operation::Change { .. });
        let stays = match operation {
            Operation::Nothing => true,
            Operation::Change { to, .. } => *to != To::Original,
            Operation::Write { line, .. } => line
                .as_ref()
                .is_some_and(|line| line.stage == EntryStage::Bypassed),
            Operation::Read => false,
        };
        // A restore that is no longer due starts over when it is due again. A step that only waits for a change in flight
        // does not end it.
        if stays && hook.pending.is_none() && hook.paused_until.is_none_or(|until| until <= now) {
            hook.restore_due_since = None;
        }
    }

    /// Adds a line to the draft of the next write of the book; false where the book cannot be written now.
    fn add_to_draft(
        &mut self,
        id: &HookId,
        line: Option<BookEntry>,
        licence: Option<bool>,
        rate: &RateChange,
        now: Time,
    ) -> bool {
        let ledger = &self.memory.ledger;
        let resting = ledger.paused_until.is_some_and(|until| now < until);
        if resting || ledger.must_reread || ledger.writing.is_some() {
            return false;
        }
        let Some(mut draft) = self.memory.ledger.draft.take().or_else(|| self.new_draft(now)) else {
            return false;
        };
        let Writing { book, licences, .. } = &mut draft;
        match rate {
            RateChange::None => {}
            RateChange::Begin => book.skips_begun.push(now),
            RateChange::Undo(begun) => {
                let begun = now.min(*begun);
                if let Some(at) = book.skips_begun.iter().position(|other| *other == begun) {
                    book.skips_begun.remove(at);
                }
            }
        }
        match line {
            Some(line) => _ = book.entries.insert(id.clone(), line),
            None => _ = book.entries.remove(id),
        }
        let sent = now;
        licences.insert(id.clone(), licence.map(|clean| Licence { sent, clean }));
        self.memory.ledger.draft = Some(draft);
        true
    }

    /// A draft with the current book.
    fn new_draft(&mut self, now: Time) -> Option<Writing> {
        let mut book = self.book()?.clone();
        // An instant in the future, of another clock, would count for too long.
        let begun = recent_skips(&book, now, self.settings.policy.rate_window).map(|begun| begun.min(now));
        book.skips_begun = begun.collect();
        Some(Writing {
            ticket: self.ticket(),
            sent: now,
            book,
            licences: BTreeMap::new(),
        })
    }

    /// Requests the write of the draft, if there is one.
    pub(super) fn send_draft(&mut self) -> Option<Action> {
        let ledger = &mut self.memory.ledger;
        let draft = ledger.draft.take()?;
        let (version, _) = ledger.known.as_ref()?;
        let action = Action::WriteLedger {
            ticket: draft.ticket,
            version: version.clone(),
            book: draft.book.clone(),
        };
        ledger.writing = Some(draft);
        Some(action)
    }

    /// Requests a read of the ledger where its content is unknown or outdated.
    pub(super) fn read_ledger(&mut self, now: Time, actions: &mut Vec<Action>) {
        let ledger = &mut self.memory.ledger;
        let resting = ledger.paused_until.is_some_and(|until| now < until);
        let needed = ledger.known.is_none() || ledger.must_reread;
        if self.settings.acts()
            && needed
            && !resting
            && ledger.reading_since.is_none()
            && ledger.writing.is_none()
        {
            ledger.reading_since = Some(now);
            actions.push(Action::ReadLedger);
        }
    }

    /// Sends a notice about a hook, unless it is the same as the last one.
    fn notify(&mut self, id: &HookId, notice: Option<(NoticeKind, String)>, actions: &mut Vec<Action>) {
        let Some(hook) = self.memory.hooks.get_mut(id) else {
            return;
        };
        let Some((kind, words)) = notice else {
            if !hook.fails() && hook.pending.is_none() && !hook.is_ours() {
                hook.last_notice = None;
            }
            return;
        };
        if hook.last_notice == Some(kind) {
            return;
        }
        hook.last_notice = Some(kind);
        let pages = matches!(
            kind,
            NoticeKind::Limit | NoticeKind::Contested | NoticeKind::Flapping | NoticeKind::Foreign
        );
        let hook = self.memory.hooks.get(id).filter(|_| pages);
        let page = hook.and_then(|hook| {
            let rule = self.rule(id, hook, hook.cause().unwrap_or(Cause::Slow));
            rule.page.clone()
        });
        let hook = id.clone();
        actions.push(Action::Tell(Notice {
            hook,
            kind,
            page,
            words,
        }));
    }

    /// Writes a line again with a change in it. It gives no licence.
    pub(super) fn rewrite(
        &self,
        entry: &BookEntry,
        change: impl FnOnce(&mut BookEntry),
        rate: RateChange,
        now: Time,
    ) -> BreakerStep {
        let mut line = BookEntry {
            by: Arc::clone(&self.settings.identity),
            at: now,
            ..entry.clone()
        };
        change(&mut line);
        BreakerStep::write(Some(line), None, rate)
    }
}

/// Removes the hook's line from the book.
pub(super) fn remove_line() -> BreakerStep {
    BreakerStep::write(None, None, RateChange::None)
}

/// Removes what hookwatch left in an object without a bypass in force.
pub(super) fn remove_leftovers() -> BreakerStep {
    let why = "The bypass is over, and something was still written down about it.";
    BreakerStep::change(To::Original, why)
}

/// Restores the hook's object, without a write of the book.
pub(super) fn restore_object(why: &str) -> BreakerStep {
    BreakerStep::change(To::Original, why).with_notice(NoticeKind::Restoring, why)
}
