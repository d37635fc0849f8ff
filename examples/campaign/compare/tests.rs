use std::fs;

use super::report::Difference::{self, *};
use super::*;

fn held(before: &str, after: &str, options: Options) -> anyhow::Result<Report> {
    let folder = tempfile::tempdir()?;
    let write = |name: &str, lines: &str| {
        let path = folder.path().join(name);
        let lines = lines.replace(' ', "\t").replace("incident\t", "incident ");
        fs::write(&path, format!("# seed 1\n{lines}# end\n")).map(|()| path)
    };
    compare(&write("a", before)?, &write("b", after)?, options)
}

/// The differences between two traces of one incident with these lines.
fn found(before: &str, after: &str) -> Vec<(Difference, usize)> {
    let [before, after] = [before, after].map(|lines| format!("incident 3\n{lines}"));
    let report = held(&before, &after, Options::default()).unwrap();
    let all = [
        Health,
        Cause,
        Effect,
        Confidence,
        Writes,
        NotAHook,
        PlaneConfidence,
        ActAdded,
        ActMissing,
        ActEarlier,
        ActLater,
        OtherRung,
        BypassSooner,
        BypassFurther,
    ];
    let counts = all.map(|difference| (difference, report.count(difference).0));
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

const CALM: &str = "1 hook v/c/w healthy - None 0.5\n1 plane - flowing - -\n";

#[test]
fn a_trace_is_identical_to_itself() {
    let report = held(
        &format!("incident 3\n{CALM}"),
        &format!("incident 3\n{CALM}"),
        Options::default(),
    )
    .unwrap();
    assert!(report.is_identical());
    assert!(report.to_string().ends_with("identical\n"), "{report}");
}

#[test]
fn each_field_is_counted_by_the_stretches_in_which_it_differs() {
    let after = format!(
        "{CALM}5 hook v/c/w suspect Slow None 0.5\n6 hook v/c/w healthy - None 0.5\n\
         7 hook v/c/w suspect Slow None 0.5\n8 plane - delayed EtcdSlow 0.7\n"
    );
    assert_eq!(
        found(CALM, &after),
        [(Health, 2), (Cause, 2), (Writes, 1), (NotAHook, 1)]
    );
}

#[test]
fn a_hook_that_only_one_of_them_knows_differs() {
    let after = format!("{CALM}5 hook v/c/x unknown - None 0\n");
    assert_eq!(found(CALM, &after), [(Health, 1), (Cause, 1), (Effect, 1)]);
}

#[test]
fn confidence_counts_where_nothing_else_differs_and_can_be_left_out() {
    let after = format!("{CALM}5 hook v/c/w healthy - None 0.6\n");
    assert_eq!(found(CALM, &after), [(Confidence, 1)]);
    let ignored = Options {
        ignore_confidence: true,
        ..Options::default()
    };
    let report = held(
        &format!("incident 3\n{CALM}"),
        &format!("incident 3\n{after}"),
        ignored,
    )
    .unwrap();
    assert!(report.is_identical(), "{report}");
}

#[test]
fn a_bypass_that_is_new_or_earlier_is_counted_apart() {
    let act = "100 act w shield\n200 act w original\n";
    assert_eq!(found("", act), [(ActAdded, 2), (BypassSooner, 1)]);
    assert_eq!(found(act, ""), [(ActMissing, 2)]);
    let earlier = "90 act w shield\n200 act w original\n";
    assert_eq!(found(act, earlier), [(ActEarlier, 1), (BypassSooner, 1)]);
    assert_eq!(found(earlier, act), [(ActLater, 1)]);
    let restored_earlier = "100 act w shield\n150 act w original\n";
    assert_eq!(found(act, restored_earlier), [(ActEarlier, 1)]);
}

#[test]
fn a_bypass_after_the_hook_was_restored_is_a_new_one() {
    let act = "100 act w shield\n200 act w original\n";
    let again = "300 act w shield\n400 act w original\n";
    assert_eq!(
        found(act, again),
        [(ActAdded, 1), (ActMissing, 1), (ActLater, 1), (BypassSooner, 1)]
    );
    assert_eq!(
        found(act, &format!("{act}{again}")),
        [(ActAdded, 2), (BypassSooner, 1)]
    );
}

#[test]
fn another_rung_is_told_from_another_act() {
    assert_eq!(
        found("9 act w shield\n", "9 act w skip\n"),
        [(OtherRung, 1), (BypassFurther, 1)]
    );
    assert_eq!(found("9 act w skip\n", "9 act w shield\n"), [(OtherRung, 1)]);
    assert_eq!(
        found("9 act w skip\n", "8 act w shield\n"),
        [(OtherRung, 1), (BypassSooner, 1)]
    );
}

#[test]
fn a_block_that_only_one_of_them_has_is_a_difference() {
    let report = held(
        "incident 3\nincident 20\n",
        "incident 20\nincident 100\n",
        Options::default(),
    )
    .unwrap();
    assert!(!report.is_identical());
    assert!(
        report
            .to_string()
            .contains("1 the same, 0 differ, 1 only in A, 1 only in B"),
        "{report}"
    );
}

#[test]
fn the_first_line_that_differs_is_shown() {
    let report = held(
        &format!("incident 3\n{CALM}"),
        &format!("incident 3\n{CALM}2000000 act w skip\n"),
        Options {
            show: 1,
            ..Options::default()
        },
    );
    let text = report.unwrap().to_string();
    let shown = "incident 3\n  A  nothing more\n  B  2.000000 s  act w  skip\n";
    assert!(text.ends_with(shown), "{text}");
}

#[test]
fn a_trace_that_was_cut_off_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut");
    fs::write(&path, "# seed 1\nincident 3\n").unwrap();
    assert!(
        compare(&path, &path, Options::default())
            .unwrap_err()
            .to_string()
            .contains("cut off")
    );
}
