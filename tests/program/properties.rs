//! What must not matter to a verdict, shown on incidents drawn at random.
//!
//! A plain run draws the same few incidents each time. `PROPTEST_CASES` draws more of them, and other ones.

#[path = "../support/incident.rs"]
mod incident;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hookwatch::domain::cluster::hook::{FailurePolicy, HookKind};
use hookwatch::domain::observe::exposition::Exposition;
use hookwatch::domain::observe::snapshot::{Complaints, Scrape};
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::time::Time;
use hookwatch::domain::vocabulary::{Cause, Effect, Health};
use hookwatch::domain::watchdog::{Event, Watchdog, WatchdogEffect};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use incident::{Events, Fault, Incident, Planned, at, incidents, play};

/// How a hook is, what is wrong with it, and what that does: what somebody is woken for.
type Said = BTreeMap<String, (Health, Option<Cause>, Effect)>;

fn config() -> Config {
    let default = Config {
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => default,
        None => Config {
            cases: 24,
            rng_seed: RngSeed::Fixed(20_170_101),
            ..default
        },
    }
}

fn said(assessment: &Assessment) -> Said {
    let each = assessment.hooks.iter();
    each.map(|verdict| {
        let said = (verdict.health, verdict.cause, verdict.effect);
        (verdict.webhook.to_string(), said)
    })
    .collect()
}

/// The assessment at an instant.
fn when(assessments: &[Arc<Assessment>], ms: u64) -> &Assessment {
    let found = assessments
        .iter()
        .rev()
        .find(|assessment| assessment.at <= at(ms));
    found.expect("an assessment each second")
}

/// What is said of the hooks of an incident at one time and not at the other, beyond when: a call that ends a moment
/// later may be counted in the next reading, and the verdict that rests on it comes with that one.
fn differences(incident: &Incident, one: &[Arc<Assessment>], other: &[Arc<Assessment>]) -> Vec<String> {
    let reach = incident.scrape_every as usize / 1_000 + 1;
    let (one, other): (Vec<Said>, Vec<Said>) = (
        one.iter().map(|assessment| said(assessment)).collect(),
        other.iter().map(|assessment| said(assessment)).collect(),
    );
    let mut found = Vec::new();
    for hook in &incident.hooks {
        let name = &hook.name;
        for (tick, (mine, theirs)) in one.iter().zip(&other).enumerate() {
            let about = tick.saturating_sub(reach)..(tick + reach + 1).min(one.len());
            let is_in =
                |said: &Said, others: &[Said]| others.iter().any(|other| other.get(name) == said.get(name));
            if !(is_in(mine, &other[about.clone()]) && is_in(theirs, &one[about])) {
                found.push(format!(
                    "after {} s, {name}: {:?}, or {:?}",
                    tick + 1,
                    mine[name],
                    theirs[name]
                ));
            }
        }
    }
    found
}

/// Lets observations come in together, at the next of the instants that are `step` apart. An inventory comes in at the
/// one before: nobody can have probed a backend before it was known.
fn in_step(events: Events, step: u64) -> Events {
    let later = |ms: u64| ms.div_ceil(step) * step;
    let mut events: Events = events
        .into_iter()
        .map(|(ms, mut event)| match &mut event {
            Event::Inventory(_) => (ms / step * step, event),
            Event::Scraped(scrape) => {
                scrape.at = at(later(ms));
                (later(ms), event)
            }
            _ => (later(ms), event),
        })
        .collect();
    events.sort_by_key(|(ms, _)| *ms);
    events
}

/// Puts what has the same number, such as the observations of one instant, into another order.
fn shuffled<T: Clone>(numbered: &[(u64, T)], seed: u64) -> Vec<(u64, T)> {
    let mut state = seed;
    let mut random = || {
        // The generator splitmix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let drawn = numbered.iter().map(|(number, item)| (*number, random(), item));
    let mut drawn: Vec<(u64, u64, &T)> = drawn.collect();
    drawn.sort_by_key(|(number, key, _)| (*number, *key));
    drawn
        .into_iter()
        .map(|(number, _, item)| (number, item.clone()))
        .collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_order_of_observations_within_one_instant_does_not_matter(
        incident in incidents(),
        step in prop::sample::select(vec![100_u64, 500, 1_000]),
        seed: u64,
    ) {
        let events = in_step(incident.events(), step);
        let as_came = play(&events, incident.end);
        let otherwise = play(&shuffled(&events, seed), incident.end);
        for (one, other) in as_came.iter().zip(&otherwise) {
            prop_assert_eq!(one, other);
        }
    }

    #[test]
    fn an_unrelated_hook_that_is_well_changes_no_verdict_on_the_others(
        incident in incidents(),
        mutating: bool,
        every in 2_u64..5,
    ) {
        let mut more = incident.clone();
        more.hooks.push(Planned {
            name: "unrelated".into(),
            kind: if mutating { HookKind::Mutating } else { HookKind::Validating },
            policy: FailurePolicy::Fail,
            timeout: 10,
            endpoints: 2,
            fault: Fault::Nothing,
            every: Some(every),
        });
        let without = play(&incident.events(), incident.end);
        let with = play(&more.events(), more.end);
        let differences = differences(&incident, &without, &with);
        prop_assert!(differences.is_empty(), "{:#?}", differences);
    }

    #[test]
    fn scaling_all_traffic_changes_no_verdict(incident in incidents(), by in 0.5..20.0_f64) {
        let mut scaled = incident.clone();
        scaled.writes *= by;
        let before = play(&incident.events(), incident.end);
        let after = play(&scaled.events(), scaled.end);
        let differences = differences(&incident, &before, &after);
        prop_assert!(differences.is_empty(), "{:#?}", differences);
    }

    #[test]
    fn an_api_server_that_begins_again_changes_no_verdict_once_settled(
        incident in incidents(),
        which in 0_usize..3,
        part in 0.1..1.5_f64,
    ) {
        let mut restarted = incident.clone();
        let broken = incident.clear_at - incident.fault_at;
        let restart = incident.fault_at - 15_000 + (part * broken as f64) as u64;
        restarted.restart = Some((which % incident.servers, restart));
        let before = play(&incident.events(), incident.end);
        let after = play(&restarted.events(), restarted.end);
        for (before, after) in before.iter().zip(&after) {
            let ms = after.at.since(at(0)).as_millis() as u64;
            if restarted.is_settled(ms) {
                // What a hook with one bad backend is called depends on who saw it first: the judge keeps a cause
                // while backends come back one by one, and cannot tell that from ones that never left.
                let partly = |hook: &&Planned| hook.fault == Fault::OneBad { met: true };
                let (mut before, mut after) = (said(before), said(after));
                for hook in incident.hooks.iter().filter(partly) {
                    for said in [&mut before, &mut after] {
                        said.entry(hook.name.clone()).and_modify(|said| said.1 = None);
                    }
                }
                prop_assert_eq!(before, after, "at {} ms, after a restart at {} ms", ms, restart);
            }
        }
    }
}

/// The properties above would hold of a judge that never says anything.
#[test]
fn each_fault_of_these_incidents_is_found_and_is_over_in_the_end() {
    use Fault::{Certificate, Deny, Hang, Nothing, OneBad, Refuse, Rollout, ServerError, Slow};
    let failing = |cause, effect| (Health::Failing, Some(cause), effect);
    let suspect = |cause| (Health::Suspect, Some(cause), Effect::None);
    let well = (Health::Healthy, None, Effect::None);
    for (fault, expected) in [
        (Nothing, well),
        (Rollout, well),
        (Hang, failing(Cause::Hanging, Effect::Blocking)),
        (Refuse, failing(Cause::Refused, Effect::Blocking)),
        (ServerError, failing(Cause::Erroring, Effect::Blocking)),
        (Certificate, failing(Cause::TlsInvalid, Effect::Blocking)),
        (Slow(900), failing(Cause::Slow, Effect::Delaying)),
        (OneBad { met: false }, suspect(Cause::Partial)),
        (OneBad { met: true }, failing(Cause::Partial, Effect::Blocking)),
        (Deny, suspect(Cause::Denying)),
    ] {
        let incident = incident::of(fault);
        let assessments = play(&incident.events(), incident.end);
        let broken = said(when(&assessments, incident.clear_at));
        assert_eq!(broken["hook-0.example.com"], expected, "{fault:?}");
        assert_eq!(broken["well"], well, "{fault:?}");
        let over = said(when(&assessments, incident.end));
        assert_eq!(over["hook-0.example.com"], well, "{fault:?}");
    }
}

/// In another order, if there is a seed for one.
fn in_order<T: Clone>(numbered: &[(u64, T)], seed: Option<u64>) -> Vec<(u64, T)> {
    seed.map_or_else(|| numbered.to_vec(), |seed| shuffled(numbered, seed))
}

/// The verdicts on a recording of a real kube-apiserver 1.36.2, as if two of them answered at the same instants, each with its lines
/// in an order of its own.
fn replayed(name: &str, seed: Option<u64>) -> Vec<Said> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/recordings")
        .join(name);
    let mut scrapes: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "prom"))
        .collect();
    scrapes.sort();
    let mut events = Events::new();
    for path in scrapes {
        let stem = path.file_stem().unwrap().to_string_lossy();
        let ms: u64 = stem.rsplit('_').next().unwrap().parse().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        for (number, target) in ["10.0.0.1:6443", "10.0.0.2:6443"].into_iter().enumerate() {
            let lines: Vec<(u64, &str)> = text.lines().map(|line| (0, line)).collect();
            let mut exposition = Exposition::new();
            for (_, line) in in_order(&lines, seed.map(|seed| seed + number as u64)) {
                exposition.feed(line.as_bytes());
                exposition.feed(b"\n");
            }
            let (snapshot, complaints) = exposition.finish();
            assert_eq!(complaints, Complaints::default(), "{}", path.display());
            let scrape = Scrape {
                target: target.to_owned(),
                at: Time::from_unix_millis(ms),
                took: Duration::ZERO,
                bytes: text.len() as u64,
                snapshot,
                complaints,
            };
            events.push((ms, Event::Scraped(Box::new(scrape))));
        }
    }
    let mut watchdog = Watchdog::new("hookwatch");
    let mut verdicts = Vec::new();
    for pair in in_order(&events, seed).chunks(2) {
        let now = Time::from_unix_millis(pair[0].0);
        for (_, event) in pair {
            watchdog.handle(event.clone(), now);
        }
        for effect in watchdog.handle(Event::Tick, now) {
            if let WatchdogEffect::Publish(assessment, _) = effect {
                verdicts.push(said(&assessment));
            }
        }
    }
    verdicts
}

#[test]
fn the_order_within_a_scrape_and_of_scrapes_within_one_instant_does_not_matter_to_recordings() {
    for name in [
        "quiet",
        "validating-slow",
        "validating-hang",
        "mutating-hang-fail-open",
        "deny-storm",
        "etcd-slow",
    ] {
        let as_came = replayed(name, None);
        assert!(as_came.len() > 5, "{name}");
        for seed in 1..=5 {
            assert_eq!(as_came, replayed(name, Some(seed * 1_000)), "{name}, seed {seed}");
        }
    }
}
