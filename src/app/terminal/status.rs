//! `hookwatch status`: what a running daemon sees, once.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::Value;

use super::view::shown::{ShownAssessment, ShownHook, lasting};
use super::view::state::in_trouble;
use super::{ServerArguments, parse};
use crate::app::diagnose::{Conclusion, ConclusionFacts, document, is_unwell};
use crate::app::text::{CleanText, clean, fit, or_dash, width};
use crate::app::{Output, to_json};
use crate::domain::text::human_seconds;
use crate::domain::vocabulary::Health;

/// Most webhooks that are shown, so that the output fits on one screen. The JSON has all of them.
const HOOKS: usize = 15;
/// Most lines of each other list.
const LINES: usize = 5;

/// What `status` was asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct StatusArguments {
    /// Which daemon
    #[command(flatten)]
    pub server: ServerArguments,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// The facts for the conclusion, from the daemon's answer.
fn facts(seen: &ShownAssessment) -> ConclusionFacts {
    let admission = |hook: &ShownHook| {
        let kind = hook.kind.as_str();
        kind.eq_ignore_ascii_case("validating") || kind.eq_ignore_ascii_case("mutating")
    };
    let is_unwell = |hook: &&ShownHook| is_unwell(hook.health, hook.bypass.is_some());
    let culprits = || seen.hooks.iter().filter(is_unwell);
    ConclusionFacts {
        admission_culprit: culprits().any(admission),
        other_culprit: culprits().any(|hook| !admission(hook)),
        blind: seen.blind_to(),
        not_a_hook: seen.control_plane.not_a_hook.is_some(),
        writes: seen.control_plane.writes,
    }
}

/// Asks the daemon, prints its assessment, and returns the exit code.
///
/// # Errors
/// When no client for the cluster can be made, or standard output cannot be written to. A daemon that does not answer is no
/// error but exit code 2.
pub async fn status(
    arguments: StatusArguments,
    program: &'static str,
    in_cluster: bool,
) -> anyhow::Result<ExitCode> {
    let mut daemon = arguments.server.daemon(in_cluster).await?;
    let answer = crate::app::progress::during(&format!("asking {}", daemon.name()), daemon.ask()).await;
    let asked = answer.map_err(|error| {
        let hint = arguments.server.hint(&error, program, in_cluster);
        hint.map_or_else(|| error.to_string(), |hint| format!("{error}\n  {hint}"))
    });
    let read = asked.and_then(|answer| {
        let aim = arguments.server.aim(program, in_cluster);
        let seen = parse(&answer.assessment, &aim).map_err(|error| format!("{}: {error}", daemon.name()))?;
        Ok((answer, seen))
    });
    let (conclusion, printed) = match read {
        Ok((answer, seen)) => {
            let conclusion = match answer.silent {
                None => Conclusion::from(facts(&seen)),
                // Its last assessment may be out of date.
                Some(_) => Conclusion::CouldNotTell,
            };
            let printed = match arguments.output {
                Output::Text => report(conclusion, &seen, answer.silent.as_deref(), &daemon.name()),
                Output::Json => {
                    let assessment: Value = serde_json::from_slice(&answer.assessment)?;
                    to_json(&document(conclusion, answer.silent.as_deref(), &assessment))?
                }
            };
            (conclusion, printed)
        }
        Err(why) => {
            crate::app::tell(format_args!("hookwatch: {why}"));
            let conclusion = Conclusion::CouldNotTell;
            let printed = match arguments.output {
                Output::Text => String::new(),
                Output::Json => to_json(&document(conclusion, why.lines().next(), &()))?,
            };
            (conclusion, printed)
        }
    };
    crate::app::print(&printed)?;
    Ok(ExitCode::from(conclusion.exit_code()))
}

/// One screen: the conclusion, the control plane, the webhooks in trouble, the breaker, and which daemon was asked.
fn report(conclusion: Conclusion, seen: &ShownAssessment, silent: Option<&str>, server: &str) -> String {
    let mut text = String::new();
    let mut line = |said: &str| {
        text.push_str(said);
        text.push('\n');
    };
    line(conclusion.sentence());
    if let Some(silent) = silent {
        line(&format!(
            "  The daemon does not judge any more, all of this is old: {}",
            clean(silent)
        ));
    }
    if let Some(why) = seen.blind_to() {
        line(&format!("  hookwatch does not see everything: {why}."));
    }
    line(&format!("  {}", seen.sentence()));
    if let Some(advice) = seen.advice() {
        line(&format!("  next: {advice}"));
    }
    some(&seen.control_plane.clocks, &mut line);
    some(&seen.control_plane.symptoms, &mut line);
    control_plane(seen, &mut line);
    hooks(seen, &mut line);
    breaker(seen, &mut line);
    sources(seen, server, &mut line);
    text
}

/// Prints the first `LINES` lines of a list, and how many more there are.
fn some(lines: &[CleanText], line: &mut impl FnMut(&str)) {
    lines
        .iter()
        .take(LINES)
        .for_each(|said| line(&format!("  {said}")));
    if lines.len() > LINES {
        line(&format!("  and {} more", lines.len() - LINES));
    }
}

fn control_plane(seen: &ShownAssessment, line: &mut impl FnMut(&str)) {
    let plane = &seen.control_plane;
    let lasted = plane.since.map_or_else(String::new, |since| {
        format!(
            " for {}, since {} UTC",
            lasting(seen.at.since(since)),
            since.as_read_at(seen.at)
        )
    });
    let seconds = |seconds: Option<f64>| seconds.map_or_else(|| "not known".to_owned(), human_seconds);
    line("control plane");
    line(&format!("  writes     {}{lasted}", plane.writes.as_str()));
    line(&format!(
        "  per write  {}, usually {}",
        seconds(plane.write_seconds),
        seconds(plane.usual_write_seconds)
    ));
    let canaries: Vec<String> = plane
        .canaries
        .iter()
        .map(|canary| format!("{} {}", canary.canary, canary.state))
        .collect();
    line(&format!("  canaries   {}", canaries.join(", ")));
    if let Some(found) = &plane.not_a_hook {
        line(&format!(
            "  no hook    {}, confidence {:.2}",
            found.cause, found.confidence
        ));
        some(&found.evidence, line);
    }
}

fn breaker(seen: &ShownAssessment, line: &mut impl FnMut(&str)) {
    let breaker = &seen.breaker;
    line("breaker");
    let instead = if breaker.wanted == breaker.effective {
        String::new()
    } else {
        format!(" instead of {}", breaker.wanted)
    };
    line(&format!("  {}{instead}: {}", breaker.effective, breaker.why));
    if let Some(frozen) = &breaker.frozen {
        line(&format!("  {frozen}"));
    }
    if let Some(follows) = seen.left_to_leader() {
        line(&format!("  {follows}"));
    }
    for standing in breaker.hooks.iter().take(LINES) {
        line(format!("  {}: {}. {}", standing.webhook, standing.short(), standing.words).trim_end());
    }
    if breaker.hooks.len() > LINES {
        line(&format!("  and {} more", breaker.hooks.len() - LINES));
    }
}

fn sources(seen: &ShownAssessment, server: &str, line: &mut impl FnMut(&str)) {
    line("sources");
    line(&format!(
        "  {}, at {} UTC",
        clean(server),
        seen.at.as_read_at(seen.at)
    ));
    line(&format!("  {}", seen.leader()));
    some(&seen.sources.inventory_trouble, line);
    if let Some(why) = &seen.sources.api_servers_trouble {
        line(&format!("  API servers: {why}"));
    }
    some(&seen.sources.probes.late, line);
    for problem in seen.problems.iter().take(LINES) {
        line(&format!("  {}: {}", problem.object, problem.what));
    }
    if seen.problems.len() > LINES {
        line(&format!(
            "  and {} more objects that could not be made sense of",
            seen.problems.len() - LINES
        ));
    }
}

fn hooks(seen: &ShownAssessment, line: &mut impl FnMut(&str)) {
    let count = |health| seen.count(health);
    if !seen.sources.hooks_listed {
        line("webhooks\n  the webhook configurations could not be read");
        return;
    }
    line(&format!(
        "webhooks: {} failing, {} suspect, {} unknown, {} healthy",
        count(Health::Failing),
        count(Health::Suspect),
        count(Health::Unknown),
        count(Health::Healthy)
    ));
    let trouble: Vec<&ShownHook> = seen.hooks.iter().filter(|hook| in_trouble(hook)).collect();
    if trouble.is_empty() {
        return;
    }
    let mut rows = vec![["HEALTH", "CAUSE", "EFFECT", "CONFIDENCE", "FOR", "WEBHOOK"].map(str::to_owned)];
    rows.extend(trouble.iter().take(HOOKS).map(|hook| row(seen, hook)));
    let mut widths = [0; 6];
    for row in &rows {
        for (room, cell) in widths.iter_mut().zip(row) {
            *room = (*room).max(width(cell));
        }
    }
    for row in &rows {
        let mut said = " ".to_owned();
        for (cell, room) in row.iter().zip(widths).take(5) {
            // Writing to a String cannot fail.
            let _ = write!(said, " {}", fit(cell, room));
        }
        line(&format!("{said} {}", row[5]));
    }
    if trouble.len() > HOOKS {
        line(&format!(
            "  and {} more; --output json has all",
            trouble.len() - HOOKS
        ));
    }
    for by_hand in trouble
        .iter()
        .filter_map(|hook| hook.by_hand.as_ref())
        .filter(|by_hand| by_hand.shared_with.is_none())
        .take(LINES)
    {
        line(&format!("  to bypass it: {}", by_hand.command));
        line(&format!("    {}", by_hand.meaning));
    }
}

fn row(seen: &ShownAssessment, hook: &ShownHook) -> [String; 6] {
    let configuration = hook.configuration.as_ref().map(|name| format!(" ({name})"));
    let place = hook.called_at().map(|place| format!(", called at {place}"));
    [
        hook.health.as_str().to_owned(),
        or_dash(hook.cause.as_ref()),
        or_dash(Some(&hook.effect).filter(|effect| !effect.is_empty())),
        or_dash(hook.shown_confidence()),
        or_dash(seen.lasted(hook)),
        format!(
            "{}{}{}",
            hook.webhook,
            configuration.unwrap_or_default(),
            place.unwrap_or_default()
        ),
    ]
}
