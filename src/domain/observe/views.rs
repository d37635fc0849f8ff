//! What a person is shown of the sources: the canaries, the scrapes, the probes, and how fresh each is.

use serde::Serialize;

use super::canary::CanaryTarget;
use super::node_leases::NodeLeasesView;
use super::readiness::ReadinessView;
use crate::time::Time;

/// One canary as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CanaryView {
    /// The canary, by the object that it writes.
    pub canary: CanaryTarget,
    /// `written`, `overdue`, ... or `untried`.
    pub state: &'static str,
    /// A sentence about the last one.
    pub detail: String,
}

/// Where the knowledge comes from and how fresh it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sources {
    /// Seconds since the inventory was last known to be current; `None` before the first list.
    pub inventory_age_seconds: Option<f64>,
    /// What keeps it from being current or complete.
    pub inventory_trouble: Vec<String>,
    /// False when neither kind of webhook configuration may be read or is there: then that no hook is listed means
    /// nothing.
    pub hooks_listed: bool,
    /// Every scrape target with what is known of it.
    pub scrapes: Vec<ScrapeView>,
    /// The Prometheus that is asked as well; `None` without one.
    pub prometheus: Option<StoredView>,
    /// Why not every API server is asked at its own address; the configured address is then used for the others.
    pub api_servers_trouble: Option<String>,
    /// The nodes' heartbeats.
    pub node_leases: NodeLeasesView,
    /// Whether probes come as often as they should.
    pub probes: ProbeView,
    /// True when every probe fails at once and nothing shows that the fault is not ours.
    pub self_doubt: bool,
}

/// How probes keep up, as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeView {
    /// Backends that are probed, each as webhooks with the same server name and trust meet it.
    pub targets: usize,
    /// How late the probe is that waits longest for its turn within the budget; 0 while all are on time.
    pub late_seconds: f64,
    /// Which budget is used up and what that means, as sentences.
    pub late: Vec<String>,
}

/// One API-server replica (or address) as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScrapeView {
    /// The address asked.
    pub target: String,
    /// API servers seen behind it recently; one that was restarted counts once.
    pub replicas: usize,
    /// Seconds since the last good scrape; `None` when there was none.
    pub age_seconds: Option<f64>,
    /// The last failure, when it is newer than the last good scrape.
    pub failure: Option<String>,
    /// Since when nothing but failures came back; `None` while scrapes succeed.
    pub failing_since: Option<Time>,
    /// The processes behind it that answered before and do not any more.
    pub silent: Vec<SilentView>,
    /// Its release, as it says itself.
    pub version: Option<String>,
    /// How ready it is, as it says itself.
    pub readiness: ReadinessView,
    /// Metrics that it does not have, with what is judged without them.
    pub missing: Vec<String>,
}

/// A Prometheus that is asked for the API servers' metrics, as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredView {
    /// Its address.
    pub source: String,
    /// Whether verdicts use it now: not while hookwatch's own scrapes succeed.
    pub used: bool,
    /// API servers that it scraped lately.
    pub api_servers: usize,
    /// Seconds since the newest scrape that it has stored; `None` when there is none.
    pub age_seconds: Option<f64>,
    /// Seconds between its scrapes, of the API server that it scrapes most rarely; `None` while only one is known.
    pub resolution_seconds: Option<f64>,
    /// The last failure to read it, when it is newer than the last good reading.
    pub failure: Option<String>,
    /// Since when nothing but failures came back; `None` while readings succeed.
    pub failing_since: Option<Time>,
    /// Metrics that it has not stored, with what is judged without them.
    pub missing: Vec<String>,
}

/// An API-server process behind an address shared with others that stopped answering.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SilentView {
    /// When the process began, which identifies it.
    pub started: Option<Time>,
    /// When it answered last.
    pub since: Time,
}
