//! One look as a report for people.

use std::fmt::Write as _;

use super::{Conclusion, coverage, servers};
use crate::domain::audit::standing::Findings;
use crate::domain::audit::{Finding, Severity};
use crate::domain::diagnose::verdict::Verdict;
use crate::domain::report::assessment::Assessment;
use crate::domain::vocabulary::Health;

/// Critical findings of the audit that are named, at most.
const FINDINGS: usize = 5;

/// The report for people: the conclusion, then who and why, then what else was seen.
pub(super) fn report(
    conclusion: Conclusion,
    obstacle: Option<&str>,
    assessment: Option<&Assessment>,
) -> String {
    let mut text = format!("{}\n", conclusion.sentence());
    let mut line = |said: &str| {
        text.push_str(said);
        text.push('\n');
    };
    // Where something stands in the way, what was seen past it comes second.
    let obstacle = obstacle.filter(|_| conclusion == Conclusion::CouldNotTell);
    if let Some(obstacle) = obstacle {
        line(&format!("  {obstacle}."));
    }
    let Some(assessment) = assessment else { return text };
    let plane = &assessment.control_plane;
    line(&format!("  {}", plane.summary));
    for symptom in &plane.symptoms {
        if !plane.summary.contains(symptom.as_str()) {
            line(&format!("  {symptom}"));
        }
    }
    for clock in &plane.clocks {
        line(&format!("  {clock}"));
    }
    for verdict in &assessment.hooks {
        if verdict.cause.is_some() || verdict.bypass.is_some() {
            line("");
            let id = verdict.hook();
            let found = assessment.audit.findings.iter();
            let found = found.filter(|finding| id.is_some() && finding.hook == id);
            line(&about(
                verdict,
                found.filter(|finding| finding.severity == Severity::Critical),
            ));
        }
    }
    if let Some(found) = &plane.not_a_hook {
        line(&format!(
            "\n{} (confidence {:.2}): {}",
            found.cause.as_str(),
            found.confidence,
            found.cause.sentence()
        ));
        for sentence in &found.evidence {
            line(&format!("  - {sentence}"));
        }
    }
    audited(&assessment.audit).iter().for_each(|said| line(said));
    line("\ncanaries");
    for canary in &plane.canaries {
        line(&format!(
            "  {:<14} {:<12} {}",
            canary.canary.as_str(),
            canary.state,
            canary.detail
        ));
    }
    coverage::lines(&assessment.hooks, &plane.canaries)
        .iter()
        .for_each(|said| line(said));
    line("sources");
    match assessment.sources.inventory_age_seconds {
        Some(_) if assessment.sources.hooks_listed => {
            let count = |health| {
                assessment
                    .hooks
                    .iter()
                    .filter(|verdict| verdict.health == health)
                    .count()
            };
            line(&format!(
                "  {} hooks: {} failing, {} suspect, {} healthy, {} unknown",
                assessment.hooks.len(),
                count(Health::Failing),
                count(Health::Suspect),
                count(Health::Healthy),
                count(Health::Unknown)
            ));
        }
        _ => line("  the webhook configurations could not be read"),
    }
    for trouble in &assessment.sources.inventory_trouble {
        line(&format!("  {trouble}"));
    }
    if let Some(why) = &assessment.sources.api_servers_trouble {
        line(&format!("  API servers: {why}"));
    }
    let breaker = &assessment.breaker;
    if breaker.wanted != breaker.effective {
        line(&format!(
            "  autoBreak is {} and has the effect of {}: {}",
            breaker.wanted.as_str(),
            breaker.effective.as_str(),
            breaker.why
        ));
    }
    for server in &assessment.sources.scrapes {
        servers::about(server).iter().for_each(|said| line(said));
    }
    if let Some(stored) = &assessment.sources.prometheus {
        servers::about_stored(stored).iter().for_each(|said| line(said));
    }
    line(&format!(
        "  node leases: {}",
        assessment.sources.node_leases.detail
    ));
    for problem in &assessment.problems {
        line(&format!("  {}: {}", problem.object, problem.what));
    }
    text
}

/// What is critical by the configuration, whatever the state: what `audit` tells in full.
fn audited(audit: &Findings) -> Vec<String> {
    let critical = audit.findings.iter();
    let critical = critical.filter(|finding| finding.severity == Severity::Critical);
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

fn about<'a>(verdict: &Verdict, found: impl Iterator<Item = &'a Finding>) -> String {
    let mut text = format!(
        "{} {}: {} (effect {}, confidence {:.2}, rule {})",
        verdict.health.as_str().to_uppercase(),
        verdict.cause.map_or("BYPASSED", |cause| cause.as_str()),
        verdict.summary,
        verdict.effect.as_str(),
        verdict.confidence,
        verdict.rule
    );
    for sentence in &verdict.evidence {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  - {sentence}");
    }
    for finding in found {
        let _ = write!(
            text,
            "\n  {} {}: {}",
            finding.severity.as_str(),
            finding.kind.id,
            finding.message
        );
    }
    if let Some(advice) = verdict.advice {
        let _ = write!(text, "\n  next: {advice}");
    }
    if let Some(command) = verdict.bypass_command() {
        let _ = write!(text, "\n  to bypass it: {command}");
    }
    text
}
