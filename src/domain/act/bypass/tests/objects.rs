//! Objects, and what an API server does with a write: it applies a patch completely or refuses it, leaves out empty fields,
//! and records the managers of fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::domain::act::bypass::edit::{Author, Desired, EditRefusal, Plan, Why, plan};
use super::domain::act::bypass::{FIELD_MANAGER, ObjectWriter, Rung};
use super::domain::time::Time;

pub(super) const NOW: Time = Time::from_unix_millis(1_795_219_862_156);

pub(super) fn author() -> Author {
    Author {
        namespace: "hookwatch".into(),
        account: "system:serviceaccount:hookwatch:hookwatch".into(),
        writer: ObjectWriter {
            identity: "replica-1".into(),
            version: "0.1.0".into(),
        },
        match_conditions: true,
        fenced: false,
    }
}

fn why() -> Why {
    Why {
        reason: "it hangs".into(),
        evidence: vec!["3 of 3 probes timed out".into()],
        expires: Some(NOW + std::time::Duration::from_secs(1_800)),
    }
}

pub(super) fn bypass(rung: Rung) -> Desired {
    Desired::Bypass { rung, why: why() }
}

pub(super) fn ignore() -> Desired {
    Desired::Ignore { why: why() }
}

/// The plan of a person for a desired state. `Ignore` is planned for an API server without match conditions.
pub(super) fn planned(object: &Value, webhook: &str, desired: &Desired) -> Result<Plan, EditRefusal> {
    let match_conditions = !matches!(desired, Desired::Ignore { .. });
    let author = Author {
        match_conditions,
        ..author()
    };
    plan(object, webhook, desired, &author, NOW)
}

pub(super) fn hook(name: &str, policy: &str, seconds: u64, conditions: usize) -> Value {
    let mut hook = json!({
        "name": name, "failurePolicy": policy, "timeoutSeconds": seconds, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/", "caBundle": "QQ=="},
    });
    if conditions > 0 {
        let conditions =
            (0..conditions).map(|index| json!({"name": format!("c{index}"), "expression": "true"}));
        hook["matchConditions"] = conditions.collect();
    }
    hook
}

/// A configuration that its owner has applied.
pub(super) fn configuration(hooks: Vec<Value>, annotations: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": "c", "uid": "u-1", "resourceVersion": "1", "labels": {"team": "a"}},
        "webhooks": hooks,
    });
    if annotations != json!({}) {
        object["metadata"]["annotations"] = annotations;
    }
    written(&json!({"metadata": {}}), object, "owner")
}

/// The object without the metadata that every write changes.
pub(super) fn spec(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    object
}

type Owned = BTreeSet<(String, String)>;

fn names(object: &Value) -> Vec<(String, &Value)> {
    let hooks = object["webhooks"].as_array().into_iter().flatten();
    hooks
        .map(|hook| (hook["name"].as_str().expect("a name").to_owned(), hook))
        .collect()
}

/// The fields of a webhook that have managers, with their values.
fn fields(hook: &Value) -> BTreeMap<String, Value> {
    let mut fields = BTreeMap::new();
    for field in ["failurePolicy", "timeoutSeconds"] {
        fields.insert(field.to_owned(), hook[field].clone());
    }
    for condition in hook["matchConditions"].as_array().into_iter().flatten() {
        fields.insert(
            condition["name"].as_str().expect("a name").to_owned(),
            condition.clone(),
        );
    }
    fields
}

fn decoded(object: &Value) -> BTreeMap<String, Owned> {
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    let decode = |entry: &Value| {
        let mut owned = Owned::new();
        for (key, fields) in entry["fieldsV1"]["f:webhooks"].as_object().into_iter().flatten() {
            let key: Value = serde_json::from_str(&key[2..]).expect("a key");
            let webhook = key["name"].as_str().expect("a name").to_owned();
            for (field, inner) in fields.as_object().into_iter().flatten() {
                match field.as_str() {
                    "f:matchConditions" => {
                        owned.extend(inner.as_object().into_iter().flatten().map(|(key, _)| {
                            let key: Value = serde_json::from_str(&key[2..]).expect("a key");
                            (webhook.clone(), key["name"].as_str().expect("a name").to_owned())
                        }))
                    }
                    field => drop(owned.insert((webhook.clone(), field[2..].to_owned()))),
                }
            }
        }
        (entry["manager"].as_str().expect("a manager").to_owned(), owned)
    };
    entries.map(decode).collect()
}

fn encoded(managers: &BTreeMap<String, Owned>) -> Value {
    let mut entries = Vec::new();
    for (manager, owned) in managers.iter().filter(|(_, owned)| !owned.is_empty()) {
        let mut hooks = Map::new();
        for (webhook, field) in owned {
            let key = format!("k:{}", json!({"name": webhook}));
            let hook = hooks.entry(key).or_insert_with(|| json!({}));
            match field.as_str() {
                "failurePolicy" | "timeoutSeconds" => hook[format!("f:{field}")] = json!({}),
                condition => {
                    hook["f:matchConditions"][format!("k:{}", json!({"name": condition}))] = json!({})
                }
            }
        }
        let fields = json!({"f:webhooks": hooks});
        entries.push(json!({
            "manager": manager, "operation": "Update", "apiVersion": "admissionregistration.k8s.io/v1", "fieldsV1": fields,
        }));
    }
    entries.into()
}

/// The object after a write of `after` in place of `before` by `manager`.
pub(super) fn written(before: &Value, mut after: Value, manager: &str) -> Value {
    for hook in after["webhooks"].as_array_mut().into_iter().flatten() {
        if hook["matchConditions"] == json!([]) || hook["matchConditions"].is_null() {
            hook.as_object_mut().expect("a webhook").remove("matchConditions");
        }
    }
    let metadata = after["metadata"].as_object_mut().expect("metadata");
    if [Some(&json!({})), Some(&Value::Null)].contains(&metadata.get("annotations")) {
        metadata.remove("annotations");
    }
    let mut managers = decoded(&after);
    let old: BTreeMap<_, _> = names(before)
        .into_iter()
        .map(|(name, hook)| (name, fields(hook)))
        .collect();
    let new: BTreeMap<_, _> = names(&after)
        .into_iter()
        .map(|(name, hook)| (name, fields(hook)))
        .collect();
    let value = |of: &BTreeMap<String, BTreeMap<String, Value>>, key: &(String, String)| {
        of.get(&key.0).and_then(|hook| hook.get(&key.1)).cloned()
    };
    let mut changed = Owned::new();
    for (webhook, fields) in &new {
        for field in fields.keys() {
            let key = (webhook.clone(), field.clone());
            if value(&old, &key) != value(&new, &key) {
                changed.insert(key);
            }
        }
    }
    for owned in managers.values_mut() {
        owned.retain(|key| value(&new, key).is_some() && !changed.contains(key));
    }
    managers.entry(manager.to_owned()).or_default().extend(changed);
    after["metadata"]["managedFields"] = encoded(&managers);
    newer(before, after)
}

/// The object with the next resourceVersion.
fn newer(before: &Value, mut after: Value) -> Value {
    let version = before["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|it| it.parse().ok());
    after["metadata"]["resourceVersion"] = (version.unwrap_or(0_u64) + 1).to_string().into();
    after
}

/// Makes `manager` a further owner of a field, as an apply of the same value does.
pub(super) fn claimed(mut object: Value, webhook: &str, field: &str, manager: &str) -> Value {
    let mut managers = decoded(&object);
    let owned = managers.entry(manager.to_owned()).or_default();
    owned.insert((webhook.to_owned(), field.to_owned()));
    let before = object.clone();
    object["metadata"]["managedFields"] = encoded(&managers);
    newer(&before, object)
}

/// Applies a patch of hookwatch's, or `None` when a test of it fails.
pub(super) fn patched(object: &Value, patch: &Value) -> Option<Value> {
    let mut after = object.clone();
    for operation in patch.as_array().expect("a patch") {
        let path = operation["path"].as_str().expect("a path");
        if operation["op"] == "test" && operation["value"].is_null() {
            let (holder, _) = path.rsplit_once('/').expect("a path");
            if after.pointer(holder).is_none() || after.pointer(path).is_some() {
                return None;
            }
            continue;
        }
        let one: json_patch::Patch = serde_json::from_value(json!([operation])).expect("an operation");
        json_patch::patch(&mut after, &one).ok()?;
    }
    Some(written(object, after, FIELD_MANAGER))
}

/// Executes all edits for a desired state.
pub(super) fn carried_out(
    object: &Value,
    webhook: &str,
    desired: &Desired,
) -> Result<Value, (Value, EditRefusal)> {
    let mut object = object.clone();
    let mut last = false;
    for _ in 0..8 {
        match planned(&object, webhook, desired) {
            Ok(Plan::AlreadySo | Plan::Gone) => return Ok(object),
            Ok(Plan::Edit(edit)) => {
                assert!(!last, "more after the last edit: {edit:?}");
                last = edit.last;
                object = patched(&object, &edit.patch).expect("its tests hold");
            }
            Err(refusal) => return Err((object, refusal)),
        }
    }
    panic!("no end to it: {object:#}");
}

/// Whether anything of hookwatch is left in the object.
pub(super) fn holds_ours(object: &Value) -> bool {
    object.to_string().contains("hookwatch")
}
