//! The scrapes of all API servers combined: recent windows, and the baseline.
//!
//! Differences are taken per process only. Behind a load balancer one address leads to several processes, and the difference
//! between the counters of two of them means nothing. `process_start_time_seconds` tells them apart.

mod one_sided;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::snapshot::{Counted, HookSeries, Scrape, Snapshot, WriteSeries};
use crate::cluster::hook::HookKind;
use crate::time::Time;
use crate::{row, thresholds as t};

pub use one_sided::OnlyAt;

/// Most processes remembered, of all targets together; a new one replaces the one that was read least recently.
const MAX_REPLICAS: usize = 64;
/// Most calm intervals that wait to be learnt.
const MAX_PENDING: usize = 16;
/// Most answers that [`Slowest`] keeps.
const KEPT_SLOWEST: usize = 128;

/// A process: its target, and its start time (`None` if the API server does not expose it).
pub type ReplicaKey = (String, Option<Time>);

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

#[derive(Debug, Clone, Default)]
struct ReplicaHistory {
    /// When it was first read.
    first: Time,
    /// When it was last read.
    at: Time,
    last: Snapshot,
    intervals: VecDeque<Interval>,
    /// The windows as last computed, by their index in [`Windows`].
    sums: [Option<Window>; 3],
}

/// What all API servers counted in a recent span.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// The start of the earliest interval in it.
    pub from: Time,
    /// The end of the newest interval in it.
    pub to: Time,
    /// Counters: the sum of all API servers' increases. Gauges: the sum of each one's newest scrape.
    pub gained: Snapshot,
    /// Answered writes (without dry runs) per second. Each API server's increase is divided by its own span, since behind a load
    /// balancer some are read much more rarely than others.
    pub write_rate: f64,
    /// Answered GETs and LISTs per second, computed in the same way.
    pub read_rate: f64,
}

/// What all API servers counted recently, over spans of different lengths.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Windows {
    /// The newest interval of each process.
    pub newest: Option<Window>,
    /// For each process the intervals that ended within the last ten seconds, or else its newest one. `None` if no process
    /// has an interval that ended within the last minute and is not too long.
    pub recent: Option<Window>,
    /// For each process the intervals that ended within the last minute.
    pub minute: Option<Window>,
}

impl Windows {
    /// The windows that exist, the shortest first.
    pub fn spans(&self) -> impl Iterator<Item = &Window> {
        [&self.newest, &self.recent, &self.minute].into_iter().flatten()
    }

    /// The windows of the last ten seconds and of the last minute, as far as they exist.
    pub fn lately(&self) -> impl Iterator<Item = &Window> {
        [&self.recent, &self.minute].into_iter().flatten()
    }
}

impl Window {
    /// Seconds from the window's start to its end.
    pub fn seconds(&self) -> f64 {
        self.to.since(self.from).as_secs_f64()
    }

    /// Seconds per write that the API server itself needs, without webhooks; `None` with fewer than [`t::enough_writes`].
    ///
    /// Releases before 1.23 expose no duration without webhooks. There the time of the hooks' calls is subtracted, as if no calls
    /// ran in parallel.
    pub fn own_seconds(&self) -> Option<f64> {
        let WriteSeries { duration, sli } = self.gained.all_writes();
        if sli.count >= t::enough_writes() {
            return sli.mean();
        }
        (sli.count < 1.0 && duration.count >= t::enough_writes())
            .then(|| ((duration.sum - self.hook_seconds()) / duration.count).max(0.0))
    }

    /// Seconds that all hooks' calls for CREATE and UPDATE took, added up.
    pub fn hook_seconds(&self) -> f64 {
        self.gained.hooks.values().map(|series| series.writes.sum).sum()
    }

    fn add(&mut self, other: &Self) {
        self.gained.add(&other.gained);
        (self.from, self.to) = (self.from.min(other.from), self.to.max(other.to));
        self.write_rate += other.write_rate;
        self.read_rate += other.read_rate;
    }
}

/// The median of the last values that were observed in calm times.
#[derive(Debug, Clone, Default)]
pub struct Usual {
    /// Values in the order in which they were learnt.
    values: VecDeque<f64>,
    /// The same values sorted, because the median is read far more often than a value is learnt.
    sorted: Vec<f64>,
}

impl Usual {
    /// Adds a value from a calm time; ignores `None` and non-finite values.
    pub fn learn(&mut self, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            return;
        };
        if let Some(oldest) = row::push(&mut self.values, t::usual_intervals() as usize, value)
            && let Ok(at) = self.sorted.binary_search_by(|known| known.total_cmp(&oldest))
        {
            self.sorted.remove(at);
        }
        let at = self.sorted.partition_point(|old| old.total_cmp(&value).is_lt());
        self.sorted.insert(at, value);
    }

    /// The median; `None` before anything was learnt.
    pub fn median(&self) -> Option<f64> {
        // Of two middle values the lower, since the higher may belong to the beginning of a fault.
        self.sorted.get(self.sorted.len().checked_sub(1)? / 2).copied()
    }

    /// Whether this many seconds are slow, compared with the median: see [`is_slow`].
    pub fn is_slow(&self, seconds: f64, factor: f64, limits: Range<f64>) -> bool {
        is_slow(seconds, self.median(), factor, limits)
    }
}

/// The slowest recent answers of a source, to judge how long to wait for the next one.
#[derive(Debug, Clone, Default)]
pub struct Slowest(VecDeque<(Time, Duration)>);

impl Slowest {
    /// Adds an answer that came at `at` and took `took` (at most an hour counts).
    pub fn take(&mut self, at: Time, took: Duration) {
        // A recording may contain any value.
        let took = took.min(Duration::from_secs(3_600));
        let lasts = |(then, _): &(Time, Duration)| at.since(*then) < t::slowest_of();
        // Older answers that were faster will never be the slowest again.
        self.0.retain(|known| lasts(known) && known.1 > took);
        row::push(&mut self.0, KEPT_SLOWEST, (at, took));
    }

    /// Whether no answer was added yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How long an answer may take before the source counts as silent: [`Self::unusual_after`], between [`t::late`] and
    /// [`t::late_at_most`].
    pub fn patience(&self, now: Time) -> Duration {
        self.unusual_after(now).clamp(t::late(), t::late_at_most())
    }

    /// How long an unusual answer takes at least: [`t::late_factor`] times the slowest of the last ten minutes; zero without any.
    pub fn unusual_after(&self, now: Time) -> Duration {
        let lately = self.0.iter().filter(|(at, _)| now.since(*at) < t::slowest_of());
        let slowest = lately.map(|(_, took)| *took).max().unwrap_or_default();
        slowest.mul_f64(t::late_factor())
    }
}

/// Whether this many seconds are slow: never below `limits`, always above, and between them when they are at least `factor`
/// times `usual`.
pub fn is_slow(seconds: f64, usual: Option<f64>, factor: f64, limits: Range<f64>) -> bool {
    let far_above = usual.is_some_and(|usual| seconds >= factor * usual);
    seconds >= limits.end || limits.contains(&seconds) && far_above
}

/// The usual values, learnt in calm times only, so that a long outage does not become the baseline.
#[derive(Debug, Clone, Default)]
pub struct Baseline {
    /// Seconds per write.
    pub write: Usual,
    /// Seconds per write without webhooks and flow-control wait.
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
        // Reads are not counted by resource, so those that wait for a conversion are among them.
        if gained.others.converted_with_trouble().is_empty() {
            self.read.learn(gained.reads.mean());
        }
        self.etcd.learn(gained.etcd.mean());
        self.write_rate.learn(Some(window.write_rate));
        self.read_rate.learn(Some(window.read_rate));
        self.reads_in_flight
            .learn(gained.in_flight.map(|now| now.read_only));
        for (key, series) in gained.hooks.iter().filter(|(key, _)| !leave_out(key)) {
            let usual = self.hooks.entry(key.clone()).or_default();
            usual.learn(series.calls.mean());
        }
    }

    /// Median seconds per call of one hook in calm times; `None` if unknown.
    pub fn hook(&self, key: &(HookKind, String)) -> Option<f64> {
        self.hooks.get(key).and_then(Usual::median)
    }
}

/// The readings of all API servers, by process.
#[derive(Debug, Clone, Default)]
pub struct History {
    replicas: BTreeMap<ReplicaKey, ReplicaHistory>,
    /// Targets to which connections fail, and since when.
    unreachable: BTreeMap<String, Time>,
    /// The usual values.
    pub baseline: Baseline,
    learnt_to: Time,
    /// Calm intervals that wait to be learnt.
    pending: VecDeque<Window>,
    /// The windows as last computed, and when: computing them takes long for a large cluster.
    windows: Option<(Time, Arc<Windows>)>,
}

impl History {
    /// Adds a reading. Returns its difference to the previous reading of the same process, the span of that difference, and the
    /// baseline; `None` for a process's first reading, or one too soon after the previous.
    pub fn take(&mut self, scrape: Scrape) -> Option<((Time, Time), &Snapshot, &Baseline)> {
        let (at, mut snapshot) = (scrape.at, scrape.snapshot);
        snapshot.make_up_for_rejections();
        self.replicas
            .retain(|_, replica| at.since(replica.at) < t::forget_server());
        let replicas = &self.replicas;
        self.unreachable.retain(|target, _| {
            *target != scrape.target && replicas.keys().any(|(known, _)| known == target)
        });
        self.windows = None;
        let time = |seconds: f64| Time::from_unix_millis((seconds * 1_000.0).round() as u64);
        let key = (scrape.target, snapshot.process_start.map(time));
        let is_new = !self.replicas.contains_key(&key);
        let replica = row::entry(&mut self.replicas, MAX_REPLICAS, key, |replica| replica.at);
        if is_new {
            (replica.first, replica.at, replica.last) = (at, at, snapshot);
            return None;
        }
        if at.since(replica.at) < t::min_interval() {
            return None;
        }
        replica
            .intervals
            .retain(|interval| at.since(interval.to) < t::newest_speaks());
        // The newest interval is pushed after this cleanup, because it is used alone for up to a minute, whatever its age.
        let (from, gained) = (replica.at, snapshot.since(&replica.last));
        replica.intervals.push_back(Interval { from, to: at, gained });
        (replica.at, replica.last) = (at, snapshot);
        let added = replica.intervals.back()?;
        Some(((added.from, added.to), &added.gained, &self.baseline))
    }

    /// Records that connections to a target fail.
    pub fn lost(&mut self, target: &str, at: Time) {
        if self.replicas_behind(target) > 0 && !self.unreachable.contains_key(target) {
            self.unreachable.insert(target.to_owned(), at);
            self.windows = None;
        }
    }

    /// The recent windows, computed at most [`t::ageing`] ago.
    pub fn windows(&mut self, now: Time) -> Arc<Windows> {
        if let Some((at, windows)) = &self.windows
            && now.since(*at) < t::ageing()
        {
            return Arc::clone(windows);
        }
        let windows = Arc::new(self.put_together(now));
        self.windows = Some((now, Arc::clone(&windows)));
        windows
    }

    fn put_together(&mut self, now: Time) -> Windows {
        let mut windows = Windows {
            newest: self.window(0, now, now),
            recent: self.window(1, now, now.before(t::recent())),
            minute: self.window(2, now, now.before(t::newest_speaks())),
        };
        // A conversion webhook that fails or is slow delays requests for its own resource only. These requests say nothing
        // about the control plane as a whole, or about admission webhooks.
        if let Some(minute) = &windows.minute {
            let resources = minute.gained.others.converted_with_trouble();
            let all = [&mut windows.newest, &mut windows.recent, &mut windows.minute];
            all.into_iter()
                .flatten()
                .for_each(|window| window.gained.set_aside(&resources));
        }
        windows
    }

    /// Merges the intervals of every process that was read in the last minute: those that ended after an instant, and always its
    /// newest.
    fn window(&mut self, which: usize, now: Time, after: Time) -> Option<Window> {
        let superseded: Vec<bool> = self
            .replicas
            .iter()
            .map(|known| self.is_superseded(known))
            .collect();
        let mut merged: Option<Window> = None;
        for (replica, _) in self
            .replicas
            .values_mut()
            .zip(superseded)
            .filter(|(_, superseded)| !superseded)
        {
            match (&mut merged, replica.sum(which, now, after)) {
                (None, window) => merged = window.cloned(),
                (Some(merged), Some(window)) => merged.add(window),
                (Some(_), None) => {}
            }
        }
        merged
    }

    /// What each process counted for a hook, over as few of its newest intervals as cover `span`, and when the earliest of them
    /// began. `None` if a process was not read in the last ten seconds, or its intervals do not cover the span.
    pub fn each_over(
        &self,
        span: Duration,
        key: &(HookKind, String),
        now: Time,
    ) -> Option<(Time, Vec<HookSeries>)> {
        let running = self.replicas.iter().filter(|known| !self.is_superseded(*known));
        let each = running.map(|(_, replica)| replica.over(span, key, now));
        let each: Vec<(Time, HookSeries)> = each.collect::<Option<_>>()?;
        let from = each.iter().map(|(from, _)| *from).min()?;
        Some((from, each.into_iter().map(|(_, series)| series).collect()))
    }

    /// Whether a process's last interval no longer describes the present. Either a later process was read at the same address; or
    /// connections to its address fail, and another address was read since; or the same process was read later at another
    /// address, that of a load balancer.
    fn is_superseded(&self, ((target, own), replica): (&ReplicaKey, &ReplicaHistory)) -> bool {
        let lost = self.unreachable.get(target);
        self.replicas.iter().any(|((other, started), newer)| {
            let supersedes = if other == target {
                started != own && newer.began(*started) > Some(replica.at)
            } else {
                let is_same = own.is_some() && started == own;
                is_same && newer.at > replica.at || lost.is_some_and(|lost| newer.at > *lost)
            };
            supersedes && !newer.intervals.is_empty()
        })
    }

    /// Whether too few intervals were learnt for a baseline.
    pub fn is_young(&self) -> bool {
        (self.baseline.write_rate.values.len() as f64) < t::young()
    }

    /// Drops the calm intervals that wait to be learnt: they may contain the beginning of the current fault.
    pub fn doubt(&mut self) {
        self.pending.clear();
    }

    /// Learns the baseline; to be called only in calm times. An interval is learnt once [`t::quarantine`] has passed after it
    /// in calm, or at once while [`Self::is_young`]. Hooks for which `leave_out` is true are not learnt.
    pub fn learn(&mut self, now: Time, leave_out: impl Fn(&(HookKind, String)) -> bool) {
        let windows = self.windows(now);
        // Spaced so that the intervals of a whole quarantine fit into the queue.
        let apart = t::quarantine() / (MAX_PENDING as u32 - 1);
        let is_next =
            |window: &&Window| window.to > self.learnt_to && window.to.since(self.learnt_to) >= apart;
        if let Some(window) = windows.newest.as_ref().filter(is_next) {
            self.learnt_to = window.to;
            row::push(&mut self.pending, MAX_PENDING, window.clone());
        }
        while let Some(window) = self.pending.front()
            && (self.is_young() || now.since(window.to) >= t::quarantine())
        {
            self.baseline.learn(window, &leave_out);
            self.pending.pop_front();
            // Removed hooks disappear with their series, so the snapshots' limit bounds this map as well.
            let (replicas, usual) = (&self.replicas, &mut self.baseline.hooks);
            usual.retain(|key, _| replicas.values().any(|known| known.last.hooks.contains_key(key)));
        }
    }

    /// The processes seen behind one target recently.
    pub fn processes_behind(&self, target: &str) -> impl Iterator<Item = ServerProcess> {
        let replicas = self.replicas.iter();
        let behind = replicas.filter(move |((other, _), _)| other == target);
        behind.map(|((_, started), replica)| ServerProcess {
            started: *started,
            began: replica.began(*started),
            last: replica.at,
        })
    }

    /// The number of API servers at one address. A process that started after the last answer of another one counts as its
    /// restart.
    pub fn replicas_behind(&self, target: &str) -> usize {
        let (mut last, mut began) = (Vec::new(), Vec::new());
        for process in self.processes_behind(target) {
            last.push(process.last);
            began.extend(process.began);
        }
        last.sort_unstable();
        began.sort_unstable();
        let mut gone = last.iter().peekable();
        for began in began {
            gone.next_if(|last| **last < began);
        }
        gone.count()
    }
}

/// What identifies one of several processes at an address, for use within a sentence.
pub fn behind(target: &str, started: Option<Time>) -> String {
    match started {
        Some(started) => format!("the API server behind {target} that started at {started}"),
        None => format!("one of the API servers behind {target}"),
    }
}

/// One process of an API server.
#[derive(Debug, Clone, Copy)]
pub struct ServerProcess {
    /// Its own start time; `None` if it does not expose it.
    pub started: Option<Time>,
    /// The latest time at which it can have started: its own start time or our first reading, whichever is earlier, since either
    /// clock may be ahead.
    pub began: Option<Time>,
    /// When it last answered.
    pub last: Time,
}

impl ReplicaHistory {
    /// The latest time at which the process can have started: `started` by its own clock, which may be ahead, or its first reading.
    fn began(&self, started: Option<Time>) -> Option<Time> {
        started.map(|started| started.min(self.first))
    }

    /// See [`History::each_over`].
    fn over(&self, span: Duration, key: &(HookKind, String), now: Time) -> Option<(Time, HookSeries)> {
        let newest = self
            .intervals
            .back()
            .filter(|newest| now.since(newest.to) < t::recent())?;
        let mut counted = HookSeries::default();
        for interval in self
            .intervals
            .iter()
            .rev()
            .take_while(|interval| !interval.is_long())
        {
            if let Some(series) = interval.gained.hooks.get(key) {
                counted.add(series);
            }
            if newest.to.since(interval.from) >= span {
                return Some((interval.from, counted));
            }
        }
        None
    }

    /// The sum of the intervals that ended after an instant, and always the newest; computed only if the span has changed. `None`
    /// if the newest interval is too old or too long to describe the present.
    fn sum(&mut self, which: usize, now: Time, after: Time) -> Option<&Window> {
        let newest = self.intervals.back()?;
        if newest.is_long() || now.since(newest.to) > t::newest_speaks() {
            return None;
        }
        let after = after.min(newest.from);
        let chosen = self.intervals.iter();
        let chosen = chosen.filter(|interval| interval.to > after && !interval.is_long());
        let chosen: Vec<&Interval> = chosen.collect();
        let (from, to) = (chosen.first()?.from, newest.to);
        let known = self.sums.get_mut(which)?;
        let span = |window: &Window| (window.from, window.to);
        if known.as_ref().map(span) != Some((from, to)) {
            let mut gained = Snapshot::default();
            for interval in chosen {
                gained.add(&interval.gained);
            }
            gained.in_flight = self.last.in_flight;
            gained.in_queue = self.last.in_queue;
            gained.others.unavailable = self.last.others.unavailable.clone();
            let seconds = to.since(from).max(t::min_interval()).as_secs_f64();
            *known = Some(Window {
                from,
                to,
                write_rate: gained.all_writes().duration.count / seconds,
                read_rate: gained.reads.count / seconds,
                gained,
            });
        }
        known.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::observe::snapshot::Complaints;

    #[test]
    fn what_answers_late_is_waited_for_twice_as_long_within_bounds_and_for_ten_minutes() {
        let at = |seconds: u64| Time::from_unix_millis(seconds * 1_000);
        let ms = Duration::from_millis;
        let mut slowest = Slowest::default();
        assert_eq!(slowest.patience(at(0)), ms(1_500));
        slowest.take(at(1), ms(900));
        slowest.take(at(2), ms(20));
        assert_eq!(slowest.patience(at(600)), ms(1_800));
        assert_eq!(slowest.patience(at(601)), ms(1_500));
        slowest.take(at(602), ms(9_000));
        assert_eq!(slowest.patience(at(602)), ms(3_000));
    }

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
    fn an_api_server_that_was_restarted_is_one_at_once_and_those_beside_it_are_counted_on() {
        let mut history = History::default();
        let mut replicas = |start, at| {
            history.take(scrape("lb", start, at, 0.0));
            history.replicas_behind("lb")
        };
        assert_eq!(replicas(1.0, 1_000_000), 1);
        assert_eq!(replicas(1_003.0, 1_004_000), 1);
        // Whose clock is an hour ahead.
        assert_eq!(replicas(4_608.0, 1_010_000), 1);
        assert_eq!(replicas(2.0, 1_012_000), 2);
        assert_eq!(replicas(3.0, 1_014_000), 3);
        assert_eq!(replicas(1_015.0, 1_016_000), 3, "one of them was restarted");
    }

    #[test]
    fn an_api_server_whose_clock_is_ahead_supersedes_none_that_goes_on_answering() {
        let mut history = History::default();
        for (n, at) in (0..6u64).map(|n| (n, 1_000_000 + n * 2_000)) {
            let start = if n % 2 == 0 { 1.0 } else { 4_600.0 };
            history.take(scrape("lb", start, at, 10.0 * n as f64));
        }
        assert_eq!(recent_fail_open(&mut history, 1_010_000), Some(80.0));
    }

    #[test]
    fn a_counter_that_began_again_counts_what_it_holds() {
        let mut history = History::default();
        history.take(scrape("a", 1.0, 1_000_000, 50.0));
        history.take(scrape("a", 1.0, 1_002_000, 3.0));
        assert_eq!(recent_fail_open(&mut history, 1_002_000), Some(3.0));
    }

    #[test]
    fn what_was_counted_during_a_gap_of_observation_is_no_news() {
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
    fn an_api_server_that_is_gone_is_silent_as_soon_as_another_one_speaks() {
        let mut history = History::default();
        let read = |history: &mut History, target: &str, at_ms: u64, count: f64| {
            let started = if target == "a" { 1.0 } else { 2.0 };
            history.take(scrape(target, started, at_ms, count));
        };
        for target in ["a", "b"] {
            read(&mut history, target, 1_000_000, 0.0);
            read(&mut history, target, 1_002_000, 40.0);
        }
        history.lost("a", Time::from_unix_millis(1_004_000));
        assert_eq!(recent_fail_open(&mut history, 1_004_000), Some(80.0));
        read(&mut history, "b", 1_004_500, 41.0);
        assert_eq!(recent_fail_open(&mut history, 1_004_500), Some(41.0));
        read(&mut history, "a", 1_006_000, 50.0);
        assert_eq!(
            recent_fail_open(&mut history, 1_006_000),
            Some(91.0),
            "it is back"
        );
    }

    #[test]
    fn a_process_that_is_met_at_two_addresses_counts_once() {
        let mut history = History::default();
        for second in [0, 2, 4] {
            history.take(scrape("10.0.0.1", 1.0, 1_000_000 + second * 1_000, second as f64));
            history.take(scrape("lb", 1.0, 1_000_500 + second * 1_000, second as f64));
        }
        assert_eq!(recent_fail_open(&mut history, 1_004_600), Some(4.0));
    }

    #[test]
    fn a_process_whose_clock_is_an_hour_ahead_speaks_from_its_start_on() {
        let mut history = History::default();
        history.take(scrape("a", 4_600.0, 1_000_000, 0.0));
        history.take(scrape("a", 4_600.0, 1_002_000, 4.0));
        assert_eq!(recent_fail_open(&mut history, 1_002_000), Some(4.0));
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
    fn what_is_usual_is_learnt_however_often_is_scraped() {
        let mut history = History::default();
        for seconds in 0..120 {
            let at = Time::from_unix_millis(1_000_000 + seconds * 500);
            history.take(scrape("a", 1.0, at.unix_millis(), 0.0));
            history.learn(at, |_| false);
        }
        assert!(history.baseline.write_rate.values.len() > 20);
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
