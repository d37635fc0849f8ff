//! Skip of a dead webhook with `failurePolicy: Ignore`.

use std::time::Duration;

use super::super::*;
use super::incident::{Incident, ours, policy};
use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookKind;
use crate::vocabulary::{Cause, Effect};

const SHIELD: To = To::Bypass(Rung::Shield);
const SKIP: To = To::Bypass(Rung::Skip);

/// A policy with a rule that permits `skip_while_dead`.
fn permitted() -> Policy {
    let mut policy = policy(&[Rung::Shield]);
    policy.fallback.skip_while_dead = true;
    policy
}

/// A hanging webhook with `failurePolicy: Ignore`.
fn hangs(policy: Policy) -> Incident {
    let mut incident = Incident::new(AutoBreak::On, &[]);
    incident.set(policy);
    incident.facts.ignores = true;
    incident.fails(Cause::Hanging);
    incident.facts.effect = Effect::Delaying;
    incident
}

/// The same webhook after it has been dead for its timeout and is skipped.
pub(super) fn skipped() -> Incident {
    let mut incident = hangs(permitted());
    incident.wait(10);
    incident.facts.dead = true;
    incident.wait(1);
    // It is no longer called.
    incident.facts.effect = Effect::FailingOpen;
    incident.wait(1);
    assert_eq!(incident.changes, [SHIELD, SKIP]);
    incident
}

impl Incident {
    fn set(&mut self, policy: Policy) {
        self.breaker = Breaker::new(BreakerSettings::new("me", AutoBreak::On, policy));
        self.begin();
    }

    /// Makes the webhook answer every call, slowly.
    pub(super) fn answers(&mut self) {
        (self.facts.dead, self.facts.effect) = (false, Effect::Delaying);
    }

    /// Makes the webhook stop answering again.
    pub(super) fn is_dead_again(&mut self) {
        self.facts.dead = true;
        self.fails(Cause::Hanging);
        self.facts.effect = if self.shown == ours(Rung::Skip, false) {
            Effect::FailingOpen
        } else {
            Effect::Delaying
        };
    }

    fn skips(&self) -> usize {
        self.changes.iter().filter(|to| **to == SKIP).count()
    }
}

#[test]
fn a_dead_hook_is_shielded_as_soon_as_any_then_skipped_then_shielded_then_put_back_without_probation() {
    let mut incident = hangs(permitted());
    incident.facts.canary = CanaryEvidence::Through;
    incident.wait(3);
    assert_eq!(incident.changes, [SHIELD], "it is not known to be dead yet");
    incident.wait(30);
    assert_eq!(incident.changes, [SHIELD]);
    incident.facts.dead = true;
    incident.wait(1);
    incident.facts.effect = Effect::FailingOpen;
    incident.wait(60);
    assert_eq!(incident.changes, [SHIELD, SKIP]);
    incident.answers();
    incident.wait(1);
    assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD]);
    incident.is_well();
    incident.wait(35);
    assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD, To::Original]);
}

#[test]
fn without_a_rule_or_an_annotation_a_dead_hook_is_shielded_and_no_more_whatever_rungs_say() {
    let mut incident = hangs(policy(Rung::ALL));
    incident.facts.dead = true;
    incident.wait(100);
    assert_eq!(incident.changes, [SHIELD]);
    incident.owner.permit = Permit::Unreadable;
    incident.another_writer_writes(ours(Rung::Shield, false));
    incident.wait(100);
    assert_eq!(incident.changes, [SHIELD]);
    incident.owner.permit = Permit::SkipWhileDead;
    incident.another_writer_writes(ours(Rung::Shield, false));
    incident.wait(2);
    assert_eq!(incident.changes, [SHIELD, SKIP]);
    incident.owner.permit = Permit::Nothing;
    incident.another_writer_writes(ours(Rung::Skip, false));
    incident.wait(1);
    assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD], "its owner took it back");
}

#[test]
fn an_unreadable_annotation_is_reported_and_permits_nothing() {
    let mut incident = hangs(policy(&[Rung::Shield]));
    (incident.facts.dead, incident.owner.permit) = (true, Permit::Unreadable);
    incident.wait(3);
    let words = incident.words.join("; ");
    assert!(
        words.contains("the annotation hookwatch.dev/permit is not skip-while-dead"),
        "{words}"
    );
}

#[test]
fn the_annotation_of_a_mutating_hook_permits_nothing_and_neither_does_a_rule_with_a_pattern() {
    let mutating = HookId::new(HookKind::Mutating, "c", "w");
    let skips = |configurations: &[&str], by_rule: bool| {
        let patterns = configurations.iter().map(|text| Pattern::parse(text).unwrap());
        let mut policy = policy(&[Rung::Shield]);
        policy.fallback.skip_while_dead = by_rule;
        policy.fallback.matches.configurations = patterns.collect();
        let mut incident = hangs(policy);
        incident.id = mutating.clone();
        (incident.facts.dead, incident.owner.permit) = (true, Permit::SkipWhileDead);
        incident.wait(5);
        assert_eq!(incident.changes.first(), Some(&SHIELD));
        incident.skips() > 0
    };
    assert!(!skips(&[], true));
    assert!(!skips(&["c*"], true));
    assert!(!skips(&["c"], false));
    assert!(skips(&["c"], true));
}

#[test]
fn a_ceiling_or_a_rule_that_says_no_meanwhile_ends_a_skip() {
    let mut incident = skipped();
    incident.owner.ceiling = Ceiling::At(Rung::Shield);
    incident.another_writer_writes(ours(Rung::Skip, false));
    incident.wait(1);
    assert_eq!(incident.changes.last(), Some(&SHIELD));
    let mut incident = skipped();
    incident.owner.ceiling = Ceiling::Off;
    incident.another_writer_writes(ours(Rung::Skip, false));
    incident.wait(1);
    assert_eq!(incident.changes.last(), Some(&To::Original));
    let mut incident = skipped();
    incident.set(policy(&[Rung::Shield]));
    incident.wait(1);
    assert_eq!(incident.changes.last(), Some(&SHIELD));
}

#[test]
fn an_owner_who_sets_the_policy_to_fail_gets_a_shield_at_once() {
    let mut incident = skipped();
    incident.facts.ignores = false;
    incident.facts.effect = Effect::Blocking;
    incident.another_writer_writes(ours(Rung::Skip, false));
    incident.wait(1);
    assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD]);
    incident.wait(300);
    assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD]);
}

#[test]
fn a_skip_becomes_a_shield_once_a_tenant_may_have_brought_about_what_is_seen() {
    let doubts: [fn(&mut HookFacts); 3] = [
        |facts| facts.ambiguous = true,
        |facts| facts.doubt = Some(Doubt::EndpointsUnmanaged),
        |facts| facts.doubt = Some(Doubt::EndpointsUnsettled),
    ];
    for doubted in doubts {
        let mut incident = skipped();
        doubted(&mut incident.facts);
        incident.wait(1);
        assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD]);
    }
}

#[test]
fn that_no_failed_call_is_counted_for_a_hook_that_is_skipped_does_not_end_its_skip() {
    let mut incident = skipped();
    incident.facts.doubt = Some(Doubt::SilentTogether);
    incident.wait(60);
    assert_eq!(incident.changes, [SHIELD, SKIP]);
}

#[test]
fn each_relapse_doubles_the_wait_for_another_skip() {
    let mut incident = skipped();
    for wait in [60, 120, 240, 480] {
        let skips = incident.skips();
        incident.answers();
        incident.wait(1);
        incident.is_dead_again();
        incident.wait(wait - 2);
        assert_eq!(incident.skips(), skips, "{wait} s are not over");
        incident.wait(5);
        assert_eq!(incident.skips(), skips + 1, "{wait} s are over");
        incident.is_dead_again();
        incident.wait(1);
    }
}

#[test]
fn a_skip_becomes_a_shield_after_a_quarter_of_an_hour_and_none_follows() {
    let mut incident = skipped();
    incident.wait(890);
    assert_eq!(incident.changes, [SHIELD, SKIP]);
    incident.wait(15);
    assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD]);
    incident.is_dead_again();
    incident.wait(3_000);
    assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD], "the shield stays");
}

#[test]
fn a_rule_says_how_long_a_skip_may_last() {
    let mut incident = skipped();
    let mut policy = permitted();
    policy.fallback.longest = Some(Duration::from_secs(120));
    policy.fallback.at_limit = Some(AtLimit::Hold);
    incident.set(policy);
    incident.wait(105);
    assert_eq!(incident.changes, [SHIELD, SKIP]);
    incident.wait(15);
    assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD]);
}

#[test]
fn who_cannot_tell_any_more_whether_it_is_dead_shields_it() {
    let mut doubts = skipped();
    doubts.self_doubt = true;
    doubts.wait(1);
    assert_eq!(doubts.changes.last(), Some(&SHIELD));
    // No judgement arrives any more.
    let mut stale = skipped();
    stale.now += 11;
    stale.observe(Observation::Tick);
    assert_eq!(stale.changes.last(), Some(&SHIELD));
}

#[test]
fn a_skip_ends_though_the_ledger_cannot_be_written() {
    let mut incident = skipped();
    incident.ledger_refuses = true;
    incident.answers();
    incident.wait(1);
    assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD]);
}

#[test]
fn a_new_leader_ends_the_skip_and_knows_of_the_earlier_ones() {
    let mut incident = skipped();
    incident.set(permitted());
    incident.wait(5);
    assert_eq!(incident.changes, [SHIELD, SKIP], "it is dead as before");
    incident.set(permitted());
    incident.answers();
    incident.wait(1);
    assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD]);
    incident.is_dead_again();
    incident.set(permitted());
    incident.wait(55);
    assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD], "it waits anew");
    incident.wait(10);
    assert_eq!(incident.skips(), 2);
    let line = incident.ledger.1.entries.values().next();
    assert_eq!(line.and_then(|line| line.skips).map(|skips| skips.times), Some(2));
}

#[test]
fn a_skip_that_nothing_is_written_about_ends_like_any_other() {
    let mut incident = skipped();
    incident.ledger.1 = Book::default();
    incident.ledger.0 += 1;
    incident.set(permitted());
    incident.wait(2);
    assert_eq!(incident.changes, [SHIELD, SKIP]);
    incident.answers();
    incident.wait(1);
    assert_eq!(incident.changes, [SHIELD, SKIP, SHIELD]);
}

#[test]
fn a_skip_that_did_not_come_about_is_no_leave_to_skip_later() {
    let mut incident = hangs(permitted());
    incident.wait(10);
    incident.refuses = Some(WriteOutcome::Ambiguous);
    incident.facts.dead = true;
    incident.wait(1);
    incident.refuses = None;
    assert_eq!(incident.changes, [SHIELD]);
    let known = incident.ledger.1.entries.values().next().unwrap();
    assert_eq!(known.rung, Rung::Skip);
    incident.wait(100);
    assert_eq!(incident.changes, [SHIELD], "the first may still be under way");
    incident.wait(100);
    assert_eq!(incident.changes, [SHIELD, SKIP]);
}
