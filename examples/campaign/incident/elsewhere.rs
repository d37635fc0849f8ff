//! Faults outside of webhooks.

use super::{Fault, Kind};
use crate::model::cluster::{Cluster, Serving};
use crate::model::timeline::Timeline;
use crate::model::traffic::{Class, Place, Verb};
use crate::model::{At, SECOND, seconds};
use crate::random::Random;

/// Injects a fault outside of webhooks; `None` when the kind is a webhook's or the cluster cannot have it.
pub fn inject(
    cluster: &mut Cluster,
    kind: Kind,
    (from, until): (At, At),
    random: &mut Random,
) -> Option<Fault> {
    let note = match kind {
        Kind::EtcdSlow => etcd_slow(cluster, from, until, random),
        Kind::Overloaded => overloaded(cluster, from, until, random),
        Kind::QueuedByFlowControl => queued(cluster, from, until, random),
        Kind::ApiServerDown => down(cluster, from, until, random),
        Kind::ReplicaDown => replica_down(cluster, from, until, random)?,
        Kind::Unexplained => unexplained(cluster, from, until, random),
        _ => return None,
    };
    Some(Fault::new(kind, Vec::new(), (from, until), note))
}

fn etcd_slow(cluster: &mut Cluster, from: At, until: At, random: &mut Random) -> String {
    if random.chance(0.4) {
        // Stalled for most of the time, as on a disk without enough I/O.
        let (period, part) = (random.between(0.4, 3.0), random.between(0.6, 0.9));
        let mut at = from;
        while at < until {
            cluster.etcd_frozen.set(at, true);
            cluster.etcd_frozen.set(at + seconds(period * part), false);
            at += seconds(period);
        }
        return format!(
            "etcd stands still for {:.0} % of every {period:.1} s",
            part * 100.0
        );
    }
    let takes = random.log_between(0.06, 1.5);
    let factor = takes / cluster.etcd;
    cluster.etcd_pace.during(from, until, factor);
    format!("etcd takes {:.0} ms a request", takes * 1_000.0)
}

fn overloaded(cluster: &mut Cluster, from: At, until: At, random: &mut Random) -> String {
    let (load, reads) = (random.log_between(12.0, 60.0), random.log_between(3.0, 15.0));
    for replica in &mut cluster.replicas {
        replica.load.during(from, until, load);
    }
    let rate = *cluster.reads.rate.at(from);
    cluster.reads.rate.during(from, until, rate * reads);
    format!("{reads:.0} times as many reads, and all takes {load:.0} times as long")
}

/// One tenant takes all seats of the tenants' priority level with writes of large objects.
fn queued(cluster: &mut Cluster, from: At, until: At, random: &mut Random) -> String {
    let (seats, weight) = (2 + random.below(6), random.between(20.0, 60.0));
    let mutating = cluster.hooks.iter().filter(|hook| hook.is_mutating());
    let hooks: f64 = mutating.map(|hook| cluster.services[hook.service].latency).sum();
    let each = cluster.own * weight + cluster.etcd + hooks;
    let rate = random.between(1.0, 1.3) * (seats * cluster.replicas.len()) as f64 / each;
    let rate = rate.min(400.0);
    let mut flood = Class::new(Verb::Post, "", "pods", Place::Tenant, 0.0);
    (flood.weight, flood.tidal, flood.quota) = (weight, false, false);
    flood.rate = Timeline::always(0.0);
    flood.rate.during(from, until, rate);
    cluster.classes.push(flood);
    cluster.seats.during(from, until, seats);
    format!("tenants have {seats} seats, and one of them wants {rate:.0} large writes a second")
}

fn down(cluster: &mut Cluster, from: At, until: At, random: &mut Random) -> String {
    let how = if random.chance(0.6) {
        Serving::Down
    } else {
        Serving::Hung
    };
    for replica in &mut cluster.replicas {
        replica.serving.during(from, until, how);
        if how == Serving::Down {
            let next = replica.process.at(until) + 1;
            replica.process.set(until, next);
        }
    }
    format!("every API server is {how:?}")
}

/// One of several API servers hangs; the clients connected to it wait.
fn replica_down(cluster: &mut Cluster, from: At, until: At, random: &mut Random) -> Option<String> {
    // Behind a load balancer, hookwatch cannot know which replica it is.
    if cluster.replicas.len() < 2 || cluster.balanced {
        return None;
    }
    let which = random.below(cluster.replicas.len());
    cluster.replicas[which].serving.during(from, until, Serving::Hung);
    Some(format!(
        "API server {which} of {} is Hung",
        cluster.replicas.len()
    ))
}

fn unexplained(cluster: &mut Cluster, from: At, until: At, random: &mut Random) -> String {
    let late = random.log_between(0.15, 2.0);
    cluster.authorizer.during(from, until, late);
    format!("the authorizer takes {:.0} ms", late * 1_000.0)
}

/// Stalls etcd for one second: too short to count as a fault.
pub fn hiccup(cluster: &mut Cluster, at: At) {
    cluster.etcd_frozen.during(at, at + SECOND, true);
}
