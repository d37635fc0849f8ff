//! One look as a report for people.

use std::fmt::Write as _;

use super::{Conclusion, Look, coverage, servers};
use crate::app::contexts::CommandAim;
use crate::domain::audit::periodic::PublishedFindings;
use crate::domain::audit::{Finding, FindingSeverity};
use crate::domain::diagnose::verdict::{ControlPlane, NonHookCause, Verdict};
use crate::domain::report::assessment::Assessment;
use crate::domain::vocabulary::Health;

/// Critical findings of the audit that are named, at most.
const FINDINGS: usize = 5;

/// The report for people: the conclusion, then who and why, then what else was seen.
pub(super) fn report(look: &Look) -> String {
    let mut lines = vec![look.conclusion.sentence().to_owned()];
    // An obstacle comes first, other observations second.
    let obstacle = look.obstacle.iter();
    let obstacle = obstacle.filter(|_| look.conclusion == Conclusion::CouldNotTell);
    lines.extend(obstacle.map(|obstacle| format!("  {obstacle}.")));
    if let Some(assessment) = &look.assessment {
        let blind = assessment.sources.blind_to();
        lines.extend(blind.map(|why| format!("  hookwatch does not see everything: {why}.")));
        lines.extend(writes(&assessment.control_plane));
        lines.extend(culprits(assessment, &look.aim));
        lines.extend(assessment.control_plane.not_a_hook.iter().flat_map(elsewhere));
        lines.extend(audited(&assessment.audit));
        lines.extend(canaries(assessment));
        lines.extend(sources(assessment));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The state of writes, other symptoms of the control plane, and the deadlines that come next.
fn writes(plane: &ControlPlane) -> Vec<String> {
    let mut lines = vec![format!("  {}", plane.summary)];
    let symptoms = plane.symptoms.iter();
    let symptoms = symptoms.filter(|symptom| !plane.summary.contains(symptom.as_str()));
    lines.extend(symptoms.chain(&plane.clocks).map(|said| format!("  {said}")));
    lines
}

fn culprits(assessment: &Assessment, aim: &CommandAim) -> Vec<String> {
    let mut lines = Vec::new();
    for verdict in &assessment.hooks {
        if verdict.cause.is_some() || verdict.bypass.is_some() {
            let id = verdict.hook();
            let found = assessment.audit.findings.iter();
            let found = found.filter(|finding| id.is_some() && finding.hook == id);
            lines.push(String::new());
            lines.push(about(
                verdict,
                found.filter(|finding| finding.severity == FindingSeverity::Critical),
                aim,
            ));
        }
    }
    lines
}

/// What slows or blocks writes when it is no hook.
fn elsewhere(found: &NonHookCause) -> Vec<String> {
    let mut lines = vec![format!(
        "\n{} (confidence {:.2}): {}",
        found.cause.as_str(),
        found.confidence,
        found.cause.sentence()
    )];
    lines.extend(found.evidence.iter().map(|sentence| format!("  - {sentence}")));
    lines
}

fn canaries(assessment: &Assessment) -> Vec<String> {
    let canaries = &assessment.control_plane.canaries;
    let mut lines = vec!["\ncanaries".to_owned()];
    lines.extend(canaries.iter().map(|canary| {
        format!(
            "  {:<14} {:<12} {}",
            canary.canary.as_str(),
            canary.state,
            canary.detail
        )
    }));
    lines.extend(coverage::lines(&assessment.hooks, canaries));
    lines
}

/// The sources of the report, and what is missing.
fn sources(assessment: &Assessment) -> Vec<String> {
    let sources = &assessment.sources;
    let mut lines = vec!["sources".to_owned(), hooks(assessment)];
    lines.extend(sources.inventory_trouble.iter().map(|said| format!("  {said}")));
    let trouble = sources.api_servers_trouble.as_ref();
    lines.extend(trouble.map(|why| format!("  API servers: {why}")));
    lines.extend(sources.scrapes.iter().flat_map(servers::about));
    lines.extend(sources.prometheus.iter().flat_map(servers::about_stored));
    lines.push(format!("  node leases: {}", sources.node_leases.detail));
    let problems = assessment.problems.iter();
    lines.extend(problems.map(|problem| format!("  {}: {}", problem.object, problem.what)));
    lines
}

/// The number of webhooks, by health.
fn hooks(assessment: &Assessment) -> String {
    let sources = &assessment.sources;
    if sources.inventory_age_seconds.is_none() || !sources.hooks_listed {
        return "  the webhook configurations could not be read".to_owned();
    }
    format!(
        "  {} webhooks: {} failing, {} suspect, {} healthy, {} unknown",
        assessment.hooks.len(),
        assessment.count(Health::Failing),
        assessment.count(Health::Suspect),
        assessment.count(Health::Healthy),
        assessment.count(Health::Unknown)
    )
}

/// Critical findings about the configuration, whatever the state; `audit` has all of them.
fn audited(audit: &PublishedFindings) -> Vec<String> {
    let critical = audit.findings.iter();
    let critical = critical.filter(|finding| finding.severity == FindingSeverity::Critical);
    let told = critical.take(FINDINGS).map(|finding| {
        let what = finding.kind.title;
        format!("  critical {}: {what} ({})", finding.kind.id, finding.object)
    });
    let told: Vec<String> = told.collect();
    if audit.at.is_none() || told.is_empty() {
        return Vec::new();
    }
    let head = format!(
        "\nwhat to change: {} critical, {} warning, {} info; `hookwatch audit` has each with its change",
        audit.critical, audit.warning, audit.info
    );
    let more = audit.critical.saturating_sub(told.len());
    let more = (more > 0).then(|| format!("  and {more} more that are critical"));
    std::iter::once(head).chain(told).chain(more).collect()
}

fn about<'a>(verdict: &Verdict, found: impl Iterator<Item = &'a Finding>, aim: &CommandAim) -> String {
    let place = verdict.called_at().map(|place| format!(", called at {place}"));
    let mut text = format!(
        "{} {}: {} (effect {}, confidence {:.2}, rule {}{})",
        verdict.health.as_str().to_uppercase(),
        verdict.cause.map_or("BYPASSED", |cause| cause.as_str()),
        verdict.summary,
        verdict.effect.as_str(),
        verdict.confidence,
        verdict.rule,
        place.unwrap_or_default()
    );
    for sentence in &verdict.evidence {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  - {sentence}");
    }
    for finding in found {
        let (severity, id) = (finding.severity.as_str(), finding.kind.id);
        let _ = write!(text, "\n  {severity} {id}: {}", finding.kind.title);
    }
    if let Some(advice) = verdict.advice {
        let _ = write!(text, "\n  next: {advice}");
    }
    if let Some(by_hand) = &verdict.by_hand {
        let _ = match &by_hand.shared_with {
            Some(first) => write!(text, "\n  to bypass it: the command for {first} names it, too"),
            None => write!(
                text,
                "\n  to bypass it: {}\n    {}",
                aim.of(&by_hand.command),
                by_hand.meaning
            ),
        };
    }
    if let Some(command) = verdict.restore_command() {
        let _ = write!(text, "\n  to restore it: {}", aim.of(&command));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::cluster::hook::HookKind;
    use crate::domain::diagnose::verdict::BypassByHand;
    use crate::domain::time::Time;
    use crate::domain::vocabulary::{Cause, Effect};
    use crate::domain::watchdog::{Event, Watchdog, WatchdogEffect};

    /// What is known of a cluster of which nothing was heard.
    fn nothing_heard() -> Assessment {
        let effects = Watchdog::new("hookwatch").handle(Event::Tick, Time::default());
        let published = effects.into_iter().find_map(|effect| match effect {
            WatchdogEffect::Publish(assessment, _) => Some(Arc::unwrap_or_clone(assessment)),
            _ => None,
        });
        published.unwrap()
    }

    fn hanging() -> Verdict {
        Verdict {
            kind: HookKind::Validating,
            configuration: Some("policy".into()),
            webhook: "opa".into(),
            incident: "opa/opa:443".to_owned(),
            health: Health::Failing,
            cause: Some(Cause::Hanging),
            effect: Effect::Blocking,
            needs_shield: false,
            fails_open: false,
            webhook_confidence: 0.9,
            confidence: 0.9,
            rule: "no-data",
            excess_share: None,
            since: None,
            summary: "opa does not answer.".to_owned(),
            evidence: vec!["A canary waits.".to_owned()],
            advice: Some("Restart it."),
            backends: Vec::new(),
            canaries: Vec::new(),
            bypass: None,
            by_hand: Some(BypassByHand {
                command: "hookwatch break policy/opa --kind validating --reason TEXT".to_owned(),
                meaning: "It shields the webhook.".to_owned(),
                shared_with: None,
            }),
        }
    }

    #[test]
    fn the_report_says_what_gives_up_next_at_once_and_with_each_culprit_the_command_that_bypasses_it() {
        let mut assessment = nothing_heard();
        let clocks = [
            "Leaders exit in 6 s at most.",
            "Nodes turn NotReady in 51 s at most.",
        ];
        assessment.control_plane.clocks = clocks.map(str::to_owned).into();
        let mut second = hanging();
        second.webhook = "second".into();
        let by_hand = second.by_hand.as_mut();
        by_hand.unwrap().shared_with = Some("policy/opa".to_owned());
        assessment.hooks = vec![hanging(), second];
        let summary = assessment.control_plane.summary.clone();
        let said = report(&Look {
            aim: CommandAim {
                program: "hookwatch",
                source: " --context prod".to_owned(),
            },
            conclusion: Conclusion::HookFailing,
            obstacle: None,
            assessment: Some(Arc::new(assessment)),
        });
        let blind =
            "  hookwatch does not see everything: the webhook configurations have not been read yet.\n";
        let head = format!("A WEBHOOK IS FAILING\n{blind}  {summary}\n");
        assert!(said.starts_with(&head), "{said}");
        let told = format!(
            "\n  {}\n  {}\n\nFAILING Hanging: opa does not",
            clocks[0], clocks[1]
        );
        assert!(said.contains(&told), "{said}");
        let next = "\n  - A canary waits.\n  next: Restart it.\n  to bypass it: hookwatch break --context prod policy/opa \
                    --kind validating --reason TEXT\n    It shields the webhook.\n";
        assert!(said.contains(next), "{said}");
        assert!(
            said.contains(", rule no-data, called at opa/opa:443)\n"),
            "{said}"
        );
        let shared = "  next: Restart it.\n  to bypass it: the command for policy/opa names it, too\n";
        assert!(said.contains(shared), "{said}");
    }
}
