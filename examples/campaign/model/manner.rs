//! How a backend behaves, and how a request to it ends.

use super::timeline::Timeline;
use super::{At, SECOND, seconds};

/// How a backend behaves towards one client: the API server or hookwatch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Manner {
    /// It answers in its usual time.
    Well,
    /// It answers, this many seconds later than usual.
    Slow(f64),
    /// It accepts the connection and the request and never answers.
    Silent,
    /// The process is stopped, as by SIGSTOP: the kernel accepts connections, but no TLS handshake and no answer follows.
    Stopped,
    /// Its process is gone: connections are refused, and those that were open are closed.
    Refusing,
    /// Its host is gone, or a firewall drops everything: no packet is answered, not even on open connections.
    Vanished,
    /// It answers reviews with this HTTP status.
    Failing(u16),
    /// It answers 200 with a body that is not an AdmissionReview.
    Nonsense,
    /// It closes every connection without an answer.
    Cutting,
    /// New TLS handshakes fail; open connections still work.
    BadCertificate,
    /// New connections fail at once with "no route to host"; requests on open connections get no answer.
    Unroutable,
}

/// The phase that a request was in when it timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Connect,
    Tls,
    Answer,
}

/// How a request to a webhook ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A usable AdmissionReview.
    Answered,
    /// This HTTP error status.
    Status(u16),
    /// Status 200 with a body that is not an AdmissionReview.
    Nonsense,
    /// It timed out, in this phase.
    TimedOut(Stage),
    /// Connection refused.
    Refused,
    /// No route to the host.
    Unroutable,
    /// The certificate was rejected.
    Tls,
    /// The connection was closed without an answer.
    Cut,
    /// The Service has no ready endpoint, as reported by an API server that picks endpoints itself (`Routing::Endpoints`).
    NoEndpoints,
    /// The Service does not exist.
    NoService,
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Met {
    /// When it ended.
    pub ended: At,
    pub end: End,
    /// Whether its connection can be reused.
    pub keeps: bool,
}

/// A request to one backend.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// When it begins.
    pub at: At,
    /// When its time runs out.
    pub limit: At,
    /// How long a healthy backend takes to answer, without the handshake.
    pub latency: At,
    /// Whether it uses a connection that is already open.
    pub open: bool,
}

/// Time for the TCP and TLS handshakes with a healthy backend: 1.7 ms.
const HANDSHAKE: At = SECOND / 600;
/// Time until an immediate failure (refused, no route, reset, bad certificate) comes back: 0.25 ms.
const AT_ONCE: At = SECOND / 4_000;
/// The API server's timeout for a TLS handshake (Go's default `TLSHandshakeTimeout`).
const TLS_PATIENCE: At = 10 * SECOND;

/// Simulates a request to a backend that behaves as `manner` says, including changes of behaviour while it waits.
pub fn meet(manner: &Timeline<Manner>, attempt: Attempt) -> Met {
    let Attempt {
        at,
        limit,
        latency,
        open,
    } = attempt;
    let change = manner.next_change(at).unwrap_or(At::MAX);
    let met = |ended: At, end, keeps| Met { ended, end, keeps };
    let handshake = if open { 0 } else { HANDSHAKE };
    let failed_at_once = |end| met((at + AT_ONCE + handshake).min(limit), end, false);
    // Answers after `takes`, unless the behaviour changes or the request times out first.
    let answers = |takes: At, end| {
        let ended = at + handshake + takes;
        if change < ended.min(limit) {
            let left = Attempt {
                at: change,
                latency: ended - change,
                open: true,
                ..attempt
            };
            return meet_midway(manner, left);
        }
        if ended <= limit {
            met(ended, end, true)
        } else {
            met(limit, End::TimedOut(Stage::Answer), false)
        }
    };
    // Nothing comes back until the behaviour changes or the request times out.
    let hangs = |stage: Stage| {
        let patience = match stage {
            Stage::Tls => limit.min(at + TLS_PATIENCE),
            Stage::Connect | Stage::Answer => limit,
        };
        if change < patience {
            let again = Attempt {
                at: change,
                ..attempt
            };
            return match stage {
                Stage::Answer => meet_midway(manner, Attempt { open: true, ..again }),
                Stage::Connect | Stage::Tls => meet(manner, again),
            };
        }
        met(patience, End::TimedOut(stage), false)
    };
    match *manner.at(at) {
        Manner::Well => answers(latency, End::Answered),
        Manner::Slow(extra) => answers(latency + seconds(extra), End::Answered),
        Manner::Failing(status) => answers(latency, End::Status(status)),
        Manner::Nonsense => answers(latency, End::Nonsense),
        Manner::Silent => hangs(Stage::Answer),
        Manner::Stopped if open => hangs(Stage::Answer),
        Manner::Stopped => hangs(Stage::Tls),
        Manner::Vanished if open => hangs(Stage::Answer),
        Manner::Vanished => hangs(Stage::Connect),
        Manner::Unroutable if open => hangs(Stage::Answer),
        Manner::Unroutable => failed_at_once(End::Unroutable),
        // A pooled connection that the process closed is replaced by a new dial, which is refused.
        Manner::Refusing => failed_at_once(End::Refused),
        Manner::Cutting => failed_at_once(End::Cut),
        Manner::BadCertificate if open => answers(latency, End::Answered),
        Manner::BadCertificate => failed_at_once(End::Tls),
    }
}

/// Like [`meet`], for a request that the backend has already received: its connection breaks if the process is gone.
fn meet_midway(manner: &Timeline<Manner>, attempt: Attempt) -> Met {
    match manner.at(attempt.at) {
        Manner::Refusing => Met {
            ended: attempt.at,
            end: End::Cut,
            keeps: false,
        },
        _ => meet(manner, attempt),
    }
}

/// Whether the process was gone at any time in a span (`from` to `until`), which closed the connections from before it.
pub fn was_gone(manner: &Timeline<Manner>, from: At, until: At) -> bool {
    manner
        .within(from, until)
        .any(|manner| matches!(manner, Manner::Refusing | Manner::Cutting))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: At = SECOND / 1_000;

    fn attempt(at: At, open: bool) -> Attempt {
        Attempt {
            at,
            limit: at + 10 * SECOND,
            latency: 2 * MS,
            open,
        }
    }

    fn met(manner: Manner, open: bool) -> (End, At) {
        let met = meet(&Timeline::always(manner), attempt(SECOND, open));
        (met.end, met.ended - SECOND)
    }

    #[test]
    fn a_stopped_process_costs_the_whole_timeout_in_the_phase_the_connection_is_in() {
        assert_eq!(
            met(Manner::Stopped, true),
            (End::TimedOut(Stage::Answer), 10 * SECOND)
        );
        assert_eq!(
            met(Manner::Stopped, false),
            (End::TimedOut(Stage::Tls), 10 * SECOND)
        );
        assert_eq!(
            met(Manner::Vanished, false),
            (End::TimedOut(Stage::Connect), 10 * SECOND)
        );
    }

    #[test]
    fn a_refusal_comes_sooner_than_an_answer() {
        let (end, took) = met(Manner::Refusing, true);
        assert_eq!(end, End::Refused);
        assert!(took < met(Manner::Well, true).1);
    }

    #[test]
    fn an_expired_certificate_is_met_by_new_connections_only() {
        assert_eq!(met(Manner::BadCertificate, true).0, End::Answered);
        assert_eq!(met(Manner::BadCertificate, false).0, End::Tls);
    }

    #[test]
    fn a_process_that_goes_on_answers_what_it_was_asked_before() {
        let mut manner = Timeline::always(Manner::Stopped);
        manner.set(4 * SECOND, Manner::Well);
        let met = meet(&manner, attempt(SECOND, true));
        assert_eq!((met.end, met.ended), (End::Answered, 4 * SECOND + 2 * MS));
    }

    #[test]
    fn a_process_that_dies_cuts_off_what_it_was_asked() {
        let mut manner = Timeline::always(Manner::Slow(5.0));
        manner.set(4 * SECOND, Manner::Refusing);
        let met = meet(&manner, attempt(SECOND, true));
        assert_eq!((met.end, met.ended, met.keeps), (End::Cut, 4 * SECOND, false));
    }

    #[test]
    fn an_answer_later_than_the_timeout_is_none() {
        assert_eq!(
            met(Manner::Slow(12.0), true),
            (End::TimedOut(Stage::Answer), 10 * SECOND)
        );
    }
}
