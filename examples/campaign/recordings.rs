//! Tests of the model against recordings of a real API server: both must lead the core to the same verdicts.
//!
//! A recording has only metrics, one scrape every 6 s, so the core gets no inventory, probes or canaries from the model.

use std::path::Path;
use std::sync::Arc;

use hookwatch::app::replay::replay_scrapes;
use hookwatch::domain::cluster::hook::{HookId, HookKind};
use hookwatch::domain::observe::snapshot::Snapshot;
use hookwatch::domain::time::Time;
use hookwatch::domain::vocabulary::{Cause, Effect, Health, NotAHook};
use hookwatch::domain::watchdog::{Event, Watchdog, WatchdogEffect};

use crate::model::cluster::{
    Backend, Cluster, HookSpec, Reads, Release, ReplicaSpec, Routing, Rule, Service,
};
use crate::model::manner::Manner;
use crate::model::timeline::Timeline;
use crate::model::traffic::{Class, Place, Verb, Worker};
use crate::model::world::World;
use crate::model::{At, SECOND, exposition, seconds};
use crate::random::Random;

const OPA: &str = "validating-webhook.openpolicyagent.org";
const MUTATOR: &str = "mutate.policy.example.com";
/// When the fault begins and ends in the recordings, from their first scrape on. In some it ends later.
const ON: At = 20 * SECOND;
const OFF: At = 46 * SECOND;
/// The model runs for this long before the first scrape.
const HEAD: At = 30 * SECOND;
/// Interval between two scrapes of a recording.
const PACE: At = 6 * SECOND;
const SCRAPES: At = 13;

type Named = Vec<(String, Cause, Effect)>;

fn service(name: &str, backends: u8, index: u8) -> Service {
    Service {
        namespace: name.into(),
        name: name.into(),
        routing: Routing::ClusterIp,
        exists: Timeline::always(true),
        backends: (1..=backends)
            .map(|n| Backend::new(([10, 0, index, n], 8443).into()))
            .collect(),
        latency: 0.0009,
        spread: 0.4,
        pace: Timeline::always(1.0),
        hiccups: 0.0,
        bundle: Timeline::always(0),
        trusted: Timeline::always(true),
        cluster_ip_reached: true,
        probe_latency: 0.002,
    }
}

fn hook(kind: HookKind, name: &str, service: usize, rule: Rule) -> HookSpec {
    HookSpec {
        path: "/",
        fails: kind == HookKind::Validating,
        timeout: if kind == HookKind::Validating { 10 } else { 5 } * SECOND,
        ..HookSpec::new(HookId::new(kind, name, name), service, rule)
    }
}

/// The cluster of the recordings: four clients that create, patch, list and delete four kinds of objects in turn.
fn cluster() -> Cluster {
    let mut classes = Vec::new();
    let kinds = [
        ("", "configmaps"),
        ("", "secrets"),
        ("", "services"),
        ("coordination.k8s.io", "leases"),
    ];
    for (group, resource) in kinds {
        for verb in [Verb::Post, Verb::Patch, Verb::List, Verb::Delete] {
            let mut class = Class::new(verb, group, resource, Place::Tenant, 0.0);
            class.quota = false;
            classes.push(class);
        }
    }
    classes.push(Class::new(Verb::Put, "", "configmaps", Place::KubeSystem, 0.1));
    let worker = |kind: usize| Worker {
        // Creates and lists always, skips the patch in one of five rounds and the delete in four of five.
        round: [0.0, 0.2, 0.0, 0.8]
            .into_iter()
            .enumerate()
            .map(|(step, left_out)| (kind * 4 + step, left_out))
            .collect(),
        think: 0.022,
    };
    let everything = Rule::new(&["CREATE", "UPDATE"], &["*"], &["*/*"]);
    let some = Rule::new(&["CREATE"], &[""], &["secrets", "configmaps"]);
    let mut cluster = Cluster {
        replicas: vec![ReplicaSpec::new(Release::New)],
        services: vec![service("opa", 3, 0), service("mutator", 2, 1)],
        hooks: vec![
            hook(HookKind::Validating, OPA, 0, everything),
            hook(HookKind::Mutating, MUTATOR, 1, some),
        ],
        classes,
        workers: (0..4).map(worker).collect(),
        tide: Timeline::always(1.0),
        reads: Reads {
            rate: Timeline::always(1.0),
            latency: 0.0015,
        },
        own: 0.0013,
        etcd: 0.0014,
        etcd_pace: Timeline::always(1.0),
        etcd_frozen: Timeline::always(false),
        quota: Timeline::always(0.0),
        authorizer: Timeline::always(0.0),
        our_way: Timeline::always(true),
        seats: Timeline::always(245),
        balanced: false,
    };
    cluster.number_series();
    cluster
}

/// The verdicts of the core on a series of snapshots.
#[derive(Debug, Default, PartialEq)]
struct Said {
    culprits: Named,
    not_a_hook: Vec<NotAHook>,
    denying: Vec<String>,
}

/// Runs the model and gives the core its metrics as a recording would.
fn model(cluster: Cluster) -> (Said, Vec<Snapshot>) {
    let cluster = Arc::new(cluster);
    let mut world = World::new(Arc::clone(&cluster), Random::of(1, 1));
    let mut watchdog = Watchdog::new("hookwatch");
    let (mut said, mut snapshots) = (Said::default(), Vec::new());
    for scrape in 0..SCRAPES {
        let at = HEAD + scrape * PACE;
        while world.next() <= at {
            world.step();
        }
        let Some((counters, ..)) = world.counters(0, at) else {
            panic!("the API server serves");
        };
        let snapshot = exposition::snapshot(&cluster, counters, Release::New, 1.0, at);
        snapshots.push(snapshot.clone());
        let scrape = hookwatch::domain::observe::snapshot::Scrape {
            target: "recording".into(),
            at: Time::from_unix_millis(1_000_000_000 + at / 1_000),
            took: std::time::Duration::ZERO,
            bytes: 0,
            snapshot,
            complaints: Default::default(),
        };
        let now = scrape.at;
        watchdog.handle(Event::Scraped(Box::new(scrape)), now);
        for effect in watchdog.handle(Event::Tick, now) {
            let WatchdogEffect::Publish(assessment, _) = effect else {
                continue;
            };
            for verdict in &assessment.hooks {
                let name = verdict.webhook.to_string();
                let Some(cause) = verdict.cause else { continue };
                if verdict.health == Health::Failing
                    && !said.culprits.iter().any(|(known, ..)| *known == name)
                {
                    said.culprits.push((name, cause, verdict.effect));
                } else if cause == Cause::Denying && !said.denying.contains(&name) {
                    said.denying.push(name);
                }
            }
            if let Some(found) = &assessment.control_plane.not_a_hook
                && !said.not_a_hook.contains(&found.cause)
            {
                said.not_a_hook.push(found.cause);
            }
        }
    }
    (said, snapshots)
}

/// The verdicts of the core on the recording with this name.
fn recording(name: &str) -> Said {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/recordings")
        .join(name);
    let replay = replay_scrapes(&folder).unwrap_or_else(|error| panic!("{error:#}"));
    let mut denying: Vec<String> = Vec::new();
    for turn in replay
        .turns
        .iter()
        .filter(|turn| turn.verdict.cause == Some(Cause::Denying))
    {
        let webhook = turn.verdict.webhook.to_string();
        if !denying.contains(&webhook) {
            denying.push(webhook);
        }
    }
    Said {
        culprits: replay
            .culprits
            .iter()
            .map(|culprit| (culprit.webhook.to_string(), culprit.cause, culprit.effect))
            .collect(),
        not_a_hook: replay.not_a_hook(),
        denying,
    }
}

/// Asserts that the model after `change` leads to the same verdicts as the recording. Returns the model's snapshots.
fn agrees(name: &str, change: impl FnOnce(&mut Cluster)) -> Vec<Snapshot> {
    let mut cluster = cluster();
    change(&mut cluster);
    let (said, snapshots) = model(cluster);
    assert_eq!(said, recording(name), "{name}");
    snapshots
}

fn all(service: &mut Service, until: At, manner: Manner) {
    service.behave(HEAD + ON, until, manner);
}

/// Mean seconds per call of the catch-all webhook and writes per second, between two scrapes.
fn figures(snapshots: &[Snapshot], from: usize, to: usize) -> (f64, f64) {
    let gained = snapshots[to].since(&snapshots[from]);
    let calls = gained.hooks.get(&(HookKind::Validating, OPA.to_owned()));
    let mean = calls.and_then(|series| series.calls.mean()).unwrap_or(0.0);
    let writes = gained.all_writes().duration.count;
    (mean, writes / ((to - from) as f64 * 6.0))
}

#[test]
fn a_quiet_model_has_the_rates_and_times_of_the_quiet_recording() {
    let snapshots = agrees("quiet", |_| {});
    // The recording has 92 to 98 writes per second and 1.0 to 1.3 ms per call.
    let (mean, rate) = figures(&snapshots, 1, 12);
    assert!((80.0..110.0).contains(&rate), "{rate}");
    assert!((0.0007..0.002).contains(&mean), "{mean}");
}

#[test]
fn a_slow_model_says_what_the_slow_recording_says() {
    let snapshots = agrees("validating-slow", |cluster| {
        all(&mut cluster.services[0], HEAD + OFF, Manner::Slow(0.8));
    });
    // The recording has 4.9 calls per second of 784 ms each, including calls from before the fault.
    let (mean, rate) = figures(&snapshots, 4, 7);
    assert!((0.75..0.85).contains(&mean), "{mean}");
    assert!((3.0..7.0).contains(&rate), "{rate}");
}

#[test]
fn a_hanging_model_says_what_the_hanging_recording_says() {
    let snapshots = agrees("validating-hang", |cluster| {
        all(&mut cluster.services[0], HEAD + 65 * SECOND, Manner::Stopped);
    });
    // The recording has 0.45 writes per second of 10 s each.
    let (mean, rate) = figures(&snapshots, 5, 10);
    assert!((9.9..10.1).contains(&mean), "{mean}");
    assert!((0.2..0.8).contains(&rate), "{rate}");
}

#[test]
fn a_model_that_fails_open_says_what_the_recording_says() {
    agrees("mutating-hang-fail-open", |cluster| {
        all(&mut cluster.services[1], HEAD + 50 * SECOND, Manner::Silent);
    });
}

#[test]
fn a_denying_model_says_what_the_denying_recording_says() {
    agrees("deny-storm", |cluster| {
        cluster.hooks[0].denies.during(HEAD + ON, HEAD + OFF, 1.0);
    });
}

#[test]
fn a_model_with_a_starved_etcd_says_what_the_recording_says() {
    agrees("etcd-slow", |cluster| {
        let mut at = HEAD + ON;
        while at < HEAD + OFF {
            cluster.etcd_frozen.set(at, true);
            cluster.etcd_frozen.set(at + seconds(0.4), false);
            at += seconds(0.5);
        }
    });
}
