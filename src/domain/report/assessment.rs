//! Everything that hookwatch concludes at one instant: the source of the page, the metrics and the alerts.

use std::sync::Arc;

use serde::Serialize;

use crate::act::fence::BreakerView;
use crate::act::leadership::ReplicaView;
use crate::audit::periodic::PublishedFindings;
use crate::cluster::inventory::Problem;
use crate::diagnose::verdict::{ControlPlane, Verdict};
use crate::observe::views::Sources;
use crate::time::Time;
use crate::vocabulary::Health;

/// The body of HTTP answers (503) before the first assessment.
pub const NOTHING_JUDGED: &str = "nothing has been judged yet\n";

/// All verdicts and the state of the control plane at one instant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assessment {
    /// When the verdicts were made.
    pub at: Time,
    /// The state of the control plane.
    pub control_plane: ControlPlane,
    /// A verdict for each hook, the worst first.
    pub hooks: Vec<Verdict>,
    /// The age and the trouble of every source of evidence.
    pub sources: Sources,
    /// The state of the breaker and of all bypasses.
    pub breaker: BreakerView,
    /// The role of this replica; `None` if it takes no part in leader election.
    pub replica: Option<ReplicaView>,
    /// The findings of the last audit. They do not influence any verdict.
    pub audit: Arc<PublishedFindings>,
    /// Objects in the cluster that hookwatch could not read or use.
    pub problems: Vec<Problem>,
}

impl Assessment {
    /// The verdicts that name a hook as a culprit.
    pub fn culprits(&self) -> impl Iterator<Item = &Verdict> {
        self.hooks
            .iter()
            .filter(|verdict| verdict.health == Health::Failing)
    }

    /// How many hooks have this health.
    pub fn count(&self, health: Health) -> usize {
        self.hooks.iter().filter(|hook| hook.health == health).count()
    }
}
