//! Parses the answers of a Prometheus's query API: stored samples, combined into whole scrapes.
//!
//! An instant query with a range selector returns each sample with the time at which it was scraped; other queries do not. All
//! samples of one scrape have the same time.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::MAX_INSTANCES;
use crate::observe::snapshot::{
    Complaints, Family, LabelPairs, LabelSource, Part, Scrape, Snapshot, series_names,
};
use crate::text::bounded;
use crate::time::Time;

/// Most series in one answer. Of an API server of a large cluster hookwatch reads some 10,000.
pub const MAX_SERIES: usize = 100_000;
/// Most samples in one answer.
pub const MAX_SAMPLES: usize = 2_000_000;
/// Most scrapes of one API server in one answer: one per second over the longest span that is queried.
const MAX_SCRAPES: usize = 320;
/// Most labels kept of one series.
const MAX_LABELS: usize = 64;
/// Milliseconds that a sample may be newer than the Prometheus's clock, which is read just before the samples.
const SLACK: i64 = 30_000;

/// Why an answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableAnswer {
    /// It is not an answer of the query API.
    #[error("is no answer of a Prometheus: {0}")]
    NotAnswer(String),
    /// The Prometheus refused the query.
    #[error("refused the query: {0}")]
    Refused(String),
    /// The answer has more series, samples or instances than the limits allow.
    #[error("has too much for this selector: {0}")]
    TooMuch(String),
    /// The answer has no metrics of an API server.
    #[error("has stored no metrics of an API server for this selector")]
    NoApiServer,
    /// Samples are newer than the Prometheus's own clock, by this many seconds.
    #[error("has samples that are {0} s newer than its own clock")]
    Future(i64),
    /// Two targets have this `instance`: their counters would be added up, whether of two processes or twice of one.
    #[error("has several targets with instance={0:?}")]
    Ambiguous(String),
}

/// The query for the series that hookwatch reads, over the last `seconds`. `selector` has more label matchers, for example
/// `job="apiserver"`; it may be empty.
pub fn query(selector: &str, seconds: u64) -> String {
    let names = series_names().join("|");
    let comma = if selector.is_empty() { "" } else { "," };
    format!("{{__name__=~\"{names}\"{comma}{selector}}}[{seconds}s]")
}

/// The query for the Prometheus's own clock.
pub const CLOCK: &str = "time()";

/// The same instant by the clocks of the Prometheus and of hookwatch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clocks {
    /// The Prometheus's, in milliseconds since the Unix epoch.
    pub theirs: i64,
    /// hookwatch's.
    pub ours: Time,
}

impl Clocks {
    /// Converts an instant of the Prometheus's clock to hookwatch's.
    fn ours(&self, theirs: i64) -> Time {
        let ours = i64::try_from(self.ours.unix_millis()).unwrap_or(i64::MAX);
        let at = ours.saturating_sub(self.theirs.saturating_sub(theirs));
        Time::from_unix_millis(u64::try_from(at).unwrap_or(0))
    }
}

/// The scrapes in an answer, the oldest first, and what could not be read.
///
/// # Errors
/// If the answer is malformed or an error, exceeds a limit, is ambiguous or from the future, or has no API server.
pub fn scrapes(body: &[u8], clocks: Clocks) -> Result<(Vec<Scrape>, Complaints), UnusableAnswer> {
    let QueryResponse { data, .. } = parse::<Matrix>(body)?;
    let fold = data.map(|data| data.result.0).unwrap_or_default();
    match fold.too_much {
        Some(why) => Err(UnusableAnswer::TooMuch(why)),
        None => fold.finish(clocks),
    }
}

/// The clock in an answer to [`CLOCK`], in milliseconds since the Unix epoch.
///
/// # Errors
/// If the answer is malformed, an error, or has no value.
pub fn clock(body: &[u8]) -> Result<i64, UnusableAnswer> {
    let QueryResponse { data, .. } = parse::<SeriesSample>(body)?;
    let no_clock = || UnusableAnswer::NotAnswer("time() has no result".to_owned());
    let SeriesSample(_, value) = data.ok_or_else(no_clock)?.result;
    millis(value).ok_or_else(no_clock)
}

/// The reason of a Prometheus's refusal; `None` if the answer is not in its error format.
pub fn refusal(body: &[u8]) -> Option<String> {
    match parse::<IgnoredAny>(body) {
        Err(UnusableAnswer::Refused(why)) => Some(why),
        _ => None,
    }
}

/// Converts seconds to milliseconds; `None` for a negative or non-finite time, or one beyond the year 9999.
fn millis(seconds: f64) -> Option<i64> {
    let is_instant = (0.0..253_402_300_800.0).contains(&seconds);
    is_instant.then(|| (seconds * 1_000.0).round() as i64)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueryResponse<D> {
    status: String,
    error_type: Option<String>,
    error: Option<String>,
    data: Option<Data<D>>,
}

#[derive(Deserialize)]
struct Data<D> {
    result: D,
}

fn parse<'a, D: Deserialize<'a>>(body: &'a [u8]) -> Result<QueryResponse<D>, UnusableAnswer> {
    let answer: QueryResponse<D> = serde_json::from_slice(body)
        .map_err(|error| UnusableAnswer::NotAnswer(bounded(&error.to_string())))?;
    if answer.status == "success" {
        return Ok(answer);
    }
    let said = [answer.error_type, answer.error].into_iter().flatten();
    let said: Vec<String> = said.collect();
    Err(UnusableAnswer::Refused(bounded(&said.join(": "))))
}

/// One sample: seconds since the Unix epoch, and the value, which JSON has as a string.
#[derive(Debug, Clone, Copy, Deserialize)]
struct SeriesSample(f64, #[serde(deserialize_with = "number")] f64);

fn number<'a, D: Deserializer<'a>>(deserializer: D) -> Result<f64, D::Error> {
    let BorrowedText(text) = BorrowedText::deserialize(deserializer)?;
    text.parse()
        .map_err(|_| D::Error::custom(format!("{:?} is no number", bounded(&text))))
}

#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    metric: SeriesLabels<'a>,
    // Native histograms have no `values`.
    #[serde(default)]
    values: Vec<SeriesSample>,
}

type SeriesLabels<'a> = LabelPairs<Cow<'a, str>, Cow<'a, str>>;

impl<'de: 'a, 'a> Deserialize<'de> for SeriesLabels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelsVisitor;
        impl<'de> Visitor<'de> for LabelsVisitor {
            type Value = SeriesLabels<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut labels = Vec::with_capacity(16);
                while let Some((BorrowedText(name), BorrowedText(value))) = map.next_entry()? {
                    if labels.len() < MAX_LABELS {
                        labels.push((name, value));
                    }
                }
                Ok(LabelPairs(labels))
            }
        }
        deserializer.deserialize_map(LabelsVisitor)
    }
}

/// The rows of an answer, each folded in as it is read.
#[derive(Default)]
struct Matrix(Fold);

impl<'de> Deserialize<'de> for Matrix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MatrixVisitor;
        impl<'de> Visitor<'de> for MatrixVisitor {
            type Value = Matrix;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("series with their samples")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<Self::Value, A::Error> {
                let mut fold = Fold::default();
                while fold.too_much.is_none()
                    && let Some(row) = rows.next_element::<Row<'_>>()?
                {
                    fold.take(&row);
                }
                // The rest of the array must be consumed, but is not kept.
                while rows.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Matrix(fold))
            }
        }
        deserializer.deserialize_seq(MatrixVisitor)
    }
}

#[derive(Default)]
struct CountedSnapshot {
    snapshot: Snapshot,
    series: usize,
}

#[derive(Default)]
struct InstanceScrapes {
    /// By milliseconds of the Prometheus's clock.
    scrapes: BTreeMap<i64, CountedSnapshot>,
    /// Series counted of two families of which a process has exactly one: its start time, and mutating requests in flight.
    once: [usize; 2],
}

#[derive(Default)]
struct Fold {
    instances: BTreeMap<String, InstanceScrapes>,
    series: usize,
    samples: usize,
    complaints: Complaints,
    too_much: Option<String>,
}

impl Fold {
    fn take(&mut self, row: &Row<'_>) {
        self.series += 1;
        self.samples += row.values.len();
        let name = row.metric.get("instance");
        let is_new = !self.instances.contains_key(name);
        if self.series > MAX_SERIES {
            self.too_much = Some(format!("more than {MAX_SERIES} series"));
        } else if self.samples > MAX_SAMPLES {
            self.too_much = Some(format!("more than {MAX_SAMPLES} samples"));
        } else if is_new && self.instances.len() >= MAX_INSTANCES {
            self.too_much = Some(format!("more than {MAX_INSTANCES} instances"));
        }
        let family = Family::of_series(row.metric.get("__name__"));
        let Some((family, part)) = family.filter(|_| self.too_much.is_none()) else {
            return;
        };
        let instance = self.instances.entry(name.to_owned()).or_default();
        let is_mutating = || row.metric.get("request_kind") == "mutating";
        instance.once[0] += usize::from(family == Family::ProcessStart);
        instance.once[1] += usize::from(family == Family::InFlight && is_mutating());
        for SeriesSample(seconds, value) in &row.values {
            let kept = instance.sample((family, part), &row.metric, *seconds, *value);
            self.complaints.left_out += u64::from(!kept);
        }
    }

    fn finish(self, clocks: Clocks) -> Result<(Vec<Scrape>, Complaints), UnusableAnswer> {
        let newest = self.instances.values();
        let newest = newest.filter_map(|instance| Some(*instance.scrapes.last_key_value()?.0));
        let ahead = newest
            .max()
            .map_or(0, |newest| newest.saturating_sub(clocks.theirs));
        if ahead > SLACK {
            return Err(UnusableAnswer::Future(ahead / 1_000));
        }
        let mut scrapes = Vec::new();
        for (target, mut instance) in self.instances {
            if instance.once.iter().any(|series| *series > 1) && instance.is_api_server() {
                return Err(UnusableAnswer::Ambiguous(bounded(&target)));
            }
            instance.hold_back();
            let whole = instance.scrapes.into_iter();
            let whole = whole.filter(|(_, counted)| counted.snapshot.is_api_server);
            scrapes.extend(whole.map(|(at, counted)| Scrape {
                target: bounded(&target),
                at: clocks.ours(at),
                took: Default::default(),
                bytes: 0,
                snapshot: counted.snapshot,
                complaints: Complaints::default(),
            }));
        }
        if scrapes.is_empty() {
            return Err(UnusableAnswer::NoApiServer);
        }
        scrapes.sort_by_key(|scrape| scrape.at);
        Ok((scrapes, self.complaints))
    }
}

impl InstanceScrapes {
    /// Folds a sample in. Returns false when it was left out.
    fn sample(
        &mut self,
        (family, part): (Family, Part),
        labels: &SeriesLabels<'_>,
        at: f64,
        value: f64,
    ) -> bool {
        let Some(at) = millis(at).filter(|_| value.is_finite()) else {
            return false;
        };
        if self.scrapes.len() >= MAX_SCRAPES && !self.scrapes.contains_key(&at) {
            return false;
        }
        let counted = self.scrapes.entry(at).or_default();
        counted.series += 1;
        counted.snapshot.record(family, part, labels, value)
    }

    fn is_api_server(&self) -> bool {
        let mut scrapes = self.scrapes.values();
        scrapes.any(|counted| counted.snapshot.is_api_server)
    }

    /// Drops the newest scrape if it has fewer series than the one before it of the same process. When samples arrive in batches,
    /// the rest is still in transit, and a counter that is missing in one scrape would count from zero in the next.
    fn hold_back(&mut self) {
        let mut newest = self.scrapes.iter().rev();
        if let (Some((at, last)), Some((_, before))) = (newest.next(), newest.next())
            && last.series < before.series
            && (last.snapshot.process_start == before.snapshot.process_start
                || last.snapshot.process_start.is_none())
        {
            let at = *at;
            self.scrapes.remove(&at);
        }
    }
}
