//! hookwatch's own metrics, each declared once.
//!
//! Counters and histograms grow as things happen. What describes a hook is a gauge filled from the newest assessment at
//! each scrape, so that a hook that is gone leaves no series behind. Labels come from closed sets; the open ones name
//! hooks and API servers, and both are bounded. `docs/metrics.md` says how.

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

/// A certificate's end by hook, `served` or `ca`.
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
    /// Held while the gauges are filled and read, so that two readers never mix.
    gathering: Mutex<()>,
    /// By which timestamps are published.
    pub wall: WallClock,
    declared: Vec<Declared>,
    /// Gauges whose series come and go.
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
    /// Registers everything.
    ///
    /// # Errors
    /// When two metrics have the same name, which is a mistake in this file.
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

    /// Every metric there can be, by name, whether or not it has a series yet.
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

    /// Everything as it is now, with the gauges as the assessment has them. What goes out by another way than
    /// `/metrics` comes from here as well, so that it cannot say anything else.
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

/// 1 for what is so, 0 for what is not.
fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// The same for each of these.
fn flag_each<T: Copy + Into<&'static str>>(gauges: &GaugeVec, all: &[T], is_so: impl Fn(T) -> bool) {
    for &one in all {
        set(gauges, &[one.into()], flag(is_so(one)));
    }
}

fn set(gauges: &GaugeVec, labels: &[&str], value: f64) {
    gauges.with_label_values(labels).set(value);
}
