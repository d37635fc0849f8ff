//! The breaker: when a hook is bypassed, how far, and how it gets back.
//!
//! [`Breaker::take`] is a function of an observation, its time, and the observations before it. It requests reads and
//! writes as [`Action`]s and receives their outcomes as [`Observation`]s; it does no I/O itself. So every incident is a
//! list of observations, and all orders in which replicas, API servers, crashes and other writers can interleave are
//! explored by a model checker (`breaker/tests/model.rs`).
//!
//! Assumptions and rules:
//!
//! - What *is* bypassed is recorded on the objects; what *may be* is recorded in the [`Book`], a part of the ledger. A
//!   bypass is written into the book first, with the ledger's version as the precondition, so of several replicas one
//!   wins.
//! - The replica that wrote the line may make the change for [`BreakerTimes::act_within`], by its own clock. A replica writes
//!   a line off only after [`BreakerTimes::patience`] on its own clock; by then no change under that line can still be in
//!   flight.
//! - A change names the version of the object that was read. One that arrives after any other change fails.
//! - An API server's cache only shows that a read is due, and whether a bypass has propagated everywhere.
//! - Times written by others are never compared with our own, except for counts that a second bound limits as well.

pub mod action;
pub mod book;
mod budget;
pub mod choice;
mod dead;
mod decide;
pub mod guards;
mod justify;
mod observe;
pub mod observed;
pub mod policy;
mod restore;
mod sight;
mod standing;
mod step;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookId;
use crate::time::Time;

pub use action::{Action, Expects, HookState, Notice, NoticeKind, ObjectChange, To};
pub use book::{Book, BookEntry, EntryStage, Freeze, ResourceVersion, Skips};
pub use choice::Choice;
pub use guards::HeldBack;
pub use observed::{
    BypassState, CanaryWord, Doubt, HookFacts, Judged, Observation, ObservedHook, Stake, Ticket, Witness,
    WriteOutcome,
};
pub use policy::{
    AtLimit, Ceiling, Matches, OwnerWord, Pattern, Permit, Policy, PolicyRule, PolicySubject, Rung,
};

pub use standing::HookStanding;

use guards::Guards;

/// Independent witnesses that are needed.
pub const WITNESSES: usize = 2;
/// Reverts after which a hook is left alone.
pub const REVERTS: u8 = 2;
/// Relapses after which a hook is said to be flapping.
pub const FLAPPING: u8 = 3;

/// Time limits. The first three belong together: the sender must give up each request `request_life` after it was sent,
/// and be sure that it can no longer take effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerTimes {
    /// How long after sending a line of the book its writer may begin the bypass.
    pub act_within: Duration,
    /// How long after it was sent a request can still have an effect.
    pub request_life: Duration,
    /// How long a line must be seen unchanged before it is written off. More than the two before together, with room
    /// for clocks that run at different rates.
    pub patience: Duration,
    /// How long a hook must have been well before it is let back.
    pub well_for: Duration,
    /// How long only canaries reach it.
    pub probation: Duration,
    /// How long it has to be well before what happened is forgotten.
    pub remember: Duration,
    /// `well_for` doubles with every relapse, at most this many times.
    pub doublings: u32,
    /// A judgement older than this is not acted by.
    pub fresh: Duration,
    /// Between two attempts at what was refused.
    pub retry: Duration,
    /// Between two reads of the ledger, and of an object that hookwatch has changed.
    pub reread: Duration,
    /// How long the ledger may be out of reach before a restore goes on without it.
    pub without_ledger: Duration,
    /// How much longer than the leader a follower waits.
    pub follows_after: Duration,
}

impl Default for BreakerTimes {
    fn default() -> Self {
        Self {
            act_within: Duration::from_secs(15),
            request_life: Duration::from_secs(75),
            patience: Duration::from_secs(120),
            well_for: Duration::from_secs(30),
            probation: Duration::from_secs(20),
            remember: Duration::from_secs(3_600),
            doublings: 6,
            fresh: Duration::from_secs(10),
            retry: Duration::from_secs(5),
            reread: Duration::from_secs(30),
            without_ledger: Duration::from_secs(30),
            follows_after: Duration::from_millis(300),
        }
    }
}

/// What the breaker is set to.
#[derive(Debug, Clone)]
pub struct BreakerSettings {
    /// This replica's name, unique among all present and recent replicas.
    pub identity: Arc<str>,
    /// What may be done at most.
    pub mode: AutoBreak,
    /// What the operator permits.
    pub policy: Policy,
    /// How long things take.
    pub times: BreakerTimes,
    guards: Guards,
}

impl BreakerSettings {
    /// Puts settings together.
    pub fn new(identity: &str, mode: AutoBreak, policy: Policy) -> Self {
        Self {
            identity: identity.into(),
            mode,
            policy,
            times: BreakerTimes::default(),
            guards: Guards::default(),
        }
    }

    /// Whether objects may be touched at all.
    fn acts(&self) -> bool {
        self.mode == AutoBreak::On || !self.guards.on(guards::Guard::Mode)
    }
}

/// The state machine of one replica.
#[derive(Debug, Clone)]
pub struct Breaker {
    settings: Arc<BreakerSettings>,
    memory: BreakerMemory,
    among: Among,
}

/// What each hook is held against in a step, put together once for all of them.
#[derive(Debug, Clone, Default)]
struct Among {
    /// How far the bypassed ones are bypassed, by what their objects show.
    shown: BTreeMap<HookId, Rung>,
    /// Since when the first of those fails that share their backends, the merely slow ones apart.
    failing: BTreeMap<Arc<str>, Time>,
}

/// What it remembers. A crash loses all of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct BreakerMemory {
    leads: bool,
    /// When the last judgement came, and what it says of all hooks together. What it says of each is in `hooks`.
    judged: Option<(Time, Judged)>,
    servers: BTreeSet<Arc<str>>,
    ledger: LedgerMemory,
    hooks: BTreeMap<HookId, HookMemory>,
    tickets: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct LedgerMemory {
    /// What stood in it when it was last read or written; `None` before that.
    known: Option<(Option<ResourceVersion>, Book)>,
    known_at: Time,
    /// It has to be read again before it is written.
    unsure: bool,
    /// When a read was asked for that is not back.
    reading: Option<Time>,
    writing: Option<Writing>,
    /// A write that is being put together: what is decided of several hooks at one time is one write. `None` between
    /// two observations.
    draft: Option<Writing>,
    /// Not to be read or written before.
    rest_until: Option<Time>,
    /// Since when it cannot be read or written.
    lost: Option<Time>,
    /// When a write of it failed last, if none was taken since.
    unwritten: Option<Time>,
}

/// A write of the ledger that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Writing {
    ticket: Ticket,
    sent: Time,
    book: Book,
    /// The hooks whose lines it writes, with whether that gives leave to begin a bypass, and whether nothing under an
    /// earlier leave can still have an effect.
    licences: BTreeMap<HookId, Option<bool>>,
}

/// Leave to begin a bypass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Licence {
    sent: Time,
    /// Every change under this leave, or an earlier one that could still have an effect, is known to have failed.
    clean: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct HookMemory {
    facts: Option<HookFacts>,
    failing_since: Option<Time>,
    well_since: Option<Time>,
    /// How long it was well before that since it last failed, with times in between in which it was merely suspected.
    well_before: Duration,
    /// What each API server shows.
    shows: BTreeMap<Arc<str>, ObservedHook>,
    /// What a consistent read showed, and when; none when something happened since.
    read: Option<(Time, ObservedHook)>,
    /// A read that is asked for.
    asked: Option<(Ticket, Time)>,
    pending: Option<PendingChange>,
    /// Since when the line in the book is as it is.
    line_since: Time,
    licence: Option<Licence>,
    /// The version to which this replica's changes of the object's other hooks have taken it from the one in the line, with
    /// no other client's in between.
    carried_to: Option<ResourceVersion>,
    /// Since when it is bypassed, as far as we saw.
    bypassed_since: Option<Time>,
    probation_since: Option<Time>,
    /// Since when it is skipped, as far as we saw.
    skipped_since: Option<Time>,
    /// Since when its restore is due.
    leaving_since: Option<Time>,
    /// This replica put it back, and has not seen it bypassed since.
    restored: bool,
    /// Relapses on probation that do not stand in the book.
    relapses: u8,
    /// Nothing is tried before.
    rest_until: Option<Time>,
    refusal: Option<RefusedChange>,
    told: Option<NoticeKind>,
}

/// A hook by all that is remembered of it, at the instant at which it is decided about.
#[derive(Clone, Copy)]
struct HookAt<'a> {
    id: &'a HookId,
    memory: &'a HookMemory,
    now: Time,
}

impl Deref for HookAt<'_> {
    type Target = HookMemory;

    fn deref(&self) -> &HookMemory {
        self.memory
    }
}

/// A change that was refused, or several in a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RefusedChange {
    why: Arc<str>,
    /// Not tried again before.
    until: Time,
    times: u8,
    /// What was refused. After a skip a shield may be taken all the same.
    to: To,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PendingChange {
    ticket: Ticket,
    sent: Time,
    /// The version of the object that it is made to.
    from: ResourceVersion,
    to: To,
}

impl Breaker {
    /// A breaker that knows nothing yet.
    pub fn new(settings: BreakerSettings) -> Self {
        Self {
            settings: Arc::new(settings),
            memory: BreakerMemory::default(),
            among: Among::default(),
        }
    }

    /// Takes in what was observed at `now`, and returns the next actions.
    ///
    /// Pass everything that one answer shows of several hooks in one call: then the decisions about them are one write of
    /// the ledger, and changes of the same object that can be made in one request.
    pub fn take(&mut self, observations: impl IntoIterator<Item = Observation>, now: Time) -> Vec<Action> {
        let mut actions = Vec::new();
        for observation in observations {
            self.observe(observation, now, &mut actions);
        }
        self.give_up(now);
        let follows = !self.memory.leads && !self.memory.hooks.values().any(HookMemory::fails);
        // What the lines that it knows say is published, so that it has to hear of their end.
        if !follows || self.book().is_some_and(|book| !book.entries.is_empty()) {
            self.read_ledger(now, &mut actions);
        }
        if follows {
            // What it said of an incident that is over is said again in the next one.
            for hook in self.memory.hooks.values_mut() {
                hook.told = None;
            }
            return actions;
        }
        self.among = self.look_around();
        // Room that several want, in a limit or on their object, goes to the one that most hangs on.
        let mut hooks: Vec<_> = self
            .concerned()
            .map(|(id, hook)| (Reverse(hook.stake()), id.clone()))
            .collect();
        hooks.sort_by_key(|(stake, _)| *stake);
        for (_, hook) in hooks {
            let step = self.decide(&hook, now);
            let step = if self.memory.leads {
                step
            } else {
                self.as_follower(&hook, step)
            };
            self.note(&hook, &step.does, now);
            self.carry_out(&hook, step, now, &mut actions);
        }
        actions.extend(self.send_draft());
        actions
    }

    /// Where a hook stands, as far as is known.
    pub fn stage(&self, hook: &HookId) -> HookState {
        let entry = self.book().and_then(|book| book.entries.get(hook));
        let Some(memory) = self.memory.hooks.get(hook) else {
            return HookState::Enforcing;
        };
        let read = memory.read.as_ref().map(|(_, view)| view);
        // Where the breaker does not act nothing is read.
        let newest = read.or_else(|| memory.shows.values().find(|view| view.shown.is_ours()));
        match (newest.map(|view| (view, &view.shown)), entry) {
            (Some((_, BypassState::Ours { probation: true, .. })), _) => HookState::Probation,
            (Some((view, BypassState::Ours { rung, .. })), _) => HookState::Bypassed {
                rung: *rung,
                effective: self.all_show(memory, view),
            },
            (_, Some(entry)) if entry.contested => HookState::Contested,
            _ => HookState::Enforcing,
        }
    }

    /// The hooks about which there may be something to say, with where they stand. All others enforce.
    pub fn stages(&self) -> impl Iterator<Item = (&HookId, HookState)> {
        self.concerned().map(|(hook, _)| (hook, self.stage(hook)))
    }

    /// The hooks that are not, or may not be, as their owners have them.
    pub fn involved(&self) -> BTreeSet<HookId> {
        let changed = self.stages().filter(|(_, stage)| *stage != HookState::Enforcing);
        let noted = self.book().into_iter().flat_map(|book| &book.entries);
        let noted = noted.filter(|(_, entry)| entry.counts()).map(|(hook, _)| hook);
        changed.map(|(hook, _)| hook).chain(noted).cloned().collect()
    }

    /// The hooks about which there may be something to decide: few, of however many that are watched.
    fn concerned(&self) -> impl Iterator<Item = (&HookId, &HookMemory)> {
        let noted = |id: &HookId| self.book().is_some_and(|book| book.entries.contains_key(id));
        let hooks = self.memory.hooks.iter();
        hooks.filter(move |(id, hook)| !hook.is_at_rest() || noted(id))
    }

    /// What replicas agree on, as far as it was read; while steps are decided on, with those that are about to be
    /// written down.
    pub fn book(&self) -> Option<&Book> {
        let ledger = &self.memory.ledger;
        let draft = ledger.draft.as_ref().map(|draft| &draft.book);
        draft.or_else(|| ledger.known.as_ref().map(|(_, book)| book))
    }

    fn ticket(&mut self) -> Ticket {
        self.memory.tickets += 1;
        Ticket(self.memory.tickets)
    }

    /// Whether the last judgement is fresh enough to act by.
    fn is_fresh(&self, now: Time) -> bool {
        let judged = self.memory.judged.as_ref();
        judged.is_some_and(|(at, _)| now.since(*at) <= self.settings.times.fresh)
    }

    /// Whether every API server shows what was read last.
    fn everywhere(&self, hook: &HookMemory) -> bool {
        hook.read
            .as_ref()
            .is_some_and(|(_, read)| self.all_show(hook, read))
    }

    /// Whether every API server shows this.
    fn all_show(&self, hook: &HookMemory, wanted: &ObservedHook) -> bool {
        let servers = &self.memory.servers;
        let same = |view: &ObservedHook| {
            view.version == wanted.version
                || (view.shown == BypassState::Gone && wanted.shown == BypassState::Gone)
        };
        let shows = |server| hook.shows.get(server).is_some_and(same);
        !self.settings.guards.on(guards::Guard::EveryServer)
            || (!servers.is_empty() && servers.iter().all(shows))
    }
}
