//! The model's webhooks as an [`Inventory`] of the core.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hookwatch::domain::cluster::condition::BypassCondition;
use hookwatch::domain::cluster::hook::{
    Added, Endpoint, FailurePolicy, Hook, HookRule, HookTarget, MatchCondition, Scope, Selector,
    SelectorOperator, SelectorRequirement, ServiceState, ServiceTarget, UrlTarget,
};
use hookwatch::domain::cluster::inventory::Inventory;
use hookwatch::domain::time::Time;

use super::At;
use super::bypass::Form;
use super::cluster::{Cluster, HookSpec, Routing, Service};
use super::traffic::Place;

/// Unix time of instant 0 of every incident.
const EPOCH: Duration = Duration::from_secs(1_800_000_000);

/// Converts simulated time to the core's [`Time`].
pub fn time(at: At) -> Time {
    Time::from_unix(EPOCH + Duration::from_micros(at))
}

/// Converts the core's [`Time`] to simulated time.
pub fn instant(time: Time) -> At {
    let since = time.since(Time::from_unix(EPOCH));
    since.as_micros().try_into().unwrap_or(At::MAX)
}

/// The ClusterIP of a Service.
pub fn cluster_ip(service: usize) -> SocketAddr {
    ([10, 96, 0, service as u8 + 1], 443).into()
}

/// The label that Kubernetes sets on every namespace to its name; the model's selectors use it.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The inventory at an instant. `forms` has one entry for each webhook: which bypass its configuration has.
pub fn inventory(cluster: &Cluster, forms: &[Form], at: At) -> Arc<Inventory> {
    let hooks = cluster.hooks.iter().zip(forms);
    let registered = hooks.filter(|(hook, _)| *hook.registered.at(at));
    let mut hooks: Vec<Arc<Hook>> = registered
        .map(|(hook, form)| Arc::new(entry(hook, *form, &cluster.services[hook.service], at)))
        .collect();
    hooks.sort_by(|a, b| a.id.cmp(&b.id));
    let places = [
        Place::KubeSystem,
        Place::NodeLeases,
        Place::Hookwatch,
        Place::Tenant,
    ];
    let namespaces = places.iter().filter_map(|place| place.namespace()).map(|name| {
        let labels = BTreeMap::from([(NAME_LABEL.to_owned(), name.to_owned())]);
        (name.to_owned(), labels)
    });
    Arc::new(Inventory {
        at: time(at),
        hooks,
        namespaces: namespaces.collect(),
        nodes: BTreeMap::new(),
        problems: Vec::new(),
    })
}

/// The instants at which the inventory changes.
pub fn changes(cluster: &Cluster) -> Vec<At> {
    let hooks = cluster.hooks.iter().flat_map(|hook| hook.registered.changes());
    let services = cluster.services.iter().flat_map(|service| {
        let endpoints = service
            .backends
            .iter()
            .flat_map(|backend| backend.listed.changes());
        endpoints
            .chain(service.exists.changes())
            .chain(service.bundle.changes())
    });
    let mut changes: Vec<At> = hooks.chain(services).collect();
    changes.sort_unstable();
    changes.dedup();
    changes
}

fn entry(hook: &HookSpec, form: Form, service: &Service, at: At) -> Hook {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let rules = hook.rules.iter().map(|rule| HookRule {
        operations: owned(&rule.operations),
        api_groups: owned(&rule.groups),
        api_versions: vec!["*".to_owned()],
        resources: owned(&rule.resources),
        scope: Scope::All,
    });
    let spared: Vec<String> = hook
        .spares
        .iter()
        .filter_map(|place| place.namespace())
        .map(str::to_owned)
        .collect();
    let namespace_selector = Selector {
        expressions: if spared.is_empty() {
            Vec::new()
        } else {
            vec![SelectorRequirement {
                key: NAME_LABEL.to_owned(),
                operator: SelectorOperator::NotIn,
                values: spared,
            }]
        },
        ..Selector::default()
    };
    Hook {
        ca_bundle: Arc::from(service.bundle.at(at).to_le_bytes().as_slice()),
        failure_policy: if hook.fails {
            FailurePolicy::Fail
        } else {
            FailurePolicy::Ignore
        },
        timeout: Duration::from_micros(hook.timeout),
        rules: rules.collect(),
        namespace_selector,
        match_conditions: match_conditions(form),
        dry_run_safe: hook.dry_run_safe,
        review_versions: vec!["v1".to_owned()],
        ..Hook::new(hook.id.clone(), target(hook, service, at))
    }
}

/// The match conditions that hookwatch writes for this form, under the names by which it recognises its own.
fn match_conditions(form: Form) -> Vec<MatchCondition> {
    let condition = match form {
        Form::Original => return Vec::new(),
        Form::Shielded => BypassCondition::Shield,
        Form::Skipped => BypassCondition::Skip,
        Form::OnProbation => BypassCondition::Probation,
    };
    vec![MatchCondition {
        name: condition.name().to_owned(),
        expression: condition.expression(
            "hookwatch",
            "system:serviceaccount:hookwatch:hookwatch",
            &Added::default(),
        ),
    }]
}

fn target(hook: &HookSpec, service: &Service, at: At) -> HookTarget {
    if service.routing == Routing::Url {
        return HookTarget::Url(UrlTarget {
            host: format!("{}.example.com", service.name),
            port: 443,
            path: hook.path.to_owned(),
        });
    }
    let listed = service.backends.iter().filter(|backend| *backend.listed.at(at));
    let state = match service.exists.at(at) {
        false => ServiceState::Missing,
        true => ServiceState::Found {
            by_hand: false,
            cluster_ip: Some(cluster_ip(hook.service)),
            endpoints: listed.map(|backend| Endpoint::ready(backend.address)).collect(),
        },
    };
    HookTarget::Service(ServiceTarget {
        namespace: service.namespace.clone(),
        name: service.name.clone(),
        port: 443,
        path: hook.path.to_owned(),
        service: state,
    })
}
