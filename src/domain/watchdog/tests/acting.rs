//! The facts for the breaker: independent witnesses, and what canaries show about a change.

use std::collections::BTreeSet;

use super::*;
use crate::act::breaker::{CanaryEvidence, HookFacts, Judged, Witness};
use crate::act::fence::MaySkip;
use crate::cluster::hook::MatchCondition;
use crate::observe::canary::FurtherCanary;

impl Incident {
    pub(super) fn judged(&mut self, ms: u64) -> Judged {
        self.tick(ms);
        Judged::clone(&self.judged)
    }

    /// The facts for the breaker if all verdicts had this cause, or if something outside of webhooks delayed requests.
    pub(super) fn facts_if(
        &mut self,
        ms: u64,
        hook: &Hook,
        cause: Option<Cause>,
        elsewhere: bool,
    ) -> HookFacts {
        let now = Self::at(ms);
        let Watchdog {
            seen,
            verdicts,
            tampering,
            ..
        } = &mut self.watchdog;
        let windows = seen.history.windows(now);
        let plane = PlaneEvidence {
            now,
            windows: &windows,
            baseline: &seen.history.baseline,
            canaries: &seen.canaries,
            unanswered: None,
            sick: None,
            one_sided: BTreeMap::new(),
            cut_off: false,
        };
        let scene = Scene::new(seen, &plane, verdicts, now);
        let mut all = judge_all(&scene);
        for (_, verdict) in &mut all {
            verdict.cause = cause.or(verdict.cause);
        }
        let judged = facts::judged(&scene, &all, elsewhere, tampering, Some(&Proof::Unneeded));
        judged.hooks[&hook.id].clone()
    }

    pub(super) fn facts(&mut self, ms: u64, hook: &Hook) -> HookFacts {
        let judged = self.judged(ms);
        judged.hooks.get(&hook.id).cloned().expect("it is judged")
    }
}

pub(super) fn witnesses(all: &[Witness]) -> BTreeSet<Witness> {
    all.iter().copied().collect()
}

/// The hook with a match condition of hookwatch.
pub(super) fn changed(hook: &Hook, name: &str) -> Hook {
    Hook {
        match_conditions: vec![MatchCondition {
            name: name.to_owned(),
            expression: "false".to_owned(),
        }],
        ..hook.clone()
    }
}

#[test]
fn a_hang_has_two_witnesses_before_any_call_has_ended() {
    let opa = hook("opa", 2);
    let mut incident = Incident::hung(&opa);
    // No call was counted since the fault.
    incident.scrape(13 * SECOND);
    let facts = incident.facts(13 * SECOND + 100, &opa);
    assert!(facts.harms_writes(), "{facts:?}");
    assert_eq!(facts.witnesses, witnesses(&[Witness::Probes, Witness::Canary]));
    assert!(facts.confident && !facts.ambiguous && facts.meets_control_plane);
}

#[test]
fn a_late_canary_is_a_witness_once_the_api_server_answered_something_else_or_was_silent_for_longer() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    incident.canary_late(11 * SECOND);
    incident.silent(11 * SECOND, &opa, 1_500);
    let alone = incident.facts(12 * SECOND + 600, &opa);
    assert_eq!(alone.witnesses, witnesses(&[Witness::Probes]));
    let both = witnesses(&[Witness::Probes, Witness::Canary]);
    assert_eq!(incident.facts(14 * SECOND, &opa).witnesses, both);
    incident.scrape(12 * SECOND + 700);
    assert_eq!(incident.facts(12 * SECOND + 800, &opa).witnesses, both);
}

#[test]
fn what_was_silent_while_hookwatch_stood_still_was_perhaps_not() {
    let opa = hook("opa", 2);
    let mut incident = Incident::hung(&opa);
    incident.event(13 * SECOND, Event::Resumed);
    incident.scrape(13 * SECOND + 50);
    let at_once = incident.facts(13 * SECOND + 100, &opa);
    assert_eq!((at_once.harms_writes(), at_once.witnesses.len()), (false, 0));
    let later = incident.facts(14 * SECOND + 600, &opa);
    assert_eq!((later.harms_writes(), later.witnesses.len()), (true, 2));
}

#[test]
fn hooks_that_share_a_service_are_each_spoken_against_by_the_canary_that_waits_for_them() {
    let (mut one, mut other) = (hook("one", 2), hook("other", 2));
    let mut stranger = hook("stranger", 2);
    (one.target, stranger.target) = (other.target.clone(), stranger.target.clone());
    let culprits = |hooks: [&Hook; 2]| {
        let mut incident = Incident::calm(&hooks);
        incident.canary_late(11 * SECOND);
        for hook in hooks {
            incident.silent(11 * SECOND, hook, 2 * SECOND);
        }
        incident.scrape(13 * SECOND);
        hooks.map(|hook| incident.facts(13 * SECOND + 100, hook).witnesses.len())
    };
    assert_eq!(culprits([&one, &other]), [2, 2]);
    assert_eq!(culprits([&one, &stranger]), [1, 1]);
    (one.failure_policy, other.failure_policy) = (FailurePolicy::Ignore, FailurePolicy::Fail);
    assert_eq!(culprits([&one, &other]), [2, 2]);
}

#[test]
fn a_canary_and_the_counters_that_it_moved_itself_are_one_witness() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    incident.canary(11 * SECOND, 100, refusal("opa", "EOF"));
    let series = incident.count_calls("opa", 1.0, 0.1);
    series.rejections.calling += 1.0;
    incident.scrape(12 * SECOND);
    let alone = incident.facts(12 * SECOND + 10, &opa);
    assert_eq!(alone.witnesses, witnesses(&[Witness::Canary]));
    let series = incident.count_calls("opa", 20.0, 0.1);
    series.rejections.calling += 20.0;
    incident.scrape(14 * SECOND);
    let with_users = incident.facts(14 * SECOND + 10, &opa);
    let both = witnesses(&[Witness::Canary, Witness::Counters]);
    assert_eq!(with_users.witnesses, both);
}

#[test]
fn a_late_canary_is_no_witness_while_something_else_holds_requests_up() {
    let opa = hook("opa", 2);
    let mut incident = Incident::hung(&opa);
    incident.scrape(13 * SECOND);
    let now = 13 * SECOND + 100;
    let both = witnesses(&[Witness::Probes, Witness::Canary]);
    assert_eq!(incident.facts_if(now, &opa, None, false).witnesses, both);
    let probes = witnesses(&[Witness::Probes]);
    assert_eq!(incident.facts_if(now, &opa, None, true).witnesses, probes);
}

#[test]
fn a_rollout_gap_has_no_witness() {
    let opa = hook("opa", 2);
    let mut incident = Incident::hung(&opa);
    incident.scrape(13 * SECOND);
    for (cause, known) in [(Cause::Hanging, 2), (Cause::RolloutGap, 0)] {
        let facts = incident.facts_if(13 * SECOND + 100, &opa, Some(cause), false);
        assert_eq!(facts.witnesses.len(), known, "{cause}");
    }
}

#[test]
fn calls_that_began_before_the_answered_ones_and_ran_into_a_long_timeout_accuse_no_hook() {
    let after = |timeout: u64| {
        let opa = Hook {
            timeout: Duration::from_secs(timeout),
            ..hook("opa", 1)
        };
        let mut incident = Incident::calm(&[&opa]);
        let series = incident.count_calls("opa", 2.0, timeout as f64);
        series.rejections.calling += 2.0;
        add(&mut series.rejected, 2.0, timeout as f64);
        incident.scrape(12 * SECOND);
        let facts = incident.facts_if(12 * SECOND + 100, &opa, Some(Cause::Hanging), false);
        facts.witnesses
    };
    // The calls that were answered may have been answered before it hung.
    assert_eq!(after(5), witnesses(&[Witness::Counters]));
    assert_eq!(after(30), witnesses(&[]));
}

#[test]
fn calls_that_were_lost_while_endpoints_changed_accuse_no_hook_however_late_they_are_read() {
    let (old, new) = (hook("opa", 2), hook("opa", 3));
    let mut incident = Incident::calm(&[&old]);
    incident.inventory(11 * SECOND, vec![new.clone()]);
    let mut after = |ms: u64| {
        let series = incident.count_calls("opa", 20.0, 0.1);
        series.rejections.calling += 3.0;
        add(&mut series.rejected, 3.0, 0.1);
        incident.scrape(ms);
        let facts = incident.facts_if(ms + 100, &new, Some(Cause::Erroring), false);
        facts.witnesses
    };
    assert_eq!(after(26 * SECOND), witnesses(&[]));
    // All of these were counted well after the change.
    assert_eq!(after(40 * SECOND), witnesses(&[Witness::Counters]));
}

#[test]
fn calls_that_hung_since_endpoints_changed_accuse_no_hook_once_a_canary_gets_through() {
    let after = |changed: bool, through: bool| {
        let (old, new) = (hook("opa", 2), hook("opa", 3));
        let mut incident = Incident::calm(&[&old]);
        let there = if changed { &new } else { &old };
        incident.inventory(11 * SECOND, vec![there.clone()]);
        for backend in 0..2 {
            incident.probe(19 * SECOND, there, backend, alive());
        }
        if through {
            incident.canary(19 * SECOND, 5, CanaryOutcome::Written);
        } else {
            incident.canary_late(19 * SECOND);
        }
        let series = incident.count_calls("opa", 1.0, 0.1);
        series.rejections.calling += 3.0;
        add(&mut series.rejected, 3.0, 10.0);
        incident.scrape(22 * SECOND);
        incident
            .facts_if(22 * SECOND + 100, there, Some(Cause::Hanging), false)
            .witnesses
    };
    assert_eq!(after(true, true), witnesses(&[]));
    assert!(after(false, true).contains(&Witness::Counters));
    assert!(after(true, false).contains(&Witness::Counters));
}

#[test]
fn a_late_canary_that_two_suspects_share_is_evidence_against_neither() {
    let (a, b) = (hook("a", 1), hook("b", 1));
    let mut incident = Incident::calm(&[&a, &b]);
    incident.canary_late(11 * SECOND);
    for hook in [&a, &b] {
        incident.probe_late(11 * SECOND, hook, 0, 3 * SECOND);
    }
    for hook in [&a, &b] {
        let facts = incident.facts(15 * SECOND, hook);
        assert_eq!(facts.witnesses, witnesses(&[Witness::Probes]), "{}", hook.id);
    }
    incident.canary(
        11 * SECOND,
        10 * SECOND,
        refusal("a", "context deadline exceeded"),
    );
    let named = incident.facts(21 * SECOND + 10, &a);
    assert!(named.witnesses.contains(&Witness::Canary));
}

#[test]
fn a_name_that_another_configuration_uses_too_makes_all_evidence_ambiguous() {
    let (mut a, mut b) = (hook("a", 1), hook("b", 1));
    a.id = HookId::new(HookKind::Validating, "a", "same");
    b.id = HookId::new(HookKind::Mutating, "b", "same");
    let other = hook("other", 1);
    let mut incident = Incident::with(vec![a.clone(), b.clone(), other.clone()]);
    assert!(incident.facts(10, &a).ambiguous && incident.facts(20, &b).ambiguous);
    assert!(!incident.facts(30, &other).ambiguous);
}

#[test]
fn a_healthy_hook_has_no_witness_and_what_is_not_in_the_inventory_is_not_reported() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    incident.canary(11 * SECOND, 5, refusal("elsewhere", "EOF"));
    let judged = incident.judged(11 * SECOND + 10);
    assert_eq!(judged.hooks.keys().collect::<Vec<_>>(), [&opa.id]);
    assert!(judged.hooks[&opa.id].witnesses.is_empty());
    assert!(!judged.fence_holds && !judged.inventory_is_old && !judged.self_doubt);
    incident.event(12 * SECOND, Event::Fence(Proof::Proven(MaySkip::default())));
    assert!(incident.judged(12 * SECOND + 10).fence_holds);
}

#[test]
fn a_proven_fence_stays_proven_for_a_limited_time_while_it_cannot_be_tried() {
    let opa = hook("opa", 1);
    let holds_after = |proof: Proof, minutes: u64| {
        let mut incident = Incident::calm(&[&opa]);
        incident.event(12 * SECOND, Event::Fence(Proof::Proven(MaySkip::default())));
        incident.event(minutes * 60 * SECOND, Event::Fence(proof));
        incident.judged(minutes * 60 * SECOND + 10).fence_holds
    };
    let unknown = || Proof::Unknown("connection refused".to_owned());
    // An API server forbids everything until it has loaded RBAC.
    let forbidden = || Proof::NotAllowedToAct("User \"u\" cannot patch".to_owned());
    for untried in [unknown, forbidden] as [fn() -> Proof; 2] {
        assert!(holds_after(untried(), 10));
        assert!(!holds_after(untried(), 21));
    }
    assert!(!holds_after(
        Proof::NotProven("it let a patch through".to_owned()),
        10
    ));
}

#[test]
fn an_order_to_bypass_nothing_new_stands_in_the_assessment_until_it_is_taken_back_and_is_told_once() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    let order = Freeze {
        by: "alice".into(),
        reason: "upgrade".into(),
        at: Incident::at(11 * SECOND),
    };
    let before = incident.told.len();
    for ms in [12 * SECOND, 13 * SECOND] {
        incident.event(ms, Event::Frozen(Some(order.clone())));
    }
    assert_eq!(incident.told.len(), before + 1);
    incident.event(14 * SECOND, Event::Tick);
    let frozen = |incident: &Incident| incident.last.as_ref().unwrap().breaker.frozen.clone();
    assert!(frozen(&incident).is_some_and(|said| said.contains("by alice: upgrade. ")));
    incident.event(15 * SECOND, Event::Frozen(None));
    incident.event(16 * SECOND, Event::Tick);
    assert_eq!(frozen(&incident), None);
}

#[test]
fn only_canaries_sent_since_a_hook_was_changed_say_anything_of_the_change() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    assert_eq!(incident.facts(11 * SECOND, &opa).canary, CanaryEvidence::Through);
    incident.inventory(12 * SECOND, vec![changed(&opa, "hookwatch.dev/probation")]);
    assert_eq!(
        incident.facts(12 * SECOND + 10, &opa).canary,
        CanaryEvidence::Awaited
    );
    incident.canary(14 * SECOND, 5, refusal("opa", "EOF"));
    assert_eq!(
        incident.facts(14 * SECOND + 10, &opa).canary,
        CanaryEvidence::Failed
    );
    incident.canary(16 * SECOND, 5, CanaryOutcome::Written);
    assert_eq!(
        incident.facts(16 * SECOND + 10, &opa).canary,
        CanaryEvidence::Through
    );
    incident.canary_late(18 * SECOND);
    assert_eq!(
        incident.facts(20 * SECOND + 10, &opa).canary,
        CanaryEvidence::Failed
    );
}

#[test]
fn a_canary_that_did_not_reach_a_hook_or_waits_for_something_else_does_not_speak_against_it() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    incident.inventory(12 * SECOND, vec![changed(&opa, "hookwatch.dev/skip")]);
    incident.canary_late(14 * SECOND);
    assert_eq!(incident.facts(17 * SECOND, &opa).canary, CanaryEvidence::Awaited);
    // The canary under way was sent before the change.
    let tried = changed(&opa, "hookwatch.dev/probation");
    incident.inventory(18 * SECOND, vec![tried.clone()]);
    assert_eq!(
        incident.facts(18 * SECOND + 10, &tried).canary,
        CanaryEvidence::Awaited
    );
    incident.canary(14 * SECOND, 6 * SECOND, CanaryOutcome::Written);
    incident.canary_late(20 * SECOND);
    for (elsewhere, word) in [(true, CanaryEvidence::Awaited), (false, CanaryEvidence::Failed)] {
        assert_eq!(
            incident.facts_if(23 * SECOND, &tried, None, elsewhere).canary,
            word
        );
    }
    incident.canary(
        20 * SECOND,
        10 * SECOND,
        refusal("opa", "context deadline exceeded"),
    );
    let facts = incident.facts_if(31 * SECOND, &tried, None, true);
    assert_eq!(facts.canary, CanaryEvidence::Failed);
}

#[test]
fn a_hook_that_no_canary_meets_is_not_waited_for() {
    let mut pods = hook("pods", 1);
    for rule in &mut pods.rules {
        rule.resources = vec!["pods".to_owned()];
    }
    let mut incident = Incident::with(vec![pods.clone()]);
    incident.canary(10, 5, CanaryOutcome::Written);
    assert_eq!(incident.facts(20, &pods).canary, CanaryEvidence::NoCanary);
}

#[test]
fn a_canary_that_is_configured_covers_a_hook_that_no_other_meets() {
    let mut pods = hook("pods", 1);
    for rule in &mut pods.rules {
        rule.resources = vec!["pods".to_owned()];
    }
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod"});
    let further = FurtherCanary::new("tenant-pods", "team-a", "pods", pod).unwrap();
    let mut incident = Incident::with(vec![pods.clone()]);
    let alone = incident.tick(10);
    assert_eq!(alone.hooks[0].canaries, []);
    let watchdog = std::mem::replace(&mut incident.watchdog, Watchdog::new("hookwatch"));
    incident.watchdog = watchdog.with_canaries(vec![further.clone()]);
    incident.inventory(20, vec![pods.clone()]);
    let covered = incident.tick(30);
    assert_eq!(covered.hooks[0].canaries, [further.target]);
    let views = &covered.control_plane.canaries;
    assert_eq!(views.last().map(|view| view.canary), Some(further.target));
    assert_eq!(incident.facts(40, &pods).canary, CanaryEvidence::Awaited);
}
