//! The part of Services and EndpointSlices that is kept, and the resolution of a hook's Service port to addresses.
//!
//! It resolves as the API server does (kubernetes 1.36, `apiserver/pkg/util/proxy/proxy.go`): the hook gives the number of a
//! Service port, the Service gives the name of that port, and each EndpointSlice gives the target port of that name. The
//! Service's own `targetPort` is not used.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Service as ApiService;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::Problems;
use crate::domain::cluster::hook::{Endpoint, ServiceState, ServiceTarget};

/// Why the state of a Service is unknown before it was read.
pub(in crate::io::cluster::inventory) const NOT_READ: &str = "it has not been read yet";
/// The label of an EndpointSlice with the name of its Service.
pub(in crate::io::cluster) const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// The label that says which controller manages an EndpointSlice.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The controller that manages the slices of the Pods that a Service selects, and reverts other writers' changes to them
/// (kubernetes 1.36, `pkg/controller/endpointslice`). It ignores Services without a selector.
const CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// Most endpoints kept per hook. Further ones are reported as a problem and not probed.
pub(in crate::io::cluster::inventory) const MAX_ENDPOINTS: usize = 1_000;

/// The part of a Service that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::io) struct Service {
    ports: Vec<ServicePort>,
    routing: Routing,
    /// Whether it has a selector, so that [`CONTROLLER`] manages its slices.
    selects: bool,
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
    /// No ClusterIP yet, or an invalid one.
    Pending,
    ExternalName(String),
}

/// The part of an EndpointSlice that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::io) struct Slice {
    /// The Service it belongs to.
    pub(in crate::io) service: String,
    /// Name and number of its TCP ports.
    ports: Vec<(String, u16)>,
    endpoints: Vec<SliceEndpoint>,
    /// Whether [`CONTROLLER`] manages it.
    is_kept: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SliceEndpoint {
    ip: IpAddr,
    ready: bool,
    terminating: bool,
    node: Option<String>,
    zone: Option<String>,
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
            selects: spec.selector.is_some_and(|selector| !selector.is_empty()),
        }
    }
}

impl Slice {
    /// Converts a slice; `None` if it belongs to no Service.
    pub(in crate::io) fn of(slice: EndpointSlice) -> Option<Self> {
        let mut labels = slice.metadata.labels?;
        let service = labels.remove(SERVICE_LABEL)?;
        Some(Self {
            service,
            is_kept: labels.get(MANAGED_BY).is_some_and(|keeper| keeper == CONTROLLER),
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
                    Some(SliceEndpoint {
                        // The addresses of one endpoint are interchangeable; the API server uses the first.
                        // A slice of type FQDN has names instead of addresses: its endpoints are left out.
                        ip: endpoint.addresses.first()?.parse().ok()?,
                        ready: conditions.ready.unwrap_or(true),
                        terminating: conditions.terminating.unwrap_or(false),
                        node: endpoint.node_name,
                        zone: endpoint.zone,
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

/// Resolves the Service port that a hook calls to endpoints.
pub(in crate::io) fn resolve<'a>(
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
        // The API server dials that name. hookwatch does not probe it, but must not report that there is no backend.
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
             call the webhook"
        ));
    }
    let slices: Vec<&Slice> = slices.collect();
    ServiceState::Found {
        by_hand: !service.selects || slices.iter().any(|slice| !slice.is_kept),
        cluster_ip: match service.routing {
            Routing::ClusterIp(ip) => Some(SocketAddr::new(ip, *port)),
            _ => None,
        },
        endpoints: endpoints(&known.name, &service.routing, slices.into_iter(), problems),
    }
}

/// The endpoints of the port with this name, sorted by address. A dual-stack Pod has an endpoint per IP family; only those
/// of the family that the API server dials are kept.
fn endpoints<'a>(
    port_name: &str,
    routing: &Routing,
    slices: impl Iterator<Item = &'a Slice>,
    problems: &mut Problems,
) -> Vec<Endpoint> {
    // The API server dials the family of the ClusterIP; without a ClusterIP, any (kubernetes 1.36, `apiserver/pkg/util/proxy`).
    let is_dialled = |ip: IpAddr| match routing {
        Routing::ClusterIp(own) => own.is_ipv4() == ip.is_ipv4(),
        _ => true,
    };
    let mut by_address: BTreeMap<SocketAddr, Endpoint> = BTreeMap::new();
    for slice in slices {
        let Some((_, number)) = slice.ports.iter().find(|(name, _)| name == port_name) else {
            continue;
        };
        for endpoint in slice.endpoints.iter().filter(|endpoint| is_dialled(endpoint.ip)) {
            let address = SocketAddr::new(endpoint.ip, *number);
            by_address
                .entry(address)
                // While endpoints move between slices, one may be in two of them with different states. The API server
                // would use the better one.
                .and_modify(|known| {
                    known.ready |= endpoint.ready;
                    known.terminating &= endpoint.terminating;
                })
                .or_insert_with(|| Endpoint {
                    address,
                    ready: endpoint.ready,
                    terminating: endpoint.terminating,
                    node: endpoint.node.clone(),
                    zone: endpoint.zone.clone(),
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::cluster::hook::{HookId, HookKind};

    fn service(spec: Value) -> Service {
        let service: ApiService =
            serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": spec})).expect("a Service");
        Service::from(service)
    }

    fn slice(ports: Value, endpoints: Value) -> Slice {
        let slice = json!({"metadata": {"name": "s-1", "labels": {SERVICE_LABEL: "s"}},
            "addressType": "IPv4", "ports": ports, "endpoints": endpoints});
        Slice::of(serde_json::from_value(slice).expect("an EndpointSlice")).expect("a slice of a Service")
    }

    fn resolve_port(port: u16, service: &Service, slices: &[Slice]) -> (ServiceState, Vec<String>) {
        let target = ServiceTarget {
            namespace: "n".into(),
            name: "s".into(),
            port,
            path: "/".into(),
            service: ServiceState::Missing,
        };
        let mut problems = Problems::of(&HookId::new(HookKind::Mutating, "c", "w"));
        let state = resolve(&target, service, slices.iter(), &mut problems);
        (state, problems.sentences)
    }

    fn found(port: u16, service: &Service, slices: &[Slice]) -> (Option<String>, Vec<Endpoint>) {
        match resolve_port(port, service, slices).0 {
            ServiceState::Found {
                cluster_ip,
                endpoints,
                ..
            } => (cluster_ip.map(|it| it.to_string()), endpoints),
            other => panic!("{other:?}"),
        }
    }

    fn addresses(endpoints: &[Endpoint]) -> Vec<String> {
        endpoints
            .iter()
            .map(|endpoint| endpoint.address.to_string())
            .collect()
    }

    #[test]
    fn endpoints_are_by_hand_unless_the_controller_keeps_each_slice_of_a_service_with_a_selector() {
        let ports = json!([{"port": 443}]);
        let service_of = |selector: Value| service(json!({"ports": ports, "selector": selector}));
        let slice_of = |keeper: Option<&str>| {
            let mut labels = json!({SERVICE_LABEL: "s"});
            if let Some(keeper) = keeper {
                labels[MANAGED_BY] = keeper.into();
            }
            let slice = json!({"metadata": {"name": "s-1", "labels": labels}, "addressType": "IPv4",
                "ports": [{"port": 8443}], "endpoints": [{"addresses": ["10.0.0.1"]}]});
            Slice::of(serde_json::from_value(slice).expect("an EndpointSlice")).expect("a slice of a Service")
        };
        let is_by_hand = |selector: Value, keepers: &[Option<&str>]| {
            let slices: Vec<Slice> = keepers.iter().map(|keeper| slice_of(*keeper)).collect();
            match resolve_port(443, &service_of(selector), &slices).0 {
                ServiceState::Found { by_hand, .. } => by_hand,
                other => panic!("{other:?}"),
            }
        };
        let (selects, kept) = (json!({"app": "s"}), Some(CONTROLLER));
        assert!(!is_by_hand(selects.clone(), &[kept, kept]));
        assert!(!is_by_hand(selects.clone(), &[]), "there may be no Pod yet");
        assert!(is_by_hand(selects.clone(), &[kept, None]));
        assert!(is_by_hand(selects, &[kept, Some("somebody.example.com")]));
        for nothing in [json!(null), json!({})] {
            assert!(is_by_hand(nothing, &[kept]), "the controller does not look at it");
        }
    }

    #[test]
    fn a_service_port_leads_to_the_target_port_of_the_same_name_in_each_slice() {
        let service = service(json!({"clusterIP": "10.96.0.7", "ports": [
            {"name": "metrics", "port": 8080, "targetPort": 9999},
            {"name": "https", "port": 443, "targetPort": "named"}]}));
        let slices = [
            slice(
                json!([{"name": "metrics", "port": 9090}, {"name": "https", "port": 9443}]),
                json!([{"addresses": ["10.0.0.1", "10.0.0.99"]}]),
            ),
            // A Deployment in transition: its new Pods call the named port by another number.
            slice(
                json!([{"name": "https", "port": 10443}]),
                json!([{"addresses": ["10.0.0.2"]}]),
            ),
            slice(
                json!([{"name": "metrics", "port": 9090}]),
                json!([{"addresses": ["10.0.0.3"]}]),
            ),
        ];
        let (cluster_ip, endpoints) = found(443, &service, &slices);
        assert_eq!(cluster_ip.as_deref(), Some("10.96.0.7:443"));
        assert_eq!(addresses(&endpoints), ["10.0.0.1:9443", "10.0.0.2:10443"]);
    }

    #[test]
    fn a_port_without_a_name_matches_one_without_a_name() {
        let service = service(json!({"clusterIP": "10.96.0.7", "ports": [{"port": 443}]}));
        for name in [json!(""), json!(null)] {
            let slices = [slice(
                json!([{"name": name, "port": 9443}]),
                json!([{"addresses": ["10.0.0.1"]}]),
            )];
            assert_eq!(addresses(&found(443, &service, &slices).1), ["10.0.0.1:9443"]);
        }
    }

    #[test]
    fn only_tcp_counts() {
        let both = service(json!({"clusterIP": "10.96.0.7", "ports": [
            {"name": "u", "port": 443, "protocol": "UDP"}, {"name": "t", "port": 443, "protocol": "TCP"}]}));
        let slices = [slice(
            json!([{"name": "t", "port": 1, "protocol": "UDP"}, {"name": "t", "port": 2, "protocol": "TCP"}]),
            json!([{"addresses": ["10.0.0.1"]}]),
        )];
        assert_eq!(addresses(&found(443, &both, &slices).1), ["10.0.0.1:2"]);
        let udp = service(json!({"clusterIP": "10.96.0.7", "ports": [{"port": 443, "protocol": "UDP"}]}));
        let (state, problems) = resolve_port(443, &udp, &[]);
        assert_eq!(state, ServiceState::NoSuchPort { offered: vec![] });
        assert!(problems[0].contains("not over TCP"), "{problems:?}");
    }

    #[test]
    fn conditions_are_read_as_the_api_server_reads_them() {
        let service = service(json!({"clusterIP": "10.96.0.7", "ports": [{"port": 443}]}));
        let with = |conditions: Value| {
            let endpoint = json!({"addresses": ["10.0.0.1"], "conditions": conditions, "nodeName": "node-1",
                "targetRef": {"kind": "Pod", "namespace": "n", "name": "p"}});
            let slices = [slice(json!([{"name": "", "port": 1}]), json!([endpoint]))];
            found(443, &service, &slices).1.remove(0)
        };
        for (conditions, ready, terminating) in [
            (json!(null), true, false),
            (json!({}), true, false),
            (json!({"ready": false}), false, false),
            (
                json!({"ready": false, "serving": true, "terminating": true}),
                false,
                true,
            ),
        ] {
            let endpoint = with(conditions.clone());
            assert_eq!(
                (endpoint.ready, endpoint.terminating),
                (ready, terminating),
                "{conditions}"
            );
            assert_eq!(endpoint.node.as_deref(), Some("node-1"));
            assert_eq!(endpoint.pod.as_deref(), Some("n/p"));
        }
    }

    #[test]
    fn an_address_in_two_slices_counts_once() {
        let service = service(json!({"clusterIP": "10.96.0.7", "ports": [{"port": 443}]}));
        let one = |ready: bool| {
            slice(
                json!([{"name": "", "port": 9443}]),
                json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}},
                    {"addresses": ["not an address"]}, {"addresses": []}]),
            )
        };
        let (_, endpoints) = found(443, &service, &[one(false), one(true)]);
        assert_eq!(addresses(&endpoints), ["10.0.0.1:9443"]);
        assert!(
            endpoints[0].ready,
            "the API server would find it in the better slice"
        );
    }

    #[test]
    fn of_a_dual_stack_service_only_endpoints_of_the_family_that_the_api_server_dials_count() {
        let slices = ["10.0.0.1", "fd00:1::1"].map(|address| {
            slice(
                json!([{"name": "", "port": 9443}]),
                json!([{"addresses": [address]}]),
            )
        });
        let (v4, v6) = ("10.0.0.1:9443", "[fd00:1::1]:9443");
        let cases: [(Value, &[&str]); 4] = [
            (json!({"clusterIP": "10.96.0.7"}), &[v4]),
            (json!({"clusterIP": "fd00::7"}), &[v6]),
            (json!({"clusterIP": "None"}), &[v4, v6]),
            (json!({}), &[v4, v6]),
        ];
        for (mut spec, wanted) in cases {
            spec["ports"] = json!([{"port": 443}]);
            let found = found(443, &service(spec.clone()), &slices);
            assert_eq!(addresses(&found.1), wanted, "{spec}");
        }
        let only_the_other = found(
            443,
            &service(json!({"clusterIP": "10.96.0.7", "ports": [{"port": 443}]})),
            &slices[1..],
        );
        assert!(
            only_the_other.1.is_empty(),
            "nothing is behind what the API server dials"
        );
    }

    #[test]
    fn a_port_that_is_not_offered_is_said_with_those_that_are() {
        let two = service(json!({"clusterIP": "10.96.0.7", "ports": [
            {"name": "b", "port": 8443}, {"name": "a", "port": 443}]}));
        let (state, problems) = resolve_port(9443, &two, &[]);
        assert_eq!(
            state,
            ServiceState::NoSuchPort {
                offered: vec![443, 8443]
            }
        );
        assert_eq!(
            problems,
            [
                "MutatingWebhookConfiguration \"c\", webhook \"w\": Service n/s does not offer port 9443; correct \
              clientConfig.service.port or the Service"
            ]
        );
        let (state, problems) = resolve_port(443, &service(json!({"clusterIP": "10.96.0.7"})), &[]);
        assert_eq!(state, ServiceState::NoSuchPort { offered: vec![] });
        assert!(problems[0].contains("has no ports"), "{problems:?}");
    }

    #[test]
    fn services_without_a_cluster_ip_have_none() {
        let ports = json!([{"port": 443}]);
        let slices = [slice(
            json!([{"name": "", "port": 1}]),
            json!([{"addresses": ["10.0.0.1"]}]),
        )];
        let headless = service(json!({"clusterIP": "None", "ports": ports}));
        let (cluster_ip, endpoints) = found(443, &headless, &slices);
        assert_eq!((cluster_ip, endpoints.len()), (None, 1));
        assert!(
            resolve_port(443, &headless, &slices).1[0].contains("headless"),
            "only one way of routing takes it"
        );
        let pending = service(json!({"ports": ports}));
        assert_eq!(found(443, &pending, &slices).0, None);
        let external = service(json!({"type": "ExternalName", "externalName": "h.example", "ports": ports}));
        let (state, problems) = resolve_port(443, &external, &[]);
        assert!(
            matches!(&state, ServiceState::Unknown { why } if why.contains("h.example")),
            "no endpoints may be concluded from it: {state:?}"
        );
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn endpoints_beyond_the_bound_are_reported_and_ready_ones_stay() {
        let service = service(json!({"clusterIP": "10.96.0.7", "ports": [{"port": 443}]}));
        let endpoints: Vec<_> = (0..MAX_ENDPOINTS + 10)
            .map(|n| {
                json!({"addresses": [format!("10.1.{}.{}", n / 256, n % 256)],
                "conditions": {"ready": n >= 10}})
            })
            .collect();
        let slices = [slice(json!([{"name": "", "port": 1}]), json!(endpoints))];
        let (state, problems) = resolve_port(443, &service, &slices);
        let ServiceState::Found { endpoints, .. } = state else {
            panic!("{state:?}");
        };
        assert_eq!(endpoints.len(), MAX_ENDPOINTS);
        assert!(endpoints.iter().all(|endpoint| endpoint.ready));
        assert!(endpoints.is_sorted_by_key(|endpoint| endpoint.address));
        assert!(problems[0].contains("1010 endpoints"), "{problems:?}");
    }

    #[test]
    fn a_slice_of_no_service_is_not_kept() {
        let slice = json!({"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": []});
        assert_eq!(Slice::of(serde_json::from_value(slice).expect("a slice")), None);
    }
}
