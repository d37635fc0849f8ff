//! Changing a configuration and bringing it back, on objects as an API server shows them.

mod hands;
mod objects;
mod properties;
mod desired_states;
