//! The report for people: what is critical first, then what would happen webhook by webhook.

use std::fmt::Write as _;

use super::AuditReport;
use crate::app::text::{clean, wrap};
use crate::domain::audit::findings::{PatchCommand, forecast_sentence};
use crate::domain::audit::{BackendFailure, Casualty, Finding, FindingSeverity, Forecast, seconds};

/// Most writes listed for one forecast.
const TOLD: usize = 40;
/// Characters in a line of prose.
const WIDTH: usize = 100;

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
        text.push_str(&about(finding, report));
    }
    if report.hooks > 0 {
        text.push_str("\nForecast: what is lost if a webhook dies now, and between how many seconds\n");
    }
    for forecasts in report.forecasts.chunks(BackendFailure::ALL.len()) {
        text.push_str(&of_one(forecasts, report.in_depth));
    }
    text
}

fn about(finding: &Finding, report: &AuditReport) -> String {
    let mut text = format!(
        "{} {}: {}\n  {}\n",
        finding.severity.as_str().to_uppercase(),
        finding.kind.id,
        finding.kind.title,
        clean(&finding.place()),
    );
    let sentences = report.forecasts.iter().map(forecast_sentence);
    let mut rests = sentences.filter_map(|sentence| finding.message.strip_prefix(&*sentence));
    let message = match rests.next() {
        Some(rest) => format!("What is lost, and when, is in the forecast below.{rest}"),
        None => finding.message.clone(),
    };
    for line in wrap(&clean(&message), WIDTH) {
        let _ = writeln!(text, "  {line}");
    }
    text.push_str(&patch(finding, report));
    text
}

/// The change, as a command for the cluster that was audited.
fn patch(finding: &Finding, report: &AuditReport) -> String {
    let source = &report.source;
    let kubectl = format!("kubectl{}", if report.is_cluster { source } else { "" });
    let mut text = match finding.command() {
        None => return String::new(),
        Some(PatchCommand::Line(line)) => format!("  {}\n", clean(&line.replacen("kubectl", &kubectl, 1))),
        Some(PatchCommand::File { bytes, object }) => format!(
            "  The patch has {:.1} KB. The same audit with --output json has it:\n  \
             hookwatch audit --output json{} | jq '.findings[] | select(.id == \"{}\" and .object == \"{}\") | .patch' > patch.json\n  \
             {kubectl} patch {object} --type json --patch-file patch.json\n",
            bytes as f64 / 1_000.0,
            clean(source),
            finding.kind.id,
            clean(&finding.object),
        ),
    };
    if report.is_cluster {
        text.push_str("  Change it where it comes from; a program that registers it itself puts it back.\n");
    }
    text
}

/// The forecasts of one webhook, one for each way in which its backends can fail.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::audit::findings::UNREADABLE_INPUT;

    fn patched(patch: serde_json::Value, is_cluster: bool, source: &str) -> String {
        let finding = Finding {
            patch: Some(patch),
            ..Finding::new(
                UNREADABLE_INPUT,
                "ValidatingWebhookConfiguration/c/w".to_owned(),
                "",
            )
        };
        let report = AuditReport {
            findings: Vec::new(),
            accepted: 0,
            forecasts: Vec::new(),
            hooks: 1,
            is_cluster,
            in_depth: false,
            source: source.to_owned(),
        };
        super::patch(&finding, &report)
    }

    #[test]
    fn a_command_is_for_the_cluster_that_was_audited_not_for_the_current_one() {
        let (short, long) = (json!([]), json!(["x".repeat(10_000)]));
        let line = patched(short.clone(), true, " --context prod");
        let starts = |line: &str, with: &str| assert!(line.trim_start().starts_with(with), "{line}");
        starts(
            &line,
            "kubectl --context prod patch validatingwebhookconfiguration c ",
        );
        starts(&patched(short, false, " deploy/"), "kubectl patch ");
        let file = patched(long.clone(), true, " --context prod");
        assert!(file.contains("audit --output json --context prod |"), "{file}");
        assert!(file.contains("kubectl --context prod patch "), "{file}");
        let put_back = "a program that registers it itself puts it back.";
        assert!(line.contains(put_back) && file.contains(put_back), "{file}");
        let file = patched(long, false, " deploy/");
        assert!(!file.contains(put_back), "{file}");
        assert!(file.contains("audit --output json deploy/ |"), "{file}");
    }
}
