//! Addresses that a tenant may have written into an EndpointSlice to learn what is there.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::server::{Authority, Server};
use super::{SCANT, hook, prober_with, request};
use crate::domain::cluster::hook::{BackendPath, Endpoint, Hook, HookTarget, ProbeLevel, ServiceState};
use crate::domain::observe::probe::{
    CertificateFacts, PhaseDurations, ProbeAnswer, ProbeOutcome, ProbePhase, ProbeReport,
};
use crate::io::observe::probe::{ProbeLimits, ProbeNews, ProbeRequest, Prober};

/// Who lists the address of the probe.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Listed {
    /// The cluster's controller, as a Pod of the Service's namespace.
    Own,
    /// It says so, as a Pod of another namespace.
    Elsewhere,
    /// As no Pod.
    NoPod,
    /// An EndpointSlice that the controller does not keep.
    ByHand,
}

fn listed(bundle: &str, address: SocketAddr, by: Listed) -> Hook {
    let mut hook = hook(bundle);
    let pod = match by {
        Listed::Own | Listed::ByHand => Some("probe/hook-0".to_owned()),
        Listed::Elsewhere => Some("other/hook-0".to_owned()),
        Listed::NoPod => None,
    };
    let HookTarget::Service(target) = &mut hook.target else {
        unreachable!("it is called by a Service")
    };
    target.service = ServiceState::Found {
        cluster_ip: None,
        endpoints: vec![Endpoint {
            pod,
            ..Endpoint::ready(address)
        }],
        by_hand: by == Listed::ByHand,
    };
    hook
}

/// What a probe says, the times apart, and the phases that it was said to be late in.
async fn seen(prober: &Prober, mut request: ProbeRequest) -> (ProbeReport, Vec<ProbePhase>) {
    request.deadline = SCANT;
    let mut late = Vec::new();
    let report = prober
        .probe(request, |news| {
            if let ProbeNews::Overdue(overdue) = news {
                late.push(overdue.phase);
            }
        })
        .await;
    (report, late)
}

/// One that says of a probe twice that it is late.
fn prober() -> Arc<Prober> {
    Arc::new(prober_with(ProbeLimits {
        overdue: [SCANT / 4, SCANT / 2],
        ..ProbeLimits::default()
    }))
}

async fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address")
}

#[tokio::test]
async fn of_an_address_that_the_controller_does_not_list_a_probe_tells_not_how_it_fails_nor_when() {
    let bundle = Authority::new().pem();
    let refuses = closed_port().await;
    let hangs_up = Server::tcp(|stream, _| async move { drop(stream) }).await;
    let silent = Server::hung().await;
    let alerts = Server::tcp(|mut stream, _| async move {
        let _ = stream.read(&mut [0; 16]).await;
        // handshake_failure, and no certificate before it.
        let _ = stream.write_all(&[0x15, 3, 3, 0, 2, 2, 40]).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let other = Authority::new();
    let foreign = Server::silent(other.leaf().config()).await;
    let servers = [hangs_up, silent, alerts, foreign];
    let addresses = servers.iter().map(|server| server.address).chain([refuses]);
    let (prober, mut probes) = (prober(), tokio::task::JoinSet::new());
    for address in addresses {
        for by in [Listed::Elsewhere, Listed::NoPod, Listed::ByHand] {
            for path in [BackendPath::Endpoint, BackendPath::ClusterIp] {
                let mut request = request(listed(&bundle, address, by), address, ProbeLevel::Http);
                request.backend.path = path;
                let prober = Arc::clone(&prober);
                probes.spawn(async move { (by, path, seen(&prober, request).await) });
            }
        }
    }
    while let Some(ended) = probes.join_next().await {
        let (by, path, (report, late)) = ended.expect("a probe");
        let phase = ProbePhase::Withheld;
        assert_eq!(
            report.outcome,
            ProbeOutcome::TimedOut { phase },
            "{by:?} {path:?}"
        );
        assert!(late.iter().all(|late| *late == phase), "{late:?}");
        assert!(report.took >= SCANT);
        assert_eq!(report.phases, PhaseDurations::default());
        assert_eq!(report.certificates.served_not_after, None);
    }
}

#[tokio::test]
async fn of_a_pod_that_the_controller_lists_a_probe_tells_at_once_how_it_fails() {
    let address = closed_port().await;
    let hook = listed(&Authority::new().pem(), address, Listed::Own);
    let (report, late) = seen(&prober(), request(hook, address, ProbeLevel::Http)).await;
    assert_eq!(report.outcome, ProbeOutcome::Refused);
    assert_eq!(late, []);
}

#[tokio::test]
async fn a_server_that_the_ca_bundle_verifies_answers_for_any_webhook_that_lists_it() {
    let authority = Authority::new();
    let server = Server::silent(authority.leaf().config()).await;
    for by in [Listed::Own, Listed::Elsewhere, Listed::NoPod, Listed::ByHand] {
        let hook = listed(&authority.pem(), server.address, by);
        let (report, _) = seen(&prober(), request(hook, server.address, ProbeLevel::Handshake)).await;
        assert_eq!(
            report.outcome,
            ProbeOutcome::Answered(ProbeAnswer::Handshake),
            "{by:?}"
        );
        assert_ne!(report.certificates, CertificateFacts::default());
    }
}

#[tokio::test]
async fn what_is_not_dialled_is_said_of_any_address() {
    let address = "127.0.0.1:1".parse().expect("an address");
    let hook = listed("no certificate", address, Listed::ByHand);
    let (report, _) = seen(&prober(), request(hook, address, ProbeLevel::Http)).await;
    assert!(
        matches!(report.outcome, ProbeOutcome::TlsRejected { .. }),
        "{report:?}"
    );
}
