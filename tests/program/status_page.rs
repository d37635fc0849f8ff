//! The status page: as a function, over HTTP, and in a real browser.

mod access;
mod browser;
mod chromium;
mod colours;
pub mod fixture;
mod served;
mod view;
