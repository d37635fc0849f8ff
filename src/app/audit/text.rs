//! The report for people: what is critical first, then what would happen webhook by webhook.

use std::fmt::Write as _;

use super::AuditReport;
use crate::app::terminal::view::text::{clean, wrap};
use crate::domain::audit::findings::{PatchCommand, forecast_sentence};
use crate::domain::audit::{BackendFailure, Casualty, Finding, FindingSeverity, Forecast, seconds};

/// Writes told of one forecast, at most.
const TOLD: usize = 40;
/// Characters in a line of prose.
const WIDTH: usize = 100;

/// All of it.
pub(super) fn report(report: &AuditReport) -> String {
    let count = |severity| {
        let findings = report.findings.iter();
        findings.filter(|finding| finding.severity == severity).count()
    };
    let mut text = format!(
        "{} webhook{}: {} critical, {} warning, {} info",
        report.hooks,
        if report.hooks == 1 { "" } else { "s" },
        count(FindingSeverity::Critical),
        count(FindingSeverity::Warning),
        count(FindingSeverity::Info)
    );
    if report.accepted > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, "; {} accepted by the baseline", report.accepted);
    }
    text.push('\n');
    if !report.is_cluster {
        text.push_str("No cluster was read: a usual control plane in kube-system is assumed.\n");
    }
    for finding in &report.findings {
        text.push('\n');
        text.push_str(&about(finding, &report.forecasts));
    }
    if report.hooks > 0 {
        text.push_str("\nForecast: what is lost if a webhook dies now, and between how many seconds\n");
    }
    for forecasts in report.forecasts.chunks(BackendFailure::ALL.len()) {
        text.push_str(&of_one(forecasts, report.in_depth));
    }
    text
}

fn about(finding: &Finding, forecasts: &[Forecast]) -> String {
    let mut text = format!(
        "{} {}: {}\n  {}\n",
        finding.severity.as_str().to_uppercase(),
        finding.kind.id,
        finding.kind.title,
        clean(&finding.place()),
    );
    let sentences = forecasts.iter().map(forecast_sentence);
    let mut rests = sentences.filter_map(|sentence| finding.message.strip_prefix(&*sentence));
    let message = match rests.next() {
        Some(rest) => format!("What is lost, and when, is in the forecast below.{rest}"),
        None => finding.message.clone(),
    };
    for line in wrap(&clean(&message), WIDTH) {
        let _ = writeln!(text, "  {line}");
    }
    text.push_str(&patch(finding));
    text
}

/// The change, as a command.
fn patch(finding: &Finding) -> String {
    match finding.command() {
        None => String::new(),
        Some(PatchCommand::Line(line)) => format!("  {}\n", clean(&line)),
        Some(PatchCommand::File { bytes, object }) => format!(
            "  The patch has {:.1} KB. The same audit with --output json has it:\n  \
             hookwatch audit --output json | jq '.findings[] | select(.id == \"{}\" and .object == \"{}\") | .patch' > patch.json\n  \
             kubectl patch {object} --type json --patch-file patch.json\n",
            bytes as f64 / 1_000.0,
            finding.kind.id,
            clean(&finding.object),
        ),
    }
}

/// The three forecasts of one webhook. Those that are the same are told once.
fn of_one(forecasts: &[Forecast], in_depth: bool) -> String {
    let Some(first) = forecasts.first() else {
        return String::new();
    };
    let mut text = format!("  {}\n", clean(&first.hook.to_string()));
    if !first.together_with.is_empty() {
        let others: Vec<&str> = first
            .together_with
            .iter()
            .map(|id| &*id.webhook)
            .take(8)
            .collect();
        let _ = writeln!(
            text,
            "    at the same place, and down with it: {}",
            clean(&others.join(", "))
        );
    }
    for forecast in forecasts {
        let how = match forecast.failure {
            BackendFailure::Hang => "its backends hang",
            BackendFailure::Refuse => "its backends refuse connections",
            BackendFailure::Slow => "its backends answer just before the timeout",
        };
        let nothing = if forecast.casualties.is_empty() {
            ": nothing is lost"
        } else {
            ""
        };
        let _ = writeln!(text, "    if {how}{nothing}");
        for casualty in &forecast.casualties {
            text.push_str(&line_of(casualty));
        }
        if in_depth {
            for write in forecast.writes.iter().take(TOLD) {
                let fate = if write.is_lost {
                    "refused or given up after"
                } else {
                    "delayed by"
                };
                let _ = writeln!(
                    text,
                    "      {fate} {} s: {} ({})",
                    seconds(write.waits),
                    write.object,
                    write.name
                );
            }
        }
    }
    text
}

fn line_of(casualty: &Casualty) -> String {
    let [earliest, latest] = casualty.after.map(seconds);
    let perhaps = if casualty.is_certain { "" } else { "perhaps: " };
    format!(
        "      {:>4} to {:<4} s  {:<17} {}\n",
        earliest.to_string(),
        latest.to_string(),
        casualty.what.as_str(),
        clean(&format!("{perhaps}{}", casualty.why))
    )
}
