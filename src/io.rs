//! The edge: everything that talks to the outside.

pub mod http;
pub mod metrics;
pub mod telemetry;
