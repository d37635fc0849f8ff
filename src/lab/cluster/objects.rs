//! The objects of the lab cluster, written as the manifests that they are.

use anyhow::Context;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Cluster, HookShape, LabHook, bounded, status_of};
use crate::domain::cluster::hook::HookKind;
use crate::lab::control_plane::BackendReach;

/// Namespaces of the lab; the first three exist in every real cluster already.
const NAMESPACES: [&str; 9] = [
    "default",
    "kube-system",
    "kube-node-lease",
    "opa",
    "policy",
    "team-a",
    "team-b",
    "hookwatch",
    ARCHIVE,
];

/// The namespace of the objects that make a LIST of all namespaces expensive.
const ARCHIVE: &str = "archive";
/// How many ConfigMaps there are in it.
const ARCHIVED: usize = 300;
/// Size of each of them on a real API server, in bytes. On the embedded one a LIST costs by the number of objects only.
const ARCHIVED_BYTES: usize = 20 << 10;

/// The name of every object that canaries write.
const CANARY: &str = "hookwatch-canary";

/// How many nodes there are: one for each backend of the hook that has most.
const NODES: usize = 3;

/// The name of a node, counted from 1.
pub(super) fn node_name(number: usize) -> String {
    format!("node-{number}")
}

/// The names of all nodes.
pub(super) fn node_names() -> impl Iterator<Item = String> {
    (1..=NODES).map(node_name)
}

/// The name of the EndpointSlice behind a hook's Service.
pub(super) fn slice_name(hook: LabHook) -> String {
    format!("{}-lab", hook.service())
}

/// Creates everything. The hooks come last, so that their backends are in place.
pub(super) async fn create_all(cluster: &Cluster) -> anyhow::Result<()> {
    let client = || cluster.client().clone();
    for name in NAMESPACES {
        // The API server sets this label itself. With it here selectors work on any API server.
        let labels = json!({"kubernetes.io/metadata.name": name});
        let namespace: Namespace = object(json!({"metadata": {"name": name, "labels": labels}}))?;
        create(&Api::all(client()), &namespace).await?;
    }
    for namespace in ["hookwatch", "kube-system"] {
        let canary: ConfigMap = object(json!({"metadata": {"name": CANARY, "namespace": namespace}}))?;
        create(&Api::namespaced(client(), namespace), &canary).await?;
    }
    let canary: Lease = object(json!({
        "metadata": {"name": CANARY, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": "hookwatch", "leaseDurationSeconds": 40},
    }))?;
    create(&Api::namespaced(client(), "kube-node-lease"), &canary).await?;

    for name in node_names() {
        let node: Node = object(json!({"metadata": {"name": name}}))?;
        create(&Api::all(client()), &node).await?;
        cluster.set_node_ready(&name, true).await?;
    }

    let archive: Api<ConfigMap> = Api::namespaced(client(), ARCHIVE);
    let text = match cluster.reach {
        BackendReach::Loopback => String::new(),
        BackendReach::Namespace | BackendReach::Url => "an old line of text\n".repeat(ARCHIVED_BYTES / 20),
    };
    futures::stream::iter(0..ARCHIVED)
        .map(|number| {
            let manifest = json!({
                "metadata": {"name": format!("entry-{number}"), "namespace": ARCHIVE},
                "data": {"text": text},
            });
            let archive = &archive;
            async move { create(archive, &object(manifest)?).await }
        })
        .buffer_unordered(8)
        .try_collect::<()>()
        .await?;

    let behind_services = LabHook::ALL
        .iter()
        .copied()
        .filter(|_| cluster.reach != BackendReach::Url);
    for hook in behind_services {
        create(
            &Api::namespaced(client(), hook.namespace()),
            &service(cluster, hook)?,
        )
        .await?;
        let slice = endpoint_slice(cluster, hook)?;
        create(&Api::namespaced(client(), hook.namespace()), &slice).await?;
        let listed = slice.endpoints.unwrap_or_default();
        cluster.write_twin(hook, &listed).await?;
    }
    for &hook in LabHook::ALL {
        create_configuration(cluster, hook).await?;
    }
    Ok(())
}

/// Creates a hook's configuration.
pub(super) async fn create_configuration(cluster: &Cluster, hook: LabHook) -> anyhow::Result<()> {
    let configuration = configuration(cluster, hook);
    let client = cluster.client.clone();
    match hook.kind() {
        HookKind::Mutating => {
            let configuration: MutatingWebhookConfiguration = object(configuration)?;
            create(&Api::all(client), &configuration).await
        }
        _ => {
            let configuration: ValidatingWebhookConfiguration = object(configuration)?;
            create(&Api::all(client), &configuration).await
        }
    }
}

/// The EndpointSlice behind a hook's Service, with every backend in it and ready.
pub(super) fn endpoint_slice(cluster: &Cluster, hook: LabHook) -> anyhow::Result<EndpointSlice> {
    let endpoints: Vec<Value> = cluster
        .backends(hook)
        .iter()
        .enumerate()
        .map(|(index, backend)| {
            json!({
                "addresses": [backend.address().ip()],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": node_name(index + 1),
                "targetRef": {
                    "kind": "Pod",
                    "namespace": hook.namespace(),
                    "name": format!("{}-{index}", hook.service()),
                },
            })
        })
        .collect();
    object(json!({
        "metadata": {
            "name": slice_name(hook),
            "namespace": hook.namespace(),
            // As the EndpointSlice controller labels its slices.
            "labels": {
                "kubernetes.io/service-name": hook.service(),
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "https", "port": port(cluster, hook), "protocol": "TCP"}],
    }))
}

fn service(cluster: &Cluster, hook: LabHook) -> anyhow::Result<Service> {
    object(json!({
        "metadata": {"name": hook.service(), "namespace": hook.namespace()},
        "spec": {
            "clusterIP": "None",
            "selector": {"app": hook.service()},
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port(cluster, hook)}],
        },
    }))
}

fn configuration(cluster: &Cluster, hook: LabHook) -> Value {
    let (policy, timeout) = match hook {
        LabHook::Opa | LabHook::Quota => ("Fail", 10),
        LabHook::Policy => ("Ignore", 5),
    };
    let rules = match hook {
        LabHook::Opa => everything(),
        LabHook::Policy => json!([{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["secrets", "configmaps"],
        }]),
        LabHook::Quota => json!([
            {
                "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["services"],
            },
            {
                "operations": ["CREATE", "UPDATE"], "apiGroups": ["coordination.k8s.io"], "apiVersions": ["v1"],
                "resources": ["leases"],
            },
        ]),
    };
    // Opa exempts its own namespace, as its manual recommends: else its endpoints could not be restored once it has
    // lost them.
    let spared = match hook {
        LabHook::Opa => Some("opa"),
        LabHook::Policy => Some("kube-system"),
        LabHook::Quota => None,
    };
    let selector = spared.map_or_else(
        || json!({}),
        |namespace| {
            json!({"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]},
            ]})
        },
    );
    json!({
        "metadata": {"name": hook.configuration(), "annotations": {"hookwatch.dev/probe": "review"}},
        "webhooks": [{
            "name": hook.webhook(),
            "clientConfig": client_config(cluster, hook, hook),
            "rules": rules,
            "namespaceSelector": selector,
            "failurePolicy": policy,
            "timeoutSeconds": timeout,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    })
}

/// A hook's configuration with its webhook in another shape, and with its siblings.
pub(super) fn arranged(cluster: &Cluster, hook: LabHook, shape: &HookShape) -> Value {
    let mut configuration = configuration(cluster, hook);
    let webhook = &mut configuration["webhooks"][0];
    let namespaces = json!([{
        "operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"],
    }]);
    webhook["clientConfig"] = client_config(cluster, hook, shape.at);
    webhook["rules"] = if shape.only_namespaces {
        namespaces
    } else {
        everything()
    };
    webhook["namespaceSelector"] = if shape.spares_itself {
        json!({"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [shape.at.namespace()]},
        ]})
    } else {
        json!({})
    };
    webhook["failurePolicy"] = if shape.ignores { "Ignore" } else { "Fail" }.into();
    webhook["timeoutSeconds"] = shape.timeout_seconds.into();
    let webhook = webhook.clone();
    if let Some(webhooks) = configuration["webhooks"].as_array_mut() {
        webhooks.extend((1..=shape.siblings).map(|number| {
            let mut sibling = webhook.clone();
            sibling["name"] = format!("{number}.{}", hook.webhook()).into();
            sibling
        }));
    }
    configuration
}

fn everything() -> Value {
    json!([{
        "operations": ["CREATE", "UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"],
    }])
}

/// The clientConfig of a hook whose calls go to the backends of `at`.
fn client_config(cluster: &Cluster, hook: LabHook, at: LabHook) -> Value {
    let path = match hook {
        LabHook::Opa => "/v0/admit",
        LabHook::Policy => "/mutate",
        LabHook::Quota => "/validate",
    };
    let mut client = match (cluster.reach, cluster.backends(at).first()) {
        (BackendReach::Url, Some(backend)) => json!({"url": format!("https://{}{path}", backend.address())}),
        _ => {
            let (namespace, name) = (at.namespace(), at.service());
            json!({"service": {"namespace": namespace, "name": name, "path": path, "port": 443}})
        }
    };
    client["caBundle"] = Value::from(BASE64_STANDARD.encode(cluster.bundle(true)));
    client
}

/// The port of a hook's backends; `None` without backends.
pub(super) fn port(cluster: &Cluster, hook: LabHook) -> Option<u16> {
    cluster
        .backends(hook)
        .first()
        .map(|backend| backend.address().port())
}

/// Parses a manifest as the type of its object.
pub(super) fn object<T: DeserializeOwned>(manifest: Value) -> anyhow::Result<T> {
    serde_json::from_value(manifest).context("a manifest of the lab does not fit its type")
}

/// Creates one object; one that is there already is left as it is.
async fn create<T>(api: &Api<T>, object: &T) -> anyhow::Result<()>
where
    T: Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned + kube::Resource<DynamicType = ()>,
{
    match bounded(api.create(&PostParams::default(), object)).await {
        Err(error) if status_of(&error) != Some(409) => {
            let name = object.meta().name.as_deref().unwrap_or_default();
            Err(error).with_context(|| format!("creating {} {name:?} in the lab", T::kind(&())))
        }
        _ => Ok(()),
    }
}
