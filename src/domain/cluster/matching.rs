//! Which requests a hook is called for, decided as the API server decides it.
//!
//! The order of the checks does not matter: `namespaceSelector`, `objectSelector` and one of `rules` must all match the
//! request (kube-apiserver 1.36, `admission/plugin/webhook/{generic,predicates}`). `matchConditions` come after that;
//! they are CEL over the whole request, and [`conditions`] evaluates them as far as possible.

pub mod conditions;
pub mod equivalent;
pub mod expression;
pub mod requesters;

use super::hook::{
    Hook, HookRule, Labels, MatchPolicy, Scope, Selector, SelectorOperator, SelectorRequirement,
};

/// The part of a request that matching uses.
///
/// `None` means unknown, except for `namespace`, and excludes nothing: [`Hook::could_match`] answers whether the hook *could* be
/// called. A caller that knows every value gets the API server's own answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestShape<'a> {
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: &'a str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The API version.
    pub version: &'a str,
    /// The resource's plural name, without the subresource.
    pub resource: &'a str,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The namespace the request goes to; `None` for a cluster-scoped object. Only its presence matters, not its name.
    /// Ignored for Namespace objects.
    pub namespace: Option<&'a str>,
    /// The labels of that namespace (or of the Namespace object itself, when it is deleted).
    pub namespace_labels: Option<&'a Labels>,
    /// The labels of the object in the request; `None` together with `old_labels` when unknown.
    pub object_labels: Option<&'a Labels>,
    /// The labels of the object as it is stored; `None` when there is none or it is unknown.
    pub old_labels: Option<&'a Labels>,
}

/// Group, version, resource and subresource of Leases, which leaders and nodes renew.
pub const LEASES: [&str; 4] = ["coordination.k8s.io", "v1", "leases", ""];

/// The authenticated user of a request.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'a> {
    /// `userInfo.username`.
    pub user: &'a str,
    /// `userInfo.groups`.
    pub groups: &'a [&'a str],
}

impl<'a> RequestShape<'a> {
    /// A write of a cluster-scoped resource, given as group, version, plural name and subresource; all labels are unknown.
    pub fn new(operation: &'a str, [group, version, resource, subresource]: [&'a str; 4]) -> Self {
        Self {
            operation,
            group,
            version,
            resource,
            subresource,
            ..Self::default()
        }
    }

    /// Whether the request writes one of the kinds for which the API server calls no webhook.
    ///
    /// Otherwise a broken hook could block its own repair (`predicates/rules/rules.go`).
    pub fn is_exempt(&self) -> bool {
        self.group == "admissionregistration.k8s.io"
            && matches!(
                self.resource,
                "validatingwebhookconfigurations"
                    | "mutatingwebhookconfigurations"
                    | "validatingadmissionpolicies"
                    | "validatingadmissionpolicybindings"
                    | "mutatingadmissionpolicies"
                    | "mutatingadmissionpolicybindings"
            )
    }

    /// Whether the request writes a Namespace object, whose own labels the `namespaceSelector` is matched against.
    ///
    /// Like the API server, this compares only the resource's name, not its group.
    fn is_namespace(&self) -> bool {
        self.resource == "namespaces"
    }

    /// Whether a rule with `scope: Cluster` matches the request.
    fn is_cluster_scoped(&self) -> bool {
        (self.group.is_empty() && self.version == "v1" && self.is_namespace()) || self.namespace.is_none()
    }

    /// The labels that a `namespaceSelector` is matched against; `None` when they are unknown.
    fn selected_namespace_labels(&self) -> Option<&'a Labels> {
        let written = matches!(self.operation, "CREATE" | "UPDATE");
        if self.is_namespace() && self.subresource.is_empty() && written {
            return self.object_labels;
        }
        if self.is_namespace() {
            return self.namespace_labels.or(self.old_labels);
        }
        self.namespace_labels
    }
}

impl SelectorRequirement {
    /// Whether the labels satisfy this requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            SelectorOperator::In => listed,
            SelectorOperator::NotIn => !listed,
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}

impl Selector {
    /// Whether it has no requirements and so selects everything.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.expressions.is_empty()
    }

    /// Whether the labels satisfy every requirement.
    pub fn matches(&self, labels: &Labels) -> bool {
        has_all(labels, &self.match_labels)
            && self
                .expressions
                .iter()
                .all(|requirement| requirement.matches(labels))
    }
}

impl HookRule {
    /// Whether `operations` has this operation or `*`.
    pub fn names_operation(&self, operation: &str) -> bool {
        listed(&self.operations, operation)
    }

    /// The first of its groups; the core group if that is `*` or there is none.
    pub fn group(&self) -> &str {
        one(&self.api_groups, "")
    }

    /// The first of its versions; `v1` if that is `*` or there is none.
    pub fn version(&self) -> &str {
        one(&self.api_versions, "v1")
    }

    /// Whether the rule covers the request, without regard to selectors and exempt kinds.
    pub fn matches(&self, request: &RequestShape<'_>) -> bool {
        let scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => request.is_cluster_scoped(),
            Scope::Namespaced => !request.is_cluster_scoped(),
        };
        scope
            && self.names_operation(request.operation)
            && listed(&self.api_groups, request.group)
            && listed(&self.api_versions, request.version)
            && self
                .resources
                .iter()
                .any(|resource| resource_matches(resource, request))
    }
}

impl Hook {
    /// Whether the API server would call this hook for such a request if its `matchConditions` are true ([`lets_through`]).
    pub fn could_match(&self, request: &RequestShape<'_>) -> bool {
        lets_through(
            (&self.rules, self.match_policy),
            &self.namespace_selector,
            &self.object_selector,
            request,
        )
    }

    /// Whether the request has all the labels that evaluating the hook's selectors needs.
    pub fn knows_selected(&self, request: &RequestShape<'_>) -> bool {
        let by_namespace = self.namespace_selector.is_empty()
            || request.namespace.is_none() && !request.is_namespace()
            || request.selected_namespace_labels().is_some();
        let by_object = self.object_selector.is_empty() || request.object_labels.is_some();
        by_namespace && by_object
    }
}

/// Whether selectors and rules let a request through to a hook.
///
/// `namespaceSelector` never excludes cluster-scoped objects, except Namespace objects by their own labels. `objectSelector`
/// matches a request if it selects the new *or* the old object. Under `matchPolicy: Equivalent` a rule also covers the
/// resources that it names, served in another group or version ([`equivalent`]).
pub fn lets_through(
    (rules, policy): (&[HookRule], MatchPolicy),
    namespace_selector: &Selector,
    object_selector: &Selector,
    request: &RequestShape<'_>,
) -> bool {
    let namespace_lets = (request.namespace.is_none() && !request.is_namespace())
        || request
            .selected_namespace_labels()
            .is_none_or(|labels| namespace_selector.matches(labels));
    let mut known = [request.object_labels, request.old_labels]
        .into_iter()
        .flatten()
        .peekable();
    let object_lets = known.peek().is_none() || known.any(|labels| object_selector.matches(labels));
    let named = || {
        rules.iter().any(|rule| rule.matches(request))
            || policy == MatchPolicy::Equivalent && equivalent::names(rules, request)
    };
    !request.is_exempt() && namespace_lets && object_lets && named()
}

/// Whether labels or annotations include all the `wanted` pairs.
pub fn has_all(labels: &Labels, wanted: &Labels) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// The first of `items`; `any` if that is `*` or there is none.
fn one<'a>(items: &'a [String], any: &'a str) -> &'a str {
    let first = items.first().map_or("*", String::as_str);
    if first == "*" { any } else { first }
}

/// Whether `items` holds the requested word or `*`.
fn listed(items: &[String], requested: &str) -> bool {
    items.iter().any(|item| item == "*" || item == requested)
}

/// Whether one entry of `resources` covers the request: `*` is every resource without its subresources, `*/*` with them.
fn resource_matches(entry: &str, request: &RequestShape<'_>) -> bool {
    let (resource, subresource) = entry.split_once('/').unwrap_or((entry, ""));
    (resource == "*" || resource == request.resource)
        && (subresource == "*" || subresource == request.subresource)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cluster::hook::{HookId, HookKind, HookTarget};

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn strings(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    /// A hook that is called for these resources and has no backend.
    pub(crate) fn hook(resources: &[&str]) -> Hook {
        let id = HookId::new(HookKind::Validating, "configuration", "w.example");
        Hook {
            rules: vec![HookRule {
                operations: strings(&["CREATE", "UPDATE"]),
                api_groups: strings(&["*"]),
                api_versions: strings(&["*"]),
                resources: strings(resources),
                scope: Scope::All,
            }],
            ..Hook::new(id, HookTarget::Invalid(String::new()))
        }
    }

    fn pod() -> RequestShape<'static> {
        RequestShape {
            operation: "CREATE",
            version: "v1",
            resource: "pods",
            namespace: Some("tenant"),
            ..RequestShape::default()
        }
    }

    #[test]
    fn a_star_covers_objects_and_only_a_slash_covers_subresources() {
        let status = RequestShape {
            operation: "UPDATE",
            subresource: "status",
            ..pod()
        };
        for (entry, object, subresource) in [
            ("*", true, false),
            ("*/*", true, true),
            ("pods", true, false),
            ("pods/*", true, true),
            ("pods/status", false, true),
            ("*/status", false, true),
            ("pods/scale", false, false),
            ("configmaps", false, false),
        ] {
            let hook = hook(&[entry]);
            assert_eq!(hook.could_match(&pod()), object, "{entry} on pods");
            assert_eq!(hook.could_match(&status), subresource, "{entry} on pods/status");
        }
    }

    #[test]
    fn operation_group_and_version_must_each_be_listed() {
        let mut narrow = hook(&["pods"]);
        narrow.rules[0].api_groups = strings(&[""]);
        narrow.rules[0].api_versions = strings(&["v1"]);
        assert!(narrow.could_match(&pod()));
        assert!(!narrow.could_match(&RequestShape {
            group: "apps",
            ..pod()
        }));
        assert!(!narrow.could_match(&RequestShape {
            version: "v2",
            ..pod()
        }));
        let delete = RequestShape {
            operation: "DELETE",
            ..pod()
        };
        assert!(!narrow.could_match(&delete));
        narrow.rules[0].operations = strings(&["*"]);
        assert!(narrow.could_match(&delete));
    }

    #[test]
    fn the_scope_of_a_rule_counts_namespaces_among_cluster_scoped_objects() {
        let node = RequestShape {
            resource: "nodes",
            namespace: None,
            ..pod()
        };
        let namespace = RequestShape {
            resource: "namespaces",
            namespace: Some("tenant"),
            ..pod()
        };
        for (scope, of_pod, of_node, of_namespace) in [
            (Scope::All, true, true, true),
            (Scope::Cluster, false, true, true),
            (Scope::Namespaced, true, false, false),
        ] {
            let mut hook = hook(&["*"]);
            hook.rules[0].scope = scope;
            assert_eq!(hook.could_match(&pod()), of_pod, "{scope:?} on a Pod");
            assert_eq!(hook.could_match(&node), of_node, "{scope:?} on a Node");
            assert_eq!(
                hook.could_match(&namespace),
                of_namespace,
                "{scope:?} on a Namespace"
            );
        }
    }

    #[test]
    fn every_operator_reads_an_absent_label_as_kubernetes_does() {
        let requirement = |operator, values: &[&str]| SelectorRequirement {
            key: "tier".into(),
            operator,
            values: strings(values),
        };
        for (operator, values, gold, silver, absent) in [
            (SelectorOperator::In, &["gold"][..], true, false, false),
            (SelectorOperator::NotIn, &["gold"][..], false, true, true),
            (SelectorOperator::Exists, &[][..], true, true, false),
            (SelectorOperator::DoesNotExist, &[][..], false, false, true),
        ] {
            let requirement = requirement(operator, values);
            for (value, wanted) in [(Some("gold"), gold), (Some("silver"), silver), (None, absent)] {
                let labels = value.map(|value| labels(&[("tier", value)])).unwrap_or_default();
                assert_eq!(requirement.matches(&labels), wanted, "{operator:?} on {value:?}");
            }
        }
    }

    #[test]
    fn a_selector_wants_all_of_its_requirements_and_an_empty_one_wants_nothing() {
        assert!(Selector::default().matches(&Labels::new()));
        let selector = Selector {
            match_labels: labels(&[("team", "a")]),
            expressions: vec![SelectorRequirement {
                key: "tier".into(),
                operator: SelectorOperator::Exists,
                values: Vec::new(),
            }],
        };
        assert!(selector.matches(&labels(&[("team", "a"), ("tier", "x")])));
        assert!(!selector.matches(&labels(&[("team", "a")])));
        assert!(!selector.matches(&labels(&[("team", "b"), ("tier", "x")])));
    }

    #[test]
    fn a_namespace_selector_excludes_namespaced_objects_but_no_cluster_scoped_one() {
        let mut hook = hook(&["*"]);
        hook.namespace_selector.match_labels = labels(&[("guarded", "yes")]);
        let (guarded, plain) = (labels(&[("guarded", "yes")]), Labels::new());
        let with = |labels| RequestShape {
            namespace_labels: Some(labels),
            ..pod()
        };
        assert!(hook.could_match(&with(&guarded)));
        assert!(!hook.could_match(&with(&plain)));
        assert!(hook.could_match(&pod()), "unknown labels exclude nothing");
        let node = RequestShape {
            resource: "nodes",
            namespace: None,
            namespace_labels: Some(&plain),
            ..pod()
        };
        assert!(hook.could_match(&node));
    }

    #[test]
    fn a_namespace_stands_before_the_namespace_selector_with_its_own_labels() {
        let mut hook = hook(&["namespaces"]);
        hook.rules[0].operations = strings(&["*"]);
        hook.namespace_selector.match_labels = labels(&[("guarded", "yes")]);
        let (guarded, plain) = (labels(&[("guarded", "yes")]), Labels::new());
        let create = |own| RequestShape {
            operation: "CREATE",
            version: "v1",
            resource: "namespaces",
            object_labels: Some(own),
            ..RequestShape::default()
        };
        assert!(hook.could_match(&create(&guarded)));
        assert!(!hook.could_match(&create(&plain)));
        let delete = |stored| RequestShape {
            operation: "DELETE",
            object_labels: None,
            old_labels: Some(stored),
            ..create(stored)
        };
        assert!(hook.could_match(&delete(&guarded)));
        assert!(!hook.could_match(&delete(&plain)));
    }

    #[test]
    fn an_object_selector_looks_at_the_old_and_the_new_object() {
        let mut hook = hook(&["pods"]);
        hook.object_selector.match_labels = labels(&[("app", "web")]);
        let (web, other) = (labels(&[("app", "web")]), Labels::new());
        for (new, old, wanted) in [
            (Some(&web), None, true),
            (Some(&other), None, false),
            (Some(&other), Some(&web), true),
            (Some(&other), Some(&other), false),
            (None, Some(&other), false),
            (None, None, true),
        ] {
            let request = RequestShape {
                object_labels: new,
                old_labels: old,
                ..pod()
            };
            assert_eq!(hook.could_match(&request), wanted, "new {new:?}, old {old:?}");
        }
    }

    #[test]
    fn no_hook_is_asked_about_webhook_configurations_or_policies() {
        let mut catch_all = hook(&["*/*"]);
        catch_all.rules[0].operations = strings(&["*"]);
        for resource in [
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        ] {
            let request = RequestShape {
                operation: "UPDATE",
                group: "admissionregistration.k8s.io",
                version: "v1",
                resource,
                ..RequestShape::default()
            };
            assert!(!catch_all.could_match(&request), "{resource}");
        }
        let lease = RequestShape {
            group: "coordination.k8s.io",
            resource: "leases",
            namespace: Some("kube-system"),
            ..pod()
        };
        assert!(
            catch_all.could_match(&lease),
            "Leases are not spared, however much that hurts"
        );
    }

    #[test]
    fn a_rule_for_any_group_and_version_stands_for_v1_of_the_core_group() {
        let mut rule = hook(&["pods"]).rules.remove(0);
        assert_eq!((rule.group(), rule.version()), ("", "v1"));
        rule.api_groups = strings(&["apps", "batch"]);
        rule.api_versions = strings(&["v1beta1", "v1"]);
        assert_eq!((rule.group(), rule.version()), ("apps", "v1beta1"));
    }

    #[test]
    fn a_hook_without_rules_is_asked_nothing() {
        let mut hook = hook(&["*/*"]);
        hook.rules.clear();
        assert!(!hook.could_match(&pod()));
    }
}
