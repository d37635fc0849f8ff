//! The arguments of the commands that change or read a cluster without a daemon.

use std::path::PathBuf;
use std::time::Duration;

use super::super::Output;
use crate::domain::act::bypass::edit::{Desired, Why};
use crate::domain::act::bypass::{LONGEST_BY_HAND, Rung};
use crate::domain::cluster::hook::HookKind;
use crate::domain::report::unchecked::GapReason;
use crate::domain::time::Time;

/// The arguments of all these commands: which cluster, and how to print.
#[derive(Debug, Clone, clap::Args)]
pub struct ClusterArguments {
    /// Kubeconfig to use; default: as kubectl finds it, or the Pod's own account
    #[arg(long, env = "HOOKWATCH_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, env = "HOOKWATCH_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace that hookwatch lives in, whose objects a shield spares
    #[arg(
        long,
        env = "HOOKWATCH_NAMESPACE",
        value_name = "NAME",
        default_value = "hookwatch"
    )]
    pub namespace: String,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// The arguments of all commands that change something; `unfreeze` has no others.
#[derive(Debug, Clone, clap::Args)]
pub struct ActArguments {
    /// The cluster
    #[command(flatten)]
    pub cluster: ClusterArguments,
    /// File to append one line of JSON to for every action
    #[arg(long, env = "HOOKWATCH_AUDIT_LOG", value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
}

/// `hookwatch break`.
#[derive(Debug, Clone, clap::Args)]
pub struct BreakArguments {
    /// The configuration, and the webhook in it; several are confirmed together
    #[arg(value_name = "CONFIG/WEBHOOK", value_parser = target, required = true)]
    pub targets: Vec<(String, String)>,
    /// Which kind of configuration, where both have one of this name: validating or mutating
    #[arg(long, value_parser = kind)]
    pub kind: Option<HookKind>,
    /// How far to bypass: shield or skip; or ignore, where match conditions are not supported
    #[arg(long, value_parser = RequestedRung::parse, default_value = "shield")]
    pub rung: RequestedRung,
    /// Longest duration; after it `hookwatch restore --expired` ends the bypass
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, default_value = "30m")]
    pub at_most: Duration,
    /// The reason, stored with the bypass
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub reason: String,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
    /// The cluster, and where the action is noted
    #[command(flatten)]
    pub act: ActArguments,
}

/// `hookwatch restore`.
#[derive(Debug, Clone, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub struct RestoreArguments {
    /// The configuration, and the webhook in it
    #[arg(value_name = "CONFIG/WEBHOOK", value_parser = target, group = "which")]
    pub target: Option<(String, String)>,
    /// Every bypass
    #[arg(long, group = "which")]
    pub all: bool,
    /// Every bypass past its end, and every one without a known end
    #[arg(long, group = "which")]
    pub expired: bool,
    /// Only this kind of configuration: validating or mutating
    #[arg(long, value_parser = kind)]
    pub kind: Option<HookKind>,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
    /// The cluster, and where the action is noted
    #[command(flatten)]
    pub act: ActArguments,
}

/// `hookwatch unchecked`.
#[derive(Debug, Clone, clap::Args)]
pub struct UncheckedArguments {
    /// The configuration, and the webhook in it
    #[arg(value_name = "CONFIG/WEBHOOK", value_parser = target)]
    pub target: (String, String),
    /// Which kind of configuration, where both have one of this name: validating or mutating
    #[arg(long, value_parser = kind)]
    pub kind: Option<HookKind>,
    /// The start: an instant like 2026-11-21T00:11:02Z, or how long ago, like 90m; default: the start of the bypass
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub since: Option<Instant>,
    /// The end; default: now
    #[arg(long, value_name = "WHEN", value_parser = when)]
    pub until: Option<Instant>,
    /// How far it was bypassed: a shield admits less without review; default: as far as it is now, or skip
    #[arg(long, value_parser = RequestedRung::parse)]
    pub rung: Option<RequestedRung>,
    /// The cluster
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// The value of `--rung`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedRung {
    /// A rung that the daemon uses too.
    Rung(Rung),
    /// The API server ignores the webhook's failures.
    Ignore,
}

impl RequestedRung {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "ignore" => Ok(Self::Ignore),
            text => Rung::parse(text)
                .map(Self::Rung)
                .map_err(|why| format!("{why}, ignore")),
        }
    }

    pub(super) fn desired(self, why: Why) -> Desired {
        match self {
            Self::Rung(rung) => Desired::Bypass { rung, why },
            Self::Ignore => Desired::Ignore { why },
        }
    }

    /// Why objects are admitted without review at this rung.
    pub(super) fn gap_reason(self) -> GapReason {
        match self {
            Self::Rung(rung) => rung.into(),
            Self::Ignore => GapReason::FailedOpen,
        }
    }
}

/// A time on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instant {
    /// An instant.
    At(Time),
    /// This long before now.
    Ago(Duration),
}

/// `hookwatch plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct PlanArguments {
    /// The configuration, and the webhook in it; several as for `break`
    #[arg(value_name = "CONFIG/WEBHOOK", value_parser = target, required = true)]
    pub targets: Vec<(String, String)>,
    /// Which kind of configuration, where both have one of this name: validating or mutating
    #[arg(long, value_parser = kind)]
    pub kind: Option<HookKind>,
    /// How far to bypass: shield or skip; or ignore, where match conditions are not supported
    #[arg(long, value_parser = RequestedRung::parse, default_value = "shield")]
    pub rung: RequestedRung,
    /// Longest duration, as for `break`
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, default_value = "30m")]
    pub at_most: Duration,
    /// The cluster
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// `hookwatch freeze`.
#[derive(Debug, Clone, clap::Args)]
pub struct FreezeArguments {
    /// The reason, shown to everyone who looks
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub reason: String,
    /// The cluster, and where the action is noted
    #[command(flatten)]
    pub act: ActArguments,
}

/// Reads `CONFIG/WEBHOOK`.
pub fn target(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((configuration, webhook)) if !configuration.is_empty() && !webhook.is_empty() => {
            Ok((configuration.to_owned(), webhook.to_owned()))
        }
        _ => Err("give the configuration and the webhook in it, with a slash between them".to_owned()),
    }
}

/// Reads `validating` or `mutating`.
pub fn kind(text: &str) -> Result<HookKind, String> {
    let mut kinds = HookKind::ADMISSION.into_iter();
    let found = kinds.find(|kind| kind.as_str() == text);
    found.ok_or_else(|| "use validating or mutating".to_owned())
}

/// Reads an instant, or how long ago it was.
fn when(text: &str) -> Result<Instant, String> {
    if let Some(at) = Time::parse(text) {
        return Ok(Instant::At(at));
    }
    let ago = humantime::parse_duration(text);
    ago.map(Instant::Ago)
        .map_err(|_| "use an instant like 2026-11-21T00:11:02Z, or how long ago, like 90m".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    crate::app::duration(text, &(Duration::from_secs(1)..=LONGEST_BY_HAND))
}

fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("give a reason, for others who find the bypass".to_owned()),
        text => Ok(text.to_owned()),
    }
}

/// The user at this machine, as `USER@HOST`.
pub(super) fn user_at_host() -> String {
    let named = |variable| std::env::var(variable).ok().filter(|user| !user.is_empty());
    let user = named("USER").or_else(|| named("LOGNAME"));
    let user = user.unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    format!("{user}@{host}")
        .chars()
        .filter(|character| !character.is_control())
        .take(200)
        .collect()
}
