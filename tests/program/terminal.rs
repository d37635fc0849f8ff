//! `status` and `top` in a real pseudo-terminal, and as a function of what is known.
//!
//! Every screen that is looked at is kept in `target/tmp/terminal`, for a person to look at too.

use crate::status_page::fixture;
mod given_back;
mod plugin;
mod progress;
mod prompt;
mod pty;
mod screens;
mod served;
mod status;
mod tunnel;
mod view;
