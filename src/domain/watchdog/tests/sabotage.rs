//! Webhooks that are installed to use up the budget of bypasses.

use super::*;
use crate::act::breaker::{Stake, Witness};

/// A hook that matches only ConfigMaps, and so hookwatch's canaries.
fn trap() -> Hook {
    let mut trap = hook("trap", 1);
    for rule in &mut trap.rules {
        rule.resources = vec!["configmaps".into()];
    }
    trap
}

/// The first hook refuses every connection, and `calls` of the latest calls failed.
fn refusing(hooks: &[&Hook], calls: f64) -> Incident {
    let trap = hooks[0];
    let mut incident = Incident::with(hooks.iter().copied().cloned().collect());
    for second in [2, 4, 6, 8, 10] {
        incident.probe(second * SECOND - 10, trap, 0, ProbeOutcome::Refused);
        incident.canary(second * SECOND - 20, 5, refusal("trap", "connection refused"));
        let series = incident.count_calls("trap", calls, 0.001);
        series.rejections.calling += calls;
        add(&mut series.rejected, calls, 0.001);
        incident.scrape(second * SECOND);
    }
    incident
}

#[test]
fn a_hook_that_only_hookwatch_meets_is_not_worth_a_shield() {
    let trap = trap();
    let is_worth_it = |hook: &Hook, calls| {
        let facts = refusing(&[hook], calls).facts_if(10 * SECOND + 50, hook, None, false);
        assert_eq!(facts.health, Health::Failing, "{calls}");
        facts.meets_control_plane
    };
    // These may be canaries of this and other replicas.
    assert!(!is_worth_it(&trap, 1.0));
    assert!(!is_worth_it(&trap, 3.0));
    assert!(is_worth_it(&trap, 20.0));
    // A hook that matches the control plane's writes is worth a bypass before any call is counted.
    assert!(is_worth_it(&hook("trap", 1), 0.0));
}

/// In a minute there are more canaries than hookwatch remembers.
#[test]
fn a_minute_of_two_replicas_canaries_is_not_the_writes_of_others() {
    let trap = trap();
    let witnesses = |others: f64| {
        let mut incident = Incident::with(vec![trap.clone()]);
        for second in 1..=70 {
            incident.canary(second * SECOND - 20, 5, refusal("trap", "connection refused"));
            let calls = 2.0 + others;
            let series = incident.count_calls("trap", calls, 0.001);
            series.rejections.calling += calls;
            add(&mut series.rejected, calls, 0.001);
            incident.probe(second * SECOND - 10, &trap, 0, ProbeOutcome::Refused);
            incident.scrape(second * SECOND);
        }
        let facts = incident.facts_if(70 * SECOND + 50, &trap, None, false);
        assert_eq!(facts.health, Health::Failing, "{others}");
        (facts.witnesses.contains(&Witness::Counters), facts.stake)
    };
    assert_eq!(witnesses(0.0), (false, Stake::Hookwatch));
    assert_eq!(witnesses(5.0), (true, Stake::Failed));
}

/// A canary that matches two webhooks of one name counts twice under that name.
#[test]
fn two_webhooks_of_one_name_do_not_make_canaries_look_like_writes_of_others() {
    let one = trap();
    let namesake = Hook {
        id: HookId::new(one.id.kind, "namesake", &one.id.webhook),
        ..one.clone()
    };
    let stake_of = |hooks: &[&Hook]| {
        let facts = refusing(hooks, 20.0).facts_if(10 * SECOND + 50, &one, None, false);
        (facts.stake, facts.meets_control_plane)
    };
    assert_eq!(stake_of(&[&one]), (Stake::Failed, true));
    assert_eq!(stake_of(&[&one, &namesake]), (Stake::Hookwatch, false));
}
