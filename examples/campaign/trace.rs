//! `campaign trace`: writes every change of a verdict and every change by the breaker to one file.
//!
//! The same build and arguments give the same file, whatever the number of threads. Its first line has the seed, the
//! breaker and the draws. A block for each incident, quiet hour, recording and folder of scrapes follows. The last line
//! is [`END`]; a file without it was cut off.

mod figures;
mod said;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use hookwatch::app::replay::{replay_scrapes_with, replay_with};
use hookwatch::domain::time::Time;
use hookwatch::io::recorder::part_of;

use crate::breaking::Farthest;
use crate::incident::Incident;
use crate::incident::draw::{self, Draws};
use crate::play::{Manner, play_with};
use crate::score::score;
use crate::{QUIET, hours, run};
pub use figures::Figures;
use said::Scribe;
pub use said::{is_bypass, rank};

/// The last line of a complete trace.
pub const END: &str = "# end";

/// Arguments of `trace`.
#[derive(Debug, clap::Args)]
pub struct TraceArguments {
    /// File to write, compressed when its name ends in .gz
    #[arg(long, value_name = "FILE")]
    pub into: PathBuf,
    /// How many incidents
    #[arg(long, default_value_t = 0)]
    pub incidents: u64,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What to draw incidents from
    #[arg(long, value_enum, default_value_t = Draws::Usual)]
    pub draws: Draws,
    /// Turn the breaker on, up to this rung
    #[arg(long, value_enum)]
    pub breaker: Option<Farthest>,
    /// Simulated days without a fault
    #[arg(long, default_value_t = 0.0)]
    pub quiet_days: f64,
    /// Recordings of the daemon: each folder is one, or contains one per subfolder
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub recordings: Vec<PathBuf>,
    /// Folders with scrapes named `*_<unix-ms>.prom[.gz]`, or with such folders inside
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub scrapes: Vec<PathBuf>,
    /// Threads; 0 for as many as there are cores
    #[arg(long, default_value_t = 0)]
    pub jobs: usize,
    /// Also write the accuracy over all incidents, as JSON
    #[arg(long, value_name = "FILE", hide = true)]
    pub figures: Option<PathBuf>,
}

/// The source of a block.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    Incident(u64),
    Quiet(u64),
    Recording(String, PathBuf),
    Scrapes(String, PathBuf),
}

/// Creates the trace and writes it.
///
/// # Errors
/// When a folder cannot be read or replayed or contains nothing to replay, or when the file cannot be written.
pub fn write(arguments: &TraceArguments) -> anyhow::Result<()> {
    let sources = sources(arguments)?;
    let compressed = arguments.into.extension().is_some_and(|ending| ending == "gz");
    // Each block is compressed separately: concatenated gzip files are a valid gzip file.
    let pack = |text: &str| -> anyhow::Result<Vec<u8>> {
        if !compressed {
            return Ok(text.as_bytes().to_vec());
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes())?;
        Ok(encoder.finish()?)
    };
    let blocks = run(arguments.jobs, sources.len() as u64, "blocks", |index| {
        let (text, figures) = block(&sources[index as usize], arguments)?;
        anyhow::Ok((pack(&text)?, figures))
    });
    if blocks.len() != sources.len() {
        bail!(
            "{} of {} blocks are missing: a thread died",
            sources.len() - blocks.len(),
            sources.len()
        );
    }
    let breaker = arguments
        .breaker
        .map_or_else(|| "off".to_owned(), |breaker| format!("{breaker:?}"));
    let draws = match arguments.draws {
        Draws::Usual => "",
        Draws::Life => ", draws of life",
    };
    let mut content = pack(&format!("# seed {}, breaker {breaker}{draws}\n", arguments.seed))?;
    let mut figures = Figures::default();
    for block in blocks {
        let (mut text, of_it) = block?;
        content.append(&mut text);
        figures.add(&of_it);
    }
    content.append(&mut pack(&format!("{END}\n"))?);
    let put = |path: &Path, content: Vec<u8>| {
        fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &arguments.figures {
        put(path, serde_json::to_vec(&figures)?)?;
    }
    put(&arguments.into, content)
}

fn sources(arguments: &TraceArguments) -> anyhow::Result<Vec<Source>> {
    let mut sources: Vec<Source> = (0..arguments.incidents).map(Source::Incident).collect();
    sources.extend((0..hours(arguments.quiet_days)).map(Source::Quiet));
    let recordings = named(&arguments.recordings, |name| part_of(name).is_some())?;
    sources.extend(
        recordings
            .into_iter()
            .map(|(name, path)| Source::Recording(name, path)),
    );
    let scrapes = named(&arguments.scrapes, is_scrape)?;
    sources.extend(
        scrapes
            .into_iter()
            .map(|(name, path)| Source::Scrapes(name, path)),
    );
    Ok(sources)
}

fn is_scrape(name: &str) -> bool {
    name.strip_suffix(".gz").unwrap_or(name).ends_with(".prom")
}

/// The folders among `given` and their subfolders that contain a file for which `is_one` holds, with their names in the
/// trace: the folder's name, or `{folder}/{subfolder}`.
fn named(given: &[PathBuf], is_one: impl Fn(&str) -> bool) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for folder in given {
        let whole = folder
            .canonicalize()
            .with_context(|| format!("cannot read {}", folder.display()))?;
        let name = last(&whole);
        let before = found.len();
        let (mut is_it, mut inner) = (false, Vec::new());
        for path in entries(&whole)? {
            if path.is_dir() {
                inner.push(path);
            } else {
                is_it |= is_one(&last(&path));
            }
        }
        for path in inner {
            if entries(&path)?.iter().any(|entry| is_one(&last(entry))) {
                found.push((format!("{name}/{}", last(&path)), path));
            }
        }
        if is_it {
            found.push((name, whole));
        }
        if found.len() == before {
            bail!("{} holds nothing to replay", folder.display());
        }
    }
    found.sort();
    if let Some(twice) = found.windows(2).find(|two| two[0].0 == two[1].0) {
        bail!(
            "{} and {} would have the same name",
            twice[0].1.display(),
            twice[1].1.display()
        );
    }
    Ok(found)
}

fn last(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    paths
        .collect::<std::io::Result<_>>()
        .with_context(|| format!("cannot list {}", folder.display()))
}

fn block(source: &Source, arguments: &TraceArguments) -> anyhow::Result<(String, Figures)> {
    let mut figures = Figures::default();
    let text = match source {
        Source::Incident(index) => {
            let incident = arguments.draws.incident(arguments.seed, *index);
            let text = played(*index, &incident, arguments.breaker, &mut figures);
            format!("incident {index}\n{text}")
        }
        Source::Quiet(index) => {
            let incident = draw::quiet(arguments.seed, *index, QUIET);
            let text = played(*index, &incident, arguments.breaker, &mut figures);
            format!("quiet {index}\n{text}")
        }
        Source::Recording(name, path) => {
            let mut scribe = Scribe::default();
            let replay = replay_with(path, &mut |at, assessment| scribe.note(micros(at), assessment))?;
            for complaint in replay.complaints {
                eprintln!("{name}: {complaint}");
            }
            format!("recording {name}\n{}", scribe.text())
        }
        Source::Scrapes(name, path) => {
            let mut scribe = Scribe::default();
            replay_scrapes_with(path, &mut |at, assessment| scribe.note(micros(at), assessment))?;
            format!("scrapes {name}\n{}", scribe.text())
        }
    };
    Ok((text, figures))
}

fn micros(at: Time) -> u64 {
    at.unix_millis() * 1_000
}

fn played(index: u64, incident: &Incident, breaker: Option<Farthest>, figures: &mut Figures) -> String {
    let mut scribe = Scribe::default();
    let manner = Manner {
        breaker,
        ..Manner::default()
    };
    let played = play_with(incident, manner, &mut |at, assessment| {
        scribe.note(at, assessment)
    });
    figures.add(&Figures::of(&score(index, incident, &played)));
    for act in played.broken.iter().flat_map(|broken| &broken.acts) {
        scribe.act(act, &incident.cluster.hooks[act.hook].id);
    }
    scribe.text()
}

#[cfg(test)]
mod tests;
