use std::cell::Cell;

use super::super::findings::{CONTROL_PLANE_IN_REACH, FindingKind, NODES_GOING};
use super::*;
use crate::cluster::condition::CONDITION_PREFIX;
use crate::cluster::hook::HookKind;
use crate::cluster::matching::tests::hook;

fn at(seconds: u64) -> Time {
    Time::from_unix_millis(1_795_219_862_000 + seconds * 1_000)
}

fn request(hooks: Vec<Hook>, evidence: AuditEvidence) -> AuditRequest {
    AuditRequest {
        inventory: Arc::new(Inventory {
            hooks: hooks.into_iter().map(Arc::new).collect(),
            ..Inventory::default()
        }),
        evidence,
        at: at(0),
    }
}

fn found(hook: &Hook, evidence: AuditEvidence) -> Vec<Finding> {
    request(vec![hook.clone()], evidence).run(&|| {})
}

fn ids(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.kind.id).collect()
}

#[test]
fn what_was_seen_of_a_webhook_is_found_and_nothing_is_found_of_one_that_nothing_was_seen_of() {
    let hook = hook(&["*"]);
    let nothing = ids(&found(&hook, AuditEvidence::default()));
    let more = |evidence| {
        let found = found(&hook, evidence);
        let more = found
            .into_iter()
            .filter(|finding| !nothing.contains(&finding.kind.id));
        let more = more.map(|finding| (finding.kind.id, finding.severity));
        more.collect::<Vec<_>>()
    };
    let distinguishes_canaries = [hook.id.clone()].into();
    assert_eq!(
        more(AuditEvidence {
            distinguishes_canaries,
            ..AuditEvidence::default()
        }),
        [("tells-canaries-apart", FindingSeverity::Warning)]
    );
    let day = 86_400;
    for (hours, lifetime, severity) in [
        (24, None, Some(FindingSeverity::Critical)),
        (240, None, Some(FindingSeverity::Warning)),
        (360, None, None),
        (240, Some(90 * day), Some(FindingSeverity::Warning)),
        // KubeVirt serves one for a day, cert-manager for a week, and both renew it in time.
        (5, Some(day), None),
        (4, Some(day), Some(FindingSeverity::Warning)),
        (2, Some(day), Some(FindingSeverity::Critical)),
        (56, Some(7 * day), None),
        (0, Some(day), Some(FindingSeverity::Critical)),
    ] {
        let ends = at(hours * 3_600);
        let begins = lifetime.map(|lifetime| ends.before(Duration::from_secs(lifetime)));
        let served_until = [(hook.id.clone(), (ends, begins))].into();
        let told = severity.map(|severity| ("served-certificate-ends", severity));
        assert_eq!(
            more(AuditEvidence {
                served_until,
                ..AuditEvidence::default()
            }),
            told.into_iter().collect::<Vec<_>>(),
            "{hours} hours of {lifetime:?}"
        );
    }
    for (part, told) in [(0.24, 0), (0.25, 1), (0.9, 1)] {
        let usual = hook.timeout.as_secs_f64() * part;
        let usual_seconds = [(hook.id.clone(), usual)].into();
        assert_eq!(
            more(AuditEvidence {
                usual_seconds,
                ..AuditEvidence::default()
            })
            .len(),
            told,
            "{part}"
        );
    }
}

#[test]
fn a_webhook_is_audited_as_its_owner_has_it_and_a_patch_never_takes_its_bypass_along() {
    let own = hook(&["*"]);
    let mut bypassed = own.clone();
    bypassed.match_conditions.push(MatchCondition {
        name: format!("{CONDITION_PREFIX}skip"),
        expression: "false".to_owned(),
    });
    let (own, bypassed) = (
        found(&own, AuditEvidence::default()),
        found(&bypassed, AuditEvidence::default()),
    );
    assert_eq!(ids(&own), ids(&bypassed));
    assert!(own.iter().any(|finding| finding.patch.is_some()));
    assert!(bypassed.iter().all(|finding| finding.patch.is_none()));
}

#[test]
fn hooks_beside_admission_are_not_audited_and_there_is_a_pause_at_each_that_is() {
    let hooks = |kind: HookKind| {
        let hooks = (0..50).map(|number| {
            let mut hook = hook(&["*"]);
            hook.id = HookId::new(kind, &format!("c{number:02}"), "w");
            hook
        });
        request(hooks.collect(), AuditEvidence::default())
    };
    let pauses = Cell::new(0);
    let found = hooks(HookKind::Validating).run(&|| pauses.set(pauses.get() + 1));
    assert!(!found.is_empty() && pauses.get() >= 3 * 50, "{}", pauses.get());
    assert_eq!(hooks(HookKind::Conversion).run(&|| {}), []);
}

/// As bad as it can be.
fn finding(kind: &'static FindingKind, number: usize, bytes: usize) -> Finding {
    let object = format!("ValidatingWebhookConfiguration/c{number}/w");
    Finding::new(kind, object, "x".repeat(bytes))
}

#[test]
fn however_much_is_found_what_is_published_is_bounded_and_what_cannot_wait_is_in_it() {
    let publish = |bytes: usize| {
        let many = (0..3_000).map(|number| finding(CONTROL_PLANE_IN_REACH, number, bytes));
        let going = finding(NODES_GOING, 9_999, bytes);
        PublishedFindings::of(AuditResult {
            at: at(0),
            took: Duration::ZERO,
            findings: many.chain([going]).collect(),
        })
    };
    for bytes in [10, 2_000] {
        let published = publish(bytes);
        assert_eq!(published.critical, 3_001);
        assert!(published.findings.len() <= MAX_FINDINGS);
        assert!(published.critical - published.findings.len() >= 3_001 - MAX_FINDINGS);
        assert_eq!(published.findings[0].kind.id, "nodes-going");
        let total: usize = published
            .findings
            .iter()
            .map(|finding| finding.message.len())
            .sum();
        assert!(total <= MAX_BYTES, "{total}");
    }
    assert_eq!(publish(10).findings.len(), MAX_FINDINGS);
}
