//! Model checking: explores every reachable state of small worlds.
//!
//! Each world limits something else, because all of it together would be too large. `HOOKWATCH_MODEL=large` explores
//! larger worlds; see [`worlds`].

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::promises::{ANSWERED, BACK, LONGEST, PROMISES, STEPS};
use super::setup::{Mishaps, Mood, OtherWrite, Setup};
use super::world::{Happens, Object, World};
use crate::act::breaker::Rung;
use crate::act::fence::AutoBreak;

/// A state that must be reachable: in a world without skips, every promise about skips would hold trivially.
const SKIPPED: &str = "something is skipped";

/// A setup as a model for the checker.
pub(super) struct Small {
    setup: Setup,
    /// Check only this promise; `None` for all.
    only: Option<&'static str>,
    /// Cached results of [`Self::steps_back`] by hash of the world: with healthy hooks, and with the hooks as they are.
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

    /// The number of steps without mishaps until everything is restored; `None` when more than [`STEPS`].
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
            // A shield that stays at its limit is restored only once the webhook is healthy.
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
        // States after a broken promise need no exploration.
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
        // In a world without bypasses, every promise would hold trivially.
        properties.push(Property::sometimes(
            "something is bypassed",
            |_: &Self, world: &World| world.objects.iter().any(|object| object.shown.is_ours()),
        ));
        properties
    }
}

/// The worlds to explore, by name; `large` makes them larger.
fn worlds(large: bool) -> Vec<(&'static str, Setup)> {
    let more = u8::from(large);
    vec![
        ("two replicas, two hooks, one may be bypassed", replicas(more)),
        ("two replicas, two hooks, a crash", crashes(more)),
        ("requests slow, lost and refused", degraded(more)),
        ("others' writes", other_writes(more)),
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

/// Two replicas, both convinced that they lead.
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

/// The same, with crashes.
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

/// One replica whose requests are delayed, lost or refused.
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

/// Other writers that reapply their manifest, rotate the caBundle or change the fields of the bypass.
pub(super) fn other_writes(more: u8) -> Setup {
    Setup {
        actors: 1 + usize::from(more),
        other_writes: vec![OtherWrite::Revert, OtherWrite::Rotate, OtherWrite::Rewrite],
        mishaps: Mishaps {
            other_writes: 3,
            crashes: more,
            unheard: 1,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// Two replicas, and another writer that reapplies its manifest.
pub(super) fn fights(more: u8) -> Setup {
    Setup {
        actors: 2,
        other_writes: vec![OtherWrite::Revert],
        mishaps: Mishaps {
            other_writes: 2 + more,
            unheard: more,
            delays: more,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// Other writers that restore the fields and leave the annotation.
pub(super) fn left_over(more: u8) -> Setup {
    Setup {
        actors: 1 + usize::from(more),
        other_writes: vec![OtherWrite::TakeBack],
        mishaps: Mishaps {
            other_writes: 2 + more,
            crashes: more,
            unheard: 1,
            moods: 1,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// An API server whose cache may lag without limit.
pub(super) fn servers(more: u8) -> Setup {
    Setup {
        hooks: 2,
        rungs: BTreeSet::from([Rung::Skip]),
        servers: 2,
        actors: 1 + usize::from(more),
        other_writes: vec![OtherWrite::Revert],
        mishaps: Mishaps {
            other_writes: 1,
            crashes: more,
            moods: 2,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// A hook that matches canaries.
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

/// Every kind of evidence, and every doubt about it.
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

/// Owners that opt out or delete the webhook during a bypass.
pub(super) fn owners(more: u8) -> Setup {
    Setup {
        actors: 2,
        other_writes: vec![OtherWrite::OptOut, OtherWrite::Delete],
        mishaps: Mishaps {
            other_writes: 1,
            crashes: more,
            moods: 1,
            delays: more,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

/// A bypass with a limit of three units of time.
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

/// The same, where a shield stays at its limit.
pub(super) fn limited(more: u8) -> Setup {
    Setup {
        at_limit: None,
        ..longest(more)
    }
}

/// Separate budgets for shields and skips.
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

/// A rate limit of one skip per three units of time.
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

/// A hook that fails open and may be skipped while dead, an owner that changes its failurePolicy, and a crash.
pub(super) fn dead(more: u8) -> Setup {
    Setup {
        ignores: true,
        rungs: BTreeSet::from([Rung::Shield]),
        moods: vec![Mood::Well, Mood::Hanging, Mood::Dead],
        first: Mood::Dead,
        other_writes: vec![OtherWrite::Enforce],
        canaries: true,
        mishaps: Mishaps {
            other_writes: 1,
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

/// The same hook with two replicas.
pub(super) fn dead_twice(more: u8) -> Setup {
    Setup {
        actors: 2,
        moods: vec![Mood::Hanging, Mood::Dead],
        canaries: false,
        mishaps: Mishaps {
            other_writes: more,
            unheard: 1,
            moods: 1,
            ..Mishaps::default()
        },
        ..dead(more)
    }
}

/// `autoBreak: plan`: nothing may be changed.
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

/// Explores a world and asserts that every promise holds.
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

/// The shortest sequence of events that breaks a promise in a world, if there is one.
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
