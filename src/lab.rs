//! The lab: a control plane in this process, made to be broken.

pub mod api;
pub mod backend;
pub mod certs;
pub mod cluster;
pub mod scenario;
pub mod workload;
