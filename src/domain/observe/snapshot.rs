//! The part of one scrape that is kept: a few hundred numbers, independent of the format.
//!
//! A busy API server serves tens of megabytes. A [`Snapshot`] folds each wanted sample into a sum the moment
//! it is read, so its size depends on how many hooks and resources there are, never on the body.

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

/// A sum and a count that only grow, as Prometheus histograms carry them.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Cumulative {
    /// Sum of the observations, in seconds.
    pub sum: f64,
    /// Number of observations.
    pub count: f64,
}

impl Cumulative {
    /// Seconds per observation; `None` without any.
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
        // A count that went down is a counter that began again; what it holds now was all gained since.
        if self.count < earlier.count {
            return *self;
        }
        Self {
            sum: (self.sum - earlier.sum).max(0.0),
            count: self.count - earlier.count,
        }
    }
}

/// How many calls to a hook were refused, by `error_type`.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Rejections {
    /// `no_error`: the hook said no. It works.
    pub denied: f64,
    /// `calling_webhook_error`: the call failed and the policy is Fail.
    pub calling: f64,
    /// `apiserver_internal_error`: the API server could not apply the hook's patch, or did not call it for a dry run that it
    /// does not take. It refuses the request under either policy.
    pub internal: f64,
    /// How many of those that were denied have another code than 400. That is the code of a denial to which the hook gave
    /// none, and before Kubernetes 1.34 that of a call without an answer.
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
    /// Failed calls that the policy Ignore let pass.
    pub fail_open: f64,
    /// Calls that a matchCondition kept from being made.
    pub exclusions: f64,
    /// matchConditions that could not be evaluated, each of a request by itself. Without one that is false beside it, `Fail`
    /// refuses the request with 403 and `Ignore` counts an exclusion.
    #[serde(default)]
    pub condition_errors: f64,
    /// Calls by the HTTP code of the outcome. A call that got no answer counts as 503, also in what was gained on a release that
    /// counts it as 400.
    pub codes: BTreeMap<u16, f64>,
}

counted!(HookSeries: calls, rejected, writes, rejections, fail_open, exclusions, condition_errors, codes);

impl HookSeries {
    /// Calls that the hook itself answered with an HTTP error, without denials: 503 counts as no answer.
    pub fn own_errors(&self) -> f64 {
        let own = self.codes.iter();
        let own = own.filter(|(code, _)| (400..=600).contains(*code) && **code != 503);
        (own.map(|(_, count)| count).sum::<f64>() - self.rejections.denied).max(0.0)
    }

    /// Calls that failed, under either failurePolicy.
    pub fn failed(&self) -> f64 {
        self.rejections.calling + self.rejections.internal + self.fail_open
    }

    /// Calls whose client gave up before they were answered: counted by their code alone.
    pub fn given_up(&self) -> f64 {
        let unanswered = self.codes.get(&503).copied().unwrap_or_default();
        (unanswered - self.rejections.calling - self.fail_open).max(0.0)
    }

    /// Calls that were answered: neither did they fail, nor did their client give up before the hook said anything, which
    /// a mutating hook's policy does not count as failing open.
    pub fn answered(&self) -> f64 {
        (self.calls.count - self.unanswered()).max(0.0)
    }

    /// The other calls: those that failed, and those whose client gave up first.
    pub fn unanswered(&self) -> f64 {
        let unanswered = self.codes.get(&503).copied().unwrap_or_default();
        self.failed().max(unanswered)
    }
}

/// CREATE or UPDATE: what a person calls a write. The API server's verbs map to it.
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

/// Which writes: the key of the per-resource differential.
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

/// The two clocks of the same writes.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct WriteSeries {
    /// `apiserver_request_duration_seconds{dry_run=""}`.
    pub duration: Cumulative,
    /// `apiserver_request_sli_duration_seconds`: the same less webhook time and flow-control wait.
    pub sli: Cumulative,
}

counted!(WriteSeries: duration, sli);

/// A number of requests by the result's class.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Results {
    /// 2xx and 3xx.
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
    /// Requests of every result.
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

/// A gauge that the API server keeps for writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct ByRequestKind {
    /// `request_kind="mutating"`.
    pub mutating: f64,
    /// `request_kind="readOnly"`.
    pub read_only: f64,
}

counted!(ByRequestKind: mutating, read_only);

/// Everything kept of one replica's metrics. Counters are summed over the labels that are not named here.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Snapshot {
    /// `process_start_time_seconds`: tells replicas behind one address apart.
    pub process_start: Option<f64>,
    /// `process_cpu_seconds_total`.
    pub cpu_seconds: f64,
    /// The second number of the release, such as 36, by `kubernetes_build_info`.
    #[serde(default)]
    pub minor: Option<u32>,
    /// Hooks by kind and name: the API server's metrics know no configuration.
    #[serde(with = "pairs")]
    pub hooks: BTreeMap<(HookKind, String), HookSeries>,
    /// Writes that are no dry runs, by what was written.
    #[serde(with = "pairs")]
    pub writes: BTreeMap<WriteKey, WriteSeries>,
    /// Dry-run writes.
    pub dry_runs: Cumulative,
    /// Results of writes that are no dry runs.
    pub write_results: Results,
    /// GET and LIST.
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
    /// What concerns hooks beside admission.
    #[serde(default)]
    pub others: ExtensionSeries,
    /// Whether the sli family was seen: then its older name says the same once more.
    pub has_sli: bool,
    /// Whether any family of an API server was seen at all.
    pub is_api_server: bool,
    /// Which families were seen.
    pub seen: FamilySet,
}

impl Snapshot {
    /// More webhook names than this are left out and complained about.
    pub const MAX_HOOK_NAMES: usize = 4_000;
    /// More combinations of operation, group, resource and subresource than this are left out.
    pub const MAX_WRITE_KEYS: usize = 4_000;

    /// Folds one sample in. Returns false when a bound kept it out.
    pub fn record(&mut self, family: Family, part: Part, labels: &impl LabelSource, value: f64) -> bool {
        // Other components of Kubernetes serve these as well.
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
            // Releases around 1.26 serve both names for the same thing, the newer one first.
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
        // match_condition_* spells the type `validate`, the webhook families `validating`; `kind` tells
        // policies from webhooks there and is absent in the others.
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

    /// What was gained since an earlier snapshot of the same process. Gauges are as they are now.
    ///
    /// A series that is new counts from zero, for the API server makes a series at its first increment; one
    /// that vanished counts for nothing, and one that gained nothing is left out.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut gain = Counted::since(self, earlier);
        gain.tell_unanswered();
        gain
    }

    /// Adds another replica's or interval's gains to these. Gauges add up too.
    pub fn add(&mut self, other: &Self) {
        Counted::add(self, other);
        if let Some(theirs) = &other.in_flight {
            self.in_flight.get_or_insert_default().add(theirs);
        }
        self.is_api_server |= other.is_api_server;
        self.seen.add(other.seen);
    }

    /// All writes that are no dry runs, together.
    pub fn all_writes(&self) -> WriteSeries {
        self.writes_where(|_| true)
    }

    /// The writes with such a key, without dry runs, together.
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
