//! How long requests wait for webhooks with `failurePolicy: Ignore`.

use super::acting::{changed, witnesses};
use super::*;
use crate::act::breaker::Witness;
use crate::cluster::hook::Labels;

/// Mutating hooks that fail open and hang from 11 s on, as do the canaries of these targets. Returns the verdict on the
/// first hook 3 s later.
fn hanging(hooks: &[Hook], late: &[CanaryTarget]) -> Verdict {
    let all: Vec<&Hook> = hooks.iter().collect();
    let mut incident = Incident::calm(&all);
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
    // Only the API server can evaluate this condition.
    conditional.match_conditions[0].expression = "'team' in object.metadata.labels".to_owned();
    let effect = |hook: &Hook, late: &[CanaryTarget]| {
        let verdict = hanging(std::slice::from_ref(hook), late);
        assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
        verdict.effect
    };
    // Every matching write waits, and its rules match Leases.
    assert_eq!(effect(&plain, &[KubeSystem]), Effect::Blocking);
    // Only canaries show which writes match this one.
    assert_eq!(effect(&conditional, &[OwnNamespace]), Effect::Delaying);
    assert_eq!(effect(&conditional, &[KubeSystem]), Effect::Delaying);
    let both = effect(&conditional, &[KubeSystem, NodeLease]);
    assert_eq!(both, Effect::Blocking);
    // A node's renewal times out after 10 s.
    assert_eq!(effect(&conditional, &[NodeLease]), Effect::Blocking);
    let shorter = Hook {
        timeout: Duration::from_secs(6),
        ..conditional
    };
    assert_eq!(effect(&shorter, &[NodeLease]), Effect::Delaying);
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
fn a_webhook_that_meets_only_what_an_api_server_makes_while_it_starts_is_paid_by_its_start() {
    let said = |operation: &str, group: &str, resource: &str, scope| {
        let rule = HookRule {
            operations: vec![operation.to_owned()],
            api_groups: vec![group.to_owned()],
            api_versions: vec!["v1".to_owned()],
            resources: vec![resource.to_owned()],
            scope,
        };
        let opa = Hook {
            rules: vec![rule],
            failure_policy: FailurePolicy::Ignore,
            ..hook("opa", 1)
        };
        // It matches no canary, so only probes and counters show it.
        let mut incident = Incident::calm(&[&opa]);
        for second in (12..=20).step_by(2) {
            incident.silent((second - 2) * SECOND, &opa, 2 * SECOND);
            incident.count_calls("opa", 20.0, 10.0).fail_open += 20.0;
            incident.scrape(second * SECOND + 500);
        }
        let verdict = incident.verdict(21 * SECOND, "opa");
        assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
        let paid = "What an API server writes while it starts waits 10.0 s of its 34.0 s for webhooks now (opa 10.0 s).";
        verdict.evidence.iter().any(|line| line.contains(paid))
    };
    for (group, resource) in [
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("flowcontrol.apiserver.k8s.io", "flowschemas"),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ] {
        assert!(said("CREATE", group, resource, Scope::Cluster), "{resource}");
    }
    for (group, resource) in [
        ("coordination.k8s.io", "leases"),
        ("discovery.k8s.io", "endpointslices"),
    ] {
        assert!(said("CREATE", group, resource, Scope::Namespaced), "{resource}");
        assert!(!said("DELETE", group, resource, Scope::Namespaced), "{resource}");
    }
}

/// Two mutating and two validating webhooks that fail open, hang, and meet only this resource, in this namespace where one is
/// given. `last` is the timeout of the slower validating one. Returns the verdicts, in the order of the names.
fn four_that_hang(
    [group, resource]: [&str; 2],
    namespace: Option<&str>,
    [first, second, last]: [u64; 3],
) -> [Verdict; 4] {
    use HookKind::{Mutating, Validating};
    let label = "kubernetes.io/metadata.name";
    let of_namespace = |name: &str| Labels::from([(label.to_owned(), name.to_owned())]);
    let hooks = [
        ("a-mutates", Mutating, first),
        ("b-mutates", Mutating, second),
        ("c-validates", Validating, 1),
        ("d-validates", Validating, last),
    ]
    .map(|(name, kind, seconds)| Hook {
        id: HookId::new(kind, name, name),
        rules: vec![HookRule {
            api_groups: vec![group.to_owned()],
            resources: vec![resource.to_owned()],
            ..hook(name, 1).rules.remove(0)
        }],
        namespace_selector: Selector {
            match_labels: namespace.map(of_namespace).unwrap_or_default(),
            expressions: Vec::new(),
        },
        ..mutating(name, seconds)
    });
    let mut incident = Incident::calm(&hooks.each_ref());
    let inventory = Inventory {
        at: Incident::at(10_500),
        hooks: hooks.iter().cloned().map(Arc::new).collect(),
        namespaces: ["kube-system", "kube-node-lease"]
            .map(|name| (name.to_owned(), of_namespace(name)))
            .into(),
        ..Inventory::default()
    };
    incident.event(10_500, Event::Inventory(Arc::new(inventory)));
    for second in (12..=20).step_by(2) {
        for hook in &hooks {
            incident.silent((second - 2) * SECOND, hook, 2 * SECOND);
            let key = (hook.id.kind, hook.id.webhook.to_string());
            let series = incident.counters.hooks.entry(key).or_default();
            add(&mut series.calls, 20.0, hook.timeout.as_secs_f64());
            series.fail_open += 20.0;
        }
        incident.scrape(second * SECOND + 500);
    }
    hooks.map(|hook| incident.verdict(21 * SECOND, &hook.id.webhook))
}

/// A deadline in seconds, and what is said of it.
type GivenUp = (u64, &'static str);

const LEADERS: GivenUp = (5, "leaders give an attempt up after 5 s");
const KUBELETS: GivenUp = (10, "kubelets give an attempt up after 10 s");
const ANYONE: GivenUp = (34, "the API server gives a write up after 34 s");

/// Classes of requests of the control plane: the name, the API group and resource, the namespace, and the deadline.
#[rustfmt::skip] // a table
const CLASSES: [(&str, [&str; 2], Option<&str>, GivenUp); 7] = [
    ("A renewal of a leader's Lease", ["coordination.k8s.io", "leases"], Some("kube-system"), LEADERS),
    ("A renewal of a node's Lease", ["coordination.k8s.io", "leases"], Some("kube-node-lease"), KUBELETS),
    ("An update of a node's status", ["", "nodes/status"], None, KUBELETS),
    ("An update of a Pod's status", ["", "pods/status"], None, ANYONE),
    ("A change of an EndpointSlice", ["discovery.k8s.io", "endpointslices"], None, ANYONE),
    ("A token for a ServiceAccount", ["", "serviceaccounts/token"], None, ANYONE),
    ("What an API server writes while it starts", ["rbac.authorization.k8s.io", "clusterroles"], None, ANYONE),
];

#[test]
fn each_class_pays_its_mutating_webhooks_and_the_slowest_validating_one_against_its_own_deadline() {
    for (class, what, namespace, (deadline, given_up)) in CLASSES {
        let [first, second] = if deadline == 34 { [8, 9] } else { [1, 2] };
        let told = |seconds: u64| {
            let last = seconds - first - second;
            let verdicts = four_that_hang(what, namespace, [first, second, last]);
            let effects = verdicts.each_ref().map(|verdict| verdict.effect);
            let paid =
                format!("a-mutates {first}.0 s, then b-mutates {second}.0 s, then d-validates {last}.0 s");
            (effects, verdicts[0].evidence.join("\n"), paid)
        };
        let within = deadline - 1;
        let (effects, said, paid) = told(within);
        assert_eq!(effects, [Effect::Delaying; 4], "{class}");
        let cost = format!("{class} waits {within}.0 s of its {deadline}.0 s for webhooks now ({paid}).");
        assert!(said.contains(&cost), "{cost}\n{said}");
        let (effects, said, paid) = told(deadline);
        let (blocks, delays) = (Effect::Blocking, Effect::Delaying);
        // Without the quicker of the validating ones it would wait as long.
        assert_eq!(effects, [blocks, blocks, delays, blocks], "{class}");
        let cost = format!("{class} waits {deadline}.0 s for webhooks now ({paid}); {given_up}");
        assert!(said.contains(&cost), "{cost}\n{said}");
    }
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
    // Only together do they block writes.
    assert_eq!(effect(beside(3), mutating("opa", 3)), Effect::Blocking);
}

/// Each of two webhooks answers within every deadline, but not both in turn. That is known before a call ends or a canary
/// returns.
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
        assert!(facts.confident, "{facts:?}");
        assert_eq!(facts.witnesses, witnesses(&[Witness::Probes, Witness::Canary]));
    }
    // A single slow or hanging webhook would make the canary wait as long.
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

#[test]
fn a_webhook_behind_one_that_refuses_the_request_is_not_said_to_make_it_late() {
    let opa = Hook {
        failure_policy: FailurePolicy::Fail,
        ..mutating("opa", 3)
    };
    let beside = |configuration: &str| Hook {
        id: HookId::new(HookKind::Mutating, configuration, "sidecars"),
        ..mutating("sidecars", 3)
    };
    let effect = |beside: Hook, opa: &Hook| {
        let verdict = hanging(&[beside, opa.clone()], &[CanaryTarget::KubeSystem]);
        assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
        verdict.effect
    };
    // A leader's renewal times out after 5 s.
    assert_eq!(effect(beside("a-first"), &opa), Effect::Blocking);
    assert_eq!(effect(beside("z-behind"), &opa), Effect::Delaying);
    // Some requests match only this one.
    let of_labelled = Hook {
        namespace_selector: labelled("team"),
        ..opa
    };
    assert_eq!(effect(beside("z-behind"), &of_labelled), Effect::Blocking);
}

fn labelled(key: &str) -> Selector {
    Selector {
        match_labels: [(key.to_owned(), "x".to_owned())].into(),
        expressions: Vec::new(),
    }
}

#[test]
fn renewals_do_not_wait_for_a_webhook_that_selects_objects_by_their_labels() {
    let opa = Hook {
        failure_policy: FailurePolicy::Ignore,
        timeout: Duration::from_secs(6),
        ..hook("opa", 1)
    };
    let effect = |hook: &Hook| {
        let mut incident = Incident::calm(&[hook]);
        for second in [12, 18, 20] {
            incident.silent((second - 2) * SECOND, hook, 2 * SECOND);
            let series = incident.count_calls("opa", 20.0, 6.0);
            series.fail_open += 20.0;
            *series.codes.entry(503).or_default() += 20.0;
            incident.scrape(second * SECOND);
        }
        let verdict = incident.verdict(20 * SECOND + 100, "opa");
        assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
        verdict.effect
    };
    assert_eq!(effect(&opa), Effect::Blocking, "a leader waits 5 s");
    let of_labelled = Hook {
        object_selector: labelled("team"),
        ..opa
    };
    assert_eq!(effect(&of_labelled), Effect::Delaying);
}

#[test]
fn the_clock_of_leaders_is_not_told_for_a_webhook_that_is_not_asked_about_leases() {
    let told = |resource: &str| {
        let opa = Hook {
            failure_policy: FailurePolicy::Fail,
            rules: vec![HookRule {
                resources: vec![resource.to_owned()],
                ..hook("opa", 1).rules.remove(0)
            }],
            ..mutating("opa", 10)
        };
        let mut incident = Incident::calm(&[&opa]);
        incident.silent(11 * SECOND, &opa, 2 * SECOND);
        let refused = || refusal("opa", "context deadline exceeded");
        for second in [12, 13] {
            incident.canary(second * SECOND, 10 * SECOND, refused());
        }
        let plane = incident.tick(24 * SECOND).control_plane.clone();
        assert_eq!(plane.writes, Writes::Blocked, "{}", plane.summary);
        let mut clocks = plane.clocks.into_iter();
        clocks.any(|clock| clock.starts_with("Leaders lose their Lease"))
    };
    assert!(told("*"));
    assert!(!told("configmaps"));
}
