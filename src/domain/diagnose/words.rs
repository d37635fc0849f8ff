//! Verdicts in words: the observations as sentences, the one that weighs most first.

pub mod backends;

use super::counters::Counters;
use super::evidence::Evidence;
use super::extension::{Theirs, aggregator, concerned};
use super::probes::ProbeEvidence;
use super::scene::Scene;
use super::scope;
use crate::cluster::condition::BypassCondition;
use crate::diagnose::verdict::Verdict;
use crate::observe::canary::{CallFailureReason, CanaryOutcome};
use crate::observe::history::{OnlyAt, behind};
use crate::text::{capital, human, human_seconds};
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::{Cause, Effect, Health};

/// What bad patches do to writes. Under `Ignore` a reader would expect such writes to pass.
const BAD_PATCH: &str = "Its patch cannot be applied to the object, and the API server refuses such writes under either \
                         failurePolicy.";

/// Most items listed; of the rest only the number.
const TOLD: usize = 3;

/// The observations as sentences, the strongest first. `own`: those that the verdict's rule adds.
pub fn evidence(evidence: &Evidence<'_>, own: Vec<String>, verdict: &Verdict) -> Vec<String> {
    let mut said = match (&evidence.theirs, uncalled(evidence)) {
        (Some(theirs), _) => of_extension(evidence, theirs, verdict.effect),
        (None, Some(said)) => said,
        (None, None) => of_admission(evidence, own, verdict),
    };
    if evidence.scene.self_doubt && verdict.cause.is_some() {
        said.push(
            "Probes of every webhook fail at once: hookwatch's own network may be at fault.".to_owned(),
        );
    }
    let admission = evidence.is_admission();
    if evidence.scene.inventory_is_old && verdict.cause.is_some() && admission {
        said.push("The inventory is old, so its addresses may be out of date.".to_owned());
    }
    if evidence.ambiguous && !evidence.uncalled {
        let note = "Several configurations use this webhook name, and the API server's counters cannot tell them apart.";
        said.push(note.to_owned());
    }
    let kind = evidence.kind.configuration_kind();
    let missing = match (evidence.hook, admission) {
        (Some(_), _) => return said,
        (None, true) => "hookwatch can read no webhook configuration with a webhook of this name.".to_owned(),
        (None, false) => {
            format!("hookwatch finds no {kind} of this name that a webhook or a Service serves.")
        }
    };
    said.push(missing);
    said
}

fn of_admission(evidence: &Evidence<'_>, own: Vec<String>, verdict: &Verdict) -> Vec<String> {
    let (cause, since, counters) = (verdict.cause, verdict.since, &evidence.counters);
    let failing = verdict.health == Health::Failing;
    let mut said: Vec<String> = refusal(evidence, cause).into_iter().chain(own).collect();
    said.extend(backends::seen(evidence));
    // Good calls from before the trouble began say nothing about it.
    let is_older = since
        .zip(counters.from())
        .is_some_and(|(since, from)| from < since);
    if counters.failed >= 1.0 || counters.denied >= 1.0 || cause == Some(Cause::Slow) || !is_older {
        said.extend(counters.sentences("calls", evidence.usual));
    }
    // For a webhook that is not listed the counter may mean refused dry runs instead, which it may not support.
    let patches_badly = evidence.hook.is_some() && counters.patches_badly();
    said.extend(patches_badly.then(|| BAD_PATCH.to_owned()));
    let troubled = cause.is_some_and(|cause| cause != Cause::Denying);
    let share = evidence
        .excess_share
        .filter(|_| troubled)
        .map(|share| share * 100.0);
    said.extend(
        share.map(|share| format!("{share:.0} % of the extra time per write is spent in this webhook.")),
    );
    said.extend(since.and_then(|since| just_before(evidence, since)));
    let inventory = evidence.scene.seen.inventory.as_ref();
    let namespaces = inventory.map(|inventory| &inventory.namespaces);
    let hook = evidence.hook.filter(|_| failing);
    said.extend(hook.and_then(|hook| scope::sentence(hook, namespaces)));
    if verdict.health == Health::Unknown {
        said.push(cannot_tell(evidence));
    }
    if let Some(cause) = cause.filter(|_| failing) {
        said.extend(ruled_out(evidence, cause));
        // What was so before the trouble began rules nothing out.
        let known = evidence.scene.ruled_out.as_ref();
        let known = known.filter(|(until, _)| since.is_none_or(|since| *until > since));
        said.extend(known.map(|(_, sentence)| sentence.clone()));
    }
    said
}

/// The newest refusal of a canary because of this hook. If canaries got through again since, only while the hook has a cause.
fn refusal(evidence: &Evidence<'_>, cause: Option<Cause>) -> Option<String> {
    let latest = evidence.latest();
    let latest = latest.filter(|latest| latest.current || cause.is_some())?;
    let ago = evidence.scene.now.since(latest.started + latest.took);
    let age = (!latest.current).then(|| format!(", {} ago", human(ago)));
    let age = age.unwrap_or_default();
    let or = (!evidence.is_named()).then_some(" or another one of the same name");
    let or = or.unwrap_or_default();
    let (target, took, text) = (latest.target, human(latest.took), &latest.failure.text);
    Some(format!(
        "The API server refused a dry-run write of {target} after {took}{age}, and named this webhook{or}: {text}."
    ))
}

fn of_extension(evidence: &Evidence<'_>, theirs: &Theirs, effect: Effect) -> Vec<String> {
    let mut said = Vec::new();
    let what = format!("conversions of {}", evidence.webhook);
    said.extend(evidence.counters.sentences(&what, None));
    said.extend(aggregator(evidence.hook, theirs, evidence.scene.now));
    said.extend(backends::seen(evidence));
    if effect != Effect::None {
        said.extend(evidence.hook.and_then(concerned));
    }
    said
}

/// What is said while a bypass keeps users' writes from the hook; `None` otherwise, and after a dry run of hookwatch's was refused
/// because of it on probation.
fn uncalled(evidence: &Evidence<'_>) -> Option<Vec<String>> {
    let is_told = evidence.uncalled || evidence.is_uncalled() && evidence.structural.is_some();
    let bypass = evidence.bypass.filter(|_| is_told)?;
    let when = evidence.reconfigured;
    let when = when.map_or_else(String::new, |at| format!(" since {at}"));
    let whom = match bypass {
        BypassCondition::Probation => "only hookwatch's dry runs reach it",
        BypassCondition::Shield | BypassCondition::Skip => "no write reaches it",
    };
    let mut said = vec![format!(
        "It is bypassed{when}: {whom}. Calls counted before that are ignored."
    )];
    said.extend(backends::seen(evidence));
    Some(said)
}

/// How long a canary that meets the hook has been waiting, unless a refused canary says more.
pub fn late(evidence: &Evidence<'_>) -> Vec<String> {
    let late = evidence.canary_late.filter(|_| evidence.latest().is_none());
    let late = late.map(human);
    let said =
        late.map(|late| format!("A dry-run write that meets this webhook has been waiting for {late}."));
    said.into_iter().collect()
}

/// That its match conditions err, with the API server's own words where a canary met them.
pub fn conditions(evidence: &Evidence<'_>) -> Vec<String> {
    let Scene { seen, now, .. } = *evidence.scene;
    let counted = evidence.spans[..2]
        .iter()
        .find(|counters| counters.condition_errors >= 1.0);
    let counted = counted.and_then(|counters| Some((counters.condition_errors, counters.span?)));
    let counted = counted.map(|(errors, (from, to))| {
        let span = human(to.since(from));
        format!("The API server could not evaluate its match conditions {errors:.0} times in {span}, and refuses such requests.")
    });
    let refused = evidence.covered_by.iter().find_map(|target| {
        let latest = seen.canaries.get(*target)?.latest(now)?;
        match &latest.outcome {
            CanaryOutcome::Refused { status: 403, message } if message.contains(" resulted in error: ") => {
                Some(format!(
                    "A dry-run write of {target} was refused: {}.",
                    message.trim_end_matches('.')
                ))
            }
            _ => None,
        }
    });
    counted.into_iter().chain(refused).collect()
}

/// That another hook is named, and why this one is with it.
pub fn beside(evidence: &Evidence<'_>) -> Vec<String> {
    let asked = if evidence.counters.calls < 1.0 {
        " This one received no calls recently."
    } else {
        ""
    };
    let other = if evidence.scene.path_lost {
        "Another webhook that lost its path at the same moment"
    } else {
        "Another webhook at the same Service or address"
    };
    let said = format!("{other} is failing too.{asked}");
    let mut all = late(evidence);
    all.push(said);
    all
}

/// How long a canary waits; then the API server that alone gets no answer from the hook, or what to check when hookwatch reaches it and
/// no API server does.
pub fn reached(evidence: &Evidence<'_>) -> Vec<String> {
    let mut said = late(evidence);
    if let Some(only) = &evidence.only_at {
        said.push(one_sided(only, evidence.scene.now));
    } else if evidence.is_good() && evidence.api_cause() == Cause::Unreachable {
        let path = "hookwatch reaches it and the API server does not. Check the firewall, tunnel, proxy and routes \
                    between the control plane and the Pods.";
        said.push(path.to_owned());
    }
    said
}

/// What one API server and the others counted, and where to look.
fn one_sided(only: &OnlyAt<'_>, now: Time) -> String {
    let (target, started) = only.server;
    let who = if only.shares_address {
        behind(target, *started)
    } else {
        format!("API server {target}")
    };
    let (lost, answered, span) = (only.lost, only.answered, human(now.since(only.since)));
    let others = match only.others {
        1 => "Another API server".to_owned(),
        n => format!("{n} other API servers"),
    };
    format!(
        "Only {who} gets no answer from it: all its {lost:.0} calls in {span} failed. {others} had {answered:.0} calls \
         answered, and none failed. Look at that API server's path to the Pods, then at requests that only it gets."
    )
}

/// A canary that meets the hook was slow, or waits for it.
pub fn slow_canary(evidence: &Evidence<'_>) -> Vec<String> {
    let how = match (evidence.canary_slow, evidence.canary_waits) {
        (Some(took), _) => format!("took {}", human(took)),
        (None, Some(span)) => format!("has been waiting for {}", human(span)),
        (None, None) => return Vec::new(),
    };
    vec![format!("A dry-run write that meets this webhook {how}.")]
}

/// What our own pooled connections saw.
pub fn stale(evidence: &Evidence<'_>) -> Vec<String> {
    let Some(first) = evidence.silent.first() else {
        let said = "An endpoint left, and new connections work: the timeouts are on connections that the API server had \
                    pooled to it.";
        return vec![said.to_owned()];
    };
    let more = evidence.silent.len() - 1;
    let more = (more > 0).then(|| format!(" (and to {more} more)"));
    let more = more.unwrap_or_default();
    let (backend, waited) = (&first.backend, human(first.waited));
    let timeout = human(evidence.hook.map(|hook| hook.timeout).unwrap_or_default());
    vec![format!(
        "hookwatch's pooled connection to {backend}{more} was silent for {waited} after that backend left. Each such \
         connection costs the API server one call of {timeout}."
    )]
}

/// How much was lost around changes of the endpoints.
pub fn rollout(evidence: &Evidence<'_>) -> Vec<String> {
    let gap = &evidence.gap;
    let mut said = Vec::new();
    if gap.lost >= 1.0 {
        let (lost, calls) = (gap.lost, gap.calls);
        let skipped = evidence.fails_open().then_some("skipped");
        let what = skipped.unwrap_or("refused");
        let part = match lost / calls.max(1.0) * 100.0 {
            percent if percent < 1.0 => "under 1 %".to_owned(),
            percent => format!("{percent:.0} %"),
        };
        let times = (gap.bursts > 1).then(|| format!(", in {} bursts", gap.bursts));
        let times = times.unwrap_or_default();
        let (within, minutes) = (t::after_rollout().as_secs(), t::gap_memory().as_secs() / 60);
        said.push(format!(
            "{lost:.0} of {calls:.0} calls ({part}) were {what} within {within} s of an endpoint change in the last \
             {minutes} min{times}; at other times {:.0}.",
            gap.elsewhere
        ));
    }
    if let Some((missed, at, what)) = &gap.missed {
        let apart = human(missed.at.since(*at) + at.since(missed.at));
        let when = if missed.at >= *at { "after" } else { "before" };
        let (backend, what) = (capital(&missed.backend.to_string()), what.sentence());
        said.push(format!("{backend} took no connection {apart} {when} {what}."));
    }
    said
}

/// What changed around the hook shortly before its trouble began, the newest changes only.
fn just_before(evidence: &Evidence<'_>, since: Time) -> Option<String> {
    let changes = &evidence.scene.seen.changes;
    let told: Vec<String> = changes
        .of(&evidence.hook?.id, since.before(t::just_before()))
        .filter(|change| change.at <= since + t::late())
        .map(|change| format!("{} at {}", change.what.sentence(), change.at))
        .collect();
    let latest = &told[told.len().saturating_sub(TOLD)..];
    (!latest.is_empty()).then(|| format!("Shortly before: {}.", latest.join("; ")))
}

impl Counters {
    fn sentences(&self, what: &str, usual: Option<f64>) -> Vec<String> {
        let Some((from, to)) = self.span else {
            return Vec::new();
        };
        let (calls, failed, denied) = (self.calls, self.failed, self.denied);
        let span = human(to.since(from));
        let mut said = Vec::new();
        if failed >= 1.0 {
            let unreviewed = (self.fail_open >= 1.0).then_some("; those writes passed without review");
            let unreviewed = unreviewed.unwrap_or_default();
            let each = self.failed_mean.map(human_seconds);
            let each = each.map_or_else(String::new, |each| format!(", after {each} each"));
            let calls = calls.max(failed);
            said.push(format!(
                "The API server counted {failed:.0} failed {what} of {calls:.0} in {span}{each}{unreviewed}."
            ));
        } else if let Some(mean) = self.mean {
            let usual = usual.map(human_seconds);
            let usual = usual.map_or_else(String::new, |usual| format!(" (usually {usual})"));
            let each = human_seconds(mean);
            said.push(format!(
                "The API server counted {calls:.0} {what} in {span}, {each} each{usual}."
            ));
        }
        if denied >= 1.0 {
            said.push(format!("It denied {denied:.0} of {calls:.0} requests in {span}."));
        }
        said
    }
}

/// Other explanations that are ruled out or cannot be distinguished.
fn ruled_out(evidence: &Evidence<'_>, cause: Cause) -> Option<String> {
    let counters = &evidence.counters;
    let good = evidence.is_good();
    let words = evidence.latest().map(|named| named.failure.reason);
    match cause {
        Cause::Refused | Cause::NoEndpoints | Cause::NoService | Cause::TlsInvalid | Cause::Erroring => {
            let at_once = counters.failed_mean.filter(|_| counters.failed_at_once());
            let (mean, timeout) = (human_seconds(at_once?), human(evidence.hook?.timeout));
            Some(format!(
                "Ruled out: a hang. Failed calls came back after {mean}, and the timeout is {timeout}."
            ))
        }
        Cause::Hanging if good && words != Some(CallFailureReason::TlsHandshakeTimeout) => Some(
            "Not ruled out: Unreachable. Probes are answered, but a path that drops the API server's packets looks the \
             same."
                .to_owned(),
        ),
        Cause::Slow if counters.calls >= 1.0 && counters.all_answered() => {
            Some("Ruled out: a hang. Every call that was counted was answered.".to_owned())
        }
        Cause::FailingOpen if good => Some(
            "The cause is unknown: direct probes are answered, and the API server only logs why it skipped a call."
                .to_owned(),
        ),
        _ => None,
    }
}

/// Why a hook's health is unknown.
fn cannot_tell(evidence: &Evidence<'_>) -> String {
    let mut because = Vec::new();
    if matches!(evidence.probes, ProbeEvidence::NoData) {
        because.push("no probe result");
    }
    if evidence.counters.calls < 1.0 {
        because.push("no recent calls counted");
    } else if evidence.ambiguous {
        because.push("counted calls may be those of another webhook of this name");
    }
    let canaries = [evidence.canary_late, evidence.canary_slow];
    if evidence.canary_passed.is_none() && canaries == [None; 2] {
        because.push("no dry-run write has met it");
    }
    format!("No evidence yet: {}.", because.join(", "))
}
