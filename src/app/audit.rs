//! `hookwatch audit`: what would happen if a webhook died now, and what to change today.

mod baseline;
mod formats;
mod several;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::baseline::AuditBaseline;
use super::by_hand::arguments::{kind, target};
use super::contexts::{self, shell_word};
use super::engine::clock;
use super::progress::during;
use super::{BadUsage, to_json};
use crate::domain::audit::findings::{UNREADABLE_INPUT, sort};
use crate::domain::audit::{Auditor, BackendFailure, Estate, Finding, FindingSeverity, Forecast, findings};
use crate::domain::cluster::hook::{HookId, HookKind};
use crate::io::client::Connection;
use crate::io::cluster::estate::{UnreadableObject, assemble, cluster, manifests};

/// The exit code where nothing could be audited.
pub const NOT_AUDITED: u8 = 3;

/// What `audit` was asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct AuditArguments {
    /// Manifests to audit instead of a cluster: files, folders, or - for standard input
    #[arg(value_name = "FILE")]
    pub paths: Vec<PathBuf>,
    /// Kubeconfig to use; default: as kubectl finds it, or the Pod's own account
    #[arg(long, env = "HOOKWATCH_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; may be given several times, for several clusters
    #[arg(long, env = "HOOKWATCH_CONTEXT", value_name = "NAME")]
    pub context: Vec<String>,
    /// Forecast of one webhook alone: the configuration, and the webhook in it
    #[arg(long, value_name = "CONFIG/WEBHOOK", value_parser = target)]
    pub if_down: Option<(String, String)>,
    /// Which kind of configuration --if-down is about, where both have one of this name: validating or mutating
    #[arg(long, value_parser = kind, requires = "if_down")]
    pub kind: Option<HookKind>,
    /// Findings that were accepted, as --write-baseline wrote them; they are left out
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Accept all findings of now: write them to a file
    #[arg(long, value_name = "FILE", conflicts_with = "if_down")]
    pub write_baseline: Option<PathBuf>,
    /// How to print what was found
    #[arg(long, value_enum, default_value_t)]
    pub output: AuditOutput,
}

/// How `audit` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum AuditOutput {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// SARIF 2.1.0, for code hosts.
    Sarif,
    /// JUnit, for CI.
    Junit,
}

/// The result of an audit.
pub struct AuditReport {
    /// Findings that the baseline does not accept, the worst first.
    pub findings: Vec<Finding>,
    /// How many findings the baseline accepts.
    pub accepted: usize,
    /// The forecasts.
    pub forecasts: Vec<Forecast>,
    /// How many webhooks there are.
    pub hooks: usize,
    /// Whether a cluster was read; otherwise a usual control plane is assumed.
    pub is_cluster: bool,
    /// Whether every affected write is listed.
    pub in_depth: bool,
    /// Arguments that select the same cluster, for hookwatch or kubectl, or the same files; each with a space before it.
    pub source: String,
}

/// Audits and prints.
///
/// # Errors
/// When the cluster or a file cannot be read, a baseline cannot be read or written, or nothing can be printed.
pub async fn audit(arguments: AuditArguments) -> anyhow::Result<ExitCode> {
    if arguments.context.len() > 1 {
        return several::audit(&arguments).await;
    }
    let baseline = arguments.baseline.as_deref().map(AuditBaseline::read);
    let mut baseline = baseline.transpose()?.unwrap_or_default();
    if arguments.write_baseline.is_some() {
        // A new baseline includes what an old one accepts.
        baseline = AuditBaseline::default();
    }
    let (estate, unreadable) = if arguments.paths.is_empty() {
        during("reading the cluster", of_cluster(&arguments)).await?
    } else {
        if let Some(why) = arguments.paths.iter().find_map(|path| missing(path)) {
            return Err(BadUsage::new(why).into());
        }
        let read = manifests::read(&arguments.paths);
        anyhow::ensure!(
            !read.objects.is_empty() || !read.unreadable.is_empty(),
            "the files hold no object of Kubernetes"
        );
        let (estate, mut unreadable) = assemble(read.objects, None, Some(clock()()));
        unreadable.extend(read.unreadable);
        (estate, unreadable)
    };
    let report = report(&estate, &unreadable, &arguments, &baseline).map_err(BadUsage::new)?;
    if let Some(path) = &arguments.write_baseline {
        AuditBaseline::of(&report.findings).write(path)?;
        super::tell(format_args!(
            "hookwatch: {} findings are accepted in {}",
            report.findings.len(),
            path.display()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    super::print(&match arguments.output {
        AuditOutput::Text => text::report(&report),
        AuditOutput::Json => to_json(&formats::document(&report))?,
        AuditOutput::Sarif => to_json(&formats::sarif(&report))?,
        AuditOutput::Junit => formats::junit(&report),
    })?;
    Ok(ExitCode::from(exit_code(&report.findings)))
}

/// Reads the cluster of a context; without one that of the current context.
///
/// # Errors
/// When it cannot be reached, or no webhook configuration can be listed.
async fn of_cluster(arguments: &AuditArguments) -> anyhow::Result<(Estate, Vec<UnreadableObject>)> {
    let context = arguments.context.first().map(String::as_str);
    let connection = Connection::open(arguments.kubeconfig.as_deref(), context).await;
    let connection = connection.map_err(BadUsage::new)?;
    let read = cluster::read(&connection).await;
    if read.is_blind {
        let told = read.unreadable.iter();
        let told: Vec<String> = told.map(|one| format!("{}: {}", one.object, one.why)).collect();
        anyhow::bail!("no webhook configuration can be listed: {}", told.join("; "));
    }
    let (estate, mut unreadable) = assemble(read.objects, Some(read.unlisted), Some(clock()()));
    unreadable.extend(read.unreadable);
    Ok((estate, unreadable))
}

/// Why a named file or folder cannot be opened; `None` if it can. Unreadable files in a folder are findings instead.
fn missing(path: &Path) -> Option<String> {
    if path == Path::new("-") {
        return None;
    }
    let error = std::fs::metadata(path).err()?;
    Some(format!("cannot open {}: {error}", path.display()))
}

/// The exit code for the worst finding: 0 for none or info, 1 for a warning, 2 for a critical one.
pub fn exit_code(findings: &[Finding]) -> u8 {
    match findings.iter().map(|finding| finding.severity).max() {
        None | Some(FindingSeverity::Info) => 0,
        Some(FindingSeverity::Warning) => 1,
        Some(FindingSeverity::Critical) => 2,
    }
}

/// Why `--if-down` chooses no webhook of a cluster.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NotChosen {
    #[error("there is no webhook {1:?} in a configuration {0:?}")]
    Missing(String, String),
    #[error("{0}/{1} is both validating and mutating: say which by --kind")]
    Ambiguous(String, String),
}

/// Makes the report: findings and forecasts.
///
/// # Errors
/// When `--if-down` names no webhook, or two.
fn report(
    estate: &Estate,
    unreadable: &[UnreadableObject],
    arguments: &AuditArguments,
    baseline: &AuditBaseline,
) -> Result<AuditReport, NotChosen> {
    let auditor = Auditor::new(estate);
    let chosen = match &arguments.if_down {
        Some(target) => chosen(estate, target, arguments.kind)?,
        None => (0..estate.subjects.len()).collect(),
    };
    let mut found: Vec<Finding> = unreadable.iter().map(finding).collect();
    found.extend(findings::audit(&auditor));
    if arguments.if_down.is_some() {
        let chosen: Vec<&HookId> = chosen.iter().map(|at| &auditor.subject(*at).hook.id).collect();
        found.retain(|finding| {
            let mut about = finding.hook.iter().chain(&finding.others);
            about.any(|hook| chosen.contains(&hook))
        });
    }
    sort(&mut found);
    let before = found.len();
    found.retain(|finding| !baseline.accepts(finding));
    let forecasts = chosen
        .iter()
        .flat_map(|at| BackendFailure::ALL.map(|failure| auditor.forecast(*at, failure)));
    Ok(AuditReport {
        accepted: before - found.len(),
        findings: found,
        forecasts: forecasts.collect(),
        hooks: estate.subjects.len(),
        is_cluster: estate.is_cluster,
        in_depth: arguments.if_down.is_some(),
        source: source(arguments),
    })
}

fn source(arguments: &AuditArguments) -> String {
    let paths = arguments.paths.iter().map(|path| path.to_string_lossy());
    let paths: String = paths.map(|path| format!(" {}", shell_word(&path))).collect();
    if paths.is_empty() {
        let context = arguments.context.first().map(String::as_str);
        return contexts::source(arguments.kubeconfig.as_deref(), context);
    }
    paths
}

fn chosen(
    estate: &Estate,
    (configuration, webhook): &(String, String),
    kind: Option<HookKind>,
) -> Result<Vec<usize>, NotChosen> {
    let fits = |at: &usize| {
        let id = &estate.subjects[*at].hook.id;
        &*id.configuration == configuration
            && &*id.webhook == webhook
            && kind.is_none_or(|kind| id.kind == kind)
    };
    let found: Vec<usize> = (0..estate.subjects.len()).filter(fits).collect();
    let (configuration, webhook) = (configuration.clone(), webhook.clone());
    match found.len() {
        0 => Err(NotChosen::Missing(configuration, webhook)),
        1 => Ok(found),
        _ => Err(NotChosen::Ambiguous(configuration, webhook)),
    }
}

fn finding(unreadable: &UnreadableObject) -> Finding {
    let message = format!("{}. It is not audited.", unreadable.why.trim_end_matches('.'));
    Finding {
        source: unreadable.source.clone(),
        ..Finding::new(UNREADABLE_INPUT, unreadable.object.clone(), message)
    }
}
