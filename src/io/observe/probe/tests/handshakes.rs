//! What happens before the first request.

use std::sync::Arc;

use rustls::CipherSuite;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::server::{Authority, Heard, Identity, Server, allow, ok, with_status};
use super::{NAME, ProbeLimits, SCANT, hook, prober, prober_with, request, rule, run, url_hook};
use crate::domain::cluster::hook::{
    BackendAddress, BackendPath, HookTarget, ProbeLevel, ServiceState, ServiceTarget,
};
use crate::domain::observe::probe::{ConnectionKind, ProbeAnswer, ProbeOutcome, ProbePhase, TlsFault};

#[tokio::test]
async fn a_handshake_is_an_answer_at_the_lowest_level() {
    let authority = Authority::new();
    let server = Server::silent(authority.leaf().config()).await;
    let report = run(
        &prober(),
        request(hook(&authority.pem()), server.address, ProbeLevel::Handshake),
    )
    .await;
    assert_eq!(report.outcome, ProbeOutcome::Answered(ProbeAnswer::Handshake));
    let phases = report.phases;
    assert!(phases.connect.is_some() && phases.tls.is_some());
    assert_eq!(
        (phases.resolve, phases.first_byte, phases.body),
        (None, None, None)
    );
}

#[tokio::test]
async fn a_server_that_leaves_the_choice_to_us_encrypts_as_it_would_for_an_api_server() {
    for (version, suite) in [
        (&TLS13, CipherSuite::TLS13_AES_128_GCM_SHA256),
        (&TLS12, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ] {
        let authority = Authority::new();
        let (agreed, mut suites) = mpsc::unbounded_channel();
        let config = authority.leaf().config_of(&[version]);
        let server = Server::tls(config, move |conversation, _| {
            let chosen = conversation.0.get_ref().1.negotiated_cipher_suite();
            agreed
                .send(chosen.map(|chosen| chosen.suite()))
                .expect("the test listens");
            conversation.stay_silent()
        })
        .await;
        run(
            &prober(),
            request(hook(&authority.pem()), server.address, ProbeLevel::Handshake),
        )
        .await;
        assert_eq!(suites.recv().await, Some(Some(suite)));
    }
}

#[tokio::test]
async fn the_server_sees_what_the_api_server_would_send() {
    let authority = Authority::new();
    let (heard, mut requests) = mpsc::unbounded_channel::<Heard>();
    let server = Server::http(authority.leaf().config(), move |request| {
        let answer = ok(&allow(&request));
        heard.send(request).expect("the test listens");
        answer
    })
    .await;
    let report = run(
        &prober(),
        request(hook(&authority.pem()), server.address, ProbeLevel::Review),
    )
    .await;
    assert_eq!(
        report.outcome,
        ProbeOutcome::Answered(ProbeAnswer::Review { allowed: true })
    );
    let request = requests.recv().await.expect("a request");
    assert_eq!(request.server_name.as_deref(), Some(NAME));
    assert_eq!(request.protocol.as_deref(), Some(&b"http/1.1"[..]));
    assert!(
        request
            .head
            .starts_with("POST /validate?timeout=10s HTTP/1.1\r\n"),
        "{}",
        request.head
    );
    assert!(request.has_header("host: hook.probe.svc:443"), "{}", request.head);
    assert!(
        request.has_header("content-type: application/json"),
        "{}",
        request.head
    );
    let agent = format!("user-agent: hookwatch/{}", env!("CARGO_PKG_VERSION"));
    assert!(request.has_header(&agent), "{}", request.head);
}

#[tokio::test]
async fn a_closed_port_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let bundle = Authority::new().pem();
    let report = run(&prober(), request(hook(&bundle), address, ProbeLevel::Http)).await;
    assert_eq!(report.outcome, ProbeOutcome::Refused);
    assert!(report.phases.connect.is_some());
    assert_eq!(report.phases.tls, None);
}

#[tokio::test]
async fn a_name_is_resolved_and_timed() {
    let authority = Authority::new();
    let leaf = authority.leaf_with(|params| {
        params.subject_alt_names = vec![rcgen::SanType::DnsName("localhost".try_into().expect("a name"))];
    });
    let server = Server::http(leaf.config(), |_| with_status("404 Not Found", "")).await;
    let hook = url_hook(&authority.pem(), "localhost", server.address.port());
    let mut request = request(hook, server.address, ProbeLevel::Http);
    request.backend = request.hook.backends()[0].clone();
    let report = run(&prober(), request).await;
    assert_eq!(
        report.outcome,
        ProbeOutcome::Answered(ProbeAnswer::Http { status: 404 })
    );
    assert!(report.phases.resolve.is_some());
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_unresolvable() {
    // A label of 64 characters: the resolver refuses it without a query.
    let mut request = request(
        url_hook("", "hook.example.com", 443),
        "127.0.0.1:1".parse().expect("an address"),
        ProbeLevel::Http,
    );
    request.backend.path = BackendPath::Url;
    request.backend.address = BackendAddress::Host("a".repeat(64), 443);
    let report = run(&prober(), request).await;
    assert!(
        matches!(report.outcome, ProbeOutcome::Unresolvable { .. }),
        "{:?}",
        report.outcome
    );
    assert_eq!(report.phases.connect, None);
}

#[tokio::test]
async fn a_url_with_an_address_needs_a_certificate_for_that_address() {
    let authority = Authority::new();
    let leaf = authority.leaf_with(|params| {
        params.subject_alt_names = vec![rcgen::SanType::IpAddress([127, 0, 0, 1].into())];
    });
    let (heard, mut requests) = mpsc::unbounded_channel::<Heard>();
    let server = Server::http(leaf.config(), move |request| {
        heard.send(request).expect("the test listens");
        with_status("200 OK", "{}")
    })
    .await;
    let port = server.address.port();
    let hook = url_hook(&authority.pem(), "127.0.0.1", port);
    let mut request = request(hook, server.address, ProbeLevel::Http);
    request.backend = request.hook.backends()[0].clone();
    let report = run(&prober(), request).await;
    assert_eq!(
        report.outcome,
        ProbeOutcome::Answered(ProbeAnswer::Http { status: 200 })
    );
    assert_eq!(report.phases.resolve, None);
    let request = requests.recv().await.expect("a request");
    assert_eq!(request.server_name, None);
    assert!(
        request.has_header(&format!("host: 127.0.0.1:{port}")),
        "{}",
        request.head
    );
}

#[tokio::test]
async fn plain_http_on_the_port_is_a_protocol_fault() {
    let server = Server::tcp(|mut stream, _| async move {
        let mut first = [0; 16];
        let _ = stream.read(&mut first).await;
        let _ = stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            .await;
        let _ = stream.shutdown().await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let bundle = Authority::new().pem();
    let report = run(
        &prober(),
        request(hook(&bundle), server.address, ProbeLevel::Http),
    )
    .await;
    let protocol = ProbeOutcome::TlsRejected {
        fault: TlsFault::Protocol,
        why: String::new(),
    };
    assert_eq!(without_text(report.outcome), protocol);
}

#[tokio::test]
async fn a_server_that_speaks_only_http_2_is_a_protocol_fault() {
    let authority = Authority::new();
    let mut config = authority.leaf().config();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let server = Server::silent(config).await;
    let report = run(
        &prober(),
        request(hook(&authority.pem()), server.address, ProbeLevel::Http),
    )
    .await;
    let protocol = ProbeOutcome::TlsRejected {
        fault: TlsFault::Protocol,
        why: String::new(),
    };
    assert_eq!(without_text(report.outcome), protocol);
}

#[tokio::test]
async fn a_server_that_hangs_up_in_the_handshake_is_lost_there() {
    let server = Server::tcp(|mut stream, _| async move {
        let mut hello = [0; 5];
        let _ = stream.read_exact(&mut hello).await;
    })
    .await;
    let bundle = Authority::new().pem();
    let report = run(
        &prober(),
        request(hook(&bundle), server.address, ProbeLevel::Http),
    )
    .await;
    assert!(
        matches!(
            report.outcome,
            ProbeOutcome::Lost {
                phase: ProbePhase::Tls,
                ..
            }
        ),
        "{:?}",
        report.outcome
    );
}

#[tokio::test]
async fn a_wish_for_a_client_certificate_is_a_sign_of_life_in_both_versions_of_tls() {
    let authority = Authority::new();
    for versions in [&[&TLS12][..], &[&TLS13][..]] {
        let config = authority.leaf().mutual(&Authority::new(), versions);
        let server = Server::silent(config).await;
        let request = request(hook(&authority.pem()), server.address, ProbeLevel::Review);
        let prober = prober();
        // Several times over: the alert and the reset that follows it race each other.
        for _ in 0..20 {
            let report = run(&prober, request.clone()).await;
            assert_eq!(
                report.outcome,
                ProbeOutcome::ClientCertificateWanted,
                "{versions:?}"
            );
            assert!(report.outcome.is_alive());
            assert!(report.certificates.served_not_after.is_some());
        }
    }
}

#[tokio::test]
async fn every_handshake_is_a_full_one() {
    let authority = Authority::new();
    let (kinds, mut seen) = mpsc::unbounded_channel();
    let server = Server::tls(authority.leaf().config(), move |mut conversation, _| {
        let kinds = kinds.clone();
        async move {
            if conversation.hear().await.is_ok() {
                kinds
                    .send(conversation.0.get_ref().1.handshake_kind())
                    .expect("the test listens");
                let _ = conversation.say(&with_status("200 OK", "{}")).await;
            }
        }
    })
    .await;
    let prober = prober();
    for _ in 0..3 {
        let request = request(hook(&authority.pem()), server.address, ProbeLevel::Http);
        run(&prober, request).await;
        let kind = seen.recv().await.expect("a handshake");
        assert_ne!(kind, Some(rustls::HandshakeKind::Resumed));
    }
}

#[tokio::test]
async fn what_must_not_be_dialled_is_not() {
    let server = Server::tcp(|_, _| async {}).await;
    let service = |namespace: &str, name: &str| {
        HookTarget::Service(ServiceTarget {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            port: 443,
            path: "/".to_owned(),
            service: ServiceState::Missing,
        })
    };
    let mut itself = hook("");
    itself.target = service("default", "kubernetes");
    let mut nowhere = hook("");
    nowhere.target = HookTarget::Invalid("neither service nor url".to_owned());
    let mut nameless = hook("");
    nameless.target = service("probe", "not a name");
    let mut odd_path = hook("");
    odd_path.target = HookTarget::Service(ServiceTarget {
        path: "/with space".to_owned(),
        ..match service("probe", "hook") {
            HookTarget::Service(target) => target,
            _ => unreachable!("made above"),
        }
    });
    let mut unsafe_hook = hook("");
    unsafe_hook.dry_run_safe = false;
    let mut exotic = hook("");
    exotic.rules = vec![rule(&["CREATE"], "example.com", &["widgets"])];
    for (hook, level) in [
        (itself, ProbeLevel::Handshake),
        (nowhere, ProbeLevel::Handshake),
        (nameless, ProbeLevel::Handshake),
        (odd_path, ProbeLevel::Http),
        (unsafe_hook, ProbeLevel::Review),
        (exotic, ProbeLevel::Review),
        (hook(""), ProbeLevel::Off),
    ] {
        let report = run(&prober(), request(hook, server.address, level)).await;
        assert!(
            matches!(report.outcome, ProbeOutcome::NotProbed { .. }),
            "{:?}",
            report.outcome
        );
    }
    let mut silent = request(hook(""), server.address, ProbeLevel::Handshake);
    silent.connection = ConnectionKind::Kept;
    let report = run(&prober(), silent).await;
    assert!(matches!(report.outcome, ProbeOutcome::NotProbed { .. }));
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn the_api_servers_own_host_is_probed_only_from_there() {
    let authority = Authority::new();
    let server = Server::http(authority.leaf().config(), |heard| ok(&allow(&heard))).await;
    for (beside_api_server, probed) in [(true, true), (false, false)] {
        let prober = prober_with(ProbeLimits {
            beside_api_server,
            ..ProbeLimits::default()
        });
        let hook = url_hook(&authority.pem(), "127.0.0.1", server.address.port());
        let report = run(&prober, request(hook, server.address, ProbeLevel::Handshake)).await;
        let was_probed = !matches!(report.outcome, ProbeOutcome::NotProbed { .. });
        assert_eq!(was_probed, probed, "{:?}", report.outcome);
    }
}

#[tokio::test]
async fn a_probe_can_be_sent_to_another_thread() {
    let authority = Authority::new();
    let server = Server::http(authority.leaf().config(), |_| with_status("200 OK", "{}")).await;
    let prober = Arc::new(prober());
    let mut request = request(hook(&authority.pem()), server.address, ProbeLevel::Http);
    request.deadline = 10 * SCANT;
    let task = tokio::spawn(async move { prober.probe(request, |_| {}).await });
    assert!(task.await.expect("no panic").outcome.is_alive());
}

/// The outcome with its text taken out.
pub(super) fn without_text(outcome: ProbeOutcome) -> ProbeOutcome {
    match outcome {
        ProbeOutcome::TlsRejected { fault, why } => {
            assert!(!why.is_empty());
            ProbeOutcome::TlsRejected {
                fault,
                why: String::new(),
            }
        }
        other => other,
    }
}

/// Serves `identity` to a probe of a hook with `bundle`.
pub(super) async fn shake(identity: &Identity, bundle: &str) -> crate::domain::observe::probe::ProbeReport {
    let server = Server::silent(identity.config()).await;
    run(
        &prober(),
        request(hook(bundle), server.address, ProbeLevel::Handshake),
    )
    .await
}
