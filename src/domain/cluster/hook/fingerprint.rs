//! Serializes a `caBundle` as a fingerprint: a recording must show whether it changed, but not what it holds.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serializer};

/// Writes a fingerprint (FNV-1a, 64 bits) instead of the bundle. It need not resist forgery: anyone who can write a
/// recording can write anything into it.
pub(super) fn serialize<S: Serializer>(bundle: &Arc<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
    if bundle.is_empty() {
        return serializer.serialize_str("");
    }
    let hash = bundle.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    serializer.collect_str(&format_args!("{hash:016x}"))
}

/// Reads the fingerprint in place of the bundle: it differs if the bundles differed, and is empty if the bundle was.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[u8]>, D::Error> {
    let fingerprint = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    Ok(fingerprint.as_bytes().into())
}
