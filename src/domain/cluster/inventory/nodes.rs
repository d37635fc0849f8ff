//! The nodes that a hook depends on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::cluster::hook::{Endpoint, Hook};
use crate::time::Time;

use super::Inventory;

/// Most nodes of a hook that are watched for it: a hook on more nodes is unlikely to lose all of them at once.
const MAX_TOGETHER: usize = 5;

/// What is known of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeState {
    /// Its condition `Ready`; `None` if it has none yet. `Unknown` counts as not ready: kube-controller-manager sets it once
    /// the node has been silent for 50 s.
    pub ready: Option<bool>,
    /// When `ready` last changed.
    pub since: Option<Time>,
    /// The label `topology.kubernetes.io/zone`.
    #[serde(default)]
    pub zone: Option<String>,
    /// Other signs that its Pods will soon go.
    #[serde(default)]
    pub signs: Vec<Sign>,
}

/// One sign that the Pods of a node will soon go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sign {
    /// The kind of sign.
    pub trouble: NodeTrouble,
    /// When it began; `None` if the node does not say.
    pub since: Option<Time>,
}

/// Why the Pods of a node will soon go, the most certain first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NodeTrouble {
    /// The condition `Ready` is not true.
    NotReady,
    /// The kubelet does not renew the node's Lease.
    LeaseLate,
    /// It has the taint of an autoscaler or a cloud that removes it.
    Leaving,
    /// `spec.unschedulable` is set, as before a drain.
    Cordoned,
    /// The condition `MemoryPressure` is true.
    OutOfMemory,
    /// The condition `DiskPressure` is true.
    OutOfDisk,
    /// The condition `PIDPressure` is true.
    OutOfProcesses,
}

impl NodeTrouble {
    /// A predicate for sentences, after the node's name.
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
    /// The most certain sign that its Pods will soon go; `None` if there is no sign.
    pub fn trouble(&self) -> Option<Sign> {
        let not_ready = (self.ready == Some(false)).then_some(Sign {
            trouble: NodeTrouble::NotReady,
            since: self.since,
        });
        not_ready.or_else(|| self.signs.iter().min().copied())
    }
}

impl Inventory {
    /// Most nodes that are watched.
    pub const MAX_NODES: usize = 50;

    /// The nodes to watch: those of hooks whose endpoints are all on at most 5 nodes. At most [`Self::MAX_NODES`]; hooks on the
    /// fewest nodes come first.
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
    /// Its endpoints that are not terminating.
    fn staying(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints().iter().filter(|endpoint| !endpoint.terminating)
    }

    /// Its endpoints that are ready and not terminating; if none is ready, all that are not terminating.
    pub fn living(&self) -> Vec<&Endpoint> {
        let any = self.staying().any(|endpoint| endpoint.ready);
        self.staying().filter(|endpoint| endpoint.ready || !any).collect()
    }

    /// The nodes of [`Self::living`]; `None` if there are no endpoints, or the node of one is unknown.
    pub fn nodes(&self) -> Option<BTreeSet<&str>> {
        let nodes: Option<BTreeSet<&str>> = self
            .living()
            .iter()
            .map(|endpoint| endpoint.node.as_deref())
            .collect();
        nodes.filter(|nodes| !nodes.is_empty())
    }

    /// The one node of all its endpoints that are not terminating, and their number; `None` if there are fewer than two, or they
    /// are on several or unknown nodes.
    pub fn only_node(&self) -> Option<(&str, usize)> {
        let stay: Vec<&Endpoint> = self.staying().collect();
        let node = stay.first()?.node.as_deref()?;
        let all = stay.iter().all(|endpoint| endpoint.node.as_deref() == Some(node));
        (all && stay.len() >= 2).then_some((node, stay.len()))
    }
}
