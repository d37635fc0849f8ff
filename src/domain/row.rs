//! Queues and maps with a largest number of entries: the oldest entry makes room for a new one.

use std::collections::{BTreeMap, VecDeque};

/// Adds to the end of a row. If it then has more than `most` entries, removes the first one and returns it.
pub fn push<T>(row: &mut VecDeque<T>, most: usize, new: T) -> Option<T> {
    row.push_back(new);
    if row.len() > most { row.pop_front() } else { None }
}

/// Adds an entry that may come out of order to a row that is sorted by `key`, after those of the same key. A full row of `most`
/// loses its first entry for it; an entry that would be the first of a full row is dropped. Reserves room for `most`, not more.
pub fn insert<T, K: Ord>(row: &mut VecDeque<T>, most: usize, new: T, key: impl Fn(&T) -> K) {
    let mut at = row.partition_point(|known| key(known) <= key(&new));
    if row.len() >= most {
        if at == 0 {
            return;
        }
        row.pop_front();
        at -= 1;
    }
    row.reserve_exact(most.saturating_sub(row.len()));
    row.insert(at, new);
}

/// The entry of this key, in a map of at most `most` entries. If the key is new and the map is full, the entry with the smallest
/// `age` is removed first, which is the oldest one: `age` is an instant or a number that grows.
pub fn entry<K: Ord + Clone, V: Default, A: Ord>(
    map: &mut BTreeMap<K, V>,
    most: usize,
    key: K,
    age: impl Fn(&V) -> A,
) -> &mut V {
    if map.len() >= most && !map.contains_key(&key) {
        let oldest = map.iter().min_by_key(|(_, value)| age(value));
        if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
            map.remove(&oldest);
        }
    }
    map.entry(key).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_first_makes_room() {
        let mut row = VecDeque::new();
        let gone: Vec<Option<u8>> = (1..=4).map(|new| push(&mut row, 2, new)).collect();
        assert_eq!(gone, [None, None, Some(1), Some(2)]);
        assert_eq!(row, [3, 4]);
    }

    #[test]
    fn what_comes_out_of_order_goes_where_it_belongs() {
        let mut row = VecDeque::new();
        for new in [(3, 'a'), (1, 'b'), (3, 'c'), (2, 'd')] {
            insert(&mut row, 3, new, |(key, _)| *key);
        }
        assert_eq!(row, [(2, 'd'), (3, 'a'), (3, 'c')]);
    }

    #[test]
    fn only_a_new_key_takes_the_place_of_the_oldest_entry() {
        let mut map = BTreeMap::from([('a', 2), ('b', 1)]);
        *entry(&mut map, 2, 'b', |age| *age) += 4;
        assert_eq!(map, BTreeMap::from([('a', 2), ('b', 5)]));
        *entry(&mut map, 2, 'c', |age| *age) = 3;
        assert_eq!(map, BTreeMap::from([('b', 5), ('c', 3)]));
    }
}
