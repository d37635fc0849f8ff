//! The effect of a bypass on which writes the API server sends to a webhook.

use hookwatch::domain::act::breaker::{Rung, To};

use super::traffic::{Class, Place};

/// Which bypass a webhook's configuration has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// None: the configuration is as its owner wrote it.
    #[default]
    Original,
    /// A match condition exempts the writes that keep the control plane alive.
    Shielded,
    /// A match condition exempts everything.
    Skipped,
    /// A match condition exempts everything except hookwatch's dry runs.
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
    /// Whether the bypass exempts a write that the webhook's rules match.
    pub fn spares(self, class: &Class) -> bool {
        match self {
            Self::Original => false,
            Self::Shielded => keeps_the_control_plane_alive(class),
            Self::Skipped => true,
            Self::OnProbation => !class.dry_run,
        }
    }
}

/// Objects in kube-system, kube-node-lease and hookwatch's namespace, and the status of nodes and Pods.
fn keeps_the_control_plane_alive(class: &Class) -> bool {
    let within = matches!(
        class.place,
        Place::KubeSystem | Place::NodeLeases | Place::Hookwatch
    );
    let of_nodes = [("nodes", "status"), ("pods", "status")];
    within && class.resource != "namespaces" || of_nodes.contains(&(class.resource, class.subresource))
}
