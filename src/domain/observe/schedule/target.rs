//! The schedule of one target: its requests, when each was last sent, and which probes are in flight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Ask, Rates};
use crate::cluster::hook::{Hook, HookId, ProbeLevel};
use crate::observe::probe::ConnectionKind;
use crate::thresholds as t;
use crate::time::Time;

/// Most fresh probes in flight with the same request: while one hangs for the hook's whole timeout, another can see a recovery.
const FRESH_PER_ASK: usize = 2;
/// Most pending handshakes with the target that are younger than [`LONG_HANDSHAKE`].
const HANDSHAKES: usize = 2;
/// Most pending handshakes with the target.
const HANDSHAKES_AT_MOST: usize = 4;
/// A handshake that takes longer than this no longer delays others.
const LONG_HANDSHAKE: Duration = Duration::from_secs(5);
/// A request on the pooled connection that is not answered within this time no longer delays others, and is retried on a connection
/// of its own. Equal to the time after which a canary is overdue.
const STALLED: Duration = Duration::from_millis(300);
/// The same for a target that is observed closely: one round of the schedule earlier, since a shield may depend on the result.
const STALLED_IN_ALERT: Duration = Duration::from_millis(100);
/// Most requests in flight on pooled connections to the target, each on its own connection.
const KEPT_AT_ONCE: usize = 2;
/// Longest time between two checks whether anything of a target is due.
const LOOKED_AT: Duration = Duration::from_secs(60);

/// The times of one kind of probe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane {
    pub(super) last: Option<Time>,
    /// When the first probe is due.
    pub(super) first: Time,
    /// How much earlier than its interval the next probe is due, in ten-thousandths of the interval: 0 to 999.
    early: u64,
}

impl Lane {
    /// First due within half a second, at a pseudo-random time.
    fn new(now: Time, toss: u64) -> Self {
        Self {
            last: None,
            first: now + Duration::from_millis(toss % 500),
            early: 0,
        }
    }

    /// When the next probe is due: up to a tenth early, by a pseudo-random part that changes each time, so that probes of different
    /// targets do not synchronize.
    pub(super) fn due(&self, interval: Duration) -> Time {
        match self.last {
            Some(last) => last + (interval - interval.mul_f64(self.early as f64 / 10_000.0)),
            None => self.first,
        }
    }

    fn start(&mut self, now: Time, toss: u64) {
        (self.last, self.early) = (Some(now), toss % 1_000);
    }
}

/// One request, and the hooks that send the same.
#[derive(Debug)]
pub(super) struct AskState {
    pub(super) hooks: Arc<[Arc<Hook>]>,
    /// Whether one of the hooks is observed closely.
    pub(super) attended: bool,
    /// Since when its answers contradict its successful handshakes ("in doubt"): the hooks are then judged only by probes with
    /// their own request.
    pub(super) doubt: Option<Time>,
    pub(super) fresh: Lane,
    pub(super) kept: Lane,
    /// The fresh probes in flight: number and start.
    pub(super) fresh_out: Vec<(u64, Time)>,
}

/// A hook from whose endpoints the target's backend was removed.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) hook: Arc<Hook>,
    pub(super) ask: Ask,
    pub(super) at: Time,
}

/// A request in flight on a pooled connection.
#[derive(Debug)]
pub(super) struct KeptOut {
    pub(super) number: u64,
    pub(super) began: Time,
    pub(super) ask: Ask,
}

#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) ask: Ask,
    pub(super) connection: ConnectionKind,
    /// How long it has been due.
    pub(super) late: Duration,
    pub(super) interval: Duration,
    pub(super) attended: bool,
    /// Whether another probe of the target is in flight.
    pub(super) second: bool,
    /// Whether another fresh probe with the same request is in flight.
    pub(super) again: bool,
}

#[derive(Debug)]
pub(super) struct TargetSchedule {
    /// The order of creation, which makes the schedule deterministic.
    pub(super) number: u64,
    pub(super) asks: BTreeMap<Ask, AskState>,
    pub(super) left: BTreeMap<HookId, Left>,
    pub(super) attended: bool,
    /// Fresh probes, whose handshakes count for all requests.
    pub(super) fresh: Lane,
    /// Probes of a backend that was removed for every hook.
    gone: Lane,
    pub(super) unshaken: Vec<(u64, Time)>,
    pub(super) kept_out: Vec<KeptOut>,
    /// When the state of the pooled connection was last reported to all hooks, and whether it answered.
    pub(super) kept_told: Option<(Time, bool)>,
    /// When the last handshake succeeded.
    shaken_at: Option<Time>,
    /// Nothing is due before.
    pub(super) wake: Time,
}

impl TargetSchedule {
    pub(super) fn new(number: u64, now: Time, toss: u64) -> Self {
        Self {
            number,
            asks: BTreeMap::new(),
            left: BTreeMap::new(),
            attended: false,
            fresh: Lane::new(now, toss),
            gone: Lane::new(now, 0),
            unshaken: Vec::new(),
            kept_out: Vec::new(),
            kept_told: None,
            shaken_at: None,
            wake: Time::default(),
        }
    }

    /// Replaces the target's requests and their hooks.
    pub(super) fn take(&mut self, now: Time, toss: u64, asks: BTreeMap<Ask, Vec<Arc<Hook>>>) {
        let mut before = std::mem::take(&mut self.asks);
        for (ask, hooks) in asks {
            let hooks: Arc<[Arc<Hook>]> = hooks.into();
            for hook in &*hooks {
                self.left.remove(&hook.id);
            }
            let state = match before.remove(&ask) {
                Some(known) => AskState { hooks, ..known },
                None => AskState {
                    hooks,
                    attended: false,
                    doubt: None,
                    fresh: Lane::new(now, 0),
                    // Uses other digits of `toss` than the handshake's lane.
                    kept: Lane::new(now, toss / 500),
                    fresh_out: Vec::new(),
                },
            };
            self.asks.insert(ask, state);
        }
    }

    /// Records that the backend was removed for a hook. The pooled connection is probed at once, as the API server keeps using
    /// its own.
    pub(super) fn leave(&mut self, hook: Arc<Hook>, ask: Ask, at: Time) {
        if self.left.is_empty() {
            self.gone = Lane::new(at, 0);
        }
        let id = hook.id.clone();
        self.left.entry(id).or_insert(Left { hook, ask, at });
    }

    /// Whether the backend was removed for every hook.
    pub(super) fn has_left(&self) -> bool {
        self.asks.is_empty()
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.kept_out.is_empty() || self.asks.values().any(|state| !state.fresh_out.is_empty())
    }

    /// Whether hooks send different requests to this target.
    pub(super) fn is_shared(&self) -> bool {
        self.asks.len() > 1
    }

    /// When to check next what is due.
    pub(super) fn due(&self) -> Time {
        // A request in flight on the pooled connection may stall before `wake`.
        if self.kept_out.is_empty() {
            self.wake
        } else {
            Time::default()
        }
    }

    /// The hooks that have this backend; those for which it was removed are in `left`.
    pub(super) fn hooks(&self) -> impl Iterator<Item = &Arc<Hook>> {
        self.asks.values().flat_map(|state| &*state.hooks)
    }

    /// How long a request on the pooled connection delays the next one.
    fn patience(&self) -> Duration {
        if self.attended { STALLED_IN_ALERT } else { STALLED }
    }

    /// Puts requests in doubt that stall on the pooled connection; if no other request gets through there either, also all requests
    /// that are due.
    pub(super) fn doubt_stalled(&mut self, now: Time, rates: &Rates) {
        let patience = self.patience();
        let stalled = |out: &KeptOut| now.since(out.began) >= patience;
        if !self.is_shared() || !self.kept_out.iter().any(stalled) {
            return;
        }
        for out in self.kept_out.iter().filter(|out| stalled(out)) {
            if let Some(state) = self.asks.get_mut(&out.ask) {
                state.doubt.get_or_insert(now);
            }
        }
        // A request in doubt is retried on a connection of its own, which helps only while handshakes succeed.
        let first = self.kept_out.iter().map(|out| out.began).min();
        let is_shaken = |number: u64| !self.unshaken.iter().any(|(known, _)| *known == number);
        let mut fresh = self.asks.values().flat_map(|state| &state.fresh_out);
        let both_hang = fresh.any(|(number, began)| is_shaken(*number) && now.since(*began) >= patience);
        let full = both_hang || self.kept_out.len() >= KEPT_AT_ONCE;
        let blocked = full && self.kept_out.iter().all(stalled);
        if self.attended && blocked && self.shaken_at >= first {
            for (ask, state) in &mut self.asks {
                if ask.level > ProbeLevel::Handshake && state.kept.due(rates.interval(state.attended)) <= now
                {
                    state.doubt.get_or_insert(now);
                }
            }
        }
    }

    /// Passes every probe that is due to `into`. Returns when the next one will be due, if nothing happens to the target before.
    pub(super) fn wanted(
        &self,
        now: Time,
        look_since: Option<Time>,
        rates: &Rates,
        into: &mut impl FnMut(Wanted),
    ) -> Time {
        let second = self.is_busy();
        let mut wake = now + LOOKED_AT;
        let mut want = |ask: &Ask, connection, due: Time, attended, again| {
            wake = wake.min(due);
            if due <= now {
                into(Wanted {
                    ask: ask.clone(),
                    connection,
                    late: now.since(due),
                    interval: rates.interval(attended),
                    attended,
                    second,
                    again,
                });
            }
        };
        if self.has_left() {
            let mut asks = self.left.values().map(|left| &left.ask);
            let ask = asks.find(|ask| ask.level > ProbeLevel::Handshake);
            if let Some(ask) = ask.filter(|_| !second) {
                let due = self.gone.due(rates.alert_interval);
                want(ask, ConnectionKind::Kept, due, false, false);
            }
            return wake;
        }
        let in_doubt = |state: &AskState| self.is_shared() && state.doubt.is_some();
        for (ask, state) in self.asks.iter().filter(|(_, state)| in_doubt(state)) {
            if state.fresh_out.len() < FRESH_PER_ASK {
                let (due, again) = (state.due_in_doubt(rates), !state.fresh_out.is_empty());
                want(ask, ConnectionKind::Fresh, due, state.attended, again);
            }
        }
        let shares = self.asks.iter().filter(|(_, state)| !in_doubt(state));
        let free = shares.filter(|(_, state)| state.fresh_out.len() < FRESH_PER_ASK);
        // First the requests of hooks observed closely, then the one not probed for longest. A request that is only a handshake
        // comes last, since any other probe includes one.
        let next = free.min_by_key(|(ask, state)| {
            let nothing = ask.level == ProbeLevel::Handshake;
            (nothing, state.fresh_out.len(), !state.attended, state.fresh.last)
        });
        if let Some((ask, state)) = next {
            let due = self.fresh.due(rates.interval(self.attended));
            let unseen = look_since.filter(|since| self.fresh.last.is_some_and(|last| last < *since));
            let due = unseen.map_or(due, |since| due.min(since));
            let again = !state.fresh_out.is_empty();
            want(ask, ConnectionKind::Fresh, due, self.attended, again);
        }
        if let Some((ask, state)) = self.next_kept(now, rates) {
            let due = state.kept.due(rates.interval(state.attended));
            want(ask, ConnectionKind::Kept, due, state.attended, false);
        }
        wake
    }

    /// The next request on the pooled connection; `None` while another one waits there or none is left.
    fn next_kept(&self, now: Time, rates: &Rates) -> Option<(&Ask, &AskState)> {
        let waits = |out: &KeptOut| now.since(out.began) < self.patience();
        if self.kept_out.len() >= KEPT_AT_ONCE || self.kept_out.iter().any(waits) {
            return None;
        }
        let is_out = |ask: &Ask| self.kept_out.iter().any(|out| out.ask == *ask);
        let asks = self.asks.iter();
        let asks = asks.filter(|(ask, _)| ask.level > ProbeLevel::Handshake && !is_out(ask));
        // Requests in doubt, which may hang, are sent there only when there are no others.
        asks.min_by_key(|(_, state)| {
            let attended = state.attended;
            (state.doubt.is_some(), state.kept.due(rates.interval(attended)))
        })
    }

    /// Whether a probe may still begin, after others of this target that have just begun.
    pub(super) fn permits(&self, wanted: &Wanted, now: Time) -> bool {
        if wanted.connection == ConnectionKind::Kept {
            return true;
        }
        let young = |(_, began): &&(u64, Time)| now.since(*began) < LONG_HANDSHAKE;
        self.unshaken.iter().filter(young).count() < HANDSHAKES && self.unshaken.len() < HANDSHAKES_AT_MOST
    }

    /// Records that a probe begins now. A fresh probe of a request in doubt counts for that request alone, and does not delay the
    /// shared handshake.
    pub(super) fn start(&mut self, wanted: &Wanted, number: u64, now: Time, toss: u64) {
        let shared = self.is_shared();
        if wanted.connection == ConnectionKind::Kept {
            let ask = wanted.ask.clone();
            self.kept_out.push(KeptOut {
                number,
                began: now,
                ask,
            });
            match self.asks.get_mut(&wanted.ask) {
                Some(state) => state.kept.start(now, toss),
                None => self.gone.start(now, toss),
            }
        } else if let Some(state) = self.asks.get_mut(&wanted.ask) {
            if !(shared && state.doubt.is_some()) {
                self.fresh.start(now, toss);
            }
            state.fresh.start(now, toss);
            state.fresh_out.push((number, now));
            self.unshaken.push((number, now));
        }
    }

    /// Records that a probe's handshake succeeded at `done_at`, or (`None`) that the probe ended. Returns whether its handshake was
    /// still pending before.
    pub(super) fn shaken(&mut self, number: u64, done_at: Option<Time>) -> bool {
        let before = self.unshaken.len();
        self.unshaken.retain(|(known, _)| *known != number);
        self.shaken_at = self.shaken_at.max(done_at);
        self.unshaken.len() < before
    }

    pub(super) fn ended(&mut self, number: u64, ask: &Ask) {
        self.kept_out.retain(|out| out.number != number);
        if let Some(state) = self.asks.get_mut(ask) {
            state.fresh_out.retain(|(known, _)| *known != number);
        }
    }
}

impl AskState {
    /// When the next probe of a request in doubt is due: at once when the doubt is new, but no sooner than the alert interval after
    /// the last.
    fn due_in_doubt(&self, rates: &Rates) -> Time {
        let last = self.fresh.last.unwrap_or_default();
        match self.doubt.filter(|since| *since >= last) {
            Some(since) => since.max(last + rates.alert_interval),
            None => self.fresh.due(rates.interval(self.attended)),
        }
    }

    /// Whether a successful handshake of another request's probe counts for its hooks.
    pub(super) fn goes_by_handshake(&self) -> bool {
        self.doubt.is_none() && self.fresh_out.is_empty()
    }

    pub(super) fn answered(&mut self, well: Option<bool>, connection: ConnectionKind, now: Time) {
        match (well, connection) {
            (Some(false), _) => {
                self.doubt.get_or_insert(now);
            }
            (Some(true), ConnectionKind::Fresh) => self.doubt = None,
            _ => {}
        }
    }
}

/// Whether an answer that took this long may count as slow.
pub(super) fn may_be_slow(took: Duration) -> bool {
    took.as_secs_f64() >= t::slow_probe_at_least()
}
