//! Whether a shield gives anything back: what of a hook's requests it spares.

use super::observed::CanaryWord;
use crate::domain::bypass::spare::Spare;
use crate::domain::bypass::{CONDITION_PREFIX, SHIELDED_NAMESPACES};
use crate::domain::hook::{Hook, Labels, Rule, Scope};
use crate::domain::matching::RequestShape;

/// The resource of hookwatch's canary in kube-system, which little else writes.
const CANARY: &str = "configmaps";

/// How much of what a shield spares a hook is asked about, as far as its rules and selectors tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spared {
    /// Nothing.
    Nothing,
    /// What hookwatch's canaries write, and nothing else that every cluster writes: only failed calls show whether others
    /// write it.
    Perhaps,
    /// The control plane's writes.
    ControlPlane,
}

/// How much of what a shield spares a hook is asked about. `own` is the namespace of hookwatch; `labels` knows those of
/// namespaces, and what it does not know excludes nothing.
pub fn spared_of<'a>(hook: &'a Hook, own: &'a str, labels: impl Fn(&str) -> Option<&'a Labels>) -> Spared {
    let objects = is_asked_about_objects(hook, own, &labels);
    let known = objects || is_asked_within(hook, &|resource| resource != CANARY, &labels);
    match known || is_asked_within(hook, &|_| true, &labels) {
        true if known && !hook.names_hookwatch() => Spared::ControlPlane,
        true => Spared::Perhaps,
        false => Spared::Nothing,
    }
}

/// Whether it is asked about such resources in the control plane's namespaces.
fn is_asked_within<'a>(
    hook: &'a Hook,
    counts: &dyn Fn(&str) -> bool,
    labels: &impl Fn(&str) -> Option<&'a Labels>,
) -> bool {
    SHIELDED_NAMESPACES.into_iter().any(|namespace| {
        hook.rules.iter().flat_map(operations).any(|(rule, operation)| {
            let mut resources = rule.resources.iter();
            resources.any(|resource| {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                // Namespaces themselves are not spared, whatever they are called.
                let resource = if resource == "*" { "pods" } else { resource };
                resource != "namespaces"
                    && counts(resource)
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
    })
}

/// Whether it is asked about any of the objects that are spared wherever they are.
fn is_asked_about_objects<'a>(
    hook: &'a Hook,
    own: &'a str,
    labels: &impl Fn(&str) -> Option<&'a Labels>,
) -> bool {
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
            namespace_labels: namespace.and_then(labels),
            ..RequestShape::default()
        })
    };
    // Where the table does not say, it is not known which of the kinds have a namespace.
    hook.rules.iter().flat_map(operations).any(|(rule, operation)| {
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

impl Hook {
    /// Whether its owner's matchConditions or objectSelector are about hookwatch's own writes: by name, or by their being
    /// dry runs. Such a hook may meet nothing else.
    pub(in crate::domain) fn names_hookwatch(&self) -> bool {
        let names = |text: &str| {
            let text = text.to_ascii_lowercase();
            text.contains("hookwatch") || text.contains("dryrun")
        };
        let conditions = self.match_conditions.iter();
        let mut conditions = conditions.filter(|known| !known.name.starts_with(CONDITION_PREFIX));
        let labels = self.object_selector.match_labels.iter();
        let mut labels = labels.flat_map(|(key, value)| [key, value]);
        let expressions = self.object_selector.expressions.iter();
        let mut expressions = expressions.flat_map(|known| known.values.iter().chain([&known.key]));
        conditions.any(|condition| names(&condition.expression))
            || labels.any(|text| names(text))
            || expressions.any(|text| names(text))
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
    use crate::domain::hook::{Added, FailurePolicy, HookId, HookKind, MatchCondition, Selector, Target};

    fn meets(operations: &[&str], group: &str, resources: &[&str], selector: Selector) -> bool {
        spared(&asked(operations, group, resources, selector)) == Spared::ControlPlane
    }

    fn asked(operations: &[&str], group: &str, resources: &[&str], selector: Selector) -> Hook {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Hook {
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
        }
    }

    fn spared(hook: &Hook) -> Spared {
        let labels = |namespace: &str| Labels::from([("name".to_owned(), namespace.to_owned())]);
        let known: BTreeMap<&str, Labels> = ["kube-system", "kube-node-lease", "own"]
            .map(|name| (name, labels(name)))
            .into();
        spared_of(hook, "own", |namespace| known.get(namespace))
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

    #[test]
    fn what_hookwatch_alone_writes_is_told_apart_from_what_the_control_plane_lives_on() {
        let configmaps = |selector| asked(&["*"], "", &["configmaps"], selector);
        assert_eq!(spared(&configmaps(Selector::default())), Spared::Perhaps);
        assert_eq!(spared(&configmaps(only("own"))), Spared::Nothing);
        assert_eq!(
            spared(&asked(&["*"], "*", &["*"], only("own"))),
            Spared::ControlPlane
        );
    }

    #[test]
    fn a_hook_that_names_hookwatch_or_its_dry_runs_is_not_asked_by_the_control_plane_for_sure() {
        let everything = || asked(&["*"], "*", &["*"], Selector::default());
        let only_if = |name: &str, expression: &str| Hook {
            match_conditions: vec![MatchCondition {
                name: name.to_owned(),
                expression: expression.to_owned(),
            }],
            ..everything()
        };
        let nodes = only_if("nodes", "!('system:nodes' in request.userInfo.groups)");
        assert_eq!(spared(&nodes), Spared::ControlPlane);
        let shield = only_if("hookwatch.dev/shield", "request.dryRun");
        assert_eq!(spared(&shield), Spared::ControlPlane);
        for expression in ["request.dryRun", "request.name == 'HookWatch-canary'"] {
            assert_eq!(
                spared(&only_if("mine", expression)),
                Spared::Perhaps,
                "{expression}"
            );
        }
        let selected = Hook {
            object_selector: Selector {
                match_labels: Labels::from([("app".to_owned(), "hookwatch".to_owned())]),
                expressions: Vec::new(),
            },
            ..everything()
        };
        assert_eq!(spared(&selected), Spared::Perhaps);
    }
}
