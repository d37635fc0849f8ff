//! How the requests of the workload's clients went.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::lab::cluster::LabHook;

/// Longest duration of a write that counts as done at once, when writes were quick before.
const AT_ONCE: Duration = Duration::from_millis(500);
/// How many times the usual median a write may take instead, where that is longer than [`AT_ONCE`].
const TIMES_USUAL: u32 = 5;
/// How far back single writes are remembered.
const MEMORY: Duration = Duration::from_secs(30);
/// Most single writes that are remembered.
const MAX_WRITES: usize = 8_192;
/// Longest text of a failure that is kept, in bytes.
const MAX_TEXT: usize = 1_024;

/// Everything counted since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Writes that succeeded.
    pub written: u64,
    /// Lists that succeeded.
    pub listed: u64,
    /// Requests that were refused, timed out or got no answer.
    pub failed: u64,
    /// Writes among them that timed out, at the client or at the API server.
    pub timed_out: u64,
}

/// How requests went in a stretch of time that ends now.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Recent {
    /// Successful writes per second.
    pub writes_per_second: f64,
    /// The median duration of those writes; `None` without any.
    pub median: Option<Duration>,
    /// Requests that failed.
    pub failed: u64,
}

/// The first request that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstFailure {
    /// When the client learned of it.
    pub at: Timestamp,
    /// The same on the monotonic clock.
    pub instant: Instant,
    /// How long the client had waited by then.
    pub waited: Duration,
    /// What it had asked for, as in `create configmaps in team-a`.
    pub request: String,
    /// The error that it got.
    pub text: String,
}

/// The first create or update that succeeded at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstSuccess {
    /// When it was begun.
    pub began: Instant,
    /// When the client learned of it.
    pub ended: Instant,
    /// What it had asked for, as in `create configmaps in team-a`.
    pub request: String,
}

/// How writes to one namespace went that a broken hook is called for, since `WorkloadRecord::count_flows`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flow {
    /// The namespace.
    pub namespace: String,
    /// Writes that succeeded at once: within half a second or five times the usual median, whichever is longer.
    pub at_once: u64,
    /// Writes that succeeded later.
    pub late: u64,
    /// Writes that were refused or given up.
    pub failed: u64,
    /// Writes in flight for longer than at once allows, whenever they began.
    pub waiting: u64,
}

impl Flow {
    /// Whether writes go through: some at once, and at most a quarter as many held up.
    pub fn is_free(&self) -> bool {
        self.at_once > 0 && self.at_once >= 4 * self.held_up()
    }

    /// Writes that were not done at once.
    pub fn held_up(&self) -> u64 {
        self.late + self.failed + self.waiting
    }
}

/// Stands for a request in flight; the client hands it back at the request's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::lab) struct RequestTicket(u64);

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::lab) struct FailedRequest {
    /// The error that the client got.
    pub text: String,
    /// Whether it ran out of time, at the client or at the API server.
    pub timed_out: bool,
}

/// Where all clients of one workload record how their requests went.
#[derive(Debug, Default)]
pub(in crate::lab) struct WorkloadRecord {
    state: Mutex<RecordState>,
}

#[derive(Debug, Default)]
struct RecordState {
    totals: Totals,
    /// Ended writes: when, how long it took, whether it succeeded.
    writes: VecDeque<(Instant, Duration, bool)>,
    first_failure: Option<FirstFailure>,
    /// Since when a first success is looked for, and the hooks of which one must be called for it.
    awaited: Option<(Instant, Vec<LabHook>)>,
    /// The median duration of a write before that; zero if there was none.
    usual: Duration,
    first_success: Option<FirstSuccess>,
    /// The same among the control plane's own writes.
    first_of_control_plane: Option<FirstSuccess>,
    next_ticket: u64,
    under_way: BTreeMap<RequestTicket, (Instant, String)>,
    /// Since when flows are counted.
    counted_since: Option<Instant>,
    flows: BTreeMap<String, Flow>,
}

impl WorkloadRecord {
    pub(in crate::lab) fn begins(&self, now: Instant, request: &str) -> RequestTicket {
        let mut state = self.lock();
        state.next_ticket += 1;
        let ticket = RequestTicket(state.next_ticket);
        state.under_way.insert(ticket, (now, request.to_owned()));
        ticket
    }

    pub(in crate::lab) fn wrote(&self, now: Instant, ticket: RequestTicket) {
        let mut state = self.lock();
        let Some((began, request)) = state.under_way.remove(&ticket) else {
            return;
        };
        let took = now - began;
        let at_once = took <= state.at_once();
        if at_once && let Some((_, hooks)) = state.awaited.as_ref().filter(|(since, _)| began >= *since) {
            let success = FirstSuccess {
                began,
                ended: now,
                request: request.clone(),
            };
            let asked = is_asked(hooks, &request);
            // `asked` does not matter here: a hook that costs the control plane anything is called for all of its writes.
            if namespace(&request).starts_with("kube-") {
                state
                    .first_of_control_plane
                    .get_or_insert_with(|| success.clone());
            }
            if asked {
                state.first_success.get_or_insert(success);
            }
        }
        state.count_flow(began, &request, |flow| {
            if at_once {
                flow.at_once += 1
            } else {
                flow.late += 1
            }
        });
        state.totals.written += 1;
        state.remember(now, took, true);
    }

    pub(super) fn listed(&self) {
        self.lock().totals.listed += 1;
    }

    /// Records that a user's write failed.
    pub(super) fn refused(&self, now: Instant, ticket: RequestTicket, why: &FailedRequest) {
        // The lock is taken again below.
        let ended = self.lock().fails(ticket, why.timed_out);
        if let Some((began, request)) = ended {
            self.failed(now, now - began, &request, &why.text);
        }
    }

    /// Records that a write of the control plane's own failed. No user sees that, so it is no first failure.
    pub(in crate::lab) fn lost(&self, now: Instant, ticket: RequestTicket, timed_out: bool) {
        let mut state = self.lock();
        if let Some((began, _)) = state.fails(ticket, timed_out) {
            state.totals.failed += 1;
            state.remember(now, now - began, false);
        }
    }

    pub(super) fn failed(&self, now: Instant, took: Duration, request: &str, text: &str) {
        let mut state = self.lock();
        state.totals.failed += 1;
        state.remember(now, took, false);
        if state.first_failure.is_none() {
            let mut end = text.len().min(MAX_TEXT);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            state.first_failure = Some(FirstFailure {
                at: Timestamp::now(),
                instant: now,
                waited: took,
                request: request.to_owned(),
                text: text[..end].to_owned(),
            });
        }
    }

    pub(in crate::lab) fn totals(&self) -> Totals {
        self.lock().totals
    }

    pub(super) fn recent(&self, window: Duration) -> Recent {
        self.lock().recent(Instant::now(), window)
    }

    pub(super) fn first_failure(&self) -> Option<FirstFailure> {
        self.lock().first_failure.clone()
    }

    pub(super) fn first_success(&self) -> Option<FirstSuccess> {
        self.lock().first_success.clone()
    }

    pub(super) fn first_of_control_plane(&self) -> Option<FirstSuccess> {
        self.lock().first_of_control_plane.clone()
    }

    pub(super) fn await_success(&self, hooks: &[LabHook]) {
        let mut state = self.lock();
        let now = Instant::now();
        state.usual = state.recent(now, MEMORY).median.unwrap_or_default();
        state.awaited = Some((now, hooks.to_vec()));
        (state.first_success, state.first_of_control_plane) = (None, None);
    }

    /// Resets the counts, per namespace, of the outcomes of writes.
    pub(super) fn count_flows(&self) {
        let mut state = self.lock();
        state.counted_since = Some(Instant::now());
        state.flows.clear();
    }

    pub(super) fn flows(&self) -> Vec<Flow> {
        self.lock().flows(Instant::now())
    }

    /// The median duration of writes that succeeded and were begun since flows are counted, as a multiple of the median before
    /// the fault. `None` if either is missing.
    pub(super) fn slowdown(&self) -> Option<f64> {
        let state = self.lock();
        let since = state.counted_since?;
        let writes = state.writes.iter();
        let took =
            writes.filter(|(ended, took, _)| ended.checked_sub(*took).is_some_and(|began| began >= since));
        let now = median(
            took.filter(|(.., succeeded)| *succeeded)
                .map(|(_, took, _)| *took),
        )?;
        (!state.usual.is_zero()).then(|| now.as_secs_f64() / state.usual.as_secs_f64())
    }

    pub(super) fn forget_failures(&self) {
        self.lock().first_failure = None;
    }

    fn lock(&self) -> MutexGuard<'_, RecordState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn median(durations: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut durations: Vec<Duration> = durations.collect();
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied()
}

fn is_asked(hooks: &[LabHook], request: &str) -> bool {
    hooks.iter().any(|hook| hook.is_asked_about(request))
}

/// The namespace that a request is about.
fn namespace(request: &str) -> &str {
    request.rsplit(' ').next().unwrap_or_default()
}

impl RecordState {
    /// The longest duration of a write that counts as done at once.
    fn at_once(&self) -> Duration {
        AT_ONCE.max(self.usual * TIMES_USUAL)
    }

    /// Ends a write in flight as failed; returns when it began and what it was.
    fn fails(&mut self, ticket: RequestTicket, timed_out: bool) -> Option<(Instant, String)> {
        let (began, request) = self.under_way.remove(&ticket)?;
        self.count_flow(began, &request, |flow| flow.failed += 1);
        self.totals.timed_out += u64::from(timed_out);
        Some((began, request))
    }

    fn count_flow(&mut self, began: Instant, request: &str, count: impl FnOnce(&mut Flow)) {
        let hooks = self.awaited.iter().flat_map(|(_, hooks)| hooks);
        if self.counted_since.is_none_or(|since| began < since)
            || !hooks.into_iter().any(|hook| hook.is_asked_about(request))
        {
            return;
        }
        count(self.flows.entry(namespace(request).to_owned()).or_default());
    }

    fn flows(&self, now: Instant) -> Vec<Flow> {
        let mut flows = self.flows.clone();
        let hooks = self.awaited.as_ref().map_or(&[][..], |(_, hooks)| hooks);
        for (began, request) in self.under_way.values() {
            if is_asked(hooks, request) && now.saturating_duration_since(*began) > self.at_once() {
                flows.entry(namespace(request).to_owned()).or_default().waiting += 1;
            }
        }
        let named = |(namespace, flow)| Flow { namespace, ..flow };
        flows.into_iter().map(named).collect()
    }

    fn remember(&mut self, now: Instant, took: Duration, succeeded: bool) {
        while self.writes.len() >= MAX_WRITES
            || self
                .writes
                .front()
                .is_some_and(|(ended, ..)| now.saturating_duration_since(*ended) > MEMORY)
        {
            self.writes.pop_front();
        }
        self.writes.push_back((now, took, succeeded));
    }

    fn recent(&self, now: Instant, window: Duration) -> Recent {
        let window = window.min(MEMORY).max(Duration::from_millis(1));
        let within = self
            .writes
            .iter()
            .filter(|(ended, ..)| now.saturating_duration_since(*ended) <= window);
        let (succeeded, failed): (Vec<_>, Vec<_>) = within.partition(|(.., succeeded)| *succeeded);
        Recent {
            writes_per_second: succeeded.len() as f64 / window.as_secs_f64(),
            median: median(succeeded.iter().map(|(_, took, _)| *took)),
            failed: failed.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_failure_is_kept_until_it_is_forgotten() {
        let record = WorkloadRecord::default();
        let now = Instant::now();
        record.failed(now, Duration::from_secs(10), "create secrets in team-a", "one");
        record.failed(now, Duration::from_secs(10), "create secrets in team-a", "two");
        assert_eq!(record.first_failure().unwrap().text, "one");
        record.forget_failures();
        assert_eq!(record.first_failure(), None);
        record.failed(now, Duration::ZERO, "patch leases in team-b", &"ä".repeat(2_000));
        assert!(record.first_failure().unwrap().text.len() <= MAX_TEXT);
        assert_eq!(record.totals().failed, 3);
    }

    #[test]
    fn the_recent_past_holds_only_what_ended_within_it() {
        let mut state = RecordState::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        state.remember(at(0), Duration::from_millis(900), true);
        for millis in [5, 1, 3] {
            state.remember(at(9), Duration::from_millis(millis), true);
        }
        state.remember(at(9), Duration::from_secs(10), false);
        let recent = state.recent(at(10), Duration::from_secs(2));
        assert_eq!(recent.median, Some(Duration::from_millis(3)));
        assert_eq!((recent.writes_per_second, recent.failed), (1.5, 1));
        assert_eq!(state.recent(at(20), Duration::from_secs(2)), Recent::default());
    }

    #[test]
    fn only_what_the_hooks_are_asked_about_counts_and_what_is_late_is_no_success_at_once() {
        let record = WorkloadRecord::default();
        let seconds = Duration::from_secs;
        record.await_success(&[LabHook::Quota]);
        record.count_flows();
        let now = Instant::now();
        for (request, took) in [
            ("create configmaps in team-a", seconds(0)),
            ("create services in team-a", seconds(8)),
            ("renew leases in kube-node-lease", seconds(0)),
            ("delete leases in team-b", seconds(0)),
        ] {
            let ticket = record.begins(now, request);
            record.wrote(now + took, ticket);
        }
        let refused = record.begins(now, "patch services in team-a");
        let why = FailedRequest {
            text: "no".to_owned(),
            timed_out: false,
        };
        record.refused(now, refused, &why);
        let first = record.first_success().unwrap();
        assert_eq!(first.request, "renew leases in kube-node-lease");
        let flow = |namespace: &str| {
            let mut flows = record.flows().into_iter();
            flows.find(|flow| flow.namespace == namespace)
        };
        let (tenant, nodes) = (flow("team-a").unwrap(), flow("kube-node-lease").unwrap());
        assert_eq!((tenant.at_once, tenant.late, tenant.failed), (0, 1, 1));
        assert!(nodes.is_free() && !tenant.is_free() && flow("team-b").is_none());
    }

    #[test]
    fn the_slowdown_counts_what_was_begun_since_flows_are_counted() {
        let record = WorkloadRecord::default();
        let write = |began: Instant, millis: u64| {
            let ticket = record.begins(began, "create secrets in team-a");
            record.wrote(began + Duration::from_millis(millis), ticket);
        };
        let before = Instant::now();
        write(before, 10);
        record.await_success(&[LabHook::Opa]);
        assert_eq!(record.slowdown(), None, "nothing is counted");
        record.count_flows();
        assert_eq!(record.slowdown(), None, "nothing was begun since");
        write(before, 10_000);
        for millis in [1, 20, 40] {
            write(Instant::now(), millis);
        }
        assert_eq!(record.slowdown(), Some(2.0));
    }

    #[test]
    fn a_write_under_way_is_held_up_whenever_it_was_begun() {
        let record = WorkloadRecord::default();
        record.await_success(&[LabHook::Opa]);
        let now = Instant::now();
        record.begins(now, "create secrets in team-a");
        record.count_flows();
        let later = now + Duration::from_secs(2);
        let flows = record.lock().flows(later);
        assert_eq!((flows.len(), flows[0].waiting), (1, 1));
        assert!(!flows[0].is_free());
    }

    #[test]
    fn a_lost_write_of_the_control_plane_is_no_users_first_failure() {
        let record = WorkloadRecord::default();
        let now = Instant::now();
        record.await_success(&[LabHook::Opa]);
        record.count_flows();
        for timed_out in [true, false] {
            let ticket = record.begins(Instant::now(), "renew leases in kube-system");
            record.lost(now, ticket, timed_out);
        }
        assert_eq!(record.first_failure(), None);
        let totals = record.totals();
        assert_eq!((totals.failed, totals.timed_out), (2, 1));
        assert_eq!(record.flows()[0].failed, 2);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut state = RecordState::default();
        let now = Instant::now();
        for _ in 0..MAX_WRITES + 10 {
            state.remember(now, Duration::ZERO, true);
        }
        assert_eq!(state.writes.len(), MAX_WRITES);
        state.remember(now + MEMORY * 2, Duration::ZERO, true);
        assert_eq!(state.writes.len(), 1);
    }
}
