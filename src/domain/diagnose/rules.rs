//! The rules by which a hook is judged, in order: the first one that applies makes the verdict.
//!
//! A hook is named as failing when the API server's side says that its calls fail, or when our side says so and nothing
//! speaks against it; what exactly is wrong comes from the witness that saw it closest. The order is: what the inventory
//! shows, what a bypass leaves to be seen, pooled connections, what the API server says, slowness, probes alone, what is
//! left over, and health.

use super::conditions::Hit;
use super::evidence::Evidence;
use super::extension::available;
use super::passing::rollout_gap;
use super::probes::ProbeEvidence;
use super::words;
use crate::diagnose::verdict::Verdict;
use crate::thresholds as t;
use crate::vocabulary::{Cause, Health, Health::*};

/// One row of the table.
#[derive(Debug)]
pub struct DiagnosisRule {
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

/// Rules that name a culprit by one witness, or for what may be transient: enough to tell a person, not to change a
/// configuration.
const NOT_ACTED_ON: [&str; 6] = [
    "probes-and-named-beside",
    "timeouts-since-endpoint-left",
    "calls-fail",
    "slower-calls",
    "slow-probes-and-canary",
    "probes-for-long",
];

/// The rule on match conditions that err: the cause is that of a webhook which errs, and the words are its own.
pub const CONDITIONS_ERR: &str = "conditions-err";

/// Whether a verdict suffices to bypass a webhook, with a second witness beside it.
pub fn suffices(verdict: &Verdict) -> bool {
    verdict.webhook_confidence >= t::sure_enough() && !NOT_ACTED_ON.contains(&verdict.rule)
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
        pub const $table: &[DiagnosisRule] = &[$(DiagnosisRule {
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
    "rollout-gap", Failing, 0.99 0.99, words::rollout, |e| lost_in_rollouts(e, true);
    /// A call failed, or a probe was refused, around a change of the endpoints.
    "rollout-gap-once", Suspect, 0.71 0.71, words::rollout, |e| lost_in_rollouts(e, false);
    /// The Service or its endpoints are missing, and a call failed; or a webhook has missed them for `no_backends`, and no
    /// call was answered since.
    "no-backends", Failing, 0.99 0.99, nothing, |e| e.no_backends()?.when(e.is_missed());
    /// The Service or its endpoints are missing: that may be a rollout.
    "no-backends-yet", Suspect, 0.99 0.99, nothing, |e| e.no_backends();
    /// It is bypassed, and no backend answers a probe, as before the bypass.
    "bypassed-still-dead", Failing, 0.99 0.97, nothing, |e| e.all_dead()?.when(e.is_dead_as_before());
    /// It is on probation, a canary that was sent since got through, and every backend answers.
    "probation-passed", Healthy, 0.9 0.9, nothing, |e| well(e.has_passed_probation() && e.is_good());
    /// The connection that hookwatch kept to a backend that left is silent; and a call ran into its timeout since, a canary
    /// waits for no other hook, or it was named for that a moment ago and the API server may still have such connections.
    "pooled-connection-and-calls", Failing, 0.98 0.98, words::stale, |e| {
        let canary = e.canary_late.is_some() && !e.others_hang;
        let named = e.was_failing_with() == Some(Cause::StaleConnection);
        e.stale(|stale| stale.own && (stale.timed_out || (canary || named) && !stale.drained))
    };
    /// The connection that hookwatch kept to a backend that left is silent: the API server may have such ones.
    "pooled-connection", Suspect, 0.98 0.97, words::stale, |e| e.stale(|stale| stale.own && !stale.drained);
    /// An endpoint left to which hookwatch kept no connection, calls ran into their timeout since, others are answered, and
    /// so is every probe.
    "timeouts-since-endpoint-left", Failing, 0.75 0.75, words::stale, |e| {
        e.stale(|stale| !stale.own && stale.calls_timed_out && e.counters.failing())
    };
    /// An endpoint left to which hookwatch kept no connection, a call ran into its timeout since, others are answered, and
    /// so is every probe.
    "timeout-since-endpoint-left", Suspect, 0.60 0.12, words::stale, |e| {
        e.stale(|stale| !stale.own && stale.timed_out)
    };
    /// Calls fail around a change of the endpoints: it may be over in a moment.
    "burst", Suspect, 0.85 0.06, words::late, |e| {
        let cause = if e.is_partial() { e.partial_cause() } else { e.api_cause() };
        Hit::new(cause, None).when(e.api_says_so && e.is_burst())
    };
    /// The API server's side says that it fails, as its own cause has it, and no probe from here ever got through.
    "extension-fails-own-path", Failing, 0.85 0.85, nothing, |e| {
        let (worst, _) = e.worst()?;
        let said = e.theirs.as_ref()?.fails??;
        Hit::new(said, Some(worst.since)).when(worst.is_path() && !worst.was_alive)
    };
    /// The API server's side says that calls fail, and no backend answers a probe.
    "calls-fail-and-probes", Failing, 0.99 0.96, words::reached, |e| {
        let (worst, _) = e.worst()?;
        Hit::new(worst.cause, Some(worst.since)).when(e.api_says_so && !e.way_may_be_gone(worst))
    };
    /// Calls under a name that several hooks share fail, no refusal shows by its URL that it means this one, and some of
    /// its backends are dead.
    "calls-fail-and-some-probes-shared-name", Suspect, 0.85 0.65, words::late, |e| {
        e.some_dead(e.partial_cause())?.when(e.api_says_so && e.ambiguous && !e.is_named())
    };
    /// The API server's side says that calls fail, and some backends are dead.
    "calls-fail-and-some-probes", Failing, 0.99 0.94, words::late, |e| e.some_dead(e.partial_cause())?.when(e.api_says_so);
    /// The API server's side says that it fails, and backends take connections from here.
    "extension-unavailable", Suspect, 0.7 0.7, nothing, |e| e.theirs_alone()?.when(available(e.hook).is_some());
    /// Conversions fail, and backends take connections from here.
    "extension-fails", Suspect, 0.6 0.6, nothing, |e| e.theirs_alone();
    /// Calls under a name that several hooks share fail, and no refusal shows by its URL that it means this one.
    "calls-fail-shared-name", Suspect, 0.53 0.17, words::reached, |e| e.api()?.when(e.ambiguous && !e.is_named());
    /// A refused canary names it and users' calls fail; nothing listens, or the inventory is late.
    "canary-and-calls-refused", Failing, 0.97 0.76, words::reached, |e| {
        e.api()?.when(e.is_named_and_counted() && e.api_cause() == Cause::Refused)
    };
    /// A refused canary names it, and users' calls fail.
    "canary-and-calls", Failing, 0.99 0.98, words::reached, |e| e.api()?.when(e.is_named_and_counted());
    /// A refused canary names it.
    "canary", Failing, 0.99 0.90, words::reached, |e| e.api()?.when(e.is_named());
    /// Users' calls run into their timeout.
    "calls-time-out", Failing, 0.99 0.96, words::reached, |e| {
        let told = e.latest().is_some() || e.counters.calls >= 1.0;
        e.api()?.when(told && e.api_cause() == Cause::Hanging)
    };
    /// Users' calls fail: that is certain, and why is a guess. Not where clients may have given up beside it: another
    /// webhook hangs, and every backend of this one answers.
    "calls-fail", Failing, 0.99 0.47, words::reached, |e| e.api()?.when(!e.may_be_given_up());
    /// Its match conditions cannot be evaluated, and under `Fail` the API server refuses requests for that, without a call.
    "conditions-err", Failing, 0.95 0.95, words::conditions, |e| e.conditions_err();
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
    /// It is slow for the API server, and not for us.
    "extension-slow", Suspect, 0.6 0.6, nothing, |e| {
        let unseen = e.is_good() || matches!(e.probes, ProbeEvidence::NoData);
        Hit::new(Cause::Slow, e.counters.from()).when(e.is_slow_for_theirs() && unseen)
    };
    /// Calls and probes are answered late; and the extra time of writes is this hook's, a canary shows it or waits for it, or
    /// they are conversions.
    "slow-and-probes", Failing, 0.99 0.98, words::slow_canary, |e| {
        let takes_the_time = e.is_the_excess() || e.canary_slow.or(e.canary_waits).is_some();
        e.late_probes()?.when(e.is_slow_for_theirs() || e.slowness.is_some() && takes_the_time)
    };
    /// Calls take half a second and more, again and again, and the extra time of writes is this hook's; while an
    /// API server itself is slow, of those writes that meet it.
    "slow-calls", Failing, 0.99 0.98, words::slow_canary, |e| e.slow_calls(t::slow_always());
    /// Calls take five times as long as usual, again and again, the extra time of writes is this hook's, and no API
    /// server itself is slow.
    "slower-calls", Failing, 0.99 0.99, words::slow_canary, |e| e.slow_calls(0.0);
    /// Calls are answered late, or were a moment ago.
    "slow-calls-once", Suspect, 0.56 0.31, words::slow_canary, |e| {
        let over = e.slowness.as_ref()?.is_old && e.worst().is_some();
        Hit::new(Cause::Slow, None).when(!over)
    };
    /// Probes are answered late, a canary waits for it, and the API server has counted nothing since.
    "slow-probes-and-canary-waits", Failing, 0.95 0.92, words::slow_canary, |e| {
        let late = e.late_probes()?;
        let waits = e.canary_waits.is_some() && e.nothing_explains_since(late.since?);
        late.when(e.is_admission() && waits)
    };
    /// Probes are answered late, a canary took as long, and the API server has counted nothing since.
    "slow-probes-and-canary", Failing, 0.95 0.92, words::slow_canary, |e| {
        let (took, since) = e.probes.late()?;
        // It was slow enough to have met it as our probe did.
        let as_slow = e.canary_slow.is_some_and(|canary| canary.saturating_mul(2) >= took) && e.nothing_explains_since(since);
        e.late_probes()?.when(e.is_admission() && as_slow)
    };
    /// No backend of anything answers: the fault may be hookwatch's own.
    "probes-self-doubt", Suspect, 0.25 0.25, words::late, |e| {
        let (worst, _) = e.worst()?;
        e.all_dead()?.when(e.scene.self_doubt && (worst.certain || e.theirs.is_some()))
    };
    /// No backend answers a probe, and the API server was answered since; or a canary got through that the webhook would
    /// have held up or refused.
    "probes-contradicted", Suspect, 0.19 0.08, words::late, |e| {
        let (worst, since) = e.worst()?;
        let answered = (worst.certain || worst.is_path()) && e.is_answered_since(worst, since);
        e.all_dead()?.when(answered || e.theirs_contradicts(worst))
    };
    /// No backend answers a probe, and writes have been waiting since.
    "probes-and-writes-wait", Failing, 0.98 0.95, words::late, |e| {
        let (worst, since) = e.worst()?;
        e.all_dead()?.when(e.is_admission() && worst.certain && e.writes_wait_for(worst, since))
    };
    /// No backend answered a probe for `dead_alone`, at least twice, and the way to the pods is open.
    "probes-for-long", Failing, 0.99 0.98, words::late, |e| {
        e.all_dead()?.when(e.is_admission() && e.is_dead_for_long())
    };
    /// No backend answers a probe, and a webhook that is called at the same place, or lost the same path, is named.
    "probes-and-named-beside", Failing, 0.97 0.95, words::beside, |e| {
        let (worst, _) = e.worst()?;
        e.all_dead()?.when(e.is_admission() && e.named_beside && worst.certain)
    };
    /// No backend answers a probe.
    "probes", Suspect, 0.53 0.50, words::late, |e| e.all_dead();
    /// Some backends are dead.
    "some-probes", Suspect, 0.98 0.52, nothing, |e| e.some_dead(Cause::Partial);
    /// A call failed, or a canary was refused.
    "a-call-failed", Suspect, 0.92 0.46, words::reached, |e| {
        Hit::new(e.first_cause(), None).when(e.counters.failed >= 1.0 || e.current().next().is_some())
    };
    /// It was in trouble, and the newest probe took a second or more: it is not well yet.
    "answers-late", Suspect, 0.88 0.73, words::late, |e| Hit::new(Cause::Slow, None).when(e.answers_late());
    /// Probes are answered late.
    "slow-probes", Suspect, 0.88 0.73, words::slow_canary, |e| e.late_probes();
    /// It denies at least half of what it is shown: it works.
    "denies", Suspect, 0.98 0.98, nothing, |e| Hit::new(Cause::Denying, None).when(e.counters.denies_much(&e.spans[2]));
    /// It was bypassed as unreachable for the API server: whether it is reachable now is not known before it tries.
    "bypassed-unreachable", Suspect, 0.5 0.5, nothing, |e| {
        let unreachable = e.before.and_then(|before| before.cause) == Some(Cause::Unreachable);
        Hit::new(Cause::Unreachable, None).when(e.uncalled && e.is_good() && unreachable)
    };
    /// It is bypassed and every backend answers: nothing but probes can tell.
    "bypassed-probes-good", Healthy, 0.8 0.8, nothing, |e| well(e.uncalled && e.is_good());
    /// It is bypassed and no probe says anything: what was wrong may be so still.
    "bypassed-no-data", Suspect, 0.97 0.95, nothing, |e| {
        Hit::new(e.before?.cause?, None).when(e.uncalled && matches!(e.probes, ProbeEvidence::NoData))
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
pub fn first(rules: &'static [DiagnosisRule], evidence: &Evidence<'_>) -> (&'static DiagnosisRule, Hit) {
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

/// Calls that are lost around changes of the endpoints, in place of what would be said by the rules below those two.
fn lost_in_rollouts(evidence: &Evidence<'_>, more_than_once: bool) -> Option<Hit> {
    let (since, lasting) = rollout_gap(evidence, || first(&TABLE[2..], evidence).1.cause)?;
    Hit::new(Cause::RolloutGap, Some(since)).when(lasting || !more_than_once)
}
