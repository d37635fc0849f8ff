//! The smallest change that takes the control plane out of a webhook's reach, shown and never applied.
//!
//! What is taken out is what a shield spares, by its own table. A change counts only if the forecast of the webhook with it
//! has nothing left that a cluster is lost without.

use serde_json::{Value, json};

use super::estate::{Subject, service_key};
use super::forecast::{Auditor, Failure};
use super::reach::NAME_LABEL;
use crate::domain::bypass::SHIELDED_NAMESPACES;
use crate::domain::bypass::spare::{LINES, Spare, What};
use crate::domain::hook::{Added, Hook, MatchCondition, Selector, SelectorOperator, SelectorRequirement};
use crate::domain::matching::RequestShape;

/// The name of the condition. It is not one of those that the breaker takes for its own.
const CONDITION: &str = "spares-control-plane";

/// A change of one webhook.
#[derive(Debug, Clone, PartialEq)]
pub struct Scoping {
    /// As a JSON patch of its configuration, which fails if the webhook is another one by then.
    pub patch: Value,
    /// What the webhook no longer reviews, as a sentence.
    pub unreviewed: String,
    /// The webhook with it.
    pub hook: Hook,
}

/// The smallest change that leaves nothing vital to lose; `None` where none of those known here is enough.
pub fn scoping(auditor: &Auditor<'_>, at: usize) -> Option<Scoping> {
    let subject = auditor.subject(at);
    let own = service_key(&subject.hook).map(|(namespace, _)| namespace);
    let own = own.filter(|namespace| !SHIELDED_NAMESPACES.contains(&&**namespace));
    let system = SHIELDED_NAMESPACES.map(str::to_owned).to_vec();
    let with_own = |namespaces: &[String]| namespaces.iter().cloned().chain(own.clone()).collect::<Vec<_>>();
    let mut candidates: Vec<Box<dyn Fn() -> Scoping>> = Vec::new();
    if own.is_some() {
        let alone = with_own(&[]);
        candidates.push(Box::new(move || by_selector(subject, &alone)));
    }
    let (both, alone) = (with_own(&system), system);
    candidates.push(Box::new(move || by_selector(subject, &alone)));
    candidates.push(Box::new(move || by_selector(subject, &both)));
    candidates.push(Box::new(|| by_condition(subject, None)));
    let named = own.clone();
    candidates.push(Box::new(move || by_condition(subject, named.clone())));
    let candidates = candidates.into_iter().map(|make| make());
    candidates.into_iter().find(|scoping| {
        Failure::ALL.into_iter().all(|failure| {
            auditor
                .forecast_patched(at, scoping.hook.clone(), failure)
                .vital()
                .next()
                .is_none()
        })
    })
}

/// Namespaces are left out by the label that holds their name.
fn by_selector(subject: &Subject, namespaces: &[String]) -> Scoping {
    let mut hook = Hook::clone(&subject.hook);
    hook.namespace_selector.expressions.push(SelectorRequirement {
        key: NAME_LABEL.to_owned(),
        operator: SelectorOperator::NotIn,
        values: namespaces.to_vec(),
    });
    let value = selector(&hook.namespace_selector);
    Scoping {
        patch: patch(subject, "namespaceSelector", &value),
        unreviewed: format!("every object in {}", namespaces.join(", ")),
        hook,
    }
}

/// What a shield spares is left out, by its own condition.
fn by_condition(subject: &Subject, own: Option<String>) -> Scoping {
    let mut hook = Hook::clone(&subject.hook);
    let added = Added {
        own,
        leases: Vec::new(),
    };
    let spare = Spare {
        // No namespace of hookwatch's: where it is not installed, anyone could make one of that name.
        own: SHIELDED_NAMESPACES[0],
        added: &added,
    };
    hook.match_conditions.push(MatchCondition {
        name: CONDITION.to_owned(),
        expression: spare.expression(),
    });
    let conditions: Vec<Value> = hook
        .match_conditions
        .iter()
        .map(|condition| json!({"name": condition.name, "expression": condition.expression}))
        .collect();
    let asked = |operation: &str, (group, resource, subresource): (&str, &str, &str)| {
        [None, Some("tenant")].into_iter().any(|namespace| {
            subject.hook.could_match(&RequestShape {
                operation,
                group,
                version: "v1",
                resource,
                subresource,
                namespace,
                ..RequestShape::default()
            })
        })
    };
    let lines = LINES.iter().filter(|line| match line.what {
        What::Within => true,
        What::Objects(objects) => line
            .operations
            .iter()
            .any(|operation| objects.iter().any(|object| asked(operation, *object))),
    });
    let mut named: Vec<String> = lines
        .map(|line| line.name.replace(" and in hookwatch's own", ""))
        .collect();
    named.extend(
        added
            .own
            .iter()
            .map(|own| format!("Pods, ReplicaSets and Deployments in {own}")),
    );
    Scoping {
        patch: patch(subject, "matchConditions", &conditions.into()),
        unreviewed: format!(
            "the control plane's own writes (docs/shield.md): {}",
            named.join("; ")
        ),
        hook,
    }
}

fn patch(subject: &Subject, field: &str, value: &Value) -> Value {
    let path = format!("/webhooks/{}", subject.hook.written.entry);
    json!([
        {"op": "test", "path": format!("{path}/name"), "value": &*subject.hook.id.webhook},
        {"op": "add", "path": format!("{path}/{field}"), "value": value},
    ])
}

/// A change of one field of a webhook, as a JSON patch.
pub fn of_field(subject: &Subject, field: &str, value: &Value) -> Value {
    patch(subject, field, value)
}

fn selector(selector: &Selector) -> Value {
    let mut value = json!({});
    if !selector.match_labels.is_empty() {
        value["matchLabels"] = json!(selector.match_labels);
    }
    let expressions = selector.expressions.iter().map(|requirement| {
        let operator = match requirement.operator {
            SelectorOperator::In => "In",
            SelectorOperator::NotIn => "NotIn",
            SelectorOperator::Exists => "Exists",
            SelectorOperator::DoesNotExist => "DoesNotExist",
        };
        let mut one = json!({"key": requirement.key, "operator": operator});
        if !requirement.values.is_empty() {
            one["values"] = json!(requirement.values);
        }
        one
    });
    let expressions: Vec<Value> = expressions.collect();
    if !expressions.is_empty() {
        value["matchExpressions"] = expressions.into();
    }
    value
}
