//! The Prometheus text format, read as a stream; for the protobuf format see [`protobuf`].
//!
//! A busy API server serves tens of megabytes of which a few hundred lines matter. The reader looks at each line once, decides by
//! the series' name, and adds the wanted samples to a [`Snapshot`]. Between two chunks it keeps only the line that was cut. General
//! parsers were measured on 20 MB: the best took 190 times as long, and two gave wrong results on valid input.

use std::borrow::Cow;

use super::snapshot::{Complaints, Family, LabelPairs, LabelSource, Part, Snapshot};
use crate::text::bounded;

pub mod protobuf;

/// Longest line that is read, in bytes. The longest lines of an API server are below 2 KiB.
pub const MAX_LINE: usize = 64 * 1024;

/// Parses an exposition chunk by chunk and keeps only what a [`Snapshot`] needs.
#[derive(Debug, Default)]
pub struct Exposition {
    harvest: Harvest,
    /// The beginning of a line that continues in the next chunk.
    carry: Vec<u8>,
    /// Whether the rest of an overlong line is being skipped.
    skipping: bool,
    /// The name of the last unwanted series, with the byte that ends it: most of the next lines begin with it too.
    passed_over: Vec<u8>,
}

impl Exposition {
    /// A reader without input.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next chunk of the body, which may end anywhere.
    pub fn feed(&mut self, mut chunk: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', chunk) {
            let (line, rest) = (&chunk[..end], &chunk[end + 1..]);
            chunk = rest;
            if self.skipping {
                self.skipping = false;
            } else if self.carry.is_empty() {
                self.line(line);
            } else {
                let mut whole = std::mem::take(&mut self.carry);
                whole.extend_from_slice(line);
                self.line(&whole);
                whole.clear();
                self.carry = whole;
            }
        }
        if self.skipping {
            return;
        }
        if self.carry.len() + chunk.len() > MAX_LINE {
            self.harvest.complain("a line is longer than 64 KiB");
            self.carry.clear();
            self.skipping = true;
        } else {
            self.carry.extend_from_slice(chunk);
        }
    }

    /// The result. A last line without its line feed was cut off and does not count: half of `1234` is another number.
    pub fn finish(mut self) -> (Snapshot, Complaints) {
        if !self.carry.is_empty() {
            self.harvest.complain("the last line is cut off");
        }
        (self.harvest.snapshot, self.harvest.complaints)
    }

    fn line(&mut self, line: &[u8]) {
        if line.len() > MAX_LINE {
            self.harvest.complain("a line is longer than 64 KiB");
            return;
        }
        if !self.passed_over.is_empty() && line.starts_with(&self.passed_over) {
            return;
        }
        // Every wanted series begins with one of these words.
        const WORDS: [&[u8]; 5] = [
            b"apiserver_",
            b"etcd_",
            b"process_",
            b"aggregator_unavailable_",
            b"kubernetes_build_info",
        ];
        if !WORDS.iter().any(|word| line.starts_with(word)) {
            if is_not_exposition(line) {
                self.complain_of(line);
            } else {
                self.pass_over(line);
            }
            return;
        }
        let name_end = end_of_name(line).unwrap_or(line.len());
        let Some((family, part)) = std::str::from_utf8(&line[..name_end])
            .ok()
            .and_then(Family::of_series)
        else {
            self.pass_over(line);
            return;
        };
        let Some((labels, value)) = std::str::from_utf8(&line[name_end..]).ok().and_then(sample) else {
            self.complain_of(line);
            return;
        };
        self.harvest.take(family, part, &labels, value);
    }

    fn pass_over(&mut self, line: &[u8]) {
        self.passed_over.clear();
        // In a line that begins with blanks, the first blank does not end the name.
        if let Some(end) = end_of_name(line).filter(|_| !line[0].is_ascii_whitespace()) {
            self.passed_over.extend_from_slice(&line[..=end]);
        }
    }

    fn complain_of(&mut self, line: &[u8]) {
        let shown = String::from_utf8_lossy(&line[..line.len().min(160)]).into_owned();
        self.harvest.complain(&format!("not a sample: {shown:?}"));
    }
}

/// The result of a reader of either format; both add their samples in the same way.
#[derive(Debug, Default)]
struct Harvest {
    snapshot: Snapshot,
    complaints: Complaints,
}

impl Harvest {
    fn take(&mut self, family: Family, part: Part, labels: &impl LabelSource, value: f64) {
        // NaN and infinities are valid in both formats, but never the value of a counter.
        if !value.is_finite() || !self.snapshot.record(family, part, labels, value) {
            self.complaints.left_out += 1;
        }
    }

    fn complain(&mut self, what: &str) {
        self.complaints.unreadable += 1;
        self.complaints.first.get_or_insert_with(|| bounded(what));
    }
}

/// The end of the series' name in a line.
fn end_of_name(line: &[u8]) -> Option<usize> {
    memchr::memchr2(b'{', b' ', line)
}

/// Whether a line cannot be part of an exposition: it is not empty, not a comment, and does not begin like a name.
fn is_not_exposition(line: &[u8]) -> bool {
    let first = line.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    first.is_some_and(|first| !(first.is_ascii_alphabetic() || matches!(first, b'#' | b'_' | b':')))
}

/// Reads `{labels} value [timestamp]`; the braces may be missing.
fn sample(text: &str) -> Option<(LineLabels<'_>, f64)> {
    let (labels, rest) = match text.trim_start().strip_prefix('{') {
        Some(inside) => LineLabels::parse(inside)?,
        None => (LineLabels::default(), text),
    };
    let mut words = rest.split_ascii_whitespace();
    let value = words.next()?.parse().ok()?;
    let timestamp_is_fine = words.next().is_none_or(|word| word.parse::<i64>().is_ok());
    (timestamp_is_fine && words.next().is_none()).then_some((labels, value))
}

type LineLabels<'line> = LabelPairs<&'line str, Cow<'line, str>>;

impl<'line> LineLabels<'line> {
    /// Reads labels up to the closing brace and returns them with what follows it.
    fn parse(mut text: &'line str) -> Option<(Self, &'line str)> {
        let mut labels = Vec::with_capacity(8);
        loop {
            text = text.trim_start();
            if let Some(rest) = text.strip_prefix('}') {
                return Some((Self(labels), rest));
            }
            let (name, rest) = text.split_once('=')?;
            let (value, rest) = quoted(rest.trim_start().strip_prefix('"')?)?;
            labels.push((name.trim(), value));
            text = rest.trim_start();
            text = text.strip_prefix(',').unwrap_or(text);
        }
    }
}

/// Reads a label value up to its closing quote. Backslash, quote and line feed are escaped in the format.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = memchr::memchr2(b'"', b'\\', text.as_bytes())?;
    if text.as_bytes()[end] == b'"' {
        return Some((Cow::Borrowed(&text[..end]), &text[end + 1..]));
    }
    let mut value = text[..end].to_owned();
    let mut characters = text[end..].char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((Cow::Owned(value), &text[end + at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                escaped => escaped,
            }),
            _ => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::hook::HookKind;

    fn read(text: &str) -> (Snapshot, Complaints) {
        let mut exposition = Exposition::new();
        exposition.feed(text.as_bytes());
        exposition.finish()
    }

    const HOOK: &str = "apiserver_admission_webhook_admission_duration_seconds";

    #[test]
    fn escapes_braces_commas_exponents_and_timestamps_are_read() {
        let text = format!(
            "# HELP x y\n{HOOK}_sum{{name=\"a}}\\\"b,c\\\\\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"}} 1.5e1 1700000000000\n\
             {HOOK}_count{{ name=\"a}}\\\"b,c\\\\\" , operation=\"CREATE\",rejected=\"false\",type=\"admit\", }} 3\n"
        );
        let (snapshot, complaints) = read(&text);
        assert_eq!(complaints, Complaints::default());
        let series = &snapshot.hooks[&(HookKind::Mutating, "a}\"b,c\\".to_owned())];
        assert_eq!((series.calls.sum, series.calls.count), (15.0, 3.0));
    }

    #[test]
    fn the_older_name_of_the_sli_family_counts_only_where_the_newer_is_missing() {
        let sample = |name: &str| {
            format!("apiserver_request_{name}_duration_seconds_count{{resource=\"pods\",verb=\"POST\"}} 3\n")
        };
        for text in [sample("slo"), sample("sli"), sample("sli") + &sample("slo")] {
            assert_eq!(read(&text).0.all_writes().sli.count, 3.0, "{text}");
        }
    }

    #[test]
    fn not_a_number_is_never_a_count() {
        let (snapshot, complaints) = read(
            "process_start_time_seconds NaN\nprocess_cpu_seconds_total +Inf\nprocess_cpu_seconds_total 1.2e3\n",
        );
        assert_eq!(snapshot.process_start, None);
        assert_eq!(snapshot.cpu_seconds, 1200.0);
        assert_eq!(complaints.left_out, 2);
    }

    #[test]
    fn what_is_passed_over_takes_nothing_with_it_whose_name_begins_alike() {
        let (snapshot, complaints) = read(
            "process_cpu 1\nprocess_cpu 2\nprocess_cpu_seconds_total 7\n# process\n# HELP x\nprocess_cpu{a=\"b\"} 3\n\n \n\
             process_start_time_seconds 8\n <p>\n\t \n\t <p>\n",
        );
        assert_eq!((snapshot.cpu_seconds, snapshot.process_start), (7.0, Some(8.0)));
        assert_eq!(complaints.unreadable, 2);
    }

    #[test]
    fn a_line_that_was_cut_off_does_not_count() {
        let (snapshot, complaints) = read("process_cpu_seconds_total 12\nprocess_start_time_seconds 17952");
        assert_eq!(snapshot.process_start, None);
        assert_eq!(complaints.unreadable, 1);
    }

    #[test]
    fn an_endless_line_takes_no_memory_and_the_next_line_is_read() {
        let mut exposition = Exposition::new();
        for _ in 0..100 {
            exposition.feed(&[b'a'; 16 * 1024]);
            assert!(exposition.carry.capacity() <= 4 * MAX_LINE);
        }
        exposition.feed(b"\nprocess_cpu_seconds_total 7\n");
        let (snapshot, complaints) = exposition.finish();
        assert_eq!(snapshot.cpu_seconds, 7.0);
        assert_eq!(complaints.unreadable, 1);
    }

    #[test]
    fn what_is_no_exposition_is_complained_about_and_never_believed() {
        let (snapshot, complaints) =
            read("<!doctype html>\n<p>{{</p>\napiserver_request_total{code=\n\u{fffd}\n");
        assert!(!snapshot.is_api_server);
        assert!(complaints.unreadable >= 3, "{complaints:?}");
        assert!(complaints.first.is_some_and(|first| first.contains("doctype")));
    }

    #[test]
    fn more_webhook_names_than_the_bound_are_left_out_and_counted() {
        let text: String = (0..Snapshot::MAX_HOOK_NAMES + 10)
            .map(|n| {
                format!("apiserver_admission_webhook_fail_open_count{{name=\"h{n}\",type=\"admit\"}} 1\n")
            })
            .collect();
        let (snapshot, complaints) = read(&text);
        assert_eq!(snapshot.hooks.len(), Snapshot::MAX_HOOK_NAMES);
        assert_eq!(complaints.left_out, 10);
    }

    #[test]
    fn policies_whose_conditions_exclude_requests_or_err_are_not_taken_for_webhooks() {
        let (snapshot, _) = read(
            "apiserver_admission_match_condition_exclusions_total{kind=\"policy\",name=\"p\",operation=\"CREATE\",type=\"validate\"} 5\n\
             apiserver_admission_match_condition_exclusions_total{kind=\"webhook\",name=\"w\",operation=\"CREATE\",type=\"validate\"} 4\n\
             apiserver_admission_match_condition_evaluation_errors_total{kind=\"policy\",name=\"p\",operation=\"CREATE\",type=\"validating\"} 7\n\
             apiserver_admission_match_condition_evaluation_errors_total{kind=\"webhook\",name=\"w\",operation=\"CREATE\",type=\"validating\"} 6\n",
        );
        assert_eq!(snapshot.hooks.len(), 1);
        let webhook = &snapshot.hooks[&(HookKind::Validating, "w".to_owned())];
        assert_eq!((webhook.exclusions, webhook.condition_errors), (4.0, 6.0));
    }

    proptest! {
        #[test]
        fn where_the_body_is_cut_into_chunks_makes_no_difference(
            cuts in proptest::collection::vec(1usize..40, 1..40),
            value in 0u32..1_000_000,
            name in "[a-z\\\\\"{},= ]{0,20}",
        ) {
            let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
            let text = format!(
                "# TYPE {HOOK} histogram\n{HOOK}_count{{name=\"{escaped}\",operation=\"UPDATE\",type=\"validating\"}} {value}\nprocess_start_time_seconds 1.5e9\n"
            );
            let whole = read(&text);
            let mut exposition = Exposition::new();
            let (mut rest, mut cut) = (text.as_bytes(), cuts.iter().cycle());
            while !rest.is_empty() {
                let at = (*cut.next().unwrap_or(&1)).min(rest.len());
                exposition.feed(&rest[..at]);
                rest = &rest[at..];
            }
            prop_assert_eq!(&exposition.finish(), &whole);
            prop_assert_eq!(whole.0.hooks[&(HookKind::Validating, name)].calls.count, f64::from(value));
        }

        #[test]
        fn no_input_makes_the_reader_fail(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let mut exposition = Exposition::new();
            exposition.feed(b"apiserver_request_total{");
            exposition.feed(&bytes);
            let _ = exposition.finish();
        }
    }
}
