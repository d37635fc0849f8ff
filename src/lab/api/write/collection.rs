//! DELETE of all objects of a kind in a namespace.

use std::sync::Arc;

use http::Response;
use serde_json::{Value, json};

use super::super::reply::{self, Body};
use super::super::select::Selection;
use super::super::status::ApiFailure;
use super::{WriteRequest, object};

impl WriteRequest<'_> {
    /// Deletes what the selectors match, each object after its own admission. Reviews have no name, as in a real API server.
    pub(super) async fn delete_collection(&self) -> Result<Response<Body>, ApiFailure> {
        let (kind, namespace) = (self.request.kind, self.request.namespace.as_str());
        let selection = Selection::parse(&self.request.query)?;
        let mut attributes = self.attributes("DELETE", "")?;
        self.state.etcd(kind, "list").await;
        let within = Some(namespace).filter(|_| kind.namespaced);
        let (revision, objects) = self.state.store.list(kind, within);
        let mut gone = Vec::new();
        for stored in objects.iter().filter(|stored| selection.matches(&stored.object)) {
            attributes.old = Some(Arc::clone(stored));
            self.state
                .admission
                .mutate(self.around(), &mut attributes)
                .await?;
            self.state.admission.validate(self.around(), &attributes).await?;
            let name = stored.object["metadata"]["name"].as_str().unwrap_or_default();
            if !attributes.dry_run {
                self.state.etcd(kind, "delete").await;
                let removed = self.state.store.remove(kind, namespace, name, stored.revision);
                removed.map_err(|_| object::moved(kind, name))?;
            }
            let mut item = stored.object.clone();
            if let Some(fields) = item.as_object_mut() {
                fields.remove("apiVersion");
                fields.remove("kind");
            }
            gone.push(item);
        }
        let list = json!({
            "kind": format!("{}List", kind.kind),
            "apiVersion": kind.api_version(),
            "metadata": {"resourceVersion": revision.to_string()},
            "items": Value::Array(gone),
        });
        Ok(reply::value(200, &list))
    }
}
