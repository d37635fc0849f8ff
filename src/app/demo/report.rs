//! The outcome of a demo: as JSON, and as the last line of the timeline.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::breaking::BreakerReport;
use super::director::Moments;
use super::flaps::Flaps;
use super::judge::{Judge, SeenVerdict, rounded};
use super::pages::DeliveredPage;
use crate::lab::clients::{Casualties, Leaders};
use crate::lab::scenario::Scenario;

/// The outcome of one demo.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DemoReport {
    /// The scenario's name.
    pub scenario: &'static str,
    /// The verdicts that the scenario calls for.
    pub expected: Vec<ExpectedVerdict>,
    /// Every hook that was named while the fault lasted, with its last cause.
    pub verdicts: Vec<SeenVerdict>,
    /// The worst state of writes while the fault lasted.
    pub control_plane: String,
    /// The cause of trouble that is not a webhook, as last named while the fault lasted.
    pub not_a_hook: Option<String>,
    /// Whether the daemon was right.
    pub correct: bool,
    /// Why it was not, in sentences.
    pub objections: Vec<String>,
    /// From the fault to the last of the expected verdicts; `None` unless all appeared.
    pub time_to_verdict_seconds: Option<f64>,
    /// When the fault was in force, RFC 3339; `None` when nothing was broken.
    pub fault_at: Option<String>,
    /// When the last expected verdict appeared, RFC 3339.
    pub verdict_at: Option<String>,
    /// When a user's request first failed after the fault, RFC 3339.
    pub first_failure_at: Option<String>,
    /// From the removal of the fault until every hook was healthy.
    pub recovered_after_seconds: Option<f64>,
    /// Whether kube-controller-manager and kube-scheduler were simulated or real.
    pub leaders: Leaders,
    /// What clients lost from the fault until the end.
    pub casualties: Casualties,
    /// Verdicts and states of writes that the daemon withdrew and repeated within 10 s, from its first assessment until the
    /// end.
    pub flaps: Flaps,
    /// The pages that were sent; `None` when there was no Prometheus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<Vec<DeliveredPage>>,
    /// What the breaker did; `None` if it was off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<BreakerReport>,
}

impl DemoReport {
    /// Adds objections of the pages or the breaker. They do not count if nothing is broken: then no page and no bypass are due.
    pub(super) fn object(&mut self, objections: Vec<String>) {
        if self.fault_at.is_some() {
            self.correct &= objections.is_empty();
            self.objections.extend(objections);
        }
    }
}

/// A verdict that a scenario calls for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExpectedVerdict {
    /// The webhook's name.
    pub webhook: &'static str,
    /// The name of the cause, for example `Hanging`.
    pub cause: &'static str,
}

pub fn report(
    scenario: &'static Scenario,
    judge: &Judge,
    moments: &Moments,
    (leaders, casualties, flaps): (Leaders, Casualties, Flaps),
) -> DemoReport {
    let objections = judge.objections();
    DemoReport {
        scenario: scenario.name,
        expected: scenario
            .expected
            .iter()
            .map(|expected| ExpectedVerdict {
                webhook: expected.hook.webhook(),
                cause: expected.cause,
            })
            .collect(),
        verdicts: judge.verdicts().to_vec(),
        control_plane: format!("{:?}", judge.worst_writes()),
        not_a_hook: judge.not_a_hook().map(str::to_owned),
        correct: objections.is_empty(),
        objections,
        time_to_verdict_seconds: judge.time_to_verdict().map(rounded),
        fault_at: moments
            .fault
            .filter(|_| !scenario.is_quiet())
            .map(|(_, at)| format!("{at:.3}")),
        verdict_at: moments.verdict.map(|(_, at)| format!("{at:.3}")),
        first_failure_at: moments
            .first_failure
            .as_ref()
            .map(|failure| format!("{:.3}", failure.at)),
        recovered_after_seconds: moments.recovered_after.map(rounded),
        leaders,
        casualties,
        flaps,
        pages: None,
        breaker: None,
    }
}

pub fn closing(judge: &Judge, moments: &Moments, correct: bool) -> String {
    let right = if correct { "verdict right" } else { "verdict wrong" };
    let Some(after) = judge.time_to_verdict() else {
        return if correct {
            "nothing was broken and nothing was said".to_owned()
        } else {
            right.to_owned()
        };
    };
    let failure = moments.first_failure.as_ref().map(|failure| failure.instant);
    let compared = compare(moments.verdict.map(|(at, _)| at), failure);
    format!(
        "{right}, {:.1} s after the fault, {compared}",
        after.as_secs_f64()
    )
}

/// Compares the time of the verdict with that of the first failure.
fn compare(verdict: Option<Instant>, failure: Option<Instant>) -> String {
    let (Some(verdict), Some(failure)) = (verdict, failure) else {
        return "and no request failed".to_owned();
    };
    let seconds = |span: Duration| span.as_secs_f64();
    if failure >= verdict {
        format!(
            "{:.1} s before the first request failed",
            seconds(failure - verdict)
        )
    } else {
        format!(
            "{:.1} s after the first request failed",
            seconds(verdict - failure)
        )
    }
}

/// Cause, effect and confidence in one phrase.
pub fn finding(cause: Option<&str>, effect: Option<&str>, confidence: f64) -> String {
    let effect = effect.filter(|effect| *effect != "None");
    let said = cause.into_iter().chain(effect).map(|word| format!("{word}, "));
    format!("{}confidence {confidence:.2}", said.collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::app::demo::judge::DemoPhase;
    use crate::lab::scenario::by_name;

    #[test]
    fn the_verdict_is_placed_before_or_after_the_first_failure() {
        let now = Instant::now();
        let later = now + Duration::from_millis(6_700);
        assert_eq!(
            compare(Some(now), Some(later)),
            "6.7 s before the first request failed"
        );
        assert_eq!(
            compare(Some(later), Some(now)),
            "6.7 s after the first request failed"
        );
        assert_eq!(compare(Some(now), None), "and no request failed");
    }

    #[test]
    fn a_finding_leaves_out_an_effect_that_is_none() {
        assert_eq!(
            finding(Some("Hanging"), Some("Blocking"), 0.951),
            "Hanging, Blocking, confidence 0.95"
        );
        let partial = finding(Some("Partial"), Some("None"), 0.5);
        assert_eq!(partial, "Partial, confidence 0.50");
    }

    #[test]
    fn the_report_of_a_quiet_demo_has_every_field_and_says_nothing() {
        let scenario = by_name("quiet").unwrap();
        let mut judge = Judge::new(scenario);
        let calm = serde_json::from_value(json!({
            "at": "2026-11-21T00:11:02Z", "hooks": [],
            "control_plane": {"writes": "Flowing", "summary": ""},
        }))
        .unwrap();
        judge.observe(DemoPhase::Fault(Duration::from_secs(1)), &calm);
        let counted = (Leaders::Simulated, Casualties::default(), Flaps::default());
        let report = report(scenario, &judge, &Moments::default(), counted);
        assert_eq!(
            serde_json::to_value(&report).unwrap(),
            json!({
                "scenario": "quiet", "expected": [], "verdicts": [], "control_plane": "Flowing",
                "not_a_hook": null, "correct": true, "objections": [], "time_to_verdict_seconds": null,
                "fault_at": null, "verdict_at": null, "first_failure_at": null,
                "recovered_after_seconds": null,
                "leaders": "simulated",
                "casualties": {
                    "leaders_lost": 0, "node_leases_expired": 0, "nodes_not_ready": 0, "writes_timed_out": 0,
                    "servers_not_started": 0,
                },
                "flaps": {"verdicts": 0, "writes": 0},
            }) as Value
        );
        assert_eq!(
            closing(&judge, &Moments::default(), true),
            "nothing was broken and nothing was said"
        );
    }
}
