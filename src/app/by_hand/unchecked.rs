//! `hookwatch unchecked`: what went in while a hook did not check it, to be looked through.

use std::process::ExitCode;

use super::Session;
use super::arguments::{Far, Instant, UncheckedArguments};
use crate::app::{BadUsage, Output, print, print_text, tell, to_json};
use crate::domain::act::bypass::{BypassStanding, standing};
use crate::domain::cluster::hook::HookId;
use crate::domain::report::unchecked::{GapReason, Question, ReviewGap};
use crate::domain::time::Time;
use crate::io::report::unchecked::{ObjectLister, hook_of};

/// Lists objects admitted without review.
///
/// # Errors
/// When there is no way to the cluster.
pub async fn unchecked(arguments: UncheckedArguments) -> anyhow::Result<ExitCode> {
    let session = Session::open(arguments.cluster).await?;
    let (id, object) = session.find(&arguments.target, arguments.kind).await?;
    let now = (session.clock)();
    let noted = noted(&object, &id);
    let at = |instant: Instant| match instant {
        Instant::At(time) => time,
        Instant::Ago(ago) => now.before(ago),
    };
    let Some(from) = arguments.since.map(at).or(noted.and_then(|(_, since)| since)) else {
        let why = "it is not bypassed now, and nothing says since when: give --since";
        return Err(BadUsage::new(why).into());
    };
    let to = arguments.until.map_or(now, at);
    if to < from {
        return Err(BadUsage::new("--until is before --since").into());
    }
    let way = arguments.rung.map(Far::way).or(noted.map(|(way, _)| way));
    let way = way.unwrap_or_else(|| {
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
        gap: ReviewGap { from, to, way },
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

/// How, and since when, it is bypassed according to its object.
fn noted(object: &serde_json::Value, id: &HookId) -> Option<(GapReason, Option<Time>)> {
    match standing(object, &id.webhook) {
        BypassStanding::Bypassed { rung, entry, .. } => {
            Some((rung.map_or(GapReason::Skipped, GapReason::from), entry.since()))
        }
        BypassStanding::Ignored { entry } => Some((GapReason::FailedOpen, entry.since())),
        _ => None,
    }
}
