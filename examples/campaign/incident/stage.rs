//! The cluster before anything happens in it, drawn at random.

use hookwatch::domain::cluster::hook::{HookId, HookKind};

use crate::model::SECOND;
use crate::model::cluster::{
    Backend, Cluster, HookSpec, Reads, Release, ReplicaSpec, Routing, Rule, Service,
};
use crate::model::timeline::Timeline;
use crate::model::traffic::{Class, Place, Verb, Worker};
use crate::random::Random;

/// A typical webhook: its kinds, rules and frequency.
struct Pattern {
    name: &'static str,
    /// Mutating, validating, or one of each on the same Service.
    kinds: &'static [HookKind],
    operations: &'static [&'static str],
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    weight: f64,
}

const BOTH: &[HookKind] = &[HookKind::Mutating, HookKind::Validating];
const MUTATING: &[HookKind] = &[HookKind::Mutating];
const VALIDATING: &[HookKind] = &[HookKind::Validating];
const ALL: &[&str] = &["*"];
const WRITES: &[&str] = &["CREATE", "UPDATE"];
const CREATE: &[&str] = &["CREATE"];
const CORE: &[&str] = &[""];

const fn pattern(
    name: &'static str,
    kinds: &'static [HookKind],
    operations: &'static [&'static str],
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    weight: f64,
) -> Pattern {
    Pattern {
        name,
        kinds,
        operations,
        groups,
        resources,
        weight,
    }
}

#[rustfmt::skip] // a table
const PATTERNS: [Pattern; 9] = [
    pattern("policy", VALIDATING, ALL, ALL, &["*/*"], 3.0),
    pattern("governance", BOTH, WRITES, ALL, &["*"], 2.0),
    pattern("sidecar", MUTATING, CREATE, CORE, &["pods"], 2.0),
    pattern("defaults", MUTATING, CREATE, CORE, &["secrets", "configmaps"], 1.5),
    pattern("images", VALIDATING, WRITES, &["", "apps"], &["pods", "deployments"], 2.0),
    pattern("certificates", BOTH, WRITES, &["cert-manager.io"], &["certificates"], 1.5),
    pattern("network", VALIDATING, WRITES, CORE, &["services"], 1.0),
    pattern("audit", VALIDATING, ALL, ALL, &["*/*"], 1.0),
    pattern("config", VALIDATING, WRITES, CORE, &["configmaps", "secrets"], 1.5),
];

/// Draws a cluster without faults.
pub fn cluster(random: &mut Random) -> Cluster {
    let release = [Release::Old, Release::Middle, Release::New][random.weighted([0.08, 0.17, 0.75])];
    let replicas = [1, 2, 3][random.weighted([0.4, 0.2, 0.4])];
    let (classes, workers) = traffic(random);
    let mut cluster = Cluster {
        replicas: vec![ReplicaSpec::new(release); replicas],
        services: Vec::new(),
        hooks: Vec::new(),
        classes,
        workers,
        tide: tide(random),
        reads: Reads {
            rate: Timeline::always(random.log_between(3.0, 300.0)),
            latency: random.log_between(0.002, 0.02),
        },
        own: random.log_between(0.001, 0.004),
        etcd: random.log_between(0.001, 0.005),
        etcd_pace: Timeline::always(1.0),
        etcd_frozen: Timeline::always(false),
        quota: Timeline::always(0.0),
        authorizer: Timeline::always(0.0),
        our_way: Timeline::always(true),
        seats: Timeline::always([60, 120, 245][random.below(3)]),
        balanced: random.chance(0.35),
    };
    let groups = 1 + random.weighted([2.0, 2.5, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3]);
    for number in 0..groups {
        let weights = PATTERNS.iter().map(|pattern| pattern.weight);
        let pattern = &PATTERNS[random.weighted(weights)];
        add_hooks(&mut cluster, pattern, number, random);
    }
    if cluster.hooks.len() >= 2 && random.chance(0.04) {
        share_a_name(&mut cluster);
    }
    cluster.settle();
    cluster
}

/// Gives a webhook the name of another one in a different configuration of the same kind.
fn share_a_name(cluster: &mut Cluster) {
    let first = cluster.hooks[0].id.clone();
    let twin = cluster
        .hooks
        .iter_mut()
        .skip(1)
        .find(|hook| hook.id.kind == first.kind && hook.id.configuration != first.configuration);
    if let Some(twin) = twin {
        twin.id = HookId::new(first.kind, &twin.id.configuration, &first.webhook);
    }
}

/// Draws the namespaces that a policy engine's namespaceSelector excludes.
pub fn spares(random: &mut Random) -> Vec<Place> {
    match random.weighted([0.5, 0.3, 0.2]) {
        0 => Vec::new(),
        1 => vec![Place::KubeSystem],
        _ => vec![Place::KubeSystem, Place::NodeLeases, Place::Hookwatch],
    }
}

/// A webhook in the configuration `{configuration}-{kind}`.
pub fn hook(configuration: &str, webhook: &str, kind: HookKind, service: usize, rule: Rule) -> HookSpec {
    let configuration = format!("{configuration}-{}", kind.as_str());
    HookSpec::new(HookId::new(kind, &configuration, webhook), service, rule)
}

fn add_hooks(cluster: &mut Cluster, pattern: &Pattern, number: usize, random: &mut Random) {
    let service = cluster.services.len();
    let name = format!("{}-{number}", pattern.name);
    cluster.services.push(self::service(&name, service, random));
    let fails = random.chance(0.65);
    let timeout = [10, 5, 3, 30, 15, 2, 1][random.weighted([6.0, 1.5, 0.8, 0.8, 0.4, 0.3, 0.2])];
    let spares = spares(random);
    // One configuration may have several webhooks on the same Service.
    let entries = if random.chance(0.15) { 2 } else { 1 };
    for kind in pattern.kinds {
        for entry in 0..entries {
            let webhook = match entry {
                0 => format!("{name}.example.com"),
                _ => format!("{name}-{entry}.example.com"),
            };
            let denies = if random.chance(0.3) {
                random.between(0.0, 0.05)
            } else {
                0.0
            };
            let rule = Rule::new(pattern.operations, pattern.groups, pattern.resources);
            cluster.hooks.push(HookSpec {
                spares: spares.clone(),
                fails,
                timeout: timeout * SECOND,
                denies: Timeline::always(denies),
                dry_run_safe: random.chance(0.94),
                ..hook(&name, &webhook, *kind, service, rule)
            });
        }
    }
}

/// Makes the webhooks of one Service always take 1.6 to 3 s, and in half of the cases its probes as well. Webhooks that a
/// write waits for in turn take less, 4.4 s together: leaders give each renewal up after 5 s, so a cluster with more would
/// not be quiet. Returns the webhooks' indexes and the seconds that each takes.
pub fn take_long(cluster: &mut Cluster, random: &mut Random) -> (Vec<usize>, f64) {
    let which = random.below(cluster.services.len());
    let of_service = || cluster.hooks.iter().filter(|hook| hook.service == which);
    let mutating = of_service()
        .filter(|hook| hook.id.kind == HookKind::Mutating)
        .count();
    let in_turn = mutating + usize::from(mutating < of_service().count());
    let longest = 4.4 / in_turn.max(1) as f64;
    let service = &mut cluster.services[which];
    (service.latency, service.spread) = (random.between(1.6, 3.0).min(longest), 0.1);
    if random.chance(0.5) {
        service.probe_latency = service.latency;
    }
    let (hooks, latency) = (cluster.hooks.iter_mut().enumerate(), service.latency);
    let hooks = hooks
        .filter(|(_, hook)| hook.service == which)
        .map(|(index, hook)| {
            hook.timeout = hook.timeout.max(10 * SECOND);
            index
        });
    (hooks.collect(), latency)
}

pub fn service(name: &str, index: usize, random: &mut Random) -> Service {
    let routing = [Routing::ClusterIp, Routing::Endpoints, Routing::Url][random.weighted([0.75, 0.15, 0.1])];
    let backends = match routing {
        Routing::Url => 1,
        _ => 1 + random.weighted([1.5, 2.0, 2.5, 0.5, 0.5]),
    };
    let address = |n: usize| ([10, 0, index as u8, n as u8 + 1], 8443).into();
    Service {
        namespace: format!("{name}-system"),
        name: name.to_owned(),
        routing,
        exists: Timeline::always(true),
        backends: (0..backends).map(|n| Backend::new(address(n))).collect(),
        latency: random.log_between(0.001, 0.05),
        spread: random.between(0.2, 0.8),
        pace: Timeline::always(1.0),
        hiccups: if random.chance(0.5) {
            random.log_between(0.0005, 0.01)
        } else {
            0.0
        },
        bundle: Timeline::always(0),
        trusted: Timeline::always(true),
        cluster_ip_reached: random.chance(0.8),
        probe_latency: random.log_between(0.002, 0.008),
    }
}

/// Draws the clients: the cluster's heartbeats, and tenants with 0.05 to 80 writes per second.
fn traffic(random: &mut Random) -> (Vec<Class>, Vec<Worker>) {
    let writes = random.log_between(0.05, 80.0);
    let nodes = random.log_between(3.0, 150.0);
    let tenant =
        |verb, group, resource, part: f64| Class::new(verb, group, resource, Place::Tenant, writes * part);
    let mut classes = vec![
        tenant(Verb::Post, "", "pods", 0.15),
        tenant(Verb::Patch, "", "pods", 0.05),
        tenant(Verb::Patch, "apps", "deployments", 0.15),
        tenant(Verb::Post, "", "configmaps", 0.1),
        tenant(Verb::Put, "", "configmaps", 0.15),
        tenant(Verb::Post, "", "secrets", 0.05),
        tenant(Verb::Patch, "", "secrets", 0.05),
        tenant(Verb::Put, "", "services", 0.05),
        tenant(Verb::Patch, "cert-manager.io", "certificates", 0.03),
        tenant(Verb::Post, "", "events", 0.12),
        tenant(Verb::Delete, "", "pods", 0.1),
        Class::status("", "pods", Place::Tenant, 0.02 * nodes + 0.2 * writes),
        Class::status("", "nodes", Place::Cluster, nodes / 60.0),
        Class::leases(Place::NodeLeases, nodes / 10.0, 10),
        Class::leases(Place::KubeSystem, random.between(0.5, 4.0), 5),
        Class::new(
            Verb::Put,
            "",
            "configmaps",
            Place::KubeSystem,
            random.log_between(0.01, 1.0),
        ),
    ];
    // Some tenants' clients give up earlier than the API server does.
    for class in classes.iter_mut().filter(|class| class.workload) {
        if random.chance(0.15) {
            class.patience = Some([5, 10, 30][random.below(3)] * SECOND);
        }
    }
    let mut workers = Vec::new();
    if random.chance(0.4) {
        let think = random.log_between(0.05, 3.0);
        for _ in 0..1 + random.below(6) {
            let first = random.below(11);
            let round = (0..4).map(|step| ((first + step * 3) % 11, 0.1)).collect();
            workers.push(Worker { round, think });
        }
    }
    classes.extend([Place::Hookwatch, Place::KubeSystem, Place::NodeLeases].map(Class::canary));
    (classes, workers)
}

/// A sine wave around 1.0 with a period of 5 minutes to 2 hours, like the load over a day.
fn tide(random: &mut Random) -> Timeline<f64> {
    let mut tide = Timeline::always(1.0);
    let depth = random.between(0.0, 0.6);
    let period = random.between(300.0, 7_200.0);
    let phase = random.unit();
    for step in 0..400_u64 {
        let turn = std::f64::consts::TAU * (step as f64 * 20.0 / period + phase);
        tide.set(step * 20 * SECOND, 1.0 + depth * turn.sin());
    }
    tide
}

/// Calls of a webhook per second for CREATE and UPDATE, canaries included.
pub fn call_rate(cluster: &Cluster, hook: &HookSpec) -> f64 {
    let matching = cluster.classes.iter().filter(|class| hook.matches(class));
    matching
        .filter(|class| matches!(class.verb.operation(), "CREATE" | "UPDATE"))
        .map(|class| if class.dry_run { 0.2 } else { *class.rate.at(0) })
        .sum()
}
