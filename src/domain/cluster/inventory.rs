//! The inventory: every hook with the addresses behind it, as of one instant.

mod nodes;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::hook::{Hook, HookId, Labels};
use crate::time::Time;

pub use nodes::{NodeState, NodeTrouble, Sign};

/// All hooks known at one instant. Cheap to share; replaced as a whole when anything in it changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Inventory {
    /// When the newest change was seen.
    pub at: Time,
    /// Every hook, ordered by identity, at most [`Inventory::MAX_HOOKS`].
    pub hooks: Vec<Arc<Hook>>,
    /// Labels of the namespaces, for `namespaceSelector`.
    pub namespaces: BTreeMap<String, Labels>,
    /// Nodes whose loss could take all endpoints of a hook ([`Inventory::decisive_nodes`]); empty without permission to read
    /// Nodes.
    #[serde(default)]
    pub nodes: BTreeMap<String, NodeState>,
    /// Objects that could not be read.
    pub problems: Vec<Problem>,
}

impl Inventory {
    /// Most hooks that are watched. That there are more is reported as a problem.
    pub const MAX_HOOKS: usize = 5_000;
    /// Most problems that are listed.
    pub const MAX_PROBLEMS: usize = 500;

    /// The hook with this identity; `None` if the inventory has none.
    pub fn hook(&self, id: &HookId) -> Option<&Arc<Hook>> {
        let at = self.hooks.binary_search_by(|hook| hook.id.cmp(id)).ok()?;
        Some(&self.hooks[at])
    }

    /// The problems of objects that could not be read, then those of single hooks; at most [`Self::MAX_PROBLEMS`].
    pub fn all_problems(&self) -> Vec<Problem> {
        let troubled = self.hooks.iter().filter(|hook| !hook.problems.is_empty());
        let entries = troubled.flat_map(|hook| {
            let object = hook.id.object();
            hook.problems.iter().map(move |sentence| Problem {
                what: sentence
                    .strip_prefix(&format!("{object}: "))
                    .unwrap_or(sentence)
                    .to_owned(),
                object: object.clone(),
            })
        });
        self.problems
            .iter()
            .cloned()
            .chain(entries)
            .take(Self::MAX_PROBLEMS)
            .collect()
    }
}

/// A fault of an object in the cluster: hookwatch could not read it, or could not use a part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Problem {
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// What is wrong and what to do about it.
    pub what: String,
}

/// How one of the watches that keep the inventory is doing.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct WatchReport {
    /// What it watches, as text for people: the kind, and the namespace unless it is the whole cluster.
    pub watch: String,
    /// Its state.
    pub health: InventoryHealth,
    /// When the watch was last known to be up to date. In a quiet cluster this lags by up to 65 s without any fault, because
    /// the API server sends a bookmark only once a minute (seen on 1.36.2). If the API server hangs with its connections
    /// open, up to 85 s pass until a watch counts as broken: 75 s of silence, and 10 s to reopen it.
    pub known_good: Option<Time>,
}

/// The state of a watch.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum InventoryHealth {
    /// Nothing was read yet.
    Starting,
    /// The watch has delivered its list and is open.
    Current,
    /// The watch is broken; hookwatch keeps using the objects that it last delivered.
    Stale {
        /// Which watch, and its error.
        why: String,
    },
    /// The inventory works without this kind: reading it is forbidden or it does not exist, which is tried again every 30 s,
    /// or it takes no part in admission and its watch is broken.
    Limited {
        /// What is missing and which permission would give it.
        why: String,
    },
}
