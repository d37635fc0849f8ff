//! Assembles what an audit examines, an [`Estate`], from the objects of a cluster or of manifests.

pub mod cluster;
pub mod manifests;
mod objects;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::objects::{budget, labels_of, service, text, workload};
use super::inventory::convert::service::{Service, Slice, resolve};
use super::inventory::convert::{self, Problems};
use crate::domain::audit::estate::{Converted, Unlisted};
use crate::domain::audit::{AuditedHook, Estate, SourceLocation};
use crate::domain::cluster::hook::{Hook, HookKind, HookTarget, NamespacedName, ServiceState};
use crate::domain::time::Time;

/// A Kubernetes object as JSON, and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct EstateObject {
    /// The object, with `kind` and `apiVersion`.
    pub value: Value,
    /// The file and the line that it begins at; `None` if it was read from a cluster.
    pub source: Option<SourceLocation>,
    /// For each value of a `name` field in its document, the first line that has it, from 1. Used to locate webhooks.
    pub lines: Arc<BTreeMap<String, usize>>,
}

/// An object that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableObject {
    /// The file and line; `None` if it was read from a cluster.
    pub source: Option<SourceLocation>,
    /// The object, as far as it could be identified.
    pub object: String,
    /// What is wrong with it and what to do.
    pub why: String,
}

/// Most `status.storedVersions` kept of one CustomResourceDefinition.
const MAX_VERSIONS: usize = 32;
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Assembles an estate. Invalid objects are left out and returned in the second part. `unlisted`: the kinds of which some
/// objects of a cluster are missing; `None` if the objects come from manifests. `at`: when the cluster was read.
pub fn assemble(
    objects: Vec<EstateObject>,
    unlisted: Option<Unlisted>,
    at: Option<Time>,
) -> (Estate, Vec<UnreadableObject>) {
    let mut made = Making {
        estate: Estate {
            is_cluster: unlisted.is_some(),
            unlisted: unlisted.unwrap_or_default(),
            at,
            ..Estate::default()
        },
        ..Making::default()
    };
    for object in objects {
        made.take(object);
    }
    made.end()
}

impl EstateObject {
    /// An object that was read from a cluster.
    fn of_cluster(value: Value) -> Self {
        Self {
            value,
            source: None,
            lines: Arc::default(),
        }
    }
}

#[derive(Default)]
struct Making {
    estate: Estate,
    unreadable: Vec<UnreadableObject>,
    services: BTreeMap<NamespacedName, Service>,
    slices: BTreeMap<NamespacedName, Vec<Slice>>,
}

impl Making {
    fn take(&mut self, object: EstateObject) {
        let value = &object.value;
        let (version, kind) = (text(&value["apiVersion"]), text(&value["kind"]));
        let (namespace, name) = (
            text(&value["metadata"]["namespace"]),
            text(&value["metadata"]["name"]),
        );
        // kubectl applies an object without a namespace to `default`.
        let namespace = if namespace.is_empty() {
            "default"
        } else {
            namespace
        };
        let key = (namespace.to_owned(), name.to_owned());
        match (version, kind) {
            (_, "ValidatingWebhookConfiguration") => self.configuration(HookKind::Validating, &object),
            (_, "MutatingWebhookConfiguration") => self.configuration(HookKind::Mutating, &object),
            ("v1", "Namespace") => {
                let labels = labels_of(&value["metadata"]["labels"]);
                self.estate.namespaces.insert(name.to_owned(), labels);
            }
            ("v1", "Service") => {
                let mut facts = service(value);
                facts.source.clone_from(&object.source);
                self.estate.services.insert(key.clone(), facts);
                if let Some(known) = self.typed::<k8s_openapi::api::core::v1::Service>(&object) {
                    self.services.insert(key, known.into());
                }
            }
            ("discovery.k8s.io/v1", "EndpointSlice") => {
                if let Some(slice) = self.typed::<EndpointSlice>(&object).and_then(Slice::of) {
                    self.slices
                        .entry((key.0, slice.service.clone()))
                        .or_default()
                        .push(slice);
                }
            }
            ("apps/v1", "Deployment" | "StatefulSet" | "DaemonSet") => {
                let mut workload = workload(kind, key, &value["spec"]);
                workload.source = object.source;
                self.estate.workloads.push(workload);
            }
            ("policy/v1", "PodDisruptionBudget") => self.estate.budgets.extend(budget(key.0, &value["spec"])),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => self.definition(&object),
            ("v1", "Node") => {
                self.estate
                    .nodes
                    .insert(name.to_owned(), convert::node::state(value));
            }
            _ => {}
        }
    }

    fn definition(&mut self, object: &EstateObject) {
        let conversion = &object.value["spec"]["conversion"];
        if conversion["strategy"] != "Webhook" {
            return;
        }
        let service = &conversion["webhook"]["clientConfig"]["service"];
        let stored = object.value["status"]["storedVersions"].as_array();
        let stored = stored.into_iter().flatten().filter_map(Value::as_str);
        self.estate.converted.push(Converted {
            name: text(&object.value["metadata"]["name"]).to_owned(),
            service: service.is_object().then(|| {
                (
                    text(&service["namespace"]).to_owned(),
                    text(&service["name"]).to_owned(),
                )
            }),
            stored: stored.take(MAX_VERSIONS).map(str::to_owned).collect(),
            source: object.source.clone(),
        });
    }

    fn typed<T: DeserializeOwned>(&mut self, object: &EstateObject) -> Option<T> {
        match T::deserialize(&object.value) {
            Ok(typed) => Some(typed),
            Err(why) => {
                self.refuse(object, &format!("{why}; correct the field"));
                None
            }
        }
    }

    fn refuse(&mut self, object: &EstateObject, why: &str) {
        let value = &object.value;
        self.unreadable.push(UnreadableObject {
            source: object.source.clone(),
            object: format!("{}/{}", text(&value["kind"]), text(&value["metadata"]["name"])),
            why: why.to_owned(),
        });
    }

    fn configuration(&mut self, kind: HookKind, object: &EstateObject) {
        let version = text(&object.value["apiVersion"]);
        if version != format!("{ADMISSION}/v1") {
            let why = format!(
                "{version:?} is not a version that a current API server serves; write {ADMISSION}/v1"
            );
            return self.refuse(object, &why);
        }
        let hooks = self.typed(object).map(|it| convert::hooks(kind, it));
        for hook in hooks.into_iter().flatten() {
            let line = object.lines.get(&*hook.id.webhook);
            let source = object.source.as_ref().map(|source| SourceLocation {
                file: source.file.clone(),
                line: line.copied().unwrap_or(source.line),
            });
            self.estate.subjects.push(AuditedHook {
                source,
                hook: Arc::new(hook),
            });
        }
    }

    fn end(mut self) -> (Estate, Vec<UnreadableObject>) {
        let mut subjects = std::mem::take(&mut self.estate.subjects);
        for subject in &mut subjects {
            self.resolve(Arc::make_mut(&mut subject.hook));
        }
        subjects.sort_by_cached_key(AuditedHook::order);
        self.estate.subjects = subjects;
        (self.estate, self.unreadable)
    }

    /// Resolves a hook's Service to endpoints. Manifests do not contain endpoints, so their hooks stay unresolved.
    fn resolve(&self, hook: &mut Hook) {
        // The daemon reports these; here findings say the same.
        let mut problems = Problems::of(&hook.id);
        let HookTarget::Service(target) = &mut hook.target else {
            return;
        };
        // The API server manages the endpoints of its own Service itself.
        if !self.estate.is_cluster || target.is_api_server() {
            return;
        }
        let key = target.key();
        let unknown = |kind: &str| ServiceState::Unknown {
            why: format!("not every {kind} of its namespace could be listed"),
        };
        let is_listed = |kind: &str| self.estate.is_listed(kind, &key.0);
        target.service = match self.services.get(&key) {
            None if !is_listed("Service") => unknown("Service"),
            None => ServiceState::Missing,
            Some(_) if !is_listed("EndpointSlice") => unknown("EndpointSlice"),
            Some(service) => {
                let slices = self.slices.get(&key).into_iter().flatten();
                resolve(target, service, slices, &mut problems)
            }
        };
    }
}
