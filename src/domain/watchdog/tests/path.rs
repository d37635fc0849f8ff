//! The network path to all webhooks is lost at once: one fault, although each has its own Service.

use super::forged::by_hand;
use super::*;
use crate::act::breaker::{Doubt, HookFacts, Judged};
use crate::diagnose::LOST_PATH;

const HOOKS: [&str; 3] = ["one", "two", "three"];

/// The facts for the breaker about each hook while a canary waits. `silent` has the milliseconds since which each hook's
/// backends do not answer; `None` for one that answers.
fn told(silent: [Option<u64>; 3]) -> [HookFacts; 3] {
    let hooks = HOOKS.map(|name| hook(name, 2));
    let mut incident = Incident::calm(&[&hooks[0], &hooks[1], &hooks[2]]);
    let now = 60 * SECOND;
    for (hook, silent) in hooks.iter().zip(silent) {
        match silent {
            Some(ms) => incident.silent(now - ms, hook, 2 * SECOND),
            None => incident.answers(now - 500, hook),
        }
    }
    incident.canary_late(now - 3 * SECOND);
    incident.scrape(now);
    incident.tick(now + 100);
    let judged = Judged::clone(&incident.judged);
    hooks.map(|hook| judged.hooks[&hook.id].clone())
}

#[test]
fn a_canary_that_waits_speaks_against_each_webhook_whose_path_was_lost_and_they_count_as_one() {
    let told = told([Some(4 * SECOND), Some(3 * SECOND), Some(3 * SECOND)]);
    for facts in &told {
        assert_eq!(facts.witnesses.len(), 2, "{facts:?}");
        assert_eq!(facts.incident_key, told[0].incident_key);
    }
}

/// The verdict on the third hook when all paths are lost and only the canary in kube-system waits.
fn third(change: impl Fn(&mut Hook)) -> (Verdict, HookFacts) {
    let [one, two, mut three] = HOOKS.map(|name| hook(name, 2));
    change(&mut three);
    let mut incident = Incident::calm(&[&one, &two, &three]);
    let begun = 60 * SECOND;
    for hook in [&one, &two, &three] {
        incident.silent(begun, hook, 2 * SECOND);
    }
    incident.canary_late(begun);
    incident.scrape(begun + 2_100);
    incident.tick(begun + 2_200);
    let verdict = incident.verdict(begun + 2_400, HOOKS[2]);
    let judged = Judged::clone(&incident.judged);
    (verdict, judged.hooks[&three.id].clone())
}

#[test]
fn what_lost_the_same_path_is_named_with_the_others_and_has_a_second_witness_only_if_a_canary_meets_it() {
    let leases = |hook: &mut Hook| hook.rules[0].resources = vec!["leases".into()];
    let unmet = |hook: &mut Hook| hook.dry_run_safe = false;
    for (change, witnesses) in [(&leases as &dyn Fn(&mut Hook), 2), (&unmet, 1)] {
        let (verdict, facts) = third(change);
        assert_eq!(verdict.cause, Some(Cause::Hanging));
        assert_eq!(verdict.health, Health::Failing);
        assert_eq!(facts.witnesses.len(), witnesses);
    }
}

#[test]
fn where_hookwatch_alone_reaches_no_webhook_a_slow_one_is_named_and_those_that_answer_are_not() {
    let hooks = HOOKS.map(|name| hook(name, 2));
    let mut incident = Incident::calm(&[&hooks[0], &hooks[1], &hooks[2]]);
    for second in (12..=30).step_by(2) {
        incident.count_calls(HOOKS[0], 20.0, 2.0);
        incident.count_writes(20.0, 2.0, 0.004);
        for name in &HOOKS[1..] {
            incident.count_calls(name, 20.0, 0.03);
        }
        if second == 22 {
            for hook in &hooks {
                // Recent enough that no scrape shows yet whether calls since then are answered.
                incident.silent(second * SECOND - 1_850, hook, 1_850);
            }
        }
        incident.scrape(second * SECOND);
        for tick in 1..9 {
            let ms = second * SECOND + 200 * tick;
            for name in &HOOKS[1..] {
                assert_ne!(
                    incident.verdict(ms, name).health,
                    Health::Failing,
                    "{name} at {ms} ms"
                );
            }
        }
    }
    let slow = incident.verdict(32 * SECOND, HOOKS[0]);
    assert_judged(&slow, Health::Failing, Some(Cause::Slow));
}

#[test]
fn where_one_webhook_fell_silent_before_the_rest_it_is_no_lost_path() {
    let recent = Some(3 * SECOND);
    for other in [Some(11 * SECOND), Some(50 * SECOND)] {
        let [one, two, _] = told([recent, recent, other]);
        assert!(one.witnesses.len() < 2 && two.witnesses.len() < 2, "{other:?}");
        assert_ne!(one.incident_key, two.incident_key);
    }
}

/// For example when one node of several is lost: each hook is judged separately, and none with enough certainty for more
/// than a shield.
#[test]
fn a_canary_that_waits_speaks_against_each_webhook_that_fell_silent_with_others_while_one_answers() {
    let beside = |second: u64| {
        let [one, two, three] = told([Some(3 * SECOND), Some(second * SECOND), None]);
        assert!(three.witnesses.is_empty() && one.incident_key != two.incident_key);
        let doubts = [one.doubt, two.doubt];
        ([one, two].map(|facts| facts.witnesses.len()), doubts)
    };
    assert_eq!(beside(3), ([2, 2], [Some(Doubt::SilentTogether); 2]));
    assert_eq!(beside(5), ([2, 2], [Some(Doubt::SilentTogether); 2]));
    // A hook that stopped answering long before may be the one that writes wait for.
    assert_eq!(beside(7), ([1, 1], [None; 2]));
}

#[test]
fn what_lost_the_same_path_is_one_incident_until_a_backend_answers() {
    let hooks = HOOKS.map(|name| hook(name, 2));
    let mut incident = Incident::calm(&[&hooks[0], &hooks[1], &hooks[2]]);
    let fell = 11 * SECOND;
    // Long enough that the path was not lost just now.
    for second in (0..40).step_by(2) {
        let now = fell + second * SECOND;
        for hook in &hooks {
            incident.silent(now, hook, 2 * SECOND);
        }
        incident.canary_late(now);
        incident.scrape(now + 2_000);
        incident.tick(now + 2_100);
    }
    let end = fell + 41 * SECOND;
    for name in HOOKS {
        assert_eq!(incident.verdict(end, name).incident, LOST_PATH);
    }
    let judged = Judged::clone(&incident.judged);
    let places = hooks
        .each_ref()
        .map(|hook| judged.hooks[&hook.id].incident_key.clone());
    let one = places[0].as_deref();
    assert_eq!(one, Some(LOST_PATH));
    assert!(places.iter().all(|place| place.as_deref() == one), "{places:?}");
    incident.answers(end, &hooks[0]);
    assert_eq!(
        incident.verdict(end + 100, HOOKS[0]).incident,
        hooks[0].target.place().unwrap()
    );
}

#[test]
fn a_service_that_lists_the_addresses_of_another_is_no_path_of_its_own() {
    let lost = |networks: [u8; 2]| {
        let [second, third] = [(HOOKS[1], networks[0]), (HOOKS[2], networks[1])];
        let [second, third] =
            [second, third].map(|(name, network)| by_hand(&hook(name, 2), Some([10, 0, network])));
        let first = hook(HOOKS[0], 2);
        let mut incident = Incident::calm(&[&first, &second, &third]);
        let fell = 22 * SECOND;
        for hook in [&first, &second, &third] {
            incident.silent(fell, hook, 2 * SECOND);
        }
        incident.canary_late(fell);
        incident.scrape(fell + 2_000);
        incident.verdict(fell + 2_200, HOOKS[0]).incident == LOST_PATH
    };
    // The others list the addresses of the first, so this is an outage of one webhook.
    assert!(!lost([0, 0]));
    assert!(!lost([0, 9]), "two places");
    assert!(lost([8, 9]), "three places");
    assert!(!lost([9, 9]), "they list each other's");
}

#[test]
fn what_hung_before_all_fell_silent_is_why_canaries_wait_and_the_path_is_not_lost_for_it() {
    let hooks = HOOKS.map(|name| hook(name, 2));
    let mut incident = Incident::calm(&[&hooks[0], &hooks[1], &hooks[2]]);
    let begun = 11 * SECOND;
    incident.canary_late(begun);
    incident.silent(begun, &hooks[0], 2 * SECOND);
    incident.scrape(begun + 2_000);
    assert_eq!(incident.verdict(begun + 2_200, HOOKS[0]).health, Health::Failing);
    let fell = begun + 7 * SECOND;
    for hook in &hooks[1..] {
        incident.silent(fell, hook, 2 * SECOND);
    }
    incident.canary_late(fell);
    incident.scrape(fell + 2_000);
    for name in &HOOKS[1..] {
        let verdict = incident.verdict(fell + 2_200, name);
        assert_ne!(verdict.rule, "probes-and-named-beside", "{name}");
    }
}

#[test]
fn what_only_canaries_saw_hang_before_all_fell_silent_is_no_lost_path() {
    let hooks = HOOKS.map(|name| hook(name, 2));
    let is_lost = |before: &dyn Fn(&mut Incident)| {
        let mut incident = Incident::calm(&[&hooks[0], &hooks[1], &hooks[2]]);
        before(&mut incident);
        let fell = 22 * SECOND;
        for hook in &hooks {
            incident.silent(fell, hook, 2 * SECOND);
        }
        incident.canary_late(fell);
        incident.scrape(fell + 2_000);
        HOOKS.map(|name| incident.verdict(fell + 2_200, name).incident == LOST_PATH)
    };
    let refused = |after: u64| {
        move |incident: &mut Incident| {
            let why = refusal("one", "context deadline exceeded");
            incident.canary(11 * SECOND, after, why);
        }
    };
    assert_eq!(is_lost(&refused(10 * SECOND)), [false; 3]);
    assert_eq!(is_lost(&|incident| incident.canary_late(11 * SECOND)), [false; 3]);
    // The canary did not wait, was sent shortly before, or a later one succeeded.
    assert_eq!(is_lost(&refused(3)), [true; 3]);
    assert_eq!(is_lost(&|incident| incident.canary_late(20 * SECOND)), [true; 3]);
    let passed = |incident: &mut Incident| {
        refused(7 * SECOND)(incident);
        incident.canary(19 * SECOND, 5, CanaryOutcome::Written);
    };
    assert_eq!(is_lost(&passed), [true; 3]);
}

#[test]
fn while_a_canary_waits_every_backend_is_to_be_probed_once_also_those_that_no_canary_meets() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    assert_eq!(incident.attention.waiting_since, None);
    let sent = 20 * SECOND;
    incident.canary_late(sent);
    incident.tick(sent + 2_000);
    assert_eq!(incident.attention.waiting_since, Some(Incident::at(sent)));
}
