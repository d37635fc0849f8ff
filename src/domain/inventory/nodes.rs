//! The nodes that a hook stands and falls with.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::domain::hook::{Endpoint, Hook, ServiceState, Target};
use crate::domain::time::Time;

use super::Inventory;

/// What is known of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeState {
    /// Its condition `Ready`: `None` when there is none yet. `Unknown` counts as not ready: the node was not heard of
    /// for 50 s.
    pub ready: Option<bool>,
    /// Since when that is so.
    pub since: Option<Time>,
}

impl Inventory {
    /// More nodes than this are not watched.
    pub const MAX_NODES: usize = 20;

    /// The nodes of which each has all endpoints of a hook: the only ones whose state says anything about a hook.
    pub fn decisive_nodes(&self) -> BTreeSet<String> {
        let nodes = self.hooks.iter().filter_map(|hook| hook.only_node());
        let nodes: BTreeSet<&str> = nodes.map(|(node, _)| node).collect();
        nodes
            .into_iter()
            .take(Self::MAX_NODES)
            .map(str::to_owned)
            .collect()
    }
}

impl Hook {
    /// The node that all of its endpoints are on, with their number, when there are two or more that do not stop.
    pub fn only_node(&self) -> Option<(&str, usize)> {
        let Target::Service(target) = &self.target else {
            return None;
        };
        let ServiceState::Found { endpoints, .. } = &target.service else {
            return None;
        };
        let stay: Vec<&Endpoint> = endpoints
            .iter()
            .filter(|endpoint| !endpoint.terminating)
            .collect();
        let node = stay.first()?.node.as_deref()?;
        let all = stay.iter().all(|endpoint| endpoint.node.as_deref() == Some(node));
        (all && stay.len() >= 2).then_some((node, stay.len()))
    }
}
