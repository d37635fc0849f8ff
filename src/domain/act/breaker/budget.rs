//! Limits: how many hooks may be shielded or skipped at once, and how many skips may begin within some time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::book::{Book, BookEntry};
use super::guards::{Guard, HeldBack};
use super::observed::Stake;
use super::policy::Rung;
use super::step::RateChange;
use super::{Breaker, HookMemory, Overview};
use crate::cluster::hook::HookId;
use crate::time::Time;

/// As many shields of hooks that fail together count as one.
const SHIELDS_PER_UNIT: usize = 50;

impl Breaker {
    /// Whether the limits permit a bypass of a hook at `rung`, and what it means for the rate.
    ///
    /// # Errors
    /// With the limit that is reached.
    pub(super) fn check_budget(&self, id: &HookId, rung: Rung, now: Time) -> Result<RateChange, HeldBack> {
        let (guards, policy) = (self.settings.guards, &self.settings.policy);
        if self.is_book_full_for(id) || !self.fits(id, rung) && guards.on(Guard::Budget) {
            return Err(HeldBack::Budget);
        }
        if rung == Rung::Shield {
            return Ok(RateChange::None);
        }
        let recent = self
            .book()
            .map_or(0, |book| recent_skips(book, now, policy.rate_window).count());
        if recent >= policy.rate && guards.on(Guard::Rate) {
            Err(HeldBack::Rate)
        } else {
            Ok(RateChange::Begin)
        }
    }

    /// As [`Self::check_budget`], for a hook that is bypassed already. A rung that its line has already was counted when
    /// the line was written.
    pub(super) fn check_budget_for_rung(
        &self,
        id: &HookId,
        entry: &BookEntry,
        rung: Rung,
        now: Time,
    ) -> Result<RateChange, HeldBack> {
        if entry.rung < rung {
            self.check_budget(id, rung, now)
        } else if self.fits(id, rung) || !self.settings.guards.on(Guard::Budget) {
            Ok(RateChange::None)
        } else {
            Err(HeldBack::Budget)
        }
    }

    /// Whether the book has neither a line of this hook nor room for one.
    pub(super) fn is_book_full_for(&self, id: &HookId) -> bool {
        let fills = |book: &Book| !book.entries.contains_key(id) && !book.has_room(self.stake(id));
        self.book().is_some_and(fills)
    }

    /// Whether the budget of a rung has room for a hook. Only hooks with at least its stake use up that room: otherwise
    /// bypasses of broken webhooks without users could prevent that of a webhook that many writes wait for.
    fn fits(&self, id: &HookId, rung: Rung) -> bool {
        let stake = self.stake(id);
        let others = self.bypassed_hooks().filter(|(other, share)| {
            // While a hook changes its rung it counts on both.
            let is_on_rung = share.line == Some(rung) || share.shown == Some(rung);
            *other != id && is_on_rung && share.stake >= stake
        });
        let others = others.map(|(other, _)| other);
        let hooks = others.chain([id]);
        match rung {
            Rung::Shield => self.count_units(hooks) <= self.settings.policy.most_shielded,
            Rung::Skip => hooks.count() <= self.settings.policy.most_skipped,
        }
    }

    /// As how many shields these hooks count. Hooks that fail together count once, as they have one fault.
    fn count_units<'a>(&'a self, hooks: impl Iterator<Item = &'a HookId>) -> usize {
        let (mut alone, mut together) = (0, BTreeMap::<&str, usize>::new());
        for hook in hooks {
            match self.incident_key(hook) {
                Some(key) => *together.entry(key).or_default() += 1,
                None => alone += 1,
            }
        }
        alone
            + together
                .values()
                .map(|shields| shields.div_ceil(SHIELDS_PER_UNIT))
                .sum::<usize>()
    }

    /// The key that hooks share that fail together; see [`HookFacts::incident_key`](super::HookFacts::incident_key).
    pub(super) fn incident_key(&self, id: &HookId) -> Option<&str> {
        self.memory.hooks.get(id)?.facts.as_ref()?.incident_key.as_deref()
    }

    fn stake(&self, id: &HookId) -> Stake {
        let hook = self.memory.hooks.get(id);
        hook.map_or_else(Stake::default, HookMemory::stake)
    }

    /// What the decision about one hook has to know of all others.
    pub(super) fn make_overview(&self) -> Overview {
        let mut overview = Overview::default();
        for (id, hook) in &self.memory.hooks {
            if let Some(rung) = hook.rung() {
                overview.bypassed.insert(id.clone(), rung);
            }
            if let (Some(facts), Some(since)) = (&hook.facts, hook.failing_since)
                && let Some(key) = facts.incident_key.as_ref().filter(|_| !facts.is_merely_slow())
            {
                let first = overview.failing_since.entry(Arc::clone(key)).or_insert(since);
                *first = since.min(*first);
            }
        }
        overview
    }

    /// All hooks that are bypassed or will be next, by the book or by their objects, with their share of the budget.
    fn bypassed_hooks(&self) -> impl Iterator<Item = (&HookId, BudgetShare)> {
        let lines = self.book().map(|book| &book.entries).into_iter().flatten();
        let lines = lines.filter(|(_, entry)| entry.counts_as_bypassed());
        let share = |line, stake| BudgetShare {
            line,
            shown: None,
            stake,
        };
        let lines = lines.map(|(id, entry)| (id, share(Some(entry.rung), entry.stake)));
        let mut shares: BTreeMap<&HookId, BudgetShare> = lines.collect();
        for (id, rung) in &self.overview.bypassed {
            let share = shares.entry(id).or_insert_with(|| share(None, self.stake(id)));
            share.shown = Some(*rung);
        }
        shares.into_iter()
    }
}

/// What a bypass takes of the budget: the rung in the book, and the highest that any view of its object shows.
#[derive(Debug, Clone, Copy)]
struct BudgetShare {
    line: Option<Rung>,
    shown: Option<Rung>,
    stake: Stake,
}

impl HookMemory {
    /// Who is affected by it, by the last judgement.
    pub(super) fn stake(&self) -> Stake {
        self.facts
            .as_ref()
            .map_or_else(Stake::default, |facts| facts.stake)
    }
}

/// When skips began within the window. An instant in the future is of another clock, and counts as now.
pub(super) fn recent_skips(book: &Book, now: Time, window: Duration) -> impl Iterator<Item = Time> {
    let begun = book.skips_begun.iter().copied();
    begun.filter(move |begun| now.since(*begun) < window)
}
