//! Single incidents, from the fault to the restore.

use std::collections::BTreeMap;

use super::super::*;
use super::incident::{Incident, at, hook, ours, policy};
use crate::act::fence::AutoBreak;
use crate::vocabulary::{Cause, Effect, Health};

#[test]
fn a_hung_hook_is_skipped_tried_by_canaries_and_put_back() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    // A skip has to wait; a shield, which protects the control plane, has not.
    let both = [Rung::Shield, Rung::Skip].map(To::Bypass);
    assert_eq!(incident.changes, both);
    let stage = incident.breaker.state(&hook());
    assert_eq!(
        stage,
        HookState::Bypassed {
            rung: Rung::Skip,
            effective: true
        }
    );
    incident.is_well();
    incident.wait(40);
    assert_eq!(incident.changes.last(), Some(&To::Probation));
    incident.wait(60);
    assert_eq!(
        incident.changes.last(),
        Some(&To::Probation),
        "no canary got through yet"
    );
    incident.facts.canary = CanaryEvidence::Through;
    incident.wait(30);
    assert_eq!(incident.changes.last(), Some(&To::Original));
    assert!(
        incident
            .ledger
            .1
            .entries
            .values()
            .all(|entry| entry.stage == EntryStage::Restored)
    );
    assert_eq!(
        incident.news,
        [
            NoticeKind::HeldBack(HeldBack::Hold),
            NoticeKind::Bypassing(Rung::Shield),
            NoticeKind::Bypassing(Rung::Skip),
            NoticeKind::Effective(Rung::Skip),
            NoticeKind::Probation,
            NoticeKind::Restoring,
            NoticeKind::Restored,
        ]
    );
    incident.wait(7_300);
    assert_eq!(
        incident.ledger.1.entries,
        BTreeMap::new(),
        "in the end it is forgotten"
    );
}

#[test]
fn a_hook_without_a_rule_is_shielded_and_put_back_without_letting_tenants_by() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Refused);
    incident.wait(5);
    incident.is_well();
    incident.wait(60);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield), To::Original]);
}

#[test]
fn plan_says_what_it_would_do_and_touches_nothing() {
    let mut incident = Incident::new(AutoBreak::Plan, Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(30);
    assert_eq!(incident.changes, []);
    assert_eq!(incident.ledger.0, 1);
    assert_eq!(
        incident.news,
        [
            NoticeKind::HeldBack(HeldBack::Hold),
            NoticeKind::WouldBypass(Rung::Shield),
            NoticeKind::WouldBypass(Rung::Skip)
        ]
    );
    let mut incident = Incident::new(AutoBreak::Off, Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(30);
    assert!(incident.changes.is_empty() && incident.news.is_empty());
}

#[test]
fn after_two_reverts_the_hook_is_left_alone_and_a_page_is_sent() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.fails(Cause::Hanging);
    for _ in 0..4 {
        incident.wait(20);
        incident.another_writer_writes(BypassState::Original);
    }
    incident.wait(300);
    incident.changes.retain(|to| *to != To::Bypass(Rung::Shield));
    assert_eq!(incident.changes, [To::Bypass(Rung::Skip); 2]);
    assert_eq!(incident.breaker.state(&hook()), HookState::Contested);
    assert!(incident.news.contains(&NoticeKind::Reverted) && incident.news.contains(&NoticeKind::Contested));
    assert_eq!(incident.pages, 1);
}

#[test]
fn what_another_writer_changed_stays_theirs() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    incident.another_writer_writes(BypassState::DuplicateName);
    incident.wait(100);
    incident.is_well();
    incident.wait(600);
    assert_eq!(incident.changes.last(), Some(&To::Bypass(Rung::Skip)));
    assert!(incident.news.contains(&NoticeKind::Foreign));
}

#[test]
fn a_rotated_ca_bundle_hinders_neither_bypass_nor_restore() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::TlsInvalid);
    incident.wait(5);
    let shown = incident.shown.clone();
    incident.another_writer_writes(shown);
    incident.wait(5);
    incident.is_well();
    incident.wait(60);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield), To::Original]);
}

#[test]
fn a_bypass_found_at_the_start_is_taken_over_and_put_back() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.shown = ours(Rung::Shield, false);
    incident.wait(3);
    assert!(
        incident.ledger.1.entries[&hook()].counts_as_bypassed(),
        "it counts"
    );
    incident.wait(60);
    assert_eq!(incident.changes, [To::Original]);
}

#[test]
fn a_restore_that_could_not_be_made_is_given_up_where_the_webhook_fails_again() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Hanging);
    incident.wait(10);
    incident.is_well();
    incident.refuses = Some(WriteOutcome::Refused("no".into()));
    incident.wait(40);
    assert_eq!(incident.ledger.1.entries[&hook()].stage, EntryStage::Restoring);
    incident.fails(Cause::Hanging);
    incident.refuses = None;
    incident.wait(120);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield)]);
    let line = &incident.ledger.1.entries[&hook()];
    assert_eq!((line.stage, line.relapses), (EntryStage::Bypassed, 1));
    assert!(incident.news.contains(&NoticeKind::Relapsed));
    incident.is_well();
    incident.wait(70);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield), To::Original]);
}

#[test]
fn a_skip_by_a_rule_of_labels_stays_while_a_new_leader_has_read_the_object_alone() {
    let subject = Arc::new(PolicySubject {
        labels: [("tier".to_owned(), "1".to_owned())].into(),
        annotations: BTreeMap::new(),
    });
    let mut permits = policy(&[Rung::Shield]);
    permits.rules.push(PolicyRule {
        name: "tier-1".into(),
        matches: RuleMatch {
            labels: subject.labels.clone(),
            ..RuleMatch::default()
        },
        rungs: Rung::ALL.iter().copied().collect(),
        ..PolicyRule::fallback()
    });
    let mut incident = Incident::new(AutoBreak::On, &[]);
    (incident.shown, incident.owner.subject) = (ours(Rung::Skip, false), subject);
    incident.fails(Cause::Hanging);
    incident.breaker = Breaker::new(BreakerSettings::new("me", AutoBreak::On, permits));
    incident.begin();
    incident.wait(60);
    assert_eq!(incident.changes, []);
    assert_eq!(incident.shown, ours(Rung::Skip, false));
}

#[test]
fn what_is_restored_is_said_once_however_often_it_is_looked_at_again() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Hanging);
    incident.wait(10);
    incident.is_well();
    incident.wait(300);
    let restored = incident.news.iter().filter(|news| **news == NoticeKind::Restored);
    assert_eq!(restored.count(), 1, "{:?}", incident.news);
}

#[test]
fn a_restored_hook_that_fails_again_and_is_held_back_is_not_said_to_be_on_probation() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Hanging);
    incident.wait(10);
    incident.is_well();
    incident.wait(60);
    assert_eq!(incident.shown, BypassState::Original);
    incident.self_doubt = true;
    incident.fails(Cause::Hanging);
    incident.wait(10);
    assert_eq!(incident.shown, BypassState::Original);
    assert!(incident.news.contains(&NoticeKind::HeldBack(HeldBack::SelfDoubt)));
    assert_eq!(incident.breaker.state(&hook()), HookState::Enforcing);
}

#[test]
fn a_skip_that_did_not_come_about_takes_no_place_of_one_while_its_shield_stands() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.fails(Cause::Slow);
    incident.wait(5);
    incident.refuses_skips = true;
    incident.fails(Cause::Hanging);
    incident.wait(5);
    assert_eq!(incident.ledger.1.entries[&hook()].rung, Rung::Skip);
    incident.fails(Cause::Slow);
    incident.wait(130);
    assert_eq!(incident.ledger.1.entries[&hook()].rung, Rung::Shield);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield)]);
}

/// Otherwise a call that fails every few minutes would keep a busy webhook shielded indefinitely after a relapse.
#[test]
fn what_a_relapse_adds_to_the_wait_is_not_lost_to_a_suspicion_and_is_to_a_failure() {
    let relapsed = || {
        let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
        incident.fails(Cause::Hanging);
        incident.wait(5);
        incident.ledger = (incident.ledger.0 + 1, incident.ledger.1.clone());
        let lines = incident.ledger.1.entries.values_mut();
        lines.for_each(|line| line.relapses = 2);
        let version = ResourceVersion::new(&incident.ledger.0.to_string());
        incident.observe(Observation::LedgerShows(version));
        incident
    };
    let mut incident = relapsed();
    let least = incident.breaker.settings.times.healthy_for.as_secs();
    // Four times as long as without a relapse.
    for _ in 0..3 {
        incident.is_well();
        incident.wait(least + 5);
        incident.facts.health = Health::Suspect;
        incident.wait(100);
    }
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield)]);
    incident.is_well();
    incident.wait(least - 5);
    assert_eq!(
        incident.changes,
        [To::Bypass(Rung::Shield)],
        "not without the least"
    );
    incident.wait(10);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield), To::Original]);
    let mut incident = relapsed();
    for _ in 0..6 {
        incident.is_well();
        incident.wait(least + 5);
        incident.fails(Cause::Hanging);
        incident.wait(5);
    }
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield)]);
}

/// Without a daemon, `restore --expired` relies on the end that the bypass states: it must neither miss a bypass that is over
/// nor revert one that continues.
#[test]
fn what_a_bypass_says_of_its_end_is_when_the_breaker_ends_it() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Skip]);
    incident.fails(Cause::Hanging);
    incident.wait(30);
    let until = incident.until[0].expect("a skip is restored at its limit");
    // It fails again on probation, with another cause.
    incident.is_well();
    incident.wait(60);
    assert_eq!(incident.changes.last(), Some(&To::Probation));
    incident.fails(Cause::Refused);
    incident.wait(30);
    assert_eq!(incident.changes.last(), Some(&To::Bypass(Rung::Skip)));
    assert_eq!(incident.until.last(), Some(&Some(until)), "it does not move");
    let left = until.since(at(incident.now)).as_secs();
    incident.wait(left - 5);
    assert_eq!(incident.changes.last(), Some(&To::Bypass(Rung::Skip)));
    incident.wait(10);
    assert_eq!(incident.changes.last(), Some(&To::Original));
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    assert_eq!(incident.until, [None], "a shield stays");
}

#[test]
fn a_skip_that_another_clock_dated_far_ahead_takes_no_place_of_a_new_one_without_end() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Skip]);
    let rate = incident.breaker.settings.policy.rate;
    incident.ledger = (2, incident.ledger.1.clone());
    incident.ledger.1.skips_begun = vec![at(1_000_000); rate - 1];
    incident.observe(Observation::LedgerShows(ResourceVersion::new("2")));
    incident.fails(Cause::Hanging);
    incident.wait(10);
    let begun = &incident.ledger.1.skips_begun;
    assert!(
        begun.len() == rate && begun.iter().all(|begun| *begun <= at(10)),
        "{begun:?}"
    );
}

/// A webhook that is no longer observed has no state from any API server.
#[test]
fn the_ledger_forgets_a_restored_webhook_that_was_deleted() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Hanging);
    incident.wait(10);
    incident.is_well();
    incident.wait(60);
    assert_eq!(incident.ledger.1.entries[&hook()].stage, EntryStage::Restored);
    let silent = BTreeSet::from(["s".into(), "silent".into()]);
    incident.observe(Observation::Servers(silent));
    incident.another_writer_writes(BypassState::Gone);
    incident.wait(60);
    assert_eq!(incident.ledger.1, Book::default());
}

#[test]
fn a_restored_hook_that_fails_again_is_bypassed_again_though_an_api_server_has_not_shown_the_restore() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Hanging);
    incident.wait(10);
    let still_shielded = incident.view();
    let silent = BTreeSet::from(["s".into(), "silent".into()]);
    incident.observe(Observation::Servers(silent));
    incident.observe(Observation::Shows {
        hook: incident.id.clone(),
        server: "silent".into(),
        view: still_shielded,
    });
    incident.is_well();
    incident.wait(60);
    assert_eq!(incident.shown, BypassState::Original);
    incident.fails(Cause::Hanging);
    incident.wait(10);
    assert_eq!(incident.shown, ours(Rung::Shield, false));
    // This counts as a relapse, which doubles the wait.
    incident.is_well();
    incident.wait(50);
    assert_eq!(incident.shown, ours(Rung::Shield, false));
    incident.wait(20);
    assert_eq!(incident.shown, BypassState::Original);
}

#[test]
fn a_canary_that_fails_on_probation_takes_the_hook_back_out() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Skip]);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    incident.is_well();
    incident.wait(35);
    assert_eq!(incident.changes.last(), Some(&To::Probation));
    incident.facts.canary = CanaryEvidence::Failed;
    incident.wait(2);
    assert_eq!(incident.changes.last(), Some(&To::Bypass(Rung::Skip)));
    assert!(incident.news.contains(&NoticeKind::Relapsed));
    incident.facts.canary = CanaryEvidence::Awaited;
    incident.wait(40);
    assert_eq!(incident.shown, ours(Rung::Skip, false), "it waits for longer now");
    incident.wait(40);
    assert_eq!(incident.shown, ours(Rung::Skip, true));
}

#[test]
fn a_shield_raised_for_slowness_becomes_a_skip_when_the_hook_hangs_for_good() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.fails(Cause::Slow);
    incident.wait(5);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    assert_eq!(
        incident.changes,
        [To::Bypass(Rung::Shield), To::Bypass(Rung::Skip)]
    );
    assert_eq!(incident.ledger.1.entries[&hook()].rung, Rung::Skip);
}

#[test]
fn a_refusal_is_said_and_tried_again_later() {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.refuses = Some(WriteOutcome::Refused("a policy says no".into()));
    incident.wait(20);
    let refused = NoticeKind::HeldBack(HeldBack::Refused);
    let said = incident.news.iter().filter(|news| **news == refused);
    assert!((1..=3).contains(&said.count()), "{:?}", incident.news);
    assert_eq!(
        incident.ledger.1,
        Book::default(),
        "it has not begun, and takes nobody's place"
    );
    incident.refuses = None;
    incident.wait(20);
    assert_eq!(incident.changes, [To::Bypass(Rung::Skip)]);
}

#[test]
fn the_times_leave_no_gap_for_a_change_that_comes_late() {
    let times = BreakerTimes::default();
    let slack = times
        .write_off_after
        .saturating_sub(times.act_within + times.request_life);
    assert!(slack >= Duration::from_secs(20), "{slack:?}");
}

#[test]
fn what_was_merely_slow_for_long_is_bypassed_no_sooner_when_it_gets_worse() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Slow);
    incident.facts.effect = Effect::Delaying;
    incident.wait(600);
    assert_eq!(incident.changes, []);
    incident.fails(Cause::Erroring);
    incident.wait(1);
    assert_eq!(incident.changes, [], "it has to be steady");
    incident.wait(5);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield)]);
}

#[test]
fn a_shield_is_gone_once_its_webhook_has_long_been_slow_within_every_deadline() {
    let slow = |effect| {
        let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
        incident.fails(Cause::Hanging);
        incident.wait(5);
        assert_eq!(incident.changes, [To::Bypass(Rung::Shield)]);
        incident.fails(Cause::Slow);
        incident.facts.effect = effect;
        incident.wait(25);
        assert_eq!(incident.changes.len(), 1, "one quick answer proves nothing");
        incident.wait(15);
        let changes = incident.changes.len();
        incident.wait(600);
        assert_eq!(incident.changes.len(), changes, "and it is not shielded again");
        incident.changes.last().copied()
    };
    assert_eq!(slow(Effect::Delaying), Some(To::Original));
    // The effect is the one that it would have without the shield.
    assert_eq!(slow(Effect::Blocking), Some(To::Bypass(Rung::Shield)));
}
