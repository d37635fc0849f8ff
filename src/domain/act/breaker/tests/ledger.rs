//! The breaker when the ledger cannot be read or written.

use std::collections::BTreeSet;

use super::super::*;
use super::incident::{Incident, at, held_by_another, hook, ours, policy};
use crate::act::fence::AutoBreak;
use crate::vocabulary::Cause;

/// A webhook that was shielded and restored while the ledger could not be written since before the restore.
fn restored_without_a_ledger() -> Incident {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    incident.ledger_refuses = true;
    incident.is_well();
    incident.wait(120);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield), To::Original]);
    incident
}

#[test]
fn a_restore_does_not_wait_for_a_ledger_that_cannot_be_written() {
    let mut incident = restored_without_a_ledger();
    incident.ledger_refuses = false;
    incident.wait(30);
    let line = &incident.ledger.1.entries[&hook()];
    assert_eq!(
        (line.stage, line.reverts),
        (EntryStage::Restored, 0),
        "no other client took it away"
    );
    // The same after a crash, with a ledger that was never read.
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.ledger_refuses = true;
    incident.breaker = Breaker::new(BreakerSettings::new("me", AutoBreak::On, policy(&[Rung::Shield])));
    incident.begin();
    incident.shown = ours(Rung::Shield, false);
    incident.wait(120);
    assert_eq!(incident.changes, [To::Original]);
}

#[test]
fn a_restore_that_was_given_up_waits_for_the_ledger_again_when_it_is_next_due() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    incident.ledger_refuses = true;
    incident.is_well();
    incident.wait(40);
    assert_eq!(
        incident.shown,
        ours(Rung::Shield, false),
        "it still waits for the ledger"
    );
    incident.fails(Cause::Hanging);
    incident.ledger_refuses = false;
    incident.wait(60);
    incident.is_well();
    incident.wait(90);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield), To::Original]);
    let line = &incident.ledger.1.entries[&hook()];
    assert_eq!((line.stage, line.reverts), (EntryStage::Restored, 0));
}

#[test]
fn a_bypass_that_cannot_be_written_down_ends_all_the_same_and_not_while_it_is_needed() {
    for (fails, by_hand) in [(false, false), (true, false), (true, true)] {
        let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
        incident.wait(10);
        incident.ledger_is_read_only = true;
        incident.shown = ours(Rung::Shield, false);
        incident.by_hand_until = by_hand.then(|| at(70));
        incident.version += 1;
        if fails {
            incident.fails(Cause::Hanging);
        }
        incident.wait(120);
        let stays = fails && !by_hand;
        assert_eq!(incident.shown.is_ours(), stays, "{:?}", incident.changes);
    }
}

#[test]
fn without_a_ledger_a_bypass_ends_at_its_limit_and_when_its_owner_says_so() {
    let found = |rung| {
        let mut incident = Incident::new(AutoBreak::On, &[rung]);
        incident.breaker = Breaker::new(BreakerSettings::new("me", AutoBreak::On, policy(&[rung])));
        incident.ledger_refuses = true;
        incident.begin();
        incident.shown = ours(rung, false);
        incident.fails(Cause::Hanging);
        incident
    };
    let mut skipped = found(Rung::Skip);
    skipped.wait(3_500);
    assert_eq!(skipped.changes, []);
    skipped.wait(200);
    assert_eq!(skipped.changes, [To::Original]);
    let mut shielded = found(Rung::Shield);
    shielded.wait(3_700);
    assert_eq!(shielded.changes, [], "a shield stays at its limit");
    shielded.owner.ceiling = Ceiling::Off;
    shielded.version += 1;
    shielded.wait(60);
    assert_eq!(shielded.changes, [To::Original]);
}

#[test]
fn without_a_ledger_nothing_is_bypassed() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.breaker = Breaker::new(BreakerSettings::new("me", AutoBreak::On, policy(Rung::ALL)));
    incident.ledger_refuses = true;
    incident.begin();
    incident.fails(Cause::Hanging);
    incident.wait(300);
    assert_eq!(incident.changes, []);
    assert!(incident.news.contains(&NoticeKind::HeldBack(HeldBack::Ledger)));
}

#[test]
fn a_ledger_that_can_be_read_and_not_written_is_told_and_nothing_is_bypassed() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.wait(10);
    incident.ledger_is_read_only = true;
    incident.fails(Cause::Hanging);
    incident.wait(20);
    assert_eq!(incident.changes, []);
    assert_eq!(
        incident.news.last(),
        Some(&NoticeKind::HeldBack(HeldBack::Ledger))
    );
}

/// Writes another replica's entry into the ledger, for the object's current version.
fn line_of_another(incident: &mut Incident) {
    let line = held_by_another(incident.version, at(incident.now));
    write_ledger(incident, Some(line));
}

fn write_ledger(incident: &mut Incident, line: Option<BookEntry>) {
    incident.ledger.1.entries = line.into_iter().map(|line| (hook(), line)).collect();
    incident.ledger.0 += 1;
    incident.observe(Observation::LedgerShows(ResourceVersion::new(
        &incident.ledger.0.to_string(),
    )));
}

/// Replicas learn from each other by the ledger and by the objects, and by nothing else.
#[test]
fn what_a_follower_saw_is_no_witness_for_a_leader_that_has_one_of_its_own() {
    for shielded in [false, true] {
        let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield, Rung::Skip]);
        incident.wait(5);
        incident.fails(Cause::Hanging);
        incident.facts.witnesses = BTreeSet::from([Witness::Probes]);
        if shielded {
            incident.another_writer_writes(ours(Rung::Shield, false));
        }
        for _ in 0..30 {
            // The follower still sees it fail, and says so again and again.
            line_of_another(&mut incident);
            incident.wait(10);
        }
        assert_eq!(incident.changes, [], "shielded by the follower: {shielded}");
        incident.facts.witnesses.insert(Witness::Canary);
        incident.wait(90);
        assert_eq!(incident.changes.last(), Some(&To::Bypass(Rung::Skip)));
    }
}

#[test]
fn a_replica_that_does_not_lead_hears_of_the_end_of_what_it_says() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.wait(5);
    line_of_another(&mut incident);
    incident.ledger.1.entries.values_mut().for_each(|line| {
        (line.stage, line.contested) = (EntryStage::Restored, true);
    });
    incident.wait(40);
    assert_eq!(incident.breaker.state(&hook()), HookState::Contested);
    incident.observe(Observation::Leads(false));
    write_ledger(&mut incident, None);
    incident.wait(40);
    assert_eq!(incident.breaker.state(&hook()), HookState::Enforcing);
}

#[test]
fn what_is_refused_on_probation_is_tried_again_later_and_later() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.facts.canary = CanaryEvidence::Through;
    incident.fails(Cause::Hanging);
    incident.wait(5);
    incident.is_well();
    incident.facts.canary = CanaryEvidence::Awaited;
    incident.wait(40);
    assert_eq!(incident.shown, ours(Rung::Skip, true), "{:?}", incident.changes);
    incident.refuses_skips = true;
    incident.fails(Cause::Hanging);
    incident.wait(60);
    let said = incident.news.iter();
    let refused = said.filter(|news| **news == NoticeKind::Refused).count();
    assert!((1..=5).contains(&refused), "{:?}", incident.news);
}

#[test]
fn a_webhook_that_is_well_and_as_its_owner_has_it_needs_no_decision() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.wait(5);
    assert_eq!(
        incident.breaker.states().count(),
        0,
        "though its object is followed"
    );
}

#[test]
fn a_change_that_no_api_server_took_is_no_refusal_and_is_made_as_soon_as_one_takes_it() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.refuses = Some(WriteOutcome::GaveUp);
    incident.fails(Cause::Hanging);
    incident.wait(300);
    let refused = NoticeKind::HeldBack(HeldBack::Refused);
    assert!(!incident.news.contains(&refused), "{:?}", incident.news);
    incident.refuses = None;
    incident.wait(2);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield)]);
    assert_eq!(incident.ledger.1.entries[&hook()].reverts, 0);
}

#[test]
fn a_bypass_of_another_replica_is_not_restored_before_the_webhook_has_been_well_under_it() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.wait(300);
    line_of_another(&mut incident);
    incident.another_writer_writes(ours(Rung::Shield, false));
    incident.wait(25);
    assert_eq!(incident.changes, []);
    incident.wait(15);
    assert_eq!(incident.changes, [To::Original]);
}

#[test]
fn what_a_replica_restored_before_it_died_is_closed_in_the_ledger_and_not_touched_again() {
    let mut incident = restored_without_a_ledger();
    assert!(
        incident.ledger.1.entries[&hook()].counts_as_bypassed(),
        "it could not be written"
    );
    incident.breaker = Breaker::new(BreakerSettings::new(
        "next",
        AutoBreak::On,
        policy(&[Rung::Shield]),
    ));
    incident.begin();
    incident.another_writer_writes(BypassState::Original);
    incident.ledger_refuses = false;
    incident.wait(60);
    assert!(!incident.ledger.1.entries[&hook()].counts_as_bypassed());
    assert_eq!(incident.changes.len(), 2);
}
