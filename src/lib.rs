//! hookwatch keeps a Kubernetes control plane writable when an admission webhook goes bad.
//!
//! Dependencies point inward: [`domain`] knows nothing of the others, [`io`] talks to the outside and knows
//! only `domain`. A test holds that.

pub mod app;
pub mod domain;
pub mod io;
pub mod lab;
