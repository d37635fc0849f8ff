//! Reads what a Prometheus has stored of the API servers' metrics.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::app::config::PrometheusConfig;
use crate::domain::observe::snapshot::ScrapeFailureReason;
use crate::domain::watchdog::Event;
use crate::io::Clock;
use crate::io::observe::prometheus::Prometheus;

/// Least pause after Prometheus refused a query because of its load.
const OVERLOADED: Duration = Duration::from_secs(60);

/// Polls Prometheus at a fixed interval. New samples appear at its own scrape interval, so polling faster in an incident gains
/// nothing.
pub(super) async fn read(config: PrometheusConfig, clock: Clock, events: mpsc::Sender<Event>) {
    let interval = config.interval;
    let mut prometheus = Prometheus::new(config.target, config.selector, config.limits, clock);
    loop {
        let began = Instant::now();
        let (event, pause) = match prometheus.read().await {
            Ok(reading) => (Event::Stored(Box::new(reading)), interval),
            Err(failure) if failure.reason == ScrapeFailureReason::Refused => {
                (Event::StoredFailed(failure), interval.max(OVERLOADED))
            }
            Err(failure) => (Event::StoredFailed(failure), interval),
        };
        if events.send(event).await.is_err() {
            return;
        }
        sleep_until(began + pause).await;
    }
}
