//! Findings about a webhook's CA certificates in the configuration.

use std::time::Duration;

use super::{CA_EMPTY, CA_ENDS, CA_NAMES_ANOTHER, CA_UNUSABLE, Finding, FindingSeverity};
use crate::audit::estate::AuditedHook;
use crate::audit::forecast::Auditor;
use crate::cluster::hook::{HookTarget, Trusted};

/// A certificate that expires within this time is worth a warning.
const SOON: Duration = Duration::from_secs(60 * 24 * 3_600);
/// A certificate that expires within this time is an imminent outage.
const VERY_SOON: Duration = Duration::from_secs(7 * 24 * 3_600);

pub(super) fn of_one(auditor: &Auditor<'_>, at: usize, found: &mut Vec<Finding>) {
    let subject = auditor.subject(at);
    let hook = &subject.hook;
    if hook
        .problems
        .iter()
        .any(|problem| problem.contains(": caBundle holds no PEM certificate"))
    {
        let finding = Finding::of(
            CA_UNUSABLE,
            subject,
            "Its caBundle holds no PEM certificate, so every call fails until one is there.",
        );
        // Some ship a placeholder that a controller replaces.
        let filled = subject.hook.written.ca_is_injected || !auditor.estate.is_cluster;
        found.push(finding.at_most_if(filled, FindingSeverity::Info));
    }
    if hook.ca_bundle.is_empty()
        && matches!(hook.target, HookTarget::Service(_))
        && !subject.hook.written.ca_is_injected
    {
        let message = "It has no caBundle: the API server trusts the system's roots, which know no Service. Unless something fills it in, \
                       every call fails.";
        found.push(Finding::of(CA_EMPTY, subject, message));
    }
    found.extend(name(subject, auditor.estate.is_cluster));
    if let (Some(ends), Some(now)) = (subject.hook.written.ca_ends, auditor.estate.at) {
        let left = ends.since(now);
        let finding = |message| Finding::of(CA_ENDS, subject, message);
        if ends <= now {
            found.push(finding(format!(
                "Its caBundle ended at {ends}: every call fails."
            )));
        } else if left < SOON {
            let message = format!("Its caBundle ends at {ends}. From then on every call fails.");
            found.push(finding(message).at_most_if(left >= VERY_SOON, FindingSeverity::Warning));
        }
    }
}

/// Whether the webhook can serve a certificate that is trusted and for the name that is called.
///
/// What may not sign others is trusted as the served certificate alone (Go's `crypto/x509`, `Certificate.CheckSignatureFrom`), and
/// only `subjectAltName` counts as its name.
fn name(subject: &AuditedHook, is_cluster: bool) -> Option<Finding> {
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
        let message = format!(
            "Its caBundle {has}. If the webhook serves that certificate itself, every call fails: it is called as {called}."
        );
        return Some(Finding::of(CA_NAMES_ANOTHER, subject, message).at_most(FindingSeverity::Warning));
    }
    let message = format!(
        "Its caBundle can sign no other certificate and {has}, but the webhook is called as {called}: every call fails. Make a \
         certificate with that name as subjectAltName."
    );
    let finding = Finding::of(CA_NAMES_ANOTHER, subject, message);
    let filled = subject.hook.written.ca_is_injected || !is_cluster;
    Some(finding.at_most_if(filled, FindingSeverity::Warning))
}

/// Whether a name of a certificate, with `*` for its first label or not, is the one that is called.
fn names(name: &str, called: &str) -> bool {
    let rest = |name: &'_ str| name.split_once('.').map(|(_, rest)| rest.to_ascii_lowercase());
    name.eq_ignore_ascii_case(called)
        || name
            .strip_prefix("*.")
            .is_some_and(|domain| rest(called) == Some(domain.to_ascii_lowercase()))
}
