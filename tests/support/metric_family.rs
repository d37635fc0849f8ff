//! The text format made into the binary one: the other half of what the reader under test does, written
//! without it.

#![allow(
    clippy::expect_used,
    reason = "a test fails by panicking, and helpers of an integration test count as code"
)]

use std::collections::HashMap;

/// Encodes a text exposition as delimited `MetricFamily` messages, families and metrics in the order of the
/// text. Series become histograms and counters by the endings of their names, as those of an API server do.
pub fn encode(text: &str) -> Vec<u8> {
    let mut families: Vec<Family> = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (name, labels, value) = split(line);
        let (base, part) = part_of(name);
        if families.last().is_none_or(|family| family.name != base) {
            families.push(Family {
                name: base,
                metrics: Vec::new(),
                by_labels: HashMap::new(),
            });
        }
        let family = families.last_mut().expect("just pushed");
        // `le` belongs to the bucket and comes last.
        let (own, le) = labels.split_once("le=\"").map_or((labels, None), |(own, le)| {
            (own.trim_end_matches(','), le.strip_suffix('"'))
        });
        let at = *family.by_labels.entry(own).or_insert_with(|| {
            family.metrics.push(Metric {
                labels: own,
                ..Metric::default()
            });
            family.metrics.len() - 1
        });
        let metric = &mut family.metrics[at];
        match part {
            "_sum" => metric.sum = value,
            "_count" => metric.count = value,
            "_bucket" => metric
                .buckets
                .push((number(le.expect("a bucket's bound")), value)),
            _ => metric.whole = Some(value),
        }
    }
    let mut body = Vec::new();
    for family in &families {
        let message = family.encode();
        varint(&mut body, message.len() as u64);
        body.extend(message);
    }
    body
}

/// The field of `Metric` that holds a counter.
const COUNTER: u64 = 3;
/// When a series was made, which an API server adds to each: a `Timestamp` of seconds and nanoseconds.
const CREATED: &[u8] = b"\x08\xf1\xb7\x84\xd8\x06\x10\xa4\xa6\xb4\x06";

struct Family<'text> {
    name: &'text str,
    metrics: Vec<Metric<'text>>,
    by_labels: HashMap<&'text str, usize>,
}

#[derive(Default)]
struct Metric<'text> {
    labels: &'text str,
    whole: Option<f64>,
    sum: f64,
    count: f64,
    buckets: Vec<(f64, f64)>,
}

impl Family<'_> {
    fn encode(&self) -> Vec<u8> {
        let is_histogram = self.metrics.iter().all(|metric| metric.whole.is_none());
        let is_counter = self.name.ends_with("_total") || self.name.ends_with("_count");
        let (kind, field) = match (is_histogram, is_counter) {
            (true, _) => (4, 7),
            (false, true) => (0, COUNTER),
            (false, false) => (1, 2),
        };
        let mut message = Vec::new();
        bytes(&mut message, 1, self.name.as_bytes());
        bytes(&mut message, 2, b"[STABLE] What an API server says of it.");
        tagged(&mut message, 3, 0, |out| varint(out, kind));
        for metric in &self.metrics {
            let mut inner = Vec::new();
            for (name, value) in pairs(metric.labels) {
                let mut pair = Vec::new();
                bytes(&mut pair, 1, name.as_bytes());
                bytes(&mut pair, 2, value.as_bytes());
                bytes(&mut inner, 1, &pair);
            }
            bytes(&mut inner, field, &metric.value(field));
            bytes(&mut message, 4, &inner);
        }
        message
    }
}

impl Metric<'_> {
    fn value(&self, kind: u64) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(whole) = self.whole {
            double(&mut out, 1, whole);
            if kind == COUNTER {
                bytes(&mut out, 3, CREATED);
            }
            return out;
        }
        count(&mut out, 1, 4, self.count);
        double(&mut out, 2, self.sum);
        for (bound, observed) in &self.buckets {
            let mut bucket = Vec::new();
            count(&mut bucket, 1, 4, *observed);
            double(&mut bucket, 2, *bound);
            bytes(&mut out, 3, &bucket);
        }
        bytes(&mut out, 15, CREATED);
        out
    }
}

fn part_of(name: &str) -> (&str, &str) {
    let is_counter = name.ends_with("_rejection_count") || name.ends_with("_fail_open_count");
    ["_sum", "_count", "_bucket"]
        .into_iter()
        .filter(|_| !is_counter)
        .find_map(|part| Some((name.strip_suffix(part)?, part)))
        .unwrap_or((name, ""))
}

/// Name, what is between the braces, value.
fn split(line: &str) -> (&str, &str, f64) {
    let (series, value) = line.rsplit_once(' ').expect("a sample");
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    (name, labels.strip_suffix('}').expect("a brace"), number(value))
}

fn number(text: &str) -> f64 {
    text.parse().expect("a number")
}

/// Labels with their values as they are meant.
fn pairs(mut labels: &str) -> Vec<(&str, String)> {
    let mut pairs = Vec::new();
    while let Some((name, rest)) = labels.split_once("=\"") {
        let (mut value, mut characters) = (String::new(), rest.chars());
        loop {
            match characters.next().expect("a closing quote") {
                '"' => break,
                '\\' => value.push(match characters.next().expect("what is escaped") {
                    'n' => '\n',
                    other => other,
                }),
                other => value.push(other),
            }
        }
        pairs.push((name, value));
        labels = characters.as_str().trim_start_matches(',');
    }
    pairs
}

fn tagged(out: &mut Vec<u8>, field: u64, shape: u64, content: impl FnOnce(&mut Vec<u8>)) {
    varint(out, field << 3 | shape);
    content(out);
}

fn bytes(out: &mut Vec<u8>, field: u64, content: &[u8]) {
    tagged(out, field, 2, |out| {
        varint(out, content.len() as u64);
        out.extend_from_slice(content);
    });
}

fn double(out: &mut Vec<u8>, field: u64, value: f64) {
    tagged(out, field, 1, |out| out.extend(value.to_le_bytes()));
}

/// A whole count in one field, a fractional one in the other.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are small and positive"
)]
fn count(out: &mut Vec<u8>, whole: u64, fractional: u64, value: f64) {
    if value.fract() == 0.0 {
        tagged(out, whole, 0, |out| varint(out, value as u64));
    } else {
        double(out, fractional, value);
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 & 0x7f | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
