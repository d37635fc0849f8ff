//! Probes of what is no admission hook.

use super::server::{Authority, Server, with_status};
use super::{hook, prober, request, run};
use crate::domain::cluster::hook::{Aggregated, Extension, Hook, HookId, HookKind, HookTarget, ProbeLevel};
use crate::domain::observe::probe::{ProbeAnswer, ProbeOutcome, TlsFault};

/// The server behind an APIService.
fn aggregated(ca_bundle: &str, insecure: bool) -> Hook {
    let mut hook = hook(ca_bundle);
    hook.id = HookId::new(HookKind::Aggregated, "v1.g.example", "v1.g.example");
    hook.extension = Some(Extension::Aggregated(Aggregated {
        group: "g.example".to_owned(),
        version: "v1".to_owned(),
        insecure,
        available: None,
    }));
    if let HookTarget::Service(target) = &mut hook.target {
        target.path = "/apis/g.example/v1".to_owned();
    }
    hook
}

#[tokio::test]
async fn an_aggregated_api_is_asked_for_its_discovery_document() {
    let authority = Authority::new();
    for (status, outcome) in [
        ("200 OK", "answered"),
        ("302 Found", "discovery_refused"),
        ("401 Unauthorized", "answered"),
        ("403 Forbidden", "answered"),
        ("429 Too Many Requests", "answered"),
        ("404 Not Found", "discovery_refused"),
        ("503 Service Unavailable", "discovery_refused"),
    ] {
        let server = Server::http(authority.leaf().config(), move |heard| {
            assert!(
                heard.head.starts_with("GET /apis/g.example/v1 HTTP/1.1\r\n"),
                "{}",
                heard.head
            );
            with_status(status, "{}")
        })
        .await;
        let hook = aggregated(&authority.pem(), false);
        let report = run(&prober(), request(hook, server.address, ProbeLevel::Http)).await;
        let code = status[..3].parse().expect("a code");
        assert_eq!(
            report.outcome,
            ProbeOutcome::Answered(ProbeAnswer::Discovery { status: code })
        );
        assert_eq!(report.outcome.as_str(), outcome);
    }
}

#[tokio::test]
async fn its_certificate_counts_unless_its_owner_says_otherwise() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = Server::http(authority.leaf().config(), |_| with_status("200 OK", "{}")).await;
    for (bundle, insecure, accepted) in [
        (authority.pem(), false, true),
        (stranger.pem(), false, false),
        // The system's roots: they do not certify a Service's name either.
        (String::new(), false, false),
        (String::new(), true, true),
    ] {
        let request = request(aggregated(&bundle, insecure), server.address, ProbeLevel::Http);
        let outcome = run(&prober(), request).await.outcome;
        let rejected = matches!(
            outcome,
            ProbeOutcome::TlsRejected {
                fault: TlsFault::UnknownAuthority,
                ..
            }
        );
        // A machine without any roots cannot say.
        let differs = bundle.is_empty() && matches!(outcome, ProbeOutcome::VerifierDiffers { .. });
        assert_eq!(!(rejected || differs), accepted, "{outcome:?}");
    }
}

#[tokio::test]
async fn neither_kind_is_ever_shown_a_review() {
    let authority = Authority::new();
    let server = Server::http(authority.leaf().config(), |_| with_status("200 OK", "{}")).await;
    let mut converter = hook(&authority.pem());
    converter.id = HookId::new(HookKind::Conversion, "w.e", "w.e");
    for hook in [converter, aggregated(&authority.pem(), false)] {
        let report = run(&prober(), request(hook, server.address, ProbeLevel::Review)).await;
        assert!(matches!(report.outcome, ProbeOutcome::NotProbed { .. }));
    }
    assert_eq!(server.accepted(), 0);
}
