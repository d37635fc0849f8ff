//! hookwatch's assumptions about API servers, as cases that run on both kinds of control plane.
//!
//! Each case produces a transcript. `tests/fixtures/fidelity` has those of a real API server, and the embedded one must
//! produce the same. `tests/fixtures/fidelity-by-version` has the differences of older releases. HOOKWATCH_BLESS=1 in a run
//! of `with_envtest` writes both.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    reason = "a test fails by panicking, and each of two programs uses a part of this"
)]

mod ask;
mod by_version;
mod bypasses;
mod calls;
mod conditions;
mod counters;
mod failing;
pub mod hooks;
pub mod lab;
mod mask;
mod patches;
mod play;
mod recorder;
mod restarts;
mod shapes;
pub mod shield;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lab::Lab;
use play::Play;

type Playing<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// One property of API servers.
pub struct Case {
    pub name: &'static str,
    /// Why the case cannot run on the embedded control plane, if it cannot.
    pub real_only: Option<&'static str>,
    /// The first minor release with the feature of the case.
    since: u32,
    play: for<'a> fn(&'a mut Play) -> Playing<'a>,
}

impl Case {
    /// A shorter request limit for the embedded control plane, for a case that would otherwise only wait.
    pub fn sooner(&self) -> Option<Duration> {
        (self.name == "a_request_is_cut_at_34_s_whatever_is_left_of_its_hooks_time")
            .then_some(Duration::from_secs(3))
    }
}

/// `case!(function)`: a case under its function's name; `case!(function, "why")` for real API servers only.
macro_rules! case {
    ($($path:ident)::+) => { case!(@ $($path)::+, None) };
    ($($path:ident)::+, $why:literal) => { case!(@ $($path)::+, Some($why)) };
    (@ $($path:ident)::+, $why:expr) => {
        Case {
            name: [$(stringify!($path)),+].last().copied().unwrap_or_default(),
            real_only: $why,
            since: 0,
            play: |play| Box::pin($($path)::+(play)),
        }
    };
}

/// The first minor release with match conditions on by default.
pub const WITH_CONDITIONS: u32 = 28;

/// The first minor releases with `v1` of ValidatingAdmissionPolicy and of MutatingAdmissionPolicy.
const WITH_POLICIES: u32 = 30;
const WITH_MUTATING_POLICIES: u32 = 36;

/// A case that needs at least this minor release.
fn since(since: u32, case: Case) -> Case {
    Case { since, ..case }
}

/// A case about match conditions.
fn of_conditions(case: Case) -> Case {
    since(WITH_CONDITIONS, case)
}

/// All cases.
pub fn cases() -> Vec<Case> {
    vec![
        case!(conditions::match_conditions_are_in_force_or_dropped_without_a_word),
        of_conditions(case!(bypasses::a_false_condition_frees_writes_under_fail_at_once)),
        of_conditions(case!(bypasses::a_hook_on_probation_sees_only_our_own_dry_runs)),
        case!(bypasses::ignore_still_costs_the_timeout_and_counts_as_failing_open),
        case!(bypasses::a_hung_catch_all_blocks_leases_events_and_configmaps),
        case!(bypasses::the_time_of_hooks_is_the_difference_between_request_and_sli_time),
        case!(patches::a_patch_that_tests_what_it_changes_fails_cleanly_after_another_write),
        of_conditions(case!(patches::a_hook_takes_64_conditions_and_no_name_twice)),
        case!(patches::the_ledger_is_an_empty_configuration_written_with_its_version),
        of_conditions(case!(
            shield::the_shield_spares_what_keeps_the_control_plane_alive_and_nothing_else
        )),
        since(
            WITH_POLICIES,
            case!(shield::no_hook_is_asked_about_webhook_configurations_and_policies),
        ),
        since(
            WITH_MUTATING_POLICIES,
            case!(shield::no_hook_is_asked_about_mutating_policies),
        ),
        of_conditions(case!(shapes::no_condition_errs_on_any_shape_of_a_request)),
        case!(calls::a_denial_names_its_hook_whatever_else_it_says),
        of_conditions(case!(
            calls::a_condition_that_errs_refuses_under_fail_and_is_passed_over_under_ignore
        )),
        case!(calls::hung_hooks_cost_their_sum_when_mutating_and_the_longest_when_validating),
        case!(calls::a_request_with_less_time_than_its_hook_ends_as_a_timeout_of_its_own),
        case!(calls::a_request_is_cut_at_34_s_whatever_is_left_of_its_hooks_time),
        case!(failing::every_failed_call_is_worded_as_the_canaries_reader_knows_it),
        case!(restarts::a_watch_from_before_the_history_is_told_that_it_has_expired),
        case!(
            restarts::the_inventory_recovers_when_an_api_server_comes_back,
            "what is in the embedded one ends with it"
        ),
        of_conditions(case!(
            restarts::an_api_server_with_a_role_to_make_does_not_start_behind_a_hung_catch_all,
            "the embedded one makes no roles, and there is no second one"
        )),
    ]
}

/// Plays a case and compares its transcript with the stored one; `Err` when the release is too old for the case.
pub async fn play(lab: &Arc<Lab>, case: &Case, may_bless: bool) -> Result<(), String> {
    if lab.minor() < case.since {
        return Err(format!(
            "what it is about came with 1.{}; this is {}",
            case.since, lab.version
        ));
    }
    let mut play = Play::begin(Arc::clone(lab)).await;
    (case.play)(&mut play).await;
    play::compare(case.name, &play.end().await, may_bless);
    Ok(())
}
