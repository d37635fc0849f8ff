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

/// What the core receives: observations, reports of hookwatch's other parts, and ticks.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub enum Event {
    /// All hooks with their backends; replaces the previous inventory.
    Inventory(Arc<Inventory>),
    /// The state of every watch of the inventory; replaces the previous list.
    Watches(Vec<WatchReport>),
    /// The metrics of one API server, from a successful scrape.
    Scraped(Box<Scrape>),
    /// A scrape that failed.
    ScrapeFailed(ScrapeFailure),
    /// What a Prometheus has stored of all API servers' metrics.
    Stored(Box<PrometheusReading>),
    /// A Prometheus that could not be read.
    StoredFailed(ScrapeFailure),
    /// An API server's answer at `/readyz`.
    Readiness(ReadyReport),
    /// The nodes' Leases.
    NodeLeases(LeaseReading),
    /// A probe that came back.
    Probed(Box<ProbeReport>),
    /// A probe that is late.
    ProbeOverdue(Box<ProbeOverdue>),
    /// Whether probes keep up with their intervals; replaces the previous report.
    ProbePace(ProbePace),
    /// A canary that came back.
    CanaryWritten(CanaryReport),
    /// A canary that is late.
    CanaryOverdue(CanaryOverdue),
    /// The result of a check whether the fence holds.
    Fence(Proof),
    /// Every hook that the breaker deals with; replaces the previous list.
    Standings(Vec<HookStanding>),
    /// An operator's order to freeze: no new bypass. `None` once it is lifted.
    Frozen(Option<Freeze>),
    /// Whether the list of API servers could be read; the error is the reason why not.
    ApiServers(Result<(), String>),
    /// This replica's state in the leader election.
    Replica(ReplicaReport),
    /// The result of an [`AuditRequest`]. Not recorded, as it follows from the events before it.
    #[serde(skip)]
    Audited(Box<AuditResult>),
    /// hookwatch was stalled until now: apparent silence in that time is no evidence.
    Resumed,
    /// Judge everything now; due at [`Watchdog::due`](super::Watchdog::due).
    Tick,
}

/// What the core asks the engine to do.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchdogEffect {
    /// The assessment to show, and its part for the breaker.
    Publish(Arc<Assessment>, Arc<Judged>),
    /// A change for the log.
    Tell(LoggedChange),
    /// An Event to write into the cluster. Only the leader asks for it.
    Announce(Box<Announcement>),
    /// Where to look more closely; replaces the previous one.
    Attend(Attention),
    /// An audit to run, without delaying anything else.
    Audit(Box<AuditRequest>),
}

/// Where to look more closely than usual.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attention {
    /// Something is odd: scrape and write canaries more often.
    pub everywhere: bool,
    /// Probe these hooks more often.
    pub hooks: BTreeSet<HookId>,
    /// A canary has been waiting since this instant: probe every other backend once.
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
    /// An audit has a new critical finding.
    Finding(Box<Finding>),
    /// The breaker's state, or what it is permitted to do, changed.
    Breaker(BreakerView),
    /// The list of API servers can be read again, or cannot be read any longer; the error is the reason.
    ApiServers(Result<(), String>),
    /// Probes are late because their budget is used up, with a sentence on each part of it that is; empty once they are on time
    /// again.
    ProbePace(Vec<String>),
    /// This replica's state in the leader election changed.
    Replica {
        /// The role before; `None` for the first report.
        from: Option<ReplicaRole>,
        /// The state now.
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
    /// Whether a hook's health changed. Neither its first verdict counts, nor a change of only its cause.
    pub fn is_of_health(&self) -> bool {
        match self {
            Self::Hook { from, verdict } => from.is_some_and(|(health, _)| health != verdict.health),
            _ => false,
        }
    }
}
