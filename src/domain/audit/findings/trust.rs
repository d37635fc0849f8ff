//! Findings about the CA certificates in a webhook's `caBundle`.

use std::time::Duration;

use super::{CA_EMPTY, CA_ENDS, CA_NAMES_ANOTHER, CA_UNUSABLE, Finding, FindingSeverity};
use crate::audit::estate::AuditedHook;
use crate::audit::forecast::Auditor;
use crate::cluster::hook::{FailurePolicy, HookTarget, Trusted};
use crate::time::Time;

/// When the end of a certificate counts as near.
pub(super) struct Expiry {
    /// A warning begins this long before the end, or a fifth of the certificate's lifetime before it if that is less: a
    /// certificate that lives for a day is renewed every day.
    pub(super) soon: Duration,
    /// A critical finding begins this long before the end, or a tenth of the certificate's lifetime before it if that is less.
    pub(super) very_soon: Duration,
}

impl Expiry {
    /// The severity of a certificate's coming end; `None` if the end is far. If `begins` is `None`, the lifetime is not considered.
    pub(super) fn urgency(&self, begins: Option<Time>, ends: Time, now: Time) -> Option<FindingSeverity> {
        let part =
            |most: Duration, part: u32| begins.map_or(most, |begins| most.min(ends.since(begins) / part));
        let left = ends.since(now);
        if ends <= now || left < part(self.very_soon, 10) {
            Some(FindingSeverity::Critical)
        } else {
            (left < part(self.soon, 5)).then_some(FindingSeverity::Warning)
        }
    }
}

const EXPIRY: Expiry = Expiry {
    soon: Duration::from_secs(60 * 24 * 3_600),
    very_soon: Duration::from_secs(7 * 24 * 3_600),
};
/// How long after the creation of a configuration a controller may take to fill in its `caBundle`.
const FILLED_WITHIN: Duration = Duration::from_secs(600);

pub(super) fn of_one(auditor: &Auditor<'_>, at: usize, found: &mut Vec<Finding>) {
    let (subject, estate) = (auditor.subject(at), auditor.estate);
    found.extend(unfilled(auditor, subject));
    let is_trusted = estate.evidence.trusted.contains(&subject.hook.id);
    found.extend(name(subject, estate.is_cluster, is_trusted));
    let written = &subject.hook.written;
    if let (Some(ends), Some(now)) = (written.ca_ends, estate.at)
        && let Some(severity) = EXPIRY.urgency(written.ca_begins, ends, now)
    {
        let message = if ends <= now {
            format!("Its caBundle ended at {ends}: every call fails.")
        } else {
            format!("Its caBundle ends at {ends}. From then on every call fails.")
        };
        found.push(Finding::of(CA_ENDS, subject, message).at_most(severity));
    }
}

/// A finding about a `caBundle` without a certificate. It is milder for manifests and new configurations: they may have none, or
/// a placeholder, until a controller fills it in.
fn unfilled(auditor: &Auditor<'_>, subject: &AuditedHook) -> Option<Finding> {
    let (hook, estate) = (&subject.hook, auditor.estate);
    let is_junk = hook
        .problems
        .iter()
        .any(|problem| problem.contains(": caBundle holds no PEM certificate"));
    if !(is_junk || hook.ca_bundle.is_empty() && matches!(hook.target, HookTarget::Service(_))) {
        return None;
    }
    let is_injected = hook.written.ca_is_injected;
    let age = hook
        .created
        .zip(estate.at)
        .map(|(created, now)| now.since(created));
    let is_overdue = estate.is_cluster && age.is_some_and(|age| age >= FILLED_WITHIN);
    let overdue = match (is_overdue, is_injected) {
        (false, _) => "",
        (true, false) => " The configuration is older than 10 minutes, and nothing has filled it in.",
        (true, true) => " The configuration is older than 10 minutes, and its injector has not filled it in.",
    };
    let (kind, message, may_be_filled) = if is_junk {
        let message = "Its caBundle holds no PEM certificate, so every call fails until one is there.";
        (CA_UNUSABLE, message, is_injected || !estate.is_cluster)
    } else if is_overdue {
        let message = "It has no caBundle: the API server trusts the system's roots, which know no Service, so every call fails.";
        (CA_EMPTY, message, false)
    } else if is_injected {
        return None;
    } else {
        let message = "It has no caBundle: the API server trusts the system's roots, which know no Service. Unless something fills it in, \
                       every call fails.";
        (CA_EMPTY, message, true)
    };
    let is_ignored = hook.failure_policy == FailurePolicy::Ignore;
    let finding = Finding::of(kind, subject, format!("{message}{overdue}"));
    let finding = finding.at_most_if(may_be_filled && !is_overdue, FindingSeverity::Info);
    Some(finding.at_most_if(is_ignored, FindingSeverity::Warning))
}

/// A finding if no certificate in the `caBundle` can vouch for a served certificate with the server name that the API server uses.
///
/// A certificate that may not sign others is trusted only if the webhook serves it itself (Go's `crypto/x509`,
/// `Certificate.CheckSignatureFrom`). Only names in `subjectAltName` count.
fn name(subject: &AuditedHook, is_cluster: bool, is_trusted: bool) -> Option<Finding> {
    let called = subject.hook.server_name()?;
    let is_for = |trusted: &Trusted| trusted.names.iter().any(|name| names(name, &called));
    let plain = |trusted: &Trusted| trusted.signs && trusted.names.is_empty();
    let all = &subject.hook.written.trusted;
    if all.is_empty() || all.iter().any(|trusted| plain(trusted) || is_for(trusted)) {
        return None;
    }
    let mut listed: Vec<&str> = all
        .iter()
        .flat_map(|trusted| &trusted.names)
        .map(String::as_str)
        .take(5)
        .collect();
    listed.dedup();
    let has = if listed.is_empty() {
        "has no subjectAltName".to_owned()
    } else {
        format!("is for {}", listed.join(", "))
    };
    if all.iter().any(|trusted| trusted.signs) {
        // A CA may have its own name as subjectAltName, such as the CAs of OPA's cert-controller.
        if is_trusted {
            return None;
        }
        let message = format!(
            "Its caBundle {has}. If the webhook serves that certificate itself, every call fails: it is called as {called}."
        );
        return Some(Finding::of(CA_NAMES_ANOTHER, subject, message).at_most(FindingSeverity::Info));
    }
    let message = format!(
        "Its caBundle can sign no other certificate and {has}, but the webhook is called as {called}: every call fails. Make a \
         certificate with that name as subjectAltName."
    );
    let finding = Finding::of(CA_NAMES_ANOTHER, subject, message);
    let filled = subject.hook.written.ca_is_injected || !is_cluster;
    Some(finding.at_most_if(filled, FindingSeverity::Warning))
}

/// Whether a name in a certificate matches the server name. Its first label may be `*`.
fn names(name: &str, called: &str) -> bool {
    let rest = |name: &'_ str| name.split_once('.').map(|(_, rest)| rest.to_ascii_lowercase());
    name.eq_ignore_ascii_case(called)
        || name
            .strip_prefix("*.")
            .is_some_and(|domain| rest(called) == Some(domain.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_lives_for_days_is_told_of_in_the_last_fifth_of_its_life_and_not_from_its_beginning()
    {
        let (hour, day) = (3_600, 24 * 3_600);
        let now = Time::from_unix_millis(1_795_219_862_000);
        let told = |left: u64, lifetime: Option<u64>| {
            let ends = now + Duration::from_secs(left);
            let begins = lifetime.map(|lifetime| ends.before(Duration::from_secs(lifetime)));
            EXPIRY.urgency(begins, ends, now)
        };
        let (warning, critical) = (Some(FindingSeverity::Warning), Some(FindingSeverity::Critical));
        for (left, lifetime, wanted) in [
            (59 * day, None, warning),
            (60 * day, None, None),
            (6 * day, None, critical),
            (59 * day, Some(3_650 * day), warning),
            (6 * day, Some(3_650 * day), critical),
            // What kubebuilder's certificates have left when they are renewed, and what they never should.
            (30 * day, Some(90 * day), None),
            (17 * day, Some(90 * day), warning),
            (6 * day, Some(90 * day), critical),
            // KubeVirt's authority, and cert-manager's leaf.
            (6 * day, Some(7 * day), None),
            (33 * hour, Some(7 * day), warning),
            (16 * hour, Some(7 * day), critical),
            (0, Some(7 * day), critical),
            (0, Some(0), critical),
        ] {
            assert_eq!(told(left, lifetime), wanted, "{left} s of {lifetime:?}");
        }
    }
}
