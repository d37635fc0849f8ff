//! Differences and sums of counters, alone or by key.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Values that only grow, as counters do.
pub trait Counted: Clone + Default + PartialEq {
    /// The increase since an earlier value of the same counter.
    fn since(&self, earlier: &Self) -> Self;

    /// Adds the increase of another counter.
    fn add(&mut self, other: &Self);
}

/// Implements [`Counted`] field by field. In a difference, `gauges` and `kept` fields keep their current values. In a sum, gauges
/// are added like counters, and `kept` fields do not change.
macro_rules! counted {
    ($of:ident: $($field:ident),+ $(; gauges: $($gauge:ident),+)? $(; kept: $($kept:ident),+)?) => {
        impl Counted for $of {
            fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($field: self.$field.since(&earlier.$field),)+
                    $($($gauge: Clone::clone(&self.$gauge),)+)?
                    $($($kept: Clone::clone(&self.$kept),)+)?
                }
            }

            fn add(&mut self, other: &Self) {
                $(self.$field.add(&other.$field);)+
                $($(self.$gauge.add(&other.$gauge);)+)?
            }
        }
    };
}
pub(super) use counted;

impl Counted for f64 {
    /// A value that went down was reset, so all of it is the increase.
    fn since(&self, earlier: &Self) -> Self {
        if self < earlier { *self } else { self - earlier }
    }

    fn add(&mut self, other: &Self) {
        *self += other;
    }
}

impl<K: Ord + Clone, V: Counted> Counted for BTreeMap<K, V> {
    /// Entries that did not increase are left out to save memory: in a large cluster most series do not change.
    fn since(&self, earlier: &Self) -> Self {
        let nothing = V::default();
        self.iter()
            .map(|(key, value)| (key, value.since(earlier.get(key).unwrap_or(&nothing))))
            .filter(|(_, gained)| *gained != nothing)
            .map(|(key, gained)| (key.clone(), gained))
            .collect()
    }

    /// Merges both maps in key order, because their keys are mostly the same, and long.
    fn add(&mut self, other: &Self) {
        if self.is_empty() {
            return self.clone_from(other);
        }
        let mut missing = Vec::new();
        let mut known = self.iter_mut().peekable();
        for (key, value) in other {
            loop {
                match known.peek_mut().map(|(mine, sum)| ((*mine).cmp(key), sum)) {
                    Some((Ordering::Less, _)) => _ = known.next(),
                    Some((Ordering::Equal, sum)) => break sum.add(value),
                    Some((Ordering::Greater, _)) | None => break missing.push((key.clone(), value.clone())),
                }
            }
        }
        self.extend(missing);
    }
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
            sum.add(&map(theirs));
            let mut expected = map(mine);
            for (key, value) in map(theirs) {
                *expected.entry(key).or_default() += value;
            }
            assert_eq!(sum, expected, "{mine} and {theirs}");
        }
    }
}
