//! A cluster at the limits of what hookwatch watches.

use super::*;

#[test]
fn a_cluster_at_its_bounds_is_judged() {
    let mut hooks = Vec::new();
    for n in 0..2_000u32 {
        let mut one = hook(&format!("hook-{n}"), 3);
        if let HookTarget::Service(ServiceTarget {
            service: ServiceState::Found { endpoints, .. },
            ..
        }) = &mut one.target
        {
            for (k, endpoint) in endpoints.iter_mut().enumerate() {
                let [_, a, b, c] = (n * 3 + k as u32).to_be_bytes();
                endpoint.address = ([10, a, b, c], 8443).into();
            }
        }
        hooks.push(one);
    }
    let mut incident = Incident::with(hooks.clone());
    for step in 0..8u64 {
        let ms = step * 2 * SECOND;
        for n in 0..1_000 {
            let key = WriteKey {
                operation: WriteOperation::Create,
                group: format!("g{n}"),
                resource: "things".into(),
                subresource: String::new(),
            };
            let series = incident.counters.writes.entry(key).or_default();
            add(&mut series.duration, 2.0, 0.005);
            add(&mut series.sli, 2.0, 0.004);
        }
        incident.counters.write_results.ok += 2_000.0;
        for hook in &hooks {
            incident.count_calls(&hook.id.webhook, 2.0, 0.001);
            incident.answers(ms, hook);
        }
        incident.scrape(ms);
        incident.tick(ms + 10);
    }
    assert_eq!(incident.tick(15 * SECOND).hooks.len(), 2_000);
    incident.inventory(15 * SECOND, hooks.clone());
    // Everything is dead at once, which makes the longest assessment.
    for hook in &hooks {
        for backend in 0..3 {
            for step in 0..3 {
                incident.probe(16 * SECOND + step * SECOND, hook, backend, ProbeOutcome::Refused);
            }
        }
    }
    let assessment = incident.tick(19 * SECOND + 20);
    assert!(
        assessment
            .hooks
            .iter()
            .all(|verdict| verdict.cause == Some(Cause::Refused))
    );
}
