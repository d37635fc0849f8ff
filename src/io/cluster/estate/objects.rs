//! The few fields that an audit reads of Services, workloads and PodDisruptionBudgets. A field of the wrong type counts as
//! not set.

use serde_json::Value;

use crate::domain::audit::estate::{Check, Container, DisruptionBudget, ServiceFacts, Spread, Workload};
use crate::domain::cluster::hook::{Labels, NamespacedName, Selector, SelectorRequirement};
use crate::io::cluster::inventory::convert::node::items;

/// The string value of a field; empty for any other value.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A map of strings, such as labels or `matchLabels`; entries of other types are left out.
pub(super) fn labels_of(value: &Value) -> Labels {
    let fields = value.as_object().into_iter().flatten();
    fields
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// A port's name or number, as text.
fn port(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn service(value: &Value) -> ServiceFacts {
    let spec = &value["spec"];
    let ports = items(&spec["ports"]).iter().filter_map(|entry| {
        let number = entry["port"].as_i64()?;
        let target = &entry["targetPort"];
        let target = if target.is_null() {
            number.to_string()
        } else {
            port(target)
        };
        Some((number, target))
    });
    ServiceFacts {
        selector: labels_of(&spec["selector"]),
        ports: ports.collect(),
        is_external: text(&spec["type"]) == "ExternalName",
        source: None,
    }
}

pub(super) fn workload(kind: &str, (namespace, name): NamespacedName, spec: &Value) -> Workload {
    let pod = &spec["template"]["spec"];
    let containers = items(&pod["containers"]).iter().map(container);
    Workload {
        kind: kind.to_owned(),
        namespace,
        name,
        replicas: spec["replicas"].as_i64().filter(|_| kind != "DaemonSet"),
        labels: labels_of(&spec["template"]["metadata"]["labels"]),
        containers: containers.collect(),
        grace_seconds: pod["terminationGracePeriodSeconds"].as_i64().unwrap_or(30),
        spread: spread(pod),
        source: None,
    }
}

fn spread(pod: &Value) -> Spread {
    let anti = &pod["affinity"]["podAntiAffinity"];
    let required = items(&anti["requiredDuringSchedulingIgnoredDuringExecution"]).iter();
    let preferred = items(&anti["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
    let preferred = preferred.map(|term| &term["podAffinityTerm"]);
    let constraints = items(&pod["topologySpreadConstraints"]).iter();
    let keys: Vec<&str> = required
        .chain(preferred)
        .chain(constraints)
        .map(|term| text(&term["topologyKey"]))
        .collect();
    Spread {
        nodes: keys.contains(&"kubernetes.io/hostname"),
        zones: keys.contains(&"topology.kubernetes.io/zone"),
    }
}

fn container(value: &Value) -> Container {
    let ports = items(&value["ports"]).iter();
    let ports =
        ports.filter_map(|port| Some((text(&port["name"]).to_owned(), port["containerPort"].as_i64()?)));
    Container {
        ports: ports.collect(),
        readiness: check(&value["readinessProbe"]),
        startup: check(&value["startupProbe"]),
        has_liveness: value["livenessProbe"].is_object(),
        has_pre_stop: value["lifecycle"]["preStop"].is_object(),
    }
}

fn check(probe: &Value) -> Option<Check> {
    let ports = [
        &probe["httpGet"]["port"],
        &probe["tcpSocket"]["port"],
        &probe["grpc"]["port"],
    ];
    let looked_at = ports
        .into_iter()
        .find(|port| !port.is_null())
        .map(|value| Check::Port(port(value)));
    looked_at.or_else(|| probe.is_object().then_some(Check::Command))
}

/// A PodDisruptionBudget. `None` if it has no selector: it then selects no Pod. An empty selector selects all Pods of the
/// namespace (`policy/v1`).
pub(super) fn budget(namespace: String, spec: &Value) -> Option<DisruptionBudget> {
    let selector = Some(&spec["selector"]).filter(|selector| selector.is_object())?;
    let expressions = items(&selector["matchExpressions"])
        .iter()
        .filter_map(|expression| {
            Some(SelectorRequirement {
                key: text(&expression["key"]).to_owned(),
                operator: text(&expression["operator"]).parse().ok()?,
                values: items(&expression["values"])
                    .iter()
                    .map(|value| text(value).to_owned())
                    .collect(),
            })
        });
    Some(DisruptionBudget {
        namespace,
        selector: Selector {
            match_labels: labels_of(&selector["matchLabels"]),
            expressions: expressions.collect(),
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_disruption_budget_without_a_selector_is_about_no_pod_and_an_empty_selector_about_all() {
        let is_about = |spec: Value| {
            let budget = budget("n".to_owned(), &spec)?;
            Some(budget.selector.matches(&Labels::new()))
        };
        assert_eq!(is_about(json!({"minAvailable": 1})), None);
        assert_eq!(is_about(json!({"selector": null})), None);
        assert_eq!(is_about(json!({"selector": {}})), Some(true));
        assert_eq!(
            is_about(json!({"selector": {"matchLabels": {"a": "b"}}})),
            Some(false)
        );
    }

    #[test]
    fn an_external_name_is_told_from_other_services() {
        for (spec, wanted) in [
            (json!({"type": "ExternalName", "externalName": "h.example"}), true),
            (json!({"type": "NodePort"}), false),
            (json!({}), false),
        ] {
            assert_eq!(service(&json!({"spec": spec})).is_external, wanted, "{spec}");
        }
    }
}
