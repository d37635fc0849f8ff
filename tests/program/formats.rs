//! The text and the binary format say the same.

use std::path::{Path, PathBuf};

use hookwatch::domain::observe::exposition::Exposition;
use hookwatch::domain::observe::exposition::protobuf::{BodyStanding, ProtobufExposition};
use hookwatch::domain::observe::snapshot::{Complaints, Snapshot};

#[path = "../support/metric_family.rs"]
mod metric_family;

fn fixtures(folder: &str, extension: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, extension, found);
            } else if path.extension().is_some_and(|it| it == extension) {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut found = Vec::new();
    walk(&root.join(folder), extension, &mut found);
    assert!(!found.is_empty(), "no fixtures in {folder}");
    found
}

fn text(body: &[u8]) -> (Snapshot, Complaints) {
    let mut exposition = Exposition::new();
    body.chunks(16 * 1024).for_each(|chunk| exposition.feed(chunk));
    exposition.finish()
}

fn protobuf(body: &[u8]) -> (Snapshot, Complaints) {
    let mut exposition = ProtobufExposition::new();
    body.chunks(16 * 1024).for_each(|chunk| exposition.feed(chunk));
    assert_eq!(exposition.standing(), BodyStanding::Whole);
    exposition.finish()
}

#[test]
fn every_recording_says_the_same_in_both_formats() {
    for path in fixtures("recordings", "prom") {
        let body = std::fs::read_to_string(&path).expect("a recording");
        let as_text = text(body.as_bytes());
        assert_eq!(
            protobuf(&metric_family::encode(&body)),
            as_text,
            "{}",
            path.display()
        );
        assert!(!as_text.0.hooks.is_empty(), "{}", path.display());
    }
}

/// Scrapes of an idle API server, one in each format, with the families that did not change in between.
#[test]
fn what_an_api_server_sends_says_the_same_in_both_formats() {
    for path in fixtures("formats", "pb") {
        let binary = protobuf(&std::fs::read(&path).expect("a scrape"));
        let as_text = text(&std::fs::read(path.with_extension("prom")).expect("its twin"));
        assert_eq!(binary, as_text, "{}", path.display());
        assert_eq!(binary.1, Complaints::default());
        assert!(binary.0.hooks.len() >= 4 && binary.0.process_start.is_some());
    }
}

/// Excerpts of scrapes, with families that an idle API server does not have.
#[test]
fn what_an_api_server_said_of_hooks_beside_admission_says_the_same_in_both_formats() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/formats/other-kinds-1.36.2.prom");
    let body = std::fs::read_to_string(path).expect("an excerpt");
    let as_text = text(body.as_bytes());
    assert_eq!(protobuf(&metric_family::encode(&body)), as_text);
    assert_eq!(as_text.0.others.conversions.len(), 2);
    assert_eq!(as_text.0.others.unavailable.len(), 2);
}
