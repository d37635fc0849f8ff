//! What hookwatch shows, pushes and lists.

pub mod alertmanager;
pub mod events;
pub mod metrics;
pub mod page;
pub mod unchecked;
