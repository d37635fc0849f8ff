use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::domain::report::alerts::{Alert, Batch, ResolvedAlert};
use crate::domain::time::{Time, WallReading};
use crate::io::endpoint::Auth;
use crate::io::testing::{TestReply, TestServer, soon};

/// Longer than any test takes, but where waiting is the point.
const PATIENCE: Duration = Duration::from_secs(20);

fn target(url: &str) -> EndpointTarget {
    EndpointTarget {
        url: url.parse().expect("an address"),
        ca_file: None,
        client_certificate: None,
        auth: Auth::None,
    }
}

fn of(server: &TestServer, prefix: &str) -> EndpointTarget {
    target(&format!("http://{}{prefix}", server.address))
}

fn alert(webhook: &str) -> Alert {
    Alert {
        labels: std::collections::BTreeMap::from([
            ("alertname", "HookwatchHookFailing".to_owned()),
            ("source", "hookwatch".to_owned()),
            ("webhook", webhook.to_owned()),
        ])
        .into(),
        summary: "It fails.".to_owned(),
        description: "It does not answer.".to_owned(),
        runbook_url: "https://example.com/runbook.md".to_owned(),
        since: Time::from_unix_millis(5_000),
    }
}

fn envelope() -> AlertEnvelope {
    AlertEnvelope {
        labels: [
            ("cluster".to_owned(), "prod".to_owned()),
            ("source".to_owned(), "me".to_owned()),
        ]
        .into(),
        generator_url: Some("https://hookwatch.example.com/".to_owned()),
        ahead: Duration::from_secs(130),
    }
}

fn written(batch: &Batch) -> Value {
    let now = Time::from_unix_millis(65_000);
    let wall = WallReading {
        ours: now,
        wall: Time::from_unix_millis(1_795_219_862_000),
    };
    let body = body(batch, &envelope(), now, wall);
    serde_json::from_slice(&body).expect("JSON")
}

async fn push(target: EndpointTarget) -> Result<(), EndpointError> {
    soon(Alertmanager::new(target, PATIENCE).push(b"[]".to_vec())).await
}

fn file(folder: &Path, name: &str, content: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).expect("a file");
    path
}

#[test]
fn an_alert_is_written_as_the_api_wants_it_by_the_clock_on_the_wall() {
    let batch = Batch {
        firing: vec![alert("w")],
        ended: vec![ResolvedAlert {
            alert: alert("v"),
            at: Time::from_unix_millis(60_000),
        }],
    };
    let mut expected = json!({
        "labels": {"alertname": "HookwatchHookFailing", "cluster": "prod", "source": "hookwatch", "webhook": "w"},
        "annotations": {"summary": "It fails.", "description": "It does not answer.",
            "runbook_url": "https://example.com/runbook.md"},
        "startsAt": "2026-11-21T00:10:02.000Z",
        "endsAt": "2026-11-21T00:13:12.000Z",
        "generatorURL": "https://hookwatch.example.com/",
    });
    let found = written(&batch);
    assert_eq!(found[0], expected);
    expected["labels"]["webhook"] = json!("v");
    expected["endsAt"] = json!("2026-11-21T00:10:57.000Z");
    assert_eq!(found[1], expected);
}

#[test]
fn whatever_a_webhook_is_called_it_is_the_same_after_json() {
    for name in [
        "<script>alert(1)</script>",
        "a\"b\\c",
        "line\nbreak\r\t",
        "\u{202e}rtl \u{5d0}",
        &"w".repeat(253),
    ] {
        let batch = Batch {
            firing: vec![alert(name)],
            ended: Vec::new(),
        };
        assert_eq!(written(&batch)[0]["labels"]["webhook"], *name);
    }
}

#[tokio::test]
async fn a_push_goes_below_the_prefix_as_json() {
    let server = TestServer::start(|_| TestReply::Whole(200, "text/plain", String::new())).await;
    for prefix in ["", "/", "/alertmanager", "/a/b/"] {
        push(of(&server, prefix)).await.expect("it is taken");
    }
    let asked = server.asked();
    let targets: Vec<_> = asked.iter().map(|asked| asked.target.as_str()).collect();
    assert_eq!(
        targets,
        [
            "/api/v2/alerts",
            "/api/v2/alerts",
            "/alertmanager/api/v2/alerts",
            "/a/b/api/v2/alerts"
        ]
    );
    assert_eq!((asked[0].method.as_str(), asked[0].body.as_str()), ("POST", "[]"));
    assert_eq!(asked[0].headers["content-type"], "application/json");
    assert!(!asked[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn each_way_to_be_bad_has_its_reason_and_none_takes_long() {
    // A status, what is answered, the reason, whether the same may be taken later, and what is said of it.
    type Case = (fn() -> TestReply, &'static str, bool, &'static str);
    let cases: [Case; 7] = [
        (
            || TestReply::json(400, "\"start time must be before end time\""),
            "refused",
            false,
            "400 and said \"\\\"start time",
        ),
        (|| TestReply::json(401, ""), "refused", false, "answered 401"),
        (
            || TestReply::json(503, "later"),
            "unavailable",
            true,
            "503 and said \"later\"",
        ),
        (|| TestReply::json(429, ""), "unavailable", true, "answered 429"),
        (
            || TestReply::Raw(b"\x16\x03\x01 this is no HTTP\r\n\r\n".to_vec()),
            "unreachable",
            true,
            "",
        ),
        (|| TestReply::Raw(Vec::new()), "unreachable", true, ""),
        (
            || {
                TestReply::Raw(
                    b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/login\r\ncontent-length: 0\r\n\r\n"
                        .to_vec(),
                )
            },
            "refused",
            false,
            "a redirect to http://127.0.0.1:1/login, which is not followed",
        ),
    ];
    for (reply, reason, may_pass, said) in cases {
        let server = TestServer::start(move |_| reply()).await;
        let error = push(of(&server, "")).await.expect_err("it is bad");
        let told = error.to_string();
        assert_eq!((error.reason(), error.may_pass()), (reason, may_pass), "{told}");
        assert!(told.contains(said) && told.len() < 1_024, "{told}");
        assert!(EndpointError::REASONS.contains(&error.reason()));
        assert_eq!(server.asked().len(), 1, "nothing is repeated or followed");
    }
}

#[tokio::test]
async fn one_that_is_down_is_unreachable() {
    let server = TestServer::start(|_| TestReply::Hang).await;
    let target = of(&server, "");
    server.stop().await;
    let error = push(target).await.expect_err("nobody listens");
    assert_eq!(error.reason(), "unreachable");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn one_that_never_answers_costs_no_more_than_the_timeout() {
    let server = TestServer::start(|_| TestReply::Hang).await;
    let mut slow = Alertmanager::new(of(&server, ""), Duration::from_millis(200));
    let error = soon(slow.push(b"[]".to_vec())).await.expect_err("it hangs");
    assert_eq!((error.reason(), error.may_pass()), ("timeout", true));
    assert_eq!(error.to_string(), "it did not answer within 0.2 s");
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let server = TestServer::start(|_| TestReply::Endless("text/html", vec![b'x'; 65_536])).await;
    push(of(&server, "")).await.expect("a 200 is all that counts");
    let refusal = || {
        let mut raw = b"HTTP/1.1 400 Bad\r\ncontent-length: 50000000\r\n\r\n".to_vec();
        raw.extend(std::iter::repeat_n(b'y', 50_000_000));
        TestReply::Raw(raw)
    };
    let server = TestServer::start(move |_| refusal()).await;
    let error = push(of(&server, "")).await.expect_err("a refusal");
    assert!(error.to_string().len() < 400, "{}", error.to_string().len());
}

#[tokio::test]
async fn one_that_was_away_takes_the_next_push() {
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let server = TestServer::start(move |_| {
        let before = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        TestReply::json(if before == 0 { 500 } else { 200 }, "")
    })
    .await;
    let mut alertmanager = Alertmanager::new(of(&server, ""), PATIENCE);
    let error = soon(alertmanager.push(b"[]".to_vec()))
        .await
        .expect_err("a 500 first");
    assert!(error.may_pass());
    soon(alertmanager.push(b"[]".to_vec()))
        .await
        .expect("and then a 200");
}

#[tokio::test]
async fn a_password_or_a_token_is_reread_for_each_push_and_never_logged() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = TestServer::start(|_| TestReply::json(401, "who are you?")).await;
    let secret = file(folder.path(), "secret", "hunter2\n");
    let basic = Auth::Basic {
        username: "hookwatch".to_owned(),
        password_file: secret.clone(),
    };
    let bearer = Auth::Bearer {
        token_file: secret.clone(),
    };
    for auth in [basic, bearer] {
        let mut alertmanager = Alertmanager::new(
            EndpointTarget {
                auth: auth.clone(),
                ..of(&server, "")
            },
            PATIENCE,
        );
        for (content, kept) in [("hunter2\n", "hunter2"), ("hunter3", "hunter3")] {
            file(folder.path(), "secret", content);
            let error = soon(alertmanager.push(b"[]".to_vec())).await.expect_err("a 401");
            assert!(
                !format!("{error} {error:?} {auth:?}").contains("hunter"),
                "{error:?}"
            );
            let asked = server.asked();
            let sent = &asked.last().expect("a request").headers["authorization"];
            let expected = match auth {
                Auth::Bearer { .. } => format!("Bearer {kept}"),
                _ => format!("Basic {}", BASE64_STANDARD.encode(format!("hookwatch:{kept}"))),
            };
            assert_eq!(*sent, expected);
        }
    }
    let asked = server.asked().len();
    for (name, content, why) in [
        ("empty", "\n", "is empty"),
        ("odd", "hun\nter2", "has no token in it"),
        ("words", "hun ter2", "has no token in it"),
        ("blank", "  \n", "has no token in it"),
        ("missing", "", "No such file"),
        ("large", &"h".repeat(2 << 20), "larger than 1 MiB"),
    ] {
        let token_file = match name {
            "missing" => folder.path().join(name),
            name => file(folder.path(), name, content),
        };
        let auth = Auth::Bearer { token_file };
        let error = push(EndpointTarget {
            auth,
            ..of(&server, "")
        })
        .await
        .expect_err("no token");
        let told = error.to_string();
        assert!(
            told.contains(name) && told.contains(why) && !told.contains("ter2"),
            "{told}"
        );
        assert_eq!((error.reason(), error.may_pass()), ("credentials", true));
    }
    assert_eq!(server.asked().len(), asked, "nothing is sent without them");
}

#[tokio::test]
async fn a_token_that_is_a_folder_or_a_pipe_is_an_error_and_no_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    let token_file = folder.path().to_owned();
    let server = TestServer::start(|_| TestReply::json(200, "")).await;
    let auth = Auth::Bearer { token_file };
    let error = push(EndpointTarget {
        auth,
        ..of(&server, "")
    })
    .await
    .expect_err("a folder");
    assert!(error.to_string().contains("is no file"), "{error}");
}

#[tokio::test]
async fn only_the_named_authority_is_trusted_and_a_new_one_without_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let taking = |_: &crate::io::testing::ReceivedRequest| TestReply::json(200, "");
    let server = TestServer::start_tls("localhost", taking).await;
    let other = TestServer::start_tls("localhost", taking).await;
    let pem = |server: &TestServer| {
        let der = server.config("localhost").root_cert.expect("an authority");
        let der = BASE64_STANDARD.encode(&der[0]);
        format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n")
    };
    let ca_file = file(folder.path(), "ca.pem", &pem(&other));
    let url = format!("https://localhost:{}", server.address.port());
    let mut alertmanager = Alertmanager::new(
        EndpointTarget {
            ca_file: Some(ca_file),
            ..target(&url)
        },
        PATIENCE,
    );
    let error = soon(alertmanager.push(b"[]".to_vec()))
        .await
        .expect_err("another's");
    assert_eq!(error.reason(), "unreachable");
    assert!(error.to_string().contains("certificate"), "{error}");
    file(folder.path(), "ca.pem", &pem(&server));
    soon(alertmanager.push(b"[]".to_vec()))
        .await
        .expect("it is trusted now");
    for (content, why) in [
        ("nothing", "no certificate"),
        (
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            "no PEM",
        ),
    ] {
        file(folder.path(), "ca.pem", content);
        let error = soon(alertmanager.push(b"[]".to_vec()))
            .await
            .expect_err("no authority");
        assert!(
            error.to_string().contains(why) && error.reason() == "credentials",
            "{error}"
        );
    }
}
