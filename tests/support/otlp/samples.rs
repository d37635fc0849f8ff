//! Metrics as a map from sample to value, from the text exposition and from OTLP, for comparison.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric, metric, number_data_point};

/// By `name{label="value",...}`, labels in the order of their names. Numbers are bits, so that NaN equals itself.
pub type Samples = BTreeMap<String, u64>;

/// The names whose values only grow.
pub fn grows(sample: &str) -> bool {
    let name = sample.split('{').next().unwrap();
    ["_total", "_bucket", "_count", "_sum"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// The samples of a text exposition.
pub fn of_text(text: &str) -> Samples {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            (sample.to_owned(), bits(value.parse().unwrap()))
        })
        .collect()
}

/// The samples of OTLP metrics.
pub fn of_otlp<'a>(metrics: impl IntoIterator<Item = &'a Metric>) -> Samples {
    let mut samples = Samples::new();
    for metric in metrics {
        let name = &metric.name;
        match metric.data.as_ref().unwrap() {
            metric::Data::Gauge(gauge) => {
                for point in &gauge.data_points {
                    let Some(number_data_point::Value::AsDouble(value)) = point.value else {
                        panic!("{point:?}");
                    };
                    put(&mut samples, name, &point.attributes, None, value);
                }
            }
            metric::Data::Sum(sum) => {
                assert!(sum.is_monotonic);
                assert_eq!(sum.aggregation_temporality(), AggregationTemporality::Cumulative);
                for point in &sum.data_points {
                    let Some(number_data_point::Value::AsDouble(value)) = point.value else {
                        panic!("{point:?}");
                    };
                    assert!(
                        0 < point.start_time_unix_nano && point.start_time_unix_nano <= point.time_unix_nano
                    );
                    put(&mut samples, name, &point.attributes, None, value);
                }
            }
            metric::Data::Histogram(histogram) => {
                assert_eq!(
                    histogram.aggregation_temporality(),
                    AggregationTemporality::Cumulative
                );
                for point in &histogram.data_points {
                    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                    let mut below = 0;
                    let edges = point.explicit_bounds.iter().map(f64::to_string);
                    for (edge, count) in edges.chain(["+Inf".to_owned()]).zip(&point.bucket_counts) {
                        below += count;
                        let name = format!("{name}_bucket");
                        put(&mut samples, &name, &point.attributes, Some(&edge), below as f64);
                    }
                    assert_eq!(below, point.count);
                    let (count, sum) = (point.count as f64, point.sum.unwrap());
                    put(
                        &mut samples,
                        &format!("{name}_count"),
                        &point.attributes,
                        None,
                        count,
                    );
                    put(&mut samples, &format!("{name}_sum"), &point.attributes, None, sum);
                }
            }
            other => panic!("hookwatch has no such metric: {other:?}"),
        }
    }
    samples
}

fn put(samples: &mut Samples, name: &str, attributes: &[KeyValue], edge: Option<&str>, value: f64) {
    let mut labels: Vec<String> = attributes
        .iter()
        .map(|attribute| {
            let value = super::attribute(std::slice::from_ref(attribute), &attribute.key).unwrap();
            format!("{}={value:?}", attribute.key)
        })
        .collect();
    // Where the text exposition has it: last.
    labels.extend(edge.map(|edge| format!("le=\"{edge}\"")));
    let sample = if labels.is_empty() {
        name.to_owned()
    } else {
        format!("{name}{{{}}}", labels.join(","))
    };
    let before = samples.insert(sample.clone(), bits(value));
    assert_eq!(before, None, "{sample} is there twice");
}

fn bits(value: f64) -> u64 {
    if value.is_nan() {
        f64::NAN.to_bits()
    } else {
        value.to_bits()
    }
}
