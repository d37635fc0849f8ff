//! What the scrapes of all replicas add up to: what happened of late, and what is usual.
//!
//! Deltas are taken per process only. Behind a load balancer one address leads to several processes, and the
//! difference between the counters of two of them means nothing; `process_start_time_seconds` tells them
//! apart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::hook::HookKind;
use super::snapshot::{Scrape, Snapshot, WriteSeries};
use super::thresholds as t;
use super::time::Time;

/// More processes than this behind all targets together are not told apart; the oldest goes.
const MAX_REPLICAS: usize = 64;
/// Intervals in quarantine at most.
const MAX_PENDING: usize = 16;

/// Which process answered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ReplicaKey {
    target: String,
    /// Milliseconds since the epoch; `None` when the API server does not say.
    started: Option<i64>,
}

#[derive(Debug, Clone)]
struct Interval {
    from: Time,
    to: Time,
    gained: Snapshot,
}

impl Interval {
    fn is_long(&self) -> bool {
        self.to.since(self.from) > t::long_interval()
    }
}

#[derive(Debug, Clone)]
struct Replica {
    at: Time,
    last: Snapshot,
    intervals: VecDeque<Interval>,
    /// What the windows were put together of last.
    sums: [Option<Sum>; 3],
}

/// Intervals added up, and which they are: the ends of the first and of the last.
#[derive(Debug, Clone)]
struct Sum {
    ends: (Time, Time),
    window: Window,
}

/// What all replicas counted of late.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// The beginning of the earliest interval in it.
    pub from: Time,
    /// The end of the newest interval in it.
    pub to: Time,
    /// Counters: gains of all replicas together. Gauges: as in each replica's newest scrape, added up.
    pub gained: Snapshot,
    /// Writes (without dry runs) that were answered, per second. Each replica's gains are held against its own
    /// span: behind a load balancer some are read much more rarely than others.
    pub write_rate: f64,
    /// GETs and LISTs that were answered, per second, in the same way.
    pub read_rate: f64,
}

/// What happened of late, over spans of different lengths.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Windows {
    /// The newest interval of each process alone.
    pub newest: Option<Window>,
    /// For each process the intervals that ended within the last ten seconds, or its newest one if that is not
    /// older than a minute. `None` when no process has two readings yet.
    pub recent: Option<Window>,
    /// The intervals that ended within the last minute.
    pub minute: Option<Window>,
}

impl Windows {
    /// A conversion webhook that fails or is slow holds up requests for its own resource only. Those say nothing
    /// about the control plane as a whole, and no admission hook is to be measured by them.
    fn set_aside_what_conversions_hold_up(&mut self) {
        let Some(minute) = &self.minute else { return };
        let resources = minute.gained.others.converted_with_trouble();
        let windows = [&mut self.newest, &mut self.recent, &mut self.minute];
        for window in windows.into_iter().flatten() {
            window.gained.set_aside(&resources);
        }
    }
}

impl Window {
    /// Seconds from its beginning to its end.
    pub fn seconds(&self) -> f64 {
        self.to.since(self.from).as_secs_f64()
    }

    /// Seconds that the API server itself needs per write; `None` where too little was written.
    ///
    /// Releases before 1.23 have no clock without webhooks; there the hooks' calls are taken off by hand, as if
    /// none ran beside another.
    pub fn own_seconds(&self) -> Option<f64> {
        let WriteSeries { duration, sli } = self.gained.all_writes();
        if sli.count >= t::enough_writes() {
            return sli.mean();
        }
        let hooks: f64 = self.gained.hooks.values().map(|series| series.writes.sum).sum();
        (sli.count < 1.0 && duration.count >= t::enough_writes())
            .then(|| ((duration.sum - hooks) / duration.count).max(0.0))
    }

    fn add(&mut self, other: &Self) {
        self.gained.add(&other.gained);
        (self.from, self.to) = (self.from.min(other.from), self.to.max(other.to));
        self.write_rate += other.write_rate;
        self.read_rate += other.read_rate;
    }
}

/// The median of the values seen in calm times.
#[derive(Debug, Clone, Default)]
pub struct Usual {
    /// In the order in which they came.
    values: VecDeque<f64>,
    /// The same in their own order: they are asked for far more often than they change.
    sorted: Vec<f64>,
}

impl Usual {
    /// Adds a value of a calm time.
    pub fn learn(&mut self, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            return;
        };
        if self.values.len() == t::usual_intervals()
            && let Some(oldest) = self.values.pop_front()
            && let Ok(at) = self.sorted.binary_search_by(|known| known.total_cmp(&oldest))
        {
            self.sorted.remove(at);
        }
        self.values.push_back(value);
        let at = self
            .sorted
            .partition_point(|known| known.total_cmp(&value).is_lt());
        self.sorted.insert(at, value);
    }

    /// The median; `None` before anything was learnt.
    pub fn median(&self) -> Option<f64> {
        // Of two in the middle the lower: the higher may have the beginning of a fault in it.
        self.sorted.get(self.sorted.len().checked_sub(1)? / 2).copied()
    }
}

/// What is usual, learnt in calm times only, so that a long outage never becomes the new normal.
#[derive(Debug, Clone, Default)]
pub struct Baseline {
    /// Seconds per write.
    pub write: Usual,
    /// Seconds per write without webhooks and flow control.
    pub sli: Usual,
    /// Seconds per GET or LIST.
    pub read: Usual,
    /// Seconds per etcd request.
    pub etcd: Usual,
    /// Writes per second.
    pub write_rate: Usual,
    /// GETs and LISTs per second.
    pub read_rate: Usual,
    /// Reads being served at once.
    pub reads_in_flight: Usual,
    /// Seconds per call, by hook.
    pub hooks: BTreeMap<(HookKind, String), Usual>,
}

impl Baseline {
    fn learn(&mut self, window: &Window, leave_out: &impl Fn(&(HookKind, String)) -> bool) {
        let gained = &window.gained;
        let writes = gained.all_writes();
        self.write.learn(writes.duration.mean());
        self.sli.learn(window.own_seconds());
        // Reads are not told apart by resource, so those that wait for a conversion are among them.
        if gained.others.converted_with_trouble().is_empty() {
            self.read.learn(gained.reads.mean());
        }
        self.etcd.learn(gained.etcd.mean());
        self.write_rate.learn(Some(window.write_rate));
        self.read_rate.learn(Some(window.read_rate));
        self.reads_in_flight
            .learn(gained.in_flight.map(|in_flight| in_flight.read_only));
        for (key, series) in &gained.hooks {
            if let Some(mean) = series.calls.mean().filter(|_| !leave_out(key)) {
                self.hooks.entry(key.clone()).or_default().learn(Some(mean));
            }
        }
    }

    /// Seconds per call of one hook in calm times.
    pub fn hook(&self, key: &(HookKind, String)) -> Option<f64> {
        self.hooks.get(key).and_then(Usual::median)
    }
}

/// All replicas' readings.
#[derive(Debug, Clone, Default)]
pub struct History {
    replicas: BTreeMap<ReplicaKey, Replica>,
    /// What is usual.
    pub baseline: Baseline,
    learnt_to: Time,
    /// Calm intervals that are not learnt yet.
    pending: VecDeque<Window>,
    /// The windows as they were put together last, and when: that takes long for a large cluster.
    windows: Option<(Time, Arc<Windows>)>,
}

impl History {
    /// Takes a reading in, and says what it adds to the one before of the same process, over which span, and what
    /// is usual.
    pub fn take(&mut self, scrape: Scrape) -> Option<((Time, Time), &Snapshot, &Baseline)> {
        let Scrape {
            target,
            at,
            mut snapshot,
            ..
        } = scrape;
        snapshot.make_up_for_rejections();
        let started = snapshot
            .process_start
            .map(|seconds| (seconds * 1_000.0).round() as i64);
        self.replicas
            .retain(|_, replica| at.since(replica.at) < t::forget_replica());
        self.windows = None;
        let key = ReplicaKey { target, started };
        match self.replicas.get_mut(&key) {
            Some(replica) if at.since(replica.at) >= t::min_interval() => {
                replica.advance(at, snapshot);
                let added = self.replicas.get(&key)?.intervals.back()?;
                Some(((added.from, added.to), &added.gained, &self.baseline))
            }
            Some(_) => None,
            None => {
                if self.replicas.len() >= MAX_REPLICAS {
                    let oldest = self.replicas.iter().min_by_key(|(_, replica)| replica.at);
                    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                        self.replicas.remove(&key);
                    }
                }
                self.replicas.insert(
                    key,
                    Replica {
                        at,
                        last: snapshot,
                        intervals: VecDeque::new(),
                        sums: Default::default(),
                    },
                );
                None
            }
        }
    }

    /// What happened of late, as of a second ago at most.
    pub fn windows(&mut self, now: Time) -> Arc<Windows> {
        if let Some((at, windows)) = &self.windows {
            let windows = Arc::clone(windows);
            if now.since(*at) < t::ageing() {
                return windows;
            }
            if !self.ages(*at, now) {
                self.windows = Some((now, Arc::clone(&windows)));
                return windows;
            }
        }
        const MOMENT: Duration = Duration::from_millis(1);
        let mut windows = Windows {
            newest: self.window(0, now, |newest| newest.before(MOMENT)),
            recent: self.window(1, now, |newest| {
                now.before(t::recent()).min(newest.before(MOMENT))
            }),
            minute: self.window(2, now, |newest| {
                now.before(t::newest_speaks()).min(newest.before(MOMENT))
            }),
        };
        windows.set_aside_what_conversions_hold_up();
        let windows = Arc::new(windows);
        self.windows = Some((now, Arc::clone(&windows)));
        windows
    }

    /// Whether an interval became too old for one of the windows after an instant: nothing else changes them but a
    /// scrape.
    fn ages(&self, after: Time, now: Time) -> bool {
        let mut intervals = self.replicas.values().flat_map(|replica| &replica.intervals);
        intervals.any(|interval| {
            [t::recent(), t::newest_speaks()].into_iter().any(|age| {
                let aged = interval.to + age;
                aged >= after && aged <= now
            })
        })
    }

    /// Merges, for each replica that was heard of in the last minute, the intervals that ended after the instant
    /// that `after` makes of the end of its newest.
    fn window(&mut self, which: usize, now: Time, after: impl Fn(Time) -> Time) -> Option<Window> {
        let replicas = self.replicas.iter();
        let ended = replicas.filter(|(key, replica)| self.has_a_successor(key, replica));
        let ended: BTreeSet<ReplicaKey> = ended.map(|(key, _)| key.clone()).collect();
        let mut merged: Option<Window> = None;
        for (key, replica) in &mut self.replicas {
            let newest = replica.intervals.back().filter(|newest| !newest.is_long());
            let newest = newest.map(|interval| interval.to);
            let Some(newest) = newest.filter(|newest| now.since(*newest) <= t::newest_speaks()) else {
                continue;
            };
            if ended.contains(key) {
                continue;
            }
            let Some(window) = replica.sum(which, after(newest)) else {
                continue;
            };
            match &mut merged {
                None => merged = Some(window.clone()),
                Some(merged) => merged.add(window),
            }
        }
        merged
    }

    /// A process that began at the same address after this one was heard of last has told what it counts since: this
    /// one has ended, and what it counted in its last interval says nothing about now.
    fn has_a_successor(&self, key: &ReplicaKey, replica: &Replica) -> bool {
        self.replicas.iter().any(|(other, newer)| {
            let began = other.started.and_then(|millis| u64::try_from(millis).ok());
            let after = began.is_some_and(|began| Time::from_unix_millis(began) > replica.at);
            after && other.target == key.target && !newer.intervals.is_empty()
        })
    }

    /// Too little is known of what is usual.
    pub fn is_young(&self) -> bool {
        self.baseline.write_rate.values.len() < t::young()
    }

    /// Forgets the intervals that were about to be learnt: the beginning of what is wrong now may be in them.
    pub fn doubt(&mut self) {
        self.pending.clear();
    }

    /// Learns what is usual; to be called only in calm times. An interval is learnt once the time after it has
    /// been calm as well, or at once while too little is known. Nothing is learnt of the hooks to be left out.
    pub fn learn(&mut self, now: Time, leave_out: impl Fn(&(HookKind, String)) -> bool) {
        let windows = self.windows(now);
        if let Some(window) = windows
            .newest
            .as_ref()
            .filter(|window| window.to > self.learnt_to)
        {
            self.learnt_to = window.to;
            self.pending.push_back(window.clone());
            if self.pending.len() > MAX_PENDING {
                self.pending.pop_front();
            }
        }
        while let Some(window) = self.pending.front() {
            if !self.is_young() && now.since(window.to) < t::quarantine() {
                break;
            }
            self.baseline.learn(window, &leave_out);
            self.pending.pop_front();
            // Hooks that are gone go with their series, so this is bounded by what the snapshots hold.
            let replicas = &self.replicas;
            let counted = |key: &(HookKind, String)| {
                replicas
                    .values()
                    .any(|replica| replica.last.hooks.contains_key(key))
            };
            self.baseline.hooks.retain(|key, _| counted(key));
        }
    }

    /// The processes seen behind one target of late: when each began, and when it answered last.
    pub fn processes_behind(&self, target: &str) -> impl Iterator<Item = (Option<Time>, Time)> {
        let behind = self.replicas.iter().filter(move |(key, _)| key.target == target);
        behind.map(|(key, replica)| {
            let started = key.started.and_then(|millis| u64::try_from(millis).ok());
            (started.map(Time::from_unix_millis), replica.at)
        })
    }

    /// Processes seen behind one target.
    pub fn replicas_behind(&self, target: &str) -> usize {
        self.replicas.keys().filter(|key| key.target == target).count()
    }
}

impl Replica {
    /// Adds up the intervals that ended after an instant, unless just these are added up already.
    fn sum(&mut self, which: usize, after: Time) -> Option<&Window> {
        let chosen = |interval: &&Interval| interval.to > after && !interval.is_long();
        let mut within = self.intervals.iter().filter(chosen);
        let first = within.next()?;
        let ends = (first.to, within.next_back().unwrap_or(first).to);
        let known = self.sums.get_mut(which)?;
        if known.as_ref().is_none_or(|known| known.ends != ends) {
            let mut gained = Snapshot::default();
            let (mut from, mut to) = (self.at, Time::default());
            for interval in self.intervals.iter().filter(chosen) {
                gained.add(&interval.gained);
                (from, to) = (from.min(interval.from), to.max(interval.to));
            }
            gained.in_flight = self.last.in_flight;
            gained.in_queue = self.last.in_queue;
            gained.others.unavailable = self.last.others.unavailable.clone();
            let seconds = to.since(from).max(t::min_interval()).as_secs_f64();
            let window = Window {
                from,
                to,
                write_rate: gained.all_writes().duration.count / seconds,
                read_rate: gained.reads.count / seconds,
                gained,
            };
            *known = Some(Sum { ends, window });
        }
        known.as_ref().map(|known| &known.window)
    }

    fn advance(&mut self, at: Time, snapshot: Snapshot) {
        self.intervals
            .retain(|interval| at.since(interval.to) < t::newest_speaks());
        // The newest interval may serve on its own for a minute, so it stays whatever its age.
        self.intervals.push_back(Interval {
            from: self.at,
            to: at,
            gained: snapshot.since(&self.last),
        });
        self.at = at;
        self.last = snapshot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::snapshot::Complaints;

    fn scrape(target: &str, start: f64, at_ms: u64, fail_open: f64) -> Scrape {
        let mut snapshot = Snapshot {
            process_start: Some(start),
            ..Snapshot::default()
        };
        let series = snapshot
            .hooks
            .entry((HookKind::Mutating, "w".into()))
            .or_default();
        series.fail_open = fail_open;
        Scrape {
            target: target.into(),
            at: Time::from_unix_millis(at_ms),
            took: Duration::ZERO,
            bytes: 0,
            snapshot,
            complaints: Complaints::default(),
        }
    }

    fn recent_fail_open(history: &mut History, now_ms: u64) -> Option<f64> {
        let windows = history.windows(Time::from_unix_millis(now_ms));
        let window = windows.recent.as_ref()?;
        Some(window.gained.hooks.values().map(|series| series.fail_open).sum())
    }

    #[test]
    fn two_processes_behind_one_address_never_mix_their_counters() {
        let mut history = History::default();
        for (n, at) in (0..6u64).map(|n| (n, 1_000_000 + n * 2_000)) {
            let (start, count) = if n % 2 == 0 { (1.0, 1_000.0) } else { (2.0, 5.0) };
            history.take(scrape("lb", start, at, count));
        }
        assert_eq!(recent_fail_open(&mut history, 1_010_000), Some(0.0));
        assert_eq!(history.replicas_behind("lb"), 2);
    }

    #[test]
    fn a_counter_that_began_again_counts_what_it_holds() {
        let mut history = History::default();
        history.take(scrape("a", 1.0, 1_000_000, 50.0));
        history.take(scrape("a", 1.0, 1_002_000, 3.0));
        assert_eq!(recent_fail_open(&mut history, 1_002_000), Some(3.0));
    }

    #[test]
    fn what_was_counted_while_nobody_could_look_is_no_news() {
        let mut history = History::default();
        history.take(scrape("a", 1.0, 1_000_000, 0.0));
        history.take(scrape("a", 1.0, 1_200_000, 50.0));
        assert_eq!(recent_fail_open(&mut history, 1_200_000), None);
        history.take(scrape("a", 1.0, 1_202_000, 53.0));
        assert_eq!(recent_fail_open(&mut history, 1_202_000), Some(3.0));
    }

    #[test]
    fn a_single_reading_says_nothing_about_what_happened() {
        let mut history = History::default();
        history.take(scrape("a", 1.0, 1_000_000, 50.0));
        assert_eq!(recent_fail_open(&mut history, 1_000_000), None);
    }

    #[test]
    fn an_old_interval_stops_speaking_after_a_minute() {
        let mut history = History::default();
        history.take(scrape("a", 1.0, 1_000_000, 0.0));
        history.take(scrape("a", 1.0, 1_015_000, 4.0));
        assert_eq!(
            recent_fail_open(&mut history, 1_029_000),
            Some(4.0),
            "the newest interval stands in"
        );
        assert_eq!(recent_fail_open(&mut history, 1_080_000), None);
    }

    #[test]
    fn a_process_that_has_ended_is_silent_as_soon_as_its_successor_speaks() {
        let mut history = History::default();
        history.take(scrape("a", 1.0, 1_000_000, 0.0));
        history.take(scrape("a", 1.0, 1_002_000, 40.0));
        history.take(scrape("a", 1_003.0, 1_004_000, 0.0));
        assert_eq!(
            recent_fail_open(&mut history, 1_004_000),
            Some(40.0),
            "nobody else has two readings"
        );
        history.take(scrape("a", 1_003.0, 1_006_000, 2.0));
        assert_eq!(recent_fail_open(&mut history, 1_006_000), Some(2.0));
        // Of two that answer in turn neither has ended.
        history.take(scrape("a", 1.0, 1_007_000, 41.0));
        assert_eq!(recent_fail_open(&mut history, 1_007_000), Some(43.0));
    }

    #[test]
    fn a_replica_that_is_read_rarely_does_not_water_the_rate_of_the_others_down() {
        let mut history = History::default();
        let mut read = |start: f64, at_ms: u64, writes: f64| {
            let mut scrape = scrape("lb", start, at_ms, 0.0);
            scrape.snapshot.reads.count = writes;
            history.take(scrape);
        };
        read(1.0, 1_000_000, 0.0);
        read(1.0, 1_050_000, 500.0);
        read(2.0, 1_048_000, 0.0);
        read(2.0, 1_050_000, 20.0);
        let windows = history.windows(Time::from_unix_millis(1_050_000));
        assert_eq!(windows.newest.as_ref().map(|window| window.read_rate), Some(20.0));
    }

    #[test]
    fn an_interval_with_the_beginning_of_a_fault_in_it_is_never_learnt() {
        let mut history = History::default();
        let at = |seconds: u64| 1_000_000 + seconds * 1_000;
        for seconds in [0, 2, 4, 6] {
            history.take(scrape("a", 1.0, at(seconds), 0.0));
            history.learn(Time::from_unix_millis(at(seconds)), |_| false);
        }
        assert!(!history.is_young());
        history.take(scrape("a", 1.0, at(21), 0.0));
        history.learn(Time::from_unix_millis(at(21)), |_| false);
        assert_eq!(
            history.baseline.write_rate.values.len(),
            3,
            "not before the time after it was calm"
        );
        history.doubt();
        history.learn(Time::from_unix_millis(at(60)), |_| false);
        assert_eq!(history.baseline.write_rate.values.len(), 3);
        history.take(scrape("a", 1.0, at(75), 0.0));
        history.learn(Time::from_unix_millis(at(75)), |_| false);
        history.learn(Time::from_unix_millis(at(96)), |_| false);
        assert_eq!(history.baseline.write_rate.values.len(), 4);
    }

    #[test]
    fn the_same_interval_is_learnt_once() {
        let mut history = History::default();
        for n in 0..3u64 {
            history.take(scrape("a", 1.0, 1_000_000 + n * 2_000, 0.0));
        }
        for _ in 0..5 {
            history.learn(Time::from_unix_millis(1_004_000), |_| false);
        }
        assert_eq!(history.baseline.write_rate.values.len(), 1);
    }
}
