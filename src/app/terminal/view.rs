//! What `hookwatch top` draws: a function of what was seen, of what was typed, and of the size of the terminal.
//!
//! Nothing here reads a clock, does I/O or touches a terminal: the lints see to the standard library, a repository test to the rest.

#![deny(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types
)]

mod canvas;
mod curve;
mod detail;
pub mod history;
pub mod screen;
pub mod shown;
pub mod state;
mod table;

use std::sync::Arc;
use std::time::Duration;

use self::history::WriteHistory;
use self::shown::ShownAssessment;
use crate::app::text::CleanText;

/// What the screen shows: the last answer, and how current it is.
#[derive(Debug, Clone, Default)]
pub struct ViewModel {
    /// The daemon that is asked, by its address.
    pub server: CleanText,
    /// The last good answer; `None` before the first.
    pub seen: Option<Arc<ShownAssessment>>,
    /// How long ago that answer came.
    pub age: Duration,
    /// Why the last request failed; `None` once one succeeds.
    pub trouble: Option<CleanText>,
    /// The daemon's own words if it answers but has stopped judging.
    pub silent: Option<CleanText>,
    /// The last ten minutes.
    pub history: WriteHistory,
}
