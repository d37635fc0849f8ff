//! The edge: everything that talks to the outside.

pub mod probe;
