//! Bypasses that have reached their time limit.

use super::super::*;
use super::incident::{Incident, at, hook};
use crate::act::fence::AutoBreak;
use crate::vocabulary::Cause;

#[test]
fn at_its_limit_a_skip_is_restored_and_a_shield_stays_and_both_page() {
    for (rung, restored) in [(Rung::Skip, true), (Rung::Shield, false)] {
        let mut incident = Incident::new(AutoBreak::On, &[rung]);
        incident.fails(Cause::Hanging);
        incident.wait(3_700);
        assert_eq!(incident.shown == BypassState::Original, restored, "{rung}");
        assert!(incident.news.contains(&NoticeKind::Limit));
        assert_eq!(incident.pages, 1, "{rung}: {:?}", incident.news);
        incident.wait(3_700);
        assert_eq!(
            incident.changes.len(),
            1 + usize::from(restored),
            "{rung}: not again"
        );
        if restored {
            incident.is_well();
            incident.wait(60);
            incident.fails(Cause::Hanging);
            incident.wait(60);
            assert!(
                incident.shown.is_ours(),
                "what fails after it was well is another failure"
            );
        }
    }
}

#[test]
fn at_its_limit_a_skip_becomes_the_shield_that_its_rule_has_stay() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(7_400);
    let (shield, skip) = (To::Bypass(Rung::Shield), To::Bypass(Rung::Skip));
    assert_eq!(incident.changes, [shield, skip, shield]);
    // A freeze, which forbids new bypasses, does not end this one.
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(10);
    incident.ledger.1.frozen = Some(Freeze {
        by: "somebody".into(),
        reason: "a drill".into(),
        at: at(incident.now),
    });
    incident.ledger.0 += 1;
    incident.wait(7_400);
    assert_eq!(incident.changes, [shield, skip, shield]);
    assert!(!incident.ledger.1.entries[&hook()].limit_reached);
}

#[test]
fn a_skip_whose_shield_is_refused_at_its_limit_is_restored() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(3_590);
    incident.refuses_shields = true;
    incident.wait(600);
    assert_eq!(incident.changes.last(), Some(&To::Original));
}

/// The limit of a skip counts from the start of the bypass, so it would end at once, and the shield with it.
#[test]
fn a_shield_that_has_reached_its_limit_is_not_raised_to_a_skip() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.owner.ceiling = Ceiling::At(Rung::Shield);
    incident.fails(Cause::Hanging);
    incident.wait(3_700);
    incident.owner.ceiling = Ceiling::Open;
    incident.version += 1;
    incident.wait(3_700);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield)]);
}

#[test]
fn a_webhook_that_is_well_when_its_bypass_reaches_its_limit_is_bypassed_when_it_fails_again() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Skip]);
    incident.fails(Cause::Hanging);
    incident.wait(3_595);
    incident.is_well();
    incident.wait(20);
    assert_eq!(incident.changes, [To::Bypass(Rung::Skip), To::Original]);
    incident.fails(Cause::Hanging);
    incident.wait(30);
    assert_eq!(incident.changes.len(), 3, "{:?}", incident.news);
}

/// A refused restore does not mean that a change to a shield would be refused.
#[test]
fn a_skip_whose_restore_was_refused_becomes_a_shield_at_its_limit_all_the_same() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(10);
    incident.is_well();
    incident.refuses = Some(WriteOutcome::Refused("a policy says no".into()));
    incident.wait(40);
    incident.refuses = None;
    incident.fails(Cause::Hanging);
    incident.wait(3_700);
    let (shield, skip) = (To::Bypass(Rung::Shield), To::Bypass(Rung::Skip));
    assert_eq!(incident.changes, [shield, skip, shield]);
}
