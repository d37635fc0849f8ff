//! Registers metrics with the common prefix and keeps a list of them.

use std::cell::RefCell;

use prometheus::core::Collector;
use prometheus::proto::MetricType;
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts,
    Registry,
};

/// The bucket bounds of all histograms, in seconds. They include 1, 2, 10 and 30 s: the times at which observations count as
/// late, and common webhook timeouts.
pub const SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
];

/// Declares a struct of metrics, one line each: field, method of [`Maker`], name without the prefix, labels, help text.
macro_rules! group {
    ($group:ident: $($field:ident = $make:ident($name:literal $(, $labels:expr)?): $about:literal;)+) => {
        #[derive(Debug)]
        pub(super) struct $group {
            $($field: made!($make),)+
        }

        impl $group {
            pub(in crate::io::report::metrics) fn new(make: &$crate::io::report::metrics::make::Maker<'_>) -> prometheus::Result<Self> {
                Ok(Self {
                    $($field: make.$make($name, $about $(, $labels)?)?,)+
                })
            }
        }
    };
}

/// The type that a method of [`Maker`] returns.
macro_rules! made {
    (gauge) => {
        prometheus::Gauge
    };
    (gauges) => {
        prometheus::GaugeVec
    };
    (passing) => {
        prometheus::GaugeVec
    };
    (counter) => {
        prometheus::IntCounter
    };
    (counters) => {
        prometheus::IntCounterVec
    };
    (amounts) => {
        prometheus::CounterVec
    };
    (histogram) => {
        prometheus::Histogram
    };
    (histograms) => {
        prometheus::HistogramVec
    };
}

/// The declaration of a registered metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// The full name, without the suffixes `_bucket`, `_sum` and `_count` of a histogram's series.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The help text: a sentence.
    pub help: String,
    /// The label names.
    pub labels: Vec<String>,
}

/// Makes a metric with the common prefix and registers it.
pub(super) struct Maker<'a> {
    registry: &'a Registry,
    declared: RefCell<Vec<Declared>>,
    passing: RefCell<Vec<GaugeVec>>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(registry: &'a Registry) -> Self {
        Self {
            registry,
            declared: RefCell::default(),
            passing: RefCell::default(),
        }
    }

    /// All registered metrics, sorted by name, and the gauges that [`passing`](Self::passing) made.
    pub(super) fn made(self) -> (Vec<Declared>, Vec<GaugeVec>) {
        let mut declared = self.declared.into_inner();
        declared.sort_by(|a, b| a.name.cmp(&b.name));
        (declared, self.passing.into_inner())
    }

    fn register<C: Collector + Clone + 'static>(&self, metric: C) -> prometheus::Result<C> {
        let families = metric.collect();
        let kind = families
            .first()
            .map_or(MetricType::UNTYPED, |family| family.get_field_type());
        for description in metric.desc() {
            self.declared.borrow_mut().push(Declared {
                name: description.fq_name.clone(),
                kind: match kind {
                    MetricType::COUNTER => "counter",
                    MetricType::GAUGE => "gauge",
                    MetricType::HISTOGRAM => "histogram",
                    _ => "untyped",
                },
                help: description.help.clone(),
                labels: description.variable_labels.clone(),
            });
        }
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn opts(name: &str, help: &str) -> Opts {
        Opts::new(name, help).namespace("hookwatch")
    }

    fn buckets(name: &str, help: &str) -> HistogramOpts {
        HistogramOpts::from(Self::opts(name, help)).buckets(SECONDS.to_vec())
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> prometheus::Result<Gauge> {
        self.register(Gauge::with_opts(Self::opts(name, help))?)
    }

    pub(super) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
        self.register(GaugeVec::new(Self::opts(name, help), labels)?)
    }

    /// Gauges that are cleared whenever metrics are gathered: a series that is not set again is absent.
    pub(super) fn passing(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
        let gauges = self.gauges(name, help, labels)?;
        self.passing.borrow_mut().push(gauges.clone());
        Ok(gauges)
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.register(IntCounter::with_opts(Self::opts(name, help))?)
    }

    pub(super) fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntCounterVec> {
        self.register(IntCounterVec::new(Self::opts(name, help), labels)?)
    }

    /// Counters of fractional amounts, such as seconds.
    pub(super) fn amounts(&self, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<CounterVec> {
        self.register(CounterVec::new(Self::opts(name, help), labels)?)
    }

    pub(super) fn histogram(&self, name: &str, help: &str) -> prometheus::Result<Histogram> {
        self.register(Histogram::with_opts(Self::buckets(name, help))?)
    }

    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<HistogramVec> {
        self.register(HistogramVec::new(Self::buckets(name, help), labels)?)
    }
}
