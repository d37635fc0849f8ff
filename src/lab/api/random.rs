//! Randomness for uids, jitter and the token of a lab; not cryptographically secure.

use std::hash::{BuildHasher, Hasher, RandomState};

/// 64 random bits: the standard library seeds every `RandomState` separately.
pub(super) fn bits() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A random number in `0..bound`; 0 for an empty range.
pub(super) fn below(bound: usize) -> usize {
    u64::try_from(bound)
        .ok()
        .filter(|bound| *bound > 0)
        .map_or(0, |bound| usize::try_from(bits() % bound).unwrap_or_default())
}

/// A random number in `-1.0..1.0`.
pub(in crate::lab) fn signed() -> f64 {
    // 53 bits are what a double holds exactly.
    let unit = (bits() >> 11) as f64 / (1_u64 << 53) as f64;
    unit.mul_add(2.0, -1.0)
}

/// A version 4 UUID.
pub(in crate::lab) fn uuid() -> String {
    let (high, low) = (bits(), bits());
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// Five letters and digits, as `generateName` appends them.
pub(super) fn suffix() -> String {
    // The API server's alphabet: no vowels, so no words, and nothing that looks like another character.
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5)
        .map(|_| char::from(ALPHABET[below(ALPHABET.len())]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_says_that_it_is_random_and_is_not_repeated() {
        let (one, two) = (uuid(), uuid());
        assert_ne!(one, two);
        assert_eq!(one.len(), 36);
        assert_eq!(one.as_bytes()[14], b'4');
        assert!(matches!(one.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
    }

    #[test]
    fn jitter_stays_in_its_range() {
        assert!((0..1_000).all(|_| (-1.0..1.0).contains(&signed())));
        assert!((0..1_000).all(|_| below(3) < 3));
        assert_eq!(below(0), 0);
    }
}
