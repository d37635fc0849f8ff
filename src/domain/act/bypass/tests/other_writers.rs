//! Changes during a bypass by owners, other people and other releases of hookwatch.

use serde_json::{Value, json};

use super::objects::{
    NOW, author, bypass, carried_out, claimed, configuration, holds_ours, hook, ignore, patched, planned,
    spec, written,
};
use crate::act::bypass::edit::{
    Author, Desired, Edit, EditRefusal, Plan, is_left_over, plan, restore_differs_when_fenced,
};
use crate::act::bypass::{BypassPhase, BypassStanding, Rung, STATE_ANNOTATION, standing, touched};

pub(super) fn two() -> Value {
    configuration(vec![hook("a", "Fail", 10, 1), hook("b", "Fail", 7, 0)], json!({}))
}

pub(super) fn edit(object: &Value, webhook: &str, desired: &Desired) -> Edit {
    match planned(object, webhook, desired) {
        Ok(Plan::Edit(edit)) => edit,
        other => panic!("{other:?}"),
    }
}

pub(super) fn done(object: &Value, webhook: &str, desired: &Desired) -> Value {
    carried_out(object, webhook, desired).unwrap_or_else(|(_, refusal)| panic!("{refusal}"))
}

pub(super) fn refused(object: &Value, webhook: &str, desired: &Desired) -> EditRefusal {
    planned(object, webhook, desired).expect_err("a refusal")
}

/// A write by another manager.
pub(super) fn theirs(object: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut after = object.clone();
    change(&mut after);
    written(object, after, "somebody")
}

pub(super) fn is(object: &Value, webhook: &str) -> Option<(Option<Rung>, BypassPhase)> {
    match standing(object, webhook) {
        BypassStanding::Bypassed { rung, phase, .. } => Some((rung, phase)),
        _ => None,
    }
}

#[test]
fn a_revert_by_another_writer_is_seen_and_counted() {
    for desired in [bypass(Rung::Shield), bypass(Rung::Skip), ignore()] {
        let bypassed = done(&two(), "a", &desired);
        let reverted = theirs(&bypassed, |object| object["webhooks"] = two()["webhooks"].clone());
        assert!(
            matches!(standing(&reverted, "a"), BypassStanding::Reverted { .. }),
            "{desired:?}"
        );
        let again = done(&reverted, "a", &desired);
        let (BypassStanding::Bypassed { entry, .. } | BypassStanding::Ignored { entry }) =
            standing(&again, "a")
        else {
            panic!("{desired:?}");
        };
        assert_eq!(entry.reverts(), 1);
        assert_eq!(spec(&done(&again, "a", &Desired::Restore)), spec(&two()));
        assert_eq!(
            refused(&reverted, "a", &Desired::Probation),
            EditRefusal::NotBypassed
        );
    }
}

#[test]
fn what_its_owner_has_set_meanwhile_is_the_owners() {
    let bypassed = done(&two(), "a", &ignore());
    let longer = theirs(&bypassed, |object| {
        object["webhooks"][0]["timeoutSeconds"] = 20.into()
    });
    let restored = done(&longer, "a", &Desired::Restore);
    assert_eq!(restored["webhooks"][0]["timeoutSeconds"], 20);
    assert_eq!(restored["webhooks"][0]["failurePolicy"], "Fail");
    // When another manager applies the same value, it owns the field as well.
    let wanted = claimed(bypassed, "a", "failurePolicy", "somebody");
    let restored = done(&wanted, "a", &Desired::Restore);
    assert_eq!(restored["webhooks"][0]["failurePolicy"], "Ignore");
    assert_eq!(restored["webhooks"][0]["timeoutSeconds"], 10);
    assert!(!holds_ours(&restored));
}

#[test]
fn another_bypass_after_a_revert_takes_the_owners_new_fields_for_the_original() {
    let bypassed = done(&two(), "a", &ignore());
    let changed = theirs(&bypassed, |object| {
        object["webhooks"][0]["failurePolicy"] = "Fail".into();
        object["webhooks"][0]["timeoutSeconds"] = 20.into();
    });
    let again = done(&changed, "a", &ignore());
    assert_eq!(
        done(&again, "a", &Desired::Restore)["webhooks"][0]["timeoutSeconds"],
        20
    );
}

#[test]
fn a_wiped_annotation_costs_the_fields_and_nothing_more() {
    let wipe = |object: &Value| theirs(object, |object| drop(object["metadata"]["annotations"].take()));
    for rung in [Rung::Shield, Rung::Skip] {
        let wiped = wipe(&done(&two(), "a", &bypass(rung)));
        assert!(matches!(
            standing(&wiped, "a"),
            BypassStanding::OursWithoutAnnotation { fields: false, .. }
        ));
        assert_eq!(spec(&done(&wiped, "a", &Desired::Restore)), spec(&two()));
        // It can also be bypassed again.
        assert_eq!(
            is(&done(&wiped, "a", &bypass(rung)), "a"),
            Some((Some(rung), BypassPhase::Bypassed))
        );
        assert_eq!(
            is(&done(&wiped, "a", &Desired::Probation), "a"),
            Some((Some(rung), BypassPhase::Probation))
        );
    }
    let wiped = wipe(&done(&two(), "a", &ignore()));
    assert!(matches!(
        standing(&wiped, "a"),
        BypassStanding::OursWithoutAnnotation { fields: true, .. }
    ));
    for desired in [Desired::Restore, bypass(Rung::Skip), ignore()] {
        assert!(matches!(
            refused(&wiped, "a", &desired),
            EditRefusal::OriginalUnknown(_)
        ));
    }
}

#[test]
fn failures_that_are_ignored_again_after_half_a_revert_come_back_whole() {
    let half = theirs(&done(&two(), "a", &ignore()), |object| {
        object["webhooks"][0]["failurePolicy"] = "Fail".into()
    });
    let again = done(&half, "a", &ignore());
    assert_eq!(again["webhooks"][0]["failurePolicy"], "Ignore");
    assert_eq!(again["webhooks"][0]["timeoutSeconds"], 1);
    let restored = done(&again, "a", &Desired::Restore);
    assert!(
        spec(&restored) == spec(&two()) && !holds_ours(&restored),
        "{restored:#}"
    );
}

/// A second ignore must not record hookwatch's own values as the original.
#[test]
fn failures_that_are_ignored_again_beside_a_shield_come_back_whole() {
    let shielded = done(&done(&two(), "a", &ignore()), "a", &bypass(Rung::Shield));
    assert_eq!(done(&shielded, "a", &ignore()), shielded);
    let half = theirs(&shielded, |object| {
        object["webhooks"][0]["failurePolicy"] = "Fail".into()
    });
    let again = done(&half, "a", &ignore());
    assert_eq!(again["webhooks"][0]["failurePolicy"], "Ignore");
    let restored = done(&again, "a", &Desired::Restore);
    assert!(
        spec(&restored) == spec(&two()) && !holds_ours(&restored),
        "{restored:#}"
    );
}

/// The fence permits the daemon neither to set these fields nor to remove their originals.
#[test]
fn the_daemon_shields_a_webhook_whose_failures_a_person_has_ignored_and_leaves_those_ignored() {
    let daemon = |object: &Value, desired: &Desired| {
        let fenced = Author {
            fenced: true,
            ..author()
        };
        match plan(object, "a", desired, &fenced, NOW) {
            Ok(Plan::Edit(edit)) => patched(object, &edit.patch).expect("its tests hold"),
            Ok(Plan::AlreadySo) => object.clone(),
            other => panic!("{other:?}"),
        }
    };
    let ignored = done(&two(), "a", &ignore());
    let shielded = daemon(&ignored, &bypass(Rung::Shield));
    assert_eq!(
        is(&shielded, "a"),
        Some((Some(Rung::Shield), BypassPhase::Bypassed))
    );
    let restored = daemon(&shielded, &Desired::Restore);
    assert_eq!(restored["webhooks"], ignored["webhooks"]);
    assert!(matches!(standing(&restored, "a"), BypassStanding::Ignored { .. }));
    assert_eq!(daemon(&restored, &Desired::Restore), restored);
    // It matters who restores when hookwatch has set the fields, also under a shield.
    let alone = done(&two(), "a", &bypass(Rung::Shield));
    assert!(!restore_differs_when_fenced(&alone, "a") && !restore_differs_when_fenced(&two(), "a"));
    // A person can, at each step.
    for object in [&ignored, &shielded, &restored] {
        assert!(restore_differs_when_fenced(object, "a"), "{object:#}");
        let whole = done(object, "a", &Desired::Restore);
        assert!(spec(&whole) == spec(&two()) && !holds_ours(&whole), "{whole:#}");
    }
}

#[test]
fn nonsense_in_the_annotation_is_told_and_does_not_keep_a_hook_from_coming_back() {
    for desired in [bypass(Rung::Shield), bypass(Rung::Skip), ignore()] {
        let bypassed = done(&two(), "a", &desired);
        let nonsense = theirs(&bypassed, |object| {
            let text = &mut object["metadata"]["annotations"][STATE_ANNOTATION];
            *text = text
                .as_str()
                .expect("text")
                .replace("\"version\"", "version")
                .into();
        });
        assert!(
            matches!(
                standing(&nonsense, "a"),
                BypassStanding::OursWithoutAnnotation { .. }
            ),
            "{desired:?}"
        );
        assert!(matches!(
            refused(&nonsense, "a", &desired),
            EditRefusal::Unreadable(_)
        ));
        let restored = done(&nonsense, "a", &Desired::Restore);
        assert!(
            spec(&restored) == spec(&two()) && !holds_ours(&restored),
            "{desired:?}: {restored:#}"
        );
    }
}

#[test]
fn an_original_that_no_longer_validates_is_told_and_nothing_is_lost() {
    let bypassed = done(&two(), "a", &ignore());
    let broken = theirs(&bypassed, |object| {
        let text = &mut object["metadata"]["annotations"][STATE_ANNOTATION];
        *text = text
            .as_str()
            .expect("text")
            .replace("a=Fail/10", "a=Fail/99")
            .into();
    });
    assert!(
        matches!(refused(&broken, "a", &Desired::Restore), EditRefusal::InvalidOriginal(why) if why.contains("a=Fail/99"))
    );
}

#[test]
fn what_was_removed_or_renamed_is_forgotten() {
    let bypassed = done(&two(), "a", &bypass(Rung::Skip));
    let renamed = theirs(&bypassed, |object| object["webhooks"][0]["name"] = "z".into());
    assert_eq!(standing(&renamed, "a"), BypassStanding::Gone);
    let names: Vec<String> = touched(&renamed).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "z"]);
    let restored = done(&done(&renamed, "z", &Desired::Restore), "a", &Desired::Restore);
    assert!(!holds_ours(&restored), "{restored:#}");
    assert_eq!(
        done(&renamed, "a", &Desired::Restore)["webhooks"],
        restored["webhooks"]
    );
    assert_eq!(
        plan(&restored, "a", &bypass(Rung::Skip), &author(), NOW),
        Ok(Plan::Gone)
    );
    assert_eq!(
        plan(&restored, "a", &Desired::Restore, &author(), NOW),
        Ok(Plan::Gone)
    );
}

#[test]
fn no_annotation_makes_a_restore_weaken_a_webhook() {
    let fields = |object: &Value| {
        (
            object["webhooks"][0]["failurePolicy"].clone(),
            object["webhooks"][0]["timeoutSeconds"].clone(),
        )
    };
    for (applied, original) in [
        (
            json!({"failurePolicy": "Fail", "timeoutSeconds": 10}),
            "a=Ignore/1",
        ),
        (json!({"failurePolicy": "Fail"}), "a=Ignore/30"),
        (json!({"timeoutSeconds": 10}), "a=Ignore/1"),
        (json!(["Fail"]), "a=Ignore/1"),
    ] {
        let text = json!({"webhooks": {"a": {"rung": "ignore", "applied": applied, "original": original}}});
        let owners = two()["metadata"]["managedFields"].to_string();
        for owner in ["hookwatch", "owner"] {
            let mut forged = two();
            forged["metadata"]["annotations"] = json!({STATE_ANNOTATION: text.to_string()});
            let owners = owners.replace("\"owner\"", &format!("{owner:?}"));
            forged["metadata"]["managedFields"] = serde_json::from_str(&owners).expect("JSON");
            let restored = done(&forged, "a", &Desired::Restore);
            assert_eq!(fields(&restored), fields(&two()), "{text} {owner}");
        }
    }
}

#[test]
fn an_original_that_is_spelt_as_the_fence_does_not_read_it_is_none() {
    let text = r#"{"webhooks": {"a": {"rung": "ignore", "original": "a=\u0046ail/10"}}}"#;
    let mut forged = two();
    forged["metadata"]["annotations"] = json!({STATE_ANNOTATION: text});
    let forged = theirs(&forged, |object| {
        object["webhooks"][0]["failurePolicy"] = "Ignore".into()
    });
    let standing = standing(&forged, "a");
    assert!(
        !matches!(standing, BypassStanding::Bypassed { .. })
            && super::super::standing::state(&forged).is_err(),
        "{standing:?}"
    );
}

#[test]
fn a_bypass_of_another_release_is_taken_back() {
    let text = json!({"version": 9, "webhooks": {"b": {
        "rung": "dim", "original": "b=Fail/7", "applied": {"timeoutSeconds": 3}, "by": {"version": "9.0.0"},
    }}});
    let theirs = theirs(&two(), |object| {
        object["metadata"]["annotations"] = json!({STATE_ANNOTATION: text.to_string()});
        object["webhooks"][1]["timeoutSeconds"] = 3.into();
        object["webhooks"][1]["matchConditions"] =
            json!([{"name": "hookwatch.dev/dim", "expression": "false"}]);
    });
    // An annotation of an older release does not say what it has set: that follows from the rung.
    let silent = json!({"webhooks": {"a": {"rung": "ignore", "original": "a=Fail/10"}}}).to_string();
    let older = written(
        &two(),
        {
            let mut older = two();
            older["metadata"]["annotations"] = json!({STATE_ANNOTATION: silent});
            older["webhooks"][0]["failurePolicy"] = "Ignore".into();
            older["webhooks"][0]["timeoutSeconds"] = 1.into();
            older
        },
        "hookwatch",
    );
    assert!(matches!(standing(&older, "a"), BypassStanding::Ignored { .. }));
    let restored = done(&older, "a", &Desired::Restore);
    assert!(
        spec(&restored) == spec(&two()) && !holds_ours(&restored),
        "{restored:#}"
    );

    // It was hookwatch that owned it.
    let owned = theirs["metadata"]["managedFields"]
        .to_string()
        .replace("somebody", "hookwatch");
    let mut newer = theirs;
    newer["metadata"]["managedFields"] = serde_json::from_str(&owned).expect("JSON");
    assert!(
        matches!(standing(&newer, "b"), BypassStanding::Bypassed { .. }),
        "{:?}",
        standing(&newer, "b")
    );
    let restored = done(&newer, "b", &Desired::Restore);
    assert!(
        spec(&restored) == spec(&two()) && !holds_ours(&restored),
        "{restored:#}"
    );
}

#[test]
fn nonsense_that_another_webhook_still_needs_stays() {
    let mut nonsense = theirs(&done(&two(), "a", &ignore()), |object| {
        let text = &mut object["metadata"]["annotations"][STATE_ANNOTATION];
        *text = text.as_str().expect("text").replacen('{', "", 1).into();
    });
    // The same where no manager is recorded.
    nonsense["metadata"]["managedFields"] = json!([]);
    assert_eq!(planned(&nonsense, "b", &Desired::Restore), Ok(Plan::AlreadySo));
    assert!(!is_left_over(&nonsense, "b"));
    let restored = done(&nonsense, "a", &Desired::Restore);
    assert!(
        spec(&restored) == spec(&two()) && !holds_ours(&restored),
        "{restored:#}"
    );
}

#[test]
fn a_bypass_after_a_restore_that_stopped_halfway_is_a_new_one() {
    let ignored = done(&two(), "a", &ignore());
    let restore = edit(&ignored, "a", &Desired::Restore);
    let halfway = patched(&ignored, &restore.patch).expect("it applies");
    assert_eq!(
        is(&halfway, "a").map(|(_, phase)| phase),
        Some(BypassPhase::Restored)
    );
    let later = NOW + std::time::Duration::from_secs(60);
    let Ok(Plan::Edit(edit)) = plan(&halfway, "a", &bypass(Rung::Shield), &author(), later) else {
        panic!("an edit");
    };
    let BypassStanding::Bypassed { entry, .. } =
        standing(&patched(&halfway, &edit.patch).expect("it applies"), "a")
    else {
        panic!("a bypass");
    };
    assert_eq!(entry.since(), Some(later));
}
