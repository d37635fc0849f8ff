//! Requests that are drawn, and what hookwatch foretells of each.

use std::collections::BTreeMap;

use hookwatch::domain::cluster::hook::{Hook, Labels};
use hookwatch::domain::cluster::matching::conditions::{
    ConditionOutcome, ConditionRequest, MatchConditions, RequestObject,
};
use hookwatch::domain::cluster::matching::{RequestShape, Requester};
use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};

use super::super::privileges::cluster::content_type;
use super::webhooks::Draw;

/// A kind that requests are about: group, version, resource, kind, whether it is in namespaces.
pub type Kind = (&'static str, &'static str, &'static str, &'static str, bool);

pub const KINDS: [Kind; 17] = [
    ("", "v1", "configmaps", "ConfigMap", true),
    ("", "v1", "pods", "Pod", true),
    ("", "v1", "services", "Service", true),
    ("", "v1", "events", "Event", true),
    ("events.k8s.io", "v1", "events", "Event", true),
    ("apps", "v1", "deployments", "Deployment", true),
    (
        "autoscaling",
        "v1",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        true,
    ),
    (
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        true,
    ),
    ("coordination.k8s.io", "v1", "leases", "Lease", true),
    ("matcher.example", "v1", "widgets", "Widget", true),
    ("matcher.example", "v2", "widgets", "Widget", true),
    ("", "v1", "namespaces", "Namespace", false),
    ("", "v1", "nodes", "Node", false),
    ("", "v1", "persistentvolumes", "PersistentVolume", false),
    ("", "v1", "secrets", "Secret", true),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        "ClusterRole",
        false,
    ),
    (
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        false,
    ),
];

pub const NAMESPACES: [(&str, &[(&str, &str)]); 3] = [
    ("matcher-a", &[("env", "prod"), ("app", "web"), ("tier", "x")]),
    ("matcher-b", &[("env", "dev")]),
    ("kube-system", &[]),
];

pub const LABELS: [&[(&str, &str)]; 4] = [
    &[],
    &[("env", "prod")],
    &[("app", "web"), ("tier", "front")],
    &[("env", "dev"), ("app", "api")],
];

pub fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// A valid object of a kind.
pub fn object(kind: &Kind, namespace: &str, name: &str, pairs: &[(&str, &str)]) -> Value {
    let (group, version, _, kind_name, namespaced) = *kind;
    let api_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut object = json!({"apiVersion": api_version, "kind": kind_name, "metadata": {"name": name}});
    if !pairs.is_empty() {
        object["metadata"]["labels"] = json!(labels(pairs));
    }
    let is_web = pairs.contains(&("app", "web"));
    if is_web {
        object["metadata"]["annotations"] = json!({"vault.hashicorp.com/agent-inject": "true", "autoscaling.datadoghq.com/managed-by-dpa": "a/b"});
    }
    if namespaced {
        object["metadata"]["namespace"] = namespace.into();
    }
    let template = json!({"containers": [{"name": "c", "image": "example/c"}]});
    let scaled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    let more = match (kind_name, group, version) {
        ("Pod", ..) => json!({"spec": template}),
        ("Service", ..) => json!({"spec": {"ports": [{"port": 80}]}}),
        ("Deployment", ..) => json!({"spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": template}}}),
        ("HorizontalPodAutoscaler", ..) => json!({"spec": {"maxReplicas": 2, "scaleTargetRef": scaled}}),
        ("Event", "", _) => json!({"involvedObject": {"namespace": namespace}}),
        ("Event", ..) => {
            json!({"eventTime": "2026-11-24T00:00:00.000000Z", "reportingController": "example.com/c",
            "reportingInstance": "c", "action": "a", "reason": "r", "type": "Normal", "regarding": {"namespace": namespace}})
        }
        ("PriorityClass", ..) => json!({"value": 5}),
        ("Secret", ..) => {
            json!({"type": if is_web { "provisioning.cattle.io/cloud-credential" } else { "Opaque" }})
        }
        ("PersistentVolume", ..) => {
            let source = if is_web {
                json!({"gcePersistentDisk": {"pdName": "d"}})
            } else {
                json!({"hostPath": {"path": "/d"}})
            };
            let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
            json_patch::merge(&mut spec, &source);
            json!({"spec": spec})
        }
        _ => json!({}),
    };
    json_patch::merge(&mut object, &more);
    object
}

pub fn path(kind: &Kind, namespace: &str) -> String {
    let (group, version, resource, _, namespaced) = *kind;
    let prefix = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    if namespaced {
        format!("{prefix}/namespaces/{namespace}/{resource}")
    } else {
        format!("{prefix}/{resource}")
    }
}

/// One request.
pub struct Asking {
    kind: Kind,
    pub operation: &'static str,
    subresource: &'static str,
    namespace: (&'static str, &'static [(&'static str, &'static str)]),
    name: String,
    pub by: Requester<'static>,
    new: Option<Value>,
    old: Option<Value>,
}

const WRITERS: [Requester<'static>; 4] = [
    Requester {
        user: "a-person",
        groups: &["system:masters", "system:authenticated"],
    },
    Requester {
        user: "kubernetes-admin",
        groups: &["system:masters", "system:authenticated"],
    },
    Requester {
        user: "system:node:n",
        groups: &["system:masters", "system:nodes", "system:authenticated"],
    },
    Requester {
        user: "system:serviceaccount:kube-system:c",
        groups: &[
            "system:masters",
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            "system:authenticated",
        ],
    },
];

/// The name of the object that stands for a kind, one for each of the labels.
pub fn stands(at: usize) -> String {
    format!("matcher-{at}")
}

pub fn metadata_labels(object: &Value) -> Labels {
    let fields = object["metadata"]["labels"].as_object().into_iter().flatten();
    fields
        .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
        .collect()
}

impl Asking {
    pub fn target(&self) -> String {
        let below = if self.subresource.is_empty() {
            String::new()
        } else {
            format!("/{}", self.subresource)
        };
        let base = path(&self.kind, self.namespace.0);
        let one = if self.operation == "CREATE" {
            base
        } else {
            format!("{base}/{}{below}", self.name)
        };
        format!("{one}?dryRun=All")
    }

    pub fn request(&self) -> Request<Body> {
        let (method, body) = match self.operation {
            "CREATE" => (Method::POST, self.new.clone().unwrap()),
            "DELETE" => (
                Method::DELETE,
                json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}),
            ),
            _ => (
                Method::PATCH,
                json!({"metadata": {"labels": self.new.as_ref().unwrap()["metadata"]["labels"]}}),
            ),
        };
        let mut request = Request::builder()
            .method(&method)
            .uri(self.target())
            .header("content-type", content_type(&method, &body))
            .header("accept", "application/json")
            .header("impersonate-user", self.by.user);
        for group in self.by.groups {
            request = request.header("impersonate-group", *group);
        }
        request.body(Body::from(body.to_string().into_bytes())).unwrap()
    }

    /// What hookwatch says.
    pub fn foretold(
        &self,
        hook: &Hook,
        conditions: &MatchConditions,
        known_labels: &BTreeMap<String, Labels>,
    ) -> Option<bool> {
        let (group, version, resource, kind_name, namespaced) = self.kind;
        let is_namespace = resource == "namespaces";
        let new_labels = self.new.as_ref().map(metadata_labels);
        let old_labels = self.old.as_ref().map(metadata_labels);
        let shape = RequestShape {
            operation: self.operation,
            group,
            version,
            resource,
            subresource: self.subresource,
            namespace: if is_namespace {
                Some(&self.name)
            } else {
                namespaced.then_some(self.namespace.0)
            },
            namespace_labels: if is_namespace {
                old_labels.as_ref()
            } else {
                known_labels.get(self.namespace.0)
            },
            object_labels: new_labels.as_ref(),
            old_labels: old_labels.as_ref(),
        };
        if !hook.could_match(&shape) {
            return Some(false);
        }
        let asked = ConditionRequest {
            shape,
            kind: Some(kind_name),
            name: &self.name,
            by: self.by,
            dry_run: true,
        };
        let known = |object: &'_ Option<Value>| object.clone();
        let (new, old) = (known(&self.new), known(&self.old));
        let object = new.as_ref().map_or(RequestObject::Null, RequestObject::Object);
        let old = old.as_ref().map_or(RequestObject::Null, RequestObject::Object);
        match conditions.outcome(&asked, object, old) {
            ConditionOutcome::True => Some(true),
            // Failures are ignored here.
            ConditionOutcome::False | ConditionOutcome::Error => Some(false),
            ConditionOutcome::Unknown => None,
        }
    }
}

/// Every request that is made, given what is stored.
pub fn askings(draw: &mut Draw, stored: &BTreeMap<(usize, usize, usize), Value>) -> Vec<Asking> {
    let mut all = Vec::new();
    for (at, kind) in KINDS.iter().enumerate() {
        for (place, namespace) in NAMESPACES.iter().enumerate() {
            if !kind.4 && place > 0 {
                continue;
            }
            let by = || WRITERS;
            for operation in ["CREATE", "UPDATE", "DELETE"] {
                // Of a namespace that is deleted, its own finalizers are asked for first; and kube-system is never.
                let of = draw.below(LABELS.len());
                let pairs = LABELS[draw.below(LABELS.len())];
                let old = stored.get(&(at, place, of));
                let Some(old) = old else { continue };
                let name = if operation == "CREATE" {
                    (*draw.one(&["matcher-new", "virt-launcher-new", "hp-volume-new"])).to_owned()
                } else {
                    stands(of)
                };
                let new = match operation {
                    "CREATE" => Some(object(kind, namespace.0, &name, pairs)),
                    "DELETE" => None,
                    _ => {
                        let mut new = old.clone();
                        // A merge patch adds labels and keeps the others.
                        if !pairs.is_empty() {
                            json_patch::merge(&mut new, &json!({"metadata": {"labels": labels(pairs)}}));
                        }
                        Some(new)
                    }
                };
                let subresource = match (operation, kind.2) {
                    ("UPDATE", "pods" | "widgets" | "deployments" | "nodes") if draw.chance(40) => "status",
                    _ => "",
                };
                // The status of these is written without their labels.
                let new = if matches!((kind.2, subresource), ("widgets" | "deployments", "status")) {
                    Some(old.clone())
                } else {
                    new
                };
                let writers = by();
                all.push(Asking {
                    kind: *kind,
                    operation,
                    subresource,
                    namespace: *namespace,
                    name,
                    by: *draw.one(&writers),
                    new,
                    old: (operation != "CREATE").then(|| old.clone()),
                });
            }
        }
    }
    all
}
