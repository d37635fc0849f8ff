//! What is written about a culprit, and what is read to be permitted to.

pub mod audit;
pub mod breaker;
pub mod fence;
pub mod lease;
pub mod ledger;
