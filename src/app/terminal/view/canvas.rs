//! Draws lines of text, cut to the width, with or without colours.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use crate::app::text::cut;
use crate::domain::vocabulary::{Health, Writes};

/// Below this many columns the top line and the lines about breaker, leader and audit are left out, and the curve's legend is cut
/// short.
pub(super) const NARROW: usize = 40;

/// What a piece of text is, and so how it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    /// Less important.
    Quiet,
    /// A heading.
    Strong,
    /// Nothing is wrong.
    Good,
    /// Look at it.
    Warning,
    /// Act.
    Bad,
}

impl Tone {
    /// The style, with colours or without. Without colours only bold is used: the text says what a colour would.
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

    pub const fn of(health: Health) -> Self {
        match health {
            Health::Healthy => Self::Good,
            Health::Suspect => Self::Warning,
            Health::Failing => Self::Bad,
            Health::Unknown => Self::Quiet,
        }
    }

    pub(super) const fn of_writes(writes: Writes) -> Self {
        match writes {
            Writes::Flowing => Self::Good,
            // Unlike one hook's health: while this is unknown, nothing at all is known of the control plane.
            Writes::Delayed | Writes::Unknown => Self::Warning,
            Writes::Blocked => Self::Bad,
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
    pub(super) fn new(buffer: &'a mut Buffer, area: Rect, colour: bool) -> Self {
        Self {
            buffer,
            area,
            colour,
            used: 0,
        }
    }

    pub fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    pub fn free_lines(&self) -> usize {
        usize::from(self.area.height - self.used)
    }

    /// Draws the next line, where there is one.
    pub fn line(&mut self, pieces: &[(&str, Tone)]) {
        if self.free_lines() == 0 {
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

    /// Inverts the line that was drawn last.
    pub(super) fn highlight(&mut self) {
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
