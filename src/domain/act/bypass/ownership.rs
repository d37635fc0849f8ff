//! Who the API server says owns a field (`metadata.managedFields`).
//!
//! A write that changes a field takes it from all other managers, so another owner of a field that holds hookwatch's
//! value has claimed it since. When a bypass ends, hookwatch gives up what it owned: otherwise the owner's next
//! server-side apply of another value would be a conflict.

use serde_json::{Value, json};

use super::FIELD_MANAGER;
use super::draft::{PatchDraft, escaped};

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

/// How a webhook is called among owned fields.
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
pub(super) fn holds(object: &Value, webhook: &str) -> bool {
    let webhook = key(webhook);
    let mut ours = entries(object).iter().filter(|entry| is_ours(entry));
    ours.any(|entry| entry["fieldsV1"]["f:webhooks"].get(&webhook).is_some())
}

/// Gives up what hookwatch owns: of a webhook, or of the whole object.
pub(super) fn release(object: &Value, webhook: &str, everything: bool, draft: &mut PatchDraft) {
    let webhook = key(webhook);
    // From the end, so that what goes shifts nothing that is still to come.
    for (index, entry) in entries(object).iter().enumerate().rev() {
        let path = format!("/metadata/managedFields/{index}");
        let path = match () {
            () if !is_ours(entry) => continue,
            () if everything => path,
            () if entry["fieldsV1"]["f:webhooks"].get(&webhook).is_some() => {
                format!("{path}/fieldsV1/f:webhooks/{}", escaped(&webhook))
            }
            () => continue,
        };
        draft.expect(
            &format!("/metadata/managedFields/{index}/manager"),
            Some(&entry["manager"]),
        );
        draft.operation(json!({"op": "remove", "path": path}));
    }
}
