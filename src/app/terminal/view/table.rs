//! Draws the table of hooks, one per line.

use super::canvas::{Canvas, Tone};
use super::shown::{ShownAssessment, ShownHook, ShownStanding};
use super::state::{ScreenRoom, ScreenState, Sort, in_trouble};
use crate::app::text::{fit, or_dash};
use crate::domain::vocabulary::Health;

/// A column: its heading, its width, and its text for a hook.
type TableColumn = (&'static str, usize, fn(&ShownAssessment, &ShownHook) -> String);

/// Columns of the table, as far as they fit.
struct Columns {
    /// All but the name, which gets the rest.
    shown: Vec<TableColumn>,
    configuration: bool,
}

impl Columns {
    fn of(wide: usize) -> Self {
        let health: TableColumn = ("HEALTH", 7, |_, hook| hook.health.as_str().to_owned());
        let letter: TableColumn = ("H", 1, |_, hook| {
            hook.health
                .as_str()
                .chars()
                .take(1)
                .collect::<String>()
                .to_uppercase()
        });
        let cause: TableColumn = ("CAUSE", 15, |_, hook| or_dash(hook.cause.as_ref()));
        let effect: TableColumn = ("EFFECT", 11, |_, hook| match hook.effect.as_str() {
            "None" | "" => "-".into(),
            effect => effect.to_owned(),
        });
        let since: TableColumn = ("FOR", 7, |seen, hook| or_dash(seen.lasted(hook)));
        let share: TableColumn = ("SHARE", 5, |_, hook| {
            or_dash(hook.excess_share.map(|share| format!("{:.0} %", share * 100.0)))
        });
        let confidence: TableColumn = ("CONF", 4, |_, hook| or_dash(hook.shown_confidence()));
        let breaker: TableColumn = ("BREAKER", 24, |seen, hook| {
            or_dash(seen.standing(hook).map(ShownStanding::short))
        });
        let shown = match wide {
            0..=27 => vec![letter],
            28..=47 => vec![health],
            48..=71 => vec![health, cause],
            72..=99 => vec![health, cause, since, effect],
            100..=131 => vec![health, cause, since, effect, share, confidence],
            _ => vec![health, cause, since, effect, share, confidence, breaker],
        };
        Self {
            shown,
            configuration: wide >= 132,
        }
    }

    fn heading(&self) -> String {
        let mut heading = "  ".to_owned();
        for (name, room, _) in &self.shown {
            heading.push_str(&fit(name, *room));
            heading.push(' ');
        }
        heading.push_str("WEBHOOK");
        if self.configuration {
            heading.push_str(" · CONFIGURATION");
        }
        heading
    }

    /// The cells of a hook: the first column, and all others with the name.
    fn cells(&self, seen: &ShownAssessment, hook: &ShownHook) -> (String, String) {
        let mut cells = self
            .shown
            .iter()
            .map(|(_, room, value)| fit(&value(seen, hook), *room) + " ");
        let first = cells.next().unwrap_or_default();
        let mut rest: String = cells.collect();
        rest.push_str(hook.webhook.as_str());
        if let (true, Some(configuration)) = (self.configuration, &hook.configuration) {
            rest.push_str(&format!(" · {configuration}"));
        }
        (first, rest)
    }
}

/// Draws the page of the table that has the cursor on it.
pub(super) fn table(canvas: &mut Canvas<'_>, seen: &ShownAssessment, state: &ScreenState) -> ScreenRoom {
    let rows = state.rows(seen);
    let wide = canvas.width();
    let columns = Columns::of(wide);
    if canvas.free_lines() >= 3 {
        canvas.line(&[(&counts(seen, state, rows.len(), wide), Tone::Strong)]);
    }
    if canvas.free_lines() >= 4 {
        canvas.line(&[(&columns.heading(), Tone::Quiet)]);
    }
    let room = ScreenRoom {
        rows: canvas.free_lines(),
        last: 0,
    };
    if rows.is_empty() && room.rows > 0 {
        let said = if !seen.hooks.is_empty() {
            "no webhook matches; Esc clears the filter"
        } else if seen.sources.hooks_listed {
            "this cluster has no webhooks"
        } else {
            "the webhook configurations could not be read"
        };
        canvas.line(&[(said, Tone::Quiet)]);
    }
    let cursor = state.cursor(&rows);
    // The table scrolls by whole pages, so that rows stay in place while they are read.
    let first = cursor.checked_div(room.rows).map_or(0, |pages| pages * room.rows);
    for (place, hook) in rows.iter().enumerate().skip(first).take(room.rows) {
        let mark = if place == cursor { "> " } else { "  " };
        // The first column has the colour of the verdict.
        let (health, rest) = columns.cells(seen, hook);
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
            canvas.highlight();
        }
    }
    room
}

/// The number of hooks by health, the filter and the order.
fn counts(seen: &ShownAssessment, state: &ScreenState, shown: usize, wide: usize) -> String {
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
        format!("{} webhooks: {}", seen.hooks.len(), counts.join(", "))
    };
    if !state.filter.is_empty() {
        said.push_str(&format!("; {shown} with \"{}\"", state.filter));
    }
    if state.sort != Sort::Worst {
        said.push_str(&format!("; by {}", state.sort.as_str()));
    }
    said
}
