//! What a Deployment and its nodes do to a hook's endpoints.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::discovery::v1::Endpoint;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::sleep;

use super::{Cluster, LabHook, bounded, objects};
use crate::lab::backend::Behaviour;

/// How long a backend of a careless Deployment is listed without serving, both before it is unlisted and after it is listed
/// again.
const GAP: Duration = Duration::from_millis(1_000);
/// How long it is not listed in between.
const GONE: Duration = Duration::from_millis(800);
/// Pause between the steps in which a node is lost.
const DOOM: Duration = Duration::from_secs(4);
/// Pause between a controller's attempts to create a Pod that is refused.
const AGAIN: Duration = Duration::from_secs(1);
/// Pause between two Pods of a rollout.
const PAUSE: Duration = Duration::from_millis(800);

impl Cluster {
    /// Lists those backends of a hook for which `change` returns true, each endpoint as `change` leaves it. The number that
    /// `change` gets is the index of the backend.
    ///
    /// # Errors
    /// When the slice cannot be read or written, or there is none because hooks are reached by `url`.
    pub async fn list_endpoints(
        &self,
        hook: LabHook,
        change: impl Fn(usize, &mut Endpoint) -> bool,
    ) -> anyhow::Result<()> {
        let all = objects::endpoint_slice(self, hook)?.endpoints.unwrap_or_default();
        let listed: Vec<Endpoint> = all
            .into_iter()
            .enumerate()
            .filter_map(|(place, mut endpoint)| change(place, &mut endpoint).then_some(endpoint))
            .collect();
        self.write_endpoints(hook, Some(listed)).await
    }

    /// Lets the `count` most called backends vanish as with their node: they are unlisted, no connection is closed, and
    /// existing connections, of which the API server certainly has some, never answer.
    ///
    /// # Errors
    /// As [`Self::list_endpoints`], and when a backend does not take the change.
    pub async fn vanish(&self, hook: LabHook, count: usize) -> anyhow::Result<()> {
        let backends = self.backends(hook);
        let mut places: Vec<usize> = (0..backends.len()).collect();
        places.sort_by_key(|place| std::cmp::Reverse(backends[*place].counters().reviews()));
        places.truncate(count);
        // Unlisted before they stop, so that no client dials one of them any more.
        self.list_endpoints(hook, |place, _| !places.contains(&place))
            .await?;
        for place in places {
            backends[place].behave(Behaviour::Stopped).await?;
        }
        Ok(())
    }

    /// Sets the condition `Ready` of a node, as the node controller does.
    ///
    /// # Errors
    /// When the node's status cannot be written.
    pub async fn set_node_ready(&self, name: &str, ready: bool) -> anyhow::Result<()> {
        let (status, reason) = if ready {
            ("True", "KubeletReady")
        } else {
            ("Unknown", "NodeStatusUnknown")
        };
        let condition = json!({
            "type": "Ready", "status": status, "reason": reason,
            "lastTransitionTime": format!("{:.0}", jiff::Timestamp::now()),
        });
        let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        let api: Api<Node> = Api::all(self.client.clone());
        bounded(api.patch_status(name, &PatchParams::default(), &patch))
            .await
            .with_context(|| format!("changing the status of Node {name:?}"))?;
        Ok(())
    }

    /// Acts as a controller whose Pods are gone: tries to create a Pod until it is admitted, and then all backends serve.
    ///
    /// # Errors
    /// When a backend does not take the change.
    pub async fn recreate_pods(&self, hook: LabHook) -> anyhow::Result<()> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), hook.namespace());
        let pod: Pod = objects::object(json!({
            "metadata": {"generateName": format!("{}-", hook.service()), "labels": {"app": hook.service()}},
            "spec": {"containers": [{"name": "hook", "image": "example/hook:1"}]},
        }))?;
        while bounded(api.create(&PostParams::default(), &pod)).await.is_err() {
            sleep(AGAIN).await;
        }
        self.behave(hook, hook.backends(), &Behaviour::Healthy).await
    }

    /// Puts all backends of a hook on one node, makes that NotReady, and then stops the backends.
    ///
    /// # Errors
    /// As [`Self::vanish`] and [`Self::set_node_ready`].
    pub async fn lose_the_only_node(&self, hook: LabHook) -> anyhow::Result<()> {
        let node = objects::node_name(1);
        self.list_endpoints(hook, |_, endpoint| {
            endpoint.node_name = Some(node.clone());
            true
        })
        .await?;
        sleep(DOOM).await;
        self.set_node_ready(&node, false).await?;
        sleep(DOOM).await;
        self.behave(hook, hook.backends(), &Behaviour::Stopped).await
    }

    /// Undoes [`Self::lose_the_only_node`].
    ///
    /// # Errors
    /// As [`Self::lose_the_only_node`].
    pub async fn spread_again(&self, hook: LabHook) -> anyhow::Result<()> {
        self.behave(hook, hook.backends(), &Behaviour::Healthy).await?;
        self.set_node_ready(&objects::node_name(1), true).await?;
        self.set_endpoints(hook, true).await
    }

    /// Restarts the backends of a hook one after the other, without end, as a Deployment does whose Pods have
    /// neither a readiness probe that asks their TLS server nor a preStop sleep: each stops while it is listed as
    /// Ready, and is listed again before it serves.
    ///
    /// # Errors
    /// As [`Self::vanish`].
    pub async fn restart_without_end(&self, hook: LabHook) -> anyhow::Result<()> {
        let backends = self.backends(hook);
        for (place, backend) in backends.iter().enumerate().cycle() {
            backend.behave(Behaviour::Refused).await?;
            sleep(GAP).await;
            self.list_endpoints(hook, |other, _| other != place).await?;
            sleep(GONE).await;
            self.list_endpoints(hook, |_, _| true).await?;
            sleep(GAP).await;
            backend.behave(Behaviour::Healthy).await?;
            sleep(PAUSE).await;
        }
        Ok(())
    }
}
