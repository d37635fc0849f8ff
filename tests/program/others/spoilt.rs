//! What the running daemon does with objects that cannot be changed, or not any more: it says which and why, and goes on.

use std::time::Duration;

use hookwatch::domain::act::bypass::{Rung, STATE_ANNOTATION};
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::lab::backend::Behaviour;
use serde_json::{Value, json};

use super::daemon::{HOOK, Lab, NEIGHBOUR, annotation, assert_is, metrics, place, standing};
use crate::engines::assessed;

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_changed_is_said_with_the_reason_and_bypassed_as_soon_as_it_can_be() {
    let mut lab = Lab::start().await;
    // A folder: that no line can be written keeps nothing from being done.
    lab.audit_log.pop();
    let engine = lab.daemon(&[Rung::Shield, Rung::Skip]).await;
    let at = place(&lab.original, HOOK.webhook());
    let full: Vec<Value> = (0..64)
        .map(|index| json!({"name": format!("c{index}"), "expression": "true"}))
        .collect();
    let conditions = format!("/webhooks/{at}/matchConditions");
    lab.patch(json!([{"op": "add", "path": conditions, "value": full}]))
        .await;
    lab.behave(Behaviour::HangAfterTls).await;
    standing(&lab, &engine, "it has no room", |it| {
        it.held_back.as_deref() == Some("no_room") && it.words.contains("matchConditions")
    })
    .await;
    // The owner makes room, and somebody makes all of it larger than is changed.
    let resources: Vec<String> = (0..34_000)
        .map(|index| format!("resources-of-a-long-name-{index}"))
        .collect();
    let neighbour = place(&lab.original, NEIGHBOUR);
    let rules = format!("/webhooks/{neighbour}/rules/0/resources");
    lab.patch(json!([
        {"op": "replace", "path": rules, "value": resources},
        {"op": "remove", "path": conditions},
    ]))
    .await;
    let said = standing(&lab, &engine, "it is too large", |it| {
        it.held_back.as_deref() == Some("refused")
    })
    .await;
    assert!(
        said.words.contains("the configuration has") && said.words.contains("1 MiB"),
        "{said:?}"
    );
    let exposed = metrics(&engine);
    assert!(exposed.contains("hookwatch_breaker_held_back{reason=\"refused\"} 1"));
    // What was refused has not begun, and takes nobody's place.
    let nothing = async {
        while lab.ledger().await["breaker"] != Value::Null {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), nothing)
        .await
        .unwrap();
    // Nonsense where the bypass is written down is taken away, and a webhook of normal size is bypassed.
    let small = lab.original["webhooks"][neighbour]["rules"][0]["resources"].clone();
    let noted = format!("/metadata/annotations/{}", STATE_ANNOTATION.replace('/', "~1"));
    lab.patch(json!([
        {"op": "replace", "path": rules, "value": small},
        {"op": "add", "path": noted, "value": "by hand"},
    ]))
    .await;
    let bypassed = lab.bypassed(&engine).await;
    assert!(annotation(&bypassed).is_some_and(|text| text != "by hand"));
    lab.behave(Behaviour::Healthy).await;
    let back = lab.free(&engine).await;
    assert_is(&back, &lab.original);
    engine.stop().await;
}

/// What only a person does, and the fence lets no daemon take back.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_whose_failures_a_person_has_ignored_is_told_of_with_the_command_until_it_is_restored() {
    let lab = Lab::start().await;
    let engine = lab.daemon(&[Rung::Shield]).await;
    lab.ignored_by_hand().await;
    let said = standing(&lab, &engine, "it is told of", |it| it.state == "ignored").await;
    let command = format!("hookwatch restore {}", lab.target());
    assert!(said.words.contains(&command), "{said:?}");
    assert!(metrics(&engine).contains("hookwatch_breaker_hooks{state=\"ignored\"} 1"));
    let (code, said) = lab.by_hand(&["restore", "--all", "--yes"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert_is(&lab.read().await, &lab.original);
    let is_over = |it: &Assessment| !it.breaker.hooks.iter().any(|it| it.state == "ignored");
    assessed(&engine, "it is told of no more", is_over).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_the_api_server_refuses_is_said_and_tried_until_it_is_taken() {
    let lab = Lab::start().await;
    let engine = lab.daemon(&[Rung::Skip]).await;
    lab.behave(Behaviour::HangAfterTls).await;
    lab.bypassed(&engine).await;
    let knobs = lab.server.as_ref().unwrap().knobs();
    knobs.refuse_configuration_writes(Some("the policy says no"));
    lab.behave(Behaviour::Healthy).await;
    let said = standing(&lab, &engine, "it is refused", |it| {
        it.words.contains("the policy says no")
    })
    .await;
    assert_eq!(said.state, "bypassed", "{said:?}");
    let exposed = metrics(&engine);
    assert!(
        exposed.contains("outcome=\"refused\"")
            && exposed.contains("hookwatch_breaker_bypassed{rung=\"skip\"} 1")
    );
    knobs.refuse_configuration_writes(None);
    let back = lab.free(&engine).await;
    assert_is(&back, &lab.original);
    engine.stop().await;
    let audited = lab.audited();
    let refused = audited.iter().any(|line| {
        let detail = line["detail"].as_str();
        line["outcome"] == "refused" && detail.is_some_and(|why| why.contains("the policy says no"))
    });
    assert!(refused, "{audited:#?}");
}
