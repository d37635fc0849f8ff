//! The settings of telemetry, read from the standard `OTEL_*` variables only.
//!
//! As in the specification, an invalid value is logged and counts as not set, an empty value counts as not set, and a variable
//! of one signal overrides that of both. Two things differ: a signal is sent only if an endpoint is set or the exporter
//! `otlp` is named, and one whose endpoint is invalid is not sent at all.

mod destination;
mod read;

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::Sampler;

use crate::io::report::metrics::Signal;
use read::VariableReader;

pub use destination::{Destination, Protocol};

/// The settings of telemetry.
#[derive(Debug, Clone)]
pub struct TelemetrySettings {
    /// Settings of traces; `None` if they are off.
    pub traces: Option<TracesSettings>,
    /// Settings of metrics; `None` if they are off.
    pub metrics: Option<MetricsSettings>,
    /// The resource attributes, such as `service.name`, that go with every request.
    pub resource: Resource,
    /// A sentence for each invalid value, for the log.
    pub complaints: Vec<String>,
}

/// How spans are sampled and sent.
#[derive(Debug, Clone)]
pub struct TracesSettings {
    /// Where spans are sent.
    pub destination: Destination,
    /// Which traces are recorded.
    pub sampler: Sampler,
    /// Whether probes carry the header `traceparent`.
    pub propagate: bool,
    /// Most spans that wait to be sent; at least 1.
    pub queue: usize,
    /// Most spans of one request; at least 1, at most `queue`.
    pub batch: usize,
    /// Longest time that a span waits for others to be sent in the same request.
    pub delay: Duration,
}

/// How metrics are sent.
#[derive(Debug, Clone)]
pub struct MetricsSettings {
    /// Where metrics are sent.
    pub destination: Destination,
    /// Time between two exports; at least 1 ms.
    pub interval: Duration,
}

/// The longest queue that can be configured, in spans. A span takes about 1 kB, so this is about 1 GB.
const LONGEST_QUEUE: u64 = 1 << 20;

impl TelemetrySettings {
    /// Settings with which nothing is sent.
    pub fn off() -> Self {
        Self {
            traces: None,
            metrics: None,
            resource: Resource::builder_empty().build(),
            complaints: Vec::new(),
        }
    }

    /// Reads the settings from the environment of the process.
    pub fn from_environment() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads the settings from variables. `variable` returns the value of a name, or `None` if it is not set.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut reader = VariableReader::new(&variable);
        let mut settings = Self::off();
        if !reader.flag("OTEL_SDK_DISABLED") {
            settings.traces = traces(&mut reader);
            settings.metrics = metrics(&mut reader);
            if !settings.is_off() {
                settings.resource = resource(&mut reader);
            }
        }
        settings.complaints = reader.complaints;
        settings
    }

    /// Whether neither traces nor metrics are sent.
    pub fn is_off(&self) -> bool {
        self.traces.is_none() && self.metrics.is_none()
    }
}

fn traces(reader: &mut VariableReader<'_>) -> Option<TracesSettings> {
    let mut destination = destination::of(reader, Signal::Traces)?;
    let most = reader.millis("OTEL_BSP_EXPORT_TIMEOUT", 30_000);
    destination.timeout = destination.timeout.min(most);
    let queue = reader.number("OTEL_BSP_MAX_QUEUE_SIZE", 2_048, 1..=LONGEST_QUEUE);
    let batch = reader.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512, 1..=LONGEST_QUEUE);
    let propagators = reader.list("OTEL_PROPAGATORS");
    for name in propagators.iter().flatten() {
        // `baggage` is accepted, but hookwatch has no baggage to send.
        if !matches!(name.as_str(), "tracecontext" | "baggage" | "none") {
            reader.complain(
                "OTEL_PROPAGATORS",
                &format!("{name} is not there; there are tracecontext, baggage and none"),
            );
        }
    }
    Some(TracesSettings {
        destination,
        sampler: sampler(reader),
        propagate: propagators.is_none_or(|names| names.iter().any(|name| name == "tracecontext")),
        queue: usize::try_from(queue).unwrap_or(usize::MAX),
        batch: usize::try_from(batch.min(queue)).unwrap_or(usize::MAX),
        delay: reader.millis("OTEL_BSP_SCHEDULE_DELAY", 5_000),
    })
}

fn metrics(reader: &mut VariableReader<'_>) -> Option<MetricsSettings> {
    let mut destination = destination::of(reader, Signal::Metrics)?;
    let most = reader.millis("OTEL_METRIC_EXPORT_TIMEOUT", 30_000);
    destination.timeout = destination.timeout.min(most);
    Some(MetricsSettings {
        destination,
        interval: reader.millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
    })
}

/// Every trace begins in hookwatch, so a `parentbased_` sampler does the same as the one without the prefix.
fn sampler(reader: &mut VariableReader<'_>) -> Sampler {
    const NAME: &str = "OTEL_TRACES_SAMPLER";
    let root = match reader.text(NAME).as_deref() {
        None | Some("parentbased_always_on" | "always_on") => Sampler::AlwaysOn,
        Some("parentbased_always_off" | "always_off") => Sampler::AlwaysOff,
        Some("parentbased_traceidratio" | "traceidratio") => Sampler::TraceIdRatioBased(reader.ratio()),
        Some(other) => {
            reader.complain(NAME, &format!("there is no sampler {other}"));
            Sampler::AlwaysOn
        }
    };
    Sampler::ParentBased(Box::new(root))
}

fn resource(reader: &mut VariableReader<'_>) -> Resource {
    let mut attributes = vec![
        KeyValue::new("service.name", "hookwatch"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
    ];
    // Without it two replicas would write to the same series. In a Pod the host name is the Pod's name.
    let host = rustix::system::uname();
    if let Ok(host) = host.nodename().to_str() {
        attributes.push(KeyValue::new("service.instance.id", host.to_owned()));
    }
    // Attributes that are added later override earlier ones of the same key.
    for (key, value) in reader.pairs("OTEL_RESOURCE_ATTRIBUTES") {
        attributes.push(KeyValue::new(key, value));
    }
    if let Some(name) = reader.text("OTEL_SERVICE_NAME") {
        attributes.push(KeyValue::new("service.name", name));
    }
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attributes(attributes)
        .build()
}

#[cfg(test)]
mod tests;
