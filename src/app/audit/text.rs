//! The report for people: what is critical first, then what would happen webhook by webhook.

use std::fmt::Write as _;

use super::Report;
use crate::app::terminal::view::text::clean;
use crate::domain::audit::findings::forecast_sentence;
use crate::domain::audit::{Failure, Finding, Forecast, Severity, seconds};

/// Writes told of one forecast, at most.
const TOLD: usize = 40;

/// All of it.
pub(super) fn report(report: &Report) -> String {
    let count = |severity| {
        let findings = report.findings.iter();
        findings.filter(|finding| finding.severity == severity).count()
    };
    let mut text = format!(
        "{} webhooks: {} critical, {} warning, {} info",
        report.hooks,
        count(Severity::Critical),
        count(Severity::Warning),
        count(Severity::Info)
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
        text.push_str(&about(finding));
    }
    if report.hooks > 0 {
        text.push_str("\nForecast\n");
    }
    for forecasts in report.forecasts.chunks(Failure::ALL.len()) {
        text.push_str(&of_one(forecasts, report.in_depth));
    }
    text
}

fn about(finding: &Finding) -> String {
    let mut text = format!(
        "{} {}: {}\n  {}\n  {}\n",
        finding.severity.as_str().to_uppercase(),
        finding.kind.id,
        finding.kind.title,
        clean(&finding.place()),
        clean(&finding.message)
    );
    let mut parts = finding.object.split('/');
    if let (Some(patch), Some(kind), Some(name)) = (&finding.patch, parts.next(), parts.next()) {
        let patch = patch.to_string().replace('\'', r"'\''");
        let _ = writeln!(
            text,
            "  kubectl patch {} {} --type json -p '{patch}'",
            kind.to_lowercase(),
            clean(name)
        );
    }
    text
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
        let _ = writeln!(text, "    {}", clean(&forecast_sentence(forecast)));
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
