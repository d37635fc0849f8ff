//! What `hookwatch top` draws: a function of what was seen, of what was typed, and of the size of the terminal.
//!
//! Nothing here reads a clock, does I/O or touches a terminal; a repository test checks that.

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

/// All that is known at one instant.
#[derive(Debug, Clone, Default)]
pub struct ViewModel {
    /// Who is asked.
    pub server: CleanText,
    /// The last good answer; `None` before the first.
    pub seen: Option<Arc<ShownAssessment>>,
    /// How long ago that came.
    pub age: Duration,
    /// Why there is no newer one, while there is none.
    pub trouble: Option<CleanText>,
    /// That the daemon answers and judges nothing any more, in its own words.
    pub silent: Option<CleanText>,
    /// The last minutes.
    pub history: WriteHistory,
}
