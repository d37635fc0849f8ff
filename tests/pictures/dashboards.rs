//! Pictures of the dashboards: each panel of the file, with what a real Prometheus answered to its queries.
//!
//! Grafana is not asked: its licence keeps it out of this repository's tests. The picture has its grid, panels, queries, units
//! and colours, in a plainer style.

mod kinds;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use crate::sources::same;

/// A column and a row of the grid, in pixels, and the space between panels.
const COLUMN: f64 = 42.0;
const ROW: f64 = 27.0;
const GAP: f64 = 8.0;
/// The width of a character of the smaller text, about.
const LETTER: f64 = 6.4;
/// By Okabe and Ito: the colour-blind tell them apart.
const PALETTE: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00"];
const NAMED: [(&str, &str); 5] = [
    ("blue", "#1f60c4"),
    ("orange", "#b35900"),
    ("red", "#c4162a"),
    ("purple", "#7c4dbe"),
    ("text", "#5d6168"),
];

/// What `tests/pipeline.rs` kept.
#[derive(Deserialize)]
struct Recorded {
    step: u64,
    queries: BTreeMap<String, Vec<Series>>,
}

#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    values: Vec<Option<f64>>,
}

/// One line of a panel.
struct Line<'a> {
    name: String,
    /// The colour that the dashboard gives it.
    fixed: Option<&'static str>,
    colour: &'static str,
    values: &'a [Option<f64>],
}

impl Line<'_> {
    fn last(&self) -> Option<f64> {
        self.values.iter().rev().copied().find(Option::is_some).flatten()
    }
}

struct Panel<'a> {
    panel: &'a Value,
    recorded: &'a Recorded,
    x: f64,
    y: f64,
    wide: f64,
    high: f64,
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn text(out: &mut String, (x, y): (f64, f64), size: u32, extra: &str, said: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<text x=\"{x:.0}\" y=\"{y:.0}\" font-size=\"{size}\" {extra}>{}</text>",
        escaped(said)
    );
}

/// `{{webhook}}: {{cause}}` with the labels of a series. Of a label that it does not have nothing is shown.
fn legend(format: &str, labels: &BTreeMap<String, String>) -> String {
    let said = labels.iter().fold(format.to_owned(), |said, (label, value)| {
        said.replace(&format!("{{{{{label}}}}}"), value)
    });
    said.replace("{{cluster}}", "").trim().to_owned()
}

/// Whether an override is of the series with this name: one that begins as the pattern says, before its cluster.
fn is_of(matcher: &Value, name: &str) -> bool {
    let pattern = matcher["options"].as_str().unwrap();
    pattern
        .strip_prefix("/^")
        .and_then(|pattern| pattern.strip_suffix("( |$)/"))
        .is_some_and(|begin| begin == name)
}

fn shown(value: f64, unit: &str) -> String {
    match unit {
        "s" if value >= 86_400.0 => format!("{:.0} days", value / 86_400.0),
        "s" if value >= 0.9995 => format!("{value:.1} s"),
        "s" => format!("{:.0} ms", value * 1_000.0),
        "percentunit" => format!("{:.0} %", value * 100.0),
        "cps" => format!("{value:.1}/s"),
        _ if value.fract() == 0.0 || value > 10.0 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}

/// The end of a scale that begins at 0.
fn scale(most: f64) -> f64 {
    let magnitude = 10_f64.powf(most.max(1e-6).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * magnitude >= most * 0.999);
    step.unwrap_or(10.0) * magnitude
}

impl Panel<'_> {
    fn unit(&self) -> &str {
        self.panel["fieldConfig"]["defaults"]["unit"]
            .as_str()
            .unwrap_or("none")
    }

    fn lines(&self) -> Vec<Line<'_>> {
        let overrides = self.panel["fieldConfig"]["overrides"].as_array().unwrap();
        let mut lines = Vec::new();
        for target in self.panel["targets"].as_array().unwrap() {
            // An instant query is answered with what there is now; of a range Grafana takes the last value that is there.
            let is_instant = target["instant"] == true;
            let is_shown =
                |series: &&Series| !is_instant || series.values.last().is_some_and(Option::is_some);
            for series in self.answers(target).iter().filter(is_shown) {
                let name = legend(target["legendFormat"].as_str().unwrap(), &series.metric);
                let named = overrides.iter().find(|found| is_of(&found["matcher"], &name));
                let fixed = named.and_then(|found| found["properties"][0]["value"]["fixedColor"].as_str());
                let fixed = fixed.and_then(|fixed| NAMED.iter().find(|(name, _)| *name == fixed));
                let fixed = fixed.map(|(_, colour)| *colour);
                lines.push(Line {
                    name,
                    fixed,
                    colour: fixed.unwrap_or(PALETTE[lines.len() % PALETTE.len()]),
                    values: &series.values,
                });
            }
        }
        lines
    }

    fn answers(&self, target: &Value) -> &[Series] {
        let query = target["expr"].as_str().unwrap();
        let found = self.recorded.queries.get(query);
        found.unwrap_or_else(|| {
            panic!("no answer to {query:?} is kept: HOOKWATCH_BLESS=1 cargo test --test program pipeline")
        })
    }

    fn draw(&self, out: &mut String) {
        let (x, y) = (self.x, self.y);
        let _ = writeln!(
            out,
            "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{:.0}\" height=\"{:.0}\" rx=\"3\" fill=\"#fff\" stroke=\"#dcdde1\"/>",
            self.wide, self.high
        );
        let title = self.panel["title"].as_str().unwrap();
        text(out, (x + 10.0, y + 19.0), 13, "font-weight=\"600\"", title);
        let is_empty = self.lines().is_empty();
        match self.panel["type"].as_str().unwrap() {
            _ if is_empty => self.nothing(out),
            "stat" => self.stat(out),
            "table" => self.table(out),
            "state-timeline" => self.timeline(out),
            _ => self.curves(out),
        }
    }

    fn nothing(&self, out: &mut String) {
        let said = self.panel["fieldConfig"]["defaults"]["noValue"]
            .as_str()
            .unwrap_or("no data");
        let at = (self.x + self.wide / 2.0, self.y + self.high / 2.0 + 12.0);
        text(out, at, 16, "text-anchor=\"middle\" fill=\"#5d6168\"", said);
    }

    /// Seconds along the bottom.
    fn clock(&self, out: &mut String, left: f64, wide: f64) {
        let all = self.recorded.step * (self.lines().first().map_or(1, |line| line.values.len()) as u64 - 1);
        for quarter in 0..=2_u32 {
            let x = left + wide * f64::from(quarter) / 2.0;
            let anchor = ["start", "middle", "end"][quarter as usize];
            let said = format!("{} s", all * u64::from(quarter) / 2);
            let extra = format!("text-anchor=\"{anchor}\" fill=\"#5d6168\"");
            text(out, (x, self.bottom() + 14.0), 10, &extra, &said);
        }
    }

    /// Where the plot ends: below it are the instants, and the legend of curves.
    fn bottom(&self) -> f64 {
        match self.panel["type"].as_str() {
            Some("state-timeline") => self.y + self.high - 20.0,
            _ => self.y + self.high - 20.0 - 15.0 * self.legends().len() as f64,
        }
    }

    /// The legend in lines that fit.
    fn legends(&self) -> Vec<Vec<usize>> {
        let lines = self.lines();
        let mut rows: Vec<Vec<usize>> = vec![Vec::new()];
        let mut used = 0.0;
        for (at, line) in lines.iter().enumerate() {
            let wide = self.label(line).chars().count() as f64 * LETTER + 30.0;
            if used > 0.0 && used + wide > self.wide - 16.0 {
                rows.push(Vec::new());
                used = 0.0;
            }
            used += wide;
            if let Some(row) = rows.last_mut() {
                row.push(at);
            }
        }
        rows
    }

    fn label(&self, line: &Line<'_>) -> String {
        let unit = if line.name.ends_with(" late") {
            "none"
        } else {
            self.unit()
        };
        line.last().map_or_else(
            || line.name.clone(),
            |value| format!("{} {}", line.name, shown(value, unit)),
        )
    }
}

fn picture(name: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let dashboard: Value = serde_json::from_str(&read(&format!("dashboards/{name}.json"))).unwrap();
    let recorded: Recorded = serde_json::from_str(&read("tests/fixtures/dashboards.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let at = |panel: &Value, key: &str| panel["gridPos"][key].as_f64().unwrap();
    let rows = panels
        .iter()
        .map(|panel| at(panel, "y") + at(panel, "h"))
        .fold(0.0, f64::max);
    let (wide, high) = (24.0 * COLUMN + GAP, rows * ROW + 44.0);
    let title = dashboard["title"].as_str().unwrap();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 {wide:.0} {high:.0}\" width=\"{wide:.0}\" \
         height=\"{high:.0}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" fill=\"#1c1f23\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#f4f5f7\"/>\n",
        escaped(title)
    );
    text(&mut out, (GAP + 2.0, 24.0), 16, "font-weight=\"600\"", title);
    for panel in panels {
        let panel = Panel {
            panel,
            recorded: &recorded,
            x: at(panel, "x") * COLUMN + GAP,
            y: at(panel, "y") * ROW + 36.0,
            wide: at(panel, "w") * COLUMN - GAP,
            high: at(panel, "h") * ROW - GAP,
        };
        panel.draw(&mut out);
    }
    out.push_str("</svg>\n");
    out
}

#[test]
fn the_pictures_of_the_dashboards_have_every_panel_with_what_a_prometheus_answered() {
    for name in ["overview", "webhook", "breaker"] {
        same(&format!("dashboard-{name}.svg"), &picture(name));
    }
}
