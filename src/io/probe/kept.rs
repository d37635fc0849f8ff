//! The connections that are kept open between probes.
//!
//! The API server keeps its connections to a hook, so a backend that vanished behind them hurts it while
//! every fresh probe is fine. One kept connection per backend shows that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::exchange::Link;
use crate::domain::hook::{Backend, HookId};
use crate::domain::time::Time;

/// How long Go's transport keeps an idle connection. An older one of ours says nothing about the API
/// server's.
const IDLE: Duration = Duration::from_secs(90);

/// What a connection is bound to: with another name or bundle the API server makes a new client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Terms {
    /// The host of the request, with the port.
    pub(super) authority: String,
    /// The PEM bytes.
    pub(super) ca_bundle: Arc<[u8]>,
    /// Any certificate will do.
    pub(super) insecure: bool,
}

/// An idle connection.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) link: Link,
    /// `notAfter` of the certificate that was served when it was opened.
    pub(super) not_after: Option<Time>,
}

/// All idle connections.
#[derive(Debug)]
pub(super) struct Pool {
    most: usize,
    idle: Mutex<HashMap<(HookId, Backend), Idle>>,
}

#[derive(Debug)]
struct Idle {
    kept: Kept,
    terms: Terms,
    since: Instant,
}

impl Pool {
    /// A pool that holds at most `most` connections.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            idle: Mutex::default(),
        }
    }

    /// Takes the connection out, if it still serves. A probe that gives up drops it then, and with it the
    /// connection.
    pub(super) fn take(&self, hook: &HookId, backend: &Backend, terms: &Terms) -> Option<Kept> {
        let idle = self.lock().remove(&(hook.clone(), backend.clone()))?;
        let serves = idle.terms == *terms && idle.since.elapsed() <= IDLE && !idle.kept.link.is_closed();
        if serves {
            Some(idle.kept)
        } else {
            idle.kept.link.close();
            None
        }
    }

    /// Puts a connection in, in place of the one that has been idle for longest when there are too many.
    pub(super) fn put(&self, hook: &HookId, backend: &Backend, terms: Terms, kept: Kept) {
        let mut idle = self.lock();
        let key = (hook.clone(), backend.clone());
        if idle.len() >= self.most && !idle.contains_key(&key) {
            let oldest = idle.iter().min_by_key(|(_, idle)| idle.since);
            if let Some(key) = oldest.map(|(key, _)| key.clone())
                && let Some(evicted) = idle.remove(&key)
            {
                evicted.kept.link.close();
            }
        }
        let since = Instant::now();
        if let Some(replaced) = idle.insert(key, Idle { kept, terms, since }) {
            replaced.kept.link.close();
        }
    }

    /// Closes the connection to a backend that is gone.
    pub(super) fn forget(&self, hook: &HookId, backend: &Backend) {
        if let Some(idle) = self.lock().remove(&(hook.clone(), backend.clone())) {
            idle.kept.link.close();
        }
    }

    /// Whether there is an idle connection to the backend that is still open.
    pub(super) fn holds(&self, hook: &HookId, backend: &Backend) -> bool {
        let idle = self.lock();
        let held = idle.get(&(hook.clone(), backend.clone()));
        held.is_some_and(|idle| idle.since.elapsed() <= IDLE && !idle.kept.link.is_closed())
    }

    /// How many connections are idle.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(HookId, Backend), Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
