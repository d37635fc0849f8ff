//! Remembers observations. Nothing is decided here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::action::{Action, Notice, NoticeKind, To};
use super::book::{Book, ResourceVersion};
use super::observed::{BypassState, HookFacts, Judged, Observation, ObservedHook, Ticket, WriteOutcome};
use super::policy::{OwnerAnnotations, Rung};
use super::{Breaker, BreakerTimes, HookMemory, RefusedChange};
use crate::cluster::hook::HookId;
use crate::time::Time;
use crate::vocabulary::{Cause, Health};

/// How often the wait is doubled, at most, when changes are refused in a row.
const MAX_REFUSAL_DOUBLINGS: u8 = 4;

impl Breaker {
    /// Remembers one observation.
    pub(super) fn observe(&mut self, observation: Observation, now: Time, actions: &mut Vec<Action>) {
        match observation {
            Observation::Tick => {}
            Observation::Leads(leads) => self.memory.leads = leads,
            Observation::Judged(judged) => self.take_judgement(judged, now),
            Observation::Servers(servers) => self.take_servers(servers),
            Observation::Shows { hook, server, view } => self.take_view(hook, server, view),
            Observation::Read { ticket, view } => self.take_read(ticket, view, now),
            Observation::Ledger { version, book } => {
                self.memory.ledger.reading_since = None;
                // While a write is in flight it is unknown which of the two is newer.
                if self.memory.ledger.writing.is_none() {
                    self.take_book(version, book, now);
                }
            }
            Observation::LedgerShows(version) => {
                let ledger = &mut self.memory.ledger;
                let known = ledger.known.as_ref().and_then(|(version, _)| version.as_ref());
                ledger.must_reread |= known != Some(&version);
            }
            Observation::NoLedger => {
                let ledger = &mut self.memory.ledger;
                ledger.reading_since = None;
                ledger.paused_until = Some(now + self.settings.times.retry_after);
                ledger.unreachable_since.get_or_insert(now);
            }
            Observation::Outcome { ticket, outcome } => self.take_outcome(ticket, outcome, now, actions),
        }
    }

    fn take_judgement(&mut self, mut judged: Judged, now: Time) {
        let hooks = std::mem::take(&mut judged.hooks);
        let before = self
            .memory
            .judged
            .replace((now, judged))
            .map_or(now, |(at, _)| at);
        for (id, hook) in &mut self.memory.hooks {
            if !hooks.contains_key(id) {
                (hook.facts, hook.failing_since) = (None, None);
                hook.restart_healthy_time();
            }
        }
        for (id, facts) in hooks {
            let hook = self.memory.hooks.entry(id).or_default();
            // The time in which it was merely slow does not count as failing in a worse way.
            let gets_worse =
                hook.facts.as_ref().is_some_and(HookFacts::is_merely_slow) && !facts.is_merely_slow();
            let since = hook.failing_since.filter(|_| !gets_worse);
            hook.failing_since = facts.harms_writes().then(|| since.unwrap_or(now));
            // A hook that is merely slow would not be shielded now, so its shield is not needed any more.
            let needless = hook.rung() == Some(Rung::Shield) && facts.is_merely_slow();
            if facts.health == Health::Healthy || needless {
                hook.healthy_since.get_or_insert(now);
            } else if facts.health == Health::Failing {
                hook.restart_healthy_time();
            } else if let Some(since) = hook.healthy_since.take() {
                hook.healthy_before += before.since(since);
            }
            hook.facts = Some(facts);
        }
        let book = self.memory.ledger.known.as_ref().map(|(_, book)| book);
        let has_line = |id: &HookId| book.is_some_and(|book| book.entries.contains_key(id));
        self.memory.hooks.retain(|id, hook| {
            hook.facts.is_some()
                || hook.pending.is_some()
                || hook.read_request.is_some()
                || has_line(id)
                || hook.is_ours()
                || hook.is_left_over()
        });
    }

    fn take_servers(&mut self, servers: BTreeSet<Arc<str>>) {
        for hook in self.memory.hooks.values_mut() {
            hook.by_server.retain(|server, _| servers.contains(server));
        }
        self.memory.servers = servers;
    }

    fn take_view(&mut self, id: HookId, server: Arc<str>, view: ObservedHook) {
        let hook = self.memory.hooks.entry(id).or_default();
        let before = hook.by_server.insert(server, view.clone());
        // A view that differs from the last read may be older or newer; only another read can tell.
        if before.is_none_or(|before| before.version != view.version) {
            hook.last_read.take_if(|(_, read)| read.version != view.version);
        }
    }

    fn take_read(&mut self, ticket: Ticket, view: Option<ObservedHook>, now: Time) {
        let paused_until = now + self.settings.times.retry_after;
        for hook in self.memory.hooks.values_mut() {
            if hook.read_request.is_some_and(|(asked, _)| asked == ticket) {
                hook.read_request = None;
                match view {
                    Some(view) => hook.note_read(view, now),
                    None => hook.paused_until = Some(paused_until),
                }
                return;
            }
        }
    }

    /// Remembers the content of the ledger that was read.
    fn take_book(&mut self, version: Option<ResourceVersion>, book: Book, now: Time) {
        let before = self.memory.ledger.known.take().map(|(_, book)| book);
        let before = before.unwrap_or_default();
        let ids: BTreeSet<&HookId> = before.entries.keys().chain(book.entries.keys()).collect();
        for id in ids {
            if before.entries.get(id) != book.entries.get(id) {
                let hook = self.memory.hooks.entry(id.clone()).or_default();
                hook.line_since = now;
                hook.licence = None;
                // The last read may be older than the line.
                (hook.last_read, hook.read_request) = (None, None);
            }
        }
        let ledger = &mut self.memory.ledger;
        ledger.known = Some((version, book));
        ledger.known_at = now;
        (ledger.must_reread, ledger.paused_until) = (false, None);
        // A ledger that can be read may not be writable.
        let failed_recently = ledger
            .write_failed_at
            .is_some_and(|at| now.since(at) < self.settings.times.reread_after);
        if !failed_recently {
            ledger.unreachable_since = None;
        }
    }

    fn take_outcome(&mut self, ticket: Ticket, outcome: WriteOutcome, now: Time, actions: &mut Vec<Action>) {
        if let Some(writing) = &self.memory.ledger.writing
            && writing.ticket == ticket
        {
            self.take_ledger_outcome(outcome, now);
            return;
        }
        let found = self.memory.hooks.iter_mut().find_map(|(id, hook)| {
            let pending = hook.pending.take_if(|pending| pending.ticket == ticket)?;
            Some((id, hook, pending))
        });
        let Some((id, hook, pending)) = found else {
            return;
        };
        hook.last_read = None;
        match outcome {
            WriteOutcome::Applied(view) => {
                hook.refusal = None;
                if matches!(pending.to, To::Bypass(_)) && hook.probation_since.is_some() {
                    hook.relapses = hook.relapses.saturating_add(1);
                    hook.restart_healthy_time();
                }
                let (id, version) = (id.clone(), view.version.clone());
                hook.restored_by_us = pending.to == To::Original;
                hook.note_read(view, now);
                self.note_own_change(&id, &pending.from, &version);
            }
            WriteOutcome::Conflict | WriteOutcome::Gone | WriteOutcome::GaveUp => {}
            WriteOutcome::Refused(why) => {
                hook.note_refusal(&why, pending.to, now, &self.settings.times);
                // The refusal of a new bypass is reported as the reason why the hook is not bypassed.
                let begins = matches!(pending.to, To::Bypass(_)) && !hook.is_ours();
                if !begins && hook.last_notice != Some(NoticeKind::Refused) {
                    hook.last_notice = Some(NoticeKind::Refused);
                    actions.push(Action::Tell(Notice {
                        hook: id.clone(),
                        kind: NoticeKind::Refused,
                        page: None,
                        words: format!("The change was refused; hookwatch retries later: {why}"),
                    }));
                }
            }
            WriteOutcome::Ambiguous | WriteOutcome::Written(_) => hook.note_unclear_outcome(),
        }
    }

    /// This replica changed a hook, and so its object from one version to the next: the last reads of the other hooks in the
    /// object are outdated.
    fn note_own_change(&mut self, id: &HookId, from: &ResourceVersion, version: &ResourceVersion) {
        let book = self.memory.ledger.known.as_ref().map(|(_, book)| book);
        let others = self.memory.hooks.iter_mut();
        let others = others.filter(|(other, _)| {
            (other.kind, &other.configuration) == (id.kind, &id.configuration) && *other != id
        });
        for (id, other) in others {
            other.last_read.take_if(|(_, read)| read.version != *version);
            let line = book.and_then(|book| book.entries.get(id));
            let known = [
                other.version_after_our_changes.as_ref(),
                line.map(|line| &line.object_version),
            ];
            if known.contains(&Some(from)) {
                other.version_after_our_changes = Some(version.clone());
            }
        }
    }

    fn take_ledger_outcome(&mut self, outcome: WriteOutcome, now: Time) {
        let retry_after = self.settings.times.retry_after;
        let ledger = &mut self.memory.ledger;
        let Some(writing) = ledger.writing.take() else {
            return;
        };
        match outcome {
            WriteOutcome::Written(version) => {
                ledger.known = Some((Some(version), writing.book));
                ledger.known_at = now;
                (
                    ledger.unreachable_since,
                    ledger.write_failed_at,
                    ledger.paused_until,
                ) = (None, None, None);
                for (id, licence) in writing.licences {
                    let hook = self.memory.hooks.entry(id).or_default();
                    hook.line_since = now;
                    hook.licence = licence;
                    if hook.licence.is_none() {
                        (hook.last_read, hook.read_request) = (None, None);
                    }
                }
            }
            WriteOutcome::Conflict | WriteOutcome::Gone | WriteOutcome::GaveUp => ledger.must_reread = true,
            WriteOutcome::Refused(_) | WriteOutcome::Ambiguous | WriteOutcome::Applied(_) => {
                if matches!(outcome, WriteOutcome::Refused(_)) {
                    ledger.paused_until = Some(now + retry_after);
                }
                (ledger.must_reread, ledger.write_failed_at) = (true, Some(now));
                ledger.unreachable_since.get_or_insert(now);
            }
        }
    }

    /// Stops waiting for answers that can no longer come, and makes outdated knowledge due for a read.
    pub(super) fn expire_requests(&mut self, now: Time) {
        let life = self.settings.times.request_life;
        let reread_after = self.settings.times.reread_after;
        let over = |sent: Time| now.since(sent) >= life;
        let ledger = &mut self.memory.ledger;
        ledger.reading_since.take_if(|sent| over(*sent));
        // A regular read finds a change that no watch reported.
        ledger.must_reread |= now.since(ledger.known_at) >= reread_after;
        if ledger.writing.take_if(|writing| over(writing.sent)).is_some() {
            ledger.must_reread = true;
        }
        for hook in self.memory.hooks.values_mut() {
            hook.read_request.take_if(|(_, sent)| over(*sent));
            if hook.pending.take_if(|pending| over(pending.sent)).is_some() {
                hook.last_read = None;
                hook.note_unclear_outcome();
            }
            hook.last_read.take_if(|(at, _)| now.since(*at) >= reread_after);
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

    /// Whether any view of its object shows a bypass.
    pub(super) fn is_ours(&self) -> bool {
        self.rung().is_some()
    }

    /// The highest rung that any view of its object shows.
    pub(super) fn rung(&self) -> Option<Rung> {
        let rungs = self.views().filter_map(|view| match view.shown {
            BypassState::Ours { rung, .. } => Some(rung),
            _ => None,
        });
        rungs.max()
    }

    /// Whether there is nothing to decide about it unless the book has a line for it: it does not fail, its object shows nothing
    /// of hookwatch, and nothing is in flight or was reported.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.fails()
            && !self.is_ours()
            && !self.is_left_over()
            && self.last_read.is_none()
            && self.read_request.is_none()
            && self.pending.is_none()
            && self.last_notice.is_none()
            && self.restore_due_since.is_none()
    }

    /// Whether its failures are ignored.
    pub(super) fn ignores(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.ignores)
    }

    /// What its owner says, and whether its failures are ignored, by the newest known version of the object.
    pub(super) fn newest(&self) -> Option<(&OwnerAnnotations, bool)> {
        let read = self
            .last_read
            .as_ref()
            .map(|(_, view)| (&view.owner, view.ignores));
        read.or(self.facts.as_ref().map(|facts| (&facts.owner, facts.ignores)))
    }

    /// Whether any view of its object shows leftovers of hookwatch without a bypass.
    pub(super) fn is_left_over(&self) -> bool {
        self.views().any(|view| view.left_over)
    }

    /// Its object in the cache of each API server, and as last read.
    fn views(&self) -> impl Iterator<Item = &ObservedHook> {
        let read = self.last_read.as_ref().map(|(_, view)| view);
        self.by_server.values().chain(read)
    }

    /// The last refused change, until it may be tried again.
    pub(super) fn refusal(&self, now: Time) -> Option<&RefusedChange> {
        self.refusal.as_ref().filter(|refusal| now < refusal.retry_at)
    }

    /// Whether no change may be tried now, as one was refused. After a refused skip a shield may be tried.
    pub(super) fn is_refused(&self, now: Time) -> bool {
        self.refusal(now)
            .is_some_and(|refusal| refusal.to != To::Bypass(Rung::Skip))
    }

    /// Restarts the time in which the hook was healthy: it counts from the next judgement that says so.
    fn restart_healthy_time(&mut self) {
        (self.healthy_since, self.healthy_before) = (None, Duration::ZERO);
    }

    /// Remembers a refused change. Each one in a row doubles the wait.
    fn note_refusal(&mut self, why: &Arc<str>, to: To, now: Time, times: &BreakerTimes) {
        let before = self.refusal.take();
        let before = before.filter(|before| now.since(before.retry_at) < times.remember_for);
        let count = before.map_or(0, |before| before.count);
        let wait = times.retry_after * 2_u32.pow(u32::from(count.min(MAX_REFUSAL_DOUBLINGS)));
        self.refusal = Some(RefusedChange {
            why: Arc::clone(why),
            retry_at: now + wait,
            count: count.saturating_add(1),
            to,
        });
    }

    /// Remembers what a consistent read showed.
    fn note_read(&mut self, view: ObservedHook, now: Time) {
        match view.shown {
            BypassState::Ours { rung, probation } => {
                if self.bypassed_since.is_none() {
                    self.bypassed_since = Some(now);
                    // The replica that bypassed the hook saw it fail, however long it has been healthy for this one.
                    self.healthy_since = self.healthy_since.map(|_| now);
                    self.healthy_before = Duration::ZERO;
                }
                // The licence was used. If the object is the original after this, another writer reverted the bypass.
                (self.licence, self.restored_by_us) = (None, false);
                if probation {
                    self.probation_since.get_or_insert(now);
                } else {
                    self.probation_since = None;
                }
                match rung {
                    Rung::Skip => _ = self.skipped_since.get_or_insert(now),
                    Rung::Shield => self.skipped_since = None,
                }
            }
            BypassState::Original | BypassState::Gone => {
                (self.bypassed_since, self.probation_since) = (None, None);
                (self.skipped_since, self.restore_due_since) = (None, None);
                self.relapses = 0;
            }
            BypassState::DuplicateName => {}
        }
        self.last_read = Some((now, view));
    }

    /// Remembers that a change may have been made, or may still be made.
    fn note_unclear_outcome(&mut self) {
        if let Some(licence) = &mut self.licence {
            licence.clean = false;
        }
    }
}
