//! The sources of observations, each asked once per call.

pub mod canary;
pub mod node_leases;
pub mod probe;
pub mod prometheus;
pub mod scrape;
