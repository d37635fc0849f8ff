//! The state of a small world: objects, API servers with lagging caches, a ledger, replicas with the real breaker, and
//! everything that can go wrong between them.
//!
//! The replicas are [`Breaker`]s, not models of them. Time passes in units. "Now" is the same instant in every world; when
//! time passes, all earlier instants move back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::super::*;
use super::setup::{Mishaps, Mood, OtherWrite, Setup};

/// One unit of time.
pub(super) const UNIT: Duration = Duration::from_secs(10);
/// The current instant of every world.
pub(super) const NOW: Time = Time::from_unix_millis(100_000_000);
/// By how many units the clock of a restarted replica may be off.
pub(super) const STEP: u32 = 3;

/// A stored object. A number stands for the owner's value of the fields that a restore has to bring back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Object {
    pub(super) version: u8,
    pub(super) shown: BypassState,
    pub(super) ceiling: Ceiling,
    /// `failurePolicy: Ignore`.
    pub(super) ignores: bool,
    /// The owner's latest value of the fields.
    pub(super) wanted: u8,
    /// The original value that the annotation of a bypass has.
    pub(super) kept: Option<u8>,
    /// The annotation is still there although the bypass is over.
    pub(super) left_over: bool,
}

impl Object {
    /// Whether a skip is in force, so that the hook is never called.
    pub(super) fn is_skipped(&self) -> bool {
        matches!(self.shown, BypassState::Ours { rung: Rung::Skip, .. })
    }

    pub(super) fn view(&self) -> ObservedHook {
        ObservedHook {
            version: version(self.version),
            uid: "u".into(),
            shown: self.shown.clone(),
            owner: OwnerAnnotations {
                ceiling: self.ceiling,
                ..OwnerAnnotations::default()
            },
            ignores: self.ignores,
            left_over: self.left_over,
            by_hand_until: None,
        }
    }
}

/// A write under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Write {
    /// The replica that waits for the answer, and its ticket.
    pub(super) waits: Option<(usize, Ticket)>,
    /// In units.
    pub(super) age: u8,
    pub(super) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum What {
    Book {
        expects: u8,
        book: Book,
    },
    Change {
        hook: u8,
        to: To,
        shown: BypassState,
        /// The expected version; `None`: any.
        expects: Option<u8>,
        /// The owner's value as it was read, to be stored as the original.
        original: u8,
    },
}

/// One replica.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Actor {
    pub(super) memory: BreakerMemory,
    /// Whether its clock is ahead.
    pub(super) ahead: bool,
    /// Whether it has observed in this unit of time.
    pub(super) awake: bool,
    /// The owner's values as it read them.
    pub(super) read: Vec<u8>,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) objects: Vec<Object>,
    /// The objects as each API server's cache has them.
    pub(super) caches: Vec<Vec<Object>>,
    pub(super) ledger: u8,
    pub(super) book: Book,
    pub(super) actors: Vec<Actor>,
    pub(super) writes: Vec<Write>,
    pub(super) moods: Vec<Mood>,
    pub(super) self_doubt: bool,
    pub(super) old: bool,
    pub(super) unfenced: bool,
    pub(super) left: Mishaps,
    /// How often other writers have reverted the bypass within the breaker's memory.
    pub(super) reverts: Vec<u8>,
    /// Ages of the bypasses that began recently, in units.
    pub(super) begun: Vec<u8>,
    /// Which promises the last step broke.
    pub(super) broken: BTreeSet<&'static str>,
}

/// The version with this number; cached to avoid allocations.
pub(super) fn version(number: u8) -> ResourceVersion {
    thread_local! {
        static KNOWN: Vec<ResourceVersion> = (0..=u8::MAX).map(|number| ResourceVersion::new(&number.to_string())).collect();
    }
    KNOWN.with(|known| known[usize::from(number)].clone())
}

fn number(version: &ResourceVersion) -> Option<u8> {
    version.0.parse().ok()
}

/// An API server's name.
fn name(server: usize) -> Arc<str> {
    thread_local! {
        static KNOWN: [Arc<str>; 2] = ["s0".into(), "s1".into()];
    }
    KNOWN.with(|known| Arc::clone(&known[server]))
}

/// An event of the world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Happens {
    /// A replica observes everything that it watches.
    Wake(usize),
    /// A replica gets a judgement of the hooks only; its watches deliver others' writes later.
    Glance(usize),
    /// One unit of time passes.
    Time,
    /// A write arrives and is answered.
    Arrives(usize),
    /// A write arrives, and its answer is lost.
    AnswerLost(usize),
    /// The sender stops waiting; the write is still under way.
    Unheard(usize),
    /// A write is lost before it arrives.
    Lost(usize),
    /// A write is refused.
    Refused(usize),
    /// A replica crashes and restarts; `true`: with a clock that is off.
    Crash(usize, bool),
    /// An API server's cache catches up.
    CatchesUp(usize),
    Mood(usize, Mood),
    OtherWrite(usize, OtherWrite),
    Doubt(u8),
    Freeze,
}

impl World {
    pub(super) fn new(setup: &Setup) -> Self {
        let object = Object {
            version: 0,
            shown: BypassState::Original,
            ceiling: Ceiling::Open,
            ignores: setup.ignores,
            wanted: 0,
            kept: None,
            left_over: false,
        };
        let objects = vec![object; setup.hooks];
        let mut world = Self {
            caches: vec![objects.clone(); setup.servers],
            objects,
            ledger: 0,
            book: Book::default(),
            actors: Vec::new(),
            writes: Vec::new(),
            moods: vec![setup.first; setup.hooks],
            self_doubt: false,
            old: false,
            unfenced: false,
            left: setup.mishaps.clone(),
            reverts: vec![0; setup.hooks],
            begun: Vec::new(),
            broken: BTreeSet::new(),
        };
        world.actors = vec![Actor::new(setup); setup.actors];
        world.canonical(setup);
        world
    }

    pub(super) fn now(&self, actor: usize) -> Time {
        if self.actors[actor].ahead {
            NOW + UNIT * STEP
        } else {
            NOW
        }
    }

    /// Collects every event that can happen in this state.
    pub(super) fn could(&self, setup: &Setup, could: &mut Vec<Happens>) {
        for actor in 0..self.actors.len() {
            could.push(Happens::Wake(actor));
            if self.left.glances > 0 {
                could.push(Happens::Glance(actor));
            }
            if self.left.crashes > 0 {
                could.push(Happens::Crash(actor, false));
                if self.left.clock_steps > 0 {
                    could.push(Happens::Crash(actor, true));
                }
            }
        }
        for (at, write) in self.writes.iter().enumerate() {
            could.push(Happens::Arrives(at));
            if write.waits.is_none() {
                could.push(Happens::Lost(at));
                continue;
            }
            if self.left.unheard > 0 {
                could.extend([Happens::AnswerLost(at), Happens::Unheard(at)]);
            }
            if self.left.refusals > 0 {
                could.push(Happens::Refused(at));
            }
        }
        let asleep = self.actors.iter().any(|actor| !actor.awake);
        let under_way = !self.writes.is_empty();
        if (self.left.naps > 0 || !asleep) && (self.left.delays > 0 || !under_way) {
            could.push(Happens::Time);
        }
        let behind = |server: &usize| self.caches[*server] != self.objects;
        could.extend((1..setup.servers).filter(behind).map(Happens::CatchesUp));
        for hook in 0..setup.hooks {
            if self.left.moods > 0 {
                let others = setup.moods.iter().filter(|mood| **mood != self.moods[hook]);
                could.extend(others.map(|mood| Happens::Mood(hook, *mood)));
            }
            if self.left.other_writes > 0 && self.objects[hook].shown != BypassState::Gone {
                could.extend(
                    setup
                        .other_writes
                        .iter()
                        .map(|write| Happens::OtherWrite(hook, *write)),
                );
            }
        }
        if self.left.doubts > 0 {
            could.extend((0..3).map(Happens::Doubt));
        }
        if self.left.freezes > 0 {
            could.push(Happens::Freeze);
        }
    }

    /// The state after an event.
    pub(super) fn then(&self, setup: &Setup, happens: &Happens) -> Self {
        let mut world = self.clone();
        world.happens(setup, happens);
        // The first API server's cache never lags.
        world.caches[0].clone_from(&world.objects);
        world.canonical(setup);
        world
    }

    pub(super) fn happens(&mut self, setup: &Setup, happens: &Happens) {
        match happens {
            Happens::Wake(actor) => self.wake(setup, *actor),
            Happens::Glance(actor) => {
                self.left.glances -= 1;
                self.judges(setup, *actor);
            }
            Happens::Time => self.time_goes_by(),
            Happens::Arrives(at) => {
                let write = self.writes.remove(*at);
                let outcome = self.arrives(setup, &write.what);
                self.answer(setup, write.waits, outcome);
            }
            Happens::AnswerLost(at) => {
                self.left.unheard -= 1;
                let write = self.writes.remove(*at);
                self.arrives(setup, &write.what);
                self.answer(setup, write.waits, WriteOutcome::Ambiguous);
            }
            Happens::Unheard(at) => {
                self.left.unheard -= 1;
                let waits = self.writes[*at].waits.take();
                self.answer(setup, waits, WriteOutcome::Ambiguous);
            }
            Happens::Lost(at) => _ = self.writes.remove(*at),
            Happens::Refused(at) => {
                self.left.refusals -= 1;
                let write = self.writes.remove(*at);
                self.answer(setup, write.waits, WriteOutcome::Refused("no".into()));
            }
            Happens::Crash(actor, steps) => {
                self.left.crashes -= 1;
                for write in &mut self.writes {
                    write.waits = write.waits.filter(|(waits, _)| waits != actor);
                }
                let mut anew = Actor::new(setup);
                anew.ahead = self.actors[*actor].ahead != *steps;
                self.left.clock_steps -= u8::from(*steps);
                self.actors[*actor] = anew;
            }
            Happens::CatchesUp(server) => self.caches[*server] = self.objects.clone(),
            Happens::Mood(hook, mood) => {
                self.left.moods -= 1;
                self.moods[*hook] = *mood;
            }
            Happens::OtherWrite(hook, write) => {
                self.left.other_writes -= 1;
                self.other_write(*hook, *write);
            }
            Happens::Doubt(which) => {
                self.left.doubts -= 1;
                match which {
                    0 => self.self_doubt = !self.self_doubt,
                    1 => self.old = !self.old,
                    _ => self.unfenced = !self.unfenced,
                }
            }
            Happens::Freeze => {
                self.left.freezes -= 1;
                self.book.frozen = Some(Freeze {
                    by: "p".into(),
                    reason: "r".into(),
                    at: NOW,
                });
                self.ledger += 1;
            }
        }
    }

    fn wake(&mut self, setup: &Setup, actor: usize) {
        self.actors[actor].awake = true;
        let mut observations = Vec::new();
        // Skip what the replica already knows: it would change nothing and take most of the run time.
        let memory = &self.actors[actor].memory;
        if !memory.leads {
            let servers = (0..setup.servers).map(name).collect();
            observations.extend([Observation::Servers(servers), Observation::Leads(true)]);
        }
        let known = memory
            .ledger
            .known
            .as_ref()
            .and_then(|(version, _)| version.as_ref());
        if known.is_some_and(|known| *known != version(self.ledger)) {
            observations.push(Observation::LedgerShows(version(self.ledger)));
        }
        for (server, cache) in self.caches.iter().enumerate() {
            for (at, object) in cache.iter().enumerate() {
                let (hook, server, view) = (Setup::hook(at), name(server), object.view());
                let known = memory
                    .hooks
                    .get(&hook)
                    .and_then(|hook| hook.by_server.get(&server));
                if known != Some(&view) {
                    observations.push(Observation::Shows { hook, server, view });
                }
            }
        }
        for observation in observations {
            self.observe(setup, actor, observation);
        }
        self.judges(setup, actor);
    }

    fn judges(&mut self, setup: &Setup, actor: usize) {
        let hooks: BTreeMap<HookId, HookFacts> = (0..setup.hooks)
            .map(|at| (Setup::hook(at), setup.facts(self.moods[at], &self.objects[at])))
            .collect();
        let judged = Judged {
            self_doubt: self.self_doubt,
            inventory_is_old: self.old,
            unread: false,
            fence_holds: !self.unfenced,
            match_conditions: true,
            hooks,
        };
        self.observe(setup, actor, Observation::Judged(judged));
    }

    fn time_goes_by(&mut self) {
        let asleep = self.actors.iter().any(|actor| !actor.awake);
        self.left.naps -= u8::from(asleep && self.left.naps > 0);
        self.left.delays -= u8::from(!self.writes.is_empty() && self.left.delays > 0);
        for actor in &mut self.actors {
            actor.awake = false;
        }
        for write in &mut self.writes {
            write.age += 1;
        }
        // A write that has not arrived after two units never does. Its sender times out by its own clock.
        self.writes.retain(|write| write.age < 2);
        for begun in &mut self.begun {
            *begun = begun.saturating_add(1);
        }
        self.begun.retain(|begun| *begun < 3);
        self.map_times(&|time| time.before(UNIT), &|time| time.before(UNIT));
    }

    fn answer(&mut self, setup: &Setup, waits: Option<(usize, Ticket)>, outcome: WriteOutcome) {
        if let Some((actor, ticket)) = waits {
            let again = Observation::Outcome {
                ticket,
                outcome: outcome.clone(),
            };
            self.observe(setup, actor, Observation::Outcome { ticket, outcome });
            // A repeated observation must change nothing.
            self.observe(setup, actor, again);
        }
    }

    /// Gives an observation to a replica and executes its actions: reads are answered at once, writes are under way.
    fn observe(&mut self, setup: &Setup, actor: usize, observation: Observation) {
        let now = self.now(actor);
        let mut due = vec![observation];
        while let Some(observation) = due.pop() {
            let mut breaker = Breaker {
                settings: setup.settings(actor),
                memory: std::mem::take(&mut self.actors[actor].memory),
                overview: Overview::default(),
            };
            let actions = breaker.take([observation], now);
            self.actors[actor].memory = breaker.memory;
            for action in actions {
                match action {
                    Action::Tell(_) => {}
                    Action::ReadLedger => due.push(Observation::Ledger {
                        version: Some(version(self.ledger)),
                        book: self.book.clone(),
                    }),
                    Action::Read { ticket, hook } => {
                        let at = usize::from(&*hook.configuration == "h1");
                        let object = &self.objects[at];
                        self.actors[actor].read[at] = object.wanted;
                        due.push(Observation::Read {
                            ticket,
                            view: Some(object.view()),
                        });
                    }
                    Action::WriteLedger {
                        ticket,
                        version,
                        book,
                    } => {
                        self.wants_book(setup, actor, &book);
                        let expects = version.as_ref().and_then(number).expect("the ledger is there");
                        self.send(actor, ticket, What::Book { expects, book });
                    }
                    Action::Change(change) => {
                        self.wants_change(setup, actor, &change);
                        let at = usize::from(&*change.hook.configuration == "h1");
                        let what = What::Change {
                            hook: at as u8,
                            to: change.to,
                            shown: change.expects.shown,
                            expects: number(&change.expects.version),
                            original: self.actors[actor].read[at],
                        };
                        self.send(actor, change.ticket, what);
                    }
                }
            }
        }
    }

    fn send(&mut self, actor: usize, ticket: Ticket, what: What) {
        self.writes.push(Write {
            waits: Some((actor, ticket)),
            age: 0,
            what,
        });
    }
}

impl Actor {
    fn new(setup: &Setup) -> Self {
        Self {
            memory: BreakerMemory::default(),
            ahead: false,
            awake: false,
            read: vec![0; setup.hooks],
        }
    }
}
