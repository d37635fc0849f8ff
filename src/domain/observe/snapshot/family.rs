//! The metric families that hookwatch reads.

use strum::VariantArray;

/// The labels of one sample.
pub trait LabelSource {
    /// The value of a label; the empty string when it is absent, which means the same to Prometheus.
    fn get(&self, name: &str) -> &str;
}

/// Labels of one sample in a list, borrowed from the input where possible.
#[derive(Debug, Default)]
pub struct LabelPairs<N, V>(pub Vec<(N, V)>);

impl<N: AsRef<str>, V: AsRef<str>> LabelSource for LabelPairs<N, V> {
    fn get(&self, name: &str) -> &str {
        let mut labels = self.0.iter();
        let found = labels.find(|(label, _)| label.as_ref() == name);
        found.map_or("", |(_, value)| value.as_ref())
    }
}

/// The part of a family that a sample belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `_sum`.
    Sum,
    /// `_count`.
    Count,
    /// The value itself; the family is not a histogram.
    Whole,
}

/// Name (without `_sum` and `_count`), family, and whether it is a histogram, of which both series are read. The first name of a
/// family is the one that current releases use.
#[rustfmt::skip] // a table
const NAMES: [(&str, Family, bool); 22] = [
    ("apiserver_request_duration_seconds", Family::RequestDuration, true),
    ("apiserver_request_sli_duration_seconds", Family::RequestSli, true),
    ("apiserver_request_slo_duration_seconds", Family::RequestSlo, true),
    ("apiserver_request_total", Family::RequestTotal, false),
    ("apiserver_current_inflight_requests", Family::InFlight, false),
    ("apiserver_current_inqueue_requests", Family::InQueue, false),
    ("apiserver_admission_webhook_admission_duration_seconds", Family::HookDuration, true),
    ("apiserver_admission_webhook_request_total", Family::HookRequests, false),
    ("apiserver_admission_webhook_rejection_count", Family::HookRejections, false),
    ("apiserver_admission_webhook_fail_open_count", Family::HookFailOpen, false),
    ("apiserver_admission_match_condition_exclusions_total", Family::Exclusions, false),
    ("apiserver_admission_match_condition_evaluation_errors_total", Family::ConditionErrors, false),
    ("apiserver_crd_conversion_webhook_duration_seconds", Family::Conversion, true),
    ("apiserver_crd_webhook_conversion_duration_seconds", Family::Conversion, true),
    ("aggregator_unavailable_apiservice", Family::Unavailable, false),
    ("aggregator_unavailable_apiservice_total", Family::BecameUnavailable, false),
    ("etcd_request_duration_seconds", Family::Etcd, true),
    ("apiserver_flowcontrol_request_wait_duration_seconds", Family::QueueWait, true),
    ("apiserver_flowcontrol_rejected_requests_total", Family::QueueRejected, false),
    ("process_start_time_seconds", Family::ProcessStart, false),
    ("process_cpu_seconds_total", Family::Cpu, false),
    ("kubernetes_build_info", Family::BuildInfo, false),
];

/// The names of all series that hookwatch reads, for a query to a Prometheus.
pub fn series_names() -> Vec<String> {
    let parts = |(name, _, is_histogram): &(&str, Family, bool)| {
        if *is_histogram {
            vec![format!("{name}_sum"), format!("{name}_count")]
        } else {
            vec![(*name).to_owned()]
        }
    };
    NAMES.iter().flat_map(parts).collect()
}

/// A metric family that hookwatch reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, VariantArray)]
pub enum Family {
    /// `apiserver_request_duration_seconds`
    RequestDuration,
    /// `apiserver_request_sli_duration_seconds`
    RequestSli,
    /// `apiserver_request_slo_duration_seconds`: the name of [`Family::RequestSli`] before 1.26, exposed with it for some releases.
    RequestSlo,
    /// `apiserver_request_total`
    RequestTotal,
    /// `apiserver_current_inflight_requests`
    InFlight,
    /// `apiserver_current_inqueue_requests`
    InQueue,
    /// `apiserver_admission_webhook_admission_duration_seconds`
    HookDuration,
    /// `apiserver_admission_webhook_request_total`
    HookRequests,
    /// `apiserver_admission_webhook_rejection_count`
    HookRejections,
    /// `apiserver_admission_webhook_fail_open_count`
    HookFailOpen,
    /// `apiserver_admission_match_condition_exclusions_total`
    Exclusions,
    /// `apiserver_admission_match_condition_evaluation_errors_total`
    ConditionErrors,
    /// `apiserver_crd_conversion_webhook_duration_seconds`, before 1.28 `apiserver_crd_webhook_conversion_duration_seconds`. The
    /// similar `apiserver_conversion_webhook_*` is not used, because it has no label for the CRD.
    Conversion,
    /// `aggregator_unavailable_apiservice`
    Unavailable,
    /// `aggregator_unavailable_apiservice_total`
    BecameUnavailable,
    /// `etcd_request_duration_seconds`
    Etcd,
    /// `apiserver_flowcontrol_request_wait_duration_seconds`
    QueueWait,
    /// `apiserver_flowcontrol_rejected_requests_total`
    QueueRejected,
    /// `process_start_time_seconds`
    ProcessStart,
    /// `process_cpu_seconds_total`
    Cpu,
    /// `kubernetes_build_info`
    BuildInfo,
}

impl Family {
    /// All families.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The family and part of a series by its name; `None` for a series that is not used.
    ///
    /// Buckets are not used: sums and counts are exact, while a quantile interpolated from buckets is a guess (those of the webhook
    /// durations jump from 2.5 to 10 to 25 s).
    pub fn of_series(name: &str) -> Option<(Self, Part)> {
        let (base, part) = if let Some(base) = name.strip_suffix("_sum") {
            (base, Part::Sum)
        } else if name.ends_with("_rejection_count") || name.ends_with("_fail_open_count") {
            (name, Part::Whole)
        } else if let Some(base) = name.strip_suffix("_count") {
            (base, Part::Count)
        } else {
            (name, Part::Whole)
        };
        Self::of_base(base).map(|family| (family, part))
    }

    /// The family with this base name: a series' name without `_sum`, `_count` or `_bucket`, or the name of a whole histogram in
    /// the protobuf format.
    pub fn of_base(name: &str) -> Option<Self> {
        let found = NAMES.iter().find(|(known, ..)| *known == name);
        found.map(|(_, family, _)| *family)
    }

    /// Its name in current releases, without `_sum` and `_count`.
    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, family, _)| *family == self);
        found.map_or("", |(name, ..)| name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_series_that_is_asked_for_is_kept_and_of_every_family_all_are_asked_for() {
        let known = series_names();
        let known = known
            .iter()
            .map(|name| Family::of_series(name).unwrap_or_else(|| panic!("{name}")));
        let known: Vec<(Family, Part)> = known.collect();
        let names: BTreeSet<String> = known.iter().map(|(family, _)| format!("{family:?}")).collect();
        assert_eq!(names.len(), Family::ALL.len());
        for (family, part) in &known {
            let of_family = known.iter().filter(|(other, _)| other == family);
            let parts: BTreeSet<String> = of_family.map(|(_, part)| format!("{part:?}")).collect();
            let expected = if *part == Part::Whole { 1 } else { 2 };
            assert_eq!(parts.len(), expected, "{family:?}");
        }
    }
}
