//! The API server's own metrics: names, labels and buckets of kube-apiserver 1.36.

mod families;

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use prometheus::{Counter, IntCounter, IntGaugeVec, Registry, TextEncoder};

use self::families::{Calls, ConditionMetrics, Etcd, FamilyRegistry, PhaseMetrics, RequestMetrics};
use super::kinds::ServedKind;
use super::knobs::Knobs;
use super::request::{ResourceRequest, Verb};

/// The outcome of a call to a hook, for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallEnd {
    /// The `code` label.
    pub code: u16,
    /// Whether the request was refused because of the call.
    pub rejected: bool,
    /// `error_type` of the rejection counter; `None` counts no rejection.
    pub error_type: Option<&'static str>,
    /// Whether the request went on although the call failed.
    pub failed_open: bool,
}

/// The labels of a webhook metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct HookLabels<'a> {
    /// The webhook's name.
    pub name: &'a str,
    /// The `type` label is `admit` for mutating hooks. For validating ones it is `validating`, but `validate` in the family of
    /// match condition exclusions.
    pub mutating: bool,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
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

/// All metric families but those of [`super::extension`].
#[derive(Debug)]
pub(super) struct ApiMetrics {
    /// Where all families are.
    pub registry: Registry,
    /// Start of the process, in seconds of Unix time.
    pub started: f64,
    pub missing_san: IntCounter,
    requests: RequestMetrics,
    inflight: IntGaugeVec,
    etcd: Etcd,
    calls: Calls,
    conditions: ConditionMetrics,
    phases: PhaseMetrics,
    cpu: Counter,
    /// The seconds that `cpu` has counted so far.
    cpu_told: Mutex<f64>,
    reading: Watermark,
    mutating: Watermark,
}

/// Requests in flight: now, and the most since the last publication.
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

impl ApiMetrics {
    /// All families, with nothing counted yet.
    ///
    /// # Errors
    /// None in practice: only if two families had the same name.
    pub(super) fn new() -> prometheus::Result<Self> {
        let families = FamilyRegistry::default();
        families.uncounted()?;
        Ok(Self {
            started: families.started()?,
            missing_san: families.missing_san()?,
            requests: RequestMetrics::new(&families)?,
            inflight: families.inflight()?,
            etcd: Etcd::new(&families)?,
            calls: Calls::new(&families)?,
            conditions: ConditionMetrics::new(&families)?,
            phases: PhaseMetrics::new(&families)?,
            cpu: families.cpu()?,
            cpu_told: Mutex::new(0.0),
            reading: Watermark::default(),
            mutating: Watermark::default(),
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

    /// Counts a request among those in flight; `None` when `limit` of its sort are in flight already.
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
        self.requests
            .total
            .with_label_values(&[&labels[..], &[dry_run, &code, system_client]].concat())
            .inc();
        self.requests
            .duration
            .with_label_values(&[&labels[..], &[dry_run]].concat())
            .observe(took.as_secs_f64());
        if request.verb != Verb::Watch && dry_run.is_empty() {
            self.requests
                .sli_duration
                .with_label_values(&labels)
                .observe(took.saturating_sub(webhooks).as_secs_f64());
        }
    }

    /// Counts a request for something else than objects.
    pub(super) fn other_done(&self, verb: &str, path: &str, code: u16, took: Duration) {
        let labels = [verb, "", "", "", path, "", ""];
        let code = code.to_string();
        self.requests
            .total
            .with_label_values(&[&labels[..], &["", &code, ""]].concat())
            .inc();
        self.requests
            .duration
            .with_label_values(&[&labels[..], &[""]].concat())
            .observe(took.as_secs_f64());
    }

    /// Counts a request that was turned away or cut off.
    pub(super) fn request_terminated(&self, request: &ResourceRequest, code: u16) {
        let labels = resource_labels(request);
        self.requests
            .terminations
            .with_label_values(&[&labels[..], &[&code.to_string()]].concat())
            .inc();
    }

    /// Counts a long-running request in (+1) or out (-1).
    pub(super) fn long_running(&self, request: &ResourceRequest, change: i64) {
        self.requests
            .long_running
            .with_label_values(&resource_labels(request))
            .add(change);
    }

    /// Counts an etcd operation.
    pub(super) fn etcd_done(&self, kind: &ServedKind, operation: &str, took: Duration) {
        let labels = [operation, kind.group, kind.resource];
        self.etcd.total.with_label_values(&labels).inc();
        self.etcd
            .duration
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
            self.calls
                .rejections
                .with_label_values(&[name, of, operation, error_type, &code])
                .inc();
        }
        if end.failed_open {
            self.calls.fail_open.with_label_values(&[name, of]).inc();
        }
        self.calls
            .total
            .with_label_values(&[name, of, operation, &code, rejected])
            .inc();
        self.calls
            .duration
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
            self.conditions.errors.with_label_values(&labels).inc_by(errors);
        }
        if excluded {
            // This one counter says `validate` where its siblings say `validating`.
            let labels = [hook.name, "webhook", hook.step(), hook.operation];
            self.conditions.exclusions.with_label_values(&labels).inc();
        }
        self.conditions
            .duration
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
        self.phases
            .controller_duration
            .with_label_values(&[name, step, operation, rejected])
            .observe(took.as_secs_f64());
        self.phases
            .step_duration
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
        let metrics = ApiMetrics::new().expect("families");
        let knobs = Knobs::new();
        let shown = |metrics: &ApiMetrics| {
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
        let metrics = ApiMetrics::new().expect("families");
        let _one = metrics.enter(true, 1).expect("the first");
        assert!(metrics.enter(true, 1).is_none());
        assert!(metrics.enter(false, 1).is_some(), "writes are counted apart");
    }
}
