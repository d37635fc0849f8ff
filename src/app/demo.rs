//! `hookwatch demo`: runs the unchanged daemon against a control plane in a lab, and breaks that.
//!
//! The daemon gets a kubeconfig and nothing else. The demo reads its assessments over HTTP, as any client could.

mod breaking;
mod casualties;
mod daemon;
mod director;
mod flaps;
mod judge;
mod pages;
mod played;
mod report;
mod stage;
mod survival;
mod teller;
mod timeline;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ColorChoice;
use clap::builder::PossibleValuesParser;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::breaking::BreakerFollower;
use self::director::Director;
use self::pages::Pages;
use self::played::Played;
use self::stage::DemoStage;
use self::teller::Teller;
use crate::app::progress::during;
use crate::app::{Output, print, to_json};
use crate::domain::act::bypass::Rung;
use crate::lab::control_plane::ControlPlaneKind;
use crate::lab::envtest::{binaries, namespace};
use crate::lab::monitoring::{Monitoring, Programs};
use crate::lab::scenario::{SCENARIOS, SHAPES, Scenario, by_name};

pub use self::breaking::BreakerReport;
pub use self::daemon::{DaemonArguments, DaemonHandle, StartingDaemon, start_configured, start_daemon};
pub use self::director::Timing;
pub use self::flaps::Flaps;
pub use self::judge::SeenVerdict;
pub use self::pages::DeliveredPage;
pub use self::report::{DemoReport, ExpectedVerdict};
pub use self::survival::{Survival, WithoutBreaker, survive};

/// The scenario of a demo without `--scenario`: the one that latency metrics alone show last.
const DEFAULT_SCENARIO: &str = "validating-hang";

/// The exit code of a scenario that this machine cannot play: that of a skipped test in automake.
const SKIPPED: u8 = 77;

/// The options of `hookwatch demo`.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArguments {
    /// List the scenarios and exit
    #[arg(long)]
    pub list: bool,
    /// What to break [default: validating-hang; with --hold: nothing]
    #[arg(long, value_name = "NAME", hide_possible_values = true, value_parser = scenario_names())]
    pub scenario: Option<String>,
    /// What to play on; envtest is a real etcd and kube-apiserver, as setup-envtest installs them
    #[arg(long, value_name = "KIND", value_enum, default_value_t)]
    pub control_plane: ControlPlaneKind,
    /// How to print the outcome
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// Leave everything running, the fault included, until interrupted
    #[arg(long)]
    pub hold: bool,
    /// End the fault after this long, print as JSON what survived it, and exit
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, conflicts_with_all = ["hold", "with_prometheus"])]
    pub lasting: Option<Duration>,
    /// Run Prometheus and Alertmanager with the shipped rules around it, and show each page arriving and ending
    ///
    /// Both have to be installed. The rules wait as long as they do in production: 15 s before a page
    /// for a hook that blocks writes, 30 s for one that delays them.
    #[arg(long)]
    pub with_prometheus: bool,
    /// Let the daemon bypass the culprit, at most this far: shield or skip
    #[arg(
        long,
        value_name = "RUNG",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "shield",
        value_parser = Rung::parse
    )]
    pub auto_break: Option<Rung>,
    /// Folder for the daemon to record to, for `replay`
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Whether to use colours; auto means on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub color: ColorChoice,
}

impl DemoArguments {
    /// Must be called before anything else is started: with envtest it may re-execute the process in a network namespace, where
    /// a real API server finds addresses for backends.
    ///
    /// # Errors
    /// When envtest is not installed, or the command could not be started in the namespace.
    pub fn make_ready(&self) -> anyhow::Result<()> {
        if self.control_plane == ControlPlaneKind::Envtest && !self.list {
            // Checked first, so that missing binaries are reported before the namespace is entered.
            binaries::find()?;
            namespace::enter()?;
        }
        Ok(())
    }
}

fn scenario_names() -> PossibleValuesParser {
    PossibleValuesParser::new(SCENARIOS.iter().chain(&SHAPES).map(|scenario| scenario.name))
}

/// What one demo does.
pub struct DemoOptions {
    /// The control plane to play on.
    pub control_plane: ControlPlaneKind,
    /// The scenario to play.
    pub scenario: &'static Scenario,
    /// How long its parts take.
    pub timing: Timing,
    /// Where the timeline goes; `None` for no timeline.
    pub timeline: Option<Box<dyn Write + Send>>,
    /// Whether the timeline has colours.
    pub colour: bool,
    /// Prometheus and Alertmanager; `None` if alerts are not followed.
    pub programs: Option<Programs>,
    /// The highest rung at which the daemon may bypass a culprit; `None` for no bypass.
    pub auto_break: Option<Rung>,
    /// Whether to play the scenario once more without the breaker if the breaker bypassed something.
    pub compare: bool,
}

/// Plays one scenario from the start of the lab to its end; if asked to, a second time without the breaker, for comparison.
///
/// # Errors
/// When the lab or the daemon fails, or a signal interrupts it. A wrong verdict is no error but a report.
pub async fn run(
    options: DemoOptions,
    mut start_daemon: impl FnMut(DaemonArguments) -> StartingDaemon,
) -> anyhow::Result<DemoReport> {
    let (kind, scenario, timing) = (options.control_plane, options.scenario, options.timing.clone());
    let compare = options.compare;
    let mut played = play(options, &mut start_daemon).await?;
    if let Some(lasted) = played.lasted.filter(|_| compare) {
        let without = uninterrupted(survive(kind, scenario, (timing, lasted), None, start_daemon)).await?;
        played.compare(WithoutBreaker {
            fault_removed_after_seconds: without.fault_removed_after_seconds,
            first_write_after_seconds: without.first_write_after_seconds,
            casualties: without.casualties,
        })?;
    }
    played.close()
}

async fn play(
    options: DemoOptions,
    start_daemon: impl FnMut(DaemonArguments) -> StartingDaemon,
) -> anyhow::Result<Played> {
    let started = Instant::now();
    let stage = DemoStage::set_up(
        options.control_plane,
        Some(options.scenario),
        options.auto_break,
        start_daemon,
    );
    let stage = uninterrupted(during(SETTING_UP, stage)).await?;
    let teller = Teller {
        out: options.timeline,
        colour: options.colour,
        started,
    };
    let mut director = Director::new(&stage, options.scenario, options.timing, teller);
    director.breaking = options.auto_break.map(|_| BreakerFollower::new(stage.client()));
    let play = async {
        if let Some(programs) = &options.programs {
            director.pages = Some(Pages::new(stage.monitor(programs).await?));
        }
        director.play().await
    };
    let played = uninterrupted(play).await;
    stage.leave(played).await
}

const INTERRUPTED: &str = "interrupted";
const SETTING_UP: &str = "starting the control plane and the daemon";

/// Runs `hookwatch demo`. The exit code is 0 if the daemon was right, 1 if it was not, and 77 if this machine cannot play the
/// scenario.
///
/// # Errors
/// When the lab or the daemon fails, or a signal interrupts a demo that is not held.
pub async fn command(
    arguments: DemoArguments,
    start_daemon: impl FnMut(DaemonArguments) -> StartingDaemon,
) -> anyhow::Result<ExitCode> {
    if arguments.list {
        print(&list(arguments.output))?;
        return Ok(ExitCode::SUCCESS);
    }
    let programs = match arguments.with_prometheus.then(Programs::find).transpose() {
        Ok(programs) => programs,
        Err(missing) => {
            eprintln!("hookwatch: SKIPPED: {missing}");
            return Ok(ExitCode::from(SKIPPED));
        }
    };
    if arguments.hold {
        hold(&arguments, programs.as_ref(), start_daemon).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let scenario = by_name(arguments.scenario.as_deref().unwrap_or(DEFAULT_SCENARIO))?;
    if let Some(why) = scenario.unplayable(arguments.control_plane.reach()) {
        eprintln!("hookwatch: SKIPPED {}: {why}", scenario.name);
        return Ok(ExitCode::from(SKIPPED));
    }
    if let Some(lasting) = arguments.lasting {
        print_survival(&arguments, scenario, lasting, start_daemon).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = DemoOptions {
        control_plane: arguments.control_plane,
        scenario,
        timing: Timing::default(),
        timeline: timeline(arguments.output),
        colour: has_colour(arguments.color),
        programs,
        auto_break: arguments.auto_break,
        compare: true,
    };
    let report = run(options, start_daemon).await?;
    if arguments.output == Output::Json {
        print(&to_json(&report)?)?;
    }
    Ok(if report.correct {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Plays a fault of this duration, and prints which clients survived it.
async fn print_survival(
    arguments: &DemoArguments,
    scenario: &'static Scenario,
    lasting: Duration,
    start_daemon: impl FnMut(DaemonArguments) -> StartingDaemon,
) -> anyhow::Result<()> {
    let long = (Timing::at_any_instant(), lasting);
    let survival = survive(
        arguments.control_plane,
        scenario,
        long,
        arguments.auto_break,
        start_daemon,
    );
    Ok(print(&to_json(&uninterrupted(survival).await?)?)?)
}

/// Keeps the lab, its users and the daemon running until a signal comes.
async fn hold(
    arguments: &DemoArguments,
    programs: Option<&Programs>,
    start_daemon: impl FnMut(DaemonArguments) -> StartingDaemon,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let scenario = arguments.scenario.as_deref().map(by_name).transpose()?;
    let stage = tokio::select! {
        stage = during(SETTING_UP, DemoStage::set_up(arguments.control_plane, scenario, arguments.auto_break, start_daemon)) => stage?,
        interrupted = interruption() => return interrupted,
    };
    let held = tokio::select! {
        held = keep(&stage, arguments, programs, started) => held,
        interrupted = interruption() => interrupted,
    };
    stage.leave(held).await
}

/// Injects the fault, then runs until it is stopped.
async fn keep(
    stage: &DemoStage,
    arguments: &DemoArguments,
    programs: Option<&Programs>,
    started: Instant,
) -> anyhow::Result<()> {
    let monitoring = match programs {
        Some(programs) => Some(stage.monitor(programs).await?),
        None => None,
    };
    print(&held(stage, arguments, monitoring.as_ref()))?;
    let _injected = match arguments.scenario.as_deref() {
        None => None,
        Some(name) => {
            let teller = Teller {
                out: timeline(arguments.output),
                colour: has_colour(arguments.color),
                started,
            };
            let director = Director::new(stage, by_name(name)?, Timing::default(), teller);
            Some(director.play_until_broken().await?)
        }
    };
    std::future::pending().await
}

/// Whether the timeline has colours, by the option and the terminal.
fn has_colour(color: ColorChoice) -> bool {
    match color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    }
}

fn timeline(output: Output) -> Option<Box<dyn Write + Send>> {
    match output {
        Output::Text => Some(Box::new(std::io::stdout())),
        Output::Json => None,
    }
}

/// The addresses and commands that a user needs to look around in a held demo.
fn held(stage: &DemoStage, arguments: &DemoArguments, monitoring: Option<&Monitoring>) -> String {
    let kubeconfig = stage.kubeconfig_path().display().to_string();
    let (api_server, daemon) = (stage.api_url(), stage.daemon_url());
    // Neither can be reached from outside the network namespace.
    let inside = namespace::entered().then(|| {
        let user = if namespace::has_user() {
            " --user --preserve-credentials"
        } else {
            ""
        };
        format!("nsenter --target {} --net{user}", std::process::id())
    });
    let prometheus = monitoring.map(Monitoring::prometheus_url);
    let alertmanager = monitoring.map(Monitoring::alertmanager_url);
    match arguments.output {
        Output::Json => {
            let document = json!({
                "scenario": arguments.scenario, "kubeconfig": kubeconfig, "api_server": api_server,
                "daemon": daemon, "enter": inside, "prometheus": prometheus, "alertmanager": alertmanager,
            });
            format!("{document}\n")
        }
        Output::Text => format!(
            "kubeconfig  {kubeconfig}\n\
             daemon      {daemon}\n\
             API server  {api_server}\n\
             {}{}\
             try         {}kubectl --kubeconfig {kubeconfig} get validatingwebhookconfigurations\n\
             {}Ctrl-C ends it all.\n\n",
            prometheus.map_or_else(String::new, |url| format!("Prometheus  {url}\n")),
            alertmanager.map_or_else(String::new, |url| format!("alerts      {url}\n")),
            inside.as_ref().map_or_else(String::new, |inside| format!("{inside} ")),
            inside.map_or_else(String::new, |inside| format!(
                "All of it is in a network namespace of its own: begin every command, curl and hookwatch too, with\n  {inside}\n"
            )),
        ),
    }
}

fn list(output: Output) -> String {
    let all = SCENARIOS.iter().chain(&SHAPES);
    match output {
        Output::Text => all
            .map(|scenario| format!("{:<24}  {}\n", scenario.name, scenario.summary))
            .collect(),
        Output::Json => {
            let rows: Vec<_> = all
                .map(|scenario| json!({"name": scenario.name, "summary": scenario.summary}))
                .collect();
            format!("{}\n", json!(rows))
        }
    }
}

/// The result of `work`; an error if a signal interrupts it.
async fn uninterrupted<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::select! {
        done = work => done,
        interrupted = interruption() => interrupted.and_then(|()| anyhow::bail!(INTERRUPTED)),
    }
}

/// Resolves when SIGINT or SIGTERM comes.
async fn interruption() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use axum::routing::get;
    use axum::{Json, Router};
    use clap::Parser;
    use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
    use kube::Api;
    use serde_json::Value;
    use tokio::sync::oneshot;

    use super::*;
    use crate::lab::cluster::{LabHook, client_for};

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        demo: DemoArguments,
    }

    #[test]
    fn the_options_are_read_and_an_unknown_scenario_is_refused_with_the_known_ones() {
        let cli = Cli::try_parse_from([
            "demo",
            "--scenario",
            "quiet",
            "--output",
            "json",
            "--color",
            "never",
        ]);
        let demo = cli.unwrap().demo;
        assert_eq!(demo.scenario.as_deref(), Some("quiet"));
        assert_eq!(
            (demo.output, demo.color, demo.hold),
            (Output::Json, ColorChoice::Never, false)
        );
        let error = Cli::try_parse_from(["demo", "--scenario", "nonsense"]).unwrap_err();
        assert!(error.to_string().contains("two-culprits"), "{error}");
    }

    #[test]
    fn the_list_has_a_line_for_every_scenario() {
        assert_eq!(list(Output::Text).lines().count(), SCENARIOS.len() + SHAPES.len());
        let rows: Vec<Value> = serde_json::from_str(&list(Output::Json)).unwrap();
        assert_eq!(rows.len(), SCENARIOS.len() + SHAPES.len());
    }

    /// What a fake daemon noted, for the test to look at.
    #[derive(Debug, Default)]
    struct Noted {
        kubeconfig: Mutex<PathBuf>,
        stopped: Mutex<bool>,
        /// Whether every fourth assessment says that nothing is wrong.
        unsteady: bool,
        asked: AtomicUsize,
    }

    impl Noted {
        fn denies(&self) -> bool {
            let before = self.asked.fetch_add(1, Ordering::Relaxed);
            self.unsteady && before % 4 == 3
        }
    }

    /// A daemon that knows one thing: opa's caBundle is not what it was at the start. Then it says `cause`.
    fn fake_daemon(noted: Arc<Noted>, cause: &'static str) -> impl FnMut(DaemonArguments) -> StartingDaemon {
        move |arguments| {
            let noted = Arc::clone(&noted);
            Box::pin(async move {
                *noted.kubeconfig.lock().unwrap() = arguments.kubeconfig.clone();
                let client = client_for(&std::fs::read_to_string(&arguments.kubeconfig)?).await?;
                let api: Api<ValidatingWebhookConfiguration> = Api::all(client);
                let first = ca_bundle(&api).await;
                let denying = Arc::clone(&noted);
                let app = Router::new().route(
                    "/api/v1/assessment",
                    get(move || {
                        let (api, first, denied) = (api.clone(), first.clone(), denying.denies());
                        async move { Json(fake_assessment(!denied && ca_bundle(&api).await != first, cause)) }
                    }),
                );
                let listener = tokio::net::TcpListener::bind(&arguments.listen).await?;
                let address = listener.local_addr()?;
                let (stop, stopped) = oneshot::channel::<()>();
                let server = tokio::spawn(async move {
                    axum::serve(listener, app)
                        .with_graceful_shutdown(async move { drop(stopped.await) })
                        .await
                });
                let stop = Box::pin(async move {
                    *noted.stopped.lock().unwrap() = true;
                    drop(stop);
                    Ok(server.await??)
                });
                Ok(DaemonHandle {
                    address,
                    probe_interval: Duration::from_secs(5),
                    stop,
                })
            })
        }
    }

    async fn ca_bundle(api: &Api<ValidatingWebhookConfiguration>) -> Option<Vec<u8>> {
        let configuration = api.get(LabHook::Opa.configuration()).await.unwrap();
        let webhook = configuration.webhooks.unwrap_or_default().remove(0);
        webhook.client_config.ca_bundle.map(|bundle| bundle.0)
    }

    fn fake_assessment(broken: bool, cause: &str) -> Value {
        let hooks: Vec<_> = LabHook::ALL
            .iter()
            .map(|hook| {
                let failing = broken && *hook == LabHook::Opa;
                json!({
                    "kind": format!("{:?}", hook.kind()), "configuration": hook.configuration(),
                    "webhook": hook.webhook(), "health": if failing { "Failing" } else { "Healthy" },
                    "cause": failing.then_some(cause), "effect": if failing { "Blocking" } else { "None" },
                    "confidence": 0.9, "evidence": ["the certificate is signed by nobody we know"],
                })
            })
            .collect();
        let writes = if broken { "Blocked" } else { "Flowing" };
        let plane = json!({"writes": writes, "summary": "", "not_a_hook": null});
        json!({"at": "2026-11-21T00:11:02Z", "control_plane": plane, "hooks": hooks})
    }

    /// A writer whose text can still be read when it is gone.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn hasty() -> Timing {
        Timing {
            poll: Duration::from_millis(20),
            baseline: Duration::from_millis(300),
            linger: Duration::from_millis(300),
            verdict: Duration::from_secs(2),
            recovery: Duration::from_secs(30),
            ..Timing::default()
        }
    }

    async fn demo(cause: &'static str) -> (DemoReport, String, Arc<Noted>) {
        demo_by(Noted::default(), cause).await
    }

    async fn demo_by(noted: Noted, cause: &'static str) -> (DemoReport, String, Arc<Noted>) {
        // The lab's clients take the process's provider; a second test installing it is no error.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        // What is taken back has to be read before the fault ends, on a busy machine too.
        let linger = if noted.unsteady {
            Duration::from_secs(2)
        } else {
            hasty().linger
        };
        let (noted, out) = (Arc::new(noted), Shared::default());
        let options = DemoOptions {
            control_plane: ControlPlaneKind::Embedded,
            scenario: by_name("ca-mismatch").unwrap(),
            timing: Timing { linger, ..hasty() },
            timeline: Some(Box::new(out.clone())),
            colour: false,
            programs: None,
            auto_break: None,
            compare: true,
        };
        let report = run(options, fake_daemon(Arc::clone(&noted), cause))
            .await
            .unwrap();
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        (report, text, noted)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_daemon_that_is_right_is_told_so_and_everything_is_cleared_away() {
        let (report, text, noted) = demo("TlsInvalid").await;
        assert!(report.correct, "{text}\n{report:?}");
        assert_eq!(report.verdicts.len(), 1);
        assert_eq!(report.control_plane, "Blocked");
        assert!(report.time_to_verdict_seconds.is_some());
        assert!(report.recovered_after_seconds.is_some());
        // Blocked writes are waited for until one has failed.
        assert!(report.first_failure_at.is_some(), "{text}");

        let labels = ["started", "quiet", "fault injected", "first evidence", "verdict"];
        let labels = labels.into_iter().chain(["fault removed", "recovered", "right"]);
        let places: Vec<_> = labels
            .map(|label| text.find(label).unwrap_or_else(|| panic!("no {label}: {text}")))
            .collect();
        assert!(places.is_sorted(), "{text}");
        assert!(text.contains("x509") || text.contains("certificate"), "{text}");
        assert_eq!(report.flaps, Flaps::default());
        assert!(!text.contains("flap"), "{text}");

        assert!(*noted.stopped.lock().unwrap());
        assert!(
            !noted.kubeconfig.lock().unwrap().exists(),
            "the kubeconfig stays behind"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_daemon_that_names_another_cause_is_wrong() {
        let (report, text, _) = demo("Slow").await;
        assert!(!report.correct, "{text}");
        assert_eq!(report.verdicts[0].cause, "Slow");
        assert_eq!(report.time_to_verdict_seconds, None);
        assert!(text.contains("verdict wrong"), "{text}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_daemon_that_takes_its_verdict_back_for_a_moment_is_said_to_flap() {
        let unsteady = Noted {
            unsteady: true,
            ..Noted::default()
        };
        let (report, text, _) = demo_by(unsteady, "TlsInvalid").await;
        assert!(
            report.flaps.verdicts >= 1 && report.flaps.writes >= 1,
            "{report:?}"
        );
        assert!(text.contains("verdicts flapped "), "{text}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_daemon_that_does_not_start_ends_the_demo() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let options = DemoOptions {
            control_plane: ControlPlaneKind::Embedded,
            scenario: by_name("quiet").unwrap(),
            timing: hasty(),
            timeline: None,
            colour: false,
            programs: None,
            auto_break: None,
            compare: true,
        };
        let error = run(options, |_| Box::pin(async { anyhow::bail!("no such daemon") }))
            .await
            .unwrap_err();
        assert!(format!("{error:#}").contains("no such daemon"), "{error:#}");
    }
}
