//! How many hooks may be shielded at once, how many skipped, and how many skips may be begun in some time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::book::{Book, BookEntry};
use super::guards::{Guard, HeldBack};
use super::observed::Stake;
use super::policy::Rung;
use super::step::Counts;
use super::{Among, Breaker, HookMemory};
use crate::cluster::hook::HookId;
use crate::time::Time;

/// So many shields of hooks that share their backends count as one.
const AS_ONE: usize = 50;

impl Breaker {
    /// Whether budget and rate allow a hook to be bypassed at `rung`, and what that means for the rate.
    pub(super) fn room(&self, id: &HookId, rung: Rung, now: Time) -> Result<Counts, HeldBack> {
        let (guards, policy) = (self.settings.guards, &self.settings.policy);
        if self.is_full_for(id) || !self.fits(id, rung) && guards.on(Guard::Budget) {
            return Err(HeldBack::Budget);
        }
        if rung == Rung::Shield {
            return Ok(Counts::Nothing);
        }
        let begun = self
            .book()
            .map_or(0, |book| begun(book, now, policy.rate_window).count());
        if begun >= policy.rate && guards.on(Guard::Rate) {
            Err(HeldBack::Rate)
        } else {
            Ok(Counts::Begins)
        }
    }

    /// The same for a hook that is bypassed already, and whose line may request a further rung.
    pub(super) fn room_for_more(
        &self,
        id: &HookId,
        entry: &BookEntry,
        rung: Rung,
        now: Time,
    ) -> Result<Counts, HeldBack> {
        match entry.rung < rung {
            true => self.room(id, rung, now),
            false if self.fits(id, rung) || !self.settings.guards.on(Guard::Budget) => Ok(Counts::Nothing),
            false => Err(HeldBack::Budget),
        }
    }

    /// Whether the book has no room for a line of a hook that it has none of.
    pub(super) fn is_full_for(&self, id: &HookId) -> bool {
        let fills = |book: &Book| !book.entries.contains_key(id) && !book.has_room(self.stake(id));
        self.book().is_some_and(fills)
    }

    /// Whether the budget of a rung has room for a hook. A webhook that less depends on takes no room from it: an
    /// installer could otherwise break webhooks without users and so hold back the bypass of one that all wait for.
    fn fits(&self, id: &HookId, rung: Rung) -> bool {
        let stake = self.stake(id);
        let others = self.bypassed_hooks().filter(|(other, held)| {
            // From rung to rung it is on both.
            let there = held.line == Some(rung) || held.shown == Some(rung);
            *other != id && there && held.stake >= stake
        });
        let others = others.map(|(other, _)| other);
        let hooks = others.chain([id]);
        match rung {
            Rung::Shield => self.units(hooks) <= self.settings.policy.most_shielded,
            Rung::Skip => hooks.count() <= self.settings.policy.most_skipped,
        }
    }

    /// As how many shields those of these hooks count: once for all that share their backends, as it is one fault.
    fn units<'a>(&'a self, hooks: impl Iterator<Item = &'a HookId>) -> usize {
        let (mut each, mut places) = (0, BTreeMap::<&str, usize>::new());
        for hook in hooks {
            match self.place(hook) {
                Some(place) => *places.entry(place).or_default() += 1,
                None => each += 1,
            }
        }
        each + places
            .values()
            .map(|shields| shields.div_ceil(AS_ONE))
            .sum::<usize>()
    }

    /// Where the calls of a hook go that is known.
    pub(super) fn place(&self, id: &HookId) -> Option<&str> {
        self.memory.hooks.get(id)?.facts.as_ref()?.place.as_deref()
    }

    fn stake(&self, id: &HookId) -> Stake {
        let hook = self.memory.hooks.get(id);
        hook.map_or_else(Stake::default, HookMemory::stake)
    }

    /// The other hooks that each hook is compared with.
    pub(super) fn look_around(&self) -> Among {
        let mut among = Among::default();
        for (id, hook) in &self.memory.hooks {
            if let Some(rung) = hook.rung() {
                among.shown.insert(id.clone(), rung);
            }
            if let (Some(facts), Some(since)) = (&hook.facts, hook.failing_since)
                && let Some(place) = facts.place.as_ref().filter(|_| !facts.is_merely_slow())
            {
                let first = among.failing.entry(Arc::clone(place)).or_insert(since);
                *first = since.min(*first);
            }
        }
        among
    }

    /// All hooks that are bypassed or will be next, according to the book or their objects.
    fn bypassed_hooks(&self) -> impl Iterator<Item = (&HookId, BudgetShare)> {
        let lines = self.book().map(|book| &book.entries).into_iter().flatten();
        let lines = lines.filter(|(_, entry)| entry.counts());
        let share = |line, stake| BudgetShare {
            line,
            shown: None,
            stake,
        };
        let lines = lines.map(|(id, entry)| (id, share(Some(entry.rung), entry.stake)));
        let mut held: BTreeMap<&HookId, BudgetShare> = lines.collect();
        for (id, rung) in &self.among.shown {
            let held = held.entry(id).or_insert_with(|| share(None, self.stake(id)));
            held.shown = Some(*rung);
        }
        held.into_iter()
    }
}

/// What a bypass takes of the budget: the rung that the book says, and the farthest that its object shows anywhere.
#[derive(Debug, Clone, Copy)]
struct BudgetShare {
    line: Option<Rung>,
    shown: Option<Rung>,
    stake: Stake,
}

impl HookMemory {
    /// Who suffers by it, by the last judgement.
    pub(super) fn stake(&self) -> Stake {
        self.facts
            .as_ref()
            .map_or_else(Stake::default, |facts| facts.stake)
    }
}

/// When skips were begun within the window. An instant that is yet to come is another clock's, and counts as now.
pub(super) fn begun(book: &Book, now: Time, window: Duration) -> impl Iterator<Item = Time> {
    let begun = book.begun.iter().copied();
    begun.filter(move |begun| now.since(*begun) < window)
}
