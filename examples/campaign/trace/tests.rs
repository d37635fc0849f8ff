use std::collections::BTreeMap;

use super::*;
use crate::compare::{Options, compare};

fn arguments(into: PathBuf, jobs: usize) -> TraceArguments {
    TraceArguments {
        into,
        incidents: 3,
        seed: 7,
        draws: Draws::Usual,
        breaker: Some(Farthest::Skip),
        quiet_days: 0.0,
        recordings: Vec::new(),
        scrapes: vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recordings")],
        jobs,
        figures: None,
    }
}

#[test]
fn a_trace_is_the_same_on_any_number_of_threads_and_compressed_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, packed) = (folder.path().join("a"), folder.path().join("b.gz"));
    write(&arguments(plain.clone(), 1)).unwrap();
    write(&arguments(packed.clone(), 3)).unwrap();
    let report = compare(&plain, &packed, Options::default()).unwrap();
    assert!(report.is_identical(), "{report}");
    let text = fs::read_to_string(plain).unwrap();
    assert!(text.contains("\nincident 2\n"), "{text}");
    assert!(text.contains("\nscrapes recordings/validating-hang\n"), "{text}");
    assert!(fs::read(packed).unwrap().starts_with(&[0x1f, 0x8b]));
}

#[test]
fn every_line_is_a_change() {
    let mut acts = 0;
    for index in 0..12 {
        let mut last: BTreeMap<(String, String), String> = BTreeMap::new();
        let mut before = 0;
        let breaker = Some(Farthest::Skip);
        let text = played(index, &draw::incident(7, index), breaker, &mut Figures::default());
        for line in text.lines() {
            let mut fields = line.splitn(4, '\t');
            let mut next = || fields.next().unwrap().to_owned();
            let (at, kind, whose, what) = (next().parse::<u64>().unwrap(), next(), next(), next());
            assert!(before <= at, "{line}");
            before = at;
            if kind == "act" {
                acts += 1;
            } else {
                assert_ne!(last.insert((kind, whose), what.clone()), Some(what), "{line}");
            }
        }
        assert!(!last.is_empty());
    }
    assert!(acts > 0);
}

#[test]
fn a_folder_with_nothing_to_replay_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let given = [folder.path().to_owned()];
    assert!(named(&given, |_| true).is_err());
}
