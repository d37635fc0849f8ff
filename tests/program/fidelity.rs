//! What hookwatch believes of an API server, held against the embedded one: it has to leave the transcripts that a real
//! one left.

#[path = "../support/fidelity/all.rs"]
mod cases;

use std::sync::Arc;

use hookwatch::lab::control_plane::ControlPlaneKind;

/// A test for each case, and one that none is left out.
macro_rules! embedded {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                play(stringify!($name));
            }
        )*

        #[test]
        fn every_case_is_played_or_says_why_it_cannot_be() {
            let played = [$(stringify!($name)),*];
            for case in cases::cases() {
                assert!(
                    played.contains(&case.name) != case.real_only.is_some(),
                    "{}: {:?}",
                    case.name,
                    case.real_only
                );
            }
        }
    };
}

embedded! {
    match_conditions_are_in_force_or_dropped_without_a_word
    a_false_condition_frees_writes_under_fail_at_once
    a_hook_on_probation_sees_only_our_own_dry_runs
    ignore_still_costs_the_timeout_and_counts_as_failing_open
    a_hung_catch_all_blocks_leases_events_and_configmaps
    the_time_of_hooks_is_the_difference_between_request_and_sli_time
    a_patch_that_tests_what_it_changes_fails_cleanly_after_another_write
    a_hook_takes_64_conditions_and_no_name_twice
    the_ledger_is_an_empty_configuration_written_with_its_version
    the_shield_spares_what_keeps_the_control_plane_alive_and_nothing_else
    no_hook_is_asked_about_webhook_configurations_and_policies
    no_hook_is_asked_about_mutating_policies
    no_condition_errs_on_any_shape_of_a_request
    a_watch_from_before_the_history_is_told_that_it_has_expired
    a_denial_names_its_hook_whatever_else_it_says
    a_condition_that_errs_refuses_under_fail_and_is_passed_over_under_ignore
    hung_hooks_cost_their_sum_when_mutating_and_the_longest_when_validating
    a_request_with_less_time_than_its_hook_ends_as_a_timeout_of_its_own
    a_request_is_cut_at_34_s_whatever_is_left_of_its_hooks_time
    every_failed_call_is_worded_as_the_canaries_reader_knows_it
}

#[test]
fn every_transcript_belongs_to_a_case_and_all_are_of_one_version() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/fidelity");
    let mut versions = std::collections::BTreeSet::new();
    let mut found: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let transcript: serde_json::Value = serde_json::from_str(&text).unwrap();
        versions.insert(transcript["kubernetes"].to_string());
        found.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
    }
    let mut wanted: Vec<String> = cases::cases().iter().map(|case| case.name.to_owned()).collect();
    wanted.sort();
    found.sort();
    assert_eq!(found, wanted);
    assert_eq!(versions.len(), 1, "{versions:?}");
}

fn play(name: &str) {
    let case = cases::cases().into_iter().find(|case| case.name == name).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let lab = Arc::new(cases::lab::Lab::start(ControlPlaneKind::Embedded, case.sooner()).await);
        cases::play(&lab, &case, false).await.unwrap();
    });
}
