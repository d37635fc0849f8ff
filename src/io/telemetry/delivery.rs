//! Delivers requests to the receiver one at a time, with retries until a deadline.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::transport::{FailedExport, Payload, Transport};
use crate::io::report::metrics::{Loss, Signal, TelemetryCounts};

/// The pause before the first retry. It doubles with each retry.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest pause that a receiver can ask for (`Retry-After`), unless the doubled pause is already longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Delivers one signal. Logs the first of several failures, and the first success after them.
#[derive(Debug)]
pub(super) struct SignalDelivery {
    transport: Transport,
    signal: Signal,
    counts: TelemetryCounts,
    stop: watch::Receiver<bool>,
    failing: bool,
}

impl SignalDelivery {
    /// `stop` turns true when hookwatch stops. A retry that is pending is then made at once, and nothing is retried after it.
    pub(super) fn new(
        transport: Transport,
        signal: Signal,
        counts: TelemetryCounts,
        stop: watch::Receiver<bool>,
    ) -> Self {
        Self {
            transport,
            signal,
            counts,
            stop,
            failing: false,
        }
    }

    /// Resolves when it is time to stop.
    pub(super) async fn stopped(&mut self) {
        // A dropped sender means stop as well.
        let _ = self.stop.wait_for(|stop| *stop).await;
    }

    /// Sends a request with `count` items, with retries until the destination's timeout.
    ///
    /// # Errors
    /// Why they were not delivered. They are already counted as lost.
    pub(super) async fn deliver(&mut self, payload: &impl Payload, count: u64) -> Result<(), Loss> {
        let until = Instant::now() + self.transport.timeout;
        let mut wait = FIRST_WAIT;
        let lost = loop {
            let tried = timeout_at(until, self.transport.send(payload)).await;
            let failed = match tried {
                Ok(Ok(rejected)) => {
                    self.taken(count, rejected.count, &rejected.why);
                    return Ok(());
                }
                Ok(Err(failed)) => failed,
                Err(_) => FailedExport::for_good(Loss::TimedOut, "no answer in time"),
            };
            let Some(asked) = failed.again else {
                break failed;
            };
            // Never shorter than our own pause, even if the receiver asks for less.
            let next = asked.unwrap_or(wait).clamp(wait, LONGEST_WAIT.max(wait));
            if Instant::now() + next >= until || *self.stop.borrow() {
                break failed;
            }
            tokio::select! {
                () = sleep(next) => {}
                () = self.stopped() => {}
            }
            wait *= 2;
        };
        self.give_up(lost.loss, count);
        if !std::mem::replace(&mut self.failing, true) {
            let (signal, reason) = (self.signal.as_str(), lost.loss.as_str());
            tracing::warn!(signal, reason, "OTLP cannot be delivered: {}", lost.why);
        }
        Err(lost.loss)
    }

    pub(super) fn give_up(&self, loss: Loss, count: u64) {
        self.counts.dropped(self.signal, loss, count);
    }

    fn taken(&mut self, count: u64, rejected: u64, why: &str) {
        let rejected = rejected.min(count);
        self.counts.sent(self.signal, count - rejected);
        let signal = self.signal.as_str();
        if rejected > 0 {
            self.counts.dropped(self.signal, Loss::Rejected, rejected);
        }
        match (rejected > 0, self.failing) {
            (true, false) => tracing::warn!(signal, rejected, "the receiver of OTLP rejects a part: {why}"),
            (false, true) => tracing::info!(signal, "OTLP is delivered again"),
            _ => {}
        }
        self.failing = rejected > 0;
    }
}
