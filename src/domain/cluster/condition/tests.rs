//! The texts of conditions.

use super::*;
use crate::cluster::hook::{Added, HookId, HookKind, HookTarget};

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
    assert_eq!(quoted("a\" || true || \"\\\n"), r#""a\" || true || \"\\\u000a""#);
}
