//! Sends metrics over OTLP at an interval.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::bridge::MetricSource;
use super::delivery::SignalDelivery;

/// Sends all metrics every `interval`, and once more at the stop signal.
pub(super) async fn send(source: MetricSource, mut delivery: SignalDelivery, interval: Duration) {
    let mut tick = tokio::time::interval_at(Instant::now() + interval, interval);
    // After a slow delivery the next one is a whole interval later; missed ones are not caught up.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let last = tokio::select! {
            _ = tick.tick() => false,
            () = delivery.stopped() => true,
        };
        let mut delivered = Ok(());
        for (request, points) in source.requests() {
            match delivered {
                Ok(()) => delivered = delivery.deliver(&request, points).await,
                // After a failed request the rest is given up: each would wait for its own deadline.
                Err(loss) => delivery.count_lost(loss, points),
            }
        }
        if last {
            return;
        }
    }
}
