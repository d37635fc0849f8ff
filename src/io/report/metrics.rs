//! hookwatch's own metrics, each declared once.
//!
//! Counters and histograms grow as things happen. What describes a hook is a gauge filled from the newest
//! assessment at the moment somebody asks, so that a hook that is gone leaves no series behind. Labels come
//! from closed sets; the open ones name hooks and API servers, and both are bounded. [`contract`] says how.

mod alertmanager;
mod breaker;
pub mod contract;
mod hooks;
mod make;
mod plane;
mod probes;
mod scrapes;
mod servers;
mod telemetry;

use std::collections::BTreeSet;
use std::sync::Mutex;

use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, IntCounterVec, Registry};

pub use self::alertmanager::Dropped;
pub use self::hooks::MAX_HOOKS;
pub use self::telemetry::{Loss, Signal, TelemetryCounts};
use super::events::EventOutcome;
use crate::domain::act::breaker::HeldBack;
use crate::domain::act::fence::AutoBreak;
use crate::domain::act::leadership::{LeadershipObject, ReplicaRole};
use crate::domain::cluster::hook::HookId;
use crate::domain::diagnose::verdict::Verdict;
use crate::domain::observe::canary::CanaryReport;
use crate::domain::observe::probe::ProbeReport;
use crate::domain::observe::snapshot::{Scrape, ScrapeFailure};
use crate::domain::observe::stored::PrometheusReading;
use crate::domain::report::assessment::Assessment;
use crate::domain::time::Time;
use contract::Declared;
use make::Maker;

/// A certificate's end by hook, `served` or `ca`.
pub type CertificateEnd = (HookId, &'static str, Time);

/// All metrics of the daemon.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Held while the gauges are filled and read, so that two readers never mix.
    gathering: Mutex<()>,
    declared: Vec<Declared>,
    hooks: hooks::HookMetrics,
    probes: probes::ProbeMetrics,
    plane: plane::PlaneMetrics,
    scrapes: scrapes::ScrapeMetrics,
    inventory_current: Gauge,
    inventory_problems: Gauge,
    self_doubt: Gauge,
    breaker_mode: GaugeVec,
    breaker: breaker::BreakerMetrics,
    assessed_at: Gauge,
    changes: IntCounterVec,
    leader: GaugeVec,
    leader_transitions: IntCounterVec,
    events: IntCounterVec,
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
            declared: Vec::new(),
            hooks: hooks::HookMetrics::new(&make)?,
            probes: probes::ProbeMetrics::new(&make)?,
            plane: plane::PlaneMetrics::new(&make)?,
            scrapes: scrapes::ScrapeMetrics::new(&make)?,
            inventory_current: make.gauge(
                "inventory_current_timestamp_seconds",
                "When the inventory of webhooks was last known to be current; 0 before the first list.",
            )?,
            inventory_problems: make.gauge(
                "inventory_problems",
                "Objects in the cluster that could not be made sense of; the API lists them.",
            )?,
            self_doubt: make.gauge("self_doubt", "1 while every probe fails and the fault may be our own.")?,
            breaker_mode: make.gauges(
                "breaker_mode",
                "1 for what is done about a culprit now, 0 for the others.",
                &["mode"],
            )?,
            breaker: breaker::BreakerMetrics::new(&make)?,
            assessed_at: make.gauge("assessment_timestamp_seconds", "When everything was last judged.")?,
            changes: make.counters("verdict_changes_total", "Changes of a webhook's health.", &["health"])?,
            leader: make.gauges(
                "leader",
                "1 for what this replica leads by, 0 else; no series in a daemon that takes no part in an election.",
                &["by"],
            )?,
            leader_transitions: make.counters(
                "leader_transitions_total",
                "How often this replica became the leader, a follower, or neither.",
                &["role"],
            )?,
            events: make.counters("events_total", "Kubernetes Events by what became of them.", &["outcome"])?,
            servers: servers::ServerMetrics::new(&make)?,
            alertmanager: alertmanager::PushMetrics::new(&make)?,
            telemetry: telemetry::counts(&make)?,
            registry: registry.clone(),
        };
        let declared = make.into_declared();
        Ok(Self { declared, ..metrics })
    }

    /// Every metric there can be, by name, whether or not it has a series yet.
    pub fn declared(&self) -> &[Declared] {
        &self.declared
    }

    /// Counts a finished probe.
    pub fn probed(&self, report: &ProbeReport) {
        self.probes.probed(report);
    }

    /// Counts a finished canary.
    pub fn canary_written(&self, report: &CanaryReport) {
        self.plane.canary_written(report);
    }

    /// Counts a good scrape.
    pub fn scraped(&self, scrape: &Scrape) {
        self.scrapes.scraped(scrape);
    }

    /// Counts a failed scrape.
    pub fn scrape_failed(&self, failure: &ScrapeFailure) {
        self.scrapes.failed(failure);
    }

    /// Counts a reading of the Prometheus.
    pub fn stored_read(&self, reading: Result<&PrometheusReading, &ScrapeFailure>) {
        self.servers
            .read(reading.map_or_else(|failure| failure.reason.as_str(), |_| "success"));
    }

    /// Counts a change of a hook's health.
    pub fn verdict_changed(&self, verdict: &Verdict) {
        self.changes.with_label_values(&[verdict.health.as_str()]).inc();
    }

    /// Counts a change of this replica's role.
    pub fn role_changed(&self, role: ReplicaRole) {
        self.leader_transitions.with_label_values(&[role.as_str()]).inc();
    }

    /// Counts a Kubernetes Event.
    pub fn event_written(&self, outcome: EventOutcome) {
        self.events.with_label_values(&[outcome.as_str()]).inc();
    }

    /// Counts that a culprit began not to be bypassed.
    pub fn held_back(&self, reason: HeldBack) {
        self.breaker.held_back(reason);
    }

    /// Counts a change of a webhook configuration: `bypass`, `probation` or `restore`, and what became of it.
    pub fn acted(&self, action: &'static str, outcome: &'static str) {
        self.breaker.acted(action, outcome);
    }

    /// Notes that a bypass is in force now.
    pub fn seen_bypassed(&self, at: Time) {
        self.breaker.seen_bypassed(at);
    }

    /// Drops the probe series of hooks that are not in the inventory any more.
    pub fn keep_only(&self, hooks: &BTreeSet<HookId>) {
        self.probes.keep_only(hooks);
    }

    /// The text exposition, with the gauges as the assessment has them.
    ///
    /// # Errors
    /// When a metric cannot be written as text, which is a mistake in this file.
    pub fn gather(
        &self,
        assessment: Option<&Assessment>,
        certificates: &[CertificateEnd],
    ) -> prometheus::Result<Vec<u8>> {
        Self::text(&self.families(assessment, certificates))
    }

    /// Everything as it is now, with the gauges as the assessment has them. What goes out by another way than
    /// `/metrics` comes from here as well, so that it cannot say anything else.
    pub fn families(
        &self,
        assessment: Option<&Assessment>,
        certificates: &[CertificateEnd],
    ) -> Vec<MetricFamily> {
        let _gathering = self.gathering.lock();
        self.clear();
        if let Some(assessment) = assessment {
            self.fill(assessment);
        }
        self.hooks.fill_certificates(certificates);
        self.registry.gather()
    }

    fn clear(&self) {
        let own = [self.scrapes.vector(), &self.leader];
        let vectors = self.hooks.vectors().into_iter().chain(self.servers.vectors());
        for gauges in own.into_iter().chain(vectors) {
            gauges.reset();
        }
    }

    fn fill(&self, assessment: &Assessment) {
        let as_number = f64::from;
        let (at, sources) = (assessment.at.unix_seconds(), &assessment.sources);
        self.hooks.fill(assessment);
        self.plane.fill(&assessment.control_plane);
        self.scrapes.fill(&sources.scrapes, at);
        self.servers.fill(sources, at);
        let current = sources.inventory_age_seconds.map_or(0.0, |age| at - age);
        self.inventory_current.set(current);
        self.inventory_problems.set(assessment.problems.len() as f64);
        self.self_doubt.set(as_number(u8::from(sources.self_doubt)));
        self.probes.fill(&sources.probes);
        for &mode in AutoBreak::ALL {
            let now = as_number(u8::from(assessment.breaker.effective == mode));
            self.breaker_mode.with_label_values(&[mode.as_str()]).set(now);
        }
        self.breaker.fill(&assessment.breaker);
        self.assessed_at.set(at);
        if let Some(replica) = &assessment.replica {
            for &by in LeadershipObject::ALL {
                let leads = replica.role == ReplicaRole::Leader && replica.by == Some(by);
                self.leader
                    .with_label_values(&[by.as_str()])
                    .set(as_number(u8::from(leads)));
            }
        }
    }
}
