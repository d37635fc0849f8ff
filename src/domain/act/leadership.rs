//! Leader election: which of several replicas announces and acts.
//!
//! Two objects of the API server decide: a Lease, as for every controller, and, while a hook keeps the Lease from being
//! written, the ledger: a webhook configuration without webhooks, whose writes the API server never sends to a hook. Into either,
//! a replica writes its name with the version it has read as the precondition, so that of several writers one wins.
//!
//! Whether another replica's record has expired is judged only by how long *we* have seen it unchanged on our *own*
//! clock. The times in the record are another machine's and are never compared with ours. A leader steps down
//! ([`Terms::deadline`] after it *sent* the renewal that won) before another replica may take over ([`Terms::term`]
//! after they *saw* it), so there is a moment without a leader and never one with two, for as long as clocks run at
//! rates that differ by less than a fifth.
//!
//! Two objects could mean two leaders. Therefore a name that was written into one counts only once the other, read
//! *afterwards*, is seen not to be held by another replica; see [`candidate`].

pub mod candidate;
mod claim;
mod view;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use crate::text::named;
use crate::time::Time;

pub use candidate::Candidate;
pub use view::{ReplicaRole, ReplicaView};

/// An object that decides who leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LeadershipObject {
    /// The Lease in hookwatch's own namespace. Its writes pass through hooks.
    Lease,
    /// The ledger. Its writes pass through none.
    Ledger,
}

named!(LeadershipObject, "The value of the `by` label in metrics.", all);

impl LeadershipObject {
    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Lease => Self::Ledger,
            Self::Ledger => Self::Lease,
        }
    }
}

/// The times of an election, all following from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long a record must be seen unchanged before another replica may replace it.
    pub term: Duration,
}

impl Terms {
    /// Longest wait for another replica's record to expire, whatever term it states.
    pub const LONGEST: Duration = Duration::from_secs(600);

    /// How long after sending a renewal its sender may believe in it: two thirds of the term.
    pub fn deadline(self) -> Duration {
        self.term * 2 / 3
    }

    /// Time between two rounds, so that three of them fit into the [`deadline`](Self::deadline). A write that takes longer is
    /// not waited for.
    pub fn round(self) -> Duration {
        self.term / 5
    }

    /// Time between the starts of two rounds: [`round`](Self::round), less up to a fifth by a random `toss`, so that replicas
    /// that started together do not stay in step.
    pub fn pause(self, toss: u64) -> Duration {
        let less = u32::try_from(toss % 200).unwrap_or_default();
        self.round() * (1_000 - less) / 1_000
    }
}

/// The name that stands for the holder of an unreadable object. It expires like any other.
pub(super) const UNREADABLE: &str = "unreadable";

/// What an object says about its holder, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderRecord {
    /// Who holds it; `None` when it was released.
    pub holder: Option<Arc<str>>,
    /// For how long it holds without a renewal, as the holder wrote it; zero when it wrote nothing.
    pub term: Duration,
    /// How often it has changed hands.
    pub transitions: u64,
    /// `metadata.uid`: another one where the object was deleted and created again. Empty where no answer had it.
    pub uid: String,
    /// `resourceVersion`: equal for equal content and never used again.
    pub version: String,
}

/// The claim to be written into an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bid {
    /// The `resourceVersion` that the object must still have; `None` to create it, which fails where it exists.
    pub precondition: Option<String>,
    /// The name to write; `None` releases it.
    pub holder: Option<Arc<str>>,
    /// Whether the holder changes, so that its times restart.
    pub changes_hands: bool,
    /// How often it will have changed hands.
    pub transitions: u64,
    /// The term to write; in a Lease `leaseDurationSeconds`, rounded up.
    pub term: Duration,
}

/// The outcome of a [`Bid`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BidOutcome {
    /// It was written, and this is the version now.
    Done {
        /// The `resourceVersion` of the answer.
        version: String,
    },
    /// The precondition did not hold, as another client was faster, or an earlier write of ours; or there was no connection.
    /// Nothing was written.
    Conflict,
    /// It was refused, by a hook or otherwise; nothing was written.
    Refused,
    /// It is unknown whether it was written: there was no answer, or none that tells.
    Unclear,
}

/// A replica's standing in the election.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaStanding {
    /// This replica leads.
    Leading {
        /// The object that decided it.
        by: LeadershipObject,
        /// When it stops leading unless it renews.
        until: Time,
    },
    /// Another replica leads, as far as was observed.
    Following {
        /// The leader's name.
        holder: Arc<str>,
        /// The object that decided it.
        by: LeadershipObject,
    },
    /// No leader is known.
    Undecided(Undecided),
}

/// Why no leader is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Undecided {
    /// The Lease or the ledger has not been read.
    NotRead,
    /// The election is in progress.
    Contending,
    /// The Lease cannot be written, as where a hook blocks it, and no replica has won the ledger.
    LeaseBlocked,
}

/// A replica's report to the core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// Its name among the replicas.
    pub identity: Arc<str>,
    /// Its standing.
    pub standing: ReplicaStanding,
    /// What prevents it from leading or following, as a sentence.
    pub trouble: Option<String>,
}

impl ReplicaReport {
    /// Whether it leads at this instant.
    pub fn leads(&self, now: Time) -> bool {
        matches!(self.standing, ReplicaStanding::Leading { until, .. } if now < until)
    }
}

#[cfg(test)]
mod tests;
