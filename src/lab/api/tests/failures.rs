//! Ways in which a call can fail that are in no transcript of `tests/fixtures/fidelity`: what the client reads and what
//! the metrics say.

use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::backend::{Backend, Certificate, allow, hang_up, raw};
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
async fn a_closed_port_refuses_connections() {
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
async fn a_certificate_of_another_name_and_an_expired_one_are_named() {
    for (certificate, begins, ends) in [
        (
            Certificate::Expired,
            "x509: certificate has expired or is not yet valid: current time ",
            " is after 2021-01-01T00:00:00Z",
        ),
        (
            Certificate::WrongName,
            "x509: certificate is valid for elsewhere.example, not localhost",
            "",
        ),
    ] {
        let lab = Lab::start().await;
        let backend = Backend::with(certificate, |review| async move { allow(&review) }).await;
        let why = failure(&lab, webhook(NAME, &backend)).await;
        let url = format!("https://localhost:{}/admit", backend.address.port());
        let begins = post(&url, &format!("tls: failed to verify certificate: {begins}"));
        assert!(why.starts_with(&begins) && why.ends_with(ends), "{why}");
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
async fn an_answer_of_another_version_and_kind_fails_the_call() {
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
async fn a_failed_call_that_is_passed_over_is_counted_with_its_own_code() {
    let lab = Lab::start().await;
    let backend = Backend::start(|_| async { raw(500, "boom") }).await;
    let mut webhook = webhook(NAME, &backend);
    webhook["failurePolicy"] = json!("Ignore");
    lab.register(false, "test", vec![webhook]).await;
    lab.create("x").await.expect("passed over");
    let family = "apiserver_admission_webhook_request_total";
    assert_eq!(
        lab.metric(family, &["code=\"500\"", "rejected=\"false\""]).await,
        1.0
    );
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
