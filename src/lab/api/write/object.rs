//! What the API server itself writes into objects and checks about them, regardless of the sender.

use serde_json::{Map, Value, json};

use super::super::kinds::{KINDS, ServedKind};
use super::super::random;
use super::super::request::ResourceRequest;
use super::super::status::{ApiFailure, FieldError};
use super::super::store::ObjectStore;

/// Metadata that clients cannot set: the store sets it, or the lab does not keep it.
const SYSTEM_FIELDS: [&str; 4] = [
    "resourceVersion",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
];

/// Checks a new object and gives it its name, uid, time and generation.
pub(in super::super) fn prepare_new(
    kind: &ServedKind,
    namespace: &str,
    object: &mut Value,
) -> Result<String, ApiFailure> {
    check_type(kind, object)?;
    let metadata = metadata(object)?;
    if metadata
        .get("resourceVersion")
        .and_then(Value::as_str)
        .is_some_and(|version| !version.is_empty() && version != "0")
    {
        let message = "resourceVersion should not be set on objects to be created";
        return Err(ApiFailure::new(500, "", message, None));
    }
    place(metadata, kind, namespace)?;
    for field in SYSTEM_FIELDS {
        metadata.remove(field);
    }
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let name = match (text("name"), text("generateName")) {
        ("", "") => String::new(),
        ("", prefix) => format!("{prefix}{}", random::suffix()),
        (name, _) => name.to_owned(),
    };
    metadata.insert("name".into(), json!(name));
    metadata.insert("uid".into(), json!(random::uuid()));
    metadata.insert("creationTimestamp".into(), json!(now()));
    if counts_generations(kind) {
        metadata.insert("generation".into(), json!(1));
    }
    Ok(name)
}

/// Checks an object that is to replace `current` and carries over what clients cannot change.
pub(super) fn prepare_update(
    request: &ResourceRequest,
    mut object: Value,
    current: &Value,
) -> Result<Value, ApiFailure> {
    let kind = request.kind;
    check_type(kind, &mut object)?;
    let metadata = metadata(&mut object)?;
    place(metadata, kind, &request.namespace)?;
    let name = metadata
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if name != request.name {
        return Err(ApiFailure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            request.name
        )));
    }
    let old = &current["metadata"];
    let uid = metadata.get("uid").and_then(Value::as_str).unwrap_or_default();
    if !uid.is_empty() && json!(uid) != old["uid"] {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            old["uid"].as_str().unwrap_or_default()
        );
        return Err(ApiFailure::conflict(kind, &name, &why));
    }
    for field in [
        "uid",
        "creationTimestamp",
        "generateName",
        "generation",
        "deletionTimestamp",
    ] {
        match old.get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    if request.subresource == "status" {
        // Only the status is taken. For most kinds a real API server takes annotations, and often labels, as well.
        let mut kept = current.clone();
        kept["status"] = object["status"].take();
        kept["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].take();
        return Ok(kept);
    }
    Ok(object)
}

/// Compares the resourceVersion that a client sent with the stored one.
pub(super) fn check_version(
    kind: &ServedKind,
    name: &str,
    object: &Value,
    current: u64,
    put: bool,
) -> Result<(), ApiFailure> {
    let version = object
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if version.is_empty() || version == "0" {
        // These kinds refuse a PUT without a resourceVersion, which could overwrite changes that the client has not seen.
        let blind = put
            && matches!(
                kind.group,
                "coordination.k8s.io"
                    | "admissionregistration.k8s.io"
                    | "apiextensions.k8s.io"
                    | "apiregistration.k8s.io"
            );
        if blind {
            let why = "must be specified for an update";
            let error = FieldError::invalid("metadata.resourceVersion", &json!(0), why);
            // As in a real API server, the plural name stands where other errors have the kind.
            return Err(ApiFailure::invalid_as(kind.resource, kind.group, name, &[error]));
        }
        return Ok(());
    }
    if version == current.to_string() {
        Ok(())
    } else {
        Err(moved(kind, name))
    }
}

/// Sets resourceVersion and generation before an update is compared with the stored object.
pub(super) fn finish_update(kind: &ServedKind, object: &mut Value, current: &Value) {
    let changed =
        object.get("webhooks") != current.get("webhooks") || object.get("spec") != current.get("spec");
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        // With the stored version an unchanged object compares as equal, and nothing is written.
        metadata.insert(
            "resourceVersion".into(),
            current["metadata"]["resourceVersion"].clone(),
        );
        if counts_generations(kind) && changed {
            let generation = current["metadata"]["generation"].as_u64().unwrap_or_default();
            metadata.insert("generation".into(), json!(generation + 1));
        }
    }
}

/// Checks the preconditions of DeleteOptions against the stored object.
pub(super) fn check_preconditions(
    kind: &ServedKind,
    name: &str,
    options: &Value,
    current: &Value,
) -> Result<(), ApiFailure> {
    for (field, label) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let wanted = &options["preconditions"][field];
        let found = &current["metadata"][field];
        if !wanted.is_null() && wanted != found {
            let why = format!(
                "the {label} in the precondition ({}) does not match the {label} in record ({}). The object might \
                 have been deleted and then recreated",
                wanted.as_str().unwrap_or_default(),
                found.as_str().unwrap_or_default()
            );
            return Err(ApiFailure::precondition(kind, name, &why));
        }
    }
    Ok(())
}

/// The refusal (409) of a write whose object has changed since it was read.
pub(super) fn moved(kind: &ServedKind, name: &str) -> ApiFailure {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    ApiFailure::conflict(kind, name, why)
}

/// Removes everything in a deleted namespace, as the namespace controller of a real cluster does.
pub(super) fn empty_namespace(store: &ObjectStore, namespace: &str) {
    for kind in KINDS.iter().filter(|kind| kind.namespaced && kind.stored) {
        for stored in store.list(kind, Some(namespace)).1 {
            let name = stored.object["metadata"]["name"].as_str().unwrap_or_default();
            // A concurrent writer has removed it or keeps an orphan; neither hurts a lab.
            let _ = store.remove(kind, namespace, name, stored.revision);
        }
    }
}

/// The present time as objects carry it, in whole seconds.
pub(super) fn now() -> String {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second())
        .unwrap_or(now)
        .to_string()
}

/// Whether `generation` counts the changes of the spec or, in a webhook configuration, of the webhooks.
fn counts_generations(kind: &ServedKind) -> bool {
    matches!(
        kind.group,
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "apps" | "discovery.k8s.io"
    )
}

/// Fills in `apiVersion` and `kind` where they are absent, and refuses an object of another type.
pub(super) fn check_type(kind: &ServedKind, object: &mut Value) -> Result<(), ApiFailure> {
    let Some(fields) = object.as_object_mut() else {
        return Err(ApiFailure::bad_request("the object provided is unrecognized"));
    };
    for (field, wanted) in [("apiVersion", kind.api_version()), ("kind", kind.kind.to_owned())] {
        match fields.get(field).and_then(Value::as_str) {
            Some(found) if found != wanted => {
                return Err(ApiFailure::bad_request(format!(
                    "the {field} in the data ({found}) does not match the expected {field} ({wanted})"
                )));
            }
            _ => {
                fields.insert(field.into(), json!(wanted));
            }
        }
    }
    Ok(())
}

fn metadata(object: &mut Value) -> Result<&mut Map<String, Value>, ApiFailure> {
    object
        .as_object_mut()
        .and_then(|object| {
            object
                .entry("metadata")
                .or_insert_with(|| json!({}))
                .as_object_mut()
        })
        .ok_or_else(|| ApiFailure::bad_request("metadata is no object"))
}

/// Puts an object into the namespace of the URL, and refuses one that names another namespace.
fn place(metadata: &mut Map<String, Value>, kind: &ServedKind, namespace: &str) -> Result<(), ApiFailure> {
    let said = metadata
        .get("namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !said.is_empty() && said != namespace {
        return Err(ApiFailure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if kind.namespaced {
        metadata.insert("namespace".into(), json!(namespace));
    } else {
        metadata.remove("namespace");
    }
    Ok(())
}
