//! Which writes a hook is called for, in one sentence.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::hook::{Hook, HookRule, Labels, Scope};
use crate::text::listed;

/// Most names listed; of the rest only the number.
const TOLD: usize = 4;

/// For instance: `It is called for CREATE, UPDATE of pods, services.apps in all namespaces but opa.`
pub(super) fn sentence(hook: &Hook, namespaces: Option<&BTreeMap<String, Labels>>) -> Option<String> {
    if hook.rules.is_empty() {
        return None;
    }
    let operations = hook.rules.iter().flat_map(|rule| rule.operations.iter().cloned());
    let operations = all_or_named("every operation", operations);
    let resources = all_or_named("all resources", hook.rules.iter().flat_map(resources));
    let cluster_only = hook.rules.iter().all(|rule| rule.scope == Scope::Cluster);
    let place = (!cluster_only).then(|| format!(" in {}", places(hook, namespaces)));
    let place = place.unwrap_or_default();
    let selects = (!hook.object_selector.is_empty()).then_some(", objects that its objectSelector selects");
    let allows = (!hook.match_conditions.is_empty()).then_some(", as far as its matchConditions allow");
    let (objects, conditions) = (selects.unwrap_or_default(), allows.unwrap_or_default());
    Some(format!(
        "It is called for {operations} of {resources}{place}{objects}{conditions}."
    ))
}

fn all_or_named(all: &str, names: impl Iterator<Item = String>) -> String {
    let names: BTreeSet<String> = names.collect();
    if names.contains("*") {
        return all.to_owned();
    }
    listed(&names.into_iter().collect::<Vec<_>>(), TOLD)
}

fn resources(rule: &HookRule) -> impl Iterator<Item = String> {
    let named = |group: &str, resource: &str| match (group, resource) {
        ("*", "*" | "*/*") => "*".to_owned(),
        ("" | "*", resource) => resource.to_owned(),
        (group, resource) => format!("{resource}.{group}"),
    };
    let groups = rule.api_groups.iter();
    groups.flat_map(move |group| rule.resources.iter().map(move |resource| named(group, resource)))
}

fn places(hook: &Hook, namespaces: Option<&BTreeMap<String, Labels>>) -> String {
    if hook.namespace_selector.is_empty() {
        return "all namespaces".to_owned();
    }
    let Some(namespaces) = namespaces.filter(|namespaces| !namespaces.is_empty()) else {
        return "the namespaces that its namespaceSelector selects".to_owned();
    };
    let (selected, spared): (Vec<_>, Vec<_>) = namespaces
        .iter()
        .partition(|(_, labels)| hook.namespace_selector.matches(labels));
    let names = |of: Vec<(&String, &Labels)>| all_or_named("", of.into_iter().map(|(name, _)| name.clone()));
    match (selected.is_empty(), spared.is_empty()) {
        (true, _) => "no namespace that there is".to_owned(),
        (_, true) => "all namespaces".to_owned(),
        _ if spared.len() <= selected.len() => format!("all namespaces but {}", names(spared)),
        _ => names(selected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::hook::{Selector, SelectorOperator, SelectorRequirement};
    use crate::cluster::matching::tests::hook;

    fn rule(operations: &[&str], groups: &[&str], resources: &[&str]) -> HookRule {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        HookRule {
            operations: owned(operations),
            api_groups: owned(groups),
            api_versions: owned(&["*"]),
            resources: owned(resources),
            scope: Scope::All,
        }
    }

    fn but_opa() -> Selector {
        Selector {
            match_labels: Labels::new(),
            expressions: vec![SelectorRequirement {
                key: "name".into(),
                operator: SelectorOperator::NotIn,
                values: vec!["opa".into()],
            }],
        }
    }

    #[test]
    fn rules_and_selectors_become_one_sentence() {
        let namespaces: BTreeMap<String, Labels> = ["opa", "a", "b"]
            .map(|name| (name.to_owned(), [("name".to_owned(), name.to_owned())].into()))
            .into();
        let mut hook = hook(&["*"]);
        hook.rules = vec![rule(&["CREATE", "UPDATE"], &["*"], &["*/*"])];
        hook.namespace_selector = but_opa();
        assert_eq!(
            sentence(&hook, Some(&namespaces)).as_deref(),
            Some("It is called for CREATE, UPDATE of all resources in all namespaces but opa.")
        );
        assert_eq!(
            sentence(&hook, None).as_deref(),
            Some(
                "It is called for CREATE, UPDATE of all resources in the namespaces that its namespaceSelector selects."
            )
        );
        hook.namespace_selector = Selector::default();
        hook.rules = vec![
            rule(&["CREATE"], &[""], &["services"]),
            rule(&["*"], &["coordination.k8s.io"], &["leases"]),
        ];
        assert_eq!(
            sentence(&hook, None).as_deref(),
            Some(
                "It is called for every operation of leases.coordination.k8s.io, services in all namespaces."
            )
        );
        hook.rules.clear();
        assert_eq!(sentence(&hook, None), None);
    }

    #[test]
    fn long_lists_end_in_a_number() {
        let mut hook = hook(&["*"]);
        hook.rules = vec![rule(&["CREATE"], &["apps"], &["a", "b", "c", "d", "e", "f"])];
        let said = sentence(&hook, None).unwrap_or_default();
        assert!(
            said.contains("a.apps, b.apps, c.apps, d.apps and 2 more"),
            "{said}"
        );
    }
}
