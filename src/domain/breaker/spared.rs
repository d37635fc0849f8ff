//! Whether a shield gives anything back: what of a hook's requests it spares.

use super::observed::CanaryWord;
use crate::domain::bypass::SHIELDED_NAMESPACES;
use crate::domain::bypass::spare::Spare;
use crate::domain::hook::{Hook, Labels, Rule, Scope};
use crate::domain::matching::RequestShape;

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
    let spare = Spare {
        own,
        added: &hook.added,
    };
    let meets = |rule: &Rule, namespace, operation, (group, resource, subresource)| {
        hook.could_match(&RequestShape {
            operation,
            group,
            version: first(&rule.api_versions),
            resource,
            subresource,
            namespace,
            namespace_labels: namespace.and_then(&labels),
            ..RequestShape::default()
        })
    };
    // Where the table does not say, it is not known which of the kinds have a namespace.
    within
        || rules().any(|(rule, operation)| {
            let mut objects = spare.objects().filter(|(spared, ..)| *spared == operation);
            objects.any(|(operation, object, namespace)| {
                let anywhere = namespace.is_none() && meets(rule, None, operation, object);
                anywhere || meets(rule, namespace.or(Some("")), operation, object)
            })
        })
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
    use crate::domain::hook::{Added, FailurePolicy, HookId, HookKind, Selector, Target};

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
            reinvoked: false,
            review_versions: Vec::new(),
            probe_level: None,
            added: Added::default(),
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
