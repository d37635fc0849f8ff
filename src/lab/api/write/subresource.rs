//! Writes to subresources other than those that are part of the object, such as `status`.

use std::sync::Arc;

use http::Response;
use serde_json::{Value, json};

use super::super::kinds::SubresourceKind;
use super::super::patch::PatchKind;
use super::super::random;
use super::super::reply::{self, Body};
use super::super::status::ApiFailure;
use super::super::store::{StoredObject, WriteError};
use super::{ATTEMPTS, WriteRequest, object};

impl WriteRequest<'_> {
    fn parent(&self) -> Result<Arc<StoredObject>, ApiFailure> {
        let (kind, name) = (self.request.kind, self.request.name.as_str());
        let found = self.state.store.get(kind, &self.request.namespace, name);
        found.ok_or_else(|| ApiFailure::not_found(kind, name))
    }

    /// POST of a token request, an eviction or a binding.
    pub(super) async fn ask_for(&self, mut sent: Value) -> Result<Response<Body>, ApiFailure> {
        let (kind, name) = (self.request.kind, self.request.name.as_str());
        let namespace = self.request.namespace.as_str();
        let Some(subresource) = kind.subresource(&self.request.subresource) else {
            return Err(ApiFailure::method_not_allowed());
        };
        if !sent.is_object() {
            return Err(ApiFailure::bad_request("the object provided is unrecognized"));
        }
        let (group, version, object_kind) = subresource.object;
        sent["kind"] = json!(object_kind);
        sent["apiVersion"] = json!(if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        });
        sent["metadata"]["name"] = json!(name);
        sent["metadata"]["namespace"] = json!(namespace);
        self.state.etcd(kind, "get").await;
        let mut attributes = self.attributes("CREATE", name)?;
        attributes.object = Some(sent);
        self.state
            .admission
            .mutate(self.around(), &mut attributes)
            .await?;
        self.state.admission.validate(self.around(), &attributes).await?;
        let mut sent = attributes.object.take().unwrap_or_default();
        let parent = self.parent()?;
        let written = match subresource.way {
            SubresourceKind::Eviction if !attributes.dry_run => {
                self.state.etcd(kind, "delete").await;
                let store = &self.state.store;
                store.remove(kind, namespace, name, parent.revision).map(|_| ())
            }
            SubresourceKind::Binding if !attributes.dry_run => {
                let mut pod = parent.object.clone();
                pod["spec"]["nodeName"] = sent["target"]["name"].take();
                self.state.etcd(kind, "update").await;
                let store = &self.state.store;
                store
                    .replace(kind, namespace, name, parent.revision, pod)
                    .map(|_| ())
            }
            _ => Ok(()),
        };
        written.map_err(|_| object::moved(kind, name))?;
        if subresource.way == SubresourceKind::Token {
            // No API server of the lab accepts this token.
            sent["status"] = json!({"token": random::uuid(), "expirationTimestamp": object::now()});
            return Ok(reply::value(201, &sent));
        }
        let done =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
        Ok(reply::value(201, &done))
    }

    /// A connection to a Pod. It passes through admission and then fails, because no Pod runs here.
    pub(super) async fn connect(&self) -> Result<Response<Body>, ApiFailure> {
        let name = self.request.name.as_str();
        self.parent()?;
        let mut options = json!({"kind": "PodExecOptions", "apiVersion": "v1"});
        for flag in ["stdin", "stdout", "stderr", "tty"] {
            if self.request.query.flag(flag) {
                options[flag] = json!(true);
            }
        }
        let command: Vec<&str> = self.request.query.all("command").collect();
        if !command.is_empty() {
            options["command"] = json!(command);
        }
        let mut attributes = self.attributes("CONNECT", name)?;
        attributes.object = Some(options);
        attributes.options = Value::Null;
        self.state
            .admission
            .mutate(self.around(), &mut attributes)
            .await?;
        self.state.admission.validate(self.around(), &attributes).await?;
        Err(ApiFailure::bad_request(format!(
            "pod {name} does not have a host assigned"
        )))
    }

    /// PUT or PATCH of the number of replicas.
    pub(super) async fn scale(&self, patch: Option<PatchKind>) -> Result<Response<Body>, ApiFailure> {
        let (kind, name) = (self.request.kind, self.request.name.as_str());
        for _ in 0..ATTEMPTS {
            self.state.etcd(kind, "get").await;
            let parent = self.parent()?;
            let current = scale_of(&parent.object);
            let sent = match patch {
                Some(patch) => patch.apply(&current, self.body)?,
                None => self.body.clone(),
            };
            let mut wanted = current.clone();
            wanted["spec"] = sent["spec"].clone();
            let mut attributes = self.attributes("UPDATE", name)?;
            attributes.object = Some(wanted);
            attributes.old = Some(Arc::new(StoredObject::new(current, parent.revision)));
            self.state
                .admission
                .mutate(self.around(), &mut attributes)
                .await?;
            self.state.admission.validate(self.around(), &attributes).await?;
            let mut object = parent.object.clone();
            if let Some(replicas) = attributes
                .object
                .as_ref()
                .and_then(|scale| scale["spec"]["replicas"].as_u64())
            {
                object["spec"]["replicas"] = json!(replicas);
            }
            object::finish_update(kind, &mut object, &parent.object);
            if attributes.dry_run || object == parent.object {
                return Ok(reply::value(200, &scale_of(&object)));
            }
            self.state.etcd(kind, "update").await;
            let store = &self.state.store;
            match store.replace(kind, &self.request.namespace, name, parent.revision, object) {
                Ok(stored) => return Ok(reply::value(200, &scale_of(&stored.object))),
                Err(WriteError::Conflict) => {}
                Err(WriteError::NotFound | WriteError::AlreadyExists) => {
                    return Err(ApiFailure::not_found(kind, name));
                }
            }
        }
        Err(object::moved(kind, name))
    }
}

/// The Scale of a Deployment.
pub(in super::super) fn scale_of(deployment: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        metadata[field] = deployment["metadata"][field].clone();
    }
    let replicas = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": replicas},
        "status": {"replicas": 0},
    })
}
