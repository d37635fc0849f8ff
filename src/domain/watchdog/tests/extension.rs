//! Incidents of conversion webhooks and APIServices, which must not accuse an admission webhook.

use super::*;
use crate::cluster::hook::{Aggregated, Available, Conversion, Extension};
use crate::observe::snapshot::WriteSeries;

const CRD: &str = "widgets.example.com";
const API: &str = "v1beta1.metrics.example.com";

/// The conversion webhook of [`CRD`], with one endpoint.
fn converter() -> Hook {
    Hook {
        id: HookId::new(HookKind::Conversion, CRD, CRD),
        rules: Vec::new(),
        dry_run_safe: false,
        timeout: Conversion::TIMEOUT,
        extension: Some(Extension::Conversion(Conversion {
            group: "example.com".into(),
            resource: "widgets".into(),
            stored: "v1".into(),
            others: vec!["v1beta1".into()],
        })),
        ..hook("converter", 1)
    }
}

/// The server behind [`API`], with one endpoint, as the aggregator sees it.
fn server(status: Option<bool>, reason: &str, message: &str) -> Hook {
    Hook {
        id: HookId::new(HookKind::Aggregated, API, API),
        rules: Vec::new(),
        dry_run_safe: false,
        extension: Some(Extension::Aggregated(Aggregated {
            group: "metrics.example.com".into(),
            version: "v1beta1".into(),
            insecure: false,
            available: Some(Available {
                status,
                reason: reason.into(),
                message: message.into(),
                since: Some(Incident::at(0)),
            }),
        })),
        ..hook("metrics", 1)
    }
}

fn available() -> Hook {
    server(Some(true), "Passed", "all checks passed")
}

impl Incident {
    fn count_conversions(&mut self, succeeded: bool, count: f64, seconds_each: f64) {
        let series = self
            .counters
            .others
            .conversions
            .entry(CRD.to_owned())
            .or_default();
        let part = if succeeded {
            &mut series.succeeded
        } else {
            &mut series.failed
        };
        add(part, count, seconds_each);
    }

    fn writes_of_widgets(&mut self) -> &mut WriteSeries {
        let key = WriteKey {
            operation: WriteOperation::Update,
            group: "example.com".into(),
            resource: "widgets".into(),
            subresource: String::new(),
        };
        self.counters.writes.entry(key).or_default()
    }

    /// Counts writes of the CRD's objects that failed after this many seconds each.
    fn fail_writes_of_widgets(&mut self, count: f64, seconds_each: f64) {
        let series = self.writes_of_widgets();
        add(&mut series.duration, count, seconds_each);
        add(&mut series.sli, count, seconds_each);
        self.counters.write_results.failed += count;
        let resource = ("example.com".to_owned(), "widgets".to_owned());
        let results = &mut self.counters.others.results;
        results.entry(resource).or_default().failed += count;
    }

    fn refused(&mut self, hook: &Hook, from: u64) {
        for step in 0..3 {
            self.probe(from + step * 500, hook, 0, ProbeOutcome::Refused);
        }
    }
}

#[test]
fn a_converter_is_named_when_probes_and_the_api_server_agree_and_only_suspected_before() {
    let converter = converter();
    let mut incident = Incident::calm(&[]);
    incident.inventory(11_000, vec![converter.clone()]);
    incident.probe(11_000, &converter, 0, alive());
    assert_eq!(incident.verdict(11_100, CRD).health, Health::Healthy);
    incident.refused(&converter, 12_000);
    let suspected = incident.verdict(20_000, CRD);
    assert_eq!(
        found(&suspected),
        (Health::Suspect, Some(Cause::Refused), Effect::None),
        "nobody may have asked for a conversion"
    );
    incident.count_conversions(false, 2.0, 0.001);
    incident.scrape(21_000);
    let named = incident.verdict(21_100, CRD);
    assert_eq!(
        found(&named),
        (Health::Failing, Some(Cause::Refused), Effect::Blocking)
    );
    let evidence = named.evidence.join(" ");
    assert!(
        evidence.contains("2 failed conversions of widgets.example.com of 2")
            && evidence.contains("widgets in group example.com only: GET, watch and writes")
            && evidence.contains("in v1beta1"),
        "{evidence}"
    );
    // Without conversions for a long time, it remains broken.
    for step in 0..20 {
        incident.refused(&converter, 22_000 + step * 5_000);
        incident.scrape(22_000 + step * 5_000);
        incident.tick(23_000 + step * 5_000);
    }
    assert_eq!(incident.verdict(125_000, CRD).health, Health::Failing);
    incident.probe(126_000, &converter, 0, alive());
    incident.count_conversions(true, 4.0, 0.001);
    incident.scrape(127_000);
    assert_eq!(incident.verdict(127_100, CRD).health, Health::Healthy);
}

#[test]
fn the_api_servers_word_alone_makes_a_converter_suspect() {
    let converter = converter();
    let mut incident = Incident::calm(&[]);
    incident.inventory(11_000, vec![converter.clone()]);
    incident.probe(11_000, &converter, 0, alive());
    incident.count_conversions(false, 9.0, 30.0);
    incident.scrape(12_000);
    let verdict = incident.verdict(12_100, CRD);
    assert_eq!(
        found(&verdict),
        (Health::Suspect, Some(Cause::Hanging), Effect::Blocking)
    );
}

#[test]
fn a_slow_converter_delays_its_own_resource_and_nothing_else() {
    let (opa, converter) = (hook("opa", 1), converter());
    let mut incident = Incident::calm(&[&opa]);
    incident.inventory(11_000, vec![opa.clone(), converter.clone()]);
    for step in 0..3 {
        let ms = 11_000 + step * 2_000;
        incident.probe_taking(ms, 1_500, &converter, 0, alive());
        incident.probe(ms, &opa, 0, alive());
        incident.count_conversions(true, 50.0, 1.5);
        incident.count_writes(200.0, 0.005, 0.004);
        incident.count_calls("opa", 250.0, 0.001);
        let series = incident.writes_of_widgets();
        add(&mut series.duration, 50.0, 3.0);
        add(&mut series.sli, 50.0, 3.0);
        incident.scrape(ms + 1_600);
    }
    let verdict = incident.verdict(16_700, CRD);
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::Slow), Effect::Delaying)
    );
    assert_eq!(verdict.excess_share, None);
    let assessment = incident.tick(16_800);
    assert_eq!(assessment.control_plane.writes, Writes::Flowing);
    assert_eq!(assessment.control_plane.not_a_hook, None);
    assert_eq!(incident.verdict(16_900, "opa").health, Health::Healthy);
}

#[test]
fn writes_that_fail_for_want_of_a_conversion_never_block_the_control_plane_or_accuse_an_admission_hook() {
    let (opa, converter) = (hook("opa", 1), converter());
    let mut incident = Incident::calm(&[&opa]);
    incident.inventory(11_000, vec![opa.clone(), converter.clone()]);
    incident.refused(&converter, 11_000);
    for step in 0..10 {
        let ms = 12_000 + step * 2_000;
        incident.refused(&converter, ms);
        incident.probe(ms, &opa, 0, alive());
        // Nearly all recent writes are widgets.
        incident.count_writes(6.0, 0.005, 0.004);
        incident.count_calls("opa", 206.0, 0.001);
        incident.count_conversions(false, 400.0, 30.0);
        incident.fail_writes_of_widgets(200.0, 30.0);
        incident.canary(ms, 5, CanaryOutcome::Written);
        incident.scrape(ms + 500);
        let assessment = incident.tick(ms + 600);
        assert_eq!(assessment.control_plane.writes, Writes::Flowing, "{step}");
        assert_eq!(assessment.control_plane.not_a_hook, None, "{step}");
        let named: Vec<&str> = assessment.culprits().map(|verdict| &*verdict.webhook).collect();
        assert!(named.iter().all(|name| *name == CRD), "{named:?}");
    }
    let assessment = incident.tick(33_000);
    assert_eq!(assessment.culprits().count(), 1);
    assert!(
        assessment
            .control_plane
            .summary
            .starts_with("Writes flow. Beside that: The conversion webhook of"),
        "{}",
        assessment.control_plane.summary
    );
}

#[test]
fn an_api_is_named_when_probes_and_the_aggregator_agree() {
    let server = available();
    let mut incident = Incident::calm(&[]);
    incident.inventory(11_000, vec![server.clone()]);
    incident.probe(11_000, &server, 0, alive());
    let verdict = incident.verdict(11_100, API);
    assert_judged(&verdict, Health::Healthy, None);
    incident.refused(&server, 12_000);
    let verdict = incident.verdict(14_000, API);
    assert_eq!(
        found(&verdict),
        (Health::Suspect, Some(Cause::Refused), Effect::None),
        "the aggregator will have looked within half a minute"
    );
    let message = "failing or missing response from https://10.0.0.1:8443/apis/metrics.example.com/v1beta1: Get \
                   \"https://10.0.0.1:8443/apis/metrics.example.com/v1beta1\": dial tcp 10.0.0.1:8443: connect: \
                   connection refused";
    let unavailable = super::extension::server(Some(false), "FailedDiscoveryCheck", message);
    incident.inventory(15_000, vec![unavailable]);
    let verdict = incident.verdict(15_100, API);
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::Refused), Effect::Blocking)
    );
    let evidence = verdict.evidence.join(" ");
    assert!(
        evidence.contains("FailedDiscoveryCheck: failing or missing response")
            && evidence.contains("metrics.example.com/v1beta1 only")
            && evidence.contains("the deletion of namespaces"),
        "{evidence}"
    );
    assert!(!verdict.advice.expect("advice").contains("caBundle"));
}

#[test]
fn an_api_that_only_the_aggregator_cannot_reach_is_suspect_and_the_gauge_counts_where_there_is_no_condition()
{
    let unavailable = server(
        Some(false),
        "FailedDiscoveryCheck",
        "timed out waiting for https://10.0.0.1:8443/apis/e/v1",
    );
    let mut incident = Incident::calm(&[]);
    incident.inventory(11_000, vec![unavailable.clone()]);
    incident.probe(11_000, &unavailable, 0, alive());
    let verdict = incident.verdict(11_100, API);
    assert_eq!(
        found(&verdict),
        (Health::Suspect, Some(Cause::Hanging), Effect::Blocking)
    );
    let unlooked = server(None, "", "");
    incident.inventory(12_000, vec![unlooked.clone()]);
    incident.counters.others.unavailable.insert(API.to_owned(), 1.0);
    incident.refused(&unlooked, 12_000);
    incident.scrape(13_500);
    assert_eq!(incident.verdict(13_600, API).health, Health::Failing);
}

#[test]
fn pods_that_cannot_be_reached_from_here_at_all_do_not_outweigh_an_aggregator_that_is_content() {
    let server = available();
    let mut incident = Incident::calm(&[]);
    incident.inventory(11_000, vec![server.clone()]);
    for step in 0..30 {
        let outcome = ProbeOutcome::TimedOut {
            phase: ProbePhase::Connect,
        };
        incident.probe_taking(11_000 + step * 5_000, 5_000, &server, 0, outcome);
        incident.scrape(11_000 + step * 5_000);
    }
    assert_eq!(incident.verdict(162_000, API).health, Health::Healthy);
}

#[test]
fn an_api_without_a_service_is_named_by_inventory_and_aggregator() {
    let mut gone = server(
        Some(false),
        "ServiceNotFound",
        "service/metrics in \"ns\" is not present",
    );
    let HookTarget::Service(target) = &mut gone.target else {
        panic!("a Service");
    };
    target.service = ServiceState::Missing;
    let mut incident = Incident::calm(&[]);
    incident.inventory(11_000, vec![gone.clone()]);
    let verdict = incident.verdict(11_100, API);
    assert_eq!(
        found(&verdict),
        (Health::Failing, Some(Cause::NoService), Effect::Blocking)
    );
    assert_eq!(incident.tick(11_200).control_plane.writes, Writes::Flowing);
    let judged = incident.judged(11_300).hooks;
    assert!(
        judged.is_empty(),
        "the breaker waits for the owner of every culprit: {judged:?}"
    );
}

#[test]
fn an_api_that_stays_broken_neither_keeps_the_observers_busy_nor_stops_the_learning() {
    let (opa, gone) = (hook("opa", 1), server(Some(false), "MissingEndpoints", "none"));
    let mut incident = Incident::calm(&[&opa]);
    incident.inventory(11_000, vec![opa.clone(), gone.clone()]);
    for step in 0..80 {
        let ms = 12_000 + step * 5_000;
        incident.refused(&gone, ms);
        incident.probe(ms, &opa, 0, alive());
        incident.count_writes(500.0, 0.007, 0.006);
        incident.count_calls("opa", 500.0, 0.001);
        incident.canary(ms, 5, CanaryOutcome::Written);
        incident.scrape(ms + 1_000);
        incident.tick(ms + 1_600);
    }
    assert_eq!(incident.verdict(412_100, API).health, Health::Failing);
    assert_eq!(incident.attention, Attention::default());
    let usual = incident.watchdog.seen.history.baseline.write.median();
    assert!(usual.is_some_and(|usual| usual > 0.0065), "{usual:?}");
}

#[test]
fn a_definition_and_an_admission_hook_of_the_same_name_are_two() {
    let mut opa = hook(CRD, 1);
    opa.target = converter().target;
    let converter = converter();
    let mut incident = Incident::calm(&[&opa]);
    incident.inventory(11_000, vec![opa.clone(), converter.clone()]);
    incident.probe(11_000, &opa, 0, alive());
    incident.probe(11_000, &converter, 0, alive());
    for step in 0..2 {
        incident.canary(
            11_000 + step * 1_000,
            3,
            refusal(CRD, "dial tcp 10.0.0.1:8443: connect: connection refused"),
        );
    }
    let assessment = incident.tick(13_000);
    let named: Vec<HookKind> = assessment.culprits().map(|verdict| verdict.kind).collect();
    assert_eq!(named, [HookKind::Validating]);
}

#[test]
fn what_is_only_counted_is_told_of_as_suspect() {
    let mut incident = Incident::calm(&[]);
    incident.count_conversions(false, 3.0, 0.001);
    incident.counters.others.unavailable.insert(API.to_owned(), 2.0);
    incident.scrape(12_000);
    for name in [CRD, API] {
        let verdict = incident.verdict(12_100, name);
        assert_eq!((verdict.health, verdict.configuration), (Health::Suspect, None));
        assert!(
            verdict.evidence.join(" ").contains("hookwatch finds no "),
            "{:?}",
            verdict.evidence
        );
    }
}

#[test]
fn what_is_known_of_them_comes_back_from_a_recording_and_an_older_recording_has_none_of_it() {
    let message = "all checks passed";
    for hook in [converter(), server(Some(true), "Passed", message)] {
        let mut written = serde_json::to_value(&hook).expect("JSON");
        let read: Hook = serde_json::from_value(written.clone()).expect("a hook");
        assert_eq!(read, hook);
        written.as_object_mut().expect("an object").remove("other");
        let read: Hook = serde_json::from_value(written).expect("a hook");
        assert_eq!(read.extension, None);
    }
    let mut incident = Incident::calm(&[]);
    incident.count_conversions(false, 3.0, 0.5);
    incident.fail_writes_of_widgets(2.0, 0.5);
    incident.counters.others.unavailable.insert(API.to_owned(), 1.0);
    let mut written = serde_json::to_value(&incident.counters).expect("JSON");
    let read: Snapshot = serde_json::from_value(written.clone()).expect("a snapshot");
    assert_eq!(read, incident.counters);
    written.as_object_mut().expect("an object").remove("others");
    assert!(serde_json::from_value::<Snapshot>(written).is_ok());
}
