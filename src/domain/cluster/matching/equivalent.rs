//! `matchPolicy: Equivalent`: a rule also covers requests for the same resource in another group or version.
//!
//! To the API server, resources with the same storage are equivalent: all versions of a resource that it serves in a group, and
//! a few resources that moved from one group to another (kube-apiserver 1.36, `apimachinery/pkg/runtime/mapper.go`,
//! `pkg/kubeapiserver/default_storage_factory_builder.go`). For Kubernetes' own resources this module has the versions that
//! 1.36 serves by default. For a custom resource all versions in its definition are equivalent, served or not
//! (`apiextensions-apiserver/pkg/apiserver/customresource_handler.go`). They are unknown here, so every version that a rule
//! names counts.

use super::RequestShape;
use crate::cluster::hook::HookRule;

/// The resources of Kubernetes itself that 1.36 serves under more than one group and version by default.
const TWICE: [(&str, &[(&str, &str)]); 2] = [
    ("events", &[("", "v1"), ("events.k8s.io", "v1")]),
    (
        "horizontalpodautoscalers",
        &[("autoscaling", "v1"), ("autoscaling", "v2")],
    ),
];

/// Kubernetes' own API groups. Which versions other groups serve is unknown here.
const OWN_GROUPS: [&str; 22] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Whether one of the rules covers the request's resource in another group or version.
pub(super) fn names(rules: &[HookRule], request: &RequestShape<'_>) -> bool {
    let Some(served) = by_default(request) else {
        return rules.iter().any(|rule| {
            rule.api_versions
                .iter()
                .any(|version| rule.matches(&RequestShape { version, ..*request }))
        });
    };
    let is_other = |place: &&(&str, &str)| **place != (request.group, request.version);
    rules.iter().any(|rule| {
        served.iter().filter(is_other).any(|(group, version)| {
            rule.matches(&RequestShape {
                group,
                version,
                ..*request
            })
        })
    })
}

/// The groups and versions in which Kubernetes serves one of its own resources, empty if there is only one; `None` for other
/// resources.
fn by_default(request: &RequestShape<'_>) -> Option<&'static [(&'static str, &'static str)]> {
    let place = (request.group, request.version);
    let twice = TWICE
        .iter()
        .find(|(resource, served)| *resource == request.resource && served.contains(&place));
    match twice {
        Some((_, served)) => Some(served),
        None => OWN_GROUPS.contains(&request.group).then_some(&[]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hook;
    use super::*;
    use crate::cluster::hook::{Hook, MatchPolicy};

    fn asked_about(group: &str, version: &str, resource: &str) -> Hook {
        let mut hook = hook(&[resource]);
        hook.rules[0].api_groups = vec![group.to_owned()];
        hook.rules[0].api_versions = vec![version.to_owned()];
        hook
    }

    fn written<'a>(group: &'a str, version: &'a str, resource: &'a str) -> RequestShape<'a> {
        RequestShape {
            operation: "CREATE",
            group,
            version,
            resource,
            namespace: Some("tenant"),
            ..RequestShape::default()
        }
    }

    #[test]
    fn an_event_is_one_resource_in_both_of_its_groups_unless_the_policy_is_exact() {
        let mut hook = asked_about("", "v1", "events");
        assert!(hook.could_match(&written("events.k8s.io", "v1", "events")));
        assert!(!hook.could_match(&written("events.example.com", "v1", "events")));
        hook.match_policy = MatchPolicy::Exact;
        assert!(!hook.could_match(&written("events.k8s.io", "v1", "events")));
    }

    #[test]
    fn a_version_of_kubernetes_own_that_is_not_served_is_no_equivalent() {
        let hook = asked_about("extensions", "v1beta1", "deployments");
        let request = written("apps", "v1", "deployments");
        assert!(!hook.could_match(&request), "1.36 serves apps/v1 alone");
    }

    #[test]
    fn of_a_custom_resource_every_version_that_a_rule_names_counts() {
        let hook = asked_about("example.com", "v1", "widgets");
        assert!(hook.could_match(&written("example.com", "v2", "widgets")));
        assert!(!hook.could_match(&written("example.org", "v2", "widgets")));
    }

    #[test]
    fn operations_scope_and_subresource_count_for_equivalents_too() {
        let mut hook = asked_about("autoscaling", "v2", "horizontalpodautoscalers");
        let mut request = written("autoscaling", "v1", "horizontalpodautoscalers");
        assert!(hook.could_match(&request));
        request.subresource = "status";
        assert!(!hook.could_match(&request));
        request.subresource = "";
        hook.rules[0].operations = vec!["DELETE".to_owned()];
        assert!(!hook.could_match(&request));
    }
}
