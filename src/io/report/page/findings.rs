//! The findings of the audit, the worst first, each with its consequence and the change that prevents it.

use maud::{Markup, html};

use super::text::{Foreign, clock, within};
use crate::domain::audit::Finding;
use crate::domain::audit::findings::PatchCommand;
use crate::domain::audit::periodic::PublishedFindings;
use crate::domain::time::Time;

/// Most bytes for all findings.
const ROOM: usize = 18_000;
/// Most findings shown.
const MOST: usize = 12;

/// The section; empty before the first audit and while there are no findings. Unfolded only if there are critical findings
/// and no webhook fails.
pub(super) fn section(audit: &PublishedFindings, is_calm: bool, now: Time) -> Markup {
    if audit.findings.is_empty() {
        return html! {};
    }
    let counts = [
        (audit.critical, "critical"),
        (
            audit.warning,
            if audit.warning == 1 { "warning" } else { "warnings" },
        ),
        (audit.info, "info"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    let all = audit.critical + audit.warning + audit.info;
    let (rows, left_out) = within(ROOM, audit.findings.iter().take(MOST), |finding| {
        row(finding, now)
    });
    let shown = audit.findings.len().min(MOST) - left_out;
    html! {
        section #findings {
            details.fold #audit open[is_calm && audit.critical > 0] {
                summary { b { "What to change before it fails" } span.quiet { (counts.join(", ")) } }
                (rows)
                @if all > shown {
                    p.quiet { "and " (all - shown) " more: " code { "hookwatch audit" } " has all of them, and the "
                        a href="/api/v1/assessment" { "API" } " the worst." }
                }
            }
        }
    }
}

fn row(finding: &Finding, now: Time) -> Markup {
    html! {
        details.finding.(finding.severity.as_str()) {
            summary {
                span.severity { (finding.severity.as_str()) }
                span.name { (finding.kind.title) small { (Foreign(of(finding))) } }
                span.n.since { @if let Some(since) = finding.since { (clock(since, now)) } }
            }
            div.body {
                @for sentences in parts(&finding.message) { p { (Foreign(sentences)) } }
                @match finding.command() {
                    Some(PatchCommand::Line(line)) => { p.next { b { "The change: " } code { (Foreign(&line)) } } }
                    Some(PatchCommand::File { .. }) => {
                        p.next { b { "The change: " } "a longer patch; it stands in the "
                            a href="/api/v1/assessment" { "API" } " and in " code { "hookwatch audit" } "." }
                    }
                    None => {}
                }
                p.quiet { code { (finding.kind.id) } }
            }
        }
    }
}

/// The configuration and webhook of a finding: its object without the kind.
fn of(finding: &Finding) -> &str {
    finding
        .object
        .split_once('/')
        .map_or(&finding.object, |(_, rest)| rest)
}

/// Splits a long message after sentences and semicolons into parts short enough to be shown whole.
fn parts(message: &str) -> Vec<&str> {
    const LONG: usize = 500;
    const MOST: usize = 6;
    let mut parts = Vec::new();
    let mut rest = message;
    while rest.len() > LONG && parts.len() + 1 < MOST {
        let end = rest.floor_char_boundary(LONG);
        let at = ["; ", ". "].iter().filter_map(|gap| rest[..end].rfind(gap)).max();
        let Some(at) = at else { break };
        parts.push(&rest[..=at]);
        rest = rest[at + 1..].trim_start();
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_shown_in_parts_with_nothing_lost_between_them() {
        let message = "leader-election after 9.5 to 12.5 s (ä); ".repeat(40) + "The end.";
        let parts = parts(&message);
        assert!(parts.len() > 1);
        assert_eq!(parts.join(" "), message);
        assert_eq!(super::parts("short."), ["short."]);
        let solid = "x".repeat(5_000);
        assert_eq!(super::parts(&solid), [&*solid]);
    }
}
