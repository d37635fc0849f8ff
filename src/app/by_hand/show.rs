//! The words that people read.

use std::fmt::Write as _;

use serde_json::Value;

use crate::domain::act::bypass::edit::{Author, Change, Why, Wish};
use crate::domain::act::bypass::{Rung, STATE_ANNOTATION};
use crate::domain::cluster::hook::HookId;
use crate::io::act::breaker::Report;

/// Longest value that is shown whole, in characters.
const LONGEST: usize = 600;

/// What that means for writes, and what would be changed, field by field.
pub(super) fn changes(hook: &HookId, wish: &Wish, changes: &[Change]) -> String {
    let mut text = format!("{}: {}", hook.object(), meaning(wish));
    for change in changes {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {}", change.what);
        if change.what.contains(STATE_ANNOTATION) {
            let how = match (&change.before, &change.after) {
                (_, None) => "taken away",
                (None, _) => "written: what was there before, why, when and by whom",
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
    if changes.is_empty() {
        text.push_str("\n  (what hookwatch owned of its fields is given up)");
    }
    text
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// What it means for writes.
fn meaning(wish: &Wish) -> &'static str {
    match wish {
        Wish::Bypass { rung, .. } => match rung {
            Rung::Shield => {
                "what keeps the control plane alive will no longer go to this webhook; what tenants write still will."
            }
            Rung::Skip => {
                "nothing will go to this webhook any more, and objects are admitted without its review."
            }
        },
        Wish::Ignore { .. } => {
            "everything will still go to this webhook, and is admitted without its review when the call fails."
        }
        Wish::Probation => "only dry runs of hookwatch will go to this webhook.",
        Wish::Restore => "everything that it matches will go to this webhook again.",
    }
}

/// What was done, in a few words.
pub(super) fn done(wish: &Wish) -> String {
    let bypassed = |rung: &str, why: &Why| match why.expires {
        Some(expires) => format!("bypassed ({rung}) until {expires}"),
        None => format!("bypassed ({rung})"),
    };
    match wish {
        Wish::Bypass { rung, why } => bypassed(rung.as_str(), why),
        Wish::Ignore { why } => bypassed("ignore", why),
        Wish::Probation => "on probation".to_owned(),
        Wish::Restore => "restored".to_owned(),
    }
}

/// The reason of the Event, and whether it is a warning.
pub(super) fn event(wish: &Wish) -> (&'static str, bool) {
    match wish {
        Wish::Bypass { .. } | Wish::Ignore { .. } => ("Bypassed", true),
        Wish::Probation => ("OnProbation", false),
        Wish::Restore => ("Restored", false),
    }
}

/// What the Event says.
pub(super) fn note(hook: &HookId, wish: &Wish, report: &Report, author: &Author) -> String {
    let mut text = format!(
        "Webhook {:?} was {} by {}.",
        hook.webhook,
        done(wish),
        author.writer.identity
    );
    if let Wish::Bypass { why, .. } | Wish::Ignore { why } = wish {
        let _ = write!(text, " Reason: {}.", why.reason.trim_end_matches('.'));
    }
    let changed: Vec<&str> = report.changes.iter().map(|change| change.what.as_str()).collect();
    if !changed.is_empty() {
        let _ = write!(text, " Changed: {}.", changed.join(", "));
    }
    text
}
