//! Bytes that others wrote: every seed of every fuzz target goes through the same functions here, on the stable toolchain
//! and in every run of the tests. `fuzz/run` looks for new ones.

#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use hookwatch::app::config::{Config, ConfigArguments};
use hookwatch::app::replay::replay_part;
use hookwatch::domain::act::bypass::BypassAnnotation;
use hookwatch::domain::act::ledger::LedgerReading;
use hookwatch::domain::observe::canary::CallFailure;
use hookwatch::domain::observe::exposition::Exposition;
use hookwatch::domain::observe::exposition::protobuf::{BodyStanding, ProtobufExposition};
use hookwatch::domain::observe::stored::answer::{Clocks, clock, scrapes};
use hookwatch::domain::time::Time;
use hookwatch::io::observe::probe::check_answer;
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

/// Else everything above would hold of functions that give up at the first byte.
#[test]
fn the_seeds_get_as_far_as_what_they_are_of() {
    let seed = |name: &str| fs::read(fuzz().join("corpus").join(name)).unwrap();
    let text = |name: &str| String::from_utf8(seed(name)).unwrap();
    for name in ["recording/hang.jsonl", "recording/hang.jsonl.gz"] {
        let replayed = replay_part(&seed(name)).unwrap();
        assert!(replayed.observations > 5, "{name}: {}", replayed.observations);
    }
    for name in ["validating-hang", "mutating-hang-fail-open", "etcd-slow"] {
        let mut exposition = Exposition::new();
        exposition.feed(&seed(&format!("metrics_text/{name}.prom")));
        let (snapshot, _) = exposition.finish();
        assert!(
            !snapshot.hooks.is_empty() && !snapshot.writes.is_empty(),
            "{name}"
        );
    }
    let now = 1_795_219_862_156;
    let clocks = Clocks {
        theirs: now,
        ours: Time::from_unix_millis(now.unsigned_abs()),
    };
    let (stored, _) = scrapes(&seed("prometheus_answer/hang.json"), clocks).unwrap();
    assert_eq!(stored.len(), 3);
    assert_eq!(clock(&seed("prometheus_answer/clock.json")), Ok(now));
    let mut exposition = ProtobufExposition::new();
    exposition.feed(&seed("metrics_protobuf/families.pb"));
    assert_eq!(exposition.standing(), BodyStanding::Whole);
    for (name, allowed) in [("allowed", Ok(true)), ("denied", Ok(false)), ("patch", Ok(true))] {
        let answer = check_answer("uid-1", true, &seed(&format!("probe_answer/{name}.json")));
        assert_eq!(answer, allowed, "{name}");
    }
    let state = BypassAnnotation::read(Some(&text("state_annotation/two.json"))).unwrap();
    assert_eq!(
        state.names().collect::<Vec<_>>(),
        ["a.example.com", "b.example.com"]
    );
    let held = LedgerReading::of(Some(&text("ledger/actor.json")))
        .record("u", "1")
        .holder;
    assert_eq!(held.as_deref(), Some("hookwatch-0"));
    let frozen = LedgerReading::of(Some(&text("ledger/book.json"))).book().unwrap();
    assert!(frozen.frozen.is_some() && frozen.entries.len() == 1, "{frozen:?}");
    assert!(CallFailure::parse(&text("failed_write/deadline.txt")).is_some());
    assert!(CallFailure::parse(&text("failed_write/denied.txt")).is_none());
    let config = Config::parse(
        &text("configuration/documented-0.yaml"),
        &ConfigArguments::default(),
    );
    assert!(config.is_ok(), "{config:?}");
}

#[test]
fn seeds_are_small() {
    for (name, _) in TARGETS {
        for (seed, bytes) in seeds(name) {
            assert!(bytes.len() <= 32 << 10, "{seed}: {} bytes", bytes.len());
        }
    }
}
