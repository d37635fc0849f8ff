//! Webhooks that are installed to use up the budget.

use super::*;

/// A hook for ConfigMaps alone, which hookwatch's canaries are.
fn trap() -> Hook {
    let mut trap = hook("trap", 1);
    for rule in &mut trap.rules {
        rule.resources = vec!["configmaps".into()];
    }
    trap
}

/// Refuses every connection, and has refused so many calls of the last seconds.
fn refusing(trap: &Hook, calls: f64) -> Incident {
    let mut incident = Incident::with(vec![trap.clone()]);
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
        let facts = refusing(hook, calls).facts_if(10 * SECOND + 50, hook, None, false);
        assert_eq!(facts.health, Health::Failing, "{calls}");
        facts.meets_control_plane
    };
    // Its canary, and those of other replicas.
    assert!(!is_worth_it(&trap, 1.0));
    assert!(!is_worth_it(&trap, 3.0));
    assert!(is_worth_it(&trap, 20.0));
    // The control plane's own writes are worth it before any call was counted.
    assert!(is_worth_it(&hook("trap", 1), 0.0));
}
