//! What is not wrong with a hook yet and may become so.

use std::fmt;

use serde::{Serialize, Serializer};

/// The sort of a risk: what a label may be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RiskKind {
    /// All of its backends are on one node.
    OneNode,
    /// All of its backends are on one node, and that is not ready.
    NodeNotReady,
    /// Its owner's conditions are about hookwatch's own writes.
    NamesHookwatch,
}

impl RiskKind {
    /// All of them, for metrics that export one series per value.
    pub const ALL: [Self; 3] = [Self::OneNode, Self::NodeNotReady, Self::NamesHookwatch];

    /// The value of the `risk` label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OneNode => "OneNode",
            Self::NodeNotReady => "NodeNotReady",
            Self::NamesHookwatch => "NamesHookwatch",
        }
    }
}

/// A risk: its sort, and a sentence for whoever can still prevent the worst.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Risk {
    /// Its sort.
    pub kind: RiskKind,
    /// One sentence.
    pub text: String,
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// As its sentence alone.
impl Serialize for Risk {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}
