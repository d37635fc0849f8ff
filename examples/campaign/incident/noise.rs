//! Everyday events that are not faults.

use super::rollout::Rollout;
use super::{Gap, elsewhere};
use crate::model::cluster::{Cluster, Release, Routing, Serving};
use crate::model::timeline::Timeline;
use crate::model::traffic::{Class, Place, Verb};
use crate::model::{At, SECOND, as_seconds, seconds};
use crate::random::Random;

/// Most writes per second of one class that a tenfold or fourfold tide may cause; above, the tide is 1.5. The campaign does
/// not test how many writes an API server can take.
const BUSIEST: f64 = 40.0;

/// The everyday events of an incident.
#[derive(Debug, Default)]
pub struct Noise {
    /// Each event in words, with its instant.
    pub said: Vec<String>,
    pub gaps: Vec<Gap>,
}

impl Noise {
    /// Adds one random event, or nothing when the drawn event does not fit the cluster. It does not touch the webhooks of
    /// `taken` Services.
    pub fn add(&mut self, cluster: &mut Cluster, at: At, taken: &[usize], random: &mut Random) {
        if let Some(what) = one(cluster, at, taken, &mut self.gaps, random) {
            self.say(at, &what);
        }
    }

    pub fn say(&mut self, at: At, what: &str) {
        self.said.push(format!("at {:.0} s: {what}", as_seconds(at)));
    }
}

fn one(
    cluster: &mut Cluster,
    at: At,
    taken: &[usize],
    gaps: &mut Vec<Gap>,
    random: &mut Random,
) -> Option<String> {
    match random.below(13) {
        0 => restart(cluster, at, random),
        1 => upgrade(cluster, at, random),
        2 | 3 => rollout(cluster, at, taken, gaps, random),
        4 => Some(tide(cluster, at, random)),
        5 => Some(large_objects(cluster, at, random)),
        6 => one_replica_down(cluster, at, random),
        7 => one_replica_slow(cluster, at, random),
        8 => new_hook(cluster, at, taken, random),
        9 => denials(cluster, at, taken, random),
        10 => Some(slow_quota(cluster, at, random)),
        11 => {
            elsewhere::hiccup(cluster, at);
            Some("etcd stands still for a second".to_owned())
        }
        _ => Some(own_network(cluster, at, random)),
    }
}

fn restart(cluster: &mut Cluster, at: At, random: &mut Random) -> Option<String> {
    let which = random.below(cluster.replicas.len());
    let gone_for = seconds(random.between(3.0, 25.0));
    let replica = &mut cluster.replicas[which];
    let release = *replica.release.at(at);
    replica.restart(at, gone_for, release);
    Some(format!("API server {which} begins anew"))
}

fn upgrade(cluster: &mut Cluster, at: At, random: &mut Random) -> Option<String> {
    for (number, replica) in cluster.replicas.iter_mut().enumerate() {
        let at = at + number as At * 40 * SECOND;
        replica.restart(at, seconds(random.between(5.0, 25.0)), Release::New);
    }
    Some("the API servers are upgraded one after the other".to_owned())
}

fn free(cluster: &Cluster, taken: &[usize], random: &mut Random) -> Option<usize> {
    let free: Vec<usize> = (0..cluster.services.len())
        .filter(|service| !taken.contains(service))
        .collect();
    random.pick(&free)
}

/// Pods are replaced one by one. Some are ready endpoints shortly before they serve or after they stopped; a Pod that
/// stops breaks the calls that it is handling.
fn rollout(
    cluster: &mut Cluster,
    at: At,
    taken: &[usize],
    gaps: &mut Vec<Gap>,
    random: &mut Random,
) -> Option<String> {
    let which = free(cluster, taken, random)?;
    let service = &mut cluster.services[which];
    if service.routing == Routing::Url || service.backends.len() < 2 {
        return None;
    }
    let mut moment = |most: f64| {
        if random.chance(0.5) {
            random.between(0.0, most)
        } else {
            0.0
        }
    };
    let rollout = Rollout {
        early: moment(1.5),
        late: moment(1.0),
    };
    let until = rollout.run(service, which, at, random);
    gaps.push(Gap {
        service: which,
        from: at,
        until,
    });
    Some(format!(
        "a rollout of {}, each Pod listed {:.1} s before it serves and {:.1} s after it stopped",
        service.name, rollout.early, rollout.late
    ))
}

fn tide(cluster: &mut Cluster, at: At, random: &mut Random) -> String {
    let factor = [10.0, 0.1, 4.0, 0.25][random.below(4)];
    let until = at + seconds(random.between(20.0, 200.0));
    let busiest = cluster
        .classes
        .iter()
        .map(|class| *class.rate.at(at))
        .fold(0.0, f64::max);
    let factor = if busiest * factor > BUSIEST { 1.5 } else { factor };
    cluster.tide.during(at, until, factor);
    format!("{factor} times as many writes")
}

fn large_objects(cluster: &mut Cluster, at: At, random: &mut Random) -> String {
    let rate = random.log_between(0.2, 4.0);
    let until = at + seconds(random.between(20.0, 120.0));
    let mut class = Class::new(Verb::Post, "", "configmaps", Place::Tenant, 0.0);
    class.rate.during(at, until, rate);
    (class.weight, class.tidal) = (random.between(8.0, 25.0), false);
    cluster.classes.push(class);
    format!("a client writes {rate:.1} large objects a second")
}

fn one_replica_down(cluster: &mut Cluster, at: At, random: &mut Random) -> Option<String> {
    if cluster.replicas.len() < 3 {
        return None;
    }
    let which = random.below(cluster.replicas.len());
    let how = if random.chance(0.5) {
        Serving::Down
    } else {
        Serving::Hung
    };
    let until = at + seconds(random.between(20.0, 90.0));
    cluster.replicas[which].serving.during(at, until, how);
    Some(format!("API server {which} of three is {how:?}"))
}

fn one_replica_slow(cluster: &mut Cluster, at: At, random: &mut Random) -> Option<String> {
    if cluster.replicas.len() < 3 {
        return None;
    }
    let which = random.below(cluster.replicas.len());
    let load = random.log_between(3.0, 15.0);
    let until = at + seconds(random.between(20.0, 90.0));
    cluster.replicas[which].load.during(at, until, load);
    Some(format!(
        "API server {which} of three takes {load:.0} times as long"
    ))
}

/// The webhooks of one Service are registered only now, so they have no history.
fn new_hook(cluster: &mut Cluster, at: At, taken: &[usize], random: &mut Random) -> Option<String> {
    let service = free(cluster, taken, random)?;
    if cluster.services.len() < 2 {
        return None;
    }
    for hook in cluster.hooks.iter_mut().filter(|hook| hook.service == service) {
        hook.registered = Timeline::always(false);
        hook.registered.set(at, true);
    }
    Some(format!("the hooks of {} are new", cluster.services[service].name))
}

fn denials(cluster: &mut Cluster, at: At, taken: &[usize], random: &mut Random) -> Option<String> {
    let service = free(cluster, taken, random)?;
    let part = random.between(0.05, 0.3);
    let until = at + seconds(random.between(20.0, 120.0));
    for hook in cluster.hooks.iter_mut().filter(|hook| hook.service == service) {
        hook.denies.during(at, until, part);
    }
    let name = &cluster.services[service].name;
    Some(format!("the hooks of {name} deny {:.0} %", part * 100.0))
}

/// Quota admission, which is inside the API server, is slow for a while; it affects only what tenants create.
fn slow_quota(cluster: &mut Cluster, at: At, random: &mut Random) -> String {
    let late = random.log_between(0.05, 0.5);
    let until = at + seconds(random.between(20.0, 90.0));
    cluster.quota.during(at, until, late);
    format!("quota takes {:.0} ms", late * 1_000.0)
}

/// hookwatch's network path to the Pods is broken for a while.
fn own_network(cluster: &mut Cluster, at: At, random: &mut Random) -> String {
    let until = at + seconds(random.between(5.0, 40.0));
    cluster.our_way.during(at, until, false);
    "hookwatch itself cannot reach the pods".to_owned()
}
