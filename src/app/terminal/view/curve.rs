//! Draws the time per write over the last ten minutes, with marks for changes of verdicts.

use super::ViewModel;
use super::canvas::{Canvas, NARROW, Tone};
use super::history::CurveColumn;
use super::shown::{ShownAssessment, lasting};
use crate::domain::text::human_seconds;
use crate::domain::vocabulary::Writes;

/// Bars of one to eight eighths of a cell.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Shown where writes were blocked and none returned, so that there is no time.
const NONE_CAME_BACK: char = '░';

/// Draws the curve, `high` lines, between a line of numbers and a line of marks.
pub(super) fn curve(canvas: &mut Canvas<'_>, known: &ViewModel, seen: &ShownAssessment, high: usize) {
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
fn cell(column: &CurveColumn, row: usize, high: usize) -> (String, Tone) {
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
