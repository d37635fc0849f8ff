//! Findings from a daemon's observations of a webhook, not from its configuration.

use std::time::Duration;

use super::trust::Expiry;
use super::{CLOSE_TO_TIMEOUT, Finding, SERVED_ENDS, TELLS_APART};
use crate::audit::forecast::Auditor;

/// When the end of a served certificate is near. For certificates with a long lifetime the times are those of the alert
/// HookwatchHookCertificate.
const EXPIRY: Expiry = Expiry {
    soon: Duration::from_secs(14 * 24 * 3_600),
    very_soon: Duration::from_secs(2 * 24 * 3_600),
};
/// The fraction of the timeout from which a webhook's median call time is a finding: the webhook then fails when it slows down
/// by a factor of 4 or less.
const CLOSE: f64 = 0.25;

pub(super) fn of_one(auditor: &Auditor<'_>, at: usize, found: &mut Vec<Finding>) {
    let subject = auditor.subject(at);
    let (hook, evidence) = (&subject.hook, &auditor.estate.evidence);
    if evidence.distinguishes_canaries.contains(&hook.id) {
        let message = "Its matchConditions or objectSelector tell hookwatch's canaries from the same writes of others: canaries do not \
                       meet it as other writes do, and it may be shielded only once calls of others fail. Let it treat hookwatch like \
                       every other client.";
        found.push(Finding::of(TELLS_APART, subject, message));
    }
    if let (Some((ends, begins)), Some(now)) = (evidence.served_until.get(&hook.id), auditor.estate.at)
        && let Some(severity) = EXPIRY.urgency(*begins, *ends, now)
    {
        let when = if *ends <= now { "ended" } else { "ends" };
        let message = format!(
            "A certificate that its backends serve {when} at {ends}. From then on every call of that backend fails. Renew it, and see \
             that the Pods load it."
        );
        found.push(Finding::of(SERVED_ENDS, subject, message).at_most(severity));
    }
    let timeout = hook.timeout.as_secs_f64();
    if let Some(usual) = evidence.usual_seconds.get(&hook.id)
        && *usual >= timeout * CLOSE
    {
        let message = format!(
            "Its calls usually take {usual:.1} s, and are cut off after {timeout:.0} s: they fail as soon as it answers {:.0} times \
             as slowly. Make it faster, or give it more replicas.",
            (timeout / usual).max(1.0).ceil()
        );
        found.push(Finding::of(CLOSE_TO_TIMEOUT, subject, message));
    }
}
