//! The breaker: when a hook is bypassed, how far, and when it is restored.
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
//!   a line off only after [`BreakerTimes::write_off_after`] on its own clock; by then no change under that line can still be
//!   in flight.
//! - A change names the version of the object that was read. One that arrives after any other change fails.
//! - An API server's cache only shows that a read is due, and whether a bypass has propagated everywhere.
//! - Times that another replica wrote are never compared with our own clock, except where our own clock limits the same
//!   duration as well.

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
    BypassState, CanaryEvidence, Doubt, HookFacts, Judged, Observation, ObservedHook, Stake, Ticket, Witness,
    WriteOutcome,
};
pub use policy::{
    AtLimit, Ceiling, OwnerAnnotations, Pattern, Permit, Policy, PolicyRule, PolicySubject, RuleMatch, Rung,
};

pub use standing::HookStanding;

use guards::Guards;

/// Independent witnesses that a bypass requires.
pub const MIN_WITNESSES: usize = 2;
/// Reverts by another writer after which hookwatch stops bypassing a hook.
pub const MAX_REVERTS: u8 = 2;
/// Relapses from which on a hook is reported as flapping.
pub const FLAPPING_AFTER: u8 = 3;

/// Time limits. The first three depend on each other: the sender of a request must give it up `request_life` after sending
/// it, and make sure that it can no longer take effect then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerTimes {
    /// How long after sending a line of the book its writer may begin the bypass.
    pub act_within: Duration,
    /// How long after it was sent a request can still take effect.
    pub request_life: Duration,
    /// How long a replica must see a line unchanged before it writes it off: longer than `act_within` and `request_life`
    /// together, as clocks run at different rates.
    pub write_off_after: Duration,
    /// How long a hook must have been healthy before its restore begins.
    pub healthy_for: Duration,
    /// How long a hook stays on probation.
    pub probation_for: Duration,
    /// How long a hook must be healthy before its line is removed from the book.
    pub remember_for: Duration,
    /// `healthy_for` doubles with every relapse, at most this many times.
    pub doublings: u32,
    /// Age up to which a judgement is acted on.
    pub judgement_life: Duration,
    /// Wait after a refused request before it is sent again; doubled with every refusal of a change in a row.
    pub retry_after: Duration,
    /// Age from which on the ledger, or an object, is read again although no change of it was seen.
    pub reread_after: Duration,
    /// How long the ledger may be unreachable before a restore goes on without it.
    pub without_ledger: Duration,
    /// How much longer than the leader a follower waits before it shields a hook.
    pub follower_delay: Duration,
}

impl Default for BreakerTimes {
    fn default() -> Self {
        Self {
            act_within: Duration::from_secs(15),
            request_life: Duration::from_secs(75),
            write_off_after: Duration::from_secs(120),
            healthy_for: Duration::from_secs(30),
            probation_for: Duration::from_secs(20),
            remember_for: Duration::from_secs(3_600),
            doublings: 6,
            judgement_life: Duration::from_secs(10),
            retry_after: Duration::from_secs(5),
            reread_after: Duration::from_secs(30),
            without_ledger: Duration::from_secs(30),
            follower_delay: Duration::from_millis(300),
        }
    }
}

/// The settings of a breaker.
#[derive(Debug, Clone)]
pub struct BreakerSettings {
    /// This replica's name, unique among all present and recent replicas.
    pub identity: Arc<str>,
    /// The most that the breaker may do; a rule of the policy can permit less.
    pub mode: AutoBreak,
    /// What the operator permits.
    pub policy: Policy,
    /// Time limits.
    pub times: BreakerTimes,
    guards: Guards,
}

impl BreakerSettings {
    /// Settings with the default time limits.
    pub fn new(identity: &str, mode: AutoBreak, policy: Policy) -> Self {
        Self {
            identity: identity.into(),
            mode,
            policy,
            times: BreakerTimes::default(),
            guards: Guards::default(),
        }
    }

    /// Whether the breaker may change objects at all.
    fn acts(&self) -> bool {
        self.mode == AutoBreak::On || !self.guards.on(guards::Guard::Mode)
    }
}

/// The breaker of one replica, as a state machine.
#[derive(Debug, Clone)]
pub struct Breaker {
    settings: Arc<BreakerSettings>,
    memory: BreakerMemory,
    overview: Overview,
}

/// What the decision about one hook has to know of all others. It is computed once for all decisions of one
/// [`Breaker::take`].
#[derive(Debug, Clone, Default)]
struct Overview {
    /// The rung of each hook whose object shows a bypass.
    bypassed: BTreeMap<HookId, Rung>,
    /// By [`HookFacts::incident_key`], since when the first hook with this key fails. Merely slow hooks do not count.
    failing_since: BTreeMap<Arc<str>, Time>,
}

/// What a replica remembers. A crash loses all of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct BreakerMemory {
    leads: bool,
    /// When the last judgement came, and what it says about all hooks together. Its facts about each hook are in `hooks`.
    judged: Option<(Time, Judged)>,
    servers: BTreeSet<Arc<str>>,
    ledger: LedgerMemory,
    hooks: BTreeMap<HookId, HookMemory>,
    /// The number of the last ticket.
    last_ticket: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct LedgerMemory {
    /// Version and content when it was last read or written; `None` before that.
    known: Option<(Option<ResourceVersion>, Book)>,
    known_at: Time,
    /// Whether it has to be read again before it is written.
    must_reread: bool,
    /// When the read in flight was requested.
    reading_since: Option<Time>,
    writing: Option<Writing>,
    /// The write that the decisions of the current [`Breaker::take`] add their lines to. `None` between two calls.
    draft: Option<Writing>,
    /// Until when it is neither read nor written.
    paused_until: Option<Time>,
    /// Since when it can be neither read nor written.
    unreachable_since: Option<Time>,
    /// When a write failed last, if none has succeeded since.
    write_failed_at: Option<Time>,
}

/// A write of the ledger that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Writing {
    ticket: Ticket,
    sent: Time,
    book: Book,
    /// The hooks whose lines it writes, each with the licence that its line gives this replica, if any.
    licences: BTreeMap<HookId, Option<Licence>>,
}

/// The permission of this replica to begin a bypass, by a line that it wrote into the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Licence {
    /// When the write of the line was sent.
    sent: Time,
    /// Whether every change made under this licence is known to have failed, and every change under an earlier one that
    /// could still take effect.
    clean: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct HookMemory {
    facts: Option<HookFacts>,
    failing_since: Option<Time>,
    healthy_since: Option<Time>,
    /// For how long it was healthy before `healthy_since`, in times that only a suspicion interrupted and no failure.
    healthy_before: Duration,
    /// Its object in the cache of each API server.
    by_server: BTreeMap<Arc<str>, ObservedHook>,
    /// When its object was last read consistently, and what it showed; `None` when it may have changed since.
    last_read: Option<(Time, ObservedHook)>,
    /// The read in flight, and when it was requested.
    read_request: Option<(Ticket, Time)>,
    /// The change in flight.
    pending: Option<PendingChange>,
    /// Since when this replica knows its line in the book as it is now.
    line_since: Time,
    licence: Option<Licence>,
    /// The object's version after this replica's changes of other hooks in it, if those are all that changed it since the
    /// line was written.
    version_after_our_changes: Option<ResourceVersion>,
    /// Since when it is bypassed, as far as this replica saw.
    bypassed_since: Option<Time>,
    /// Since when it is on probation, as far as this replica saw.
    probation_since: Option<Time>,
    /// Since when it is skipped, as far as this replica saw.
    skipped_since: Option<Time>,
    /// Since when its restore is due.
    restore_due_since: Option<Time>,
    /// Whether this replica restored it, and has not seen it bypassed since.
    restored_by_us: bool,
    /// Relapses on probation that are not in the book yet.
    relapses: u8,
    /// Until when nothing is tried.
    paused_until: Option<Time>,
    refusal: Option<RefusedChange>,
    /// The last notice about it, which is not repeated.
    last_notice: Option<NoticeKind>,
}

/// What is remembered of a hook, and the time of the decision about it.
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

/// The last of the changes that were refused in a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RefusedChange {
    why: Arc<str>,
    /// When it may be tried again.
    retry_at: Time,
    /// How many were refused in a row.
    count: u8,
    /// What was refused. A refused skip does not keep a shield from being tried.
    to: To,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PendingChange {
    ticket: Ticket,
    sent: Time,
    /// The version of the object that it changes.
    from: ResourceVersion,
    to: To,
}

impl Breaker {
    /// A breaker that knows nothing yet.
    pub fn new(settings: BreakerSettings) -> Self {
        Self {
            settings: Arc::new(settings),
            memory: BreakerMemory::default(),
            overview: Overview::default(),
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
        self.expire_requests(now);
        let is_idle = !self.memory.leads && !self.memory.hooks.values().any(HookMemory::fails);
        // An idle replica publishes what the book says, so it reads the ledger until the book is empty.
        if !is_idle || self.book().is_some_and(|book| !book.entries.is_empty()) {
            self.read_ledger(now, &mut actions);
        }
        if is_idle {
            // A notice about an incident that is over is repeated in the next one.
            for hook in self.memory.hooks.values_mut() {
                hook.last_notice = None;
            }
            return actions;
        }
        self.overview = self.make_overview();
        // Hooks compete for limits and for the one write of their object: the one with the highest stake is decided first.
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
            self.note_step(&hook, &step.operation, now);
            self.carry_out(&hook, step, now, &mut actions);
        }
        actions.extend(self.send_draft());
        actions
    }

    /// The state of a hook, as far as this replica knows.
    pub fn state(&self, hook: &HookId) -> HookState {
        let entry = self.book().and_then(|book| book.entries.get(hook));
        let Some(memory) = self.memory.hooks.get(hook) else {
            return HookState::Enforcing;
        };
        let read = memory.last_read.as_ref().map(|(_, view)| view);
        // A breaker that may not act reads nothing.
        let newest = read.or_else(|| memory.by_server.values().find(|view| view.shown.is_ours()));
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

    /// The states of the hooks that may be in another state than enforcing. All other hooks enforce.
    pub fn states(&self) -> impl Iterator<Item = (&HookId, HookState)> {
        self.concerned().map(|(hook, _)| (hook, self.state(hook)))
    }

    /// The hooks that are bypassed or contested, or may be bypassed according to the book.
    pub fn involved(&self) -> BTreeSet<HookId> {
        let changed = self.states().filter(|(_, state)| *state != HookState::Enforcing);
        let noted = self.book().into_iter().flat_map(|book| &book.entries);
        let noted = noted
            .filter(|(_, entry)| entry.counts_as_bypassed())
            .map(|(hook, _)| hook);
        changed.map(|(hook, _)| hook).chain(noted).cloned().collect()
    }

    /// The hooks that need a decision, or may: few of all that are watched.
    fn concerned(&self) -> impl Iterator<Item = (&HookId, &HookMemory)> {
        let noted = |id: &HookId| self.book().is_some_and(|book| book.entries.contains_key(id));
        let hooks = self.memory.hooks.iter();
        hooks.filter(move |(id, hook)| !hook.is_at_rest() || noted(id))
    }

    /// What replicas agree on, as last read. While decisions are made, it includes the lines that they are about to
    /// write.
    pub fn book(&self) -> Option<&Book> {
        let ledger = &self.memory.ledger;
        let draft = ledger.draft.as_ref().map(|draft| &draft.book);
        draft.or_else(|| ledger.known.as_ref().map(|(_, book)| book))
    }

    fn ticket(&mut self) -> Ticket {
        self.memory.last_ticket += 1;
        Ticket(self.memory.last_ticket)
    }

    /// Whether the last judgement is recent enough to act on.
    fn is_fresh(&self, now: Time) -> bool {
        let judged = self.memory.judged.as_ref();
        judged.is_some_and(|(at, _)| now.since(*at) <= self.settings.times.judgement_life)
    }

    /// Whether every API server shows the hook as it was last read.
    fn everywhere(&self, hook: &HookMemory) -> bool {
        hook.last_read
            .as_ref()
            .is_some_and(|(_, read)| self.all_show(hook, read))
    }

    /// Whether every API server shows the hook like this.
    fn all_show(&self, hook: &HookMemory, wanted: &ObservedHook) -> bool {
        let servers = &self.memory.servers;
        let same = |view: &ObservedHook| {
            view.version == wanted.version
                || (view.shown == BypassState::Gone && wanted.shown == BypassState::Gone)
        };
        let shows = |server| hook.by_server.get(server).is_some_and(same);
        !self.settings.guards.on(guards::Guard::EveryServer)
            || (!servers.is_empty() && servers.iter().all(shows))
    }
}
