//! hookwatch's own metrics, each declared once.
//!
//! Counters and histograms grow as things happen. The state of hooks is in gauges that are filled from the newest assessment
//! whenever metrics are gathered, so that a deleted hook leaves no series behind. Most label values come from closed sets;
//! those that name hooks, API servers or Alertmanagers are bounded in number; see `docs/metrics.md`.

#[macro_use]
mod make;

mod alertmanager;
mod breaker;
mod hooks;
mod plane;
mod probes;
mod scrapes;
mod servers;
mod telemetry;

use std::sync::Mutex;

use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, Registry};

pub use self::alertmanager::Dropped;
pub use self::hooks::MAX_HOOKS;
pub use self::make::{Declared, SECONDS};
pub use self::probes::MAX_OUTCOMES;
pub use self::telemetry::{Loss, Signal, TelemetryCounts};
use super::events::EventOutcome;
use crate::domain::act::fence::AutoBreak;
use crate::domain::act::leadership::{LeadershipObject, ReplicaRole};
use crate::domain::cluster::hook::HookId;
use crate::domain::diagnose::verdict::Verdict;
use crate::domain::report::assessment::Assessment;
use crate::domain::time::Time;
use crate::io::wall::WallClock;
use make::Maker;

/// A hook, which of its certificates (`served` or `ca`), and when that expires, by the wall clock.
pub type CertificateEnd = (HookId, &'static str, Time);

group! {
    OwnMetrics:
    inventory_current = gauge("inventory_current_timestamp_seconds"):
        "When the inventory of webhooks was last known to be current; 0 before the first list.";
    inventory_problems = gauge("inventory_problems"):
        "Objects in the cluster that could not be made sense of; the API lists them.";
    self_doubt = gauge("self_doubt"): "1 while every probe fails and the fault may be our own.";
    breaker_mode = gauges("breaker_mode", &["mode"]):
        "1 for what is done about a culprit now, 0 for the others.";
    assessed_at = gauge("assessment_timestamp_seconds"): "When everything was last judged.";
    changes = counters("verdict_changes_total", &["health"]): "Changes of a webhook's health.";
    leader = passing("leader", &["by"]):
        "1 for what this replica leads by, 0 else; no series in a daemon that takes no part in an election.";
    leader_known = passing("leader_known", &[]):
        "1 when this replica leads or knows which one does, 0 else; no series in a daemon that takes no part in an election.";
    leader_transitions = counters("leader_transitions_total", &["role"]):
        "How often this replica became the leader, a follower, or neither.";
    events = counters("events_total", &["outcome"]): "Kubernetes Events by what became of them.";
}

/// All metrics of the daemon.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Held while gauges are filled and read, so that concurrent scrapes do not mix.
    gathering: Mutex<()>,
    /// The wall clock by which all timestamps in metrics are dated.
    pub wall: WallClock,
    declared: Vec<Declared>,
    /// Gauges that are cleared whenever metrics are gathered, so that only current series remain.
    passing: Vec<GaugeVec>,
    hooks: hooks::HookMetrics,
    probes: probes::ProbeMetrics,
    plane: plane::PlaneMetrics,
    scrapes: scrapes::ScrapeMetrics,
    breaker: breaker::BreakerMetrics,
    own: OwnMetrics,
    servers: servers::ServerMetrics,
    alertmanager: alertmanager::PushMetrics,
    telemetry: TelemetryCounts,
}

impl Metrics {
    /// Registers all metrics in a new registry.
    ///
    /// # Errors
    /// If two metrics have the same name, which is a bug in this module.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let make = Maker::new(&registry);
        let build = make.gauges("build_info", "Always 1; the version is a label.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1.0);
        let metrics = Self {
            gathering: Mutex::new(()),
            wall: WallClock::default(),
            declared: Vec::new(),
            passing: Vec::new(),
            hooks: hooks::HookMetrics::new(&make)?,
            probes: probes::ProbeMetrics::new(&make)?,
            plane: plane::PlaneMetrics::new(&make)?,
            scrapes: scrapes::ScrapeMetrics::new(&make)?,
            breaker: breaker::BreakerMetrics::new(&make)?.begun(),
            own: OwnMetrics::new(&make)?,
            servers: servers::ServerMetrics::new(&make)?,
            alertmanager: alertmanager::PushMetrics::new(&make)?,
            telemetry: TelemetryCounts::new(&make)?,
            registry: registry.clone(),
        };
        let (declared, passing) = make.made();
        Ok(Self {
            declared,
            passing,
            ..metrics
        })
    }

    /// All metrics that this daemon can expose, sorted by name, whether or not they have series yet.
    pub fn declared(&self) -> &[Declared] {
        &self.declared
    }

    /// Counts a change of a hook's health.
    pub fn verdict_changed(&self, verdict: &Verdict) {
        self.own
            .changes
            .with_label_values(&[verdict.health.as_str()])
            .inc();
    }

    /// Counts a change of this replica's role.
    pub fn role_changed(&self, role: ReplicaRole) {
        self.own
            .leader_transitions
            .with_label_values(&[role.as_str()])
            .inc();
    }

    /// Counts a Kubernetes Event.
    pub fn event_written(&self, outcome: EventOutcome) {
        self.own.events.with_label_values(&[outcome.as_str()]).inc();
    }

    /// The current value of every metric, after filling the gauges from the assessment. Both `/metrics` and OTLP read from here,
    /// so that they cannot differ.
    pub fn families(
        &self,
        assessment: Option<&Assessment>,
        certificates: &[CertificateEnd],
    ) -> Vec<MetricFamily> {
        let _gathering = self.gathering.lock();
        for gauges in &self.passing {
            gauges.reset();
        }
        if let Some(assessment) = assessment {
            self.fill(assessment);
        }
        self.hooks.fill_certificates(certificates);
        self.registry.gather()
    }

    fn fill(&self, assessment: &Assessment) {
        let at = self.wall.date(assessment.at).unix_seconds();
        let sources = &assessment.sources;
        self.hooks.fill(assessment);
        self.plane.fill(&assessment.control_plane);
        self.scrapes.fill(&sources.scrapes, at);
        self.servers.fill(sources, at);
        let current = sources.inventory_age_seconds.map_or(0.0, |age| at - age);
        self.own.inventory_current.set(current);
        self.own.inventory_problems.set(assessment.problems.len() as f64);
        self.own.self_doubt.set(flag(sources.self_doubt));
        self.probes.fill(&sources.probes);
        flag_each(&self.own.breaker_mode, AutoBreak::ALL, |mode| {
            assessment.breaker.effective == mode
        });
        self.breaker.fill(&assessment.breaker);
        self.own.assessed_at.set(at);
        if let Some(replica) = &assessment.replica {
            flag_each(&self.own.leader, LeadershipObject::ALL, |by| {
                replica.role == ReplicaRole::Leader && replica.by == Some(by)
            });
            let is_known = replica.role != ReplicaRole::Unknown;
            set(&self.own.leader_known, &[], flag(is_known));
        }
    }
}

/// 1 for true, 0 for false.
fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// Sets the series of each value: 1 if `is_so`, else 0.
fn flag_each<T: Copy + Into<&'static str>>(gauges: &GaugeVec, all: &[T], is_so: impl Fn(T) -> bool) {
    for &one in all {
        set(gauges, &[one.into()], flag(is_so(one)));
    }
}

fn set(gauges: &GaugeVec, labels: &[&str], value: f64) {
    gauges.with_label_values(labels).set(value);
}
