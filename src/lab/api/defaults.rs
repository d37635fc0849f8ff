//! Defaulting and validation: what the API server adds to an object and what it does not take.
//!
//! Webhook configurations get all of it (`apis/admissionregistration/v1/defaults.go` and `validation/` of
//! Kubernetes 1.36, except for beta fields); other kinds only what hookwatch and the lab depend on.

mod extension;
mod webhooks;

use serde_json::{Map, Value, json};

use super::kinds::ServedKind;
use super::status::{ApiFailure, FieldError};

/// Brings an object that was sent in into the form the API server stores: adds what is absent, drops what is empty.
pub(super) fn default(kind: &ServedKind, object: &mut Value) {
    drop_empty(object);
    if kind.is_webhook_configuration() {
        webhooks::default(object, kind.kind == "MutatingWebhookConfiguration");
    }
    match (kind.group, kind.kind) {
        ("", "Service") => default_service(object),
        ("", "Namespace") => default_namespace(object),
        ("", "Secret") => fill(object, "type", json!("Opaque")),
        ("", "Pod") => default_pod(object),
        ("discovery.k8s.io", "EndpointSlice") => default_endpoint_slice(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => extension::definition(object),
        ("apiregistration.k8s.io", "APIService") => extension::registration(object),
        _ => {}
    }
}

/// Validates an object before it is stored; `old` is what it replaces.
pub(super) fn validate(
    kind: &ServedKind,
    name: &str,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), ApiFailure> {
    let mut errors = Vec::new();
    validate_name(kind, name, &mut errors);
    if kind.is_webhook_configuration() {
        webhooks::validate(object, old, &mut errors);
    }
    if kind.kind == "ConfigMap" || kind.kind == "Secret" {
        validate_data(object, old, &mut errors);
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiFailure::invalid(kind, name, &errors))
    }
}

/// Drops what the API server's types leave out when it is empty. JSON patches depend on it: adding a first annotation
/// below `/metadata/annotations/` fails there, and must fail here.
fn drop_empty(object: &mut Value) {
    drop_nulls(object);
    let empty = |value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|field, value| !(matches!(field.as_str(), "data" | "webhooks") && empty(value)));
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| !empty(value));
    }
    let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
    for webhook in webhooks.into_iter().flatten().filter_map(Value::as_object_mut) {
        webhook
            .retain(|field, value| !(matches!(field.as_str(), "rules" | "matchConditions") && empty(value)));
        if let Some(client) = webhook.get_mut("clientConfig").and_then(Value::as_object_mut) {
            client.retain(|_, value| !empty(value));
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Sets a field that is absent.
fn fill(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.entry(field).or_insert(value);
    }
}

/// The object in a field, made when absent.
fn inner<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    object
        .as_object_mut()?
        .entry(field)
        .or_insert_with(|| json!({}))
        .as_object_mut()
}

fn default_service(object: &mut Value) {
    let Some(spec) = inner(object, "spec") else {
        return;
    };
    spec.entry("type").or_insert_with(|| json!("ClusterIP"));
    spec.entry("sessionAffinity").or_insert_with(|| json!("None"));
    // No dataplane serves virtual addresses here, so none is assigned: a Service is headless unless it says otherwise,
    // and no client dials an address that does not exist.
    let address = spec.entry("clusterIP").or_insert_with(|| json!("None")).clone();
    spec.entry("clusterIPs").or_insert_with(|| json!([address]));
    spec.entry("ipFamilies").or_insert_with(|| json!(["IPv4"]));
    spec.entry("ipFamilyPolicy")
        .or_insert_with(|| json!("SingleStack"));
    spec.entry("internalTrafficPolicy")
        .or_insert_with(|| json!("Cluster"));
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        fill(port, "protocol", json!("TCP"));
        if let Some(number) = port.get("port").cloned() {
            fill(port, "targetPort", number);
        }
    }
}

fn default_namespace(object: &mut Value) {
    let name = object.pointer("/metadata/name").cloned();
    if let Some(metadata) = object.get_mut("metadata")
        && let Some(labels) = inner(metadata, "labels")
        && let Some(name) = name
    {
        labels.insert("kubernetes.io/metadata.name".into(), name);
    }
    if let Some(spec) = inner(object, "spec") {
        spec.entry("finalizers").or_insert_with(|| json!(["kubernetes"]));
    }
    if let Some(status) = inner(object, "status") {
        status.entry("phase").or_insert_with(|| json!("Active"));
    }
}

fn default_pod(object: &mut Value) {
    if let Some(status) = inner(object, "status") {
        status.entry("phase").or_insert_with(|| json!("Pending"));
    }
}

fn default_endpoint_slice(object: &mut Value) {
    let endpoints = object.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        fill(endpoint, "conditions", json!({}));
    }
    for port in object
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        fill(port, "name", json!(""));
        fill(port, "protocol", json!("TCP"));
    }
}

/// Names are DNS subdomains (RFC 1123), for Namespaces and Services labels, for roles anything that fits into a path.
fn validate_name(kind: &ServedKind, name: &str, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
        return;
    }
    if kind.group == "rbac.authorization.k8s.io" {
        // `IsValidPathSegmentName`: names of the system's own roles contain colons.
        let why = match name {
            "." => Some("may not be '.'"),
            ".." => Some("may not be '..'"),
            _ if name.contains('/') => Some("may not contain '/'"),
            _ if name.contains('%') => Some("may not contain '%'"),
            _ => None,
        };
        errors.extend(why.map(|why| FieldError::invalid("metadata.name", &json!(name), why)));
        return;
    }
    let limit = match kind.kind {
        "Namespace" | "Service" => 63,
        _ => 253,
    };
    let labels_too = name.split('.').all(|label| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(label.chars().next())
            && edge(label.chars().last())
            && label
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    });
    if name.len() > limit || !labels_too || (limit == 63 && name.contains('.')) {
        errors.push(FieldError::invalid(
            "metadata.name",
            &json!(name),
            "a lowercase RFC 1123 name must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
        ));
    }
}

/// `data` of ConfigMaps and Secrets maps names to strings, and cannot change once `immutable` is true.
fn validate_data(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let entries = object
        .get("data")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    for (key, value) in entries {
        if !value.is_string() {
            errors.push(FieldError::invalid(
                format!("data[{key}]"),
                value,
                "must be a string",
            ));
        }
    }
    if let Some(old) = old
        && old.get("immutable") == Some(&Value::Bool(true))
        && old.get("data") != object.get("data")
    {
        errors.push(FieldError::invalid(
            "data",
            &Value::Null,
            "field is immutable when `immutable` is set",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::api::kinds::{KINDS, NAMESPACE, SERVICE, VALIDATING};

    #[test]
    fn a_namespace_carries_its_own_name_as_a_label() {
        let mut object =
            json!({"metadata": {"name": "x", "labels": {"kubernetes.io/metadata.name": "forged"}}});
        default(NAMESPACE, &mut object);
        assert_eq!(object["metadata"]["labels"]["kubernetes.io/metadata.name"], "x");
        assert_eq!(object["status"]["phase"], "Active");
    }

    #[test]
    fn a_service_is_headless_unless_it_says_otherwise() {
        let mut object = json!({"spec": {"ports": [{"port": 443}]}});
        default(SERVICE, &mut object);
        assert_eq!(
            object["spec"],
            json!({
                "type": "ClusterIP", "sessionAffinity": "None", "clusterIP": "None", "clusterIPs": ["None"],
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
                "ports": [{"port": 443, "targetPort": 443, "protocol": "TCP"}],
            })
        );
    }

    #[test]
    fn what_is_empty_is_not_stored() {
        let mut object = json!({
            "metadata": {"name": "x", "annotations": {}, "labels": {"a": ""}},
            "webhooks": [],
        });
        default(VALIDATING, &mut object);
        assert_eq!(object, json!({"metadata": {"name": "x", "labels": {"a": ""}}}));
    }

    #[test]
    fn a_name_that_is_no_dns_name_is_refused() {
        for (name, fine) in [
            ("ok", true),
            ("a.b-c", true),
            ("", false),
            ("Upper", false),
            ("-a", false),
            ("a..b", false),
        ] {
            assert_eq!(
                validate(&KINDS[1], name, &json!({}), None).is_ok(),
                fine,
                "{name:?}"
            );
        }
        assert!(validate(SERVICE, "a.b", &json!({}), None).is_err());
        let role = KINDS.iter().find(|kind| kind.kind == "ClusterRole").unwrap();
        assert!(validate(role, "system:node", &json!({}), None).is_ok());
        assert!(validate(role, "system/node", &json!({}), None).is_err());
    }
}
