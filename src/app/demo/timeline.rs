//! The readable account of a demo, line by line.

use std::fmt::Write;
use std::time::Duration;

use super::casualties;
use crate::lab::clients::{Casualties, Leaders};

/// Widest line, in columns.
const WIDTH: usize = 108;
/// Where the text of a line begins.
const INDENT: usize = 30;

/// Something worth a line, and when it was, counted from the start of the demo.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineEntry {
    /// Since the start of the demo.
    pub at: Duration,
    /// What happened.
    pub event: DemoEvent,
}

/// What can happen in a demo.
#[derive(Debug, Clone, PartialEq)]
pub enum DemoEvent {
    /// The lab, its users and the daemon run.
    Started {
        /// The API server's URL.
        api_server: String,
        /// The daemon's URL.
        daemon: String,
        /// What leads.
        leaders: Leaders,
    },
    /// The daemon has found every hook healthy.
    Quiet {
        /// Successful writes per second.
        writes_per_second: f64,
        /// Their median duration.
        median: Option<Duration>,
    },
    /// The fault is in force.
    Injected {
        /// What was done.
        summary: String,
        /// What a person would notice.
        symptom: String,
    },
    /// The daemon said what may happen next.
    Risk(String),
    /// The daemon saw a first sign.
    Evidence(String),
    /// The daemon named a culprit: the right one, unless `expected` is false.
    Verdict {
        /// Webhook or other cause.
        culprit: String,
        /// Cause, effect and confidence, ready to print.
        finding: String,
        /// The sentences behind it; at most three are shown.
        evidence: Vec<String>,
        /// Whether the scenario calls for it.
        expected: bool,
    },
    /// A user's request failed for the first time.
    FirstFailure {
        /// What was asked for.
        request: String,
        /// What the user was told.
        text: String,
        /// How long the user had waited.
        waited: Duration,
    },
    /// A rule of Prometheus began to hold, or has held for as long as it waits.
    Alert {
        /// Whether it fires.
        firing: bool,
        /// The alert's name.
        name: String,
        /// Its severity.
        severity: String,
        /// Its one line.
        summary: String,
    },
    /// Alertmanager delivered an alert, or that it is over.
    Page {
        /// Whether it is over.
        resolved: bool,
        /// The alert's name.
        name: String,
        /// Its severity.
        severity: String,
        /// Its one line.
        summary: String,
        /// Its text.
        description: String,
    },
    /// The fault is about to be removed, and no user's request has failed.
    NoFailure,
    /// The breaker did something, or it came to something.
    Breaker {
        /// What, in a word or two.
        label: &'static str,
        /// The same in words.
        text: String,
    },
    /// Something that was to hold at the end was looked at.
    Check {
        /// Whether it holds.
        passed: bool,
        /// What, in a word or two.
        label: &'static str,
        /// The same in words, or what is wrong.
        text: String,
    },
    /// The fault was removed.
    Removed,
    /// The daemon found every hook healthy again, this long after.
    Recovered(Duration),
    /// It did not in time.
    NotRecovered,
    /// What the fault cost.
    Casualties(Casualties),
    /// What the daemon took back and said again at once, in words.
    Flaps(String),
    /// The last line.
    Closing {
        /// Whether the daemon was right.
        correct: bool,
        /// How long after the fault, and what the users met.
        text: String,
        /// What was wrong.
        objections: Vec<String>,
    },
}

/// One entry as text that ends in a line break, with colours if wanted.
pub fn render(entry: &TimelineEntry, colour: bool) -> String {
    let shown = ShownEvent::of(&entry.event);
    let (on, off) = if colour { (shown.colour, RESET) } else { ("", "") };
    let at = entry.at.as_secs_f64();
    let mut text = format!("{at:>7.1} s  {on}{}  {:<16}{off}", shown.glyph, shown.label);
    for (number, line) in shown.lines.iter().flat_map(|line| wrap(line)).enumerate() {
        if number > 0 {
            let _ = write!(text, "\n{:INDENT$}", "");
        }
        text.push_str(&line);
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

const RESET: &str = "\u{1b}[0m";
const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const RED: &str = "\u{1b}[1;31m";
const CYAN: &str = "\u{1b}[36m";

/// How an event looks.
struct ShownEvent {
    glyph: &'static str,
    colour: &'static str,
    label: &'static str,
    lines: Vec<String>,
}

impl ShownEvent {
    fn of(event: &DemoEvent) -> Self {
        match event {
            DemoEvent::Started {
                api_server,
                daemon,
                leaders,
            } => Self::started(api_server, daemon, *leaders),
            DemoEvent::Quiet {
                writes_per_second,
                median,
            } => Self::quiet(*writes_per_second, *median),
            DemoEvent::Injected { summary, symptom } => Self::injected(summary, symptom),
            DemoEvent::Risk(text) => Self::line("◌", YELLOW, "foreseen", text),
            DemoEvent::Evidence(text) => Self::line("◐", YELLOW, "first evidence", text),
            DemoEvent::Verdict {
                culprit,
                finding,
                evidence,
                expected,
            } => Self::verdict(culprit, finding, evidence, *expected),
            DemoEvent::FirstFailure {
                request,
                text,
                waited,
            } => Self::first_failure(request, text, *waited),
            DemoEvent::Alert {
                firing,
                name,
                severity,
                summary,
            } => Self::alert(*firing, &headline(name, severity, summary)),
            DemoEvent::Page {
                resolved: true, name, ..
            } => Self::line("✉", GREEN, "page resolved", name),
            DemoEvent::Page {
                name,
                severity,
                summary,
                description,
                ..
            } => Self::page(headline(name, severity, summary), description),
            DemoEvent::NoFailure => Self::line("●", GREEN, "no failure", "no user's request has failed"),
            DemoEvent::Breaker { label, text } => Self::line("◈", GREEN, label, text),
            DemoEvent::Check { passed, label, text } => Self::check(*passed, label, text),
            DemoEvent::Removed => Self::new("▼", CYAN, "fault removed", Vec::new()),
            DemoEvent::Recovered(after) => Self::recovered(*after),
            DemoEvent::NotRecovered => Self::not_recovered(),
            DemoEvent::Casualties(lost) => Self::casualties(*lost),
            DemoEvent::Flaps(text) => Self::line("◇", YELLOW, "flaps", text),
            DemoEvent::Closing {
                correct,
                text,
                objections,
            } => Self::closing(*correct, text, objections),
        }
    }

    fn new(glyph: &'static str, colour: &'static str, label: &'static str, lines: Vec<String>) -> Self {
        Self {
            glyph,
            colour,
            label,
            lines,
        }
    }

    fn line(glyph: &'static str, colour: &'static str, label: &'static str, line: &str) -> Self {
        Self::new(glyph, colour, label, vec![line.to_owned()])
    }

    fn started(api_server: &str, daemon: &str, leaders: Leaders) -> Self {
        let line = format!("API server {api_server}, three webhooks, seven backends, four tenants");
        let alive = alive(leaders).to_owned();
        let daemon = format!("the daemon at {daemon} knows only the kubeconfig");
        Self::new("●", CYAN, "started", vec![line, alive, daemon])
    }

    fn quiet(writes_per_second: f64, median: Option<Duration>) -> Self {
        let median = median.map_or_else(|| "unknown".to_owned(), millis);
        let line = format!("{writes_per_second:.0} writes/s, median {median}, every webhook Healthy");
        Self::line("●", GREEN, "quiet", &line)
    }

    fn injected(summary: &str, symptom: &str) -> Self {
        let symptom = format!("An operator sees: {symptom}.");
        Self::new("▲", YELLOW, "fault injected", vec![summary.to_owned(), symptom])
    }

    fn verdict(culprit: &str, finding: &str, evidence: &[String], expected: bool) -> Self {
        let mut lines = vec![format!("{culprit}: {finding}")];
        lines.extend(evidence.iter().take(3).map(|sentence| format!("- {sentence}")));
        if expected {
            Self::new("◆", RED, "verdict", lines)
        } else {
            Self::new("✘", RED, "false culprit", lines)
        }
    }

    fn first_failure(request: &str, text: &str, waited: Duration) -> Self {
        let line = format!("{request}, after {}: {text}", millis(waited));
        Self::line("✖", RED, "request failed", &line)
    }

    fn alert(firing: bool, headline: &str) -> Self {
        if firing {
            Self::line("◆", RED, "alert fires", headline)
        } else {
            Self::line("◇", YELLOW, "alert pending", headline)
        }
    }

    fn page(headline: String, description: &str) -> Self {
        let lines = vec![headline, description.to_owned()];
        Self::new("✉", RED, "page delivered", lines)
    }

    fn check(passed: bool, label: &'static str, text: &str) -> Self {
        if passed {
            Self::line("✔", GREEN, label, text)
        } else {
            Self::line("✘", RED, label, text)
        }
    }

    fn recovered(after: Duration) -> Self {
        let line = format!("every webhook Healthy again {:.1} s later", after.as_secs_f64());
        Self::line("●", GREEN, "recovered", &line)
    }

    fn not_recovered() -> Self {
        let line = "not every webhook was found Healthy again in time";
        Self::line("✘", RED, "not recovered", line)
    }

    fn casualties(lost: Casualties) -> Self {
        let (glyph, colour) = if lost == Casualties::default() {
            ("●", GREEN)
        } else {
            ("✖", RED)
        };
        Self::line(glyph, colour, "casualties", &casualties::sentence(lost))
    }

    fn closing(correct: bool, text: &str, objections: &[String]) -> Self {
        let mut lines = vec![text.to_owned()];
        lines.extend(objections.iter().map(|objection| format!("- {objection}")));
        if correct {
            Self::new("✔", GREEN, "right", lines)
        } else {
            Self::new("✘", RED, "wrong", lines)
        }
    }
}

/// An alert in one line.
fn headline(name: &str, severity: &str, summary: &str) -> String {
    format!("{name} ({severity}): {summary}")
}

/// Who lives by the control plane.
const fn alive(leaders: Leaders) -> &'static str {
    match leaders {
        Leaders::Simulated => "two simulated leaders and three simulated kubelets renew their Leases",
        Leaders::Real => {
            "the real kube-controller-manager and kube-scheduler and three simulated kubelets renew their Leases"
        }
    }
}

/// A duration as a person says it: `4 ms`, `10.0 s`.
fn millis(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

/// Breaks a line at blanks, and a word that is too long anywhere. Whatever control characters the text brought along
/// become blanks: it came from outside and goes to a terminal.
fn wrap(line: &str) -> Vec<String> {
    const ROOM: usize = WIDTH - INDENT;
    let clean: String = line
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect();
    let (bullet, continued) = if clean.starts_with("- ") {
        ("- ", "  ")
    } else {
        ("", "")
    };
    let mut lines = Vec::new();
    let mut current = bullet.to_owned();
    let mut width = bullet.len();
    for word in clean[bullet.len()..].split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let begun = width > bullet.len();
        if begun && width + 1 + word.len() > ROOM {
            lines.push(std::mem::replace(&mut current, continued.to_owned()));
            width = continued.len();
        } else if begun {
            current.push(' ');
            width += 1;
        }
        while width + word.len() > ROOM {
            let rest = word.split_off(ROOM - width);
            current.extend(word);
            lines.push(std::mem::replace(&mut current, continued.to_owned()));
            width = continued.len();
            word = rest;
        }
        width += word.len();
        current.extend(word);
    }
    if width > bullet.len() {
        lines.push(current);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story() -> Vec<TimelineEntry> {
        let entry = |tenths: u64, event| TimelineEntry {
            at: Duration::from_millis(tenths * 100),
            event,
        };
        vec![
            entry(
                3,
                DemoEvent::Started {
                    api_server: "https://127.0.0.1:6443".into(),
                    daemon: "http://127.0.0.1:9780".into(),
                    leaders: Leaders::Simulated,
                },
            ),
            entry(
                85,
                DemoEvent::Quiet {
                    writes_per_second: 81.6,
                    median: Some(Duration::from_micros(4_300)),
                },
            ),
            entry(
                86,
                DemoEvent::Injected {
                    summary: "All three backends stop.".into(),
                    symptom: "every create and update hangs".into(),
                },
            ),
            entry(
                101,
                DemoEvent::Evidence("3 of 3 probes have been waiting for more than 1 s".into()),
            ),
            entry(
                119,
                DemoEvent::Verdict {
                    culprit: "validating-webhook.openpolicyagent.org".into(),
                    finding: "Hanging, Blocking, confidence 0.95".into(),
                    evidence: vec![
                        "all three backends accept connections and none finishes a TLS handshake, while the API \
                         server's own address answers within 2 ms"
                            .into(),
                        "canaries are overdue".into(),
                    ],
                    expected: true,
                },
            ),
            entry(
                186,
                DemoEvent::FirstFailure {
                    request: "create secrets in team-a".into(),
                    text: "Internal error occurred: failed calling webhook \"v\": context\ndeadline exceeded".into(),
                    waited: Duration::from_millis(10_004),
                },
            ),
            entry(206, DemoEvent::Removed),
            entry(231, DemoEvent::Recovered(Duration::from_millis(2_500))),
            entry(
                231,
                DemoEvent::Casualties(Casualties {
                    writes_timed_out: 3,
                    ..Casualties::default()
                }),
            ),
            entry(231, DemoEvent::Flaps("verdicts flapped once".into())),
            entry(
                231,
                DemoEvent::Closing {
                    correct: true,
                    text: "verdict right, 3.3 s after the fault, 6.7 s before the first request failed".into(),
                    objections: Vec::new(),
                },
            ),
        ]
    }

    #[test]
    fn the_timeline_reads_as_it_is_meant_to() {
        let text: String = story().iter().map(|entry| render(entry, false)).collect();
        let golden = "
    0.3 s  ●  started         API server https://127.0.0.1:6443, three webhooks, seven backends, four
                              tenants
                              two simulated leaders and three simulated kubelets renew their Leases
                              the daemon at http://127.0.0.1:9780 knows only the kubeconfig
    8.5 s  ●  quiet           82 writes/s, median 4 ms, every webhook Healthy
    8.6 s  ▲  fault injected  All three backends stop.
                              An operator sees: every create and update hangs.
   10.1 s  ◐  first evidence  3 of 3 probes have been waiting for more than 1 s
   11.9 s  ◆  verdict         validating-webhook.openpolicyagent.org: Hanging, Blocking, confidence 0.95
                              - all three backends accept connections and none finishes a TLS handshake,
                                while the API server's own address answers within 2 ms
                              - canaries are overdue
   18.6 s  ✖  request failed  create secrets in team-a, after 10.0 s: Internal error occurred: failed
                              calling webhook \"v\": context deadline exceeded
   20.6 s  ▼  fault removed
   23.1 s  ●  recovered       every webhook Healthy again 2.5 s later
   23.1 s  ✖  casualties      no leader or node lost; 3 writes timed out
   23.1 s  ◇  flaps           verdicts flapped once
   23.1 s  ✔  right           verdict right, 3.3 s after the fault, 6.7 s before the first request failed
";
        assert_eq!(format!("\n{text}"), golden);
    }

    #[test]
    fn an_alert_is_told_with_its_text_when_it_is_delivered_and_by_its_name_when_it_is_over() {
        let page = |resolved| TimelineEntry {
            at: Duration::from_secs(48),
            event: DemoEvent::Page {
                resolved,
                name: "HookwatchHookFailing".to_owned(),
                severity: "critical".to_owned(),
                summary: "v is Hanging.".to_owned(),
                description: "The webhook v\nof \u{1b}[31mc fails.".to_owned(),
            },
        };
        let delivered = render(&page(false), false);
        assert!(
            delivered.contains("page delivered  HookwatchHookFailing (critical): v is Hanging.\n"),
            "{delivered}"
        );
        assert!(
            delivered.contains("The webhook v") && !delivered.contains('\u{1b}'),
            "{delivered:?}"
        );
        let over = render(&page(true), false);
        assert!(over.ends_with("page resolved   HookwatchHookFailing\n"), "{over}");
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let long = format!("{} {}", "x".repeat(400), "word ".repeat(90));
        let entry = TimelineEntry {
            at: Duration::from_secs(99_999),
            event: DemoEvent::Verdict {
                culprit: long.clone(),
                finding: long.clone(),
                evidence: vec![long; 9],
                expected: false,
            },
        };
        let text = render(&entry, false);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert_eq!(widest, Some(WIDTH), "{text}");
        assert_eq!(text.matches("- x").count(), 3);
    }

    #[test]
    fn colours_add_nothing_but_colours() {
        for entry in story() {
            let coloured = render(&entry, true);
            assert!(coloured.contains(RESET));
            let plain = [RESET, GREEN, YELLOW, RED, CYAN]
                .iter()
                .fold(coloured, |text, code| text.replace(code, ""));
            assert_eq!(plain.trim_end(), render(&entry, false).trim_end());
        }
    }

    #[test]
    fn a_hook_cannot_send_escapes_to_the_terminal() {
        let entry = TimelineEntry {
            at: Duration::ZERO,
            event: DemoEvent::Evidence("\u{1b}[2Jgone\r\n\u{9b}31m".into()),
        };
        let text = render(&entry, false);
        assert!(!text.trim_end().chars().any(char::is_control), "{text:?}");
    }
}
