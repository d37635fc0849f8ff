//! The promises of the breaker, checked against its behaviour in a small world.

use super::super::*;
use super::setup::{Mishaps, Mood, OtherWrite, Setup};
use super::world::{Happens, UNIT, What, World, version};
use crate::act::fence::AutoBreak;
use crate::vocabulary::Cause;

/// Most units of time without mishaps until everything is restored. The breaker's own waits take three of them.
pub(super) const STEPS: u8 = 8;

/// Most units of time without mishaps until the skip of a webhook that is no longer dead becomes a shield. One of them is
/// the wait after a refusal.
const SHIELDED: u8 = 2;

/// The names of the promises about single states and steps.
pub(super) const PROMISES: [&str; 17] = [
    MOST, EVIDENCE, DOUBT, HOLD, OPTED_OUT, RUNG, WEAK, RESTORABLE, FIGHTS, LINE, FROZEN, TOUCHES, FENCE,
    RATE, CANARY, SPENT, DEAD,
];

pub(super) const MOST: &str = "never more shielded, nor skipped, than permitted, on any API server";
pub(super) const EVIDENCE: &str = "never acts without two witnesses";
pub(super) const DOUBT: &str = "never acts while in doubt of itself or by old knowledge";
pub(super) const HOLD: &str = "never acts before the hook has failed for as long as the rule says";
pub(super) const OPTED_OUT: &str = "never touches what its owner opted out";
pub(super) const RUNG: &str = "never goes past the rung that is permitted";
pub(super) const WEAK: &str = "never goes past shield on weak evidence";
pub(super) const RESTORABLE: &str = "each changed object can be restored to what its owner wants";
pub(super) const FIGHTS: &str = "never fights more than twice";
pub(super) const LINE: &str = "never bypasses what the ledger does not say";
pub(super) const FROZEN: &str = "nothing new while frozen";
pub(super) const TOUCHES: &str = "touches nothing unless the mode is on";
pub(super) const FENCE: &str = "never acts without the fence";
pub(super) const RATE: &str = "never begins more skips in some time than permitted";
pub(super) const CANARY: &str = "lets nobody back before canaries got through";
pub(super) const SPENT: &str = "not again after the longest bypass";
pub(super) const DEAD: &str =
    "goes past shield where failures are ignored only while it is dead, and never by probation";
/// Further promises, about what must be reachable from a state.
pub(super) const BACK: &str = "from everywhere a few healthy steps lead back to enforcing";
pub(super) const ANSWERED: &str = "no skip outlasts that the hook is dead and fails open";
pub(super) const LONGEST: &str = "no bypass that is not to stay outlasts its limit, well or not";

impl World {
    fn breaks(&mut self, promise: &'static str) {
        self.broken.insert(promise);
    }

    /// Checks what a replica is about to write into the ledger.
    pub(super) fn wants_book(&mut self, setup: &Setup, actor: usize, book: &Book) {
        if setup.mode != AutoBreak::On {
            self.breaks(TOUCHES);
        }
        let memory = &self.actors[actor].memory;
        let mut unproven = false;
        for (id, line) in &book.entries {
            let before = self.book.entries.get(id);
            let leaves = line.stage == EntryStage::Restoring
                && before.is_some_and(|before| before.stage == EntryStage::Bypassed);
            let Some(hook) = memory.hooks.get(id) else {
                continue;
            };
            let shown = hook
                .last_read
                .as_ref()
                .map(|(_, view)| (&view.shown, view.owner.ceiling));
            if let (
                true,
                Some((
                    BypassState::Ours {
                        rung: Rung::Skip,
                        probation,
                    },
                    ceiling,
                )),
            ) = (leaves, shown)
            {
                let through = hook.facts.as_ref().map(|facts| facts.canary) == Some(CanaryEvidence::Through);
                let asked_to = ceiling.permits(Rung::Skip) && !line.limit_reached && !line.contested;
                unproven |= setup.canaries && asked_to && !(*probation && through);
            }
        }
        if unproven {
            self.breaks(CANARY);
        }
    }

    /// Checks a change of an object that a replica is about to send.
    pub(super) fn wants_change(&mut self, setup: &Setup, actor: usize, change: &ObjectChange) {
        if setup.mode != AutoBreak::On {
            self.breaks(TOUCHES);
        }
        let now = self.now(actor);
        let memory = &self.actors[actor].memory;
        let To::Bypass(rung) = change.to else { return };
        if matches!(change.expects.shown, BypassState::Ours { rung: before, .. } if rung <= before) {
            return;
        }
        let hook = memory.hooks.get(&change.hook);
        let facts = hook.and_then(|hook| hook.facts.as_ref());
        let (Some(hook), Some((at, judged)), Some(facts)) = (hook, &memory.judged, facts) else {
            return self.breaks(EVIDENCE);
        };
        let failing = hook.failing_since;
        let mut broken = Vec::new();
        if facts.witnesses.len() < 2 || failing.is_none() {
            broken.push(EVIDENCE);
        }
        if judged.self_doubt || judged.inventory_is_old || now.since(*at) > UNIT / 2 {
            broken.push(DOUBT);
        }
        if !judged.fence_holds {
            broken.push(FENCE);
        }
        if failing.is_some_and(|since| now.since(since) < UNIT * setup.hold) {
            broken.push(HOLD);
        }
        if facts.cause == Some(Cause::Slow) && rung > Rung::Shield {
            broken.push(WEAK);
        }
        if facts.ignores && rung > Rung::Shield && !(rung == Rung::Skip && facts.dead) {
            broken.push(DEAD);
        }
        self.broken.extend(broken);
    }

    /// Executes a write that reaches the API server, and checks promises.
    pub(super) fn arrives(&mut self, setup: &Setup, what: &What) -> WriteOutcome {
        match what {
            What::Book { expects, book } => {
                if *expects != self.ledger {
                    return WriteOutcome::Conflict;
                }
                for (at, object) in self.objects.iter().enumerate() {
                    let id = Setup::hook(at);
                    let counts =
                        |book: &Book| book.entries.get(&id).is_some_and(BookEntry::counts_as_bypassed);
                    let begins = counts(book) && !counts(&self.book) && !object.shown.is_ours();
                    if begins && self.book.frozen.is_some() {
                        self.broken.insert(FROZEN);
                    }
                    let skips = |book: &Book| {
                        let line = book.entries.get(&id).filter(|line| line.counts_as_bypassed());
                        line.is_some_and(|line| line.rung == Rung::Skip)
                    };
                    if skips(book) && !skips(&self.book) && !object.is_skipped() {
                        self.begun.push(0);
                    }
                    if !book.entries.contains_key(&id) {
                        self.reverts[at] = 0;
                    }
                }
                match setup.rate {
                    None => self.begun.clear(),
                    Some(rate) if self.begun.len() > rate => self.breaks(RATE),
                    Some(_) => {}
                }
                self.book = book.clone();
                self.ledger += 1;
                WriteOutcome::Written(version(self.ledger))
            }
            What::Change {
                hook,
                to,
                shown,
                expects,
                original,
            } => {
                let at = usize::from(*hook);
                let object = &self.objects[at];
                if object.shown == BypassState::Gone {
                    return WriteOutcome::Gone;
                }
                if expects.is_some_and(|expects| expects != object.version) || object.shown != *shown {
                    return WriteOutcome::Conflict;
                }
                self.changed(setup, at, *to, *original);
                WriteOutcome::Applied(self.objects[at].view())
            }
        }
    }

    fn changed(&mut self, setup: &Setup, at: usize, to: To, original: u8) {
        let line = self.book.entries.get(&Setup::hook(at));
        let mut broken = Vec::new();
        let object = &mut self.objects[at];
        let before = match object.shown {
            BypassState::Ours { rung, .. } => Some(rung),
            _ => None,
        };
        match to {
            To::Bypass(rung) => {
                if before.is_none_or(|before| rung > before) {
                    if object.ceiling == Ceiling::Off {
                        broken.push(OPTED_OUT);
                    }
                    let while_dead = object.ignores && rung == Rung::Skip;
                    if !object.ceiling.permits(rung) || !(while_dead || setup.rungs.contains(&rung)) {
                        broken.push(RUNG);
                    }
                }
                object.left_over = false;
                if before.is_none() {
                    object.kept = Some(original);
                    if !line.is_some_and(BookEntry::counts_as_bypassed) {
                        broken.push(LINE);
                    }
                    if line.is_some_and(|line| line.limit_reached) {
                        broken.push(SPENT);
                    }
                    if self.reverts[at] >= 2 {
                        broken.push(FIGHTS);
                    }
                }
                object.shown = BypassState::Ours {
                    rung,
                    probation: false,
                };
            }
            To::Probation => {
                if object.ignores {
                    broken.push(DEAD);
                }
                // Probation exempts tenants' writes, like a skip.
                if !setup.rungs.contains(&Rung::Skip) || before == Some(Rung::Shield) {
                    broken.push(RUNG);
                }
                object.shown = BypassState::Ours {
                    rung: before.unwrap_or(Rung::Skip),
                    probation: true,
                };
            }
            To::Original if before.is_none() => object.left_over = false,
            To::Original => {
                if object.kept.take() != Some(object.wanted) {
                    broken.push(RESTORABLE);
                }
                object.shown = BypassState::Original;
            }
        }
        object.version += 1;
        self.broken.extend(broken);
    }

    /// Executes another writer's change of an object.
    pub(super) fn other_write(&mut self, at: usize, write: OtherWrite) {
        let object = &mut self.objects[at];
        match write {
            OtherWrite::Revert => {
                self.reverts[at] += u8::from(object.shown.is_ours());
                (object.shown, object.kept, object.left_over) = (BypassState::Original, None, false);
            }
            OtherWrite::TakeBack => {
                self.reverts[at] += u8::from(object.shown.is_ours());
                object.left_over |= object.shown.is_ours();
                (object.shown, object.kept) = (BypassState::Original, None);
            }
            OtherWrite::Rotate => {}
            OtherWrite::Rewrite => {
                object.wanted = 1 - object.wanted;
                if object.shown.is_ours() {
                    (object.shown, object.kept) = (BypassState::DuplicateName, None);
                }
            }
            OtherWrite::OptOut => object.ceiling = Ceiling::Off,
            OtherWrite::Enforce => object.ignores = false,
            OtherWrite::Delete => {
                (object.shown, object.kept, object.left_over) = (BypassState::Gone, None, false)
            }
        }
        object.version += 1;
    }

    /// Whether a promise holds in this state.
    pub(super) fn holds(&self, setup: &Setup, promise: &str) -> bool {
        let kept =
            |object: &super::world::Object| !object.shown.is_ours() || object.kept == Some(object.wanted);
        let state = match promise {
            MOST => {
                let skipped = self.bypassed_somewhere(|rung| rung == Some(Rung::Skip));
                let shielded = self.bypassed_somewhere(|rung| rung == Some(Rung::Shield));
                skipped.max(shielded) <= setup.most
            }
            RESTORABLE => self.objects.iter().all(kept),
            _ => true,
        };
        state && !self.broken.contains(promise)
    }

    /// Whether every skipped hook either is dead and fails open, or stops being skipped within [`SHIELDED`] units of time.
    pub(super) fn ends_skips(&self, setup: &Setup) -> bool {
        let lasts = |world: &Self| {
            let mut hooks = world.objects.iter().zip(&world.moods);
            hooks.any(|(object, mood)| object.is_skipped() && !(object.ignores && *mood == Mood::Dead))
        };
        let mut world = self.clone();
        let mut units = 0;
        while lasts(&world) && units < SHIELDED {
            world = world.works(setup, false);
            units += 1;
        }
        !lasts(&world)
    }

    /// How many hooks have a bypass for which `counts` holds, each by the API server that shows the highest rung.
    fn bypassed_somewhere(&self, counts: impl Fn(Option<Rung>) -> bool) -> usize {
        let rung = |object: &super::world::Object| match object.shown {
            BypassState::Ours { rung, .. } => Some(rung),
            _ => None,
        };
        let farthest = |at: usize| {
            let views = self.caches.iter().map(|cache| rung(&cache[at]));
            views.chain([rung(&self.objects[at])]).max().flatten()
        };
        (0..self.objects.len()).filter(|at| counts(farthest(*at))).count()
    }

    /// Whether everything is restored and nothing remains to do.
    pub(super) fn is_back(&self) -> bool {
        let back = |at: usize| {
            let line = self.book.entries.get(&Setup::hook(at));
            let object = &self.objects[at];
            // A duplicate name that another writer made does not count.
            let over = !object.shown.is_ours()
                && !object.left_over
                && !line.is_some_and(BookEntry::counts_as_bypassed);
            object.shown == BypassState::DuplicateName || over
        };
        (0..self.objects.len()).all(back)
    }

    /// The world after one unit of time without mishaps; with `well`, the hooks are healthy.
    pub(super) fn works(&self, setup: &Setup, well: bool) -> Self {
        let mut world = self.clone();
        world.left = Mishaps::default();
        world.reverts.fill(0);
        world.begun.clear();
        (world.self_doubt, world.old, world.unfenced) = (false, false, false);
        if well {
            world.moods.fill(Mood::Well);
        }
        for _ in 0..3 {
            while !world.writes.is_empty() {
                world.happens(setup, &Happens::Arrives(0));
            }
            let objects = world.objects.clone();
            world.caches.fill(objects);
            for actor in 0..world.actors.len() {
                world.happens(setup, &Happens::Wake(actor));
            }
            if world.writes.is_empty() {
                break;
            }
        }
        world = world.then(setup, &Happens::Time);
        // Promises that break on this path are checked where the path is explored.
        world.broken.clear();
        world
    }
}
