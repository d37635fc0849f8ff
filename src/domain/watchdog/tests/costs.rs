//! What requests pay for webhooks that ignore failures.

use super::acting::{changed, witnesses};
use super::*;
use crate::act::breaker::Witness;
use crate::cluster::hook::{Added, Labels, SelectorOperator, SelectorRequirement};

/// Mutating hooks that fail open and hang from 11 s on, the canaries of these targets with them; what is said of the
/// first one 3 s later.
fn hanging(hooks: &[Hook], late: &[CanaryTarget]) -> Verdict {
    let all: Vec<&Hook> = hooks.iter().collect();
    begins_to_hang(Incident::calm(&all), hooks, late)
}

fn begins_to_hang(mut incident: Incident, hooks: &[Hook], late: &[CanaryTarget]) -> Verdict {
    for hook in hooks {
        incident.probe_late(11 * SECOND, hook, 0, 2 * SECOND);
    }
    for target in late {
        incident.canary_of_late(*target, 11 * SECOND);
    }
    for hook in hooks {
        incident.probe_late(13 * SECOND, hook, 0, 2 * SECOND);
    }
    incident.scrape(15 * SECOND);
    incident.tick(15 * SECOND + 10);
    incident.verdict(15 * SECOND + 200, &hooks[0].id.webhook)
}

fn mutating(webhook: &str, seconds: u64) -> Hook {
    let hook = hook(webhook, 1);
    Hook {
        id: HookId::new(HookKind::Mutating, &hook.id.configuration, webhook),
        failure_policy: FailurePolicy::Ignore,
        timeout: Duration::from_secs(seconds),
        ..hook
    }
}

#[test]
fn a_webhook_with_conditions_of_its_owner_blocks_what_the_canaries_for_it_wait_for() {
    use CanaryTarget::{KubeSystem, NodeLease, OwnNamespace};
    let plain = mutating("opa", 10);
    let mut conditional = changed(&plain, "only-what-we-own");
    // What only the API server can tell.
    conditional.match_conditions[0].expression = "'team' in object.metadata.labels".to_owned();
    let effect = |hook: &Hook, late: &[CanaryTarget]| {
        let verdict = hanging(std::slice::from_ref(hook), late);
        assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
        verdict.effect
    };
    // Whatever meets it waits; that Leases do stands in its rules.
    assert_eq!(effect(&plain, &[KubeSystem]), Effect::Blocking);
    // Of this one only the canaries know.
    assert_eq!(effect(&conditional, &[OwnNamespace]), Effect::Delaying);
    assert_eq!(effect(&conditional, &[KubeSystem]), Effect::Delaying);
    let both = effect(&conditional, &[KubeSystem, NodeLease]);
    assert_eq!(both, Effect::Blocking);
    // A node's renewal has 10 s.
    assert_eq!(effect(&conditional, &[NodeLease]), Effect::Blocking);
    let shorter = Hook {
        timeout: Duration::from_secs(6),
        ..conditional
    };
    assert_eq!(effect(&shorter, &[NodeLease]), Effect::Delaying);
}

/// Its owner has taken the control plane's namespaces out of what it is asked about; operators' leaders still meet it.
#[test]
fn renewals_in_the_namespaces_that_the_owner_has_a_shield_spare_have_a_leaders_deadline() {
    let label = "kubernetes.io/metadata.name";
    let control_plane = ["kube-system", "kube-node-lease"].map(str::to_owned);
    let effect = |leases: &[&str], seconds| {
        let mut opa = mutating("opa", seconds);
        opa.rules[0].resources = vec!["leases".into(), "configmaps".into()];
        opa.namespace_selector.expressions = vec![SelectorRequirement {
            key: label.to_owned(),
            operator: SelectorOperator::NotIn,
            values: control_plane.to_vec(),
        }];
        opa.added = Added {
            own: None,
            leases: leases.iter().map(|name| (*name).to_owned()).collect(),
        };
        let mut incident = Incident::calm(&[&opa]);
        let labelled = control_plane
            .clone()
            .map(|name| (name.clone(), Labels::from([(label.to_owned(), name)])));
        let inventory = Inventory {
            at: Incident::at(10_500),
            hooks: vec![Arc::new(opa.clone())],
            namespaces: labelled.into(),
            ..Inventory::default()
        };
        incident.event(10_500, Event::Inventory(Arc::new(inventory)));
        let verdict = begins_to_hang(incident, &[opa], &[CanaryTarget::OwnNamespace]);
        assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
        verdict.effect
    };
    assert_eq!(effect(&["operators"], 10), Effect::Blocking);
    assert_eq!(effect(&["operators"], 4), Effect::Delaying);
    // Where a shield does not spare them it would not help.
    assert_eq!(effect(&[], 10), Effect::Delaying);
}

/// Every write is taken, none is refused: and no leader waits for it.
#[test]
fn a_leaders_clock_runs_while_a_slow_webhook_keeps_writes_past_its_deadline_that_are_not_blocked() {
    let clocks = |took: u64| {
        let opa = hook("opa", 1);
        let mut incident = Incident::calm(&[&opa]);
        for second in [12, 20, 28] {
            let ms = second * SECOND;
            incident.probe_taking(ms, took, &opa, 0, alive());
            incident.canary(ms, took, CanaryOutcome::Written);
            let each = took as f64 / 1_000.0;
            incident.count_writes(20.0, each + 0.005, 0.004);
            incident.count_calls("opa", 20.0, each);
            incident.scrape(ms + took + 10);
            incident.tick(ms + took + 20);
        }
        let assessment = incident.tick(36 * SECOND);
        let verdict = &assessment.hooks[0];
        assert_judged(verdict, Health::Failing, Some(Cause::Slow));
        assert_ne!(assessment.control_plane.writes, Writes::Blocked);
        (verdict.effect, assessment.control_plane.clocks.clone())
    };
    let (effect, past) = clocks(6_000);
    assert_eq!(effect, Effect::Blocking);
    assert!(
        past.len() == 1 && past[0].starts_with("Leaders lose their Lease"),
        "{past:?}"
    );
    assert_eq!(clocks(3_000), (Effect::Delaying, Vec::new()));
}

#[test]
fn a_webhook_that_is_reinvoked_is_paid_twice_where_another_one_may_change_the_object_after_it() {
    let asked = |reinvoked, beside: Option<Hook>| {
        let opa = Hook {
            reinvoked,
            ..mutating("opa", 3)
        };
        let hooks: Vec<Hook> = [opa].into_iter().chain(beside).collect();
        hanging(&hooks, &[CanaryTarget::KubeSystem]).effect
    };
    let beside = |kind| Hook {
        id: HookId::new(kind, "sidecars", "sidecars"),
        timeout: Duration::from_secs(1),
        ..mutating("sidecars", 1)
    };
    assert_eq!(asked(true, None), Effect::Delaying);
    assert_eq!(asked(true, Some(beside(HookKind::Validating))), Effect::Delaying);
    assert_eq!(asked(false, Some(beside(HookKind::Mutating))), Effect::Delaying);
    assert_eq!(asked(true, Some(beside(HookKind::Mutating))), Effect::Blocking);
}

#[test]
fn what_one_webhook_alone_makes_late_is_not_laid_on_those_beside_it() {
    let beside = |seconds| Hook {
        id: HookId::new(HookKind::Mutating, "sidecars", "sidecars"),
        ..mutating("sidecars", seconds)
    };
    let effect = |first: Hook, then: Hook| hanging(&[first, then], &[CanaryTarget::KubeSystem]).effect;
    assert_eq!(effect(mutating("opa", 10), beside(3)), Effect::Blocking);
    assert_eq!(effect(beside(3), mutating("opa", 10)), Effect::Delaying);
    // Together alone.
    assert_eq!(effect(beside(3), mutating("opa", 3)), Effect::Blocking);
}

/// Two webhooks that answer within every deadline, and together not: no call has ended and no canary is back when it is
/// known.
#[test]
fn what_slow_webhooks_take_together_is_known_before_a_write_has_waited_for_them() {
    let slow = |hook: Hook| Hook {
        failure_policy: FailurePolicy::Fail,
        ..hook
    };
    let (mutate, validate) = (slow(mutating("mutate", 10)), slow(hook("validate", 1)));
    let third = hook("third", 1);
    let after = |late: u64, third_hangs: bool| {
        let mut incident = Incident::calm(&[&mutate, &validate, &third]);
        if third_hangs {
            incident.probe_late(11 * SECOND, &third, 0, 3 * SECOND);
        }
        for started in [11 * SECOND, 12 * SECOND] {
            incident.probe_taking(started, 2_600, &mutate, 0, alive());
            incident.probe_taking(started + 10, 2_600, &validate, 0, alive());
        }
        incident.event(
            14_600,
            Event::CanaryOverdue(CanaryOverdue {
                target: CanaryTarget::KubeSystem,
                started: Incident::at(14_600 - late),
                waiting: Duration::from_millis(late),
            }),
        );
        incident.scrape(14_620);
        incident.tick(14_640);
        [&mutate, &validate].map(|hook| {
            let verdict = incident.verdict(14_800, &hook.id.webhook);
            (found(&verdict), incident.facts(14_800, hook))
        })
    };
    let blocked = (Health::Failing, Some(Cause::Slow), Effect::Blocking);
    for (found, facts) in after(3_300, false) {
        assert_eq!(found, blocked);
        assert!(facts.sure, "{facts:?}");
        assert_eq!(facts.witnesses, witnesses(&[Witness::Probes, Witness::Canary]));
    }
    // One of them alone would make it wait as long, or one that hangs.
    for (found, facts) in after(2_600, false).into_iter().chain(after(3_300, true)) {
        assert!(
            found.0 != Health::Failing && !facts.harms_writes(),
            "{found:?}: {facts:?}"
        );
    }
}

#[test]
fn a_webhook_that_fails_open_delays_what_meets_the_backend_that_hangs_while_another_one_answers() {
    let opa = Hook {
        failure_policy: FailurePolicy::Ignore,
        ..hook("opa", 2)
    };
    for (outcome, effect) in [
        (
            ProbeOutcome::TimedOut {
                phase: ProbePhase::Tls,
            },
            Effect::Blocking,
        ),
        (ProbeOutcome::Refused, Effect::FailingOpen),
    ] {
        let mut incident = Incident::calm(&[&opa]);
        for second in (12..=20).step_by(2) {
            incident.probe(second * SECOND, &opa, 0, outcome.clone());
            incident.probe(second * SECOND + 10, &opa, 1, alive());
            incident.calls(second * SECOND + 500, "opa", 20.0, 10.0);
        }
        let verdict = incident.verdict(21 * SECOND, "opa");
        assert_judged(&verdict, Health::Failing, Some(Cause::Partial));
        assert_eq!(verdict.effect, effect, "{outcome:?}");
    }
}
