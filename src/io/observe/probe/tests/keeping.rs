//! The connection that is kept between probes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::server::{Authority, Server, allow, ok, with_status};
use super::{SCANT, hook, prober, prober_with, request, run, target};
use crate::domain::cluster::hook::{Hook, ProbeLevel};
use crate::domain::observe::probe::{ConnectionKind, ProbeAnswer, ProbeOutcome, ProbePhase};
use crate::io::observe::probe::{ProbeLimits, ProbeRequest};

fn kept(hook: Hook, server: &Server) -> ProbeRequest {
    ProbeRequest {
        connection: ConnectionKind::Kept,
        ..request(hook, server.address, ProbeLevel::Review)
    }
}

const ALLOWED: ProbeOutcome = ProbeOutcome::Answered(ProbeAnswer::Review { allowed: true });

#[tokio::test]
async fn the_first_kept_probe_dials_and_the_next_ones_do_not() {
    let authority = Authority::new();
    let server = Server::http(authority.leaf().config(), |heard| ok(&allow(&heard))).await;
    let prober = prober();
    for nth in 0..4 {
        let report = run(&prober, kept(hook(&authority.pem()), &server)).await;
        assert_eq!(
            (report.outcome, report.connection),
            (ALLOWED, ConnectionKind::Kept)
        );
        assert_eq!(report.phases.tls.is_some(), nth == 0);
        assert_eq!(report.phases.connect.is_some(), nth == 0);
        assert!(report.phases.first_byte.is_some());
        assert_eq!(report.certificates.served_not_after.is_some(), nth == 0);
    }
    assert_eq!((server.accepted(), prober.pooled()), (1, 1));
}

#[tokio::test]
async fn how_much_is_read_is_bounded_for_each_request_by_itself() {
    let authority = Authority::new();
    let long = with_status("200 OK", &" ".repeat(1_000_000));
    let server = Server::http(authority.leaf().config(), move |_| long.clone()).await;
    let prober = prober();
    for _ in 0..4 {
        let report = run(&prober, kept(hook(&authority.pem()), &server)).await;
        assert!(matches!(report.outcome, ProbeOutcome::Answered(_)), "{report:?}");
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_fresh_probe_leaves_the_kept_connection_alone() {
    let authority = Authority::new();
    let server = Server::http(authority.leaf().config(), |heard| ok(&allow(&heard))).await;
    let prober = prober();
    let fresh = || request(hook(&authority.pem()), server.address, ProbeLevel::Review);
    run(&prober, fresh()).await;
    assert_eq!(prober.pooled(), 0);
    run(&prober, kept(hook(&authority.pem()), &server)).await;
    run(&prober, fresh()).await;
    assert_eq!((server.accepted(), prober.pooled()), (3, 1));
}

#[tokio::test]
async fn a_kept_connection_that_went_silent_times_out_while_fresh_ones_are_fine() {
    let authority = Authority::new();
    let dead = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&dead);
    let server = Server::tls(authority.leaf().config(), move |mut conversation, nth| {
        let dead = Arc::clone(&switch);
        async move {
            while let Ok(heard) = conversation.hear().await {
                if nth == 0 && dead.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                let _ = conversation.say(&ok(&allow(&heard))).await;
            }
        }
    })
    .await;
    let prober = prober();
    let on_kept = || ProbeRequest {
        deadline: SCANT,
        ..kept(hook(&authority.pem()), &server)
    };
    assert_eq!(run(&prober, on_kept()).await.outcome, ALLOWED);
    dead.store(true, Ordering::SeqCst);
    let stale = run(&prober, on_kept()).await;
    assert_eq!(
        stale.outcome,
        ProbeOutcome::TimedOut {
            phase: ProbePhase::FirstByte
        }
    );
    assert_eq!(stale.phases.connect, None, "nothing was dialled");
    let fresh = run(
        &prober,
        request(hook(&authority.pem()), server.address, ProbeLevel::Review),
    )
    .await;
    assert_eq!(fresh.outcome, ALLOWED);
    // The silent connection is gone; the next kept probe dials, as the API server's pool does.
    assert_eq!(run(&prober, on_kept()).await.outcome, ALLOWED);
}

#[tokio::test]
async fn a_connection_the_server_closed_in_the_meantime_is_redialled() {
    let authority = Authority::new();
    let server = Server::tls(authority.leaf().config(), |mut conversation, _| async move {
        if let Ok(heard) = conversation.hear().await {
            let _ = conversation.say(&ok(&allow(&heard))).await;
        }
    })
    .await;
    let prober = prober();
    for _ in 0..5 {
        let report = run(&prober, kept(hook(&authority.pem()), &server)).await;
        assert_eq!(report.outcome, ALLOWED);
        assert!(report.phases.connect.is_some() && report.phases.tls.is_some());
    }
    assert_eq!(server.accepted(), 5);
}

#[tokio::test]
async fn a_connection_closed_upon_the_request_is_redialled_once() {
    let authority = Authority::new();
    let server = Server::tls(authority.leaf().config(), |mut conversation, nth| async move {
        if let Ok(heard) = conversation.hear().await {
            let _ = conversation.say(&ok(&allow(&heard))).await;
        }
        // The close crosses the next request.
        if nth == 0 {
            let _ = conversation.hear().await;
        } else {
            conversation.stay_silent().await;
        }
    })
    .await;
    let prober = prober();
    for _ in 0..2 {
        let report = run(&prober, kept(hook(&authority.pem()), &server)).await;
        assert_eq!(report.outcome, ALLOWED);
    }
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn a_server_that_is_gone_altogether_is_refused_on_the_kept_connection_too() {
    let authority = Authority::new();
    let server = Server::http(authority.leaf().config(), |heard| ok(&allow(&heard))).await;
    let prober = prober();
    let on_kept = kept(hook(&authority.pem()), &server);
    assert_eq!(run(&prober, on_kept.clone()).await.outcome, ALLOWED);
    server.stop().await;
    let report = run(&prober, on_kept).await;
    assert_eq!(
        (report.outcome, report.connection),
        (ProbeOutcome::Refused, ConnectionKind::Kept)
    );
}

#[tokio::test]
async fn a_connection_does_not_outlive_the_bundle_or_the_name_it_was_made_for() {
    let authority = Authority::new();
    let server = Server::http(authority.leaf().config(), |heard| ok(&allow(&heard))).await;
    let prober = prober();
    run(&prober, kept(hook(&authority.pem()), &server)).await;
    let widened = format!("{}{}", authority.pem(), Authority::new().pem());
    run(&prober, kept(hook(&widened), &server)).await;
    assert_eq!(server.accepted(), 2);
    let mut elsewhere = hook(&widened);
    if let crate::domain::cluster::hook::HookTarget::Service(target) = &mut elsewhere.target {
        target.port = 8443;
    }
    run(&prober, kept(elsewhere, &server)).await;
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn a_forgotten_connection_is_closed() {
    let authority = Authority::new();
    let (closed, mut ends) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::tls(authority.leaf().config(), move |mut conversation, _| {
        let closed = closed.clone();
        async move {
            while let Ok(heard) = conversation.hear().await {
                let _ = conversation.say(&ok(&allow(&heard))).await;
            }
            closed.send(()).expect("the test listens");
        }
    })
    .await;
    let prober = prober();
    let request = kept(hook(&authority.pem()), &server);
    let target = target(&request);
    run(&prober, request).await;
    prober.forget(&target);
    assert_eq!(prober.pooled(), 0);
    ends.recv().await.expect("the connection ends");
}

#[tokio::test]
async fn no_more_connections_are_kept_than_allowed() {
    let authority = Authority::new();
    let prober = prober_with(ProbeLimits {
        pooled: 2,
        ..ProbeLimits::default()
    });
    let mut servers = Vec::new();
    for _ in 0..4 {
        let server = Server::http(authority.leaf().config(), |heard| ok(&allow(&heard))).await;
        run(&prober, kept(hook(&authority.pem()), &server)).await;
        servers.push(server);
    }
    assert_eq!(prober.pooled(), 2);
    for server in &servers {
        run(&prober, kept(hook(&authority.pem()), server)).await;
    }
    let dialled = servers.iter().map(Server::accepted).collect::<Vec<_>>();
    assert_eq!(dialled, [1, 1, 2, 2], "those that were there first stay");
}

#[tokio::test]
async fn a_connection_that_is_not_asked_for_again_makes_room() {
    let authority = Authority::new();
    let prober = prober_with(ProbeLimits {
        pooled: 1,
        ..ProbeLimits::default()
    });
    let forgotten = Server::http(authority.leaf().config(), |heard| ok(&allow(&heard))).await;
    run(&prober, kept(hook(&authority.pem()), &forgotten)).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(91)).await;
    tokio::time::resume();
    let server = Server::http(authority.leaf().config(), |heard| ok(&allow(&heard))).await;
    let request = kept(hook(&authority.pem()), &server);
    run(&prober, request.clone()).await;
    assert!(prober.keeps(&target(&request)));
}

#[tokio::test]
async fn a_server_that_wants_no_kept_connections_is_well_all_the_same() {
    let authority = Authority::new();
    let server = Server::tls(authority.leaf().config(), |mut conversation, _| async move {
        let _ = conversation.hear().await;
        let answer = with_status("401 Unauthorized", "").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        let _ = conversation.say(&answer).await;
    })
    .await;
    let prober = prober();
    for _ in 0..3 {
        let report = run(&prober, kept(hook(&authority.pem()), &server)).await;
        assert_eq!(
            report.outcome,
            ProbeOutcome::Answered(ProbeAnswer::ReviewRefused { status: 401 })
        );
    }
    assert_eq!(server.accepted(), 3);
}

#[tokio::test]
async fn a_backend_that_has_left_is_asked_on_its_kept_connection_and_never_dialled() {
    let authority = Authority::new();
    let server = Server::http(authority.leaf().config(), |heard| ok(&allow(&heard))).await;
    let prober = prober();
    let gone = || ProbeRequest {
        gone: true,
        ..kept(hook(&authority.pem()), &server)
    };
    let without = run(&prober, gone()).await;
    assert!(matches!(without.outcome, ProbeOutcome::NotProbed { .. }));
    assert_eq!(server.accepted(), 0);
    run(&prober, kept(hook(&authority.pem()), &server)).await;
    let first = gone();
    assert!(prober.keeps(&target(&first)));
    assert_eq!(run(&prober, first).await.outcome, ALLOWED);
    let again = gone();
    prober.forget(&target(&again));
    assert!(!prober.keeps(&target(&again)));
    let after = run(&prober, again).await;
    assert!(matches!(after.outcome, ProbeOutcome::NotProbed { .. }));
    assert_eq!(server.accepted(), 1);
}
