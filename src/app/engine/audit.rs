//! Carries out the audits that the core asks for, each on a thread of its own that takes a small part of one processor.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::domain::audit::periodic::{AuditRequest, AuditResult};
use crate::domain::watchdog::Event;

/// Longest work without a pause, so that a container with a CPU limit is not throttled.
const SLICE: Duration = Duration::from_millis(5);
/// Pause after each slice: an audit takes at most a fifth of one processor.
const PAUSE: Duration = Duration::from_millis(20);

/// Starts an audit. Its findings come back as `Event::Audited`.
pub(super) fn begin(request: AuditRequest, events: &mpsc::Sender<Event>) {
    let events = events.clone();
    // A plain thread, because the runtime would wait for its own blocking threads when it ends.
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
        // The send fails only when the daemon is stopping.
        let _ = events.blocking_send(Event::Audited(Box::new(audited)));
    });
    if let Err(error) = begun {
        tracing::warn!("no audit: there is no thread for it ({error}); it is tried again");
    }
}
