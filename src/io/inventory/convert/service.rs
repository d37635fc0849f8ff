//! What is kept of Services and EndpointSlices, and how a hook's Service port becomes addresses.
//!
//! The way is that of the API server (kubernetes 1.36, `apiserver/pkg/util/proxy/proxy.go`): the hook names a
//! Service port by number, the Service gives it a name, and the EndpointSlices list the target port under
//! that name, per slice. The target port's number in the Service is never looked at.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Service as ApiService;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::Problems;
use crate::domain::hook::{Endpoint, ServiceState, ServiceTarget};

/// Why a Service is unknown before it was read.
pub(in crate::io::inventory) const NOT_READ: &str = "it has not been read yet";
/// The label that ties an EndpointSlice to its Service.
pub(in crate::io::inventory) const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// More endpoints per hook than this are reported and not probed.
pub(in crate::io::inventory) const MAX_ENDPOINTS: usize = 1_000;

/// What is kept of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::io::inventory) struct Service {
    ports: Vec<ServicePort>,
    routing: Routing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ServicePort {
    number: u16,
    name: String,
    is_tcp: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Routing {
    ClusterIp(IpAddr),
    Headless,
    /// Not given an address yet.
    Pending,
    ExternalName(String),
}

/// What is kept of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::io::inventory) struct Slice {
    /// The Service it belongs to.
    pub(in crate::io::inventory) service: String,
    /// Name and number of its TCP ports.
    ports: Vec<(String, u16)>,
    endpoints: Vec<SliceEndpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SliceEndpoint {
    ip: IpAddr,
    ready: bool,
    serving: bool,
    terminating: bool,
    node: Option<String>,
    pod: Option<String>,
}

impl From<ApiService> for Service {
    fn from(service: ApiService) -> Self {
        let spec = service.spec.unwrap_or_default();
        let routing = if spec.type_.as_deref() == Some("ExternalName") {
            Routing::ExternalName(spec.external_name.unwrap_or_default())
        } else {
            match spec.cluster_ip.as_deref() {
                Some("None") => Routing::Headless,
                Some(ip) => ip.parse().map_or(Routing::Pending, Routing::ClusterIp),
                None => Routing::Pending,
            }
        };
        let ports = spec.ports.unwrap_or_default();
        Self {
            ports: ports
                .into_iter()
                .filter_map(|port| {
                    Some(ServicePort {
                        number: u16::try_from(port.port).ok()?,
                        name: port.name.unwrap_or_default(),
                        is_tcp: is_tcp(port.protocol.as_deref()),
                    })
                })
                .collect(),
            routing,
        }
    }
}

impl Slice {
    /// Keeps what matters; `None` for a slice that belongs to no Service.
    pub(in crate::io::inventory) fn of(slice: EndpointSlice) -> Option<Self> {
        let service = slice.metadata.labels?.remove(SERVICE_LABEL)?;
        Some(Self {
            service,
            ports: slice
                .ports
                .unwrap_or_default()
                .into_iter()
                .filter(|port| is_tcp(port.protocol.as_deref()))
                .filter_map(|port| Some((port.name.unwrap_or_default(), u16::try_from(port.port?).ok()?)))
                .collect(),
            endpoints: slice
                .endpoints
                .unwrap_or_default()
                .into_iter()
                .filter_map(|endpoint| {
                    let conditions = endpoint.conditions.unwrap_or_default();
                    let ready = conditions.ready.unwrap_or(true);
                    Some(SliceEndpoint {
                        // Further addresses of one endpoint are interchangeable; the API server takes the first.
                        // In a slice of names instead of addresses none can be read.
                        ip: endpoint.addresses.first()?.parse().ok()?,
                        ready,
                        serving: conditions.serving.unwrap_or(ready),
                        terminating: conditions.terminating.unwrap_or(false),
                        node: endpoint.node_name,
                        pod: endpoint
                            .target_ref
                            .filter(|target| target.kind.as_deref() == Some("Pod"))
                            .and_then(|target| Some(format!("{}/{}", target.namespace?, target.name?))),
                    })
                })
                .collect(),
        })
    }
}

fn is_tcp(protocol: Option<&str>) -> bool {
    protocol.is_none_or(|protocol| protocol == "TCP")
}

/// What a hook's Service resolves to, given its EndpointSlices.
pub(in crate::io::inventory) fn resolve<'a>(
    target: &ServiceTarget,
    service: &Service,
    slices: impl Iterator<Item = &'a Slice>,
    problems: &mut Problems,
) -> ServiceState {
    let ServiceTarget {
        namespace,
        name,
        port,
        ..
    } = target;
    if let Routing::ExternalName(host) = &service.routing {
        // The API server dials that name. No backend of ours, and no reason to say that there is none.
        let why = format!("it is an ExternalName for {host:?}, which hookwatch does not follow");
        problems.add(format!("Service {namespace}/{name}: {why}"));
        return ServiceState::Unknown { why };
    }
    let of_that_number = || service.ports.iter().filter(|known| known.number == *port);
    let Some(known) = of_that_number().find(|port| port.is_tcp) else {
        let how = match (service.ports.is_empty(), of_that_number().next()) {
            (true, _) => "has no ports".to_owned(),
            (false, Some(_)) => format!("offers port {port}, but not over TCP"),
            (false, None) => format!("does not offer port {port}"),
        };
        problems.add(format!(
            "Service {namespace}/{name} {how}; correct clientConfig.service.port or the Service"
        ));
        let mut offered: Vec<u16> = service
            .ports
            .iter()
            .filter(|port| port.is_tcp)
            .map(|port| port.number)
            .collect();
        offered.sort_unstable();
        offered.dedup();
        return ServiceState::NoSuchPort { offered };
    };
    if service.routing == Routing::Headless {
        problems.add(format!(
            "Service {namespace}/{name} is headless; only an API server with --enable-aggregator-routing can \
             call the hook"
        ));
    }
    ServiceState::Found {
        cluster_ip: match service.routing {
            Routing::ClusterIp(ip) => Some(SocketAddr::new(ip, *port)),
            _ => None,
        },
        endpoints: endpoints(&known.name, slices, problems),
    }
}

/// The endpoints under a port's name, ordered by address.
fn endpoints<'a>(
    port_name: &str,
    slices: impl Iterator<Item = &'a Slice>,
    problems: &mut Problems,
) -> Vec<Endpoint> {
    let mut by_address: BTreeMap<SocketAddr, Endpoint> = BTreeMap::new();
    for slice in slices {
        let Some((_, number)) = slice.ports.iter().find(|(name, _)| name == port_name) else {
            continue;
        };
        for endpoint in &slice.endpoints {
            let address = SocketAddr::new(endpoint.ip, *number);
            by_address
                .entry(address)
                // While slices are rearranged an endpoint stands in two of them, not always equally fresh; the
                // API server would find it in the better one.
                .and_modify(|known| {
                    known.ready |= endpoint.ready;
                    known.serving |= endpoint.serving;
                    known.terminating &= endpoint.terminating;
                })
                .or_insert_with(|| Endpoint {
                    address,
                    ready: endpoint.ready,
                    serving: endpoint.serving,
                    terminating: endpoint.terminating,
                    node: endpoint.node.clone(),
                    pod: endpoint.pod.clone(),
                });
        }
    }
    let mut endpoints: Vec<_> = by_address.into_values().collect();
    if endpoints.len() > MAX_ENDPOINTS {
        problems.add(format!(
            "its Service has {} endpoints; hookwatch looks at {MAX_ENDPOINTS} of them, ready ones first",
            endpoints.len()
        ));
        endpoints.sort_by_key(|endpoint| (!endpoint.ready, endpoint.address));
        endpoints.truncate(MAX_ENDPOINTS);
        endpoints.sort_by_key(|endpoint| endpoint.address);
    }
    endpoints
}
