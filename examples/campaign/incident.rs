//! An incident: a cluster with what happens in it, and the truth about that.

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

/// What is wrong.
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
    /// Nothing that anybody should be named for.
    Noise,
    Unreachable,
    RolloutGap,
    StaleConnection,
    ReplicaDown,
}

named!(Kind, "The name as it stands in reports.");

impl Kind {
    /// All of them with how often each is drawn, in hundredths (of more than a hundred).
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

    /// Which causes of a hook say it rightly.
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
            // A cause only where the mechanism is unknown; whoever finds the mechanism is right as well.
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

    /// Which trouble that is no hook's says it rightly.
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

    /// It is to be seen, and nobody is to be named as failing for it alone.
    pub const fn is_for_suspects(self) -> bool {
        matches!(self, Self::Partial | Self::Denying)
    }

    /// Calls that it touches fail, rather than take long.
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

/// One thing that is wrong for a while.
#[derive(Debug, Clone)]
pub struct Fault {
    pub kind: Kind,
    /// Whose hooks; none when it is no hook's.
    pub hooks: Vec<usize>,
    pub from: At,
    pub until: At,
    /// Seconds that a slow hook takes in the end.
    pub severity: f64,
    /// What exactly was done.
    pub note: String,
}

impl Fault {
    /// One that is none of slowness.
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

/// A rollout that may have cost calls without being the fault.
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    pub service: usize,
    pub from: At,
    pub until: At,
}

/// See the module's head.
#[derive(Debug, Clone)]
pub struct Incident {
    pub cluster: Arc<Cluster>,
    /// When hookwatch begins to watch.
    pub begin: At,
    pub end: At,
    /// The main fault first.
    pub faults: Vec<Fault>,
    /// What else happened, in words.
    pub noise: Vec<String>,
    /// Rollouts among that in which Pods were listed that did not serve: of which Service, from when until when.
    pub gaps: Vec<Gap>,
    /// When hookwatch itself stands still, from when until when, in order.
    pub pauses: Vec<(At, At)>,
    /// For the model's own chance.
    pub world: Random,
    /// For the observers'.
    pub observers: Random,
}
