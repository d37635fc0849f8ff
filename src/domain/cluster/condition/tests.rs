//! The texts of conditions.

use std::collections::BTreeSet;

use super::spare::{LINES, SparedWriter};
use super::*;
use crate::cluster::hook::{Added, HookId, HookKind, HookTarget};
use crate::cluster::matching::{RequestShape, Requester};

#[test]
fn every_name_carries_the_prefix() {
    for &condition in BypassCondition::ALL {
        assert!(condition.name().starts_with(CONDITION_PREFIX));
    }
}

#[test]
fn of_two_conditions_on_a_webhook_the_one_that_lets_least_through_limits_it() {
    use BypassCondition::{Probation, Shield, Skip};
    let mut hook = Hook::new(
        HookId::new(HookKind::Validating, "c", "w"),
        HookTarget::Invalid(String::new()),
    );
    assert_eq!(hook.bypass(), None);
    for (condition, limits) in [(Shield, Shield), (Skip, Skip), (Probation, Skip)] {
        hook.match_conditions.push(MatchCondition {
            name: condition.name().into(),
            expression: "true".into(),
        });
        assert_eq!(hook.bypass(), Some(limits));
    }
}

#[test]
fn every_optional_field_stands_behind_has() {
    for &condition in BypassCondition::ALL {
        let text = condition.expression("own", "me", &Added::default());
        for field in [
            "request.namespace",
            "request.subResource",
            "request.dryRun",
            "request.userInfo.username",
            "request.userInfo.groups",
        ] {
            if let Some(first) = text.find(field) {
                assert!(text[..first].ends_with("has("), "{condition:?}: {field}");
            }
        }
    }
}

#[test]
fn nothing_but_the_request_is_used() {
    for &condition in BypassCondition::ALL {
        let text = condition.expression("own", "me", &Added::default());
        assert!(!text.to_lowercase().contains("object"), "{text}");
    }
}

#[test]
fn a_name_cannot_break_out_of_its_quotes() {
    assert_eq!(cel_string("a\" || true || \"\\\n"), r#""a\" || true || \"\\\n""#);
}

/// The writes that kube-scheduler and the claim controller of 1.36 make for a Pod with ResourceClaims.
#[test]
fn a_shield_spares_all_writes_that_schedule_a_pod_with_devices_and_no_claim_of_a_tenant() {
    let scheduler = "system:kube-scheduler";
    let controller = "system:serviceaccount:kube-system:resource-claim-controller";
    let alone = "system:kube-controller-manager";
    let added = Added::default();
    let spare = Spare {
        hookwatch_namespace: "hookwatch",
        added: &added,
    };
    let spares = |user, operation, (group, resource, subresource)| {
        let shape = RequestShape {
            operation,
            group,
            version: "v1",
            resource,
            subresource,
            namespace: Some("tenant"),
            ..Default::default()
        };
        spare.spares(&shape, Some(Requester { user, groups: &[] }))
    };
    let claim = ("resource.k8s.io", "resourceclaims", "");
    let status = ("resource.k8s.io", "resourceclaims", "status");
    for (user, operation, object) in [
        // From the Pod's template, whose name for it is then in the Pod's status.
        (controller, "CREATE", claim),
        (controller, "UPDATE", ("", "pods", "status")),
        // For extended resources.
        (scheduler, "CREATE", claim),
        // The finalizer, then the devices.
        (scheduler, "UPDATE", claim),
        (scheduler, "UPDATE", status),
        (controller, "UPDATE", status),
        (controller, "UPDATE", claim),
        (controller, "DELETE", claim),
        (alone, "CREATE", claim),
    ] {
        assert!(
            spares(user, operation, object),
            "{operation} {object:?} by {user}"
        );
        assert!(!spares("a-person", operation, object), "{operation} {object:?}");
    }
    assert!(!spares(
        controller,
        "CREATE",
        ("resource.k8s.io", "resourceclaimtemplates", "")
    ));
}

#[test]
fn a_shield_spares_rbac_objects_outside_the_control_planes_namespaces_for_the_api_server_alone() {
    let added = Added {
        own: Some("policy".to_owned()),
        leases: vec!["policy".to_owned()],
    };
    let spare = Spare {
        hookwatch_namespace: "hookwatch",
        added: &added,
    };
    let mut users = BTreeSet::from([
        "a-person",
        "system:serviceaccount:kube-system:clusterrole-aggregation-controller",
    ]);
    let mut groups = BTreeSet::from(["system:masters"]);
    for line in LINES {
        match line.writer {
            SparedWriter::Anyone => {}
            SparedWriter::Group(group) => drop(groups.insert(group)),
            SparedWriter::Users(listed) => users.extend(listed),
        }
    }
    let groups: Vec<&str> = groups.into_iter().collect();
    for (resource, namespace) in [
        ("clusterroles", None),
        ("clusterrolebindings", None),
        ("roles", Some("policy")),
        ("rolebindings", Some("tenant")),
    ] {
        for operation in ["CREATE", "UPDATE", "DELETE"] {
            let shape = RequestShape {
                namespace,
                ..RequestShape::new(operation, ["rbac.authorization.k8s.io", "v1", resource, ""])
            };
            let spared = |user: &&str| {
                let by = Requester {
                    user,
                    groups: &groups,
                };
                spare.spares(&shape, Some(by))
            };
            let spared: Vec<&str> = users.iter().copied().filter(spared).collect();
            assert_eq!(spared, ["system:apiserver"], "{operation} {resource}");
        }
    }
}
