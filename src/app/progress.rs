//! What lasts says so: one line on a terminal, written over, and nothing anywhere else.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use ratatui::crossterm::terminal::size;
use tokio::time::{Instant, interval_at};

use super::text::{clean, cut};

/// What is done by then needs no word.
const QUIET: Duration = Duration::from_secs(2);
/// Interval between two progress messages.
const AGAIN: Duration = Duration::from_secs(1);

/// A line on standard error that is written over, where that is a terminal.
#[derive(Debug)]
pub struct ProgressLine {
    terminal: bool,
    shown: bool,
}

impl ProgressLine {
    /// A line that is never shown.
    pub const fn off() -> Self {
        Self {
            terminal: false,
            shown: false,
        }
    }

    /// Shows this instead of what was there.
    pub fn show(&mut self, text: &str) {
        if self.terminal {
            self.shown = true;
            // A line that wraps could not be overwritten.
            let wide = size().map_or(80, |(columns, _)| usize::from(columns));
            write_over(&cut(&clean(text), wide.saturating_sub(1)));
        }
    }

    /// Clears the line before other output.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            write_over("");
        }
    }
}

/// A terminal that cannot be written to needs no progress.
fn write_over(text: &str) {
    let mut out = std::io::stderr();
    let _ = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
}

impl Default for ProgressLine {
    fn default() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            shown: false,
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Does something, and says what and for how long when it takes more than a moment.
pub async fn during<T>(what: &str, work: impl Future<Output = T>) -> T {
    let (began, mut line) = (Instant::now(), ProgressLine::default());
    let mut tick = interval_at(began + QUIET, AGAIN);
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = work.as_mut() => return done,
            _ = tick.tick() => line.show(&format!("{what}, for {} s", began.elapsed().as_secs())),
        }
    }
}
