//! A terminal's screen as an SVG: text where there is text, so that it is small, sharp and can be compared.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// The size of a cell, in pixels.
const WIDE: f64 = 8.4;
const HIGH: f64 = 18.0;
/// Around the screen.
const EDGE: f64 = 12.0;
const PAPER: &str = "#14161a";
const INK: &str = "#e4e6e9";

/// What a cell looks like.
#[derive(Clone, Copy, PartialEq)]
struct Look {
    ink: &'static str,
    paper: Option<&'static str>,
    bold: bool,
}

/// Colours of a dark terminal that the colour-blind tell apart, with a contrast of 4.5 and more.
pub const COLOURS: [(Color, &str); 4] = [
    (Color::Red, "#ff6b6b"),
    (Color::Yellow, "#f0b429"),
    (Color::Green, "#5fc4a8"),
    (Color::DarkGray, "#9aa0a8"),
];

fn look(cell: &Cell) -> Look {
    let colour = COLOURS.iter().find(|(colour, _)| *colour == cell.fg);
    let ink = colour.map_or(INK, |(_, ink)| ink);
    let bold = cell.modifier.contains(Modifier::BOLD);
    if cell.modifier.contains(Modifier::REVERSED) {
        Look {
            ink: PAPER,
            paper: Some(ink),
            bold,
        }
    } else {
        Look {
            ink,
            paper: None,
            bold,
        }
    }
}

/// How much of a cell a bar fills, from below, and how solid it is.
fn bar(symbol: &str) -> Option<(f64, f64)> {
    let character = symbol.chars().next()?;
    match character {
        '▁'..='█' => Some((f64::from(character as u32 - '▁' as u32 + 1) / 8.0, 1.0)),
        '░' => Some((1.0, 0.3)),
        _ => None,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The picture. `title` says what is on it to those who cannot see it.
pub fn svg(title: &str, buffer: &Buffer) -> String {
    let area = buffer.area;
    let (width, height) = (
        f64::from(area.width) * WIDE + 2.0 * EDGE,
        f64::from(area.height) * HIGH + 2.0 * EDGE,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"14\">\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{PAPER}\"/>\n",
        escaped(title)
    );
    for y in 0..area.height {
        let mut x = 0;
        while x < area.width {
            let begin = x;
            let first = &buffer[(x, y)];
            let (look, is_bar) = (look(first), bar(first.symbol()).is_some());
            let mut text = String::new();
            while x < area.width {
                let cell = &buffer[(x, y)];
                if self::look(cell) != look || bar(cell.symbol()).is_some() != is_bar {
                    break;
                }
                if is_bar {
                    bar_of(&mut out, cell.symbol(), (x, y), look.ink);
                } else {
                    text.push_str(cell.symbol());
                }
                x += 1;
            }
            if !is_bar {
                run(&mut out, &text, (begin, y), x - begin, look);
            }
        }
    }
    out.push_str("</svg>\n");
    out
}

fn bar_of(out: &mut String, symbol: &str, (x, y): (u16, u16), ink: &str) {
    let Some((share, solid)) = bar(symbol) else { return };
    let (x, y) = (
        EDGE + f64::from(x) * WIDE,
        EDGE + f64::from(y) * HIGH + HIGH * (1.0 - share),
    );
    let high = HIGH * share;
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{WIDE}\" height=\"{high:.1}\" fill=\"{ink}\" fill-opacity=\"{solid}\"/>"
    );
}

/// Text in one look. Its length is given: it stays in its cells whatever font there is.
fn run(out: &mut String, text: &str, (x, y): (u16, u16), cells: u16, look: Look) {
    let (left, top) = (EDGE + f64::from(x) * WIDE, EDGE + f64::from(y) * HIGH);
    if let Some(paper) = look.paper {
        let wide = f64::from(cells) * WIDE;
        let _ = writeln!(
            out,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{HIGH}\" fill=\"{paper}\"/>"
        );
    }
    let shown = text.trim_end();
    let indent = shown.len() - shown.trim_start().len();
    let shown = shown.trim_start();
    if shown.is_empty() {
        return;
    }
    let count = shown.chars().count();
    let left = left + indent as f64 * WIDE;
    let base = top + HIGH * 0.74;
    let weight = if look.bold { " font-weight=\"700\"" } else { "" };
    let _ = writeln!(
        out,
        "<text x=\"{left:.1}\" y=\"{base:.1}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\"{weight} \
         xml:space=\"preserve\">{}</text>",
        count as f64 * WIDE,
        look.ink,
        escaped(shown)
    );
}
