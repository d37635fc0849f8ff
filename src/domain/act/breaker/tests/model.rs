//! All that can happen in small worlds, explored without gaps.
//!
//! Each world is small in another way, as everything at once would have no end. `HOOKWATCH_MODEL=large` explores more
//! of each; see [`worlds`].

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::promises::{ANSWERED, BACK, LONGEST, PROMISES, STEPS};
use super::setup::{Hand, Mishaps, Mood, Setup};
use super::world::{Happens, Object, World};
use crate::act::breaker::Rung;
use crate::act::fence::AutoBreak;

/// Else a world in which nothing is ever skipped would keep every promise about that.
const SKIPPED: &str = "something is skipped";

/// A setup as the checker sees it.
pub(super) struct Small {
    setup: Setup,
    /// The one promise that is of interest.
    only: Option<&'static str>,
    /// How many healthy steps lead back from a world, and how many with the hooks as they are.
    back: [Mutex<HashMap<u64, Option<u8>>>; 2],
}

impl Small {
    fn new(setup: Setup, only: Option<&'static str>) -> Self {
        Self {
            setup,
            only,
            back: Default::default(),
        }
    }

    /// How many steps lead back; none when it is more than [`STEPS`].
    fn steps_back(&self, world: &World, well: bool) -> Option<u8> {
        let key = |world: &World| {
            let mut hasher = DefaultHasher::new();
            world.hash(&mut hasher);
            hasher.finish()
        };
        let known = &self.back[usize::from(well)];
        let mut way = Vec::new();
        let mut world = world.clone();
        let mut steps = loop {
            let key = key(&world);
            // A shield that stays at its limit is back once the webhook is well.
            let back = match self.setup.at_limit {
                None if !well => !world.objects.iter().any(Object::is_skipped),
                _ => world.is_back(),
            };
            if back {
                break Some(0);
            }
            if let Some(steps) = known.lock().unwrap().get(&key) {
                break *steps;
            }
            if way.len() > usize::from(STEPS) {
                break None;
            }
            way.push(key);
            world = world.works(&self.setup, well);
        };
        for key in way.into_iter().rev() {
            steps = steps.map(|steps| steps + 1).filter(|steps| *steps <= STEPS);
            known.lock().unwrap().insert(key, steps);
        }
        steps
    }
}

impl Model for Small {
    type State = World;
    type Action = Happens;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.setup)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Happens>) {
        // What comes after a broken promise is of no interest.
        if world.broken.is_empty() {
            world.could(&self.setup, actions);
        }
    }

    fn next_state(&self, world: &World, happens: Happens) -> Option<World> {
        let mut world = world.then(&self.setup, &happens);
        if let Some(only) = self.only {
            world.broken.retain(|promise| *promise == only);
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! promises {
            ($($at:literal)*) => {
                vec![$(Property::always(PROMISES[$at], |model: &Self, world: &World| {
                    world.holds(&model.setup, PROMISES[$at])
                })),*]
            };
        }
        let mut properties = promises![0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16];
        properties.push(Property::always(BACK, |model: &Self, world: &World| {
            model.steps_back(world, true).is_some()
        }));
        if self.setup.longest.is_some() {
            properties.push(Property::always(LONGEST, |model: &Self, world: &World| {
                model.steps_back(world, false).is_some()
            }));
        }
        if self.setup.ignores {
            properties.push(Property::always(ANSWERED, |model: &Self, world: &World| {
                world.ends_skips(&model.setup)
            }));
            properties.push(Property::sometimes(SKIPPED, |_: &Self, world: &World| {
                world.objects.iter().any(Object::is_skipped)
            }));
        }
        // Else a world in which nothing is ever bypassed would keep every promise.
        properties.push(Property::sometimes(
            "something is bypassed",
            |_: &Self, world: &World| world.objects.iter().any(|object| object.shown.is_ours()),
        ));
        properties
    }
}

/// The worlds that are explored, by name.
fn worlds(large: bool) -> Vec<(&'static str, Setup)> {
    let more = u8::from(large);
    vec![
        ("two replicas, two hooks, one may be bypassed", replicas(more)),
        ("two replicas, two hooks, a crash", crashes(more)),
        ("requests slow, lost and refused", degraded(more)),
        ("others' hands", hands(more)),
        ("reverts, two replicas", fights(more)),
        ("reverts that leave something over", left_over(more)),
        ("two API servers, one late, two hooks", servers(more)),
        ("canaries and relapses", canaries(more)),
        ("evidence that comes and goes, doubts, a freeze", evidence(more)),
        ("owners who opt out and delete", owners(more)),
        ("the longest bypass, and clocks that step", longest(more)),
        ("a skip that becomes a shield at its limit", limited(more)),
        ("a rate, two hooks", rate(more)),
        ("two hooks, one may be shielded and one skipped", budgets(more)),
        ("a hook that fails open, dead and alive", dead(more)),
        ("the same with two replicas", dead_twice(more)),
        ("the mode plan", plan()),
    ]
}

/// Two replicas at once, both sure that they lead.
pub(super) fn replicas(more: u8) -> Setup {
    Setup {
        hooks: 2,
        rungs: BTreeSet::from([Rung::Skip]),
        actors: 2,
        mishaps: Mishaps {
            crashes: more,
            unheard: more,
            naps: 3,
            delays: 1,
            moods: more,
            glances: 1,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// The same, and one of them dies.
pub(super) fn crashes(more: u8) -> Setup {
    Setup {
        hooks: 2,
        rungs: BTreeSet::from([Rung::Skip]),
        actors: 2,
        mishaps: Mishaps {
            crashes: 1,
            unheard: more,
            naps: more,
            moods: 1 + more,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// One replica whose requests are slow, lost and refused.
pub(super) fn degraded(more: u8) -> Setup {
    Setup {
        hooks: 1 + usize::from(more),
        mishaps: Mishaps {
            crashes: more,
            unheard: 1 + more,
            refusals: 1,
            delays: 1 + more,
            moods: 1,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// Others who put their manifest back, rotate a caBundle or change the very fields.
pub(super) fn hands(more: u8) -> Setup {
    Setup {
        actors: 1 + usize::from(more),
        hands: vec![Hand::Revert, Hand::Rotate, Hand::Rewrite],
        mishaps: Mishaps {
            hands: 3,
            crashes: more,
            unheard: 1,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// The same with two replicas.
pub(super) fn fights(more: u8) -> Setup {
    Setup {
        actors: 2,
        hands: vec![Hand::Revert],
        mishaps: Mishaps {
            hands: 2 + more,
            unheard: more,
            delays: more,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// Others who put the fields back and leave the rest.
pub(super) fn left_over(more: u8) -> Setup {
    Setup {
        actors: 1 + usize::from(more),
        hands: vec![Hand::TakeBack],
        mishaps: Mishaps {
            hands: 2 + more,
            crashes: more,
            unheard: 1,
            moods: 1,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// An API server that goes by an old version for as long as it likes.
pub(super) fn servers(more: u8) -> Setup {
    Setup {
        hooks: 2,
        rungs: BTreeSet::from([Rung::Skip]),
        servers: 2,
        actors: 1 + usize::from(more),
        hands: vec![Hand::Revert],
        mishaps: Mishaps {
            hands: 1,
            crashes: more,
            moods: 2,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// A hook that canaries reach.
pub(super) fn canaries(more: u8) -> Setup {
    Setup {
        actors: 1 + usize::from(more),
        canaries: true,
        mishaps: Mishaps {
            crashes: 1,
            moods: 3,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// Evidence of all kinds, and everything that casts doubt on it.
pub(super) fn evidence(more: u8) -> Setup {
    Setup {
        moods: vec![Mood::Well, Mood::Hanging, Mood::Thin, Mood::Slow],
        first: Mood::Well,
        hold: 1,
        mishaps: Mishaps {
            moods: 2 + more,
            doubts: 1 + more,
            freezes: 1,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// Owners who say no in the midst of it.
pub(super) fn owners(more: u8) -> Setup {
    Setup {
        actors: 2,
        hands: vec![Hand::OptOut, Hand::Delete],
        mishaps: Mishaps {
            hands: 1,
            crashes: more,
            moods: 1,
            delays: more,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// A bypass that may last for three units.
pub(super) fn longest(more: u8) -> Setup {
    Setup {
        longest: Some(3),
        actors: 1 + usize::from(more),
        mishaps: Mishaps {
            crashes: 1,
            clock_steps: 1,
            moods: 1,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// The same, and a shield stays.
pub(super) fn limited(more: u8) -> Setup {
    Setup {
        at_limit: None,
        ..longest(more)
    }
}

/// Where there is no room for another skip there is room for a shield, and the other way round.
pub(super) fn budgets(more: u8) -> Setup {
    Setup {
        hooks: 2,
        actors: 1 + usize::from(more),
        moods: vec![Mood::Well, Mood::Hanging, Mood::Slow],
        mishaps: Mishaps {
            moods: 2,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// One skip per three units.
pub(super) fn rate(more: u8) -> Setup {
    Setup {
        hooks: 2,
        actors: 1 + usize::from(more),
        most: 2,
        rate: Some(1),
        mishaps: Mishaps {
            moods: 1,
            crashes: 1,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// A hook that fails open and may be skipped while it is dead, an owner who changes that, and a crash.
pub(super) fn dead(more: u8) -> Setup {
    Setup {
        ignores: true,
        rungs: BTreeSet::from([Rung::Shield]),
        moods: vec![Mood::Well, Mood::Hanging, Mood::Dead],
        first: Mood::Dead,
        hands: vec![Hand::Enforce],
        canaries: true,
        mishaps: Mishaps {
            hands: 1,
            crashes: 1,
            refusals: more,
            delays: 1,
            doubts: more,
            moods: 2 + more,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// The same with two replicas.
pub(super) fn dead_twice(more: u8) -> Setup {
    Setup {
        actors: 2,
        moods: vec![Mood::Hanging, Mood::Dead],
        canaries: false,
        mishaps: Mishaps {
            hands: more,
            unheard: 1,
            moods: 1,
            ..Mishaps::default()
        },
        ..dead(more)
    }
}

/// Nothing is to be touched.
pub(super) fn plan() -> Setup {
    Setup {
        mode: AutoBreak::Plan,
        actors: 2,
        mishaps: Mishaps {
            moods: 2,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// Explores a world and says what was found.
fn explore(name: &str, setup: Setup) {
    let began = Instant::now();
    let checker = Small::new(setup, None).checker().threads(2).spawn_bfs().join();
    let seconds = began.elapsed().as_secs_f64();
    let [_, back] = &checker.model().back;
    let furthest = back
        .lock()
        .unwrap()
        .values()
        .flatten()
        .max()
        .copied()
        .unwrap_or_default();
    let (states, steps, depth) = (
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
    );
    println!(
        "{name}: {states} states, {steps} steps, {depth} deep, back in {furthest} units, {seconds:.1} s"
    );
    for (promise, path) in checker.discoveries() {
        if promise != "something is bypassed" && promise != SKIPPED {
            let way: Vec<Happens> = path.clone().into_actions();
            panic!(
                "{name}: broken: {promise}\nby {way:#?}\nends in {:#?}",
                path.last_state()
            );
        }
    }
}

/// The shortest way by which a promise is broken in a world, if there is one.
pub(super) fn broken(setup: Setup, promise: &'static str) -> Option<Vec<Happens>> {
    let only = HasDiscoveries::AnyOf(BTreeSet::from([promise]));
    let checker = Small::new(setup, Some(promise))
        .checker()
        .threads(2)
        .finish_when(only)
        .spawn_bfs()
        .join();
    let found = checker.discovery(promise).map(stateright::Path::into_actions);
    println!(
        "{promise}: broken after {} states by {found:?}",
        checker.unique_state_count()
    );
    found
}

#[test]
fn every_promise_holds_whatever_happens_in_small_worlds() {
    let large = std::env::var("HOOKWATCH_MODEL").is_ok_and(|size| size == "large");
    for (name, setup) in worlds(large) {
        explore(name, setup);
    }
}
