//! Who tells of a demo, as it happens.

use std::io::Write;
use std::time::Instant;

use anyhow::Context;

use super::timeline::{DemoEvent, TimelineEntry, render};

/// Where the timeline goes.
pub struct TimelineWriter {
    /// `None` when nothing is to be told on the way.
    pub out: Option<Box<dyn Write + Send>>,
    /// Whether to use colours.
    pub colour: bool,
}

/// Writes the timeline.
pub struct Teller {
    account: TimelineWriter,
    started: Instant,
}

impl Teller {
    /// `started` is when the demo began.
    pub fn new(account: TimelineWriter, started: Instant) -> Self {
        Self { account, started }
    }

    /// One more line.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn tell(&mut self, event: DemoEvent) -> anyhow::Result<()> {
        if let Some(out) = &mut self.account.out {
            let entry = TimelineEntry {
                at: self.started.elapsed(),
                event,
            };
            let text = render(&entry, self.account.colour);
            out.write_all(text.as_bytes())
                .and_then(|()| out.flush())
                .context("writing the timeline")?;
        }
        Ok(())
    }
}
