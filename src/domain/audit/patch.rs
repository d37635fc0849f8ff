//! The smallest change that takes the control plane out of a webhook's reach. hookwatch shows it and never applies it.
//!
//! The change exempts namespaces, or the writes in the shield's table. It must leave no vital function to lose
//! ([`crate::audit::Function::is_vital`]) if the changed webhook fails.

use serde_json::{Value, json};

use super::estate::{AuditedHook, service_key};
use super::forecast::Auditor;
use super::reach::{NAME_LABEL, TENANT};
use super::writes::{ObjectScope, WriteSort};
use crate::cluster::condition::SHIELDED_NAMESPACES;
use crate::cluster::condition::spare::{LINES, Spare, SparedObjects};
use crate::cluster::hook::{
    Added, Hook, MAX_CONDITIONS, MatchCondition, NEVER_OWN, Selector, SelectorOperator, SelectorRequirement,
};
use crate::cluster::matching::RequestShape;

/// The name of the match condition that the patch adds. It lacks the prefix of the breaker's own conditions.
const CONDITION: &str = "spares-control-plane";

/// A change of one webhook.
#[derive(Debug, Clone, PartialEq)]
pub struct Scoping {
    /// A JSON patch of its configuration, which fails if another webhook has taken the index by then.
    pub patch: Value,
    /// What the changed webhook no longer reviews, as the end of a sentence.
    pub unreviewed: String,
    /// The webhook after the change.
    pub hook: Hook,
}

/// The smallest change that leaves no vital function to lose; `None` if none of the changes known here is enough.
///
/// A change is enough if it exempts every vital write that is lost now. That is faster than a forecast of the changed webhook;
/// tests compare the two.
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
    if lost.is_empty() {
        return None;
    }
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
            return by_condition(subject, own);
        }
    }
    None
}

/// A shield's exemptions without hookwatch's own namespace: where hookwatch is not installed, anyone could create a namespace of
/// that name.
const fn spare(added: &Added) -> Spare<'_> {
    Spare {
        hookwatch_namespace: SHIELDED_NAMESPACES[0],
        added,
    }
}

/// A change of `namespaceSelector` that exempts namespaces by the label with their name.
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

/// A match condition that exempts what a shield spares, in place of one that an earlier patch added; `None` if the webhook has as
/// many as the API server takes.
fn by_condition(subject: &AuditedHook, own: Option<String>) -> Option<Scoping> {
    let mut hook = Hook::clone(&subject.hook);
    let added = Added {
        own,
        leases: Vec::new(),
    };
    let condition = MatchCondition {
        name: CONDITION.to_owned(),
        expression: spare(&added).expression(),
    };
    let patch = with_condition(subject, &mut hook.match_conditions, condition)?;
    let asked = |operation: &str, (group, resource, subresource): (&str, &str, &str)| {
        [None, Some(TENANT)].into_iter().any(|namespace| {
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
    Some(Scoping {
        patch,
        unreviewed: format!(
            "the control plane's own writes (docs/shield.md): {}",
            named.join("; ")
        ),
        hook,
    })
}

/// Puts a condition into the list, and makes the patch that does so. It leaves others as they are by then, such as a shield that has
/// been restored meanwhile; if there were none, it sets the list.
fn with_condition(
    subject: &AuditedHook,
    conditions: &mut Vec<MatchCondition>,
    condition: MatchCondition,
) -> Option<Value> {
    let value = json!(condition);
    if conditions.is_empty() {
        conditions.push(condition);
        return Some(of_field(subject, "matchConditions", &json!([value])));
    }
    let earlier = conditions.iter().position(|it| it.name == condition.name);
    let Some(earlier) = earlier else {
        if conditions.len() >= MAX_CONDITIONS {
            return None;
        }
        conditions.push(condition);
        return Some(of_field(subject, "matchConditions/-", &value));
    };
    conditions[earlier] = condition;
    let path = format!("{}/matchConditions/{earlier}", path(subject));
    Some(json!([
        is_there(subject),
        {"op": "test", "path": format!("{path}/name"), "value": CONDITION},
        {"op": "replace", "path": path, "value": value},
    ]))
}

/// A JSON patch that sets one field of a webhook. It fails if another webhook has taken the index by then.
pub fn of_field(subject: &AuditedHook, field: &str, value: &Value) -> Value {
    json!([
        is_there(subject),
        {"op": "add", "path": format!("{}/{field}", path(subject)), "value": value},
    ])
}

/// The step that fails if another webhook has taken the index by then.
fn is_there(subject: &AuditedHook) -> Value {
    json!({"op": "test", "path": format!("{}/name", path(subject)), "value": &*subject.hook.id.webhook})
}

fn path(subject: &AuditedHook) -> String {
    format!("/webhooks/{}", subject.hook.written.entry)
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
