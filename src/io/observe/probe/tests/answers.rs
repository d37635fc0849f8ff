//! What comes back.

use serde_json::{Value, json};

use super::server::{Authority, Heard, Server, allow, ok, with_status};
use super::{hook, prober, request, run};
use crate::domain::cluster::hook::{Hook, HookId, HookKind, ProbeLevel};
use crate::domain::observe::probe::{ProbeAnswer, ProbeOutcome, ProbePhase};

/// Probes a server that answers in one way.
async fn ask(
    adjust: impl FnOnce(&mut Hook),
    level: ProbeLevel,
    answer: impl Fn(Heard) -> String + Send + Sync + 'static,
) -> ProbeOutcome {
    let authority = Authority::new();
    let server = Server::http(authority.leaf().config(), answer).await;
    let mut hook = hook(&authority.pem());
    adjust(&mut hook);
    run(&prober(), request(hook, server.address, level)).await.outcome
}

/// A review that is answered with `body`.
async fn review(answer: impl Fn(&Heard) -> Value + Send + Sync + 'static) -> ProbeOutcome {
    ask(|_| {}, ProbeLevel::Review, move |heard| ok(&answer(&heard))).await
}

fn complaint(outcome: ProbeOutcome) -> String {
    match outcome {
        ProbeOutcome::Answered(ProbeAnswer::NotAnAdmissionReview { why }) => why,
        other => panic!("{other:?}"),
    }
}

fn mutating(hook: &mut Hook) {
    hook.id = HookId::new(HookKind::Mutating, "configuration", "hook.example.com");
}

#[tokio::test]
async fn any_status_is_an_answer_to_a_greeting() {
    for status in [
        "200 OK",
        "302 Found",
        "404 Not Found",
        "405 Method Not Allowed",
        "500 Oops",
    ] {
        let outcome = ask(
            |_| {},
            ProbeLevel::Http,
            move |heard| {
                assert!(
                    heard.head.starts_with("GET /validate HTTP/1.1\r\n"),
                    "{}",
                    heard.head
                );
                assert!(heard.body.is_empty());
                with_status(status, "whatever")
            },
        )
        .await;
        let code = status[..3].parse().expect("a code");
        assert_eq!(
            outcome,
            ProbeOutcome::Answered(ProbeAnswer::Http { status: code })
        );
    }
}

#[tokio::test]
async fn a_denial_is_a_review_like_any_other() {
    let outcome = review(|heard| {
        let mut answer = allow(heard);
        answer["response"]["allowed"] = json!(false);
        answer["response"]["status"] = json!({"code": 403, "message": "no", "reason": "Forbidden"});
        answer
    })
    .await;
    assert_eq!(
        outcome,
        ProbeOutcome::Answered(ProbeAnswer::Review { allowed: false })
    );
}

#[tokio::test]
async fn the_uid_of_another_request_is_not_accepted() {
    let outcome = review(|heard| {
        let mut answer = allow(heard);
        answer["response"]["uid"] = json!("705ab4f5-6393-11e8-b7cc-42010a800002");
        answer
    })
    .await;
    assert!(complaint(outcome).contains("705ab4f5"));
}

#[tokio::test]
async fn what_the_api_server_would_not_accept_is_not_accepted() {
    let with = |field: &'static str, value: Value| {
        move |heard: &Heard| {
            let mut answer = allow(heard);
            answer["response"][field] = value.clone();
            answer
        }
    };
    let patch = "W10="; // []
    assert!(complaint(review(with("patch", json!(patch))).await).contains("patch"));
    assert!(complaint(review(with("patchType", json!("JSONPatch"))).await).contains("patchType"));
    assert!(complaint(review(with("allowed", json!("yes"))).await).contains("boolean"));
    assert!(complaint(review(|_| json!({})).await).contains("absent"));
    assert!(complaint(review(|_| json!([])).await).contains("not an AdmissionReview"));
    let unversioned = review(|heard| json!({"response": allow(heard)["response"]})).await;
    assert!(complaint(unversioned).contains("apiVersion"));
    let older = review(|heard| {
        let mut answer = allow(heard);
        answer["apiVersion"] = json!("admission.k8s.io/v1beta1");
        answer
    })
    .await;
    assert!(complaint(older).contains("v1beta1"));
    let page = ask(|_| {}, ProbeLevel::Review, |_| with_status("200 OK", "<html>")).await;
    complaint(page);
}

#[tokio::test]
async fn a_mutating_hook_may_patch_but_only_properly() {
    let patched = |patch: Value, kind: Value| async move {
        ask(mutating, ProbeLevel::Review, move |heard| {
            let mut answer = allow(&heard);
            answer["response"]["patch"] = patch.clone();
            answer["response"]["patchType"] = kind.clone();
            ok(&answer)
        })
        .await
    };
    let kind = json!("JSONPatch");
    // [{"op":"add","path":"/a","value":1}]
    let one_step = "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6MX1d";
    let outcome = patched(json!("W10="), kind.clone()).await;
    assert_eq!(
        outcome,
        ProbeOutcome::Answered(ProbeAnswer::Review { allowed: true })
    );
    assert!(complaint(patched(json!("W10="), Value::Null).await).contains("without response.patchType"));
    assert!(complaint(patched(Value::Null, kind.clone()).await).contains("without response.patch"));
    assert!(complaint(patched(json!(one_step), json!("MergePatch")).await).contains("MergePatch"));
    assert!(complaint(patched(json!("%%%"), kind.clone()).await).contains("base64"));
    assert!(complaint(patched(json!("e30="), kind).await).contains("JSON patch"));
}

#[tokio::test]
async fn a_hook_of_the_old_version_is_asked_and_believed_in_it() {
    let outcome = ask(
        |hook| hook.review_versions = vec!["v0".to_owned(), "v1beta1".to_owned()],
        ProbeLevel::Review,
        |heard| {
            assert_eq!(heard.json()["apiVersion"], "admission.k8s.io/v1beta1");
            ok(&json!({"response": {"allowed": true}}))
        },
    )
    .await;
    assert_eq!(
        outcome,
        ProbeOutcome::Answered(ProbeAnswer::Review { allowed: true })
    );
}

#[tokio::test]
async fn an_http_error_is_told_apart_and_keeps_its_status() {
    for status in [401, 403, 500, 503, 302, 404, 429] {
        let outcome = ask(
            |_| {},
            ProbeLevel::Review,
            move |_| {
                with_status(&format!("{status} X"), "boom")
                    .replace("X\r\n", "X\r\nLocation: https://127.0.0.1:1/\r\n")
            },
        )
        .await;
        assert_eq!(
            outcome,
            ProbeOutcome::Answered(ProbeAnswer::ReviewRefused { status })
        );
        assert!(outcome.is_alive());
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let authority = Authority::new();
    let server = Server::tls(authority.leaf().config(), |mut conversation, _| async move {
        let _ = conversation.hear().await;
        let _ = conversation
            .say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        let chunk = format!("2000\r\n{}\r\n", " ".repeat(0x2000));
        while conversation.say(&chunk).await.is_ok() {}
    })
    .await;
    let request = |level| request(hook(&authority.pem()), server.address, level);
    let outcome = run(&prober(), request(ProbeLevel::Review)).await.outcome;
    assert!(complaint(outcome).contains("longer than"));
    let outcome = run(&prober(), request(ProbeLevel::Http)).await.outcome;
    assert_eq!(outcome, ProbeOutcome::Answered(ProbeAnswer::Http { status: 200 }));
}

#[tokio::test]
async fn endless_headers_are_cut_off() {
    let authority = Authority::new();
    let server = Server::tls(authority.leaf().config(), |mut conversation, _| async move {
        let _ = conversation.hear().await;
        let _ = conversation.say("HTTP/1.1 200 OK\r\n").await;
        while conversation.say("x-more: and more\r\n").await.is_ok() {}
    })
    .await;
    let request = request(hook(&authority.pem()), server.address, ProbeLevel::Review);
    let outcome = run(&prober(), request).await.outcome;
    assert!(
        matches!(
            outcome,
            ProbeOutcome::Lost {
                phase: ProbePhase::FirstByte,
                ..
            }
        ),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn endless_interim_answers_are_cut_off() {
    let authority = Authority::new();
    let server = Server::tls(authority.leaf().config(), |mut conversation, _| async move {
        let _ = conversation.hear().await;
        let interim = format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "a".repeat(8_000));
        while conversation.say(&interim).await.is_ok() {}
    })
    .await;
    let request = request(hook(&authority.pem()), server.address, ProbeLevel::Review);
    match run(&prober(), request).await.outcome {
        ProbeOutcome::Lost { phase, why } => {
            assert_eq!(phase, ProbePhase::FirstByte);
            assert!(why.contains("longer than"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_connection_that_breaks_names_its_phase() {
    let authority = Authority::new();
    for (said, phase) in [
        ("", ProbePhase::FirstByte),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
            ProbePhase::Body,
        ),
        ("SSH-2.0-OpenSSH_9.9\r\n", ProbePhase::FirstByte),
    ] {
        let server = Server::tls(authority.leaf().config(), move |mut conversation, _| async move {
            let _ = conversation.hear().await;
            let _ = conversation.say(said).await;
        })
        .await;
        let request = request(hook(&authority.pem()), server.address, ProbeLevel::Review);
        match run(&prober(), request).await.outcome {
            ProbeOutcome::Lost { phase: seen, why } => {
                assert_eq!(seen, phase, "{said:?}");
                assert!(!why.is_empty());
            }
            other => panic!("{said:?}: {other:?}"),
        }
    }
}
