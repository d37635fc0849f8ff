//! Normalises worlds: states with the same future become equal, which keeps the state space finite.
//!
//! Times are relative to now and capped at the longest span that anything waits for. Tickets and versions are renumbered,
//! as only their equality matters.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::super::*;
use super::setup::Setup;
use super::world::{NOW, STEP, UNIT, What, World, Write, version};

impl World {
    /// Applies a function to every instant: `own` to those of a replica's clock, `written` to those in the ledger.
    pub(super) fn map_times(&mut self, own: &impl Fn(Time) -> Time, written: &impl Fn(Time) -> Time) {
        map_book(&mut self.book, written);
        for write in &mut self.writes {
            if let What::Book { book, .. } = &mut write.what {
                map_book(book, written);
            }
        }
        for actor in &mut self.actors {
            actor.memory.map_times(own, written);
        }
    }

    pub(super) fn canonical(&mut self, setup: &Setup) {
        self.shorten_times(setup);
        self.number_tickets();
        self.begun.sort_unstable();
        // The order in which writes were sent makes no difference.
        self.writes.sort_by_cached_key(fingerprint);
        self.number_versions();
    }

    fn shorten_times(&mut self, setup: &Setup) {
        let step = UNIT * STEP;
        let written = |time: Time| time.max(NOW.before(UNIT * 5));
        self.map_times(&|time| time, &written);
        let forget = |book: &mut Book| {
            if setup.rate.is_none() {
                book.skips_begun.clear();
            }
            for entry in book.entries.values_mut() {
                if setup.longest.is_none() {
                    entry.since = NOW;
                    entry.skips.iter_mut().for_each(|skips| skips.since = NOW);
                }
            }
        };
        forget(&mut self.book);
        for write in &mut self.writes {
            if let What::Book { book, .. } = &mut write.what {
                forget(book);
            }
        }
        for actor in &mut self.actors {
            let now = if actor.ahead { NOW + step } else { NOW };
            let at_most = |time: Time, units: u32| time.max(now.before(UNIT * units));
            let memory = &mut actor.memory;
            if let Some((_, book)) = &mut memory.ledger.known {
                forget(book);
            }
            memory.ledger.known_at = now;
            if let Some(writing) = &mut memory.ledger.writing {
                forget(&mut writing.book);
                writing.sent = at_most(writing.sent, 2);
            }
            let ledger = &mut memory.ledger;
            for until in [
                &mut ledger.paused_until,
                &mut ledger.unreachable_since,
                &mut ledger.write_failed_at,
            ] {
                *until = until.filter(|until| *until > now);
            }
            if let Some((at, _)) = &mut memory.judged {
                *at = at_most(*at, 1);
            }
            let book = memory.ledger.known.as_ref().map(|(_, book)| book);
            for (id, hook) in &mut memory.hooks {
                hook.last_notice = None;
                hook.paused_until = hook.paused_until.filter(|until| *until > now);
                hook.refusal = hook.refusal.take().filter(|refusal| refusal.retry_at > now);
                hook.restore_due_since = hook.restore_due_since.map(|_| now);
                hook.failing_since = hook.failing_since.map(|since| at_most(since, setup.hold));
                hook.healthy_since = hook.healthy_since.map(|since| at_most(since, 2));
                hook.healthy_before = hook.healthy_before.min(UNIT * STEP * 2);
                hook.probation_since = hook.probation_since.map(|since| at_most(since, 1));
                for since in [&mut hook.bypassed_since, &mut hook.skipped_since] {
                    *since = since.map(|since| match setup.longest {
                        Some(longest) => at_most(since, longest),
                        None => now,
                    });
                }
                if let Some((read, _)) = &mut hook.last_read {
                    *read = now;
                }
                let entry = book.and_then(|book| book.entries.get(id));
                hook.line_since = match entry {
                    Some(_) => at_most(hook.line_since, 3),
                    None => now,
                };
                if let Some(licence) = &mut hook.licence {
                    licence.sent = at_most(licence.sent, 1);
                }
                if let Some(pending) = &mut hook.pending {
                    pending.sent = at_most(pending.sent, 2);
                    // Each hook has its own object.
                    pending.from = version(0);
                }
                hook.relapses = hook.relapses.min(1);
            }
        }
        let cap = |book: &mut Book| {
            for entry in book.entries.values_mut() {
                entry.relapses = entry.relapses.min(1);
                entry.reverts = entry.reverts.min(3);
                if let Some(skips) = &mut entry.skips {
                    skips.times = skips.times.min(1);
                }
            }
        };
        cap(&mut self.book);
        for write in &mut self.writes {
            if let What::Book { book, .. } = &mut write.what {
                cap(book);
            }
        }
        for actor in &mut self.actors {
            let ledger = &mut actor.memory.ledger;
            if let Some((_, book)) = &mut ledger.known {
                cap(book);
            }
            if let Some(writing) = &mut ledger.writing {
                cap(&mut writing.book);
            }
        }
    }

    fn number_tickets(&mut self) {
        for (at, actor) in self.actors.iter_mut().enumerate() {
            let memory = &mut actor.memory;
            let mut known: Vec<u64> = Vec::new();
            known.extend(memory.ledger.writing.iter().map(|writing| writing.ticket.0));
            for hook in memory.hooks.values() {
                known.extend(hook.pending.iter().map(|pending| pending.ticket.0));
            }
            let number = |ticket: &mut Ticket| {
                // Tickets whose answer is no longer awaited are equivalent.
                let place = known.iter().position(|known| *known == ticket.0);
                *ticket = Ticket(place.map_or(0, |place| place as u64 + 1));
            };
            for hook in memory.hooks.values_mut() {
                if let Some(pending) = &mut hook.pending {
                    number(&mut pending.ticket);
                }
            }
            if let Some(writing) = &mut memory.ledger.writing {
                number(&mut writing.ticket);
            }
            memory.last_ticket = known.len() as u64;
            for write in &mut self.writes {
                if let Some((waits, ticket)) = &mut write.waits
                    && *waits == at
                {
                    number(ticket);
                }
            }
        }
    }

    fn number_versions(&mut self) {
        for at in 0..self.objects.len() {
            let mut numbers = Numbers::default();
            numbers.of(&mut self.objects[at].version);
            for cache in &mut self.caches {
                numbers.of(&mut cache[at].version);
            }
            let id = Setup::hook(at);
            let mut of_book = |book: &mut Book| {
                if let Some(entry) = book.entries.get_mut(&id) {
                    numbers.of_version(&mut entry.object_version);
                }
            };
            of_book(&mut self.book);
            for write in &mut self.writes {
                if let What::Book { book, .. } = &mut write.what {
                    of_book(book);
                }
            }
            for actor in &mut self.actors {
                let ledger = &mut actor.memory.ledger;
                if let Some((_, book)) = &mut ledger.known {
                    of_book(book);
                }
                if let Some(writing) = &mut ledger.writing {
                    of_book(&mut writing.book);
                }
            }
            for write in &mut self.writes {
                if let What::Change {
                    hook,
                    expects: Some(expects),
                    ..
                } = &mut write.what
                    && usize::from(*hook) == at
                {
                    numbers.of(expects);
                }
            }
            for actor in &mut self.actors {
                if let Some(hook) = actor.memory.hooks.get_mut(&id) {
                    for view in hook.by_server.values_mut() {
                        numbers.of_version(&mut view.version);
                    }
                    if let Some((_, view)) = &mut hook.last_read {
                        numbers.of_version(&mut view.version);
                    }
                }
            }
        }
        let mut numbers = Numbers::default();
        numbers.of(&mut self.ledger);
        for write in &mut self.writes {
            if let What::Book { expects, .. } = &mut write.what {
                numbers.of(expects);
            }
        }
        for actor in &mut self.actors {
            if let Some((Some(version), _)) = &mut actor.memory.ledger.known {
                numbers.of_version(version);
            }
        }
    }
}

fn fingerprint(write: &Write) -> u64 {
    let mut hasher = DefaultHasher::new();
    write.hash(&mut hasher);
    hasher.finish()
}

/// New numbers in the order of first use.
#[derive(Default)]
struct Numbers(BTreeMap<u8, u8>);

impl Numbers {
    fn of(&mut self, number: &mut u8) {
        // Counts down from 100, so that later versions stay higher and none is reused.
        let next = 100 - self.0.len() as u8;
        *number = *self.0.entry(*number).or_insert(next);
    }

    fn of_version(&mut self, text: &mut ResourceVersion) {
        if let Ok(mut number) = text.0.parse() {
            self.of(&mut number);
            *text = version(number);
        }
    }
}

fn map_book(book: &mut Book, map: &impl Fn(Time) -> Time) {
    for begun in &mut book.skips_begun {
        *begun = map(*begun);
    }
    for entry in book.entries.values_mut() {
        (entry.since, entry.at) = (map(entry.since), map(entry.at));
        if let Some(skips) = &mut entry.skips {
            skips.since = map(skips.since);
        }
    }
}

impl BreakerMemory {
    fn map_times(&mut self, own: &impl Fn(Time) -> Time, written: &impl Fn(Time) -> Time) {
        let ledger = &mut self.ledger;
        if let Some((_, book)) = &mut ledger.known {
            map_book(book, written);
        }
        if let Some(writing) = &mut ledger.writing {
            map_book(&mut writing.book, written);
            writing.sent = own(writing.sent);
        }
        for time in [
            &mut ledger.reading_since,
            &mut ledger.paused_until,
            &mut ledger.unreachable_since,
            &mut ledger.write_failed_at,
        ] {
            *time = time.map(own);
        }
        if let Some((at, _)) = &mut self.judged {
            *at = own(*at);
        }
        for hook in self.hooks.values_mut() {
            hook.line_since = own(hook.line_since);
            for time in [
                &mut hook.failing_since,
                &mut hook.healthy_since,
                &mut hook.bypassed_since,
                &mut hook.probation_since,
                &mut hook.skipped_since,
                &mut hook.restore_due_since,
                &mut hook.paused_until,
            ] {
                *time = time.map(own);
            }
            if let Some((time, _)) = &mut hook.last_read {
                *time = own(*time);
            }
            if let Some((_, time)) = &mut hook.read_request {
                *time = own(*time);
            }
            if let Some(licence) = &mut hook.licence {
                licence.sent = own(licence.sent);
            }
            if let Some(pending) = &mut hook.pending {
                pending.sent = own(pending.sent);
            }
            if let Some(refusal) = &mut hook.refusal {
                refusal.retry_at = own(refusal.retry_at);
            }
        }
    }
}
