//! The differences of two traces, counted and displayed.

use std::collections::BTreeMap;
use std::fmt;

use super::blocks::{KINDS, Name};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    Health,
    Cause,
    Effect,
    /// The confidence differs and nothing else.
    Confidence,
    Writes,
    NotAHook,
    PlaneConfidence,
    ActAdded,
    ActMissing,
    ActEarlier,
    ActLater,
    OtherRung,
    /// A bypass that is new or earlier. It is also counted as an act that was added, is earlier or has another rung.
    BypassSooner,
    /// A bypass that exempts more writes. It is also counted as [`Self::OtherRung`].
    BypassFurther,
}

impl Difference {
    const LISTED: [(Self, &str); 12] = [
        (Self::Health, "health"),
        (Self::Cause, "cause"),
        (Self::Effect, "effect"),
        (Self::Confidence, "confidence only"),
        (Self::Writes, "plane: writes"),
        (Self::NotAHook, "plane: not a hook"),
        (Self::PlaneConfidence, "plane: confidence only"),
        (Self::ActAdded, "act added"),
        (Self::ActMissing, "act missing"),
        (Self::ActEarlier, "act earlier"),
        (Self::ActLater, "act later"),
        (Self::OtherRung, "act on another rung"),
    ];
}

/// The number of each difference in one block.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found(BTreeMap<Difference, usize>);

impl Found {
    pub fn add(&mut self, difference: Difference) {
        *self.0.entry(difference).or_default() += 1;
    }
}

/// Counts of blocks of one kind.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    same: usize,
    differ: usize,
    only_before: usize,
    only_after: usize,
}

#[derive(Debug, Default)]
pub struct Report {
    /// The first lines of the traces, when they differ.
    unlike: Option<[String; 2]>,
    tallies: [Tally; KINDS.len()],
    /// For each difference: how often, and in how many blocks.
    counts: BTreeMap<Difference, (usize, usize)>,
    shown: Vec<String>,
}

impl Report {
    pub fn new(before: &str, after: &str) -> Self {
        let unlike = (before != after).then(|| [before.to_owned(), after.to_owned()]);
        Self {
            unlike,
            ..Self::default()
        }
    }

    pub fn same(&mut self, kind: usize) {
        self.tallies[kind].same += 1;
    }

    /// Records a block that differs. `shown` has the first differing line of each trace, when it should be displayed.
    pub fn differ(&mut self, name: &Name, found: &Found, shown: Option<[Option<String>; 2]>) {
        self.tallies[name.kind].differ += 1;
        for (difference, count) in &found.0 {
            let (all, blocks) = self.counts.entry(*difference).or_default();
            (*all, *blocks) = (*all + count, *blocks + 1);
        }
        if let Some(lines) = shown {
            let [a, b] = lines.map(|line| line.unwrap_or_else(|| "nothing more".to_owned()));
            self.shown.push(format!("{name}\n  A  {a}\n  B  {b}\n"));
        }
    }

    pub fn only_before(&mut self, name: &Name) {
        self.tallies[name.kind].only_before += 1;
    }

    pub fn only_after(&mut self, name: &Name) {
        self.tallies[name.kind].only_after += 1;
    }

    /// Number of blocks that are in both traces and differ.
    pub fn differing(&self) -> usize {
        self.tallies.iter().map(|tally| tally.differ).sum()
    }

    pub fn is_identical(&self) -> bool {
        let alike = |tally: &Tally| tally.differ + tally.only_before + tally.only_after == 0;
        self.unlike.is_none() && self.tallies.iter().all(alike)
    }

    /// How often a difference was found, and in how many blocks.
    pub fn count(&self, difference: Difference) -> (usize, usize) {
        self.counts.get(&difference).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some([a, b]) = &self.unlike {
            writeln!(
                f,
                "the traces were not made with the same arguments:\n  A  {a}\n  B  {b}"
            )?;
        }
        for (kind, tally) in KINDS.iter().zip(self.tallies) {
            let Tally {
                same,
                differ,
                only_before,
                only_after,
            } = tally;
            if same + differ + only_before + only_after > 0 {
                write!(f, "{kind:<10} {same} the same, {differ} differ")?;
                writeln!(f, ", {only_before} only in A, {only_after} only in B")?;
            }
        }
        if self.is_identical() {
            return writeln!(f, "identical");
        }
        for (difference, label) in Difference::LISTED {
            let (count, blocks) = self.count(difference);
            writeln!(f, "  {label:<24} {count:>6} in {blocks} blocks")?;
        }
        let (sooner, _) = self.count(Difference::BypassSooner);
        let (further, _) = self.count(Difference::BypassFurther);
        writeln!(f, "bypasses new or earlier: {sooner}")?;
        writeln!(f, "bypasses that go further: {further}")?;
        self.shown.iter().try_for_each(|shown| write!(f, "{shown}"))
    }
}
