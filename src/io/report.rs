//! hookwatch's output: the page, metrics, Events, alerts, and lists of objects admitted without review.

pub mod alertmanager;
pub mod events;
pub mod metrics;
pub mod page;
pub mod unchecked;

use std::sync::{Arc, Mutex};

use prometheus::proto::MetricFamily;
use tokio::sync::watch;

use self::metrics::{CertificateEnd, Metrics};
use self::page::past::Past;
use crate::domain::report::assessment::Assessment;
use crate::io::lock;

/// Everything the page, `/metrics` and the API show. Cheap to clone; clones share their content.
#[derive(Debug, Clone)]
pub struct Reported {
    /// The newest assessment; `None` before the first.
    pub assessment: watch::Receiver<Option<Arc<Assessment>>>,
    /// The registry of all metrics.
    pub metrics: Arc<Metrics>,
    /// When each known certificate expires.
    pub certificates: Arc<Mutex<Vec<CertificateEnd>>>,
    /// The last hour, for the page.
    pub past: Arc<Mutex<Past>>,
}

impl Reported {
    /// The current value of every metric.
    pub fn families(&self) -> Vec<MetricFamily> {
        let assessment = self.assessment.borrow().clone();
        self.metrics
            .families(assessment.as_deref(), &self.certificate_ends())
    }

    /// When each known certificate expires.
    pub fn certificate_ends(&self) -> Vec<CertificateEnd> {
        lock(&self.certificates).clone()
    }
}
