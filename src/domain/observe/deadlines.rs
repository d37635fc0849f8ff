//! The deadlines of the control plane's own writes: what happens when they are held up, and when.

use std::time::Duration;

use crate::observe::canaries::{Canaries, CanaryMemory};
use crate::observe::canary::{CanaryOutcome, CanaryTarget};
use crate::thresholds as t;
use crate::time::Time;

/// What happens when the writes of one kind of client do not get through for a given time.
struct WriteDeadline {
    /// The canary that represents its writes.
    canary: CanaryTarget,
    /// The client's timeout for one write; a slower write fails for it.
    attempt: fn() -> Duration,
    /// The latest time after the last successful write at which it happens, with default settings.
    after: Duration,
    /// What happens, as the beginning of a sentence; the time follows.
    what: &'static str,
    /// The condition for it, in parentheses at the end of the sentence.
    why: &'static str,
}

/// Defaults of Kubernetes 1.36. Leader election: leaders retry a renewal for 10 s, with a timeout of 5 s per attempt
/// (`component-base/config/options/leaderelectionconfig.go`, `client-go/tools/leaderelection`). Nodes:
/// `--node-monitor-grace-period` is 50 s, checked every 5 s (`--node-monitor-period`). Automatic node repair: after about 10 min
/// on GKE, and about as long on other clouds.
const DEADLINES: [WriteDeadline; 3] = [
    WriteDeadline {
        canary: CanaryTarget::KubeSystem,
        attempt: t::leader_attempt,
        after: Duration::from_secs(10),
        what: "Leaders lose their Lease and exit",
        why: "10 s without a renewal",
    },
    WriteDeadline {
        canary: CanaryTarget::NodeLease,
        attempt: t::kubelet_attempt,
        after: Duration::from_secs(55),
        what: "Nodes turn NotReady",
        why: "at the defaults 50 to 55 s without a renewed Lease",
    },
    WriteDeadline {
        canary: CanaryTarget::NodeLease,
        attempt: t::kubelet_attempt,
        after: Duration::from_secs(600),
        what: "Clouds that repair nodes begin to replace them",
        why: "they usually wait 10 min",
    },
];

/// Before this release `--node-monitor-grace-period` was 40 s, and [`NODES_THEN`] replaces the second of [`DEADLINES`].
const NODES_BEFORE: (u32, u32) = (1, 32);
const NODES_THEN: WriteDeadline = WriteDeadline {
    after: Duration::from_secs(45),
    why: "at the defaults 40 to 45 s without a renewed Lease",
    ..DEADLINES[1]
};

/// The deadlines that are running, one sentence each: leaders' Leases, nodes' Leases, node repair.
///
/// A deadline runs when its canary shows that such writes do not get through in time, or when `renewals_fail`: all renewals of
/// Leases fail, though dry runs may pass. It starts at `since`, when writes became blocked, or when such a canary last got
/// through in time, whichever is later (with `renewals_fail`, at `since`).
/// The leaders' canary writes a ConfigMap, not a Lease: `leaders_may_wait` is false where webhooks that hold it up are not called
/// for Leases. `release`: the oldest release of the API servers, if known; kube-controller-manager, which watches the nodes, may
/// have another one.
pub fn running(
    canaries: &Canaries,
    (leaders_may_wait, renewals_fail): (bool, bool),
    release: Option<(u32, u32)>,
    since: Time,
    now: Time,
) -> Vec<String> {
    let [leaders, nodes, repair] = DEADLINES;
    let is_older = release.is_some_and(|release| release < NODES_BEFORE);
    let nodes = if is_older { NODES_THEN } else { nodes };
    // The nodes' canary is a Lease, as leaders' renewals are. If it is refused too, the refusal is not only about ConfigMaps or
    // about the object of the leaders' canary.
    let leases_refused = canaries
        .get(CanaryTarget::NodeLease)
        .is_some_and(|memory| memory.turned_away(now).is_some());
    [leaders, nodes, repair]
        .into_iter()
        .filter(|deadline| leaders_may_wait || renewals_fail || deadline.canary != CanaryTarget::KubeSystem)
        .filter_map(|deadline| {
            if renewals_fail {
                return Some((since + deadline.after, deadline));
            }
            let memory = canaries.get(deadline.canary)?;
            let through = memory.written_within((deadline.attempt)());
            let is_refused = leases_refused && memory.turned_away(now).is_some();
            (is_refused || is_held_up(memory, &deadline, now))
                .then(|| (through.unwrap_or(since).max(since) + deadline.after, deadline))
        })
        .map(|(due, deadline)| {
            let when = if due > now {
                format!(" in {} at most", lasting(due.since(now)))
            } else {
                format!(": expected {} ago at the latest", lasting(now.since(due)))
            };
            format!("{}{when} ({}).", deadline.what, deadline.why)
        })
        .collect()
}

/// Whether a canary shows that writes like it fail, or take longer than their client waits.
fn is_held_up(memory: &CanaryMemory, deadline: &WriteDeadline, now: Time) -> bool {
    use CanaryOutcome::{CallFailed, TimedOut, Unreachable};
    let is_lost = memory.latest(now).is_some_and(|report| {
        let is_refused = matches!(report.outcome, CallFailed(_) | TimedOut | Unreachable { .. });
        is_refused || report.took >= (deadline.attempt)()
    });
    is_lost || memory.hung_for(now).is_some()
}

/// Whole seconds (at least 1) below two minutes, then minutes, rounded up.
fn lasting(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ ..120 => format!("{} s", seconds.max(1)),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::canary::{CanaryOverdue, CanaryReport};

    fn at(seconds: u64) -> Time {
        Time::from_unix_millis(1_000_000 + seconds * 1_000)
    }

    /// Of a canary that took so many seconds.
    fn report(target: CanaryTarget, started: u64, took: u64, outcome: CanaryOutcome) -> CanaryReport {
        CanaryReport {
            target,
            started: at(started),
            took: Duration::from_secs(took),
            created: false,
            outcome,
        }
    }

    /// That a canary of the nodes has been out for 12 s.
    fn nodes_wait() -> Canaries {
        let mut canaries = Canaries::default();
        canaries.overdue(&CanaryOverdue {
            target: CanaryTarget::NodeLease,
            started: at(0),
            waiting: Duration::from_secs(12),
        });
        canaries
    }

    #[test]
    fn only_deadlines_of_writes_that_do_not_get_through_are_told_with_the_time_they_have_left() {
        let mut canaries = nodes_wait();
        canaries.finished(report(CanaryTarget::KubeSystem, 10, 0, CanaryOutcome::Written));
        let told = running(&canaries, (true, false), None, at(0), at(12));
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0]
                == "Nodes turn NotReady in 43 s at most (at the defaults 50 to 55 s without a renewed Lease).",
            "{told:?}"
        );
        assert!(told[1].contains("replace them in 10 min at most"), "{told:?}");
    }

    #[test]
    fn before_kubernetes_1_32_nodes_are_given_ten_seconds_less() {
        let canaries = nodes_wait();
        let nodes = |release| running(&canaries, (true, false), release, at(0), at(12)).swap_remove(0);
        let before = nodes(Some((1, 31)));
        assert_eq!(
            before,
            "Nodes turn NotReady in 33 s at most (at the defaults 40 to 45 s without a renewed Lease)."
        );
        for since in [Some((1, 32)), Some((1, 36)), None] {
            assert!(nodes(since).contains("in 43 s at most"), "{since:?}");
        }
    }

    #[test]
    fn what_is_written_too_late_for_its_client_is_as_good_as_refused() {
        let mut canaries = Canaries::default();
        for target in [CanaryTarget::KubeSystem, CanaryTarget::NodeLease] {
            canaries.finished(report(target, 2, 6, CanaryOutcome::Written));
        }
        // A leader gives it up after 5 s, a kubelet after 10 s.
        let told = running(&canaries, (true, false), None, at(0), at(9));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("Leaders lose their Lease"), "{told:?}");
    }

    #[test]
    fn a_deadline_begins_when_a_canary_last_got_through_in_time_though_the_fault_is_older() {
        let mut canaries = Canaries::default();
        for (started, took) in [(1_790, 3), (1_795, 6)] {
            canaries.finished(report(
                CanaryTarget::KubeSystem,
                started,
                took,
                CanaryOutcome::Written,
            ));
        }
        let told = running(&canaries, (true, false), None, at(0), at(1_801));
        assert!(
            told[0].starts_with("Leaders lose their Lease and exit in 2 s at most"),
            "{told:?}"
        );
    }

    #[test]
    fn a_deadline_that_has_run_out_says_since_when() {
        let mut canaries = Canaries::default();
        canaries.finished(report(CanaryTarget::KubeSystem, 20, 10, CanaryOutcome::TimedOut));
        let told = running(&canaries, (true, false), None, at(0), at(31));
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with("Leaders lose their Lease and exit: expected 21 s ago at the latest (10 s"),
            "{told:?}"
        );
    }
}
