//! Reads the cluster: the daemon watches it through the API server, an audit reads it or manifests once.

pub mod estate;
pub mod inventory;
