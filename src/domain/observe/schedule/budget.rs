//! How many probes may begin, in all and of one backend.

use std::collections::HashMap;
use std::time::Duration;

use super::Rates;
use crate::cluster::hook::Backend;
use crate::observe::probe::ConnectionKind;
use crate::time::Time;

/// Probes a second that a hook which is alone on its backend takes, in its intervals: a fresh one and a kept one, each up
/// to a tenth early. No budget is smaller.
const ALONE: f64 = 2.25;

/// While a probe on a pooled connection waits, it is owed one start per this many fresh ones.
const FRESH_PER_KEPT: f64 = 3.0;

/// A token bucket: refills evenly up to a maximum.
#[derive(Debug, Clone, Copy)]
struct Meter {
    tokens: f64,
    at: Time,
    /// A probe on a pooled connection had to wait, and none has begun since.
    kept_waits: bool,
    /// Probes owed to pooled connections: fresh ones leave this many tokens, however many of them are due.
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

    /// Whether a probe may begin. One on a pooled connection leaves `spare` for fresh ones, unless it is owed its turn.
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
                // Where there is enough for both, nothing is owed.
                let plenty = self.tokens >= 1.0 + spare;
                self.owed = if plenty { 0.0 } else { (self.owed - 1.0).max(0.0) };
                self.kept_waits = false;
            }
        }
        self.tokens -= 1.0;
    }
}

/// What is left of both.
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
    /// Forgets the backends of which nothing is probed any more, and takes in about which of the others something is odd.
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

    /// Takes one probe of a backend out. Those on pooled connections leave something for fresh ones, which are late because
    /// of them only where there is too little for both: then at least one in four is theirs.
    ///
    /// # Errors
    /// Where there is none left now.
    pub(super) fn take(
        &mut self,
        backend: &Backend,
        connection: ConnectionKind,
        rates: &Rates,
        now: Time,
    ) -> Result<(), UsedUp> {
        let most = f64::from(rates.per_second);
        // A quarter of a second's probes may begin together.
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
    /// The interval of calm times, or that of while something is odd.
    pub(super) fn interval(&self, attended: bool) -> Duration {
        if attended {
            self.alert_interval
        } else {
            self.interval
        }
    }

    /// Probes of one backend a second, at most.
    pub fn of_backend(&self, attended: bool) -> f64 {
        let most = if attended {
            self.per_backend_alert.max(self.per_backend)
        } else {
            self.per_backend
        };
        f64::from(most).max(ALONE / self.interval(attended).as_secs_f64())
    }
}
