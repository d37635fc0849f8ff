//! What may be done about a culprit, by whom, how it is written down, and how it is taken back.

pub mod breaker;
pub mod bypass;
pub mod fence;
pub mod leadership;
pub mod ledger;
