//! A model of an API server with its admission hooks, as a simulation of discrete events.
//!
//! It shares no code with the diagnosis: only at its edge, in `exposition` and `inventory`, are its numbers put into
//! the types that the core takes in. What it knows of the API server is written down in its own words here, and held
//! against recordings of a real one.

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

/// Seconds as simulated time; never negative.
pub fn seconds(seconds: f64) -> At {
    (seconds.max(0.0) * SECOND as f64).round() as At
}

/// Simulated time in seconds.
pub fn as_seconds(at: At) -> f64 {
    at as f64 / SECOND as f64
}
