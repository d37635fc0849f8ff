//! The panes that cover the table: the evidence on one hook, and the help.

use super::canvas::{Canvas, Tone};
use super::shown::{ShownAssessment, ShownHook};
use super::state::{ScreenRoom, ScreenState};
use crate::app::text::wrap;
use crate::domain::time::Time;

/// Most backends that are listed.
const BACKENDS: usize = 200;

/// A line, and how it looks.
pub type Line = (String, Tone);

/// The lines about a hook, at most `wide` columns each. `None`: the hook is gone.
pub fn evidence(seen: &ShownAssessment, hook: Option<&ShownHook>, wide: usize) -> Vec<Line> {
    let Some(hook) = hook else {
        return vec![("This webhook is gone.".to_owned(), Tone::Warning)];
    };
    let mut page = DetailPage {
        lines: Vec::new(),
        wide,
    };
    page.say(hook.webhook.as_str(), "", Tone::Strong);
    let configuration = hook
        .configuration
        .as_ref()
        .map_or("no configuration that is known", |name| name.as_str());
    page.say(&format!("{} · {configuration}", hook.kind), "", Tone::Quiet);
    page.say(&verdict(hook, seen.at), "", Tone::of(hook.health));
    page.say(hook.summary.as_str(), "", Tone::Plain);
    if let Some(advice) = &hook.advice {
        page.say(&format!("Next: {advice}"), "", Tone::Strong);
    }
    if !hook.evidence.is_empty() {
        page.say("evidence", "", Tone::Quiet);
        hook.evidence
            .iter()
            .for_each(|said| page.say(said.as_str(), "  - ", Tone::Plain));
    }
    page.what_to_change(seen, hook);
    if let Some(by_hand) = &hook.by_hand {
        page.say("to bypass it", "", Tone::Quiet);
        page.say(by_hand.command.as_str(), "  ", Tone::Plain);
        page.say(by_hand.meaning.as_str(), "  ", Tone::Plain);
    }
    if let Some(standing) = seen.standing(hook) {
        page.say("breaker", "", Tone::Quiet);
        page.say(&standing.short(), "  ", Tone::Plain);
        page.say(standing.words.as_str(), "  ", Tone::Plain);
    }
    page.backends(hook);
    page.lines
}

/// How the hook is, why and since when, in one sentence.
fn verdict(hook: &ShownHook, now: Time) -> String {
    let mut verdict = hook.health.as_str().to_uppercase();
    if let Some(cause) = &hook.cause {
        verdict.push_str(&format!(
            ": {cause}, effect {}, confidence {:.2}, rule {}",
            hook.effect, hook.confidence, hook.rule
        ));
    }
    if let Some(place) = hook.called_at() {
        verdict.push_str(&format!(", called at {place}"));
    }
    if let Some(since) = hook.since {
        verdict.push_str(&format!(", since {} UTC", since.as_read_at(now)));
    }
    if let Some(share) = hook.excess_share {
        verdict.push_str(&format!(", {:.0} % of the extra time", share * 100.0));
    }
    verdict
}

/// Lines of bounded width.
struct DetailPage {
    lines: Vec<Line>,
    wide: usize,
}

impl DetailPage {
    /// Adds a text. Continuation lines are indented like the first, without its bullet.
    fn say(&mut self, text: &str, indent: &str, tone: Tone) {
        let first = indent.replace(['-', '>'], " ");
        for (number, line) in wrap(text, self.wide.saturating_sub(indent.len()))
            .into_iter()
            .enumerate()
        {
            let before = if number == 0 { indent } else { first.as_str() };
            self.lines.push((format!("{before}{line}"), tone));
        }
    }

    /// What the audit found of the hook.
    fn what_to_change(&mut self, seen: &ShownAssessment, hook: &ShownHook) {
        for (number, found) in seen.found(hook).enumerate() {
            if number == 0 {
                self.say("what to change", "", Tone::Quiet);
            }
            let tone = match found.severity.as_str() {
                "critical" => Tone::Bad,
                "warning" => Tone::Warning,
                _ => Tone::Plain,
            };
            self.say(
                &format!("{} {}: {}", found.severity, found.id, found.message),
                "  - ",
                tone,
            );
        }
    }

    fn backends(&mut self, hook: &ShownHook) {
        self.say(&format!("backends: {}", hook.backends.len()), "", Tone::Quiet);
        for backend in hook.backends.iter().take(BACKENDS) {
            let tone = match backend.state.as_str() {
                "alive" => Tone::Plain,
                "dead" => Tone::Bad,
                _ => Tone::Warning,
            };
            let said = format!(
                "{} {} {}: {}",
                backend.state, backend.path, backend.address, backend.detail
            );
            self.say(&said, "  - ", tone);
        }
        if hook.backends.len() > BACKENDS {
            self.say(
                &format!("and {} more", hook.backends.len() - BACKENDS),
                "  ",
                Tone::Quiet,
            );
        }
    }
}

/// What the keys do, and what the signs mean.
pub fn help() -> Vec<Line> {
    let line = |text: &str| (text.to_owned(), Tone::Plain);
    vec![
        ("keys".to_owned(), Tone::Strong),
        line("  ↑ ↓ j k      move; PgUp PgDn Home End too"),
        line("  Enter        evidence of the webhook, and back"),
        line("  /            filter by name, cause, kind, health"),
        line("  s            sort: worst, share, newest, name"),
        line("  p            pause and resume"),
        line("  Esc          back; then quit"),
        line("  q Ctrl-C     quit"),
        ("the curve".to_owned(), Tone::Strong),
        line("  height       time per write, logarithmic"),
        line("  ░            blocked, and no write came back"),
        line("  F            a webhook was named as failing"),
        line("  B            a bypass began or ended"),
        line("  +            a webhook recovered"),
    ]
}

/// Draws the lines that fit, from where the pane is scrolled to.
pub fn scroll(canvas: &mut Canvas<'_>, lines: &[Line], state: &ScreenState) -> ScreenRoom {
    let rows = canvas.free_lines();
    let last = lines.len().saturating_sub(rows);
    for (text, tone) in lines.iter().skip(state.scrolled.min(last)).take(rows) {
        canvas.line(&[(text, *tone)]);
    }
    ScreenRoom { rows, last }
}
