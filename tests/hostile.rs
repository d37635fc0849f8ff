//! Bytes that others wrote: every seed of every fuzz target goes through the same functions here, on the stable toolchain
//! and in every run of the tests. `fuzz/run` looks for new ones.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, and helpers of an integration test count as code"
)]

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use targets::TARGETS;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// The names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The seeds of a target: those that have an ending. What a run of the fuzzer leaves has none, and is nobody else's.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = fuzz().join("corpus").join(target);
    let seeds = names(&folder).into_iter().filter(|name| name.contains('.'));
    seeds
        .map(|name| {
            let bytes = fs::read(folder.join(&name)).unwrap();
            (format!("{target}/{name}"), bytes)
        })
        .collect()
}

#[test]
fn every_seed_is_taken_whole_and_cut_anywhere() {
    for (name, target) in TARGETS {
        for (seed, bytes) in seeds(name) {
            println!("{seed}");
            target(&bytes);
            // Some forty places, and the odd ones between.
            let step = (bytes.len() / 40).max(1) | 1;
            for end in (0..bytes.len()).step_by(step) {
                target(&bytes[..end]);
            }
        }
    }
}

#[test]
fn a_flipped_bit_does_no_harm() {
    for (name, target) in TARGETS {
        for (seed, bytes) in seeds(name) {
            println!("{seed}");
            let step = (bytes.len() / 60).max(1) | 1;
            for at in (0..bytes.len()).step_by(step) {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << (at % 8);
                target(&bytes);
            }
        }
    }
}

#[test]
fn every_target_has_seeds_and_a_program_and_there_are_no_others() {
    let mut known: Vec<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    known.sort();
    assert_eq!(names(&fuzz().join("corpus")), known);
    let programs = names(&fuzz().join("fuzz_targets"));
    let expected: Vec<String> = known.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(programs, expected);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in &known {
        let program = fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(
            program.contains(&format!("hookwatch_fuzz::{name}(data)")),
            "{name}"
        );
        assert!(
            manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")),
            "{name}"
        );
        assert!(seeds(name).len() >= 3, "{name}");
    }
}

#[test]
fn seeds_are_small() {
    for (name, _) in TARGETS {
        for (seed, bytes) in seeds(name) {
            assert!(bytes.len() <= 32 << 10, "{seed}: {} bytes", bytes.len());
        }
    }
}
