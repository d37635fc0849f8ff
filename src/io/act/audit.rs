//! The audit log: one line of JSON for every change of a webhook configuration, made or refused.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;

use super::breaker::{PatchOutcome, PatchReport, PatchStep};
use crate::domain::act::bypass::edit::{Author, Desired};
use crate::domain::cluster::hook::HookId;
use crate::domain::time::Time;

/// One JSON line of the audit log.
#[derive(Debug, Serialize)]
pub struct AuditRecord {
    /// When the outcome was known.
    pub time: Time,
    /// `bypass`, `probation` or `restore`.
    pub action: &'static str,
    /// How far, for a bypass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rung: Option<&'static str>,
    /// `mutating` or `validating`.
    pub kind: &'static str,
    /// The configuration.
    pub configuration: String,
    /// `name` of the webhook's entry.
    pub webhook: String,
    /// The reason, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `applied`, `already_so`, `gone`, `refused`, `contended`, `renewed` or `gave_up`.
    pub outcome: &'static str,
    /// Details of the outcome, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The events of the patch session.
    pub steps: Vec<String>,
    /// The person or replica that acted.
    pub identity: String,
    /// The release of hookwatch.
    pub version: String,
}

impl AuditRecord {
    /// The record of a desired state and its outcome.
    pub fn new(hook: &HookId, desired: &Desired, author: &Author, report: &PatchReport, time: Time) -> Self {
        let (rung, reason) = match desired {
            Desired::Bypass { rung, why } => (Some(rung.as_str()), Some(why.reason.clone())),
            Desired::Ignore { why } => (Some("ignore"), Some(why.reason.clone())),
            Desired::Probation | Desired::Restore => (None, None),
        };
        let outcome = (report.outcome.as_str(), report.outcome.detail());
        Self {
            rung,
            steps: report.steps.iter().map(PatchStep::to_string).collect(),
            ..Self::of_order(hook, desired.action(), reason, outcome, author, time)
        }
    }

    /// The record of an order to the breaker, `freeze` or `unfreeze`, which is written on hookwatch's own object.
    pub fn of_order(
        object: &HookId,
        action: &'static str,
        reason: Option<String>,
        (outcome, detail): (&'static str, Option<String>),
        author: &Author,
        time: Time,
    ) -> Self {
        Self {
            time,
            action,
            rung: None,
            kind: object.kind.as_str(),
            configuration: object.configuration.to_string(),
            webhook: object.webhook.to_string(),
            reason,
            outcome,
            detail,
            steps: Vec::new(),
            identity: author.writer.identity.clone(),
            version: author.writer.version.clone(),
        }
    }
}

impl PatchOutcome {
    /// The name in the audit log and in labels.
    pub fn as_str(&self) -> &'static str {
        self.into()
    }

    /// The details of the outcome, or its name where there are none.
    pub fn words(&self) -> String {
        self.detail().unwrap_or_else(|| self.as_str().to_owned())
    }

    /// Details of the outcome, if there are any.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Applied | Self::AlreadySo | Self::Gone => None,
            Self::Refused(why) => Some(why.to_string()),
            Self::Contended => Some("others keep changing the object".to_owned()),
            Self::Renewed => Some("it was bypassed again meanwhile, and is left as it is".to_owned()),
            Self::GaveUp(why) => Some(why.clone()),
        }
    }
}

/// Opens a log to append to it. Creates it, readable only by its owner, where there is none.
///
/// # Errors
/// When it cannot be opened.
pub fn open(log: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600).open(log)
}

/// Appends one line, in one write, so that several processes can share a log.
///
/// # Errors
/// When it cannot be opened or written.
pub fn append(log: &Path, record: &AuditRecord) -> io::Result<()> {
    let mut line = serde_json::to_string(record)?;
    line.push('\n');
    let mut file = open(log)?;
    file.write_all(line.as_bytes())?;
    file.sync_data()
}
