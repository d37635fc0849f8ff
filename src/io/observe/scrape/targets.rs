//! Which replicas are scraped, and what replaces those that are unreachable.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Deserialize;

use super::ScrapeTarget;
use crate::domain::time::Time;

/// How long a replica that could not be reached is left alone. Trying costs one connection attempt.
const LEAVE_ALONE: Duration = Duration::from_secs(60);
/// Most replicas scraped, and most processes remembered for one address: more than any control plane has.
const MAX_REPLICAS: usize = 32;
/// Visits to one address in one round at most.
const MAX_VISITS: usize = 5;
/// A process behind an address that was not met for this long is gone.
const FORGET: Duration = Duration::from_secs(300);
/// Once a single process was seen at an address for this long, on several connections, it is the only one there.
const SETTLED: Duration = Duration::from_secs(60);

pub(super) struct Targets {
    server: KnownTarget,
    /// The configured server's own address, when it is an IP address: it may be one of the replicas.
    server_address: Option<SocketAddr>,
    replicas: BTreeMap<SocketAddr, KnownTarget>,
}

struct KnownTarget {
    target: ScrapeTarget,
    left_alone_until: Option<Time>,
    /// The processes met here, by their start in milliseconds, and when that was first and last.
    met: BTreeMap<i64, (Time, Time)>,
}

impl KnownTarget {
    fn new(target: ScrapeTarget) -> Self {
        Self {
            target,
            left_alone_until: None,
            met: BTreeMap::new(),
        }
    }

    fn is_tried(&self, now: Time) -> bool {
        self.left_alone_until.is_none_or(|until| until <= now)
    }

    /// For how long each process has been met.
    fn met_for(&self, now: Time) -> impl Iterator<Item = Duration> {
        let met = self
            .met
            .values()
            .filter(move |(_, last)| now.since(*last) < FORGET);
        met.map(|(first, last)| last.since(*first))
    }
}

impl Targets {
    pub(super) fn new(server: ScrapeTarget, server_address: Option<SocketAddr>) -> Self {
        Self {
            server: KnownTarget::new(server),
            server_address,
            replicas: BTreeMap::new(),
        }
    }

    fn known(&mut self, address: Option<SocketAddr>) -> Option<&mut KnownTarget> {
        match address {
            Some(address) => self.replicas.get_mut(&address),
            None => Some(&mut self.server),
        }
    }

    /// Notes which process answered at an address; `None` is the configured server's.
    pub(super) fn met(&mut self, address: Option<SocketAddr>, started_seconds: f64, now: Time) {
        let Some(known) = self.known(address) else { return };
        known.met.retain(|_, (_, last)| now.since(*last) < FORGET);
        if known.met.len() < MAX_REPLICAS {
            let started = (started_seconds * 1_000.0).round() as i64;
            known.met.entry(started).or_insert((now, now)).1 = now;
        }
    }

    /// Whether there appears to be a single process: then every connection leads to it.
    pub(super) fn is_one_process(&self, now: Time) -> bool {
        let only = match self.replicas.len() {
            0 => Some(&self.server),
            1 => self.replicas.values().find(|replica| replica.is_tried(now)),
            _ => None,
        };
        let Some(only) = only else { return false };
        let mut met = only.met_for(now);
        met.next().is_some_and(|time| time >= SETTLED) && met.next().is_none()
    }

    /// Every replica that may be reachable. The configured server joins in as long as any replica is out of
    /// reach or none is known: the same process under two addresses counts once.
    ///
    /// A connection is kept only to a replica at its own address. That, too, may be a balancer's: a `wide` scrape ends
    /// the connection, and once two processes were seen none is kept. Then, and at the configured server, there is a
    /// visit for each known process, and a `wide` scrape adds one where no list gives their number.
    pub(super) fn current(&self, now: Time, wide: bool) -> Vec<ScrapeTarget> {
        let (tried, left_alone): (Vec<_>, Vec<_>) = self
            .replicas
            .iter()
            .partition(|(_, replica)| replica.is_tried(now));
        let server_is_tried = tried
            .iter()
            .any(|(address, _)| Some(**address) == self.server_address);
        let visited = |known: &KnownTarget, at_least: usize, more: bool| ScrapeTarget {
            visits: (known.met_for(now).count().max(at_least) + usize::from(more)).min(MAX_VISITS),
            ..known.target.clone()
        };
        let mut targets: Vec<_> = tried
            .into_iter()
            .map(|(_, replica)| {
                let several = replica.met_for(now).nth(1).is_some();
                ScrapeTarget {
                    is_kept: !several && !wide,
                    ..visited(replica, 1, several && wide)
                }
            })
            .collect();
        if targets.is_empty() || (!left_alone.is_empty() && !server_is_tried) {
            let unlisted = self.replicas.is_empty();
            targets.push(visited(&self.server, left_alone.len().max(1), wide && unlisted));
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
        self.replicas.insert(address, KnownTarget::new(target));
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
/// API servers register themselves there with the one port `https`; an address that is not ready belongs to one that is shutting
/// down.
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
