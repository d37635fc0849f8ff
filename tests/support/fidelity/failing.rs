//! The API server's messages for failed calls, parsed like the refusal of a canary.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hookwatch::domain::observe::canary::{CallFailureReason as Reason, CanaryOutcome};
use hookwatch::lab::backend::{BackendRole, Behaviour};
use hookwatch::lab::certs::Authority;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::ask::Ask;
use super::hooks::{backend, configmap, configmaps, of_configmaps};
use super::lab::{VALIDATING, configurations};
use super::play::Play;

const NAME: &str = "failing.fidelity.example";

pub async fn every_failed_call_is_worded_as_the_canaries_reader_knows_it(play: &mut Play) {
    play.lab.namespace("failing").await;
    let well = backend(&play.authority, BackendRole::Validating, Behaviour::Healthy).await;
    let hook = of_configmaps(NAME, well.address(), &play.authority);
    play.register(false, "failing", std::slice::from_ref(&hook)).await;
    behaviours(play, &hook).await;
    lost_connections(play, &hook).await;
    certificates(play, &hook).await;
    services(play, &hook).await;
    handshake(play, &hook).await;
}

/// Sends a write that matches the hook; the refusal must name the hook and have this reason.
async fn expect(play: &mut Play, step: &str, reason: Reason) {
    let create = Ask::post(&configmaps("failing"), configmap("c")).dry_run();
    let answer = play.ask(step, create).await;
    match CanaryOutcome::from_status(answer.status, answer.message()) {
        CanaryOutcome::CallFailed(failure) => {
            assert_eq!(failure.webhook, NAME, "{step}");
            assert_eq!(failure.reason, reason, "{step}: {}", answer.text);
        }
        other => panic!("{step}: {other:?}: {}", answer.text),
    }
}

/// Replaces the hook's clientConfig, timeout included.
async fn call(play: &mut Play, hook: &Value, client: Value, timeout: u64) {
    let mut hook = hook.clone();
    hook["clientConfig"] = client;
    hook["timeoutSeconds"] = json!(timeout);
    let patch = json!([{"op": "replace", "path": "/webhooks/0", "value": hook}]);
    let path = configurations(VALIDATING, "failing");
    play.lab.done(&Ask::json_patch(&path, patch)).await;
    play.lab.settle(VALIDATING).await;
    play.wait.0 = Duration::from_secs(timeout);
}

async fn at(play: &mut Play, hook: &Value, address: SocketAddr, timeout: u64) {
    let mut client = hook["clientConfig"].clone();
    client["url"] = json!(format!("https://{address}/admit"));
    call(play, hook, client, timeout).await;
}

async fn behaviours(play: &mut Play, hook: &Value) {
    use Reason::{BadAnswer, DeadlineExceeded, ServerError};
    let unheard = [
        (
            "hangs in the handshake",
            Behaviour::AcceptAndHang,
            DeadlineExceeded,
        ),
        (
            "hangs before the answer",
            Behaviour::HangAfterTls,
            DeadlineExceeded,
        ),
        ("an answer without end", Behaviour::EndlessBody, DeadlineExceeded),
        ("refused", Behaviour::Refused, Reason::ConnectionRefused),
    ];
    let statuses = [
        ("500", 500, "boom"),
        ("500 with a lie in it", 500, "x509: context deadline exceeded"),
        ("503", 503, "busy"),
        ("502", 502, ""),
        ("404", 404, "page not found"),
        ("429", 429, "later"),
        ("400", 400, "what"),
        ("401", 401, "who"),
        ("403", 403, "not you"),
        ("403 with a lie", 403, "context deadline exceeded"),
        ("415", 415, "no JSON"),
        ("302", 302, ""),
        ("204", 204, ""),
        ("200 without a body", 200, ""),
        ("200 with a page", 200, "<html></html>"),
    ]
    .map(|(step, code, text)| {
        let reason = if code < 300 { BadAnswer } else { ServerError };
        (step, Behaviour::HttpStatus(code, text.into()), reason)
    });
    let odd = [
        ("no AdmissionReview", Behaviour::NotAnAdmissionReview, BadAnswer),
        ("the uid of another request", Behaviour::WrongUid, BadAnswer),
    ];
    for (step, behaviour, reason) in unheard.into_iter().chain(statuses).chain(odd) {
        let faulty = backend(&play.authority, BackendRole::Validating, behaviour).await;
        at(play, hook, faulty.address(), 1).await;
        expect(play, step, reason).await;
    }
    let mutating = backend(&play.authority, BackendRole::Mutating, Behaviour::Healthy).await;
    at(play, hook, mutating.address(), 1).await;
    expect(play, "a patch from a validating hook", BadAnswer).await;
}

/// The behaviour of a server without TLS.
#[derive(Clone, Copy)]
enum Rude {
    Reset,
    Close,
    PlainHttp,
}

async fn lost_connections(play: &mut Play, hook: &Value) {
    for (step, rude, reason) in [
        ("reset in the handshake", Rude::Reset, Reason::ConnectionLost),
        ("closed in the handshake", Rude::Close, Reason::ConnectionLost),
        ("plain HTTP", Rude::PlainHttp, Reason::Tls),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, rude));
        at(play, hook, address, 1).await;
        expect(play, step, reason).await;
        server.abort();
    }
}

async fn serve(listener: TcpListener, rude: Rude) {
    while let Ok((mut stream, _)) = listener.accept().await {
        match rude {
            // Unread input makes the kernel send a reset.
            Rude::Reset => drop(stream.read(&mut [0; 1]).await),
            Rude::Close => while stream.read(&mut [0; 4_096]).await.is_ok_and(|read| read == 4_096) {},
            Rude::PlainHttp => {
                use tokio::io::AsyncWriteExt;
                let _ = stream.read(&mut [0; 4_096]).await;
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            }
        }
    }
}

async fn certificates(play: &mut Play, hook: &Value) {
    let host = "127.0.0.1";
    let other = Authority::new("another").unwrap();
    let namesake = Authority::new("fidelity").unwrap();
    let bundle = |authority: &Authority| BASE64_STANDARD.encode(authority.pem());
    let ours = play.authority.issue(host).unwrap();
    let served = backend(&play.authority, BackendRole::Validating, Behaviour::Healthy).await;
    let url = json!(format!("https://{}/admit", served.address()));
    for (step, certificate, ca) in [
        ("signed by another authority", &ours, json!(bundle(&other))),
        (
            "signed by another authority of the same name",
            &ours,
            json!(bundle(&namesake)),
        ),
        ("a bundle that is none", &ours, json!("Cg==")),
        ("no bundle", &ours, Value::Null),
        (
            "expired",
            &play.authority.issue_expired(host).unwrap(),
            json!(bundle(&play.authority)),
        ),
        (
            "for another name",
            &play.authority.issue("elsewhere.example").unwrap(),
            json!(bundle(&play.authority)),
        ),
        (
            "for another address",
            &play.authority.issue("127.0.0.2").unwrap(),
            json!(bundle(&play.authority)),
        ),
    ] {
        served.serve_certificate(certificate).await.unwrap();
        let mut client = json!({"url": url});
        if !ca.is_null() {
            client["caBundle"] = ca;
        }
        call(play, hook, client, 2).await;
        expect(play, step, Reason::Tls).await;
    }
}

/// There is no case for an unknown host name: the error depends on the machine's resolver.
async fn services(play: &mut Play, hook: &Value) {
    let service = |name: &str, port: u16| {
        json!({
            "service": {"namespace": "failing", "name": name, "port": port, "path": "/admit"},
            "caBundle": hook["clientConfig"]["caBundle"],
        })
    };
    let body = json!({"metadata": {"name": "empty"}, "spec": {"ports": [{"port": 443}]}});
    play.lab.have("/api/v1/namespaces/failing/services", body).await;
    for (step, client, reason) in [
        ("no such Service", service("nobody", 443), Reason::NoService),
        ("no such port", service("empty", 8_443), Reason::NoService),
        ("no endpoints", service("empty", 443), Reason::NoEndpoints),
    ] {
        call(play, hook, client, 2).await;
        expect(play, step, reason).await;
    }
}

/// With a timeout above 10 s, the limit of the TLS handshake applies.
async fn handshake(play: &mut Play, hook: &Value) {
    let hung = backend(&play.authority, BackendRole::Validating, Behaviour::AcceptAndHang).await;
    at(play, hook, hung.address(), 12).await;
    play.wait = (Duration::from_secs(10), "the handshake's limit");
    expect(
        play,
        "hangs in the handshake for long",
        Reason::TlsHandshakeTimeout,
    )
    .await;
}
