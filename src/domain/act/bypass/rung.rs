//! The rungs of a bypass, and the phases that it passes through.

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

use crate::cluster::condition::BypassCondition;
use crate::text::named;

/// How far a bypass goes, in ascending order.
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
    /// The hook is not called for the requests that keep the control plane alive. Everything else is still enforced.
    Shield,
    /// The hook is not called at all.
    Skip,
}

named!(
    Rung,
    "The name in flags, the configuration, annotations, the ledger and metrics.",
    parse
);

impl Rung {
    /// The match condition that puts this rung in force. Probation has a condition of its own.
    pub const fn condition(self) -> BypassCondition {
        match self {
            Self::Shield => BypassCondition::Shield,
            Self::Skip => BypassCondition::Skip,
        }
    }
}

/// What the owner of a configuration lets hookwatch do, by the annotation [`OPT_OUT_ANNOTATION`](super::OPT_OUT_ANNOTATION).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub enum Ceiling {
    /// The owner says nothing: the policy alone decides.
    #[default]
    Open,
    /// No rung beyond this one.
    At(Rung),
    /// Nothing.
    Off,
    /// The value is unknown. Nothing is permitted, as the owner certainly wanted a restriction.
    Unreadable,
    /// The annotation has not been read yet. Nothing is permitted until it is.
    Unread,
}

impl Ceiling {
    /// Reads the annotation's value. `ignore` was a higher rung of older releases.
    pub fn read(annotation: Option<&str>) -> Self {
        let Some(text) = annotation else { return Self::Open };
        match text.trim().to_ascii_lowercase().as_str() {
            "off" => Self::Off,
            "ignore" => Self::At(Rung::Skip),
            text => Rung::parse(text).map_or(Self::Unreadable, Self::At),
        }
    }

    /// Whether a rung is within it.
    pub fn permits(self, rung: Rung) -> bool {
        match self {
            Self::Open => true,
            Self::At(highest) => rung <= highest,
            Self::Off | Self::Unreadable | Self::Unread => false,
        }
    }
}

/// The phase of a bypass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum BypassPhase {
    /// In force.
    Bypassed,
    /// Only hookwatch's own dry-run canaries reach the hook.
    Probation,
    /// The fields are restored; the annotation has not been removed yet.
    Restored,
}

named!(BypassPhase, "The name in annotations.", parse);
