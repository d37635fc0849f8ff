//! The smallest change that takes the control plane out of a webhook's reach, shown and never applied.
//!
//! What is taken out is what a shield spares, by its own table. A change counts only if the forecast of the webhook with it
//! has nothing left that a cluster is lost without.

use serde_json::{Value, json};

use super::estate::{AuditedHook, service_key};
use super::forecast::Auditor;
use super::reach::{NAME_LABEL, TENANT};
use super::writes::{ObjectScope, WriteSort};
use crate::cluster::condition::SHIELDED_NAMESPACES;
use crate::cluster::condition::spare::{LINES, Spare, SparedObjects};
use crate::cluster::hook::{
    Added, Hook, MatchCondition, NEVER_OWN, Selector, SelectorOperator, SelectorRequirement,
};
use crate::cluster::matching::RequestShape;

/// The name of the condition. It is none of the breaker's own.
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
///
/// What a change leaves out is known without asking the changed webhook, of which there may be many, so that each is tried on the
/// writes that are lost as it is. Tests hold that against the forecast of the changed webhook.
pub fn scoping(auditor: &Auditor<'_>, at: usize) -> Option<Scoping> {
    let subject = auditor.subject(at);
    let service = service_key(&subject.hook).map(|(namespace, _)| namespace);
    let own = service.clone().filter(|namespace| {
        !SHIELDED_NAMESPACES.contains(&&**namespace) && !NEVER_OWN.contains(&&**namespace)
    });
    let lost = auditor.vital_writes(at);
    let namespace = |write: &WriteSort| match write.place {
        ObjectScope::In(namespace) => Some(namespace.to_owned()),
        ObjectScope::Own => service.clone(),
        ObjectScope::Tenant | ObjectScope::Namespace => Some(TENANT.to_owned()),
        ObjectScope::Cluster => None,
    };
    let system = SHIELDED_NAMESPACES.map(str::to_owned).to_vec();
    let alone: Vec<String> = own.iter().cloned().collect();
    let both = [system.clone(), alone.clone()].concat();
    for names in [alone, system, both] {
        if lost
            .iter()
            .all(|write| namespace(write).is_some_and(|name| names.contains(&name)))
        {
            return Some(by_selector(subject, &names));
        }
    }
    for own in [None, own] {
        let added = Added {
            own: own.clone(),
            leases: Vec::new(),
        };
        let is_spared = |write: &&WriteSort| {
            let namespace = namespace(write);
            spare(&added).spares(&write.shape(namespace.as_deref()), Some(write.by))
        };
        if lost.iter().all(is_spared) {
            return Some(by_condition(subject, own));
        }
    }
    None
}

/// No namespace of hookwatch's is spared: where it is not installed, anyone could make one of that name.
const fn spare(added: &Added) -> Spare<'_> {
    Spare {
        hookwatch_namespace: SHIELDED_NAMESPACES[0],
        added,
    }
}

/// Namespaces are left out by the label that holds their name.
fn by_selector(subject: &AuditedHook, namespaces: &[String]) -> Scoping {
    let mut hook = Hook::clone(&subject.hook);
    hook.namespace_selector.expressions.push(SelectorRequirement {
        key: NAME_LABEL.to_owned(),
        operator: SelectorOperator::NotIn,
        values: namespaces.to_vec(),
    });
    let value = selector(&hook.namespace_selector);
    Scoping {
        patch: of_field(subject, "namespaceSelector", &value),
        unreviewed: format!("every object in {}", namespaces.join(", ")),
        hook,
    }
}

/// What a shield spares is left out, by its own condition.
fn by_condition(subject: &AuditedHook, own: Option<String>) -> Scoping {
    let mut hook = Hook::clone(&subject.hook);
    let added = Added {
        own,
        leases: Vec::new(),
    };
    hook.match_conditions.push(MatchCondition {
        name: CONDITION.to_owned(),
        expression: spare(&added).expression(),
    });
    let asked = |operation: &str, (group, resource, subresource): (&str, &str, &str)| {
        [None, Some("tenant")].into_iter().any(|namespace| {
            subject.hook.could_match(&RequestShape {
                namespace,
                ..RequestShape::new(operation, [group, "v1", resource, subresource])
            })
        })
    };
    let lines = LINES.iter().filter(|line| {
        let mut operations = line.operations.iter();
        let named = |operation| line.what.objects().any(|object| asked(operation, object));
        line.what == SparedObjects::Within || operations.any(|operation| named(operation))
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
        patch: of_field(subject, "matchConditions", &json!(hook.match_conditions)),
        unreviewed: format!(
            "the control plane's own writes (docs/shield.md): {}",
            named.join("; ")
        ),
        hook,
    }
}

/// A change of one field of a webhook, as a JSON patch.
pub fn of_field(subject: &AuditedHook, field: &str, value: &Value) -> Value {
    let path = format!("/webhooks/{}", subject.hook.written.entry);
    json!([
        {"op": "test", "path": format!("{path}/name"), "value": &*subject.hook.id.webhook},
        {"op": "add", "path": format!("{path}/{field}"), "value": value},
    ])
}

fn selector(selector: &Selector) -> Value {
    let mut value = json!({});
    if !selector.match_labels.is_empty() {
        value["matchLabels"] = json!(selector.match_labels);
    }
    let expressions = selector.expressions.iter().map(|requirement| {
        let mut one = json!({"key": requirement.key, "operator": requirement.operator});
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
