//! The clocks that run while the control plane's own writes are held up, and what happens when they run out.

use std::time::Duration;

use crate::observe::canaries::Canaries;
use crate::observe::canary::{CanaryOutcome, CanaryTarget};
use crate::time::Time;

/// Something that gives up when its writes do not get through for so long.
struct Clock {
    /// The canary that stands for its writes.
    canary: CanaryTarget,
    after: Duration,
    /// What happens then, to be followed by when.
    what: &'static str,
    /// After what.
    why: &'static str,
}

/// Defaults of Kubernetes 1.36. Leader election: renewed for 10 s, each attempt cut at 5 s
/// (`component-base/config/options/leaderelectionconfig.go`, `client-go/tools/leaderelection`). Nodes:
/// `--node-monitor-grace-period` is 50 s. Repair by the cloud: about 10 min on GKE, and as long elsewhere.
const CLOCKS: [Clock; 3] = [
    Clock {
        canary: CanaryTarget::KubeSystem,
        after: Duration::from_secs(10),
        what: "Leaders lose their Lease and exit",
        why: "10 s without a renewal",
    },
    Clock {
        canary: CanaryTarget::NodeLease,
        after: Duration::from_secs(50),
        what: "Nodes turn NotReady",
        why: "about 50 s without a renewed Lease",
    },
    Clock {
        canary: CanaryTarget::NodeLease,
        after: Duration::from_secs(600),
        what: "Clouds that repair nodes begin to replace them",
        why: "they usually wait 10 min",
    },
];

/// What runs out, the first first, while writes are blocked since an instant; only as far as a canary shows that such
/// writes do not get through.
pub fn running(canaries: &Canaries, since: Time, now: Time) -> Vec<String> {
    let blocked: Vec<CanaryTarget> = canaries
        .iter()
        .filter(|(_, memory)| {
            let refused = memory.latest(now).is_some_and(|report| {
                matches!(
                    report.outcome,
                    CanaryOutcome::CallFailed(_)
                        | CanaryOutcome::TimedOut
                        | CanaryOutcome::Unreachable { .. }
                )
            });
            refused || memory.hung_for(now).is_some()
        })
        .map(|(target, _)| target)
        .collect();
    CLOCKS
        .iter()
        .filter(|clock| blocked.contains(&clock.canary))
        .map(|clock| {
            let due = since + clock.after;
            let when = if due > now {
                format!(" in {} at most", lasting(due.since(now)))
            } else {
                format!(": expected {} ago at the latest", lasting(now.since(due)))
            };
            format!("{}{when} ({}).", clock.what, clock.why)
        })
        .collect()
}

/// Whole seconds, or minutes from two on.
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

    #[test]
    fn only_clocks_whose_writes_do_not_get_through_are_told_with_the_time_they_have_left() {
        let mut canaries = Canaries::default();
        canaries.overdue(&CanaryOverdue {
            target: CanaryTarget::NodeLease,
            started: at(0),
            waiting: Duration::from_secs(12),
        });
        canaries.finished(CanaryReport {
            target: CanaryTarget::KubeSystem,
            started: at(10),
            took: Duration::from_millis(5),
            created: false,
            outcome: CanaryOutcome::Written,
        });
        let told = running(&canaries, at(0), at(12));
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0] == "Nodes turn NotReady in 38 s at most (about 50 s without a renewed Lease).",
            "{told:?}"
        );
        assert!(told[1].contains("replace them in 10 min at most"), "{told:?}");
    }

    #[test]
    fn a_clock_that_has_run_out_says_since_when() {
        let mut canaries = Canaries::default();
        canaries.finished(CanaryReport {
            target: CanaryTarget::KubeSystem,
            started: at(20),
            took: Duration::from_secs(10),
            created: false,
            outcome: CanaryOutcome::TimedOut,
        });
        let told = running(&canaries, at(0), at(31));
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with("Leaders lose their Lease and exit: expected 21 s ago at the latest (10 s"),
            "{told:?}"
        );
    }
}
