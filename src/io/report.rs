//! What hookwatch shows, pushes and lists.

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

/// The current report. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reported {
    /// The newest assessment; `None` before the first.
    pub assessment: watch::Receiver<Option<Arc<Assessment>>>,
    /// All metrics.
    pub metrics: Arc<Metrics>,
    /// The end of every certificate known.
    pub certificates: Arc<Mutex<Vec<CertificateEnd>>>,
    /// The last hour, for the page.
    pub past: Arc<Mutex<Past>>,
}

impl Reported {
    /// Every metric as it is now.
    pub fn families(&self) -> Vec<MetricFamily> {
        let assessment = self.assessment.borrow().clone();
        self.metrics
            .families(assessment.as_deref(), &self.certificate_ends())
    }

    /// The end of every certificate known.
    pub fn certificate_ends(&self) -> Vec<CertificateEnd> {
        lock(&self.certificates).clone()
    }
}
