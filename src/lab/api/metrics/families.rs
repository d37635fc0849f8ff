//! The families by what they are about: their names, labels and buckets.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
};

/// Histogram buckets in seconds, these and the next four as in kube-apiserver 1.36.
const REQUEST_BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];
const WEBHOOK_BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
const ADMISSION_BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const CONDITION_BUCKETS: [f64; 7] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
const QUEUE_BUCKETS: [f64; 13] = [
    0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
];

/// Labels that identify a request; below, those of a hook and of a match condition.
const REQUEST: [&str; 7] = [
    "verb",
    "group",
    "version",
    "resource",
    "subresource",
    "scope",
    "component",
];
const HOOK: [&str; 3] = ["name", "type", "operation"];
const CONDITION: [&str; 4] = ["name", "kind", "type", "operation"];

/// The values of the label `request_kind`.
const KINDS: [&str; 2] = ["mutating", "readOnly"];

fn with(labels: &[&'static str], more: &[&'static str]) -> Vec<&'static str> {
    [labels, more].concat()
}

/// Registers families with the names and labels given.
#[derive(Default)]
pub(super) struct FamilyRegistry {
    pub(super) registry: Registry,
}

impl FamilyRegistry {
    fn registered<F: Collector + Clone + 'static>(&self, family: F) -> prometheus::Result<F> {
        self.registry.register(Box::new(family.clone()))?;
        Ok(family)
    }

    fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: &[&str],
    ) -> prometheus::Result<HistogramVec> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.registered(HistogramVec::new(options, labels)?)
    }

    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        self.registered(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        self.registered(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// Exposes the start of the process, and returns it in seconds of Unix time.
    pub(super) fn started(&self) -> prometheus::Result<f64> {
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        let start = Gauge::new("process_start_time_seconds", "Start of the process, Unix time.")?;
        start.set(started);
        self.registered(start)?;
        Ok(started)
    }

    pub(super) fn cpu(&self) -> prometheus::Result<Counter> {
        self.registered(Counter::new("process_cpu_seconds_total", "CPU time spent.")?)
    }

    pub(super) fn missing_san(&self) -> prometheus::Result<IntCounter> {
        self.registered(IntCounter::new(
            "apiserver_webhooks_x509_missing_san_total",
            "Calls to servers whose certificate has no SAN extension.",
        )?)
    }

    pub(super) fn inflight(&self) -> prometheus::Result<IntGaugeVec> {
        let inflight = self.gauge(
            "apiserver_current_inflight_requests",
            "Most requests in flight at once in the last second.",
            &["request_kind"],
        )?;
        for kind in KINDS {
            inflight.with_label_values(&[kind]).set(0);
        }
        Ok(inflight)
    }

    /// Families that a real API server exposes and that nothing here counts.
    pub(super) fn uncounted(&self) -> prometheus::Result<()> {
        self.registered(IntCounter::new(
            "apiserver_webhooks_x509_insecure_sha1_total",
            "Calls to servers whose certificate has a SHA-1 signature.",
        )?)?;
        self.histogram(
            "apiserver_flowcontrol_request_wait_duration_seconds",
            "Time requests spent in a queue.",
            &QUEUE_BUCKETS,
            &["priority_level", "flow_schema", "execute"],
        )?;
        let inqueue = self.gauge(
            "apiserver_current_inqueue_requests",
            "Most requests in a queue at once in the last second.",
            &["request_kind"],
        )?;
        for kind in KINDS {
            inqueue.with_label_values(&[kind]).set(0);
        }
        Ok(())
    }
}

/// Requests of clients.
#[derive(Debug)]
pub(super) struct RequestMetrics {
    pub(super) duration: HistogramVec,
    pub(super) sli_duration: HistogramVec,
    pub(super) total: IntCounterVec,
    pub(super) terminations: IntCounterVec,
    pub(super) long_running: IntGaugeVec,
}

impl RequestMetrics {
    pub(super) fn new(families: &FamilyRegistry) -> prometheus::Result<Self> {
        Ok(Self {
            duration: families.histogram(
                "apiserver_request_duration_seconds",
                "Time until the answer to a request.",
                &REQUEST_BUCKETS,
                &with(&REQUEST, &["dry_run"]),
            )?,
            sli_duration: families.histogram(
                "apiserver_request_sli_duration_seconds",
                "Time until the answer to a request, without webhooks and queues.",
                &REQUEST_BUCKETS[2..],
                &REQUEST,
            )?,
            total: families.counter(
                "apiserver_request_total",
                "Requests by their answer.",
                &with(&REQUEST, &["dry_run", "code", "system_client"]),
            )?,
            terminations: families.counter(
                "apiserver_request_terminations_total",
                "Requests ended by the API server in self-defence.",
                &with(&REQUEST, &["code"]),
            )?,
            long_running: families.gauge(
                "apiserver_longrunning_requests",
                "Long-running requests now.",
                &REQUEST,
            )?,
        })
    }
}

/// Operations on etcd.
#[derive(Debug)]
pub(super) struct Etcd {
    pub(super) duration: HistogramVec,
    pub(super) total: IntCounterVec,
}

impl Etcd {
    pub(super) fn new(families: &FamilyRegistry) -> prometheus::Result<Self> {
        let labels = ["operation", "group", "resource"];
        Ok(Self {
            duration: families.histogram(
                "etcd_request_duration_seconds",
                "Time of an etcd operation.",
                &REQUEST_BUCKETS,
                &labels,
            )?,
            total: families.counter("etcd_requests_total", "Etcd operations.", &labels)?,
        })
    }
}

/// Calls to webhooks.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) duration: HistogramVec,
    pub(super) total: IntCounterVec,
    pub(super) rejections: IntCounterVec,
    pub(super) fail_open: IntCounterVec,
}

impl Calls {
    pub(super) fn new(families: &FamilyRegistry) -> prometheus::Result<Self> {
        Ok(Self {
            duration: families.histogram(
                "apiserver_admission_webhook_admission_duration_seconds",
                "Time of a call to a webhook.",
                &WEBHOOK_BUCKETS,
                &with(&HOOK, &["rejected"]),
            )?,
            total: families.counter(
                "apiserver_admission_webhook_request_total",
                "Calls to webhooks by their answer.",
                &with(&HOOK, &["code", "rejected"]),
            )?,
            rejections: families.counter(
                "apiserver_admission_webhook_rejection_count",
                "Requests refused by or for a webhook.",
                &with(&HOOK, &["error_type", "rejection_code"]),
            )?,
            fail_open: families.counter(
                "apiserver_admission_webhook_fail_open_count",
                "Failed calls to webhooks that were ignored.",
                &["name", "type"],
            )?,
        })
    }
}

/// Match conditions.
#[derive(Debug)]
pub(super) struct ConditionMetrics {
    pub(super) exclusions: IntCounterVec,
    pub(super) errors: IntCounterVec,
    pub(super) duration: HistogramVec,
}

impl ConditionMetrics {
    pub(super) fn new(families: &FamilyRegistry) -> prometheus::Result<Self> {
        Ok(Self {
            exclusions: families.counter(
                "apiserver_admission_match_condition_exclusions_total",
                "Requests spared a webhook by a match condition.",
                &CONDITION,
            )?,
            errors: families.counter(
                "apiserver_admission_match_condition_evaluation_errors_total",
                "Match conditions that could not be evaluated.",
                &CONDITION,
            )?,
            duration: families.histogram(
                "apiserver_admission_match_condition_evaluation_seconds",
                "Time to evaluate match conditions.",
                &CONDITION_BUCKETS,
                &CONDITION,
            )?,
        })
    }
}

/// The webhook phases as parts of admission.
#[derive(Debug)]
pub(super) struct PhaseMetrics {
    pub(super) controller_duration: HistogramVec,
    pub(super) step_duration: HistogramVec,
}

impl PhaseMetrics {
    pub(super) fn new(families: &FamilyRegistry) -> prometheus::Result<Self> {
        Ok(Self {
            controller_duration: families.histogram(
                "apiserver_admission_controller_admission_duration_seconds",
                "Time of an admission plugin.",
                &ADMISSION_BUCKETS,
                &with(&HOOK, &["rejected"]),
            )?,
            step_duration: families.histogram(
                "apiserver_admission_step_admission_duration_seconds",
                "Time of an admission phase.",
                &ADMISSION_BUCKETS,
                &["type", "operation", "rejected"],
            )?,
        })
    }
}
