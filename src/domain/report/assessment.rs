//! All that hookwatch knows at one instant, as the page, the metrics and the alerts show it.

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

/// The answer while there is no assessment.
pub const NOTHING_JUDGED: &str = "nothing has been judged yet\n";

/// All verdicts and the state of the control plane at one instant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assessment {
    /// The instant.
    pub at: Time,
    /// The control plane.
    pub control_plane: ControlPlane,
    /// A verdict for each hook, the worst first.
    pub hooks: Vec<Verdict>,
    /// Where the knowledge comes from.
    pub sources: Sources,
    /// What is done about a culprit.
    pub breaker: BreakerView,
    /// This daemon among its replicas; `None` when it does not take part in an election.
    pub replica: Option<ReplicaView>,
    /// What the last audit found. Never a reason for any health.
    pub audit: Arc<PublishedFindings>,
    /// Objects in the cluster that could not be made sense of.
    pub problems: Vec<Problem>,
}

impl Assessment {
    /// The hooks named as culprits.
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
