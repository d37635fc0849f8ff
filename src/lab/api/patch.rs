//! PATCH in its four kinds.
//!
//! JSON patch and merge patch are complete. A strategic merge patch and a server-side apply are merge patches that
//! know which lists are keyed ([`LIST_KEYS`]) and understand `$patch` and `$setElementOrder`. Apply keeps no managed
//! fields: it never conflicts, and a field left out of a later apply stays. That is enough for kubectl and for
//! hookwatch, but not for tests of field ownership.

use serde_json::{Map, Value};

use super::status::ApiFailure;

/// JSON patches with more operations are refused, as the API server refuses them.
const MAX_OPERATIONS: usize = 10_000;

/// Lists whose items have an identity, and the field that holds it.
const LIST_KEYS: [(&str, &str); 11] = [
    ("webhooks", "name"),
    ("matchConditions", "name"),
    ("containers", "name"),
    ("initContainers", "name"),
    ("env", "name"),
    ("volumes", "name"),
    ("volumeMounts", "mountPath"),
    ("ports", "port"),
    ("conditions", "type"),
    ("ownerReferences", "uid"),
    ("imagePullSecrets", "name"),
];

/// The kind of a PATCH, which its content type tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    /// The kind of a content type; 415 for an unknown one.
    pub(super) fn of(content_type: &str) -> Result<Self, ApiFailure> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        match media {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(ApiFailure::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json, application/apply-patch+yaml",
            )),
        }
    }

    /// The object with a patch applied, as a whole or not at all.
    pub(super) fn apply(self, object: &Value, patch: &Value) -> Result<Value, ApiFailure> {
        let mut patched = object.clone();
        match self {
            Self::Json => {
                let operations = patch.as_array().ok_or_else(|| {
                    let found = if patch.is_object() { "object" } else { "string" };
                    ApiFailure::bad_request(format!(
                        "error decoding patch: json: cannot unmarshal {found} into Go value of type \
                         []handlers.jsonPatchOp"
                    ))
                })?;
                if operations.len() > MAX_OPERATIONS {
                    return Err(ApiFailure::too_large(MAX_OPERATIONS));
                }
                apply_json_patch(&mut patched, patch).map_err(|_| ApiFailure::unprocessable_patch())?;
            }
            Self::Merge => json_patch::merge(&mut patched, patch),
            Self::Strategic | Self::Apply => merge(&mut patched, patch),
        }
        if patched.is_object() {
            Ok(patched)
        } else {
            Err(ApiFailure::bad_request("the patch does not leave an object"))
        }
    }
}

/// Applies a JSON patch.
///
/// # Errors
/// A sentence on the operation that cannot be applied; the object is unchanged then.
pub(super) fn apply_json_patch(object: &mut Value, patch: &Value) -> Result<(), String> {
    let operations: json_patch::Patch =
        serde_json::from_value(patch.clone()).map_err(|error| error.to_string())?;
    let mut patched = object.clone();
    for operation in operations.0 {
        if !tests_absence(&operation, &patched) {
            let one = json_patch::Patch(vec![operation]);
            json_patch::patch(&mut patched, &one).map_err(|error| error.to_string())?;
        }
    }
    *object = patched;
    Ok(())
}

/// Whether an operation is a `test` for null of a field that is absent, and passes. RFC 6902 has no test of absence; the API
/// server's library takes a `test` for null as one, if the parent of the field exists.
fn tests_absence(operation: &json_patch::PatchOperation, object: &Value) -> bool {
    let json_patch::PatchOperation::Test(test) = operation else {
        return false;
    };
    let path = test.path.as_str();
    let holder = path
        .rsplit_once('/')
        .and_then(|(holder, _)| object.pointer(holder));
    test.value.is_null() && holder.is_some_and(Value::is_object) && object.pointer(path).is_none()
}

fn merge(into: &mut Value, patch: &Value) {
    let (Value::Object(fields), Value::Object(changes)) = (&mut *into, patch) else {
        *into = without_directives(patch);
        return;
    };
    if changes.get("$patch").and_then(Value::as_str) == Some("replace") {
        *into = without_directives(patch);
        return;
    }
    for (field, change) in changes.iter().filter(|(field, _)| !field.starts_with('$')) {
        let key = LIST_KEYS
            .iter()
            .find(|(list, _)| list == field)
            .map(|(_, key)| *key);
        match (fields.get_mut(field), change, key) {
            (_, Value::Null, _) => {
                fields.remove(field);
            }
            (Some(Value::Array(items)), Value::Array(changed), Some(key)) if keyed(changed, key) => {
                merge_list(items, changed, key);
            }
            (Some(inner), _, _) => merge(inner, change),
            (None, _, _) => {
                fields.insert(field.clone(), without_directives(change));
            }
        }
    }
    for (directive, order) in changes {
        if let Some(field) = directive.strip_prefix("$setElementOrder/")
            && let Some((_, key)) = LIST_KEYS.iter().find(|(list, _)| *list == field)
            && let (Some(Value::Array(items)), Some(order)) = (fields.get_mut(field), order.as_array())
        {
            // Items that the order does not name stay behind those it does.
            items.sort_by_key(|item| {
                let place = order.iter().position(|named| named.get(*key) == item.get(*key));
                place.unwrap_or(usize::MAX)
            });
        }
    }
}

/// Whether every item of a patch's list has an identity.
fn keyed(items: &[Value], key: &str) -> bool {
    items
        .iter()
        .all(|item| item.get(key).is_some() || item.get("$patch").is_some())
}

fn merge_list(items: &mut Vec<Value>, changed: &[Value], key: &str) {
    for change in changed {
        let place = items.iter().position(|item| item.get(key) == change.get(key));
        match (change.get("$patch").and_then(Value::as_str), place) {
            (Some("replace"), _) if change.get(key).is_none() => items.clear(),
            (Some("delete"), Some(place)) => {
                items.remove(place);
            }
            (Some("delete"), None) => {}
            (_, Some(place)) => merge(&mut items[place], change),
            (_, None) => items.push(without_directives(change)),
        }
    }
}

/// A patch as an object: no directives, no nulls.
fn without_directives(patch: &Value) -> Value {
    match patch {
        Value::Object(fields) => {
            let kept: Map<String, Value> = fields
                .iter()
                .filter(|(field, value)| !field.starts_with('$') && !value.is_null())
                .map(|(field, value)| (field.clone(), without_directives(value)))
                .collect();
            Value::Object(kept)
        }
        Value::Array(items) => {
            let kept = items.iter().filter(|item| item.get("$patch").is_none());
            Value::Array(kept.map(without_directives).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_json_patch_is_applied_as_a_whole_or_not_at_all() {
        let object = json!({"webhooks": [{"name": "a", "failurePolicy": "Fail"}]});
        let patch = json!([
            {"op": "test", "path": "/webhooks/0/name", "value": "a"},
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"},
        ]);
        let patched = PatchKind::Json.apply(&object, &patch).expect("applies");
        assert_eq!(patched["webhooks"][0]["failurePolicy"], "Ignore");
        let wrong = json!([
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"},
            {"op": "test", "path": "/webhooks/0/name", "value": "b"},
        ]);
        let refused = PatchKind::Json.apply(&object, &wrong);
        assert_eq!(refused.map_err(|failure| failure.code), Err(422));
        let nonsense = PatchKind::Json.apply(&object, &json!([{"op": "burn", "path": "/"}]));
        assert_eq!(nonsense.map_err(|failure| failure.code), Err(422));
        let no_list = PatchKind::Json.apply(&object, &json!({}));
        assert_eq!(no_list.map_err(|failure| failure.code), Err(400));
    }

    #[test]
    fn a_test_for_null_holds_where_the_field_is_absent_from_an_object_that_is_there() {
        let object = json!({"metadata": {"name": "x"}, "webhooks": []});
        for (path, holds) in [
            ("/metadata/annotations", true),
            ("/metadata/name", false),
            ("/metadata/annotations/a", false),
            ("/webhooks/0", false),
        ] {
            let patch = json!([{"op": "test", "path": path, "value": null}]);
            assert_eq!(PatchKind::Json.apply(&object, &patch).is_ok(), holds, "{path}");
        }
    }

    #[test]
    fn a_merge_patch_replaces_lists_and_a_strategic_one_merges_them_by_name() {
        let object = json!({"webhooks": [{"name": "a", "x": 1}, {"name": "b", "x": 1}]});
        let patch = json!({"webhooks": [{"name": "b", "y": 2}]});
        let merged = PatchKind::Merge.apply(&object, &patch).expect("applies");
        assert_eq!(merged, json!({"webhooks": [{"name": "b", "y": 2}]}));
        let strategic = PatchKind::Strategic.apply(&object, &patch).expect("applies");
        assert_eq!(
            strategic,
            json!({"webhooks": [{"name": "a", "x": 1}, {"name": "b", "x": 1, "y": 2}]})
        );
    }

    #[test]
    fn strategic_directives_are_obeyed_and_never_stored() {
        let object = json!({"webhooks": [{"name": "a"}, {"name": "b"}], "metadata": {"labels": {"x": "1"}}});
        let patch = json!({
            "$setElementOrder/webhooks": [{"name": "c"}, {"name": "a"}],
            "webhooks": [{"$patch": "delete", "name": "b"}, {"name": "c"}],
            "metadata": {"labels": null},
        });
        let patched = PatchKind::Strategic.apply(&object, &patch).expect("applies");
        assert_eq!(
            patched,
            json!({"webhooks": [{"name": "c"}, {"name": "a"}], "metadata": {}})
        );
    }
}
