//! How far a bypass goes, and where it stands.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantArray};

use crate::domain::cluster::condition::BypassCondition;

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
    EnumString,
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

impl Rung {
    /// All of them, the smallest first.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The name in the configuration, in annotations, on the command line, in labels and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Reads a name.
    ///
    /// # Errors
    /// With the names there are, when it is none of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|_| format!("{text:?} is not one of shield, skip"))
    }

    /// The match condition that makes it.
    pub const fn condition(self) -> BypassCondition {
        match self {
            Self::Shield => BypassCondition::Shield,
            Self::Skip => BypassCondition::Skip,
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a bypass stands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum BypassPhase {
    /// In force.
    Bypassed,
    /// Only hookwatch's own dry-run canaries reach the hook.
    Probation,
    /// The fields are back; what is left to do is to forget that they were ever changed.
    Restored,
}

impl BypassPhase {
    /// All of them.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The name in annotations.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Reads a name; `None` when it is none of them.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}
