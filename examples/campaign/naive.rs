//! The naive judge, as a baseline: what a person concludes from the API server's latency histograms on a dashboard.
//!
//! When the p99 of CREATE and UPDATE requests over the last minute is above a threshold, it blames the webhook with the
//! highest p99 over the same minute. It gets the same scrapes as the core, interpolates percentiles as Prometheus does,
//! handles counter resets, and is scored with the threshold that is best for it over the whole campaign.

use crate::model::cluster::Cluster;
use crate::model::counters::{Counters, HOOK_BOUNDS, Histogram, REQUEST_BOUNDS};
use crate::model::exposition::is_write;
use crate::model::{At, SECOND};
use crate::observers::Reading;

/// The thresholds that are tried, in seconds of the p99 of writes.
pub const THRESHOLDS: [f64; 5] = [0.1, 0.25, 0.5, 1.0, 2.0];
/// The window of the percentiles.
const MINUTE: At = 60 * SECOND;

/// The part of a scrape that the judge keeps.
#[derive(Debug)]
struct Kept {
    replica: usize,
    process: u32,
    at: At,
    writes: Histogram,
    /// One per webhook name and kind.
    hooks: Vec<Histogram>,
}

/// The naive judge, with every threshold at once.
#[derive(Debug)]
pub struct Naive {
    writes: Vec<bool>,
    kept: Vec<Kept>,
    /// For each threshold: each time it blamed a webhook, and which metric series.
    pub named: Vec<Vec<(At, usize)>>,
}

impl Naive {
    pub fn new(cluster: &Cluster) -> Self {
        Self {
            writes: cluster.classes.iter().map(is_write).collect(),
            kept: Vec::new(),
            named: vec![Vec::new(); THRESHOLDS.len()],
        }
    }

    /// Takes a scrape and judges.
    pub fn take(&mut self, reading: &Reading) {
        let kept = self.keep(reading);
        self.kept.push(kept);
        let now = reading.at;
        self.kept
            .retain(|kept| now.saturating_sub(kept.at) <= MINUTE + 20 * SECOND);
        let (writes, hooks) = self.minute(now);
        let Some(p99) = quantile(&writes, 0.99) else {
            return;
        };
        let slowest = hooks
            .iter()
            .enumerate()
            .filter_map(|(series, histogram)| Some((series, quantile(histogram, 0.99)?)))
            .max_by(|(_, a), (_, b)| a.total_cmp(b));
        for (threshold, named) in THRESHOLDS.iter().zip(&mut self.named) {
            if p99 > *threshold
                && let Some((series, _)) = slowest
            {
                named.push((now, series));
            }
        }
    }

    fn keep(&self, reading: &Reading) -> Kept {
        let Counters { requests, calls, .. } = &reading.counters;
        let mut writes = Histogram::new(REQUEST_BOUNDS);
        for (requests, is_write) in requests.iter().zip(&self.writes) {
            if *is_write {
                add(&mut writes, &requests.duration);
            }
        }
        let hooks = calls.iter().map(|calls| {
            let mut all = Histogram::new(HOOK_BOUNDS);
            for (_, histogram) in &calls.durations {
                add(&mut all, histogram);
            }
            all
        });
        Kept {
            replica: reading.replica,
            process: reading.process,
            at: reading.at,
            writes,
            hooks: hooks.collect(),
        }
    }

    /// The increase of the histograms within the last minute, over all API-server processes.
    fn minute(&self, now: At) -> (Histogram, Vec<Histogram>) {
        let mut writes = Histogram::new(REQUEST_BOUNDS);
        let mut hooks: Vec<Histogram> = Vec::new();
        for (index, newest) in self.kept.iter().enumerate() {
            let same = |other: &&Kept| (other.replica, other.process) == (newest.replica, newest.process);
            if self.kept[index + 1..].iter().any(|later| same(&later))
                || now.saturating_sub(newest.at) > MINUTE
            {
                continue;
            }
            let oldest = self
                .kept
                .iter()
                .filter(same)
                .find(|kept| now.saturating_sub(kept.at) <= MINUTE);
            let Some(oldest) = oldest else { continue };
            add_gain(&mut writes, &oldest.writes, &newest.writes);
            hooks.resize_with(newest.hooks.len(), || Histogram::new(HOOK_BOUNDS));
            for (gained, (then, now)) in hooks.iter_mut().zip(oldest.hooks.iter().zip(&newest.hooks)) {
                add_gain(gained, then, now);
            }
        }
        (writes, hooks)
    }
}

fn add(to: &mut Histogram, from: &Histogram) {
    for (to, from) in to.buckets.iter_mut().zip(&from.buckets) {
        *to += from;
    }
    to.sum += from.sum;
    to.count += from.count;
}

fn add_gain(to: &mut Histogram, then: &Histogram, now: &Histogram) {
    for (to, (then, now)) in to.buckets.iter_mut().zip(then.buckets.iter().zip(&now.buckets)) {
        *to += now - then;
    }
    to.sum += now.sum - then.sum;
    to.count += now.count - then.count;
}

/// Like PromQL's `histogram_quantile`: linear within a bucket, and the highest bound for values above it. `None` when the
/// histogram is empty.
fn quantile(histogram: &Histogram, q: f64) -> Option<f64> {
    let rank = q * histogram.count as f64;
    if histogram.count == 0 {
        return None;
    }
    let mut below = 0.0;
    for (index, count) in histogram.buckets.iter().enumerate() {
        let count = *count as f64;
        if below + count >= rank && count > 0.0 {
            let lower = if index == 0 {
                0.0
            } else {
                histogram.bounds[index - 1]
            };
            let Some(upper) = histogram.bounds.get(index) else {
                return Some(lower);
            };
            return Some(lower + (upper - lower) * (rank - below) / count);
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_interpolated_within_its_bucket() {
        let mut histogram = Histogram::new(HOOK_BOUNDS);
        assert_eq!(quantile(&histogram, 0.99), None);
        histogram.observe_many(100, 0.75);
        let p99 = quantile(&histogram, 0.99);
        assert!(p99.is_some_and(|p99| (p99 - 0.995).abs() < 1e-9), "{p99:?}");
        histogram.observe_many(100, 60.0);
        assert_eq!(quantile(&histogram, 0.99), Some(25.0));
    }
}
