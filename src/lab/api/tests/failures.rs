//! Every way a call can fail: what the client reads and what the metrics say.

use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::backend::{Backend, Certificate, allow, hang_up, raw, respond};
use super::*;

const NAME: &str = "w.test.example";

/// Registers one validating webhook and gives the refusal of a create, without the words every failure begins with.
async fn failure(lab: &Lab, webhook: Value) -> String {
    lab.register(false, "test", vec![webhook]).await;
    let (code, message) = lab.refused("x").await;
    assert_eq!(code, 500, "{message}");
    let begin = format!("Internal error occurred: failed calling webhook {NAME:?}: ");
    message
        .strip_prefix(&begin)
        .unwrap_or_else(|| panic!("{message}"))
        .to_owned()
}

async fn assert_counted(lab: &Lab, code: &str) {
    let (name, code) = (format!("name={NAME:?}"), format!("code={code:?}"));
    let labels = [
        name.as_str(),
        "type=\"validating\"",
        "operation=\"CREATE\"",
        code.as_str(),
    ];
    let rejected = [&labels[..], &["rejected=\"true\""]].concat();
    let family = "apiserver_admission_webhook_request_total";
    assert_eq!(lab.metric(family, &rejected).await, 1.0);
    let error = [&labels[..], &["error_type=\"calling_webhook_error\""]].concat();
    let family = "apiserver_admission_webhook_rejection_count";
    assert_eq!(lab.metric(family, &error).await, 1.0);
    let family = "apiserver_admission_webhook_admission_duration_seconds_count";
    assert_eq!(lab.metric(family, &[&name, "rejected=\"true\""]).await, 1.0);
    assert_eq!(
        lab.metric("apiserver_admission_webhook_fail_open_count", &[])
            .await,
        0.0
    );
}

fn post(url: &str, why: &str) -> String {
    format!("failed to call webhook: Post \"{url}?timeout=5s\": {why}")
}

#[tokio::test]
async fn nobody_listens() {
    let lab = Lab::start().await;
    let backend = Backend::allowing().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    lab.service("hook", &[(address, true)]).await;
    let why = failure(&lab, service_webhook(NAME, "hook", &backend.ca_bundle())).await;
    let refused = format!("dial tcp {address}: connect: connection refused");
    assert_eq!(why, post("https://hook.default.svc:443/admit", &refused));
    assert_counted(&lab, "503").await;
}

#[tokio::test]
async fn no_endpoint_is_ready_and_no_service_is_there() {
    let lab = Lab::start().await;
    let backend = Backend::allowing().await;
    lab.service("hook", &[(backend.address, false)]).await;
    let why = failure(&lab, service_webhook(NAME, "hook", &backend.ca_bundle())).await;
    let url = "https://hook.default.svc:443/admit";
    assert_eq!(why, post(url, "no endpoints available for service \"hook\""));
    assert_counted(&lab, "503").await;

    let lab = Lab::start().await;
    let why = failure(&lab, service_webhook(NAME, "gone", &backend.ca_bundle())).await;
    let url = "https://gone.default.svc:443/admit";
    assert_eq!(why, post(url, "service \"gone\" not found"));
}

#[tokio::test]
async fn a_backend_that_never_answers_costs_the_whole_timeout() {
    let lab = Lab::start().await;
    let backend = Backend::start(|_| std::future::pending()).await;
    let mut webhook = webhook(NAME, &backend);
    webhook["timeoutSeconds"] = json!(1);
    let why = failure(&lab, webhook).await;
    let url = format!("https://localhost:{}/admit?timeout=1s", backend.address.port());
    assert_eq!(
        why,
        format!("failed to call webhook: Post \"{url}\": context deadline exceeded")
    );
    assert_counted(&lab, "503").await;
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_named() {
    let lab = Lab::with(ApiServerOptions {
        handshake_timeout: Duration::from_millis(300),
        ..ApiServerOptions::default()
    })
    .await;
    // Accepted by the kernel, and then nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let backend = Backend::allowing().await;
    lab.service("hook", &[(address, true)]).await;
    let why = failure(&lab, service_webhook(NAME, "hook", &backend.ca_bundle())).await;
    let url = "https://hook.default.svc:443/admit";
    assert_eq!(why, post(url, "net/http: TLS handshake timeout"));
    assert_counted(&lab, "503").await;
}

#[tokio::test]
async fn a_backend_that_hangs_up_ends_the_answer() {
    let lab = Lab::start().await;
    let backend = Backend::start(|_| async { hang_up() }).await;
    let why = failure(&lab, webhook(NAME, &backend)).await;
    assert_eq!(
        why,
        post(
            &format!("https://localhost:{}/admit", backend.address.port()),
            "EOF"
        )
    );
    assert_counted(&lab, "503").await;
}

#[tokio::test]
async fn every_fault_of_a_certificate_is_named() {
    let other = Backend::allowing().await;
    for (certificate, foreign_ca, wanted) in [
        (
            Certificate::Good,
            true,
            "x509: certificate signed by unknown authority",
        ),
        (
            Certificate::Expired,
            false,
            "x509: certificate has expired or is not yet valid: current time ",
        ),
        (
            Certificate::WrongName,
            false,
            "x509: certificate is valid for elsewhere.example, not localhost",
        ),
    ] {
        let lab = Lab::start().await;
        let backend = Backend::with(certificate, |review| async move { allow(&review) }).await;
        let mut webhook = webhook(NAME, &backend);
        if foreign_ca {
            webhook["clientConfig"]["caBundle"] = json!(other.ca_bundle());
        }
        let why = failure(&lab, webhook).await;
        let begin = post(
            &format!("https://localhost:{}/admit", backend.address.port()),
            "tls: failed to verify certificate: ",
        );
        let why = why.strip_prefix(&begin).unwrap_or_else(|| panic!("{why}"));
        assert!(why.starts_with(wanted), "{why}");
        assert!(
            certificate != Certificate::Expired || why.ends_with(" is after 2021-01-01T00:00:00Z"),
            "{why}"
        );
        assert_counted(&lab, "503").await;
    }
}

#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_trusted_as_go_trusts_it() {
    let lab = Lab::start().await;
    let backend = Backend::with(Certificate::OwnAuthority, |review| async move { allow(&review) }).await;
    lab.register(false, "test", vec![webhook(NAME, &backend)]).await;
    lab.create("x").await.expect("allowed");
}

#[tokio::test]
async fn a_ca_bundle_without_certificates_makes_no_client() {
    let lab = Lab::start().await;
    let backend = Backend::allowing().await;
    let mut webhook = webhook(NAME, &backend);
    webhook["clientConfig"]["caBundle"] = json!("Cg==");
    assert_eq!(
        failure(&lab, webhook).await,
        "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
    );
    assert_counted(&lab, "500").await;
}

#[tokio::test]
async fn an_http_error_is_quoted_and_counted_with_its_code() {
    for (code, body, wanted) in [
        (
            500,
            "boom",
            "an error on the server (\"boom\") has prevented the request from succeeding",
        ),
        (
            503,
            "busy",
            "the server is currently unable to handle the request",
        ),
        (404, "", "the server could not find the requested resource"),
    ] {
        let lab = Lab::start().await;
        let backend = Backend::start(move |_| async move { raw(code, body) }).await;
        let why = failure(&lab, webhook(NAME, &backend)).await;
        assert_eq!(why, format!("failed to call webhook: {wanted}"));
        assert_counted(&lab, &code.to_string()).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_none_fails_the_call() {
    for (body, wanted) in [
        (
            "{}",
            "received invalid webhook response: webhook response was absent",
        ),
        (
            r#"{"response": {"uid": "someone else"}}"#,
            "received invalid webhook response: expected response.uid=",
        ),
        (
            "<html>",
            "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal string into",
        ),
        (
            "",
            "failed to call webhook: 0-length response with status code: 200 and content type: ",
        ),
    ] {
        let lab = Lab::start().await;
        let backend = Backend::start(move |_| async move { raw(200, body) }).await;
        let why = failure(&lab, webhook(NAME, &backend)).await;
        assert!(why.starts_with(wanted), "{why}");
        assert_counted(&lab, "503").await;
    }
    let lab = Lab::start().await;
    let backend = Backend::start(|review: Value| async move {
        let uid = review["request"]["uid"].clone();
        raw(
            200,
            &json!({"response": {"uid": uid, "allowed": true}}).to_string(),
        )
    })
    .await;
    assert_eq!(
        failure(&lab, webhook(NAME, &backend)).await,
        "received invalid webhook response: expected webhook response of admission.k8s.io/v1, \
         Kind=AdmissionReview, got /, Kind="
    );
}

#[tokio::test]
async fn a_failed_call_is_passed_over_and_counted_when_the_hook_may_be_ignored() {
    let lab = Lab::start().await;
    let backend = Backend::start(|_| async { raw(500, "boom") }).await;
    let mut validating = webhook(NAME, &backend);
    validating["failurePolicy"] = json!("Ignore");
    let mut mutating = validating.clone();
    mutating["name"] = json!("m.test.example");
    lab.register(false, "test", vec![validating]).await;
    lab.register(true, "test", vec![mutating]).await;
    lab.create("x").await.expect("passed over");
    for (name, of) in [
        ("name=\"w.test.example\"", "type=\"validating\""),
        ("name=\"m.test.example\"", "type=\"admit\""),
    ] {
        let family = "apiserver_admission_webhook_fail_open_count";
        assert_eq!(lab.metric(family, &[name, of]).await, 1.0);
        let family = "apiserver_admission_webhook_request_total";
        let labels = [name, of, "code=\"500\"", "rejected=\"false\""];
        assert_eq!(lab.metric(family, &labels).await, 1.0);
    }
    let family = "apiserver_admission_webhook_rejection_count";
    assert_eq!(lab.metric(family, &[]).await, 0.0);
}

#[tokio::test]
async fn a_denial_is_the_hooks_own_word_and_no_failure() {
    let lab = Lab::start().await;
    let backend = Backend::start(|review: Value| async move {
        respond(
            &review,
            json!({"allowed": false, "status": {"code": 403, "message": "not here"}}),
        )
    })
    .await;
    let mut webhook = webhook(NAME, &backend);
    webhook["failurePolicy"] = json!("Ignore");
    lab.register(false, "test", vec![webhook]).await;
    assert_eq!(
        lab.refused("x").await,
        (
            403,
            format!("admission webhook {NAME:?} denied the request: not here")
        )
    );
    let family = "apiserver_admission_webhook_rejection_count";
    let labels = ["error_type=\"no_error\"", "rejection_code=\"403\""];
    assert_eq!(lab.metric(family, &labels).await, 1.0);
}

#[tokio::test]
async fn a_request_whose_time_is_over_is_answered_504_whatever_its_hooks_do() {
    let lab = Lab::with(ApiServerOptions {
        request_limit: Duration::from_millis(300),
        ..ApiServerOptions::default()
    })
    .await;
    let backend = Backend::start(|_| std::future::pending()).await;
    let mut webhook = webhook(NAME, &backend);
    webhook["failurePolicy"] = json!("Ignore");
    lab.register(true, "test", vec![webhook]).await;
    assert_eq!(
        lab.refused("x").await,
        (
            504,
            "Timeout: request did not complete within requested timeout - context deadline exceeded"
                .to_owned()
        )
    );
    let family = "apiserver_admission_webhook_fail_open_count";
    assert_eq!(lab.metric(family, &[]).await, 1.0, "it was skipped in vain");
    let family = "apiserver_request_total";
    assert_eq!(lab.metric(family, &["verb=\"POST\"", "code=\"504\""]).await, 1.0);
}

#[tokio::test]
async fn a_client_that_goes_away_is_no_failure_of_the_hook() {
    let lab = Lab::start().await;
    let (called, mut calls) = tokio::sync::mpsc::unbounded_channel();
    let backend = Backend::start(move |_| {
        let _ = called.send(());
        std::future::pending()
    })
    .await;
    lab.register(false, "test", vec![webhook(NAME, &backend)]).await;
    let client = lab.client.clone();
    let create = tokio::spawn(async move { create(&client, "x", false).await });
    calls.recv().await.expect("a call");
    create.abort();
    let family = "apiserver_admission_webhook_request_total";
    let counted = async {
        while lab.metric(family, &["code=\"503\"", "rejected=\"true\""]).await < 1.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(GUARD, counted)
        .await
        .expect("counted in time");
    let family = "apiserver_admission_webhook_rejection_count";
    assert_eq!(lab.metric(family, &[]).await, 0.0);
    let family = "apiserver_request_total";
    assert_eq!(lab.metric(family, &["verb=\"POST\"", "code=\"504\""]).await, 1.0);
}
