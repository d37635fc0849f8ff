//! POST, PUT, PATCH and DELETE: everything that passes through admission.

mod collection;
mod object;
mod review;
mod subresource;

pub(super) use object::prepare_new;
pub(super) use subresource::scale_of;

use std::sync::Arc;

use http::Response;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ApiState;
use super::admission::{Attributes, HookTime, Surroundings, User};
use super::defaults;
use super::kinds::{NAMESPACE, ServedKind};
use super::knobs::cost;
use super::patch::PatchKind;
use super::reply::{self, Body};
use super::request::{ResourceRequest, Verb};
use super::status::{ApiFailure, FieldError};
use super::store::{StoredObject, WriteError};

/// Attempts of a write, admission included, when another write changes the object in between.
const ATTEMPTS: u32 = 10;

/// One write and its surroundings.
pub(super) struct WriteRequest<'a> {
    pub state: &'a ApiState,
    pub request: &'a ResourceRequest,
    pub user: &'a User,
    pub content_type: &'a str,
    pub body: &'a Value,
    pub time: &'a HookTime,
    /// When the whole request times out.
    pub deadline: Instant,
}

impl WriteRequest<'_> {
    pub(super) async fn run(&self) -> Result<Response<Body>, ApiFailure> {
        let kind = self.request.kind;
        self.dry_run()?;
        self.state.knobs.spend(cost::REQUEST + cost::WRITE).await;
        if kind.is_webhook_configuration()
            && let Some(reason) = self.state.knobs.refusal()
        {
            return Err(ApiFailure::forbidden(kind, &self.request.name, &reason));
        }
        let outcome = match self.request.verb {
            Verb::Post if !kind.stored => self.review(self.body.clone()).await,
            Verb::Post if !self.request.subresource.is_empty() => self.ask_for(self.body.clone()).await,
            Verb::Connect => self.connect().await,
            Verb::Post => self.create(self.body.clone()).await,
            Verb::Put if self.request.subresource == "scale" => self.scale(None).await,
            Verb::Put => self.update(None).await,
            Verb::Patch | Verb::Apply => {
                let patch = Some(PatchKind::of(self.content_type)?);
                if self.request.subresource == "scale" {
                    self.scale(patch).await
                } else {
                    self.update(patch).await
                }
            }
            Verb::Delete => self.delete().await,
            Verb::DeleteCollection => self.delete_collection().await,
            _ => Err(ApiFailure::method_not_allowed()),
        };
        // After the request's deadline every failure is reported as a timeout.
        match outcome {
            Err(_) if Instant::now() >= self.deadline => Err(ApiFailure::timeout()),
            outcome => outcome,
        }
    }

    /// Whether the request is a dry run.
    fn dry_run(&self) -> Result<bool, ApiFailure> {
        let in_body = self.body.get("dryRun").and_then(Value::as_array);
        let in_body = in_body
            .filter(|_| matches!(self.request.verb, Verb::Delete | Verb::DeleteCollection))
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let mut dry = false;
        for value in self.request.query.all("dryRun").chain(in_body) {
            if value != "All" {
                let error = FieldError::unsupported("dryRun", &json!([value]), &["All"]);
                let options = self.options_kind();
                return Err(ApiFailure::invalid_as(options, "meta.k8s.io", "", &[error]));
            }
            dry = true;
        }
        Ok(dry)
    }

    fn attributes(&self, operation: &'static str, name: &str) -> Result<Attributes, ApiFailure> {
        let dry_run = self.dry_run()?;
        let kind = self.request.kind;
        let own = (kind.group, kind.version, kind.kind);
        let subresource = kind.subresource(&self.request.subresource);
        // By the effective operation, not the verb: a PATCH updates, or creates what is applied for the first time.
        let options = match operation {
            "CREATE" => "CreateOptions",
            "UPDATE" => "UpdateOptions",
            _ => "DeleteOptions",
        };
        let mut options = json!({"kind": options, "apiVersion": "meta.k8s.io/v1"});
        if dry_run {
            options["dryRun"] = json!(["All"]);
        }
        for field in ["fieldManager", "fieldValidation"] {
            if let Some(value) = self.request.query.get(field) {
                options[field] = json!(value);
            }
        }
        // For admission a Namespace is in the namespace of its own name.
        let namespace = if kind == NAMESPACE {
            name
        } else {
            &self.request.namespace
        };
        Ok(Attributes {
            kind,
            object_kind: subresource.map_or(own, |subresource| subresource.object),
            operation,
            subresource: self.request.subresource.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            user: self.user.clone(),
            dry_run,
            options,
            object: None,
            old: None,
            deadline: self.deadline,
        })
    }

    fn options_kind(&self) -> &'static str {
        match self.request.verb {
            Verb::Post => "CreateOptions",
            Verb::Put => "UpdateOptions",
            Verb::Delete | Verb::DeleteCollection => "DeleteOptions",
            _ => "PatchOptions",
        }
    }

    fn around(&self) -> Surroundings<'_> {
        Surroundings {
            store: &self.state.store,
            knobs: &self.state.knobs,
            metrics: &self.state.metrics,
            time: self.time,
        }
    }

    async fn create(&self, mut sent: Value) -> Result<Response<Body>, ApiFailure> {
        let (kind, namespace) = (self.request.kind, self.request.namespace.as_str());
        let name = object::prepare_new(kind, namespace, &mut sent)?;
        if kind.namespaced && self.state.store.get(NAMESPACE, "", namespace).is_none() {
            return Err(ApiFailure::not_found(NAMESPACE, namespace));
        }
        defaults::default(kind, &mut sent);
        // Mutating hooks see no generated name: the API server makes it from `generateName` after them.
        let sent_name = self.body.pointer("/metadata/name").and_then(Value::as_str);
        let known = sent_name.is_some_and(|name| !name.is_empty()) || self.request.verb == Verb::Apply;
        let mut attributes = self.attributes("CREATE", if known { &name } else { "" })?;
        attributes.object = Some(sent);
        self.state
            .admission
            .mutate(self.around(), &mut attributes)
            .await?;
        attributes.name.clone_from(&name);
        let mut object = attributes.object.take().unwrap_or_default();
        defaults::default(kind, &mut object);
        defaults::validate(kind, &name, &object, None)?;
        attributes.object = Some(object);
        self.state.admission.validate(self.around(), &attributes).await?;
        let object = attributes.object.take().unwrap_or_default();
        if attributes.dry_run {
            // Instead of writing, a dry run checks whether the name is taken.
            self.state.etcd(kind, "get").await;
            if self.state.store.get(kind, namespace, &name).is_some() {
                return Err(ApiFailure::already_exists(kind, &name));
            }
            return Ok(reply::value(201, &object));
        }
        self.state.etcd(kind, "create").await;
        let stored = self
            .state
            .store
            .create(kind, namespace, &name, object)
            .map_err(|_| ApiFailure::already_exists(kind, &name))?;
        Ok(reply::object(201, kind, &stored))
    }

    /// PUT, or a PATCH of the kind `patch`.
    async fn update(&self, patch: Option<PatchKind>) -> Result<Response<Body>, ApiFailure> {
        let (kind, name) = (self.request.kind, self.request.name.as_str());
        if patch == Some(PatchKind::Apply) && self.request.query.get("fieldManager").is_none() {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(ApiFailure::invalid_as(
                "PatchOptions",
                "meta.k8s.io",
                "",
                &[error],
            ));
        }
        for _ in 0..ATTEMPTS {
            self.state.etcd(kind, "get").await;
            let Some(current) = self.state.store.get(kind, &self.request.namespace, name) else {
                if patch == Some(PatchKind::Apply) && self.request.subresource.is_empty() {
                    return self.create_applied().await;
                }
                return Err(ApiFailure::not_found(kind, name));
            };
            let sent = match patch {
                Some(patch) => patch.apply(&current.object, self.body)?,
                None => self.body.clone(),
            };
            match self.update_once(&current, sent).await? {
                Some(response) => return Ok(response),
                None => continue,
            }
        }
        Err(object::moved(kind, name))
    }

    /// Server-side apply of an object that does not exist creates it.
    async fn create_applied(&self) -> Result<Response<Body>, ApiFailure> {
        let mut object = self.body.clone();
        if object.pointer("/metadata/name").is_none()
            && let Some(metadata) = object.get_mut("metadata")
        {
            metadata["name"] = json!(self.request.name);
        }
        self.create(object).await
    }

    /// One attempt; `None` when another write changed the object in between. Another attempt fails then, if the client named a
    /// version.
    async fn update_once(
        &self,
        current: &Arc<StoredObject>,
        sent: Value,
    ) -> Result<Option<Response<Body>>, ApiFailure> {
        let (kind, name) = (self.request.kind, self.request.name.as_str());
        let mut object = object::prepare_update(self.request, sent, &current.object)?;
        defaults::default(kind, &mut object);
        let mut attributes = self.attributes("UPDATE", name)?;
        attributes.object = Some(object);
        attributes.old = Some(Arc::clone(current));
        self.state
            .admission
            .mutate(self.around(), &mut attributes)
            .await?;
        let mut object = attributes.object.take().unwrap_or_default();
        object::check_version(
            kind,
            name,
            &object,
            current.revision,
            self.request.verb == Verb::Put,
        )?;
        defaults::default(kind, &mut object);
        object::finish_update(kind, &mut object, &current.object);
        defaults::validate(kind, name, &object, Some(&current.object))?;
        attributes.object = Some(object);
        self.state.admission.validate(self.around(), &attributes).await?;
        let object = attributes.object.take().unwrap_or_default();
        if object == current.object {
            return Ok(Some(reply::object(200, kind, current)));
        }
        if attributes.dry_run {
            return Ok(Some(reply::value(200, &object)));
        }
        self.state.etcd(kind, "update").await;
        let replaced =
            self.state
                .store
                .replace(kind, &self.request.namespace, name, current.revision, object);
        match replaced {
            Ok(stored) => Ok(Some(reply::object(200, kind, &stored))),
            Err(WriteError::Conflict) => Ok(None),
            Err(WriteError::NotFound | WriteError::AlreadyExists) => Err(ApiFailure::not_found(kind, name)),
        }
    }

    async fn delete(&self) -> Result<Response<Body>, ApiFailure> {
        let (kind, name) = (self.request.kind, self.request.name.as_str());
        let namespace = self.request.namespace.as_str();
        for _ in 0..ATTEMPTS {
            self.state.etcd(kind, "get").await;
            let current = self
                .state
                .store
                .get(kind, namespace, name)
                .ok_or_else(|| ApiFailure::not_found(kind, name))?;
            object::check_preconditions(kind, name, self.body, &current.object)?;
            if kind == NAMESPACE && matches!(name, "default" | "kube-system" | "kube-public") {
                return Err(ApiFailure::forbidden(
                    kind,
                    name,
                    "this namespace may not be deleted",
                ));
            }
            let mut attributes = self.attributes("DELETE", name)?;
            if kind == NAMESPACE {
                // Emptying a namespace takes long. The uid protects a later namespace of the same name.
                attributes.options["preconditions"] = json!({"uid": current.object["metadata"]["uid"]});
            }
            attributes.old = Some(Arc::clone(&current));
            self.state
                .admission
                .mutate(self.around(), &mut attributes)
                .await?;
            self.state.admission.validate(self.around(), &attributes).await?;
            if attributes.dry_run {
                return Ok(reply::value(200, &deleted(kind, &current.object)));
            }
            self.state.etcd(kind, "delete").await;
            match self.state.store.remove(kind, namespace, name, current.revision) {
                Ok(removed) => {
                    if kind == NAMESPACE {
                        object::empty_namespace(&self.state.store, name);
                    }
                    return Ok(reply::value(200, &deleted(kind, &removed.object)));
                }
                Err(WriteError::Conflict) => {}
                Err(WriteError::NotFound | WriteError::AlreadyExists) => {
                    return Err(ApiFailure::not_found(kind, name));
                }
            }
        }
        Err(object::moved(kind, name))
    }
}

/// The answer to a deletion: a Status, but for a Namespace the object, because a real API server only marks it as terminating.
fn deleted(kind: &ServedKind, object: &Value) -> Value {
    if kind == NAMESPACE {
        let mut object = object.clone();
        object["metadata"]["deletionTimestamp"] = json!(object::now());
        object["status"]["phase"] = json!("Terminating");
        return object;
    }
    let mut details = json!({
        "name": object["metadata"]["name"],
        "kind": kind.resource,
        "uid": object["metadata"]["uid"],
    });
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    })
}
