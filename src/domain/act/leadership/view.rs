//! A replica's leadership, as the page, the metrics and the alerts show it.

use std::sync::Arc;

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use super::{LeadershipObject, ReplicaReport, ReplicaStanding, Undecided};
use crate::text::named;
use crate::time::Time;

/// A replica's role in the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReplicaRole {
    /// It writes Events, pushes alerts and bypasses; other replicas do not, but for a shield in an emergency.
    Leader,
    /// Another replica leads.
    Follower,
    /// No leader is known. Kept apart from [`Self::Follower`], since an alert is about it.
    Unknown,
}

named!(ReplicaRole, "The value of the `role` label in metrics.", all);

/// This replica among the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplicaView {
    /// Its name in the election.
    pub identity: Arc<str>,
    /// Its role now.
    pub role: ReplicaRole,
    /// Who leads; `None` when unknown.
    pub holder: Option<Arc<str>>,
    /// Which object that was decided by.
    pub by: Option<LeadershipObject>,
    /// When its role, the leader or the deciding object last changed.
    pub since: Time,
    /// Why it can neither lead nor follow, as a clause; `None` without trouble.
    pub trouble: Option<String>,
}

impl ReplicaView {
    /// What a report means at this instant; `before` is what was shown last.
    pub fn of(report: &ReplicaReport, before: Option<&Self>, now: Time) -> Self {
        let (role, leader, why) = match &report.standing {
            ReplicaStanding::Leading { by, .. } if report.leads(now) => {
                (ReplicaRole::Leader, Some((&report.identity, *by)), None)
            }
            ReplicaStanding::Leading { .. } => {
                let why = "this replica could not renew its leadership in time";
                (ReplicaRole::Unknown, None, Some(why))
            }
            ReplicaStanding::Following { holder, by } => (ReplicaRole::Follower, Some((holder, *by)), None),
            ReplicaStanding::Undecided(Undecided::LeaseBlocked) => {
                let why = "the Lease cannot be written, and no replica has acquired the ledger yet";
                (ReplicaRole::Unknown, None, Some(why))
            }
            // Every start and handover takes about a second without a leader: that needs no explanation.
            ReplicaStanding::Undecided(_) => (ReplicaRole::Unknown, None, None),
        };
        let (holder, by) = leader.unzip();
        let mut view = Self {
            identity: Arc::clone(&report.identity),
            role,
            holder: holder.cloned(),
            by,
            since: now,
            trouble: report.trouble.clone().or(why.map(str::to_owned)),
        };
        if let Some(before) = before.filter(|before| before.same_leadership(&view)) {
            view.since = before.since;
        }
        view
    }

    /// What a replica that does not lead says while a webhook fails. `holder` is the leader, where it is known.
    pub fn only_the_leader_shows(holder: Option<&str>) -> String {
        let leader = holder.map_or_else(
            || ", and no leader is known".to_owned(),
            |name| format!(": {name}"),
        );
        format!(
            "This replica does not lead. What would be bypassed, or is held back, only the leader shows{leader}."
        )
    }

    /// Whether role, leader and deciding object are equal; `since` and `trouble` may differ.
    pub fn same_leadership(&self, other: &Self) -> bool {
        (self.role, &self.holder, self.by) == (other.role, &other.holder, other.by)
    }
}
