//! Which page each picture is of: `SOURCES` beside this file has a line for each, with the hash of the page and that of the picture.

use std::collections::BTreeMap;
use std::path::PathBuf;

use aws_lc_rs::digest;

/// What to type when a picture is old.
pub const BLESS: &str = "HOOKWATCH_BLESS=1 cargo test --test pictures";

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/pictures")
}

fn list() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/pictures/SOURCES")
}

/// Whether old pictures are to be taken again.
pub fn is_blessing() -> bool {
    std::env::var_os("HOOKWATCH_BLESS").is_some()
}

pub fn hash(bytes: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of the page that a picture is of, and that of the picture; by the picture's name.
pub type Sources = BTreeMap<String, (String, String)>;

pub fn read() -> Sources {
    let text = std::fs::read_to_string(list()).unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let [name, page, picture] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        Some((name.to_owned(), (page.to_owned(), picture.to_owned())))
    });
    lines.collect()
}

pub fn write(sources: &Sources) {
    let lines = sources
        .iter()
        .map(|(name, (page, picture))| format!("{name} {page} {picture}\n"));
    std::fs::write(list(), lines.collect::<String>()).unwrap();
}

/// Holds a picture that is text against what it is now, or writes it.
pub fn same(name: &str, now: &str) {
    let path = folder().join(name);
    if is_blessing() {
        std::fs::create_dir_all(folder()).unwrap();
        std::fs::write(path, now).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == now, "docs/pictures/{name} is old: {BLESS}");
}
