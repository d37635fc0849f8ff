//! How fast an API server's metrics are read: our readers of both formats against a plain parser that takes
//! every sample, on the same registry in one run.
//!
//! `cargo bench --bench exposition`. The ratios at the end are what to compare between machines.

use std::collections::HashMap;
use std::fmt::Write;
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use divan::Bencher;
use divan::counter::BytesCount;
use hookwatch::domain::exposition::Exposition;
use hookwatch::domain::exposition::protobuf::ProtobufExposition;
use hookwatch::domain::snapshot::Snapshot;

#[path = "../tests/support/metric_family.rs"]
mod metric_family;

/// As a connection hands a body out.
const CHUNK: usize = 16 * 1024;
/// Runs of each for the ratios, taking turns so that a busy moment of the machine meets all.
const ROUNDS: usize = 20;

static TEXT: LazyLock<String> = LazyLock::new(|| registry(if measures() { 10_000_000 } else { 1 }));
static PROTOBUF: LazyLock<Vec<u8>> = LazyLock::new(|| metric_family::encode(&TEXT));

fn main() {
    let (from_text, from_protobuf) = (text(), protobuf());
    assert!(!from_text.writes.is_empty() && !from_text.hooks.is_empty());
    // Not assert_eq: what differs would be printed whole.
    assert!(from_text == from_protobuf, "both readers bring in the same");
    divan::main();
    if measures() {
        ratios();
    }
}

/// `cargo bench` says so to the program; `cargo test` only wants to see it run.
fn measures() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

#[divan::bench(sample_count = 50, sample_size = 1)]
fn our_text_reader(bencher: Bencher) {
    bencher.counter(BytesCount::of_str(&*TEXT)).bench(text);
}

#[divan::bench(sample_count = 50, sample_size = 1)]
fn our_protobuf_reader(bencher: Bencher) {
    bencher.counter(BytesCount::of_slice(&*PROTOBUF)).bench(protobuf);
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn naive_full_parse(bencher: Bencher) {
    bencher.counter(BytesCount::of_str(&*TEXT)).bench(naive);
}

fn text() -> Snapshot {
    let mut exposition = Exposition::new();
    TEXT.as_bytes()
        .chunks(CHUNK)
        .for_each(|chunk| exposition.feed(chunk));
    exposition.finish().0
}

fn protobuf() -> Snapshot {
    let mut exposition = ProtobufExposition::new();
    PROTOBUF.chunks(CHUNK).for_each(|chunk| exposition.feed(chunk));
    exposition.finish().0
}

/// What one writes first: every line split, every label kept until the sample has been looked at. Escapes,
/// which this body does not have, are not even known to it.
fn naive() -> f64 {
    let mut total = 0.0;
    for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
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

fn ratios() {
    let mut took: [Vec<Duration>; 3] = Default::default();
    for _ in 0..ROUNDS {
        took[0].push(time(naive));
        took[1].push(time(text));
        took[2].push(time(protobuf));
    }
    // What else the machine does only ever adds.
    let [naive, text, protobuf] = took.map(|took| took.into_iter().min().unwrap_or_default().as_secs_f64());
    let (text_mb, protobuf_mb) = (megabytes(TEXT.len()), megabytes(PROTOBUF.len()));
    println!(
        "\nbest of {ROUNDS} rounds; one registry, {text_mb:.2} MB of text or {protobuf_mb:.2} MB of protobuf"
    );
    for (what, seconds, size) in [
        ("naive full parse", naive, text_mb),
        ("our text reader", text, text_mb),
        ("our protobuf reader", protobuf, protobuf_mb),
    ] {
        let (millis, speed, scrapes) = (seconds * 1e3, size / seconds, 1.0 / seconds);
        println!("{what:<20} {millis:>8.2} ms {speed:>8.0} MB/s {scrapes:>8.0} scrapes/s");
    }
    println!("text reader : naive parse    = {:6.1}", naive / text);
    println!("protobuf reader : naive parse = {:5.1}", naive / protobuf);
    println!("protobuf reader : text reader = {:5.1}", text / protobuf);
    println!("text size : protobuf size     = {:5.1}", text_mb / protobuf_mb);
}

fn time<T>(work: impl Fn() -> T) -> Duration {
    let begun = Instant::now();
    black_box(work());
    begun.elapsed()
}

#[expect(clippy::cast_precision_loss, reason = "a body is far below 2^52 bytes")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// A family: its name, its labels (`#` stands for a number, `@` for a verb), how many buckets it has besides
/// the one without a bound (none: it is a counter or gauge), and how many series to a unit.
type Family = (&'static str, &'static str, usize, usize);

/// The largest families of an API server 1.36 and the small ones that are wanted, in shares like its own: half
/// of the bytes are of histograms that are wanted for their sums and counts.
const FAMILIES: &[Family] = &[
    (
        "apiserver_admission_controller_admission_duration_seconds",
        r##"name="Plugin#",operation="@",rejected="false",type="validate""##,
        5,
        20,
    ),
    (
        "apiserver_admission_webhook_admission_duration_seconds",
        r##"name="hook-#.example.com",operation="CREATE",rejected="false",type="validating""##,
        5,
        2,
    ),
    (
        "apiserver_admission_webhook_fail_open_count",
        r##"name="hook-#.example.com",type="validating""##,
        0,
        2,
    ),
    (
        "apiserver_admission_webhook_request_total",
        r##"code="200",name="hook-#.example.com",operation="CREATE",rejected="false",type="validating""##,
        0,
        2,
    ),
    (
        "apiserver_flowcontrol_priority_level_request_utilization",
        r##"phase="executing",priority_level="level-#""##,
        12,
        8,
    ),
    (
        "apiserver_request_body_size_bytes",
        r##"group="apps",resource="resources#",verb="@""##,
        20,
        12,
    ),
    (
        "apiserver_request_duration_seconds",
        r##"component="apiserver",dry_run="",group="apps.example.com",resource="resources#",scope="resource",subresource="",verb="@",version="v1""##,
        24,
        28,
    ),
    (
        "apiserver_request_sli_duration_seconds",
        r##"component="apiserver",group="apps.example.com",resource="resources#",scope="resource",subresource="",verb="@",version="v1""##,
        21,
        16,
    ),
    (
        "apiserver_request_total",
        r##"code="200",component="apiserver",dry_run="",group="apps.example.com",resource="resources#",scope="resource",subresource="",verb="@",version="v1""##,
        0,
        30,
    ),
    (
        "apiserver_response_sizes",
        r##"component="apiserver",group="apps.example.com",resource="resources#",scope="cluster",subresource="",verb="@",version="v1""##,
        7,
        20,
    ),
    (
        "apiserver_watch_cache_read_wait_seconds",
        r##"group="apps.example.com",resource="resources#""##,
        16,
        20,
    ),
    (
        "apiserver_watch_list_duration_seconds",
        r##"group="apps.example.com",resource="resources#",scope="cluster",version="v1""##,
        10,
        20,
    ),
    (
        "etcd_request_duration_seconds",
        r##"group="apps.example.com",operation="@",resource="resources#""##,
        24,
        56,
    ),
    ("go_goroutines", "", 0, 1),
    (
        "kubernetes_feature_enabled",
        r##"name="Feature#",stage="BETA""##,
        0,
        90,
    ),
    ("process_cpu_seconds_total", "", 0, 1),
    ("process_start_time_seconds", "", 0, 1),
    (
        "workqueue_queue_duration_seconds",
        r##"name="controller_#""##,
        12,
        12,
    ),
];

const VERBS: [&str; 6] = ["GET", "LIST", "POST", "PUT", "PATCH", "DELETE"];

/// The text of a registry that has as many resources as make it about this large.
fn registry(bytes: usize) -> String {
    let one = units(1);
    units(bytes.div_ceil(one.len()))
}

fn units(units: usize) -> String {
    let mut text = String::new();
    for (name, labels, buckets, per_unit) in FAMILIES {
        let kind = if *buckets > 0 { "histogram" } else { "gauge" };
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "# HELP {name} [STABLE] What an API server says of {name}.\n# TYPE {name} {kind}"
        );
        // A family without labels has one series however large the cluster is.
        let series = if labels.is_empty() { 1 } else { per_unit * units };
        for n in 0..series {
            // Every series once: one resource has a series for each verb.
            let number = if labels.contains('@') { n / VERBS.len() } else { n }.to_string();
            let labels = labels.replace('#', &number).replace('@', VERBS[n % VERBS.len()]);
            one_series(&mut text, name, &labels, *buckets, n);
        }
    }
    text
}

fn one_series(text: &mut String, name: &str, labels: &str, buckets: usize, n: usize) {
    let braces = if labels.is_empty() {
        String::new()
    } else {
        format!("{{{labels}}}")
    };
    if buckets == 0 {
        let _ = writeln!(text, "{name}{braces} {}", n * 17);
        return;
    }
    for bucket in 0..buckets {
        let _ = writeln!(
            text,
            "{name}_bucket{{{labels},le=\"0.{bucket:02}5\"}} {}",
            n * bucket
        );
    }
    let count = n * buckets;
    let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "{name}_sum{braces} {count}.{n:06}");
    let _ = writeln!(text, "{name}_count{braces} {count}");
}
