//! Which writes a hook is called for, in one sentence.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::hook::{Hook, Labels, Scope};

/// Names told of a list; the rest is a number.
const TOLD: usize = 4;

/// For instance: `It is called for CREATE, UPDATE of pods, services.apps in all namespaces but opa.`
pub(super) fn sentence(hook: &Hook, namespaces: Option<&BTreeMap<String, Labels>>) -> Option<String> {
    if hook.rules.is_empty() {
        return None;
    }
    let operations: BTreeSet<&str> = hook
        .rules
        .iter()
        .flat_map(|rule| rule.operations.iter().map(String::as_str))
        .collect();
    let operations = match operations.contains("*") {
        true => "every operation".to_owned(),
        false => list(operations.into_iter().map(str::to_owned).collect()),
    };
    let mut resources: BTreeSet<String> = BTreeSet::new();
    for rule in &hook.rules {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                resources.insert(match (group.as_str(), resource.as_str()) {
                    ("*", "*" | "*/*") => "*".to_owned(),
                    ("" | "*", resource) => resource.to_owned(),
                    (group, resource) => format!("{resource}.{group}"),
                });
            }
        }
    }
    let resources = match resources.contains("*") {
        true => "all resources".to_owned(),
        false => list(resources.into_iter().collect()),
    };
    let cluster_only = hook.rules.iter().all(|rule| rule.scope == Scope::Cluster);
    let place = match cluster_only {
        true => String::new(),
        false => format!(" in {}", places(hook, namespaces)),
    };
    let objects = match hook.object_selector.is_empty() {
        true => "",
        false => ", objects that its objectSelector selects",
    };
    let conditions = match hook.match_conditions.is_empty() {
        true => "",
        false => ", as far as its matchConditions allow",
    };
    Some(format!(
        "It is called for {operations} of {resources}{place}{objects}{conditions}."
    ))
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
    let names = |of: Vec<(&String, &Labels)>| list(of.into_iter().map(|(name, _)| name.clone()).collect());
    match (selected.is_empty(), spared.is_empty()) {
        (true, _) => "no namespace that there is".to_owned(),
        (_, true) => "all namespaces".to_owned(),
        _ if spared.len() <= selected.len() => format!("all namespaces but {}", names(spared)),
        _ => names(selected),
    }
}

fn list(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(TOLD);
    names.truncate(TOLD);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hook::{Rule, Selector, SelectorOperator, SelectorRequirement};
    use crate::domain::matching::tests::hook;

    fn rule(operations: &[&str], groups: &[&str], resources: &[&str]) -> Rule {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Rule {
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
