//! How older releases differ from the newest: `tests/fixtures/fidelity-by-version/1.MINOR.json`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The differences from the newest release by case. Cases that are not listed are the same.
#[derive(Serialize, Deserialize)]
struct Older {
    /// The exact version.
    kubernetes: String,
    cases: BTreeMap<String, Vec<Value>>,
}

/// The minor version, such as 36 of `v1.36.2`.
pub fn minor(version: &str) -> u32 {
    version.split('.').nth(1).unwrap().parse().unwrap()
}

/// Compares the differences with those stored for the release of a transcript, or stores them.
pub fn compare(case: &str, transcript: &Value, mut differences: Vec<Value>, blesses: bool) {
    differences.retain(|difference| difference["at"] != "/kubernetes");
    let version = transcript["kubernetes"].as_str().unwrap();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fidelity-by-version");
    let path = folder.join(format!("1.{}.json", minor(version)));
    let mut older = match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).unwrap(),
        Err(_) => Older {
            kubernetes: version.to_owned(),
            cases: BTreeMap::new(),
        },
    };
    if blesses {
        older.cases.remove(case);
        if !differences.is_empty() {
            older.cases.insert(case.to_owned(), differences);
        }
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, serde_json::to_string_pretty(&older).unwrap() + "\n").unwrap();
        return;
    }
    let kept = older.cases.remove(case).unwrap_or_default();
    assert_eq!(
        differences,
        kept,
        "{case}: {version} is not as {} says of {}",
        path.display(),
        older.kubernetes
    );
}
