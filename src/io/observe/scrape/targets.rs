//! Which replicas are scraped, and what stands in for those out of reach.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Deserialize;

use super::ScrapeTarget;
use crate::domain::time::Time;

/// How long a replica that could not be reached is left alone. Trying costs one connection attempt.
const LEAVE_ALONE: Duration = Duration::from_secs(60);
/// More replicas than any control plane has.
const MAX_REPLICAS: usize = 32;
/// Visits to one address in one round at most.
const MAX_VISITS: usize = 5;
/// A process behind the configured server's address that was not met for this long is gone.
const FORGET: Duration = Duration::from_secs(300);

/// The known targets.
pub(super) struct Targets {
    server: ScrapeTarget,
    /// The configured server's own address, when it is an IP address: it may be one of the replicas.
    server_address: Option<SocketAddr>,
    replicas: BTreeMap<SocketAddr, ScrapedReplica>,
    /// The processes met at the configured server's address, by their start in milliseconds, and when that was.
    met: BTreeMap<i64, Time>,
}

struct ScrapedReplica {
    target: ScrapeTarget,
    left_alone_until: Option<Time>,
}

impl ScrapedReplica {
    fn is_tried(&self, now: Time) -> bool {
        self.left_alone_until.is_none_or(|until| until <= now)
    }
}

impl Targets {
    pub(super) fn new(server: ScrapeTarget, server_address: Option<SocketAddr>) -> Self {
        Self {
            server,
            server_address,
            replicas: BTreeMap::new(),
            met: BTreeMap::new(),
        }
    }

    /// Notes which process answered at the configured server's address.
    pub(super) fn met(&mut self, started_seconds: f64, now: Time) {
        self.met.retain(|_, at| now.since(*at) < FORGET);
        if self.met.len() < MAX_REPLICAS {
            self.met.insert((started_seconds * 1_000.0).round() as i64, now);
        }
    }

    /// How often to ask the configured server: once for each replica that is behind it as far as is known.
    pub(super) fn visits(&self, now: Time, wide: bool) -> usize {
        let met = self.met.values().filter(|at| now.since(**at) < FORGET).count();
        let out_of_reach = self.replicas.values().filter(|replica| !replica.is_tried(now));
        let known = if self.replicas.is_empty() {
            met.max(1) + usize::from(wide)
        } else {
            met.max(out_of_reach.count())
        };
        known.clamp(1, MAX_VISITS)
    }

    /// Every replica that may be reachable. The configured server joins in as long as any replica is out of
    /// reach or none is known: the same process under two addresses counts once.
    pub(super) fn current(&self, now: Time) -> Vec<ScrapeTarget> {
        let (tried, left_alone): (Vec<_>, Vec<_>) = self
            .replicas
            .iter()
            .partition(|(_, replica)| replica.is_tried(now));
        let server_is_tried = tried
            .iter()
            .any(|(address, _)| Some(**address) == self.server_address);
        let mut targets: Vec<_> = tried
            .into_iter()
            .map(|(_, replica)| replica.target.clone())
            .collect();
        if targets.is_empty() || (!left_alone.is_empty() && !server_is_tried) {
            targets.push(self.server.clone());
        }
        targets
    }

    /// Forgets replicas that are gone and returns the addresses that are new.
    pub(super) fn keep_only(&mut self, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
        let wanted: BTreeSet<_> = addresses.iter().copied().take(MAX_REPLICAS).collect();
        self.replicas.retain(|address, _| wanted.contains(address));
        wanted
            .into_iter()
            .filter(|address| !self.replicas.contains_key(address))
            .collect()
    }

    pub(super) fn add(&mut self, address: SocketAddr, target: ScrapeTarget) {
        self.replicas.insert(
            address,
            ScrapedReplica {
                target,
                left_alone_until: None,
            },
        );
    }

    pub(super) fn reached(&mut self, address: SocketAddr) {
        if let Some(replica) = self.replicas.get_mut(&address) {
            replica.left_alone_until = None;
        }
    }

    pub(super) fn out_of_reach(&mut self, address: SocketAddr, now: Time) {
        if let Some(replica) = self.replicas.get_mut(&address) {
            replica.left_alone_until = Some(now + LEAVE_ALONE);
        }
    }
}

/// The replicas' addresses in a list of the EndpointSlices of `default/kubernetes`.
///
/// API servers enter themselves there with the one port `https`; an entry that is not ready is on its way out.
pub(super) fn replicas(list: &[u8]) -> Result<Vec<SocketAddr>, serde_json::Error> {
    #[derive(Deserialize)]
    struct List {
        #[serde(default)]
        items: Vec<EndpointSlice>,
    }
    let mut addresses = BTreeSet::new();
    for slice in serde_json::from_slice::<List>(list)?.items {
        let ports: Vec<u16> = slice
            .ports
            .iter()
            .flatten()
            .filter(|port| port.name.as_deref().is_none_or(|name| name == "https"))
            .filter_map(|port| u16::try_from(port.port?).ok())
            .collect();
        for endpoint in slice.endpoints.iter().flatten() {
            let ready = endpoint.conditions.as_ref().and_then(|it| it.ready);
            if ready == Some(false) {
                continue;
            }
            let ip = endpoint
                .addresses
                .first()
                .and_then(|address| address.parse().ok());
            addresses.extend(
                ip.into_iter()
                    .flat_map(|ip| ports.iter().map(move |port| SocketAddr::new(ip, *port))),
            );
        }
    }
    Ok(addresses.into_iter().collect())
}
