//! Changes by others to what the running daemon has bypassed: nothing of theirs is lost, and nothing of ours is put over it.

#[path = "../support/daemon.rs"]
mod daemon;
mod spoilt;

use std::time::Duration;

use crate::engines::assessed;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use daemon::{HOOK, Lab, NEIGHBOUR, annotation, assert_is, is_bypassed, metrics, place, standing};
use hookwatch::app::engine::Engine;
use hookwatch::domain::act::bypass::Rung;
use hookwatch::lab::backend::Behaviour;
use k8s_openapi::api::core::v1::Event;
use kube::api::Api;
use serde_json::{Value, json};

/// Waits until the daemon has judged for some seconds more, several times as long as it takes to act.
async fn a_while(engine: &Engine) {
    let from = assessed(engine, "there is an assessment", |_| true).await.at;
    assessed(engine, "time has passed", |it| {
        it.at >= from + Duration::from_secs(3)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_change_meanwhile_is_kept_and_the_hook_comes_back_beside_it() {
    let lab = Lab::start().await;
    let engine = lab.daemon(&[Rung::Skip]).await;
    lab.behave(Behaviour::HangAfterTls).await;
    let bypassed = lab.bypassed(&engine).await;
    // An injector rotates the bundle.
    let bundle = lab.original["webhooks"][0]["clientConfig"]["caBundle"].as_str();
    let bundle = BASE64_STANDARD.decode(bundle.unwrap()).unwrap();
    let rotated = BASE64_STANDARD.encode([&bundle[..], &bundle[..]].concat());
    let path = |object: &Value| {
        format!(
            "/webhooks/{}/clientConfig/caBundle",
            place(object, HOOK.webhook())
        )
    };
    lab.patch(json!([{"op": "replace", "path": path(&bypassed), "value": rotated}]))
        .await;
    // Somebody turns the order round, and adds a condition of their own.
    let more = json!({"name": "theirs.example.com", "expression": "true"});
    lab.patch(json!([{"op": "move", "from": "/webhooks/0", "path": "/webhooks/1"}]))
        .await;
    let at = place(&lab.read().await, HOOK.webhook());
    let path = format!("/webhooks/{at}/matchConditions/0");
    lab.patch(json!([{"op": "add", "path": path, "value": more}]))
        .await;
    // Somebody replaces the whole of it by what they have read, with the bypass in it.
    let replaced = lab
        .replace(|object| object["metadata"]["labels"] = json!({"team": "b"}))
        .await;
    assert!(is_bypassed(&replaced, &lab.hook), "{replaced:#}");
    lab.behave(Behaviour::Healthy).await;
    let back = lab.free(&engine).await;
    let mut expected = lab.original.clone();
    expected["webhooks"].as_array_mut().unwrap().reverse();
    let at = place(&expected, HOOK.webhook());
    expected["webhooks"][at]["clientConfig"]["caBundle"] = rotated.into();
    expected["webhooks"][at]["matchConditions"] = json!([more]);
    expected["metadata"]["labels"] = json!({"team": "b"});
    assert_is(&back, &expected);
    engine.stop().await;
    let audited = lab.audited();
    let applied = audited.iter().filter(|line| line["outcome"] == "applied");
    let actions: Vec<&Value> = applied.map(|line| &line["action"]).collect();
    assert_eq!(actions, ["bypass", "probation", "restore"], "{audited:#?}");
    assert!(
        audited.iter().all(|line| line["webhook"] == HOOK.webhook()),
        "{audited:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_it_away_twice_has_the_last_word_and_what_they_left_is_tidied_away() {
    let lab = Lab::start().await;
    let engine = lab.daemon(&[Rung::Skip]).await;
    lab.behave(Behaviour::HangAfterTls).await;
    lab.bypassed(&engine).await;
    // A person wants it back: that is tried once more.
    let (code, said) = lab.by_hand(&["restore", &lab.target(), "--yes"]).await;
    assert_eq!(code, Some(0), "{said}");
    lab.bypassed(&engine).await;
    // A controller puts the webhooks back and leaves what was written down.
    let theirs = lab.original["webhooks"].clone();
    let replaced = lab
        .replace(|object| {
            object["webhooks"].clone_from(&theirs);
            object["metadata"]["labels"] = json!({"release": "2"});
        })
        .await;
    assert!(annotation(&replaced).is_some());
    standing(&lab, &engine, "it is contested", |it| {
        it.state == "contested" && it.held_back.as_deref() == Some("contested")
    })
    .await;
    let metrics = metrics(&engine);
    for line in [
        "hookwatch_breaker_hooks{state=\"contested\"} 1",
        "hookwatch_breaker_held_back{reason=\"contested\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    let tidy = lab.free(&engine).await;
    let mut expected = lab.original.clone();
    expected["metadata"]["labels"] = json!({"release": "2"});
    assert_is(&tidy, &expected);
    let events: Api<Event> = Api::namespaced(lab.client.clone(), "default");
    let told = async {
        loop {
            let events = events.list(&Default::default()).await.unwrap();
            let mut reasons = events.items.iter().filter_map(|event| event.reason.as_deref());
            if reasons.any(|reason| reason == "Contested") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.unwrap();
    a_while(&engine).await;
    assert_eq!(lab.read().await, tidy, "it is left alone, broken as it is");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_renamed_or_removed_takes_nothing_of_ours_along() {
    let lab = Lab::start().await;
    let engine = lab.daemon(&[Rung::Skip]).await;
    lab.behave(Behaviour::HangAfterTls).await;
    let bypassed = lab.bypassed(&engine).await;
    let at = place(&bypassed, HOOK.webhook());
    let name = format!("/webhooks/{at}/name");
    lab.patch(json!([{"op": "replace", "path": name, "value": "renamed.example.com"}]))
        .await;
    lab.behave(Behaviour::Healthy).await;
    let renamed = lab.free(&engine).await;
    let mut expected = lab.original.clone();
    expected["webhooks"][place(&lab.original, HOOK.webhook())]["name"] = "renamed.example.com".into();
    assert_is(&renamed, &expected);

    lab.patch(json!([{"op": "replace", "path": name, "value": HOOK.webhook()}]))
        .await;
    assessed(&engine, "it is known under its old name", |it| {
        it.hooks.iter().any(|hook| *hook.webhook == *HOOK.webhook())
    })
    .await;
    lab.behave(Behaviour::HangAfterTls).await;
    lab.bypassed(&engine).await;
    let removed = lab
        .replace(|object| {
            let hooks = object["webhooks"].as_array_mut().unwrap();
            hooks.retain(|hook| hook["name"] == NEIGHBOUR);
        })
        .await;
    assert!(annotation(&removed).is_some());
    let tidy = lab.free(&engine).await;
    let mut expected = lab.original.clone();
    expected["webhooks"]
        .as_array_mut()
        .unwrap()
        .retain(|hook| hook["name"] == NEIGHBOUR);
    assert_is(&tidy, &expected);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bypass_by_hand_is_left_alone_until_its_time_is_up() {
    let lab = Lab::start().await;
    let engine = lab.daemon(&[Rung::Shield]).await;
    let target = lab.target();
    let asked = |time: &'static str| {
        let words = [
            "break", &target, "--rung", "skip", "--reason", "ticket 7", "--yes", "--for", time,
        ];
        words.map(str::to_owned)
    };
    let by_hand = async |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, said) = lab.by_hand(&words).await;
        assert_eq!(code, Some(0), "{said}");
    };
    // Several times as long as it takes to restore a hook that is well.
    let begun = std::time::Instant::now();
    by_hand(&asked("20s")).await;
    let said = standing(&lab, &engine, "it is known", |it| {
        it.effective && it.words.contains("hookwatch break")
    })
    .await;
    assert_eq!((said.state.as_str(), said.rung), ("bypassed", Some(Rung::Skip)));
    let before = annotation(&lab.read().await).unwrap().to_owned();
    while begun.elapsed() < Duration::from_secs(15) {
        assert_eq!(
            annotation(&lab.read().await),
            Some(&*before),
            "it is the person's"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let back = lab.free(&engine).await;
    assert_is(&back, &lab.original);
    // Who takes their own away, as often as they like, quarrels with nobody.
    for _ in 0..3 {
        by_hand(&asked("1h")).await;
        standing(&lab, &engine, "it is known", |it| {
            it.effective && it.words.contains("hookwatch break")
        })
        .await;
        by_hand(&["restore".to_owned(), target.clone(), "--yes".to_owned()]).await;
        assessed(&engine, "it is back", |it| {
            it.breaker.hooks.iter().all(|hook| hook.rung.is_none())
        })
        .await;
    }
    a_while(&engine).await;
    let ledger = lab.ledger().await;
    assert!(!ledger.to_string().contains("\"contested\":true"), "{ledger:#}");
    assert_is(&lab.read().await, &lab.original);
    engine.stop().await;
}
