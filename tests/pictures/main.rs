//! The pictures in `docs/pictures`: what each shows is made here, and compared with what it was made of.
//!
//! A picture of a terminal is text, and compared as it is. One of the page is taken by a browser, whose pixels differ from
//! machine to machine: compared is the page that it was taken of, by its hash in `tests/pictures/SOURCES`.
//! `HOOKWATCH_BLESS=1 cargo test --test pictures` takes those that are old.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, and helpers of an integration test count as code"
)]

mod cells;
#[allow(dead_code, reason = "the tests of the page do more with it")]
#[path = "../program/status_page/chromium.rs"]
mod chromium;
mod dashboards;
mod moments;
mod page;
#[allow(dead_code, reason = "a browser is the only program here")]
#[path = "../support/programs.rs"]
mod programs;
mod sources;
mod terminal;
