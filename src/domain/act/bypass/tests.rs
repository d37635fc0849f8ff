//! Changes of a configuration and their undo, on objects as an API server shows them.

mod desired_states;
mod objects;
mod other_writers;
mod properties;

// `objects` is shared with integration tests, which use this name.
use crate as domain;
