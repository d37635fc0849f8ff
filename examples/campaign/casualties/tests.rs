//! Leaders and kubelets on a cluster in which one catch-all hook hangs.

use std::sync::Arc;

use hookwatch::domain::act::breaker::{Rung, To};

use super::*;
use crate::incident::{Fault, Kind, draw};
use crate::model::cluster::Serving;
use crate::model::manner::Manner;
use crate::model::traffic::Place;

/// A quiet incident of 400 s with one catch-all webhook, which hangs from second 100 on for `hangs` seconds.
fn hanging(hangs: u64, fails: bool, timeout: u64) -> Incident {
    let mut incident = draw::quiet(1, 1, 1);
    let mut cluster = (*incident.cluster).clone();
    cluster.hooks.truncate(1);
    let hook = &mut cluster.hooks[0];
    hook.rules[0].operations = vec!["*"];
    hook.rules[0].groups = vec!["*"];
    hook.rules[0].resources = vec!["*/*"];
    (hook.spares, hook.fails, hook.timeout) = (Vec::new(), fails, timeout * SECOND);
    hook.denies = Timeline::always(0.0);
    for backend in &mut cluster.services[hook.service].backends {
        backend.behave(100 * SECOND, (100 + hangs) * SECOND, Manner::Stopped);
    }
    incident.cluster = Arc::new(cluster);
    incident.end = 400 * SECOND;
    incident
}

fn act(at: u64, to: To) -> Act {
    Act {
        at: at * SECOND,
        hook: 0,
        to,
        cause: None,
    }
}

#[test]
fn a_leader_whose_renewals_hang_is_lost_after_ten_seconds_and_not_when_shielded() {
    let incident = hanging(20, true, 10);
    let mut leader = Leader::new(101 * SECOND);
    let mut writes = Writes::new(&incident.cluster, forms(&incident, &[]), incident.world.clone());
    let renewal = Class::leases(Place::KubeSystem, 0.0, ATTEMPT);
    while leader.lost.is_empty() {
        let now = leader.next;
        leader.attempted(now, writes.write(&renewal, now));
    }
    assert_eq!(leader.lost, [111 * SECOND]);
    assert_eq!(casualties(&incident, &[]).leaders_lost, LEADERS);
    let shielded = [act(104, To::Bypass(Rung::Shield)), act(150, To::Original)];
    assert_eq!(casualties(&incident, &shielded), Casualties::default());
}

#[test]
fn a_node_is_given_up_when_a_leader_lives_that_can_do_it() {
    // The webhook is ignored after 6 s: a leader's attempt (5 s) times out before that, a kubelet's (10 s) does not.
    let ignored = casualties(&hanging(120, false, 6), &[]);
    assert!(ignored.leaders_lost >= LEADERS, "{ignored:?}");
    assert_eq!((ignored.leases_expired, ignored.nodes_not_ready), (0, 0));
    // The nodes' Leases expire, but without a leader nothing marks the nodes NotReady.
    let long = casualties(&hanging(120, true, 10), &[]);
    assert_eq!((long.leases_expired, long.nodes_not_ready), (NODES, 0));
}

#[test]
fn a_leader_is_lost_for_a_reason() {
    let mut incident = hanging(120, true, 10);
    let span = (100 * SECOND, 220 * SECOND);
    incident.faults = vec![Fault::new(Kind::Hanging, vec![0], span, String::new())];
    let reason = |incident: &Incident, acts: Vec<Act>| {
        let broken = Broken {
            acts,
            ..Broken::default()
        };
        toll(incident, Some(&broken)).lost_because
    };
    let shield = |at: u64| vec![act(at, To::Bypass(Rung::Shield))];
    assert_eq!(reason(&incident, Vec::new()), Some(NOT_NAMED));
    assert_eq!(reason(&incident, shield(130)), Some(TOO_LATE));
    assert_eq!(reason(&incident, shield(104)), None);
    let mut cluster = (*incident.cluster).clone();
    for replica in &mut cluster.replicas {
        replica.serving.set(150 * SECOND, Serving::Down);
    }
    incident.cluster = Arc::new(cluster);
    assert_eq!(reason(&incident, shield(104)), Some(NO_SHIELD_HELPS));
}

#[test]
fn waits_that_are_short_cost_nothing_and_quiet_hours_cost_nothing() {
    assert_eq!(casualties(&hanging(120, false, 1), &[]), Casualties::default());
    assert_eq!(casualties(&hanging(0, true, 10), &[]), Casualties::default());
}
