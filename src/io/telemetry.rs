//! The daemon's own telemetry: logs, and traces and metrics over OTLP.
//!
//! OTLP is off unless the standard `OTEL_*` variables ask for it, and then nothing here exists: no task, no client,
//! no span. What is on is bounded: spans wait in a queue of fixed length and past it are counted and gone, metrics
//! are read off the registry of [`Metrics`](super::report::metrics::Metrics) when it is time to send them and kept nowhere,
//! each request has a deadline, and so has the flush at the end. Nothing that observes or judges ever waits.

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

/// Who made spans and metrics, within the service.
const SCOPE: &str = "hookwatch";
/// The longest that stopping waits for what is not delivered yet.
pub const FLUSH: Duration = Duration::from_secs(5);

/// What sends traces and metrics. Off, it is nothing at all.
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
    /// Starts the exports of `settings`. One that cannot be set up is logged and left out: watching matters more than
    /// being watched. Must be called inside the runtime.
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

    /// Makes spans; off when traces are.
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Delivers what is waiting, for at most [`FLUSH`].
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

/// The transport to a destination; `None`, and a line in the log, when it cannot be opened.
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
