//! Restarts of API servers: what they forget, and what they need to start.

use std::time::{Duration, Instant};

use hookwatch::app::engine::Engine;
use hookwatch::domain::cluster::condition::BypassCondition;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::lab::backend::{BackendRole, Behaviour};
use hookwatch::lab::control_plane::LabControlPlane;
use hookwatch::lab::envtest::SecondApiServer;
use serde_json::{Value, json};

use super::ask::Ask;
use super::bypasses::add_condition;
use super::hooks::{backend, catch_all, of_configmaps};
use super::lab::{VALIDATING, configurations};
use super::play::Play;
use crate::engines::{assessed, config};

/// Timeout of waits.
const PATIENCE: Duration = Duration::from_secs(60);
/// An API server either starts within seconds or exits after more than 30 s; 48 s has been seen.
const GIVES_UP_WITHIN: Duration = Duration::from_secs(110);

pub async fn a_watch_from_before_the_history_is_told_that_it_has_expired(play: &mut Play) {
    let object = json!({"metadata": {"name": "history"}, "webhooks": []});
    let made = play
        .lab
        .done(&Ask::post(&configurations(VALIDATING, ""), object))
        .await;
    let old = made["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    watch(play, "from where it was made", &old).await;
    for index in 0..3 {
        let patch = json!({"metadata": {"labels": {"n": index.to_string()}}});
        play.lab
            .done(&Ask::merge_patch(&configurations(VALIDATING, "history"), patch))
            .await;
    }
    watch(play, "from where it was made, three changes later", &old).await;
    match &mut *play.lab.plane.lock().await {
        LabControlPlane::Embedded(api) => api.expire_watches(),
        LabControlPlane::Envtest(envtest) => envtest.restart().await.unwrap(),
    }
    watch(play, "from where it was made, when that is forgotten", &old).await;
    let list = play.lab.done(&Ask::get(&configurations(VALIDATING, ""))).await;
    let now = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    watch(play, "from what a list says", &now).await;
}

/// Watches for a second and records the events of the object.
async fn watch(play: &mut Play, step: &str, version: &str) {
    let path = configurations(VALIDATING, "");
    let query = "watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dhistory";
    let ask = Ask::get(&format!("{path}?{query}&resourceVersion={version}"));
    let answer = play.lab.send(&ask).await;
    let lines: Vec<Value> = answer
        .text
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let object = &line["object"];
            let message = object["message"].as_str().unwrap_or_default();
            json!({
                "type": line["type"], "kind": object["kind"], "code": object["code"], "reason": object["reason"],
                // Without the versions that follow.
                "message": message.split(':').next(),
            })
        })
        .collect();
    play.note(step, json!({"status": answer.status, "lines": lines}));
}

pub async fn the_inventory_recovers_when_an_api_server_comes_back(play: &mut Play) {
    let well = backend(&play.authority, BackendRole::Validating, Behaviour::Healthy).await;
    let hook = |name: &str| of_configmaps(name, well.address(), &play.authority);
    let (first, second) = (
        hook("first.inventory.fidelity.example"),
        hook("second.inventory.fidelity.example"),
    );
    play.register(false, "first", &[first]).await;
    let kubeconfig = play
        .lab
        .directory
        .write("daemon.kubeconfig", &play.lab.kubeconfig)
        .unwrap();
    let config = config(&kubeconfig, "namespace: default");
    let engine = Engine::start(&config).await.unwrap();
    assessed(&engine, "the first hook is known", |assessment| {
        knows(assessment, "first.inventory") && is_current(assessment)
    })
    .await;
    let began = Instant::now();
    if let LabControlPlane::Envtest(envtest) = &mut *play.lab.plane.lock().await {
        envtest.restart().await.unwrap();
    }
    assert!(began.elapsed() < PATIENCE);
    play.register(false, "second", &[second]).await;
    let path = configurations(VALIDATING, "first");
    play.lab.done(&Ask::delete(&path)).await;
    assessed(&engine, "what changed after the restart is known", |assessment| {
        knows(assessment, "second.inventory")
            && !knows(assessment, "first.inventory")
            && is_current(assessment)
    })
    .await;
    engine.stop().await;
    play.note("the inventory after the restart", json!("current again"));
}

fn knows(assessment: &Assessment, name: &str) -> bool {
    assessment
        .hooks
        .iter()
        .any(|verdict| verdict.webhook.starts_with(name))
}

fn is_current(assessment: &Assessment) -> bool {
    let sources = &assessment.sources;
    sources.inventory_age_seconds.is_some() && sources.inventory_trouble.is_empty()
}

pub async fn an_api_server_with_a_role_to_make_does_not_start_behind_a_hung_catch_all(play: &mut Play) {
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:kube-dns";
    play.lab.done(&Ask::delete(role)).await;
    let hung = backend(&play.authority, BackendRole::Validating, Behaviour::HangAfterTls).await;
    let name = "startup.fidelity.example";
    let mut hook = catch_all(name, hung.address(), &play.authority);
    hook["timeoutSeconds"] = json!(10);
    play.register(false, "startup", &[hook]).await;

    let second = start_second(play).await;
    let ready = second.ready(GIVES_UP_WITHIN).await;
    let words = ready.expect_err("it became ready").to_string();
    play.note(
        "behind the hook",
        json!({"ready": false, "ended by itself": words.contains("ended by itself")}),
    );
    drop(second);
    assert_eq!(play.lab.send(&Ask::get(role)).await.status, 404);

    let patch = add_condition(name, BypassCondition::Shield);
    let path = configurations(VALIDATING, "startup");
    let patched = play.tell("the shield", Ask::json_patch(&path, patch)).await;
    assert_eq!(patched.status, 200, "{}", patched.text);
    let second = start_second(play).await;
    second.ready(PATIENCE).await.unwrap();
    play.note("behind the shield", json!({"ready": true}));
    play.tell("the role", Ask::get(role)).await;
}

async fn start_second(play: &Play) -> SecondApiServer {
    match &mut *play.lab.plane.lock().await {
        LabControlPlane::Envtest(envtest) => envtest.second().unwrap(),
        LabControlPlane::Embedded(_) => panic!("there is only one of the embedded"),
    }
}
