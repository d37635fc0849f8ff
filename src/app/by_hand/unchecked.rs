//! `hookwatch unchecked`: lists the objects that were admitted without a webhook's review.

use std::process::ExitCode;

use super::Session;
use super::arguments::{Instant, RequestedRung, UncheckedArguments};
use crate::app::{BadUsage, Output, print, print_text, tell, to_json};
use crate::domain::act::bypass::{BypassStanding, standing};
use crate::domain::cluster::hook::HookId;
use crate::domain::report::unchecked::{GapReason, Question, ReviewGap};
use crate::domain::time::Time;
use crate::io::report::unchecked::{ObjectLister, hook_of};

/// Lists objects admitted without review.
///
/// # Errors
/// When the cluster cannot be reached, the arguments name no webhook or period, or nothing can be printed.
pub async fn unchecked(arguments: UncheckedArguments) -> anyhow::Result<ExitCode> {
    let session = Session::open(arguments.cluster).await?;
    let (id, object) = session.find(&arguments.target, arguments.kind).await?;
    let now = (session.clock)();
    let current = current_bypass(&object, &id);
    let at = |instant: Instant| match instant {
        Instant::At(time) => time,
        Instant::Ago(ago) => now.before(ago),
    };
    let Some(from) = arguments.since.map(at).or(current.and_then(|(_, since)| since)) else {
        let why = "it is not bypassed now, and nothing says since when: give --since";
        return Err(BadUsage::new(why).into());
    };
    let to = arguments.until.map_or(now, at);
    if to < from {
        return Err(BadUsage::new("--until is before --since").into());
    }
    let reason = arguments.rung.map(RequestedRung::gap_reason);
    let reason = reason.or(current.map(|(reason, _)| reason)).unwrap_or_else(|| {
        tell(
            "hookwatch: nothing tells how it was bypassed then: everything that it matches is listed; after a shield \
             give --rung shield",
        );
        GapReason::Skipped
    });
    let Some(hook) = hook_of(id.kind, &object, &id.webhook) else {
        let why = format!("{}: there is no such webhook any more", id.object());
        return Err(BadUsage::new(why).into());
    };
    let question = Question {
        hook: &hook,
        gap: ReviewGap {
            from,
            to,
            way: reason,
        },
        own: &session.arguments.namespace,
    };
    let report = ObjectLister::new(&session.connection).list(question).await;
    match session.arguments.output {
        Output::Json => print(&to_json(&report)?),
        Output::Text => print_text(&(report.lines().join("\n") + "\n")),
    }?;
    Ok(if report.not_listed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Why a webhook's review is missing now, and since when, according to its object; `None` where it is not bypassed.
fn current_bypass(object: &serde_json::Value, id: &HookId) -> Option<(GapReason, Option<Time>)> {
    match standing(object, &id.webhook) {
        BypassStanding::Bypassed { rung, entry, .. } => {
            Some((rung.map_or(GapReason::Skipped, GapReason::from), entry.since()))
        }
        BypassStanding::Ignored { entry } => Some((GapReason::FailedOpen, entry.since())),
        _ => None,
    }
}
