//! When audits are requested, and how their findings are reported.

use super::*;
use crate::audit::periodic::AuditResult;
use crate::cluster::inventory::NodeState;
use crate::watchdog::LoggedChange;

const MINUTE: u64 = 60 * SECOND;

impl Incident {
    /// Runs the audit that was requested last, and reports that it took this long.
    fn audited(&mut self, ms: u64, took: Duration) {
        let request = self.asked.last().expect("one was asked for").clone();
        let audited = AuditResult {
            at: request.at,
            took,
            findings: request.run(&|| {}),
        };
        self.event(ms, Event::Audited(Box::new(audited)));
    }

    fn found(&mut self, ms: u64) -> Vec<&'static str> {
        let assessment = self.tick(ms);
        assessment
            .audit
            .findings
            .iter()
            .map(|finding| finding.kind.id)
            .collect()
    }

    /// The findings that were logged as new and critical.
    fn told_of(&self) -> Vec<&'static str> {
        let told = self.told.iter().filter_map(|change| match change {
            LoggedChange::Finding(finding) => Some(finding.kind.id),
            _ => None,
        });
        told.collect()
    }
}

/// A webhook that matches no write of the control plane.
fn modest(webhook: &str) -> Hook {
    let mut hook = hook(webhook, 3);
    hook.written.ca_is_injected = true;
    hook.rules = vec![HookRule {
        operations: vec!["CREATE".into()],
        api_groups: vec!["example.com".into()],
        api_versions: vec!["v1".into()],
        resources: vec!["widgets".into()],
        scope: Scope::Namespaced,
    }];
    hook
}

#[test]
fn an_audit_is_asked_for_when_something_changed_and_not_at_each_tick() {
    let mut incident = Incident::with(vec![modest("opa")]);
    for tick in 0..10 {
        incident.tick(200 * tick);
    }
    assert_eq!(incident.asked.len(), 1, "one at a time");
    incident.audited(2 * SECOND, Duration::from_millis(3));
    for second in 3..3_000 {
        incident.tick(second * SECOND);
    }
    assert_eq!(incident.asked.len(), 1, "nothing changed");
    incident.inventory(3_000 * SECOND, vec![hook("opa", 3)]);
    incident.tick(3_000 * SECOND + 200);
    assert_eq!(incident.asked.len(), 2);
    incident.audited(3_001 * SECOND, Duration::from_millis(3));
    incident.tick(3_001 * SECOND + 2_000 + 3_600 * SECOND);
    assert_eq!(incident.asked.len(), 3, "time alone is news to certificates");
}

#[test]
fn an_audit_that_takes_long_is_rare_and_one_that_is_lost_is_asked_for_again() {
    let mut incident = Incident::with(vec![modest("opa")]);
    incident.tick(0);
    incident.audited(10 * SECOND, 10 * Duration::from_secs(1));
    incident.inventory(11 * SECOND, vec![hook("opa", 3)]);
    incident.tick(12 * SECOND);
    assert_eq!(incident.asked.len(), 1, "it rests");
    incident.tick(51 * SECOND);
    assert_eq!(incident.asked.len(), 2);
    incident.inventory(52 * SECOND, vec![modest("opa")]);
    incident.tick(5 * MINUTE);
    assert_eq!(incident.asked.len(), 2, "one is under way");
    incident.tick(12 * MINUTE);
    assert_eq!(incident.asked.len(), 3);
    incident.tick(23 * MINUTE);
    assert_eq!(
        incident.asked.len(),
        4,
        "the last one is lost, and nothing has changed since"
    );
}

#[test]
fn what_is_critical_is_told_once_and_not_if_it_was_there_at_first() {
    let mut incident = Incident::with(vec![hook("opa", 3)]);
    incident.tick(0);
    assert_eq!(incident.tick(0).audit.at, None);
    incident.audited(SECOND, Duration::ZERO);
    assert!(incident.found(2 * SECOND).contains(&"control-plane-in-reach"));
    assert_eq!(incident.told_of(), [""; 0], "it was there before hookwatch was");
    let since = |incident: &mut Incident, ms| incident.tick(ms).audit.findings[0].since;
    assert_eq!(since(&mut incident, 3 * SECOND), None);

    incident.inventory(10 * MINUTE, vec![modest("opa")]);
    incident.tick(10 * MINUTE);
    incident.audited(10 * MINUTE + SECOND, Duration::ZERO);
    assert!(
        !incident
            .found(10 * MINUTE + 2 * SECOND)
            .contains(&"control-plane-in-reach")
    );
    incident.inventory(20 * MINUTE, vec![hook("opa", 3)]);
    for minute in [20, 21, 22] {
        incident.tick(minute * MINUTE);
        incident.audited(minute * MINUTE + SECOND, Duration::ZERO);
    }
    assert_eq!(incident.told_of(), ["control-plane-in-reach"]);
    assert_eq!(
        since(&mut incident, 23 * MINUTE),
        Some(Incident::at(20 * MINUTE + SECOND))
    );
}

#[test]
fn no_finding_is_a_reason_for_health_or_known_to_the_breaker() {
    let mut audited = Incident::with(vec![hook("opa", 3)]);
    let mut unaudited = Incident::with(vec![hook("opa", 3)]);
    audited.tick(0);
    unaudited.tick(0);
    audited.audited(100, Duration::ZERO);
    let (with, without) = (audited.tick(200), unaudited.tick(200));
    assert!(with.audit.critical > 0 && without.audit.critical == 0);
    assert_eq!(with.hooks, without.hooks);
    assert_eq!(with.control_plane, without.control_plane);
    assert_eq!(audited.judged, unaudited.judged);
    assert_eq!(audited.attention, unaudited.attention);
}

#[test]
fn a_node_that_goes_takes_its_webhook_along_with_and_without_the_right_to_read_nodes() {
    let mut opa = modest("opa");
    if let HookTarget::Service(target) = &mut opa.target
        && let ServiceState::Found { endpoints, .. } = &mut target.service
    {
        endpoints
            .iter_mut()
            .for_each(|endpoint| endpoint.node = Some("a".into()));
    }
    let mut incident = Incident::calm(&[&opa]);
    incident.tick(11 * SECOND);
    incident.audited(11 * SECOND, Duration::ZERO);
    assert_eq!(incident.found(12 * SECOND), ["one-node"]);
    let not_ready = NodeState {
        ready: Some(false),
        ..NodeState::default()
    };
    let inventory = Inventory {
        hooks: vec![Arc::new(opa.clone())],
        nodes: [("a".to_owned(), not_ready)].into(),
        ..Inventory::default()
    };
    incident.event(13 * SECOND, Event::Inventory(Arc::new(inventory)));
    incident.tick(13 * SECOND + 100);
    incident.audited(13 * SECOND + 200, Duration::ZERO);
    assert_eq!(incident.found(14 * SECOND), ["nodes-going"]);

    // Without permission to read nodes, their Leases are used.
    let mut blind = Incident::calm(&[&opa]);
    let lease = |name: &str, renewed: u64| crate::observe::node_leases::NodeLease {
        name: name.to_owned(),
        renewed: renewed.to_string(),
        duration: Duration::from_secs(40),
    };
    blind.audited(11 * SECOND, Duration::ZERO);
    for second in (12..112).step_by(10) {
        let leases = vec![lease("a", 0), lease("b", second), lease("c", second)];
        let list = crate::observe::node_leases::LeaseList { leases, left_out: 0 };
        let reading = crate::observe::node_leases::LeaseReading {
            at: Incident::at(second * SECOND),
            outcome: Ok(list),
        };
        blind.event(second * SECOND, Event::NodeLeases(reading));
        blind.tick(second * SECOND);
        if blind
            .asked
            .last()
            .is_some_and(|asked| asked.at == Incident::at(second * SECOND))
        {
            blind.audited(second * SECOND + 100, Duration::ZERO);
        }
    }
    let assessment = blind.tick(112 * SECOND);
    let [finding] = assessment.audit.findings.as_slice() else {
        panic!("{:?}", assessment.audit)
    };
    assert_eq!(finding.kind.id, "nodes-going");
    assert!(
        finding
            .message
            .contains("\"a\", which does not renew its Lease since"),
        "{}",
        finding.message
    );
    assert_eq!(finding.since, Some(Incident::at(12 * SECOND)));
}
