//! Backends that never come to an end.

use std::net::SocketAddr;
use std::time::Duration;

use super::server::{Authority, Server};
use super::{AMPLE, SCANT, endpoint, hook, prober, prober_with, request, run};
use crate::domain::cluster::hook::ProbeLevel;
use crate::domain::observe::probe::{ConnectionKind, ProbeAnswer, ProbeOutcome, ProbeOverdue, ProbePhase};
use crate::io::observe::probe::dial::connect;
use crate::io::observe::probe::{ProbeLimits, ProbeNews};
use crate::io::testing::full_listener;

/// A probe with a short deadline against `address`, which must end as timed out in `phase`.
async fn times_out(bundle: &str, address: std::net::SocketAddr, phase: ProbePhase) {
    let mut request = request(hook(bundle), address, ProbeLevel::Review);
    request.deadline = SCANT;
    let report = run(&prober(), request).await;
    assert_eq!(report.outcome, ProbeOutcome::TimedOut { phase });
    assert!(report.took >= SCANT);
    assert!(
        report.phases.get(phase).is_some(),
        "the phase it hung in has a duration"
    );
}

#[tokio::test]
async fn a_connection_that_is_not_accepted_times_out_there() {
    let Some((listener, _queued)) = full_listener().await else {
        return;
    };
    let address = listener.local_addr().expect("an address");
    times_out(&Authority::new().pem(), address, ProbePhase::Connect).await;
}

#[tokio::test]
async fn an_address_that_hangs_is_no_fault_while_another_one_of_the_name_answers() {
    let [hung, good] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let dial = |address| async move {
        if address == hung {
            std::future::pending().await
        } else {
            Ok(address)
        }
    };
    let connected = tokio::time::timeout(AMPLE, connect(&[hung, good], dial)).await;
    assert_eq!(connected.expect("in time").expect("a connection"), good);
}

#[tokio::test]
async fn a_handshake_that_is_not_answered_times_out_there() {
    let server = Server::hung().await;
    times_out(&Authority::new().pem(), server.address, ProbePhase::Tls).await;
}

#[tokio::test]
async fn a_review_that_is_not_answered_times_out_there() {
    let authority = Authority::new();
    let server = Server::silent(authority.leaf().config()).await;
    times_out(&authority.pem(), server.address, ProbePhase::FirstByte).await;
}

#[tokio::test]
async fn an_answer_that_stops_in_the_middle_times_out_there() {
    let authority = Authority::new();
    let server = Server::tls(authority.leaf().config(), |mut conversation, _| async move {
        let _ = conversation.hear().await;
        let _ = conversation
            .say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            .await;
        conversation.stay_silent().await;
    })
    .await;
    times_out(&authority.pem(), server.address, ProbePhase::Body).await;
}

#[tokio::test]
async fn an_answer_that_drips_without_end_times_out() {
    let authority = Authority::new();
    let server = Server::tls(authority.leaf().config(), |mut conversation, _| async move {
        let _ = conversation.hear().await;
        let _ = conversation
            .say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        while conversation.say("1\r\n \r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    times_out(&authority.pem(), server.address, ProbePhase::Body).await;
}

#[tokio::test]
async fn the_limits_of_go_hold_inside_a_longer_deadline() {
    let server = Server::hung().await;
    let limits = ProbeLimits {
        tls: Duration::from_millis(200),
        ..ProbeLimits::default()
    };
    let bundle = Authority::new().pem();
    let report = run(
        &prober_with(limits),
        request(hook(&bundle), server.address, ProbeLevel::Http),
    )
    .await;
    assert_eq!(
        report.outcome,
        ProbeOutcome::TimedOut {
            phase: ProbePhase::Tls
        }
    );
    assert!(report.took < AMPLE);
}

#[tokio::test]
async fn no_deadline_is_longer_than_the_longest() {
    let server = Server::hung().await;
    let limits = ProbeLimits {
        longest: Duration::from_millis(200),
        ..ProbeLimits::default()
    };
    let bundle = Authority::new().pem();
    let mut request = request(hook(&bundle), server.address, ProbeLevel::Http);
    request.deadline = Duration::MAX;
    let report = run(&prober_with(limits), request).await;
    assert_eq!(
        report.outcome,
        ProbeOutcome::TimedOut {
            phase: ProbePhase::Tls
        }
    );
}

#[tokio::test]
async fn an_overdue_probe_is_reported_once_at_each_mark() {
    let authority = Authority::new();
    let server = Server::silent(authority.leaf().config()).await;
    let marks = [SCANT / 2, SCANT * 3 / 4];
    let prober = prober_with(ProbeLimits {
        overdue: marks,
        ..ProbeLimits::default()
    });
    let mut request = request(hook(&authority.pem()), server.address, ProbeLevel::Http);
    request.deadline = SCANT;
    let mut overdue: Vec<ProbeOverdue> = Vec::new();
    let mut hear = |news| match news {
        ProbeNews::Overdue(late) => overdue.push(late),
        ProbeNews::Shaken(_) => {}
    };
    let report = prober.probe(request, &mut hear).await;
    assert_eq!(
        report.outcome,
        ProbeOutcome::TimedOut {
            phase: ProbePhase::FirstByte
        }
    );
    assert_eq!(overdue.len(), 2);
    for (late, mark) in overdue.iter().zip(marks) {
        assert!(late.waiting >= mark);
        assert_eq!(
            (late.phase, late.connection, &late.backend, late.started),
            (
                ProbePhase::FirstByte,
                ConnectionKind::Fresh,
                &endpoint(server.address),
                report.started
            )
        );
    }
}

#[tokio::test]
async fn a_quick_probe_is_never_overdue() {
    let authority = Authority::new();
    let server = Server::silent(authority.leaf().config()).await;
    let prober = prober_with(ProbeLimits {
        overdue: [AMPLE; 2],
        ..ProbeLimits::default()
    });
    let request = request(hook(&authority.pem()), server.address, ProbeLevel::Handshake);
    let report = prober.probe(request, |late| panic!("{late:?}")).await;
    assert!(report.outcome.is_alive());
}

#[tokio::test]
async fn a_handshake_is_told_of_while_the_answer_is_waited_for() {
    let authority = Authority::new();
    let server = Server::silent(authority.leaf().config()).await;
    let mut request = request(hook(&authority.pem()), server.address, ProbeLevel::Http);
    request.deadline = SCANT;
    let mut told = Vec::new();
    let report = prober()
        .probe(request, |news| {
            if let ProbeNews::Shaken(report) = news {
                told.push(report);
            }
        })
        .await;
    let phase = ProbePhase::FirstByte;
    assert_eq!(report.outcome, ProbeOutcome::TimedOut { phase });
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].outcome, ProbeOutcome::Answered(ProbeAnswer::Handshake));
    assert!(told[0].took < SCANT && told[0].phases.tls.is_some());
    assert!(told[0].certificates.served_not_after.is_some());
}
