//! How long one request waits for all the webhooks that match it.
//!
//! The API server calls mutating webhooks one after the other, ordered by the name of their configuration and their place in
//! it, and validating ones all at once (`apiserver/pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go`). A
//! mutating webhook with `reinvocationPolicy: IfNeeded` is called a second time when a later one has changed the object. If a
//! call to a webhook with `failurePolicy: Fail` fails, the request is refused and later webhooks are not called. The diagnosis
//! and the forecast use this model.

use std::time::Duration;

use super::hook::{FailurePolicy, Hook, HookId, HookKind};

/// The webhooks that one request meets and waits for, with how long it waits for each.
#[derive(Debug)]
pub struct Chain<'a> {
    /// The mutating webhooks, in the order of their calls.
    pub mutating: Vec<(&'a Hook, Duration)>,
    /// The validating webhooks, called all at once after the mutating ones.
    pub validating: Vec<(&'a Hook, Duration)>,
    /// A failing call to one of these webhooks refuses the request.
    refuses: bool,
}

/// A webhook that a request meets and waits for.
#[derive(Debug, Clone, Copy)]
pub struct MetHook<'a> {
    /// The webhook.
    pub hook: &'a Hook,
    /// How long the request waits for one call.
    pub cost: Duration,
    /// Calls to it fail. False for a webhook that is only slow: its answer may still come in time.
    pub fails: bool,
}

impl MetHook<'_> {
    fn refuses(&self) -> bool {
        self.fails && self.hook.failure_policy == FailurePolicy::Fail
    }
}

impl<'a> Chain<'a> {
    /// The chain of the webhooks that the request waits for. `asked_again`: the request meets more than one mutating webhook,
    /// so that those with `reinvocationPolicy: IfNeeded` may be called twice; their cost is then doubled.
    pub fn of(met: impl Iterator<Item = MetHook<'a>>, asked_again: bool) -> Self {
        // A webhook that refuses the request does so at its first call.
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

    /// How long until a failing call refuses the request; `None` if none does. The API server waits for all validating
    /// webhooks, even after one has failed.
    pub fn refused_after(&self) -> Option<Duration> {
        self.refuses.then(|| self.total())
    }

    /// Whether the request passes the deadline because of this webhook.
    ///
    /// A webhook whose own wait reaches the deadline is always a cause. The others are causes only if their waits reach the
    /// deadline together, without the webhooks that reach it alone: a mutating one if all mutating ones and the slowest
    /// validating one do, a validating one if the mutating ones and its own wait do.
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

/// How long a request waits for the mutating webhooks and the slowest validating one. Webhooks whose own wait is `less_than` or
/// longer are left out.
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
