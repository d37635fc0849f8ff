//! The properties of canaries' writes that decide which hooks are called for them.

use crate::cluster::condition::SHIELDED_NAMESPACES;
use crate::cluster::hook::Labels;
use crate::cluster::matching::{LEASES, RequestShape};
use crate::observe::canary::{CanaryTarget, FurtherCanary};

/// The resource of the canaries in kube-system, where little else writes it, and in hookwatch's namespace: group, version,
/// resource and subresource.
pub(super) const CONFIG_MAPS: [&str; 4] = ["", "v1", "configmaps", ""];

#[derive(Debug)]
pub(super) struct CanaryWrite<'a> {
    pub(super) target: CanaryTarget,
    pub(super) kind: &'a str,
    pub(super) namespace: &'a str,
    resource: [&'a str; 4],
    labels: Labels,
}

impl<'a> CanaryWrite<'a> {
    /// The writes of all canaries: the built-in ones, which have no labels in the shipped manifests, and the configured ones.
    /// `own` is hookwatch's namespace.
    pub(super) fn all(own: &'a str, further: &'a [FurtherCanary]) -> Vec<Self> {
        let [system, leases] = SHIELDED_NAMESPACES;
        let always = [
            (CanaryTarget::OwnNamespace, "ConfigMap", own, CONFIG_MAPS),
            (CanaryTarget::KubeSystem, "ConfigMap", system, CONFIG_MAPS),
            (CanaryTarget::NodeLease, "Lease", leases, LEASES),
        ];
        let always = always.map(|(target, kind, namespace, resource)| Self {
            target,
            kind,
            namespace,
            resource,
            labels: Labels::new(),
        });
        let further = further.iter().map(|canary| {
            let (group, version) = canary.group_version();
            Self {
                target: canary.target,
                kind: canary.object["kind"].as_str().unwrap_or_default(),
                namespace: &canary.namespace,
                resource: [group, version, &canary.resource, ""],
                labels: canary.labels(),
            }
        });
        always.into_iter().chain(further).collect()
    }

    /// The operations that it may use, the usual one first. A built-in canary is a CREATE only while its object does not exist.
    pub(super) const fn operations(&self) -> &'static [&'static str] {
        match self.target {
            CanaryTarget::Further(_) => &["CREATE"],
            _ => &["UPDATE", "CREATE"],
        }
    }

    /// Its request. `namespace_labels`: the labels of its namespace; unknown labels match every selector.
    pub(super) fn shape<'b>(
        &'b self,
        operation: &'b str,
        namespace_labels: Option<&'b Labels>,
    ) -> RequestShape<'b> {
        RequestShape {
            namespace: Some(self.namespace),
            namespace_labels,
            object_labels: Some(&self.labels),
            ..RequestShape::new(operation, self.resource)
        }
    }
}
