//! How many hooks may be bypassed at once, and how many bypasses may be begun in some time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Breaker;
use super::book::Book;
use super::guards::{Guard, HeldBack};
use super::policy::Rung;
use super::step::Counts;
use crate::domain::hook::HookId;
use crate::domain::time::Time;

/// So many shields of hooks that share their backends count as one.
const AS_ONE: usize = 50;

impl Breaker {
    /// Whether budget and rate leave room to begin a bypass, and what it means for the rate.
    pub(super) fn room(&self, id: &HookId, rung: Rung, now: Time) -> Result<Counts, HeldBack> {
        let (guards, policy) = (self.settings.guards, &self.settings.policy);
        if !self.fits(id, rung) && guards.on(Guard::Budget) {
            return Err(HeldBack::Budget);
        }
        if rung == Rung::Shield && self.units(id, Some(rung)) == self.units(id, None) {
            return Ok(Counts::Nothing);
        }
        let begun = self
            .book()
            .map_or(0, |book| begun(book, now, policy.rate_window).count());
        match begun >= policy.rate && guards.on(Guard::Rate) {
            true => Err(HeldBack::Rate),
            false => Ok(Counts::Begins),
        }
    }

    /// Whether the budget has room for a hook that is bypassed as far as `rung`.
    pub(super) fn fits(&self, id: &HookId, rung: Rung) -> bool {
        self.units(id, Some(rung)) <= self.settings.policy.most_bypassed
    }

    /// What of the budget is taken if a hook is bypassed so far, or not at all. Shields of hooks that share their backends
    /// count once, and not beside one of them that is bypassed further: it is one fault.
    fn units(&self, id: &HookId, rung: Option<Rung>) -> usize {
        let (mut each, mut places) = (0, BTreeMap::<&str, (bool, usize)>::new());
        let others = self.bypassed_hooks().filter(|(other, _)| *other != id);
        for (hook, rung) in others.chain(rung.map(|rung| (id, rung))) {
            let place = self.place(hook).map(|place| places.entry(place).or_default());
            match place {
                Some((_, shields)) if rung == Rung::Shield => *shields += 1,
                Some((further, _)) => (*further, each) = (true, each + 1),
                None => each += 1,
            }
        }
        let shields = places.values().map(|(further, shields)| {
            let units = shields.div_ceil(AS_ONE);
            units.saturating_sub(usize::from(*further))
        });
        each + shields.sum::<usize>()
    }

    /// Where the calls of a hook go that is known.
    pub(super) fn place(&self, id: &HookId) -> Option<&str> {
        self.memory.hooks.get(id)?.facts.as_ref()?.place.as_deref()
    }

    /// All hooks that are bypassed or about to be, by the book or by what their objects show, with how far.
    fn bypassed_hooks(&self) -> impl Iterator<Item = (&HookId, Rung)> {
        let lines = self.book().map(|book| &book.entries).into_iter().flatten();
        let lines = lines.filter(|(_, entry)| entry.counts());
        let lines: BTreeMap<&HookId, Rung> = lines.map(|(id, entry)| (id, entry.rung)).collect();
        let unwritten = self.memory.hooks.iter();
        let unwritten = unwritten.filter_map(|(id, hook)| Some((id, hook.rung()?)));
        let unwritten: BTreeMap<&HookId, Rung> =
            unwritten.filter(|(id, _)| !lines.contains_key(id)).collect();
        lines.into_iter().chain(unwritten)
    }
}

/// When bypasses were begun within the window. An instant that is yet to come is another clock's, and counts as now.
pub(super) fn begun(book: &Book, now: Time, window: Duration) -> impl Iterator<Item = Time> {
    let begun = book.begun.iter().copied();
    begun.filter(move |begun| now.since(*begun) < window)
}
