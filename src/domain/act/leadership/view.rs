//! A replica as a person sees it.

use std::sync::Arc;

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use super::{LeadershipObject, ReplicaReport, ReplicaStanding, Undecided};
use crate::text::named;
use crate::time::Time;

/// A replica's role, as a person sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReplicaRole {
    /// It does what must be done once.
    Leader,
    /// Another replica leads.
    Follower,
    /// No leader is known. Never the same as following.
    Unknown,
}

named!(ReplicaRole, "The value of the `role` label in metrics.", all);

/// This replica among the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplicaView {
    /// Its name in the election.
    pub identity: Arc<str>,
    /// What it is.
    pub role: ReplicaRole,
    /// Who leads; `None` when unknown.
    pub holder: Option<Arc<str>>,
    /// Which object that was decided by.
    pub by: Option<LeadershipObject>,
    /// Since when all that is so.
    pub since: Time,
    /// What prevents it, as a sentence.
    pub trouble: Option<String>,
}

impl ReplicaView {
    /// What a report means at this instant; `before` is what was shown last.
    pub fn of(report: &ReplicaReport, before: Option<&Self>, now: Time) -> Self {
        let (role, leads, why) = match &report.standing {
            ReplicaStanding::Leading { by, until } if now < *until => {
                (ReplicaRole::Leader, Some((&report.identity, *by)), None)
            }
            ReplicaStanding::Following { holder, by } => (ReplicaRole::Follower, Some((holder, *by)), None),
            ReplicaStanding::Leading { .. } => {
                (ReplicaRole::Unknown, None, Some("it could not renew in time"))
            }
            ReplicaStanding::Undecided(Undecided::LeaseBlocked) => {
                let why = "the Lease cannot be written, and no replica has acquired the ledger yet";
                (ReplicaRole::Unknown, None, Some(why))
            }
            // The second without a leader that every start and every handover takes is no trouble.
            ReplicaStanding::Undecided(_) => (ReplicaRole::Unknown, None, None),
        };
        let mut view = Self {
            identity: Arc::clone(&report.identity),
            role,
            holder: leads.map(|(holder, _)| Arc::clone(holder)),
            by: leads.map(|(_, by)| by),
            since: now,
            trouble: report.trouble.clone().or(why.map(str::to_owned)),
        };
        if let Some(before) = before.filter(|before| before.same_place(&view)) {
            view.since = before.since;
        }
        view
    }

    /// Whether nothing but words differs.
    pub fn same_place(&self, other: &Self) -> bool {
        (self.role, &self.holder, self.by) == (other.role, &other.holder, other.by)
    }
}
