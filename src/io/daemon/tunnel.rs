//! The way to a daemon in a cluster: a port-forward to its Pod, through the API server and the kubelet.
//!
//! The API server's proxy for Services would be simpler, and does not do: it hands on neither a token nor a client
//! certificate, and to the daemon its requests come from another host, whom it lets in only with one of the two. What
//! comes by a port-forward comes from the Pod's own loopback address, as with `kubectl port-forward`.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{Api, ListParams};
use tokio::io::DuplexStream;
use tokio::time::timeout;

use crate::domain::text::bounded;
use crate::io::client::Connection;
use crate::io::error::with_causes;

/// What selects the Pods of the daemon, as deploy/ labels them.
pub const SELECTOR: &str = "app.kubernetes.io/name=hookwatch";
/// The name of the port of the page and the API.
const PORT_NAME: &str = "http";
/// Where they are when no port has that name.
const PORT: u16 = 9880;
/// Longest wait for the list of Pods.
const LIST: Duration = Duration::from_secs(5);
/// Longest wait for the port-forward: the API server asks admission about it.
const FORWARD: Duration = Duration::from_secs(12);
/// Pods listed at most. More replicas would be a strange thing.
const PODS: u32 = 50;

/// Why there is no port-forward.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The Pods cannot be listed.
    #[error("the Pods of hookwatch in namespace {namespace} cannot be listed: {why}")]
    List {
        /// Where.
        namespace: String,
        /// Why not.
        why: String,
    },
    /// There are none.
    #[error(
        "there is no running Pod with the label {SELECTOR} in namespace {namespace}; say where it is by --namespace"
    )]
    NoPod {
        /// Where.
        namespace: String,
    },
    /// None of them can be reached.
    #[error("no port-forward to Pod {namespace}/{pod}: {why}")]
    Forward {
        /// Where.
        namespace: String,
        /// The last that was tried.
        pod: String,
        /// Why not.
        why: String,
    },
}

/// A way to whichever Pod of the daemon answers.
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
    /// To the Pods in this namespace; nothing is opened yet.
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
        for pod in self.pods(&pods).await? {
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

    async fn pods(&self, pods: &Api<Pod>) -> Result<Vec<Pod>, TunnelError> {
        let wanted = ListParams::default().labels(SELECTOR).limit(PODS);
        let failed = |why: String| TunnelError::List {
            namespace: self.namespace.clone(),
            why,
        };
        let listed = match timeout(LIST, pods.list(&wanted)).await {
            Ok(listed) => listed.map_err(|error| failed(told(&error)))?,
            Err(_) => return Err(failed(format!("no answer within {} s", LIST.as_secs()))),
        };
        let mut running: Vec<Pod> = listed.items.into_iter().filter(is_running).collect();
        running.sort_by_key(|pod| !is_ready(pod));
        Ok(running)
    }
}

/// What the API server said, where it did.
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
