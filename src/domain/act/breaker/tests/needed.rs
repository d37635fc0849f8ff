//! Each guard is needed: with only that guard turned off, a promise breaks.

use std::collections::BTreeSet;

use super::super::guards::Guard;
use super::super::policy::Rung;
use super::model::{self, broken};
use super::promises::*;
use super::setup::{Mishaps, Mood, OtherWrite, Setup};

/// Asserts that a promise breaks without a guard.
fn needed(guard: Guard, setup: Setup, promise: &'static str) {
    let way = broken(setup.without(guard), promise);
    assert!(way.is_some(), "without {guard:?}, {promise:?} was not broken");
}

fn moods(moods: &[Mood], changes: u8) -> Setup {
    Setup {
        moods: moods.to_vec(),
        mishaps: Mishaps {
            moods: changes,
            ..Mishaps::default()
        },
        ..Setup::default()
    }
}

#[test]
fn without_the_need_for_two_witnesses_one_is_enough() {
    let setup = Setup {
        first: Mood::Thin,
        ..Setup::default()
    };
    needed(Guard::Evidence, setup, EVIDENCE);
}

#[test]
fn without_self_doubt_it_acts_on_its_own_fault() {
    needed(Guard::SelfDoubt, model::evidence(0), DOUBT);
}

#[test]
fn without_the_look_at_its_age_it_acts_by_an_old_inventory() {
    needed(Guard::Stale, model::evidence(0), DOUBT);
}

#[test]
fn without_the_fence_it_acts_unfenced() {
    needed(Guard::Fence, model::evidence(0), FENCE);
}

#[test]
fn without_the_hold_time_it_acts_on_what_passes_by_itself() {
    needed(Guard::Hold, model::evidence(0), HOLD);
}

#[test]
fn without_the_freeze_a_person_cannot_stop_it() {
    needed(Guard::Frozen, model::evidence(0), FROZEN);
}

#[test]
fn without_the_ceiling_an_owner_cannot_stop_it() {
    needed(Guard::Ceiling, model::owners(0), OPTED_OUT);
}

#[test]
fn without_the_rule_it_goes_past_the_rung() {
    let setup = Setup {
        rungs: BTreeSet::from([Rung::Shield]),
        ..Setup::default()
    };
    needed(Guard::Policy, setup, RUNG);
}

#[test]
fn without_the_cap_weak_evidence_takes_a_hook_away() {
    needed(Guard::WeakEvidence, moods(&[Mood::Slow], 1), WEAK);
}

#[test]
fn without_the_need_to_be_dead_a_hook_that_fails_open_is_passed_by_though_it_answers() {
    let setup = Setup {
        first: Mood::Hanging,
        ..model::dead(0)
    };
    needed(Guard::Dead, setup, DEAD);
}

#[test]
fn without_the_mode_plan_touches_objects() {
    needed(Guard::Mode, model::plan(), TOUCHES);
}

#[test]
fn without_the_budget_too_many_are_bypassed() {
    let setup = Setup {
        hooks: 2,
        ..Setup::default()
    };
    needed(Guard::Budget, setup, MOST);
}

#[test]
fn without_the_ledger_first_two_replicas_bypass_too_many() {
    needed(Guard::LedgerFirst, model::crashes(0), MOST);
}

#[test]
fn without_an_end_of_the_licence_a_late_replica_bypasses_what_others_have_written_off() {
    let setup = Setup {
        actors: 2,
        mishaps: Mishaps {
            naps: 3,
            delays: 1,
            moods: 2,
            glances: 1,
            ..Mishaps::default()
        },
        ..Setup::default()
    };
    needed(Guard::Licence, setup, LINE);
}

#[test]
fn without_the_wait_before_a_write_off_a_late_change_is_one_too_many() {
    let mut setup = model::replicas(0);
    setup.mishaps.moods = 1;
    needed(Guard::WriteOff, setup, MOST);
}

#[test]
fn without_the_version_the_wrong_original_is_kept() {
    needed(Guard::Version, model::other_writes(0), RESTORABLE);
}

#[test]
fn without_the_version_what_an_owner_opted_out_meanwhile_is_touched() {
    needed(Guard::Version, model::owners(0), OPTED_OUT);
}

#[test]
fn without_giving_up_it_fights_without_end() {
    needed(Guard::Contested, model::fights(0), FIGHTS);
}

#[test]
fn without_the_rate_bypasses_come_in_bursts() {
    needed(Guard::Rate, model::rate(0), RATE);
}

#[test]
fn without_canaries_a_hook_is_let_back_untried() {
    needed(Guard::Canary, model::canaries(0), CANARY);
}

#[test]
fn without_narrowing_probation_takes_a_shielded_hook_away() {
    let setup = Setup {
        rungs: BTreeSet::from([Rung::Shield]),
        canaries: true,
        ..moods(&[Mood::Well, Mood::Hanging], 1)
    };
    needed(Guard::Narrowing, setup, RUNG);
}

#[test]
fn without_asking_every_api_server_one_still_goes_by_a_bypass_that_is_not_counted() {
    needed(Guard::EveryServer, model::servers(0), MOST);
}

#[test]
fn without_the_limit_a_bypass_never_ends() {
    needed(Guard::Longest, model::longest(0), LONGEST);
}

#[test]
fn without_remembering_the_limit_it_bypasses_again_at_once() {
    needed(Guard::Limit, model::longest(0), SPENT);
}

#[test]
fn every_guard_is_switched_off_somewhere_here() {
    let here = include_str!("needed.rs");
    for &guard in Guard::ALL {
        let called = format!("needed(Guard::{guard:?}, ");
        assert!(here.contains(&called), "{guard:?} is not shown to be needed");
    }
}

#[test]
fn with_every_guard_the_same_worlds_keep_their_promises() {
    // A setup that is only used in this module. `model` explores the other ones with every guard.
    let shield_only = Setup {
        rungs: BTreeSet::from([Rung::Shield]),
        canaries: true,
        other_writes: vec![OtherWrite::Rotate],
        ..moods(&[Mood::Well, Mood::Hanging, Mood::Slow, Mood::Thin], 2)
    };
    for promise in PROMISES {
        assert_eq!(broken(shield_only.clone(), promise), None, "{promise}");
    }
}
