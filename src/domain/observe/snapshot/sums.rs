//! Differences and sums of what was counted by some key.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// What a counter gained; one that went down began again.
pub(super) fn gained(now: f64, then: f64) -> f64 {
    if now < then { now } else { now - then }
}

/// The same for each key.
pub(super) fn gained_by_key<K: Ord + Clone, V: Default + PartialEq>(
    now: &BTreeMap<K, V>,
    then: &BTreeMap<K, V>,
    gain: impl Fn(&V, &V) -> V,
) -> BTreeMap<K, V> {
    let nothing = V::default();
    // Most series of a large cluster stand still; what gained nothing takes no memory.
    now.iter()
        .map(|(key, value)| (key, gain(value, then.get(key).unwrap_or(&nothing))))
        .filter(|(_, gained)| *gained != nothing)
        .map(|(key, gained)| (key.clone(), gained))
        .collect()
}

/// Adds the values of one map to those of another. Both are walked side by side: their keys are mostly the same, and
/// long ones.
pub(super) fn add_by_key<K: Ord + Clone, V: Clone>(
    mine: &mut BTreeMap<K, V>,
    theirs: &BTreeMap<K, V>,
    add: impl Fn(&mut V, &V),
) {
    if mine.is_empty() {
        return mine.clone_from(theirs);
    }
    let mut missing = Vec::new();
    let mut known = mine.iter_mut().peekable();
    for (key, value) in theirs {
        loop {
            match known.peek_mut().map(|(mine, sum)| ((*mine).cmp(key), sum)) {
                Some((Ordering::Less, _)) => _ = known.next(),
                Some((Ordering::Equal, sum)) => break add(sum, value),
                Some((Ordering::Greater, _)) | None => break missing.push((key.clone(), value.clone())),
            }
        }
    }
    mine.extend(missing);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_added_key_by_key_whichever_of_them_has_which() {
        let map = |keys: &str| -> BTreeMap<String, f64> {
            keys.chars()
                .map(|key| (key.to_string(), f64::from(key as u32)))
                .collect()
        };
        for (mine, theirs) in [
            ("", "ab"),
            ("ab", ""),
            ("bd", "abcde"),
            ("abcde", "bd"),
            ("ac", "bd"),
        ] {
            let mut sum = map(mine);
            add_by_key(&mut sum, &map(theirs), |mine, theirs| *mine += theirs);
            let mut expected = map(mine);
            for (key, value) in map(theirs) {
                *expected.entry(key).or_default() += value;
            }
            assert_eq!(sum, expected, "{mine} and {theirs}");
        }
    }
}
