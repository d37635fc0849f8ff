//! The Prometheus binary format, read as a stream: `MetricFamily` messages, each behind its length.
//!
//! It is less than a quarter of the text, and two thirds of the work for the API server to write (1.36). A
//! family's name comes first, so one that nobody asked for is skipped by its length; of the others one
//! `Metric` at a time is held. The format is the few fields of `io.prometheus.client` (`metrics.proto`) named
//! here and in `metric`, whose numbers never change: too little to bring in a library and a code generator for.

mod metric;
mod wire;

use super::Harvest;
use crate::domain::observe::snapshot::{Complaints, Family, Part, Snapshot};
use metric::{Metric, Reading};
use wire::{Broken, Number, Shape};

/// The longest `Metric` that is read, in bytes. An API server's longest, histograms, stay below 4 KiB.
pub const MAX_METRIC: usize = 64 * 1024;
/// The longest name of a family that is looked at, in bytes.
const MAX_NAME: usize = 1024;

/// Fields of `MetricFamily`.
const NAME: u64 = 1;
const METRIC: u64 = 4;

/// Reads delimited messages chunk by chunk and keeps only what a [`Snapshot`] wants.
#[derive(Debug)]
pub struct ProtobufExposition {
    harvest: Harvest,
    awaits: Awaits,
    /// The number being read, a tag or a length, which may be cut anywhere.
    number: Number,
    /// How many bytes of the current family are still to come.
    left: u64,
    /// The current family, once it has told its name.
    family: Option<Family>,
    /// The beginning of a name or metric whose end has not come yet.
    carry: Vec<u8>,
    seen_any: bool,
    seen_api_server: bool,
}

/// What the next byte is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaits {
    FamilyLength,
    Tag,
    /// The length of this field of the family.
    FieldLength(u64),
    /// A number that matters to nobody.
    Varint,
    /// The content of this field, of this length.
    Field(u64, usize),
    /// This many bytes of a field that matters to nobody.
    FieldEnd(u64),
    /// The rest of a family that matters to nobody.
    FamilyEnd,
    /// Nothing: where a message ends and the next begins is not known any more.
    Lost,
}

/// How far a body may be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is no sequence of messages.
    Lost,
    /// No family has been seen.
    NoFamily,
    /// Families, none of an API server.
    NotApiServer,
    /// An API server's families, ended within a message.
    CutOff,
    /// An API server's families, ended between two messages.
    Whole,
}

impl Default for ProtobufExposition {
    fn default() -> Self {
        Self {
            harvest: Harvest::default(),
            awaits: Awaits::FamilyLength,
            number: Number::default(),
            left: 0,
            family: None,
            carry: Vec::new(),
            seen_any: false,
            seen_api_server: false,
        }
    }
}

impl ProtobufExposition {
    /// A reader that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece of the body, cut anywhere.
    pub fn feed(&mut self, mut chunk: &[u8]) {
        while let Some((byte, after)) = chunk.split_first() {
            chunk = match self.awaits {
                Awaits::Lost => return,
                Awaits::FamilyLength => {
                    self.number(*byte);
                    after
                }
                Awaits::Tag | Awaits::FieldLength(_) | Awaits::Varint => {
                    self.left -= 1;
                    self.number(*byte);
                    after
                }
                Awaits::FamilyEnd => {
                    let (rest, skipped) = skip(chunk, self.left);
                    self.left -= skipped;
                    if self.left == 0 {
                        self.awaits = Awaits::FamilyLength;
                    }
                    rest
                }
                Awaits::FieldEnd(length) => {
                    let (rest, skipped) = skip(chunk, length);
                    self.awaits = Awaits::FieldEnd(length - skipped);
                    if length == skipped {
                        self.next_field();
                    }
                    rest
                }
                Awaits::Field(field, length) => self.content(field, length, chunk),
            };
        }
    }

    /// What was read. A message without its end does not count.
    pub fn finish(mut self) -> (Snapshot, Complaints) {
        if !self.is_between_messages() && self.awaits != Awaits::Lost {
            self.harvest.complain("the last message is cut off");
        }
        self.harvest.into_parts()
    }

    /// How far what has come until now may be believed.
    pub fn standing(&self) -> Standing {
        if self.awaits == Awaits::Lost {
            Standing::Lost
        } else if !self.seen_any {
            Standing::NoFamily
        } else if !self.seen_api_server {
            Standing::NotApiServer
        } else if self.is_between_messages() {
            Standing::Whole
        } else {
            Standing::CutOff
        }
    }

    fn is_between_messages(&self) -> bool {
        self.awaits == Awaits::FamilyLength && self.number.is_fresh()
    }

    fn number(&mut self, byte: u8) {
        let step = match self.number.push(byte) {
            Ok(Some(value)) => self.step(value),
            Ok(None) => Ok(()),
            Err(broken) => Err(broken),
        };
        let wants_more = matches!(self.awaits, Awaits::Tag | Awaits::FieldLength(_) | Awaits::Varint);
        let step = step.and(if wants_more && self.left == 0 {
            Err("a family ends within a field")
        } else {
            Ok(())
        });
        if let Err(broken) = step {
            self.give_up(broken);
        }
    }

    /// Goes on with a number that is complete.
    fn step(&mut self, value: u64) -> Result<(), Broken> {
        match self.awaits {
            Awaits::FamilyLength => {
                self.left = value;
                self.next_field();
            }
            Awaits::Tag => {
                let (field, shape) = wire::tag(value)?;
                match shape {
                    Shape::Varint => self.awaits = Awaits::Varint,
                    Shape::Bytes => self.awaits = Awaits::FieldLength(field),
                    Shape::Fixed64 => self.skip_field(8)?,
                    Shape::Fixed32 => self.skip_field(4)?,
                }
            }
            Awaits::FieldLength(field) => return self.field_of(field, value),
            _ => self.next_field(),
        }
        Ok(())
    }

    fn field_of(&mut self, field: u64, length: u64) -> Result<(), Broken> {
        let most = match field {
            NAME => MAX_NAME,
            METRIC if self.family.is_none() => return Err("a metric comes before the name of its family"),
            METRIC => MAX_METRIC,
            _ => return self.skip_field(length),
        };
        match usize::try_from(length).ok().filter(|length| *length <= most) {
            Some(length) => {
                self.reserve(length as u64)?;
                self.awaits = Awaits::Field(field, length);
                if length == 0 {
                    self.field(field, &[]);
                }
                Ok(())
            }
            None if field == NAME => Err("the name of a family is longer than 1 KiB"),
            None => {
                self.harvest.complain("a metric is longer than 64 KiB");
                self.skip_field(length)
            }
        }
    }

    fn skip_field(&mut self, length: u64) -> Result<(), Broken> {
        self.reserve(length)?;
        self.awaits = Awaits::FieldEnd(length);
        if length == 0 {
            self.next_field();
        }
        Ok(())
    }

    /// Takes a field's content from what is left of the family.
    fn reserve(&mut self, length: u64) -> Result<(), Broken> {
        self.left = self
            .left
            .checked_sub(length)
            .ok_or("a field reaches beyond its family")?;
        Ok(())
    }

    /// Gathers a field's content, where it is in one piece without copying it, and returns what follows it.
    fn content<'chunk>(&mut self, field: u64, length: usize, chunk: &'chunk [u8]) -> &'chunk [u8] {
        let missing = length - self.carry.len();
        let Some((content, rest)) = chunk.split_at_checked(missing) else {
            self.carry.extend_from_slice(chunk);
            return &[];
        };
        if self.carry.is_empty() {
            self.field(field, content);
        } else {
            let mut whole = std::mem::take(&mut self.carry);
            whole.extend_from_slice(content);
            self.field(field, &whole);
            whole.clear();
            self.carry = whole;
        }
        rest
    }

    fn field(&mut self, field: u64, content: &[u8]) {
        if field == NAME {
            self.named(content);
        } else if let Some(family) = self.family {
            self.metric(family, content);
            self.next_field();
        }
    }

    fn named(&mut self, name: &[u8]) {
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
        let name = match std::str::from_utf8(name) {
            Ok(text) if !text.is_empty() && name.iter().all(is_name) => text,
            _ => return self.give_up("a family without a proper name"),
        };
        self.seen_any = true;
        self.seen_api_server |= name.starts_with("apiserver_");
        self.family = Family::of_base(name);
        if self.family.is_some() {
            self.next_field();
        } else {
            self.skip_family();
        }
    }

    fn metric(&mut self, family: Family, message: &[u8]) {
        let harvest = &mut self.harvest;
        match Metric::read(message) {
            Err(broken) => harvest.complain(broken),
            Ok(Metric { labels, reading }) => match reading {
                Reading::Nothing => harvest.complain("a metric without a value"),
                Reading::Whole(value) => harvest.take(family, Part::Whole, &labels, value),
                Reading::Distribution { sum, count } => {
                    harvest.take(family, Part::Sum, &labels, sum);
                    harvest.take(family, Part::Count, &labels, count);
                }
            },
        }
    }

    fn next_field(&mut self) {
        if self.left > 0 {
            self.awaits = Awaits::Tag;
            return;
        }
        self.awaits = Awaits::FamilyLength;
        if self.family.take().is_none() {
            self.harvest.complain("a family without a name");
        }
    }

    fn skip_family(&mut self) {
        self.family = None;
        self.awaits = if self.left > 0 {
            Awaits::FamilyEnd
        } else {
            Awaits::FamilyLength
        };
    }

    /// Leaves a family that cannot be read for the next; without its length there is no next.
    fn give_up(&mut self, broken: Broken) {
        self.harvest.complain(broken);
        self.number = Number::default();
        if self.awaits == Awaits::FamilyLength {
            self.awaits = Awaits::Lost;
        } else {
            self.skip_family();
        }
    }
}

/// What follows after at most this many bytes, and how many there were.
fn skip(chunk: &[u8], length: u64) -> (&[u8], u64) {
    let skipped = usize::try_from(length).map_or(chunk.len(), |length| length.min(chunk.len()));
    (&chunk[skipped..], skipped as u64)
}

#[cfg(test)]
#[path = "../../../../tests/support/metric_family.rs"]
pub(crate) mod encoding;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::cluster::hook::HookKind;
    use crate::domain::observe::exposition::Exposition;
    use encoding::encode;

    fn read(body: &[u8]) -> (Snapshot, Complaints) {
        let mut exposition = ProtobufExposition::new();
        exposition.feed(body);
        exposition.finish()
    }

    fn read_text(text: &str) -> (Snapshot, Complaints) {
        let mut exposition = Exposition::new();
        exposition.feed(text.as_bytes());
        exposition.finish()
    }

    /// A message in front of which its length stands.
    fn delimited(message: &[u8]) -> Vec<u8> {
        let mut body = encode_length(message.len());
        body.extend_from_slice(message);
        body
    }

    fn encode_length(mut length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while length >= 0x80 {
            bytes.push(u8::try_from(length & 0x7f).expect("seven bits") | 0x80);
            length >>= 7;
        }
        bytes.push(u8::try_from(length).expect("seven bits"));
        bytes
    }

    /// A field that holds bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2][..], &delimited(content)].concat()
    }

    fn double(number: u8, value: f64) -> Vec<u8> {
        [&[number << 3 | 1][..], &value.to_le_bytes()].concat()
    }

    /// A family with one metric whose content is this.
    fn family(name: &str, metric: &[u8]) -> Vec<u8> {
        delimited(&[field(1, name.as_bytes()), field(4, metric)].concat())
    }

    fn cpu(value: f64) -> Vec<u8> {
        family("process_cpu_seconds_total", &field(3, &double(1, value)))
    }

    const SOME: &str = "\
        # TYPE apiserver_admission_webhook_admission_duration_seconds histogram\n\
        apiserver_admission_webhook_admission_duration_seconds_bucket{name=\"a\\\"}\",operation=\"CREATE\",rejected=\"false\",type=\"admit\",le=\"+Inf\"} 3\n\
        apiserver_admission_webhook_admission_duration_seconds_sum{name=\"a\\\"}\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 1.5e1\n\
        apiserver_admission_webhook_admission_duration_seconds_count{name=\"a\\\"}\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 300\n\
        apiserver_admission_webhook_fail_open_count{name=\"a\",type=\"admit\"} 4\n\
        apiserver_current_inflight_requests{request_kind=\"mutating\"} 2\n\
        apiserver_storage_objects{resource=\"pods\"} 12\n\
        apiserver_flowcontrol_rejected_requests_total NaN\n\
        etcd_request_duration_seconds_sum{operation=\"get\"} +Inf\n\
        etcd_request_duration_seconds_count{operation=\"get\"} 9007199254740993\n\
        go_goroutines 7\n\
        process_start_time_seconds 1.5e9\n";

    #[test]
    fn the_same_registry_gives_the_same_snapshot_in_both_formats() {
        let (snapshot, complaints) = read(&encode(SOME));
        assert_eq!(
            snapshot.hooks[&(HookKind::Mutating, "a\"}".to_owned())]
                .calls
                .count,
            300.0
        );
        assert_eq!(complaints.left_out, 2, "NaN and infinity");
        assert_eq!((snapshot, complaints), read_text(SOME));
    }

    #[test]
    fn a_histogram_that_counts_in_fractions_and_a_summary_are_distributions() {
        let name = "etcd_request_duration_seconds";
        let (half, quarter) = (double(4, 0.5), double(2, 0.25));
        let histogram = [&b"\x08\x09"[..], &quarter, &half].concat();
        let (snapshot, complaints) = read(&family(name, &field(7, &histogram)));
        assert_eq!((snapshot.etcd.sum, snapshot.etcd.count), (0.25, 0.5));
        assert_eq!(complaints, Complaints::default());
        // A summary has the time it was made where a histogram has its fractional count.
        let summary = [&b"\x08\x09"[..], &quarter, &field(4, b"\x08\x01")].concat();
        let (snapshot, complaints) = read(&family(name, &field(4, &summary)));
        assert_eq!((snapshot.etcd.sum, snapshot.etcd.count), (0.25, 9.0));
        assert_eq!(complaints, Complaints::default());
    }

    #[test]
    fn a_family_that_nobody_asked_for_is_skipped_without_being_kept() {
        let name = field(1, b"go_memory_classes");
        let metric = vec![0xff; 100 * 1024 * 1024];
        let mut exposition = ProtobufExposition::new();
        exposition.feed(&encode_length(name.len() + metric.len()));
        exposition.feed(&name);
        for chunk in metric.chunks(16 * 1024) {
            exposition.feed(chunk);
            assert!(exposition.carry.capacity() <= MAX_NAME);
        }
        exposition.feed(&cpu(7.0));
        let (snapshot, complaints) = exposition.finish();
        assert_eq!((snapshot.cpu_seconds, complaints), (7.0, Complaints::default()));
    }

    #[test]
    fn an_endless_metric_takes_no_memory_and_the_next_family_is_read() {
        let mut exposition = ProtobufExposition::new();
        let body = family("etcd_request_duration_seconds", &vec![0; 1024 * 1024]);
        for chunk in body.chunks(10_000) {
            exposition.feed(chunk);
            assert!(exposition.carry.capacity() <= MAX_METRIC);
        }
        exposition.feed(&cpu(7.0));
        let (snapshot, complaints) = exposition.finish();
        assert_eq!((snapshot.cpu_seconds, complaints.unreadable), (7.0, 1));
        assert!(complaints.first.is_some_and(|first| first.contains("64 KiB")));
    }

    #[test]
    fn what_is_broken_within_a_family_is_complained_about_and_the_next_family_is_read() {
        let name = field(1, b"etcd_request_duration_seconds");
        let endless = [0x80; 11];
        let value = field(3, &double(1, 5.0));
        for (what, message) in [
            ("no name", b"\x18\x00".to_vec()),
            ("nothing at all", Vec::new()),
            (
                "a metric before the name",
                [field(4, &value), name.clone()].concat(),
            ),
            ("a name of spaces", field(1, b"a b")),
            ("a name that is too long", field(1, &[b'a'; 2_000])),
            (
                "a field that reaches beyond",
                [name.clone(), b"\x22\x7f".to_vec()].concat(),
            ),
            (
                "a tag without its content",
                [name.clone(), b"\x22".to_vec()].concat(),
            ),
            ("half a tag", [name.clone(), b"\xa2".to_vec()].concat()),
            ("half a number", [name.clone(), b"\x18\x80".to_vec()].concat()),
            ("half a double", [name.clone(), b"\x19\x80".to_vec()].concat()),
            ("a group", [name.clone(), b"\x23\x24".to_vec()].concat()),
            ("an endless number", [&name[..], b"\x18", &endless].concat()),
            ("an endless length", [&name[..], b"\x22", &endless].concat()),
            ("an empty metric", [name.clone(), field(4, b"")].concat()),
            (
                "a metric without a value",
                [name.clone(), field(4, &field(1, b""))].concat(),
            ),
            (
                "a metric of noise",
                [name.clone(), field(4, b"\xff\xff")].concat(),
            ),
            (
                "a label of noise",
                [name.clone(), field(4, &field(1, &field(2, b"\xff")))].concat(),
            ),
        ] {
            let body = [delimited(&message), cpu(7.0)].concat();
            let (snapshot, complaints) = read(&body);
            assert_eq!(snapshot.cpu_seconds, 7.0, "{what}: {complaints:?}");
            assert_eq!(complaints.unreadable, 1, "{what}: {complaints:?}");
        }
    }

    #[test]
    fn a_body_whose_lengths_are_nonsense_is_lost_and_said_to_be() {
        let mut exposition = ProtobufExposition::new();
        exposition.feed(&cpu(7.0));
        assert_eq!(exposition.standing(), Standing::NotApiServer);
        exposition.feed(&[0xff; 1_000]);
        assert_eq!(exposition.standing(), Standing::Lost);
        exposition.feed(&cpu(9.0));
        let (snapshot, complaints) = exposition.finish();
        assert_eq!((snapshot.cpu_seconds, complaints.unreadable), (7.0, 1));
    }

    #[test]
    fn a_body_that_was_cut_off_is_whole_nowhere_but_between_two_messages() {
        let body = encode(SOME);
        let mut exposition = ProtobufExposition::new();
        let mut whole = 0;
        assert_eq!(exposition.standing(), Standing::NoFamily);
        for byte in &body {
            exposition.feed(&[*byte]);
            whole += usize::from(exposition.standing() == Standing::Whole);
        }
        assert_eq!(exposition.standing(), Standing::Whole);
        assert_eq!(whole, 8, "once after each family");
        let (_, complaints) = read(&body[..body.len() - 1]);
        assert_eq!(complaints.first.as_deref(), Some("the last message is cut off"));
    }

    proptest! {
        #[test]
        fn where_the_body_is_cut_into_chunks_makes_no_difference(
            cuts in proptest::collection::vec(1usize..400, 1..40),
        ) {
            let body = encode(SOME);
            let mut exposition = ProtobufExposition::new();
            let (mut rest, mut cut) = (&body[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let at = (*cut.next().unwrap_or(&1)).min(rest.len());
                exposition.feed(&rest[..at]);
                rest = &rest[at..];
            }
            prop_assert_eq!(exposition.finish(), read(&body));
        }

        #[test]
        fn no_input_makes_the_reader_fail(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let within = b"\xff\x07\x0a\x19process_cpu_seconds_total".to_vec();
            for start in [Vec::new(), encode_length(1_000), cpu(1.0), within] {
                let mut exposition = ProtobufExposition::new();
                exposition.feed(&start);
                exposition.feed(&bytes);
                let _ = exposition.standing();
                let _ = exposition.finish();
            }
        }

        #[test]
        fn no_damage_to_a_body_makes_the_reader_fail_or_hold_much(
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
            chunk in 1usize..300,
        ) {
            let mut body = encode(SOME);
            for (at, byte) in damage {
                let at = at.index(body.len());
                body[at] = byte;
            }
            let (mut exposition, whole) = (ProtobufExposition::new(), read(&body));
            for chunk in body.chunks(chunk) {
                exposition.feed(chunk);
                prop_assert!(exposition.carry.capacity() <= 2 * MAX_METRIC);
            }
            prop_assert_eq!(exposition.finish(), whole);
        }
    }
}
