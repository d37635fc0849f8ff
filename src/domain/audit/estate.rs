//! What is audited: webhooks as configured, and what is known of their backends and surroundings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::periodic::AuditEvidence;
use super::reach::NAME_LABEL;
use crate::cluster::hook::{Hook, HookKind, Labels, NamespacedName, Selector, ServiceTarget};
use crate::cluster::inventory::NodeState;
use crate::cluster::matching::has_all;
use crate::time::Time;

/// Where an object came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct SourceLocation {
    /// The file as it was named; `-` for standard input.
    pub file: String,
    /// The line that it begins at, from 1.
    pub line: usize,
}

/// One webhook, with what its configuration alone says and [`Hook`] does not keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedHook {
    /// The webhook, every default resolved.
    pub hook: Arc<Hook>,
    /// `None` where it was read from a cluster.
    pub source: Option<SourceLocation>,
}

impl AuditedHook {
    /// The order in which mutating webhooks are asked: by the name of their configuration, then as they are listed.
    pub fn order(&self) -> (HookKind, Arc<str>, usize) {
        let id = &self.hook.id;
        (id.kind, Arc::clone(&id.configuration), self.hook.written.entry)
    }
}

/// What makes Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Deployment, StatefulSet or DaemonSet.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `spec.replicas`; `None` for a DaemonSet, and when absent, as manifests leave it to an autoscaler.
    pub replicas: Option<i64>,
    /// The labels of its Pods.
    pub labels: Labels,
    /// What runs in them.
    pub containers: Vec<Container>,
    /// `terminationGracePeriodSeconds`, 30 when absent.
    pub grace_seconds: i64,
    /// Pod anti-affinity or spread constraints over nodes, and over zones.
    pub spread: Spread,
    /// Where it came from.
    pub source: Option<SourceLocation>,
}

/// How the Pods of a workload are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spread {
    /// Over nodes.
    pub nodes: bool,
    /// Over zones.
    pub zones: bool,
}

/// One container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Container {
    /// Its ports: name (empty when absent) and number.
    pub ports: Vec<(String, i64)>,
    /// `readinessProbe`, if there is one.
    pub readiness: Option<Check>,
    /// `startupProbe`, if there is one.
    pub startup: Option<Check>,
    /// It has a `livenessProbe`.
    pub has_liveness: bool,
    /// It has `lifecycle.preStop`.
    pub has_pre_stop: bool,
}

/// What a probe of the kubelet looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// A port, by name or number.
    Port(String),
    /// An exec command, of unknown effect.
    Command,
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Its selector.
    pub selector: Labels,
    /// Port and target port: a number or a name of a container's port.
    pub ports: Vec<(i64, String)>,
    /// It is an ExternalName: the API server dials that name at the webhook's port, regardless of the listed ports.
    pub is_external: bool,
    /// Where it came from.
    pub source: Option<SourceLocation>,
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisruptionBudget {
    /// Its namespace.
    pub namespace: String,
    /// Which Pods it is about.
    pub selector: Selector,
}

/// A CustomResourceDefinition whose versions a webhook converts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// Its name.
    pub name: String,
    /// The Service of the webhook; `None` where it is called by URL.
    pub service: Option<NamespacedName>,
    /// `status.storedVersions`: those that objects may be stored in.
    pub stored: Vec<String>,
    /// Where it came from.
    pub source: Option<SourceLocation>,
}

/// Kinds whose list is missing or incomplete, with its namespace; `None`: the whole cluster.
pub type Unlisted = BTreeSet<(&'static str, Option<String>)>;

/// All of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Estate {
    /// Webhooks, by name of the configuration and place in it: the order in which mutating ones are asked.
    pub subjects: Vec<AuditedHook>,
    /// Labels of the namespaces that are known.
    pub namespaces: BTreeMap<String, Labels>,
    /// Services.
    pub services: BTreeMap<NamespacedName, ServiceFacts>,
    /// What makes Pods.
    pub workloads: Vec<Workload>,
    /// PodDisruptionBudgets.
    pub budgets: Vec<DisruptionBudget>,
    /// What webhooks convert.
    pub converted: Vec<Converted>,
    /// Nodes.
    pub nodes: BTreeMap<String, NodeState>,
    /// Read from a cluster, so that what was listed and is not there does not exist. Otherwise a usual control plane in
    /// kube-system is assumed.
    pub is_cluster: bool,
    /// What could not be listed: of that, what is not there may exist.
    pub unlisted: Unlisted,
    /// When it was read; `None` where time does not matter.
    pub at: Option<Time>,
    /// What a daemon saw of it.
    pub evidence: AuditEvidence,
}

impl Estate {
    /// The labels of a namespace. One that is not known has its name as label, which the API server puts on all of them.
    pub fn labels(&self, namespace: &str) -> Labels {
        let mut labels = self.namespaces.get(namespace).cloned().unwrap_or_default();
        labels.insert(NAME_LABEL.to_owned(), namespace.to_owned());
        labels
    }

    /// Whether all objects of a kind in a namespace were listed. Nothing is known to be missing from manifests.
    pub fn is_listed(&self, kind: &str, namespace: &str) -> bool {
        let of = |place: &Option<String>| place.as_deref().is_none_or(|place| place == namespace);
        let mut unlisted = self.unlisted.iter();
        !unlisted.any(|(listed, place)| *listed == kind && of(place))
    }

    /// The Service of a webhook.
    pub fn service(&self, hook: &Hook) -> Option<&ServiceFacts> {
        self.services.get(&service_key(hook)?)
    }

    /// What makes the Pods of a webhook: workloads that its Service selects.
    pub fn workloads<'a>(&'a self, hook: &Hook) -> impl Iterator<Item = &'a Workload> {
        let key = service_key(hook);
        let selector = self.service(hook).map(|service| service.selector.clone());
        self.workloads.iter().filter(move |workload| {
            let (Some((namespace, _)), Some(selector)) = (&key, &selector) else {
                return false;
            };
            workload.namespace == *namespace && !selector.is_empty() && has_all(&workload.labels, selector)
        })
    }
}

/// Namespace and name of the Service that a webhook is reached by.
pub fn service_key(hook: &Hook) -> Option<NamespacedName> {
    hook.target.service().map(ServiceTarget::key)
}
