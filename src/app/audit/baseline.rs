//! Accepted findings, by id and object, up to a severity. Lines do not count: a finding that moves is not new.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::app::{BadUsage, to_json};
use crate::domain::audit::{Finding, FindingSeverity};
use crate::io::file;

const MAX_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AuditBaseline {
    accepted: BTreeSet<Accepted>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Accepted {
    id: String,
    object: String,
    /// The highest severity that is accepted. Files of older releases do not have it.
    #[serde(default = "warning")]
    severity: FindingSeverity,
}

const fn warning() -> FindingSeverity {
    FindingSeverity::Warning
}

impl From<&Finding> for Accepted {
    fn from(finding: &Finding) -> Self {
        Self {
            id: finding.kind.id.to_owned(),
            object: finding.object.clone(),
            severity: finding.severity,
        }
    }
}

impl AuditBaseline {
    pub(super) fn of(findings: &[Finding]) -> Self {
        Self {
            accepted: findings.iter().map(Accepted::from).collect(),
        }
    }

    pub(super) fn read(path: &Path) -> Result<Self, BadUsage> {
        let why = |why: String| BadUsage::new(format!("--baseline {}: {why}", path.display()));
        let text = file::read(path, MAX_BYTES).map_err(|error| why(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| why(format!("{error}; write it by --write-baseline")))
    }

    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        fs::write(path, to_json(self)?).with_context(|| format!("--write-baseline {}", path.display()))
    }

    pub(super) fn accepts(&self, finding: &Finding) -> bool {
        let finding = Accepted::from(finding);
        // Entries are in the order of id, object and severity: the next one has this id and object only if it accepts the
        // finding.
        let next = self.accepted.range(&finding..).next();
        next.is_some_and(|next| (&next.id, &next.object) == (&finding.id, &finding.object))
    }
}
