//! The status page: as a function, over HTTP, and in a real browser.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, and helpers of an integration test count as code"
)]

mod access;
mod browser;
mod chromium;
mod colours;
mod fixture;
mod served;
mod view;
