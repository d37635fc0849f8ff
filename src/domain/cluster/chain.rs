//! What one request waits for all the webhooks that it meets.
//!
//! Mutating webhooks are asked one after the other, validating ones all at once
//! (`apiserver/pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go`); a mutating one that is reinvoked is asked
//! once more when another one changes the object after it. The diagnosis and the forecast reckon by this.

use std::time::Duration;

use super::hook::{Hook, HookId, HookKind};

/// The webhooks that one request meets and waits for, with how long it waits for each.
#[derive(Debug, Default)]
pub struct Chain<'a> {
    /// In the order they are asked.
    pub mutating: Vec<(&'a Hook, Duration)>,
    /// All at once, after the mutating ones.
    pub validating: Vec<(&'a Hook, Duration)>,
}

impl<'a> Chain<'a> {
    /// Of those that are waited for. `asked_again`: the request meets more than one mutating webhook, so that those with
    /// `reinvocationPolicy: IfNeeded` may be asked twice.
    pub fn of(met: impl Iterator<Item = (&'a Hook, Duration)>, asked_again: bool) -> Self {
        let times = |hook: &Hook| if hook.reinvoked && asked_again { 2 } else { 1 };
        let met = met.map(|(hook, cost)| (hook, cost * times(hook)));
        let (mutating, validating) = met.partition(|(hook, _)| hook.id.kind == HookKind::Mutating);
        Self { mutating, validating }
    }

    /// How long the request waits for all of them.
    pub fn total(&self) -> Duration {
        waited(&self.mutating, &self.validating, Duration::MAX)
    }

    /// Whether the request is late because of this webhook.
    ///
    /// One that passes the deadline alone does so, and what the others add to it matters no more. Those pass it
    /// together, or not; a validating one adds nothing to a slower one beside it, and counts if it alone would after the
    /// mutating ones.
    pub fn is_passed_by(&self, hook: &HookId, deadline: Duration) -> bool {
        let its = |hooks: &[(&Hook, Duration)]| {
            let its = hooks.iter().find(|(other, _)| other.id == *hook);
            its.map(|(_, cost)| *cost)
        };
        let (mutates, validates) = (its(&self.mutating), its(&self.validating));
        match mutates.or(validates) {
            None => false,
            Some(cost) if cost >= deadline => true,
            Some(_) if mutates.is_some() => waited(&self.mutating, &self.validating, deadline) >= deadline,
            Some(cost) => waited(&self.mutating, &[], deadline) + cost >= deadline,
        }
    }
}

/// How long a request waits for the mutating webhooks and the slowest validating one, of those that keep it for less than
/// that alone.
fn waited(mutating: &[(&Hook, Duration)], validating: &[(&Hook, Duration)], less_than: Duration) -> Duration {
    let counts = |cost: &Duration| *cost < less_than;
    let mutating = mutating.iter().map(|(_, cost)| *cost).filter(counts);
    let validating = validating.iter().map(|(_, cost)| *cost).filter(counts);
    mutating.sum::<Duration>() + validating.max().unwrap_or_default()
}
