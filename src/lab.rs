//! The lab: control planes to break on purpose, one embedded in this process and one of real binaries (envtest).

pub mod api;
pub mod backend;
pub mod balancer;
pub mod certs;
pub mod clients;
pub mod cluster;
pub mod control_plane;
pub mod directory;
pub mod envtest;
mod kubeconfig;
pub mod monitoring;
pub mod ports;
pub mod scenario;
pub mod script;
pub mod workload;
