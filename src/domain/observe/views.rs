//! The state of the sources (canaries, scrapes, probes, inventory) as shown to users, and how fresh each is.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::canary::CanaryTarget;
use super::node_leases::NodeLeasesView;
use super::readiness::ReadinessView;
use crate::text::human;
use crate::time::Time;

/// An inventory older than this is stale. The alert HookwatchBlind uses the same limit.
pub const STALE_INVENTORY: Duration = Duration::from_secs(300);

/// One canary as shown to users.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CanaryView {
    /// The canary, by the object that it writes.
    pub canary: CanaryTarget,
    /// The outcome of the newest canary (`written`, `denied`, ...), or `overdue` or `untried`.
    pub state: &'static str,
    /// A sentence about the newest canary.
    pub detail: String,
}

/// The sources of the assessment, and how fresh each is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sources {
    /// Seconds since the inventory was last known to be current; `None` before the first list.
    pub inventory_age_seconds: Option<f64>,
    /// Why the inventory is not current or complete; one sentence per watch.
    pub inventory_trouble: Vec<String>,
    /// False when neither kind of webhook configuration can be read (forbidden or missing): an empty list of hooks then does not
    /// mean that there are none.
    pub hooks_listed: bool,
    /// Every scrape target.
    pub scrapes: Vec<ScrapeView>,
    /// The Prometheus that is also queried; `None` without one.
    pub prometheus: Option<StoredView>,
    /// Why some API servers are not read at their own address; the configured address is then used for them.
    pub api_servers_trouble: Option<String>,
    /// The nodes' heartbeats.
    pub node_leases: NodeLeasesView,
    /// Whether probes keep up with their intervals.
    pub probes: ProbeView,
    /// True when every probe fails at once and hookwatch's own network may be at fault.
    pub self_doubt: bool,
}

impl Sources {
    /// Why a failing webhook could be missed now; `None` if nothing hides one.
    pub fn blind_to(&self) -> Option<BlindSpot> {
        BlindSpot::of(self.hooks_listed, self.inventory_age_seconds, self.self_doubt)
    }
}

/// Why a failing webhook could be missed; `Display` writes a clause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BlindSpot {
    /// No webhook configuration can be read.
    Unlisted,
    /// No inventory has been read yet.
    Unread,
    /// Every probe fails at once, and hookwatch's own network may be at fault.
    SelfDoubt,
    /// The inventory has not been current for longer than [`STALE_INVENTORY`].
    Stale(Duration),
}

impl BlindSpot {
    /// The most serious one; the arguments are the fields of [`Sources`] of the same names. `None` if there is none.
    pub fn of(hooks_listed: bool, inventory_age_seconds: Option<f64>, self_doubt: bool) -> Option<Self> {
        if !hooks_listed {
            return Some(Self::Unlisted);
        }
        let Some(age) = inventory_age_seconds else {
            return Some(Self::Unread);
        };
        if self_doubt {
            return Some(Self::SelfDoubt);
        }
        // The age may come from another release of hookwatch and be no valid duration.
        let age = Duration::try_from_secs_f64(age).unwrap_or(Duration::MAX);
        (age > STALE_INVENTORY).then_some(Self::Stale(age))
    }
}

impl fmt::Display for BlindSpot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlisted => formatter.write_str("the webhook configurations could not be read"),
            Self::Unread => formatter.write_str("the webhook configurations have not been read yet"),
            Self::SelfDoubt => {
                formatter.write_str("every probe fails at once, and the fault may be hookwatch's own")
            }
            Self::Stale(age) => write!(formatter, "its list of webhooks is {} old", human(*age)),
        }
    }
}

/// Whether probes keep up with their intervals, as shown to users.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeView {
    /// Probe targets: a backend counts once for each combination of server name and trust with which webhooks call it.
    pub targets: usize,
    /// Seconds by which the most delayed probe is late because a budget is used up; 0 while all are on time.
    pub late_seconds: f64,
    /// Which budgets are used up, and what to do, as sentences.
    pub late: Vec<String>,
}

/// One API server (or an address shared by several) as shown to users.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScrapeView {
    /// The address that is scraped.
    pub target: String,
    /// API servers recently seen at this address; one that was restarted counts once.
    pub replicas: usize,
    /// Seconds since the last successful scrape; `None` before the first.
    pub age_seconds: Option<f64>,
    /// The last failure; `None` after a successful scrape.
    pub failure: Option<String>,
    /// When the first failure since the last successful scrape came; `None` while scrapes succeed.
    pub failing_since: Option<Time>,
    /// The processes at this address that answered before and do not now.
    pub silent: Vec<SilentView>,
    /// Its `gitVersion`, as it reports itself.
    pub version: Option<String>,
    /// Its readiness, as it reports itself.
    pub readiness: ReadinessView,
    /// Metrics that it does not expose, and what is judged without them.
    pub missing: Vec<String>,
}

/// A Prometheus that is queried for the API servers' metrics, as shown to users.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredView {
    /// Its address.
    pub source: String,
    /// Whether verdicts use it now, which they do only while hookwatch's own scrapes fail.
    pub used: bool,
    /// API servers that it scraped recently.
    pub api_servers: usize,
    /// Seconds since its newest stored scrape; `None` when there is none.
    pub age_seconds: Option<f64>,
    /// The longest scrape interval of an API server, in seconds; `None` before an API server has two scrapes.
    pub resolution_seconds: Option<f64>,
    /// The last failure to query it; `None` after a successful query.
    pub failure: Option<String>,
    /// When the first failure since the last successful query came; `None` while queries succeed.
    pub failing_since: Option<Time>,
    /// Metrics that it has not stored, and what is judged without them.
    pub missing: Vec<String>,
}

/// An API-server process that stopped answering at an address shared with others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SilentView {
    /// The process's start time, which identifies it; `None` if it is not exposed.
    pub started: Option<Time>,
    /// When it last answered.
    pub since: Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_hide_a_failing_webhook_is_a_blind_spot_and_a_list_of_up_to_five_minutes_is_none() {
        let of = |listed, age, doubt| BlindSpot::of(listed, age, doubt).map(|spot| spot.to_string());
        assert_eq!(of(true, Some(0.4), false), None);
        assert_eq!(of(true, Some(300.0), false), None);
        let stale = of(true, Some(1_800.0), false);
        assert_eq!(stale.as_deref(), Some("its list of webhooks is 30 min old"));
        assert_eq!(
            BlindSpot::of(true, Some(1_800.0), true),
            Some(BlindSpot::SelfDoubt)
        );
        assert_eq!(BlindSpot::of(true, None, true), Some(BlindSpot::Unread));
        assert_eq!(BlindSpot::of(false, None, false), Some(BlindSpot::Unlisted));
        assert!(BlindSpot::of(true, Some(f64::NAN), false).is_some());
    }
}
