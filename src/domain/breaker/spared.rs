//! Whether a shield gives anything back: what of a hook's requests it spares.

use super::observed::CanaryWord;
use crate::domain::bypass::SHIELDED_NAMESPACES;
use crate::domain::hook::{Hook, Labels, Rule, Scope};
use crate::domain::matching::RequestShape;

/// What is spared wherever it is: group, resource, subresource.
const EVERYWHERE: [(&str, &str, &str); 19] = [
    ("authentication.k8s.io", "tokenreviews", ""),
    ("authentication.k8s.io", "selfsubjectreviews", ""),
    ("authorization.k8s.io", "subjectaccessreviews", ""),
    ("authorization.k8s.io", "localsubjectaccessreviews", ""),
    ("authorization.k8s.io", "selfsubjectaccessreviews", ""),
    ("authorization.k8s.io", "selfsubjectrulesreviews", ""),
    ("discovery.k8s.io", "endpointslices", ""),
    ("", "nodes", ""),
    ("", "nodes", "status"),
    ("", "pods", "status"),
    ("", "serviceaccounts", "token"),
    ("storage.k8s.io", "csinodes", ""),
    ("certificates.k8s.io", "certificatesigningrequests", ""),
    // What an API server writes while it starts.
    ("rbac.authorization.k8s.io", "clusterroles", ""),
    ("rbac.authorization.k8s.io", "clusterrolebindings", ""),
    ("scheduling.k8s.io", "priorityclasses", ""),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", ""),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", ""),
    ("apiregistration.k8s.io", "apiservices", ""),
];

/// Whether a hook is asked about anything that a shield spares, as far as its rules and selectors tell. `own` is the
/// namespace of hookwatch; `labels` knows those of namespaces, and what it does not know excludes nothing.
pub fn meets_control_plane<'a>(
    hook: &'a Hook,
    own: &'a str,
    labels: impl Fn(&str) -> Option<&'a Labels>,
) -> bool {
    let rules = || hook.rules.iter().flat_map(operations);
    let [system, leases] = SHIELDED_NAMESPACES;
    let within = [system, leases, own].into_iter().any(|namespace| {
        rules().any(|(rule, operation)| {
            let mut resources = rule.resources.iter();
            resources.any(|resource| {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                // Namespaces themselves are not spared, whatever they are called.
                let resource = if resource == "*" { "pods" } else { resource };
                resource != "namespaces"
                    && rule.scope != Scope::Cluster
                    && hook.could_match(&RequestShape {
                        operation,
                        group: first(&rule.api_groups),
                        version: first(&rule.api_versions),
                        resource,
                        subresource: if subresource == "*" { "" } else { subresource },
                        namespace: Some(namespace),
                        namespace_labels: labels(namespace),
                        ..RequestShape::default()
                    })
            })
        })
    });
    within
        || rules().any(|(rule, operation)| {
            EVERYWHERE.iter().any(|(group, resource, subresource)| {
                let request = RequestShape {
                    operation,
                    group,
                    version: first(&rule.api_versions),
                    resource,
                    subresource,
                    ..RequestShape::default()
                };
                let namespaced = RequestShape {
                    namespace: Some("any"),
                    ..request
                };
                let is_namespaced = matches!(
                    *resource,
                    "localsubjectaccessreviews" | "endpointslices" | "pods" | "serviceaccounts"
                );
                hook.could_match(if is_namespaced { &namespaced } else { &request })
            })
        })
}

/// Whether a shield may spare a write of such an object, by what and where it is. Who writes it decides as well, and that
/// is not known here. `own` is the namespace of hookwatch.
pub fn may_spare(request: &RequestShape<'_>, own: &str) -> bool {
    let within = request
        .namespace
        .is_some_and(|namespace| namespace == own || SHIELDED_NAMESPACES.contains(&namespace));
    let itself = (request.group, request.resource, request.subresource);
    within && request.resource != "namespaces" || EVERYWHERE.contains(&itself)
}

/// The operations of a rule that a shield can spare: `CONNECT` it never does.
fn operations(rule: &Rule) -> impl Iterator<Item = (&Rule, &str)> {
    let all = rule.operations.iter().any(|operation| operation == "*");
    let named = ["CREATE", "UPDATE", "DELETE"];
    let named = named
        .into_iter()
        .filter(move |named| all || rule.operations.iter().any(|known| known == named));
    named.map(move |operation| (rule, operation))
}

/// The first of some names, with something for `*`.
fn first(names: &[String]) -> &str {
    match names.first().map_or("", String::as_str) {
        "*" => "v1",
        name => name,
    }
}

impl CanaryWord {
    /// Whether a canary meets the hook at all.
    pub fn is_met(self) -> bool {
        self != Self::Unmet
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::domain::hook::{FailurePolicy, HookId, HookKind, Selector, Target};

    fn meets(operations: &[&str], group: &str, resources: &[&str], selector: Selector) -> bool {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let hook = Hook {
            id: HookId::new(HookKind::Validating, "c", "w"),
            configuration_uid: String::new(),
            created: None,
            target: Target::Invalid(String::new()),
            ca_bundle: [].into(),
            failure_policy: FailurePolicy::Fail,
            timeout: Duration::from_secs(10),
            rules: vec![Rule {
                operations: texts(operations),
                api_groups: texts(&[group]),
                api_versions: texts(&["*"]),
                resources: texts(resources),
                scope: Scope::All,
            }],
            namespace_selector: selector,
            object_selector: Selector::default(),
            match_conditions: Vec::new(),
            dry_run_safe: true,
            review_versions: Vec::new(),
            probe_level: None,
            other: None,
            problems: Vec::new(),
        };
        let labels = |namespace: &str| Labels::from([("name".to_owned(), namespace.to_owned())]);
        let known: BTreeMap<&str, Labels> = ["kube-system", "kube-node-lease", "own"]
            .map(|name| (name, labels(name)))
            .into();
        meets_control_plane(&hook, "own", |namespace| known.get(namespace))
    }

    fn only(namespace: &str) -> Selector {
        Selector {
            match_labels: Labels::from([("name".to_owned(), namespace.to_owned())]),
            expressions: Vec::new(),
        }
    }

    #[test]
    fn whatever_is_asked_about_objects_in_kube_system_is_spared_by_a_shield() {
        assert!(meets(&["*"], "*", &["*"], Selector::default()));
        assert!(meets(&["CREATE"], "apps", &["deployments"], Selector::default()));
        assert!(meets(
            &["UPDATE"],
            "coordination.k8s.io",
            &["leases"],
            only("kube-node-lease")
        ));
        assert!(!meets(&["CREATE"], "apps", &["deployments"], only("shop")));
    }

    #[test]
    fn what_keeps_nodes_alive_is_spared_wherever_it_is() {
        assert!(meets(&["UPDATE"], "", &["nodes/status"], only("shop")));
        assert!(meets(
            &["CREATE"],
            "authentication.k8s.io",
            &["tokenreviews"],
            only("shop")
        ));
    }

    #[test]
    fn execs_and_namespaces_are_not_spared() {
        assert!(!meets(&["CONNECT"], "", &["pods/exec"], Selector::default()));
        assert!(!meets(&["CREATE"], "", &["namespaces"], Selector::default()));
    }
}
