//! A simulation of replicas and of the two objects that decide which one leads: time is simulated, and requests are lost,
//! delayed and executed twice.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::candidate::ClaimStep;
use super::super::*;

pub const TERMS: Terms = Terms {
    term: Duration::from_secs(15),
};

/// Client timeout of a request, in milliseconds.
pub const GIVE_UP: u64 = 36_000;

/// How hooks treat writes of the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hooks {
    Well,
    /// Every call is refused at once.
    Refuse,
    /// Every call hangs for 10 s, then the write is refused.
    HangAndFail,
    /// Every call hangs for 10 s, then the write is admitted.
    HangAndIgnore,
}

/// A cheap and reproducible random generator.
pub struct Chance(u64);

impl Chance {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }

    pub fn percent(&mut self, likely: u64) -> bool {
        self.below(100) < likely
    }
}

#[derive(Debug, Clone, Default)]
pub struct Object {
    /// Holder, number of transitions, and time of the renewal by the writer's wall clock.
    pub content: Option<(Option<Arc<str>>, u64, u64)>,
    /// Changes each time the object is created.
    pub uid: u64,
    pub version: u64,
}

#[derive(Debug, Clone)]
pub enum Happening {
    Round,
    Arrives(u64, ClaimStep, u64),
    ReadAnswered(u64, LeadershipObject, Option<HolderRecord>),
    WriteAnswered(u64, Bid, LeadershipObject, BidOutcome, u64),
    Lost(u64, ClaimStep, u64),
    Late(u64),
    Crash,
    Resign,
}

pub struct Actor {
    pub name: Arc<str>,
    pub candidate: Candidate,
    /// Parts per million by which its clock is faster than true time.
    pub fast: i64,
    /// Offset of its wall clock from its monotonic clock; it changes in steps.
    pub wall: u64,
    /// Number of the step whose answer is awaited; after a crash, earlier answers no longer match.
    pub waiting: u64,
    pub steps: u64,
    pub life: u64,
    /// It has no connection until this instant.
    pub cut: u64,
    pub gone: bool,
    /// The newest version of the ledger that it has seen; `u64::MAX` before the first, so that it reads the current ledger.
    pub seen: u64,
}

/// How much goes wrong.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// Percentage of requests that are lost on the way there or back.
    pub lost: u64,
    /// Longest network delay in one direction, in milliseconds.
    pub delay: u64,
    /// Percentage of rounds before which the replica crashes, loses its connection, or its wall clock steps.
    pub trouble: u64,
    pub hooks: bool,
}

pub struct World {
    pub now: u64,
    pub order: u64,
    pub queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    pub happenings: Vec<Option<(u64, Happening)>>,
    pub objects: [Object; 2],
    /// The ledger in an API server's cache, and when it got there.
    pub memory: (u64, Object),
    pub actors: Vec<Actor>,
    pub chance: Chance,
    pub faults: Faults,
    pub hooks: Hooks,
    pub hooks_until: u64,
    pub led: u64,
    pub by: [bool; 2],
}

impl World {
    pub fn new(seed: u64, drift: &[i64], faults: Faults) -> Self {
        let mut world = Self {
            now: 0,
            order: 0,
            queue: BinaryHeap::new(),
            happenings: Vec::new(),
            objects: Default::default(),
            memory: Default::default(),
            actors: Vec::new(),
            chance: Chance(seed | 1),
            faults,
            hooks: Hooks::Well,
            hooks_until: 0,
            led: 0,
            by: [false; 2],
        };
        for (at, fast) in drift.iter().enumerate() {
            let name: Arc<str> = format!("r{at}-0").into();
            world.actors.push(Actor {
                candidate: Candidate::new(Arc::clone(&name), TERMS),
                name,
                fast: *fast,
                wall: world.chance.below(1 << 30),
                waiting: 0,
                steps: 0,
                life: 0,
                cut: 0,
                gone: false,
                seen: u64::MAX,
            });
            let begins = world.chance.below(3_000);
            world.later(at, begins, Happening::Round);
        }
        world
    }

    pub fn later(&mut self, actor: usize, after: u64, happening: Happening) {
        self.order += 1;
        self.happenings
            .push(Some((self.actors.get(actor).map_or(0, |it| it.life), happening)));
        let index = self.happenings.len() - 1;
        self.queue.push(Reverse((self.now + after, index as u64, actor)));
    }

    /// The time of the actor's own clock.
    pub fn local(&self, actor: usize) -> Time {
        let fast = self.actors[actor].fast;
        let shown = self.now as i64 + self.now as i64 * fast / 1_000_000;
        Time::from_unix_millis(1_000_000 * (actor as u64 + 1) + shown.unsigned_abs())
    }

    /// True milliseconds until the actor's clock has advanced by this much, rounded up.
    pub fn lasts(&self, actor: usize, local: Duration) -> u64 {
        let rate = (1_000_000 + self.actors[actor].fast) as u64;
        local.as_millis() as u64 * 1_000_000 / rate + 1
    }

    pub fn run(&mut self, until: u64) {
        while let Some(Reverse((at, index, actor))) = self.queue.peek().copied() {
            if at > until {
                break;
            }
            self.queue.pop();
            self.now = at;
            let Some((life, happening)) = self.happenings[index as usize].take() else {
                continue;
            };
            self.happens(actor, life, happening);
            let leaders: Vec<_> = (0..self.actors.len())
                .filter(|actor| self.actors[*actor].candidate.leads(self.local(*actor)))
                .collect();
            assert!(
                leaders.len() <= 1,
                "at {} ms {:?} all believe that they lead",
                self.now,
                leaders
                    .iter()
                    .map(|it| (
                        &self.actors[*it].name,
                        self.actors[*it].candidate.standing(self.local(*it))
                    ))
                    .collect::<Vec<_>>()
            );
            for leader in leaders {
                self.led = self.now;
                if let ReplicaStanding::Leading { by, .. } =
                    self.actors[leader].candidate.standing(self.local(leader))
                {
                    self.by[by as usize] = true;
                }
            }
        }
        self.now = until;
    }

    pub fn happens(&mut self, at: usize, life: u64, happening: Happening) {
        // A request arrives even if its sender has died.
        if let Happening::Arrives(step, what, sent) = happening {
            return self.arrives(at, life, step, what, sent);
        }
        if life != self.actors[at].life || self.actors[at].gone {
            return;
        }
        let local = self.local(at);
        let actor = &mut self.actors[at];
        match happening {
            Happening::Arrives(..) => {}
            Happening::Round => {
                self.trouble(at);
                let local = self.local(at);
                self.actors[at].candidate.begin_round(local);
                self.advance(at);
            }
            Happening::ReadAnswered(step, place, found) => {
                if step == actor.waiting {
                    actor.candidate.read(place, found, local);
                    self.advance(at);
                }
            }
            Happening::WriteAnswered(step, bid, place, outcome, sent) => {
                let sent = Time::from_unix_millis(sent);
                if let (LeadershipObject::Ledger, BidOutcome::Done { version }) = (place, &outcome) {
                    actor.seen = version.parse().unwrap();
                }
                actor.candidate.written(place, &bid, outcome, sent, local);
                if step == actor.waiting {
                    self.advance(at);
                }
            }
            Happening::Lost(step, what, sent) => {
                let sent = Time::from_unix_millis(sent);
                match what {
                    ClaimStep::Read(place) | ClaimStep::Confirm(place) if step == actor.waiting => {
                        actor.candidate.not_read(place);
                    }
                    ClaimStep::Read(_) | ClaimStep::Confirm(_) => return,
                    ClaimStep::Write(place, bid) => {
                        actor
                            .candidate
                            .written(place, &bid, BidOutcome::Unclear, sent, local);
                    }
                }
                if step == actor.waiting {
                    self.advance(at);
                }
            }
            Happening::Late(step) => {
                if step == actor.waiting {
                    actor.candidate.late();
                    self.advance(at);
                }
            }
            Happening::Crash => {
                actor.life += 1;
                actor.waiting += 1;
                actor.name = format!("r{at}-{}", actor.life).into();
                actor.candidate = Candidate::new(Arc::clone(&actor.name), TERMS);
                actor.seen = u64::MAX;
                self.later(at, 500, Happening::Round);
            }
            Happening::Resign => {
                actor.candidate.resign();
                actor.waiting += 1;
                actor.candidate.begin_round(local);
                self.advance(at);
            }
        }
    }

    /// A random network delay. Most are short, because a single long one among short ones is the dangerous case.
    pub fn delay(&mut self) -> u64 {
        let longest = match self.chance.below(8) {
            0 => self.faults.delay,
            1 => self.faults.delay / 4,
            _ => self.faults.delay.min(30),
        };
        1 + self.chance.below(longest + 1)
    }

    pub fn trouble(&mut self, at: usize) {
        if self.faults.hooks && self.now >= self.hooks_until {
            let all = [
                Hooks::Well,
                Hooks::Refuse,
                Hooks::HangAndFail,
                Hooks::HangAndIgnore,
            ];
            self.hooks = all[self.chance.below(4) as usize];
            self.hooks_until = self.now + self.chance.below(90_000);
        }
        if self.chance.percent(self.faults.trouble) {
            match self.chance.below(4) {
                0 => {
                    let after = self.chance.below(4_000);
                    self.later(at, after, Happening::Crash);
                }
                1 => {
                    let after = self.chance.below(4_000);
                    self.later(at, after, Happening::Resign);
                    self.later(at, after + 3_000, Happening::Crash);
                }
                2 => self.actors[at].cut = self.now + self.chance.below(40_000),
                _ => self.actors[at].wall = self.chance.below(1 << 30),
            }
        }
    }

    /// Deletes the Lease; if `again`, creates it without a holder.
    pub fn delete_lease(&mut self, again: bool) {
        let object = &mut self.objects[0];
        object.content = again.then_some((None, 0, 0));
        object.uid += 1;
        object.version += 1;
    }

    /// Executes the actor's next step, or ends its round.
    pub fn advance(&mut self, at: usize) {
        let local = self.local(at);
        let Some(step) = self.actors[at].candidate.next(local) else {
            self.actors[at].waiting += 1;
            let pause = TERMS.round() + Duration::from_millis(self.chance.below(400));
            let pause = self.lasts(at, pause);
            return self.later(at, pause, Happening::Round);
        };
        self.actors[at].steps += 1;
        let number = self.actors[at].steps + (self.actors[at].life << 32);
        self.actors[at].waiting = number;
        let sent = local.unix_millis();
        let there = self.delay();
        let lost = self.chance.percent(self.faults.lost) || self.now < self.actors[at].cut;
        let patience = self.lasts(at, TERMS.round());
        match &step {
            // The replica does not wait for a write of the Lease.
            ClaimStep::Write(LeadershipObject::Lease, bid) if bid.holder.is_some() => {
                self.later(at, patience, Happening::Late(number));
                if lost {
                    self.later(at, GIVE_UP, Happening::Lost(number, step.clone(), sent));
                }
            }
            step if lost => self.later(at, patience, Happening::Lost(number, step.clone(), sent)),
            _ => {}
        }
        // Either the request is lost before it arrives, or only its answer.
        if !lost || self.chance.percent(50) {
            let number = if lost { 0 } else { number };
            self.later(at, there, Happening::Arrives(number, step, sent));
        }
    }

    pub fn arrives(&mut self, at: usize, life: u64, number: u64, step: ClaimStep, sent: u64) {
        let back = self.delay();
        match step {
            ClaimStep::Read(place) | ClaimStep::Confirm(place) => {
                let object = match step {
                    ClaimStep::Read(LeadershipObject::Ledger) => self.remembered(at),
                    _ => self.objects[place as usize].clone(),
                };
                if place == LeadershipObject::Ledger {
                    self.actors[at].seen = object.version;
                }
                let found = object.content.map(|(holder, transitions, _)| HolderRecord {
                    holder,
                    term: TERMS.term,
                    transitions,
                    uid: object.uid.to_string(),
                    version: object.version.to_string(),
                });
                if number != 0 && life == self.actors[at].life {
                    self.later(at, back, Happening::ReadAnswered(number, place, found));
                }
            }
            ClaimStep::Write(place, bid) => {
                let mut wait = back;
                let hooked = place == LeadershipObject::Lease && self.hooks != Hooks::Well;
                let outcome = match self.hooks {
                    Hooks::Refuse | Hooks::HangAndFail if hooked => {
                        if self.hooks == Hooks::HangAndFail {
                            wait += 10_000;
                        }
                        BidOutcome::Refused
                    }
                    // On its second arrival it has already waited.
                    Hooks::HangAndIgnore if hooked && sent != u64::MAX && number & (1 << 63) == 0 => {
                        let again = Happening::Arrives(
                            number | (1 << 63),
                            ClaimStep::Write(place, bid.clone()),
                            sent,
                        );
                        return self.later(at, 10_000, again);
                    }
                    _ => self.apply(at, place, &bid),
                };
                let number = number & !(1 << 63);
                if number != 0 && life == self.actors[at].life {
                    self.later(
                        at,
                        wait,
                        Happening::WriteAnswered(number, bid, place, outcome, sent),
                    );
                }
            }
        }
    }

    /// The ledger from an API server's cache. It lags, but never behind the version that the replica has seen.
    fn remembered(&mut self, at: usize) -> Object {
        let lag = self.chance.below(self.faults.delay + 1);
        let (since, object) = &self.memory;
        if self.now > since + lag || object.version < self.actors[at].seen {
            self.memory = (self.now, self.objects[1].clone());
        }
        self.memory.1.clone()
    }

    /// Executes a write as an API server does: it checks the precondition, and unchanged content gets no new version.
    pub fn apply(&mut self, at: usize, place: LeadershipObject, bid: &Bid) -> BidOutcome {
        let wall = self.local(at).unix_millis() / 1_000 + self.actors[at].wall;
        let object = &mut self.objects[place as usize];
        let exists = object.content.is_some();
        let holds = match &bid.precondition {
            None => !exists,
            Some(version) => exists && *version == object.version.to_string(),
        };
        if !holds {
            return BidOutcome::Conflict;
        }
        let content = Some((bid.holder.clone(), bid.transitions, wall));
        if object.content != content {
            object.uid += u64::from(!exists);
            object.content = content;
            object.version += 1;
        }
        BidOutcome::Done {
            version: object.version.to_string(),
        }
    }
}

pub const CALM: Faults = Faults {
    lost: 0,
    delay: 20,
    trouble: 0,
    hooks: false,
};
