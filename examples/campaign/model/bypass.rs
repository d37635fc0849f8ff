//! What a bypass changes of a hook, as the API server goes by it.

use super::cluster::HookSpec;
use super::traffic::{Class, Place};
use super::{At, SECOND};

/// The timeout of a hook whose failures are ignored.
const SHORT: At = SECOND;

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
    /// Its failures are let pass, and it is waited for briefly.
    Ignored,
}

impl Form {
    /// Whether a write that the hook's rules match is spared the call.
    pub fn spares(self, class: &Class) -> bool {
        match self {
            Self::Original | Self::Ignored => false,
            Self::Shielded => keeps_the_control_plane_alive(class),
            Self::Skipped => true,
            Self::OnProbation => !class.dry_run,
        }
    }

    /// Whether a call that fails is refused.
    pub fn fails(self, spec: &HookSpec) -> bool {
        spec.fails && self != Self::Ignored
    }

    /// How long a call may take.
    pub fn timeout(self, spec: &HookSpec) -> At {
        match self {
            Self::Ignored => spec.timeout.min(SHORT),
            _ => spec.timeout,
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
