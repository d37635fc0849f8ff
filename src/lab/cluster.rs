//! The lab cluster: three hooks with real backends, the Services they are reached by, and the canaries' objects.
//!
//! An ordinary client creates everything, so it works on any API server.

mod endpoints;
mod moves;
mod objects;

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use strum::VariantArray;

use super::backend::{BackendRole, Behaviour, LabBackend};
use super::certs::Authority;
use super::control_plane::BackendReach;
use crate::domain::cluster::hook::{HookKind, SPARE_ANNOTATION};

/// One of the lab's hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum LabHook {
    /// Validating, catch-all, `Fail`, 10 s, three backends.
    Opa,
    /// Mutating, CREATE of Secrets and ConfigMaps outside kube-system, `Ignore`, 5 s, two backends.
    Policy,
    /// Validating, Services and Leases only, `Fail`, 10 s, two backends.
    Quota,
}

impl LabHook {
    /// All hooks of the lab.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Validating or mutating.
    pub const fn kind(self) -> HookKind {
        match self {
            Self::Opa | Self::Quota => HookKind::Validating,
            Self::Policy => HookKind::Mutating,
        }
    }

    /// The name of its configuration.
    pub const fn configuration(self) -> &'static str {
        match self {
            Self::Opa => "opa-validating-webhook",
            Self::Policy => "policy-mutator",
            Self::Quota => "quota-guard",
        }
    }

    /// The name of the webhook in its configuration.
    pub const fn webhook(self) -> &'static str {
        match self {
            Self::Opa => "validating-webhook.openpolicyagent.org",
            Self::Policy => "mutate.policy.example.com",
            Self::Quota => "quota.example.com",
        }
    }

    /// The namespace of its Service.
    pub const fn namespace(self) -> &'static str {
        match self {
            Self::Opa => "opa",
            Self::Policy | Self::Quota => "policy",
        }
    }

    /// The name of its Service.
    pub const fn service(self) -> &'static str {
        match self {
            Self::Opa => "opa",
            Self::Policy => "policy",
            Self::Quota => "quota",
        }
    }

    /// How many backends it has where it is reached through a Service.
    pub const fn backends(self) -> usize {
        match self {
            Self::Opa => 3,
            Self::Policy | Self::Quota => 2,
        }
    }

    /// The TLS server name its backends' certificates are for.
    pub fn server_name(self) -> String {
        format!("{}.{}.svc", self.service(), self.namespace())
    }

    /// Whether the API server calls it for a request of the workload, such as `create configmaps in team-a`.
    pub fn is_asked_about(self, request: &str) -> bool {
        let begins = |verbs: &[&str]| verbs.iter().any(|verb| request.starts_with(verb));
        let changes = begins(&["create ", "patch ", "renew "]);
        match self {
            Self::Opa => changes,
            Self::Policy => begins(&["create secrets ", "create configmaps "]),
            Self::Quota => changes && (request.contains(" services ") || request.contains(" leases ")),
        }
    }

    /// Reads its configuration from the API server.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(self, client: &kube::Client) -> anyhow::Result<Value> {
        let object = configurations(client, self.kind())
            .get(self.configuration())
            .await?;
        Ok(serde_json::to_value(object)?)
    }

    /// Applies the webhooks of `object` to its configuration, server-side and as its owner; returns the result.
    ///
    /// # Errors
    /// When it is refused; without `force` also because of a field conflict.
    pub async fn apply(self, client: &kube::Client, object: &Value, force: bool) -> anyhow::Result<Value> {
        let wanted = json!({
            "apiVersion": self.kind().api_version(), "kind": self.kind().configuration_kind(),
            "metadata": {"name": self.configuration()},
            "webhooks": object["webhooks"],
        });
        let mut parameters = PatchParams::apply("lab-owner");
        parameters.force = force;
        let applied = configurations(client, self.kind())
            .patch(self.configuration(), &parameters, &Patch::Apply(&wanted))
            .await
            .with_context(|| format!("applying {}", self.configuration()))?;
        Ok(serde_json::to_value(applied)?)
    }

    /// One address per backend, which no other hook of the lab uses; where hooks are called by `url`, one address for all.
    fn hosts(self, reach: BackendReach) -> Vec<IpAddr> {
        if reach == BackendReach::Url {
            // A url names one host.
            return vec![reach.host(1)];
        }
        let first = match self {
            Self::Opa => 2,
            Self::Policy => 5,
            Self::Quota => 7,
        };
        (first..)
            .take(self.backends())
            .map(|last| reach.host(last))
            .collect()
    }
}

/// How a hook is configured, where that differs from what [`LabHook`] says.
#[derive(Debug)]
pub struct HookShape {
    /// The hook whose Service gets its calls.
    pub at: LabHook,
    /// `failurePolicy: Ignore` instead of `Fail`.
    pub ignores: bool,
    /// `timeoutSeconds`.
    pub timeout_seconds: u8,
    /// Whether it is called for Namespaces alone, instead of everything.
    pub only_namespaces: bool,
    /// Whether it is not called for objects in the namespace of its Service. Otherwise its owner's annotation lets a shield spare
    /// what it needs there.
    pub spares_itself: bool,
    /// How many further webhooks its configuration has that are called for the same.
    pub siblings: usize,
}

/// A running lab cluster. Dropping it stops the backends; the objects stay in the API server.
pub struct Cluster {
    client: kube::Client,
    authority: Authority,
    other_authority: Authority,
    reach: BackendReach,
    /// Whether its API server resolves Services by Endpoints instead of EndpointSlices.
    goes_by_endpoints: bool,
    backends: Vec<(LabHook, Vec<LabBackend>)>,
}

/// A client for the API server that a kubeconfig names.
///
/// # Errors
/// When the kubeconfig cannot be read or used.
pub async fn client_for(kubeconfig: &str) -> anyhow::Result<kube::Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).context("reading the lab's kubeconfig")?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("using the lab's kubeconfig")?;
    kube::Client::try_from(config).context("making a client for the lab's API server")
}

/// The API server's webhook configurations of a kind.
pub fn configurations(client: &kube::Client, kind: HookKind) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind.configuration_kind());
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

impl Cluster {
    /// Starts all backends and creates all objects of the lab in the API server.
    ///
    /// # Errors
    /// When a backend cannot start, or the API server refuses an object for a reason other than that it exists.
    pub async fn start(kubeconfig: &str, reach: BackendReach) -> anyhow::Result<Self> {
        let client = client_for(kubeconfig).await?;
        let authority = Authority::new("hookwatch lab")?;
        let mut backends = Vec::new();
        for &hook in LabHook::ALL {
            let role = match hook.kind() {
                HookKind::Mutating => BackendRole::Mutating,
                _ => BackendRole::Validating,
            };
            let certificate = authority.issue(&certified_name(hook, reach))?;
            let group = LabBackend::start_group(&hook.hosts(reach), role, &certificate).await?;
            backends.push((hook, group));
        }
        let cluster = Self {
            goes_by_endpoints: endpoints::are_used(&client, reach).await?,
            client,
            authority,
            other_authority: Authority::new("hookwatch lab")?,
            reach,
            backends,
        };
        objects::create_all(&cluster).await?;
        Ok(cluster)
    }

    /// The names of its nodes.
    pub fn nodes(&self) -> Vec<String> {
        objects::node_names().collect()
    }

    /// A client of the lab's API server.
    pub const fn client(&self) -> &kube::Client {
        &self.client
    }

    /// The backends of one hook.
    pub fn backends(&self, hook: LabHook) -> &[LabBackend] {
        self.backends
            .iter()
            .find(|(of, _)| *of == hook)
            .map_or(&[], |(_, backends)| backends)
    }

    /// Switches the first `count` backends of a hook to a behaviour.
    ///
    /// # Errors
    /// When one of them does not take the change.
    pub async fn behave(&self, hook: LabHook, count: usize, behaviour: &Behaviour) -> anyhow::Result<()> {
        for backend in self.backends(hook).iter().take(count) {
            backend.behave(behaviour.clone()).await?;
        }
        Ok(())
    }

    /// Gives all backends of a hook a fresh certificate, an expired one or a valid one.
    ///
    /// # Errors
    /// When it cannot be made or is not taken.
    pub async fn renew_certificates(&self, hook: LabHook, expired: bool) -> anyhow::Result<()> {
        let name = certified_name(hook, self.reach);
        let certificate = if expired {
            self.authority.issue_expired(&name)?
        } else {
            self.authority.issue(&name)?
        };
        for backend in self.backends(hook) {
            backend.serve_certificate(&certificate).await?;
        }
        Ok(())
    }

    /// Changes a hook's configuration to another shape.
    ///
    /// # Errors
    /// When the configuration cannot be read or written.
    pub async fn arrange(&self, hook: LabHook, shape: &HookShape) -> anyhow::Result<()> {
        let wanted = objects::arranged(self, hook, shape);
        let api = configurations(&self.client, hook.kind());
        self.update(&api, hook.configuration(), |object| {
            object.data["webhooks"].clone_from(&wanted["webhooks"]);
            if !shape.spares_itself {
                let annotations = object.metadata.annotations.get_or_insert_default();
                annotations.insert(SPARE_ANNOTATION.to_owned(), "self".to_owned());
            }
        })
        .await
        .with_context(|| format!("arranging {:?}", hook.configuration()))
    }

    /// Deletes a hook's configuration.
    ///
    /// # Errors
    /// When it cannot be deleted.
    pub async fn unregister(&self, hook: LabHook) -> anyhow::Result<()> {
        let api = configurations(&self.client, hook.kind());
        bounded(api.delete(hook.configuration(), &DeleteParams::default()))
            .await
            .with_context(|| format!("deleting {:?}", hook.configuration()))?;
        Ok(())
    }

    /// Creates a hook's configuration.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn register(&self, hook: LabHook) -> anyhow::Result<()> {
        objects::create_configuration(self, hook).await
    }

    /// The certificate of the authority that signed the backends' certificates, in PEM.
    pub fn authority(&self) -> String {
        self.authority.pem()
    }

    /// Puts a `caBundle` into the hook's configuration: the right one, or that of an authority which signed nothing
    /// here.
    ///
    /// # Errors
    /// When the configuration cannot be read or written.
    pub async fn set_ca_bundle(&self, hook: LabHook, right: bool) -> anyhow::Result<()> {
        let bundle = Value::from(BASE64_STANDARD.encode(self.bundle(right)));
        self.configure(hook, |webhook| {
            webhook["clientConfig"]["caBundle"].clone_from(&bundle)
        })
        .await
    }

    /// Changes the one webhook in a hook's configuration.
    async fn configure(&self, hook: LabHook, change: impl Fn(&mut Value)) -> anyhow::Result<()> {
        let api = configurations(&self.client, hook.kind());
        self.update(&api, hook.configuration(), |object| {
            let webhooks = object.data.get_mut("webhooks").and_then(Value::as_array_mut);
            for webhook in webhooks.into_iter().flatten() {
                if webhook.get("name").and_then(Value::as_str) == Some(hook.webhook()) {
                    change(webhook);
                }
            }
        })
        .await
        .with_context(|| format!("changing {:?}", hook.configuration()))
    }

    /// Empties the EndpointSlice of a hook's Service, or fills it again.
    ///
    /// # Errors
    /// When the slice cannot be read or written, or there is none because hooks are reached by `url`.
    pub async fn set_endpoints(&self, hook: LabHook, present: bool) -> anyhow::Result<()> {
        let listed = if present {
            objects::endpoint_slice(self, hook)?.endpoints
        } else {
            Some(Vec::new())
        };
        self.write_endpoints(hook, listed).await
    }

    fn bundle(&self, right: bool) -> String {
        if right {
            self.authority.pem()
        } else {
            self.other_authority.pem()
        }
    }

    /// Reads, changes and writes one object; again after a conflict, up to five times in all.
    async fn update<T>(&self, api: &Api<T>, name: &str, change: impl Fn(&mut T)) -> anyhow::Result<()>
    where
        T: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        const ATTEMPTS: u32 = 5;
        for attempt in 1..=ATTEMPTS {
            let mut object = bounded(api.get(name)).await?;
            change(&mut object);
            match bounded(api.replace(name, &PostParams::default(), &object)).await {
                Ok(_) => return Ok(()),
                Err(error) if attempt < ATTEMPTS && status_of(&error) == Some(409) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The name that the API server expects in the certificates of a hook's backends.
fn certified_name(hook: LabHook, reach: BackendReach) -> String {
    match reach {
        BackendReach::Url => reach.host(1).to_string(),
        BackendReach::Loopback | BackendReach::Namespace => hook.server_name(),
    }
}

/// Longest wait for the lab's own requests: just above the 34 s that the API server itself allows a write.
const REQUEST_LIMIT: Duration = Duration::from_secs(40);

async fn bounded<T>(request: impl Future<Output = kube::Result<T>>) -> anyhow::Result<T> {
    match tokio::time::timeout(REQUEST_LIMIT, request).await {
        Ok(result) => Ok(result?),
        Err(_) => anyhow::bail!(
            "no answer from the API server within {} s",
            REQUEST_LIMIT.as_secs()
        ),
    }
}

/// The HTTP status behind an error; `None` when the API server did not answer.
fn status_of(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}
