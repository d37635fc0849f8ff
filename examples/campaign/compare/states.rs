//! Compares the verdicts of two builds on the same webhook, or on the control plane, over the time of a block.

use std::collections::BTreeSet;

use super::blocks::Line;
use super::report::{Difference, Found};

/// A kind of line, the differences of its fields in order, and the difference when only the last field, the confidence,
/// differs.
type Kind = (&'static str, &'static [Difference], Difference);

const SAID: [Kind; 2] = [
    (
        "hook",
        &[Difference::Health, Difference::Cause, Difference::Effect],
        Difference::Confidence,
    ),
    (
        "plane",
        &[Difference::Writes, Difference::NotAHook],
        Difference::PlaneConfidence,
    ),
];

/// Counts, for each field, the spans of time during which it differs.
pub fn differences(left: &[Line], right: &[Line], found: &mut Found) {
    for kind in SAID {
        let lines = left.iter().chain(right).filter(|line| line.kind == kind.0);
        let names: BTreeSet<&str> = lines.map(|line| line.whose).collect();
        for whose in names {
            let of = |line: &&Line| (line.kind, line.whose) == (kind.0, whose);
            let [left, right] = [left, right].map(|lines| lines.iter().filter(of).collect::<Vec<_>>());
            one(&left, &right, kind, found);
        }
    }
}

fn one(left: &[&Line], right: &[&Line], (_, fields, confidence): Kind, found: &mut Found) {
    let instants: BTreeSet<u64> = left.iter().chain(right).map(|line| line.at).collect();
    let mut before = BTreeSet::new();
    for at in instants {
        let [left, right] = [left, right].map(|lines| {
            let until = lines.partition_point(|line| line.at <= at);
            lines[..until].last().map_or(&[][..], |line| &line.what)
        });
        let differs = |index: &usize| left.get(*index) != right.get(*index);
        let mut now: BTreeSet<Difference> = (0..fields.len())
            .filter(differs)
            .map(|index| fields[index])
            .collect();
        if now.is_empty() && left != right {
            now.insert(confidence);
        }
        for difference in now.difference(&before) {
            found.add(*difference);
        }
        before = now;
    }
}
