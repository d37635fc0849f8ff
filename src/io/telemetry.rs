//! The daemon's own telemetry: logs, and traces and metrics over OTLP.
//!
//! OTLP is off unless the standard `OTEL_*` variables turn it on. While it is off there is no task, client or span. While it
//! is on it is bounded: spans wait in a queue of fixed length, and while that is full spans are dropped and counted. Metrics
//! are read from the registry of [`Metrics`](super::report::metrics::Metrics) when they are sent, and not buffered. Each
//! request and the final flush have deadlines. Telemetry never blocks observing or judging.

mod bridge;
mod delivery;
mod logs;
mod observation;
mod periodic;
mod queue;
mod settings;
mod trace;
mod transport;

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Clock;
use super::report::Reported;
use super::report::metrics::Signal;

pub use logs::{LogFormat, start};
pub use observation::ObservationSpan;
pub use opentelemetry::trace::TraceId;
pub use settings::{Destination, MetricsSettings, Protocol, TelemetrySettings, TracesSettings};
pub use trace::Tracer;

/// The name of the instrumentation scope of all spans and metrics.
const SCOPE: &str = "hookwatch";
/// Longest wait at the end for the delivery of pending traces and metrics.
pub const FLUSH: Duration = Duration::from_secs(5);

/// Sends traces and metrics. While both are off it has no tasks.
#[derive(Debug, Default)]
pub struct Telemetry {
    tracer: Tracer,
    running: Option<RunningTelemetry>,
}

#[derive(Debug)]
struct RunningTelemetry {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Telemetry {
    /// Starts the exports that `settings` ask for. An export that cannot be set up is logged and left out, because hookwatch's
    /// own telemetry must not keep it from watching. Must be called inside a tokio runtime.
    pub fn start(settings: TelemetrySettings, shown: &Reported, clock: &Clock) -> Self {
        for complaint in &settings.complaints {
            tracing::warn!("{complaint}");
        }
        if settings.is_off() {
            return Self::default();
        }
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let counts = shown.metrics.telemetry();
        let mut tracer = Tracer::default();
        if let Some(traces) = settings.traces
            && let Some(transport) = open(&traces.destination, Signal::Traces)
        {
            let (queue, waiting) = queue::queue(traces.queue, counts.clone());
            let delivery =
                delivery::SignalDelivery::new(transport, Signal::Traces, counts.clone(), stopped.clone());
            tasks.spawn(waiting.send(delivery, traces.batch, traces.delay, settings.resource.clone()));
            tracer = Tracer::new(traces, queue, clock, &shown.metrics);
        }
        if let Some(metrics) = settings.metrics
            && let Some(transport) = open(&metrics.destination, Signal::Metrics)
        {
            let delivery = delivery::SignalDelivery::new(transport, Signal::Metrics, counts.clone(), stopped);
            let source = bridge::MetricSource::new(shown.clone(), settings.resource, clock);
            tasks.spawn(periodic::send(source, delivery, metrics.interval));
        }
        Self {
            tracer,
            running: Some(RunningTelemetry { tasks, stop }),
        }
    }

    /// The tracer; it makes no spans if traces are off.
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Stops the exports after delivering what is pending, for at most [`FLUSH`].
    pub async fn stop(self) {
        let Some(RunningTelemetry { mut tasks, stop }) = self.running else {
            return;
        };
        self.tracer.end();
        stop.send_replace(true);
        let flushed = tokio::time::timeout(FLUSH, async { while tasks.join_next().await.is_some() {} }).await;
        if flushed.is_err() {
            tracing::warn!(
                "the last traces and metrics could not be delivered within {} s",
                FLUSH.as_secs()
            );
        }
    }
}

/// Opens the transport to a destination. Logs the result; `None` if it fails.
fn open(destination: &Destination, signal: Signal) -> Option<transport::Transport> {
    let protocol = destination.protocol.as_str();
    match transport::Transport::open(destination) {
        Ok(transport) => {
            let endpoint = destination.endpoint.to_string();
            tracing::info!(endpoint, protocol, "{signal} are sent over OTLP");
            Some(transport)
        }
        Err(why) => {
            tracing::error!(protocol, "{signal} are not sent: {why}");
            None
        }
    }
}
