//! An incident: a cluster, everything that happens in it, and the ground truth about its faults.

pub mod draw;
mod elsewhere;
mod faults;
mod life;
mod noise;
mod rollout;
pub mod stage;

use std::sync::Arc;

use hookwatch::domain::text::named;
use hookwatch::domain::vocabulary::{Cause, NotAHook};
use strum::IntoStaticStr;

use crate::model::At;
use crate::model::cluster::Cluster;
use crate::random::Random;

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, IntoStaticStr)]
pub enum Kind {
    Slow,
    Hanging,
    Refused,
    NoEndpoints,
    NoService,
    Erroring,
    TlsInvalid,
    Partial,
    FailingOpen,
    Denying,
    EtcdSlow,
    Overloaded,
    QueuedByFlowControl,
    ApiServerDown,
    Unexplained,
    /// No fault: only everyday events, for which nothing should be accused.
    Noise,
    Unreachable,
    RolloutGap,
    StaleConnection,
    ReplicaDown,
}

named!(Kind, "The name as it stands in reports.");

impl Kind {
    /// Every kind and its relative weight in the draw.
    pub const WEIGHTS: [(Self, f64); 20] = [
        (Self::Slow, 8.0),
        (Self::Hanging, 8.0),
        (Self::Refused, 7.5),
        (Self::NoEndpoints, 7.0),
        (Self::NoService, 6.5),
        (Self::Erroring, 7.0),
        (Self::TlsInvalid, 6.5),
        (Self::Partial, 7.5),
        (Self::FailingOpen, 7.5),
        (Self::Denying, 8.0),
        (Self::EtcdSlow, 6.5),
        (Self::Overloaded, 7.0),
        (Self::QueuedByFlowControl, 6.5),
        (Self::ApiServerDown, 6.5),
        (Self::Unexplained, 6.5),
        (Self::Noise, 7.0),
        (Self::Unreachable, 6.5),
        (Self::RolloutGap, 7.0),
        (Self::StaleConnection, 7.5),
        (Self::ReplicaDown, 7.0),
    ];

    /// The causes that count as the right diagnosis of a webhook; empty for faults outside of webhooks.
    pub const fn causes(self) -> &'static [Cause] {
        match self {
            Self::Slow => &[Cause::Slow],
            Self::Hanging => &[Cause::Hanging],
            Self::Refused => &[Cause::Refused],
            Self::NoEndpoints => &[Cause::NoEndpoints],
            Self::NoService => &[Cause::NoService],
            Self::Erroring => &[Cause::Erroring],
            Self::TlsInvalid => &[Cause::TlsInvalid],
            Self::Partial => &[Cause::Partial],
            // FailingOpen means that the mechanism is unknown. Naming the actual mechanism is right as well.
            Self::FailingOpen => &[Cause::FailingOpen, Cause::Erroring, Cause::TlsInvalid],
            Self::Denying => &[Cause::Denying],
            Self::Unreachable => &[Cause::Unreachable],
            Self::RolloutGap => &[Cause::RolloutGap],
            Self::StaleConnection => &[Cause::StaleConnection],
            Self::EtcdSlow
            | Self::Overloaded
            | Self::QueuedByFlowControl
            | Self::ApiServerDown
            | Self::ReplicaDown
            | Self::Unexplained
            | Self::Noise => &[],
        }
    }

    /// The right diagnosis of a fault outside of webhooks; `None` for faults of webhooks and for [`Self::Noise`].
    pub const fn elsewhere(self) -> Option<NotAHook> {
        match self {
            Self::EtcdSlow => Some(NotAHook::EtcdSlow),
            Self::Overloaded => Some(NotAHook::Overloaded),
            Self::QueuedByFlowControl => Some(NotAHook::QueuedByFlowControl),
            Self::ApiServerDown => Some(NotAHook::ApiServerDown),
            Self::ReplicaDown => Some(NotAHook::ReplicaDown),
            Self::Unexplained => Some(NotAHook::Unexplained),
            _ => None,
        }
    }

    /// Whether the right verdict is `Suspect`: the fault should be seen, but alone does not make a webhook `Failing`.
    pub const fn is_for_suspects(self) -> bool {
        matches!(self, Self::Partial | Self::Denying)
    }

    /// Whether affected calls fail, as opposed to being slow or denied.
    pub const fn fails_calls(self) -> bool {
        matches!(
            self,
            Self::Hanging
                | Self::Refused
                | Self::NoEndpoints
                | Self::NoService
                | Self::Erroring
                | Self::TlsInvalid
                | Self::FailingOpen
                | Self::Unreachable
        )
    }
}

/// One fault and the time it lasts.
#[derive(Debug, Clone)]
pub struct Fault {
    pub kind: Kind,
    /// Indexes of the affected webhooks; empty for faults outside of webhooks.
    pub hooks: Vec<usize>,
    pub from: At,
    pub until: At,
    /// Largest extra seconds per call of a [`Kind::Slow`] fault; 0 for every other kind.
    pub severity: f64,
    /// What was done to the cluster, in words.
    pub note: String,
}

impl Fault {
    /// A fault with severity 0.
    pub fn new(kind: Kind, hooks: Vec<usize>, (from, until): (At, At), note: String) -> Self {
        Self {
            kind,
            hooks,
            from,
            until,
            severity: 0.0,
            note,
        }
    }
}

/// A rollout among the noise, which may have failed calls although it is not the fault.
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    pub service: usize,
    pub from: At,
    pub until: At,
}

/// A cluster with its scripted events, and the ground truth about its faults.
#[derive(Debug, Clone)]
pub struct Incident {
    pub cluster: Arc<Cluster>,
    /// When hookwatch starts.
    pub begin: At,
    pub end: At,
    /// The faults; the main one first.
    pub faults: Vec<Fault>,
    /// What else happens, in words.
    pub noise: Vec<String>,
    /// The rollouts among the noise.
    pub gaps: Vec<Gap>,
    /// When hookwatch's process is paused (from, until), in order.
    pub pauses: Vec<(At, At)>,
    /// Random numbers of the model.
    pub world: Random,
    /// Random numbers of the observers.
    pub observers: Random,
}
