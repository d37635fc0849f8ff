//! Findings about the fields of a webhook's entry.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::{
    CATCH_ALL_RULES, CONDITION_NOT_CEL, CRITICAL_RESOURCES, DRY_RUN_REFUSED, DUPLICATE_NAME,
    EXACT_MATCH_POLICY, Finding, FindingSeverity, INVALID_TARGET, LEASE_TIMEOUT, LONG_TIMEOUT,
    MUTATES_CONTROL_PLANE, NEVER_CALLED, TIMEOUT_NOT_SET, UNREADABLE_FIELD, UNWATCHED_FAIL_OPEN,
    VIRTUAL_RESOURCES, object,
};
use crate::audit::estate::{AuditedHook, Estate};
use crate::audit::forecast::Auditor;
use crate::audit::patch::of_field;
use crate::audit::reach::Reach;
use crate::cluster::hook::{
    FailurePolicy, Hook, HookKind, HookRule, HookTarget, Labels, MatchPolicy, Scope, Selector,
    SelectorOperator,
};
use crate::cluster::matching::conditions::ConditionCompiler;
use crate::cluster::matching::{LEASES, RequestShape};
use crate::text::listed;

/// Longest timeout without a finding, in seconds. Gardener has the same bound (`botanist/matchers`): most clients of the control
/// plane wait 30 s.
const LONG: u64 = 15;
/// The same for webhooks that are called for Leases, in seconds; also Gardener's bound. Leaders wait 5 s.
const LONG_FOR_LEASES: u64 = 3;

/// Most resources that one message lists.
const SHOWN: usize = 6;

/// The namespaces that an object of the control plane may be in; `None` for one without a namespace.
type Namespaces = &'static [Option<&'static str>];

const SYSTEM: Namespaces = &[Some("kube-system")];
const ANYWHERE: Namespaces = &[Some("kube-system"), Some("kube-node-lease")];
const CLUSTER: Namespaces = &[None];

/// The resources that Gardener counts as critical for CREATE and UPDATE: group, resources (with subresources), namespaces. Leases
/// have their own line, with the node Leases that GKE adds.
#[rustfmt::skip] // a table
const CRITICAL: [(&str, &[&str], Namespaces); 12] = [
    ("", &["pods", "pods/status", "configmaps", "endpoints", "secrets", "serviceaccounts", "services",
        "services/status"], SYSTEM),
    ("apps", &["controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale",
        "replicasets", "replicasets/status", "replicasets/scale"], SYSTEM),
    ("networking.k8s.io", &["networkpolicies"], SYSTEM),
    ("rbac.authorization.k8s.io", &["roles", "rolebindings"], SYSTEM),
    ("coordination.k8s.io", &["leases"], ANYWHERE),
    ("", &["nodes", "nodes/status"], CLUSTER),
    ("rbac.authorization.k8s.io", &["clusterroles", "clusterrolebindings"], CLUSTER),
    ("apiextensions.k8s.io", &["customresourcedefinitions", "customresourcedefinitions/status"], CLUSTER),
    ("apiregistration.k8s.io", &["apiservices", "apiservices/status"], CLUSTER),
    ("certificates.k8s.io", &["certificatesigningrequests", "certificatesigningrequests/status",
        "certificatesigningrequests/approval"], CLUSTER),
    ("scheduling.k8s.io", &["priorityclasses"], CLUSTER),
    ("discovery.k8s.io", &["endpointslices"], SYSTEM),
];

/// Resources that are not stored, and bindings: group, resource, and whether it is namespaced. This is OpenShift's list of
/// virtual resources, plus TokenReviews, which GKE and Kubernetes' good practices for webhooks add.
const VIRTUAL: [(&str, &str, bool); 7] = [
    ("", "bindings", true),
    ("authorization.k8s.io", "localsubjectaccessreviews", true),
    ("authorization.k8s.io", "subjectaccessreviews", false),
    ("authorization.k8s.io", "selfsubjectaccessreviews", false),
    ("authorization.k8s.io", "selfsubjectrulesreviews", false),
    ("authentication.k8s.io", "tokenreviews", false),
    ("authentication.k8s.io", "selfsubjectreviews", false),
];

pub(super) fn of_one(auditor: &Auditor<'_>, at: usize, found: &mut Vec<Finding>) {
    let (subject, estate) = (auditor.subject(at), auditor.estate);
    let hook = &subject.hook;
    timeouts(auditor, at, found);
    scope(subject, estate, found);
    virtual_resources(auditor, at, found);
    never_called(subject, estate, found);
    if !auditor.reader(at).conditions.are_compiled() {
        conditions(subject, found);
    }
    if let HookTarget::Invalid(why) = &hook.target {
        found.push(Finding::of(
            INVALID_TARGET,
            subject,
            format!("clientConfig: {why}. Every call fails."),
        ));
    }
    if !hook.dry_run_safe {
        let message = "sideEffects is neither None nor NoneOnDryRun: dry runs that match it are refused, `kubectl diff` among \
                       them, and no canary shows whether it works.";
        let patch = of_field(subject, "sideEffects", &json!("None"));
        found.push(Finding::of(DRY_RUN_REFUSED, subject, message).with(Some(patch)));
    }
    if hook.id.kind == HookKind::Mutating && hook.failure_policy == FailurePolicy::Ignore {
        let message = "While it fails, objects go in unchanged, and no one is told: only apiserver_admission_webhook_fail_open_count \
                       counts them. Alert on that, and validate the final state.";
        found.push(Finding::of(UNWATCHED_FAIL_OPEN, subject, message));
    }
    let takes_any = |rule: &HookRule| is_any(&rule.api_groups) && is_any(&rule.api_versions);
    if hook.match_policy == MatchPolicy::Exact && !hook.rules.iter().all(takes_any) {
        let message =
            "matchPolicy is Exact: a request for the same resource in another group or version passes it by.";
        let patch = of_field(subject, "matchPolicy", &json!("Equivalent"));
        found.push(Finding::of(EXACT_MATCH_POLICY, subject, message).with(Some(patch)));
    }
    let prefix = format!("{}: ", hook.id.object());
    for problem in &hook.problems {
        let problem = problem.strip_prefix(&prefix).unwrap_or(problem);
        // These problems have their own kinds of findings.
        let named = [
            "caBundle",
            "clientConfig",
            "rules is empty",
            "Service ",
            "its Service ",
        ]
        .iter()
        .any(|start| problem.starts_with(start));
        if !named {
            found.push(Finding::of(UNREADABLE_FIELD, subject, format!("{problem}.")));
        }
    }
}

pub(super) fn of_all(auditor: &Auditor<'_>, found: &mut Vec<Finding>) {
    let mut by_name: BTreeMap<(&str, HookKind), Vec<&AuditedHook>> = BTreeMap::new();
    for subject in &auditor.estate.subjects {
        let id = &subject.hook.id;
        by_name.entry((&id.webhook, id.kind)).or_default().push(subject);
    }
    for same in by_name.values().filter(|same| same.len() > 1) {
        let Some((first, others)) = same.split_first() else {
            continue;
        };
        let message = format!(
            "{} has the same name. The API server's metrics and errors name the webhook alone: which of the two fails cannot be \
             told from them.",
            object(first)
        );
        found.extend(
            others
                .iter()
                .map(|subject| Finding::of(DUPLICATE_NAME, subject, message.clone())),
        );
    }
}

fn timeouts(auditor: &Auditor<'_>, at: usize, found: &mut Vec<Finding>) {
    let subject = auditor.subject(at);
    let seconds = subject.hook.timeout.as_secs();
    let mut writes = auditor.reaches(at);
    let leases = writes.any(|(write, reach)| write.object == LEASES && reach >= Reach::May);
    if leases && seconds > LONG_FOR_LEASES {
        // Under Fail a shorter timeout would refuse Leases sooner and more often, so there is no patch.
        let is_ignored = subject.hook.failure_policy == FailurePolicy::Ignore;
        let advice = if is_ignored {
            format!("Leave Leases out, or set timeoutSeconds to {LONG_FOR_LEASES} at most.")
        } else {
            "Leave Leases out.".to_owned()
        };
        let message = format!(
            "The control plane's Leases may wait {seconds} s for it, also where failures are ignored; leaders give an attempt up \
             after 5 s. {advice}"
        );
        let patch = is_ignored.then(|| of_field(subject, "timeoutSeconds", &json!(LONG_FOR_LEASES)));
        found.push(Finding::of(LEASE_TIMEOUT, subject, message).with(patch));
    }
    if seconds > LONG {
        let message = format!(
            "Each call that hangs keeps its request for {seconds} s, and so does each pooled connection to a Pod that is gone. \
             Most clients give up after 30 s, the API server after 34 s."
        );
        let patch = of_field(subject, "timeoutSeconds", &json!(LONG));
        found.push(Finding::of(LONG_TIMEOUT, subject, message).with(Some(patch)));
    }
    if subject.hook.written.timeout_is_default {
        let message = "timeoutSeconds is absent, so it is 10. Say how long a request may wait.";
        found.push(Finding::of(TIMEOUT_NOT_SET, subject, message));
    }
}

/// Which of these resources a webhook is called for on CREATE or UPDATE. The objects are assumed to have no labels, so a webhook
/// whose `objectSelector` requires one is not called.
fn asked<'a>(hook: &Hook, estate: &Estate, objects: &[(&'a str, &[&'a str], Namespaces)]) -> Vec<&'a str> {
    let (mut asked, unlabelled) = (Vec::new(), Labels::new());
    for (group, resources, namespaces) in objects {
        for entry in *resources {
            let (resource, subresource) = entry.split_once('/').unwrap_or((entry, ""));
            let meets = namespaces.iter().any(|namespace| {
                let labels = namespace.map(|namespace| estate.labels(namespace));
                ["CREATE", "UPDATE"].into_iter().any(|operation| {
                    hook.could_match(&RequestShape {
                        namespace: *namespace,
                        namespace_labels: labels.as_ref(),
                        object_labels: Some(&unlabelled),
                        ..RequestShape::new(operation, [group, "v1", resource, subresource])
                    })
                })
            });
            if meets && !asked.contains(entry) {
                asked.push(*entry);
            }
        }
    }
    asked
}

fn scope(subject: &AuditedHook, estate: &Estate, found: &mut Vec<Finding>) {
    let hook = &subject.hook;
    let waits = hook.failure_policy == FailurePolicy::Fail || hook.timeout.as_secs() > LONG;
    let critical = asked(hook, estate, &CRITICAL);
    if waits && !critical.is_empty() && hook.match_conditions.is_empty() {
        let message = format!(
            "It is asked about {}: while it is down, these are refused or late where the control plane writes them. Leave \
             kube-system and kube-node-lease out by namespaceSelector, and objects without a namespace out of its rules.",
            listed(&critical, SHOWN)
        );
        found.push(Finding::of(CRITICAL_RESOURCES, subject, message));
    }
    if hook.id.kind == HookKind::Mutating && !critical.is_empty() && hook.match_conditions.is_empty() {
        let message = format!(
            "It may change {} of the control plane. A mutation of those breaks what runs there, or fights its owner; Leases of nodes \
             must never be changed.",
            listed(&critical, SHOWN)
        );
        found.push(Finding::of(MUTATES_CONTROL_PLANE, subject, message));
    }
    if hook.rules.iter().any(takes_everything) {
        let message = "A rule takes every resource of every group, also what will be installed tomorrow. Name what it reviews.";
        found.push(Finding::of(CATCH_ALL_RULES, subject, message));
    }
}

/// Whether a list of groups or versions includes `*`.
fn is_any(items: &[String]) -> bool {
    items.iter().any(|item| item == "*")
}

/// Whether a rule covers every resource of every group.
fn takes_everything(rule: &HookRule) -> bool {
    is_any(&rule.api_groups) && rule.resources.iter().any(|entry| entry == "*" || entry == "*/*")
}

/// A finding if the webhook is called for reviews or bindings. These objects have no labels.
fn virtual_resources(auditor: &Auditor<'_>, at: usize, found: &mut Vec<Finding>) {
    let (reader, unlabelled) = (auditor.reader(at), Labels::new());
    let asked = VIRTUAL.into_iter().filter(|(group, resource, namespaced)| {
        let shape = RequestShape {
            namespace: namespaced.then_some("kube-system"),
            object_labels: Some(&unlabelled),
            ..RequestShape::new("CREATE", [group, "v1", resource, ""])
        };
        reader.reach_of_user(shape) != Reach::No
    });
    let asked: Vec<&str> = asked.map(|(_, resource, _)| resource).collect();
    if asked.is_empty() {
        return;
    }
    let subject = auditor.subject(at);
    let hook = &subject.hook;
    let cost = match hook.failure_policy {
        FailurePolicy::Fail => "tokens are not checked and access is not reviewed".to_owned(),
        FailurePolicy::Ignore => format!("each of them may wait {} s", hook.timeout.as_secs()),
    };
    let means = if hook.rules.iter().any(takes_everything) {
        "by matchConditions"
    } else {
        "of its rules"
    };
    let message = format!(
        "It is asked about {}, which are questions and not objects. While it is down, {cost}. Leave them out {means}.",
        listed(&asked, SHOWN)
    );
    found.push(Finding::of(VIRTUAL_RESOURCES, subject, message));
}

/// A finding if no object can match the rules or a selector. Of cluster-scoped objects, only Namespaces are matched against a
/// namespaceSelector (kubernetes 1.36, `admission/plugin/webhook/predicates/namespace`).
fn never_called(subject: &AuditedHook, estate: &Estate, found: &mut Vec<Finding>) {
    let hook = &subject.hook;
    let clustered = hook.rules.iter().any(|rule| rule.scope != Scope::Namespaced);
    let message = if hook.rules.is_empty() {
        "It is never called: it has no rules. What it should review goes in unreviewed."
    } else if is_contradiction(&hook.object_selector) {
        "It is never called: its objectSelector asks for what no labels have. What it should review goes in unreviewed."
    } else if !is_contradiction(&hook.namespace_selector) {
        return;
    } else if clustered {
        "It is never called for objects in namespaces: its namespaceSelector asks for what no labels have. Those go in \
         unreviewed. Objects without a namespace that its rules name, except Namespaces, still meet it."
    } else {
        "It is never called: its namespaceSelector asks for what no labels have. What it should review goes in unreviewed."
    };
    // In manifests this is only informative: a controller may fill in rules and selectors later.
    let finding = Finding::of(NEVER_CALLED, subject, message);
    found.push(finding.at_most_if(!estate.is_cluster, FindingSeverity::Info));
}

fn conditions(subject: &AuditedHook, found: &mut Vec<Finding>) {
    let compiler = ConditionCompiler::for_forecasts();
    for condition in &subject.hook.match_conditions {
        if let Err(why) = compiler.check(&condition.expression) {
            let why = why.to_string();
            let why = why.lines().next().unwrap_or_default();
            let message = format!(
                "matchConditions {:?} is no CEL: {why}. The API server refuses the configuration.",
                condition.name
            );
            found.push(Finding::of(CONDITION_NOT_CEL, subject, message));
        }
    }
}

/// Most requirements and values of a selector that is checked for contradictions: the time grows with their square.
const MAX_REQUIRED: usize = 500;

/// Whether a selector requires a label to be both present and absent, or to have a value that it also rules out. False for a
/// selector beyond [`MAX_REQUIRED`].
fn is_contradiction(selector: &Selector) -> bool {
    let parts = selector
        .expressions
        .iter()
        .map(|requirement| 1 + requirement.values.len());
    if parts.sum::<usize>() + selector.match_labels.len() > MAX_REQUIRED {
        return false;
    }
    let keys: BTreeSet<&str> = selector
        .expressions
        .iter()
        .map(|requirement| requirement.key.as_str())
        .chain(selector.match_labels.keys().map(String::as_str))
        .collect();
    keys.into_iter().any(|key| {
        let of_key = || {
            selector
                .expressions
                .iter()
                .filter(|requirement| requirement.key == key)
        };
        let fixed = selector.match_labels.get(key);
        let needed = fixed.is_some()
            || of_key().any(|requirement| {
                matches!(
                    requirement.operator,
                    SelectorOperator::In | SelectorOperator::Exists
                )
            });
        let absent = of_key().any(|requirement| requirement.operator == SelectorOperator::DoesNotExist);
        let candidates: Option<Vec<&String>> = match fixed {
            Some(value) => Some(vec![value]),
            None => of_key()
                .find(|requirement| requirement.operator == SelectorOperator::In)
                .map(|requirement| requirement.values.iter().collect()),
        };
        let fits = |value: &String| {
            let labels = Labels::from([(key.to_owned(), value.clone())]);
            of_key().all(|requirement| requirement.matches(&labels))
        };
        needed && (absent || candidates.is_some_and(|values| !values.into_iter().any(fits)))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::hook::{MatchCondition, SelectorRequirement};
    use crate::cluster::matching::tests::hook;

    fn found(hook: &Hook) -> Vec<Finding> {
        let subject = AuditedHook {
            hook: Arc::new(hook.clone()),
            source: None,
        };
        let estate = Estate {
            subjects: vec![subject],
            ..Estate::default()
        };
        let mut found = Vec::new();
        of_one(&Auditor::new(&estate), 0, &mut found);
        found
    }

    fn message<'a>(found: &'a [Finding], id: &str) -> Option<&'a str> {
        let finding = found.iter().find(|finding| finding.kind.id == id)?;
        Some(&finding.message)
    }

    #[test]
    fn what_conditions_or_selectors_keep_from_a_webhook_is_neither_a_waiting_lease_nor_a_virtual_resource() {
        let ids = ["lease-timeout", "virtual-resources"];
        let is_told = |hook: &Hook| ids.map(|id| message(&found(hook), id).is_some());
        let on_condition = |expression: &str| Hook {
            match_conditions: vec![MatchCondition {
                name: "c".to_owned(),
                expression: expression.to_owned(),
            }],
            ..hook(&["*"])
        };
        assert_eq!(is_told(&hook(&["*"])), [true, true]);
        for (expression, wanted) in [
            ("request.resource.resource != 'leases'", [false, true]),
            (
                "!request.resource.group.startsWith('auth') && request.resource.resource != 'bindings'",
                [true, false],
            ),
            ("authorizer.path('/x').check('get').allowed()", [true, true]),
            // Reviews have no namespace, so that the condition errs and each is refused.
            ("request.namespace != 'x'", [true, true]),
        ] {
            assert_eq!(is_told(&on_condition(expression)), wanted, "{expression}");
        }
        let mut labelled = hook(&["*"]);
        labelled.object_selector.match_labels = [("app".to_owned(), "web".to_owned())].into();
        assert_eq!(is_told(&labelled), [false, false]);
    }

    fn requirement(operator: SelectorOperator, values: std::ops::Range<usize>) -> SelectorRequirement {
        SelectorRequirement {
            key: "k".to_owned(),
            operator,
            values: values.map(|value| value.to_string()).collect(),
        }
    }

    #[test]
    fn a_namespace_selector_that_selects_nothing_lets_objects_without_a_namespace_through() {
        let nothing = Selector {
            expressions: vec![
                requirement(SelectorOperator::Exists, 0..0),
                requirement(SelectorOperator::DoesNotExist, 0..0),
            ],
            ..Selector::default()
        };
        let told = |scope: Scope, in_namespaces: &Selector, objects: &Selector| {
            let mut hook = hook(&["*"]);
            hook.rules[0].scope = scope;
            hook.namespace_selector = in_namespaces.clone();
            hook.object_selector = objects.clone();
            message(&found(&hook), "never-called").map(|message| message.contains("still meet it"))
        };
        let all = Selector::default();
        assert_eq!(told(Scope::All, &nothing, &all), Some(true));
        assert_eq!(told(Scope::Cluster, &nothing, &all), Some(true));
        assert_eq!(told(Scope::Namespaced, &nothing, &all), Some(false));
        assert_eq!(told(Scope::All, &nothing, &nothing), Some(false));
        assert_eq!(told(Scope::All, &all, &all), None);
    }

    #[test]
    fn a_contradiction_is_found_and_a_selector_as_large_as_an_object_is_not_judged() {
        let selector = |times, values| {
            let all = requirement(SelectorOperator::In, 0..values);
            let mut expressions = vec![all; times];
            expressions.push(requirement(SelectorOperator::NotIn, 0..values));
            Selector {
                expressions,
                ..Selector::default()
            }
        };
        assert!(is_contradiction(&selector(1, 3)));
        // Value by value against each requirement it would take minutes.
        assert!(!is_contradiction(&selector(500, 330)));
    }
}
