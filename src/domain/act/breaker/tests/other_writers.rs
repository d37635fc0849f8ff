//! Changes by other writers, and manual bypasses.

use std::time::Duration;

use super::super::*;
use super::incident::{Incident, at, hook, ours};
use crate::act::bypass::LONGEST_BY_HAND;
use crate::act::fence::AutoBreak;
use crate::vocabulary::Cause;

#[test]
fn what_is_left_of_a_bypass_that_another_writer_ended_is_removed_once() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Skip]);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    incident.is_well();
    incident.wait(1);
    incident.left_over = true;
    incident.another_writer_writes(BypassState::Original);
    incident.wait(300);
    assert_eq!(incident.changes, [To::Bypass(Rung::Skip), To::Original]);
    assert!(!incident.left_over);
    // Also for a webhook or a bypass that was removed, by a daemon that has not seen the object before.
    for shown in [BypassState::Gone, BypassState::Original] {
        let mut incident = Incident::new(AutoBreak::On, &[Rung::Skip]);
        (incident.shown, incident.left_over) = (shown, true);
        incident.wait(30);
        assert_eq!(incident.changes, [To::Original]);
        assert!(incident.ledger.1.entries.is_empty() && incident.news.is_empty());
    }
    let mut incident = Incident::new(AutoBreak::Plan, &[Rung::Skip]);
    incident.left_over = true;
    incident.wait(30);
    assert_eq!(incident.changes, []);
}

#[test]
fn what_is_left_over_does_not_keep_a_culprit_from_being_bypassed() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Skip]);
    incident.left_over = true;
    incident.fails(Cause::Hanging);
    incident.wait(10);
    assert_eq!(incident.changes, [To::Original, To::Bypass(Rung::Skip)]);
}

#[test]
fn a_bypass_by_hand_is_in_force_once_every_api_server_shows_it_also_where_nothing_may_be_done() {
    for mode in [AutoBreak::Plan, AutoBreak::Off] {
        let mut incident = Incident::new(mode, &[Rung::Shield]);
        (incident.shown, incident.by_hand_until) = (ours(Rung::Shield, false), Some(at(600)));
        let servers = ["s", "another"].map(Into::into);
        incident.observe(Observation::Servers(BTreeSet::from(servers)));
        let stage = |effective| HookState::Bypassed {
            rung: Rung::Shield,
            effective,
        };
        incident.wait(5);
        assert_eq!(
            incident.breaker.state(&hook()),
            stage(false),
            "one of two shows it"
        );
        incident.observe(Observation::Servers(BTreeSet::from(["s".into()])));
        assert_eq!(incident.breaker.state(&hook()), stage(true));
        incident.wait(1);
        let said = incident.words.last().unwrap();
        assert!(
            said.starts_with("Bypassed with `hookwatch break` until "),
            "{said}"
        );
        assert!(incident.changes.is_empty());
    }
}

#[test]
fn a_bypass_by_hand_is_left_alone_until_its_time_is_up_and_then_put_back() {
    for fails in [false, true] {
        let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
        (incident.shown, incident.by_hand_until) = (ours(Rung::Skip, false), Some(at(600)));
        if fails {
            incident.fails(Cause::Hanging);
        }
        incident.wait(595);
        assert_eq!(incident.changes, [], "neither put back nor changed: {fails}");
        assert!(
            incident.ledger.1.entries[&hook()].counts_as_bypassed(),
            "it counts"
        );
        incident.wait(10);
        assert_eq!(incident.changes.first(), Some(&To::Original), "{fails}");
    }
}

#[test]
fn who_takes_their_own_bypass_away_reverts_nothing_of_ours() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    for _ in 0..4 {
        incident.by_hand_until = Some(at(incident.now + 3_600));
        incident.another_writer_writes(ours(Rung::Skip, false));
        incident.wait(20);
        incident.by_hand_until = None;
        incident.another_writer_writes(BypassState::Original);
        incident.wait(200);
    }
    assert_eq!(incident.changes, []);
    let entries = &incident.ledger.1.entries;
    assert!(
        entries
            .values()
            .all(|entry| entry.reverts == 0 && !entry.contested),
        "{entries:?}"
    );
    assert!(!incident.news.contains(&NoticeKind::Contested));
}

#[test]
fn a_person_who_goes_further_than_the_daemon_has_gone_is_not_called_back() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Hanging);
    incident.wait(10);
    incident.by_hand_until = Some(at(400));
    incident.another_writer_writes(ours(Rung::Skip, false));
    incident.is_well();
    incident.wait(380);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield)]);
    incident.wait(20);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield), To::Original]);
}

#[test]
fn a_bypass_that_comes_back_with_an_old_copy_of_the_object_goes_at_once_unless_it_is_needed() {
    for fails in [false, true] {
        let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
        // After repeated failures, a bypass that is not needed would otherwise stay for a long time.
        for _ in 0..3 {
            incident.fails(Cause::Hanging);
            incident.wait(10);
            incident.is_well();
            incident.wait(250);
        }
        assert_eq!((incident.shown.is_ours(), incident.changes.len()), (false, 6));
        if fails {
            incident.fails(Cause::Hanging);
        }
        incident.another_writer_writes(ours(Rung::Shield, false));
        incident.wait(5);
        assert_eq!(incident.shown.is_ours(), fails, "{:?}", incident.changes);
        let line = &incident.ledger.1.entries[&hook()];
        let again = u8::from(fails);
        assert_eq!(line.relapses, 2 + again, "an old copy is no relapse");
    }
}

#[test]
fn an_expiry_that_no_person_can_have_requested_keeps_no_hook_away() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Skip]);
    let never = at(0) + LONGEST_BY_HAND + Duration::from_secs(3_600);
    (incident.shown, incident.by_hand_until) = (ours(Rung::Skip, false), Some(never));
    incident.wait(120);
    assert_eq!(incident.changes.first(), Some(&To::Probation));
}

#[test]
fn a_restore_that_is_refused_is_tried_ever_more_rarely_and_in_the_end_done() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    incident.is_well();
    incident.refuses = Some(WriteOutcome::Refused("it is not valid".into()));
    incident.wait(400);
    assert!(incident.shown.is_ours());
    // Retries come after 5, 10, 20, 40 s and then every 80 s.
    let refusals = incident.news.iter().filter(|news| **news == NoticeKind::Refused);
    assert!((4..=9).contains(&refusals.count()), "{:?}", incident.news);
    incident.refuses = None;
    incident.wait(90);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield), To::Original]);
}

#[test]
fn a_name_that_occurs_twice_is_a_reason_of_its_own() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.shown = BypassState::DuplicateName;
    incident.fails(Cause::Hanging);
    incident.wait(20);
    assert_eq!(incident.changes, []);
    assert!(
        incident.news.contains(&NoticeKind::HeldBack(HeldBack::Foreign)),
        "{:?}",
        incident.news
    );
}
