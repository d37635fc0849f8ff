//! Tables for people: what `kubectl get` shows.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::ServedKind;
use super::store::StoredObject;

/// Whether the client prefers a table.
pub(super) fn wanted(accept: &str) -> bool {
    let first = accept.split(',').next().unwrap_or_default();
    first.contains("as=Table") && first.contains("v=v1") && first.contains("g=meta.k8s.io")
}

/// Objects as a `meta.k8s.io/v1` Table with the columns that the kind is known by.
pub(super) fn table(kind: &ServedKind, revision: u64, objects: &[Arc<StoredObject>]) -> Value {
    let columns = columns(kind);
    let mut definitions = vec![definition("Name", "name")];
    definitions.extend(columns.iter().map(|(title, _)| definition(title, "")));
    definitions.push(definition("Age", ""));
    let rows: Vec<Value> = objects
        .iter()
        .map(|stored| row(&stored.object, &columns))
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": revision.to_string()},
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

type Column = (&'static str, fn(&Value) -> String);

fn columns(kind: &ServedKind) -> Vec<Column> {
    match kind.kind {
        "Namespace" | "Pod" => vec![("Status", |object| text(object, "/status/phase"))],
        "ConfigMap" => vec![("Data", |object| count(object, "/data"))],
        "Secret" => vec![
            ("Type", |object| text(object, "/type")),
            ("Data", |object| count(object, "/data")),
        ],
        "Service" => vec![
            ("Type", |object| text(object, "/spec/type")),
            ("Cluster-IP", |object| text(object, "/spec/clusterIP")),
            ("Port(s)", |object| ports(object, "/spec/ports")),
        ],
        "EndpointSlice" => vec![
            ("AddressType", |object| text(object, "/addressType")),
            ("Ports", |object| ports(object, "/ports")),
            ("Endpoints", endpoints),
        ],
        "Lease" => vec![("Holder", |object| text(object, "/spec/holderIdentity"))],
        "Event" => vec![
            ("Type", |object| text(object, "/type")),
            ("Reason", |object| text(object, "/reason")),
            ("Message", |object| {
                ["/message", "/note"]
                    .iter()
                    .map(|path| text(object, path))
                    .collect()
            }),
        ],
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            vec![("Webhooks", |object| count(object, "/webhooks"))]
        }
        "CustomResourceDefinition" => {
            vec![("Created At", |object| text(object, "/metadata/creationTimestamp"))]
        }
        "APIService" => vec![("Service", served_by), ("Available", available)],
        _ => Vec::new(),
    }
}

fn served_by(object: &Value) -> String {
    match object.pointer("/spec/service") {
        Some(_) => format!(
            "{}/{}",
            text(object, "/spec/service/namespace"),
            text(object, "/spec/service/name")
        ),
        None => "Local".to_owned(),
    }
}

fn available(object: &Value) -> String {
    let status = text(object, "/status/conditions/0/status");
    match status.as_str() {
        "" => "<unknown>".to_owned(),
        "True" => status,
        _ => format!("{status} ({})", text(object, "/status/conditions/0/reason")),
    }
}

fn definition(title: &str, format: &str) -> Value {
    json!({"name": title, "type": "string", "format": format, "description": "", "priority": 0})
}

fn row(object: &Value, columns: &[Column]) -> Value {
    let mut cells = vec![text(object, "/metadata/name")];
    cells.extend(columns.iter().map(|(_, cell)| cell(object)));
    cells.push(age(object));
    let partial = json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    });
    json!({"cells": cells, "object": partial})
}

fn text(object: &Value, path: &str) -> String {
    object
        .pointer(path)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn count(object: &Value, path: &str) -> String {
    let items = match object.pointer(path) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(fields)) => fields.len(),
        _ => 0,
    };
    items.to_string()
}

fn ports(object: &Value, path: &str) -> String {
    let ports = object
        .pointer(path)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let ports: Vec<String> = ports.map(|port| port["port"].to_string()).collect();
    ports.join(",")
}

fn endpoints(object: &Value) -> String {
    let endpoints = object["endpoints"].as_array().into_iter().flatten();
    let addresses: Vec<&str> = endpoints
        .filter_map(|endpoint| endpoint.pointer("/addresses/0")?.as_str())
        .collect();
    addresses.join(",")
}

/// The age of an object in its largest unit.
fn age(object: &Value) -> String {
    let created: Option<jiff::Timestamp> = object
        .pointer("/metadata/creationTimestamp")
        .and_then(Value::as_str)
        .and_then(|created| created.parse().ok());
    let Some(created) = created else {
        return "<unknown>".to_owned();
    };
    let seconds = jiff::Timestamp::now().duration_since(created).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_prefers_a_table_gets_one() {
        assert!(wanted(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io"
        ));
        assert!(!wanted("application/json"));
        assert!(!wanted(
            "application/json,application/json;as=Table;v=v1;g=meta.k8s.io"
        ));
    }
}
