//! How far a bypass goes, and where it stands.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::cluster::condition::Condition;

/// How far a bypass goes, the smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// The hook skips what keeps the control plane alive and stays enforced for everything else.
    Shield,
    /// The hook skips everything.
    Skip,
}

impl Rung {
    /// All of them, the smallest first.
    pub const ALL: [Self; 2] = [Self::Shield, Self::Skip];

    /// The name in the configuration, in annotations, on the command line, in labels and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shield => "shield",
            Self::Skip => "skip",
        }
    }

    /// Reads a name.
    ///
    /// # Errors
    /// With the names there are, when it is none of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|rung| rung.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is not one of shield, skip"))
    }

    /// The match condition that makes it.
    pub const fn condition(self) -> Condition {
        match self {
            Self::Shield => Condition::Shield,
            Self::Skip => Condition::Skip,
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a bypass stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// In force.
    Bypassed,
    /// Only hookwatch's own dry-run canaries reach the hook.
    Probation,
    /// The fields are back; what is left to do is to forget that they were ever changed.
    Restored,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bypassed, Self::Probation, Self::Restored];

    /// The name in annotations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bypassed => "bypassed",
            Self::Probation => "probation",
            Self::Restored => "restored",
        }
    }

    /// Reads a name; `None` when it is none of them.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == text)
    }
}
