//! An overloaded API server reads the answers of webhooks late, which must not make a webhook count as slow.

use super::acting::changed;
use super::bypassed::outage;
use super::*;
use crate::observe::snapshot::ByRequestKind;

/// An API server with two hooks, before a flood of LISTs overloads it.
fn before_a_flood(hooks: &[&Hook]) -> Incident {
    let mut incident = Incident::calm(hooks);
    add(&mut incident.counters.reads, 1_000.0, 0.002);
    add(&mut incident.counters.etcd, 1_000.0, 0.002);
    incident.scrape(10 * SECOND + 500);
    incident.tick(10 * SECOND + 600);
    incident
}

/// Two seconds of the flood: 40 writes with these mean seconds in total and without webhooks, and of calls of `a` and `b`.
fn flooded(incident: &mut Incident, step: u64, [write, own, a, b]: [f64; 4]) -> Arc<Assessment> {
    let ms = 10 * SECOND + step * 2 * SECOND;
    incident.count_writes(40.0, write, own);
    incident.count_calls("a", 40.0, a);
    incident.count_calls("b", 40.0, b);
    add(&mut incident.counters.reads, 20_000.0, 0.080);
    add(&mut incident.counters.etcd, 200.0, 0.037);
    incident.counters.in_flight = Some(ByRequestKind {
        mutating: 8.0,
        read_only: 150.0,
    });
    incident.scrape(ms);
    incident.tick(ms + 10)
}

/// The same for an API server with too little CPU and its usual load; `etcd` is the seconds of an etcd request.
fn starved(incident: &mut Incident, step: u64, [write, own, a, b]: [f64; 4], etcd: f64) -> Arc<Assessment> {
    let ms = 10 * SECOND + step * 2 * SECOND;
    incident.count_writes(40.0, write, own);
    incident.count_calls("a", 40.0, a);
    incident.count_calls("b", 40.0, b);
    add(&mut incident.counters.reads, 200.0, own / 2.0);
    add(&mut incident.counters.etcd, 100.0, etcd);
    incident.scrape(ms);
    incident.tick(ms + 10)
}

fn is_overloaded(assessment: &Assessment) -> bool {
    let found = assessment.control_plane.not_a_hook.as_ref();
    found.is_some_and(|found| found.cause == NotAHook::Overloaded)
}

#[test]
fn when_every_hook_slows_down_with_the_api_server_none_is_the_culprit() {
    // The least overload, and one as on a real API server, where its own part of a write took 185 to 325 ms and a call of a
    // webhook 100 to 260 ms.
    for times in [[0.095, 0.065, 0.015, 0.015], [0.420, 0.200, 0.210, 0.140]] {
        let (a, b) = (hook("a", 1), hook("b", 1));
        let mut incident = before_a_flood(&[&a, &b]);
        for step in 1..8 {
            let assessment = flooded(&mut incident, step, times);
            assert_eq!(assessment.culprits().count(), 0, "{:?}", assessment.hooks);
        }
        assert!(is_overloaded(&incident.tick(25 * SECOND)));
    }
}

#[test]
fn when_every_hook_slows_down_with_an_api_server_that_is_short_of_cpu_none_is_the_culprit() {
    for times in [[0.420, 0.200, 0.210, 0.140], [0.8, 0.4, 0.4, 0.4]] {
        for etcd in [0.002, 0.020, 0.080] {
            let (a, b) = (hook("a", 1), hook("b", 1));
            let mut incident = before_a_flood(&[&a, &b]);
            for step in 1..8 {
                let assessment = starved(&mut incident, step, times, etcd);
                assert_eq!(assessment.culprits().count(), 0, "{etcd}: {:?}", assessment.hooks);
            }
            assert!(incident.tick(25 * SECOND).control_plane.not_a_hook.is_some());
        }
    }
}

#[test]
fn a_hook_that_takes_most_of_the_time_is_named_though_the_api_server_is_slow() {
    let (a, b) = (hook("a", 1), hook("b", 1));
    let mut incident = before_a_flood(&[&a, &b]);
    for step in 1..8 {
        starved(&mut incident, step, [0.9, 0.3, 0.55, 0.05], 0.020);
    }
    let named = incident.tick(25 * SECOND);
    let named: Vec<_> = named.culprits().map(|verdict| &*verdict.webhook).collect();
    assert_eq!(named, ["a"]);
}

#[test]
fn a_hook_that_takes_most_of_the_time_is_named_beside_an_overload() {
    let (a, b) = (hook("a", 1), hook("b", 1));
    let mut incident = before_a_flood(&[&a, &b]);
    for step in 1..8 {
        let assessment = flooded(&mut incident, step, [1.2, 0.065, 1.1, 0.015]);
        assert!(step < 2 || is_overloaded(&assessment));
    }
    let verdict = incident.verdict(25 * SECOND, "a");
    assert_judged(&verdict, Health::Failing, Some(Cause::Slow));
}

/// The diagnosis of requests that wait in flow control, every two seconds from 16 to 30 s.
fn laid_to(incident: &mut Incident, meanwhile: impl Fn(&mut Incident, u64)) -> Vec<Option<NotAHook>> {
    let seconds = (16..=30).step_by(2);
    let found = seconds.map(|second| {
        let ms = second * SECOND;
        meanwhile(incident, ms);
        incident.count_writes(40.0, 1.0, 0.004);
        add(&mut incident.counters.queue_wait, 40.0, 0.9);
        incident.scrape(ms);
        let assessment = incident.tick(ms + 10);
        assessment
            .control_plane
            .not_a_hook
            .as_ref()
            .map(|found| found.cause)
    });
    found.collect()
}

#[test]
fn what_waits_for_a_seat_while_a_webhook_hangs_that_is_called_waits_for_the_webhook() {
    let queued = Some(NotAHook::QueuedByFlowControl);
    let opa = hook("opa", 2);
    assert_eq!(laid_to(&mut Incident::calm(&[&opa]), |_, _| {})[7], queued);
    let silent = |incident: &mut Incident, ms: u64| incident.silent(ms - 2_000, &opa, 2_000);
    assert_eq!(laid_to(&mut outage(&opa), silent), [None; 8]);
    let mut skipped = outage(&opa);
    skipped.inventory(14 * SECOND, vec![changed(&opa, "hookwatch.dev/skip")]);
    let found = laid_to(&mut skipped, silent);
    assert_eq!((found[0], found[7]), (None, queued), "{found:?}");
    let well = |incident: &mut Incident, ms: u64| {
        incident.answers(ms - 500, &opa);
        incident.canary(ms - 400, 5, CanaryOutcome::Written);
        incident.count_calls("opa", 20.0, 0.001);
    };
    let found = laid_to(&mut outage(&opa), well);
    assert_eq!((found[0], found[7]), (None, queued), "{found:?}");
}

#[test]
fn what_cut_off_requests_waited_for_a_webhook_is_not_laid_to_the_api_server_and_a_slow_etcd_is_told_beside_it()
 {
    let opa = hook("opa", 2);
    let found = |etcd: f64| {
        let mut incident = before_a_flood(&[&opa]);
        incident.canary_late(11 * SECOND);
        incident.silent(11 * SECOND, &opa, 2 * SECOND);
        incident.tick(13 * SECOND + 100);
        let seconds = (15..=23).step_by(2);
        let last = seconds.map(|second| {
            let ms = second * SECOND;
            incident.silent(ms - 2 * SECOND, &opa, 2 * SECOND);
            incident.count_writes(40.0, 5.0, 5.0);
            let series = incident.count_calls("opa", 10.0, 10.0);
            series.rejections.calling += 10.0;
            add(&mut series.rejected, 10.0, 10.0);
            add(&mut incident.counters.reads, 20_000.0, 0.080);
            add(&mut incident.counters.etcd, 200.0, etcd);
            incident.counters.in_flight = Some(ByRequestKind {
                mutating: 8.0,
                read_only: 150.0,
            });
            incident.scrape(ms);
            incident.tick(ms + 10)
        });
        let last = last.last().expect("it was judged");
        let named: Vec<_> = last.culprits().map(|verdict| verdict.cause).collect();
        assert_eq!(named, [Some(Cause::Hanging)], "{:?}", last.hooks[0].evidence);
        let summary = last.control_plane.summary.clone();
        (
            last.control_plane.not_a_hook.as_ref().map(|found| found.cause),
            summary,
        )
    };
    // As in an overload.
    assert_eq!(found(0.005).0, None);
    let (cause, summary) = found(0.05);
    assert_eq!(cause, Some(NotAHook::EtcdSlow));
    assert!(
        summary.starts_with("Writes are blocked; opa")
            && summary.ends_with("are refused; and etcd takes its time."),
        "{summary}"
    );
}
