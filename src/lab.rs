//! The lab: a control plane in this process, made to be broken.

pub mod api;
