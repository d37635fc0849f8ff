//! The highest rung that owner, policy rule and fence permit.

use super::super::*;
use super::incident::{Incident, policy};
use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookKind;
use crate::vocabulary::{Cause, Effect};

const SHIELD: To = To::Bypass(Rung::Shield);
const SKIP: To = To::Bypass(Rung::Skip);

/// A webhook that blocks all writes, with a rule that permits skip. `may_skip` is what the fence permits.
fn hangs(may_skip: bool) -> Incident {
    let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
    incident.facts.may_skip = may_skip;
    incident.fails(Cause::Hanging);
    incident
}

#[test]
fn a_hook_is_skipped_only_where_an_annotation_or_the_fence_says_so() {
    let mut unsaid = hangs(false);
    unsaid.wait(10);
    assert_eq!(unsaid.changes, [SHIELD]);
    unsaid.facts.may_skip = true;
    unsaid.wait(5);
    assert_eq!(unsaid.changes, [SHIELD, SKIP], "it was named");

    let mut annotated = hangs(false);
    annotated.owner.ceiling = Ceiling::At(Rung::Skip);
    annotated.wait(10);
    assert!(annotated.changes.contains(&SKIP), "{:?}", annotated.changes);
}

#[test]
fn a_permit_to_skip_while_dead_is_none_for_what_does_not_ignore_failures() {
    let dead = |ignores: bool| {
        let mut incident = hangs(false);
        incident.owner.permit = Permit::SkipWhileDead;
        incident.facts.ignores = ignores;
        incident.facts.dead = ignores;
        if ignores {
            incident.facts.effect = Effect::Delaying;
        }
        incident.wait(10);
        incident.changes
    };
    assert_eq!((dead(true), dead(false)), (vec![SHIELD, SKIP], vec![SHIELD]));
}

#[test]
fn a_skip_that_the_fence_does_not_permit_any_more_becomes_a_shield() {
    let mut incident = hangs(true);
    incident.wait(10);
    assert!(incident.changes.ends_with(&[SKIP]));
    incident.facts.may_skip = false;
    incident.wait(5);
    assert!(
        incident.changes.ends_with(&[SKIP, SHIELD]),
        "{:?}",
        incident.changes
    );
}

#[test]
fn a_skip_that_is_refused_leaves_a_shield() {
    let mut incident = hangs(true);
    incident.refuses_skips = true;
    incident.wait(20);
    assert_eq!(incident.changes, [SHIELD]);
    assert_eq!(incident.shown, super::incident::ours(Rung::Shield, false));
}

#[test]
fn a_rule_that_permits_to_skip_what_the_fence_does_not_is_told_with_the_configurations() {
    let unusable = |change: fn(&mut Incident)| {
        let mut incident = Incident::new(AutoBreak::On, Rung::ALL);
        incident.facts.may_skip = false;
        change(&mut incident);
        let hooks = BTreeMap::from([(incident.id.clone(), incident.facts.clone())]);
        let found = policy(Rung::ALL).unusable(&hooks);
        let found = found
            .into_iter()
            .map(|(rule, configurations)| (rule.to_string(), configurations));
        found.collect::<Vec<_>>()
    };
    let configuration = Incident::new(AutoBreak::On, &[]).id.configuration;
    let told = vec![("default".to_owned(), BTreeSet::from([configuration]))];
    assert_eq!(unusable(|_| ()), told);
    let used: [fn(&mut Incident); 4] = [
        |it| it.facts.may_skip = true,
        |it| it.facts.owner.ceiling = Ceiling::At(Rung::Skip),
        // The owner's annotation forbids bypasses.
        |it| it.facts.owner.ceiling = Ceiling::Off,
        // It fails open, so only a rule with `skip_while_dead` applies.
        |it| it.facts.ignores = true,
    ];
    for (at, used) in used.into_iter().enumerate() {
        assert_eq!(unusable(used), Vec::new(), "{at}");
    }
}

#[test]
fn a_rule_that_does_not_name_a_mutating_webhook_permits_no_skip_while_dead_that_a_fence_could_forbid() {
    let mut facts = Incident::new(AutoBreak::On, Rung::ALL).facts.clone();
    (facts.may_skip, facts.ignores) = (false, true);
    let mut policy = policy(Rung::ALL);
    policy.fallback.skip_while_dead = true;
    for (kind, told) in [(HookKind::Validating, 1), (HookKind::Mutating, 0)] {
        let hooks = BTreeMap::from([(HookId::new(kind, "policy", "w"), facts.clone())]);
        assert_eq!(policy.unusable(&hooks).len(), told, "{kind:?}");
    }
}

#[test]
fn an_owner_who_opts_out_of_a_bypass_gets_the_original_back() {
    let mut incident = hangs(true);
    incident.wait(5);
    assert!(incident.shown.is_ours());
    incident.owner.ceiling = Ceiling::Off;
    incident.another_writer_writes(incident.shown.clone());
    incident.wait(5);
    assert_eq!(incident.changes.last(), Some(&To::Original));
}

#[test]
fn a_rule_that_permits_nothing_any_more_gives_the_original_back() {
    let mut incident = hangs(true);
    incident.wait(5);
    assert!(incident.shown.is_ours());
    let mut settings = BreakerSettings::new("me", AutoBreak::On, policy(&[Rung::Shield]));
    settings.policy.fallback.mode = AutoBreak::Off;
    incident.breaker = Breaker::new(settings);
    incident.begin();
    incident.wait(5);
    assert_eq!(incident.changes.last(), Some(&To::Original));
}
