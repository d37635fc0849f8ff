//! Reads a trace block by block.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use flate2::read::MultiGzDecoder;

use super::Options;
use crate::model::as_seconds;
use crate::trace::END;

/// The kinds of blocks, in the order in which a trace has them.
pub const KINDS: [&str; 4] = ["incident", "quiet", "recording", "scrapes"];

/// The name of a block. Its order is that of the blocks in a trace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// Index into [`KINDS`].
    pub kind: usize,
    number: u64,
    name: String,
}

impl Name {
    fn parse(line: &str) -> anyhow::Result<Self> {
        let (kind, name) = line.split_once(' ').unwrap_or((line, ""));
        let Some(kind) = KINDS.iter().position(|known| *known == kind) else {
            bail!("{line:?} begins no block");
        };
        Ok(Self {
            kind,
            number: name.parse().unwrap_or(0),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", KINDS[self.kind], self.name)
    }
}

#[derive(Debug)]
pub struct Block {
    pub name: Name,
    pub lines: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Instant in microseconds.
    pub at: u64,
    /// `hook`, `plane` or `act`.
    pub kind: &'a str,
    pub whose: &'a str,
    pub what: Vec<&'a str>,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = as_seconds(self.at);
        write!(
            f,
            "{seconds:.6} s  {} {}  {}",
            self.kind,
            self.whose,
            self.what.join(" ")
        )
    }
}

impl Block {
    /// The lines to compare. With `ignore_confidence`, the confidence and the lines in which nothing else changes are left out.
    pub fn parsed(&self, options: Options) -> anyhow::Result<Vec<Line<'_>>> {
        let mut last = BTreeMap::new();
        let mut parsed = Vec::new();
        for line in &self.lines {
            let mut fields = line.split('\t');
            let at = fields.next().and_then(|at| at.parse().ok());
            let (Some(at), Some(kind), Some(whose)) = (at, fields.next(), fields.next()) else {
                bail!("{}: {line:?} is no line of a trace", self.name);
            };
            let mut what: Vec<&str> = fields.collect();
            if options.ignore_confidence && kind != "act" {
                what.pop();
                if last.insert((kind, whose), what.clone()).as_ref() == Some(&what) {
                    continue;
                }
            }
            parsed.push(Line {
                at,
                kind,
                whose,
                what,
            });
        }
        Ok(parsed)
    }
}

pub struct Blocks {
    path: PathBuf,
    lines: std::io::Lines<Box<dyn BufRead>>,
    made_with: String,
    begun: Option<Name>,
}

impl Blocks {
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let about = || format!("cannot read {}", path.display());
        let mut file = BufReader::new(File::open(path).with_context(about)?);
        let compressed = file.fill_buf().with_context(about)?.starts_with(&[0x1f, 0x8b]);
        let content: Box<dyn BufRead> = if compressed {
            Box::new(BufReader::new(MultiGzDecoder::new(file)))
        } else {
            Box::new(file)
        };
        let mut lines = content.lines();
        match lines.next().transpose().with_context(about)? {
            Some(made_with) if made_with.starts_with("# ") => Ok(Self {
                path: path.to_owned(),
                lines,
                made_with,
                begun: None,
            }),
            _ => bail!("{} is no trace", path.display()),
        }
    }

    /// The first line of the trace: seed, breaker and draws.
    pub fn made_with(&self) -> &str {
        &self.made_with
    }

    pub fn next(&mut self) -> anyhow::Result<Option<Block>> {
        let mut lines = Vec::new();
        loop {
            let line = self.lines.next().transpose();
            let line = line.with_context(|| format!("cannot read {}", self.path.display()))?;
            let Some(line) = line else {
                bail!("{} is cut off", self.path.display());
            };
            if line.starts_with(|first: char| first.is_ascii_digit()) {
                lines.push(line);
                continue;
            }
            if line == END {
                // Further calls read this line again and return None.
                self.lines = (Box::new(END.as_bytes()) as Box<dyn BufRead>).lines();
                return Ok(self.begun.take().map(|name| Block { name, lines }));
            }
            if let Some(name) = self.begun.replace(Name::parse(&line)?) {
                return Ok(Some(Block { name, lines }));
            }
        }
    }
}
