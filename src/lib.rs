//! hookwatch keeps a Kubernetes control plane writable when an admission webhook goes bad.
//!
//! Dependencies point inward: [`domain`] decides and depends on none of the others, [`io`] talks to the outside and depends
//! only on `domain`, [`app`] wires them together for each command, [`cli`] reads the command line. `lab` is a control plane in
//! this process, which demos and tests break. It is a default Cargo feature that production builds leave out. A test checks
//! that neither `domain` nor `io` depends on it.

#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod app;
pub mod cli;
pub use hookwatch_domain as domain;
pub mod io;
#[cfg(feature = "lab")]
pub mod lab;
