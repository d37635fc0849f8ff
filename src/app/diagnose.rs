//! `hookwatch diagnose`: one look at a cluster, and a report that a person can act on.

mod coverage;
mod report;
mod servers;
mod several;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::config::{Config, ConfigArguments};
use super::contexts::{self, CommandAim};
use super::engine::Engine;
use super::progress::ProgressLine;
use super::{BadUsage, Output, every, to_json};
use crate::domain::act::fence::AutoBreak;
use crate::domain::diagnose::rules::suffices;
use crate::domain::diagnose::verdict::Verdict;
use crate::domain::observe::views::BlindSpot;
use crate::domain::report::assessment::Assessment;
use crate::domain::vocabulary::{Health, Writes};
use crate::io::client::greeting::Obstacle;
use crate::io::report::Reported;

pub use several::configs;

/// Shortest look: two scrapes and two probes of everything take about as long.
const AT_LEAST: Duration = Duration::from_secs(6);
/// How long a conclusion must last before it is reported.
const SETTLED: Duration = Duration::from_secs(3);
/// The same for a less certain conclusion.
const UNSURE: Duration = Duration::from_secs(8);
/// Longest time between two reads of a Prometheus. More often would find the same samples.
const STORED_EVERY: Duration = Duration::from_secs(5);
/// A look at a healthy cluster ends after this: more time brings nothing new.
const ALL_WELL: Duration = Duration::from_secs(12);

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
    crate::app::duration(text, &(AT_LEAST..=Duration::from_secs(600)))
}

/// The conclusion of a look. It sets the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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

/// What a conclusion depends on.
#[derive(Debug, Clone, Copy)]
pub struct ConclusionFacts {
    /// A hook that takes part in admission is failing.
    pub admission_culprit: bool,
    /// A conversion webhook or an APIService is failing.
    pub other_culprit: bool,
    /// Why the evidence is insufficient to call the cluster healthy; `None` if it is sufficient.
    pub blind: Option<BlindSpot>,
    /// The known cause of impaired writes is not a webhook.
    pub not_a_hook: bool,
    /// Whether the control plane takes writes.
    pub writes: Writes,
}

impl From<ConclusionFacts> for Conclusion {
    fn from(facts: ConclusionFacts) -> Self {
        // A conversion webhook or an APIService breaks one kind of object only, which does not say why writes are impaired.
        if facts.admission_culprit {
            Self::HookFailing
        } else if facts
            .blind
            .is_some_and(|blind| !matches!(blind, BlindSpot::Stale(_)))
        {
            Self::CouldNotTell
        } else if facts.not_a_hook || matches!(facts.writes, Writes::Blocked | Writes::Delayed) {
            Self::NotAHook
        } else if facts.other_culprit {
            Self::HookFailing
        } else if facts.writes == Writes::Unknown || facts.blind.is_some() {
            // A stale list of webhooks counts only here: an API server that is down makes it stale, and must be named all the
            // same.
            Self::CouldNotTell
        } else {
            Self::Healthy
        }
    }
}

/// Whether a hook counts as failing. A bypassed one does as soon as it is suspect: the bypass keeps canaries away from it, so
/// that there can be little evidence.
pub fn is_unwell(health: Health, bypassed: bool) -> bool {
    health == Health::Failing || bypassed && health == Health::Suspect
}

impl Conclusion {
    /// The conclusion that an assessment permits.
    pub fn of(assessment: &Assessment) -> Self {
        let plane = &assessment.control_plane;
        let admission = |verdict: &Verdict| verdict.kind.is_admission();
        let counts = |verdict: &&Verdict| is_unwell(verdict.health, verdict.bypass.is_some());
        let unwell = || assessment.hooks.iter().filter(counts);
        Self::from(ConclusionFacts {
            admission_culprit: unwell().any(admission),
            other_culprit: unwell().any(|verdict| !admission(verdict)),
            blind: assessment.sources.blind_to(),
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

/// The result of one look at one cluster.
#[derive(Debug)]
struct Look {
    /// Adapts the suggested commands to this program and cluster.
    aim: CommandAim,
    conclusion: Conclusion,
    obstacle: Option<String>,
    assessment: Option<Arc<Assessment>>,
}

impl Look {
    fn document(&self) -> Value {
        document(self.conclusion, self.obstacle.as_deref(), &self.assessment)
    }
}

/// The JSON of one look, as `diagnose` and `status` print it.
pub fn document(conclusion: Conclusion, obstacle: Option<&str>, assessment: &impl Serialize) -> Value {
    json!({"conclusion": conclusion, "obstacle": obstacle, "assessment": assessment})
}

/// Diagnoses one or several clusters, prints the report and returns the exit code.
///
/// # Errors
/// When the only cluster cannot be diagnosed, or the report cannot be printed.
pub async fn diagnose(
    configs: Vec<Config>,
    arguments: &DiagnoseArguments,
    program: &'static str,
) -> anyhow::Result<ExitCode> {
    let config = match <[Config; 1]>::try_from(configs) {
        Ok([config]) => config,
        Err(configs) => return several::diagnose(configs, arguments, program).await,
    };
    let look = examine(config, arguments.at_most, program, &mut ProgressLine::default()).await?;
    match arguments.output {
        Output::Json => super::print(&to_json(&look.document())?),
        Output::Text => super::print_text(&report::report(&look)),
    }?;
    Ok(ExitCode::from(look.conclusion.exit_code()))
}

/// The settings of one look: closer than the daemon's, and without an election, Events, pushed alerts or bypasses.
fn for_one_look(mut config: Config) -> Config {
    config.scrapes.interval = config.scrapes.alert_interval;
    config.probes.rates.interval = config.probes.rates.alert_interval;
    config.canaries.interval = config.canaries.alert_interval;
    if let Some(prometheus) = &mut config.prometheus {
        prometheus.interval = prometheus.interval.min(STORED_EVERY);
    }
    // One look needs no leader and writes no Events: it reports to its caller.
    config.leadership.enabled = false;
    config.alertmanager.targets.clear();
    config.audit_log = None;
    // Without an election it would count as the leader, and bypass alongside the daemon.
    config.auto_break = config.auto_break.min(AutoBreak::Plan);
    config
}

/// Looks at one cluster for at most `at_most`, and shows the progress in `line`.
async fn examine(
    config: Config,
    at_most: Duration,
    program: &'static str,
    line: &mut ProgressLine,
) -> anyhow::Result<Look> {
    let config = for_one_look(config);
    let source = contexts::source(config.kubeconfig.as_deref(), config.context.as_deref());
    let started = line.during("connecting", Engine::start(&config)).await;
    let mut engine = started.map_err(|error| BadUsage::new(format!("{error:#}")))?;
    let (shown, obstacle) = (engine.shown.clone(), engine.obstacle.clone());
    let assessment = tokio::select! {
        assessment = look(&shown, &obstacle, at_most, line) => assessment,
        // Without its tasks the assessment would never change again.
        how = engine.ended() => anyhow::bail!(how),
    };
    let obstacle = obstacle.borrow().clone();
    engine.stop().await;
    let conclusion = match assessment.as_deref().map(Conclusion::of) {
        Some(Conclusion::Healthy) if obstacle.as_ref().is_some_and(Obstacle::is_another_server) => {
            Conclusion::CouldNotTell
        }
        Some(conclusion) => conclusion,
        None => Conclusion::CouldNotTell,
    };
    Ok(Look {
        aim: CommandAim { program, source },
        conclusion,
        obstacle: obstacle.map(|obstacle| obstacle.to_string()),
        assessment,
    })
}

/// Watches the assessments until their conclusion has lasted, or `at_most` is over. Returns the last one, if there was any.
async fn look(
    shown: &Reported,
    obstacle: &watch::Receiver<Option<Obstacle>>,
    at_most: Duration,
    line: &mut ProgressLine,
) -> Option<Arc<Assessment>> {
    let (began, mut latest) = (Instant::now(), None);
    let mut held: Option<(Conclusion, Instant)> = None;
    let mut tick = every(Duration::from_millis(250));
    while began.elapsed() < at_most {
        tick.tick().await;
        latest = shown.assessment.borrow().clone();
        let Some(assessment) = &latest else {
            let obstacle = obstacle.borrow().as_ref().map(ToString::to_string);
            let why = obstacle.unwrap_or_else(|| "nothing was heard yet".to_owned());
            line.show(&format!("{}: {why}", spent(began.elapsed(), at_most)));
            continue;
        };
        let conclusion = Conclusion::of(assessment);
        let since = held
            .filter(|(before, _)| *before == conclusion)
            .map_or(Instant::now(), |(_, at)| at);
        held = Some((conclusion, since));
        line.show(&progress(began.elapsed(), at_most, assessment));
        let looked = began.elapsed();
        let settled = looked >= AT_LEAST && since.elapsed() >= SETTLED;
        let enough = match conclusion {
            Conclusion::HookFailing => is_explained(assessment) || since.elapsed() >= UNSURE,
            Conclusion::Healthy => looked >= ALL_WELL && assessment.count(Health::Suspect) == 0,
            // Writes count as slow for a while after they were: without a known cause, that may be one bad moment.
            Conclusion::NotAHook => {
                assessment.control_plane.not_a_hook.is_some() && since.elapsed() >= UNSURE
            }
            Conclusion::CouldNotTell => false,
        };
        if settled && enough {
            break;
        }
    }
    latest
}

/// Whether a culprit is certain enough to report now: if writes do not flow, one that can hold them up.
fn is_explained(assessment: &Assessment) -> bool {
    let flow = assessment.control_plane.writes == Writes::Flowing;
    let mut culprits = assessment.culprits().filter(|verdict| suffices(verdict));
    culprits.any(|verdict| flow || verdict.can_hold_writes_up())
}

fn spent(looked: Duration, at_most: Duration) -> String {
    let [looked, at_most] = [looked, at_most].map(|span| span.as_secs_f64());
    format!("looking, {looked:.0} of at most {at_most:.0} s")
}

fn progress(looked: Duration, at_most: Duration, assessment: &Assessment) -> String {
    let scraped = assessment
        .sources
        .scrapes
        .iter()
        .filter(|scrape| scrape.age_seconds.is_some());
    format!(
        "{}: {} webhooks, {} API servers scraped, writes {}",
        spent(looked, at_most),
        assessment.hooks.len(),
        scraped.count(),
        assessment.control_plane.writes.as_str()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_bypassed_and_suspected_counts_as_failing_and_what_is_only_suspected_does_not() {
        let of = |bypassed| {
            let all = [Health::Healthy, Health::Suspect, Health::Failing, Health::Unknown];
            all.map(|health| is_unwell(health, bypassed))
        };
        assert_eq!(of(true), [false, true, true, false]);
        assert_eq!(of(false), [false, false, true, false]);
    }

    #[test]
    fn with_an_old_list_of_webhooks_nothing_is_healthy_and_an_api_server_that_is_down_is_still_named() {
        let of = |not_a_hook, blind| {
            Conclusion::from(ConclusionFacts {
                admission_culprit: false,
                other_culprit: false,
                blind,
                not_a_hook,
                writes: Writes::Flowing,
            })
        };
        let stale = Some(BlindSpot::Stale(Duration::from_secs(1_800)));
        assert_eq!(of(false, None), Conclusion::Healthy);
        assert_eq!(of(false, stale), Conclusion::CouldNotTell);
        assert_eq!(of(true, stale), Conclusion::NotAHook);
        assert_eq!(of(true, Some(BlindSpot::Unlisted)), Conclusion::CouldNotTell);
    }

    #[test]
    fn one_look_bypasses_nothing_whatever_the_daemon_may() {
        for (configured, looks) in [
            ("on", AutoBreak::Plan),
            ("plan", AutoBreak::Plan),
            ("off", AutoBreak::Off),
        ] {
            let text = format!("autoBreak: {configured}");
            let config = Config::parse(&text, &ConfigArguments::default()).unwrap();
            assert_eq!(for_one_look(config).auto_break, looks);
        }
    }
}
