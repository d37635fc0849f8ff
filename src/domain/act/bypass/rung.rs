//! How far a bypass goes, and where it stands.

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use crate::cluster::condition::BypassCondition;
use crate::text::named;

/// How far a bypass goes, the smallest first.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Rung {
    /// The hook skips what keeps the control plane alive and stays enforced for everything else.
    Shield,
    /// The hook skips everything.
    Skip,
}

named!(Rung, "The name wherever it is written.", parse);

impl Rung {
    /// The match condition that makes it.
    pub const fn condition(self) -> BypassCondition {
        match self {
            Self::Shield => BypassCondition::Shield,
            Self::Skip => BypassCondition::Skip,
        }
    }
}

/// Where a bypass stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum BypassPhase {
    /// In force.
    Bypassed,
    /// Only hookwatch's own dry-run canaries reach the hook.
    Probation,
    /// The fields are back; what is left to do is to forget that they were ever changed.
    Restored,
}

named!(BypassPhase, "The name in annotations.", parse);
