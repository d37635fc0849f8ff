//! Whether kubelets renew their Leases in `kube-node-lease`.
//!
//! A kubelet renews its Lease every 10 s. hookwatch checks whether `renewTime` changes and measures the time by its own clock,
//! since the clocks of nodes may be wrong. Late Leases are a symptom: whatever the cause, these nodes become NotReady.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::text::human;
use crate::time::Time;

/// A Lease that has not changed for this long, or for its own `leaseDurationSeconds` if that is longer, is late. Kubelets set 40.
pub const LATE: Duration = Duration::from_secs(40);
/// Most Leases kept.
pub const MAX_NODES: usize = 10_000;
/// A reading older than this says nothing about the present.
const STALE: Duration = Duration::from_secs(45);

/// The used fields of one Lease.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodeLease {
    /// The node's name.
    pub name: String,
    /// `spec.renewTime` as text: only whether it changes matters.
    pub renewed: String,
    /// `spec.leaseDurationSeconds`.
    pub duration: Duration,
}

/// One LIST of all node Leases.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LeaseReading {
    /// When the list was complete, or given up.
    pub at: Time,
    /// The Leases, or why they could not be listed.
    pub outcome: Result<LeaseList, LeaseTrouble>,
}

/// The Leases of one list.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct LeaseList {
    /// At most [`MAX_NODES`].
    pub leases: Vec<NodeLease>,
    /// How many more Leases the list had.
    pub left_out: usize,
}

/// Why the Leases could not be listed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum LeaseTrouble {
    /// The API server answered 401 or 403.
    Forbidden {
        /// The missing permission, as a sentence.
        why: String,
    },
    /// Any other error.
    Unreadable {
        /// The error, as text.
        why: String,
    },
}

/// The node Leases, and when each was last seen to change.
#[derive(Debug, Clone, Default)]
pub struct NodeLeases {
    known: BTreeMap<String, KnownLease>,
    read: Option<Time>,
    left_out: usize,
    trouble: Option<LeaseTrouble>,
}

#[derive(Debug, Clone)]
struct KnownLease {
    renewed: String,
    changed: Time,
    late_after: Duration,
}

/// The state of the nodes' Leases as shown to users.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct NodeLeasesView {
    /// `current`, `none` (there are no nodes), `forbidden`, `unreadable` or `untried`.
    pub state: &'static str,
    /// A sentence about the state; for `forbidden`, the missing permission.
    pub detail: String,
    /// Node Leases seen.
    pub nodes: usize,
    /// How many of them are late: not renewed for over 40 s, or for their own longer `leaseDurationSeconds`.
    pub late: usize,
    /// Seconds since the oldest Lease was renewed, as of the last reading; `None` without Leases.
    pub oldest_age_seconds: Option<f64>,
    /// The node of the oldest Lease.
    pub oldest: Option<String>,
}

impl NodeLeases {
    /// Records a reading. After an error the Leases of the last successful one are kept.
    pub fn take(&mut self, reading: LeaseReading) {
        let at = reading.at;
        let LeaseList { leases, left_out } = match reading.outcome {
            Ok(list) => list,
            Err(trouble) => {
                self.trouble = Some(trouble);
                return;
            }
        };
        let mut before = std::mem::take(&mut self.known);
        for lease in leases.into_iter().take(MAX_NODES) {
            // The first reading of a Lease does not show how old it is.
            let changed = match before.remove(&lease.name) {
                Some(known) if known.renewed == lease.renewed => known.changed,
                _ => at,
            };
            let known = KnownLease {
                renewed: lease.renewed,
                changed,
                late_after: lease.duration.max(LATE),
            };
            self.known.insert(lease.name, known);
        }
        (self.read, self.left_out, self.trouble) = (Some(at), left_out, None);
    }

    /// Nodes with a late Lease, and when each Lease was last seen to change. Empty if over half are late: then the nodes are not
    /// at fault.
    pub fn late(&self, now: Time) -> BTreeMap<String, Time> {
        let Some(read) = self.read.filter(|read| now.since(*read) < STALE) else {
            return BTreeMap::new();
        };
        let is_late = |(_, known): &(&String, &KnownLease)| read.since(known.changed) > known.late_after;
        let late = self.known.iter().filter(is_late);
        let late: BTreeMap<String, Time> = late.map(|(name, known)| (name.clone(), known.changed)).collect();
        if late.len() * 2 > self.known.len() {
            return BTreeMap::new();
        }
        late
    }

    /// The state of the Leases now.
    pub fn view(&self, now: Time) -> NodeLeasesView {
        let read = self.read.filter(|read| now.since(*read) < STALE);
        let Some(read) = read else {
            let (state, detail) = match &self.trouble {
                None if self.read.is_none() => ("untried", "not read yet".to_owned()),
                None => ("unreadable", "not read recently".to_owned()),
                Some(LeaseTrouble::Forbidden { why }) => ("forbidden", why.clone()),
                Some(LeaseTrouble::Unreadable { why }) => ("unreadable", why.clone()),
            };
            return NodeLeasesView {
                state,
                detail,
                ..NodeLeasesView::default()
            };
        };
        // Ages are as of the last reading, since nothing is known of the time after it.
        let age = |known: &KnownLease| read.since(known.changed);
        let late = self.known.values().filter(|known| age(known) > known.late_after);
        let late = late.count();
        let oldest = self.known.iter().min_by_key(|(_, known)| known.changed);
        let detail = match oldest {
            None => "there is no node Lease in kube-node-lease".to_owned(),
            Some((name, known)) => {
                let more = match self.left_out {
                    0 => String::new(),
                    more => format!(" ({more} more were left out)"),
                };
                format!(
                    "{} nodes{more}, {late} late; the oldest lease, of {name:?}, was seen renewed {} before the last \
                     look",
                    self.known.len(),
                    human(age(known))
                )
            }
        };
        NodeLeasesView {
            state: if oldest.is_some() { "current" } else { "none" },
            detail,
            nodes: self.known.len(),
            late,
            oldest_age_seconds: oldest.map(|(_, known)| age(known).as_secs_f64()),
            oldest: oldest.map(|(name, _)| name.clone()),
        }
    }
}

impl NodeLeasesView {
    /// A sentence about late Leases; `None` if none is late.
    pub fn symptom(&self) -> Option<String> {
        let oldest = self.oldest_age_seconds.filter(|_| self.late > 0)?;
        Some(format!(
            "{} of {} nodes have not renewed their lease for over {} s (the oldest for {oldest:.0} s): they become \
             NotReady at about 50 s (40 s before Kubernetes 1.32).",
            self.late,
            self.nodes,
            LATE.as_secs(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_unix_millis(1_000_000 + seconds * 1_000)
    }

    fn lease(name: &str, renewed: u64) -> NodeLease {
        NodeLease {
            name: name.to_owned(),
            renewed: renewed.to_string(),
            duration: LATE,
        }
    }

    fn read(seconds: u64, leases: Vec<NodeLease>) -> LeaseReading {
        LeaseReading {
            at: at(seconds),
            outcome: Ok(LeaseList { leases, left_out: 0 }),
        }
    }

    #[test]
    fn a_lease_is_as_old_as_its_last_change_on_our_clock_whatever_it_says() {
        let mut leases = NodeLeases::default();
        for step in 0..=5 {
            let leases_now = vec![lease("alive", step), lease("in-the-future", 9_999_999_999)];
            leases.take(read(step * 10, leases_now));
        }
        let view = leases.view(at(51));
        assert_eq!((view.state, view.nodes, view.late), ("current", 2, 1));
        assert_eq!(view.oldest.as_deref(), Some("in-the-future"));
        assert_eq!(view.oldest_age_seconds, Some(50.0));
        let said = view.symptom().expect("one is late");
        assert!(
            said.starts_with("1 of 2 nodes have not renewed their lease for over 40 s"),
            "{said}"
        );
    }

    #[test]
    fn nothing_is_late_only_because_it_was_not_observed() {
        let mut leases = NodeLeases::default();
        leases.take(read(0, vec![lease("n", 1)]));
        leases.take(LeaseReading {
            at: at(30),
            outcome: Err(LeaseTrouble::Unreadable {
                why: "no answer within 10 s".to_owned(),
            }),
        });
        let view = leases.view(at(100));
        assert_eq!((view.state, view.late), ("unreadable", 0));
        assert_eq!(view.symptom(), None);
        leases.take(read(110, vec![lease("n", 2)]));
        assert_eq!(leases.view(at(110)).late, 0);
    }

    #[test]
    fn a_lease_that_was_not_renewed_during_a_gap_of_observation_is_late_after_it() {
        let mut leases = NodeLeases::default();
        leases.take(read(0, vec![lease("n", 1)]));
        leases.take(read(110, vec![lease("n", 1)]));
        assert_eq!(leases.view(at(110)).late, 1);
    }

    #[test]
    fn a_lease_with_a_longer_duration_of_its_own_is_late_later() {
        let patient = || NodeLease {
            duration: Duration::from_secs(120),
            ..lease("n", 1)
        };
        let mut leases = NodeLeases::default();
        leases.take(read(0, vec![patient()]));
        leases.take(read(100, vec![patient()]));
        assert_eq!(leases.view(at(100)).late, 0);
    }

    #[test]
    fn no_nodes_no_permission_and_no_look_yet_are_states_of_their_own() {
        let mut leases = NodeLeases::default();
        assert_eq!(leases.view(at(0)).state, "untried");
        leases.take(LeaseReading {
            at: at(0),
            outcome: Err(LeaseTrouble::Forbidden {
                why: "grant list".to_owned(),
            }),
        });
        assert_eq!(leases.view(at(0)).state, "forbidden");
        assert_eq!(leases.view(at(0)).detail, "grant list");
        leases.take(read(10, Vec::new()));
        assert_eq!(leases.view(at(10)).state, "none");
    }

    #[test]
    fn nodes_that_are_gone_are_forgotten() {
        let mut leases = NodeLeases::default();
        leases.take(read(0, vec![lease("a", 1), lease("b", 1)]));
        leases.take(read(60, vec![lease("b", 2)]));
        let view = leases.view(at(60));
        assert_eq!((view.nodes, view.late), (1, 0));
    }
}
