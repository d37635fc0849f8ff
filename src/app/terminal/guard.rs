//! A terminal taken over, and given back however it ends.

use std::io::{self, Write as _};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// Whether the terminal is taken over. The hook for panics has to know, and there is one terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOKED: Once = Once::new();

/// The terminal is taken over for as long as this lives: no line editing, another screen, no cursor. It is given back
/// when this is dropped, and before a panic is told, whichever thread it is in.
#[derive(Debug)]
pub struct TerminalGuard(());

impl TerminalGuard {
    /// Takes it over.
    pub fn take() -> io::Result<Self> {
        HOOKED.call_once(|| {
            let tell = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                tell(panic);
            }));
        });
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        // From here on whatever was done is undone.
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
        // A terminal that is gone has nothing to be given back.
        let _ = execute!(io::stdout(), EndSynchronizedUpdate, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}
