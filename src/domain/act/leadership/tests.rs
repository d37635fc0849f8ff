//! Several replicas in a world that loses, delays and repeats, with one true time that none of them knows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::candidate::Step;
use super::*;

const TERMS: Terms = Terms::new(Duration::from_secs(15));
/// A client gives a request up after this long.
const GIVE_UP: u64 = 36_000;

/// How hooks treat writes of the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hooks {
    Well,
    /// Every call is refused at once.
    Refuse,
    /// Ten seconds, then the write is refused.
    HangAndFail,
    /// Ten seconds, then the write goes through.
    HangAndIgnore,
}

/// Cheap and reproducible chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }

    fn percent(&mut self, likely: u64) -> bool {
        self.below(100) < likely
    }
}

#[derive(Debug, Clone, Default)]
struct Object {
    /// Holder, transitions and the renewal's time as the writer's wall clock had it.
    content: Option<(Option<Arc<str>>, u64, u64)>,
    version: u64,
}

#[derive(Debug, Clone)]
enum Happening {
    Round,
    Arrives(u64, Step, u64),
    ReadAnswered(u64, Place, Option<Record>),
    WriteAnswered(u64, Bid, Place, Written, u64),
    Lost(u64, Step, u64),
    Late(u64),
    Crash,
    Resign,
}

struct Actor {
    name: Arc<str>,
    candidate: Candidate,
    /// Parts per million by which its clock is faster than true time.
    fast: i64,
    /// What its wall clock says beyond its steady one. It steps.
    wall: u64,
    /// Which step is waited for; a crash makes all answers of before somebody else's.
    waiting: u64,
    steps: u64,
    life: u64,
    /// Until when it has no connection.
    cut: u64,
    gone: bool,
}

/// How much goes wrong.
#[derive(Debug, Clone, Copy)]
struct Faults {
    /// Of a hundred requests, so many are lost on the way there or back.
    lost: u64,
    /// Longest delay of one way, in milliseconds.
    delay: u64,
    /// Of a hundred rounds, before so many the replica crashes, is cut off, or its wall clock steps.
    trouble: u64,
    hooks: bool,
}

struct World {
    now: u64,
    order: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    happenings: Vec<Option<(u64, Happening)>>,
    objects: [Object; 2],
    actors: Vec<Actor>,
    chance: Chance,
    faults: Faults,
    hooks: Hooks,
    hooks_until: u64,
    led: u64,
    by: [bool; 2],
}

impl World {
    fn new(seed: u64, drift: &[i64], faults: Faults) -> Self {
        let mut world = Self {
            now: 0,
            order: 0,
            queue: BinaryHeap::new(),
            happenings: Vec::new(),
            objects: Default::default(),
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
            });
            let begins = world.chance.below(3_000);
            world.later(at, begins, Happening::Round);
        }
        world
    }

    fn later(&mut self, actor: usize, after: u64, happening: Happening) {
        self.order += 1;
        self.happenings
            .push(Some((self.actors.get(actor).map_or(0, |it| it.life), happening)));
        let index = self.happenings.len() - 1;
        self.queue.push(Reverse((self.now + after, index as u64, actor)));
    }

    /// What the actor's own clock shows.
    fn local(&self, actor: usize) -> Time {
        let fast = self.actors[actor].fast;
        let shown = self.now as i64 + self.now as i64 * fast / 1_000_000;
        Time::from_unix_millis(1_000_000 * (actor as u64 + 1) + shown.unsigned_abs())
    }

    /// True time until the actor's clock has gone on by this much, rounded up.
    fn lasts(&self, actor: usize, local: Duration) -> u64 {
        let rate = (1_000_000 + self.actors[actor].fast) as u64;
        local.as_millis() as u64 * 1_000_000 / rate + 1
    }

    fn run(&mut self, until: u64) {
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
                if let Standing::Leading { by, .. } =
                    self.actors[leader].candidate.standing(self.local(leader))
                {
                    self.by[by as usize] = true;
                }
            }
        }
        self.now = until;
    }

    fn happens(&mut self, at: usize, life: u64, happening: Happening) {
        // What was sent arrives even when its sender is no more.
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
                actor.candidate.written(place, &bid, outcome, sent, local);
                if step == actor.waiting {
                    self.advance(at);
                }
            }
            Happening::Lost(step, what, sent) => {
                let sent = Time::from_unix_millis(sent);
                match what {
                    Step::Read(place) if step == actor.waiting => actor.candidate.not_read(place),
                    Step::Read(_) => return,
                    Step::Write(place, bid) => {
                        actor
                            .candidate
                            .written(place, &bid, Written::Unclear, sent, local);
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

    /// One way. Most are short: it is one that is long among many that are not which does harm.
    fn delay(&mut self) -> u64 {
        let longest = match self.chance.below(8) {
            0 => self.faults.delay,
            1 => self.faults.delay / 4,
            _ => self.faults.delay.min(30),
        };
        1 + self.chance.below(longest + 1)
    }

    fn trouble(&mut self, at: usize) {
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

    /// Takes the next step, or ends the round.
    fn advance(&mut self, at: usize) {
        let local = self.local(at);
        let Some(step) = self.actors[at].candidate.next(local) else {
            self.actors[at].waiting += 1;
            let pause = TERMS.retry() + Duration::from_millis(self.chance.below(400));
            let pause = self.lasts(at, pause);
            return self.later(at, pause, Happening::Round);
        };
        self.actors[at].steps += 1;
        let number = self.actors[at].steps + (self.actors[at].life << 32);
        self.actors[at].waiting = number;
        let sent = local.unix_millis();
        let there = self.delay();
        let lost = self.chance.percent(self.faults.lost) || self.now < self.actors[at].cut;
        let patience = self.lasts(at, TERMS.patience());
        match &step {
            // Only a write of the Lease is not waited for.
            Step::Write(Place::Lease, bid) if bid.holder.is_some() => {
                self.later(at, patience, Happening::Late(number));
                if lost {
                    self.later(at, GIVE_UP, Happening::Lost(number, step.clone(), sent));
                }
            }
            step if lost => self.later(at, patience, Happening::Lost(number, step.clone(), sent)),
            _ => {}
        }
        // What is lost may be lost before it arrives, or only the answer.
        if !lost || self.chance.percent(50) {
            let number = if lost { 0 } else { number };
            self.later(at, there, Happening::Arrives(number, step, sent));
        }
    }

    fn arrives(&mut self, at: usize, life: u64, number: u64, step: Step, sent: u64) {
        let back = self.delay();
        match step {
            Step::Read(place) => {
                let object = &self.objects[place as usize];
                let found = object.content.clone().map(|(holder, transitions, _)| Record {
                    holder,
                    term: TERMS.term(),
                    transitions,
                    version: object.version.to_string(),
                });
                if number != 0 && life == self.actors[at].life {
                    self.later(at, back, Happening::ReadAnswered(number, place, found));
                }
            }
            Step::Write(place, bid) => {
                let mut wait = back;
                let hooked = place == Place::Lease && self.hooks != Hooks::Well;
                let outcome = match self.hooks {
                    Hooks::Refuse | Hooks::HangAndFail if hooked => {
                        if self.hooks == Hooks::HangAndFail {
                            wait += 10_000;
                        }
                        Written::Blocked
                    }
                    // The second time it has waited already.
                    Hooks::HangAndIgnore if hooked && sent != u64::MAX && number & (1 << 63) == 0 => {
                        let again =
                            Happening::Arrives(number | (1 << 63), Step::Write(place, bid.clone()), sent);
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

    /// As an API server does it: the precondition, and no new version for content that is the same.
    fn apply(&mut self, at: usize, place: Place, bid: &Bid) -> Written {
        let wall = self.local(at).unix_millis() / 1_000 + self.actors[at].wall;
        let object = &mut self.objects[place as usize];
        let exists = object.content.is_some();
        let holds = match &bid.precondition {
            None => !exists,
            Some(version) => exists && *version == object.version.to_string(),
        };
        if !holds {
            return Written::Conflict;
        }
        let content = Some((bid.holder.clone(), bid.transitions, wall));
        if object.content != content {
            object.content = content;
            object.version += 1;
        }
        Written::Done {
            version: object.version.to_string(),
        }
    }
}

const CALM: Faults = Faults {
    lost: 0,
    delay: 20,
    trouble: 0,
    hooks: false,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn two_never_believe_at_the_same_instant(
        seed in any::<u64>(),
        drift in proptest::collection::vec(-90_000_i64..90_000, 2..4),
        lost in 0_u64..30,
        delay in prop_oneof![1_u64..50, 1_u64..3_000, 1_u64..30_000],
        trouble in 0_u64..10,
        hooks in any::<bool>(),
    ) {
        let faults = Faults { lost, delay, trouble, hooks };
        World::new(seed, &drift, faults).run(1_200_000);
    }

    #[test]
    fn after_any_trouble_somebody_leads_again(
        seed in any::<u64>(),
        drift in proptest::collection::vec(-50_000_i64..50_000, 1..4),
        lost in 0_u64..30,
        trouble in 0_u64..10,
        hooks in any::<bool>(),
        after in 0_usize..4,
    ) {
        let faults = Faults { lost, delay: 2_000, trouble, hooks };
        let mut world = World::new(seed, &drift, faults);
        world.run(200_000);
        world.faults = CALM;
        world.hooks = [Hooks::Well, Hooks::Refuse, Hooks::HangAndFail, Hooks::HangAndIgnore][after];
        // Requests of before are given up, a dead leader runs out, and the wait for a refused Lease ends.
        world.run(300_000);
        world.led = 0;
        world.run(320_000);
        prop_assert!(world.led > 0, "nobody leads");
    }
}

fn world(replicas: usize) -> World {
    World::new(7, &vec![0; replicas], CALM)
}

#[test]
fn one_leads_by_the_lease_and_the_others_follow_it() {
    let mut world = world(3);
    world.run(60_000);
    let standings: Vec<_> = (0..3)
        .map(|at| world.actors[at].candidate.standing(world.local(at)))
        .collect();
    let leading = |it: &&Standing| matches!(it, Standing::Leading { by: Place::Lease, .. });
    let leader = standings.iter().position(|it| leading(&it)).expect("a leader");
    for (at, standing) in standings.iter().enumerate() {
        if at != leader {
            let holder = Arc::clone(&world.actors[leader].name);
            let by = Place::Lease;
            assert_eq!(*standing, Standing::Following { holder, by });
        }
    }
    assert_eq!(
        world.objects[1].content, None,
        "the ledger is not touched while the Lease can be written"
    );
}

#[test]
fn a_leader_that_is_blocked_goes_on_by_the_ledger_without_a_break_and_comes_back() {
    for hooks in [Hooks::Refuse, Hooks::HangAndFail, Hooks::HangAndIgnore] {
        let mut world = world(2);
        world.run(30_000);
        let leader = |world: &World| (0..2).find(|at| world.actors[*at].candidate.leads(world.local(*at)));
        let before = leader(&world).expect("a leader");
        world.hooks = hooks;
        world.by = [false; 2];
        for second in 31..120 {
            world.run(second * 1_000);
            assert_eq!(leader(&world), Some(before), "{hooks:?} at {second} s");
        }
        assert!(world.by[1], "the ledger was not used");
        let other = 1 - before;
        assert_eq!(
            world.actors[other].candidate.standing(world.local(other)),
            Standing::Following {
                holder: Arc::clone(&world.actors[before].name),
                by: Place::Ledger
            }
        );
        world.hooks = Hooks::Well;
        world.run(180_000);
        assert_eq!(leader(&world), Some(before));
        assert!(matches!(
            world.actors[before].candidate.standing(world.local(before)),
            Standing::Leading { by: Place::Lease, .. }
        ));
        let (holder, ..) = world.objects[1].content.clone().expect("was used");
        assert_eq!(holder, None, "it lets the ledger go");
    }
}

#[test]
fn who_resigns_is_followed_within_a_round_and_who_dies_after_its_term() {
    let mut world = world(2);
    world.run(30_000);
    let leader = |world: &World| (0..2).find(|at| world.actors[*at].candidate.leads(world.local(*at)));
    let first = leader(&world).expect("a leader");
    world.later(first, 0, Happening::Resign);
    world.run(30_001);
    world.run(33_000);
    let second = leader(&world).expect("the other leads");
    assert_ne!(first, second);
    world.actors[first].candidate = Candidate::new("back".into(), TERMS);
    world.actors[first].name = "back".into();
    world.later(first, 0, Happening::Round);
    world.run(40_000);
    world.actors[second].gone = true;
    world.run(52_000);
    let alive = |world: &World| world.actors[first].candidate.leads(world.local(first));
    assert!(!alive(&world), "the dead one might still believe");
    world.run(60_000);
    assert!(alive(&world));
}

#[test]
fn a_write_that_changed_nothing_is_no_renewal() {
    // A wall clock that stands still would write the same again, which an API server does not store: nobody would
    // see a renewal.
    let (mut candidate, at) = (Candidate::new("me".into(), TERMS), Time::from_unix_millis(1_000));
    candidate.begin_round(at);
    let mine = Record {
        holder: Some("me".into()),
        term: TERMS.term(),
        transitions: 0,
        version: "7".into(),
    };
    assert_eq!(candidate.next(at), Some(Step::Read(Place::Lease)));
    candidate.read(Place::Lease, Some(mine), at);
    assert_eq!(candidate.next(at), Some(Step::Read(Place::Ledger)));
    candidate.read(Place::Ledger, None, at);
    let Some(Step::Write(Place::Lease, bid)) = candidate.next(at) else {
        panic!("it renews");
    };
    let same = Written::Done { version: "7".into() };
    candidate.written(Place::Lease, &bid, same, at, at);
    while let Some(step) = candidate.next(at) {
        assert_eq!(step, Step::Read(Place::Lease));
        candidate.not_read(Place::Lease);
    }
    assert!(!candidate.leads(at));
}

#[test]
fn an_object_that_is_deleted_under_its_holder_is_waited_for() {
    let mut claim = claim::Claim::new("me".into(), TERMS);
    let at = Time::from_unix_millis;
    let held = Record {
        holder: Some("other".into()),
        term: Duration::ZERO,
        transitions: 3,
        version: "1".into(),
    };
    claim.read(Some(held), at(0));
    claim.read(None, at(14_000));
    assert_eq!(claim.hold(at(20_000)), claim::Hold::Other("other".into()));
    assert_eq!(claim.hold(at(29_000)), claim::Hold::Free);
    assert_eq!(claim.bid().precondition, None);
}

#[test]
fn what_is_read_again_unchanged_runs_out_and_what_is_renewed_does_not() {
    let mut claim = claim::Claim::new("me".into(), TERMS);
    let at = Time::from_unix_millis;
    let held = |version: &str, term| Record {
        holder: Some("other".into()),
        term: Duration::from_secs(term),
        transitions: 3,
        version: version.into(),
    };
    claim.read(Some(held("1", 15)), at(0));
    claim.read(Some(held("1", 15)), at(10_000));
    assert_eq!(claim.hold(at(15_000)), claim::Hold::Free);
    let bid = claim.bid();
    assert_eq!(
        (bid.precondition.as_deref(), bid.transitions, bid.changes_hands),
        (Some("1"), 4, true)
    );
    claim.read(Some(held("2", 40)), at(15_000));
    assert_eq!(
        claim.hold(at(54_999)),
        claim::Hold::Other("other".into()),
        "its own term is longer"
    );
    claim.read(Some(held("3", u64::MAX / 2)), at(15_000));
    assert_eq!(
        claim.hold(at(616_000)),
        claim::Hold::Free,
        "nobody is waited for for ever"
    );
}

#[test]
fn a_read_that_was_under_way_when_a_late_write_came_back_confirms_nothing() {
    let (mut candidate, at) = (Candidate::new("me".into(), TERMS), Time::from_unix_millis(1_000));
    candidate.begin_round(at);
    for &place in Place::ALL {
        assert_eq!(candidate.next(at), Some(Step::Read(place)));
        candidate.read(place, None, at);
    }
    let Some(Step::Write(Place::Lease, bid)) = candidate.next(at) else {
        panic!("it bids");
    };
    candidate.late();
    let Some(Step::Write(Place::Ledger, ledger)) = candidate.next(at) else {
        panic!("the ledger decides");
    };
    candidate.written(Place::Ledger, &ledger, Written::Conflict, at, at);
    assert_eq!(candidate.next(at), Some(Step::Read(Place::Ledger)));
    // Now the Lease comes back. The ledger may have been read before it was written, and written by another since.
    let done = Written::Done { version: "1".into() };
    candidate.written(Place::Lease, &bid, done, at, at);
    candidate.read(Place::Ledger, None, at);
    assert!(!candidate.leads(at));
    assert_eq!(
        candidate.next(at),
        Some(Step::Read(Place::Ledger)),
        "it asks again"
    );
    candidate.read(Place::Ledger, None, at);
    assert!(candidate.leads(at));
}

#[test]
fn who_may_not_write_the_ledger_leads_again_as_soon_as_the_lease_can_be_written() {
    let (mut candidate, mut at) = (Candidate::new("me".into(), TERMS), Time::from_unix_millis(1_000));
    let mut lease_version = 0;
    let mut ledger_bids = 0;
    let mut play = |candidate: &mut Candidate, at: Time, blocked: bool| {
        candidate.begin_round(at);
        let mut steps = 0;
        while let Some(step) = candidate.next(at) {
            steps += 1;
            assert!(steps < 12, "a round ends");
            match step {
                Step::Read(place) => candidate.read(place, None, at),
                Step::Write(Place::Ledger, bid) => {
                    ledger_bids += 1;
                    candidate.written(Place::Ledger, &bid, Written::Refused, at, at);
                }
                Step::Write(Place::Lease, bid) if blocked => {
                    candidate.written(Place::Lease, &bid, Written::Blocked, at, at);
                }
                Step::Write(Place::Lease, bid) => {
                    lease_version += 1;
                    let version = lease_version.to_string();
                    candidate.written(Place::Lease, &bid, Written::Done { version }, at, at);
                }
            }
        }
    };
    for _ in 0..10 {
        play(&mut candidate, at, true);
        assert!(!candidate.leads(at));
        assert_eq!(
            candidate.standing(at),
            Standing::Undecided(Undecided::LeaseBlocked)
        );
        at = at + TERMS.retry();
    }
    at = at + TERMS.term() * 2;
    play(&mut candidate, at, false);
    assert!(candidate.leads(at));
    assert_eq!(ledger_bids, 11, "once a round");
}
