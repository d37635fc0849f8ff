//! A discrete-event simulation of API servers with their admission webhooks.
//!
//! It shares no code with the diagnosis. Only `exposition` and `inventory` convert its numbers to the types that the
//! core takes as input. It implements the API server's behaviour independently; the tests in `recordings.rs` check it
//! against recordings of a real API server.

pub mod bypass;
pub mod cluster;
pub mod counters;
pub mod exposition;
pub mod inventory;
pub mod manner;
pub mod messages;
pub mod pool;
pub mod seats;
pub mod timeline;
pub mod traffic;
pub mod world;

/// An instant or a span of simulated time, in microseconds.
pub type At = u64;

/// One second.
pub const SECOND: At = 1_000_000;

/// Converts seconds to simulated time; negative values become 0.
pub fn seconds(seconds: f64) -> At {
    (seconds.max(0.0) * SECOND as f64).round() as At
}

/// Simulated time in seconds.
pub fn as_seconds(at: At) -> f64 {
    at as f64 / SECOND as f64
}
