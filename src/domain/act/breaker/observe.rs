//! Taking observations in. Nothing is decided here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::action::{Action, Notice, NoticeKind, To};
use super::book::{Book, ResourceVersion};
use super::observed::{BypassState, HookFacts, Judged, Observation, ObservedHook, Ticket, WriteOutcome};
use super::policy::{OwnerWord, Rung};
use super::{Breaker, BreakerTimes, HookMemory, Licence, RefusedChange};
use crate::cluster::hook::HookId;
use crate::time::Time;
use crate::vocabulary::{Cause, Health};

/// How often the wait after refusals in a row is doubled, at most.
const MOST_DOUBLINGS: u8 = 4;

impl Breaker {
    pub(super) fn observe(&mut self, observation: Observation, now: Time, actions: &mut Vec<Action>) {
        match observation {
            Observation::Tick => {}
            Observation::Leads(leads) => self.memory.leads = leads,
            Observation::Judged(judged) => self.judged(judged, now),
            Observation::Servers(servers) => self.servers(servers),
            Observation::Shows { hook, server, view } => self.shows(hook, server, view),
            Observation::Read { ticket, view } => self.read(ticket, view, now),
            Observation::Ledger { version, book } => {
                self.memory.ledger.reading = None;
                // While a write is in flight it is unknown which of the two is newer.
                if self.memory.ledger.writing.is_none() {
                    self.knows(version, book, now);
                }
            }
            Observation::LedgerShows(version) => {
                let ledger = &mut self.memory.ledger;
                let known = ledger.known.as_ref().and_then(|(version, _)| version.as_ref());
                ledger.unsure |= known != Some(&version);
            }
            Observation::NoLedger => {
                let ledger = &mut self.memory.ledger;
                ledger.reading = None;
                ledger.rest_until = Some(now + self.settings.times.retry);
                ledger.lost.get_or_insert(now);
            }
            Observation::Outcome { ticket, outcome } => self.outcome(ticket, outcome, now, actions),
        }
    }

    fn judged(&mut self, mut judged: Judged, now: Time) {
        let hooks = std::mem::take(&mut judged.hooks);
        let before = self
            .memory
            .judged
            .replace((now, judged))
            .map_or(now, |(at, _)| at);
        for (id, hook) in &mut self.memory.hooks {
            if !hooks.contains_key(id) {
                (hook.facts, hook.failing_since) = (None, None);
                hook.was_never_well();
            }
        }
        for (id, facts) in hooks {
            let hook = self.memory.hooks.entry(id).or_default();
            // How long it has been merely slow says nothing of how long it has been worse.
            let gets_worse =
                hook.facts.as_ref().is_some_and(HookFacts::is_merely_slow) && !facts.is_merely_slow();
            let since = hook.failing_since.filter(|_| !gets_worse);
            hook.failing_since = facts.harms_writes().then(|| since.unwrap_or(now));
            // One that nothing would shield now needs no shield any more.
            let needless = hook.rung() == Some(Rung::Shield) && facts.is_merely_slow();
            let well = facts.health == Health::Healthy || needless;
            if facts.health == Health::Failing && !well {
                hook.well_before = Duration::ZERO;
            } else if let Some(since) = hook.well_since.filter(|_| !well) {
                hook.well_before += before.since(since);
            }
            hook.well_since = well.then(|| hook.well_since.unwrap_or(now));
            hook.facts = Some(facts);
        }
        let book = self.memory.ledger.known.as_ref().map(|(_, book)| book);
        let told = |id: &HookId| book.is_some_and(|book| book.entries.contains_key(id));
        self.memory.hooks.retain(|id, hook| {
            hook.facts.is_some()
                || hook.pending.is_some()
                || hook.asked.is_some()
                || told(id)
                || hook.is_ours()
                || hook.is_left_over()
        });
    }

    fn servers(&mut self, servers: BTreeSet<Arc<str>>) {
        for hook in self.memory.hooks.values_mut() {
            hook.shows.retain(|server, _| servers.contains(server));
        }
        self.memory.servers = servers;
    }

    fn shows(&mut self, id: HookId, server: Arc<str>, view: ObservedHook) {
        let hook = self.memory.hooks.entry(id).or_default();
        let before = hook.shows.insert(server, view.clone());
        let news = before.is_none_or(|before| before.version != view.version);
        // It may be older or newer than what was read; only another read can show.
        if news
            && hook
                .read
                .as_ref()
                .is_some_and(|(_, read)| read.version != view.version)
        {
            hook.read = None;
        }
    }

    fn read(&mut self, ticket: Ticket, view: Option<ObservedHook>, now: Time) {
        let rest_until = now + self.settings.times.retry;
        for hook in self.memory.hooks.values_mut() {
            if hook.asked.is_some_and(|(asked, _)| asked == ticket) {
                hook.asked = None;
                match view {
                    Some(view) => hook.sees(view, now),
                    None => hook.rest_until = Some(rest_until),
                }
                return;
            }
        }
    }

    /// Takes in the current content of the ledger.
    fn knows(&mut self, version: Option<ResourceVersion>, book: Book, now: Time) {
        let before = self.memory.ledger.known.take().map(|(_, book)| book);
        let before = before.unwrap_or_default();
        let ids: BTreeSet<&HookId> = before.entries.keys().chain(book.entries.keys()).collect();
        for id in ids {
            if before.entries.get(id) != book.entries.get(id) {
                let hook = self.memory.hooks.entry(id.clone()).or_default();
                hook.line_since = now;
                hook.licence = None;
                // What was read before may be older than the line.
                (hook.read, hook.asked) = (None, None);
            }
        }
        let ledger = &mut self.memory.ledger;
        ledger.known = Some((version, book));
        ledger.known_at = now;
        (ledger.unsure, ledger.rest_until) = (false, None);
        // One that can be read may be one that cannot be written.
        let unwritten = ledger
            .unwritten
            .is_some_and(|at| now.since(at) < self.settings.times.reread);
        ledger.lost = ledger.lost.filter(|_| unwritten);
    }

    fn outcome(&mut self, ticket: Ticket, outcome: WriteOutcome, now: Time, actions: &mut Vec<Action>) {
        if let Some(writing) = &self.memory.ledger.writing
            && writing.ticket == ticket
        {
            self.ledger_written(outcome, now);
            return;
        }
        let mut hooks = self.memory.hooks.iter_mut();
        let found = hooks.find(|(_, hook)| {
            hook.pending
                .as_ref()
                .is_some_and(|pending| pending.ticket == ticket)
        });
        let Some((id, hook)) = found else { return };
        let Some(pending) = hook.pending.take() else {
            return;
        };
        hook.read = None;
        match outcome {
            WriteOutcome::Applied(view) => {
                hook.refusal = None;
                if matches!(pending.to, To::Bypass(_)) && hook.probation_since.is_some() {
                    // Its time in good health restarts at zero.
                    hook.relapses = hook.relapses.saturating_add(1);
                    hook.was_never_well();
                }
                let (id, version) = (id.clone(), view.version.clone());
                hook.restored = pending.to == To::Original;
                hook.sees(view, now);
                self.has_changed(&id, &pending.from, &version);
            }
            WriteOutcome::Conflict | WriteOutcome::Gone | WriteOutcome::GaveUp => {}
            WriteOutcome::Refused(why) => {
                hook.refused(&why, pending.to, now, &self.settings.times);
                // A missing bypass is reported together with the other reasons of the guard rails.
                let begins = matches!(pending.to, To::Bypass(_)) && !hook.is_ours();
                if !begins && hook.told != Some(NoticeKind::Refused) {
                    hook.told = Some(NoticeKind::Refused);
                    actions.push(Action::Tell(Notice {
                        hook: id.clone(),
                        kind: NoticeKind::Refused,
                        page: None,
                        words: format!("The change was refused; hookwatch retries later: {why}"),
                    }));
                }
            }
            WriteOutcome::Ambiguous | WriteOutcome::Written(_) => hook.unclear(),
        }
    }

    /// A change of a hook took its object from one version to the next: what was read of the others in it is older.
    fn has_changed(&mut self, id: &HookId, from: &ResourceVersion, version: &ResourceVersion) {
        let book = self.memory.ledger.known.as_ref().map(|(_, book)| book);
        let others = self.memory.hooks.iter_mut();
        let others = others.filter(|(other, _)| {
            (other.kind, &other.configuration) == (id.kind, &id.configuration) && *other != id
        });
        for (id, other) in others {
            other.read.take_if(|(_, read)| read.version != *version);
            let line = book.and_then(|book| book.entries.get(id));
            let since = [other.carried_to.as_ref(), line.map(|line| &line.seen)];
            if since.contains(&Some(from)) {
                other.carried_to = Some(version.clone());
            }
        }
    }

    fn ledger_written(&mut self, outcome: WriteOutcome, now: Time) {
        let retry = self.settings.times.retry;
        let ledger = &mut self.memory.ledger;
        let Some(writing) = ledger.writing.take() else {
            return;
        };
        match outcome {
            WriteOutcome::Written(version) => {
                ledger.known = Some((Some(version), writing.book));
                ledger.known_at = now;
                (ledger.lost, ledger.unwritten, ledger.rest_until) = (None, None, None);
                for (id, licence) in writing.licences {
                    let hook = self.memory.hooks.entry(id).or_default();
                    hook.line_since = now;
                    hook.licence = licence.map(|clean| Licence {
                        sent: writing.sent,
                        clean,
                    });
                    if hook.licence.is_none() {
                        (hook.read, hook.asked) = (None, None);
                    }
                }
            }
            WriteOutcome::Conflict | WriteOutcome::Gone | WriteOutcome::GaveUp => ledger.unsure = true,
            WriteOutcome::Refused(_) | WriteOutcome::Ambiguous | WriteOutcome::Applied(_) => {
                if matches!(outcome, WriteOutcome::Refused(_)) {
                    ledger.rest_until = Some(now + retry);
                }
                (ledger.unsure, ledger.unwritten) = (true, Some(now));
                ledger.lost.get_or_insert(now);
            }
        }
    }

    /// Stops waiting for answers that will not come.
    pub(super) fn give_up(&mut self, now: Time) {
        let life = self.settings.times.request_life;
        let over = |sent: Time| now.since(sent) >= life;
        let ledger = &mut self.memory.ledger;
        if ledger.reading.is_some_and(over) {
            ledger.reading = None;
        }
        // A change that no watch reported is found in the end.
        ledger.unsure |= now.since(ledger.known_at) >= self.settings.times.reread;
        if ledger.writing.as_ref().is_some_and(|writing| over(writing.sent)) {
            ledger.writing = None;
            ledger.unsure = true;
        }
        for hook in self.memory.hooks.values_mut() {
            if hook.asked.is_some_and(|(_, sent)| over(sent)) {
                hook.asked = None;
            }
            if hook.pending.as_ref().is_some_and(|pending| over(pending.sent)) {
                hook.pending = None;
                hook.read = None;
                hook.unclear();
            }
            let reread = self.settings.times.reread;
            let old = |read: &(Time, ObservedHook)| now.since(read.0) >= reread;
            if hook.read.as_ref().is_some_and(old) {
                hook.read = None;
            }
        }
    }
}

impl HookMemory {
    /// Whether it fails now, and harms writes by that.
    pub(super) fn fails(&self) -> bool {
        self.failing_since.is_some()
    }

    /// What is wrong with it, by the last judgement.
    pub(super) fn cause(&self) -> Option<Cause> {
        self.facts.as_ref()?.cause
    }

    /// Whether anything is known to be of hookwatch.
    pub(super) fn is_ours(&self) -> bool {
        self.rung().is_some()
    }

    /// How far it is bypassed, by anything that is known.
    pub(super) fn rung(&self) -> Option<Rung> {
        let rungs = self.views().filter_map(|view| match view.shown {
            BypassState::Ours { rung, .. } => Some(rung),
            _ => None,
        });
        rungs.max()
    }

    /// Whether there is nothing to decide about it, unless the book has a line on it: it does not fail, its object has no known
    /// change of hookwatch, and nothing is in flight or was reported.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.fails()
            && !self.is_ours()
            && !self.is_left_over()
            && self.read.is_none()
            && self.asked.is_none()
            && self.pending.is_none()
            && self.told.is_none()
            && self.leaving_since.is_none()
    }

    /// Whether its failures are ignored.
    pub(super) fn ignores(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.ignores)
    }

    /// What its owner says, and whether its failures are ignored, by the newest version of the object that is known.
    pub(super) fn newest(&self) -> Option<(&OwnerWord, bool)> {
        let read = self.read.as_ref().map(|(_, view)| (&view.owner, view.ignores));
        read.or(self.facts.as_ref().map(|facts| (&facts.owner, facts.ignores)))
    }

    /// Whether something of hookwatch's that is not in force any more is known to be there.
    pub(super) fn is_left_over(&self) -> bool {
        self.views().any(|view| view.left_over)
    }

    /// Its object as each API server shows it, and as it was read.
    fn views(&self) -> impl Iterator<Item = &ObservedHook> {
        let read = self.read.as_ref().map(|(_, view)| view);
        self.shows.values().chain(read)
    }

    /// Why the last change was refused, as long as it is not to be tried again.
    pub(super) fn refusal(&self, now: Time) -> Option<&RefusedChange> {
        self.refusal.as_ref().filter(|it| now < it.until)
    }

    /// Restarts the time in good health: it counts from the next time that the hook is healthy.
    fn was_never_well(&mut self) {
        (self.well_since, self.well_before) = (None, Duration::ZERO);
    }

    /// A change was refused; each one in a row makes the wait twice as long.
    fn refused(&mut self, why: &Arc<str>, to: To, now: Time, times: &BreakerTimes) {
        let before = self.refusal.take();
        let before = before.filter(|before| now.since(before.until) < times.remember);
        let count = before.map_or(0, |before| before.times);
        let wait = times.retry * 2_u32.pow(u32::from(count.min(MOST_DOUBLINGS)));
        self.refusal = Some(RefusedChange {
            why: Arc::clone(why),
            until: now + wait,
            times: count.saturating_add(1),
            to,
        });
    }

    /// Takes in the truth.
    fn sees(&mut self, view: ObservedHook, now: Time) {
        match view.shown {
            BypassState::Ours { rung, probation } => {
                if self.bypassed_since.is_none() {
                    self.bypassed_since = Some(now);
                    // A hook that another replica has bypassed was failing for that one, however long it has been
                    // healthy here.
                    self.well_since = self.well_since.map(|_| now);
                    self.well_before = Duration::ZERO;
                }
                // It has been used. If the object is the original after this, another writer reverted the bypass.
                (self.licence, self.restored) = (None, false);
                if probation {
                    self.probation_since.get_or_insert(now);
                } else {
                    self.probation_since = None
                }
                match rung {
                    Rung::Skip => _ = self.skipped_since.get_or_insert(now),
                    Rung::Shield => self.skipped_since = None,
                }
            }
            BypassState::Original | BypassState::Gone => {
                (self.bypassed_since, self.probation_since) = (None, None);
                (self.skipped_since, self.leaving_since) = (None, None);
                self.relapses = 0;
            }
            BypassState::Foreign => {}
        }
        self.read = Some((now, view));
    }

    /// A change may or may not have been made, or may still be.
    fn unclear(&mut self) {
        if let Some(licence) = &mut self.licence {
            licence.clean = false;
        }
    }
}
