//! The model's own semantics.

use hookwatch::domain::cluster::hook::{HookId, HookKind};

use super::super::cluster::{Backend, HookSpec, Reads, Release, Routing, Rule, Service};
use super::super::manner::Manner;
use super::super::traffic::{Class, Place};
use super::*;

const MS: At = SECOND / 1_000;

fn service(latency: f64, backends: u8) -> Service {
    Service {
        namespace: "ns".into(),
        name: "s".into(),
        routing: Routing::ClusterIp,
        exists: Timeline::always(true),
        backends: (0..backends)
            .map(|n| Backend::new(([10, 0, 0, n], 8443).into()))
            .collect(),
        latency,
        spread: 0.0,
        pace: Timeline::always(1.0),
        hiccups: 0.0,
        bundle: Timeline::always(0),
        trusted: Timeline::always(true),
        cluster_ip_reached: true,
        probe_latency: 0.002,
    }
}

fn hook(name: &str, kind: HookKind, service: usize) -> HookSpec {
    let all = Rule::new(&["*"], &["*"], &["*/*"]);
    HookSpec::new(HookId::new(kind, name, name), service, all)
}

fn cluster(services: Vec<Service>, hooks: Vec<HookSpec>, rate: f64) -> Cluster {
    let mut cluster = Cluster {
        replicas: vec![ReplicaSpec::new(Release::New)],
        services,
        hooks,
        classes: vec![Class::new(Verb::Post, "", "configmaps", Place::Tenant, rate)],
        workers: Vec::new(),
        tide: Timeline::always(1.0),
        reads: Reads {
            rate: Timeline::always(0.0),
            latency: 0.002,
        },
        own: 0.001,
        etcd: 0.001,
        etcd_pace: Timeline::always(1.0),
        etcd_frozen: Timeline::always(false),
        quota: Timeline::always(0.0),
        authorizer: Timeline::always(0.0),
        our_way: Timeline::always(true),
        seats: Timeline::always(100),
        balanced: false,
    };
    cluster.number_series();
    cluster
}

fn run(cluster: Cluster, until: At) -> World {
    let mut world = World::new(Arc::new(cluster), Random::of(3, 4));
    while world.next() <= until {
        world.step();
    }
    world
}

fn mean(histogram: &super::super::counters::Histogram) -> f64 {
    histogram.sum / histogram.count as f64
}

#[test]
fn what_came_has_been_answered_or_is_under_way_or_was_cut_off() {
    let mut broken = cluster(
        vec![service(0.005, 2)],
        vec![
            hook("v", HookKind::Validating, 0),
            hook("m", HookKind::Mutating, 0),
        ],
        50.0,
    );
    broken.services[0].backends[0].behave(20 * SECOND, 40 * SECOND, Manner::Stopped);
    broken.replicas[0].restart(50 * SECOND, 3 * SECOND, Release::New);
    broken.seats.during(30 * SECOND, 60 * SECOND, 5);
    for until in [10, 25, 45, 51, 80] {
        let world = run(broken.clone(), until * SECOND);
        let ledger = &world.ledger;
        assert!(ledger.arrived > 100);
        assert_eq!(
            ledger.arrived,
            ledger.answered + world.in_flight() + world.lost(),
            "after {until} s"
        );
    }
}

#[test]
fn mutating_hooks_add_up_and_of_validating_ones_the_slowest_counts() {
    let slow = |kind, times: usize| {
        let hooks = (0..times).map(|n| hook(&format!("h{n}"), kind, n)).collect();
        let services = (1..=times).map(|n| service(0.1 * n as f64, 1)).collect();
        let world = run(cluster(services, hooks, 5.0), 100 * SECOND);
        mean(&world.replicas[0].counters.requests[0].duration)
    };
    assert!((slow(HookKind::Mutating, 3) - 0.6).abs() < 0.02);
    assert!((slow(HookKind::Validating, 3) - 0.3).abs() < 0.02);
}

#[test]
fn the_clock_without_webhooks_leaves_out_their_time_and_nothing_else() {
    let mut slow = cluster(
        vec![service(0.5, 1)],
        vec![hook("v", HookKind::Validating, 0)],
        5.0,
    );
    slow.quota = Timeline::always(0.1);
    let world = run(slow, 100 * SECOND);
    let requests = &world.replicas[0].counters.requests[0];
    assert!((mean(&requests.duration) - mean(&requests.sli) - 0.5).abs() < 0.01);
    assert!(mean(&requests.sli) > 0.07);
}

#[test]
fn counters_never_fall_within_one_process() {
    let mut broken = cluster(
        vec![service(0.005, 2)],
        vec![hook("v", HookKind::Validating, 0)],
        30.0,
    );
    broken.services[0].backends[0].behave(20 * SECOND, 60 * SECOND, Manner::Vanished);
    let mut world = World::new(Arc::new(broken), Random::of(1, 1));
    let (mut calls, mut requests, mut rejections) = (0, 0, 0);
    while world.next() <= 90 * SECOND {
        world.step();
        let counters = &world.replicas[0].counters;
        let now: (u64, u64, u64) = (
            counters.calls[0]
                .durations
                .iter()
                .map(|(_, histogram)| histogram.count)
                .sum(),
            counters.requests[0].duration.count,
            counters.calls[0].rejections.iter().map(|(_, count)| count).sum(),
        );
        assert!(now.0 >= calls && now.1 >= requests && now.2 >= rejections);
        (calls, requests, rejections) = now;
    }
    assert!(rejections > 0 && requests > 100);
}

#[test]
fn while_a_hook_hangs_nothing_is_counted_until_the_first_timeout() {
    let mut hanging = cluster(
        vec![service(0.005, 2)],
        vec![hook("v", HookKind::Validating, 0)],
        20.0,
    );
    for backend in &mut hanging.services[0].backends {
        backend.behave(20 * SECOND, 60 * SECOND, Manner::Stopped);
    }
    let counted = |until: At| {
        run(hanging.clone(), until).replicas[0].counters.requests[0]
            .duration
            .count
    };
    let early = counted(21 * SECOND);
    assert_eq!(counted(30 * SECOND - MS), early);
    assert!(counted(35 * SECOND) > early + 50);
}

#[test]
fn with_one_of_three_backends_refusing_pooled_connections_keep_to_the_others() {
    let mut partial = cluster(
        vec![service(0.005, 3)],
        vec![hook("v", HookKind::Validating, 0)],
        20.0,
    );
    partial.services[0].backends[1].behave(30 * SECOND, 90 * SECOND, Manner::Refusing);
    let world = run(partial, 90 * SECOND);
    let failed = world
        .ledger
        .calls(0, 30 * SECOND, 90 * SECOND)
        .filter(|touch| touch.failed)
        .count();
    assert!(failed <= 20, "{failed} calls of about 1200 failed");
}

#[test]
fn each_pooled_connection_to_a_vanished_host_costs_one_timeout() {
    let mut stale = cluster(
        vec![service(0.05, 2)],
        vec![hook("v", HookKind::Validating, 0)],
        40.0,
    );
    let gone = &mut stale.services[0].backends[0];
    gone.to_api.set(30 * SECOND, Manner::Vanished);
    gone.listed.set(30 * SECOND, false);
    let world = run(stale, 90 * SECOND);
    let failed: Vec<At> = world
        .ledger
        .calls(0, 30 * SECOND, 90 * SECOND)
        .filter(|touch| touch.failed)
        .map(|touch| touch.at)
        .collect();
    assert!((1..=25).contains(&failed.len()), "{failed:?}");
    // One may have been under way already.
    assert!(failed.iter().all(|at| *at >= 39 * SECOND));
}

#[test]
fn a_hook_that_fails_open_costs_its_timeout_and_refuses_nothing() {
    let mut open = cluster(
        vec![service(0.005, 1)],
        vec![hook("m", HookKind::Mutating, 0)],
        5.0,
    );
    open.hooks[0].fails = false;
    open.hooks[0].timeout = 5 * SECOND;
    open.services[0].backends[0].behave(0, 100 * SECOND, Manner::Silent);
    let world = run(open, 60 * SECOND);
    let counters = &world.replicas[0].counters;
    assert_eq!(
        counters.requests[0]
            .codes
            .iter()
            .map(|(code, _)| *code)
            .collect::<Vec<_>>(),
        [201]
    );
    assert!(counters.calls[0].fail_open > 100);
    assert!(mean(&counters.requests[0].duration) > 5.0);
}

#[test]
fn an_api_server_that_has_not_read_rbac_refuses_every_request_and_calls_no_hook() {
    let mut new = cluster(
        vec![service(0.005, 1)],
        vec![hook("v", HookKind::Validating, 0)],
        20.0,
    );
    new.replicas[0].restart(20 * SECOND, 5 * SECOND, Release::New);
    new.replicas[0].forbids.during(25 * SECOND, 40 * SECOND, true);
    let world = run(new, 60 * SECOND);
    assert_eq!(
        world.ledger.calls(0, 26 * SECOND, 40 * SECOND).count(),
        0,
        "nobody is asked about what is forbidden"
    );
    let codes = &world.replicas[0].counters.requests[0].codes;
    let count = |code| {
        let of = codes.iter().find(|(known, _)| *known == code);
        of.map_or(0, |(_, count)| *count)
    };
    assert!(count(403) > 200 && count(201) > 300, "{codes:?}");
}
