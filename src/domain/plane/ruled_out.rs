//! What else might slow writes, and does not.

use super::{Plane, usually};
use crate::domain::time::Time;
use crate::domain::verdict::{NotAHook, human_seconds};

/// Seconds that requests may wait for a seat without anybody's noticing.
const NO_QUEUE: f64 = 0.01;

impl Plane<'_> {
    /// Why it is neither etcd, nor the API server itself, nor flow control, in one sentence, with the end of the
    /// span that this is known for; `None` when one of them is to blame, or nothing is known of them.
    pub fn ruled_out(&self) -> Option<(Time, String)> {
        let elsewhere = self.elsewhere(&[]).map(|found| found.cause);
        if elsewhere.is_some_and(|cause| cause != NotAHook::Unexplained) {
            return None;
        }
        let window = self.window()?;
        let mut innocent = Vec::new();
        if let Some((etcd, usual)) = window.gained.etcd.mean().zip(self.baseline.etcd.median())
            && etcd < 2.0 * usual.max(0.005)
        {
            innocent.push(format!(
                "etcd ({} a request, usually {})",
                human_seconds(etcd),
                usually(&self.baseline.etcd)
            ));
        }
        if let Some((own, usual)) = self.own_seconds().zip(self.baseline.sli.median())
            && own < 2.0 * usual.max(0.005)
        {
            innocent.push(format!(
                "the API server itself ({} of its own per write, usually {})",
                human_seconds(own),
                usually(&self.baseline.sli)
            ));
        }
        if let Some(wait) = window.gained.queue_wait.mean().filter(|wait| *wait < NO_QUEUE) {
            innocent.push(format!("flow control ({} in the queue)", human_seconds(wait)));
        }
        (!innocent.is_empty()).then(|| (window.to, format!("Ruled out: {}.", innocent.join("; "))))
    }
}
