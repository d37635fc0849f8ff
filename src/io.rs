//! The edge: everything that talks to the outside.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::domain::time::Time;

pub mod act;
pub mod client;
pub mod cluster;
mod coordination;
pub mod daemon;
pub mod endpoint;
mod error;
pub mod file;
pub mod http;
mod missing;
pub mod observe;
pub mod recorder;
pub mod report;
pub mod telemetry;
pub mod wall;

#[cfg(test)]
pub(crate) mod testing;

/// Where the edge reads the time line from. The caller owns it, so one daemon has one clock.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// Locks, also after a panic while it was locked: nothing of ours panics half way through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
