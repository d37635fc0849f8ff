//! The same body read by others: the least that can be done with it, what one writes first, and what is published.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use hookwatch::domain::observe::snapshot::Family;
use prost::Message;

/// The limit: finds each line and decides by its name whether it is kept, and does nothing with those that are.
pub fn line_scan(body: &[u8]) -> usize {
    let (mut begin, mut kept) = (0, 0);
    for end in memchr::memchr_iter(b'\n', body) {
        let line = &body[begin..end];
        begin = end + 1;
        kept += usize::from(is_kept(line));
    }
    kept
}

/// Whether hookwatch's own reader keeps the line; by the same steps, so that only the rest of the work is compared.
fn is_kept(line: &[u8]) -> bool {
    const WORDS: [&[u8]; 4] = [b"apiserver_", b"etcd_", b"process_", b"aggregator_unavailable_"];
    if !WORDS.iter().any(|word| line.starts_with(word)) {
        return false;
    }
    let end = memchr::memchr2(b'{', b' ', line).unwrap_or(line.len());
    std::str::from_utf8(&line[..end]).is_ok_and(|name| Family::of_series(name).is_some())
}

/// Whether anything is kept of the family that the line is of, in either format: of a histogram that is kept its buckets are
/// skipped, and its series are not.
fn is_of_kept_family(line: &str) -> bool {
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    let (name, bare) = (&line[..end], ["_bucket", "_sum", "_count"]);
    let bare = bare.iter().find_map(|part| name.strip_suffix(part));
    [Some(name), bare]
        .into_iter()
        .flatten()
        .any(|name| Family::of_base(name).is_some())
}

/// What one writes first: every line split, every label kept until the sample has been looked at. Escapes are not
/// even known to it.
pub fn naive(text: &str) -> f64 {
    let mut total = 0.0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels: HashMap<String, String> = labels
            .trim_end_matches('}')
            .split("\",")
            .filter_map(|label| label.split_once("=\""))
            .map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned()))
            .collect();
        let value: f64 = value.parse().unwrap_or(0.0);
        if name.ends_with("_count") && !black_box(labels).is_empty() {
            total += value;
        }
    }
    total
}

/// The crate prometheus-parse, which keeps every sample.
pub fn prometheus_parse(text: &str) -> usize {
    let lines = text.lines().map(|line| Ok(line.to_owned()));
    prometheus_parse::Scrape::parse(lines).map_or(0, |scrape| scrape.samples.len())
}

/// `promtool check metrics`: the parser of text of Prometheus' client library in Go (expfmt), which keeps every sample, and the lints.
/// A Prometheus server has another parser, which is not measured.
///
/// # Errors
/// When it does not start, or finds the body to be no exposition.
pub fn promtool(binary: &Path, text: &str) -> anyhow::Result<()> {
    let mut child = Command::new(binary)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("starting promtool")?;
    let mut stdin = child.stdin.take().context("its input")?;
    stdin.write_all(text.as_bytes())?;
    drop(stdin);
    let status = child.wait()?;
    // 3 says that it would name some metrics otherwise.
    anyhow::ensure!(matches!(status.code(), Some(0 | 3)), "promtool: {status}");
    Ok(())
}

/// All messages decoded by prost, as a program with generated code does it.
///
/// # Errors
/// When the body is no row of messages.
pub fn prost_decode(mut body: &[u8]) -> anyhow::Result<usize> {
    let mut metrics = 0;
    while !body.is_empty() {
        let family = MetricFamily::decode_length_delimited(&mut body)?;
        metrics += black_box(&family).metric.len();
    }
    Ok(metrics)
}

/// `io.prometheus.client.MetricFamily`, as far as an API server fills it.
#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Value>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Value>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    bound: f64,
}

/// A scrape of a real API server made about this large: further resources, each with the series that a resource has, as in a
/// cluster with more CustomResourceDefinitions. With `only_skipped`, only families of which hookwatch keeps nothing.
pub fn grown(scrape: &str, bytes: usize, only_skipped: bool) -> String {
    let grows = |line: &str| {
        let is_of_resource = line.contains("resource=\"") && !line.starts_with('#');
        is_of_resource && !(only_skipped && is_of_kept_family(line))
    };
    let growing: usize = scrape.lines().filter(|line| grows(line)).map(str::len).sum();
    let copies = bytes.saturating_sub(scrape.len()).div_ceil(growing.max(1));
    let mut grown = String::with_capacity(bytes + bytes / 8);
    let lines: Vec<&str> = scrape.lines().collect();
    // A family's series stay together.
    for family in lines.chunk_by(|_, next| !next.starts_with("# HELP")) {
        for copy in 0..=copies {
            for line in family.iter().filter(|line| copy == 0 || grows(line)) {
                grown.push_str(&of_copy(line, copy));
                grown.push('\n');
            }
        }
    }
    grown
}

fn of_copy(line: &str, copy: usize) -> Cow<'_, str> {
    if copy == 0 {
        return line.into();
    }
    line.replacen("resource=\"", &format!("resource=\"c{copy:03}-"), 1)
        .into()
}
