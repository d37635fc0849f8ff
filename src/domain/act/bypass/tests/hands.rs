//! Single cases: each wish, others' hands, and what is refused.

use serde_json::{Value, json};

use super::objects::{
    NOW, author, bypass, carried_out, claimed, configuration, holds_ours, hook, ignore, patched, planned,
    spec, written,
};
use crate::domain::act::bypass::edit::{Author, Edit, Plan, Refusal, Wish, is_left_over, plan};
use crate::domain::act::bypass::{
    OPT_OUT_ANNOTATION, Phase, Rung, STATE_ANNOTATION, Standing, standing, touched,
};

pub(super) fn two() -> Value {
    configuration(vec![hook("a", "Fail", 10, 1), hook("b", "Fail", 7, 0)], json!({}))
}

fn edit(object: &Value, webhook: &str, wish: &Wish) -> Edit {
    match planned(object, webhook, wish) {
        Ok(Plan::Edit(edit)) => edit,
        other => panic!("{other:?}"),
    }
}

pub(super) fn done(object: &Value, webhook: &str, wish: &Wish) -> Value {
    carried_out(object, webhook, wish).unwrap_or_else(|(_, refusal)| panic!("{refusal}"))
}

fn refused(object: &Value, webhook: &str, wish: &Wish) -> Refusal {
    planned(object, webhook, wish).expect_err("a refusal")
}

/// Somebody else's write.
pub(super) fn theirs(object: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut after = object.clone();
    change(&mut after);
    written(object, after, "somebody")
}

fn is(object: &Value, webhook: &str) -> Option<(Option<Rung>, Phase)> {
    match standing(object, webhook) {
        Standing::Bypassed { rung, phase, .. } => Some((rung, phase)),
        _ => None,
    }
}

#[test]
fn every_rung_is_made_recognised_and_taken_back_without_a_trace() {
    for webhook in ["a", "b"] {
        for &rung in Rung::ALL {
            let original = two();
            let bypassed = done(&original, webhook, &bypass(rung));
            assert_eq!(
                is(&bypassed, webhook),
                Some((Some(rung), Phase::Bypassed)),
                "{rung}"
            );
            assert_eq!(touched(&bypassed).len(), 1);
            let tried = done(&bypassed, webhook, &Wish::Probation);
            assert_eq!(
                is(&tried, webhook),
                Some((Some(rung), Phase::Probation)),
                "{rung}"
            );
            assert_eq!(
                tried["webhooks"][0]["failurePolicy"], "Fail",
                "a canary has to tell"
            );
            for object in [&bypassed, &tried] {
                let restored = done(object, webhook, &Wish::Restore);
                assert_eq!(spec(&restored), spec(&original), "{rung}");
                assert!(!holds_ours(&restored), "{restored:#}");
                assert_eq!(standing(&restored, webhook), Standing::Original);
            }
            assert_eq!(
                is(&done(&tried, webhook, &bypass(rung)), webhook),
                Some((Some(rung), Phase::Bypassed))
            );
        }
    }
}

#[test]
fn every_rung_leads_to_every_other_and_back() {
    for &from in Rung::ALL {
        for &to in Rung::ALL {
            let here = done(&two(), "a", &bypass(from));
            assert!(from == to || edit(&here, "a", &bypass(to)).last);
            let there = done(&here, "a", &bypass(to));
            assert_eq!(
                is(&there, "a"),
                Some((Some(to), Phase::Bypassed)),
                "{from} to {to}"
            );
            let back = done(&there, "a", &Wish::Restore);
            assert_eq!(spec(&back), spec(&two()), "{from} to {to}");
        }
    }
}

#[test]
fn two_hooks_of_one_object_come_back_one_by_one() {
    let both = done(&done(&two(), "a", &ignore()), "b", &bypass(Rung::Skip));
    let one = done(&both, "a", &Wish::Restore);
    assert_eq!(is(&one, "b"), Some((Some(Rung::Skip), Phase::Bypassed)));
    assert_eq!(one["webhooks"][0], two()["webhooks"][0]);
    let owned = one["metadata"]["managedFields"].to_string();
    assert!(
        owned.contains("hookwatch") && !owned.contains(r#"k:{\"name\":\"a\"}":{"f:failurePolicy"#),
        "{owned}"
    );
    let none = done(&one, "b", &Wish::Restore);
    assert!(spec(&none) == spec(&two()) && !holds_ours(&none));
}

#[test]
fn a_patch_tests_what_it_rests_on_and_touches_nothing_else() {
    let edit = edit(&two(), "b", &ignore());
    let operations = edit.patch.as_array().expect("operations");
    let of = |op: &str| -> Vec<&str> {
        let of = operations
            .iter()
            .filter(|operation| (operation["op"] == "test") == (op == "test"));
        of.map(|operation| operation["path"].as_str().expect("a path"))
            .collect()
    };
    assert_eq!(
        of("test"),
        [
            "/webhooks/1/failurePolicy",
            "/webhooks/1/timeoutSeconds",
            "/metadata/annotations",
            "/webhooks/1/name",
            "/metadata/uid"
        ]
    );
    assert_eq!(
        of("change"),
        [
            "/webhooks/1/failurePolicy",
            "/webhooks/1/timeoutSeconds",
            "/metadata/annotations"
        ]
    );
    for change in [
        |object: &mut Value| object["webhooks"].as_array_mut().expect("hooks").reverse(),
        |object: &mut Value| object["metadata"]["uid"] = "u-2".into(),
        |object: &mut Value| object["webhooks"][1]["timeoutSeconds"] = 8.into(),
        |object: &mut Value| object["metadata"]["annotations"] = json!({"x": "y"}),
    ] {
        assert_eq!(patched(&theirs(&two(), change), &edit.patch), None);
    }
    let rotated = theirs(&two(), |object| {
        object["webhooks"][1]["clientConfig"]["caBundle"] = "Qg==".into()
    });
    assert!(patched(&rotated, &edit.patch).is_some());
}

#[test]
fn somebodys_revert_is_seen_and_counted() {
    for wish in [bypass(Rung::Shield), bypass(Rung::Skip), ignore()] {
        let bypassed = done(&two(), "a", &wish);
        let reverted = theirs(&bypassed, |object| object["webhooks"] = two()["webhooks"].clone());
        assert!(
            matches!(standing(&reverted, "a"), Standing::Reverted { .. }),
            "{wish:?}"
        );
        let again = done(&reverted, "a", &wish);
        let (Standing::Bypassed { entry, .. } | Standing::Ignored { entry }) = standing(&again, "a") else {
            panic!("{wish:?}");
        };
        assert_eq!(entry.reverts(), 1);
        assert_eq!(spec(&done(&again, "a", &Wish::Restore)), spec(&two()));
        assert_eq!(refused(&reverted, "a", &Wish::Probation), Refusal::NotBypassed);
    }
}

#[test]
fn what_its_owner_has_set_meanwhile_is_the_owners() {
    let bypassed = done(&two(), "a", &ignore());
    let longer = theirs(&bypassed, |object| {
        object["webhooks"][0]["timeoutSeconds"] = 20.into()
    });
    let restored = done(&longer, "a", &Wish::Restore);
    assert_eq!(restored["webhooks"][0]["timeoutSeconds"], 20);
    assert_eq!(restored["webhooks"][0]["failurePolicy"], "Fail");
    // The same value, applied by somebody, is theirs as well.
    let wanted = claimed(bypassed, "a", "failurePolicy", "somebody");
    let restored = done(&wanted, "a", &Wish::Restore);
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
        done(&again, "a", &Wish::Restore)["webhooks"][0]["timeoutSeconds"],
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
            Standing::OursWithoutAnnotation {
                fields: false,
                why: None,
                ..
            }
        ));
        assert_eq!(spec(&done(&wiped, "a", &Wish::Restore)), spec(&two()));
        // It can also be taken over.
        assert_eq!(
            is(&done(&wiped, "a", &bypass(rung)), "a"),
            Some((Some(rung), Phase::Bypassed))
        );
        assert_eq!(
            is(&done(&wiped, "a", &Wish::Probation), "a"),
            Some((Some(rung), Phase::Probation))
        );
    }
    let wiped = wipe(&done(&two(), "a", &ignore()));
    assert!(matches!(
        standing(&wiped, "a"),
        Standing::OursWithoutAnnotation { fields: true, .. }
    ));
    for wish in [Wish::Restore, bypass(Rung::Skip), ignore()] {
        assert!(matches!(refused(&wiped, "a", &wish), Refusal::OriginalUnknown(_)));
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
    let restored = done(&again, "a", &Wish::Restore);
    assert!(
        spec(&restored) == spec(&two()) && !holds_ours(&restored),
        "{restored:#}"
    );
}

/// Whatever is set already is not what was there before.
#[test]
fn failures_that_are_ignored_again_beside_a_shield_come_back_whole() {
    let shielded = done(&done(&two(), "a", &ignore()), "a", &bypass(Rung::Shield));
    assert_eq!(done(&shielded, "a", &ignore()), shielded);
    let half = theirs(&shielded, |object| {
        object["webhooks"][0]["failurePolicy"] = "Fail".into()
    });
    let again = done(&half, "a", &ignore());
    assert_eq!(again["webhooks"][0]["failurePolicy"], "Ignore");
    let restored = done(&again, "a", &Wish::Restore);
    assert!(
        spec(&restored) == spec(&two()) && !holds_ours(&restored),
        "{restored:#}"
    );
}

/// The fence lets the daemon neither set these fields nor forget what they were.
#[test]
fn the_daemon_shields_a_webhook_whose_failures_a_person_has_ignored_and_leaves_those_ignored() {
    let daemon = |object: &Value, wish: &Wish| {
        let fenced = Author {
            fenced: true,
            ..author()
        };
        match plan(object, "a", wish, &fenced, NOW) {
            Ok(Plan::Edit(edit)) => patched(object, &edit.patch).expect("its tests hold"),
            Ok(Plan::AlreadySo) => object.clone(),
            other => panic!("{other:?}"),
        }
    };
    let ignored = done(&two(), "a", &ignore());
    let shielded = daemon(&ignored, &bypass(Rung::Shield));
    assert_eq!(is(&shielded, "a"), Some((Some(Rung::Shield), Phase::Bypassed)));
    let restored = daemon(&shielded, &Wish::Restore);
    assert_eq!(restored["webhooks"], ignored["webhooks"]);
    assert!(matches!(standing(&restored, "a"), Standing::Ignored { .. }));
    assert_eq!(daemon(&restored, &Wish::Restore), restored);
    // A person can, at each step.
    for object in [&ignored, &shielded, &restored] {
        let whole = done(object, "a", &Wish::Restore);
        assert!(spec(&whole) == spec(&two()) && !holds_ours(&whole), "{whole:#}");
    }
}

#[test]
fn nonsense_in_the_annotation_is_told_and_does_not_keep_a_hook_from_coming_back() {
    for wish in [bypass(Rung::Shield), bypass(Rung::Skip), ignore()] {
        let bypassed = done(&two(), "a", &wish);
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
                Standing::OursWithoutAnnotation { why: Some(_), .. }
            ),
            "{wish:?}"
        );
        assert!(matches!(refused(&nonsense, "a", &wish), Refusal::Unreadable(_)));
        let restored = done(&nonsense, "a", &Wish::Restore);
        assert!(
            spec(&restored) == spec(&two()) && !holds_ours(&restored),
            "{wish:?}: {restored:#}"
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
        matches!(refused(&broken, "a", &Wish::Restore), Refusal::InvalidOriginal(why) if why.contains("a=Fail/99"))
    );
}

#[test]
fn what_was_removed_or_renamed_is_forgotten() {
    let bypassed = done(&two(), "a", &bypass(Rung::Skip));
    let renamed = theirs(&bypassed, |object| object["webhooks"][0]["name"] = "z".into());
    assert_eq!(standing(&renamed, "a"), Standing::Gone { noted: true });
    let names: Vec<String> = touched(&renamed).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "z"]);
    let restored = done(&done(&renamed, "z", &Wish::Restore), "a", &Wish::Restore);
    assert!(!holds_ours(&restored), "{restored:#}");
    assert_eq!(
        done(&renamed, "a", &Wish::Restore)["webhooks"],
        restored["webhooks"]
    );
    assert_eq!(
        plan(&restored, "a", &bypass(Rung::Skip), &author(), NOW),
        Ok(Plan::Gone)
    );
    assert_eq!(
        plan(&restored, "a", &Wish::Restore, &author(), NOW),
        Ok(Plan::Gone)
    );
}

#[test]
fn who_opted_out_or_permits_less_is_left_alone() {
    let opted = |text: &str| {
        theirs(&two(), |object| {
            object["metadata"]["annotations"] = json!({OPT_OUT_ANNOTATION: text})
        })
    };
    assert_eq!(
        refused(&opted("OFF"), "a", &bypass(Rung::Shield)),
        Refusal::OptedOut
    );
    assert!(matches!(
        refused(&opted("shield"), "a", &bypass(Rung::Skip)),
        Refusal::BeyondCeiling { .. }
    ));
    assert!(matches!(
        refused(&opted("of"), "a", &bypass(Rung::Shield)),
        Refusal::BeyondCeiling { .. }
    ));
    assert!(plan(&opted("skip"), "a", &bypass(Rung::Skip), &author(), NOW).is_ok());
    let bypassed = done(&two(), "a", &bypass(Rung::Skip));
    let opted = theirs(&bypassed, |object| {
        object["metadata"]["annotations"][OPT_OUT_ANNOTATION] = "off".into()
    });
    for wish in [bypass(Rung::Skip), bypass(Rung::Shield), Wish::Probation] {
        assert_eq!(refused(&opted, "a", &wish), Refusal::OptedOut);
    }
    let restored = done(&opted, "a", &Wish::Restore);
    assert_eq!(standing(&restored, "a"), Standing::Original);
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_written() {
    let twice = configuration(
        vec![hook("a", "Fail", 10, 0), hook("b", "Fail", 10, 0)],
        json!({}),
    );
    let mut twice = theirs(&twice, |_| {});
    twice["webhooks"][1]["name"] = "a".into();
    assert_eq!(standing(&twice, "a"), Standing::Twice);
    assert!(matches!(
        refused(&twice, "a", &bypass(Rung::Skip)),
        Refusal::NameTwice(_)
    ));
    assert_eq!(touched(&twice), []);
    twice["webhooks"][1]["matchConditions"] = json!([{"name": "hookwatch.dev/skip", "expression": "false"}]);
    assert_eq!(touched(&twice), [("a".to_owned(), Standing::Twice)]);

    let full = configuration(vec![hook("a", "Fail", 10, 64)], json!({}));
    assert_eq!(
        refused(&full, "a", &bypass(Rung::Shield)),
        Refusal::ConditionsFull(64)
    );
    assert!(plan(&full, "a", &ignore(), &author(), NOW).is_ok());
    assert_eq!(
        plan(&two(), "a", &ignore(), &author(), NOW),
        Err(Refusal::CanBeSkipped)
    );
    let nearly = configuration(vec![hook("a", "Fail", 10, 63)], json!({}));
    assert_eq!(
        spec(&done(
            &done(&nearly, "a", &bypass(Rung::Skip)),
            "a",
            &Wish::Restore
        )),
        spec(&nearly)
    );

    let annotated = configuration(vec![hook("a", "Fail", 10, 0)], json!({"x": "y".repeat(261_500)}));
    assert!(matches!(
        refused(&annotated, "a", &bypass(Rung::Skip)),
        Refusal::AnnotationsFull(_)
    ));

    let mut large = hook("a", "Fail", 10, 0);
    large["clientConfig"]["caBundle"] = "Q".repeat(1 << 20).into();
    let large = configuration(vec![large], json!({}));
    assert!(matches!(
        refused(&large, "a", &bypass(Rung::Skip)),
        Refusal::TooLarge(_)
    ));

    let ignoring = configuration(vec![hook("a", "Ignore", 1, 0)], json!({}));
    assert_eq!(
        refused(&ignoring, "a", &ignore()),
        Refusal::NothingToIgnore { seconds: 1 }
    );

    let mut old = author();
    old.match_conditions = false;
    assert_eq!(
        plan(&two(), "a", &bypass(Rung::Skip), &old, NOW),
        Err(Refusal::NoMatchConditions)
    );
    assert!(plan(&two(), "a", &ignore(), &old, NOW).is_ok());

    assert_eq!(refused(&two(), "a", &Wish::Probation), Refusal::NotBypassed);
    assert_eq!(
        plan(&json!({}), "a", &Wish::Restore, &author(), NOW),
        Err(Refusal::NoObject)
    );
}

#[test]
fn the_annotation_never_grows_beyond_what_the_fence_takes() {
    let many = (0..60).map(|index| hook(&format!("hook-{index}.example.com"), "Fail", 10, 0));
    let mut object = configuration(many.collect(), json!({}));
    let mut refusal = None;
    for index in 0..60 {
        match carried_out(&object, &format!("hook-{index}.example.com"), &ignore()) {
            Ok(bypassed) => object = bypassed,
            Err((_, why)) => refusal = Some(why),
        }
        let text = object["metadata"]["annotations"][STATE_ANNOTATION]
            .as_str()
            .expect("text");
        assert!(text.chars().count() <= 16_384);
    }
    assert!(
        matches!(refusal, Some(Refusal::AnnotationTooLong(_))),
        "{refusal:?}"
    );
    assert!(touched(&object).len() > 20, "{}", touched(&object).len());
}

#[test]
fn a_bypass_that_is_as_wished_is_not_written_again() {
    for mut wish in [bypass(Rung::Shield), bypass(Rung::Skip), ignore()] {
        let bypassed = done(&two(), "a", &wish);
        assert_eq!(planned(&bypassed, "a", &wish), Ok(Plan::AlreadySo));
        if let Wish::Bypass { why, .. } | Wish::Ignore { why } = &mut wish {
            why.expires = None;
        }
        let longer = edit(&bypassed, "a", &wish);
        assert_eq!(longer.changes.len(), 1, "the annotation alone");
    }
}

/// The fence refuses an edit that takes the annotation away while a condition stays.
#[test]
fn the_annotation_goes_only_once_no_condition_is_left_whoever_is_brought_back_first() {
    let explained = |object: &Value| {
        let conditions = object["webhooks"].to_string().contains("hookwatch.dev/");
        !conditions
            || object["metadata"]["annotations"]
                .to_string()
                .contains(STATE_ANNOTATION)
    };
    let both = done(
        &done(&two(), "a", &bypass(Rung::Shield)),
        "b",
        &bypass(Rung::Shield),
    );
    for (at, bypassed) in [&done(&two(), "a", &bypass(Rung::Shield)), &both]
        .into_iter()
        .enumerate()
    {
        let mut renamed = theirs(bypassed, |object| object["webhooks"][0]["name"] = "z".into());
        for webhook in ["b", "a", "z"] {
            let mut edits = 0;
            while let Ok(Plan::Edit(edit)) = plan(&renamed, webhook, &Wish::Restore, &author(), NOW) {
                renamed = patched(&renamed, &edit.patch).expect("it holds");
                assert!(explained(&renamed), "{at} {webhook}: {renamed:#}");
                edits += 1;
                assert!(edits < 5, "{at} {webhook}");
            }
        }
        assert!(!holds_ours(&renamed), "{renamed:#}");
    }
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
            let restored = done(&forged, "a", &Wish::Restore);
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
        !matches!(standing, Standing::Bypassed { .. }) && super::super::standing::state(&forged).is_err(),
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
    // One that does not say what it has set has set what the rung means.
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
    assert!(matches!(standing(&older, "a"), Standing::Ignored { .. }));
    let restored = done(&older, "a", &Wish::Restore);
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
        matches!(standing(&newer, "b"), Standing::Bypassed { .. }),
        "{:?}",
        standing(&newer, "b")
    );
    let restored = done(&newer, "b", &Wish::Restore);
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
    // Where nobody says whose a field is, too.
    nonsense["metadata"]["managedFields"] = json!([]);
    assert_eq!(planned(&nonsense, "b", &Wish::Restore), Ok(Plan::AlreadySo));
    assert!(!is_left_over(&nonsense, "b"));
    let restored = done(&nonsense, "a", &Wish::Restore);
    assert!(
        spec(&restored) == spec(&two()) && !holds_ours(&restored),
        "{restored:#}"
    );
}
