//! What clients ask first: which kinds are there, which version is this.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::kinds::{KINDS, ServedKind};

/// The Kubernetes version that the lab reports.
const VERSION: &str = "v1.36.2";

/// The document at a path; `None` when there is none.
pub(super) fn document(path: &str, address: &str) -> Option<Value> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        ["version"] => Some(version()),
        ["api"] => Some(json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        })),
        ["apis"] => {
            let groups: Vec<Value> = groups().into_iter().map(group).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["api", "v1"] => resources(""),
        ["apis", name] if groups().contains(name) => {
            let mut group = group(name);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            Some(group)
        }
        ["apis", name, "v1"] => resources(name),
        ["openapi", "v3"] => Some(openapi_index()),
        ["openapi", "v3", "api", "v1"] => openapi(""),
        ["openapi", "v3", "apis", name, "v1"] => openapi(name),
        _ => None,
    }
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "gitVersion": VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": "linux/amd64",
    })
}

fn groups() -> BTreeSet<&'static str> {
    KINDS
        .iter()
        .map(|kind| kind.group)
        .filter(|group| !group.is_empty())
        .collect()
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

fn resources(group: &str) -> Option<Value> {
    let kinds: Vec<&ServedKind> = KINDS.iter().filter(|kind| kind.group == group).collect();
    let first = kinds.first()?;
    let mut resources = Vec::new();
    for kind in &kinds {
        resources.push(json!({
            "name": kind.resource,
            "singularName": kind.kind.to_lowercase(),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": if kind.stored {
                ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"].as_slice()
            } else {
                &["create"]
            },
            "shortNames": kind.short,
        }));
        if kind.status {
            resources.push(json!({
                "name": format!("{}/status", kind.resource),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": ["get", "patch", "update"],
            }));
        }
    }
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": first.api_version(),
        "resources": resources,
    }))
}

fn openapi_index() -> Value {
    let path = |group: &str| {
        if group.is_empty() {
            "api/v1".to_owned()
        } else {
            format!("apis/{group}/v1")
        }
    };
    let all = groups().into_iter().chain([""]);
    let paths: Map<String, Value> = all
        .map(|group| {
            let path = path(group);
            let url = format!("/openapi/v3/{path}?hash={VERSION}");
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// No schemas; only what kubectl looks up before it lets the server validate: that PATCH takes `fieldValidation`.
fn openapi(group: &str) -> Option<Value> {
    let kinds: Vec<&ServedKind> = KINDS.iter().filter(|kind| kind.group == group).collect();
    kinds.first()?;
    let root = if group.is_empty() { "api" } else { "apis" };
    let mut paths = Map::new();
    for kind in &kinds {
        let of = kind.api_version();
        let path = if kind.namespaced {
            format!("/{root}/{of}/namespaces/{{namespace}}/{}/{{name}}", kind.resource)
        } else {
            format!("/{root}/{of}/{}/{{name}}", kind.resource)
        };
        let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
        let patch = json!({
            "operationId": format!("patch{}", kind.kind),
            "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": {
                "group": kind.group, "version": kind.version, "kind": kind.kind,
            },
        });
        paths.insert(path, json!({"patch": patch}));
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths,
        "components": {"schemas": {}},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_served_kind_is_found_by_discovery() {
        let groups = document("/apis", "").expect("served");
        assert_eq!(
            groups["groups"].as_array().map(Vec::len),
            Some(super::groups().len())
        );
        for kind in &KINDS {
            let path = if kind.group.is_empty() {
                "/api/v1".to_owned()
            } else {
                format!("/apis/{}/v1", kind.group)
            };
            let list = document(&path, "").expect("served");
            let names = list["resources"].as_array().expect("resources");
            assert!(
                names.iter().any(|resource| resource["name"] == kind.resource),
                "{path} {}",
                kind.resource
            );
            assert!(document(&format!("/openapi/v3{path}"), "").is_some());
        }
        assert!(document("/apis/batch/v1", "").is_none());
    }
}
