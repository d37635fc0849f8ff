//! The simulated cluster: webhooks, their Services, API-server replicas and storage, and how they change over time.

use std::net::SocketAddr;

use hookwatch::domain::cluster::hook::{HookId, HookKind};

use super::manner::Manner;
use super::timeline::Timeline;
use super::traffic::{Class, Place, Worker};
use super::{At, SECOND};

/// How the API server gets from a Service to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// The API server dials the ClusterIP, and the dataplane picks a ready endpoint.
    ClusterIp,
    /// The API server picks a ready endpoint itself (`--enable-aggregator-routing`).
    Endpoints,
    /// There is no Service: the webhook's clientConfig has a URL.
    Url,
}

/// A Pod, or the host of a URL.
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
    /// A healthy backend that is always a ready endpoint.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            to_api: Timeline::always(Manner::Well),
            to_us: Timeline::always(Manner::Well),
            listed: Timeline::always(true),
        }
    }

    /// Makes it behave like this towards the API server and hookwatch, from `from` until `until`.
    pub fn behave(&mut self, from: At, until: At, manner: Manner) {
        self.to_api.during(from, until, manner);
        self.to_us.during(from, until, manner);
    }
}

/// The Service (or URL) behind one or more webhooks.
#[derive(Debug, Clone)]
pub struct Service {
    pub namespace: String,
    pub name: String,
    pub routing: Routing,
    pub exists: Timeline<bool>,
    pub backends: Vec<Backend>,
    /// Median time to answer a review, in seconds.
    pub latency: f64,
    /// Standard deviation of the logarithm of the answer time.
    pub spread: f64,
    /// Factor on the answer time; 1.0 is normal.
    pub pace: Timeline<f64>,
    /// Probability that an answer is 0.1 to 1 s late, as by a garbage collection.
    pub hiccups: f64,
    /// Version of the caBundle. When it changes, the API server makes a new client, which closes pooled connections.
    pub bundle: Timeline<u32>,
    /// Whether the current caBundle verifies the backends' certificates.
    pub trusted: Timeline<bool>,
    /// Whether hookwatch can reach the ClusterIP.
    pub cluster_ip_reached: bool,
    /// Median time to answer a probe, in seconds. A probe is a GET and not a review.
    pub probe_latency: f64,
}

impl Service {
    /// Indexes of the backends that are ready endpoints at this instant.
    pub fn listed(&self, at: At) -> Vec<usize> {
        let all = 0..self.backends.len();
        all.filter(|backend| *self.backends[*backend].listed.at(at))
            .collect()
    }

    /// Applies [`Backend::behave`] to every backend.
    pub fn behave(&mut self, from: At, until: At, manner: Manner) {
        for backend in &mut self.backends {
            backend.behave(from, until, manner);
        }
    }
}

/// One rule of a webhook, with the wildcards of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub operations: Vec<&'static str>,
    pub groups: Vec<&'static str>,
    /// For example `pods`, `pods/status`, `*` (without subresources) or `*/*`.
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

/// One webhook of a webhook configuration.
#[derive(Debug, Clone)]
pub struct HookSpec {
    pub id: HookId,
    pub service: usize,
    pub path: &'static str,
    pub rules: Vec<Rule>,
    /// Namespaces that its namespaceSelector excludes.
    pub spares: Vec<Place>,
    /// Whether its failurePolicy is `Fail`; otherwise `Ignore`.
    pub fails: bool,
    pub timeout: At,
    /// Share of the reviews that it denies, 0.0 to 1.0.
    pub denies: Timeline<f64>,
    pub dry_run_safe: bool,
    /// Whether its configuration exists at that time.
    pub registered: Timeline<bool>,
    /// Index of its metric series. Webhooks of the same kind and name share one, as the metrics have no configuration label.
    pub series: usize,
}

impl HookSpec {
    /// A webhook that always exists and allows everything, with `failurePolicy: Fail` and a timeout of 10 s.
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

    /// Whether the rules, the namespaceSelector and the dry-run policy let the API server call it for such a request.
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
        // A namespaceSelector never excludes cluster-scoped objects; `spares` therefore never holds Place::Cluster.
        !self.spares.contains(&class.place)
            && (self.dry_run_safe || !class.dry_run)
            && self.rules.iter().any(|rule| {
                among(&rule.operations, class.verb.operation())
                    && among(&rule.groups, class.group)
                    && rule.resources.iter().any(resource)
            })
    }

    pub fn is_mutating(&self) -> bool {
        self.id.kind == HookKind::Mutating
    }
}

/// Whether an API-server replica answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serving {
    Up,
    /// Its process is gone: connections are refused.
    Down,
    /// It accepts connections and never answers.
    Hung,
}

/// Which metric families an API server exposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Around 1.20: no `fail_open_count`, no `webhook_request_total`, no `request_sli_duration_seconds`.
    Old,
    /// Around 1.24: `request_slo_duration_seconds`, the older name of `request_sli_duration_seconds`.
    Middle,
    /// From 1.27: all families.
    New,
}

/// An API server at one address, through all its restarts.
#[derive(Debug, Clone)]
pub struct ReplicaSpec {
    pub serving: Timeline<Serving>,
    /// Number of restarts so far.
    pub process: Timeline<u32>,
    pub release: Timeline<Release>,
    /// Factor on processing times from CPU shortage; 1.0 is normal.
    pub load: Timeline<f64>,
    /// Whether it serves but has not loaded RBAC yet, so that it answers every request with 403.
    pub forbids: Timeline<bool>,
}

impl ReplicaSpec {
    /// A replica that always serves, without load.
    pub fn new(release: Release) -> Self {
        Self {
            serving: Timeline::always(Serving::Up),
            process: Timeline::always(0),
            release: Timeline::always(release),
            load: Timeline::always(1.0),
            forbids: Timeline::always(false),
        }
    }

    /// Restarts it: down for `gone_for`, then a new process of `release`.
    pub fn restart(&mut self, at: At, gone_for: At, release: Release) {
        self.serving.during(at, at + gone_for, Serving::Down);
        let next = self.process.at(at) + 1;
        self.process.set(at + gone_for, next);
        self.release.set(at + gone_for, release);
    }
}

/// Reads. They call no webhook, so the model counts them in batches.
#[derive(Debug, Clone)]
pub struct Reads {
    /// Per second, over all replicas.
    pub rate: Timeline<f64>,
    /// Mean duration in seconds.
    pub latency: f64,
}

/// The whole simulated cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub replicas: Vec<ReplicaSpec>,
    pub services: Vec<Service>,
    pub hooks: Vec<HookSpec>,
    pub classes: Vec<Class>,
    pub workers: Vec<Worker>,
    /// Factor on the rates of open-loop classes that are `tidal`.
    pub tide: Timeline<f64>,
    pub reads: Reads,
    /// Median time that the API server itself takes for a write, in seconds.
    pub own: f64,
    /// Median time of an etcd request, in seconds.
    pub etcd: f64,
    /// Factor on the time of etcd requests; 1.0 is normal.
    pub etcd_pace: Timeline<f64>,
    /// Whether etcd is stalled: no request completes.
    pub etcd_frozen: Timeline<bool>,
    /// Seconds that quota admission adds to tenants' CREATE requests.
    pub quota: Timeline<f64>,
    /// Seconds that the authorizer adds to every request.
    pub authorizer: Timeline<f64>,
    /// Seats of the tenants' priority level, per replica.
    pub seats: Timeline<usize>,
    /// Whether hookwatch's network path to the Pods works.
    pub our_way: Timeline<bool>,
    /// Whether hookwatch's requests and scrapes go through a load balancer instead of to each replica.
    pub balanced: bool,
}

/// The API server ends a write after this long (`requestTimeoutUpperBound` in `apiserver/pkg/endpoints/handlers/rest.go`).
pub const WRITE_LIMIT: At = 34 * SECOND;

impl Cluster {
    /// Indexes of the replicas that serve at this instant.
    pub fn up(&self, at: At) -> impl Iterator<Item = usize> {
        let serves = move |replica: &ReplicaSpec| *replica.serving.at(at) == Serving::Up;
        let replicas = self.replicas.iter().enumerate();
        replicas
            .filter(move |(_, replica)| serves(replica))
            .map(|(index, _)| index)
    }

    /// Whether each webhook matches each class, flattened: entry `hook * classes.len() + class`.
    pub fn matching(&self) -> Vec<bool> {
        let row = |hook: &HookSpec| {
            let classes = self.classes.iter();
            classes.map(|class| hook.matches(class)).collect::<Vec<_>>()
        };
        self.hooks.iter().flat_map(row).collect()
    }

    /// Sorts the webhooks by the name of their configuration, the order in which the API server calls them.
    pub fn settle(&mut self) {
        self.hooks
            .sort_by(|a, b| a.id.configuration.cmp(&b.id.configuration));
        self.number_series();
    }

    /// Assigns [`HookSpec::series`].
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
