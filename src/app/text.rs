//! Untrusted text, made harmless for a terminal, and its width there.

#![deny(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types
)]

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Deserializer};
use unicode_width::UnicodeWidthChar;

/// Longest text that is shown, in characters. The API has the whole of it.
const LONGEST: usize = 2_000;
/// Longest line that may hold a command, in characters: a command is useless when cut, and one names up to 50 webhooks.
const LONGEST_COMMAND: usize = 30_000;
/// Most combining marks kept on one letter. More would only spill over other lines.
const MARKS: usize = 2;

/// Text without terminal control sequences. Every way to make one cleans it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CleanText(String);

impl CleanText {
    /// Cleans a text as [`clean`] does.
    pub fn new(text: &str) -> Self {
        Self(clean(text))
    }

    /// Cleans a command, which may be longer than other texts: up to 30,000 characters.
    pub fn command(text: &str) -> Self {
        Self(clean_to(text, LONGEST_COMMAND))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for CleanText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CleanText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for CleanText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Ok(Self(clean(&text)))
    }
}

/// One line of bounded length. Control, bidirectional and invisible characters are replaced by a visible mark.
///
/// Joiners and variation selectors of emoji are dropped: terminals disagree about the width of the result, but agree
/// about its parts.
pub fn clean(text: &str) -> String {
    clean_to(text, LONGEST)
}

/// As [`clean`], line by line. A line may be longer: it may hold a command.
pub fn clean_lines(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| clean_to(line, LONGEST_COMMAND))
        .collect();
    lines.join("\n")
}

fn clean_to(text: &str, longest: usize) -> String {
    let (mut kept, mut marks) = (String::with_capacity(text.len().min(4 * longest)), 0);
    for (number, character) in text.chars().enumerate() {
        if number == longest {
            kept.push('…');
            break;
        }
        match character {
            '\n' | '\t' => kept.push(' '),
            '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' => {}
            '\u{061c}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}' => kept.push('\u{fffd}'),
            character if character.is_control() => kept.push('\u{fffd}'),
            character if character.width() == Some(0) => {
                marks += 1;
                if marks <= MARKS {
                    kept.push(character);
                }
                continue;
            }
            character => kept.push(character),
        }
        marks = 0;
    }
    kept
}

/// Columns that a text takes.
pub fn width(text: &str) -> usize {
    text.chars().map(of).sum()
}

fn of(character: char) -> usize {
    character.width().unwrap_or(0)
}

/// The text in at most `room` columns, with `…` where something is left out.
pub fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 0);
    for character in text.chars() {
        if used + of(character) + 1 > room {
            break;
        }
        used += of(character);
        kept.push(character);
    }
    if room > 0 {
        kept.push('…');
    }
    kept
}

/// The text in exactly `room` columns, filled up with spaces.
pub fn fit(text: &str, room: usize) -> String {
    let mut kept = cut(text, room);
    kept.extend(std::iter::repeat_n(' ', room.saturating_sub(width(&kept))));
    kept
}

/// The value as text; a dash for `None`.
pub fn or_dash(known: Option<impl fmt::Display>) -> String {
    known.map_or_else(|| "-".to_owned(), |known| known.to_string())
}

/// The text in lines of at most `room` columns, broken between words where that is possible.
pub fn wrap(text: &str, room: usize) -> Vec<String> {
    let room = room.max(2);
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let wide = width(word);
        if used > 0 && used + 1 + wide > room {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        for character in word.chars() {
            if used + of(character) > room {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push(character);
            used += of(character);
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_escape_sequence_and_no_turn_of_direction_gets_through() {
        let shown = clean("a\u{1b}[31mred\u{1b}]0;title\u{7}\u{9b}2J\u{202e}b\u{2066}c\r\n\u{7f}d");
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert_eq!(
            shown,
            "a\u{fffd}[31mred\u{fffd}]0;title\u{fffd}\u{fffd}2J\u{fffd}b\u{fffd}c\u{fffd} \u{fffd}d"
        );
    }

    #[test]
    fn lines_stay_lines_and_a_long_command_is_not_cut() {
        assert_eq!(
            clean_lines("a\u{202e}b\n\n  c\u{1b}[2J\u{200b}\n"),
            "a\u{fffd}b\n\n  c\u{fffd}[2J\u{fffd}\n"
        );
        let command = "hookwatch break ".repeat(600);
        assert_eq!(clean_lines(&command), command);
        assert_eq!(CleanText::command(&command).as_str(), command);
    }

    #[test]
    fn letters_of_any_script_stay_and_one_emoji_of_several_becomes_several() {
        for name in ["שלום", "مرحبا", "日本", "e\u{301}"] {
            assert_eq!(clean(name), name);
        }
        assert_eq!(clean("👩\u{200d}🚒✔\u{fe0f}"), "👩🚒✔");
        let towers = format!("a{}b", "\u{301}".repeat(1_000));
        assert_eq!(clean(&towers).chars().count(), 4);
    }

    #[test]
    fn a_text_takes_the_columns_that_a_terminal_gives_it() {
        assert_eq!(
            (width("abc"), width("日本"), width("🔥x"), width("e\u{301}")),
            (3, 4, 3, 1)
        );
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(
            (cut("abc", 3), cut("abcd", 3), cut("abcd", 0)),
            ("abc".into(), "ab…".into(), String::new())
        );
        for room in 0..12 {
            assert_eq!(width(&fit("日本語abc", room)), room, "{room}");
        }
    }

    #[test]
    fn no_line_is_wider_than_its_room_and_no_word_is_lost() {
        for room in 2..30 {
            let lines = wrap(
                "a hook named policy-0001.validate.example.com 日本語日本語 hangs",
                room,
            );
            assert!(lines.iter().all(|line| width(line) <= room), "{room}: {lines:?}");
            let all: String = lines.concat().replace(' ', "");
            assert_eq!(all, "ahooknamedpolicy-0001.validate.example.com日本語日本語hangs");
        }
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert!(wrap("", 7).is_empty());
    }

    #[test]
    fn a_text_of_any_length_is_bounded() {
        let shown = clean(&"é".repeat(100_000));
        assert_eq!(shown.chars().count(), LONGEST + 1);
    }
}
