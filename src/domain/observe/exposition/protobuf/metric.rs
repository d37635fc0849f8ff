//! One `Metric` message: labels, and a number or a distribution.

use super::wire::{Malformed, MessageFields, Value};
use crate::observe::snapshot::LabelPairs;

/// Field numbers of `Metric`.
const LABEL: u64 = 1;
const GAUGE: u64 = 2;
const COUNTER: u64 = 3;
const SUMMARY: u64 = 4;
const UNTYPED: u64 = 5;
const HISTOGRAM: u64 = 7;

/// The used parts of a metric, borrowed from the message.
#[derive(Debug, Default)]
pub(super) struct Metric<'message> {
    pub(super) labels: LabelPairs<&'message str, &'message str>,
    pub(super) reading: MetricValue,
}

/// The used part of a metric's value.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) enum MetricValue {
    #[default]
    Nothing,
    /// Of a counter, a gauge or an untyped metric.
    Whole(f64),
    /// Of a histogram or a summary.
    Distribution { sum: f64, count: f64 },
}

impl<'message> Metric<'message> {
    pub(super) fn read(message: &'message [u8]) -> Result<Self, Malformed> {
        let mut metric = Self {
            labels: LabelPairs(Vec::with_capacity(8)),
            reading: MetricValue::Nothing,
        };
        for field in MessageFields(message) {
            match field? {
                (LABEL, Value::Bytes(pair)) => metric.labels.0.push(label(pair)?),
                (GAUGE | COUNTER | UNTYPED, Value::Bytes(inner)) => metric.reading = whole(inner)?,
                (SUMMARY | HISTOGRAM, Value::Bytes(inner)) => metric.reading = distribution(inner)?,
                _ => {}
            }
        }
        Ok(metric)
    }
}

fn label(pair: &[u8]) -> Result<(&str, &str), Malformed> {
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| "a label is not UTF-8");
    let (mut name, mut value) = ("", "");
    for field in MessageFields(pair) {
        match field? {
            (1, Value::Bytes(bytes)) => name = text(bytes)?,
            (2, Value::Bytes(bytes)) => value = text(bytes)?,
            _ => {}
        }
    }
    Ok((name, value))
}

/// `Gauge`, `Counter` and `Untyped` have their value in field 1; an absent value is zero.
fn whole(message: &[u8]) -> Result<MetricValue, Malformed> {
    let mut value = 0.0;
    for field in MessageFields(message) {
        if let (1, Value::Double(read)) = field? {
            value = read;
        }
    }
    Ok(MetricValue::Whole(value))
}

/// `Histogram` and `Summary` have count and sum in fields 1 and 2. A histogram may have a fractional count in field 4, which
/// replaces the integer when it is above zero; field 4 of a summary is not a double.
fn distribution(message: &[u8]) -> Result<MetricValue, Malformed> {
    let (mut sum, mut count, mut fractional) = (0.0, 0, 0.0);
    for field in MessageFields(message) {
        match field? {
            (1, Value::Varint(read)) => count = read,
            (2, Value::Double(read)) => sum = read,
            (4, Value::Double(read)) => fractional = read,
            _ => {}
        }
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "the text format rounds a count in the same way"
    )]
    let count = if fractional > 0.0 {
        fractional
    } else {
        count as f64
    };
    Ok(MetricValue::Distribution { sum, count })
}
