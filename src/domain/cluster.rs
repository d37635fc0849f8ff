//! The cluster from the webhooks' point of view: hooks, the requests they match, and changes.

pub mod chain;
pub mod changes;
pub mod condition;
pub mod hook;
pub mod inventory;
pub mod matching;
