//! Tokens that end, as those of a Pod do.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hookwatch::app::engine::Engine;
use http::Method;
use serde_json::{Value, json};

use super::audit::{Asked, asked_by};
use super::changes::ACCOUNT;
use super::cluster::{Cluster, ask, assessed, config, configuration, play, until};
use super::roles::sees_everything;
use crate::Outcome;

/// What the API server calls a token in its audit log.
fn credential(token: &str) -> String {
    let payload = token.split('.').nth(1).unwrap();
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap();
    let payload: Value = serde_json::from_slice(&payload).unwrap();
    format!("JTI={}", payload["jti"].as_str().unwrap())
}

/// What a token is bound to; it ends with that.
async fn secret(cluster: &Cluster, name: &str) -> Value {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let target = "/api/v1/namespaces/hookwatch/secrets";
    cluster.admin(Method::POST, target, &secret).await
}

pub fn a_new_one_is_taken_up_while_the_old_one_still_serves() -> Outcome {
    play(async {
        let cluster = Cluster::with("overlays/observe").await;
        cluster.with_hooks().await;
        let old = cluster
            .token("hookwatch", Some(&secret(&cluster, "old").await))
            .await;
        let new = cluster
            .token("hookwatch", Some(&secret(&cluster, "new").await))
            .await;
        let (kubeconfig, file) = cluster.kubeconfig("hookwatch", &old);
        let engine = Engine::start(&config(&kubeconfig, "autoBreak: plan"))
            .await
            .unwrap();
        assessed(&engine, "everything is seen", sees_everything).await;

        // As the kubelet does it: at once, and never half.
        let next = file.with_extension("next");
        std::fs::write(&next, &new).unwrap();
        std::fs::rename(&next, &file).unwrap();
        let with_new = |is_it: fn(&Asked) -> bool| {
            let credential = credential(&new);
            let asked = asked_by(cluster.audit_log(), ACCOUNT);
            asked
                .iter()
                .any(|asked| asked.credential == credential && is_it(asked))
        };
        until("canaries and scrapes come with the new token", async || {
            with_new(|asked| asked.permission.verb == "patch") && with_new(|asked| asked.uri == "/metrics")
        })
        .await;

        let target = "/api/v1/namespaces/hookwatch/secrets/old";
        cluster.admin(Method::DELETE, target, &Value::Null).await;
        let begin = asked_by(cluster.audit_log(), ACCOUNT).len();
        let (holder, _) = cluster.kubeconfig("holder", &old);
        let holder = std::fs::read_to_string(holder).unwrap();
        let holder = hookwatch::lab::cluster::client_for(&holder).await.unwrap();
        until("the old token has ended", async || {
            let target = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
            let answer = ask(&holder, Method::GET, target, &Value::Null).await;
            answer.status == 401
        })
        .await;
        // A Service in a namespace that was not looked at yet has new watches opened.
        cluster
            .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}))
            .await;
        let mut elsewhere = configuration("ValidatingWebhookConfiguration", "elsewhere");
        elsewhere["webhooks"][0]["clientConfig"]["service"]["namespace"] = "elsewhere".into();
        cluster.apply(&elsewhere).await;
        until("new watches come with the new token", async || {
            with_new(|asked| {
                asked.permission.verb == "watch" && asked.permission.namespace.as_deref() == Some("elsewhere")
            })
        })
        .await;
        assessed(&engine, "everything is seen still", |assessment| {
            sees_everything(assessment) && assessment.hooks.len() == 5
        })
        .await;
        engine.stop().await;
        let asked = asked_by(cluster.audit_log(), ACCOUNT);
        let refused: Vec<&Asked> = asked
            .iter()
            .filter(|asked| asked.agent.starts_with("hookwatch/") && matches!(asked.code, 401 | 403))
            .collect();
        assert!(refused.is_empty(), "{refused:?}");
        assert!(asked.len() > begin);
    })
}
