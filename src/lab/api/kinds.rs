//! The kinds that the lab's API server serves. Everything else answers 404, as an unknown kind does.

mod subresources;

pub(super) use subresources::{Subresource, SubresourceKind};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServedKind {
    /// API group; empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    /// The plural name in URLs.
    pub resource: &'static str,
    /// The name in manifests.
    pub kind: &'static str,
    /// What kubectl may abbreviate it to.
    pub short: &'static [&'static str],
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether `/status` is served.
    pub status: bool,
    /// Whether its objects are kept; those of reviews are answered and forgotten.
    pub stored: bool,
}

const fn kind(
    group: &'static str,
    resource: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    namespaced: bool,
    status: bool,
) -> ServedKind {
    ServedKind {
        group,
        version: "v1",
        resource,
        kind,
        short,
        namespaced,
        status,
        stored: true,
    }
}

/// A review: its objects are answered and not stored.
const fn review(
    group: &'static str,
    resource: &'static str,
    name: &'static str,
    namespaced: bool,
) -> ServedKind {
    ServedKind {
        stored: false,
        ..kind(group, resource, name, &[], namespaced, false)
    }
}

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// All kinds that are served. Webhook configurations, Services and EndpointSlices work as in a real API server, and of
/// CustomResourceDefinitions and APIServices what [`super::extension`] does. Other objects are stored without effect: there are
/// no controllers, no policies and no authorization, and the resources that these two kinds describe are not served.
pub(super) static KINDS: [ServedKind; 30] = [
    kind("", "namespaces", "Namespace", &["ns"], false, true),
    kind("", "configmaps", "ConfigMap", &["cm"], true, false),
    kind("", "secrets", "Secret", &[], true, false),
    kind("", "services", "Service", &["svc"], true, true),
    kind("", "pods", "Pod", &["po"], true, true),
    kind("", "nodes", "Node", &["no"], false, true),
    kind("", "events", "Event", &["ev"], true, false),
    kind("events.k8s.io", "events", "Event", &["ev"], true, false),
    kind(
        "discovery.k8s.io",
        "endpointslices",
        "EndpointSlice",
        &[],
        true,
        false,
    ),
    kind("coordination.k8s.io", "leases", "Lease", &[], true, false),
    kind(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        &[],
        false,
        false,
    ),
    kind(
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        &[],
        false,
        false,
    ),
    kind(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        &["crd", "crds"],
        false,
        true,
    ),
    kind(
        "apiregistration.k8s.io",
        "apiservices",
        "APIService",
        &[],
        false,
        true,
    ),
    kind("", "serviceaccounts", "ServiceAccount", &["sa"], true, false),
    kind("apps", "deployments", "Deployment", &["deploy"], true, true),
    kind(RBAC, "clusterroles", "ClusterRole", &[], false, false),
    kind(
        RBAC,
        "clusterrolebindings",
        "ClusterRoleBinding",
        &[],
        false,
        false,
    ),
    kind("storage.k8s.io", "csinodes", "CSINode", &[], false, false),
    kind(
        "certificates.k8s.io",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        &["csr"],
        false,
        true,
    ),
    kind(
        ADMISSION,
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        &[],
        false,
        true,
    ),
    kind(
        ADMISSION,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        &[],
        false,
        false,
    ),
    kind(
        ADMISSION,
        "mutatingadmissionpolicies",
        "MutatingAdmissionPolicy",
        &[],
        false,
        false,
    ),
    kind(
        ADMISSION,
        "mutatingadmissionpolicybindings",
        "MutatingAdmissionPolicyBinding",
        &[],
        false,
        false,
    ),
    review(AUTHENTICATION, "tokenreviews", "TokenReview", false),
    review(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview", false),
    review(
        AUTHORIZATION,
        "subjectaccessreviews",
        "SubjectAccessReview",
        false,
    ),
    review(
        AUTHORIZATION,
        "localsubjectaccessreviews",
        "LocalSubjectAccessReview",
        true,
    ),
    review(
        AUTHORIZATION,
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        false,
    ),
    review(
        AUTHORIZATION,
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        false,
    ),
];

pub(super) static NAMESPACE: &ServedKind = &KINDS[0];
pub(super) static SERVICE: &ServedKind = &KINDS[3];
pub(super) static ENDPOINT_SLICE: &ServedKind = &KINDS[8];
pub(super) static VALIDATING: &ServedKind = &KINDS[10];
pub(super) static MUTATING: &ServedKind = &KINDS[11];
pub(super) static DEFINITION: &ServedKind = &KINDS[12];
pub(super) static REGISTRATION: &ServedKind = &KINDS[13];

impl ServedKind {
    /// The kind that a URL names; `None` when it is not served.
    pub(super) fn find(group: &str, version: &str, resource: &str) -> Option<&'static Self> {
        KINDS
            .iter()
            .find(|kind| kind.group == group && kind.version == version && kind.resource == resource)
    }

    /// What is served below an object's own URL under this name.
    pub(super) fn subresource(&'static self, name: &str) -> Option<Subresource> {
        subresources::find(self, name)
    }

    /// `apiVersion` of its objects.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `resource.group`, or the bare resource for the core group, as error messages name it.
    pub(super) fn qualified(&self) -> String {
        qualify(self.resource, self.group)
    }

    /// Whether it is one of the two webhook configuration kinds.
    pub(super) fn is_webhook_configuration(&self) -> bool {
        self == VALIDATING || self == MUTATING
    }
}

/// `name.group`, or the bare name for the core group.
pub(super) fn qualify(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_kinds_are_the_ones_they_say() {
        for (kind, name) in [
            (NAMESPACE, "Namespace"),
            (SERVICE, "Service"),
            (ENDPOINT_SLICE, "EndpointSlice"),
            (VALIDATING, "ValidatingWebhookConfiguration"),
            (MUTATING, "MutatingWebhookConfiguration"),
            (DEFINITION, "CustomResourceDefinition"),
            (REGISTRATION, "APIService"),
        ] {
            assert_eq!(kind.kind, name);
        }
    }
}
