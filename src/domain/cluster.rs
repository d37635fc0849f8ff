//! What a cluster is made of, as far as webhooks go: the hooks, what they are asked about, and what changed.

pub mod chain;
pub mod changes;
pub mod condition;
pub mod hook;
pub mod inventory;
pub mod matching;
