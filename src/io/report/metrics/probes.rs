//! Metrics of direct probes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use super::hooks::{MAX_HOOKS, hook_and, labels};
use super::{Maker, Metrics};
use crate::domain::cluster::hook::HookId;
use crate::domain::observe::probe::{ProbePhase, ProbeReport};
use crate::domain::observe::views::ProbeView;
use crate::io::lock;

/// Most pairs of connection and outcome that have a series per hook. Further outcomes count as `other`.
pub const MAX_OUTCOMES: usize = 6;
/// The label value under which hooks and outcomes beyond the bounds are counted together. Webhook names contain dots, so no
/// webhook can have this name.
const OTHER: &str = "other";

/// Connection and outcome.
type Series = [&'static str; 2];

group! {
    ProbeSeries:
    probes = counters("probes_total", &["kind", "configuration", "webhook", "connection", "outcome"]):
        "Finished probes by outcome; one that webhooks of the same backend share counts for each of them.";
    seconds = amounts("probe_seconds_total", &hook_and("connection")):
        "Time that finished probes took; with hookwatch_probes_total the mean per webhook.";
    times = histograms("probe_duration_seconds", &["connection"]):
        "Time per probe, over all webhooks; a shared one counts once.";
    phases = histograms("probe_phase_duration_seconds", &["connection", "phase"]):
        "Time per phase of a probe, over all webhooks; a kept connection that was closed needs connect and tls as well.";
    targets = gauge("probe_targets"):
        "Backends that are probed, each as webhooks with the same server name and trust meet it.";
    late = gauge("probes_late_seconds"):
        "How late the probe is that waits longest for its turn within the budget of probes; 0 while all are on time.";
}

#[derive(Debug)]
pub(super) struct ProbeMetrics {
    /// The series of `probes_total` that each hook has. A `CounterVec` can only remove a series by all of its label values.
    probed_as: Mutex<BTreeMap<HookId, BTreeSet<Series>>>,
    series: ProbeSeries,
}

impl ProbeMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            probed_as: Mutex::default(),
            series: ProbeSeries::new(make)?,
        })
    }

    /// The labels under which a probe is counted: its own, or `other` beyond the bounds.
    fn series_of<'a>(&self, id: &'a HookId, series: Series) -> ([&'a str; 3], Series) {
        let mut probed = lock(&self.probed_as);
        if probed.len() >= MAX_HOOKS && !probed.contains_key(id) {
            return (together(id), series);
        }
        let known = probed.entry(id.clone()).or_default();
        let series = if known.len() < MAX_OUTCOMES || known.contains(&series) {
            series
        } else {
            [series[0], OTHER]
        };
        known.insert(series);
        (labels(id), series)
    }

    pub(super) fn fill(&self, view: &ProbeView) {
        self.series.targets.set(view.targets as f64);
        self.series.late.set(view.late_seconds);
    }
}

impl Metrics {
    /// Counts a finished probe and its duration for the hook of this report. A probe that several hooks share has a report for
    /// each; only the first is in the histograms.
    pub fn probed(&self, report: &ProbeReport) {
        let series = &self.probes.series;
        let connection = report.connection.as_str();
        let own = [connection, report.outcome.as_str()];
        let (hook, [_, outcome]) = self.probes.series_of(&report.hook, own);
        let took = report.took.as_secs_f64();
        series
            .probes
            .with_label_values(&[hook[0], hook[1], hook[2], connection, outcome])
            .inc();
        series
            .seconds
            .with_label_values(&[hook[0], hook[1], hook[2], connection])
            .inc_by(took);
        if report.shared {
            return;
        }
        series.times.with_label_values(&[connection]).observe(took);
        for phase in ProbePhase::ALL {
            if let Some(took) = report.phases.get(phase) {
                let phases = series.phases.with_label_values(&[connection, phase.as_str()]);
                phases.observe(took.as_secs_f64());
            }
        }
    }

    /// Drops the probe series of hooks that are not in the inventory any more.
    pub fn keep_only(&self, hooks: &BTreeSet<HookId>) {
        let ProbeMetrics { probed_as, series } = &self.probes;
        lock(probed_as).retain(|id, known| {
            let keep = hooks.contains(id);
            if !keep {
                let hook = labels(id);
                for [connection, outcome] in &*known {
                    // An error means that the series is gone already.
                    let of_outcome = [hook[0], hook[1], hook[2], *connection, *outcome];
                    let _ = series.probes.remove_label_values(&of_outcome);
                    let _ = series.seconds.remove_label_values(&of_outcome[..4]);
                }
            }
            keep
        });
    }
}

/// The label values under which hooks beyond the bound are counted.
fn together(id: &HookId) -> [&str; 3] {
    [id.kind.as_str(), OTHER, OTHER]
}
