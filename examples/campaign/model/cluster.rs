//! What there is: hooks, the Services behind them, API-server replicas, storage, and how all of it changes in time.

use std::net::SocketAddr;

use hookwatch::domain::cluster::hook::{HookId, HookKind};

use super::manner::Manner;
use super::timeline::Timeline;
use super::traffic::{Class, Place, Worker};
use super::{At, SECOND};

/// How the API server gets from a Service to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// It dials the ClusterIP and the dataplane picks a ready endpoint.
    ClusterIp,
    /// It picks a ready endpoint itself (`--enable-aggregator-routing`).
    Endpoints,
    /// There is no Service: the hook has a URL.
    Url,
}

/// One pod, or the host of a URL.
#[derive(Debug, Clone)]
pub struct Backend {
    pub address: SocketAddr,
    /// How it behaves towards the API server.
    pub to_api: Timeline<Manner>,
    /// How it behaves towards hookwatch.
    pub to_us: Timeline<Manner>,
    /// Whether it is a ready endpoint of the Service.
    pub listed: Timeline<bool>,
}

impl Backend {
    /// A well one.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            to_api: Timeline::always(Manner::Well),
            to_us: Timeline::always(Manner::Well),
            listed: Timeline::always(true),
        }
    }

    /// It behaves like this towards everybody for a while.
    pub fn behave(&mut self, from: At, until: At, manner: Manner) {
        self.to_api.during(from, until, manner);
        self.to_us.during(from, until, manner);
    }
}

/// What hooks are reached by.
#[derive(Debug, Clone)]
pub struct Service {
    pub namespace: String,
    pub name: String,
    pub routing: Routing,
    pub exists: Timeline<bool>,
    pub backends: Vec<Backend>,
    /// Seconds that an answer takes, as a median.
    pub latency: f64,
    /// How far answers spread around it.
    pub spread: f64,
    /// Answers take this many times as long.
    pub pace: Timeline<f64>,
    /// One answer in so many is up to a second late, for collecting garbage or the like.
    pub hiccups: f64,
    /// Grows when the caBundle changes: the API server makes a new client then.
    pub bundle: Timeline<u32>,
    /// Whether a caBundle of the time vouches for the backends.
    pub trusted: Timeline<bool>,
    /// Whether hookwatch can reach the ClusterIP from where it is.
    pub cluster_ip_reached: bool,
    /// What a GET takes there, in seconds: a probe asks for no review.
    pub probe_latency: f64,
}

impl Service {
    /// Its backends that are ready endpoints then.
    pub fn listed(&self, at: At) -> Vec<usize> {
        let all = 0..self.backends.len();
        all.filter(|backend| *self.backends[*backend].listed.at(at))
            .collect()
    }

    /// All its backends behave like this towards everybody for a while.
    pub fn behave(&mut self, from: At, until: At, manner: Manner) {
        for backend in &mut self.backends {
            backend.behave(from, until, manner);
        }
    }
}

/// One rule of a hook: the API's words, `*` for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub operations: Vec<&'static str>,
    pub groups: Vec<&'static str>,
    /// `pods`, `pods/status`, `*` (no subresources) or `*/*`.
    pub resources: Vec<&'static str>,
}

impl Rule {
    pub fn new(operations: &[&'static str], groups: &[&'static str], resources: &[&'static str]) -> Self {
        Self {
            operations: operations.to_vec(),
            groups: groups.to_vec(),
            resources: resources.to_vec(),
        }
    }
}

/// One entry of a webhook configuration.
#[derive(Debug, Clone)]
pub struct HookSpec {
    pub id: HookId,
    pub service: usize,
    pub path: &'static str,
    pub rules: Vec<Rule>,
    /// Its namespaceSelector leaves these out.
    pub spares: Vec<Place>,
    /// `failurePolicy: Fail`.
    pub fails: bool,
    pub timeout: At,
    /// Which part of what it is shown it denies.
    pub denies: Timeline<f64>,
    pub dry_run_safe: bool,
    /// Whether its configuration exists.
    pub registered: Timeline<bool>,
    /// Which row of the metrics is its: they know kind and name only.
    pub series: usize,
}

impl HookSpec {
    /// One that is there from the beginning and lets everything pass; where its call fails or takes 10 s, the write is refused.
    pub fn new(id: HookId, service: usize, rule: Rule) -> Self {
        Self {
            path: match id.kind {
                HookKind::Mutating => "/mutate",
                _ => "/validate",
            },
            id,
            service,
            rules: vec![rule],
            spares: Vec::new(),
            fails: true,
            timeout: 10 * SECOND,
            denies: Timeline::always(0.0),
            dry_run_safe: true,
            registered: Timeline::always(true),
            series: 0,
        }
    }

    /// Whether the API server calls it for such a write.
    pub fn matches(&self, class: &Class) -> bool {
        let among = |words: &[&str], word: &str| words.iter().any(|known| *known == "*" || *known == word);
        let resource = |known: &&str| match (*known, class.subresource) {
            ("*/*", _) => true,
            ("*", subresource) => subresource.is_empty(),
            (known, "") => known == class.resource,
            (known, subresource) => known.split_once('/').is_some_and(|(resource, wanted)| {
                (resource == "*" || resource == class.resource) && (wanted == "*" || wanted == subresource)
            }),
        };
        // A namespaceSelector never spares what lives in no namespace.
        !self.spares.contains(&class.place)
            && (self.dry_run_safe || !class.dry_run)
            && self.rules.iter().any(|rule| {
                among(&rule.operations, class.verb.operation())
                    && among(&rule.groups, class.group)
                    && rule.resources.iter().any(resource)
            })
    }

    /// Mutating hooks are called one after the other.
    pub fn is_mutating(&self) -> bool {
        self.id.kind == HookKind::Mutating
    }
}

/// Whether an API-server replica answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serving {
    Up,
    /// Its process is gone.
    Down,
    /// It takes connections and says nothing.
    Hung,
}

/// Which families of metrics an API server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Around 1.20: no fail-open count, no calls by code, no clock without webhooks.
    Old,
    /// Around 1.24: the clock without webhooks under its older name.
    Middle,
    /// From 1.27.
    New,
}

/// One API-server process after the other at one address.
#[derive(Debug, Clone)]
pub struct ReplicaSpec {
    pub serving: Timeline<Serving>,
    /// Grows with each restart.
    pub process: Timeline<u32>,
    pub release: Timeline<Release>,
    /// Everything takes this many times as long for want of CPU.
    pub load: Timeline<f64>,
    /// It cannot reach any backend.
    pub cut_off: Timeline<bool>,
    /// It serves, and has not read yet who may do what: everybody is refused.
    pub forbids: Timeline<bool>,
}

impl ReplicaSpec {
    /// One that serves.
    pub fn new(release: Release) -> Self {
        Self {
            serving: Timeline::always(Serving::Up),
            process: Timeline::always(0),
            release: Timeline::always(release),
            load: Timeline::always(1.0),
            cut_off: Timeline::always(false),
            forbids: Timeline::always(false),
        }
    }

    /// Restarts it: gone for a while, then another process, perhaps of another release.
    pub fn restart(&mut self, at: At, gone_for: At, release: Release) {
        self.serving.during(at, at + gone_for, Serving::Down);
        let next = self.process.at(at) + 1;
        self.process.set(at + gone_for, next);
        self.release.set(at + gone_for, release);
    }
}

/// Reads: they meet no hook, so they are counted by the batch.
#[derive(Debug, Clone)]
pub struct Reads {
    /// Per second, over all replicas.
    pub rate: Timeline<f64>,
    /// Seconds each.
    pub latency: f64,
}

/// The whole of it.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub replicas: Vec<ReplicaSpec>,
    pub services: Vec<Service>,
    pub hooks: Vec<HookSpec>,
    pub classes: Vec<Class>,
    pub workers: Vec<Worker>,
    /// All rates of open-loop clients are multiplied by this.
    pub tide: Timeline<f64>,
    pub reads: Reads,
    /// Seconds that the API server itself takes for a write, as a median.
    pub own: f64,
    /// Seconds that etcd takes for a request, as a median.
    pub etcd: f64,
    /// etcd takes this many times as long.
    pub etcd_pace: Timeline<f64>,
    /// etcd answers nothing.
    pub etcd_frozen: Timeline<bool>,
    /// Seconds that quota and policies add to what tenants write.
    pub quota: Timeline<f64>,
    /// Seconds that the authorizer adds to every request.
    pub authorizer: Timeline<f64>,
    /// Seats for the workload of tenants, per replica.
    pub seats: Timeline<usize>,
    /// hookwatch has a way to the pods.
    pub our_way: Timeline<bool>,
    /// hookwatch's requests go through a load balancer, and so do its scrapes.
    pub balanced: bool,
}

/// The longest a write may take, whatever it waits for.
pub const WRITE_LIMIT: At = 34 * SECOND;

impl Cluster {
    /// The replicas that serve.
    pub fn up(&self, at: At) -> impl Iterator<Item = usize> {
        let serves = move |replica: &ReplicaSpec| *replica.serving.at(at) == Serving::Up;
        let replicas = self.replicas.iter().enumerate();
        replicas
            .filter(move |(_, replica)| serves(replica))
            .map(|(index, _)| index)
    }

    /// Which hooks' rules match which classes, one row for each hook.
    pub fn matching(&self) -> Vec<bool> {
        let row = |hook: &HookSpec| {
            let classes = self.classes.iter();
            classes.map(|class| hook.matches(class)).collect::<Vec<_>>()
        };
        self.hooks.iter().flat_map(row).collect()
    }

    /// Puts the hooks in the order in which they are called, which is that of their configurations' names.
    pub fn settle(&mut self) {
        self.hooks
            .sort_by(|a, b| a.id.configuration.cmp(&b.id.configuration));
        self.number_series();
    }

    /// Gives every hook its row in the metrics: hooks of one kind and name share one.
    pub fn number_series(&mut self) {
        let mut known: Vec<(HookKind, String)> = Vec::new();
        for hook in &mut self.hooks {
            let key = (hook.id.kind, hook.id.webhook.to_string());
            hook.series = known.iter().position(|known| *known == key).unwrap_or_else(|| {
                known.push(key);
                known.len() - 1
            });
        }
    }
}
