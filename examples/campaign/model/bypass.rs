//! What a bypass changes of a hook, as the API server goes by it.

use hookwatch::domain::act::breaker::{Rung, To};

use super::traffic::{Class, Place};

/// How a hook stands in its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// As its owner has it.
    #[default]
    Original,
    /// A match condition spares what keeps the control plane alive.
    Shielded,
    /// A match condition spares everything.
    Skipped,
    /// A match condition spares everything but hookwatch's dry runs.
    OnProbation,
}

impl From<To> for Form {
    fn from(to: To) -> Self {
        match to {
            To::Original => Self::Original,
            To::Probation => Self::OnProbation,
            To::Bypass(Rung::Shield) => Self::Shielded,
            To::Bypass(Rung::Skip) => Self::Skipped,
        }
    }
}

impl Form {
    /// Whether a write that the hook's rules match is spared the call.
    pub fn spares(self, class: &Class) -> bool {
        match self {
            Self::Original => false,
            Self::Shielded => keeps_the_control_plane_alive(class),
            Self::Skipped => true,
            Self::OnProbation => !class.dry_run,
        }
    }
}

/// Objects in three namespaces, and what nodes write of themselves and of the state of their Pods.
fn keeps_the_control_plane_alive(class: &Class) -> bool {
    let within = matches!(
        class.place,
        Place::KubeSystem | Place::NodeLeases | Place::Hookwatch
    );
    let of_nodes = [("nodes", "status"), ("pods", "status")];
    within && class.resource != "namespaces" || of_nodes.contains(&(class.resource, class.subresource))
}
