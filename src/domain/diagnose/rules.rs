//! The rules by which a hook is judged, in order: the first one that applies makes the verdict.
//!
//! A hook is named as failing when the API server's side says that its calls fail, or when our side says so and nothing
//! speaks against it; what exactly is wrong comes from the witness that saw it closest. The order is: what the inventory
//! shows, what a bypass leaves to be seen, pooled connections, what the API server says, slowness, probes alone, what is
//! left over, and health.

use super::evidence::Evidence;
use super::extension::available;
use super::passing::{Stale, rollout_gap};
use super::probes::Probes;
use super::words;
use crate::domain::hook::HookKind;
use crate::domain::probing::Dead;
use crate::domain::thresholds as t;
use crate::domain::time::Time;
use crate::domain::verdict::Verdict;
use crate::domain::vocabulary::{Bypass, Cause, Health, Health::*};

/// What a rule found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// What is wrong, if anything.
    pub cause: Option<Cause>,
    /// Since when, where that is known.
    pub since: Option<Time>,
}

/// One row of the table.
#[derive(Debug)]
pub struct Rule {
    /// Its name, in every verdict that it made.
    pub name: &'static str,
    /// What it needs, as sentences.
    pub needs: &'static [&'static str],
    /// How a hook is that it applies to.
    pub health: Health,
    /// How likely it is that the webhook is judged rightly, 0 to 1.
    pub webhook_confidence: f64,
    /// How likely it is that webhook and cause are right, 0 to 1.
    pub confidence: f64,
    /// Whether it applies, and what it found.
    pub when: fn(&Evidence<'_>) -> Option<Hit>,
    /// Its own sentences of evidence.
    pub says: fn(&Evidence<'_>) -> Vec<String>,
}

/// Rules that name a culprit on what one witness saw, or on what may pass by itself: enough to tell a person, and not to
/// change a configuration.
const NOT_ACTED_ON: [&str; 5] = [
    "timeouts-since-endpoint-left",
    "calls-fail",
    "slower-calls",
    "slow-probes-and-canary",
    "probes-for-long",
];

/// Whether a verdict suffices to bypass a webhook, with a second witness beside it.
pub fn suffices(verdict: &Verdict) -> bool {
    verdict.webhook_confidence >= t::sure_enough() && !NOT_ACTED_ON.contains(&verdict.rule)
}

impl Hit {
    const fn new(cause: Cause, since: Option<Time>) -> Self {
        Self {
            cause: Some(cause),
            since,
        }
    }

    fn when(self, holds: bool) -> Option<Self> {
        holds.then_some(self)
    }
}

/// Nothing is wrong, under a condition.
fn well(holds: bool) -> Option<Hit> {
    let cause = None;
    holds.then_some(Hit { cause, since: None })
}

macro_rules! rules {
    ($(#[doc = $group:literal])* $table:ident: $($(#[doc = $needs:literal])+
        $name:literal, $health:ident, $webhook:literal $cause:literal, $says:expr, $when:expr;)+) => {
        $(#[doc = $group])*
        pub const $table: &[Rule] = &[$(Rule {
            name: $name,
            needs: &[$($needs),+],
            health: $health,
            webhook_confidence: $webhook,
            confidence: $cause,
            when: $when,
            says: $says,
        }),+];
    };
}

rules! {
    /// Every rule, the first that applies first.
    TABLE:
    /// Calls fail only around changes of the endpoints, three or more of them or in two bursts.
    "rollout-gap", Failing, 0.85 0.85, words::rollout, |e| e.lost_in_rollouts(true);
    /// A call failed, or a probe was refused, around a change of the endpoints.
    "rollout-gap-once", Suspect, 0.6 0.6, words::rollout, |e| e.lost_in_rollouts(false);
    /// The Service or its endpoints are missing, and the API server's side says that calls fail.
    "no-backends-and-calls-fail", Failing, 0.97 0.97, nothing, |e| e.no_backends()?.when(e.api_says_so || e.theirs_fails());
    /// The Service or its endpoints have been missing for 5 s and no call was answered since, or a call failed.
    "no-backends", Failing, 0.85 0.85, nothing, |e| e.no_backends()?.when(e.is_admission() && e.is_missed());
    /// The Service or its endpoints are missing: that may be a rollout.
    "no-backends-yet", Suspect, 0.6 0.6, nothing, |e| e.no_backends();
    /// It is bypassed, and no backend answers a probe, as before the bypass.
    "bypassed-still-dead", Failing, 0.9 0.9, nothing, |e| e.all_dead()?.when(e.is_dead_as_before());
    /// It is on probation, a canary that was sent since got through, and every backend answers.
    "probation-passed", Healthy, 0.9 0.9, nothing, |e| well(e.has_passed_probation() && e.is_good());
    /// The connection that hookwatch kept to a backend that left is silent, and a call ran into its timeout since.
    "pooled-connection-and-timeout", Failing, 0.95 0.95, words::stale, |e| e.stale(|stale| stale.own && stale.speaks);
    /// The connection that hookwatch kept to a backend that left is silent, and a canary waits for no other hook.
    "pooled-connection-and-canary", Failing, 0.85 0.85, words::stale, |e| {
        e.stale(|stale| stale.own && e.canary_late.is_some() && !e.others_hang)
    };
    /// It was named for that, and the API server may have such connections yet.
    "pooled-connection-goes-on", Failing, 0.85 0.85, words::stale, |e| {
        let named = e.was_failing_with() == Some(Cause::StaleConnection);
        e.stale(|stale| stale.own && !stale.over && named)
    };
    /// The connection that hookwatch kept to a backend that left is silent: the API server may have such ones.
    "pooled-connection", Suspect, 0.6 0.6, words::stale, |e| e.stale(|stale| stale.own && !stale.over);
    /// An endpoint left, calls ran into their timeout since, others are answered, and so is every probe.
    "timeouts-since-endpoint-left", Failing, 0.75 0.75, words::stale, |e| {
        e.stale(|stale| !stale.own && stale.counted && e.counters.failing())
    };
    /// An endpoint left, a call ran into its timeout since, others are answered, and so is every probe.
    "timeout-since-endpoint-left", Suspect, 0.6 0.6, words::stale, |e| e.stale(|stale| !stale.own && stale.speaks);
    /// Calls fail around a change of the endpoints: it may be over in a moment.
    "burst", Suspect, 0.5 0.5, words::late, |e| {
        let cause = if e.is_partial() { e.partial_cause() } else { e.api_cause() };
        Hit::new(cause, None).when(e.api_says_so && e.is_burst())
    };
    /// The API server's side says that calls fail, and no backend answers a probe.
    "calls-fail-and-probes", Failing, 0.97 0.97, words::late, |e| {
        let (worst, _) = e.worst()?;
        Hit::new(worst.cause, Some(worst.since)).when(e.api_says_so && !e.way_may_be_gone(worst))
    };
    /// Calls under a name that several hooks share fail, and some backends of this one are dead.
    "calls-fail-and-some-probes-shared-name", Suspect, 0.85 0.85, words::late, |e| {
        e.some_dead(e.partial_cause())?.when(e.api_says_so && e.ambiguous && !e.is_named())
    };
    /// The API server's side says that calls fail, and some backends are dead.
    "calls-fail-and-some-probes", Failing, 0.85 0.85, words::late, |e| e.some_dead(e.partial_cause())?.when(e.api_says_so);
    /// Calls under a name that several hooks share fail: the counters accuse none of them.
    "calls-fail-shared-name", Suspect, 0.4 0.4, words::reached, |e| e.api()?.when(e.ambiguous && !e.is_named());
    /// A refused canary names it and users' calls fail; nobody listens, or the inventory is late.
    "canary-and-calls-refused", Failing, 0.85 0.85, words::reached, |e| {
        e.api()?.when(e.is_named_and_counted() && e.api_cause() == Cause::Refused)
    };
    /// A refused canary names it, and users' calls fail.
    "canary-and-calls", Failing, 0.92 0.92, words::reached, |e| e.api()?.when(e.is_named_and_counted());
    /// A refused canary names it.
    "canary", Failing, 0.85 0.85, words::reached, |e| e.api()?.when(e.is_named());
    /// Users' calls run into their timeout.
    "calls-time-out", Failing, 0.85 0.85, words::reached, |e| {
        let told = e.latest().is_some() || e.counters.calls >= 1.0;
        e.api()?.when(told && e.api_cause() == Cause::Hanging)
    };
    /// Users' calls fail: that is certain, and why is a guess.
    "calls-fail", Failing, 0.4 0.4, words::reached, |e| e.api();
    /// The API server's side says that it fails, as its own cause has it, and no probe from here ever got through.
    "extension-fails-own-path", Failing, 0.85 0.85, nothing, |e| {
        let (worst, _) = e.worst()?;
        let said = e.theirs.as_ref()?.fails??;
        Hit::new(said, Some(worst.since)).when(worst.is_path() && !worst.was_alive)
    };
    /// The API server's side says that it fails, and no backend answers a probe.
    "extension-fails-and-probes", Failing, 0.95 0.95, nothing, |e| e.all_dead()?.when(e.theirs.as_ref()?.fails.is_some());
    /// The API server's side says that it fails, and some backends are dead.
    "extension-fails-and-some-probes", Failing, 0.85 0.85, nothing, |e| {
        e.some_dead(Cause::Partial)?.when(e.theirs.as_ref()?.fails.is_some())
    };
    /// It works for the API server, and no probe from here ever got through.
    "extension-works-own-path", Healthy, 0.7 0.7, nothing, |e| {
        let (worst, _) = e.worst()?;
        well(e.theirs_contradicts(worst) && worst.is_path() && !worst.was_alive)
    };
    /// It was named, no backend answers a probe, and nothing was asked of it since.
    "extension-still-dead", Failing, 0.8 0.8, nothing, |e| {
        let works = e.theirs.as_ref()?.works_since.is_some();
        e.all_dead()?.when(e.was_failing() && !works && !e.scene.self_doubt)
    };
    /// The API server's side says that it fails, and backends take connections from here.
    "extension-unavailable", Suspect, 0.7 0.7, nothing, |e| e.theirs_alone()?.when(available(e.hook).is_some());
    /// Conversions fail, and backends take connections from here.
    "extension-fails", Suspect, 0.6 0.6, nothing, |e| e.theirs_alone();
    /// It is slow for the API server, and probes are answered late.
    "extension-slow-and-probes", Failing, 0.9 0.9, nothing, |e| {
        let slow = e.theirs.as_ref()?.slow;
        e.late_probes()?.when(slow)
    };
    /// It is slow for the API server, and not for us.
    "extension-slow", Suspect, 0.6 0.6, nothing, |e| {
        let theirs = e.theirs.as_ref()?;
        let unseen = e.is_good() || matches!(e.probes, Probes::NoData);
        Hit::new(Cause::Slow, theirs.since).when(theirs.slow && unseen)
    };
    /// Calls and probes are answered late, and the extra time of writes is this hook's or a canary shows it.
    "slow-and-probes", Failing, 0.95 0.95, words::slow_canary, |e| {
        e.slowness.as_ref()?;
        e.late_probes()?.when(e.is_the_excess() || e.canary_slow.is_some())
    };
    /// Calls take half a second and more, again and again, and the extra time of writes is this hook's.
    "slow-calls", Failing, 0.85 0.85, words::slow_canary, |e| e.slow_calls(t::slow_always());
    /// Calls take five times as long as usual, again and again, and the extra time of writes is this hook's.
    "slower-calls", Failing, 0.75 0.75, words::slow_canary, |e| e.slow_calls(0.0);
    /// Calls are answered late, or were a moment ago.
    "slow-calls-once", Suspect, 0.6 0.6, words::slow_canary, |e| {
        let over = e.slowness.as_ref()?.is_old && e.worst().is_some();
        Hit::new(Cause::Slow, None).when(!over)
    };
    /// Probes are answered late, a canary took as long, and the API server has counted nothing since.
    "slow-probes-and-canary", Failing, 0.8 0.8, words::slow_canary, |e| {
        let Probes::Slow { since, took } = e.probes else { return None };
        e.late_probes()?.when(e.is_admission() && e.canary_is_as_slow((since, took)))
    };
    /// No backend of anything answers: the fault may be hookwatch's own.
    "probes-self-doubt", Suspect, 0.3 0.3, words::late, |e| {
        let (worst, _) = e.worst()?;
        e.all_dead()?.when(e.scene.self_doubt && (worst.certain || e.theirs.is_some()))
    };
    /// No backend answers a probe, and the API server was answered since.
    "probes-contradicted", Suspect, 0.4 0.4, words::late, |e| {
        let (worst, since) = e.worst()?;
        let answered = worst.certain && e.is_answered_since(worst, since);
        e.all_dead()?.when(answered || e.theirs_contradicts(worst))
    };
    /// No backend answers a probe, and writes have been waiting since.
    "probes-and-writes-wait", Failing, 0.9 0.9, words::late, |e| {
        let (worst, since) = e.worst()?;
        e.all_dead()?.when(e.is_admission() && worst.certain && e.writes_wait_for(worst, since))
    };
    /// No backend answered a probe for 5 s, at least twice, and the way to the pods is open.
    "probes-for-long", Failing, 0.75 0.75, words::late, |e| {
        let Probes::All { worst, dead } = &e.probes else { return None };
        let (_, since) = e.worst()?;
        e.all_dead()?.when(e.is_admission() && worst.certain && e.is_dead_for_long(worst, dead, since))
    };
    /// No backend answers a probe.
    "probes", Suspect, 0.5 0.5, words::late, |e| e.all_dead();
    /// Some backends are dead.
    "some-probes", Suspect, 0.85 0.85, nothing, |e| e.some_dead(Cause::Partial);
    /// A call failed, or a canary was refused.
    "a-call-failed", Suspect, 0.5 0.5, words::reached, |e| {
        Hit::new(e.first_cause(), None).when(e.counters.failed >= 1.0 || e.current().next().is_some())
    };
    /// Probes are answered late.
    "slow-probes", Suspect, 0.5 0.5, words::slow_canary, |e| e.late_probes();
    /// It denies at least half of what it is shown: it works.
    "denies", Suspect, 0.95 0.95, nothing, |e| Hit::new(Cause::Denying, None).when(e.counters.denies_much(&e.spans[2]));
    /// It was bypassed as unreachable for the API server: whether it is reachable now is not known before it tries.
    "bypassed-unreachable", Suspect, 0.5 0.5, nothing, |e| {
        let unreachable = e.before.and_then(|before| before.cause) == Some(Cause::Unreachable);
        Hit::new(Cause::Unreachable, None).when(e.uncalled && e.is_good() && unreachable)
    };
    /// It is bypassed and every backend answers: nothing but probes can tell.
    "bypassed-probes-good", Healthy, 0.8 0.8, nothing, |e| well(e.uncalled && e.is_good());
    /// It is bypassed and no probe says anything: what was wrong may be so still.
    "bypassed-no-data", Suspect, 0.5 0.5, nothing, |e| {
        Hit::new(e.before?.cause?, None).when(e.uncalled && matches!(e.probes, Probes::NoData))
    };
    /// Every probe and every call is answered.
    "answers-and-probes", Healthy, 0.98 0.98, nothing, |e| well(e.is_good() && e.is_called_well());
    /// Every probe is answered.
    "answers-probes", Healthy, 0.9 0.9, nothing, |e| well(e.is_good());
    /// Every call is answered.
    "answers", Healthy, 0.8 0.8, nothing, |e| well(e.is_called_well() && !e.ambiguous);
    /// No witness says anything.
    "no-data", Unknown, 0.0 0.0, nothing, |_| well(true);
}

fn nothing(_: &Evidence<'_>) -> Vec<String> {
    Vec::new()
}

/// The first rule that applies, with what it found.
pub fn first(evidence: &Evidence<'_>) -> (&'static Rule, Hit) {
    first_of(TABLE, evidence)
}

fn first_of(rules: &'static [Rule], evidence: &Evidence<'_>) -> (&'static Rule, Hit) {
    let hit = rules.iter().find_map(|rule| {
        #[cfg(feature = "ablation")]
        if t::ablation::is_off(rule.name) {
            return None;
        }
        Some((rule, (rule.when)(evidence)?))
    });
    // The last rule applies to everything.
    let (cause, since) = (None, None);
    hit.unwrap_or((&TABLE[TABLE.len() - 1], Hit { cause, since }))
}

/// The conditions of the rules.
impl Evidence<'_> {
    fn is_admission(&self) -> bool {
        self.theirs.is_none()
    }

    fn lost_in_rollouts(&self, more_than_once: bool) -> Option<Hit> {
        // What would be said of it otherwise, by the rules below those two.
        let (since, lasting) = rollout_gap(self, || first_of(&TABLE[2..], self).1.cause)?;
        Hit::new(Cause::RolloutGap, Some(since)).when(lasting || !more_than_once)
    }

    fn no_backends(&self) -> Option<Hit> {
        Some(Hit::new(self.structural?, self.without_backends_since))
    }

    /// What is missing is missed: by a call that failed, or for so long that it is no rollout. Not every call needs an
    /// endpoint that is ready: some go to one that is ending and serves on.
    fn is_missed(&self) -> bool {
        let lasting = self.without_backends_since.is_some_and(|since| {
            self.scene.now.since(since) >= t::no_backends() && !self.counters.answered_since(since)
        });
        lasting && !self.scene.inventory_is_old
            || self.counters.failed >= 1.0
            || self.current().next().is_some()
    }

    fn theirs_fails(&self) -> bool {
        self.theirs.as_ref().is_some_and(|theirs| {
            theirs.fails.is_some() || self.was_failing() && theirs.works_since.is_none()
        })
    }

    fn theirs_alone(&self) -> Option<Hit> {
        let theirs = self.theirs.as_ref()?;
        // A backend that takes connections from here and fails for the API server answers it badly, if nothing else
        // is known.
        Some(Hit::new(theirs.fails?.unwrap_or(Cause::Erroring), theirs.since))
    }

    /// A conversion since then got through, or the aggregator has looked since and is content.
    fn theirs_contradicts(&self, worst: &Dead) -> bool {
        let works_since = self.theirs.as_ref().and_then(|theirs| theirs.works_since);
        works_since.is_some_and(|at| match self.kind {
            HookKind::Conversion => at >= worst.since,
            _ => self.scene.now.since(worst.since) >= t::aggregator_looks(),
        })
    }

    fn is_good(&self) -> bool {
        matches!(self.probes, Probes::Good { .. })
    }

    fn is_partial(&self) -> bool {
        matches!(self.probes, Probes::Some { .. })
    }

    fn late_probes(&self) -> Option<Hit> {
        match self.probes {
            Probes::Slow { since, .. } => Some(Hit::new(Cause::Slow, Some(since))),
            _ => None,
        }
    }

    fn some_dead(&self, cause: Cause) -> Option<Hit> {
        match &self.probes {
            Probes::Some { dead, .. } => Some(Hit::new(cause, dead.iter().map(|(_, dead)| dead.since).min())),
            _ => None,
        }
    }

    /// Of hooks that no backend answers for: the one that tells most, and since when all are dead.
    fn worst(&self) -> Option<(&Dead, Time)> {
        match &self.probes {
            Probes::All { worst, dead } => {
                let since = dead.iter().map(|(_, dead)| dead.since).max();
                Some((worst, since.unwrap_or(worst.since)))
            }
            _ => None,
        }
    }

    fn all_dead(&self) -> Option<Hit> {
        let (worst, _) = self.worst()?;
        Some(Hit::new(worst.cause, Some(worst.since)))
    }

    fn is_dead_as_before(&self) -> bool {
        let goes_on = self
            .worst()
            .is_some_and(|(worst, _)| self.was_failing_with() == Some(worst.cause));
        // A shielded hook is called, but perhaps by nothing just now, and what canaries write is spared.
        goes_on && (self.uncalled || self.bypass == Some(Bypass::Shield) && !self.scene.self_doubt)
    }

    fn has_passed_probation(&self) -> bool {
        self.uncalled && self.bypass == Some(Bypass::Probation) && self.canary_passed.is_some()
    }

    fn stale(&self, is: impl Fn(&Stale) -> bool) -> Option<Hit> {
        let stale = Stale::of(self).filter(is)?;
        Some(Hit::new(Cause::StaleConnection, Some(stale.since)))
    }

    /// While backends come back one by one the old cause is still the better name for it.
    fn partial_cause(&self) -> Cause {
        let whole = self.before.is_some_and(|before| before.whole);
        self.was_failing_with()
            .filter(|_| whole)
            .unwrap_or(Cause::Partial)
    }

    /// What fails may be over in a moment: endpoints have just come or gone, and others answer.
    fn is_burst(&self) -> bool {
        let Some(hook) = self.hook else { return false };
        let now = self.scene.now;
        let mut changes = self.scene.seen.changes.of(&hook.id, now.before(t::rolling()));
        let lasting = self.before.is_some_and(|before| {
            let since = before.since.filter(|_| before.cause.is_some());
            before.health == Failing || since.is_some_and(|since| now.since(since) >= t::burst())
        });
        let endpoints_changed = changes.any(|change| change.what.endpoint().is_some());
        endpoints_changed && !lasting && (self.is_good() || self.is_partial())
    }

    fn api(&self) -> Option<Hit> {
        let began = self.latest().map(|named| named.started).or(self.counters.from());
        Hit::new(self.api_cause(), began).when(self.api_says_so)
    }

    fn is_named_and_counted(&self) -> bool {
        self.is_named() && self.counters.failed > self.accusations.len() as f64
    }

    fn slow_calls(&self, at_least: f64) -> Option<Hit> {
        let slowness = self
            .slowness
            .as_ref()
            .filter(|slowness| slowness.mean >= at_least)?;
        let named = self.is_the_excess() && !self.ambiguous && self.goes_on_slowly(slowness);
        Hit::new(Cause::Slow, Some(slowness.from)).when(named)
    }

    /// What the API server was answered since, it will be answered again; nor does it hang for us alone when a canary
    /// that was sent since got through.
    fn is_answered_since(&self, worst: &Dead, since: Time) -> bool {
        let passed = self.canary_passed.is_some_and(|sent| sent >= since);
        self.counters.answered_since(since) || worst.cause == Cause::Hanging && passed
    }

    fn is_called_well(&self) -> bool {
        match &self.theirs {
            Some(theirs) => theirs.works_since.is_some(),
            None => self.counters.calls >= 1.0,
        }
    }
}
