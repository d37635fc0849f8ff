//! `hookwatch diagnose`: one look at a cluster, and a report that a person can act on.

mod coverage;
mod servers;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::Output;
use super::config::{Config, ConfigArguments};
use super::engine::Engine;
use super::progress::{Line, during};
use crate::domain::audit::standing::Findings;
use crate::domain::audit::{Finding, Severity};
use crate::domain::diagnose::rules::suffices;
use crate::domain::verdict::{Assessment, Health, Verdict, Writes};
use crate::io::client::greeting::Obstacle;

/// No report before this: two scrapes and two probes of everything take about as long.
const AT_LEAST: Duration = Duration::from_secs(6);
/// A verdict has to hold for this long.
const SETTLED: Duration = Duration::from_secs(3);
/// A conclusion that is less sure has to hold for this long.
const UNSURE: Duration = Duration::from_secs(8);
/// With everything well, further looking brings nothing new after this.
const ALL_WELL: Duration = Duration::from_secs(12);

/// Critical findings of the audit that are named, at most.
const FINDINGS: usize = 5;

/// What `diagnose` was asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct DiagnoseArguments {
    /// The same as for `run`
    #[command(flatten)]
    pub config: ConfigArguments,
    /// Longest time to look before reporting
    #[arg(long = "for", value_name = "DURATION", default_value = "25s", value_parser = duration)]
    pub at_most: Duration,
    /// How to print the report
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match (AT_LEAST..=Duration::from_secs(600)).contains(&duration) {
        true => Ok(duration),
        false => Err("use 6s to 10m".to_owned()),
    }
}

/// What a look came to; the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// Writes flow and no hook is failing.
    Healthy,
    /// At least one hook is named as a culprit.
    HookFailing,
    /// Too little could be seen.
    CouldNotTell,
    /// Writes are impaired and no webhook is to blame.
    NotAHook,
}

/// What counts for a conclusion.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// A hook that takes part in admission is failing.
    pub admission_culprit: bool,
    /// Another hook is.
    pub other_culprit: bool,
    /// Too little is seen to say that nothing is wrong.
    pub blind: bool,
    /// Something is found that impairs writes and is no hook.
    pub not_a_hook: bool,
    /// Whether the control plane takes writes.
    pub writes: Writes,
}

impl From<Facts> for Conclusion {
    fn from(facts: Facts) -> Self {
        // A broken API of one kind of object is no answer to the question why writes are impaired.
        if facts.admission_culprit {
            Self::HookFailing
        } else if facts.blind {
            Self::CouldNotTell
        } else if facts.not_a_hook || matches!(facts.writes, Writes::Blocked | Writes::Delayed) {
            Self::NotAHook
        } else if facts.other_culprit {
            Self::HookFailing
        } else if facts.writes == Writes::Unknown {
            Self::CouldNotTell
        } else {
            Self::Healthy
        }
    }
}

impl Conclusion {
    /// Reads an assessment.
    pub fn of(assessment: &Assessment) -> Self {
        let (plane, sources) = (&assessment.control_plane, &assessment.sources);
        let admission = |verdict: &Verdict| verdict.kind.is_admission();
        Self::from(Facts {
            admission_culprit: assessment.culprits().any(admission),
            other_culprit: assessment.culprits().any(|verdict| !admission(verdict)),
            blind: sources.inventory_age_seconds.is_none() || !sources.hooks_listed || sources.self_doubt,
            not_a_hook: plane.not_a_hook.is_some(),
            writes: plane.writes,
        })
    }

    /// The exit code of `diagnose`.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Healthy => 0,
            Self::HookFailing => 1,
            Self::CouldNotTell => 2,
            Self::NotAHook => 3,
        }
    }

    /// The result in a few words.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Healthy => "HEALTHY: writes flow and no webhook is failing",
            Self::HookFailing => "A WEBHOOK IS FAILING",
            Self::CouldNotTell => "COULD NOT TELL",
            Self::NotAHook => "WRITES ARE IMPAIRED and no webhook is to blame",
        }
    }
}

/// Looks and reports.
///
/// # Errors
/// When the report cannot be printed.
pub async fn diagnose(mut config: Config, arguments: &DiagnoseArguments) -> anyhow::Result<ExitCode> {
    config.scrapes.interval = config.scrapes.alert_interval;
    config.probes.rates.interval = config.probes.rates.alert_interval;
    config.canaries.interval = config.canaries.alert_interval;
    // One look leads nobody and says what it sees to whoever asked.
    config.leadership.enabled = false;
    config.alertmanager.targets.clear();
    let engine = match during("connecting", Engine::start(&config)).await {
        Ok(engine) => engine,
        Err(error) => {
            // Exit code 1 would accuse a hook.
            eprintln!("hookwatch: {error:#}");
            return Ok(ExitCode::from(super::BAD_USAGE));
        }
    };
    let assessment = look(&engine, arguments.at_most).await;
    let obstacle = engine.obstacle.borrow().clone();
    engine.stop().await;
    let conclusion = match assessment.as_deref().map(Conclusion::of) {
        Some(Conclusion::Healthy) if obstacle.as_ref().is_some_and(Obstacle::is_another_server) => {
            Conclusion::CouldNotTell
        }
        Some(conclusion) => conclusion,
        None => Conclusion::CouldNotTell,
    };
    let obstacle = obstacle.map(|obstacle| obstacle.to_string());
    super::print(&match arguments.output {
        Output::Json => {
            let report = serde_json::json!({
                "conclusion": conclusion,
                "obstacle": obstacle,
                "assessment": assessment,
            });
            serde_json::to_string_pretty(&report)? + "\n"
        }
        Output::Text => report(conclusion, obstacle.as_deref(), assessment.as_deref()),
    })?;
    Ok(ExitCode::from(conclusion.exit_code()))
}

/// Watches the assessments until they say the same for a while.
async fn look(engine: &Engine, at_most: Duration) -> Option<Arc<Assessment>> {
    let (began, mut latest) = (Instant::now(), None);
    let mut held: Option<(Conclusion, Instant)> = None;
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut line = Line::new();
    while began.elapsed() < at_most {
        tick.tick().await;
        latest = engine.assessment.borrow().clone();
        let Some(assessment) = &latest else { continue };
        let conclusion = Conclusion::of(assessment);
        let since = held
            .filter(|(before, _)| *before == conclusion)
            .map_or(Instant::now(), |(_, at)| at);
        held = Some((conclusion, since));
        line.show(&progress(began.elapsed(), at_most, assessment));
        let looked = began.elapsed();
        let settled = looked >= AT_LEAST && since.elapsed() >= SETTLED;
        let enough = match conclusion {
            Conclusion::HookFailing => assessment.culprits().any(suffices) || since.elapsed() >= UNSURE,
            Conclusion::Healthy => looked >= ALL_WELL && !assessment.hooks.iter().any(is_suspect),
            Conclusion::NotAHook => since.elapsed() >= UNSURE,
            Conclusion::CouldNotTell => false,
        };
        if settled && enough {
            break;
        }
    }
    latest
}

fn is_suspect(verdict: &Verdict) -> bool {
    verdict.health == Health::Suspect
}

/// How far the look is.
fn progress(looked: Duration, at_most: Duration, assessment: &Assessment) -> String {
    let scraped = assessment
        .sources
        .scrapes
        .iter()
        .filter(|scrape| scrape.age_seconds.is_some());
    format!(
        "looking, {:.0} of at most {:.0} s: {} hooks, {} API servers scraped, writes {}",
        looked.as_secs_f64(),
        at_most.as_secs_f64(),
        assessment.hooks.len(),
        scraped.count(),
        assessment.control_plane.writes.as_str()
    )
}

/// The report for people: the conclusion, then who and why, then what else was seen.
fn report(conclusion: Conclusion, obstacle: Option<&str>, assessment: Option<&Assessment>) -> String {
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
