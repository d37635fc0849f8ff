//! How the watches are doing.

use std::fmt;

use super::object::WatchedKind;
use crate::domain::time::Time;

/// How one watch is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchHealth {
    /// What it watches.
    pub kind: WatchedKind,
    /// In which namespace, or which node; `None` for all.
    pub namespace: Option<String>,
    /// Its state.
    pub state: WatchState,
    /// When what it delivered was last known to be all there is. In a quiet cluster this falls back by up to 65 s although
    /// all is well, because the API server only says once a minute that nothing has changed (seen on 1.36.2); and when it
    /// hangs with its connections open, up to 80 s pass until a watch counts as broken.
    pub known_good: Option<Time>,
}

/// The state of one watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchState {
    /// Nothing was read yet.
    Starting,
    /// It delivered its list and is open.
    Open,
    /// It is broken and is being repaired.
    Broken {
        /// What it said.
        why: String,
    },
    /// Reading is forbidden, or there is no such kind. Tried again every half minute.
    Refused {
        /// Which permission would help.
        why: String,
    },
}

impl fmt::Display for WatchHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(node) if self.kind == WatchedKind::Nodes => write!(f, "Node {node:?}"),
            Some(namespace) => write!(f, "{} in namespace {namespace:?}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}
