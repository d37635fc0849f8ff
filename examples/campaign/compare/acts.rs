//! Compares the changes that the breakers of two builds made to the same webhook.

use std::collections::{BTreeMap, BTreeSet};

use super::blocks::Line;
use super::report::{Difference, Found};
use crate::trace::{is_bypass, rank};

#[derive(Debug, Clone, Copy)]
struct Act<'a> {
    at: u64,
    to: &'a str,
}

/// Costs of the alignment (an edit distance): of an act without a counterpart, of a pair at different instants, and of a
/// pair on different rungs. A pair is only made when it costs less than leaving both alone.
const ALONE: u32 = 2;
const MOVED: u32 = 1;
const OTHER_RUNG: u32 = 3;

/// Counts the acts that differ, after pairing each with its counterpart of the other build, if there is one.
pub fn differences(left: &[Line], right: &[Line], found: &mut Found) {
    let [left, right] = [left, right].map(by_hook);
    let hooks: BTreeSet<&str> = left.keys().chain(right.keys()).copied().collect();
    for hook in hooks {
        let [left, right] = [&left, &right].map(|acts| acts.get(hook).map_or(&[][..], Vec::as_slice));
        one(left, right, found);
    }
}

fn by_hook<'a>(lines: &'a [Line]) -> BTreeMap<&'a str, Vec<Act<'a>>> {
    let mut acts: BTreeMap<&str, Vec<Act>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.kind == "act") {
        let to = line.what.first().copied().unwrap_or_default();
        acts.entry(line.whose).or_default().push(Act { at: line.at, to });
    }
    acts
}

/// The cost of pairing `b` with the act at `index`; `None` when they cannot be a pair.
fn cost(left: &[Act], index: usize, b: Act) -> Option<u32> {
    let a = left[index];
    let mut later = left[index..].iter();
    // A bypass after the webhook was restored is a new bypass and not a later instance of the earlier one.
    let restored = later
        .find(|act| act.to == "original")
        .map_or(u64::MAX, |act| act.at);
    if is_bypass(b.to) && b.at > restored {
        return None;
    }
    if a.to == b.to {
        return Some(if a.at == b.at { 0 } else { MOVED });
    }
    (is_bypass(a.to) && is_bypass(b.to)).then_some(OTHER_RUNG)
}

fn one(left: &[Act], right: &[Act], found: &mut Found) {
    // costs[i][j] is the least cost of aligning left[i..] with right[j..].
    let mut costs = vec![vec![0; right.len() + 1]; left.len() + 1];
    for i in (0..=left.len()).rev() {
        for j in (0..=right.len()).rev() {
            if i == left.len() || j == right.len() {
                costs[i][j] = (left.len() - i + right.len() - j) as u32 * ALONE;
                continue;
            }
            let pair = cost(left, i, right[j]).map_or(u32::MAX, |cost| cost + costs[i + 1][j + 1]);
            costs[i][j] = pair.min(ALONE + costs[i + 1][j].min(costs[i][j + 1]));
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < left.len() || j < right.len() {
        let paired = (i < left.len() && j < right.len())
            .then(|| cost(left, i, right[j]))
            .flatten()
            .is_some_and(|cost| cost + costs[i + 1][j + 1] == costs[i][j]);
        if paired {
            pair(left[i], right[j], found);
            (i, j) = (i + 1, j + 1);
        } else if j < right.len() && ALONE + costs[i][j + 1] == costs[i][j] {
            found.add(Difference::ActAdded);
            if is_bypass(right[j].to) {
                found.add(Difference::BypassSooner);
            }
            j += 1;
        } else {
            found.add(Difference::ActMissing);
            i += 1;
        }
    }
}

fn pair(a: Act, b: Act, found: &mut Found) {
    if a.to != b.to {
        found.add(Difference::OtherRung);
    } else if b.at < a.at {
        found.add(Difference::ActEarlier);
    } else if b.at > a.at {
        found.add(Difference::ActLater);
    }
    if b.at < a.at && is_bypass(b.to) {
        found.add(Difference::BypassSooner);
    }
    if rank(b.to) > rank(a.to) {
        found.add(Difference::BypassFurther);
    }
}
