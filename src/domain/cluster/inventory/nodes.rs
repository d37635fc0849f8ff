//! The nodes that a hook depends on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::cluster::hook::{Endpoint, Hook};
use crate::time::Time;

use super::Inventory;

/// A hook on more nodes than this is not lost with them, and they are not watched for it.
const MAX_TOGETHER: usize = 5;

/// What is known of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeState {
    /// Its condition `Ready`: `None` when there is none yet. `Unknown` counts as not ready: the node has been silent
    /// for 50 s.
    pub ready: Option<bool>,
    /// Since when that is so.
    pub since: Option<Time>,
    /// `topology.kubernetes.io/zone`.
    #[serde(default)]
    pub zone: Option<String>,
    /// Other signs that its Pods will soon go.
    #[serde(default)]
    pub signs: Vec<Sign>,
}

/// One sign that the Pods of a node will soon go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sign {
    /// What it is.
    pub trouble: NodeTrouble,
    /// Since when, where the node says so.
    pub since: Option<Time>,
}

/// Why the Pods of a node will soon go, the most certain first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NodeTrouble {
    /// The condition `Ready` is not true.
    NotReady,
    /// Its Lease is not renewed.
    LeaseLate,
    /// The taint of what removes it: an autoscaler or a cloud.
    Leaving,
    /// `spec.unschedulable`, as before a drain.
    Cordoned,
    /// `MemoryPressure`.
    OutOfMemory,
    /// `DiskPressure`.
    OutOfDisk,
    /// `PIDPressure`.
    OutOfProcesses,
}

impl NodeTrouble {
    /// What the node does, to follow its name.
    pub const fn words(self) -> &'static str {
        match self {
            Self::NotReady => "is NotReady",
            Self::LeaseLate => "does not renew its Lease",
            Self::Leaving => "is being removed by an autoscaler or the cloud",
            Self::Cordoned => "is cordoned (as before a drain)",
            Self::OutOfMemory => "runs out of memory (MemoryPressure)",
            Self::OutOfDisk => "runs out of disk (DiskPressure)",
            Self::OutOfProcesses => "runs out of process numbers (PIDPressure)",
        }
    }
}

impl NodeState {
    /// The most certain sign that its Pods will soon go.
    pub fn trouble(&self) -> Option<Sign> {
        let not_ready = (self.ready == Some(false)).then_some(Sign {
            trouble: NodeTrouble::NotReady,
            since: self.since,
        });
        not_ready.or_else(|| self.signs.iter().min().copied())
    }
}

impl Inventory {
    /// More nodes than this are not watched.
    pub const MAX_NODES: usize = 50;

    /// The nodes that, few together, have all endpoints of a hook: only their state is evidence about a hook. Where a bound
    /// leaves some out, hooks on the fewest nodes come first.
    pub fn decisive_nodes(&self) -> BTreeSet<String> {
        let sets = self.hooks.iter().filter_map(|hook| hook.nodes());
        let sets: BTreeSet<(usize, BTreeSet<&str>)> = sets
            .filter(|nodes| nodes.len() <= MAX_TOGETHER)
            .map(|nodes| (nodes.len(), nodes))
            .collect();
        let mut decisive: BTreeSet<&str> = BTreeSet::new();
        for (_, nodes) in &sets {
            if decisive.union(nodes).count() <= Self::MAX_NODES {
                decisive.extend(nodes);
            }
        }
        decisive.into_iter().map(str::to_owned).collect()
    }
}

impl Hook {
    /// Its endpoints that do not stop.
    fn staying(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints().iter().filter(|endpoint| !endpoint.terminating)
    }

    /// The endpoints that it lives by: those that are ready, or where none is all that do not stop.
    pub fn living(&self) -> Vec<&Endpoint> {
        let any = self.staying().any(|endpoint| endpoint.ready);
        self.staying().filter(|endpoint| endpoint.ready || !any).collect()
    }

    /// The nodes that those are on; `None` without any, or where a slice does not say.
    pub fn nodes(&self) -> Option<BTreeSet<&str>> {
        let nodes: Option<BTreeSet<&str>> = self
            .living()
            .iter()
            .map(|endpoint| endpoint.node.as_deref())
            .collect();
        nodes.filter(|nodes| !nodes.is_empty())
    }

    /// The node that all of its endpoints are on, with their number, when there are two or more that do not stop.
    pub fn only_node(&self) -> Option<(&str, usize)> {
        let stay: Vec<&Endpoint> = self.staying().collect();
        let node = stay.first()?.node.as_deref()?;
        let all = stay.iter().all(|endpoint| endpoint.node.as_deref() == Some(node));
        (all && stay.len() >= 2).then_some((node, stay.len()))
    }
}
