//! How long one request waits for all the webhooks that match it.
//!
//! Mutating webhooks are asked one after the other, by the names of their configurations and their places in them; validating
//! ones all at once (`apiserver/pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go`). A mutating one that is
//! reinvoked is asked once more when another one changes the object after it. One that fails and may not refuses the request,
//! and those after it are not asked. The diagnosis and the forecast use this model.

use std::time::Duration;

use super::hook::{FailurePolicy, Hook, HookId, HookKind};

/// The webhooks that one request meets and waits for, with how long it waits for each.
#[derive(Debug)]
pub struct Chain<'a> {
    /// In the order they are asked.
    pub mutating: Vec<(&'a Hook, Duration)>,
    /// All at once, after the mutating ones.
    pub validating: Vec<(&'a Hook, Duration)>,
    /// One of them refuses the request.
    refuses: bool,
}

/// A webhook that a request meets and waits for.
#[derive(Debug, Clone, Copy)]
pub struct MetHook<'a> {
    /// Which one.
    pub hook: &'a Hook,
    /// How long it is waited for, each time.
    pub cost: Duration,
    /// Calls to it fail. One that is late may still be answered.
    pub fails: bool,
}

impl MetHook<'_> {
    fn refuses(&self) -> bool {
        self.fails && self.hook.failure_policy == FailurePolicy::Fail
    }
}

impl<'a> Chain<'a> {
    /// Of those that are waited for. `asked_again`: the request meets more than one mutating webhook, so that those with
    /// `reinvocationPolicy: IfNeeded` may be asked twice.
    pub fn of(met: impl Iterator<Item = MetHook<'a>>, asked_again: bool) -> Self {
        // One that refuses the request does so the first time.
        let again = |met: &MetHook<'_>| met.hook.reinvoked && asked_again && !met.refuses();
        let times = |met: &MetHook<'_>| if again(met) { 2 } else { 1 };
        let paid = |met: &MetHook<'a>| (met.hook, met.cost.saturating_mul(times(met)));
        let (mut mutating, mut validating): (Vec<MetHook<'_>>, Vec<MetHook<'_>>) =
            met.partition(|met| met.hook.id.kind == HookKind::Mutating);
        mutating.sort_by_key(|met| (&met.hook.id.configuration, met.hook.written.entry));
        let ends_at = mutating.iter().position(MetHook::refuses);
        if let Some(last) = ends_at {
            mutating.truncate(last + 1);
            validating.clear();
        }
        Self {
            refuses: ends_at.is_some() || validating.iter().any(MetHook::refuses),
            mutating: mutating.iter().map(paid).collect(),
            validating: validating.iter().map(paid).collect(),
        }
    }

    /// How long the request waits for all of them.
    pub fn total(&self) -> Duration {
        waited(&self.mutating, &self.validating, Duration::MAX)
    }

    /// When a call that fails refuses the request; `None` where none does. Of validating webhooks all are waited for, also
    /// once one has failed.
    pub fn refused_after(&self) -> Option<Duration> {
        self.refuses.then(|| self.total())
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
            Some(cost) => waited(&self.mutating, &[], deadline).saturating_add(cost) >= deadline,
        }
    }
}

/// How long a request waits for the mutating webhooks and the slowest validating one, of those that keep it for less than
/// that alone.
fn waited(mutating: &[(&Hook, Duration)], validating: &[(&Hook, Duration)], less_than: Duration) -> Duration {
    let counts = |cost: &Duration| *cost < less_than;
    let mutating = mutating.iter().map(|(_, cost)| *cost).filter(counts);
    let validating = validating.iter().map(|(_, cost)| *cost).filter(counts);
    let slowest = validating.max().unwrap_or_default();
    mutating.fold(slowest, Duration::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::matching::tests::hook;

    fn asked(kind: HookKind, configuration: &str, webhook: &str, failure_policy: FailurePolicy) -> Hook {
        Hook {
            id: HookId::new(kind, configuration, webhook),
            failure_policy,
            ..hook(&["*"])
        }
    }

    fn chain<'a>(met: &[(&'a Hook, u64, bool)], asked_again: bool) -> Chain<'a> {
        let met = met.iter().map(|(hook, seconds, fails)| MetHook {
            hook,
            cost: Duration::from_secs(*seconds),
            fails: *fails,
        });
        Chain::of(met, asked_again)
    }

    #[test]
    fn a_call_that_fails_and_may_not_ends_the_chain() {
        use FailurePolicy::{Fail, Ignore};
        let seconds = Duration::from_secs;
        let first = asked(HookKind::Mutating, "a", "a", Ignore);
        let fails = Hook {
            reinvoked: true,
            ..asked(HookKind::Mutating, "b", "b", Fail)
        };
        let never_asked = asked(HookKind::Mutating, "c", "c", Ignore);
        let validates = asked(HookKind::Validating, "d", "d", Fail);
        let of = |fails_so: bool| {
            chain(
                &[
                    (&first, 1, true),
                    (&fails, 3, fails_so),
                    (&never_asked, 3, true),
                    (&validates, 4, true),
                ],
                true,
            )
        };
        let refused = of(true);
        assert_eq!(refused.total(), seconds(4), "it is not asked again, either");
        assert_eq!(refused.refused_after(), Some(seconds(4)));
        assert!(!refused.is_passed_by(&never_asked.id, seconds(4)));
        assert!(!refused.is_passed_by(&validates.id, seconds(4)));
        // One that answers late lets the request go on, to be refused by the validating one.
        assert_eq!(of(false).total(), seconds(1 + 2 * 3 + 3 + 4));
        assert_eq!(of(false).refused_after(), Some(seconds(14)));
        assert_eq!(chain(&[(&first, 1, true)], true).refused_after(), None);
    }

    #[test]
    fn webhooks_of_one_configuration_are_asked_in_their_order_in_it() {
        let place = |configuration, webhook, entry| {
            let mut hook = asked(HookKind::Mutating, configuration, webhook, FailurePolicy::Fail);
            hook.written.entry = entry;
            hook
        };
        let all = [place("b", "a", 0), place("a", "y", 1), place("a", "z", 0)];
        let met: Vec<_> = all.iter().map(|hook| (hook, 1, false)).collect();
        let chain = chain(&met, false);
        let order: Vec<&str> = chain.mutating.iter().map(|(hook, _)| &*hook.id.webhook).collect();
        assert_eq!(order, ["z", "y", "a"]);
    }
}
