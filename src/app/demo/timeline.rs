//! The timeline of a demo as text, one event after the other.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::casualties;
use crate::app::text::wrap;
use crate::lab::clients::{Casualties, Leaders};

/// Widest line, in columns.
const WIDTH: usize = 108;
/// Column at which the text of a line begins.
const INDENT: usize = 30;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlertText {
    #[serde(rename = "alert")]
    pub name: String,
    pub severity: String,
    /// The annotation `summary`, one line.
    pub summary: String,
    pub description: String,
}

impl AlertText {
    fn headline(&self) -> String {
        format!("{} ({}): {}", self.name, self.severity, self.summary)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum DemoEvent {
    /// The lab, its users and the daemon run.
    Started {
        api_server: String,
        daemon: String,
        leaders: Leaders,
    },
    /// The daemon has found every hook healthy.
    Quiet {
        /// Successful writes per second.
        writes_per_second: f64,
        median: Option<Duration>,
    },
    /// The fault is in force.
    Injected {
        summary: String,
        /// What an operator would notice.
        symptom: String,
    },
    /// The daemon's audit foresaw what happens next.
    Risk(String),
    /// The daemon's first evidence.
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
        request: String,
        text: String,
        waited: Duration,
    },
    /// A Prometheus rule became pending or started to fire.
    Alert {
        firing: bool,
        text: AlertText,
    },
    /// Alertmanager delivered an alert, or that it is over.
    Page {
        resolved: bool,
        text: AlertText,
    },
    /// The fault will be removed next, and no user's request has failed.
    NoFailure,
    /// The breaker did something, or its effect was seen.
    Breaker {
        label: &'static str,
        text: String,
    },
    /// A check at the end of the demo.
    Check {
        passed: bool,
        label: &'static str,
        /// What was checked in words, or what is wrong.
        text: String,
    },
    Removed,
    /// The daemon found every hook healthy again, this long after the removal of the fault.
    Recovered(Duration),
    /// The daemon did not find every hook healthy in time.
    NotRecovered,
    /// What the fault cost.
    Casualties(Casualties),
    /// Verdicts and states of writes that the daemon withdrew and repeated within 10 s, in words.
    Flaps(String),
    Closing {
        correct: bool,
        /// The time from the fault to the verdict, compared with the first failed request.
        text: String,
        objections: Vec<String>,
    },
}

/// An event as text that ends in a line break, with colours if `colour`. `at` counts from the start of the demo.
pub fn render(at: Duration, event: &DemoEvent, colour: bool) -> String {
    let (glyph, tone, label) = event.head();
    let (on, off) = if colour { (tone, RESET) } else { ("", "") };
    let at = at.as_secs_f64();
    let mut text = format!("{at:>7.1} s  {on}{glyph}  {label:<16}{off}");
    for (number, line) in event.lines().iter().flat_map(|line| broken(line)).enumerate() {
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

impl DemoEvent {
    /// The sign, its colour, and the label.
    fn head(&self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Started { .. } => ("●", CYAN, "started"),
            Self::Quiet { .. } => ("●", GREEN, "quiet"),
            Self::Injected { .. } => ("▲", YELLOW, "fault injected"),
            Self::Risk(_) => ("◌", YELLOW, "foreseen"),
            Self::Evidence(_) => ("◐", YELLOW, "first evidence"),
            Self::Verdict { expected: true, .. } => ("◆", RED, "verdict"),
            Self::Verdict { .. } => ("✘", RED, "false culprit"),
            Self::FirstFailure { .. } => ("✖", RED, "request failed"),
            Self::Alert { firing: true, .. } => ("◆", RED, "alert fires"),
            Self::Alert { .. } => ("◇", YELLOW, "alert pending"),
            Self::Page { resolved: true, .. } => ("✉", GREEN, "page resolved"),
            Self::Page { .. } => ("✉", RED, "page delivered"),
            Self::NoFailure => ("●", GREEN, "no failure"),
            Self::Breaker { label, .. } => ("◈", GREEN, label),
            Self::Check {
                passed: true, label, ..
            } => ("✔", GREEN, label),
            Self::Check { label, .. } => ("✘", RED, label),
            Self::Removed => ("▼", CYAN, "fault removed"),
            Self::Recovered(_) => ("●", GREEN, "recovered"),
            Self::NotRecovered => ("✘", RED, "not recovered"),
            Self::Casualties(lost) if *lost == Casualties::default() => ("●", GREEN, "casualties"),
            Self::Casualties(_) => ("✖", RED, "casualties"),
            Self::Flaps(_) => ("◇", YELLOW, "flaps"),
            Self::Closing { correct: true, .. } => ("✔", GREEN, "right"),
            Self::Closing { .. } => ("✘", RED, "wrong"),
        }
    }

    fn lines(&self) -> Vec<String> {
        let listed = |first: String, more: &[String]| {
            let more = more.iter().map(|sentence| format!("- {sentence}"));
            std::iter::once(first).chain(more).collect()
        };
        match self {
            Self::Started {
                api_server,
                daemon,
                leaders,
            } => vec![
                format!("API server {api_server}, three webhooks, seven backends, four tenants"),
                alive(*leaders).to_owned(),
                format!("the daemon at {daemon} knows only the kubeconfig"),
            ],
            Self::Quiet {
                writes_per_second,
                median,
            } => {
                let median = median.map_or_else(|| "unknown".to_owned(), millis);
                vec![format!(
                    "{writes_per_second:.0} writes/s, median {median}, every webhook Healthy"
                )]
            }
            Self::Injected { summary, symptom } => {
                vec![summary.clone(), format!("An operator sees: {symptom}.")]
            }
            Self::Risk(text) | Self::Evidence(text) | Self::Flaps(text) => vec![text.clone()],
            Self::Breaker { text, .. } | Self::Check { text, .. } => vec![text.clone()],
            Self::Verdict {
                culprit,
                finding,
                evidence,
                ..
            } => listed(
                format!("{culprit}: {finding}"),
                &evidence[..evidence.len().min(3)],
            ),
            Self::FirstFailure {
                request,
                text,
                waited,
            } => {
                vec![format!("{request}, after {}: {text}", millis(*waited))]
            }
            Self::Alert { text, .. } => vec![text.headline()],
            Self::Page { resolved: true, text } => vec![text.name.clone()],
            Self::Page { text, .. } => vec![text.headline(), text.description.clone()],
            Self::NoFailure => vec!["no user's request has failed".to_owned()],
            Self::Removed => Vec::new(),
            Self::Recovered(after) => {
                vec![format!(
                    "every webhook Healthy again {:.1} s later",
                    after.as_secs_f64()
                )]
            }
            Self::NotRecovered => vec!["not every webhook was found Healthy again in time".to_owned()],
            Self::Casualties(lost) => vec![casualties::sentence(*lost)],
            Self::Closing { text, objections, .. } => listed(text.clone(), objections),
        }
    }
}

/// The clients that depend on the control plane.
const fn alive(leaders: Leaders) -> &'static str {
    match leaders {
        Leaders::Simulated => "two simulated leaders and three simulated kubelets renew their Leases",
        Leaders::Real => {
            "the real kube-controller-manager and kube-scheduler and three simulated kubelets renew their Leases"
        }
    }
}

/// A duration in words: `4 ms`, `10.0 s`.
fn millis(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

/// Breaks a line at spaces, and a word that is too long anywhere. Control characters become spaces, as the text came from
/// outside and goes to a terminal.
fn broken(line: &str) -> Vec<String> {
    let clean = line.replace(char::is_control, " ");
    let (bullet, text) = match clean.strip_prefix("- ") {
        Some(text) => ("- ", text),
        None => ("", &*clean),
    };
    let mut lines = wrap(text, WIDTH - INDENT - bullet.len());
    for (number, line) in lines.iter_mut().enumerate().filter(|_| !bullet.is_empty()) {
        line.insert_str(0, if number == 0 { bullet } else { "  " });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story() -> Vec<(Duration, DemoEvent)> {
        let entry = |tenths: u64, event| (Duration::from_millis(tenths * 100), event);
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
        let text: String = story()
            .iter()
            .map(|(at, event)| render(*at, event, false))
            .collect();
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
        let page = |resolved| {
            let event = DemoEvent::Page {
                resolved,
                text: AlertText {
                    name: "HookwatchHookFailing".to_owned(),
                    severity: "critical".to_owned(),
                    summary: "v is Hanging.".to_owned(),
                    description: "The webhook v\nof \u{1b}[31mc fails.".to_owned(),
                },
            };
            render(Duration::from_secs(48), &event, false)
        };
        let delivered = page(false);
        assert!(
            delivered.contains("page delivered  HookwatchHookFailing (critical): v is Hanging.\n"),
            "{delivered}"
        );
        assert!(
            delivered.contains("The webhook v") && !delivered.contains('\u{1b}'),
            "{delivered:?}"
        );
        let over = page(true);
        assert!(over.ends_with("page resolved   HookwatchHookFailing\n"), "{over}");
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let long = format!("{} {}", "x".repeat(400), "word ".repeat(90));
        let event = DemoEvent::Verdict {
            culprit: long.clone(),
            finding: long.clone(),
            evidence: vec![long; 9],
            expected: false,
        };
        let text = render(Duration::from_secs(99_999), &event, false);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert_eq!(widest, Some(WIDTH), "{text}");
        assert_eq!(text.matches("- x").count(), 3);
    }

    #[test]
    fn colours_add_nothing_but_colours() {
        for (at, event) in story() {
            let coloured = render(at, &event, true);
            assert!(coloured.contains(RESET));
            let plain = [RESET, GREEN, YELLOW, RED, CYAN]
                .iter()
                .fold(coloured, |text, code| text.replace(code, ""));
            assert_eq!(plain.trim_end(), render(at, &event, false).trim_end());
        }
    }

    #[test]
    fn a_hook_cannot_send_escapes_to_the_terminal() {
        let event = DemoEvent::Evidence("\u{1b}[2Jgone\r\n\u{9b}31m".into());
        let text = render(Duration::ZERO, &event, false);
        assert!(!text.trim_end().chars().any(char::is_control), "{text:?}");
    }
}
