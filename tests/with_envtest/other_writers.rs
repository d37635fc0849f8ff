//! Changes by others to what the running daemon has bypassed, where the API server says whose each field is.

use hookwatch::app::engine::Engine;
use hookwatch::domain::act::bypass::{Rung, STATE_ANNOTATION};
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::control_plane::BackendReach;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::Envtest;
use serde_json::{Value, json};

use super::daemon::{HOOK, Lab, assert_is, is_free, place, standing};
use super::privileges::cluster::play;
use super::{Named, Outcome, named};

pub fn tests() -> Vec<Named> {
    vec![named(
        "hands_a_wiped_bypass_comes_back_and_an_owner_has_the_last_word",
        wiped_and_applied,
    )]
}

fn wiped_and_applied() -> Outcome {
    play(async {
        let directory = PrivateDirectory::create().unwrap();
        let control_plane = Envtest::start(directory.path()).await.unwrap();
        let lab = Lab::on(control_plane.kubeconfig(), BackendReach::Url).await;
        lab.apply().await;
        by_the_daemon(&lab).await;
        by_hand(&lab).await;
        replaced(&lab).await;
    })
}

fn owned(object: &Value) -> bool {
    let managers = object["metadata"]["managedFields"].as_array().unwrap();
    managers.iter().any(|entry| entry["manager"] == "hookwatch")
}

/// Somebody takes the annotation away while a condition is hookwatch's.
async fn wiped(lab: &Lab, engine: &Engine) -> usize {
    lab.behave(Behaviour::HangAfterTls).await;
    let bypassed = lab.bypassed(engine).await;
    let at = place(&bypassed, HOOK.webhook());
    assert!(owned(&bypassed));
    let key = STATE_ANNOTATION.replace('/', "~1");
    let path = format!("/metadata/annotations/{key}");
    lab.patch(json!([{"op": "remove", "path": path}])).await;
    at
}

async fn by_the_daemon(lab: &Lab) {
    let engine = lab.daemon(&[Rung::Skip]).await;
    wiped(lab, &engine).await;
    // The one that saw it dies, and another one begins without having seen anything.
    engine.stop().await;
    lab.behave(Behaviour::Healthy).await;
    let engine = lab.daemon(&[Rung::Skip]).await;
    let is_back = |object: &Value| is_free(object) && !owned(object);
    let back = lab.becomes(&engine, "the original is back", is_back).await;
    assert_is(&back, &lab.original);
    engine.stop().await;
}

/// What somebody has set since is theirs.
async fn by_hand(lab: &Lab) {
    let engine = lab.daemon(&[Rung::Skip]).await;
    let at = wiped(lab, &engine).await;
    engine.stop().await;
    let path = format!("/webhooks/{at}/timeoutSeconds");
    lab.patch(json!([{"op": "replace", "path": path, "value": 7}]))
        .await;
    let (code, said) = lab.by_hand(&["restore", "--all", "--yes"]).await;
    assert_eq!(code, Some(0), "{said}");
    let back = lab.read().await;
    assert!(is_free(&back) && !owned(&back), "{back:#}");
    let mut expected = lab.original.clone();
    expected["webhooks"][at]["timeoutSeconds"] = 7.into();
    assert_is(&back, &expected);
    lab.apply().await;
    lab.behave(Behaviour::Healthy).await;
    // What a person took back while no daemon ran was a revert, too.
    lab.forget().await;
}

/// An owner whose pipeline replaces the webhooks again and again.
async fn replaced(lab: &Lab) {
    let engine = lab.daemon(&[Rung::Skip]).await;
    lab.behave(Behaviour::HangAfterTls).await;
    for _ in 0..2 {
        lab.bypassed(&engine).await;
        lab.patch(json!([{"op": "replace", "path": "/webhooks", "value": lab.original["webhooks"]}]))
            .await;
    }
    standing(lab, &engine, "it is contested", |it| it.state == "contested").await;
    let is_tidy = |object: &Value| is_free(object) && !owned(object);
    let tidy = lab.becomes(&engine, "it is tidied up", is_tidy).await;
    assert_is(&tidy, &lab.original);
    engine.stop().await;
}
