//! Findings about the certificates by which a webhook is trusted, as far as the configuration has them.

use std::time::Duration;

use super::{CA_EMPTY, CA_ENDS, CA_UNUSABLE, Finding, Severity};
use crate::domain::audit::forecast::Auditor;
use crate::domain::hook::Target;

/// Before its end a certificate is worth a warning for so long.
const SOON: Duration = Duration::from_secs(60 * 24 * 3_600);
/// And is an outage that is about to happen for so long.
const VERY_SOON: Duration = Duration::from_secs(7 * 24 * 3_600);

/// One webhook by itself.
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
            "Its caBundle holds no PEM certificate, so every call fails until one is there.".to_owned(),
        );
        // Some ship a placeholder that a controller replaces.
        let filled = subject.hook.written.ca_is_injected || !auditor.estate.is_cluster;
        found.push(if filled {
            finding.at_most(Severity::Info)
        } else {
            finding
        });
    }
    if hook.ca_bundle.is_empty()
        && matches!(hook.target, Target::Service(_))
        && !subject.hook.written.ca_is_injected
    {
        let message = "It has no caBundle: the API server trusts the system's roots, which know no Service. Unless something fills it in, \
                       every call fails."
            .to_owned();
        let finding = Finding::of(CA_EMPTY, subject, message);
        found.push(finding);
    }
    if let (Some(ends), Some(now)) = (subject.hook.written.ca_ends, auditor.estate.at) {
        let left = ends.since(now);
        let finding = |message| Finding::of(CA_ENDS, subject, message);
        if ends <= now {
            found.push(finding(format!(
                "Its caBundle ended at {ends}: every call fails."
            )));
        } else if left < SOON {
            let message = format!("Its caBundle ends at {ends}. From then on every call fails.");
            let finding = finding(message);
            found.push(if left < VERY_SOON {
                finding
            } else {
                finding.at_most(Severity::Warning)
            });
        }
    }
}
