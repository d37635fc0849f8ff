//! Writes with preconditions.

use hookwatch::domain::cluster::condition::BypassCondition;
use hookwatch::lab::backend::{BackendRole, Behaviour};
use serde_json::{Value, json};

use super::ask::Ask;
use super::bypasses::add_condition;
use super::hooks::{backend, of_configmaps};
use super::lab::{MUTATING, VALIDATING, configurations};
use super::play::Play;

pub async fn a_patch_that_tests_what_it_changes_fails_cleanly_after_another_write(play: &mut Play) {
    let well = backend(&play.authority, BackendRole::Validating, Behaviour::Healthy).await;
    let name = "tested.fidelity.example";
    let hook = of_configmaps(name, well.address(), &play.authority);
    let made = play.register(false, "tested", std::slice::from_ref(&hook)).await;
    let path = configurations(VALIDATING, "tested");
    let version = &made["metadata"]["resourceVersion"];
    let change = json!({"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 7});
    let test = |at: &str, value: &Value| json!({"op": "test", "path": at, "value": value});
    let current = play.lab.done(&Ask::get(&path)).await;

    // Another writer is faster.
    play.lab
        .done(&Ask::merge_patch(
            &path,
            json!({"metadata": {"annotations": {"by": "another"}}}),
        ))
        .await;
    let current_version = play.lab.done(&Ask::get(&path)).await["metadata"]["resourceVersion"].clone();
    for (step, patch) in [
        (
            "another name",
            json!([test("/webhooks/0/name", &json!("other")), change]),
        ),
        (
            "another value",
            json!([test("/webhooks/0/timeoutSeconds", &json!(9)), change]),
        ),
        (
            "another uid",
            json!([
                test("/metadata/uid", &json!("00000000-0000-0000-0000-000000000000")),
                change
            ]),
        ),
        (
            "another version",
            json!([test("/metadata/resourceVersion", version), change]),
        ),
        (
            "an entry that is gone",
            json!([test("/webhooks/3/name", &json!(name)), change]),
        ),
        (
            "a field that is not there",
            json!([{"op": "remove", "path": "/webhooks/0/matchConditions"}]),
        ),
        (
            "a first annotation below a map that is there",
            json!([
                test("/metadata/annotations/hookwatch.dev~1by", &Value::Null),
                {"op": "add", "path": "/metadata/annotations/hookwatch.dev~1by", "value": "x"},
            ]),
        ),
        ("no patch at all", json!({"op": "test"})),
        (
            "an unknown operation",
            json!([{"op": "burn", "path": "/webhooks"}]),
        ),
    ] {
        let before = play.lab.done(&Ask::get(&path)).await;
        let answer = play.tell(step, Ask::json_patch(&path, patch)).await;
        let after = play.lab.done(&Ask::get(&path)).await;
        if answer.is_success() {
            assert_eq!(step, "a first annotation below a map that is there");
        } else {
            assert_eq!(before, after, "{step} changed something");
        }
    }
    let version = play.lab.done(&Ask::get(&path)).await["metadata"]["resourceVersion"].clone();
    assert_ne!(current_version, version);
    let right = json!([
        test("/metadata/uid", &made["metadata"]["uid"]),
        test("/metadata/resourceVersion", &version),
        test("/webhooks/0/name", &json!(name)),
        test("/webhooks/0/timeoutSeconds", &json!(2)),
        change,
    ]);
    let answer = play
        .tell(
            "everything as expected",
            Ask::json_patch(&path, right.clone())
                .seeing(&["/webhooks/0/timeoutSeconds", "/metadata/generation"]),
        )
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = play.tell("the same again", Ask::json_patch(&path, right)).await;
    assert_eq!(answer.status, 422, "{}", answer.text);

    // A resourceVersion in the patch is a precondition as well.
    let stale = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": current["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 8},
    ]);
    let answer = play
        .tell(
            "a version put in place of the current one",
            Ask::json_patch(&path, stale),
        )
        .await;
    assert_eq!(answer.status, 409, "{}", answer.text);
    let stale = json!({
        "metadata": {"resourceVersion": current["metadata"]["resourceVersion"]},
        "webhooks": current["webhooks"],
    });
    let answer = play
        .tell("a stale version in a merge patch", Ask::merge_patch(&path, stale))
        .await;
    assert_eq!(answer.status, 409, "{}", answer.text);
    let answer = play.tell("a stale PUT", Ask::put(&path, current.clone())).await;
    assert_eq!(answer.status, 409, "{}", answer.text);
    let mut blind = current;
    blind["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let answer = play.tell("a PUT without a version", Ask::put(&path, blind)).await;
    assert!(!answer.is_success(), "{}", answer.text);
    play.tell("a PATCH of nothing that is there", {
        Ask::json_patch(&configurations(VALIDATING, "nobody"), json!([]))
    })
    .await;
    let answer = play
        .tell("a POST of what is there", {
            Ask::post(
                &configurations(VALIDATING, ""),
                json!({"metadata": {"name": "tested"}}),
            )
        })
        .await;
    assert_eq!(answer.status, 409, "{}", answer.text);
    let wrong = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}});
    let mut delete = Ask::delete(&path);
    delete.body = Some(wrong);
    let answer = play.tell("a DELETE under another uid", delete).await;
    assert_eq!(answer.status, 409, "{}", answer.text);
}

pub async fn a_hook_takes_64_conditions_and_no_name_twice(play: &mut Play) {
    let well = backend(&play.authority, BackendRole::Validating, Behaviour::Healthy).await;
    let conditions = |count: usize| -> Vec<Value> {
        (0..count)
            .map(|index| json!({"name": format!("c{index}"), "expression": "true"}))
            .collect()
    };
    let name = "full.fidelity.example";
    let mut hook = of_configmaps(name, well.address(), &play.authority);
    hook["matchConditions"] = json!(conditions(63));
    play.register(false, "full", std::slice::from_ref(&hook)).await;
    let path = configurations(VALIDATING, "full");
    let skip = json!({"name": BypassCondition::Skip.name(), "expression": "false"});
    let add = |value: &Value| json!([{"op": "add", "path": "/webhooks/0/matchConditions/0", "value": value}]);

    let answer = play
        .tell(
            "a 64th condition",
            Ask::json_patch(&path, add(&skip)).seeing(&["/webhooks/0/matchConditions/0"]),
        )
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = play
        .tell("a 65th condition", {
            Ask::json_patch(&path, add(&json!({"name": "one-more", "expression": "true"})))
        })
        .await;
    assert_eq!(answer.status, 422, "{}", answer.text);
    let remove = json!([{"op": "remove", "path": "/webhooks/0/matchConditions/10"}]);
    play.lab.done(&Ask::json_patch(&path, remove)).await;
    let answer = play
        .tell(
            "a condition whose name is taken",
            Ask::json_patch(&path, add(&skip)),
        )
        .await;
    assert_eq!(answer.status, 422, "{}", answer.text);
    for (step, condition) in [
        ("a condition without a name", json!({"expression": "true"})),
        (
            "a condition without an expression",
            json!({"name": "empty", "expression": ""}),
        ),
        (
            "a name that is none",
            json!({"name": "a b", "expression": "true"}),
        ),
        (
            "an expression that is none",
            json!({"name": "broken", "expression": "request.dryRun &&"}),
        ),
        (
            "an expression that is no truth value",
            json!({"name": "text", "expression": "'text'"}),
        ),
        (
            "an unknown field",
            json!({"name": "unknown", "expression": "request.nothing == 'x'"}),
        ),
    ] {
        let answer = play.lab.send(&Ask::json_patch(&path, add(&condition))).await;
        assert_eq!(answer.status, 422, "{step}: {}", answer.text);
        // Leave out the CEL compiler's message.
        let causes = answer.body["details"]["causes"].as_array().unwrap();
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({"field": cause["field"], "reason": cause["reason"]}))
            .collect();
        play.note(step, json!(causes));
    }
    let twice = json!({"metadata": {"name": "twice"}, "webhooks": [hook.clone(), hook.clone()]});
    let mut twice = Ask::post(&configurations(VALIDATING, ""), twice);
    for webhook in [0, 1] {
        if let Some(body) = &mut twice.body {
            body["webhooks"][webhook]
                .as_object_mut()
                .unwrap()
                .remove("matchConditions");
        }
    }
    let answer = play.tell("two webhooks of one name", twice).await;
    assert_eq!(answer.status, 422, "{}", answer.text);

    let patch = add_condition("first.fidelity.example", BypassCondition::Shield);
    let mut other = of_configmaps("first.fidelity.example", well.address(), &play.authority);
    other["matchConditions"] = Value::Null;
    let object = json!({"metadata": {"name": "first"}, "webhooks": [other]});
    play.lab
        .done(&Ask::post(&configurations(MUTATING, ""), object))
        .await;
    let answer = play
        .tell(
            "a first condition where the field is absent",
            Ask::json_patch(&configurations(MUTATING, "first"), patch)
                .seeing(&["/webhooks/0/matchConditions/0/name", "/metadata/generation"]),
        )
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

pub async fn the_ledger_is_an_empty_configuration_written_with_its_version(play: &mut Play) {
    let (list, path) = (
        configurations(VALIDATING, ""),
        configurations(VALIDATING, "hookwatch-ledger"),
    );
    let ledger = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hookwatch-ledger", "annotations": {"hookwatch.dev/ledger": "{}"}},
        "webhooks": [],
    });
    let seeing = ["/webhooks", "/metadata/generation", "/metadata/annotations"];
    let made = play
        .tell("it is made", Ask::post(&list, ledger).seeing(&seeing))
        .await;
    assert_eq!(made.status, 201, "{}", made.text);
    let mut first = made.body.clone();
    first["metadata"]["annotations"]["hookwatch.dev/ledger"] = json!("{\"bypassed\":1}");
    let mut second = made.body;
    second["metadata"]["annotations"]["hookwatch.dev/ledger"] = json!("{\"bypassed\":2}");
    let written = play
        .tell("the first writer", Ask::put(&path, first.clone()).seeing(&seeing))
        .await;
    assert_eq!(written.status, 200, "{}", written.text);
    let beaten = play.tell("the second writer", Ask::put(&path, second)).await;
    assert_eq!(beaten.status, 409, "{}", beaten.text);
    first["metadata"]["resourceVersion"] = written.body["metadata"]["resourceVersion"].clone();
    let same = play
        .tell(
            "a write that changes nothing",
            Ask::put(&path, first).seeing(&seeing),
        )
        .await;
    assert_eq!(
        same.body["metadata"]["resourceVersion"],
        written.body["metadata"]["resourceVersion"]
    );
    let test = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": written.body["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/metadata/annotations/hookwatch.dev~1ledger", "value": "{}"},
    ]);
    let answer = play
        .tell(
            "a patch with the version tested",
            Ask::json_patch(&path, test.clone()).seeing(&seeing),
        )
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = play
        .tell("the same patch again", Ask::json_patch(&path, test))
        .await;
    assert_eq!(answer.status, 422, "{}", answer.text);
    read_no_older_than_what_was_seen(play, &list).await;
}

/// Reads of the ledger that must not be older than a version: earlier writes are visible, and for a future version (as after
/// a restore of etcd) there is an answer.
async fn read_no_older_than_what_was_seen(play: &mut Play, list: &str) {
    let read = |version: &str| {
        Ask::get(&format!(
            "{list}?fieldSelector=metadata.name%3Dhookwatch-ledger&resourceVersion={version}&resourceVersionMatch=NotOlderThan"
        ))
        .seeing(&["/items/0/metadata/annotations", "/items/1"])
    };
    let newest = play.lab.done(&Ask::get(list)).await;
    let version = newest["metadata"]["resourceVersion"].as_str().unwrap();
    let answer = play.tell("a list no older than the newest", read(version)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = play
        .tell("a list no older than what is yet to come", read("4000000000"))
        .await;
    assert_eq!(answer.status, 504, "{}", answer.text);
}
