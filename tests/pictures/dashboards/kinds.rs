//! What is within a panel, by its kind.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hookwatch::app::text::cut;

use super::{LETTER, Line, Panel, scale, shown, text};

/// Without its colour, too, a curve is told from the next.
const DASHES: [&str; 3] = ["", " stroke-dasharray=\"7 3\"", " stroke-dasharray=\"2 3\""];

impl Panel<'_> {
    pub(super) fn stat(&self, out: &mut String) {
        let is_name = self.panel["options"]["textMode"] == "name";
        let lines = self.lines();
        let high = (self.high - 34.0) / lines.len().max(1) as f64;
        for (line, at) in lines.iter().zip(0_u32..) {
            let top = self.y + 28.0 + f64::from(at) * high;
            let middle = (self.x + self.wide / 2.0, top + high / 2.0 + 8.0);
            if is_name {
                let _ = writeln!(
                    out,
                    "<rect x=\"{:.0}\" y=\"{top:.0}\" width=\"{:.0}\" height=\"{:.0}\" fill=\"{}\"/>",
                    self.x + 6.0,
                    self.wide - 12.0,
                    high - 2.0,
                    line.fixed.unwrap_or("#5d6168")
                );
                text(
                    out,
                    middle,
                    22,
                    "text-anchor=\"middle\" fill=\"#fff\" font-weight=\"600\"",
                    &line.name,
                );
            } else {
                let value = shown(line.last().unwrap_or_default(), self.unit());
                let said = if lines.len() > 1 {
                    format!("{}: {value}", line.name)
                } else {
                    value
                };
                text(out, middle, 22, "text-anchor=\"middle\"", &said);
            }
        }
    }

    /// The newest values of all queries, put together by the labels that they share.
    pub(super) fn table(&self, out: &mut String) {
        let mut rows: BTreeMap<(String, String), BTreeMap<String, String>> = BTreeMap::new();
        for target in self.panel["targets"].as_array().unwrap() {
            let reference = target["refId"].as_str().unwrap();
            for series in self.answers(target) {
                let Some(Some(value)) = series.values.last() else {
                    continue;
                };
                let label = |name: &str| series.metric.get(name).cloned().unwrap_or_default();
                let row = rows
                    .entry((label("configuration"), label("webhook")))
                    .or_default();
                row.extend(series.metric.clone());
                row.insert(format!("Value #{reference}"), shown(*value, "percentunit"));
            }
        }
        let organised = &self.panel["transformations"][2]["options"];
        let order = organised["indexByName"].as_object().unwrap();
        let mut columns: Vec<&String> = order.keys().collect();
        columns.sort_by_key(|column| order[*column].as_u64());
        let columns = columns.into_iter().map(|column| {
            let cells: Vec<&str> = rows
                .values()
                .map(|row| row.get(column).map_or("", String::as_str))
                .collect();
            let heading = organised["renameByName"][column].as_str().unwrap();
            let all = cells.iter().chain([&heading]);
            let longest = all.map(|cell| cell.chars().count()).max().unwrap_or_default();
            (heading, cells, longest)
        });
        let mut columns: Vec<(&str, Vec<&str>, usize)> = columns.collect();
        // What does not fit is taken from the widest.
        let room = ((self.wide - 20.0) / LETTER) as usize - 2 * columns.len();
        while columns.iter().map(|(.., wide)| wide).sum::<usize>() > room {
            let widest = columns.iter_mut().max_by_key(|(.., wide)| *wide).unwrap();
            widest.2 -= 1;
        }
        let mut x = self.x + 10.0;
        for (heading, cells, wide) in columns {
            text(out, (x, self.y + 44.0), 11, "fill=\"#5d6168\"", heading);
            for (cell, at) in cells.iter().zip(0_u32..) {
                text(
                    out,
                    (x, self.y + 66.0 + f64::from(at) * 22.0),
                    11,
                    "",
                    &cut(cell, wide),
                );
            }
            x += (wide + 2) as f64 * LETTER;
        }
    }

    pub(super) fn timeline(&self, out: &mut String) {
        let lines = self.lines();
        let left = lines
            .iter()
            .map(|line| line.name.chars().count())
            .max()
            .unwrap_or_default() as f64
            * LETTER
            + 18.0;
        let wide = self.wide - left - 12.0;
        let high = ((self.high - 46.0) / lines.len() as f64).min(34.0);
        for (line, at) in lines.iter().zip(0_u32..) {
            let top = self.y + 32.0 + f64::from(at) * high;
            text(out, (self.x + 10.0, top + high / 2.0 + 2.0), 11, "", &line.name);
            let step = wide / line.values.len() as f64;
            let mut begin = None;
            for (place, value) in line.values.iter().chain([&None]).enumerate() {
                let is_on = value.is_some_and(|value| value >= 1.0);
                match (begin, is_on) {
                    (None, true) => begin = Some(place),
                    (Some(from), false) => {
                        let _ = writeln!(
                            out,
                            "<rect x=\"{:.1}\" y=\"{:.0}\" width=\"{:.1}\" height=\"{:.0}\" fill=\"#c4162a\"/>",
                            self.x + left + from as f64 * step,
                            top - 3.0,
                            (place - from) as f64 * step,
                            high - 6.0
                        );
                        begin = None;
                    }
                    _ => {}
                }
            }
        }
        self.clock(out, self.x + left, wide);
    }

    pub(super) fn curves(&self, out: &mut String) {
        let lines = self.lines();
        let is_stacked = self.panel["fieldConfig"]["defaults"]["custom"]["stacking"].is_object();
        let count = lines.iter().map(|line| line.values.len()).max().unwrap_or(1);
        let value = |line: &Line<'_>, at: usize| line.values.get(at).copied().flatten();
        let most = (0..count)
            .flat_map(|at| {
                let values = lines
                    .iter()
                    .filter_map(|line| value(line, at))
                    .collect::<Vec<f64>>();
                if is_stacked {
                    vec![values.iter().sum()]
                } else {
                    values
                }
            })
            .fold(0.0, f64::max);
        let top = if most > 0.0 { scale(most) } else { 1.0 };
        let (left, begin, end) = (self.x + 50.0, self.y + 32.0, self.bottom());
        let wide = self.wide - 62.0;
        let place = |at: usize, value: f64| {
            let x = left + wide * at as f64 / (count - 1).max(1) as f64;
            (x, end - (end - begin) * value / top)
        };
        for part in 0..=2_u32 {
            let part = f64::from(part) / 2.0;
            let (_, y) = place(0, top * part);
            let _ = writeln!(
                out,
                "<path d=\"M{left:.0} {y:.1}h{wide:.0}\" stroke=\"#e6e7ea\"/>"
            );
            let extra = "text-anchor=\"end\" fill=\"#5d6168\"";
            text(
                out,
                (left - 5.0, y + 4.0),
                10,
                extra,
                &shown(top * part, self.unit()),
            );
        }
        let mut below = vec![0.0; count];
        for (number, line) in lines.iter().enumerate() {
            let mut path = String::new();
            let mut is_down = false;
            for (at, base) in below.iter_mut().enumerate() {
                let Some(value) = value(line, at) else {
                    is_down = false;
                    continue;
                };
                let (x, y) = place(at, value + *base);
                // A value between two gaps is a dot.
                let _ = if is_down {
                    write!(path, "L{x:.1} {y:.1}")
                } else {
                    write!(path, "M{x:.1} {y:.1}h2")
                };
                is_down = true;
                if is_stacked {
                    *base += value;
                }
            }
            let dash = DASHES[number % 3];
            let _ = writeln!(
                out,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linecap=\"round\"{dash}/>",
                line.colour
            );
        }
        self.clock(out, left, wide);
        self.under(out, end);
    }

    /// The legend, from the end of the plot.
    fn under(&self, out: &mut String, end: f64) {
        let lines = self.lines();
        for (row, line_y) in self.legends().iter().zip(1_u32..) {
            let y = end + 18.0 + 15.0 * f64::from(line_y) - 5.0;
            let mut x = self.x + 10.0;
            for at in row {
                let (line, label) = (&lines[*at], self.label(&lines[*at]));
                let dash = DASHES[*at % 3];
                let _ = writeln!(
                    out,
                    "<path d=\"M{x:.0} {:.0}h16\" stroke=\"{}\" stroke-width=\"2.5\"{dash}/>",
                    y - 4.0,
                    line.colour
                );
                text(out, (x + 20.0, y), 11, "", &label);
                x += label.chars().count() as f64 * LETTER + 30.0;
            }
        }
    }
}
