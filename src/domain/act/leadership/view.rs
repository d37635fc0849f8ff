//! A replica as a person sees it.

use std::sync::Arc;

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use super::{LeadershipObject, ReplicaReport, ReplicaStanding, Undecided};
use crate::domain::text::named;
use crate::domain::time::Time;

/// What a replica is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum ReplicaRole {
    /// It does what must be done once.
    Leader,
    /// Another one does.
    Follower,
    /// Nobody is known to. Never the same as following.
    Unknown,
}

named!(ReplicaRole, "The value of the `role` label in metrics.", all);

/// This replica among the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplicaView {
    /// Its name.
    pub identity: Arc<str>,
    /// What it is.
    pub role: ReplicaRole,
    /// Who leads, as far as is known.
    pub holder: Option<Arc<str>>,
    /// Which object that was decided by.
    pub by: Option<LeadershipObject>,
    /// Since when all that is so.
    pub since: Time,
    /// What stands in its way, as a sentence.
    pub trouble: Option<String>,
}

impl ReplicaView {
    /// What a report means at this instant; `before` is what was shown last.
    pub fn of(report: &ReplicaReport, before: Option<&Self>, now: Time) -> Self {
        let (role, holder, by, why) = match &report.standing {
            ReplicaStanding::Leading { by, until } if now < *until => (
                ReplicaRole::Leader,
                Some(Arc::clone(&report.identity)),
                Some(*by),
                None,
            ),
            ReplicaStanding::Leading { .. } => (
                ReplicaRole::Unknown,
                None,
                None,
                Some("it could not renew in time"),
            ),
            ReplicaStanding::Following { holder, by } => {
                (ReplicaRole::Follower, Some(Arc::clone(holder)), Some(*by), None)
            }
            ReplicaStanding::Undecided(why) => (ReplicaRole::Unknown, None, None, why.trouble()),
        };
        let mut view = Self {
            identity: Arc::clone(&report.identity),
            role,
            holder,
            by,
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

impl Undecided {
    /// Why no replica leads, where that is more than the second that every start and every handover takes.
    const fn trouble(self) -> Option<&'static str> {
        match self {
            Self::NotRead | Self::Contending => None,
            Self::LeaseBlocked => {
                Some("the Lease cannot be written, and no replica has acquired the ledger yet")
            }
        }
    }
}
