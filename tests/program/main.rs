//! The whole program: the binary as a person meets it, and the daemon on a control plane in this process, beside real parts where
//! there are any.
//!
//! All of it is one binary: most of these tests wait for a clock, and so they wait at the same time.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, and helpers of an integration test count as code"
)]

mod alerting;
mod alertmanager;
mod audit;
mod bad_input;
#[path = "../support/bounds.rs"]
#[allow(dead_code, reason = "the document of the metrics says more of them")]
mod bounds;
mod breaking;
mod bypass;
mod cardinality;
mod cli;
mod control_plane;
mod degraded;
mod demo;
mod diagnose;
#[path = "../support/engines.rs"]
mod engines;
mod fidelity;
mod formats;
mod getting_started;
#[path = "../support/held.rs"]
mod held;
mod hostile;
mod kinds;
mod others;
mod pipeline;
#[path = "../support/programs.rs"]
mod programs;
mod prometheus;
mod properties;
mod recordings;
mod replicas;
mod runbooks;
mod running;
mod schemas;
mod sharing;
mod status_page;
mod telemetry;
mod terminal;
