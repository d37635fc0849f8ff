//! Metrics of the breaker: bypasses, and what holds it back.

use strum::VariantNames as _;

use super::{Metrics, flag, set};
use crate::domain::act::breaker::{HeldBack, HookStanding, HookState, Rung, WriteOutcome};
use crate::domain::act::bypass::edit::Desired;
use crate::domain::act::fence::BreakerView;
use crate::domain::time::Time;

group! {
    BreakerMetrics:
    bypassed = gauges("breaker_bypassed", &["rung"]):
        "Hooks that are bypassed now, by how far; one on probation counts as skip, since users' writes still skip it.";
    hooks = gauges("breaker_hooks", &["state"]):
        "Hooks that the breaker has to do with, by where they stand.";
    would_bypass = gauges("breaker_would_bypass", &["rung"]):
        "Hooks that would be bypassed now if the mode were on, by how far.";
    held_back = counters("breaker_held_back_total", &["reason"]):
        "How often a culprit began not to be bypassed, by the guard rail that held the breaker back.";
    held_back_now = gauges("breaker_held_back", &["reason"]):
        "Culprits that are not bypassed now, by the guard rail that holds the breaker back.";
    actions = counters("breaker_actions_total", &["action", "outcome"]):
        "Changes of webhook configurations, by action and outcome.";
    disarmed = gauge("breaker_disarmed"):
        "1 while autoBreak is on and hookwatch only plans, because the fence around its account is not proven.";
    frozen = gauge("breaker_frozen"):
        "1 while a person's freeze keeps hookwatch from bypassing anything new.";
    last_seen_bypassed = gauge("breaker_last_seen_bypassed_timestamp_seconds"):
        "When a bypass was last seen in force; 0 when none was.";
}

impl BreakerMetrics {
    /// Creates all series of the counters with 0: a series that starts at 1 shows no increase for its first event.
    pub(super) fn begun(self) -> Self {
        for reason in HeldBack::ALL {
            self.held_back.with_label_values(&[reason.as_str()]).inc_by(0);
        }
        for action in Desired::ACTIONS {
            for outcome in WriteOutcome::VARIANTS {
                self.actions.with_label_values(&[action, outcome]).inc_by(0);
            }
        }
        self
    }

    pub(super) fn fill(&self, breaker: &BreakerView) {
        self.disarmed.set(flag(breaker.is_disarmed()));
        self.frozen.set(flag(breaker.frozen.is_some()));
        for &rung in Rung::ALL {
            let count = |of: fn(&HookStanding) -> Option<Rung>| {
                let hooks = breaker.hooks.iter();
                hooks.filter(|hook| of(hook) == Some(rung)).count() as f64
            };
            let label = [rung.as_str()];
            set(&self.bypassed, &label, count(HookStanding::skipped));
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
    /// Counts that a guard rail began to keep a culprit from being bypassed.
    pub fn held_back(&self, reason: HeldBack) {
        self.breaker.held_back.with_label_values(&[reason.as_str()]).inc();
    }

    /// Counts a change of a webhook configuration: `bypass`, `probation` or `restore`, and its outcome.
    pub fn acted(&self, action: &'static str, outcome: &'static str) {
        self.breaker.actions.with_label_values(&[action, outcome]).inc();
    }

    /// Records that a bypass was seen in force at `at`.
    pub fn seen_bypassed(&self, at: Time) {
        let at = self.wall.date(at).unix_seconds();
        self.breaker.last_seen_bypassed.set(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::act::fence::{AutoBreak, Proof};
    use crate::domain::cluster::hook::{HookId, HookKind};

    #[test]
    fn a_webhook_on_probation_counts_as_skipped() {
        let metrics = Metrics::new().expect("metrics");
        let hook = HookId::new(HookKind::Validating, "policy", "w");
        let mut breaker = BreakerView::new(AutoBreak::On, Some(&Proof::Unneeded));
        breaker.hooks = vec![HookStanding::new(hook, HookState::Probation, Time::default())];
        metrics.breaker.fill(&breaker);
        let value = |rung: Rung| metrics.breaker.bypassed.with_label_values(&[rung.as_str()]).get();
        assert_eq!((value(Rung::Shield), value(Rung::Skip)), (0.0, 1.0));
    }

    #[test]
    fn the_first_bypass_and_the_first_hold_increase_counters_that_were_there_before() {
        let metrics = Metrics::new().expect("metrics");
        let values = |name: &str| -> Vec<f64> {
            let families = metrics.families(None, &[]);
            let family = families.iter().find(|family| family.name() == name);
            let series = family.map(|family| family.get_metric()).unwrap_or_default();
            series.iter().map(|one| one.get_counter().get_value()).collect()
        };
        assert_eq!(values("hookwatch_breaker_actions_total"), [0.0; 18]);
        assert_eq!(
            values("hookwatch_breaker_held_back_total"),
            vec![0.0; HeldBack::ALL.len()]
        );
        metrics.acted("bypass", "applied");
        metrics.held_back(HeldBack::Budget);
        assert_eq!(values("hookwatch_breaker_actions_total").iter().sum::<f64>(), 1.0);
        assert_eq!(values("hookwatch_breaker_actions_total").len(), 18);
        assert_eq!(
            values("hookwatch_breaker_held_back_total").len(),
            HeldBack::ALL.len()
        );
    }
}
