//! Progress of slow commands: one line on standard error, overwritten in place; nothing where that is no terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use ratatui::crossterm::terminal::size;
use tokio::time::{Instant, interval_at};

use super::text::{clean, cut};

/// Commands that end within this time show no progress.
const DELAY: Duration = Duration::from_secs(2);
/// Time between two updates.
const INTERVAL: Duration = Duration::from_secs(1);

/// A progress line on standard error; never shown where that is no terminal.
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

    /// Replaces the line with `text`.
    pub fn show(&mut self, text: &str) {
        if self.terminal {
            self.shown = true;
            // A line that wraps could not be overwritten.
            // A pseudo-terminal without a size says that it has 0 columns.
            let columns = size().map_or(0, |(columns, _)| usize::from(columns));
            let columns = if columns == 0 { 80 } else { columns };
            write_over(&cut(&clean(text), columns - 1));
        }
    }

    /// Clears the line before other output.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            write_over("");
        }
    }

    /// Runs `work`; once it takes longer than two seconds, shows `what` and the seconds so far.
    pub async fn during<T>(&mut self, what: &str, work: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let mut tick = interval_at(began + DELAY, INTERVAL);
        let mut work = std::pin::pin!(work);
        let done = loop {
            tokio::select! {
                done = work.as_mut() => break done,
                _ = tick.tick() => self.show(&format!("{what}, for {} s", began.elapsed().as_secs())),
            }
        };
        self.clear();
        done
    }
}

/// Replaces the line on the terminal. A failed write is ignored: progress is no result.
fn write_over(text: &str) {
    let mut out = std::io::stderr();
    let _ = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
}

impl Default for ProgressLine {
    fn default() -> Self {
        Self {
            // A dumb terminal prints the sequence that clears a line.
            terminal: std::io::stderr().is_terminal()
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
            shown: false,
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Runs `work` with a progress line of its own; see [`ProgressLine::during`].
pub async fn during<T>(what: &str, work: impl Future<Output = T>) -> T {
    ProgressLine::default().during(what, work).await
}
