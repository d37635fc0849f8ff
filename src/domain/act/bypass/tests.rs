//! Changing a configuration and bringing it back, on objects as an API server shows them.

mod desired_states;
mod hands;
mod objects;
mod properties;

// As the integration tests that share `objects` name it.
use crate as domain;
