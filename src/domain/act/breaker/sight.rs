//! Reads what the breaker needs to know about a webhook from its object.

use std::sync::Arc;

use serde_json::Value;

use super::book::ResourceVersion;
use super::observed::{BypassState, ObservedHook};
use super::policy::{Ceiling, OwnerAnnotations, PERMIT_ANNOTATION, Permit, PolicySubject};
use crate::act::bypass::edit::is_left_over;
use crate::act::bypass::{BypassPhase, BypassStanding, OPT_OUT_ANNOTATION, STATE_ANNOTATION, standing};
use crate::cluster::condition::BypassCondition;
use crate::time::Time;

/// An annotation in which kubectl keeps a copy of the whole object. No rule matches on it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Longest value of a label or an annotation that rules can match on, in bytes.
const MAX_VALUE: usize = 1_024;

impl ObservedHook {
    /// The state of a webhook in an object that was read whole; `None` for an object that does not exist.
    pub fn of(object: Option<&Value>, webhook: &str) -> Self {
        let object = object.unwrap_or(&Value::Null);
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let standing = standing(object, webhook);
        let shown = shown(&standing);
        Self {
            version: ResourceVersion::new(text("/metadata/resourceVersion")),
            uid: text("/metadata/uid").into(),
            left_over: matches!(shown, BypassState::Original | BypassState::Gone)
                && is_left_over(object, webhook),
            by_hand_until: by_hand_until(&standing),
            shown,
            owner: OwnerAnnotations::of(object),
            ignores: ignores(object, webhook),
        }
    }
}

/// The end that a person gave for the bypass that is in force.
fn by_hand_until(standing: &BypassStanding) -> Option<Time> {
    match standing {
        BypassStanding::Bypassed { entry, .. } if entry.by()?.is_person() => entry.expires(),
        _ => None,
    }
}

impl OwnerAnnotations {
    /// What the owner of an object says on it.
    pub fn of(object: &Value) -> Self {
        let annotation = |name: &str| object["metadata"]["annotations"][name].as_str();
        Self {
            ceiling: Ceiling::read(annotation(OPT_OUT_ANNOTATION)),
            permit: Permit::read(annotation(PERMIT_ANNOTATION)),
            subject: Arc::new(subject(object)),
        }
    }
}

/// Whether the failures of one of its webhooks are ignored.
fn ignores(object: &Value, webhook: &str) -> bool {
    let mut webhooks = object["webhooks"].as_array().into_iter().flatten();
    webhooks.any(|entry| entry["name"] == webhook && entry["failurePolicy"] == "Ignore")
}

/// What rules can match on in an object. Longer values are left out.
fn subject(object: &Value) -> PolicySubject {
    let texts = |what: &str| {
        let texts = object["metadata"][what].as_object().into_iter().flatten();
        texts
            .filter(|(key, _)| *key != LAST_APPLIED && *key != STATE_ANNOTATION)
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .filter(|(_, value)| value.len() <= MAX_VALUE)
            .collect()
    };
    PolicySubject {
        labels: texts("labels"),
        annotations: texts("annotations"),
    }
}

/// The bypass state that a standing means for the breaker.
fn shown(standing: &BypassStanding) -> BypassState {
    match standing {
        // What another writer reverted is that writer's, even if the annotation remains. Ignored failures are a person's.
        BypassStanding::Original
        | BypassStanding::Ignored { .. }
        | BypassStanding::Reverted { .. }
        | BypassStanding::Bypassed {
            phase: BypassPhase::Restored,
            ..
        } => BypassState::Original,
        BypassStanding::Bypassed { phase, .. } => ours(standing, *phase == BypassPhase::Probation),
        BypassStanding::OursWithoutAnnotation { conditions, .. } => {
            let probation = BypassCondition::Probation.name();
            ours(standing, conditions.iter().any(|name| name == probation))
        }
        BypassStanding::Gone => BypassState::Gone,
        BypassStanding::DuplicateName => BypassState::DuplicateName,
    }
}

/// The state of a bypass of hookwatch.
fn ours(standing: &BypassStanding, probation: bool) -> BypassState {
    match standing.rung() {
        Some(rung) => BypassState::Ours { rung, probation },
        None => BypassState::Original,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::policy::Rung;
    use super::*;

    fn object(annotations: Value, conditions: Value) -> Value {
        json!({
            "metadata": {"name": "c", "uid": "u", "resourceVersion": "7", "annotations": annotations,
                "labels": {"team": "a"}},
            "webhooks": [{"name": "w", "failurePolicy": "Fail", "timeoutSeconds": 10,
                "matchConditions": conditions}],
        })
    }

    #[test]
    fn an_untouched_object_is_its_owners_at_its_version() {
        let view = ObservedHook::of(Some(&object(json!({}), json!([]))), "w");
        assert_eq!((&*view.version.0, &*view.uid), ("7", "u"));
        assert_eq!(
            (view.shown, view.owner.ceiling),
            (BypassState::Original, Ceiling::Open)
        );
        let gone = ObservedHook::of(None, "w");
        assert_eq!(
            (gone.shown, gone.left_over, &*gone.version.0),
            (BypassState::Gone, false, "")
        );
        assert_eq!(
            ObservedHook::of(Some(&object(json!({}), json!([]))), "v").shown,
            BypassState::Gone
        );
    }

    #[test]
    fn a_condition_of_hookwatchs_is_ours_whatever_became_of_the_annotation() {
        for (names, rung, probation) in [
            (&["hookwatch.dev/shield"][..], Rung::Shield, false),
            (&["hookwatch.dev/skip"], Rung::Skip, false),
            (&["hookwatch.dev/shield", "hookwatch.dev/skip"], Rung::Skip, false),
            (&["hookwatch.dev/probation"], Rung::Skip, true),
        ] {
            let condition = |name: &&str| json!({"name": name, "expression": "false"});
            let conditions: Vec<_> = names.iter().map(condition).collect();
            for annotations in [json!({}), json!({STATE_ANNOTATION: "nonsense"})] {
                let view = ObservedHook::of(Some(&object(annotations, json!(conditions))), "w");
                assert_eq!(view.shown, BypassState::Ours { rung, probation }, "{names:?}");
            }
        }
    }

    #[test]
    fn what_the_owner_says_and_what_rules_go_by_is_read_off_the_object() {
        let annotations = json!({OPT_OUT_ANNOTATION: "shield", "tier": "1", LAST_APPLIED: "{}",
            STATE_ANNOTATION: "{}", "long": "x".repeat(MAX_VALUE + 1)});
        let object = object(annotations, json!([]));
        let owner = OwnerAnnotations::of(&object);
        assert_eq!(
            (owner.ceiling, owner.permit),
            (Ceiling::At(Rung::Shield), Permit::Nothing)
        );
        assert_eq!(owner.subject.labels["team"], "a");
        let keys: Vec<&str> = owner.subject.annotations.keys().map(String::as_str).collect();
        assert_eq!(keys, [OPT_OUT_ANNOTATION, "tier"]);
    }

    #[test]
    fn what_the_owner_permits_stands_on_the_very_version_that_was_read() {
        for (said, permit) in [
            ("skip-while-dead", Permit::SkipWhileDead),
            ("skip", Permit::Unreadable),
        ] {
            let object = object(json!({PERMIT_ANNOTATION: said}), json!([]));
            let view = ObservedHook::of(Some(&object), "w");
            assert_eq!(
                (view.owner.permit, view.owner.ceiling),
                (permit, Ceiling::Open),
                "{said}"
            );
            assert!(!view.ignores);
        }
        let mut object = object(json!({}), json!([]));
        object["webhooks"][0]["failurePolicy"] = "Ignore".into();
        assert!(
            ObservedHook::of(Some(&object), "w").ignores && !ObservedHook::of(Some(&object), "v").ignores
        );
    }

    fn noted(entry: Value) -> Value {
        json!({STATE_ANNOTATION: json!({"version": 1, "webhooks": {"w": entry}}).to_string()})
    }

    #[test]
    fn only_a_person_says_until_when_a_bypass_is_to_be_left_alone() {
        let until = Time::from_unix_millis(9_000);
        for (who, expected) in [("anna@desk", Some(until)), ("hookwatch-7_0f", None)] {
            let entry = json!({"rung": "skip", "phase": "bypassed", "expires": until,
                "by": {"identity": who, "version": "1"}});
            let skip = json!([{"name": "hookwatch.dev/skip", "expression": "false"}]);
            let view = ObservedHook::of(Some(&object(noted(entry), skip)), "w");
            assert_eq!((view.by_hand_until, view.left_over), (expected, false), "{who}");
        }
    }

    #[test]
    fn what_is_over_and_still_written_down_is_left_over() {
        for phase in ["bypassed", "restored"] {
            let entry = json!({"rung": "ignore", "phase": phase, "original": "w=Fail/10"});
            let view = ObservedHook::of(Some(&object(noted(entry.clone()), json!([]))), "w");
            assert_eq!(
                (view.shown, view.left_over),
                (BypassState::Original, true),
                "{phase}"
            );
            let gone = json!({"rung": "skip", "phase": phase});
            let annotations = json!({STATE_ANNOTATION: json!({"webhooks": {"v": gone}}).to_string()});
            let view = ObservedHook::of(Some(&object(annotations, json!([]))), "v");
            assert_eq!((view.shown, view.left_over), (BypassState::Gone, true), "{phase}");
        }
        let view = ObservedHook::of(
            Some(&object(json!({STATE_ANNOTATION: "nonsense"}), json!([]))),
            "w",
        );
        assert_eq!((view.shown, view.left_over), (BypassState::Original, true));
        let view = ObservedHook::of(Some(&object(json!({}), json!([]))), "w");
        assert!(!view.left_over);
    }

    #[test]
    fn ignored_failures_are_for_a_person_to_end_and_a_name_that_occurs_twice_is_ambiguous() {
        let entry = json!({"rung": "ignore", "phase": "bypassed", "original": "w=Fail/10"});
        let mut ignored = object(noted(entry), json!([]));
        ignored["webhooks"][0]["failurePolicy"] = "Ignore".into();
        ignored["webhooks"][0]["timeoutSeconds"] = 1.into();
        let mut wiped = object(json!({}), json!([]));
        wiped["webhooks"][0]["failurePolicy"] = "Ignore".into();
        wiped["metadata"]["managedFields"] = json!([{"manager": "hookwatch",
            "fieldsV1": {"f:webhooks": {"k:{\"name\":\"w\"}": {"f:failurePolicy": {}}}}}]);
        for object in [ignored, wiped] {
            let view = ObservedHook::of(Some(&object), "w");
            assert_eq!((view.shown, view.left_over), (BypassState::Original, false));
        }
        let mut twice = object(json!({}), json!([]));
        let hook = twice["webhooks"][0].clone();
        twice["webhooks"] = json!([hook, hook]);
        let view = ObservedHook::of(Some(&twice), "w");
        assert_eq!((view.shown, view.left_over), (BypassState::DuplicateName, false));
    }
}
