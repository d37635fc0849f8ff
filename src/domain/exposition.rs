//! The Prometheus text format as a stream.

use super::snapshot::{Complaints, Snapshot};

/// Reads an exposition chunk by chunk and keeps only what a [`Snapshot`] wants.
#[derive(Debug, Default)]
pub struct Exposition {
    snapshot: Snapshot,
    complaints: Complaints,
}

impl Exposition {
    /// A reader that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece of the body, cut anywhere.
    pub fn feed(&mut self, _chunk: &[u8]) {}

    /// What was read. The last line counts only when it was complete.
    pub fn finish(self) -> (Snapshot, Complaints) {
        (self.snapshot, self.complaints)
    }
}
