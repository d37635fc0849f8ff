//! The core's inputs and outputs.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::act::breaker::{Freeze, HookStanding, Judged};
use crate::act::fence::{BreakerView, Proof};
use crate::act::leadership::{ReplicaReport, ReplicaRole, ReplicaView};
use crate::audit::Finding;
use crate::audit::periodic::{AuditRequest, AuditResult};
use crate::cluster::hook::HookId;
use crate::cluster::inventory::{Inventory, InventoryHealth, WatchReport};
use crate::diagnose::verdict::{ControlPlane, Verdict};
use crate::observe::canary::{CanaryOverdue, CanaryReport};
use crate::observe::node_leases::LeaseReading;
use crate::observe::probe::{ProbeOverdue, ProbeReport};
use crate::observe::readiness::ReadyReport;
use crate::observe::schedule::ProbePace;
use crate::observe::snapshot::{Scrape, ScrapeFailure};
use crate::observe::stored::PrometheusReading;
use crate::report::announcement::Announcement;
use crate::report::assessment::Assessment;
use crate::time::Time;
use crate::vocabulary::{Cause, Health};

/// Everything that can be observed.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub enum Event {
    /// The hooks and what is behind them, as a whole.
    Inventory(Arc<Inventory>),
    /// How each watch of the inventory is doing; replaces what was known of all.
    Watches(Vec<WatchReport>),
    /// A replica's metrics.
    Scraped(Box<Scrape>),
    /// A scrape that failed.
    ScrapeFailed(ScrapeFailure),
    /// What a Prometheus has stored of all API servers' metrics.
    Stored(Box<PrometheusReading>),
    /// It could not be read.
    StoredFailed(ScrapeFailure),
    /// An API server's answer at `/readyz`.
    Readiness(ReadyReport),
    /// The nodes' Leases.
    NodeLeases(LeaseReading),
    /// A probe that came back.
    Probed(Box<ProbeReport>),
    /// A probe that is late.
    ProbeOverdue(Box<ProbeOverdue>),
    /// How probes keep up with their intervals; replaces what was known.
    ProbePace(ProbePace),
    /// A canary that came back.
    CanaryWritten(CanaryReport),
    /// A canary that is late.
    CanaryOverdue(CanaryOverdue),
    /// What is known of the fence now.
    Fence(Proof),
    /// Every hook that the breaker deals with; replaces the previous list.
    Standings(Vec<HookStanding>),
    /// A person's order to bypass nothing new; `None` once it is taken back.
    Frozen(Option<Freeze>),
    /// Whether the list of API-server replicas could be read; why not, when it could not.
    ApiServers(Result<(), String>),
    /// This daemon's standing in the election.
    Replica(ReplicaReport),
    /// What an audit found that was asked for. It is no observation, and not recorded: it follows from what is.
    #[serde(skip)]
    Audited(Box<AuditResult>),
    /// hookwatch was stalled until now: apparent silence in that time is no evidence.
    Resumed,
    /// Time has passed.
    Tick,
}

/// Everything the core can want.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchdogEffect {
    /// This is how things are, and what the breaker is to know of it.
    Publish(Arc<Assessment>, Arc<Judged>),
    /// Something changed that a person would want to read about.
    Tell(LoggedChange),
    /// To be said in the cluster itself. Only the leader wants this.
    Announce(Box<Announcement>),
    /// Where to look more closely; replaces the wish before it.
    Attend(Attention),
    /// To be audited, beside everything else.
    Audit(Box<AuditRequest>),
}

/// Where to look more closely than usual.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attention {
    /// Something is odd: scrape and write canaries more often.
    pub everywhere: bool,
    /// Probe these hooks more often.
    pub hooks: BTreeSet<HookId>,
    /// A canary has been waiting since then: probe every other backend once.
    pub waiting_since: Option<Time>,
}

/// A change worth a line in the log.
#[derive(Debug, Clone, PartialEq)]
pub enum LoggedChange {
    /// A hook's health or cause changed.
    Hook {
        /// The verdict before; `None` for a hook seen for the first time.
        from: Option<(Health, Option<Cause>)>,
        /// The verdict now.
        verdict: Box<Verdict>,
    },
    /// The control plane's state changed.
    ControlPlane(Box<ControlPlane>),
    /// A watch of the inventory changed its state.
    Inventory {
        /// What is watched.
        watch: String,
        /// How it is now.
        health: InventoryHealth,
    },
    /// Something critical was found that was not there before.
    Finding(Box<Finding>),
    /// What may be done about a culprit changed.
    Breaker(BreakerView),
    /// The list of API-server replicas can be read again, or cannot be any more.
    ApiServers(Result<(), String>),
    /// Probes begin to be late, for their budget is used up (with what is, as sentences), or are on time again (without
    /// any).
    ProbePace(Vec<String>),
    /// This daemon's place among its replicas changed.
    Replica {
        /// What it was; `None` at first.
        from: Option<ReplicaRole>,
        /// What it is.
        view: Box<ReplicaView>,
    },
    /// Scrapes of a target began to fail or to succeed again.
    Scrape {
        /// The address.
        target: String,
        /// The failure; `None` when it succeeds again.
        failure: Option<String>,
    },
}

impl LoggedChange {
    /// Whether a hook's health changed: neither its first verdict nor another cause alone counts.
    pub fn is_of_health(&self) -> bool {
        match self {
            Self::Hook { from, verdict } => from.is_some_and(|(health, _)| health != verdict.health),
            _ => false,
        }
    }
}
