//! Converts the metrics of `/metrics` to OTLP.
//!
//! Both read the same registry and use the same names and labels, so OTLP and the text exposition cannot disagree.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use prometheus::proto::{self, MetricFamily, MetricType};

use super::SCOPE;
use crate::domain::time::Time;
use crate::io::Clock;
use crate::io::report::Reported;

/// Most data points of one request. Receivers refuse large requests: the default limit of gRPC is 4 MiB.
const MOST_POINTS: usize = 2_000;

pub(super) struct MetricSource {
    shown: Reported,
    clock: Clock,
    resource: Resource,
    began: Time,
}

impl MetricSource {
    /// A source whose cumulative values start at the current time.
    pub(super) fn new(shown: Reported, resource: opentelemetry_sdk::Resource, clock: &Clock) -> Self {
        Self {
            shown,
            clock: clock.clone(),
            resource: Resource {
                attributes: ResourceAttributesWithSchema::from(&resource).attributes.0,
                ..Resource::default()
            },
            began: clock(),
        }
    }

    /// The current values, split into requests of at most [`MOST_POINTS`] data points; with the number of data points of each.
    pub(super) fn requests(&self) -> Vec<(ExportMetricsServiceRequest, u64)> {
        let wall = self.shown.metrics.wall.reading();
        let times = PointTimes {
            // A changed start time means that the counters were reset, so it should stay the same. It is moved only if the wall
            // clock was set back: it must not be later than now.
            began: nanos(self.began.min(wall.date(self.began))),
            now: nanos(wall.date((self.clock)())),
        };
        let mut requests = Vec::new();
        let (mut metrics, mut points) = (Vec::new(), 0);
        for family in self.shown.families() {
            for part in family.get_metric().chunks(MOST_POINTS) {
                if points + part.len() > MOST_POINTS {
                    requests.push(self.request(std::mem::take(&mut metrics), std::mem::take(&mut points)));
                }
                metrics.extend(metric(&family, part, times));
                points += part.len();
            }
        }
        if points > 0 {
            requests.push(self.request(metrics, points));
        }
        requests
    }

    fn request(&self, metrics: Vec<Metric>, points: usize) -> (ExportMetricsServiceRequest, u64) {
        let scope = InstrumentationScope {
            name: SCOPE.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope),
                    metrics,
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        };
        (request, points as u64)
    }
}

/// The times of data points, in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
struct PointTimes {
    began: u64,
    now: u64,
}

fn nanos(time: Time) -> u64 {
    let nanos = Duration::from_millis(time.unix_millis()).as_nanos();
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

/// Converts `series` of a family; `None` for a type that hookwatch does not use.
fn metric(family: &MetricFamily, series: &[proto::Metric], times: PointTimes) -> Option<Metric> {
    let cumulative = AggregationTemporality::Cumulative.into();
    let data = match family.get_field_type() {
        MetricType::COUNTER => metric::Data::Sum(Sum {
            data_points: series
                .iter()
                .map(|one| number(one, one.get_counter().get_value(), times.began, times.now))
                .collect(),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        MetricType::GAUGE => metric::Data::Gauge(Gauge {
            data_points: series
                .iter()
                .map(|one| number(one, one.get_gauge().get_value(), 0, times.now))
                .collect(),
        }),
        MetricType::HISTOGRAM => metric::Data::Histogram(Histogram {
            data_points: series.iter().map(|one| histogram(one, times)).collect(),
            aggregation_temporality: cumulative,
        }),
        MetricType::SUMMARY | MetricType::UNTYPED => return None,
    };
    Some(Metric {
        name: family.name().to_owned(),
        description: family.help().to_owned(),
        unit: unit(family.name()).to_owned(),
        data: Some(data),
        ..Metric::default()
    })
}

/// The unit in UCUM, derived from the suffix of the name; empty for other names.
fn unit(name: &str) -> &'static str {
    match name.strip_suffix("_total").unwrap_or(name) {
        name if name.ends_with("_seconds") => "s",
        name if name.ends_with("_bytes") => "By",
        _ => "",
    }
}

fn number(series: &proto::Metric, value: f64, began: u64, now: u64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(series),
        start_time_unix_nano: began,
        time_unix_nano: now,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

/// Converts cumulative buckets (Prometheus) to one count per bucket (OTLP). OTLP's last bucket has no upper bound.
fn histogram(series: &proto::Metric, times: PointTimes) -> HistogramDataPoint {
    let histogram = series.get_histogram();
    let (mut bounds, mut counts) = (Vec::new(), Vec::new());
    let mut below = 0;
    for bucket in histogram.get_bucket() {
        if bucket.upper_bound().is_finite() {
            bounds.push(bucket.upper_bound());
            counts.push(bucket.cumulative_count().saturating_sub(below));
            below = bucket.cumulative_count();
        }
    }
    let count = histogram.get_sample_count();
    counts.push(count.saturating_sub(below));
    HistogramDataPoint {
        attributes: attributes(series),
        start_time_unix_nano: times.began,
        time_unix_nano: times.now,
        count,
        sum: Some(histogram.get_sample_sum()),
        bucket_counts: counts,
        explicit_bounds: bounds,
        ..HistogramDataPoint::default()
    }
}

fn attributes(series: &proto::Metric) -> Vec<KeyValue> {
    let labels = series.get_label().iter();
    labels
        .map(|label| KeyValue {
            key: label.name().to_owned(),
            value: Some(AnyValue {
                value: Some(any_value::Value::StringValue(label.value().to_owned())),
            }),
            ..KeyValue::default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use prost::Message;
    use tokio::sync::watch;

    use super::*;
    use crate::domain::cluster::hook::{Backend, BackendAddress, BackendPath, HookId, HookKind, ProbeLevel};
    use crate::domain::observe::probe::{
        CertificateFacts, ConnectionKind, PhaseDurations, ProbeAnswer, ProbeOutcome, ProbeReport,
    };
    use crate::io::report::metrics::Metrics;

    #[test]
    fn with_many_hooks_there_are_many_requests_and_none_is_large() {
        const HOOKS: usize = 2_000;
        let metrics = Arc::new(Metrics::new().unwrap());
        for number in 0..HOOKS {
            metrics.probed(&ProbeReport {
                hook: HookId::new(
                    HookKind::Validating,
                    "policy",
                    &format!("hook-{number}.example.com"),
                ),
                backend: Backend {
                    path: BackendPath::Endpoint,
                    address: BackendAddress::Host("127.0.0.1".to_owned(), 443),
                },
                level: ProbeLevel::Http,
                connection: ConnectionKind::Fresh,
                started: Time::default(),
                took: Duration::from_millis(3),
                phases: PhaseDurations::default(),
                outcome: ProbeOutcome::Answered(ProbeAnswer::Handshake),
                certificates: CertificateFacts::default(),
                shared: false,
            });
        }
        let shown = Reported {
            assessment: watch::channel(None).1,
            metrics,
            certificates: Arc::new(Mutex::new(Vec::new())),
            past: Arc::default(),
        };
        let all: usize = shown
            .families()
            .iter()
            .map(|family| family.get_metric().len())
            .sum();
        assert!(all > 2 * HOOKS);
        let clock: Clock = Arc::new(Time::default);
        let resource = opentelemetry_sdk::Resource::builder_empty().build();
        let requests = MetricSource::new(shown, resource, &clock).requests();
        for (request, points) in &requests {
            assert!(*points <= MOST_POINTS as u64);
            assert!(request.encoded_len() < 2 << 20, "{} bytes", request.encoded_len());
        }
        let sent: u64 = requests.iter().map(|(_, points)| points).sum();
        assert_eq!(sent, all as u64);
        assert!(
            requests.len() <= all / MOST_POINTS + 5,
            "{} requests",
            requests.len()
        );
    }

    #[test]
    fn the_unit_is_what_the_name_says() {
        assert_eq!(unit("hookwatch_probe_duration_seconds"), "s");
        assert_eq!(unit("hookwatch_scrape_bytes_total"), "By");
        assert_eq!(unit("hookwatch_probes_total"), "");
    }
}
