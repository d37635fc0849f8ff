//! Programs of others that are measured, or measure.

use std::path::{Path, PathBuf};

/// Where a program is: installed, or taken out of its package into `target/monitoring`, as .ci/run does.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let taken_out = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/monitoring/usr/bin");
    let places = std::env::split_paths(&path).chain([taken_out]);
    places.map(|place| place.join(name)).find(|path| path.is_file())
}
