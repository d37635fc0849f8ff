//! Carries out the audits that the core asks for, each on a thread of its own that takes a small part of one processor.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::domain::audit::periodic::{AuditRequest, AuditResult};
use crate::domain::watchdog::Event;

/// Longest work without a pause, so that a container with a CPU limit is not throttled.
const SLICE: Duration = Duration::from_millis(5);
/// As long as this.
const PAUSE: Duration = Duration::from_millis(20);

/// Begins one. What it finds comes back as an event.
pub(super) fn begin(request: AuditRequest, events: &mpsc::Sender<Event>) {
    let events = events.clone();
    // No task of the runtime: that would wait for it when it ends.
    let thread = std::thread::Builder::new().name("audit".to_owned());
    let begun = thread.spawn(move || {
        let began = Instant::now();
        let rested = Cell::new(began);
        let findings = request.run(&|| {
            if rested.get().elapsed() >= SLICE {
                std::thread::sleep(PAUSE);
                rested.set(Instant::now());
            }
        });
        let audited = AuditResult {
            at: request.at,
            took: began.elapsed(),
            findings,
        };
        // Nothing listens any more when the daemon ends.
        let _ = events.blocking_send(Event::Audited(Box::new(audited)));
    });
    if let Err(error) = begun {
        tracing::warn!("no audit: there is no thread for it ({error}); it is tried again");
    }
}
