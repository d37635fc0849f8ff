//! The whole screen: what is most needed stays longest when the terminal gets small.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::history::Column;
use super::seen::{Hook, Seen, clock, lasting};
use super::state::{Pane, Room, Sort, State, in_trouble};
use super::text::{cut, fit, width, wrap};
use super::{Known, detail};
use crate::domain::verdict::{Health, Writes, human_seconds};

/// An answer that is older than this is said to be old.
const FRESH: Duration = Duration::from_secs(5);
/// Below so many columns a line holds one thing, and what is not about hooks is left out.
const NARROW: usize = 40;
/// Eighths of a cell.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Writes were blocked and none came back to be measured.
const NONE_CAME_BACK: char = '░';

/// What a piece of text is, and so how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Ordinary.
    Plain,
    /// Less important.
    Quiet,
    /// A heading.
    Strong,
    /// All is well.
    Good,
    /// Look at it.
    Warning,
    /// Act.
    Bad,
}

impl Tone {
    /// How it looks, with colours or without. Weight alone has to do then, for the words say it all.
    pub fn style(self, colour: bool) -> Style {
        let plain = Style::new();
        match (self, colour) {
            (Self::Plain, _) | (Self::Quiet | Self::Good, false) => plain,
            (Self::Quiet, true) => plain.fg(Color::DarkGray),
            (Self::Strong, _) | (Self::Warning | Self::Bad, false) => plain.add_modifier(Modifier::BOLD),
            (Self::Good, true) => plain.fg(Color::Green),
            (Self::Warning, true) => plain.fg(Color::Yellow).add_modifier(Modifier::BOLD),
            (Self::Bad, true) => plain.fg(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    /// The tone of a health.
    pub const fn of(health: Health) -> Self {
        match health {
            Health::Healthy => Self::Good,
            Health::Suspect => Self::Warning,
            Health::Failing => Self::Bad,
            Health::Unknown => Self::Quiet,
        }
    }

    const fn of_writes(writes: Writes) -> Self {
        match writes {
            Writes::Flowing => Self::Good,
            Writes::Delayed => Self::Warning,
            Writes::Blocked => Self::Bad,
            Writes::Unknown => Self::Quiet,
        }
    }
}

/// A place to draw, a line at a time.
#[derive(Debug)]
pub struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    colour: bool,
    used: u16,
}

impl<'a> Canvas<'a> {
    fn new(buffer: &'a mut Buffer, area: Rect, colour: bool) -> Self {
        Self {
            buffer,
            area,
            colour,
            used: 0,
        }
    }

    /// Columns.
    pub fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    /// Lines that are free.
    pub fn left(&self) -> usize {
        usize::from(self.area.height - self.used)
    }

    /// Draws the next line, where there is one.
    pub fn line(&mut self, pieces: &[(&str, Tone)]) {
        if self.left() == 0 {
            return;
        }
        let y = self.area.y + self.used;
        let (mut x, end) = (self.area.x, self.area.right());
        for (text, tone) in pieces {
            let room = usize::from(end.saturating_sub(x));
            (x, _) = self
                .buffer
                .set_stringn(x, y, cut(text, room), room, tone.style(self.colour));
        }
        self.used += 1;
    }

    /// Makes the last line stand out.
    fn choose(&mut self) {
        let y = self.area.y + self.used.saturating_sub(1);
        let line = Rect {
            y,
            height: 1,
            ..self.area
        };
        self.buffer
            .set_style(line, Style::new().add_modifier(Modifier::REVERSED));
    }
}

/// Draws it all and says what there was room for.
pub fn draw(known: &Known, state: &State, colour: bool, area: Rect, buffer: &mut Buffer) -> Room {
    if area.is_empty() {
        return Room::default();
    }
    buffer.reset();
    let tall = area.height;
    // The keys are told where there is more to see than one can do without.
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

/// Who is asked and how old the answer is; then the verdict.
fn head(canvas: &mut Canvas<'_>, known: &Known, state: &State, tall: u16) {
    let stale = staleness(known, state);
    if tall >= 8 && canvas.width() >= NARROW {
        let at = known
            .seen
            .as_ref()
            .map_or_else(String::new, |seen| format!("{} UTC ", clock(seen.at)));
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
    canvas.line(&[(&format!("{words}{writes}{lasted}"), Tone::of_writes(plane.writes))]);
}

/// Why what is shown is not the newest, if it is not.
fn staleness(known: &Known, state: &State) -> Option<(String, Tone)> {
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
            format!("PAUSED, all of this is {age} old; p goes on"),
            Tone::Warning,
        ));
    }
    (known.age >= FRESH).then(|| (format!("the newest answer is {age} old"), Tone::Warning))
}

/// Before the first answer.
fn waiting(canvas: &mut Canvas<'_>, known: &Known) -> Room {
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
    Room::default()
}

/// What stands between the verdict and the table, as far as there is room.
fn about(canvas: &mut Canvas<'_>, known: &Known, seen: &Seen, tall: u16) {
    let wide = canvas.width();
    let most = match tall {
        0..=3 => 0,
        4..=9 => 1,
        10..=15 => 2,
        16..=27 => 3,
        _ => 5,
    };
    // The same words need more lines there.
    let more = if wide < NARROW { 2 } else { 1 };
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
            canvas.line(&[("  ", Tone::Plain), (said.as_str(), Tone::Warning)]);
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
    }
}

/// The mode of the breaker, and the first hook that it has to do with.
fn breaker(seen: &Seen) -> String {
    let breaker = &seen.breaker;
    let mut said = breaker.effective.to_string();
    if breaker.effective != breaker.wanted {
        said.push_str(&format!(" instead of {}: {}", breaker.wanted, breaker.why));
    }
    if let Some(standing) = breaker.hooks.first() {
        said.push_str(&format!("; {} {}", standing.webhook, standing.short()));
    }
    if breaker.hooks.len() > 1 {
        said.push_str(&format!("; and {} more", breaker.hooks.len() - 1));
    }
    said
}

/// A sentence in so many lines at most, with a mark where it was longer.
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

/// The time per write over the last minutes, and what happened to verdicts.
fn curve(canvas: &mut Canvas<'_>, known: &Known, seen: &Seen, high: usize) {
    let plane = &seen.control_plane;
    let seconds = |seconds: Option<f64>| seconds.map_or_else(|| "–".to_owned(), human_seconds);
    let (columns, step) = known.history.columns(canvas.width());
    let now = format!(
        "{}, usually {}",
        seconds(plane.write_seconds),
        seconds(plane.usual_write_seconds)
    );
    let span = format!(
        "; the last {}, {} s a column",
        lasting(step * columns.len() as u32),
        step.as_secs()
    );
    let legend = match canvas.width() {
        0..NARROW => now,
        wide if wide < 2 * NARROW => format!("per write {now}"),
        _ => format!("per write {now}{span}"),
    };
    canvas.line(&[(&legend, Tone::Quiet)]);
    for row in (0..high).rev() {
        let cells: Vec<(String, Tone)> = columns.iter().map(|column| cell(column, row, high)).collect();
        let pieces: Vec<(&str, Tone)> = cells.iter().map(|(text, tone)| (text.as_str(), *tone)).collect();
        canvas.line(&pieces);
    }
    let marks: String = columns
        .iter()
        .map(|column| column.mark.map_or(' ', |mark| mark.letter()))
        .collect();
    canvas.line(&[(&marks, Tone::Strong)]);
}

/// One cell of a column; the rows are counted from below.
fn cell(column: &Column, row: usize, high: usize) -> (String, Tone) {
    let Some(writes) = column.writes else {
        return (" ".to_owned(), Tone::Plain);
    };
    let tone = Tone::of_writes(writes);
    let Some(height) = column.height() else {
        let shown = match writes {
            Writes::Blocked => NONE_CAME_BACK,
            _ if row == 0 => '·',
            _ => ' ',
        };
        return (shown.to_string(), tone);
    };
    let eighths = (height * (high * 8) as f64).round().max(1.0) as usize;
    let here = eighths.saturating_sub(row * 8).min(8);
    let shown = here
        .checked_sub(1)
        .and_then(|at| BARS.get(at))
        .copied()
        .unwrap_or(' ');
    (shown.to_string(), tone)
}

/// A column: its heading, its width, and what it says of a hook.
type TableColumn = (&'static str, usize, fn(&Seen, &Hook) -> String);

/// Columns of the table, by what there is room for.
struct Columns {
    /// All but the name, which gets the rest.
    shown: Vec<TableColumn>,
    configuration: bool,
}

impl Columns {
    fn of(wide: usize) -> Self {
        let health: TableColumn = ("HEALTH", 8, |_, hook| hook.health.as_str().to_owned());
        let letter: TableColumn = ("H", 2, |_, hook| {
            hook.health
                .as_str()
                .chars()
                .take(1)
                .collect::<String>()
                .to_uppercase()
        });
        let cause: TableColumn = ("CAUSE", 16, |_, hook| {
            hook.cause
                .as_ref()
                .map_or_else(|| "-".into(), |cause| cause.to_string())
        });
        let effect: TableColumn = ("EFFECT", 12, |_, hook| match hook.effect.as_str() {
            "None" | "" => "-".into(),
            effect => effect.to_owned(),
        });
        let since: TableColumn = ("FOR", 8, |seen, hook| {
            hook.since
                .map_or_else(|| "-".into(), |since| lasting(seen.at.since(since)))
        });
        let share: TableColumn = ("SHARE", 6, |_, hook| {
            hook.excess_share
                .map_or_else(|| "-".into(), |share| format!("{:.0} %", share * 100.0))
        });
        let sure: TableColumn = ("SURE", 5, |_, hook| match hook.cause {
            Some(_) => format!("{:.2}", hook.confidence),
            None => "-".into(),
        });
        let breaker: TableColumn = ("BREAKER", 24, |seen, hook| {
            seen.standing(hook)
                .map_or_else(|| "-".into(), |standing| standing.short())
        });
        let shown = match wide {
            0..=27 => vec![letter],
            28..=47 => vec![health],
            48..=71 => vec![health, cause],
            72..=99 => vec![health, cause, since, effect],
            100..=131 => vec![health, cause, since, effect, share, sure],
            _ => vec![health, cause, since, effect, share, sure, breaker],
        };
        Self {
            shown,
            configuration: wide >= 132,
        }
    }
}

/// The hooks, with the one under the cursor in sight.
fn table(canvas: &mut Canvas<'_>, seen: &Seen, state: &State) -> Room {
    let rows = state.rows(seen);
    let wide = canvas.width();
    let columns = Columns::of(wide);
    if canvas.left() >= 3 {
        canvas.line(&[(&counts(seen, state, rows.len(), wide), Tone::Strong)]);
    }
    if canvas.left() >= 4 {
        let mut heading = "  ".to_owned();
        for (name, room, _) in &columns.shown {
            heading.push_str(&fit(name, *room));
            heading.push(' ');
        }
        heading.push_str("WEBHOOK");
        if columns.configuration {
            heading.push_str(" · CONFIGURATION");
        }
        canvas.line(&[(&heading, Tone::Quiet)]);
    }
    let room = Room {
        rows: canvas.left(),
        last: 0,
    };
    if rows.is_empty() && room.rows > 0 {
        let said = match seen.hooks.is_empty() {
            true if !seen.sources.hooks_listed => "the webhook configurations could not be read",
            true => "this cluster has no hooks",
            false => "no hook has that in it; Esc takes the filter away",
        };
        canvas.line(&[(said, Tone::Quiet)]);
    }
    let cursor = state.cursor(&rows);
    // A page at a time: rows that stay where they are can be read.
    let first = if room.rows == 0 {
        0
    } else {
        cursor / room.rows * room.rows
    };
    for (place, hook) in rows.iter().enumerate().skip(first).take(room.rows) {
        let mark = if place == cursor { "> " } else { "  " };
        let mut cells = columns
            .shown
            .iter()
            .map(|(_, room, value)| fit(&value(seen, hook), *room) + " ");
        // The first column has the colour of the verdict.
        let health = cells.next().unwrap_or_default();
        let mut rest: String = cells.collect();
        rest.push_str(hook.webhook.as_str());
        if let (true, Some(configuration)) = (columns.configuration, &hook.configuration) {
            rest.push_str(&format!(" · {configuration}"));
        }
        let tone = if in_trouble(hook) {
            Tone::Plain
        } else {
            Tone::Quiet
        };
        canvas.line(&[
            (mark, Tone::Plain),
            (&health, Tone::of(hook.health)),
            (&rest, tone),
        ]);
        if place == cursor {
            canvas.choose();
        }
    }
    room
}

/// How many hooks there are, of which health, and which of them are shown.
fn counts(seen: &Seen, state: &State, shown: usize, wide: usize) -> String {
    let mut said = if wide < 48 {
        let count = |health| seen.count(health);
        format!(
            "F{} S{} H{} U{}",
            count(Health::Failing),
            count(Health::Suspect),
            count(Health::Healthy),
            count(Health::Unknown)
        )
    } else {
        let counts: Vec<String> = [Health::Failing, Health::Suspect, Health::Unknown, Health::Healthy]
            .into_iter()
            .map(|health| format!("{} {}", seen.count(health), health.as_str()))
            .collect();
        format!("{} hooks: {}", seen.hooks.len(), counts.join(", "))
    };
    if !state.filter.is_empty() {
        said.push_str(&format!("; {shown} with \"{}\"", state.filter));
    }
    if state.sort != Sort::Worst {
        said.push_str(&format!("; by {}", state.sort.as_str()));
    }
    said
}

/// What can be typed.
fn foot(canvas: &mut Canvas<'_>, state: &State) {
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
