//! The breaker as a whole: single incidents, and all that can happen in small worlds.

mod canonical;
mod dead;
mod fenced;
mod flapping;
mod hands;
mod incident;
mod incidents;
mod ledger;
mod limits;
mod model;
mod needed;
mod promises;
mod setup;
mod shared;
mod world;
