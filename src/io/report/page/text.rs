//! Makes untrusted text, such as names from the cluster, safe to show on the page.

use maud::{Markup, Render, html};

use crate::domain::time::Time;

/// Most characters shown of a text; the API has all of it.
const LONGEST: usize = 600;
/// Most characters shown of a command. A cut command is useless, and one may name up to 50 webhooks.
const LONGEST_COMMAND: usize = 30_000;

/// Text from the cluster, or a sentence that contains some. Rendered escaped, cut to [`LONGEST`], and in a `bdi` element, so
/// that its text direction does not affect the text around it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foreign<'a>(pub(super) &'a str);

impl Render for Foreign<'_> {
    fn render(&self) -> Markup {
        html! { bdi { (harmless(self.0, LONGEST)) } }
    }
}

/// A command to copy that contains names from the cluster. Rendered as [`Foreign`], cut to [`LONGEST_COMMAND`].
#[derive(Debug, Clone, Copy)]
pub(super) struct ForeignCommand<'a>(pub(super) &'a str);

impl Render for ForeignCommand<'_> {
    fn render(&self) -> Markup {
        html! { code { bdi { (harmless(self.0, LONGEST_COMMAND)) } } }
    }
}

fn harmless(text: &str, longest: usize) -> String {
    let mut characters = text.chars();
    let mut kept: String = characters.by_ref().take(longest).map(visible).collect();
    if characters.next().is_some() {
        kept.push('…');
    }
    kept
}

/// Replaces control characters, and invisible ones that change how others are displayed, by U+FFFD.
fn visible(character: char) -> char {
    match character {
        '\u{061c}'
        | '\u{200b}'
        // U+200C and U+200D join or separate letters and the parts of an emoji; many names need them.
        | '\u{200e}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => '\u{fffd}',
        character if character.is_control() => '\u{fffd}',
        character => character,
    }
}

/// Renders as many items as fit into `room` bytes of markup. Returns the markup and the number of items left out.
pub(super) fn within<T>(
    room: usize,
    items: impl IntoIterator<Item = T>,
    draw: impl Fn(T) -> Markup,
) -> (Markup, usize) {
    let mut drawn = String::new();
    let mut items = items.into_iter();
    let mut left_out = 0;
    for item in items.by_ref() {
        let next = draw(item).into_string();
        if drawn.len() + next.len() > room {
            left_out = 1;
            break;
        }
        drawn.push_str(&next);
    }
    (maud::PreEscaped(drawn), left_out + items.count())
}

/// An instant in UTC, to the second; with its date if it is a day or more before `now`.
pub(super) fn clock(at: Time, now: Time) -> Markup {
    html! { time datetime=(at.to_string()) { (at.as_read_at(now)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_stays_text() {
        let shown = Foreign("<script>alert(1)</script>&\"'").render().into_string();
        assert_eq!(
            shown,
            "<bdi>&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;'</bdi>"
        );
    }

    #[test]
    fn what_turns_the_direction_of_a_line_is_made_visible_and_letters_of_any_script_stay() {
        let shown = Foreign("a\u{202e}b\u{2066}c\u{0}d").render().into_string();
        assert_eq!(shown, "<bdi>a\u{fffd}b\u{fffd}c\u{fffd}d</bdi>");
        for name in ["שלום", "مرحبا", "日本", "👩\u{200d}🚒"] {
            assert_eq!(Foreign(name).render().into_string(), format!("<bdi>{name}</bdi>"));
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let shown = Foreign(&"é".repeat(10_000)).render().into_string();
        assert_eq!(shown.matches('é').count(), LONGEST);
        assert!(shown.ends_with("…</bdi>"));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let (drawn, left_out) = within(10, ["aaaa", "bbbb", "cccc", "dddd"], |text| html! { (text) });
        assert_eq!((drawn.into_string().as_str(), left_out), ("aaaabbbb", 2));
        let (_, left_out) = within(100, ["a"], |text| html! { (text) });
        assert_eq!(left_out, 0);
    }

    #[test]
    fn an_instant_is_shown_as_the_time_of_day() {
        let at = Time::from_unix_millis(1_795_219_862_156);
        let shown = clock(at, at).into_string();
        assert_eq!(
            shown,
            "<time datetime=\"2026-11-21T00:11:02.156Z\">00:11:02</time>"
        );
    }
}
