//! One target: its requests, when each was last sent, and what is in flight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Ask, Rates};
use crate::cluster::hook::{Hook, HookId, ProbeLevel};
use crate::observe::probe::ConnectionKind;
use crate::thresholds as t;
use crate::time::Time;

/// Fresh probes with one request in flight at once: while one hangs for the hook's whole timeout, the next sees a recovery.
const FRESH_PER_ASK: usize = 2;
/// Handshakes with the target in flight at once, not counting slow ones.
const HANDSHAKES: usize = 2;
/// The same with those.
const HANDSHAKES_AT_MOST: usize = 4;
/// A handshake that takes longer than this keeps others waiting no more.
const LONG_HANDSHAKE: Duration = Duration::from_secs(5);
/// A request on the pooled connection without an answer by then no longer delays others, and is retried on a connection of
/// its own. Equal to the time after which a canary is overdue.
const STALLED: Duration = Duration::from_millis(300);
/// The same while something is odd: one round of the schedule earlier, as a shield may depend on it.
const STALLED_IN_ALERT: Duration = Duration::from_millis(100);
/// Most pooled connections with a request in flight.
const KEPT_AT_ONCE: usize = 2;
/// A target to which nothing happens is looked at again after this.
const LOOKED_AT: Duration = Duration::from_secs(60);

/// When something is due again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane {
    pub(super) last: Option<Time>,
    /// When the first may come.
    pub(super) first: Time,
    /// How much earlier than its interval the next one comes, in ten-thousandths of it: 0 to 999.
    early: u64,
}

impl Lane {
    /// Due for the first time within half a second, by a toss.
    fn new(now: Time, toss: u64) -> Self {
        Self {
            last: None,
            first: now + Duration::from_millis(toss % 500),
            early: 0,
        }
    }

    /// Up to a tenth early, by a toss that differs from round to round, so that probes never march in step.
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

/// One request, and the hooks that have it in common.
#[derive(Debug)]
pub(super) struct AskState {
    pub(super) hooks: Arc<[Arc<Hook>]>,
    /// One of the hooks is looked at closely.
    pub(super) attended: bool,
    /// Since when its answers contradict its good handshakes: the hooks are then judged by probes with their own
    /// requests alone.
    pub(super) doubt: Option<Time>,
    pub(super) fresh: Lane,
    pub(super) kept: Lane,
    /// When the fresh probes in flight began.
    pub(super) fresh_out: Vec<(u64, Time)>,
}

/// A hook whose backend this was until its removal.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) hook: Arc<Hook>,
    pub(super) ask: Ask,
    pub(super) at: Time,
}

/// A request in flight on the pooled connection.
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
    /// For how long it has been due.
    pub(super) late: Duration,
    pub(super) interval: Duration,
    pub(super) attended: bool,
    /// Whether another probe of the target is in flight.
    pub(super) second: bool,
    /// Whether another fresh one with the same request is.
    pub(super) again: bool,
}

#[derive(Debug)]
pub(super) struct TargetSchedule {
    /// In the order in which they came: what makes the schedule the same again.
    pub(super) number: u64,
    pub(super) asks: BTreeMap<Ask, AskState>,
    pub(super) left: BTreeMap<HookId, Left>,
    pub(super) attended: bool,
    /// The handshake that all share.
    pub(super) fresh: Lane,
    /// For a backend that has left.
    gone: Lane,
    pub(super) unshaken: Vec<(u64, Time)>,
    pub(super) kept_out: Vec<KeptOut>,
    /// When the state of the pooled connection was last reported for all hooks, and whether it answered.
    pub(super) kept_told: Option<(Time, bool)>,
    /// When the last handshake was done.
    shaken_at: Option<Time>,
    /// Nothing is due until then.
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

    /// Takes in who asks what of it now.
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
                    // Other digits of the toss than those of the handshake.
                    kept: Lane::new(now, toss / 500),
                    fresh_out: Vec::new(),
                },
            };
            self.asks.insert(ask, state);
        }
    }

    /// The backend was removed for a hook. Its pooled connection is probed at once: the API server keeps using its own.
    pub(super) fn leave(&mut self, hook: Arc<Hook>, ask: Ask, at: Time) {
        if self.left.is_empty() {
            self.gone = Lane::new(at, 0);
        }
        let id = hook.id.clone();
        self.left.entry(id).or_insert(Left { hook, ask, at });
    }

    /// Whether the backend has left for every hook.
    pub(super) fn has_left(&self) -> bool {
        self.asks.is_empty()
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.kept_out.is_empty() || self.asks.values().any(|state| !state.fresh_out.is_empty())
    }

    /// Whether some hooks ask what others do not.
    pub(super) fn is_shared(&self) -> bool {
        self.asks.len() > 1
    }

    /// When to look at it next.
    pub(super) fn due(&self) -> Time {
        // A request in flight on the pooled connection may stall before that.
        if self.kept_out.is_empty() {
            self.wake
        } else {
            Time::default()
        }
    }

    /// Every hook whose backend it is; those whose backend it was are in `left`.
    pub(super) fn hooks(&self) -> impl Iterator<Item = &Arc<Hook>> {
        self.asks.values().flat_map(|state| &*state.hooks)
    }

    /// How long a request may take on the pooled connection while others wait for it.
    fn patience(&self) -> Duration {
        if self.attended { STALLED_IN_ALERT } else { STALLED }
    }

    /// Doubts the requests that do not come back on the pooled connection, and where nothing gets through there, all that
    /// are due.
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
        // A doubtful request is retried on a connection of its own. That helps only while handshakes succeed.
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

    /// What is due. Until the instant that comes back nothing else will be, as long as nothing happens to the target.
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
        // Closely observed ones first, then the one not probed for longest. A handshake alone is worth no more than any
        // other's.
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

    /// The next request on the pooled connection, if that is free.
    fn next_kept(&self, now: Time, rates: &Rates) -> Option<(&Ask, &AskState)> {
        let waits = |out: &KeptOut| now.since(out.began) < self.patience();
        if self.kept_out.len() >= KEPT_AT_ONCE || self.kept_out.iter().any(waits) {
            return None;
        }
        let is_out = |ask: &Ask| self.kept_out.iter().any(|out| out.ask == *ask);
        let asks = self.asks.iter();
        let asks = asks.filter(|(ask, _)| ask.level > ProbeLevel::Handshake && !is_out(ask));
        // What may hang is asked there only where nothing else is.
        asks.min_by_key(|(_, state)| {
            let attended = state.attended;
            (state.doubt.is_some(), state.kept.due(rates.interval(attended)))
        })
    }

    /// Whether it may begin now, given what began in the meantime.
    pub(super) fn permits(&self, wanted: &Wanted, now: Time) -> bool {
        if wanted.connection == ConnectionKind::Kept {
            return true;
        }
        let young = |(_, began): &&(u64, Time)| now.since(*began) < LONG_HANDSHAKE;
        self.unshaken.iter().filter(young).count() < HANDSHAKES && self.unshaken.len() < HANDSHAKES_AT_MOST
    }

    /// Notes a probe that begins now. A fresh one of a doubtful request counts for that request alone, and does not change
    /// the time of the shared handshake.
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

    /// A probe's handshake is done, or it is back; whether its handshake was not known to be done before.
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
    /// At once when the doubt is new, but no more often than while something is odd.
    fn due_in_doubt(&self, rates: &Rates) -> Time {
        let last = self.fresh.last.unwrap_or_default();
        match self.doubt.filter(|since| *since >= last) {
            Some(since) => since.max(last + rates.alert_interval),
            None => self.fresh.due(rates.interval(self.attended)),
        }
    }

    /// Whether a good handshake counts for its hooks as well.
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

/// Whether an answer that took this long may be slow.
pub(super) fn may_be_slow(took: Duration) -> bool {
    took.as_secs_f64() >= t::slow_probe_at_least()
}
