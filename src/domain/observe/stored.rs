//! The API servers' metrics as stored by a Prometheus, for clusters whose API servers cannot be scraped.
//!
//! Stored samples are up to a scrape interval old and come through another process. They are therefore used only while
//! hookwatch's own scrapes fail, and a verdict based on them has a lower confidence. The breaker never gets them: nothing in
//! here reaches [`Judged`](crate::act::breaker::Judged).

pub mod answer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::history::{History, Windows};
use super::observations::TargetState;
use super::snapshot::{Complaints, Scrape, ScrapeFailure};
use super::views::StoredView;
use crate::text::human;
use crate::time::Time;
use crate::{row, thresholds as t};

/// Most API servers read from one Prometheus.
pub const MAX_INSTANCES: usize = 64;

/// One reading of a Prometheus.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PrometheusReading {
    /// The address of the Prometheus.
    pub source: String,
    /// When the answer was complete.
    pub at: Time,
    /// How long the query took.
    pub took: Duration,
    /// Size of the answer's body in bytes.
    pub bytes: u64,
    /// The stored scrapes, the oldest first, with times by hookwatch's clock. Each target is a value of the label `instance`.
    pub scrapes: Vec<Scrape>,
    /// Samples that could not be used.
    pub complaints: Complaints,
}

#[derive(Debug, Clone, Copy, Default)]
struct InstanceState {
    /// When the Prometheus last scraped it.
    newest: Time,
    /// Time between the last two scrapes; `None` while only one is known.
    resolution: Option<Duration>,
}

/// The scrapes read from a Prometheus, and the state of reading it.
#[derive(Debug, Default)]
pub struct PrometheusMemory {
    /// The differences between its scrapes, and the baseline.
    history: History,
    instances: BTreeMap<String, InstanceState>,
    source: Option<String>,
    state: TargetState,
}

/// Recent windows of the API servers' counters, from a Prometheus.
#[derive(Debug, Clone)]
pub struct StoredWindows {
    /// What the API servers counted recently.
    pub windows: Arc<Windows>,
    source: String,
    /// The longest scrape interval among the API servers.
    resolution: Duration,
    /// The time since the last scrape of the API server that was scraped least recently.
    age: Duration,
}

impl StoredWindows {
    /// The factor for the confidence of a verdict based on these: 1 for a current sample, less the longer the state may have
    /// changed since, and at least [`t::stored_trust_at_least`].
    pub fn trust(&self) -> f64 {
        let unseen = (self.resolution + self.age).as_secs_f64();
        (1.0 - unseen / t::stored_doubt().as_secs_f64()).max(t::stored_trust_at_least())
    }

    /// The source, its scrape interval and its age, as a sentence.
    pub fn sentence(&self) -> String {
        let (source, resolution, age) = (&self.source, human(self.resolution), human(self.age));
        format!(
            "The API servers' counters come from the Prometheus at {source}: one scrape every {resolution}, the newest \
             {age} old."
        )
    }
}

impl PrometheusMemory {
    /// Records a reading. Returns whether a reported failure is over.
    pub fn take(&mut self, reading: PrometheusReading) -> bool {
        let at = reading.at;
        self.source = Some(reading.source);
        for scrape in reading.scrapes {
            // Consecutive queries overlap, so some scrapes are read twice.
            let known = self.instances.get(&scrape.target).map(|known| known.newest);
            if known.is_some_and(|newest| scrape.at.since(newest) < t::min_interval()) {
                continue;
            }
            let instance = row::entry(
                &mut self.instances,
                MAX_INSTANCES,
                scrape.target.clone(),
                |known| known.newest,
            );
            instance.resolution = known.map(|newest| scrape.at.since(newest));
            instance.newest = scrape.at;
            self.state.missing = scrape.snapshot.missing();
            self.history.take(scrape);
        }
        // Without a new scrape the missing metrics stay as they were.
        let missing = std::mem::take(&mut self.state.missing);
        self.state.succeeded(at, missing);
        self.state.is_over(at, false)
    }

    /// Records a failure. Returns whether to report it: the first, and each of another kind than the one before.
    pub fn failed(&mut self, failure: ScrapeFailure) -> bool {
        self.source = Some(failure.target.clone());
        self.state.failed(failure)
    }

    fn current(&self, now: Time) -> impl Iterator<Item = &InstanceState> {
        let instances = self.instances.values();
        instances.filter(move |known| now.since(known.newest) <= t::stored_speaks())
    }

    /// Its recent windows; `None` if its samples are too old or too far apart, or no API server has two of them.
    pub fn speaks(&mut self, now: Time) -> Option<StoredWindows> {
        let newest = self.newest(now)?;
        let resolution = self.current(now).filter_map(|known| known.resolution).max()?;
        let windows = self.history.windows(newest);
        windows.recent.as_ref()?;
        Some(StoredWindows {
            windows,
            source: self.source.clone()?,
            resolution,
            age: now.since(newest),
        })
    }

    /// The history that should learn a baseline, and the time to learn as of: that of the newest scrape that every API server has.
    pub fn pupil(&mut self, now: Time) -> Option<(&mut History, Time)> {
        let newest = self.newest(now)?;
        Some((&mut self.history, newest))
    }

    /// The differences between its scrapes, and the baseline.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The newest instant up to which every current API server was scraped.
    fn newest(&self, now: Time) -> Option<Time> {
        self.current(now).map(|known| known.newest).min()
    }

    /// Its state for users; `None` if no Prometheus has been asked.
    pub fn view(&self, used: bool, now: Time) -> Option<StoredView> {
        let newest = self.instances.values().map(|known| known.newest).max();
        let resolution = self.instances.values().filter_map(|known| known.resolution).max();
        Some(StoredView {
            source: self.source.clone()?,
            used,
            api_servers: self.current(now).count(),
            age_seconds: newest.map(|newest| now.since(newest).as_secs_f64()),
            resolution_seconds: resolution.map(|resolution| resolution.as_secs_f64()),
            failure: self.state.failure.as_ref().map(|failure| failure.why.clone()),
            failing_since: self.state.failing_since,
            missing: self.state.missing.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
