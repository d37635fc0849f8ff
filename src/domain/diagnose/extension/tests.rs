//! What the aggregator's own words mean.

use super::*;

fn cause(reason: &str, message: &str) -> Option<Cause> {
    let available = Available {
        status: Some(false),
        reason: reason.into(),
        message: message.into(),
        since: None,
    };
    available.cause()
}

/// The sentences are those of `remote_available_controller.go` in 1.36.
#[test]
fn every_reason_of_the_aggregator_has_its_cause() {
    let get = "failing or missing response from https://10.0.0.1:8443/apis/e/v1: Get \
               \"https://10.0.0.1:8443/apis/e/v1\": ";
    let discovery = |why: &str| cause("FailedDiscoveryCheck", &format!("{get}{why}"));
    assert_eq!(cause("ServiceNotFound", ""), Some(Cause::NoService));
    assert_eq!(cause("ServicePortError", ""), Some(Cause::NoService));
    assert_eq!(cause("EndpointsNotFound", ""), Some(Cause::NoEndpoints));
    assert_eq!(cause("MissingEndpoints", ""), Some(Cause::NoEndpoints));
    assert_eq!(
        discovery("dial tcp 10.0.0.1:8443: connect: connection refused"),
        Some(Cause::Refused)
    );
    assert_eq!(
        discovery("context deadline exceeded (Client.Timeout exceeded while awaiting headers)"),
        Some(Cause::Hanging)
    );
    assert_eq!(
        discovery("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        Some(Cause::TlsInvalid)
    );
    assert_eq!(
        discovery("dial tcp 10.0.0.1:8443: connect: no route to host"),
        Some(Cause::Unreachable)
    );
    assert_eq!(discovery("No agent available"), Some(Cause::Unreachable));
    assert_eq!(
        cause(
            "FailedDiscoveryCheck",
            "failing or missing response from https://10.0.0.1:8443/apis/e/v1: bad status from \
             https://10.0.0.1:8443/apis/e/v1: 503"
        ),
        Some(Cause::Erroring)
    );
    assert_eq!(
        cause(
            "FailedDiscoveryCheck",
            "timed out waiting for https://10.0.0.1:8443/apis/e/v1"
        ),
        Some(Cause::Hanging)
    );
    assert_eq!(cause("FailedDiscoveryCheck", "something new"), None);
    assert_eq!(cause("Whatever", ""), None);
}
