//! Prints one incident: the ground truth, the timeline of verdicts with their evidence, and the score.

use std::fmt::Write;

use crate::incident::Incident;
use crate::model::{At, as_seconds};
use crate::naive::THRESHOLDS;
use crate::play::Played;
use crate::score::Score;

/// The incident as text. `in_full` adds the evidence, if [`Manner::in_full`](crate::play::Manner::in_full) recorded it.
pub fn tell(incident: &Incident, played: &Played, score: &Score, in_full: bool) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = truth(&mut text, incident, played);
    let _ = timeline(&mut text, incident, played, in_full);
    let _ = reckoning(&mut text, incident, played, score);
    text
}

fn truth(text: &mut String, incident: &Incident, played: &Played) -> std::fmt::Result {
    let cluster = &incident.cluster;
    let release = cluster.replicas[0].release.at(0);
    writeln!(
        text,
        "{} API servers ({release:?}{}), watched from {:.0} s to {:.0} s",
        cluster.replicas.len(),
        if cluster.balanced { ", balanced" } else { "" },
        as_seconds(incident.begin),
        as_seconds(incident.end)
    )?;
    for (index, hook) in cluster.hooks.iter().enumerate() {
        let service = &cluster.services[hook.service];
        let calls = played.ledger.calls(index, incident.begin, incident.end);
        let (all, canaries, failed) = calls.fold((0, 0, 0), |(all, canaries, failed), call| {
            (
                all + 1,
                canaries + usize::from(call.canary),
                failed + usize::from(call.failed),
            )
        });
        writeln!(
            text,
            "hook {index}: {} timeout {:.0} s, {}, {:?} with {} backends of {:.0} ms, {all} calls for writes, \
             {canaries} of them canaries; {failed} failed",
            hook.id,
            as_seconds(hook.timeout),
            if hook.fails { "Fail" } else { "Ignore" },
            service.routing,
            service.backends.len(),
            service.latency * 1_000.0
        )?;
    }
    for fault in &incident.faults {
        writeln!(
            text,
            "FAULT {} from {:.1} s to {:.1} s at hooks {:?}: {}",
            fault.kind.as_str(),
            as_seconds(fault.from),
            as_seconds(fault.until),
            fault.hooks,
            fault.note
        )?;
        for hook in &fault.hooks {
            let calls = || played.ledger.calls(*hook, fault.from, fault.until);
            writeln!(
                text,
                "  hook {hook}: {} calls ended meanwhile, {} failed, {} took longer than 0.2 s",
                calls().count(),
                calls().filter(|call| call.failed).count(),
                calls().filter(|call| as_seconds(call.took) > 0.2).count()
            )?;
        }
    }
    for noise in &incident.noise {
        writeln!(text, "NOISE {noise}")?;
    }
    Ok(())
}

fn timeline(text: &mut String, incident: &Incident, played: &Played, in_full: bool) -> std::fmt::Result {
    let mut lines: Vec<(At, String, &[String])> = Vec::new();
    for (hook, turns) in played.trace.hooks.iter().enumerate() {
        for turn in turns {
            let cause = turn.cause.map_or("", |cause| cause.as_str());
            let rules: Vec<&str> = turn.spoken.iter().take(4).map(|spoken| spoken.rule).collect();
            let said = format!(
                "hook {hook} {} {cause} {:.2} {}{}",
                turn.health.as_str(),
                turn.confidence,
                rules.join(", "),
                if turn.spoken.len() > rules.len() {
                    ", ..."
                } else {
                    ""
                }
            );
            lines.push((turn.at, said, &turn.evidence));
        }
    }
    for turn in &played.trace.plane {
        let cause = turn.not_a_hook.map_or("", |cause| cause.as_str());
        let said = format!("writes {} {cause}", turn.writes.as_str());
        lines.push((turn.at, said, &turn.evidence));
    }
    if let Some(broken) = &played.broken {
        for act in &broken.acts {
            lines.push((
                act.at,
                format!("hook {} is changed to {:?}", act.hook, act.to),
                &[],
            ));
        }
        for said in &broken.said {
            lines.push((
                said.at,
                format!("hook {}, the breaker: {:?}", said.hook, said.news),
                &[],
            ));
        }
    }
    for fault in &incident.faults {
        lines.push((fault.from, format!("--- {} begins", fault.kind.as_str()), &[]));
        lines.push((fault.until, format!("--- {} ends", fault.kind.as_str()), &[]));
    }
    lines.sort_by_key(|(at, ..)| *at);
    for (at, said, evidence) in lines {
        writeln!(text, "{:8.2}  {said}", as_seconds(at))?;
        for sentence in evidence.iter().filter(|_| in_full) {
            writeln!(text, "            {sentence}")?;
        }
    }
    Ok(())
}

fn reckoning(text: &mut String, incident: &Incident, played: &Played, score: &Score) -> std::fmt::Result {
    for found in &score.found {
        writeln!(
            text,
            "{}: {}, said {}, after {} probe intervals{}{}",
            found.kind.as_str(),
            if found.named { "found" } else { "MISSED" },
            found.said.unwrap_or("nothing"),
            found
                .intervals
                .map_or_else(|| "-".to_owned(), |intervals| format!("{intervals:.1}")),
            if found.felt { "" } else { " (nobody felt it)" },
            if found.held { " (NOT LET GO)" } else { "" }
        )?;
    }
    for wrong in &score.wrong {
        writeln!(text, "WRONG: {wrong}")?;
    }
    for wrong in &score.wrong_elsewhere {
        writeln!(text, "WRONG, and no hook: {wrong}")?;
    }
    if let Some(reckoning) = &score.breaker {
        writeln!(text, "{reckoning:#?}")?;
    }
    writeln!(text, "{:?}", score.toll)?;
    for (index, threshold) in THRESHOLDS.iter().enumerate() {
        let mut names: Vec<&str> = Vec::new();
        for (_, series) in &played.naive.named[index] {
            let hook = incident.cluster.hooks.iter().find(|hook| hook.series == *series);
            names.extend(hook.map(|hook| &*hook.id.webhook));
        }
        names.dedup();
        let right = if score.naive[index] { "right" } else { "wrong" };
        writeln!(text, "naive judge above {threshold} s: {right}, names {names:?}")?;
    }
    Ok(())
}
