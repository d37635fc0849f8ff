//! The API servers' metrics as a Prometheus has stored them, for clusters whose API servers cannot be scraped.
//!
//! Stored samples are late by up to a scrape interval, and come from another process. So they are used only while
//! hookwatch's own scrapes fail, a verdict based on them is less certain, and the breaker never gets them: nothing in here
//! reaches [`Judged`](crate::act::breaker::Judged).

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
    /// How long it took.
    pub took: Duration,
    /// Bytes of the body as read.
    pub bytes: u64,
    /// The scrapes that it has stored, the oldest first, by hookwatch's clock. The target is the label `instance`.
    pub scrapes: Vec<Scrape>,
    /// What could not be used.
    pub complaints: Complaints,
}

#[derive(Debug, Clone, Copy, Default)]
struct InstanceState {
    /// When it was scraped last.
    newest: Time,
    /// Time between the last two scrapes; `None` while only one is known.
    resolution: Option<Duration>,
}

/// What is remembered of a Prometheus.
#[derive(Debug, Default)]
pub struct PrometheusMemory {
    /// What its scrapes add up to.
    history: History,
    instances: BTreeMap<String, InstanceState>,
    source: Option<String>,
    state: TargetState,
}

/// Recent windows from a Prometheus.
#[derive(Debug, Clone)]
pub struct StoredWindows {
    /// Recent counts of the API servers.
    pub windows: Arc<Windows>,
    source: String,
    /// The longest scrape interval of an API server.
    resolution: Duration,
    /// The age of the newest scrape of the API server where that is oldest.
    age: Duration,
}

impl StoredWindows {
    /// The factor for a confidence based on this: 1 for a sample of this instant, and less the longer the state may have
    /// changed unseen.
    pub fn trust(&self) -> f64 {
        let unseen = (self.resolution + self.age).as_secs_f64();
        (1.0 - unseen / t::stored_doubt().as_secs_f64()).max(t::stored_trust_at_least())
    }

    /// Where it comes from, and how old and coarse it is, as a sentence.
    pub fn sentence(&self) -> String {
        let (source, resolution, age) = (&self.source, human(self.resolution), human(self.age));
        format!(
            "The API servers' counters come from the Prometheus at {source}: one scrape every {resolution}, the newest \
             {age} old."
        )
    }
}

impl PrometheusMemory {
    /// Records a reading, and returns whether reported failures are over.
    pub fn take(&mut self, reading: PrometheusReading) -> bool {
        let at = reading.at;
        self.source = Some(reading.source);
        for scrape in reading.scrapes {
            // A Prometheus is asked for some scrapes twice.
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
        // Where nothing new was read it is as it was.
        let missing = std::mem::take(&mut self.state.missing);
        self.state.succeeded(at, missing);
        self.state.is_over(at, false)
    }

    /// Takes a failure in, and says whether it is worth telling.
    pub fn failed(&mut self, failure: ScrapeFailure) -> bool {
        self.source = Some(failure.target.clone());
        self.state.failed(failure)
    }

    fn current(&self, now: Time) -> impl Iterator<Item = &InstanceState> {
        let instances = self.instances.values();
        instances.filter(move |known| now.since(known.newest) <= t::stored_speaks())
    }

    /// Its recent windows; `None` where its samples are too old or too coarse.
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

    /// What is to learn what is usual, and as of when: the newest scrape that every API server has.
    pub fn pupil(&mut self, now: Time) -> Option<(&mut History, Time)> {
        let newest = self.newest(now)?;
        Some((&mut self.history, newest))
    }

    /// What its scrapes add up to.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// When the newest scrape was of the API server where that is oldest.
    fn newest(&self, now: Time) -> Option<Time> {
        self.current(now).map(|known| known.newest).min()
    }

    /// For people; `None` where no Prometheus is asked.
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
