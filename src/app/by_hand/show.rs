//! The texts of `break` and `restore` about a change: before it is made, after it, and in its Event.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::domain::act::bypass::edit::{Author, Desired, FieldChange, Why};
use crate::domain::act::bypass::{Rung, STATE_ANNOTATION};
use crate::domain::cluster::hook::HookId;
use crate::domain::observe::observations::Spared;
use crate::io::act::breaker::PatchReport;

/// Longest value that is shown whole, in characters.
const LONGEST_VALUE: usize = 600;

/// Describes a planned change: what it means for writes, then each field.
pub(super) fn changes(hook: &HookId, desired: &Desired, changes: &[FieldChange]) -> String {
    let mut text = format!("{}: {}", hook.object(), meaning(desired));
    for change in changes {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {}", change.what);
        if change.what.contains(STATE_ANNOTATION) {
            let how = match (&change.before, &change.after) {
                (_, None) => "taken away",
                (None, _) => {
                    "written; it says what was there before, and why, when and by whom that was changed"
                }
                _ => "replaced",
            };
            let _ = write!(text, "\n    ({how})");
            continue;
        }
        for (sign, value) in [('-', &change.before), ('+', &change.after)] {
            if let Some(value) = value {
                let _ = write!(text, "\n    {sign} {}", short(value));
            }
        }
    }
    // An edit without field changes only removes hookwatch's entries from `managedFields`.
    if changes.is_empty() {
        text.push_str("\n  (what hookwatch owned of its fields is given up)");
    }
    text
}

/// Describes a planned change for programs.
pub(super) fn document(hook: &HookId, changes: &[FieldChange]) -> Value {
    let changes = changes
        .iter()
        .map(|change| json!({"what": change.what, "before": change.before, "after": change.after}));
    json!({
        "kind": hook.kind.as_str(),
        "configuration": &*hook.configuration,
        "webhook": &*hook.webhook,
        "changes": changes.collect::<Vec<_>>(),
    })
}

/// A warning for a person who requests a shield that may not help.
pub(super) fn caution(spared: Spared) -> Option<&'static str> {
    match spared {
        Spared::Nothing => Some(
            "This shield restores no write: the webhook matches nothing that a shield spares. To let tenants' writes skip it, use --rung skip.",
        ),
        Spared::NoKnownWriter => Some(
            "This shield may restore no write: of what it spares, the webhook matches only what hookwatch itself is known to write. To let tenants' writes skip it, use --rung skip.",
        ),
        Spared::ControlPlane | Spared::Renewals => None,
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// What the desired state means for writes, as the end of a sentence.
fn meaning(desired: &Desired) -> &'static str {
    match desired {
        Desired::Bypass { rung, .. } => match rung {
            Rung::Shield => {
                "what keeps the control plane alive will no longer go to this webhook; what tenants write still will."
            }
            Rung::Skip => {
                "nothing will go to this webhook any more, and objects are admitted without its review."
            }
        },
        Desired::Ignore { .. } => {
            "everything will still go to this webhook, and is admitted without its review when the call fails."
        }
        Desired::Probation => "only dry runs of hookwatch will go to this webhook.",
        Desired::Restore => "everything that it matches will go to this webhook again.",
    }
}

/// What was done to the webhook, as a participle.
pub(super) fn done(desired: &Desired) -> String {
    let bypassed = |rung: &str, why: &Why| match why.expires {
        Some(expires) => format!("bypassed ({rung}) until {expires}"),
        None => format!("bypassed ({rung})"),
    };
    match desired {
        Desired::Bypass { rung, why } => bypassed(rung.as_str(), why),
        Desired::Ignore { why } => bypassed("ignore", why),
        Desired::Probation => "on probation".to_owned(),
        Desired::Restore => "restored".to_owned(),
    }
}

/// The reason of the Event, and whether it is a warning.
pub(super) fn event(desired: &Desired) -> (&'static str, bool) {
    match desired {
        Desired::Bypass { .. } | Desired::Ignore { .. } => ("Bypassed", true),
        Desired::Probation => ("OnProbation", false),
        Desired::Restore => ("Restored", false),
    }
}

/// The text of the Event.
pub(super) fn note(hook: &HookId, desired: &Desired, report: &PatchReport, author: &Author) -> String {
    let mut text = format!(
        "Webhook {:?} was {} by {}.",
        hook.webhook,
        done(desired),
        author.writer.identity
    );
    if let Desired::Bypass { why, .. } | Desired::Ignore { why } = desired {
        let _ = write!(text, " Reason: {}.", why.reason.trim_end_matches('.'));
    }
    let changed: Vec<&str> = report.changes.iter().map(|change| change.what.as_str()).collect();
    if !changed.is_empty() {
        let _ = write!(text, " Changed: {}.", changed.join(", "));
    }
    text
}
