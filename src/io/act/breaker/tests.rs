//! Answers that no well API server gives.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::*;
use crate::domain::act::breaker::{BypassState, Expects, ResourceVersion, WriteOutcome};
use crate::domain::act::bypass::edit::Why;
use crate::domain::act::bypass::{ObjectWriter, Rung};
use crate::domain::time::Time;
use crate::io::client::Connection;
use crate::io::testing::{ReceivedRequest, TestReply, TestServer, clock, soon};

fn author() -> Author {
    Author {
        namespace: "hookwatch".into(),
        account: "system:serviceaccount:hookwatch:hookwatch".into(),
        writer: ObjectWriter {
            identity: "me".into(),
            version: "1".into(),
        },
        match_conditions: true,
        fenced: false,
    }
}

fn skip() -> Desired {
    let why = Why {
        reason: "r".into(),
        evidence: Vec::new(),
        expires: None,
    };
    Desired::Bypass {
        rung: Rung::Skip,
        why,
    }
}

fn object() -> Value {
    json!({
        "metadata": {"name": "c", "uid": "u", "resourceVersion": "1"},
        "webhooks": [{"name": "w", "failurePolicy": "Fail", "timeoutSeconds": 10}],
    })
}

fn is_read(asked: &ReceivedRequest) -> bool {
    asked.method == "GET"
}

fn listed() -> TestReply {
    TestReply::json(200, json!({"items": [object()]}))
}

async fn skipped(
    handler: impl Fn(&ReceivedRequest) -> TestReply + Send + Sync + 'static,
) -> (PatchReport, Vec<ReceivedRequest>) {
    let api = TestServer::start(handler).await;
    let connection = api.connection().await;
    let patience = RetryPolicy {
        whole: Duration::from_millis(1_500),
        first_wait: Duration::from_millis(10),
        ..RetryPolicy::default()
    };
    let servers = vec![ApiServerClient::new("api", connection.calls().clone(), true)];
    let writer = ConfigWriter::new(servers, clock(), patience);
    let hook = HookId::new(HookKind::Validating, "c", "w");
    let report = soon(writer.carry_out(&hook, &skip(), &author())).await;
    (report, api.asked())
}

#[tokio::test]
async fn a_write_that_the_answer_does_not_show_is_not_believed() {
    // As one does that does not know matchConditions.
    let (report, asked) = skipped(|asked| {
        if is_read(asked) {
            listed()
        } else {
            TestReply::json(200, object())
        }
    })
    .await;
    assert!(
        matches!(&report.outcome, PatchOutcome::GaveUp(why) if why.contains("does not show it")),
        "{report:?}"
    );
    assert_eq!(asked.len(), 2, "it is not tried for ever");
}

#[tokio::test]
async fn what_is_no_api_server_is_not_taken_for_an_empty_cluster() {
    let page = |_: &ReceivedRequest| TestReply::Whole(200, "text/html", "<html>log in</html>".to_owned());
    let (report, _) = skipped(page).await;
    assert!(matches!(&report.outcome, PatchOutcome::GaveUp(_)), "{report:?}");
    let (report, _) = skipped(|_| TestReply::json(200, "{}")).await;
    assert!(matches!(&report.outcome, PatchOutcome::GaveUp(_)), "{report:?}");
    let (report, _) = skipped(|_| TestReply::json(200, json!({"items": []}))).await;
    assert_eq!(report.outcome, PatchOutcome::Gone);
}

#[tokio::test]
async fn a_refusal_is_final_and_told_in_the_api_servers_words() {
    for status in [401, 403, 413, 422] {
        let (report, asked) = skipped(move |asked| {
            if is_read(asked) {
                listed()
            } else {
                TestReply::status(status, "User \"u\" cannot patch")
            }
        })
        .await;
        let PatchOutcome::Refused(refused) = &report.outcome else {
            panic!("{status}: {report:?}");
        };
        assert!(refused.to_string().contains("cannot patch"), "{refused}");
        assert_eq!(asked.len(), 2, "{status}");
    }
}

#[tokio::test]
async fn after_an_api_server_that_does_not_know_us_another_one_is_asked() {
    for status in [401, 403] {
        let stranger = TestServer::start(move |_| TestReply::status(status, "Unauthorized")).await;
        let other = TestServer::start(|_| listed()).await;
        let mut servers = Vec::new();
        for (name, server) in [("stranger", &stranger), ("other", &other)] {
            let calls = server.connection().await.calls().clone();
            servers.push(ApiServerClient::new(name, calls, true));
        }
        let writer = ConfigWriter::new(servers, clock(), RetryPolicy::default());
        assert!(soon(writer.read(HookKind::Validating, "c")).await.is_err());
        let read = soon(writer.read(HookKind::Validating, "c")).await.unwrap();
        assert_eq!(read, Some(object()), "{status}");
    }
}

#[tokio::test]
async fn what_only_needs_time_gets_it() {
    let count = AtomicUsize::new(0);
    let (report, _) = skipped(
        move |asked| match (is_read(asked), count.fetch_add(1, Ordering::SeqCst)) {
            (true, 0) => TestReply::status(429, "too many requests"),
            (true, _) => listed(),
            (false, 0..3) => TestReply::status(403, "c is forbidden: not yet ready to handle request"),
            (false, _) => TestReply::status(422, "is invalid"),
        },
    )
    .await;
    assert!(matches!(report.outcome, PatchOutcome::Refused(_)), "{report:?}");
    let waited = |step: &&PatchStep| matches!(step, PatchStep::NotNow { .. });
    assert_eq!(
        report.steps.iter().filter(waited).count(),
        2,
        "{:?}",
        report.steps
    );
}

#[tokio::test]
async fn old_releases_are_known_by_their_number() {
    for (minor, knows) in [
        ("27", false),
        ("27+", false),
        ("28", true),
        ("36+", true),
        ("", true),
    ] {
        let version = json!({"major": "1", "minor": minor});
        // As a real one does: it refuses a read that says what it carries.
        let api = TestServer::start(move |asked| match asked.headers.get("content-type") {
            Some(_) => TestReply::status(406, "only JSON is served"),
            None => TestReply::json(200, &version),
        })
        .await;
        assert_eq!(
            soon(knows_match_conditions(&api.connection().await)).await,
            knows,
            "{minor}"
        );
    }
    let api = TestServer::start(|_| TestReply::status(403, "no")).await;
    assert!(soon(knows_match_conditions(&api.connection().await)).await);
}

#[tokio::test]
async fn each_api_server_is_known_by_its_own_address() {
    let slices = json!({"items": [{
        "metadata": {"name": "kubernetes", "namespace": "default"}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.2"]}, {"addresses": ["127.0.0.3"]}],
        "ports": [{"name": "https", "port": 6443}],
    }]});
    let api = TestServer::start(move |_| TestReply::json(200, &slices)).await;
    let (found, unread) = soon(servers(&api.connection().await, &[])).await;
    let names: Vec<&str> = found.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names[1..], ["127.0.0.2:6443", "127.0.0.3:6443"]);
    assert!(unread.is_none() && !found[0].is_single && found[1].is_single);
    let api = TestServer::start(|_| TestReply::status(403, "cannot list")).await;
    let (found, unread) = soon(servers(&api.connection().await, &[])).await;
    assert!(found.len() == 1 && unread.is_some_and(|why| why.contains("cannot list")));
}

#[tokio::test]
async fn an_api_server_whose_address_is_unchanged_keeps_its_client() {
    let slices = json!({"items": [{
        "metadata": {"name": "kubernetes", "namespace": "default"}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.2"]}],
        "ports": [{"name": "https", "port": 6443}],
    }]});
    let api = TestServer::start_tls("127.0.0.1", move |_| TestReply::json(200, &slices)).await;
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&token, "secret").unwrap();
    let mut config = api.config("127.0.0.1");
    config.auth_info.token_file = Some(token.path().display().to_string());
    let connection = Connection::from_config(config).await.unwrap();
    let (known, _) = soon(servers(&connection, &[])).await;
    assert_eq!(known.len(), 2);
    // From here on no client can be made.
    token.close().unwrap();
    let (found, _) = soon(servers(&connection, &known)).await;
    let names: Vec<&str> = found.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names[1..], ["127.0.0.2:6443"]);
    let (found, unread) = soon(servers(&connection, &[])).await;
    assert_eq!(found.len(), 1, "a new client would have been made");
    assert!(unread.is_none(), "the list was read all the same");
}

fn three() -> Value {
    let webhook = |name: &str| json!({"name": name, "failurePolicy": "Fail", "timeoutSeconds": 10});
    json!({
        "metadata": {"name": "c", "uid": "u", "resourceVersion": "1"},
        "webhooks": [webhook("a"), webhook("b"), webhook("c")],
    })
}

/// An API server with one object, that refuses what this says of it, and counts the patches.
async fn carry_out_together(
    refuses: impl Fn(&Value) -> bool + Send + Sync + 'static,
) -> (Vec<WriteOutcome>, Value, usize) {
    let stored = std::sync::Arc::new(std::sync::Mutex::new((1, three())));
    let object = std::sync::Arc::clone(&stored);
    let api = TestServer::start(move |asked| {
        let mut stored = object.lock().unwrap();
        if is_read(asked) {
            return TestReply::json(200, json!({"items": [stored.1]}));
        }
        let mut patch: json_patch::Patch = serde_json::from_str(&asked.body).unwrap();
        // To the API server a test for null holds where nothing is.
        patch.0.retain(
            |operation| !matches!(operation, json_patch::PatchOperation::Test(test) if test.value.is_null()),
        );
        let mut after = stored.1.clone();
        if json_patch::patch(&mut after, &patch).is_err() {
            return TestReply::status(409, "changed meanwhile");
        }
        if refuses(&after) {
            return TestReply::status(422, "denied");
        }
        stored.0 += 1;
        after["metadata"]["resourceVersion"] = stored.0.to_string().into();
        stored.1 = after;
        TestReply::json(200, stored.1.clone())
    })
    .await;
    let connection = api.connection().await;
    let servers = vec![ApiServerClient::new("api", connection.calls().clone(), true)];
    let writer = ConfigWriter::new(servers, clock(), RetryPolicy::default());
    let changes = ["a", "b", "c"].map(|webhook| {
        let expects = Expects {
            uid: "u".into(),
            version: ResourceVersion::new("1"),
            shown: BypassState::Original,
        };
        (HookId::new(HookKind::Validating, "c", webhook), skip(), expects)
    });
    let told = soon(writer.carry_out_together(&changes, &author())).await;
    let patches = api.asked().iter().filter(|asked| !is_read(asked)).count();
    let object = stored.lock().unwrap().1.clone();
    (told.into_iter().map(|(told, _)| told).collect(), object, patches)
}

#[tokio::test]
async fn a_bypass_that_is_renewed_while_its_restore_is_tried_again_is_left() {
    let bypassed = |expires| {
        let why = Why {
            reason: "r".into(),
            evidence: Vec::new(),
            expires: Some(expires),
        };
        let desired = Desired::Bypass {
            rung: Rung::Skip,
            why,
        };
        let mut object = object();
        let planned = plan(&object, "w", &desired, &author(), Time::default());
        let Ok(Plan::Edit(edit)) = planned else {
            panic!("{planned:?}")
        };
        // To the API server what is absent is null.
        let operations = edit.patch.as_array().unwrap().iter();
        let operations = operations.filter(|operation| operation["op"] != "test").cloned();
        let patch: json_patch::Patch = serde_json::from_value(operations.collect()).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
        TestReply::json(200, json!({"items": [object]}))
    };
    let (reads, now) = (AtomicUsize::new(0), (clock())());
    let api = TestServer::start(move |asked| match asked.method.as_str() {
        "GET" if reads.fetch_add(1, Ordering::Relaxed) == 0 => bypassed(now),
        "GET" => bypassed(now + Duration::from_secs(3_600)),
        _ => TestReply::status(409, "the object has been modified"),
    })
    .await;
    let connection = api.connection().await;
    let servers = vec![ApiServerClient::new("api", connection.calls().clone(), true)];
    let writer = ConfigWriter::new(servers, clock(), RetryPolicy::default());
    let hook = HookId::new(HookKind::Validating, "c", "w");
    let report = soon(writer.restore_expired(&hook, &author())).await;
    assert_eq!(report.outcome, PatchOutcome::Renewed);
    let methods: Vec<_> = api.asked().into_iter().map(|asked| asked.method).collect();
    assert_eq!(methods, ["GET", "PATCH", "GET"]);
}

#[tokio::test]
async fn what_no_api_server_takes_in_time_is_not_taken_for_a_refusal() {
    for takes_reads in [true, false] {
        let api = TestServer::start(move |asked| {
            if is_read(asked) && takes_reads {
                listed()
            } else {
                TestReply::status(429, "too many requests")
            }
        })
        .await;
        let connection = api.connection().await;
        let patience = RetryPolicy {
            whole: Duration::from_millis(300),
            first_wait: Duration::from_millis(10),
            ..RetryPolicy::default()
        };
        let servers = vec![ApiServerClient::new("api", connection.calls().clone(), true)];
        let writer = ConfigWriter::new(servers, clock(), patience);
        let expects = Expects {
            uid: "u".into(),
            version: ResourceVersion::new("1"),
            shown: BypassState::Original,
        };
        let change = (HookId::new(HookKind::Validating, "c", "w"), skip(), expects);
        let told = soon(writer.carry_out_together(&[change], &author())).await;
        assert_eq!(told[0].0, WriteOutcome::GaveUp, "{:?}", told[0].1);
    }
}

fn conditions(object: &Value) -> usize {
    let webhooks = object["webhooks"].as_array().unwrap();
    webhooks
        .iter()
        .filter(|webhook| webhook["matchConditions"].is_array())
        .count()
}

#[tokio::test]
async fn webhooks_of_one_configuration_are_bypassed_in_one_write() {
    let (told, object, patches) = carry_out_together(|_| false).await;
    assert!(
        told.iter().all(|told| matches!(told, WriteOutcome::Applied(_))),
        "{told:?}"
    );
    assert_eq!((conditions(&object), patches), (3, 1));
}

#[tokio::test]
async fn a_change_that_is_refused_keeps_no_other_one_from_being_made() {
    // As a fence does that sees to one of them.
    let (told, object, _) =
        carry_out_together(|object| object["webhooks"][0]["matchConditions"].is_array()).await;
    assert!(
        matches!(&told[0], WriteOutcome::Refused(why) if why.contains("denied")),
        "{told:?}"
    );
    assert!(matches!(told[1], WriteOutcome::Applied(_)), "{told:?}");
    // The object has changed; the breaker reads it again.
    assert_eq!(told[2], WriteOutcome::Conflict);
    assert_eq!(conditions(&object), 1);
}

#[tokio::test]
async fn the_configured_address_is_asked_where_an_api_server_is_unreachable_at_its_own() {
    let api = TestServer::start(|_| listed()).await;
    let connection = api.connection().await;
    let server = |name, one| ApiServerClient::new(name, connection.calls().clone(), one);
    let servers = vec![server("configured", false), server("a", true), server("b", true)];
    let writer = ConfigWriter::new(servers, clock(), RetryPolicy::default());
    let asked = |out_of_reach: &str| {
        let asked = writer.servers_to_ask(|name| name == out_of_reach);
        asked.into_iter().map(|server| server.name).collect::<Vec<_>>()
    };
    assert_eq!(asked("nobody"), ["a", "b"]);
    assert_eq!(asked("b"), ["a", "b", "configured"]);
}
