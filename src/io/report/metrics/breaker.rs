//! Metrics of what the breaker does and does not do.

use prometheus::{Gauge, GaugeVec, IntCounterVec};
use strum::VariantNames as _;

use super::{Maker, Metrics, flag, set};
use crate::domain::act::breaker::{HeldBack, HookStanding, HookState, Rung};
use crate::domain::act::fence::BreakerView;
use crate::domain::time::Time;

#[derive(Debug)]
pub(super) struct BreakerMetrics {
    bypassed: GaugeVec,
    hooks: GaugeVec,
    would_bypass: GaugeVec,
    held_back: IntCounterVec,
    held_back_now: GaugeVec,
    actions: IntCounterVec,
    disarmed: Gauge,
    last_seen_bypassed: Gauge,
}

impl BreakerMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            bypassed: make.gauges(
                "breaker_bypassed",
                "Hooks that are bypassed now, by how far.",
                &["rung"],
            )?,
            hooks: make.gauges(
                "breaker_hooks",
                "Hooks that the breaker has to do with, by where they stand.",
                &["state"],
            )?,
            would_bypass: make.gauges(
                "breaker_would_bypass",
                "Hooks that would be bypassed now if the mode were on, by how far.",
                &["rung"],
            )?,
            held_back: make.counters(
                "breaker_held_back_total",
                "How often a culprit began not to be bypassed, by the guard rail that held the breaker back.",
                &["reason"],
            )?,
            held_back_now: make.gauges(
                "breaker_held_back",
                "Culprits that are not bypassed now, by the guard rail that holds the breaker back.",
                &["reason"],
            )?,
            actions: make.counters(
                "breaker_actions_total",
                "Changes of webhook configurations, by action and outcome.",
                &["action", "outcome"],
            )?,
            disarmed: make.gauge(
                "breaker_disarmed",
                "1 while autoBreak is on and hookwatch only plans, because the fence around its account is not proven.",
            )?,
            last_seen_bypassed: make.gauge(
                "breaker_last_seen_bypassed_timestamp_seconds",
                "When a bypass was last seen in force; 0 when none was.",
            )?,
        })
    }

    pub(super) fn fill(&self, breaker: &BreakerView) {
        self.disarmed.set(flag(breaker.is_disarmed()));
        for &rung in Rung::ALL {
            let count = |of: fn(&HookStanding) -> Option<Rung>| {
                let hooks = breaker.hooks.iter();
                hooks.filter(|hook| of(hook) == Some(rung)).count() as f64
            };
            let label = [rung.as_str()];
            set(&self.bypassed, &label, count(|hook| hook.rung));
            set(&self.would_bypass, &label, count(|hook| hook.would_bypass));
        }
        for reason in HeldBack::ALL.iter().copied().map(HeldBack::as_str) {
            let hooks = breaker.hooks.iter();
            let held_back = hooks.filter(|hook| hook.held_back.as_deref() == Some(reason));
            set(&self.held_back_now, &[reason], held_back.count() as f64);
        }
        for state in HookState::VARIANTS {
            let hooks = breaker.hooks.iter().filter(|hook| hook.state == *state);
            set(&self.hooks, &[state], hooks.count() as f64);
        }
    }
}

impl Metrics {
    /// Counts that a culprit began not to be bypassed.
    pub fn held_back(&self, reason: HeldBack) {
        self.breaker.held_back.with_label_values(&[reason.as_str()]).inc();
    }

    /// Counts a change of a webhook configuration: `bypass`, `probation` or `restore`, and what became of it.
    pub fn acted(&self, action: &'static str, outcome: &'static str) {
        self.breaker.actions.with_label_values(&[action, outcome]).inc();
    }

    /// Notes that a bypass is in force now.
    pub fn seen_bypassed(&self, at: Time) {
        let at = self.wall().date(at).unix_seconds();
        self.breaker.last_seen_bypassed.set(at);
    }
}
