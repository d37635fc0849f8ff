//! hookwatch keeps a Kubernetes control plane writable when an admission webhook goes bad.
//!
//! Dependencies point inward: [`domain`] decides and knows nothing of the others, [`io`] talks to the outside
//! and knows only `domain`, [`app`] wires them together for each command, [`cli`] reads the command line. The
//! `lab` is a control plane of our own to break things in; neither `domain` nor `io` knows of it. A test
//! holds that. It is a feature, and what runs in production is built without.

#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod app;
pub mod cli;
pub use hookwatch_domain as domain;
pub mod io;
#[cfg(feature = "lab")]
pub mod lab;
