//! Who the API server says owns a field (`metadata.managedFields`).
//!
//! A write that changes a field takes it from all other managers. So if a field still has the value that hookwatch wrote, and
//! another manager owns it, that manager has claimed it since. When a bypass ends, hookwatch gives up what it owns: otherwise
//! the next server-side apply of another value would be a conflict.

use serde_json::{Value, json};

use super::FIELD_MANAGER;
use super::patch::{PatchBuilder, escaped};

/// Who owns one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Owners {
    pub(super) ours: bool,
    pub(super) others: bool,
}

fn entries(object: &Value) -> &[Value] {
    object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn is_ours(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER
}

/// The key of a webhook in `fieldsV1`.
fn key(webhook: &str) -> String {
    format!("k:{}", json!({"name": webhook}))
}

pub(super) fn owners(object: &Value, webhook: &str, field: &str) -> Owners {
    let (webhook, field) = (key(webhook), format!("f:{field}"));
    let mut owners = Owners::default();
    for entry in entries(object) {
        if entry["fieldsV1"]["f:webhooks"][&webhook].get(&field).is_some() {
            if is_ours(entry) {
                owners.ours = true
            } else {
                owners.others = true
            }
        }
    }
    owners
}

/// Whether hookwatch owns anything of a webhook.
pub(super) fn owns_any(object: &Value, webhook: &str) -> bool {
    let webhook = key(webhook);
    let mut ours = entries(object).iter().filter(|entry| is_ours(entry));
    ours.any(|entry| entry["fieldsV1"]["f:webhooks"].get(&webhook).is_some())
}

/// Gives up what hookwatch owns in a webhook, or in the whole object.
pub(super) fn release(object: &Value, webhook: &str, everything: bool, patch: &mut PatchBuilder) {
    let webhook = key(webhook);
    // From the end, so that a removal does not shift the indices of later ones.
    for (index, entry) in entries(object).iter().enumerate().rev() {
        if !is_ours(entry) {
            continue;
        }
        let path = format!("/metadata/managedFields/{index}");
        let removed = if everything {
            path.clone()
        } else if entry["fieldsV1"]["f:webhooks"].get(&webhook).is_some() {
            format!("{path}/fieldsV1/f:webhooks/{}", escaped(&webhook))
        } else {
            continue;
        };
        patch.expect(&format!("{path}/manager"), Some(&entry["manager"]));
        patch.operation(json!({"op": "remove", "path": removed}));
    }
}
