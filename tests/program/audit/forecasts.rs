//! What is foretold.

use std::time::Duration;

use hookwatch::domain::audit::{Auditor, BackendFailure, Estate, Function};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::{estate_of, forecast, found_in, lost, webhook};

#[test]
fn a_catch_all_hook_that_hangs_or_refuses_costs_every_function_in_the_order_of_their_timers() {
    let estate = estate_of(vec![webhook("Validating", "policy", json!({}))], false);
    for failure in [BackendFailure::Hang, BackendFailure::Refuse] {
        let forecast = forecast(&estate, failure);
        let mut all = lost(&forecast);
        assert!(forecast.casualties.iter().all(|casualty| casualty.is_certain));
        assert!(
            forecast.casualties.is_sorted_by_key(|casualty| casualty.after),
            "{failure:?}"
        );
        all.sort_unstable();
        assert_eq!(all, Function::ALL, "{failure:?}");
    }
}

#[test]
fn no_interval_is_wider_than_the_phases_of_its_timers() {
    for (policy, timeout) in [
        ("Fail", 1),
        ("Fail", 10),
        ("Fail", 30),
        ("Ignore", 10),
        ("Ignore", 30),
    ] {
        let more = json!({"failurePolicy": policy, "timeoutSeconds": timeout});
        let estate = estate_of(vec![webhook("Validating", "policy", more)], false);
        for failure in BackendFailure::ALL {
            for casualty in forecast(&estate, failure).casualties {
                let [earliest, latest] = casualty.after;
                let widest = match casualty.what {
                    Function::LeaderElection => 3,
                    Function::NodeHeartbeat => 20,
                    _ => 15,
                };
                assert!(latest - earliest <= Duration::from_secs(widest), "{casualty:?}");
            }
        }
    }
}

#[test]
fn ignored_failures_cost_what_waits_too_long_and_nothing_where_calls_are_refused() {
    let with = |timeout: u64| {
        let more = json!({"failurePolicy": "Ignore", "timeoutSeconds": timeout});
        estate_of(vec![webhook("Mutating", "inject", more)], false)
    };
    assert_eq!(lost(&forecast(&with(10), BackendFailure::Refuse)), []);
    assert_eq!(lost(&forecast(&with(3), BackendFailure::Hang)), []);
    let leaders = lost(&forecast(&with(5), BackendFailure::Hang));
    assert_eq!(leaders[0], Function::LeaderElection);
    assert!(!leaders.contains(&Function::NodeHeartbeat), "kubelets wait 10 s");
    assert!(lost(&forecast(&with(10), BackendFailure::Hang)).contains(&Function::NodeHeartbeat));
}

#[test]
fn webhooks_of_one_service_fail_together_and_mutating_ones_add_up() {
    let more = |timeout: u64| {
        let service = json!({"service": {"namespace": "shared", "name": "shared"}});
        json!({"failurePolicy": "Ignore", "timeoutSeconds": timeout, "clientConfig": service})
    };
    let objects = |kind| vec![webhook(kind, "one", more(3)), webhook(kind, "two", more(3))];
    let mutating = estate_of(objects("Mutating"), false);
    let forecast_of_both = forecast(&mutating, BackendFailure::Hang);
    assert_eq!(forecast_of_both.together_with.len(), 1);
    assert_eq!(
        lost(&forecast_of_both)[0],
        Function::LeaderElection,
        "3 s and 3 s"
    );
    let validating = estate_of(objects("Validating"), false);
    assert_eq!(
        lost(&forecast(&validating, BackendFailure::Hang)),
        [],
        "the longest of 3 s and 3 s"
    );
}

#[test]
fn a_webhook_that_may_be_called_twice_delays_its_own_pods_by_twice_its_timeout() {
    let selector = json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]},
    ]});
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    let with = |name, timeout: u64| {
        let more = json!({
            "failurePolicy": "Ignore", "timeoutSeconds": timeout, "reinvocationPolicy": "IfNeeded", "rules": rules,
            "namespaceSelector": selector,
        });
        webhook("Mutating", name, more)
    };
    let own_pods = |objects| {
        let estate = estate_of(objects, false);
        lost(&forecast(&estate, BackendFailure::Hang)).contains(&Function::OwnPods)
    };
    assert!(own_pods(vec![with("one", 20), with("two", 20)]), "twice 20 s");
    assert!(!own_pods(vec![with("one", 16), with("two", 20)]), "twice 16 s");
    assert!(
        !own_pods(vec![with("one", 20)]),
        "nothing else changes what it has seen"
    );
}

#[test]
fn namespaces_left_out_by_label_are_safe_and_what_has_no_namespace_is_not() {
    let selector = json!({"matchExpressions": [{
        "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kube-node-lease", "policy"],
    }]});
    let estate = estate_of(
        vec![webhook(
            "Validating",
            "policy",
            json!({"namespaceSelector": selector}),
        )],
        false,
    );
    let lost = lost(&forecast(&estate, BackendFailure::Hang));
    assert!(
        !lost.contains(&Function::LeaderElection) && !lost.contains(&Function::OwnPods),
        "{lost:?}"
    );
    assert!(
        lost.contains(&Function::ApiServerStart),
        "ClusterRoles are in no namespace: {lost:?}"
    );
    assert!(
        lost.contains(&Function::TokenRequest),
        "tenants' Pods need tokens: {lost:?}"
    );
}

#[test]
fn a_condition_that_nothing_is_known_of_makes_a_casualty_uncertain_and_one_that_is_false_prevents_it() {
    let with = |expression: &str| {
        let conditions = json!([{"name": "c", "expression": expression}]);
        estate_of(
            vec![webhook(
                "Validating",
                "policy",
                json!({"matchConditions": conditions}),
            )],
            false,
        )
    };
    let unknown = forecast(
        &with("authorizer.path('/x').check('get').allowed()"),
        BackendFailure::Hang,
    );
    let leaders = unknown
        .casualties
        .iter()
        .find(|casualty| casualty.what == Function::LeaderElection)
        .unwrap();
    assert!(!leaders.is_certain);
    let spared = with("!(request.resource.resource in ['leases'])");
    let lost = lost(&forecast(&spared, BackendFailure::Hang));
    assert!(
        !lost.contains(&Function::LeaderElection) && !lost.contains(&Function::NodeHeartbeat),
        "{lost:?}"
    );
    let by_user = with("!('system:nodes' in request.userInfo.groups)");
    let lost = super::lost(&forecast(&by_user, BackendFailure::Hang));
    assert!(
        lost.contains(&Function::LeaderElection) && !lost.contains(&Function::NodeHeartbeat),
        "{lost:?}"
    );
}

#[test]
fn in_a_cluster_the_labels_of_its_namespaces_count() {
    let namespace = |name: &str, labels| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let selector = json!({"matchLabels": {"guarded": "yes"}});
    let objects = |system| {
        vec![
            webhook("Validating", "policy", json!({"namespaceSelector": selector})),
            namespace("kube-system", system),
            namespace("team-a", json!({})),
        ]
    };
    let lost_with = |system| lost(&forecast(&estate_of(objects(system), true), BackendFailure::Hang));
    assert!(lost_with(json!({"guarded": "yes"})).contains(&Function::LeaderElection));
    let lost = lost_with(json!({}));
    assert!(!lost.contains(&Function::LeaderElection), "{lost:?}");
    assert!(
        !lost.contains(&Function::ServiceEndpoints),
        "no tenant is guarded: {lost:?}"
    );
}

/// A cluster with these namespaces and a webhook for those that a selector takes.
fn with_namespaces(namespaces: impl Iterator<Item = (String, Value)>, selector: &Value) -> Estate {
    let namespaces = namespaces.map(|(name, labels)| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    });
    let mut objects: Vec<Value> = namespaces.collect();
    objects.push(webhook(
        "Validating",
        "policy",
        json!({"namespaceSelector": selector}),
    ));
    estate_of(objects, true)
}

fn reaches_tenants(estate: &Estate) -> bool {
    lost(&forecast(estate, BackendFailure::Hang)).contains(&Function::TenantWrites)
}

fn not_looked_at(estate: &Estate) -> Vec<String> {
    let found = found_in(estate).into_iter();
    let found = found.filter(|finding| finding.kind.id == "unreadable-input");
    found.map(|finding| finding.object).collect()
}

#[test]
fn a_namespace_that_a_selector_takes_is_looked_at_among_thousands_with_labels_that_none_asks_for() {
    let namespaces = |guarded: &'static str| {
        (0..2_000).map(move |number| {
            let guarded = if number == 1_999 { guarded } else { "no" };
            (
                format!("team-{number:04}"),
                json!({"team": number.to_string(), "guarded": guarded}),
            )
        })
    };
    let selector = json!({"matchLabels": {"guarded": "yes"}});
    let (one, none) = (
        with_namespaces(namespaces("yes"), &selector),
        with_namespaces(namespaces("maybe"), &selector),
    );
    assert_eq!([reaches_tenants(&one), reaches_tenants(&none)], [true, false]);
    assert_eq!(not_looked_at(&one), [""; 0]);
}

#[test]
fn a_namespace_that_is_left_out_by_its_name_does_not_stand_for_others() {
    let namespaces = ["a", "b"].map(|name| (name.to_owned(), json!({})));
    let not = json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["a"]}]});
    assert!(reaches_tenants(&with_namespaces(namespaces.into_iter(), &not)));
}

#[test]
fn more_namespaces_that_selectors_tell_apart_than_are_looked_at_are_told_of() {
    let namespaces = (0..40).map(|number| (format!("team-{number:02}"), json!({"team": number.to_string()})));
    let teams: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    let selector = json!({"matchExpressions": [{"key": "team", "operator": "In", "values": teams}]});
    let not_looked_at = not_looked_at(&with_namespaces(namespaces, &selector));
    assert_eq!(not_looked_at.len(), 1, "{not_looked_at:?}");
    assert!(
        not_looked_at[0].starts_with("Namespace/team-"),
        "{not_looked_at:?}"
    );
}

#[test]
fn a_write_of_a_subresource_is_named_as_one() {
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"]}]);
    let estate = estate_of(
        vec![webhook("Validating", "policy", json!({"rules": rules}))],
        false,
    );
    let forecast = forecast(&estate, BackendFailure::Refuse);
    let [casualty] = &forecast.casualties[..] else {
        panic!("{forecast:?}")
    };
    assert_eq!(casualty.why, "CREATE pods/eviction is refused");
}

#[test]
fn an_audit_takes_about_as_long_for_each_hook_of_a_thousand_as_of_250() {
    let time = |clock| Duration::try_from(clock_gettime(clock)).unwrap();
    // Of this thread alone, so that what runs beside it counts for nothing.
    let took = |hooks| {
        let begin = time(ClockId::ThreadCPUTime);
        assert!(audit_of(hooks) > hooks);
        time(ClockId::ThreadCPUTime) - begin
    };
    let (few, many) = (took(250), took(1_000));
    // Sixteen times as long, were each compared with each.
    assert!(many < 10 * few, "{few:?} {many:?}");
}

/// How many findings there are about so many hooks.
fn audit_of(hooks: usize) -> usize {
    let conditions = json!([{"name": "c", "expression": "!('system:nodes' in request.userInfo.groups)"}]);
    let hooks = (0..hooks).map(|at| {
        let kind = if at % 2 == 0 { "Mutating" } else { "Validating" };
        webhook(
            kind,
            &format!("hook-{at:04}"),
            json!({"matchConditions": conditions, "failurePolicy": "Ignore"}),
        )
    });
    let estate = estate_of(hooks.collect(), false);
    hookwatch::domain::audit::findings::audit(&Auditor::new(&estate)).len()
}

#[test]
fn what_a_leader_does_ends_with_that_leader_and_kube_scheduler_waits_to_give_its_lease_back() {
    let of_one = |leader: &str, failure| {
        let text = format!(
            "has(request.namespace) && request.namespace == 'kube-system' && request.name == '{leader}'"
        );
        let conditions = json!([{"name": "c", "expression": text}]);
        let more = json!({"matchConditions": conditions});
        forecast(
            &estate_of(vec![webhook("Validating", "policy", more)], false),
            failure,
        )
    };
    let scheduler = of_one("kube-scheduler", BackendFailure::Hang);
    let mut of_scheduler = lost(&scheduler);
    of_scheduler.sort_unstable();
    let pods = [
        Function::PodScheduling,
        Function::OwnPods,
        Function::KubeSystemPods,
    ];
    assert_eq!(of_scheduler, [&[Function::LeaderElection][..], &pods].concat());
    let seconds = |forecast: &hookwatch::domain::audit::Forecast| {
        forecast.casualties[0].after.map(|after| after.as_secs_f64())
    };
    assert_eq!(seconds(&scheduler), [12.5, 15.5]);
    assert_eq!(
        seconds(&of_one("kube-scheduler", BackendFailure::Refuse)),
        [9.5, 12.5]
    );
    let manager = of_one("kube-controller-manager", BackendFailure::Hang);
    assert_eq!(seconds(&manager), [9.5, 12.5]);
    let of_manager = lost(&manager);
    assert!(!of_manager.contains(&Function::PodScheduling), "{of_manager:?}");
    assert!(of_manager.contains(&Function::ServiceEndpoints), "{of_manager:?}");
}
