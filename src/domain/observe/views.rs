//! What a person is shown of the sources: the canaries, the scrapes, the probes, and how fresh each is.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::canary::CanaryTarget;
use super::node_leases::NodeLeasesView;
use super::readiness::ReadinessView;
use crate::text::human;
use crate::time::Time;

/// An inventory older than this is out of date, as the alert HookwatchBlind has it.
pub const STALE_INVENTORY: Duration = Duration::from_secs(300);

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

impl Sources {
    /// Why a failing webhook could be missed now; `None` while nothing hides one.
    pub fn blind_to(&self) -> Option<BlindSpot> {
        BlindSpot::of(self.hooks_listed, self.inventory_age_seconds, self.self_doubt)
    }
}

/// Why a failing webhook could be missed; displayed as a clause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BlindSpot {
    /// No webhook configuration may be read.
    Unlisted,
    /// None has been read so far.
    Unread,
    /// Every probe fails at once, and nothing shows that the fault is not hookwatch's.
    SelfDoubt,
    /// The inventory has not been current for longer than [`STALE_INVENTORY`].
    Stale(Duration),
}

impl BlindSpot {
    /// The worst one, from the fields of [`Sources`] of the same names.
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
        // The age may come from another release, and be no duration at all.
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
