//! The Service behind a hook, and what its EndpointSlices list.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{Backend, BackendAddress, BackendPath, Hook, HookTarget};

/// Namespace (empty for cluster-scoped objects) and name.
pub type NamespacedName = (String, String);

/// The Service that a hook is called at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTarget {
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub name: String,
    /// The Service port (not the target port); 443 when absent.
    pub port: u16,
    /// The path of the URL, beginning with `/`.
    pub path: String,
    /// What is known of the Service and its endpoints now.
    pub service: ServiceState,
}

impl ServiceTarget {
    /// The TLS server name and HTTP host that the API server uses: `<service>.<namespace>.svc`.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }

    /// Namespace and name of the Service.
    pub fn key(&self) -> NamespacedName {
        (self.namespace.clone(), self.name.clone())
    }

    /// Whether this is `default/kubernetes`, which the API server calls over its own loopback with its own credentials
    /// (kubernetes 1.36, `cmd/kube-apiserver/app/server.go`); probing it would show nothing about the hook.
    pub fn is_api_server(&self) -> bool {
        self.namespace == "default" && self.name == "kubernetes"
    }
}

/// What is known of the Service behind a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceState {
    /// Not read yet, or reading it is forbidden: it may or may not exist.
    Unknown {
        /// Why it is not known.
        why: String,
    },
    /// There is no such Service.
    Missing,
    /// The Service exists but does not offer the hook's port.
    NoSuchPort {
        /// The ports it does offer.
        offered: Vec<u16>,
    },
    /// The Service exists and offers the port.
    Found {
        /// Its ClusterIP and the Service port; `None` for a headless or ExternalName Service.
        cluster_ip: Option<SocketAddr>,
        /// Every address its EndpointSlices list for the port in the family that the API server dials, ready or not,
        /// ordered by address, without duplicates.
        endpoints: Vec<Endpoint>,
        /// Something other than the cluster's EndpointSlice controller may write the endpoints: the Service has no selector,
        /// or the controller does not manage one of the slices. It undoes others' changes to its own slices within about a
        /// second.
        #[serde(default)]
        by_hand: bool,
    },
}

/// One address of an EndpointSlice, joined with the port the hook's Service port maps to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Where the API server would dial.
    pub address: SocketAddr,
    /// `conditions.ready`; absent counts as ready, as the API server reads it.
    pub ready: bool,
    /// `conditions.terminating`; absent counts as false.
    pub terminating: bool,
    /// The node it runs on, when the slice says so.
    pub node: Option<String>,
    /// The zone of that node, when the slice says so.
    #[serde(default)]
    pub zone: Option<String>,
    /// The Pod behind it, as `namespace/name`, when the slice says so.
    pub pod: Option<String>,
}

impl Endpoint {
    /// A ready endpoint at this address; node, zone and Pod are unknown.
    pub const fn ready(address: SocketAddr) -> Self {
        Self {
            address,
            ready: true,
            terminating: false,
            node: None,
            zone: None,
            pod: None,
        }
    }
}

impl HookTarget {
    /// The Service that is called; `None` for a URL or an invalid target.
    pub const fn service(&self) -> Option<&ServiceTarget> {
        match self {
            Self::Service(target) => Some(target),
            Self::Url(_) | Self::Invalid(_) => None,
        }
    }
}

impl Hook {
    /// The known endpoints of its Service, ready or not; empty if there is no Service or it is unknown.
    pub fn endpoints(&self) -> &[Endpoint] {
        match self.target.service().map(|target| &target.service) {
            Some(ServiceState::Found { endpoints, .. }) => endpoints,
            _ => &[],
        }
    }

    /// Whether a backend is a Pod in the Service's own namespace, listed by the cluster's EndpointSlice controller. Always true
    /// for a URL, and while the Service's endpoints are unknown.
    ///
    /// A tenant who may write EndpointSlices can list any address. For other backends hookwatch does not report how a probe
    /// fails: that would reveal to the tenant whether the address refuses connections, listens or serves TLS.
    pub fn vouches_for(&self, backend: &Backend) -> bool {
        let Some(target) = self.target.service() else {
            return true;
        };
        let ServiceState::Found {
            endpoints, by_hand, ..
        } = &target.service
        else {
            return true;
        };
        let is_own = |endpoint: &Endpoint| {
            let pod = endpoint.pod.as_deref().and_then(|pod| pod.split_once('/'));
            pod.is_some_and(|(namespace, _)| namespace == target.namespace)
        };
        let mut listed = endpoints.iter();
        !by_hand
            && match &backend.address {
                BackendAddress::Socket(address) if backend.path == BackendPath::Endpoint => {
                    listed.any(|endpoint| endpoint.address == *address && is_own(endpoint))
                }
                // Behind a ClusterIP any endpoint may answer.
                _ => listed.all(is_own),
            }
    }
}
