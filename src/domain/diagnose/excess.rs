//! The extra time of writes, shared out among the hooks.

use super::plane::PlaneEvidence;
use crate::cluster::hook::HookKind;
use crate::observe::history::{Baseline, Window};
use crate::thresholds as t;

/// The extra time of writes, to be shared out among the hooks.
#[derive(Debug, Clone, Copy)]
pub struct Excess<'a> {
    window: Option<&'a Window>,
    minute: Option<&'a Window>,
    baseline: &'a Baseline,
    /// Extra seconds of all writes together; `None` when they take no noteworthy extra time.
    all: Option<f64>,
    /// Extra seconds per write that the API server itself takes, without hooks.
    own: f64,
}

impl Excess<'_> {
    /// The part of the extra time of all writes that one hook's calls make up, 0 to 1; `None` when writes take
    /// no noteworthy extra time.
    pub fn share(&self, key: &(HookKind, String)) -> Option<f64> {
        let all = self.all?;
        let series = self.window?.gained.hooks.get(key)?;
        let usual = self.baseline.hook(key).unwrap_or(0.0);
        let own = series.writes.sum - series.writes.count * usual;
        Some((own / all).clamp(0.0, 1.0))
    }

    /// One hook's part of the extra time of a write that meets it, 0 to 1; `None` when its calls take no noteworthy extra
    /// time.
    ///
    /// Most writes of a cluster are leases and node status, which few hooks see: among all writes a hook that holds
    /// up every new Pod can hide.
    pub fn call_share(&self, key: &(HookKind, String)) -> Option<f64> {
        // A window with too few calls is replaced by the minute. Where a hook gets hardly any CREATE or UPDATE, all of its
        // calls count.
        let mut spans = [self.window, self.minute].into_iter().flatten();
        let mean = spans.find_map(|window| {
            let series = window.gained.hooks.get(key)?;
            let mut enough = [series.writes, series.calls].into_iter();
            enough.find(|calls| calls.count >= t::few_calls())?.mean()
        })?;
        // A usual time that was learnt during an incident may be too high.
        let usual = self.baseline.hook(key).unwrap_or(0.0).min(t::slow_at_least());
        let extra = mean - usual;
        (extra >= t::excess_at_least()).then(|| extra / (extra + self.own))
    }
}

impl<'a> PlaneEvidence<'a> {
    /// The extra time of writes.
    ///
    /// The time beyond the usual time per write. Before that is known, beyond the mean of
    /// `apiserver_request_sli_duration_seconds`, which leaves out the time that webhooks take.
    pub fn excess(&self) -> Excess<'a> {
        let window = self.window();
        let all = window.and_then(|Window { gained, .. }| {
            let writes = gained.all_writes();
            let count = writes.duration.count + gained.dry_runs.count;
            let usual = self.baseline.write.median();
            let without = usual.or_else(|| writes.sli.mean()).unwrap_or(0.0);
            let excess = writes.duration.sum + gained.dry_runs.sum - count * without;
            (count >= 1.0 && excess / count >= t::excess_at_least().max(without)).then_some(excess)
        });
        let usual = self.baseline.sli.median().unwrap_or(0.0);
        Excess {
            window,
            minute: self.windows.minute.as_ref(),
            baseline: self.baseline,
            all,
            own: (self.own_seconds().unwrap_or(0.0) - usual).max(0.0),
        }
    }
}
