//! The kinds that are watched, and the fields kept of each object.
//!
//! Objects arrive as JSON, one by one, and each is cut down to the few fields that matter before the next one is
//! parsed. An object that cannot be parsed becomes a [`Problem`]; the others are still read.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::Service as ApiService;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::convert;
use super::convert::extension;
pub(super) use super::convert::service::SERVICE_LABEL;
use super::convert::service::{Service, Slice};
use super::lean::Lean;
use crate::domain::cluster::hook::{Hook, HookKind, Labels, NamespacedName};
use crate::domain::cluster::inventory::{NodeState, Problem};
use crate::domain::text::bounded;
use crate::io::client::answer::percent_encoded;
use crate::io::client::request::base;

/// A kind that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WatchedKind {
    /// ValidatingWebhookConfigurations.
    Validating,
    /// MutatingWebhookConfigurations.
    Mutating,
    /// Services that hooks refer to.
    Services,
    /// EndpointSlices of these Services.
    EndpointSlices,
    /// Labels of namespaces.
    Namespaces,
    /// CustomResourceDefinitions; kept are those with a conversion webhook.
    Definitions,
    /// APIServices; kept are those served by an extension API server.
    Registrations,
    /// Nodes that, alone or with a few others, have all endpoints of a hook.
    Nodes,
}

/// The names of a kind. Its version is always `v1`.
#[derive(Debug, Clone, Copy)]
pub(in crate::io::cluster) struct KindNames {
    /// The API group, as RBAC rules name it.
    pub(in crate::io::cluster) group: &'static str,
    /// The resource, as RBAC rules and paths name it.
    pub(in crate::io::cluster) resource: &'static str,
    pub(in crate::io::cluster) kind: &'static str,
}

impl KindNames {
    pub(in crate::io::cluster) const fn new(
        group: &'static str,
        resource: &'static str,
        kind: &'static str,
    ) -> Self {
        Self {
            group,
            resource,
            kind,
        }
    }

    /// The API path of its list, in one namespace or in all (`None`).
    pub(in crate::io::cluster) fn path(self, namespace: Option<&str>) -> String {
        let (base, resource) = (base(self.group, "v1"), self.resource);
        match namespace {
            Some(namespace) => format!("{base}/namespaces/{}/{resource}", percent_encoded(namespace)),
            None => format!("{base}/{resource}"),
        }
    }
}

impl WatchedKind {
    pub(in crate::io::cluster) const fn names(self) -> KindNames {
        const ADMISSION: &str = "admissionregistration.k8s.io";
        let (group, resource, kind) = match self {
            Self::Validating => (
                ADMISSION,
                "validatingwebhookconfigurations",
                "ValidatingWebhookConfiguration",
            ),
            Self::Mutating => (
                ADMISSION,
                "mutatingwebhookconfigurations",
                "MutatingWebhookConfiguration",
            ),
            Self::Services => ("", "services", "Service"),
            Self::EndpointSlices => ("discovery.k8s.io", "endpointslices", "EndpointSlice"),
            Self::Namespaces => ("", "namespaces", "Namespace"),
            Self::Definitions => (
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                "CustomResourceDefinition",
            ),
            Self::Registrations => ("apiregistration.k8s.io", "apiservices", "APIService"),
            Self::Nodes => ("", "nodes", "Node"),
        };
        KindNames::new(group, resource, kind)
    }

    /// Whether it is a kind of webhook configuration. The inventory needs at least one of the two.
    pub(super) const fn is_admission(self) -> bool {
        matches!(self, Self::Validating | Self::Mutating)
    }

    /// Whether its hooks are not admission webhooks. The inventory works without these kinds, for example if RBAC forbids
    /// reading them.
    pub(super) const fn is_beside_admission(self) -> bool {
        matches!(self, Self::Definitions | Self::Registrations)
    }

    /// The fields to skip while parsing its objects. In some kinds they are the largest part.
    pub(super) const fn lean(self) -> Lean {
        const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
        Lean(match self {
            Self::Definitions => &[
                "managedFields",
                APPLIED,
                "schema",
                "additionalPrinterColumns",
                "status",
            ],
            Self::Registrations => &["managedFields", APPLIED],
            _ => &[],
        })
    }
}

impl fmt::Display for WatchedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.names().kind)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum WatchedObject {
    Hooks(Vec<Hook>),
    Service(Service),
    Slice(Slice),
    Namespace(Labels),
    Node(NodeState),
    Unreadable(Problem),
}

/// The key and the `resourceVersion` of an object, and what is kept of it: `None` if it contains no hook and no hook refers
/// to it.
pub(super) fn parse(
    kind: WatchedKind,
    mut value: Value,
    wanted: &BTreeSet<NamespacedName>,
) -> (NamespacedName, String, Option<WatchedObject>) {
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (mut key, version) = ((text("namespace"), text("name")), text("resourceVersion"));
    if kind == WatchedKind::Nodes {
        // Each Node has its own feed, and feeds are told apart by namespace: the name takes its place.
        key.0.clone_from(&key.1);
    }
    // managedFields is the largest part of most objects and is not used.
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let read = match kind {
        WatchedKind::Validating => hooks(HookKind::Validating, value),
        WatchedKind::Mutating => hooks(HookKind::Mutating, value),
        // Most objects of these two kinds contain no hook; nothing is kept of them.
        WatchedKind::Definitions => typed::<CustomResourceDefinition>(value)
            .map(|it| extension::conversion(it).map(|hook| WatchedObject::Hooks(vec![hook]))),
        WatchedKind::Registrations => typed::<APIService>(value)
            .map(|it| extension::aggregated(it).map(|hook| WatchedObject::Hooks(vec![hook]))),
        WatchedKind::Services if !wanted.contains(&key) => Ok(None),
        WatchedKind::Services => {
            typed::<ApiService>(value).map(|it| Some(WatchedObject::Service(Service::from(it))))
        }
        WatchedKind::EndpointSlices => {
            let service = value["metadata"]["labels"][convert::service::SERVICE_LABEL]
                .as_str()
                .unwrap_or_default();
            if wanted.contains(&(key.0.clone(), service.to_owned())) {
                typed::<EndpointSlice>(value).map(|it| Slice::of(it).map(WatchedObject::Slice))
            } else {
                Ok(None)
            }
        }
        WatchedKind::Namespaces => {
            let labels = value["metadata"]["labels"].take();
            typed::<Option<Labels>>(labels).map(|it| Some(WatchedObject::Namespace(it.unwrap_or_default())))
        }
        WatchedKind::Nodes => Ok(Some(WatchedObject::Node(convert::node::state(&value)))),
    };
    let object = read.unwrap_or_else(|why| {
        let (namespace, name) = &key;
        let separator = if namespace.is_empty() { "" } else { "/" };
        Some(WatchedObject::Unreadable(Problem {
            object: format!("{} {namespace}{separator}{name}", kind.names().kind),
            what: format!("it cannot be read and is left out: {why}"),
        }))
    });
    (key, version, object)
}

fn hooks(kind: HookKind, value: Value) -> Result<Option<WatchedObject>, String> {
    typed(value).map(|it| Some(WatchedObject::Hooks(convert::hooks(kind, it))))
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| bounded(&error.to_string()))
}
