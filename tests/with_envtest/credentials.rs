//! A client certificate against a real API server: one that is valid opens the door, one that has expired is found
//! before anybody is asked.

use std::process::Command;

use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::Envtest;

use super::{Named, Outcome, named};

pub fn tests() -> Vec<Named> {
    vec![named(
        "an_expired_client_certificate_is_reported_with_its_end_before_any_request",
        an_expired_client_certificate_is_reported_with_its_end_before_any_request,
    )]
}

fn an_expired_client_certificate_is_reported_with_its_end_before_any_request() -> Outcome {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let directory = PrivateDirectory::create().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let envtest = runtime.block_on(Envtest::start(directory.path())).unwrap();
    let diagnose = |expired: bool| {
        let name = if expired { "expired" } else { "valid" };
        let kubeconfig = envtest.kubeconfig_by_certificate(expired).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_hookwatch"))
            .args(["diagnose", "--for", "15s", "--kubeconfig"])
            .arg(directory.write(name, &kubeconfig).unwrap())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, said, complained) = diagnose(false);
    assert_eq!(code, Some(0), "{said}{complained}");
    let (code, said, complained) = diagnose(true);
    assert_eq!((code, said.as_str()), (Some(64), ""), "{complained}");
    assert!(
        complained.contains("the client certificate of user \"lab-admin\" expired at 20")
            && complained.contains("renew it"),
        "{complained}"
    );
    Outcome::Held
}
