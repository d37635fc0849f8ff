//! The whole screen. On a smaller terminal the least important parts go first.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::canvas::{Canvas, NARROW, Tone};
use super::curve::curve;
use super::shown::{ShownAssessment, lasting};
use super::state::{Pane, ScreenRoom, ScreenState};
use super::table::table;
use super::{ViewModel, detail};
use crate::app::text::{cut, fit, width, wrap};

/// An answer older than this is marked as old.
const FRESH: Duration = Duration::from_secs(5);

/// Below this many columns sentences may take twice as many lines.
const SHORT: usize = 60;

/// Draws the whole screen, and returns how much of the table or the pane fitted.
pub fn draw(
    known: &ViewModel,
    state: &ScreenState,
    colour: bool,
    area: Rect,
    buffer: &mut Buffer,
) -> ScreenRoom {
    if area.is_empty() {
        return ScreenRoom::default();
    }
    buffer.reset();
    let tall = area.height;
    // The key help is shown where there is room for it.
    let keys = u16::from(tall >= 6 || state.typing);
    let body = Rect {
        height: tall - keys,
        ..area
    };
    let mut canvas = Canvas::new(buffer, body, colour);
    head(&mut canvas, known, state, tall);
    let room = match (&known.seen, state.pane) {
        (_, Pane::Help) => detail::scroll(&mut canvas, &detail::help(), state),
        (None, _) => waiting(&mut canvas, known),
        (Some(seen), Pane::Evidence) => {
            let wide = canvas.width();
            detail::scroll(
                &mut canvas,
                &detail::evidence(seen, state.chosen(seen), wide),
                state,
            )
        }
        (Some(seen), Pane::Table) => {
            about(&mut canvas, known, seen, tall);
            table(&mut canvas, seen, state)
        }
    };
    if keys > 0 {
        let line = Rect {
            y: area.bottom() - 1,
            height: 1,
            ..area
        };
        foot(&mut Canvas::new(buffer, line, colour), state);
    }
    room
}

/// Draws which daemon is asked and how old its answer is, then the state of writes.
fn head(canvas: &mut Canvas<'_>, known: &ViewModel, state: &ScreenState, tall: u16) {
    let stale = staleness(known, state);
    if tall >= 8 && canvas.width() >= NARROW {
        let at = known.seen.as_ref().map_or_else(String::new, |seen| {
            format!("{} UTC ", seen.at.as_read_at(seen.at))
        });
        let name = format!("hookwatch  {}", known.server);
        let room = canvas.width().saturating_sub(width(&at) + 1);
        canvas.line(&[
            (&fit(&name, room), Tone::Quiet),
            (" ", Tone::Plain),
            (&at, Tone::Quiet),
        ]);
    }
    if let Some((said, tone)) = stale {
        canvas.line(&[(&said, tone)]);
    }
    let Some(seen) = &known.seen else { return };
    let plane = &seen.control_plane;
    let writes = plane.writes.as_str().to_uppercase();
    let lasted = plane.since.map_or_else(String::new, |since| {
        format!(" for {}", lasting(seen.at.since(since)))
    });
    let words = if canvas.width() >= 30 { "WRITES " } else { "" };
    let blind = seen.blind_to();
    let tone = match Tone::of_writes(plane.writes) {
        Tone::Good if blind.is_some() => Tone::Warning,
        tone => tone,
    };
    canvas.line(&[(&format!("{words}{writes}{lasted}"), tone)]);
    if let Some(why) = blind {
        let said = format!("hookwatch does not see everything: {why}");
        let most = if canvas.width() < SHORT { 2 } else { 1 };
        for line in shortened(&said, canvas.width(), most) {
            canvas.line(&[(&line, Tone::Warning)]);
        }
    }
}

/// Why the screen does not show the newest state; `None` if it does.
fn staleness(known: &ViewModel, state: &ScreenState) -> Option<(String, Tone)> {
    known.seen.as_ref()?;
    let age = lasting(known.age);
    if let Some(trouble) = &known.trouble {
        return Some((
            format!("NO ANSWER, all of this is {age} old: {trouble}"),
            Tone::Bad,
        ));
    }
    if let Some(silent) = &known.silent {
        return Some((
            format!("NOTHING IS JUDGED, all of this is old: {silent}"),
            Tone::Bad,
        ));
    }
    if state.paused {
        return Some((
            format!("PAUSED, all of this is {age} old; p resumes"),
            Tone::Warning,
        ));
    }
    (known.age >= FRESH).then(|| (format!("the newest answer is {age} old"), Tone::Warning))
}

fn waiting(canvas: &mut Canvas<'_>, known: &ViewModel) -> ScreenRoom {
    let (said, tone) = match &known.trouble {
        Some(trouble) => (format!("NO ANSWER yet: {trouble}"), Tone::Bad),
        None => (
            format!("waiting for the first answer of {}", known.server),
            Tone::Quiet,
        ),
    };
    for line in wrap(&said, canvas.width()) {
        canvas.line(&[(&line, tone)]);
    }
    ScreenRoom::default()
}

/// The part between the verdict and the table, as far as there is room.
fn about(canvas: &mut Canvas<'_>, known: &ViewModel, seen: &ShownAssessment, tall: u16) {
    let wide = canvas.width();
    let most = match tall {
        0..=3 => 0,
        4..=9 => 1,
        10..=15 => 2,
        16..=27 => 3,
        _ => 5,
    };
    let more = if wide < SHORT { 2 } else { 1 };
    for line in shortened(seen.sentence(), wide, most * more) {
        canvas.line(&[(&line, Tone::Plain)]);
    }
    if tall >= 12
        && let Some(advice) = seen.advice()
    {
        for line in shortened(&format!("Next: {advice}"), wide, 2 * more) {
            canvas.line(&[(&line, Tone::Strong)]);
        }
    }
    if tall >= 20 {
        let plane = &seen.control_plane;
        for said in plane
            .clocks
            .iter()
            .chain(&plane.symptoms)
            .take(usize::from(tall / 10))
        {
            // The remaining time is at the end of the sentence.
            for line in shortened(said.as_str(), wide.saturating_sub(2), 2 * more) {
                canvas.line(&[("  ", Tone::Plain), (&line, Tone::Warning)]);
            }
        }
        if let Some(found) = &plane.not_a_hook {
            let said = format!("  {}, no hook, confidence {:.2}", found.cause, found.confidence);
            canvas.line(&[(&said, Tone::Warning)]);
        }
    }
    if tall >= 14 {
        curve(canvas, known, seen, usize::from(tall / 12).clamp(1, 4));
    }
    if tall >= 18 && wide >= NARROW {
        canvas.line(&[("breaker ", Tone::Quiet), (&breaker(seen), Tone::Plain)]);
        canvas.line(&[("leader  ", Tone::Quiet), (&seen.leader(), Tone::Plain)]);
        let follows = seen.left_to_leader();
        for line in follows.iter().flat_map(|said| shortened(said, wide, 2 * more)) {
            canvas.line(&[(&line, Tone::Warning)]);
        }
        if let Some((said, tone)) = audit(seen) {
            canvas.line(&[("audit   ", Tone::Quiet), (&said, tone)]);
        }
    }
}

/// The mode of the breaker, and the first hook that it deals with; then the reasons, which a narrow terminal cuts off.
fn breaker(seen: &ShownAssessment) -> String {
    let breaker = &seen.breaker;
    let mut said = breaker.effective.to_string();
    if breaker.frozen.is_some() {
        said.push_str(", frozen");
    }
    if let Some(standing) = breaker.hooks.first() {
        said.push_str(&format!("; {}: {}", standing.short(), standing.webhook));
    }
    if breaker.hooks.len() > 1 {
        said.push_str(&format!("; and {} more", breaker.hooks.len() - 1));
    }
    if breaker.effective != breaker.wanted {
        said.push_str(&format!("; not {}: {}", breaker.wanted, breaker.why));
    }
    if let Some(frozen) = &breaker.frozen {
        said.push_str(&format!("; {frozen}"));
    }
    said
}

/// The counts of the audit's findings, and the worst finding.
fn audit(seen: &ShownAssessment) -> Option<(String, Tone)> {
    let audit = &seen.audit;
    let first = audit.findings.first()?;
    let tone = if audit.critical > 0 {
        Tone::Bad
    } else {
        Tone::Plain
    };
    let said = format!(
        "{} critical, {} warning, {} info; {}: {}",
        audit.critical, audit.warning, audit.info, first.id, first.object
    );
    Some((said, tone))
}

/// A sentence in at most `most` lines; ends in an ellipsis if it was longer.
fn shortened(text: &str, wide: usize, most: usize) -> Vec<String> {
    let mut lines = wrap(text, wide);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = cut(&format!("{last} …………"), wide.min(width(last) + 2));
        }
    }
    lines
}

/// Draws the keys, or the filter that is being typed.
fn foot(canvas: &mut Canvas<'_>, state: &ScreenState) {
    if state.typing {
        canvas.line(&[
            ("/", Tone::Strong),
            (&state.filter, Tone::Plain),
            ("_", Tone::Quiet),
        ]);
        return;
    }
    let keys: &[(&str, &str)] = match state.pane {
        Pane::Table => &[
            ("q", "quit"),
            ("?", "help"),
            ("↑↓", "move"),
            ("Enter", "evidence"),
            ("/", "filter"),
            ("s", "sort"),
            ("p", "pause"),
        ],
        Pane::Evidence | Pane::Help => &[("Esc", "back"), ("↑↓", "scroll"), ("q", "quit")],
    };
    let mut line = String::new();
    for (key, does) in keys {
        let next = format!("{key} {does}  ");
        if width(&line) + width(&next) > canvas.width() + 2 {
            break;
        }
        line.push_str(&next);
    }
    canvas.line(&[(line.trim_end(), Tone::Quiet)]);
}
