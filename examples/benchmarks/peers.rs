//! Other readers of the same body, for comparison: a lower bound, a naive parser, and published parsers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use hookwatch::domain::observe::snapshot::Family;
use prost::Message;

/// The lower bound: finds each line and decides by its name whether hookwatch keeps it, and does nothing more.
pub fn line_scan(body: &[u8]) -> usize {
    let (mut begin, mut kept) = (0, 0);
    for end in memchr::memchr_iter(b'\n', body) {
        let line = &body[begin..end];
        begin = end + 1;
        kept += usize::from(is_kept(line));
    }
    kept
}

/// Whether hookwatch's reader keeps the line. It uses the same steps, so that only the rest of the work is compared.
fn is_kept(line: &[u8]) -> bool {
    const WORDS: [&[u8]; 4] = [b"apiserver_", b"etcd_", b"process_", b"aggregator_unavailable_"];
    if !WORDS.iter().any(|word| line.starts_with(word)) {
        return false;
    }
    let end = memchr::memchr2(b'{', b' ', line).unwrap_or(line.len());
    std::str::from_utf8(&line[..end]).is_ok_and(|name| Family::of_series(name).is_some())
}

/// Whether hookwatch keeps anything of the line's family, in either format. (It skips the buckets of a histogram that it
/// keeps, but not the whole family.)
fn is_of_kept_family(line: &str) -> bool {
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    let (name, bare) = (&line[..end], ["_bucket", "_sum", "_count"]);
    let bare = bare.iter().find_map(|part| name.strip_suffix(part));
    [Some(name), bare]
        .into_iter()
        .flatten()
        .any(|name| Family::of_base(name).is_some())
}

/// A naive parser: splits every line and collects every label into a map. It does not handle escapes.
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

/// `promtool check metrics`: the text parser of Prometheus' Go client library (expfmt), which keeps every sample, and lints.
/// A Prometheus server uses another parser, which is not measured.
///
/// # Errors
/// When it does not start, or rejects the body.
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
    // Exit code 3: only lints about metric names.
    anyhow::ensure!(matches!(status.code(), Some(0 | 3)), "promtool: {status}");
    Ok(())
}

/// Decodes all messages with prost, as a program with generated code would.
///
/// # Errors
/// When the body is not a sequence of length-delimited messages.
pub fn prost_decode(mut body: &[u8]) -> anyhow::Result<usize> {
    let mut metrics = 0;
    while !body.is_empty() {
        let family = MetricFamily::decode_length_delimited(&mut body)?;
        metrics += black_box(&family).metric.len();
    }
    Ok(metrics)
}

/// `io.prometheus.client.MetricFamily`, with only the fields that an API server sets.
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

/// Grows a scrape of a real API server to about this size by repeating its series for more resources, as in a cluster with
/// more CustomResourceDefinitions. With `only_skipped`, it repeats only families of which hookwatch keeps nothing.
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
