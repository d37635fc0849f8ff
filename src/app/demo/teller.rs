//! Prints the progress of a demo.

use std::io::Write;
use std::time::Instant;

use anyhow::Context;

use super::timeline::{DemoEvent, render};

pub struct Teller {
    /// `None` when there is no progress output.
    pub out: Option<Box<dyn Write + Send>>,
    pub colour: bool,
    pub started: Instant,
}

impl Teller {
    /// Prints one event.
    pub fn tell(&mut self, event: DemoEvent) -> anyhow::Result<()> {
        if let Some(out) = &mut self.out {
            let text = render(self.started.elapsed(), &event, self.colour);
            out.write_all(text.as_bytes())
                .and_then(|()| out.flush())
                .context("writing the timeline")?;
        }
        Ok(())
    }
}
