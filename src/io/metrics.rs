//! hookwatch's own metrics, each declared once.
//!
//! Counters and histograms grow as things happen. What describes a hook is a gauge filled from the newest
//! assessment at the moment somebody asks, so that a hook that is gone leaves no series behind. Labels come
//! from closed sets; the only open ones name the hook, and hooks are bounded.

mod servers;
mod telemetry;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use prometheus::proto::MetricFamily;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};

use super::events::EventOutcome;
use super::telemetry::TelemetryCounts;
use crate::domain::canary::CanaryReport;
use crate::domain::fence::AutoBreak;
use crate::domain::hook::HookId;
use crate::domain::leadership::{Place, Role};
use crate::domain::probe::{Phase, ProbeReport};
use crate::domain::snapshot::{Scrape, ScrapeFailure};
use crate::domain::time::Time;
use crate::domain::verdict::{Assessment, Health, NotAHook, Verdict, Writes};

const HOOK: [&str; 3] = ["kind", "configuration", "webhook"];

/// Seconds. The edges include 1, 2, 10 and 30 s: when a probe is late, and what timeouts are set to.
const SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
];

/// A certificate's end by hook, `served` or `ca`.
pub type CertificateEnd = (HookId, &'static str, Time);

/// All metrics of the daemon.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Held while the gauges are filled and read, so that two readers never mix.
    gathering: Mutex<()>,
    /// Which series of `probes_total` each hook has: a vector can only be asked to drop an exact one.
    probed_as: Mutex<BTreeMap<HookId, BTreeSet<[&'static str; 3]>>>,
    hook_health: GaugeVec,
    hook_cause: GaugeVec,
    hook_confidence: GaugeVec,
    hook_excess_share: GaugeVec,
    hook_backends: GaugeVec,
    certificate_not_after: GaugeVec,
    writes: GaugeVec,
    write_seconds: Gauge,
    usual_write_seconds: Gauge,
    not_a_hook: GaugeVec,
    probes: IntCounterVec,
    probe_seconds: HistogramVec,
    probe_phase_seconds: HistogramVec,
    canaries: IntCounterVec,
    canary_seconds: HistogramVec,
    canary_late: GaugeVec,
    scrapes: IntCounterVec,
    scrape_seconds: Histogram,
    scrape_bytes: IntCounter,
    scrape_unreadable: IntCounter,
    scrape_last_success: GaugeVec,
    inventory_current: Gauge,
    inventory_problems: Gauge,
    self_doubt: Gauge,
    breaker_mode: GaugeVec,
    assessed_at: Gauge,
    changes: IntCounterVec,
    leader: GaugeVec,
    leader_transitions: IntCounterVec,
    events: IntCounterVec,
    servers: servers::ServerMetrics,
    telemetry: TelemetryCounts,
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// When two metrics have the same name, which is a mistake in this file.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let make = Maker(&registry);
        let hook_and = |label: &'static str| [HOOK[0], HOOK[1], HOOK[2], label];
        let build = make.gauges("build_info", "Always 1; the version is a label.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1.0);
        Ok(Self {
            gathering: Mutex::new(()),
            probed_as: Mutex::default(),
            hook_health: make.gauges(
                "hook_health",
                "1 for the health the hook has now, 0 for the others.",
                &hook_and("health"),
            )?,
            hook_cause: make.gauges(
                "hook_cause",
                "1 for what is wrong with a hook and what that does; no series for a hook that is well.",
                &["kind", "configuration", "webhook", "cause", "effect"],
            )?,
            hook_confidence: make.gauges(
                "hook_confidence_ratio",
                "How sure the verdict on the hook is, 0 to 1.",
                &HOOK,
            )?,
            hook_excess_share: make.gauges(
                "hook_excess_share_ratio",
                "Which part of the extra time per write is this hook's, 0 to 1; no series without extra time.",
                &HOOK,
            )?,
            hook_backends: make.gauges(
                "hook_backends",
                "Backends of the hook by what direct probes say of them.",
                &hook_and("state"),
            )?,
            certificate_not_after: make.gauges(
                "certificate_not_after_timestamp_seconds",
                "When the first certificate of the hook ends: the one its backends serve, or one in its caBundle.",
                &hook_and("certificate"),
            )?,
            writes: make.gauges(
                "control_plane_writes",
                "1 for how writes to the control plane go now, 0 for the others.",
                &["state"],
            )?,
            write_seconds: make.gauge("control_plane_write_seconds", "Mean time per CREATE or UPDATE of late.")?,
            usual_write_seconds: make.gauge(
                "control_plane_usual_write_seconds",
                "Mean time per CREATE or UPDATE in calm times.",
            )?,
            not_a_hook: make.gauges(
                "not_a_hook",
                "1 for what slows or blocks writes when it is no hook, 0 for the others.",
                &["cause"],
            )?,
            probes: make.counters(
                "probes_total",
                "Finished probes by outcome.",
                &["kind", "configuration", "webhook", "path", "connection", "outcome"],
            )?,
            probe_seconds: make.histograms("probe_duration_seconds", "Time per probe.", &hook_and("connection"))?,
            probe_phase_seconds: make.histograms(
                "probe_phase_duration_seconds",
                "Time per phase of fresh probes, over all hooks.",
                &["phase"],
            )?,
            canaries: make.counters("canaries_total", "Finished canaries by outcome.", &["canary", "outcome"])?,
            canary_seconds: make.histograms("canary_duration_seconds", "Time per canary.", &["canary"])?,
            canary_late: make.gauges("canary_overdue", "1 while a canary is late by 2 s or more.", &["canary"])?,
            scrapes: make.counters(
                "scrapes_total",
                "Scrapes of API servers by result: success, or why they failed.",
                &["result"],
            )?,
            scrape_seconds: make.histogram("scrape_duration_seconds", "Time per successful scrape.")?,
            scrape_bytes: make.counter("scrape_bytes_total", "Bytes of metrics read.")?,
            scrape_unreadable: make.counter(
                "scrape_unreadable_total",
                "Lines that could not be read, and samples left out at a bound.",
            )?,
            scrape_last_success: make.gauges(
                "scrape_last_success_timestamp_seconds",
                "When the target was last scraped.",
                &["target"],
            )?,
            inventory_current: make.gauge(
                "inventory_current_timestamp_seconds",
                "When the inventory of hooks was last known to be current; 0 before the first list.",
            )?,
            inventory_problems: make.gauge(
                "inventory_problems",
                "Objects in the cluster that could not be made sense of; the API lists them.",
            )?,
            self_doubt: make.gauge("self_doubt", "1 while every probe fails and the fault may be our own.")?,
            breaker_mode: make.gauges(
                "breaker_mode",
                "1 for what is done about a culprit now, 0 for the others; this version bypasses nothing yet.",
                &["mode"],
            )?,
            assessed_at: make.gauge("assessment_timestamp_seconds", "When everything was last judged.")?,
            changes: make.counters("verdict_changes_total", "Changes of a hook's health.", &["health"])?,
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
            telemetry: telemetry::counts(&make)?,
            registry,
        })
    }

    /// Counts a finished probe.
    pub fn probed(&self, report: &ProbeReport) {
        let id = &report.hook;
        let series @ [path, connection, outcome] = [
            report.backend.path.as_str(),
            report.connection.as_str(),
            report.outcome.as_str(),
        ];
        if let Ok(mut probed) = self.probed_as.lock() {
            probed.entry(id.clone()).or_default().insert(series);
        }
        self.probes
            .with_label_values(&[
                kind(id),
                &id.configuration,
                &id.webhook,
                path,
                connection,
                outcome,
            ])
            .inc();
        self.probe_seconds
            .with_label_values(&[kind(id), &id.configuration, &id.webhook, connection])
            .observe(report.took.as_secs_f64());
        if report.connection == crate::domain::probe::Connection::Fresh {
            for phase in Phase::ALL {
                if let Some(took) = report.phases.get(phase) {
                    self.probe_phase_seconds
                        .with_label_values(&[phase.as_str()])
                        .observe(took.as_secs_f64());
                }
            }
        }
    }

    /// Counts a finished canary.
    pub fn canary_written(&self, report: &CanaryReport) {
        let canary = report.target.as_str();
        self.canaries
            .with_label_values(&[canary, report.outcome.as_str()])
            .inc();
        self.canary_seconds
            .with_label_values(&[canary])
            .observe(report.took.as_secs_f64());
    }

    /// Counts a good scrape.
    pub fn scraped(&self, scrape: &Scrape) {
        self.scrapes.with_label_values(&["success"]).inc();
        self.scrape_seconds.observe(scrape.took.as_secs_f64());
        self.scrape_bytes.inc_by(scrape.bytes);
        self.scrape_unreadable
            .inc_by(scrape.complaints.unreadable + scrape.complaints.left_out);
    }

    /// Counts a failed scrape.
    pub fn scrape_failed(&self, failure: &ScrapeFailure) {
        self.scrapes.with_label_values(&[failure.reason.as_str()]).inc();
    }

    /// Counts a change of a hook's health.
    pub fn verdict_changed(&self, verdict: &Verdict) {
        self.changes.with_label_values(&[verdict.health.as_str()]).inc();
    }

    /// Counts a change of this replica's role.
    pub fn role_changed(&self, role: Role) {
        self.leader_transitions.with_label_values(&[role.as_str()]).inc();
    }

    /// Counts a Kubernetes Event.
    pub fn event_written(&self, outcome: EventOutcome) {
        self.events.with_label_values(&[outcome.as_str()]).inc();
    }

    /// Drops the probe series of hooks that are not in the inventory any more.
    pub fn keep_only(&self, hooks: &BTreeSet<HookId>) {
        let Ok(mut probed) = self.probed_as.lock() else {
            return;
        };
        probed.retain(|id, series| {
            let keep = hooks.contains(id);
            if !keep {
                let hook = [kind(id), &*id.configuration, &*id.webhook];
                for [path, connection, outcome] in &*series {
                    let labels = [hook[0], hook[1], hook[2], path, connection, outcome];
                    // An error would mean that the series is not there, which is what is wanted.
                    let _ = self.probes.remove_label_values(&labels);
                    let _ = self
                        .probe_seconds
                        .remove_label_values(&[hook[0], hook[1], hook[2], connection]);
                }
            }
            keep
        });
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
        for (id, which, end) in certificates {
            self.certificate_not_after
                .with_label_values(&[kind(id), &id.configuration, &id.webhook, which])
                .set(end.unix_seconds());
        }
        self.registry.gather()
    }

    fn clear(&self) {
        for gauges in [
            &self.hook_health,
            &self.hook_cause,
            &self.hook_confidence,
            &self.hook_excess_share,
            &self.hook_backends,
            &self.certificate_not_after,
            &self.scrape_last_success,
            &self.leader,
        ]
        .into_iter()
        .chain(self.servers.vectors())
        {
            gauges.reset();
        }
    }

    fn fill(&self, assessment: &Assessment) {
        let as_number = f64::from;
        for verdict in &assessment.hooks {
            self.fill_hook(verdict);
        }
        let plane = &assessment.control_plane;
        for state in Writes::ALL {
            let now = as_number(u8::from(plane.writes == state));
            self.writes.with_label_values(&[state.as_str()]).set(now);
        }
        for cause in NotAHook::ALL {
            let is_it = plane
                .not_a_hook
                .as_ref()
                .is_some_and(|found| found.cause == cause);
            self.not_a_hook
                .with_label_values(&[cause.as_str()])
                .set(as_number(u8::from(is_it)));
        }
        self.write_seconds.set(plane.write_seconds.unwrap_or(f64::NAN));
        self.usual_write_seconds
            .set(plane.usual_write_seconds.unwrap_or(f64::NAN));
        for canary in &plane.canaries {
            let late = as_number(u8::from(canary.state == "overdue"));
            self.canary_late
                .with_label_values(&[canary.canary.as_str()])
                .set(late);
        }
        let at = assessment.at.unix_seconds();
        for scrape in &assessment.sources.scrapes {
            if let Some(age) = scrape.age_seconds {
                self.scrape_last_success
                    .with_label_values(&[&scrape.target])
                    .set(at - age);
            }
        }
        self.servers.fill(&assessment.sources);
        let current = assessment
            .sources
            .inventory_age_seconds
            .map_or(0.0, |age| at - age);
        self.inventory_current.set(current);
        self.inventory_problems.set(assessment.problems.len() as f64);
        self.self_doubt
            .set(as_number(u8::from(assessment.sources.self_doubt)));
        for mode in AutoBreak::ALL {
            let now = as_number(u8::from(assessment.breaker.effective == mode));
            self.breaker_mode.with_label_values(&[mode.as_str()]).set(now);
        }
        self.assessed_at.set(at);
        if let Some(replica) = &assessment.replica {
            for by in Place::ALL {
                let leads = replica.role == Role::Leader && replica.by == Some(by);
                self.leader
                    .with_label_values(&[by.as_str()])
                    .set(as_number(u8::from(leads)));
            }
        }
    }

    fn fill_hook(&self, verdict: &Verdict) {
        let hook = [
            verdict.kind.as_str(),
            verdict.configuration.as_deref().unwrap_or(""),
            &verdict.webhook,
        ];
        let with = |label| [hook[0], hook[1], hook[2], label];
        for health in Health::ALL {
            let now = f64::from(u8::from(verdict.health == health));
            self.hook_health
                .with_label_values(&with(health.as_str()))
                .set(now);
        }
        if let Some(cause) = verdict.cause {
            let labels = [hook[0], hook[1], hook[2], cause.as_str(), verdict.effect.as_str()];
            self.hook_cause.with_label_values(&labels).set(1.0);
        }
        self.hook_confidence
            .with_label_values(&hook)
            .set(verdict.confidence);
        if let Some(share) = verdict.excess_share {
            self.hook_excess_share.with_label_values(&hook).set(share);
        }
        for backend in &verdict.backends {
            self.hook_backends.with_label_values(&with(backend.state)).inc();
        }
    }
}

const fn kind(id: &HookId) -> &'static str {
    id.kind.as_str()
}

/// Makes a metric with the common prefix and registers it.
struct Maker<'a>(&'a Registry);

impl Maker<'_> {
    fn register<C: prometheus::core::Collector + Clone + 'static>(&self, metric: C) -> prometheus::Result<C> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn opts(name: &str, help: &str) -> Opts {
        Opts::new(name, help).namespace("hookwatch")
    }

    fn buckets(name: &str, help: &str) -> HistogramOpts {
        HistogramOpts::from(Self::opts(name, help)).buckets(SECONDS.to_vec())
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<Gauge> {
        self.register(Gauge::with_opts(Self::opts(name, help))?)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
        self.register(GaugeVec::new(Self::opts(name, help), labels)?)
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.register(IntCounter::with_opts(Self::opts(name, help))?)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        self.register(IntCounterVec::new(Self::opts(name, help), labels)?)
    }

    fn histogram(&self, name: &str, help: &str) -> prometheus::Result<Histogram> {
        self.register(Histogram::with_opts(Self::buckets(name, help))?)
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<HistogramVec> {
        self.register(HistogramVec::new(Self::buckets(name, help), labels)?)
    }
}
