//! A chart of the last hour: the time per write, the culprits' part of it, and marks for events.
//!
//! The curves are in an SVG that is stretched to the width of the page. Text and marks must not be stretched, so they are
//! outside of it, placed at percentages of the width. This keeps the chart readable on a phone.

use std::fmt::Write as _;
use std::time::Duration;

use maud::{Markup, html};

use super::past::{Mark, MarkKind, PastAction, PastSample, ShownPast};
use super::text::{clock, within};
use crate::domain::text::human_seconds;
use crate::domain::time::Time;
use crate::domain::vocabulary::Writes;

/// Columns of the chart: the resolution in time.
const COLUMNS: usize = 240;
/// Most marks in the chart; the list of past events has more.
const MAX_MARKS: usize = 24;
/// Most bytes for the bands behind the curves.
const BANDS: usize = 6_000;
/// Time spans of the chart. It shows the shortest that contains all samples, so that it is not mostly empty after a start.
const SPANS: [Duration; 6] = [
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(120),
    Duration::from_secs(300),
    Duration::from_secs(900),
    super::past::SPAN,
];
/// Upper ends of the vertical scale, in seconds.
const SCALES: [f32; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 40.0, 120.0,
];

/// All samples within one column, combined.
#[derive(Debug, Clone, Copy, Default)]
struct TimelineColumn {
    write: Option<f32>,
    create: Option<f32>,
    update: Option<f32>,
    culprits: f32,
    canary: Option<f32>,
    writes: Option<Writes>,
}

impl TimelineColumn {
    /// Adds a sample. A column keeps the maximum of each value, because spikes matter most.
    fn add(&mut self, sample: &PastSample) {
        let longest = |a: Option<f32>, b: Option<f32>| a.into_iter().chain(b).reduce(f32::max);
        self.write = longest(self.write, sample.write);
        self.create = longest(self.create, sample.create);
        self.update = longest(self.update, sample.update);
        self.culprits = self.culprits.max(sample.culprits);
        self.canary = longest(self.canary, sample.canary);
        self.writes = self.writes.max(Some(sample.writes));
    }

    /// The upper edge of the area that shows the culprits' share, in seconds: the time per write while culprits have a share,
    /// and while writes are blocked the slowest canary's wait, whichever is longer.
    fn most_of_the_culprits(&self) -> Option<f32> {
        let share = self.write.filter(|_| self.culprits > 0.0);
        let waiting = self.canary.filter(|_| self.writes == Some(Writes::Blocked));
        share.into_iter().chain(waiting).reduce(f32::max)
    }

    /// The lower edge of that area: the time per write without the culprits, in seconds.
    fn rest(&self) -> f32 {
        if self.culprits > 0.0 {
            (self.write.unwrap_or_default() - self.culprits).max(0.0)
        } else {
            0.0
        }
    }
}

/// The coordinate system: time to the right, up to `now`; seconds up, to `top`.
struct Frame {
    now: Time,
    span: Duration,
    top: f32,
}

impl Frame {
    /// The horizontal position of an instant, 0 to 1; `None` if it is before the chart's span.
    fn x(&self, at: Time) -> Option<f64> {
        let ago = self.now.since(at);
        (ago <= self.span).then(|| 1.0 - ago.as_secs_f64() / self.span.as_secs_f64())
    }

    fn column(&self, at: Time) -> Option<usize> {
        let place = self.x(at)? * COLUMNS as f64;
        Some((place as usize).min(COLUMNS - 1))
    }

    /// The vertical position of a duration: 0 is the top, 100 the bottom.
    fn y(&self, seconds: f32) -> f32 {
        100.0 - (seconds / self.top).clamp(0.0, 1.0) * 100.0
    }
}

pub(super) fn figure(past: &ShownPast, usual: Option<f64>, now: Time) -> Markup {
    let span = span(past, now);
    let mut frame = Frame { now, span, top: 1.0 };
    let columns = columns(past, &frame);
    let highest = columns
        .iter()
        .flat_map(|column| [column.write, column.create, column.update, column.canary])
        .flatten()
        .fold(0.0, f32::max);
    frame.top = SCALES
        .into_iter()
        .find(|top| highest * 1.05 <= *top)
        .unwrap_or(SCALES[SCALES.len() - 1]);
    let marks = marks(past, &frame);
    let last = match span.as_secs() {
        seconds @ ..=60 => format!("last {seconds} s"),
        seconds => format!("last {} min", seconds / 60),
    };
    let told = format!(
        "Time per CREATE or UPDATE, {last}: {} at most, {} marks.",
        human_seconds(f64::from(highest)),
        marks.len()
    );
    html! {
        figure #timeline {
            figcaption {
                h2 { "Time per CREATE or UPDATE, " (last) ", UTC" }
                (legend(&marks, usual.is_some()))
            }
            div.plot {
                (scale(&frame))
                svg.chart role="img" aria-label=(told) {
                    (grid())
                    (states(&columns))
                    svg viewBox={ "0 0 " (COLUMNS) " 100" } preserveAspectRatio="none" width="100%" height="100%" {
                        (paths(&columns, &frame))
                        @if let Some(usual) = usual {
                            @let y = frame.y(usual as f32);
                            path.usual d={ "M0 " (short(y)) "H" (COLUMNS) } {}
                        }
                    }
                    @for (mark, x) in &marks { (drawn(mark, *x, &frame)) }
                }
                (hours(&frame))
            }
        }
    }
}

/// The shortest of [`SPANS`] that contains all samples.
fn span(past: &ShownPast, now: Time) -> Duration {
    let oldest = past
        .samples
        .first()
        .map_or(Duration::ZERO, |sample| now.since(sample.at));
    SPANS
        .into_iter()
        .find(|span| oldest <= *span)
        .unwrap_or(super::past::SPAN)
}

/// The samples by column. If there are more columns than samples, an empty column repeats the one before.
fn columns(past: &ShownPast, frame: &Frame) -> [TimelineColumn; COLUMNS] {
    let mut columns = [TimelineColumn::default(); COLUMNS];
    for sample in &past.samples {
        if let Some(column) = frame.column(sample.at) {
            columns[column].add(sample);
        }
    }
    fill(&mut columns, frame.span);
    columns
}

/// The newest marks, each with its horizontal position. Bad ones are last, so that they are drawn on top.
fn marks<'a>(past: &'a ShownPast, frame: &Frame) -> Vec<(&'a Mark, f64)> {
    let mut marks: Vec<(&Mark, f64)> = past
        .marks
        .iter()
        .filter_map(|mark| Some((mark, frame.x(mark.at)?)))
        .take(MAX_MARKS)
        .collect();
    marks.sort_by_key(|(mark, _)| class(mark.kind) == "m bad");
    marks
}

fn legend(marks: &[(&Mark, f64)], has_usual: bool) -> Markup {
    html! {
        ul.legend {
            li { i.k.k-create {} "CREATE" }
            li { i.k.k-update {} "UPDATE" }
            li { i.k.k-share {} "culprit's share" }
            li { i.k.k-canary {} "slowest canary" }
            @if has_usual { li { i.k.k-usual {} "usual" } }
            @for (class, what) in MARKS {
                @if marks.iter().any(|(mark, _)| self::class(mark.kind) == class) {
                    li { svg.k-mark viewBox="-6 -6 12 12" aria-hidden="true" { g class=(class) { path d=(shape(class)) {} } } (what) }
                }
            }
        }
    }
}

fn scale(frame: &Frame) -> Markup {
    html! {
        div.scale aria-hidden="true" {
            span { (round(frame.top)) }
            span { (round(frame.top / 2.0)) }
            span { "0" }
        }
    }
}

/// A duration for the scale: `10 s`, not `10.0 s`.
fn round(seconds: f32) -> String {
    human_seconds(f64::from(seconds)).replace(".0 ", " ")
}

fn fill(columns: &mut [TimelineColumn], span: Duration) {
    // The columns of 5 s: samples come every 2 s or a little more. The rest of a longer gap stays empty.
    let gap = (COLUMNS as u64 * 5).div_ceil(span.as_secs()) as usize;
    let (mut last, mut since) = (TimelineColumn::default(), usize::MAX);
    for column in columns {
        if column.writes.is_some() {
            (last, since) = (*column, 0);
        } else if since < gap {
            since += 1;
            *column = last;
        } else {
            since = usize::MAX;
        }
    }
}

fn grid() -> Markup {
    html! {
        @for y in ["0.5", "50%"] {
            line.grid x1="0" x2="100%" y1=(y) y2=(y) {}
        }
    }
}

/// The times at which writes were blocked or delayed, as bands behind the curves.
fn states(columns: &[TimelineColumn]) -> Markup {
    let mut bands = Vec::new();
    let mut begin = 0;
    for at in 1..=columns.len() {
        let here = columns[begin].writes;
        if at < columns.len() && columns[at].writes == here {
            continue;
        }
        if let Some(state @ (Writes::Blocked | Writes::Delayed)) = here {
            bands.push((begin, at, state));
        }
        begin = at;
    }
    let percent = |column: usize| column as f32 * 100.0 / COLUMNS as f32;
    // The newest first, so that the oldest are left out if there is no room for all.
    let (drawn, _) = within(BANDS, bands.into_iter().rev(), |(begin, end, state)| {
        html! {
            rect.(state.as_str()) x={ (short(percent(begin))) "%" } width={ (short(percent(end - begin))) "%" }
                y="0" height="100%" { title { "writes " (state.as_str()) } }
        }
    });
    drawn
}

/// A number with at most one decimal.
fn short(number: f32) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

fn paths(columns: &[TimelineColumn], frame: &Frame) -> Markup {
    let mut share = String::new();
    let curve = |value: fn(&TimelineColumn) -> Option<f32>| {
        let mut path = String::new();
        for run in runs(columns, value) {
            line(&mut path, run, |at| {
                frame.y(value(&columns[at]).unwrap_or_default())
            });
        }
        path
    };
    let canary = curve(|column| column.canary);
    let create = curve(|column| column.create);
    let update = curve(|column| column.update);
    for run in runs(columns, TimelineColumn::most_of_the_culprits) {
        let most = |at: usize| columns[at].most_of_the_culprits().unwrap_or_default();
        area(
            &mut share,
            run,
            |at| frame.y(most(at)),
            |at| frame.y(columns[at].rest()),
        );
    }
    html! {
        @if !share.is_empty() { path.share d=(share) {} }
        @if !canary.is_empty() { path.canary d=(canary) {} }
        @if !update.is_empty() { path.update d=(update) {} }
        @if !create.is_empty() { path.create d=(create) {} }
    }
}

/// The ranges of adjacent columns that have a value.
fn runs(
    columns: &[TimelineColumn],
    value: impl Fn(&TimelineColumn) -> Option<f32>,
) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        if value(column).is_none() {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.end == at => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

/// Appends a step line: each column covers a span of time.
fn line(path: &mut String, run: std::ops::Range<usize>, y: impl Fn(usize) -> f32) {
    let mut last = None;
    for at in run.clone() {
        let height = short(y(at));
        // Writing to a String cannot fail.
        let _ = match &last {
            None => write!(path, "M{at} {height}"),
            Some(before) if *before == height => Ok(()),
            Some(_) => write!(path, "H{at}V{height}"),
        };
        last = Some(height);
    }
    let _ = write!(path, "H{}", run.end);
}

fn area(
    path: &mut String,
    run: std::ops::Range<usize>,
    above: impl Fn(usize) -> f32,
    below: impl Fn(usize) -> f32,
) {
    line(path, run.clone(), above);
    for at in run.rev() {
        let _ = write!(path, "V{}H{at}", short(below(at)));
    }
    path.push('Z');
}

fn class(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Failing | MarkKind::Writes(Writes::Blocked) => "m bad",
        MarkKind::Suspect | MarkKind::Writes(Writes::Delayed) => "m odd",
        MarkKind::Well | MarkKind::Writes(Writes::Flowing | Writes::Unknown) => "m good",
        MarkKind::Breaker(Some(PastAction::Contested)) => "m bad",
        MarkKind::Breaker(Some(_)) => "m act",
        MarkKind::Breaker(None) | MarkKind::More(_) => "m note",
    }
}

/// CSS classes of marks, and their names in the legend.
const MARKS: [(&str, &str); 4] = [
    ("m bad", "failing, blocked"),
    ("m odd", "suspect, delayed"),
    ("m good", "recovered"),
    ("m act", "breaker"),
];

/// The outline of a mark, centred at 0, 0. Each class has its own, so that marks can be told apart without colour.
fn shape(class: &str) -> &'static str {
    match class {
        "m bad" => "M0-5L5 4H-5Z",
        "m odd" => "M0-5L5 0L0 5L-5 0Z",
        "m act" => "M-4.5-4.5H4.5V4.5H-4.5Z",
        _ => "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1-4 0Z",
    }
}

pub(super) fn called(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Failing => "failing",
        MarkKind::Suspect => "suspect",
        MarkKind::Well => "healthy",
        MarkKind::Writes(Writes::Blocked) => "writes blocked",
        MarkKind::Writes(Writes::Delayed) => "writes delayed",
        MarkKind::Writes(Writes::Flowing) => "writes flowing",
        MarkKind::Writes(Writes::Unknown) => "writes unknown",
        MarkKind::Breaker(Some(action)) => action.as_str(),
        MarkKind::Breaker(None) => "breaker",
        MarkKind::More(_) => "more",
    }
}

fn drawn(mark: &Mark, x: f64, frame: &Frame) -> Markup {
    let percent = |x: f64| format!("{}%", short((x * 100.0) as f32));
    let x = percent(x);
    let began = mark.began.and_then(|began| frame.x(began)).map(percent);
    html! {
        @if let Some(began) = began {
            line class="m began" x1=(began) x2=(began) y1="0" y2="100%" {
                title { "trouble began" }
            }
        }
        g class=(class(mark.kind)) {
            line x1=(x) x2=(x) y1="0" y2="100%" {}
            // The breaker's actions are drawn lower than other events.
            svg.at x=(x) y=(if class(mark.kind) == "m act" { "17" } else { "5" }) { path d=(shape(class(mark.kind))) {} }
            title { (called(mark.kind)) }
        }
    }
}

/// Five times along the bottom.
fn hours(frame: &Frame) -> Markup {
    html! {
        div.hours {
            @for quarter in (0..=4).rev() {
                span { (clock(frame.now.before(frame.span * quarter / 4), frame.now)) }
            }
        }
    }
}

/// The CSS class of a mark in the list of past events.
pub(super) fn tone(kind: MarkKind) -> &'static str {
    class(kind).trim_start_matches("m ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_unix_millis(1_800_000_000_000 + seconds * 1_000)
    }

    fn sample(seconds: u64, write: f32, culprits: f32, writes: Writes) -> PastSample {
        PastSample {
            at: at(seconds),
            writes,
            write: Some(write),
            create: Some(write * 1.1),
            update: Some(write * 0.9),
            culprits,
            canary: None,
        }
    }

    #[test]
    fn the_first_minutes_are_shown_large_and_an_hour_whole() {
        let mut past = ShownPast::default();
        past.samples.push(sample(0, 0.005, 0.0, Writes::Flowing));
        let shown = |past: &ShownPast, now| figure(past, None, at(now)).into_string();
        assert!(shown(&past, 20).contains("last 30 s"));
        assert!(shown(&past, 90).contains("last 2 min"));
        assert!(shown(&past, 200).contains("last 5 min"));
        assert!(shown(&past, 400).contains("last 15 min"));
        assert!(shown(&past, 3_000).contains("last 60 min"));
        assert!(shown(&ShownPast::default(), 0).contains("last 30 s"));
    }

    #[test]
    fn the_culprits_share_lies_between_the_mean_and_what_would_be_left_without_it() {
        let mut past = ShownPast::default();
        past.samples.push(sample(0, 0.2, 0.0, Writes::Flowing));
        past.samples.push(sample(299, 0.8, 0.6, Writes::Delayed));
        let shown = figure(&past, Some(0.2), at(300)).into_string();
        // On a scale of 1 s: the mean at 20 from the top, the rest at 80, which is what is usual.
        assert!(
            shown.contains(r#"<path class="share" d="M239 20H240V80H239Z">"#),
            "{shown}"
        );
        assert!(shown.contains(r#"<path class="usual" d="M0 80H240">"#), "{shown}");
        assert!(shown.contains(r#"<rect class="delayed""#), "{shown}");
    }

    #[test]
    fn a_gap_in_time_is_a_gap_in_the_curve() {
        let mut past = ShownPast::default();
        for seconds in (0..60).chain(200..300) {
            past.samples.push(sample(seconds, 0.005, 0.0, Writes::Flowing));
        }
        let shown = figure(&past, None, at(300)).into_string();
        let curve = shown
            .split(r#"<path class="create" d=""#)
            .nth(1)
            .expect("a curve");
        let curve = curve.split('"').next().expect("its end");
        assert_eq!(curve.matches('M').count(), 2, "{curve}");
    }

    #[test]
    fn an_hour_full_of_everything_is_a_small_picture() {
        let mut past = ShownPast::default();
        for seconds in 0..1_800 {
            let wild = (seconds * 7_919 % 9_973) as f32 / 1_000.0;
            past.samples.push(PastSample {
                canary: Some(wild * 1.3),
                ..sample(
                    seconds * 2,
                    wild,
                    wild / 3.0,
                    Writes::ALL[1 + seconds as usize / 4 % 3],
                )
            });
        }
        for seconds in 0..200 {
            past.marks.push(Mark {
                at: at(seconds * 18),
                kind: MarkKind::Failing,
                hook: None,
                began: Some(at(seconds * 17)),
                text: "<".repeat(1_000),
            });
        }
        let shown = figure(&past, Some(0.005), at(3_600)).into_string();
        assert!(shown.len() < 34_000, "{} bytes", shown.len());
    }
}
