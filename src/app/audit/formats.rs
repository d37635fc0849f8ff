//! Reports for programs: JSON, SARIF and JUnit.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::AuditReport;
use crate::domain::audit::findings::KINDS;
use crate::domain::audit::{Finding, FindingSeverity, Forecast, seconds};

pub(super) fn document(report: &AuditReport) -> Value {
    let findings: Vec<Value> = report.findings.iter().map(finding).collect();
    let forecasts: Vec<Value> = report.forecasts.iter().map(forecast).collect();
    json!({"findings": findings, "forecasts": forecasts})
}

/// The documented keys. There is no `since` among them: the message says since when a finding holds.
fn finding(finding: &Finding) -> Value {
    json!({
        "id": finding.kind.id,
        "severity": finding.severity,
        "object": finding.place(),
        "message": finding.message,
        "patch": finding.patch,
    })
}

fn forecast(forecast: &Forecast) -> Value {
    let casualties = forecast
        .casualties
        .iter()
        .map(|casualty| json!({"what": casualty.what, "after_seconds": casualty.after.map(seconds)}));
    let casualties: Vec<Value> = casualties.collect();
    json!({
        "configuration": &*forecast.hook.configuration,
        "webhook": &*forecast.hook.webhook,
        "if": forecast.failure,
        "casualties": casualties,
    })
}

pub(super) fn sarif(report: &AuditReport) -> Value {
    let rules = KINDS.iter().map(|kind| {
        json!({
            "id": kind.id,
            "shortDescription": {"text": kind.title},
            "defaultConfiguration": {"level": level(kind.severity)},
        })
    });
    let rules: Vec<Value> = rules.collect();
    let results: Vec<Value> = report.findings.iter().map(result).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "hookwatch", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "results": results,
        }],
    })
}

const fn level(severity: FindingSeverity) -> &'static str {
    match severity {
        FindingSeverity::Info => "note",
        FindingSeverity::Warning => "warning",
        FindingSeverity::Critical => "error",
    }
}

fn result(finding: &Finding) -> Value {
    let mut location = json!({"logicalLocations": [{"fullyQualifiedName": finding.object}]});
    if let Some(source) = &finding.source {
        location["physicalLocation"] = json!({
            "artifactLocation": {"uri": source.file},
            "region": {"startLine": source.line},
        });
    }
    json!({
        "ruleId": finding.kind.id,
        "level": level(finding.severity),
        "message": {"text": finding.message},
        "locations": [location],
        // The same when lines move.
        "partialFingerprints": {"idAndObject/v1": format!("{} {}", finding.kind.id, finding.object)},
    })
}

/// JUnit: a finding is a test that failed, one of severity info a test that was skipped.
pub(super) fn junit(report: &AuditReport) -> String {
    let failures = report
        .findings
        .iter()
        .filter(|finding| finding.severity > FindingSeverity::Info)
        .count();
    let skipped = report.findings.len() - failures;
    let tests = report.findings.len().max(1);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"hookwatch audit\" tests=\"{tests}\" \
         failures=\"{failures}\" skipped=\"{skipped}\">\n"
    );
    if report.findings.is_empty() {
        text.push_str("    <testcase classname=\"hookwatch\" name=\"audit\"/>\n");
    }
    for finding in &report.findings {
        let (class, name) = (escaped(&finding.place()), finding.kind.id);
        let message = escaped(&finding.message);
        let element = if finding.severity > FindingSeverity::Info {
            "failure"
        } else {
            "skipped"
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "    <testcase classname=\"{class}\" name=\"{name}\">\n      <{element} message=\"{}: {message}\"/>\n    </testcase>",
            finding.severity.as_str()
        );
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// The text as the value of an XML attribute. Characters that XML cannot hold are left out.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(' '),
            character if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => {}
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_hold_is_escaped_or_left_out() {
        assert_eq!(
            escaped("a<b> & \"c\"\u{1}\n\u{1b}[31m"),
            "a&lt;b&gt; &amp; &quot;c&quot; [31m"
        );
    }
}
