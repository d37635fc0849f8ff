//! A step, and how it is set in motion.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::action::{Action, Expects, Notice, NoticeKind, ObjectChange, To};
use super::book::{BookEntry, EntryStage, ResourceVersion};
use super::budget::begun;
use super::choice::Choice;
use super::guards::{Guard, HeldBack};
use super::observed::BypassState;
use super::policy::Rung;
use super::{Breaker, PendingChange, Writing};
use crate::cluster::hook::HookId;
use crate::time::Time;
use crate::vocabulary::Cause;

/// One step, and its notice.
#[derive(Debug, Default)]
pub(super) struct BreakerStep {
    pub(super) does: Does,
    pub(super) says: Option<(NoticeKind, String)>,
}

#[derive(Debug, Default)]
pub(super) enum Does {
    #[default]
    Nothing,
    Read,
    /// Writes the hook's line of the book; `None` strikes it out.
    Write {
        line: Option<BookEntry>,
        /// See [`Writing::licences`].
        licence: Option<bool>,
        /// What it means for the rate.
        counts: Counts,
    },
    Change {
        to: To,
        why: Arc<str>,
    },
}

/// What a line means for the rate.
#[derive(Debug)]
pub(super) enum Counts {
    Nothing,
    /// It begins a bypass.
    Begins,
    /// One that was begun then has never been.
    TakesBack(Time),
}

impl From<Does> for BreakerStep {
    fn from(does: Does) -> Self {
        Self { does, says: None }
    }
}

impl BreakerStep {
    /// Writes the hook's line; see [`Does::Write`].
    pub(super) fn writes(line: Option<BookEntry>, licence: Option<bool>, counts: Counts) -> Self {
        let does = Does::Write {
            line,
            licence,
            counts,
        };
        does.into()
    }

    pub(super) fn changes(to: To, why: impl Into<Arc<str>>) -> Self {
        Does::Change { to, why: why.into() }.into()
    }

    /// Bypasses the hook at the chosen rung.
    pub(super) fn bypasses(choice: &Choice) -> Self {
        let why = choice.words();
        Self::changes(To::Bypass(choice.rung), Arc::clone(&why))
            .says(NoticeKind::Bypassing(choice.rung), &*why)
    }

    pub(super) fn says(mut self, kind: NoticeKind, words: impl Into<String>) -> Self {
        self.says = Some((kind, words.into()));
        self
    }

    pub(super) fn held_back(reason: HeldBack) -> Self {
        Self::default().says(NoticeKind::HeldBack(reason), reason.sentence())
    }
}

impl Breaker {
    /// As much of a step as is for a replica that does not lead: it puts up a shield, and does nothing else. The leader
    /// may have died of the outage, and the next one comes too late for the control plane. That both do it is for the
    /// ledger to prevent, as between two that believe to lead.
    pub(super) fn as_follower(&self, id: &HookId, step: BreakerStep) -> BreakerStep {
        let Some(hook) = self.memory.hooks.get(id) else {
            return BreakerStep::default();
        };
        let view = hook.read.as_ref().map(|(_, view)| &view.shown);
        // Only the leader changes a bypass that is there.
        let is_enforced = view.is_some_and(|shown| *shown == BypassState::Original);
        let own = |line: &BookEntry| {
            (line.rung, line.place) == (Rung::Shield, EntryStage::Held) && line.by == self.settings.identity
        };
        match &step.does {
            Does::Read if hook.fails() => step.does.into(),
            Does::Write {
                line: Some(line),
                licence: Some(_),
                ..
            } if is_enforced && own(line) => step,
            Does::Change {
                to: To::Bypass(Rung::Shield),
                ..
            } if is_enforced => step,
            _ => BreakerStep::default(),
        }
    }

    pub(super) fn carry_out(&mut self, id: &HookId, step: BreakerStep, now: Time, actions: &mut Vec<Action>) {
        match step.does {
            Does::Nothing => {}
            Does::Read => {
                self.ask_for(id, now, actions);
                // That it is looked at again ends nothing that was said.
                if step.says.is_none() {
                    return;
                }
            }
            Does::Write {
                line,
                licence,
                counts,
            } => {
                if let Some(hook) = self.memory.hooks.get_mut(id)
                    && line
                        .as_ref()
                        .is_some_and(|line| line.place == EntryStage::Leaving)
                {
                    hook.leaving_since.get_or_insert(now);
                }
                // If it cannot be written now, it will be said when it is done.
                if !self.write(id, line, licence, &counts, now) {
                    if licence.is_some() && self.memory.ledger.lost.is_some() {
                        self.tell(id, BreakerStep::held_back(HeldBack::Ledger).says, actions);
                    }
                    return;
                }
            }
            Does::Change { to, why } => match self.change(id, to, why, now) {
                Some(change) => actions.push(Action::Change(change)),
                None => return,
            },
        }
        self.tell(id, step.says, actions);
    }

    /// Notes that a hook's object will be changed; `None` where the object is unknown.
    fn change(&mut self, id: &HookId, to: To, why: Arc<str>, now: Time) -> Option<ObjectChange> {
        let ticket = self.ticket();
        let versioned = self.settings.guards.on(Guard::Version);
        let until = match to {
            To::Bypass(rung) => self.ends(id, rung, now),
            To::Probation | To::Original => None,
        };
        let hook = self.memory.hooks.get_mut(id)?;
        let (_, view) = hook.read.as_ref()?;
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
    fn ask_for(&mut self, id: &HookId, now: Time, actions: &mut Vec<Action>) {
        let ticket = self.ticket();
        if let Some(hook) = self.memory.hooks.get_mut(id)
            && hook.asked.is_none()
        {
            hook.asked = Some((ticket, now));
            let hook = id.clone();
            actions.push(Action::Read { ticket, hook });
        }
    }

    /// Updates the memory of restores for a step before its execution.
    pub(super) fn note(&mut self, id: &HookId, does: &Does, now: Time) {
        let Some(hook) = self.memory.hooks.get_mut(id) else {
            return;
        };
        // Whether this one is made may never be known.
        hook.restored &= !matches!(does, Does::Change { .. });
        let stays = match does {
            Does::Nothing => true,
            Does::Change { to, .. } => *to != To::Original,
            Does::Write { line, .. } => line.as_ref().is_some_and(|line| line.place == EntryStage::Held),
            Does::Read => false,
        };
        // A restore that is no longer wanted starts over when it is next due. A step without an action does not end one
        // in flight.
        if stays && hook.pending.is_none() && hook.rest_until.is_none_or(|until| until <= now) {
            hook.leaving_since = None;
        }
    }

    /// Adds a line to the next write of the book; false where nothing can be written now.
    fn write(
        &mut self,
        id: &HookId,
        line: Option<BookEntry>,
        licence: Option<bool>,
        counts: &Counts,
        now: Time,
    ) -> bool {
        let ledger = &self.memory.ledger;
        let resting = ledger.rest_until.is_some_and(|until| now < until);
        if resting || ledger.unsure || ledger.writing.is_some() {
            return false;
        }
        let Some(mut draft) = self.memory.ledger.draft.take().or_else(|| self.draft(now)) else {
            return false;
        };
        let Writing { book, licences, .. } = &mut draft;
        match counts {
            Counts::Nothing => {}
            Counts::Begins => book.begun.push(now),
            Counts::TakesBack(then) => {
                if let Some(at) = book.begun.iter().position(|begun| *begun == now.min(*then)) {
                    book.begun.remove(at);
                }
            }
        }
        match line {
            Some(line) => _ = book.entries.insert(id.clone(), line),
            None => _ = book.entries.remove(id),
        }
        licences.insert(id.clone(), licence);
        self.memory.ledger.draft = Some(draft);
        true
    }

    /// A draft of the current book, to be changed and written.
    fn draft(&mut self, now: Time) -> Option<Writing> {
        let mut book = self.book()?.clone();
        // One that is yet to come would never be past.
        let begun = begun(&book, now, self.settings.policy.rate_window).map(|begun| begun.min(now));
        book.begun = begun.collect();
        Some(Writing {
            ticket: self.ticket(),
            sent: now,
            book,
            licences: BTreeMap::new(),
        })
    }

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

    /// Reads the ledger where it is not known.
    pub(super) fn read_ledger(&mut self, now: Time, actions: &mut Vec<Action>) {
        let ledger = &mut self.memory.ledger;
        let resting = ledger.rest_until.is_some_and(|until| now < until);
        let needed = ledger.known.is_none() || ledger.unsure;
        if self.settings.acts() && needed && !resting && ledger.reading.is_none() && ledger.writing.is_none()
        {
            ledger.reading = Some(now);
            actions.push(Action::ReadLedger);
        }
    }

    fn tell(&mut self, id: &HookId, says: Option<(NoticeKind, String)>, actions: &mut Vec<Action>) {
        let Some(hook) = self.memory.hooks.get_mut(id) else {
            return;
        };
        let Some((kind, words)) = says else {
            if !hook.fails() && hook.pending.is_none() && !hook.is_ours() {
                hook.told = None;
            }
            return;
        };
        if hook.told == Some(kind) {
            return;
        }
        hook.told = Some(kind);
        let cause = hook.cause();
        let pages = matches!(
            kind,
            NoticeKind::Limit | NoticeKind::Contested | NoticeKind::Flapping | NoticeKind::Foreign
        );
        let hook = self.memory.hooks.get(id);
        let rule = hook.map(|hook| self.rule(id, hook, cause.unwrap_or(Cause::Slow)));
        actions.push(Action::Tell(Notice {
            hook: id.clone(),
            kind,
            page: rule.filter(|_| pages).and_then(|rule| rule.page.clone()),
            words,
        }));
    }

    /// The line with a change in it.
    pub(super) fn rewrite(
        &self,
        entry: &BookEntry,
        change: impl FnOnce(&mut BookEntry),
        counts: Counts,
        now: Time,
    ) -> BreakerStep {
        let mut line = BookEntry {
            by: Arc::clone(&self.settings.identity),
            at: now,
            ..entry.clone()
        };
        change(&mut line);
        BreakerStep::writes(Some(line), None, counts)
    }
}

/// The hook's line is not needed any more.
pub(super) fn strike_out() -> BreakerStep {
    BreakerStep::writes(None, None, Counts::Nothing)
}

/// Removes leftovers of hookwatch from a restored object.
pub(super) fn tidy() -> BreakerStep {
    let why = "The bypass is over, and something was still written down about it.";
    BreakerStep::changes(To::Original, why)
}

pub(super) fn put_back(why: &str) -> BreakerStep {
    BreakerStep::changes(To::Original, why).says(NoticeKind::Restoring, why)
}
