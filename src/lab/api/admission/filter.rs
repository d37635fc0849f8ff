//! Whether a hook is asked about a request at all.

use serde_json::Value;
use tokio::time::Instant;

use super::super::cel::Variables;
use super::super::kinds::NAMESPACE;
use super::super::metrics::HookLabels;
use super::super::select::labels_of;
use super::super::status::ApiFailure;
use super::hooks::AdmissionHook;
use super::{Attributes, Surroundings, review};
use crate::domain::cluster::matching::{RequestShape, lets_through};

/// Selectors, rules and match conditions.
pub(super) fn should_call(
    hook: &AdmissionHook,
    around: Surroundings<'_>,
    attributes: &Attributes,
) -> Result<bool, ApiFailure> {
    let new_labels = attributes.object.as_ref().map(labels_of);
    let old_labels = attributes.old.as_ref().map(|old| labels_of(&old.object));
    let namespace = around.store.get(NAMESPACE, "", &attributes.namespace);
    let namespace_labels = namespace.map(|namespace| labels_of(&namespace.object));
    let shape = RequestShape {
        operation: attributes.operation,
        group: attributes.kind.group,
        version: attributes.kind.version,
        resource: attributes.kind.resource,
        subresource: &attributes.subresource,
        namespace: Some(attributes.namespace.as_str()).filter(|_| attributes.kind.namespaced),
        namespace_labels: namespace_labels.as_ref(),
        object_labels: new_labels.as_ref(),
        old_labels: old_labels.as_ref(),
    };
    if !lets_through(
        (&hook.rules, hook.match_policy),
        &hook.namespace_selector,
        &hook.object_selector,
        &shape,
    ) {
        return Ok(false);
    }
    conditions_let(hook, around, attributes)
}

fn conditions_let(
    hook: &AdmissionHook,
    around: Surroundings<'_>,
    attributes: &Attributes,
) -> Result<bool, ApiFailure> {
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let begin = Instant::now();
    let request = review::request(attributes);
    let variables = Variables {
        request: &request,
        object: attributes.object.as_ref().unwrap_or(&Value::Null),
        old_object: attributes.old.as_ref().map_or(&Value::Null, |old| &old.object),
    };
    let mut errors = Vec::new();
    let mut excluded = false;
    for (text, program) in &hook.conditions {
        let outcome = match program {
            Ok(program) => program.evaluate(variables),
            Err(why) => Err(why.clone()),
        };
        match outcome {
            Ok(true) => {}
            // One condition that is false wins over any number of conditions that cannot be evaluated.
            Ok(false) => {
                excluded = true;
                break;
            }
            Err(why) => errors.push(format!("expression '{text}' resulted in error: {why}")),
        }
    }
    if !excluded && errors.is_empty() {
        return Ok(true);
    }
    let labels = HookLabels {
        name: &hook.name,
        mutating: hook.mutating,
        operation: attributes.operation,
    };
    let failed = u64::try_from(errors.len()).unwrap_or_default();
    let skipped = excluded || hook.ignores_failures;
    around
        .metrics
        .conditions_evaluated(labels, failed, skipped, begin.elapsed());
    if skipped {
        return Ok(false);
    }
    let why = match errors.as_slice() {
        [one] => one.clone(),
        more => format!("[{}]", more.join(", ")),
    };
    Err(ApiFailure::forbidden(attributes.kind, &attributes.name, &why))
}
