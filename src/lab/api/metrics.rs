//! The API server's own metrics: names, labels and buckets of kube-apiserver 1.36.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::{
    Counter, Gauge, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use super::kinds::Kind;
use super::knobs::Knobs;
use super::request::{ResourceRequest, Verb};

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

/// How a call to a hook ended, as far as the metrics care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallEnd {
    /// The `code` label.
    pub code: u16,
    /// Whether the request was refused for it.
    pub rejected: bool,
    /// `error_type` of the rejection counter; `None` counts no rejection.
    pub error_type: Option<&'static str>,
    /// Whether the request went on although the call failed.
    pub failed_open: bool,
}

/// Who a hook metric is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct HookLabels<'a> {
    /// The webhook's name.
    pub name: &'a str,
    /// Mutating hooks are `admit`; validating ones `validating`, in one family `validate`.
    pub mutating: bool,
    /// `CREATE`, `UPDATE`, `DELETE`.
    pub operation: &'a str,
}

impl HookLabels<'_> {
    const fn webhook_type(&self) -> &'static str {
        if self.mutating { "admit" } else { "validating" }
    }

    const fn step(&self) -> &'static str {
        if self.mutating { "admit" } else { "validate" }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Metrics {
    /// Where all families are.
    pub registry: Registry,
    /// Unix time of the start.
    pub started: f64,
    request_duration: HistogramVec,
    request_sli_duration: HistogramVec,
    request_total: IntCounterVec,
    terminations: IntCounterVec,
    long_running: IntGaugeVec,
    inflight: IntGaugeVec,
    etcd_duration: HistogramVec,
    etcd_total: IntCounterVec,
    webhook_duration: HistogramVec,
    webhook_total: IntCounterVec,
    webhook_rejections: IntCounterVec,
    webhook_fail_open: IntCounterVec,
    condition_exclusions: IntCounterVec,
    condition_errors: IntCounterVec,
    condition_duration: HistogramVec,
    controller_duration: HistogramVec,
    step_duration: HistogramVec,
    pub missing_san: IntCounter,
    cpu: Counter,
    cpu_told: Mutex<f64>,
    reading: Watermark,
    mutating: Watermark,
}

/// Requests in flight now and at most since the last second began.
#[derive(Debug, Default)]
struct Watermark {
    current: AtomicI64,
    highest: AtomicI64,
}

/// Counts a request as being in flight until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight<'a>(&'a Watermark);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.current.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Registers families with the names and labels given.
struct Families {
    registry: Registry,
}

impl Families {
    fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: &[&str],
    ) -> prometheus::Result<HistogramVec> {
        let family = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?;
        self.registry.register(Box::new(family.clone()))?;
        Ok(family)
    }

    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        let family = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.registry.register(Box::new(family.clone()))?;
        Ok(family)
    }

    fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        let family = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.registry.register(Box::new(family.clone()))?;
        Ok(family)
    }
}

impl Metrics {
    /// All families, with nothing counted yet.
    ///
    /// # Errors
    /// None in practice: only if two families had the same name.
    pub(super) fn new() -> prometheus::Result<Self> {
        let families = Families {
            registry: Registry::new(),
        };
        let request = [
            "verb",
            "group",
            "version",
            "resource",
            "subresource",
            "scope",
            "component",
        ];
        let with = |labels: &[&'static str], more: &[&'static str]| [labels, more].concat();
        let hook = ["name", "type", "operation"];
        let condition = ["name", "kind", "type", "operation"];
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        let start = Gauge::new("process_start_time_seconds", "Start of the process, Unix time.")?;
        start.set(started);
        families.registry.register(Box::new(start))?;
        let cpu = Counter::new("process_cpu_seconds_total", "CPU time spent.")?;
        families.registry.register(Box::new(cpu.clone()))?;
        let missing_san = IntCounter::new(
            "apiserver_webhooks_x509_missing_san_total",
            "Calls to servers whose certificate has no SAN extension.",
        )?;
        families.registry.register(Box::new(missing_san.clone()))?;
        let sha1 = IntCounter::new(
            "apiserver_webhooks_x509_insecure_sha1_total",
            "Calls to servers whose certificate has a SHA-1 signature.",
        )?;
        families.registry.register(Box::new(sha1))?;
        families.histogram(
            "apiserver_flowcontrol_request_wait_duration_seconds",
            "Time requests spent in a queue.",
            &QUEUE_BUCKETS,
            &["priority_level", "flow_schema", "execute"],
        )?;
        let inflight = families.gauge(
            "apiserver_current_inflight_requests",
            "Most requests in flight at once in the last second.",
            &["request_kind"],
        )?;
        let inqueue = families.gauge(
            "apiserver_current_inqueue_requests",
            "Most requests in a queue at once in the last second.",
            &["request_kind"],
        )?;
        for kind in ["mutating", "readOnly"] {
            inflight.with_label_values(&[kind]).set(0);
            inqueue.with_label_values(&[kind]).set(0);
        }
        Ok(Self {
            request_duration: families.histogram(
                "apiserver_request_duration_seconds",
                "Time until the answer to a request.",
                &REQUEST_BUCKETS,
                &with(&request, &["dry_run"]),
            )?,
            request_sli_duration: families.histogram(
                "apiserver_request_sli_duration_seconds",
                "Time until the answer to a request, without webhooks and queues.",
                &REQUEST_BUCKETS[2..],
                &request,
            )?,
            request_total: families.counter(
                "apiserver_request_total",
                "Requests by their answer.",
                &with(&request, &["dry_run", "code", "system_client"]),
            )?,
            terminations: families.counter(
                "apiserver_request_terminations_total",
                "Requests ended by the API server in self-defence.",
                &with(&request, &["code"]),
            )?,
            long_running: families.gauge(
                "apiserver_longrunning_requests",
                "Long-running requests now.",
                &request,
            )?,
            inflight,
            etcd_duration: families.histogram(
                "etcd_request_duration_seconds",
                "Time of an etcd operation.",
                &REQUEST_BUCKETS,
                &["operation", "group", "resource"],
            )?,
            etcd_total: families.counter(
                "etcd_requests_total",
                "Etcd operations.",
                &["operation", "group", "resource"],
            )?,
            webhook_duration: families.histogram(
                "apiserver_admission_webhook_admission_duration_seconds",
                "Time of a call to a webhook.",
                &WEBHOOK_BUCKETS,
                &with(&hook, &["rejected"]),
            )?,
            webhook_total: families.counter(
                "apiserver_admission_webhook_request_total",
                "Calls to webhooks by their answer.",
                &with(&hook, &["code", "rejected"]),
            )?,
            webhook_rejections: families.counter(
                "apiserver_admission_webhook_rejection_count",
                "Requests refused by or for a webhook.",
                &with(&hook, &["error_type", "rejection_code"]),
            )?,
            webhook_fail_open: families.counter(
                "apiserver_admission_webhook_fail_open_count",
                "Failed calls to webhooks that were ignored.",
                &["name", "type"],
            )?,
            condition_exclusions: families.counter(
                "apiserver_admission_match_condition_exclusions_total",
                "Requests spared a webhook by a match condition.",
                &condition,
            )?,
            condition_errors: families.counter(
                "apiserver_admission_match_condition_evaluation_errors_total",
                "Match conditions that could not be evaluated.",
                &condition,
            )?,
            condition_duration: families.histogram(
                "apiserver_admission_match_condition_evaluation_seconds",
                "Time to evaluate match conditions.",
                &CONDITION_BUCKETS,
                &condition,
            )?,
            controller_duration: families.histogram(
                "apiserver_admission_controller_admission_duration_seconds",
                "Time of an admission plugin.",
                &ADMISSION_BUCKETS,
                &with(&hook, &["rejected"]),
            )?,
            step_duration: families.histogram(
                "apiserver_admission_step_admission_duration_seconds",
                "Time of an admission phase.",
                &ADMISSION_BUCKETS,
                &["type", "operation", "rejected"],
            )?,
            missing_san,
            cpu,
            cpu_told: Mutex::new(0.0),
            reading: Watermark::default(),
            mutating: Watermark::default(),
            started,
            registry: families.registry,
        })
    }

    /// The text exposition.
    pub(super) fn expose(&self, knobs: &Knobs) -> String {
        if let Ok(mut told) = self.cpu_told.lock() {
            let used = knobs.cpu_used().as_secs_f64();
            self.cpu.inc_by((used - *told).max(0.0));
            *told = used;
        }
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_default()
    }

    /// Counts a request among those in flight; `None` when there are more than `limit` of its sort already.
    pub(super) fn enter(&self, reads: bool, limit: i64) -> Option<InFlight<'_>> {
        let watermark = if reads { &self.reading } else { &self.mutating };
        let now = watermark.current.fetch_add(1, Ordering::Relaxed) + 1;
        let guard = InFlight(watermark);
        if now > limit {
            return None;
        }
        watermark.highest.fetch_max(now, Ordering::Relaxed);
        Some(guard)
    }

    /// Publishes the most requests in flight since the last call. To be called once a second.
    pub(super) fn roll_inflight(&self) {
        for (kind, watermark) in [("readOnly", &self.reading), ("mutating", &self.mutating)] {
            let now = watermark.current.load(Ordering::Relaxed);
            let highest = watermark.highest.swap(now, Ordering::Relaxed);
            self.inflight.with_label_values(&[kind]).set(highest.max(now));
        }
    }

    /// Counts a finished request for objects. `webhooks` is the time spent waiting for hooks.
    pub(super) fn request_done(
        &self,
        request: &ResourceRequest,
        dry_run: &str,
        code: u16,
        system_client: &str,
        took: Duration,
        webhooks: Duration,
    ) {
        let labels = resource_labels(request);
        let code = code.to_string();
        self.request_total
            .with_label_values(&[&labels[..], &[dry_run, &code, system_client]].concat())
            .inc();
        self.request_duration
            .with_label_values(&[&labels[..], &[dry_run]].concat())
            .observe(took.as_secs_f64());
        if request.verb != Verb::Watch && dry_run.is_empty() {
            self.request_sli_duration
                .with_label_values(&labels)
                .observe(took.saturating_sub(webhooks).as_secs_f64());
        }
    }

    /// Counts a request for something else than objects.
    pub(super) fn other_done(&self, verb: &str, path: &str, code: u16, took: Duration) {
        let labels = [verb, "", "", "", path, "", ""];
        let code = code.to_string();
        self.request_total
            .with_label_values(&[&labels[..], &["", &code, ""]].concat())
            .inc();
        self.request_duration
            .with_label_values(&[&labels[..], &[""]].concat())
            .observe(took.as_secs_f64());
    }

    /// Counts a request that was turned away or cut off.
    pub(super) fn request_terminated(&self, request: &ResourceRequest, code: u16) {
        let labels = resource_labels(request);
        self.terminations
            .with_label_values(&[&labels[..], &[&code.to_string()]].concat())
            .inc();
    }

    /// Counts a long-running request in (+1) or out (-1).
    pub(super) fn long_running(&self, request: &ResourceRequest, change: i64) {
        self.long_running
            .with_label_values(&resource_labels(request))
            .add(change);
    }

    /// Counts an etcd operation.
    pub(super) fn etcd_done(&self, kind: &Kind, operation: &str, took: Duration) {
        let labels = [operation, kind.group, kind.resource];
        self.etcd_total.with_label_values(&labels).inc();
        self.etcd_duration
            .with_label_values(&labels)
            .observe(took.as_secs_f64());
    }

    /// Counts a call to a hook.
    pub(super) fn called(&self, hook: HookLabels<'_>, end: CallEnd, took: Duration) {
        let (name, of, operation) = (hook.name, hook.webhook_type(), hook.operation);
        // The API server cuts codes at 600 to bound the number of series.
        let code = end.code.min(600).to_string();
        let rejected = if end.rejected { "true" } else { "false" };
        if let Some(error_type) = end.error_type {
            self.webhook_rejections
                .with_label_values(&[name, of, operation, error_type, &code])
                .inc();
        }
        if end.failed_open {
            self.webhook_fail_open.with_label_values(&[name, of]).inc();
        }
        self.webhook_total
            .with_label_values(&[name, of, operation, &code, rejected])
            .inc();
        self.webhook_duration
            .with_label_values(&[name, of, operation, rejected])
            .observe(took.as_secs_f64());
    }

    /// Counts match conditions that excluded a request or could not be evaluated. (The API server counts nothing when
    /// they let the request through.)
    pub(super) fn conditions_evaluated(
        &self,
        hook: HookLabels<'_>,
        errors: u64,
        excluded: bool,
        took: Duration,
    ) {
        let labels = [hook.name, "webhook", hook.webhook_type(), hook.operation];
        if errors > 0 {
            self.condition_errors.with_label_values(&labels).inc_by(errors);
        }
        if excluded {
            // This one counter says `validate` where its siblings say `validating`.
            let labels = [hook.name, "webhook", hook.step(), hook.operation];
            self.condition_exclusions.with_label_values(&labels).inc();
        }
        self.condition_duration
            .with_label_values(&labels)
            .observe(took.as_secs_f64());
    }

    /// Counts one of the two webhook phases of a request.
    pub(super) fn phase_done(&self, mutating: bool, operation: &str, rejected: bool, took: Duration) {
        let rejected = if rejected { "true" } else { "false" };
        let (name, step) = if mutating {
            ("MutatingAdmissionWebhook", "admit")
        } else {
            ("ValidatingAdmissionWebhook", "validate")
        };
        self.controller_duration
            .with_label_values(&[name, step, operation, rejected])
            .observe(took.as_secs_f64());
        self.step_duration
            .with_label_values(&[step, operation, rejected])
            .observe(took.as_secs_f64());
    }
}

fn resource_labels(request: &ResourceRequest) -> [&str; 7] {
    [
        request.verb.as_str(),
        request.kind.group,
        request.kind.version,
        request.kind.resource,
        &request.subresource,
        request.scope(),
        "apiserver",
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_flight_show_the_highest_number_of_the_last_second() {
        let metrics = Metrics::new().expect("families");
        let knobs = Knobs::new();
        let shown = |metrics: &Metrics| {
            metrics
                .expose(&knobs)
                .lines()
                .find(|line| {
                    line.starts_with("apiserver_current_inflight_requests{request_kind=\"mutating\"}")
                })
                .map(str::to_owned)
        };
        let wanted = |n: u8| {
            Some(format!(
                "apiserver_current_inflight_requests{{request_kind=\"mutating\"}} {n}"
            ))
        };
        let one = metrics.enter(false, 2);
        drop(metrics.enter(false, 2));
        metrics.roll_inflight();
        assert_eq!(shown(&metrics), wanted(2));
        metrics.roll_inflight();
        assert_eq!(shown(&metrics), wanted(1));
        drop(one);
        metrics.roll_inflight();
        metrics.roll_inflight();
        assert_eq!(shown(&metrics), wanted(0));
    }

    #[test]
    fn more_requests_than_allowed_are_not_let_in() {
        let metrics = Metrics::new().expect("families");
        let _one = metrics.enter(true, 1).expect("the first");
        assert!(metrics.enter(true, 1).is_none());
        assert!(metrics.enter(false, 1).is_some(), "writes are counted apart");
    }
}
