//! Delivers requests to the receiver one at a time, with retries until a deadline.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::transport::{FailedExport, Payload, Transport};
use crate::io::report::metrics::{Loss, Signal, TelemetryCounts};

/// The pause before the first retry. It doubles with each retry.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Whole,
    /// The receiver took the request and rejected a part of it.
    InPart,
    Lost,
}

/// Delivers one signal. Logs when a request ends otherwise than the one before it.
#[derive(Debug)]
pub(super) struct SignalDelivery {
    transport: Transport,
    signal: Signal,
    counts: TelemetryCounts,
    stop: watch::Receiver<bool>,
    last: Delivery,
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
            last: Delivery::Whole,
        }
    }

    /// Resolves when it is time to stop.
    pub(super) async fn stopped(&mut self) {
        // A dropped sender means stop as well.
        let _ = self.stop.wait_for(|stop| *stop).await;
    }

    /// Sends a request with `count` spans or data points, with retries until the receiver's timeout.
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
                    self.record_taken(count, rejected.count, &rejected.why);
                    return Ok(());
                }
                Ok(Err(failed)) => failed,
                Err(_) => FailedExport::for_good(Loss::TimedOut, "no answer in time"),
            };
            let Some(asked) = failed.again else {
                break failed;
            };
            // What the receiver asks for (`Retry-After`) can only lengthen the pause.
            let next = asked.unwrap_or(wait).max(wait);
            if Instant::now() + next >= until || *self.stop.borrow() {
                break failed;
            }
            tokio::select! {
                () = sleep(next) => {}
                () = self.stopped() => {}
            }
            wait *= 2;
        };
        self.count_lost(lost.loss, count);
        if self.differs(Delivery::Lost) {
            let (signal, reason) = (self.signal.as_str(), lost.loss.as_str());
            tracing::warn!(signal, reason, "OTLP cannot be delivered: {}", lost.why);
        }
        Err(lost.loss)
    }

    /// Whether the last request ended otherwise than this one.
    fn differs(&mut self, ended: Delivery) -> bool {
        std::mem::replace(&mut self.last, ended) != ended
    }

    pub(super) fn count_lost(&self, loss: Loss, count: u64) {
        self.counts.dropped(self.signal, loss, count);
    }

    fn record_taken(&mut self, count: u64, rejected: u64, why: &str) {
        let rejected = rejected.min(count);
        self.counts.sent(self.signal, count - rejected);
        let signal = self.signal.as_str();
        if rejected > 0 {
            self.counts.dropped(self.signal, Loss::Rejected, rejected);
            if self.differs(Delivery::InPart) {
                tracing::warn!(signal, rejected, "the receiver of OTLP rejects a part: {why}");
            }
        } else if self.differs(Delivery::Whole) {
            tracing::info!(signal, "OTLP is delivered again");
        }
    }
}
