//! Allocations while reading a body, counted by Valgrind's DHAT in a child process that gets the body in pieces.

use std::io::Read;
use std::process::{Command, Stdio};

use anyhow::Context;
use hookwatch::domain::observe::exposition::Exposition;
use hookwatch::domain::observe::exposition::protobuf::ProtobufExposition;

use crate::document::{Section, Table};
use crate::exposition::CHUNK;
use crate::{metric_family, peers, tools};

/// The body sizes that are compared, in bytes.
const SIZES: [usize; 2] = [6_000_000, 60_000_000];
const QUICK: [usize; 2] = [3_000_000, 12_000_000];

/// Allocations of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Heap {
    /// Number of allocations over the whole run.
    blocks: u64,
    /// Bytes allocated at the peak.
    peak: u64,
}

/// The child process that is measured: reads its input in this format.
///
/// # Errors
/// When the input breaks off.
pub fn child(format: &str) -> anyhow::Result<()> {
    let (mut text, mut protobuf) = (Exposition::new(), ProtobufExposition::new());
    let mut chunk = [0; CHUNK];
    let mut input = std::io::stdin().lock();
    loop {
        let read = input.read(&mut chunk)?;
        match format {
            _ if read == 0 => break,
            "text" => text.feed(&chunk[..read]),
            _ => protobuf.feed(&chunk[..read]),
        }
    }
    let kept = text.finish().0.writes.len() + protobuf.finish().0.writes.len();
    anyhow::ensure!(kept > 0, "nothing was kept");
    Ok(())
}

/// Adds the allocations for both sizes to the section.
///
/// # Errors
/// When a body cannot be created, or Valgrind's output cannot be read.
pub fn measure(section: &mut Section, real: &str, quick: bool) -> anyhow::Result<()> {
    if tools::find("valgrind").is_none() {
        section.skip("Allocations", "there is no valgrind on this machine");
        return Ok(());
    }
    let mut table = Table::new(&[
        "Reader",
        "Skipped lines more",
        "Allocations",
        "Peak of the heap, bytes",
    ]);
    let mut found = Vec::new();
    for format in ["text", "protobuf"] {
        for size in if quick { QUICK } else { SIZES } {
            let body = peers::grown(real, size, true);
            let skipped = body.lines().count() - real.lines().count();
            let body = match format {
                "text" => body.into_bytes(),
                _ => metric_family::encode(&body),
            };
            let heap = allocated(format, &body)?;
            let megabytes = body.len() as f64 / 1e6;
            table.row(&[
                format!("{format}, {megabytes:.1} MB"),
                skipped.to_string(),
                heap.blocks.to_string(),
                heap.peak.to_string(),
            ]);
            found.push(heap);
        }
    }
    section.say(
        "The same scrape with only those families repeated of which hookwatch keeps nothing, read by a process of its own under Valgrind's DHAT. \
         Allocations and peak are of the whole process, its start included; the order of a hash map may move them by a \
         few.",
    );
    section.table(table);
    let same = |pair: &[Heap]| {
        pair[0].peak.abs_diff(pair[1].peak) < 4_096 && pair[0].blocks.abs_diff(pair[1].blocks) < 10
    };
    let holds = found.chunks(2).all(same);
    section.verdict(
        "no allocation per line skipped, and memory independent of the body",
        holds,
    );
    Ok(())
}

fn allocated(format: &str, body: &[u8]) -> anyhow::Result<Heap> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("body");
    std::fs::write(&path, body)?;
    let output = Command::new("valgrind")
        .args(["--tool=dhat", "--dhat-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["--read", format])
        .stdin(Stdio::from(std::fs::File::open(&path)?))
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "valgrind: {said}");
    let line = |name: &str| {
        said.lines()
            .find_map(|line| line.split_once(name))
            .map(|(_, rest)| rest)
    };
    let numbers = |name: &str| -> anyhow::Result<Vec<u64>> {
        let line = line(name).with_context(|| format!("no {name} in: {said}"))?;
        let digits = line.replace(',', "");
        let numbers = digits
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok());
        Ok(numbers.collect())
    };
    let (total, peak) = (numbers("Total:")?, numbers("At t-gmax:")?);
    Ok(Heap {
        blocks: *total.get(1).context("blocks")?,
        peak: *peak.first().context("bytes")?,
    })
}
