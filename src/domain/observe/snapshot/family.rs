//! Which series of an exposition matter.

use strum::VariantArray;

/// The labels of one sample.
pub trait LabelSource {
    /// The value of a label; the empty string when it is absent, which means the same to Prometheus.
    fn get(&self, name: &str) -> &str;
}

/// Labels as they are read, in place.
#[derive(Debug, Default)]
pub struct LabelPairs<N, V>(pub Vec<(N, V)>);

impl<N: AsRef<str>, V: AsRef<str>> LabelSource for LabelPairs<N, V> {
    fn get(&self, name: &str) -> &str {
        let mut labels = self.0.iter();
        let found = labels.find(|(label, _)| label.as_ref() == name);
        found.map_or("", |(_, value)| value.as_ref())
    }
}

/// Which series of a histogram a sample belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `_sum`.
    Sum,
    /// `_count`.
    Count,
    /// Not a histogram: the sample itself.
    Whole,
}

/// Every series that matters by its name: what a Prometheus is asked for.
pub const SERIES: [&str; 29] = [
    "apiserver_request_duration_seconds_sum",
    "apiserver_request_duration_seconds_count",
    "apiserver_request_sli_duration_seconds_sum",
    "apiserver_request_sli_duration_seconds_count",
    "apiserver_request_slo_duration_seconds_sum",
    "apiserver_request_slo_duration_seconds_count",
    "apiserver_request_total",
    "apiserver_current_inflight_requests",
    "apiserver_current_inqueue_requests",
    "apiserver_admission_webhook_admission_duration_seconds_sum",
    "apiserver_admission_webhook_admission_duration_seconds_count",
    "apiserver_admission_webhook_request_total",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_match_condition_exclusions_total",
    "apiserver_crd_conversion_webhook_duration_seconds_sum",
    "apiserver_crd_conversion_webhook_duration_seconds_count",
    "apiserver_crd_webhook_conversion_duration_seconds_sum",
    "apiserver_crd_webhook_conversion_duration_seconds_count",
    "aggregator_unavailable_apiservice",
    "aggregator_unavailable_apiservice_total",
    "etcd_request_duration_seconds_sum",
    "etcd_request_duration_seconds_count",
    "apiserver_flowcontrol_request_wait_duration_seconds_sum",
    "apiserver_flowcontrol_request_wait_duration_seconds_count",
    "apiserver_flowcontrol_rejected_requests_total",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "kubernetes_build_info",
];

/// A family that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, VariantArray)]
pub enum Family {
    /// `apiserver_request_duration_seconds`
    RequestDuration,
    /// `apiserver_request_sli_duration_seconds`
    RequestSli,
    /// `apiserver_request_slo_duration_seconds`: its name before 1.26, and beside it for some releases.
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
    /// `apiserver_crd_conversion_webhook_duration_seconds`, before 1.28
    /// `apiserver_crd_webhook_conversion_duration_seconds`. Its sibling `apiserver_conversion_webhook_*` does not say
    /// of which CRD it speaks.
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
    /// All of them.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The family and part that a series' name belongs to; `None` for a series nobody asked for.
    ///
    /// Buckets are not wanted: sums and counts are exact where an interpolated quantile is a guess (the
    /// hooks' own buckets jump from 2.5 to 10 to 25 s).
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

    /// The family of this name: what a series is called without `_sum`, `_count` or `_bucket`, and what the
    /// binary format calls all of a histogram.
    pub fn of_base(name: &str) -> Option<Self> {
        Some(match name {
            "apiserver_request_duration_seconds" => Self::RequestDuration,
            "apiserver_request_sli_duration_seconds" => Self::RequestSli,
            "apiserver_request_slo_duration_seconds" => Self::RequestSlo,
            "apiserver_request_total" => Self::RequestTotal,
            "apiserver_current_inflight_requests" => Self::InFlight,
            "apiserver_current_inqueue_requests" => Self::InQueue,
            "apiserver_admission_webhook_admission_duration_seconds" => Self::HookDuration,
            "apiserver_admission_webhook_request_total" => Self::HookRequests,
            "apiserver_admission_webhook_rejection_count" => Self::HookRejections,
            "apiserver_admission_webhook_fail_open_count" => Self::HookFailOpen,
            "apiserver_admission_match_condition_exclusions_total" => Self::Exclusions,
            "apiserver_crd_conversion_webhook_duration_seconds"
            | "apiserver_crd_webhook_conversion_duration_seconds" => Self::Conversion,
            "aggregator_unavailable_apiservice" => Self::Unavailable,
            "aggregator_unavailable_apiservice_total" => Self::BecameUnavailable,
            "etcd_request_duration_seconds" => Self::Etcd,
            "apiserver_flowcontrol_request_wait_duration_seconds" => Self::QueueWait,
            "apiserver_flowcontrol_rejected_requests_total" => Self::QueueRejected,
            "process_start_time_seconds" => Self::ProcessStart,
            "process_cpu_seconds_total" => Self::Cpu,
            "kubernetes_build_info" => Self::BuildInfo,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_series_that_is_asked_for_is_kept_and_of_every_family_all_are_asked_for() {
        let known = SERIES.map(|name| Family::of_series(name).unwrap_or_else(|| panic!("{name}")));
        let names: BTreeSet<String> = known.iter().map(|(family, _)| format!("{family:?}")).collect();
        assert_eq!(names.len(), Family::ALL.len());
        for (family, part) in known {
            let of_family = known.iter().filter(|(other, _)| *other == family);
            let parts: BTreeSet<String> = of_family.map(|(_, part)| format!("{part:?}")).collect();
            let expected = if part == Part::Whole { 1 } else { 2 };
            assert_eq!(parts.len(), expected, "{family:?}");
        }
    }
}
