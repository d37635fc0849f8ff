//! Text from outside, held to a length at which it can be stored, shown and logged.

/// The most characters of a peer's or a library's text that are kept.
const LONGEST: usize = 300;

/// `text` on one line and not too long.
pub(super) fn bounded(text: &str) -> String {
    let mut kept: String = text
        .chars()
        .take(LONGEST)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_and_line_feeds_are_gone() {
        let kept = bounded(&"é\n".repeat(1_000));
        assert_eq!(kept.chars().count(), LONGEST + 1);
        assert!(!kept.contains('\n'));
        assert_eq!(bounded("short"), "short");
    }
}
