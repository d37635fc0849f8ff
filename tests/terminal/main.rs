//! `status` and `top` in a real pseudo-terminal, and as a function of what is known.
//!
//! Every screen that is looked at is kept in `target/tmp/terminal`, for a person to look at too.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, and helpers of an integration test count as code"
)]

#[allow(dead_code, reason = "the page shows more of it")]
#[path = "../status_page/fixture.rs"]
mod fixture;
mod given_back;
mod plugin;
mod progress;
mod prompt;
mod pty;
mod screens;
mod served;
mod status;
mod tunnel;
mod view;
