//! How fast hookwatch reads an API server's metrics in both formats, compared with a lower bound and with other parsers.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use hookwatch::domain::observe::exposition::Exposition;
use hookwatch::domain::observe::exposition::protobuf::ProtobufExposition;
use hookwatch::domain::observe::snapshot::Snapshot;

use crate::document::{Section, Table};
use crate::noise::{Samples, Work, in_turn, work};
use crate::{heap, metric_family, peers, tools};

/// Bytes in which the body is fed to the readers, as from a connection.
pub const CHUNK: usize = 16 * 1024;
/// Bytes that the real scrape is grown to.
const BODY: usize = 60_000_000;

/// A scrape of a real kube-apiserver 1.36.2 without summaries, which the tests' protobuf encoder does not support.
///
/// # Errors
/// When the fixture cannot be read.
pub fn scrape() -> anyhow::Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/scrapes/apiserver-1.36.2.prom.gz");
    let file = std::fs::File::open(&path).with_context(|| format!("opening {}", path.display()))?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text)?;
    let types = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" summary"));
    let summaries: Vec<&str> = types.collect();
    let is_of_one = |line: &str| summaries.iter().any(|name| line.contains(name));
    let lines = text.split_inclusive('\n');
    Ok(lines.filter(|line| !is_of_one(line)).collect())
}

pub fn read_text(body: &[u8]) -> Snapshot {
    let mut reader = Exposition::new();
    body.chunks(CHUNK).for_each(|chunk| reader.feed(chunk));
    reader.finish().0
}

pub fn read_protobuf(body: &[u8]) -> Snapshot {
    let mut reader = ProtobufExposition::new();
    body.chunks(CHUNK).for_each(|chunk| reader.feed(chunk));
    reader.finish().0
}

/// Measures every reader.
///
/// # Errors
/// When hookwatch's two readers disagree, or a body cannot be created.
pub fn measure(quick: bool) -> anyhow::Result<Section> {
    let real = scrape()?;
    let agree = read_text(real.as_bytes()) == read_protobuf(&metric_family::encode(&real));
    anyhow::ensure!(agree, "the two readers bring in different things");
    let text = peers::grown(&real, BODY, false);
    let protobuf = metric_family::encode(&text);
    let rounds = if quick { 5 } else { 21 };
    let mut fast: Vec<Work<'_>> = vec![
        work("line scan (the limit)", || peers::line_scan(text.as_bytes())),
        work("hookwatch, text", || read_text(text.as_bytes())),
        work("hookwatch, protobuf", || read_protobuf(&protobuf)),
    ];
    let took = in_turn(rounds, &mut fast);
    drop(fast);
    let mut table = Table::new(&[
        "Reader",
        "CPU, ms",
        "MB/s of its format",
        "Times the text reader's CPU",
    ]);
    let (text_mb, protobuf_mb) = (text.len() as f64 / 1e6, protobuf.len() as f64 / 1e6);
    let mut row = |name: &str, took: &Samples, megabytes: f64, times: Samples| {
        let speed: Samples = std::iter::once(megabytes / took.median()).collect();
        table.row(&[
            name.to_owned(),
            took.times(1e3).to_string(),
            speed.to_string(),
            times.to_string(),
        ]);
    };
    let [limit, ours, binary] = &took[..] else {
        anyhow::bail!("three readers");
    };
    row("line scan (the limit)", limit, text_mb, limit.over(ours));
    row("hookwatch, text", ours, text_mb, ours.over(ours));
    row("hookwatch, protobuf", binary, protobuf_mb, binary.over(ours));
    for (name, megabytes, other) in slow(&real, &text, &protobuf, quick)? {
        // Slow readers are measured separately, each beside a run of ours, so that they do not affect the caches of the fast ones.
        row(name, &other.0, megabytes, other.0.over(&other.1));
    }
    let mut section = Section::new("Reading an API server's metrics");
    section.say(&format!(
        "A scrape of a real kube-apiserver 1.36.2 ({:.1} MB of text) with its resources repeated until it has {text_mb:.1} MB \
         of text; the same as delimited protobuf has {protobuf_mb:.1} MB. hookwatch reads in chunks of {} KiB, as they come. The line \
         scan finds each line and decides by its name whether hookwatch keeps it, and does no more. The others keep every \
         sample.",
        real.len() as f64 / 1e6,
        CHUNK / 1024
    ));
    section.table(table);
    section.goal(
        "line scan / text reader, of the same lines",
        limit.over(ours),
        "0.6 or more",
        |ratio| ratio >= 0.6,
    );
    heap::measure(&mut section, &real, quick)?;
    Ok(section)
}

/// A slow reader's times, and those of the text reader beside it.
type Beside = (Samples, Samples);

fn slow(
    real: &str,
    text: &str,
    protobuf: &[u8],
    quick: bool,
) -> anyhow::Result<Vec<(&'static str, f64, Beside)>> {
    let rounds = if quick { 1 } else { 3 };
    let megabytes = text.len() as f64 / 1e6;
    peers::prost_decode(protobuf)?;
    let promtool = tools::find("promtool");
    let prost = work("prost 0.14, generated messages (Rust)", || {
        peers::prost_decode(protobuf)
    });
    let mut works: Vec<(Work<'_>, f64)> = vec![
        (
            work("every line split, labels in a map", || peers::naive(text)),
            megabytes,
        ),
        (
            work("prometheus-parse 0.2 (Rust)", || peers::prometheus_parse(text)),
            megabytes,
        ),
        (prost, protobuf.len() as f64 / 1e6),
    ];
    if let Some(binary) = &promtool {
        // Check that promtool works.
        peers::promtool(binary, real)?;
        let name = "promtool check metrics (client_golang's parser of text in Go, and lints)";
        works.push((work(name, || peers::promtool(binary, text)), megabytes));
    }
    let measured = works.into_iter().map(|(other, megabytes)| {
        let (name, ours) = (other.0, work("ours", || read_text(text.as_bytes())));
        let took = in_turn(rounds, &mut [other, ours]);
        let [other, ours] = &took[..] else {
            anyhow::bail!("two readers");
        };
        Ok((name, megabytes, (other.clone(), ours.clone())))
    });
    measured.collect()
}
