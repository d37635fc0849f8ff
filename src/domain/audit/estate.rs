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
    /// The file's path as given on the command line; `-` for standard input.
    pub file: String,
    /// The line at which the object begins, from 1.
    pub line: usize,
}

/// One webhook, and where it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedHook {
    /// The webhook, with all defaults resolved.
    pub hook: Arc<Hook>,
    /// The file that it is in; `None` if it was read from a cluster.
    pub source: Option<SourceLocation>,
}

impl AuditedHook {
    /// The sort key for the order in which the API server calls mutating webhooks: by the name of their configuration, then by
    /// their index in it.
    pub fn order(&self) -> (HookKind, Arc<str>, usize) {
        let id = &self.hook.id;
        (id.kind, Arc::clone(&id.configuration), self.hook.written.entry)
    }
}

/// A workload that creates Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Deployment, StatefulSet or DaemonSet.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `spec.replicas`; `None` for a DaemonSet, and if absent, as in manifests that leave it to an autoscaler.
    pub replicas: Option<i64>,
    /// The labels of its Pods.
    pub labels: Labels,
    /// The containers of its Pods.
    pub containers: Vec<Container>,
    /// `terminationGracePeriodSeconds`, 30 when absent.
    pub grace_seconds: i64,
    /// Whether Pod anti-affinity or topology spread constraints keep its Pods apart.
    pub spread: Spread,
    /// The file that it is in; `None` if it was read from a cluster.
    pub source: Option<SourceLocation>,
}

/// The topology over which the Pods of a workload are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spread {
    /// Pods are spread over nodes.
    pub nodes: bool,
    /// Pods are spread over zones.
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

/// What a readiness or startup probe of the kubelet checks.
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
    /// Each port with its target port, which is the number or the name of a container's port.
    pub ports: Vec<(i64, String)>,
    /// It is an ExternalName: the API server dials that name at the webhook's port, regardless of the listed ports.
    pub is_external: bool,
    /// The file that it is in; `None` if it was read from a cluster.
    pub source: Option<SourceLocation>,
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisruptionBudget {
    /// Its namespace.
    pub namespace: String,
    /// The Pods that it covers.
    pub selector: Selector,
}

/// A CustomResourceDefinition whose versions a webhook converts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// Its name.
    pub name: String,
    /// The Service of the webhook; `None` if it is called by URL.
    pub service: Option<NamespacedName>,
    /// `status.storedVersions`: every version in which objects may be stored.
    pub stored: Vec<String>,
    /// The file that it is in; `None` if it was read from a cluster.
    pub source: Option<SourceLocation>,
}

/// Kinds whose list is missing or incomplete, each with the namespace of that list; `None` for the whole cluster.
pub type Unlisted = BTreeSet<(&'static str, Option<String>)>;

/// The input of an audit: the webhooks of a cluster or of manifests, and the objects around them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Estate {
    /// The webhooks, in [`AuditedHook::order`].
    pub subjects: Vec<AuditedHook>,
    /// The known namespaces, with their labels.
    pub namespaces: BTreeMap<String, Labels>,
    /// The known Services.
    pub services: BTreeMap<NamespacedName, ServiceFacts>,
    /// The known workloads.
    pub workloads: Vec<Workload>,
    /// The known PodDisruptionBudgets.
    pub budgets: Vec<DisruptionBudget>,
    /// The CustomResourceDefinitions with a conversion webhook.
    pub converted: Vec<Converted>,
    /// The known nodes.
    pub nodes: BTreeMap<String, NodeState>,
    /// It was read from a cluster, so that objects missing from a complete list do not exist. If it was read from manifests, the
    /// audit assumes a usual control plane in kube-system.
    pub is_cluster: bool,
    /// The kinds that could not be listed completely: objects of these kinds may exist without being here.
    pub unlisted: Unlisted,
    /// When it was read; `None` leaves out findings that depend on the time.
    pub at: Option<Time>,
    /// What a daemon observed of the webhooks; empty without a daemon.
    pub evidence: AuditEvidence,
}

impl Estate {
    /// The labels of a namespace, always with [`NAME_LABEL`], which the API server sets on each; only that if it is unknown.
    pub fn labels(&self, namespace: &str) -> Labels {
        let mut labels = self.namespaces.get(namespace).cloned().unwrap_or_default();
        labels.insert(NAME_LABEL.to_owned(), namespace.to_owned());
        labels
    }

    /// Whether all objects of a kind in a namespace were listed. Always true for manifests.
    pub fn is_listed(&self, kind: &str, namespace: &str) -> bool {
        let of = |place: &Option<String>| place.as_deref().is_none_or(|place| place == namespace);
        let mut unlisted = self.unlisted.iter();
        !unlisted.any(|(listed, place)| *listed == kind && of(place))
    }

    /// The Service of a webhook; `None` if it is called by URL or its Service is unknown.
    pub fn service(&self, hook: &Hook) -> Option<&ServiceFacts> {
        self.services.get(&service_key(hook)?)
    }

    /// The workloads of a webhook: those whose Pods its Service selects.
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

/// Namespace and name of the Service that a webhook is called at; `None` for a URL.
pub fn service_key(hook: &Hook) -> Option<NamespacedName> {
    hook.target.service().map(ServiceTarget::key)
}
