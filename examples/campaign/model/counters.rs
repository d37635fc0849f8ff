//! The metrics of one API-server process: counters, which only grow, and gauges.

use super::{At, SECOND, as_seconds};

/// Upper bounds of `apiserver_request_duration_seconds`, in seconds.
pub const REQUEST_BOUNDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];
/// Upper bounds of `apiserver_admission_webhook_admission_duration_seconds`, in seconds.
pub const HOOK_BOUNDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// For histograms of which only sum and count are used.
pub const NO_BOUNDS: &[f64] = &[];

/// A Prometheus histogram in seconds; its buckets are not cumulative.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    pub bounds: &'static [f64],
    /// Observations in each bucket; the last is for values above every bound.
    pub buckets: Vec<u64>,
    pub sum: f64,
    pub count: u64,
}

impl Histogram {
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            buckets: vec![0; bounds.len() + 1],
            sum: 0.0,
            count: 0,
        }
    }

    /// Adds one observation, a duration in simulated time.
    pub fn observe(&mut self, took: At) {
        self.observe_many(1, as_seconds(took));
    }

    /// Adds `count` equal observations of `each` seconds.
    pub fn observe_many(&mut self, count: u64, each: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < each);
        self.buckets[bucket] += count;
        self.sum += each * count as f64;
        self.count += count;
    }
}

/// Counts by key, in the order of first appearance.
pub type Tally<K> = Vec<(K, u64)>;

fn count<K: PartialEq>(tally: &mut Tally<K>, key: K) {
    match tally.iter_mut().find(|(known, _)| *known == key) {
        Some((_, count)) => *count += 1,
        None => tally.push((key, 1)),
    }
}

/// The metrics of one class of requests.
#[derive(Debug, Clone)]
pub struct Requests {
    pub duration: Histogram,
    /// `apiserver_request_sli_duration_seconds`: without the time in webhooks and in the flow-control queue.
    pub sli: Histogram,
    pub codes: Tally<u16>,
}

/// The outcome of a webhook call, as far as the API server's metrics distinguish outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Allowed,
    /// Denied with this status.
    Denied(u16),
    /// The call failed. `code` is the label in `webhook_request_total`; `refused` says whether failurePolicy refused the write.
    Failed {
        code: u16,
        refused: bool,
    },
    /// The client disconnected: the API server counts neither a rejection nor a fail-open.
    Abandoned {
        refused: bool,
    },
}

impl Outcome {
    fn code(self) -> u16 {
        match self {
            Self::Allowed => 200,
            Self::Denied(code) | Self::Failed { code, .. } => code,
            Self::Abandoned { .. } => 503,
        }
    }

    /// The label `rejected`.
    pub fn rejected(self) -> bool {
        match self {
            Self::Allowed => false,
            Self::Denied(_) => true,
            Self::Failed { refused, .. } | Self::Abandoned { refused } => refused,
        }
    }
}

/// The metrics of calls under one webhook name.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    /// By operation and `rejected`.
    pub durations: Vec<((&'static str, bool), Histogram)>,
    /// By operation, code and `rejected`.
    pub codes: Tally<(&'static str, u16, bool)>,
    /// By operation, whether the call failed, and code.
    pub rejections: Tally<(&'static str, bool, u16)>,
    pub fail_open: u64,
}

impl Calls {
    /// Counts a call that has ended.
    pub fn note(&mut self, operation: &'static str, took: At, outcome: Outcome) {
        let key = (operation, outcome.rejected());
        let index = self.durations.iter().position(|(known, _)| *known == key);
        let index = index.unwrap_or_else(|| {
            self.durations.push((key, Histogram::new(HOOK_BOUNDS)));
            self.durations.len() - 1
        });
        self.durations[index].1.observe(took);
        count(&mut self.codes, (operation, outcome.code(), outcome.rejected()));
        match outcome {
            Outcome::Denied(code) => count(&mut self.rejections, (operation, false, code)),
            Outcome::Failed { code, refused: true } => count(&mut self.rejections, (operation, true, code)),
            Outcome::Failed { refused: false, .. } => self.fail_open += 1,
            Outcome::Allowed | Outcome::Abandoned { .. } => {}
        }
    }
}

/// A gauge that shows its highest value in the previous full second, as the API server's in-flight gauges do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peak {
    now: u64,
    second: At,
    this: u64,
    last: u64,
}

impl Peak {
    fn roll(&mut self, at: At) {
        let second = at / SECOND;
        if second != self.second {
            self.last = if second == self.second + 1 {
                self.this
            } else {
                self.now
            };
            (self.this, self.second) = (self.now, second);
        }
    }

    /// Sets the current value.
    pub fn set(&mut self, at: At, value: u64) {
        self.roll(at);
        self.now = value;
        self.this = self.this.max(value);
    }

    /// The current value.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The value that a scrape at this instant shows.
    pub fn shown(mut self, at: At) -> u64 {
        self.roll(at);
        self.last
    }
}

/// All metrics of one process.
#[derive(Debug, Clone)]
pub struct Counters {
    /// One per class.
    pub requests: Vec<Requests>,
    /// One per webhook name and kind ([`HookSpec::series`](super::cluster::HookSpec::series)).
    pub calls: Vec<Calls>,
    pub reads: Histogram,
    pub etcd: Histogram,
    pub wait: Histogram,
    pub turned_away: u64,
    pub writing: Peak,
    pub reading: u64,
    pub queued: Peak,
}

impl Counters {
    pub fn new(classes: usize, series: usize) -> Self {
        let requests = Requests {
            duration: Histogram::new(REQUEST_BOUNDS),
            sli: Histogram::new(REQUEST_BOUNDS),
            codes: Vec::new(),
        };
        Self {
            requests: vec![requests; classes],
            calls: vec![Calls::default(); series],
            reads: Histogram::new(REQUEST_BOUNDS),
            etcd: Histogram::new(NO_BOUNDS),
            wait: Histogram::new(NO_BOUNDS),
            turned_away: 0,
            writing: Peak::default(),
            reading: 0,
            queued: Peak::default(),
        }
    }

    /// Counts an answered request. `without` is the part of `took` that the SLI duration leaves out.
    pub fn answered(&mut self, class: usize, code: u16, took: At, without: At) {
        let requests = &mut self.requests[class];
        requests.duration.observe(took);
        requests.sli.observe(took.saturating_sub(without));
        count(&mut requests.codes, code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_belongs_to_that_bucket() {
        let mut histogram = Histogram::new(HOOK_BOUNDS);
        for took in [SECOND / 200, SECOND, 10 * SECOND, 10 * SECOND + 1, 26 * SECOND] {
            histogram.observe(took);
        }
        assert_eq!(histogram.buckets, [1, 0, 0, 0, 1, 0, 1, 1, 1]);
        assert_eq!(histogram.count, 5);
    }

    #[test]
    fn outcomes_write_what_the_api_servers_own_table_says() {
        let mut calls = Calls::default();
        let outcomes = [
            Outcome::Allowed,
            Outcome::Denied(403),
            Outcome::Failed {
                code: 503,
                refused: true,
            },
            Outcome::Failed {
                code: 500,
                refused: false,
            },
            Outcome::Abandoned { refused: true },
        ];
        for outcome in outcomes {
            calls.note("CREATE", SECOND, outcome);
        }
        assert_eq!(
            calls.rejections,
            [(("CREATE", false, 403), 1), (("CREATE", true, 503), 1)]
        );
        assert_eq!(calls.fail_open, 1);
        let rejected: u64 = calls
            .durations
            .iter()
            .filter(|((_, rejected), _)| *rejected)
            .map(|(_, h)| h.count)
            .sum();
        assert_eq!(
            rejected, 3,
            "an abandoned call is rejected and not among the rejections"
        );
    }

    #[test]
    fn a_gauge_shows_the_highest_value_of_the_second_before() {
        let mut peak = Peak::default();
        peak.set(SECOND, 3);
        peak.set(SECOND + SECOND / 2, 9);
        peak.set(SECOND + SECOND / 2 + 1, 1);
        assert_eq!(peak.shown(2 * SECOND), 9);
        assert_eq!(peak.shown(5 * SECOND), 1);
    }
}
