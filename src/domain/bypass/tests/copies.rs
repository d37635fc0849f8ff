//! Where an original comes from when the annotation was spoilt or wiped.

use serde_json::{Value, json};

use super::hands::{done, theirs, two};
use super::objects::{NOW, author, bypass, claimed, holds_ours, patched, spec};
use crate::domain::bypass::edit::{Plan, Wish, is_left_over, plan, plan_with};
use crate::domain::bypass::{Fields, Rung, STATE_ANNOTATION, original_of};

#[test]
fn nonsense_that_another_webhook_still_needs_stays() {
    let bypassed = done(&two(), "a", &bypass(Rung::Ignore));
    let mut nonsense = theirs(&bypassed, |object| {
        let text = &mut object["metadata"]["annotations"][STATE_ANNOTATION];
        *text = text.as_str().expect("text").replacen('{', "", 1).into();
    });
    // Where nobody says whose a field is, too.
    nonsense["metadata"]["managedFields"] = json!([]);
    assert_eq!(
        plan(&nonsense, "b", &Wish::Restore, &author(), NOW),
        Ok(Plan::AlreadySo)
    );
    assert!(!is_left_over(&nonsense, "b"));
    let restored = done(&nonsense, "a", &Wish::Restore);
    assert!(
        spec(&restored) == spec(&two()) && !holds_ours(&restored),
        "{restored:#}"
    );
}

#[test]
fn what_is_wiped_comes_back_by_a_second_copy_but_for_what_somebody_has_set_since() {
    let wipe = |object: &Value| theirs(object, |object| drop(object["metadata"]["annotations"].take()));
    let copy = Fields {
        failure_policy: "Fail".to_owned(),
        timeout_seconds: 10,
    };
    let wiped = wipe(&done(&two(), "a", &bypass(Rung::Ignore)));
    assert_eq!(original_of(&wiped, "a"), None, "it is not taken for the original");
    let by_copy = |object: &Value| {
        let mut object = object.clone();
        loop {
            match plan_with(&object, "a", &Wish::Restore, &author(), NOW, Some(&copy)) {
                Ok(Plan::Edit(edit)) => object = patched(&object, &edit.patch).expect("its tests hold"),
                Ok(_) => return object,
                Err(refusal) => panic!("{refusal}"),
            }
        }
    };
    let restored = by_copy(&wiped);
    assert!(
        spec(&restored) == spec(&two()) && !holds_ours(&restored),
        "{restored:#}"
    );
    let longer = theirs(&wiped, |object| {
        object["webhooks"][0]["timeoutSeconds"] = 20.into()
    });
    assert_eq!(by_copy(&longer)["webhooks"][0]["timeoutSeconds"], 20);
    assert_eq!(by_copy(&longer)["webhooks"][0]["failurePolicy"], "Fail");
    let wanted = claimed(wiped, "a", "failurePolicy", "somebody");
    assert_eq!(by_copy(&wanted)["webhooks"][0]["failurePolicy"], "Ignore");
}
