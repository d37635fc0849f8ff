//! Reads recordings and saved scrapes as untrusted input, within bounds.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use flate2::read::MultiGzDecoder;

use crate::domain::observe::exposition::Exposition;
use crate::domain::observe::snapshot::{Scrape, ScrapeFailure, ScrapeFailureReason};
use crate::domain::recording::{RecordingLine, Unplayable};
use crate::domain::time::Time;
use crate::io::recorder::part_of;

/// Most bytes that are read of a scrape, after decompression.
const MAX_FILE: u64 = 1 << 30;
/// Most bytes that are read as one line: ten times an inventory at its bounds.
const MAX_LINE: u64 = 1 << 28;
/// How every gzip file begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A file's content, decompressed if it is compressed; the name does not matter.
pub(super) fn open(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    decompressed(BufReader::new(file)).with_context(|| format!("cannot read {}", path.display()))
}

pub(super) fn decompressed<'a>(mut content: impl BufRead + 'a) -> std::io::Result<Box<dyn BufRead + 'a>> {
    Ok(if content.fill_buf()?.starts_with(&GZIP) {
        Box::new(BufReader::new(MultiGzDecoder::new(content)))
    } else {
        Box::new(content)
    })
}

/// The parts of a recording, the earliest first.
pub(super) fn parts(recording: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let about = fs::metadata(recording).with_context(|| format!("cannot read {}", recording.display()))?;
    if !about.is_dir() {
        return Ok(vec![recording.to_owned()]);
    }
    let entries =
        fs::read_dir(recording).with_context(|| format!("cannot read the folder {}", recording.display()))?;
    let mut parts = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", recording.display()))?;
        if let Some(part) = entry.file_name().to_str().and_then(part_of) {
            parts.push((part, entry.path()));
        }
    }
    if parts.is_empty() {
        bail!(
            "{} holds no recording of hookwatch; a folder of scrapes is replayed with --scrapes",
            recording.display()
        );
    }
    parts.sort();
    Ok(parts.into_iter().map(|(_, path)| path).collect())
}

/// Passes every line of a part to `play`. Damaged lines are left out and reported in `complaints`, where the part is called
/// `path`.
pub(super) fn lines(
    mut reader: impl BufRead,
    path: &Path,
    complaints: &mut Vec<String>,
    mut play: impl FnMut(RecordingLine) -> Result<(), Unplayable>,
) -> anyhow::Result<()> {
    let mut line = Vec::new();
    let (mut number, mut damaged) = (0_u64, 0_u64);
    loop {
        line.clear();
        number += 1;
        match (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            // Without a header line nothing in this part can be played. The other parts are read all the same.
            Err(error) if number == 1 && error.kind() == ErrorKind::UnexpectedEof => {
                complaints.push(format!(
                    "{} ends before its first line does: the daemon that wrote it was killed",
                    path.display()
                ));
                break;
            }
            Err(error) if number > 1 && is_cut(&error) => {
                complaints.push(format!(
                    "{} ends in the middle of line {number}: the daemon that wrote it was killed, or writes it still",
                    path.display()
                ));
                break;
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
        match serde_json::from_slice(&line) {
            Ok(parsed) => play(parsed).with_context(|| format!("cannot replay {}", path.display()))?,
            Err(_) if number == 1 => {
                return Err(Unplayable::NoHeader)
                    .with_context(|| format!("cannot replay {}", path.display()));
            }
            Err(error) => {
                damaged += 1;
                if damaged == 1 {
                    complaints.push(format!("{}: line {number} is damaged: {error}", path.display()));
                }
            }
        }
    }
    if damaged > 1 {
        complaints.push(format!("{}: {damaged} lines are damaged", path.display()));
    }
    Ok(())
}

/// Whether an error is that of compressed content which ends too early, or in which bytes are wrong.
fn is_cut(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::InvalidInput | ErrorKind::InvalidData
    )
}

/// The scrapes of a folder with their instants, the earliest first.
pub(super) fn scrapes_in(folder: &Path) -> anyhow::Result<Vec<(Time, PathBuf)>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry
            .with_context(|| format!("cannot list {}", folder.display()))?
            .path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let millis = name
            .strip_suffix(".gz")
            .unwrap_or(name)
            .strip_suffix(".prom")
            .and_then(|stem| stem.rsplit('_').next()?.parse().ok());
        if let Some(millis) = millis {
            files.push((Time::from_unix_millis(millis), path));
        }
    }
    if files.is_empty() {
        bail!(
            "{} holds no scrape: name the files like 0001_1795219862156.prom",
            folder.display()
        );
    }
    files.sort();
    Ok(files)
}

/// Reads one scrape as it would have been read from an API server. Damaged compression makes it a failed one.
pub(super) fn scrape(path: &Path, at: Time) -> anyhow::Result<Result<Scrape, ScrapeFailure>> {
    let target = "recording".to_owned();
    let mut body = open(path)?.take(MAX_FILE);
    let mut exposition = Exposition::new();
    let (mut buffer, mut bytes) = (vec![0; 64 * 1024], 0);
    loop {
        let read = match body.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if is_cut(&error) => {
                return Ok(Err(ScrapeFailure {
                    target,
                    at,
                    reason: ScrapeFailureReason::Truncated,
                    why: format!("{} is damaged after {bytes} bytes: {error}", path.display()),
                }));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        if read == 0 {
            break;
        }
        bytes += read as u64;
        exposition.feed(&buffer[..read]);
    }
    let (snapshot, complaints) = exposition.finish();
    Ok(Ok(Scrape {
        target,
        at,
        took: Duration::ZERO,
        bytes,
        snapshot,
        complaints,
    }))
}
