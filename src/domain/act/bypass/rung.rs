//! The rungs of a bypass, and the phases that it passes through.

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
    /// The hook is not called for what keeps the control plane alive, and stays enforced for everything else.
    Shield,
    /// The hook is called for nothing.
    Skip,
}

named!(
    Rung,
    "The name in flags, the configuration, annotations, the ledger and metrics.",
    parse
);

impl Rung {
    /// The match condition that puts this rung in force. Probation has one of its own.
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
    /// Fields that were changed are back; the annotation is still to be removed.
    Restored,
}

named!(BypassPhase, "The name in annotations.", parse);
