//! Realistic incidents: many webhooks that share their backends, chains of webhooks with failurePolicy Ignore, API
//! servers that restart, and the first webhook of a cluster, which never answers.

use hookwatch::domain::cluster::hook::HookKind;

use super::draw::{HEAD, TAIL, finished, taken};
use super::noise::Noise;
use super::{Fault, Incident, Kind, faults, stage};
use crate::model::cluster::{Cluster, HookSpec, Routing, Rule};
use crate::model::manner::Manner;
use crate::model::timeline::Timeline;
use crate::model::traffic::Place;
use crate::model::{At, SECOND, as_seconds, seconds};
use crate::random::Random;

/// Probabilities of [`shared`], [`chain`], [`death`] and [`first`].
const WEIGHTS: [f64; 4] = [0.4, 0.25, 0.2, 0.15];

/// The incident with this index.
pub fn incident(seed: u64, index: u64) -> Incident {
    let mut random = Random::of(seed ^ 0x6c69_6665, index);
    loop {
        let drawn = match random.weighted(WEIGHTS) {
            0 => shared(&mut random),
            1 => Some(chain(&mut random)),
            2 => Some(death(&mut random)),
            _ => Some(first(&mut random)),
        };
        if let Some(incident) = drawn {
            return incident;
        }
    }
}

fn span(random: &mut Random) -> (At, At) {
    let from = HEAD + seconds(random.log_between(45.0, 300.0));
    (from, from + seconds(random.between(60.0, 200.0)))
}

/// The rules of a policy engine's webhook: mostly catch-all.
fn engines_rule(random: &mut Random) -> Rule {
    match random.weighted([0.45, 0.25, 0.15, 0.15]) {
        0 => Rule::new(&["CREATE", "UPDATE"], &["*"], &["*"]),
        1 => Rule::new(&["*"], &["*"], &["*/*"]),
        2 => Rule::new(&["CREATE", "UPDATE"], &["", "apps"], &["pods", "deployments"]),
        _ => Rule::new(&["CREATE", "UPDATE"], &[""], &["configmaps", "secrets"]),
    }
}

const fn kind(mutating: bool) -> HookKind {
    if mutating {
        HookKind::Mutating
    } else {
        HookKind::Validating
    }
}

fn engines_timeout(random: &mut Random) -> At {
    [10, 5, 3, 30, 1][random.weighted([5.0, 1.5, 2.0, 0.7, 0.8])] * SECOND
}

/// Adds a Service that is never a URL, and returns its index.
fn service(name: &str, cluster: &mut Cluster, random: &mut Random) -> usize {
    let index = cluster.services.len();
    let mut service = stage::service(name, index, random);
    if service.routing == Routing::Url {
        service.routing = Routing::ClusterIp;
    }
    cluster.services.push(service);
    index
}

/// Splits a fault into one for each webhook, so that each of them must be named.
fn each(cluster: &Cluster, fault: &Fault) -> Vec<Fault> {
    let one = |hook: &usize| Fault {
        hooks: vec![*hook],
        note: format!("{} ({})", fault.note, cluster.hooks[*hook].id.webhook),
        ..fault.clone()
    };
    fault.hooks.iter().map(one).collect()
}

/// Several webhooks share one Service whose backends hang, refuse or are slow.
fn shared(random: &mut Random) -> Option<Incident> {
    let mut cluster = stage::cluster(random);
    let service = service("engine", &mut cluster, random);
    let spares = stage::spares(random);
    let pair = random.chance(0.5);
    let count = if pair { 2 } else { 2 + random.below(11) };
    for number in 0..count {
        let mutating = if pair { number == 0 } else { random.chance(0.4) };
        let fails = if pair {
            !mutating
        } else {
            random.chance(if mutating { 0.3 } else { 0.7 })
        };
        let (timeout, rule) = (engines_timeout(random), engines_rule(random));
        let name = format!("hook-{number}.engine.example.com");
        cluster.hooks.push(HookSpec {
            fails,
            timeout,
            spares: spares.clone(),
            ..stage::hook("engine", &name, kind(mutating), service, rule)
        });
    }
    cluster.settle();
    let kind = [Kind::Hanging, Kind::Refused, Kind::Slow][random.weighted([0.5, 0.25, 0.25])];
    let others: Vec<usize> = (0..service).collect();
    let mut fault = faults::inject(&mut cluster, kind, span(random), &others, random)?;
    fault.note = format!("{count} hooks of one Service: {}", fault.note);
    let found = each(&cluster, &fault);
    Some(with_noise(cluster, found, random))
}

/// Several webhooks with failurePolicy Ignore hang at once, and each write waits for one after the other.
fn chain(random: &mut Random) -> Incident {
    let mut cluster = stage::cluster(random);
    let count = 2 + random.below(4);
    let at_one = random.chance(0.4);
    let mut services = Vec::new();
    for number in 0..count {
        let name = format!("link-{number}");
        let service = match services.first() {
            Some(first) if at_one => *first,
            _ => service(&name, &mut cluster, random),
        };
        services.push(service);
        let last = number + 1 == count && random.chance(0.4);
        let rule = Rule::new(&["CREATE", "UPDATE"], &["*"], &["*"]);
        let webhook = format!("{name}.example.com");
        cluster.hooks.push(HookSpec {
            fails: false,
            timeout: (1 + random.below(10)) as At * SECOND,
            spares: if random.chance(0.2) {
                vec![Place::KubeSystem]
            } else {
                Vec::new()
            },
            ..stage::hook(&name, &webhook, kind(!last), service, rule)
        });
    }
    cluster.settle();
    let (from, until) = span(random);
    let manner = [Manner::Vanished, Manner::Stopped, Manner::Silent][random.below(3)];
    for service in &services {
        cluster.services[*service].behave(from, until, manner);
    }
    let hooks = (0..cluster.hooks.len()).filter(|hook| services.contains(&cluster.hooks[*hook].service));
    let hooks: Vec<usize> = hooks.collect();
    let waits: At = hooks.iter().map(|hook| cluster.hooks[*hook].timeout).sum();
    let note = format!(
        "a chain of {count} ignored hooks, {} s in all, {}: {manner:?}",
        as_seconds(waits),
        if at_one {
            "on one Service"
        } else {
            "each on its own"
        }
    );
    let found = each(&cluster, &Fault::new(Kind::Hanging, hooks, (from, until), note));
    with_noise(cluster, found, random)
}

/// An API server restarts and answers 403 to every request until it has loaded RBAC. No webhook is at fault.
fn death(random: &mut Random) -> Incident {
    let mut cluster = stage::cluster(random);
    if random.chance(0.25) {
        cluster.replicas.truncate(1);
    }
    let of = cluster.replicas.len();
    let which = random.below(of);
    let (from, _) = span(random);
    let gone = seconds(random.log_between(5.0, 60.0));
    let forbids = seconds(random.log_between(1.0, 25.0));
    let until = from + gone;
    let replica = &mut cluster.replicas[which];
    let release = *replica.release.at(from);
    replica.restart(from, gone, release);
    replica.forbids.during(until, until + forbids, true);
    let note = format!(
        "API server {which} of {of} is dead for {:.0} s and forbids everything for {:.0} s",
        as_seconds(gone),
        as_seconds(forbids)
    );
    let (mut found, mut noise) = (Vec::new(), Noise::default());
    match of {
        1 => found.push(Fault::new(Kind::ApiServerDown, Vec::new(), (from, until), note)),
        // Behind a load balancer, hookwatch cannot know which replica it is.
        _ if cluster.balanced => noise.said.push(note),
        _ => found.push(Fault::new(Kind::ReplicaDown, Vec::new(), (from, until), note)),
    }
    finished(cluster, until + forbids + TAIL, found, noise, random)
}

/// The first webhook of a small cluster matches everything and hangs from the moment it is registered.
fn first(random: &mut Random) -> Incident {
    let mut cluster = stage::cluster(random);
    (cluster.hooks, cluster.services, cluster.workers) = (Vec::new(), Vec::new(), Vec::new());
    let calm = random.log_between(0.0005, 0.01);
    for class in cluster.classes.iter_mut().filter(|class| !class.dry_run) {
        let rate = match (class.resource, class.place) {
            ("leases", Place::KubeSystem) => random.between(0.5, 1.0),
            ("leases", _) => random.between(0.1, 0.4),
            _ => calm,
        };
        class.rate = Timeline::always(rate);
    }
    let service = service("first", &mut cluster, random);
    let resources = if random.chance(0.5) { "*/*" } else { "*" };
    let (kind, rule) = (kind(!random.chance(0.7)), Rule::new(&["*"], &["*"], &[resources]));
    let mut hook = HookSpec {
        timeout: [10, 5, 30][random.weighted([0.8, 0.1, 0.1])] * SECOND,
        ..stage::hook("first", "first.example.com", kind, service, rule)
    };
    let (from, until) = span(random);
    hook.registered = Timeline::always(false);
    hook.registered.set(from, true);
    cluster.hooks.push(hook);
    cluster.settle();
    let manner = [Manner::Stopped, Manner::Silent, Manner::Vanished][random.below(3)];
    cluster.services[service].behave(0, until, manner);
    let note = format!("the first hook, shown {resources}, from its first second on: {manner:?}");
    let found = vec![Fault::new(Kind::Hanging, vec![0], (from, until), note)];
    finished(cluster, until + TAIL, found, Noise::default(), random)
}

/// Finishes an incident; in a third of them, with one event of noise.
fn with_noise(mut cluster: Cluster, found: Vec<Fault>, random: &mut Random) -> Incident {
    let until = found.iter().map(|fault| fault.until).max().unwrap_or(HEAD);
    let taken = taken(&cluster, &found);
    let mut noise = Noise::default();
    if random.chance(0.33) {
        let at = HEAD + seconds(random.between(30.0, as_seconds(until - HEAD)));
        noise.add(&mut cluster, at, &taken, random);
    }
    finished(cluster, until + TAIL, found, noise, random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::draw::Draws;

    #[test]
    fn every_sort_is_drawn_and_one_number_is_one_incident() {
        let drawn: Vec<Incident> = (0..600).map(|index| incident(1, index)).collect();
        let part = |is: &dyn Fn(&Incident) -> bool| {
            drawn.iter().filter(|incident| is(incident)).count() as f64 / drawn.len() as f64
        };
        let told = |words: &'static str| {
            part(&|incident: &Incident| {
                let notes = incident.faults.iter().map(|fault| &fault.note);
                notes.chain(&incident.noise).any(|note| note.contains(words))
            })
        };
        assert!(told("hooks of one Service") > 0.3);
        assert!(told("a chain of") > 0.18);
        assert!(told("is dead for") > 0.14);
        assert!(told("the first hook") > 0.1);
        let again = Draws::Life.incident(1, 17);
        assert_eq!(format!("{:?}", again.faults), format!("{:?}", drawn[17].faults));
    }

    #[test]
    fn every_hook_that_shares_the_backends_is_at_fault_and_no_other() {
        for incident in (0..200).map(|index| incident(2, index)) {
            let services: Vec<usize> = incident
                .faults
                .iter()
                .flat_map(|fault| &fault.hooks)
                .map(|hook| incident.cluster.hooks[*hook].service)
                .collect();
            for (index, hook) in incident.cluster.hooks.iter().enumerate() {
                let named = incident.faults.iter().any(|fault| fault.hooks == [index]);
                assert_eq!(named, services.contains(&hook.service), "{}", hook.id);
            }
        }
    }
}
