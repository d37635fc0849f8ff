//! The conditions of the rules: what the evidence on a hook adds up to.

use std::collections::BTreeSet;
use std::time::Duration;

use super::counters::{Counters, Slowness};
use super::evidence::Evidence;
use super::passing::Stale;
use super::probes::ProbeEvidence;
use super::scene::Scene;
use crate::cluster::condition::BypassCondition;
use crate::cluster::hook::{Backend, BackendAddress, FailurePolicy, Hook, HookKind, MatchCondition};
use crate::observe::probing::{BackendState, Dead};
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::{Cause, Health};

/// What a rule found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// What is wrong, if anything.
    pub cause: Option<Cause>,
    /// Since when, where that is known.
    pub since: Option<Time>,
}

impl Hit {
    pub(super) const fn new(cause: Cause, since: Option<Time>) -> Self {
        Self {
            cause: Some(cause),
            since,
        }
    }

    pub(super) fn when(self, holds: bool) -> Option<Self> {
        holds.then_some(self)
    }
}

impl Evidence<'_> {
    pub(super) fn is_admission(&self) -> bool {
        self.theirs.is_none()
    }

    pub(super) fn no_backends(&self) -> Option<Hit> {
        Some(Hit::new(self.structural?, self.without_backends_since))
    }

    /// The missing endpoints matter: a call failed, or they are missing for longer than a rollout. Not every call needs
    /// a ready endpoint: some go to a terminating one that still serves.
    pub(super) fn is_missed(&self) -> bool {
        if let Some(theirs) = &self.theirs {
            return self.api_says_so || self.was_failing() && theirs.works_since.is_none();
        }
        let lasting = self.without_backends_since.is_some_and(|since| {
            self.scene.now.since(since) >= t::no_backends() && !self.was_answered_since(since)
        });
        let failed = self.api_says_so || self.counters.failed >= 1.0 || self.current().next().is_some();
        failed || lasting && !self.scene.inventory_is_old
    }

    pub(super) fn theirs_alone(&self) -> Option<Hit> {
        let theirs = self.theirs.as_ref()?;
        // Without a known cause: its backends take connections from here, so the API server most likely gets bad answers.
        Some(Hit::new(theirs.fails?.unwrap_or(Cause::Erroring), theirs.since))
    }

    pub(super) fn is_slow_for_theirs(&self) -> bool {
        self.kind == HookKind::Conversion && self.counters.mean >= Some(t::slow_always())
    }

    /// The API server's side contradicts the dead probes: a conversion has succeeded since, or the aggregator, which has had
    /// time to look again, still finds the APIService available.
    pub(super) fn theirs_contradicts(&self, worst: &Dead) -> bool {
        let works_since = self.theirs.as_ref().and_then(|theirs| theirs.works_since);
        works_since.is_some_and(|at| match self.kind {
            HookKind::Conversion => at >= worst.since,
            _ => self.scene.now.since(worst.since) >= t::aggregator_looks(),
        })
    }

    pub(super) fn is_good(&self) -> bool {
        matches!(self.probes, ProbeEvidence::Good { .. })
    }

    pub(super) fn is_partial(&self) -> bool {
        matches!(self.probes, ProbeEvidence::Some { .. })
    }

    /// Probes are answered late: more than once, or while a canary waits for this hook.
    pub(super) fn late_probes(&self) -> Option<Hit> {
        let (_, since) = self.probes.late()?;
        let is_slow = matches!(self.probes, ProbeEvidence::Slow { .. }) || self.canary_waits.is_some();
        Hit::new(Cause::Slow, Some(since)).when(is_slow)
    }

    pub(super) fn some_dead(&self, cause: Cause) -> Option<Hit> {
        match &self.probes {
            ProbeEvidence::Some { dead, .. } => {
                Some(Hit::new(cause, dead.iter().map(|(_, dead)| dead.since).min()))
            }
            _ => None,
        }
    }

    /// For a hook whose backends are all dead: one with the most frequent cause, and since when all have been dead.
    pub(super) fn worst(&self) -> Option<(&Dead, Time)> {
        match &self.probes {
            ProbeEvidence::All { worst, dead } => {
                let since = dead.iter().map(|(_, dead)| dead.since).max();
                Some((worst, since.unwrap_or(worst.since)))
            }
            _ => None,
        }
    }

    pub(super) fn all_dead(&self) -> Option<Hit> {
        let (worst, _) = self.worst()?;
        Some(Hit::new(worst.cause, Some(worst.since)))
    }

    pub(super) fn is_dead_as_before(&self) -> bool {
        let goes_on = self.worst().zip(self.was_failing_with());
        // On a lost path some attempts hang and others find no route.
        let goes_on = goes_on.is_some_and(|((worst, _), before)| {
            worst.cause == before || worst.is_path() && matches!(before, Cause::Hanging | Cause::Unreachable)
        });
        // A shielded hook may get no calls just now, and the shield spares canaries: probes alone must do.
        goes_on && (self.uncalled || self.is_shielded() && !self.scene.self_doubt)
    }

    pub(super) fn has_passed_probation(&self) -> bool {
        self.uncalled && self.bypass == Some(BypassCondition::Probation) && self.canary_passed.is_some()
    }

    pub(super) fn stale(&self, is: impl Fn(&Stale) -> bool) -> Option<Hit> {
        let stale = Stale::of(self).filter(is)?;
        Some(Hit::new(Cause::StaleConnection, Some(stale.since)))
    }

    /// `Partial`; but while the backends of an outage come back one by one, the cause of the outage.
    pub(super) fn partial_cause(&self) -> Cause {
        let whole = self.before.is_some_and(|before| before.whole);
        let before = self.was_failing_with().filter(|_| whole);
        before.unwrap_or(Cause::Partial)
    }

    /// The failures may be over in a moment: they are new, endpoints have just come or gone, and backends answer probes.
    pub(super) fn is_burst(&self) -> bool {
        let Some(hook) = self.hook.filter(|_| self.is_admission()) else {
            return false;
        };
        let now = self.scene.now;
        let mut changes = self.scene.seen.changes.of(&hook.id, now.before(t::rolling()));
        let lasting = self.before.is_some_and(|before| {
            let since = before.since.filter(|_| before.cause.is_some());
            before.health == Health::Failing
                || since.is_some_and(|since| now.since(since) >= t::burst_lasts())
        });
        let endpoints_changed = changes.any(|change| change.what.endpoint().is_some());
        endpoints_changed && !lasting && (self.is_good() || self.is_partial())
    }

    pub(super) fn api(&self) -> Option<Hit> {
        let began = self.latest().map(|named| named.started).or(self.counters.from());
        Hit::new(self.api_cause(), began).when(self.api_says_so)
    }

    /// Its match conditions err, and requests are refused for that. Of a shielded hook that was named for it the errors alone
    /// count: each request that the shield spares is subtracted from the refusals.
    pub(super) fn conditions_err(&self) -> Option<Hit> {
        let was_so = self.is_shielded() && self.was_failing_with() == Some(Cause::Erroring);
        let err = |counters: &&Counters| {
            counters.unasked >= t::few_calls() || was_so && counters.condition_errors >= t::few_calls()
        };
        let counters = self.spans[..2].iter().find(err).filter(|_| !self.ambiguous)?;
        Some(Hit::new(Cause::Erroring, counters.from()))
    }

    /// Other evidence than probes shows that its calls fail, or it was named and has not been found healthy since.
    pub(super) fn is_met_by_calls(&self) -> bool {
        let named = self.before.is_some_and(|before| before.named);
        self.api_says_so || self.current().next().is_some() || self.structural.is_some() || named
    }

    /// For a hook that hangs for a part of its calls: how many failed, and out of how many. Such a hook answers every probe and
    /// most calls, and no canary is late or was refused because of it.
    pub(super) fn unanswered_part(&self) -> Option<(f64, f64)> {
        let Counters { calls, failed, .. } = self.counters;
        let canaries = self.canary_late.is_some() || self.is_named();
        let part = self.is_good() && !canaries && failed >= 1.0 && failed < t::most_calls() * calls;
        part.then_some((failed, calls))
    }

    /// The failed calls may be those whose clients gave up while another hook hung. Not where a canary named this hook, or most
    /// failed calls were answered with an error.
    pub(super) fn may_be_given_up(&self) -> bool {
        self.another_hangs && self.is_good() && !self.counters.mostly_own_errors() && !self.is_named()
    }

    /// It was in trouble, and the last answer to a probe came as late as a slow one.
    pub(super) fn answers_late(&self) -> bool {
        let late = |(_, state): &(Backend, BackendState)| state.answered_late();
        let troubled = self.before.is_some_and(|before| before.cause.is_some());
        troubled && self.is_good() && self.backends.iter().any(late)
    }

    pub(super) fn is_named_and_counted(&self) -> bool {
        self.is_named() && self.counters.failed > self.accusations.len() as f64
    }

    pub(super) fn slow_calls(&self, at_least: f64) -> Option<Hit> {
        let slowness = self.slowness.as_ref()?;
        // While an API server itself is slow a call takes longer than usual without its hook's doing.
        let (at_least, excess) = if self.scene.plane.slow_own_seconds().is_some() {
            (t::slow_always(), self.is_most_of_the_calls_excess())
        } else {
            (at_least, self.is_the_excess())
        };
        let named = slowness.mean >= at_least && excess && !self.ambiguous && self.goes_on_slowly(slowness);
        Hit::new(Cause::Slow, Some(slowness.from)).when(named)
    }

    /// The API server has had an answer since, so the hook fails for our probes alone. A canary that was sent since and got
    /// through shows the same: a hook that hangs would have delayed it, and one that fails at once would have refused it, unless
    /// the policy is `Ignore` or a condition of the owner may have spared it. It shows nothing about a bad certificate: the API
    /// server may still use a connection from before.
    pub(super) fn is_answered_since(&self, worst: &Dead, since: Time) -> bool {
        let passed = self.canary_passed.is_some_and(|sent| sent >= since);
        let would_be_refused = |hook: &Hook| {
            hook.failure_policy == FailurePolicy::Fail
                && hook.match_conditions.iter().all(MatchCondition::is_ours)
        };
        let shows = match worst.cause {
            Cause::Hanging => true,
            Cause::TlsInvalid => false,
            _ => self.hook.is_some_and(would_be_refused),
        };
        self.was_answered_since(since) || passed && shows
    }

    pub(super) fn is_called_well(&self) -> bool {
        match &self.theirs {
            Some(theirs) => theirs.works_since.is_some(),
            None => self.counters.calls >= 1.0,
        }
    }

    /// Enough of the extra time is this hook's: a quarter of that of all writes, or half of that of the writes that meet it.
    /// The second finds a hook that is called for few writes, and hides among all of them.
    pub(super) fn is_the_excess(&self) -> bool {
        self.excess_share >= Some(t::culprit_share()) || self.is_most_of_the_calls_excess()
    }

    fn is_most_of_the_calls_excess(&self) -> bool {
        self.call_share >= Some(t::culprit_call_share())
    }

    /// It was judged slow before, its newest calls are not fast, and either calls since then are slow too or it was named for it.
    pub(super) fn goes_on_slowly(&self, slowness: &Slowness) -> bool {
        let known = self.before.and_then(|before| before.cause) == Some(Cause::Slow);
        known && !slowness.is_over && (slowness.goes_on || self.was_failing())
    }

    /// Nothing but a hook explains a slow canary, and the API server has counted no good answer since then.
    pub(super) fn nothing_explains_since(&self, since: Time) -> bool {
        !self.scene.self_doubt && !self.scene.is_explained() && !self.was_answered_since(since)
    }

    /// Writes have been waiting since its probes began to hang: a canary that meets it is late, or hardly any write is answered.
    pub(super) fn writes_wait_for(&self, worst: &Dead, since: Time) -> bool {
        let Scene { now, stalled, .. } = *self.scene;
        let way_is_open = self.is_answered_or_times_out(since);
        // Another hook was named long before this one died: late canaries may wait for that one.
        let before = |at: Time| worst.since.since(at) >= t::long_before();
        let explained = self.scene.is_explained() || self.other_named.is_some_and(before);
        // A late canary is evidence for a hang only: a refused connection or a bad certificate fails at once. One that was
        // late before this hook died waits for something else.
        let unseen = now.since(worst.since) + t::between_probes();
        let late = self
            .canary_late
            .filter(|late| *late < unseen && (way_is_open || !explained));
        // If no backend of any hook answers us, our own network may be at fault, and writes may hang for another reason. Not
        // if there are no other backends, or if all fell silent at once and a canary has been waiting since.
        let waits = (late.is_some() || stalled && !explained) && (way_is_open || self.is_alone());
        let waits = waits || late.is_some() && self.scene.path_lost;
        // A hook that was never reached from here always seems to hang. It counts only if no other hook hangs, and if the
        // canary waits for this hook, not for a connection to an API server that itself hangs.
        let connected = late.is_some_and(|late| late >= t::connected() || self.came_with_a_change(late));
        waits && worst.cause == Cause::Hanging && (worst.was_alive || connected && !self.others_hang)
    }

    /// The hook was created or changed between the newest canary that got through and the one that is late.
    fn came_with_a_change(&self, late: Duration) -> bool {
        let Some((hook, passed)) = self.hook.zip(self.canary_passed_ever) else {
            return false;
        };
        let sent = self.scene.now.before(late) + t::propagated();
        let mut changes = self.scene.seen.changes.of(&hook.id, passed);
        changes.any(|change| change.what.endpoint().is_none() && change.at <= sent)
    }

    /// The path to the Pods is known to work: another backend has answered us since, or calls ran into their timeout.
    fn is_answered_or_times_out(&self, since: Time) -> bool {
        let timed_out = self.counters.failed >= 1.0 && !self.counters.failed_at_once();
        self.way_is_open(since) || timed_out && !self.ambiguous
    }

    /// No other hook has a backend that this one does not have.
    fn is_alone(&self) -> bool {
        let own = self.backends.iter().map(|(backend, _)| &backend.address);
        let own: BTreeSet<&BackendAddress> = own.collect();
        self.hook.is_none() || own.len() == self.scene.seen.addresses.len()
    }

    /// Our probes have found it dead for a while, and the path to it is known to work. If they never reached it, a firewall
    /// between hookwatch and the Pods may be the reason; if they did, but nothing else has answered since, our own path to the
    /// Pods may be lost.
    pub(super) fn is_dead_for_long(&self) -> bool {
        let (ProbeEvidence::All { dead, .. }, Some((worst, since))) = (&self.probes, self.worst()) else {
            return false;
        };
        let settled =
            self.scene.now.since(since) >= t::dead_alone() && dead.iter().all(|(_, dead)| dead.attempts >= 2);
        let reachable = !worst.is_path() || worst.was_alive && self.is_answered_or_times_out(since);
        worst.certain && settled && reachable && !self.scene.inventory_is_old
    }
}

impl Dead {
    /// The reason may be the network path from hookwatch to the backend.
    pub fn is_path(&self) -> bool {
        matches!(self.cause, Cause::Hanging | Cause::Unreachable)
    }
}
