//! What is to be done about one hook now.

use std::sync::Arc;
use std::time::Duration;

use super::action::{News, To};
use super::book::{Entry, Place, Skips};
use super::choice::{Bounds, Choice, choose};
use super::guards::{Guard, HeldBack};
use super::observed::{Shown, View};
use super::policy::{Ceiling, PolicyRule, Rung, Subject};
use super::restore::wanted_by_hand;
use super::step::{Counts, Does, Step, put_back, strike_out, tidy};
use super::{Breaker, HookMemory, REVERTS, WITNESSES};
use crate::domain::act::fence::AutoBreak;
use crate::domain::cluster::hook::HookId;
use crate::domain::time::Time;
use crate::domain::vocabulary::Cause;

impl Breaker {
    pub(super) fn decide(&self, id: &HookId, now: Time) -> Step {
        let Some(hook) = self.memory.hooks.get(id) else {
            return Step::default();
        };
        let culprit = hook.failing_since.is_some();
        if !self.settings.acts() {
            // Nothing is read or written: what would be done is all there is to say.
            return match culprit && self.settings.mode == AutoBreak::Plan {
                true => self.plan(id, hook, now),
                false => Step::default(),
            };
        }
        let resting = hook.rest_until.is_some_and(|until| now < until);
        if hook.pending.is_some() || resting {
            return Step::default();
        }
        let lost = self.memory.ledger.lost;
        let without = lost.is_some_and(|lost| now.since(lost) >= self.settings.times.without_ledger);
        let Some(book) = self.book() else {
            return match (hook.is_ours() && without, culprit) {
                (true, _) => self.without_book(hook, now),
                (false, true) => Step::held_back(HeldBack::Ledger),
                (false, false) => Step::default(),
            };
        };
        let entry = book.entries.get(id);
        if entry.is_none() && !hook.is_ours() && !hook.is_left_over() {
            if !culprit {
                return Step::default();
            }
            if let Err(reason) = self.justify(id, hook, None, at_first(hook), now) {
                let step = self.held_back(id, hook, reason, now);
                // What is only to be waited for is read meanwhile.
                let read = reason == HeldBack::Hold && hook.read.is_none();
                return if read {
                    Step {
                        does: Does::Read,
                        ..step
                    }
                } else {
                    step
                };
            }
        }
        let Some((_, view)) = &hook.read else {
            return Does::Read.into();
        };
        let refused = hook.refusal(now).is_some_and(|refusal| !refusal.skip);
        if view.left_over && !refused && entry.is_none_or(|entry| entry.place == Place::Out) {
            return tidy();
        }
        if view.shown.is_ours() && refused {
            return Step::default();
        }
        match (entry, &view.shown) {
            (None, Shown::Gone) => Step::default(),
            (Some(_), Shown::Gone) => match self.everywhere(hook) {
                true => strike_out(),
                false => Step::default(),
            },
            (None, Shown::Original) if !culprit => Step::default(),
            (None, Shown::Original) => self.begin(id, hook, None, view, now),
            (Some(entry), Shown::Original) => match entry.place {
                Place::Held => self.not_there(id, hook, entry, view, now),
                Place::Leaving => self.left(hook, entry, now),
                Place::Out => self.is_out(id, hook, entry, view, now),
            },
            // Whether it is skipped as dead shows with the first judgement.
            (None, Shown::Ours { .. }) if self.memory.judged.is_none() => Step::default(),
            (None, Shown::Ours { rung, .. }) => self.adopt(hook, None, *rung, view, now),
            (Some(entry), Shown::Ours { rung, probation }) => match entry.place {
                Place::Held => self.bypassed(id, hook, entry, (*rung, *probation), now),
                // Somebody did it meanwhile.
                Place::Leaving
                    if wanted_by_hand(view, now).is_some() && Self::ceiling(hook).permits(*rung) =>
                {
                    self.adopt(hook, Some(entry), *rung, view, now)
                }
                Place::Leaving => put_back("The restore is pending."),
                Place::Out => self.adopt(hook, Some(entry), *rung, view, now),
            },
            (None, Shown::Foreign) if culprit => Step::held_back(HeldBack::Foreign),
            (_, Shown::Foreign) => Step::default().says(
                News::Foreign,
                "Several webhooks of the configuration have this name: hookwatch cannot tell which it changed, and leaves them alone.",
            ),
        }
    }

    /// The rule for a hook, with the cause that it fails from or failed from.
    pub(super) fn rule(&self, id: &HookId, hook: &HookMemory, cause: Cause) -> &PolicyRule {
        let none = Subject::default();
        let subject = hook.facts.as_ref().map_or(&none, |facts| &*facts.subject);
        self.settings.policy.rule(id, subject, cause)
    }

    /// The rung for a hook, `most` at most.
    fn choice(
        &self,
        id: &HookId,
        hook: &HookMemory,
        entry: Option<&Entry>,
        most: Rung,
        now: Time,
    ) -> Result<Choice, HeldBack> {
        let (Some(overall), Some(facts)) = (&self.memory.judged, &hook.facts) else {
            return Err(HeldBack::Stale);
        };
        let guards = self.settings.guards;
        let rule = self.rule(id, hook, facts.cause.unwrap_or(Cause::Slow));
        let bounds = Bounds {
            rule,
            ceiling: match guards.on(Guard::Ceiling) {
                true => Self::ceiling(hook),
                false => Ceiling::Open,
            },
            may_skip: Self::may_skip(hook) || !guards.on(Guard::Ceiling),
            match_conditions: overall.match_conditions,
            most,
            not_dead: self.not_dead(id, hook, entry, rule, now),
            guards,
        };
        choose(facts, &bounds)
    }

    /// Whether there is reason and leave to bypass a hook, and how far: `most` at most, and a shield as long as it is too
    /// early for more.
    pub(super) fn justify(
        &self,
        id: &HookId,
        hook: &HookMemory,
        entry: Option<&Entry>,
        most: Rung,
        now: Time,
    ) -> Result<Choice, HeldBack> {
        let guards = self.settings.guards;
        let (Some(overall), Some(facts)) = (&self.memory.judged, &hook.facts) else {
            return Err(HeldBack::Stale);
        };
        let (Some(cause), Some(since)) = (facts.cause, hook.failing_since) else {
            return Err(HeldBack::Evidence);
        };
        if !id.kind.is_admission() {
            return Err(HeldBack::NotAdmission);
        }
        let sure = facts.witnesses.len() >= WITNESSES && facts.sure;
        if !sure && guards.on(Guard::Evidence) {
            return Err(HeldBack::Evidence);
        }
        if overall.self_doubt && guards.on(Guard::SelfDoubt) {
            return Err(HeldBack::SelfDoubt);
        }
        let old = overall.inventory_is_old || now.since(overall.at) > self.settings.times.fresh;
        if old && guards.on(Guard::Stale) {
            return Err(HeldBack::Stale);
        }
        let rule = self.rule(id, hook, cause);
        if rule.mode == AutoBreak::Off {
            return Err(HeldBack::Policy);
        }
        let behind = match self.memory.leads {
            true => Duration::ZERO,
            false => self.settings.times.follows_after,
        };
        let early = |choice: &Choice| {
            let since = match choice.rung {
                Rung::Shield => self.together_since(id, since),
                _ => since,
            };
            now.since(since) < rule.hold(choice.rung) + behind && guards.on(Guard::Hold)
        };
        // A replica that does not lead goes no deeper than a shield.
        let most = if self.memory.leads { most } else { Rung::Shield };
        let mut choice = self.choice(id, hook, entry, most, now)?;
        if early(&choice) {
            let shield = self.choice(id, hook, entry, Rung::Shield, now);
            let shield = shield.ok().filter(|choice| !early(choice));
            choice = shield.ok_or(HeldBack::Hold)?;
        }
        if entry.is_some_and(|entry| entry.contested) && guards.on(Guard::Contested) {
            return Err(HeldBack::Contested);
        }
        if entry.is_some_and(|entry| entry.spent) && guards.on(Guard::Limit) {
            return Err(HeldBack::Limit);
        }
        if self.book().is_some_and(|book| book.frozen.is_some()) && guards.on(Guard::Frozen) {
            return Err(HeldBack::Frozen);
        }
        if (rule.mode != AutoBreak::On || self.settings.mode != AutoBreak::On) && guards.on(Guard::Mode) {
            return Err(HeldBack::Plan);
        }
        if !overall.fence_holds && guards.on(Guard::Fence) {
            return Err(HeldBack::Fence);
        }
        match hook.refusal(now) {
            // The fence may have been tightened a moment ago.
            Some(refusal) if refusal.skip && choice.rung == Rung::Skip => {
                let shield = self.choice(id, hook, entry, Rung::Shield, now);
                shield.map_err(|_| HeldBack::Refused)
            }
            Some(refusal) if !refusal.skip => Err(HeldBack::Refused),
            _ => Ok(choice),
        }
    }

    /// Since when the first of the hooks that fail together fails, the merely slow ones apart: they are shielded at one
    /// time. The first shield spares the canaries that are evidence against the others.
    fn together_since(&self, id: &HookId, since: Time) -> Time {
        let first = self.place(id).and_then(|place| self.among.failing.get(place));
        first.map_or(since, |first| since.min(*first))
    }

    /// What would be done, where nothing may be.
    fn plan(&self, id: &HookId, hook: &HookMemory, now: Time) -> Step {
        match self.justify(id, hook, None, at_first(hook), now) {
            Err(reason) => self.held_back(id, hook, reason, now),
            Ok(_) => Step::held_back(HeldBack::Plan),
        }
    }

    fn held_back(&self, id: &HookId, hook: &HookMemory, reason: HeldBack, now: Time) -> Step {
        if let (HeldBack::Refused, Some(refusal)) = (reason, &hook.refusal) {
            let words = format!("{} {}", reason.sentence(), refusal.why);
            return Step::default().says(News::HeldBack(reason), words);
        }
        if reason != HeldBack::Plan {
            return Step::held_back(reason);
        }
        match self.choice(id, hook, None, at_first(hook), now) {
            Ok(choice) => Step::default().says(News::WouldBypass(choice.rung), &*choice.words()),
            Err(reason) => Step::held_back(reason),
        }
    }

    /// A hook that is as its owner has it, and for which the book has no line or one that is over.
    pub(super) fn begin(
        &self,
        id: &HookId,
        hook: &HookMemory,
        over: Option<&Entry>,
        view: &View,
        now: Time,
    ) -> Step {
        let room = |choice: Choice| Ok((self.room(id, choice.rung, now)?, choice));
        let shield = || self.justify(id, hook, over, Rung::Shield, now).and_then(room);
        let found = self.justify(id, hook, over, at_first(hook), now);
        // Where there is no room for more there may be for a shield, which is one with others.
        let found = found.and_then(|choice| room(choice).or_else(|reason| shield().map_err(|_| reason)));
        let (counts, choice) = match found {
            Ok(found) => found,
            Err(reason) => return self.held_back(id, hook, reason, now),
        };
        let guards = self.settings.guards;
        if !guards.on(Guard::LedgerFirst) {
            return self.bypass(&choice, over.map_or(0, |entry| entry.relapses));
        }
        let line = Entry {
            reverts: over.map_or(0, |entry| entry.reverts),
            relapses: over.map_or(0, |entry| entry.relapses.saturating_add(1)),
            contested: over.is_some_and(|entry| entry.contested),
            spent: over.is_some_and(|entry| entry.spent),
            skips: over.and_then(|entry| entry.skips).map(Skips::over),
            ..self.line(hook, &choice, view, now)
        };
        let does = Does::Write {
            line: Some(line),
            licence: Some(true),
            counts,
        };
        does.into()
    }

    fn line(&self, hook: &HookMemory, choice: &Choice, view: &View, now: Time) -> Entry {
        let cause = hook.facts.as_ref().and_then(|facts| facts.cause);
        Entry {
            place: Place::Held,
            rung: choice.rung,
            cause: cause.unwrap_or(Cause::Slow),
            stake: hook.stake(),
            by: Arc::clone(&self.settings.identity),
            since: now,
            at: now,
            seen: view.version.clone(),
            reverts: 0,
            relapses: 0,
            contested: false,
            spent: false,
            by_hand: false,
            skips: None,
        }
    }

    fn bypass(&self, choice: &Choice, relapses: u8) -> Step {
        let does = Does::Change {
            to: To::Bypass(choice.rung),
            why: choice.words(),
        };
        let step = Step::from(does);
        match relapses >= super::FLAPPING {
            true => step.says(
                News::Flapping,
                format!("It failed again {relapses} times after a restore."),
            ),
            false => step.says(News::Bypassing(choice.rung), &*choice.words()),
        }
    }

    /// The book says bypassed, and the object is as its owner has it: it is about to be bypassed, or it was given up,
    /// or somebody took the bypass away.
    fn not_there(&self, id: &HookId, hook: &HookMemory, entry: &Entry, view: &View, now: Time) -> Step {
        let (guards, times) = (self.settings.guards, &self.settings.times);
        let justified = self.justify(id, hook, Some(entry), entry.rung, now);
        let justified = justified.and_then(|choice| match choice.rung == entry.rung {
            true => Ok(choice),
            false => self.room(id, choice.rung, now).map(|_| choice),
        });
        let unchanged = view.version == entry.seen;
        let licence = hook.licence;
        if let (Ok(choice), Some(licence)) = (&justified, licence)
            && choice.rung == entry.rung
            && (unchanged || !guards.on(Guard::Version))
            && (now.since(licence.sent) < times.act_within || !guards.on(Guard::Licence))
        {
            return self.bypass(choice, entry.relapses);
        }
        let clean = licence.is_some_and(|licence| licence.clean);
        let refused = hook.refusal.is_some() && (hook.refusal(now).is_some() || justified.is_err());
        if clean && refused {
            return self.give_up_line(id, hook, entry, now);
        }
        let untouched = unchanged || clean || entry.by_hand;
        let reverts = match untouched {
            true => entry.reverts,
            false => entry.reverts.saturating_add(1),
        };
        let contested = entry.contested || reverts >= REVERTS;
        let rested = now.since(hook.line_since) >= times.act_within;
        let mine = entry.by == self.settings.identity;
        if let Ok(choice) = &justified
            && (!contested || !guards.on(Guard::Contested))
            && (!untouched || mine || rested)
        {
            let line = Entry {
                since: entry.since,
                reverts,
                relapses: entry.relapses,
                skips: entry.skips,
                ..self.line(hook, choice, view, now)
            };
            let does = Does::Write {
                line: Some(line),
                licence: Some(clean || !unchanged),
                counts: Counts::Nothing,
            };
            return match untouched {
                true => does.into(),
                false => Step::from(does).says(News::Reverted, "Another client removed the bypass."),
            };
        }
        // A change under this line may still be under way; if it named a version that is gone, it fails.
        let over = now.since(hook.line_since) >= times.patience || !guards.on(Guard::Patience);
        if unchanged && !over {
            return match justified {
                Err(reason) if hook.failing_since.is_some() => self.held_back(id, hook, reason, now),
                _ => Step::default(),
            };
        }
        // Until no API server goes by the bypass any more, it counts.
        if !self.everywhere(hook) {
            return Step::default();
        }
        if unchanged && entry.reverts == 0 && entry.relapses == 0 {
            return strike_out();
        }
        let step = Step::from(self.rewrite(
            entry,
            |line| {
                (line.place, line.reverts, line.contested) = (Place::Out, reverts, contested);
            },
            now,
        ));
        match contested {
            true => step.says(
                News::Contested,
                "Contested: something keeps reverting the bypass, so hookwatch has stopped.",
            ),
            false => step,
        }
    }

    /// All that was tried under this line was refused: somebody else may have its place.
    fn give_up_line(&self, id: &HookId, hook: &HookMemory, entry: &Entry, now: Time) -> Step {
        let new = entry.reverts == 0 && entry.relapses == 0 && !entry.contested && !entry.spent;
        let mut line = Entry {
            by: Arc::clone(&self.settings.identity),
            at: now,
            place: Place::Out,
            ..entry.clone()
        };
        // It was counted when the line was written, and nothing came of it.
        line.relapses = line.relapses.saturating_sub(1);
        let does = Does::Write {
            line: (!new).then_some(line),
            licence: None,
            counts: match entry.rung {
                Rung::Shield => Counts::Nothing,
                Rung::Skip => Counts::TakesBack(entry.since),
            },
        };
        let said = self.held_back(id, hook, HeldBack::Refused, now).says;
        Step { does, says: said }
    }

    /// The object is ours and the book does not say so.
    fn adopt(&self, hook: &HookMemory, over: Option<&Entry>, rung: Rung, view: &View, now: Time) -> Step {
        let lost = self.memory.ledger.lost;
        let without = lost.is_some_and(|lost| now.since(lost) >= self.settings.times.without_ledger);
        let by_hand = wanted_by_hand(view, now).is_some();
        if without {
            return match by_hand {
                true => Step::default(),
                false => put_back("hookwatch cannot reach its ledger."),
            };
        }
        let cause = hook.facts.as_ref().and_then(|facts| facts.cause);
        // A backup that was made during the bypass, and is applied once that is over, has the bypass in it. Through the
        // book all the same: another replica may have bypassed it a moment ago, and this one not have heard of it.
        let needed = hook.facts.is_none() || hook.failing_since.is_some() || by_hand;
        let is_old = over.is_some_and(|entry| entry.place == Place::Out) && !needed;
        let line = Entry {
            place: if is_old { Place::Leaving } else { Place::Held },
            rung,
            cause: cause.unwrap_or(Cause::Slow),
            stake: hook.stake(),
            by: Arc::clone(&self.settings.identity),
            since: now,
            at: now,
            seen: view.version.clone(),
            reverts: over.map_or(0, |entry| entry.reverts),
            relapses: over.map_or(0, |entry| entry.relapses),
            contested: over.is_some_and(|entry| entry.contested),
            spent: over.is_some_and(|entry| entry.spent),
            by_hand,
            skips: match rung == Rung::Skip && hook.ignores() {
                true => Some(Skips::begun(over.and_then(|entry| entry.skips), now)),
                false => over.and_then(|entry| entry.skips).map(Skips::over),
            },
        };
        let does = Does::Write {
            line: Some(line),
            licence: None,
            counts: Counts::Nothing,
        };
        does.into()
    }
}

/// How far a bypass goes that is begun. A hook whose failures are ignored may be skipped after that, if it is dead.
fn at_first(hook: &HookMemory) -> Rung {
    match hook.ignores() {
        true => Rung::Shield,
        false => Rung::Skip,
    }
}
