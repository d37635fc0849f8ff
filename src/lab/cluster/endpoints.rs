//! The backends of a hook's Service: its EndpointSlice, and Endpoints for API servers that use those.
//!
//! Before Kubernetes 1.34 an API server resolves a Service by its Endpoints, from 1.34 on by its EndpointSlices
//! (`ResolveEndpoint` in `apiserver/pkg/util/proxy/proxy.go`). In a real cluster controllers keep both equal.

use anyhow::Context;
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Cluster, LabHook, bounded, objects};
use crate::lab::control_plane::BackendReach;

/// The first minor release whose API server resolves Services by EndpointSlices.
const BY_SLICES: u32 = 34;

/// Whether the API server uses Endpoints, according to its version.
pub(super) async fn are_used(client: &kube::Client, reach: BackendReach) -> anyhow::Result<bool> {
    if reach != BackendReach::Namespace {
        return Ok(false);
    }
    let version = bounded(client.apiserver_version()).await?;
    let minor = version.minor.trim_end_matches('+').parse::<u32>();
    Ok(version.major == "1" && minor.is_ok_and(|minor| minor < BY_SLICES))
}

impl Cluster {
    /// Replaces the endpoints of a hook's Service by these.
    ///
    /// # Errors
    /// When the slice cannot be read or written, or there is none because hooks are reached by `url`.
    pub(super) async fn write_endpoints(
        &self,
        hook: LabHook,
        listed: Option<Vec<Endpoint>>,
    ) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.reach != BackendReach::Url,
            "a hook that is reached by url has no endpoints"
        );
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), hook.namespace());
        let name = objects::slice_name(hook);
        self.update(&api, &name, |slice| slice.endpoints.clone_from(&listed))
            .await
            .with_context(|| format!("changing EndpointSlice {}/{name}", hook.namespace()))?;
        self.write_twin(hook, &listed.unwrap_or_default()).await
    }

    /// Writes Endpoints equal to the slice, where the API server uses them.
    pub(super) async fn write_twin(&self, hook: LabHook, listed: &[Endpoint]) -> anyhow::Result<()> {
        if !self.goes_by_endpoints {
            return Ok(());
        }
        let twin: Endpoints = objects::object(twin(hook.service(), listed, objects::port(self, hook)))?;
        let api: Api<Endpoints> = Api::namespaced(self.client.clone(), hook.namespace());
        let how = PatchParams::apply("hookwatch-lab").force();
        bounded(api.patch(hook.service(), &how, &Patch::Apply(&twin)))
            .await
            .with_context(|| format!("writing Endpoints {}/{}", hook.namespace(), hook.service()))?;
        Ok(())
    }
}

fn twin(name: &str, listed: &[Endpoint], port: Option<u16>) -> Value {
    let of = |ready: bool| -> Vec<Value> {
        let listed = listed.iter().filter(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            conditions.and_then(|conditions| conditions.ready).unwrap_or(true) == ready
        });
        listed
            .flat_map(|endpoint| &endpoint.addresses)
            .map(|address| json!({"ip": address}))
            .collect()
    };
    let subset = json!({
        "addresses": of(true), "notReadyAddresses": of(false),
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    let subsets = if listed.is_empty() {
        json!([])
    } else {
        json!([subset])
    };
    // A server-side apply needs `apiVersion` and `kind`.
    json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": name}, "subsets": subsets})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_is_not_ready_is_among_the_others() {
        let listed: Vec<Endpoint> = serde_json::from_value(json!([
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            {"addresses": ["10.0.0.3"]},
        ]))
        .unwrap();
        let twin = twin("a", &listed, Some(8443));
        let of = |field: &str| twin["subsets"][0][field].clone();
        assert_eq!(of("addresses"), json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.3"}]));
        assert_eq!(of("notReadyAddresses"), json!([{"ip": "10.0.0.2"}]));
    }

    #[test]
    fn without_endpoints_there_is_no_subset() {
        assert_eq!(twin("a", &[], Some(8443))["subsets"], json!([]));
    }
}
