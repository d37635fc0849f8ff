//! The part of one scrape that is kept: a few hundred numbers, independent of the format.
//!
//! A busy API server serves tens of megabytes of metrics. A [`Snapshot`] adds each wanted sample to a sum as soon as it is read,
//! so its size depends on the number of hooks and resources, never on the size of the body.

mod extension;
mod family;
mod missing;
mod pairs;
mod scrape;
mod sums;

use std::collections::BTreeMap;

use crate::cluster::hook::HookKind;
use sums::counted;

pub use extension::{ConversionSeries, ExtensionSeries, ResourceKey};
pub use family::{Family, LabelPairs, LabelSource, Part, series_names};
pub use missing::FamilySet;
pub use scrape::{Complaints, Scrape, ScrapeFailure, ScrapeFailureReason};
pub use sums::Counted;

/// A sum and a count that only grow, as in a Prometheus histogram.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Cumulative {
    /// Sum of the observations, in seconds.
    pub sum: f64,
    /// Number of observations.
    pub count: f64,
}

impl Cumulative {
    /// Seconds per observation; `None` without observations.
    pub fn mean(&self) -> Option<f64> {
        (self.count >= 1.0).then(|| (self.sum / self.count).max(0.0))
    }

    fn absorb(&mut self, part: Part, value: f64) {
        match part {
            Part::Sum => self.sum += value,
            Part::Count => self.count += value,
            Part::Whole => {}
        }
    }
}

impl Counted for Cumulative {
    fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.count += other.count;
    }

    fn since(&self, earlier: &Self) -> Self {
        // The count went down, so the process restarted its counter; all of it was gained since.
        if self.count < earlier.count {
            return *self;
        }
        Self {
            sum: (self.sum - earlier.sum).max(0.0),
            count: self.count - earlier.count,
        }
    }
}

/// Refused requests by the `error_type` of the webhook's rejection.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Rejections {
    /// `no_error`: the hook denied the request, so it works.
    pub denied: f64,
    /// `calling_webhook_error`: the call failed, and the failurePolicy is Fail.
    pub calling: f64,
    /// `apiserver_internal_error`: the API server could not apply the hook's patch, or skipped the hook for a dry run because of
    /// its side effects. The request is refused under either failurePolicy.
    pub internal: f64,
    /// How many of `denied` have a code other than 400. 400 is the code of a denial to which the hook gave none, and, before
    /// Kubernetes 1.34, of a call without an answer.
    #[serde(default)]
    pub denied_otherwise: f64,
}

counted!(Rejections: denied, calling, internal, denied_otherwise);

/// What the API server counted of one webhook name.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct HookSeries {
    /// All calls.
    pub calls: Cumulative,
    /// The calls that ended in a refused request (`rejected="true"`): denials and failed calls.
    pub rejected: Cumulative,
    /// The calls for CREATE and UPDATE only.
    pub writes: Cumulative,
    /// Refusals by `error_type`.
    pub rejections: Rejections,
    /// Failed calls that the failurePolicy Ignore let pass.
    pub fail_open: f64,
    /// Requests for which a matchCondition was false, so that the hook was not called.
    pub exclusions: f64,
    /// Evaluation errors of matchConditions, each for one request. Unless another condition is false, `Fail` then refuses the
    /// request with 403, and `Ignore` counts an exclusion.
    #[serde(default)]
    pub condition_errors: f64,
    /// Calls by the HTTP code of their result. A call without an answer counts as 503. Releases before 1.34 count it as 400, which
    /// `Snapshot::since` corrects.
    pub codes: BTreeMap<u16, f64>,
}

counted!(HookSeries: calls, rejected, writes, rejections, fail_open, exclusions, condition_errors, codes);

impl HookSeries {
    /// Calls that the hook itself answered with an HTTP error, without denials and without 503, which means no answer.
    pub fn own_errors(&self) -> f64 {
        let own = self.codes.iter();
        let own = own.filter(|(code, _)| (400..=600).contains(*code) && **code != 503);
        (own.map(|(_, count)| count).sum::<f64>() - self.rejections.denied).max(0.0)
    }

    /// Failed calls, under either failurePolicy.
    pub fn failed(&self) -> f64 {
        self.rejections.calling + self.rejections.internal + self.fail_open
    }

    /// Calls whose client gave up before the answer. They show only in the code 503.
    pub fn given_up(&self) -> f64 {
        let unanswered = self.codes.get(&503).copied().unwrap_or_default();
        (unanswered - self.rejections.calling - self.fail_open).max(0.0)
    }

    /// Calls that were answered: they neither failed, nor did their client give up first (which the API server does not count as
    /// failing open for a mutating hook).
    pub fn answered(&self) -> f64 {
        (self.calls.count - self.unanswered()).max(0.0)
    }

    /// Calls without an answer: those that failed, and those whose client gave up first.
    pub fn unanswered(&self) -> f64 {
        let unanswered = self.codes.get(&503).copied().unwrap_or_default();
        self.failed().max(unanswered)
    }

    /// Calls to which the hook returned something, even an error or a patch that cannot be applied.
    pub fn reached(&self) -> f64 {
        self.answered() + self.own_errors() + self.rejections.internal
    }

    /// Calls from which nothing came back, or a 503, which the API server counts alike.
    pub fn lost(&self) -> f64 {
        (self.unanswered() - self.own_errors() - self.rejections.internal).max(0.0)
    }
}

/// CREATE or UPDATE, called a write in all messages. The API server's verbs map to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum WriteOperation {
    /// `POST`.
    Create,
    /// `PUT`, `PATCH` and `APPLY` (which may also create).
    Update,
}

impl WriteOperation {
    /// Reads the `verb` label of a request metric.
    fn of_verb(verb: &str) -> Option<Self> {
        match verb {
            "POST" => Some(Self::Create),
            "PUT" | "PATCH" | "APPLY" => Some(Self::Update),
            _ => None,
        }
    }
}

/// The kind of a write: operation and resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct WriteKey {
    /// CREATE or UPDATE.
    pub operation: WriteOperation,
    /// API group; empty for the core group.
    pub group: String,
    /// Resource, in the plural.
    pub resource: String,
    /// Subresource; empty for the object itself.
    pub subresource: String,
}

/// The two durations of the same writes.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct WriteSeries {
    /// `apiserver_request_duration_seconds{dry_run=""}`.
    pub duration: Cumulative,
    /// `apiserver_request_sli_duration_seconds`: the same without webhooks and flow-control wait.
    pub sli: Cumulative,
}

counted!(WriteSeries: duration, sli);

/// Numbers of requests by class of HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Results {
    /// 2xx, 3xx and unknown codes.
    pub ok: f64,
    /// 4xx other than 429.
    pub refused: f64,
    /// 429.
    pub throttled: f64,
    /// 5xx.
    pub failed: f64,
}

counted!(Results: ok, refused, throttled, failed);

impl Results {
    /// Requests of every class.
    pub fn total(&self) -> f64 {
        self.ok + self.refused + self.throttled + self.failed
    }

    fn count(&mut self, code: &str, value: f64) {
        match code {
            "429" => self.throttled += value,
            code if code.starts_with('5') => self.failed += value,
            code if code.starts_with('4') => self.refused += value,
            _ => self.ok += value,
        }
    }

    fn take_off(&mut self, part: &Self) {
        self.ok = (self.ok - part.ok).max(0.0);
        self.refused = (self.refused - part.refused).max(0.0);
        self.throttled = (self.throttled - part.throttled).max(0.0);
        self.failed = (self.failed - part.failed).max(0.0);
    }
}

/// A gauge that the API server has for mutating and for read-only requests.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct ByRequestKind {
    /// `request_kind="mutating"`.
    pub mutating: f64,
    /// `request_kind="readOnly"`.
    pub read_only: f64,
}

counted!(ByRequestKind: mutating, read_only);

/// The kept part of one API server's metrics. Counters are summed over all labels that are not mentioned here.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Snapshot {
    /// `process_start_time_seconds`: tells processes at one address apart. Seconds since the Unix epoch.
    pub process_start: Option<f64>,
    /// `process_cpu_seconds_total`.
    pub cpu_seconds: f64,
    /// The minor release, such as 36, from `kubernetes_build_info`; `None` when it is absent or not a number.
    #[serde(default)]
    pub minor: Option<u32>,
    /// Hooks by kind and name. The API server's metrics do not name their configurations.
    #[serde(with = "pairs")]
    pub hooks: BTreeMap<(HookKind, String), HookSeries>,
    /// Writes without dry runs, by operation and resource.
    #[serde(with = "pairs")]
    pub writes: BTreeMap<WriteKey, WriteSeries>,
    /// Dry-run writes.
    pub dry_runs: Cumulative,
    /// Results of writes without dry runs.
    pub write_results: Results,
    /// Durations of GETs and LISTs.
    pub reads: Cumulative,
    /// `apiserver_current_inflight_requests`; `None` when the family is absent.
    pub in_flight: Option<ByRequestKind>,
    /// `apiserver_current_inqueue_requests`.
    pub in_queue: ByRequestKind,
    /// `apiserver_flowcontrol_request_wait_duration_seconds`.
    pub queue_wait: Cumulative,
    /// `apiserver_flowcontrol_rejected_requests_total`.
    pub queue_rejected: f64,
    /// `etcd_request_duration_seconds`.
    pub etcd: Cumulative,
    /// Metrics of conversion webhooks and APIServices.
    #[serde(default)]
    pub others: ExtensionSeries,
    /// Whether `apiserver_request_sli_duration_seconds` was seen: then the series of its older name are ignored.
    pub has_sli: bool,
    /// Whether any metric that only API servers expose was seen.
    pub is_api_server: bool,
    /// Which families were seen.
    pub seen: FamilySet,
}

impl Snapshot {
    /// Most hooks kept; samples of further ones are left out with a complaint.
    pub const MAX_HOOK_NAMES: usize = 4_000;
    /// Most combinations of operation, group, resource and subresource kept; samples of further ones are left out.
    pub const MAX_WRITE_KEYS: usize = 4_000;

    /// Adds one sample. Returns false when a limit excluded it.
    pub fn record(&mut self, family: Family, part: Part, labels: &impl LabelSource, value: f64) -> bool {
        // Other Kubernetes components expose these three families as well.
        self.is_api_server |= !matches!(family, Family::ProcessStart | Family::Cpu | Family::BuildInfo);
        self.seen.insert(family);
        match family {
            Family::ProcessStart => self.process_start = Some(value),
            Family::Cpu => self.cpu_seconds = value,
            Family::BuildInfo => self.minor = labels.get("minor").trim_end_matches('+').parse().ok(),
            Family::Etcd => self.etcd.absorb(part, value),
            Family::QueueWait => self.queue_wait.absorb(part, value),
            Family::QueueRejected => self.queue_rejected += value,
            Family::InFlight => {
                add_by_kind(
                    self.in_flight.get_or_insert_default(),
                    labels.get("request_kind"),
                    value,
                );
            }
            Family::InQueue => add_by_kind(&mut self.in_queue, labels.get("request_kind"), value),
            Family::RequestDuration | Family::RequestSli | Family::RequestSlo => {
                return self.record_request(family, part, labels, value);
            }
            Family::RequestTotal => return self.record_result(labels, value),
            Family::Conversion => return self.others.record_conversion(part, labels, value),
            Family::Unavailable => return self.others.record_unavailable(labels, value),
            Family::BecameUnavailable => return self.others.record_became_unavailable(labels, value),
            Family::HookDuration
            | Family::HookRequests
            | Family::HookRejections
            | Family::HookFailOpen
            | Family::Exclusions
            | Family::ConditionErrors => return self.record_hook(family, part, labels, value),
        }
        true
    }

    fn record_request(&mut self, family: Family, part: Part, labels: &impl LabelSource, value: f64) -> bool {
        let verb = labels.get("verb");
        let Some(operation) = WriteOperation::of_verb(verb) else {
            if family == Family::RequestDuration && matches!(verb, "GET" | "LIST") {
                self.reads.absorb(part, value);
            }
            return true;
        };
        if !labels.get("dry_run").is_empty() {
            self.dry_runs.absorb(part, value);
            return true;
        }
        let key = WriteKey {
            operation,
            group: labels.get("group").to_owned(),
            resource: labels.get("resource").to_owned(),
            subresource: labels.get("subresource").to_owned(),
        };
        if self.writes.len() >= Self::MAX_WRITE_KEYS && !self.writes.contains_key(&key) {
            return false;
        }
        let series = self.writes.entry(key).or_default();
        match family {
            Family::RequestSli => {
                self.has_sli = true;
                series.sli.absorb(part, value);
            }
            // Releases around 1.26 expose both names with the same values, the newer name first.
            Family::RequestSlo if self.has_sli => {}
            Family::RequestSlo => series.sli.absorb(part, value),
            _ => series.duration.absorb(part, value),
        }
        true
    }

    fn record_result(&mut self, labels: &impl LabelSource, value: f64) -> bool {
        if WriteOperation::of_verb(labels.get("verb")).is_none() || !labels.get("dry_run").is_empty() {
            return true;
        }
        let code = labels.get("code");
        self.write_results.count(code, value);
        let resource = (labels.get("group").to_owned(), labels.get("resource").to_owned());
        let known = &mut self.others.results;
        if known.len() >= Self::MAX_WRITE_KEYS && !known.contains_key(&resource) {
            return false;
        }
        known.entry(resource).or_default().count(code, value);
        true
    }

    fn record_hook(&mut self, family: Family, part: Part, labels: &impl LabelSource, value: f64) -> bool {
        // The match_condition_* families write the type as `validate`, the webhook families as `validating`. Only the former
        // have the label `kind`, which tells policies from webhooks.
        let kind = match labels.get("type") {
            "admit" => HookKind::Mutating,
            "validating" | "validate" => HookKind::Validating,
            _ => return true,
        };
        if matches!(family, Family::Exclusions | Family::ConditionErrors) && labels.get("kind") != "webhook" {
            return true;
        }
        let key = (kind, labels.get("name").to_owned());
        if self.hooks.len() >= Self::MAX_HOOK_NAMES && !self.hooks.contains_key(&key) {
            return false;
        }
        let series = self.hooks.entry(key).or_default();
        match family {
            Family::HookDuration => {
                series.calls.absorb(part, value);
                if labels.get("rejected") == "true" {
                    series.rejected.absorb(part, value);
                }
                if matches!(labels.get("operation"), "CREATE" | "UPDATE") {
                    series.writes.absorb(part, value);
                }
            }
            Family::HookRequests => {
                let code = labels.get("code").parse().unwrap_or(0);
                *series.codes.entry(code).or_default() += value;
            }
            Family::HookRejections => match labels.get("error_type") {
                "no_error" => {
                    series.rejections.denied += value;
                    if labels.get("rejection_code") != "400" {
                        series.rejections.denied_otherwise += value;
                    }
                }
                "calling_webhook_error" => series.rejections.calling += value,
                _ => series.rejections.internal += value,
            },
            Family::HookFailOpen => series.fail_open += value,
            Family::ConditionErrors => series.condition_errors += value,
            _ => series.exclusions += value,
        }
        true
    }

    /// The increase since an earlier snapshot of the same process; gauges keep their current values.
    ///
    /// A new series counts from zero, since the API server creates a series at its first increment. A series that vanished, or did
    /// not increase, is left out.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut gain = Counted::since(self, earlier);
        gain.tell_unanswered();
        gain
    }

    /// Adds the increases of another API server or interval. Gauges are added up too.
    pub fn add(&mut self, other: &Self) {
        Counted::add(self, other);
        if let Some(theirs) = &other.in_flight {
            self.in_flight.get_or_insert_default().add(theirs);
        }
        self.is_api_server |= other.is_api_server;
        self.seen.add(other.seen);
    }

    /// The durations of all writes without dry runs.
    pub fn all_writes(&self) -> WriteSeries {
        self.writes_where(|_| true)
    }

    /// The durations of the writes whose key `of` accepts, without dry runs.
    pub fn writes_where(&self, of: impl Fn(&WriteKey) -> bool) -> WriteSeries {
        let mut all = WriteSeries::default();
        for (_, series) in self.writes.iter().filter(|(key, _)| of(key)) {
            all.add(series);
        }
        all
    }
}

counted!(
    Snapshot: cpu_seconds, hooks, writes, dry_runs, write_results, reads, queue_wait, queue_rejected, etcd, others;
    gauges: in_queue;
    kept: process_start, minor, in_flight, has_sli, is_api_server, seen
);

fn add_by_kind(gauge: &mut ByRequestKind, kind: &str, value: f64) {
    match kind {
        "mutating" => gauge.mutating += value,
        "readOnly" => gauge.read_only += value,
        _ => {}
    }
}
