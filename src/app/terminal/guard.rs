//! Takes the terminal over and restores it on every exit.

use std::io::{self, Write as _};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// Whether the terminal is taken over. Static, because the panic hook needs it, and there is one terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOKED: Once = Once::new();

/// While it lives, the terminal is in raw mode, on its alternate screen, without a cursor. Dropping it restores the terminal,
/// as does a panic in any thread, before its message.
#[derive(Debug)]
pub struct TerminalGuard(());

impl TerminalGuard {
    /// Takes the terminal over. Errors are those of the terminal.
    pub fn take() -> io::Result<Self> {
        HOOKED.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                previous(panic);
            }));
        });
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        // From here on, `Drop` restores the terminal.
        let guard = Self(());
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(guard)
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // These fail only if the terminal is gone.
        let _ = execute!(io::stdout(), EndSynchronizedUpdate, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}
