//! The command line: its arguments, and the exit codes of the commands.

use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::app::config::{Config, ConfigArguments};
#[cfg(feature = "lab")]
use crate::app::demo;
use crate::app::replay::ReplayArguments;
use crate::app::{self, BAD_USAGE, BadUsage, Output, audit, by_hand, diagnose, run, terminal};
use crate::io::telemetry::{self, LogFormat};

/// Keeps a Kubernetes control plane writable when an admission webhook goes bad
#[derive(Debug, Parser)]
#[command(name = "hookwatch", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// How log lines look
    #[arg(
        long,
        global = true,
        env = "HOOKWATCH_LOG_FORMAT",
        value_enum,
        default_value_t
    )]
    log_format: LogFormat,
    /// What is logged, for example info or hookwatch=debug
    #[arg(long, global = true, env = "HOOKWATCH_LOG", value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch a cluster until stopped by a signal
    Run(ConfigArguments),
    /// Look at a cluster once and say which webhook, if any, is to blame
    ///
    /// Exit code: 0 healthy, 1 a webhook is failing, 2 could not tell, 3 writes are impaired and no webhook is to
    /// blame, 64 bad usage. With several contexts the worst, in the order 1, 3, 64, 2, 0.
    Diagnose(diagnose::DiagnoseArguments),
    /// Say which webhook would take the control plane down, what fails in what order, and what to change
    ///
    /// Reads a cluster, or manifests without any network access. Changes nothing. Exit code: 0 no finding, or none worse
    /// than info; 1 a warning; 2 a critical finding; 3 nothing could be audited; 64 bad usage. With several contexts the
    /// worst, in the order 2, 64, 3, 1, 0.
    Audit(audit::AuditArguments),
    /// Show what a running daemon sees, once
    ///
    /// Exit code as that of `diagnose`: 0 healthy, 1 a webhook is failing, 2 could not tell, or no daemon answers, 3
    /// writes are impaired and no webhook is to blame, 64 bad usage.
    Status(terminal::StatusArguments),
    /// Show what a running daemon sees, live
    ///
    /// Keys: q quit, arrows or j and k move, Enter evidence, s sort, / filter, p pause, ? help.
    Top(terminal::TopArguments),
    /// Break a control plane in this process, and see whether the daemon finds the culprit
    ///
    /// Exit code: 0 the verdict was right, 1 it was wrong, 77 the scenario cannot run here.
    #[cfg(feature = "lab")]
    Demo(demo::DemoArguments),
    /// Diagnose a recording, offline
    Replay(ReplayArguments),
    /// Bypass webhooks for a limited time
    ///
    /// Shows all changes and asks for confirmation once. One that is refused does not hold up the others. Exit code: 0 all done,
    /// 1 not all done, 64 bad usage.
    Break(by_hand::BreakArguments),
    /// Restore bypassed webhooks, with or without a daemon
    ///
    /// Shows the change and asks for confirmation. Exit code: 0 done, or nothing to do; 1 something could not be
    /// restored; 64 bad usage.
    Restore(by_hand::RestoreArguments),
    /// Show what `break` would change, and change nothing
    Plan(by_hand::PlanArguments),
    /// List objects admitted without review while a webhook was bypassed or failed open
    ///
    /// Objects created or changed in that time that the webhook matches, by kind and namespace. Exit code: 0 listed, 1 not
    /// everything could be listed, 64 bad usage.
    Unchecked(by_hand::UncheckedArguments),
    /// Keep every daemon from starting a bypass
    Freeze(by_hand::FreezeArguments),
    /// Take that back
    Unfreeze(by_hand::ActArguments),
    /// Check a configuration without opening anything
    CheckConfig(ConfigArguments),
}

/// The command line as declared, for checks of documents against it.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// How long the process waits, after a command has ended, for background work such as a line being written to an audit log.
const LINGERS: Duration = Duration::from_millis(500);

/// Name of the executable that kubectl runs for `kubectl hookwatch`.
const PLUGIN: &str = "kubectl-hookwatch";

/// Whether the binary was called as a kubectl plugin, by the first word of its command line.
fn is_plugin(called: Option<&std::ffi::OsStr>) -> bool {
    let name = called
        .map(std::path::Path::new)
        .and_then(std::path::Path::file_stem);
    name.is_some_and(|name| name == PLUGIN)
}

/// The command that a user types to run this program.
const fn program(plugin: bool) -> &'static str {
    if plugin { "kubectl hookwatch" } else { "hookwatch" }
}

/// Reads the command line.
///
/// # Errors
/// When it is invalid, or only asks for help.
fn read(mut command: clap::Command) -> Result<Arguments, clap::Error> {
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    if let Some(why) = contradiction(&matches) {
        return Err(command.error(ErrorKind::ArgumentConflict, why));
    }
    let mut arguments = Arguments::from_arg_matches(&matches)?;
    // Otherwise HOOKWATCH_SERVER would answer for a cluster that was typed.
    let server = match &mut arguments.command {
        Command::Status(status) => &mut status.server,
        Command::Top(top) => &mut top.server,
        _ => return Ok(arguments),
    };
    server.cluster |= names_cluster(&matches);
    Ok(arguments)
}

/// Whether a context or a kubeconfig was typed. Only for commands that take both.
fn names_cluster(matches: &ArgMatches) -> bool {
    let given = matches.subcommand().map(|(_, given)| given);
    given.is_some_and(|given| typed(given, "context") || typed(given, "kubeconfig"))
}

fn typed(given: &ArgMatches, argument: &str) -> bool {
    given.value_source(argument) == Some(ValueSource::CommandLine)
}

/// The message for arguments that contradict each other: two daemons to ask, or both manifests and a cluster to audit. Only
/// typed arguments count: `--cluster` and files override environment variables.
fn contradiction(matches: &ArgMatches) -> Option<&'static str> {
    let (name, given) = matches.subcommand()?;
    match name {
        "status" | "top" if given.get_flag("cluster") && typed(given, "server") => {
            Some("the argument '--server <URL>' cannot be used with '--cluster'")
        }
        "status" | "top" if typed(given, "server") && names_cluster(matches) => Some(
            "the argument '--server <URL>' cannot be used with '--context <NAME>' or '--kubeconfig <FILE>': it names the daemon itself",
        ),
        "audit" if typed(given, "paths") && names_cluster(matches) => Some(
            "the arguments '--context <NAME>' and '--kubeconfig <FILE>' cannot be used with '[FILE]...': manifests are of no cluster",
        ),
        _ => None,
    }
}

/// Parses the command line, runs the command and returns its exit code. Starts logging first.
pub fn main() -> ExitCode {
    let plugin = is_plugin(std::env::args_os().next().as_deref());
    let arguments = match read(command().bin_name(program(plugin))) {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { BAD_USAGE } else { 0 };
            // Nothing is left to do when even the terminal is gone.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    // A one-shot command's result is its output; only a daemon logs by default.
    let quiet = !matches!(arguments.command, Command::Run(_));
    let level = if quiet { "off" } else { "info" };
    // A refused request and a certificate that does not verify are observations, not errors of ours.
    let filter = arguments
        .log
        .unwrap_or_else(|| format!("{level},kube_client=off,rustls_platform_verifier=off"));
    if let Err(error) = telemetry::start(arguments.log_format, &filter) {
        app::tell(format_args!("hookwatch: {error}"));
        return ExitCode::from(BAD_USAGE);
    }
    // Must come before anything that could open a TLS connection.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let failure = match arguments.command {
        // For these commands 1 means a warning or a failing webhook, so an error needs another exit code.
        Command::Audit(_) => audit::NOT_AUDITED,
        Command::Diagnose(_) | Command::Status(_) => diagnose::Conclusion::CouldNotTell.exit_code(),
        _ => 1,
    };
    dispatch(arguments.command, plugin).unwrap_or_else(|error| {
        if let Some(BadUsage(mistakes)) = error.downcast_ref() {
            for mistake in mistakes {
                app::tell(format_args!("hookwatch: {mistake}"));
            }
            return ExitCode::from(BAD_USAGE);
        }
        app::tell(format_args!("hookwatch: {error:#}"));
        ExitCode::from(failure)
    })
}

fn dispatch(command: Command, plugin: bool) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(arguments) => {
            let config = Config::load(&arguments).map_err(BadUsage::of)?;
            block_on(run::until_signal(config))
        }
        Command::Diagnose(arguments) => {
            let configs = diagnose::configs(&arguments.config).map_err(BadUsage::of)?;
            block_on(diagnose::diagnose(configs, &arguments, program(plugin)))
        }
        Command::Audit(arguments) => block_on(audit::audit(arguments)),
        Command::Status(arguments) => block_on(terminal::status(arguments, program(plugin), plugin)),
        Command::Top(arguments) => block_on(terminal::top(arguments, program(plugin), plugin)),
        #[cfg(feature = "lab")]
        Command::Demo(arguments) => {
            arguments.make_ready()?;
            let mut record = arguments.record.clone();
            block_on(demo::command(arguments, move |daemon| {
                // Only the first daemon is recorded: a demo may start a second one to compare with.
                let record = record.take();
                demo::start_daemon(demo::DaemonArguments { record, ..daemon })
            }))
        }
        Command::Replay(arguments) => {
            let result = arguments.replay()?;
            match arguments.output {
                Output::Text => app::print_text(&result.to_text()),
                Output::Json => app::print(&app::to_json(&result.document())?),
            }?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Break(arguments) => block_on(by_hand::break_hooks(arguments)),
        Command::Restore(arguments) => block_on(by_hand::restore(arguments)),
        Command::Plan(arguments) => block_on(by_hand::plan_hooks(arguments)),
        Command::Unchecked(arguments) => block_on(by_hand::unchecked(arguments)),
        Command::Freeze(arguments) => block_on(by_hand::freeze(arguments)),
        Command::Unfreeze(arguments) => block_on(by_hand::unfreeze(arguments)),
        Command::CheckConfig(arguments) => {
            Config::load(&arguments).map_err(BadUsage::of)?;
            // These mistakes do not keep a daemon from starting, so they do not make the configuration invalid.
            for complaint in telemetry::TelemetrySettings::from_environment().complaints {
                app::tell(format_args!("hookwatch: {complaint}"));
            }
            app::print("the configuration is valid\n")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(work);
    // A credential plugin that hangs, or a name that is still being resolved, would keep the process alive without end.
    runtime.shutdown_timeout(LINGERS);
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn the_mode_of_a_daemon_may_follow_a_space_or_an_equals_sign_and_is_on_without_a_value() {
        for (given, mode) in [
            (&["--auto-break", "plan"][..], "plan"),
            (&["--auto-break=off"], "off"),
            (&["--auto-break"], "on"),
            (&["--auto-break", "--listen", "127.0.0.1:1"], "on"),
        ] {
            let typed = [&["hookwatch", "run"], given].concat();
            let read = command().try_get_matches_from(typed).expect("it is understood");
            let run = read.subcommand_matches("run").expect("run");
            assert_eq!(
                run.get_one::<String>("auto_break").map(String::as_str),
                Some(mode),
                "{given:?}"
            );
        }
    }

    #[test]
    fn two_ways_to_a_daemon_and_manifests_with_a_cluster_contradict_each_other() {
        for (typed, contradicts) in [
            (
                &["status", "--cluster", "--server", "http://127.0.0.1:1"][..],
                true,
            ),
            (&["top", "--server", "http://127.0.0.1:1", "--cluster"], true),
            (&["status", "--server", "http://127.0.0.1:1"], false),
            (&["top", "--server", "http://127.0.0.1:1", "--context", "a"], true),
            (&["status", "--context", "a", "--kubeconfig", "b"], false),
            (&["audit", "--context", "a", "deploy.yaml"], true),
            (&["audit", "--kubeconfig", "a", "deploy.yaml"], true),
            (&["audit", "--context", "a", "--context", "b"], false),
            (&["audit", "deploy.yaml"], false),
            (&["top", "--cluster"], false),
            (&["check-config"], false),
        ] {
            let typed = [&["hookwatch"], typed].concat();
            let read = command().try_get_matches_from(&typed).expect("it is understood");
            assert_eq!(contradiction(&read).is_some(), contradicts, "{typed:?}");
        }
    }

    #[test]
    fn only_the_name_of_the_plugin_makes_it_one() {
        for (called, plugin) in [
            ("kubectl-hookwatch", true),
            ("/usr/local/bin/kubectl-hookwatch", true),
            ("kubectl-hookwatch.exe", true),
            ("hookwatch", false),
            ("/kubectl-hookwatch/hookwatch", false),
            ("", false),
        ] {
            assert_eq!(is_plugin(Some(called.as_ref())), plugin, "{called}");
        }
        assert!(!is_plugin(None));
    }
}
