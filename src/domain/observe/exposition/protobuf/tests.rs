use proptest::prelude::*;

use super::*;
use crate::cluster::hook::HookKind;
use crate::observe::exposition::Exposition;
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
    apiserver_admission_match_condition_evaluation_errors_total{kind=\"webhook\",name=\"a\",operation=\"CREATE\",type=\"admit\"} 3\n\
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
    let other = &snapshot.hooks[&(HookKind::Mutating, "a".to_owned())];
    assert_eq!((other.fail_open, other.condition_errors), (4.0, 3.0));
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
fn an_unused_family_is_skipped_without_being_kept() {
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
    assert_eq!(exposition.standing(), BodyStanding::NotApiServer);
    exposition.feed(&[0xff; 1_000]);
    assert_eq!(exposition.standing(), BodyStanding::Lost);
    exposition.feed(&cpu(9.0));
    let (snapshot, complaints) = exposition.finish();
    assert_eq!((snapshot.cpu_seconds, complaints.unreadable), (7.0, 1));
}

#[test]
fn a_body_that_was_cut_off_is_whole_nowhere_but_between_two_messages() {
    let body = encode(SOME);
    let mut exposition = ProtobufExposition::new();
    let mut whole = 0;
    assert_eq!(exposition.standing(), BodyStanding::NoFamily);
    for byte in &body {
        exposition.feed(&[*byte]);
        whole += usize::from(exposition.standing() == BodyStanding::Whole);
    }
    assert_eq!(exposition.standing(), BodyStanding::Whole);
    assert_eq!(whole, 9, "once after each family");
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
