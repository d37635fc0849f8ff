//! The budgets of probes: how many may begin per second, in total and per backend.

use std::collections::HashMap;
use std::time::Duration;

use super::Rates;
use crate::cluster::hook::Backend;
use crate::observe::probe::ConnectionKind;
use crate::time::Time;

/// Probes per interval of a hook that is alone on its backend: a fresh and a pooled one, each up to a tenth early (2 / 0.9, rounded
/// up). No backend's budget is smaller.
const ALONE: f64 = 2.25;

/// While a probe on a pooled connection waits, it is owed one start per this many starts of fresh probes.
const FRESH_PER_KEPT: f64 = 3.0;

/// A token bucket, refilled evenly up to a maximum.
#[derive(Debug, Clone, Copy)]
struct Meter {
    tokens: f64,
    at: Time,
    /// Whether a probe on a pooled connection had to wait, and none has begun since.
    kept_waits: bool,
    /// Starts owed to probes on pooled connections: fresh probes leave this many whole tokens.
    owed: f64,
}

impl Meter {
    fn new(tokens: f64, at: Time) -> Self {
        Self {
            tokens,
            at,
            kept_waits: false,
            owed: 0.0,
        }
    }

    /// Whether a probe may begin. One on a pooled connection must leave `spare` tokens for fresh probes, unless it is owed a start.
    fn has(&mut self, connection: ConnectionKind, spare: f64, (rate, burst): (f64, f64), now: Time) -> bool {
        let gained = now.since(self.at).as_secs_f64() * rate;
        (self.tokens, self.at) = ((self.tokens + gained).min(burst), now);
        let leaves = match connection {
            ConnectionKind::Fresh => self.owed.floor(),
            ConnectionKind::Kept if self.owed >= 1.0 => 0.0,
            ConnectionKind::Kept => spare,
        };
        let may = self.tokens >= 1.0 + leaves;
        self.kept_waits |= connection == ConnectionKind::Kept && !may;
        may
    }

    fn take(&mut self, connection: ConnectionKind, spare: f64) {
        match connection {
            ConnectionKind::Fresh if self.kept_waits => {
                self.owed = (self.owed + 1.0 / FRESH_PER_KEPT).min(spare.max(1.0));
            }
            ConnectionKind::Fresh => {}
            ConnectionKind::Kept => {
                // With enough tokens for both kinds, nothing is owed.
                let plenty = self.tokens >= 1.0 + spare;
                self.owed = if plenty { 0.0 } else { (self.owed - 1.0).max(0.0) };
                self.kept_waits = false;
            }
        }
        self.tokens -= 1.0;
    }
}

/// The tokens that are left, in total and per backend.
#[derive(Debug, Default)]
pub(super) struct ProbeBudget {
    total: Option<Meter>,
    backends: HashMap<Backend, (Meter, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsedUp {
    Concurrency,
    Total,
    Backend,
}

impl ProbeBudget {
    /// Forgets the backends that are no longer probed, and updates which of the others are observed closely.
    pub(super) fn keep_only(&mut self, backends: &HashMap<&Backend, bool>) {
        self.backends.retain(|backend, (_, attended)| {
            *attended = backends.get(backend) == Some(&true);
            backends.contains_key(backend)
        });
        for (backend, attended) in backends {
            if let Some((_, known)) = self.backends.get_mut(*backend) {
                *known = *attended;
            } else {
                let meter = Meter::new(f64::MAX, Time::default());
                self.backends.insert((*backend).clone(), (meter, *attended));
            }
        }
    }

    /// Takes one probe of a backend from both budgets. Probes on pooled connections leave tokens for fresh ones. When there are too
    /// few tokens for both kinds, at least one start in four is a pooled connection's.
    ///
    /// # Errors
    /// The budget that has too few tokens now.
    pub(super) fn take(
        &mut self,
        backend: &Backend,
        connection: ConnectionKind,
        rates: &Rates,
        now: Time,
    ) -> Result<(), UsedUp> {
        let most = f64::from(rates.per_second);
        // A quarter of the probes of a second may begin at once.
        let burst = (most / 4.0).max(3.0);
        let (of_all, of_backend) = (burst / 4.0, 1.0);
        let total = self.total.get_or_insert(Meter::new(burst, now));
        if !total.has(connection, of_all, (most, burst), now) {
            return Err(UsedUp::Total);
        }
        if let Some((meter, attended)) = self.backends.get_mut(backend) {
            let rate = rates.of_backend(*attended);
            if !meter.has(connection, of_backend, (rate, rate.max(2.0) + 1.0), now) {
                return Err(UsedUp::Backend);
            }
            meter.take(connection, of_backend);
        }
        total.take(connection, of_all);
        Ok(())
    }
}

impl Rates {
    /// The interval between probes; the alert interval for what is observed closely (`attended`).
    pub(super) fn interval(&self, attended: bool) -> Duration {
        if attended {
            self.alert_interval
        } else {
            self.interval
        }
    }

    /// Most probes of one backend per second.
    pub fn of_backend(&self, attended: bool) -> f64 {
        let most = if attended {
            self.per_backend_alert.max(self.per_backend)
        } else {
            self.per_backend
        };
        f64::from(most).max(ALONE / self.interval(attended).as_secs_f64())
    }
}
