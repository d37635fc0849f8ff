//! The edge: everything that talks to the outside.

use std::sync::Arc;

use crate::domain::time::Time;

pub mod alertmanager;
pub mod audit;
pub mod breaker;
pub mod canary;
pub mod client;
pub mod daemon;
pub mod endpoint;
pub mod estate;
pub mod events;
pub mod fence;
mod held;
pub mod http;
pub mod inventory;
pub mod lease;
pub mod ledger;
pub mod metrics;
mod missing;
pub mod node_leases;
pub mod page;
pub mod probe;
pub mod prometheus;
pub mod recorder;
pub mod scrape;
pub mod telemetry;
pub mod unchecked;

#[cfg(test)]
mod testing;

/// Where the edge reads the time line from. The caller owns it, so one daemon has one clock.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;
