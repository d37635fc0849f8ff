//! The commands that hookwatch suggests for a manual bypass.

use serde_json::json;

use super::*;
use crate::act::bypass::edit::{Author, Desired, Plan, Why, plan};
use crate::act::bypass::{ObjectWriter, Rung};
use crate::cluster::hook::{Labels, MAX_CONDITIONS, MatchCondition};
use crate::diagnose::verdict::BypassByHand;
use crate::observe::readiness::{Readiness, ReadyReport};

/// The label that every namespace has.
fn named(namespace: &str) -> Labels {
    Labels::from([("kubernetes.io/metadata.name".to_owned(), namespace.to_owned())])
}

/// The suggestion for a hook that refuses every call and matches Deployments in namespaces that `selector` matches.
fn told(selector: Selector) -> Option<BypassByHand> {
    said(|policy| policy.namespace_selector = selector, "v1.36.2")
}

/// The same with a change of the hook, and an API server of this release.
fn said(change: impl FnOnce(&mut Hook), release: &str) -> Option<BypassByHand> {
    said_in("hookwatch", change, release)
}

/// The same with hookwatch in the namespace `own`.
fn said_in(own: &str, change: impl FnOnce(&mut Hook), release: &str) -> Option<BypassByHand> {
    let mut policy = hook("policy", 1);
    for rule in &mut policy.rules {
        rule.api_groups = vec!["apps".into()];
        rule.resources = vec!["deployments".into()];
    }
    change(&mut policy);
    let mut incident = Incident::with(Vec::new());
    incident.watchdog = Watchdog::new(own);
    let namespaces =
        ["kube-system", "kube-node-lease", "hookwatch"].map(|name| (name.to_owned(), named(name)));
    let inventory = Inventory {
        at: Incident::at(0),
        hooks: vec![Arc::new(policy.clone())],
        namespaces: namespaces.into(),
        ..Inventory::default()
    };
    incident.event(0, Event::Inventory(Arc::new(inventory)));
    for (target, version) in [("one", "v1.36.2"), ("two", release)] {
        incident.event(
            1,
            Event::Readiness(ReadyReport {
                target: target.into(),
                at: Incident::at(1),
                readiness: Readiness::Ready,
                version: Some(version.to_owned()),
            }),
        );
    }
    for second in [2, 4, 6, 8, 10] {
        incident.probe(second * SECOND - 10, &policy, 0, ProbeOutcome::Refused);
        let series = incident.count_calls("policy", 20.0, 0.001);
        series.rejections.calling += 20.0;
        add(&mut series.rejected, 20.0, 0.001);
        incident.scrape(second * SECOND);
    }
    let verdict = incident.verdict(10 * SECOND + 50, "policy");
    assert_eq!(verdict.health, Health::Failing, "{}", verdict.summary);
    verdict.by_hand
}

#[test]
fn the_shield_that_is_told_of_spares_the_namespace_that_hookwatch_is_in() {
    let command = |own| said_in(own, |_| (), "v1.36.2").unwrap().command;
    let own = command("hw");
    assert!(own.ends_with(" --namespace hw --reason TEXT"), "{own}");
    assert!(!command("hookwatch").contains("--namespace"));
}

#[test]
fn a_shield_is_told_of_where_it_spares_something_and_a_skip_where_only_tenants_are_held_up() {
    let everywhere = told(Selector::default()).unwrap();
    assert!(!everywhere.command.contains("--rung"), "{everywhere:?}");
    assert!(everywhere.meaning.contains("shield"), "{everywhere:?}");
    let only_shop = Selector {
        match_labels: named("shop"),
        expressions: Vec::new(),
    };
    let tenants = told(only_shop).unwrap();
    assert!(tenants.command.contains("--rung skip"), "{tenants:?}");
    assert!(tenants.meaning.contains("without review"), "{tenants:?}");
}

fn conditions(count: usize) -> Vec<MatchCondition> {
    let condition = |number| MatchCondition {
        name: format!("c{number}"),
        expression: "true".into(),
    };
    (0..count).map(condition).collect()
}

/// Executes the command's patch on an object; returns whether it changes anything.
fn works(command: &str, conditions: &[MatchCondition], breaker: Option<&str>, release: &str) -> bool {
    let conditions = conditions.iter();
    let conditions: Vec<_> = conditions
        .map(|one| json!({"name": one.name, "expression": one.expression}))
        .collect();
    let mut object = json!({
        "metadata": {"name": "policy-configuration", "uid": "u"},
        "webhooks": [{"name": "policy", "failurePolicy": "Fail", "timeoutSeconds": 10, "matchConditions": conditions}],
    });
    if let Some(breaker) = breaker.filter(|_| !command.contains(" hookwatch.dev/breaker- && ")) {
        object["metadata"]["annotations"]["hookwatch.dev/breaker"] = breaker.into();
    }
    let why = Why {
        reason: "TEXT".into(),
        evidence: Vec::new(),
        expires: None,
    };
    let desired = match command.split_once("--rung ").map(|(_, rest)| rest) {
        None => Desired::Bypass {
            rung: Rung::Shield,
            why,
        },
        Some(rest) if rest.starts_with("ignore ") => Desired::Ignore { why },
        Some(_) => Desired::Bypass {
            rung: Rung::Skip,
            why,
        },
    };
    let author = Author {
        namespace: "hookwatch".into(),
        account: "system:serviceaccount:hookwatch:hookwatch".into(),
        writer: ObjectWriter {
            identity: "person@host".into(),
            version: "0.1.0".into(),
        },
        match_conditions: release != "v1.27.16-gke.1",
        fenced: false,
    };
    let planned = plan(&object, "policy", &desired, &author, Incident::at(0));
    matches!(planned, Ok(Plan::Edit(_)))
}

#[test]
fn what_is_printed_is_never_refused_by_the_edit_whatever_release_conditions_and_owner_permit() {
    for release in ["v1.27.16-gke.1", "v1.28.0", "v1.36.2"] {
        for count in [0, MAX_CONDITIONS - 1, MAX_CONDITIONS] {
            for breaker in [None, Some("off"), Some("shield"), Some(" Skip"), Some("what?")] {
                let conditions = conditions(count);
                let change = |policy: &mut Hook| {
                    policy.match_conditions.clone_from(&conditions);
                    policy.breaker = breaker.map(str::to_owned);
                };
                let BypassByHand { command, meaning, .. } = said(change, release).unwrap();
                let case = format!("{release}, {count}, {breaker:?}: {command}: {meaning}");
                assert!(works(&command, &conditions, breaker, release), "{case}");
                let needs_more = release == "v1.27.16-gke.1" || count == MAX_CONDITIONS;
                assert_eq!(command.contains("--rung ignore"), needs_more, "{case}");
                let forbidden = match breaker {
                    Some("off" | "what?") => true,
                    Some("shield") => needs_more,
                    _ => false,
                };
                assert_eq!(
                    command.starts_with("kubectl annotate Validating"),
                    forbidden,
                    "{case}"
                );
                assert_eq!(meaning.contains("ask the owner first"), forbidden, "{case}");
            }
        }
    }
}

#[test]
fn nothing_is_printed_where_failures_are_ignored_after_a_second_already_and_no_shield_is_possible() {
    let ignored = |policy: &mut Hook| {
        policy.failure_policy = FailurePolicy::Ignore;
        policy.timeout = Duration::from_secs(1);
    };
    assert_eq!(said(ignored, "v1.27.3"), None);
}

/// The suggestions for webhooks of one Service that refuses every call; the last `forbidden` ones may not be bypassed.
fn told_of_many(count: usize, forbidden: usize) -> Vec<BypassByHand> {
    let mut incident = Incident::with(Vec::new());
    let hooks = (0..count).map(|number| {
        let mut policy = hook(&format!("policy-{number:03}"), 1);
        if let HookTarget::Service(target) = &mut policy.target {
            target.name = "policies".into();
        }
        policy.breaker = (number >= count - forbidden).then(|| "off".to_owned());
        policy
    });
    let hooks: Vec<Hook> = hooks.collect();
    incident.inventory(0, hooks.clone());
    for second in [2, 4, 6, 8, 10] {
        for hook in &hooks {
            incident.probe(second * SECOND - 10, hook, 0, ProbeOutcome::Refused);
            let series = incident.count_calls(&hook.id.webhook, 20.0, 0.001);
            series.rejections.calling += 20.0;
            add(&mut series.rejected, 20.0, 0.001);
        }
        incident.scrape(second * SECOND);
    }
    let assessment = incident.tick(10 * SECOND + 50);
    let told = assessment
        .hooks
        .iter()
        .filter_map(|verdict| verdict.by_hand.clone());
    told.collect()
}

#[test]
fn webhooks_that_fail_together_are_bypassed_by_one_command_for_each_kind_of_bypass_that_names_fifty_at_most()
{
    let printed = |count, forbidden| {
        let told = told_of_many(count, forbidden);
        assert_eq!(told.len(), count, "each webhook has a command");
        let printed = told.into_iter().filter(|told| told.shared_with.is_none());
        printed.collect::<Vec<_>>()
    };
    let names = |told: &BypassByHand| told.command.matches("-configuration/policy-").count();
    let one = printed(1, 0);
    assert!(one[0].meaning.starts_with("It shields the webhook"), "{one:?}");
    let forty = printed(40, 0);
    assert_eq!(forty.iter().map(names).collect::<Vec<_>>(), [40]);
    let told = &forty[0];
    assert!(
        told.command.starts_with(
            "hookwatch break policy-000-configuration/policy-000 policy-001-configuration/policy-001 "
        ) && told
            .command
            .ends_with("/policy-039 --kind validating --reason TEXT")
            && told.meaning.starts_with(
                "The command names 40 webhooks that fail together. For each of them: It shields"
            ),
        "{told:?}"
    );
    let many = printed(120, 0);
    assert_eq!(many.iter().map(names).collect::<Vec<_>>(), [50, 50, 20]);
    let some_forbidden = printed(5, 2);
    assert_eq!(some_forbidden.iter().map(names).collect::<Vec<_>>(), [3, 2]);
    let told = &some_forbidden[1].command;
    let annotate = "kubectl annotate ValidatingWebhookConfiguration policy-003-configuration policy-004-configuration \
                    hookwatch.dev/breaker- && hookwatch break policy-003-configuration/policy-003 ";
    assert!(told.starts_with(annotate), "{told}");
}

#[test]
fn the_command_of_a_webhook_that_another_one_names_is_for_it_alone() {
    let told = told_of_many(3, 0);
    let first = "policy-000-configuration/policy-000";
    assert!(told[0].command.contains(first), "{told:?}");
    assert_eq!(told[2].shared_with.as_deref(), Some(first));
    assert!(
        told[2]
            .command
            .starts_with("hookwatch break policy-002-configuration/policy-002 --kind"),
        "{told:?}"
    );
}
