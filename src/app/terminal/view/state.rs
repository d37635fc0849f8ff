//! The state that keys change: the order, the filter, the cursor and the pane.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use strum::{IntoStaticStr, VariantArray};

use super::shown::{HookKey, ShownAssessment, ShownHook};
use crate::app::text::{CleanText, clean};
use crate::domain::text::named;
use crate::domain::vocabulary::Health;

/// Longest filter, in characters.
const LONGEST_FILTER: usize = 100;

/// The orders of the table, in the order in which the key goes through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Sort {
    /// The worst first, as the daemon has them.
    #[default]
    Worst,
    /// The share of the extra time, the greatest first.
    Share,
    /// The latest change first.
    Newest,
    /// The name.
    Name,
}

named!(Sort, "What it is called on the screen.", all);

impl Sort {
    fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }
}

/// What covers the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pane {
    /// Nothing does.
    #[default]
    Table,
    /// All that is known of the hook under the cursor.
    Evidence,
    /// What the keys do.
    Help,
}

/// How much fitted on a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScreenRoom {
    /// Rows of the table, or lines of the pane, that fit.
    pub rows: usize,
    /// The furthest position that the pane can be scrolled to, in lines.
    pub last: usize,
}

/// What the program does after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The program continues.
    Stay,
    /// The program ends.
    Quit,
}

/// The state of the screen, as keys have changed it.
#[derive(Debug, Clone, Default)]
pub struct ScreenState {
    /// The order of the table.
    pub sort: Sort,
    /// Only hooks with this text in their name, configuration, kind, cause or health, whatever the case.
    pub filter: String,
    /// Whether the filter is being typed.
    pub typing: bool,
    /// What covers the table.
    pub pane: Pane,
    /// Whether new answers are held back.
    pub paused: bool,
    /// Lines of the pane above the screen.
    pub scrolled: usize,
    /// The hook under the cursor, which follows it when the order changes.
    chosen: Option<HookKey>,
    /// The last row of that hook: the cursor stays there if the hook is gone.
    place: usize,
}

impl ScreenState {
    /// The hooks that pass the filter, in the chosen order.
    pub fn rows<'a>(&self, seen: &'a ShownAssessment) -> Vec<&'a ShownHook> {
        let wanted = self.filter.to_lowercase();
        let has = |text: &CleanText| text.as_str().to_lowercase().contains(&wanted);
        let mut rows: Vec<&ShownHook> = seen
            .hooks
            .iter()
            .filter(|hook| {
                wanted.is_empty()
                    || has(&hook.webhook)
                    || hook.configuration.as_ref().is_some_and(has)
                    || hook.cause.as_ref().is_some_and(has)
                    || hook.health.as_str().contains(&wanted)
                    || has(&hook.kind)
            })
            .collect();
        match self.sort {
            Sort::Worst => {}
            Sort::Share => rows.sort_by(|one, other| {
                let share = |hook: &ShownHook| hook.excess_share.unwrap_or(-1.0);
                share(other).total_cmp(&share(one))
            }),
            Sort::Newest => rows.sort_by_key(|hook| std::cmp::Reverse(hook.since)),
            Sort::Name => rows.sort_by(|one, other| {
                (&one.webhook, &one.configuration).cmp(&(&other.webhook, &other.configuration))
            }),
        }
        rows
    }

    /// The index of the cursor in these rows.
    pub fn cursor(&self, rows: &[&ShownHook]) -> usize {
        let found = self
            .chosen
            .as_ref()
            .and_then(|chosen| rows.iter().position(|hook| hook.key() == *chosen));
        found.unwrap_or(self.place).min(rows.len().saturating_sub(1))
    }

    /// The hook under the cursor.
    pub fn chosen<'a>(&self, seen: &'a ShownAssessment) -> Option<&'a ShownHook> {
        if self.pane == Pane::Evidence {
            // The pane stays on its hook, even if the hook is gone.
            let chosen = self.chosen.as_ref()?;
            return seen.hooks.iter().find(|hook| hook.key() == *chosen);
        }
        let rows = self.rows(seen);
        rows.get(self.cursor(&rows)).copied()
    }

    /// Handles a key. `room` is that of the screen on which it was typed.
    pub fn key(&mut self, key: KeyEvent, seen: Option<&ShownAssessment>, room: ScreenRoom) -> Next {
        let page = room.rows.max(1);
        if key.kind == KeyEventKind::Release {
            return Next::Stay;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c' | 'd') => return Next::Quit,
                KeyCode::Char('f') => self.go(seen, room, |place| place.saturating_add(page)),
                KeyCode::Char('b') => self.go(seen, room, |place| place.saturating_sub(page)),
                _ => {}
            }
            return Next::Stay;
        }
        if self.typing {
            self.type_filter(key.code);
            return Next::Stay;
        }
        match key.code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Esc => return self.back(),
            KeyCode::Char('?') | KeyCode::F(1) => self.open(Pane::Help),
            KeyCode::Enter => {
                if self.pane != Pane::Table {
                    return self.back();
                }
                self.go(seen, room, |place| place);
                if self.chosen.is_some() {
                    self.open(Pane::Evidence);
                }
            }
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('/') => {
                self.pane = Pane::Table;
                self.typing = true;
            }
            KeyCode::Down | KeyCode::Char('j') => self.go(seen, room, |place| place.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.go(seen, room, |place| place.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.go(seen, room, |place| place.saturating_add(page)),
            KeyCode::PageUp => self.go(seen, room, |place| place.saturating_sub(page)),
            KeyCode::Home | KeyCode::Char('g') => self.go(seen, room, |_| 0),
            KeyCode::End | KeyCode::Char('G') => self.go(seen, room, |_| usize::MAX),
            _ => {}
        }
        Next::Stay
    }

    fn append(&mut self, character: char) {
        if self.filter.chars().count() < LONGEST_FILTER {
            self.filter.push_str(&clean(&character.to_string()));
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(character) => self.append(character),
            _ => {}
        }
    }

    fn open(&mut self, pane: Pane) {
        self.pane = if self.pane == pane { Pane::Table } else { pane };
        self.scrolled = 0;
    }

    /// Closes the pane, or else clears the filter, or else quits.
    fn back(&mut self) -> Next {
        if self.pane != Pane::Table {
            self.open(Pane::Table);
        } else if !self.filter.is_empty() {
            self.filter.clear();
        } else {
            return Next::Quit;
        }
        Next::Stay
    }

    /// Moves the cursor, or scrolls what covers the table.
    fn go(&mut self, seen: Option<&ShownAssessment>, room: ScreenRoom, to: impl Fn(usize) -> usize) {
        if self.pane != Pane::Table {
            self.scrolled = to(self.scrolled).min(room.last);
            return;
        }
        let Some(seen) = seen else { return };
        let rows = self.rows(seen);
        let place = to(self.cursor(&rows)).min(rows.len().saturating_sub(1));
        self.chosen = rows.get(place).map(|hook| hook.key());
        self.place = place;
    }
}

/// Whether a hook needs attention.
pub fn in_trouble(hook: &ShownHook) -> bool {
    hook.health != Health::Healthy
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ROOM: ScreenRoom = ScreenRoom { rows: 10, last: 5 };

    fn seen(names: &[&str]) -> ShownAssessment {
        let hook = |name: &&str| {
            json!({"kind": "Validating", "configuration": "c", "webhook": name, "health": "Healthy",
                   "excess_share": name.len() as f64 / 100.0})
        };
        let hooks: Vec<_> = names.iter().map(hook).collect();
        let seen = json!({
            "at": "2026-11-21T00:11:02.156Z", "hooks": hooks,
            "control_plane": {"writes": "Flowing", "summary": ""},
        });
        ShownAssessment::parse(seen.to_string().as_bytes()).expect("an assessment")
    }

    fn typed(state: &mut ScreenState, seen: &ShownAssessment, keys: &str) -> Next {
        let mut next = Next::Stay;
        for character in keys.chars() {
            let code = match character {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\u{8}' => KeyCode::Backspace,
                character => KeyCode::Char(character),
            };
            next = state.key(KeyEvent::from(code), Some(seen), ROOM);
        }
        next
    }

    fn name<'a>(state: &ScreenState, seen: &'a ShownAssessment) -> &'a str {
        state.chosen(seen).map_or("", |hook| hook.webhook.as_str())
    }

    #[test]
    fn the_cursor_stays_on_its_hook_when_the_order_changes_and_within_the_table_always() {
        let (before, after) = (seen(&["a", "b", "c"]), seen(&["c", "new", "b", "a"]));
        let mut state = ScreenState::default();
        typed(&mut state, &before, "j");
        assert_eq!((name(&state, &before), name(&state, &after)), ("b", "b"));
        typed(&mut state, &after, "jjjjjj");
        assert_eq!(name(&state, &after), "a");
        typed(&mut state, &after, "kkkkkkkk");
        assert_eq!(name(&state, &after), "c");
        typed(&mut state, &after, "G");
        assert_eq!(name(&state, &seen(&["x", "y"])), "y");
        assert_eq!(name(&state, &seen(&[])), "");
        assert_eq!(typed(&mut state, &seen(&[]), "jkgG\n"), Next::Stay);
    }

    #[test]
    fn a_filter_is_typed_until_enter_and_its_letters_are_no_commands() {
        let seen = seen(&["quiet.example", "loud.example"]);
        let mut state = ScreenState::default();
        assert_eq!(typed(&mut state, &seen, "/QUI"), Next::Stay);
        assert!(state.typing);
        assert_eq!(state.rows(&seen).len(), 1);
        typed(&mut state, &seen, "x\u{8}\n");
        assert_eq!((state.typing, state.filter.as_str()), (false, "QUI"));
        assert_eq!(name(&state, &seen), "quiet.example");
        // The first takes the filter away, the second ends it.
        assert_eq!(typed(&mut state, &seen, "\u{1b}"), Next::Stay);
        assert_eq!(state.rows(&seen).len(), 2);
        assert_eq!(typed(&mut state, &seen, "\u{1b}"), Next::Quit);
        typed(&mut state, &seen, &format!("/\u{202e}{}", "q".repeat(1_000)));
        assert!(state.filter.chars().count() <= LONGEST_FILTER && !state.filter.contains('\u{202e}'));
    }

    #[test]
    fn what_is_open_is_closed_first_and_ctrl_c_always_ends_it() {
        let seen = seen(&["a", "b"]);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for keys in ["", "/abc", "?", "\n", "p"] {
            let mut state = ScreenState::default();
            assert_eq!(typed(&mut state, &seen, keys), Next::Stay, "{keys:?}");
            assert_eq!(
                state.clone().key(control_c, Some(&seen), ROOM),
                Next::Quit,
                "{keys:?}"
            );
        }
        let mut state = ScreenState::default();
        typed(&mut state, &seen, "j\n");
        assert_eq!(state.pane, Pane::Evidence);
        assert_eq!(name(&state, &seen), "b");
        typed(&mut state, &seen, "G");
        assert_eq!(state.scrolled, ROOM.last);
        assert_eq!(typed(&mut state, &seen, "kj\u{1b}"), Next::Stay);
        assert_eq!((state.pane, state.scrolled), (Pane::Table, 0));
        assert_eq!(typed(&mut state, &seen, "?q"), Next::Quit);
    }

    #[test]
    fn sorting_goes_round() {
        let seen = seen(&["bb", "a", "ccc"]);
        let mut state = ScreenState::default();
        let order = |state: &ScreenState| -> String {
            let rows = state.rows(&seen);
            rows.iter().map(|hook| &hook.webhook.as_str()[..1]).collect()
        };
        assert_eq!(order(&state), "bac");
        typed(&mut state, &seen, "s");
        assert_eq!((state.sort.as_str(), order(&state).as_str()), ("share", "cba"));
        typed(&mut state, &seen, "ss");
        assert_eq!((state.sort.as_str(), order(&state).as_str()), ("name", "abc"));
        typed(&mut state, &seen, "s");
        assert_eq!(state.sort, Sort::Worst);
    }
}
