//! For each desired state: what is written, that a restore leaves no trace, and what is refused.

use serde_json::{Value, json};

use super::objects::{
    NOW, author, bypass, carried_out, configuration, holds_ours, hook, ignore, patched, planned, spec,
};
use super::other_writers::{done, edit, is, refused, theirs, two};
use crate::act::bypass::edit::{Desired, EditRefusal, Plan, plan};
use crate::act::bypass::{
    BypassPhase, BypassStanding, OPT_OUT_ANNOTATION, Rung, STATE_ANNOTATION, standing, touched,
};

#[test]
fn every_rung_is_made_recognised_and_taken_back_without_a_trace() {
    for webhook in ["a", "b"] {
        for &rung in Rung::ALL {
            let original = two();
            let bypassed = done(&original, webhook, &bypass(rung));
            assert_eq!(
                is(&bypassed, webhook),
                Some((Some(rung), BypassPhase::Bypassed)),
                "{rung}"
            );
            assert_eq!(touched(&bypassed).len(), 1);
            let tried = done(&bypassed, webhook, &Desired::Probation);
            assert_eq!(
                is(&tried, webhook),
                Some((Some(rung), BypassPhase::Probation)),
                "{rung}"
            );
            assert_eq!(
                tried["webhooks"][0]["failurePolicy"], "Fail",
                "a canary has to tell"
            );
            for object in [&bypassed, &tried] {
                let restored = done(object, webhook, &Desired::Restore);
                assert_eq!(spec(&restored), spec(&original), "{rung}");
                assert!(!holds_ours(&restored), "{restored:#}");
                assert_eq!(standing(&restored, webhook), BypassStanding::Original);
            }
            assert_eq!(
                is(&done(&tried, webhook, &bypass(rung)), webhook),
                Some((Some(rung), BypassPhase::Bypassed))
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
                Some((Some(to), BypassPhase::Bypassed)),
                "{from} to {to}"
            );
            let back = done(&there, "a", &Desired::Restore);
            assert_eq!(spec(&back), spec(&two()), "{from} to {to}");
        }
    }
}

#[test]
fn two_hooks_of_one_object_come_back_one_by_one() {
    let both = done(&done(&two(), "a", &ignore()), "b", &bypass(Rung::Skip));
    let one = done(&both, "a", &Desired::Restore);
    assert_eq!(is(&one, "b"), Some((Some(Rung::Skip), BypassPhase::Bypassed)));
    assert_eq!(one["webhooks"][0], two()["webhooks"][0]);
    let owned = one["metadata"]["managedFields"].to_string();
    assert!(
        owned.contains("hookwatch") && !owned.contains(r#"k:{\"name\":\"a\"}":{"f:failurePolicy"#),
        "{owned}"
    );
    let none = done(&one, "b", &Desired::Restore);
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
fn who_opted_out_or_permits_less_is_left_alone() {
    let opted = |text: &str| {
        theirs(&two(), |object| {
            object["metadata"]["annotations"] = json!({OPT_OUT_ANNOTATION: text})
        })
    };
    assert_eq!(
        refused(&opted("OFF"), "a", &bypass(Rung::Shield)),
        EditRefusal::OptedOut
    );
    assert!(matches!(
        refused(&opted("shield"), "a", &bypass(Rung::Skip)),
        EditRefusal::BeyondCeiling { .. }
    ));
    assert!(matches!(
        refused(&opted("of"), "a", &bypass(Rung::Shield)),
        EditRefusal::BeyondCeiling { .. }
    ));
    assert!(plan(&opted("skip"), "a", &bypass(Rung::Skip), &author(), NOW).is_ok());
    let bypassed = done(&two(), "a", &bypass(Rung::Skip));
    let opted = theirs(&bypassed, |object| {
        object["metadata"]["annotations"][OPT_OUT_ANNOTATION] = "off".into()
    });
    for desired in [bypass(Rung::Skip), bypass(Rung::Shield), Desired::Probation] {
        assert_eq!(refused(&opted, "a", &desired), EditRefusal::OptedOut);
    }
    let restored = done(&opted, "a", &Desired::Restore);
    assert_eq!(standing(&restored, "a"), BypassStanding::Original);
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_written() {
    let twice = configuration(
        vec![hook("a", "Fail", 10, 0), hook("b", "Fail", 10, 0)],
        json!({}),
    );
    let mut twice = theirs(&twice, |_| {});
    twice["webhooks"][1]["name"] = "a".into();
    assert_eq!(standing(&twice, "a"), BypassStanding::DuplicateName);
    assert!(matches!(
        refused(&twice, "a", &bypass(Rung::Skip)),
        EditRefusal::DuplicateName(_)
    ));
    assert_eq!(touched(&twice), []);
    twice["webhooks"][1]["matchConditions"] = json!([{"name": "hookwatch.dev/skip", "expression": "false"}]);
    assert_eq!(touched(&twice), [("a".to_owned(), BypassStanding::DuplicateName)]);

    let full = configuration(vec![hook("a", "Fail", 10, 64)], json!({}));
    assert_eq!(
        refused(&full, "a", &bypass(Rung::Shield)),
        EditRefusal::ConditionsFull(64)
    );
    assert!(plan(&full, "a", &ignore(), &author(), NOW).is_ok());
    assert_eq!(
        plan(&two(), "a", &ignore(), &author(), NOW),
        Err(EditRefusal::CanBeSkipped)
    );
    let nearly = configuration(vec![hook("a", "Fail", 10, 63)], json!({}));
    assert_eq!(
        spec(&done(
            &done(&nearly, "a", &bypass(Rung::Skip)),
            "a",
            &Desired::Restore
        )),
        spec(&nearly)
    );

    let annotated = configuration(vec![hook("a", "Fail", 10, 0)], json!({"x": "y".repeat(261_500)}));
    assert!(matches!(
        refused(&annotated, "a", &bypass(Rung::Skip)),
        EditRefusal::AnnotationsFull(_)
    ));

    let mut large = hook("a", "Fail", 10, 0);
    large["clientConfig"]["caBundle"] = "Q".repeat(1 << 20).into();
    let large = configuration(vec![large], json!({}));
    assert!(matches!(
        refused(&large, "a", &bypass(Rung::Skip)),
        EditRefusal::TooLarge(_)
    ));

    let ignoring = configuration(vec![hook("a", "Ignore", 1, 0)], json!({}));
    assert_eq!(
        refused(&ignoring, "a", &ignore()),
        EditRefusal::NothingToIgnore { seconds: 1 }
    );

    let mut old = author();
    old.match_conditions = false;
    assert_eq!(
        plan(&two(), "a", &bypass(Rung::Skip), &old, NOW),
        Err(EditRefusal::NoMatchConditions)
    );
    assert!(plan(&two(), "a", &ignore(), &old, NOW).is_ok());

    assert_eq!(
        refused(&two(), "a", &Desired::Probation),
        EditRefusal::NotBypassed
    );
    assert_eq!(
        plan(&json!({}), "a", &Desired::Restore, &author(), NOW),
        Err(EditRefusal::NoObject)
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
        matches!(refusal, Some(EditRefusal::AnnotationTooLong(_))),
        "{refusal:?}"
    );
    assert!(touched(&object).len() > 20, "{}", touched(&object).len());
}

#[test]
fn what_was_seen_of_some_webhooks_takes_no_room_from_forty_others_on_the_same_object() {
    let name = |index: usize| format!("hook-{index}.example.com");
    let many = (0..35).map(|index| hook(&name(index), "Fail", 10, 0));
    let mut object = configuration(many.collect(), json!({}));
    let mut shield = bypass(Rung::Shield);
    if let Desired::Bypass { why, .. } = &mut shield {
        why.evidence =
            vec!["A sentence about something that was seen of this webhook, of usual length.".repeat(2); 4];
    }
    for index in 0..35 {
        let bypassed = carried_out(&object, &name(index), &shield);
        object = bypassed.unwrap_or_else(|(_, why)| panic!("{index}: {why}"));
    }
    for index in 0..35 {
        object = carried_out(&object, &name(index), &Desired::Restore).unwrap_or_else(|(object, _)| object);
    }
    assert!(!holds_ours(&object));
}

#[test]
fn a_bypass_that_is_as_wished_is_not_written_again() {
    for mut desired in [bypass(Rung::Shield), bypass(Rung::Skip), ignore()] {
        let bypassed = done(&two(), "a", &desired);
        assert_eq!(planned(&bypassed, "a", &desired), Ok(Plan::AlreadySo));
        if let Desired::Bypass { why, .. } | Desired::Ignore { why } = &mut desired {
            why.expires = None;
        }
        let longer = edit(&bypassed, "a", &desired);
        assert_eq!(longer.changes.len(), 1, "the annotation alone");
    }
}

/// The fence refuses an edit that removes the annotation while a match condition of hookwatch remains.
#[test]
fn the_annotation_goes_only_once_no_condition_is_left_whichever_webhook_is_restored_first() {
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
            while let Ok(Plan::Edit(edit)) = plan(&renamed, webhook, &Desired::Restore, &author(), NOW) {
                renamed = patched(&renamed, &edit.patch).expect("it holds");
                assert!(explained(&renamed), "{at} {webhook}: {renamed:#}");
                edits += 1;
                assert!(edits < 5, "{at} {webhook}");
            }
        }
        assert!(!holds_ours(&renamed), "{renamed:#}");
    }
}
