//! Tests of the whole breaker: single incidents, and exhaustive exploration of small worlds (a model checker).

mod canonical;
mod dead;
mod fenced;
mod flapping;
mod incident;
mod incidents;
mod ledger;
mod limits;
mod model;
mod needed;
mod other_writers;
mod promises;
mod setup;
mod shared;
mod world;
