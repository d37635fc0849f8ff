//! Access to a daemon in a cluster: a port-forward to its Pod, through the API server and the kubelet.
//!
//! The API server's proxy for Services would be simpler, but does not suffice: it forwards neither a token nor a client
//! certificate, and to the daemon its requests come from another host, which needs one of the two. A port-forward comes
//! from the Pod's own loopback address, as with `kubectl port-forward`.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::Api;
use serde::Deserialize;
use tokio::io::DuplexStream;
use tokio::time::timeout;

use crate::domain::text::bounded;
use crate::io::client::Connection;
use crate::io::client::answer::percent_encoded;
use crate::io::client::request::{ApiRequest, JSON, base};
use crate::io::error::with_causes;

/// What selects the Pods of the daemon, as deploy/ labels them.
pub const SELECTOR: &str = "app.kubernetes.io/name=hookwatch";
/// The name of the port of the page and the API.
const PORT_NAME: &str = "http";
/// The port when no container port of the Pod has that name.
const PORT: u16 = 9880;
/// Longest wait for the list of Pods.
const LIST: Duration = Duration::from_secs(5);
/// Longest wait for the port-forward. The API server calls the admission webhooks for it, which time out after 10 s by default.
const FORWARD: Duration = Duration::from_secs(12);
/// Most Pods listed: more than any sensible number of replicas.
const PODS: usize = 50;
/// Most bytes of the list of Pods.
const MAX_LIST: usize = 16 << 20;
/// Pods tried at most: where one webhook holds up every port-forward, each takes [`FORWARD`].
const TRIED: usize = 3;

/// Why there is no port-forward.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The Pods cannot be listed.
    #[error("the Pods of hookwatch in namespace {namespace} cannot be listed: {why}")]
    List {
        /// The namespace.
        namespace: String,
        /// The reason.
        why: String,
    },
    /// No running Pod has the label.
    #[error(
        "there is no running Pod with the label {SELECTOR} in namespace {namespace}; say where it is by --namespace"
    )]
    NoPod {
        /// The namespace.
        namespace: String,
    },
    /// None of the Pods that were tried can be reached.
    #[error("no port-forward to Pod {namespace}/{pod}: {why}")]
    Forward {
        /// The namespace.
        namespace: String,
        /// The last Pod that was tried.
        pod: String,
        /// The reason.
        why: String,
    },
}

/// Opens port-forwards to any Pod of the daemon that answers.
#[derive(Debug)]
pub struct Tunnel {
    connection: Connection,
    namespace: String,
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a Pod in namespace {} through {}",
            self.namespace,
            self.connection.server()
        )
    }
}

impl Tunnel {
    /// A tunnel to the daemon's Pods in `namespace`; nothing is opened yet.
    pub const fn new(connection: Connection, namespace: String) -> Self {
        Self {
            connection,
            namespace,
        }
    }

    /// Opens a connection to the first Pod that can be reached, the ready ones first.
    pub(super) async fn open(&self) -> Result<DuplexStream, TunnelError> {
        let pods: Api<Pod> = Api::namespaced(self.connection.watches().clone(), &self.namespace);
        let mut failure = TunnelError::NoPod {
            namespace: self.namespace.clone(),
        };
        for pod in self.pods().await?.into_iter().take(TRIED) {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let port = port(&pod);
            let why = match timeout(FORWARD, pods.portforward(&name, &[port])).await {
                Ok(Ok(mut forward)) => match forward.take_stream(port) {
                    Some(stream) => return Ok(stream),
                    None => "there is no stream".to_owned(),
                },
                Ok(Err(error)) => told(&error),
                Err(_) => format!(
                    "not within {} s; where a webhook is asked about CONNECT, it may hang there",
                    FORWARD.as_secs()
                ),
            };
            failure = TunnelError::Forward {
                namespace: self.namespace.clone(),
                pod: name,
                why,
            };
        }
        Err(failure)
    }

    /// The running Pods of the daemon, the ready ones first.
    async fn pods(&self) -> Result<Vec<Pod>, TunnelError> {
        #[derive(Deserialize)]
        struct PodList {
            // Go encodes a nil slice as null.
            items: Option<Vec<Pod>>,
        }
        let path = format!(
            "{}/namespaces/{}/pods",
            base("", "v1"),
            percent_encoded(&self.namespace)
        );
        let target = format!("{path}?labelSelector={}&limit={PODS}", percent_encoded(SELECTOR));
        let listed = ApiRequest::get(self.connection.calls(), &target, JSON).json(LIST, MAX_LIST);
        let PodList { items } = listed.await.map_err(|why| TunnelError::List {
            namespace: self.namespace.clone(),
            why: bounded(&why.to_string()),
        })?;
        let mut running: Vec<Pod> = items.into_iter().flatten().filter(is_running).collect();
        running.sort_by_key(|pod| !is_ready(pod));
        Ok(running)
    }
}

/// The API server's message if there is one, else the error with its causes.
fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => bounded(&status.message),
        other => with_causes(other),
    }
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
}

/// The port of the page and the API.
fn port(pod: &Pod) -> u16 {
    let containers: &[Container] = pod.spec.as_ref().map_or(&[], |spec| &spec.containers);
    let named = containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten())
        .find(|port| port.name.as_deref() == Some(PORT_NAME));
    named
        .and_then(|port| u16::try_from(port.container_port).ok())
        .unwrap_or(PORT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::io::testing::{TestReply, TestServer, soon};

    #[tokio::test]
    async fn a_list_of_pods_that_is_null_is_empty() {
        let server = TestServer::start(|_| TestReply::json(200, json!({"items": null}))).await;
        let tunnel = Tunnel::new(server.connection().await, "h".to_owned());
        let opened = soon(tunnel.open()).await;
        assert!(matches!(opened, Err(TunnelError::NoPod { .. })), "{opened:?}");
    }

    #[tokio::test]
    async fn of_many_pods_that_cannot_be_reached_three_are_tried_and_the_ready_ones_first() {
        let pods: Vec<_> = ["a", "b", "c", "d", "e"]
            .map(|name| {
                let ready = if name > "c" { "True" } else { "False" };
                let conditions = json!([{"type": "Ready", "status": ready}]);
                json!({"metadata": {"name": name}, "status": {"phase": "Running", "conditions": conditions}})
            })
            .into();
        let server = TestServer::start(move |asked| {
            if asked.target.contains("/portforward") {
                TestReply::status(500, "sick")
            } else {
                TestReply::json(200, json!({"items": pods}))
            }
        })
        .await;
        let tunnel = Tunnel::new(server.connection().await, "h".to_owned());
        soon(tunnel.open()).await.expect_err("no Pod can be reached");
        let asked = server.asked().into_iter().map(|asked| asked.target);
        let targets = asked.map(|target| {
            target
                .split_once('?')
                .map_or(String::new(), |(path, _)| path.to_owned())
        });
        let pods = "/api/v1/namespaces/h/pods";
        let forward = |pod: &str| format!("{pods}/{pod}/portforward");
        assert_eq!(
            Vec::from_iter(targets),
            [pods.to_owned(), forward("d"), forward("e"), forward("a")]
        );
    }
}
