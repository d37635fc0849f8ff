//! What each source (probes, canaries, metrics, readiness, node Leases) observed, what successive observations add up to, and
//! the baselines that they are compared with.

pub mod canaries;
pub mod canary;
pub mod deadlines;
pub mod exposition;
pub mod history;
pub mod node_leases;
pub mod observations;
pub mod pooled;
pub mod probe;
pub mod probing;
pub mod readiness;
pub mod rollouts;
pub mod schedule;
pub mod snapshot;
pub mod stored;
pub mod views;
