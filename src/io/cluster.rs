//! The cluster as the API server or manifests show it: watched for the daemon, read once for an audit.

pub mod estate;
pub mod inventory;
