//! The connections that are kept open between probes.
//!
//! The API server keeps its connections to a hook, so a backend that vanished behind them hurts it while
//! every fresh probe is fine. One pooled connection per target shows that, for every hook that
//! shares it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::exchange::Link;
use crate::domain::cluster::hook::ProbeTarget;
use crate::io::lock;

/// How long Go's transport keeps an idle connection. The API server has closed its own by then, so an older one of ours says
/// nothing about it.
const IDLE: Duration = Duration::from_secs(90);

/// All idle connections.
#[derive(Debug)]
pub(super) struct Pool {
    most: usize,
    idle: Mutex<HashMap<ProbeTarget, PoolEntry>>,
}

#[derive(Debug)]
struct PoolEntry {
    link: Link,
    since: Instant,
}

impl PoolEntry {
    fn serves(&mut self) -> bool {
        self.since.elapsed() <= IDLE && !self.link.is_closed()
    }
}

impl Pool {
    /// A pool that holds at most `most` connections.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            idle: Mutex::default(),
        }
    }

    /// Takes the connection out of the pool, if it is still usable. A probe that gives up drops it, which closes it.
    pub(super) fn take(&self, target: &ProbeTarget) -> Option<Link> {
        let mut idle = lock(&self.idle).remove(target)?;
        if idle.serves() {
            Some(idle.link)
        } else {
            idle.link.close();
            None
        }
    }

    /// Adds a connection, if there is room. It evicts no other target's: with more targets than room, none would find its
    /// connection again.
    pub(super) fn put(&self, target: ProbeTarget, link: Link) {
        let mut idle = lock(&self.idle);
        let since = Instant::now();
        // A probe that ends after its target was forgotten still returns its connection. No probe uses that one again,
        // so it takes up room until it is too old.
        for (_, stale) in idle.extract_if(|_, known| since - known.since > IDLE) {
            stale.link.close();
        }
        if idle.len() >= self.most && !idle.contains_key(&target) {
            link.close();
            return;
        }
        if let Some(replaced) = idle.insert(target, PoolEntry { link, since }) {
            replaced.link.close();
        }
    }

    /// Closes the connection to a target that is gone.
    pub(super) fn forget(&self, target: &ProbeTarget) {
        if let Some(idle) = lock(&self.idle).remove(target) {
            idle.link.close();
        }
    }

    /// Whether there is an idle connection to the target that is still open.
    pub(super) fn holds(&self, target: &ProbeTarget) -> bool {
        lock(&self.idle).get_mut(target).is_some_and(PoolEntry::serves)
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.idle).len()
    }
}
