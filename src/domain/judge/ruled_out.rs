//! What else it might have been: which causes are ruled out, and which ones cannot be.

use super::witnesses::{Counters, Probes};
use super::{Accusation, Case, latest, timeout};
use crate::domain::canary::CallFailureReason;
use crate::domain::time::Time;
use crate::domain::verdict::{Cause, human, human_seconds};

/// The sentences, the most telling first.
pub(super) fn sentences(
    case: &Case<'_>,
    counters: &Counters,
    probes: &Probes<'_>,
    named: &[Accusation<'_>],
    (cause, since): (Cause, Option<Time>),
) -> Vec<String> {
    let mut said = Vec::new();
    let at_once = counters.failed_mean.filter(|_| counters.failed_at_once());
    let words = latest(named).map(|named| named.failure.reason);
    match cause {
        Cause::Refused | Cause::NoEndpoints | Cause::NoService | Cause::TlsInvalid | Cause::Erroring => {
            said.extend(at_once.zip(timeout(case)).map(|(mean, timeout)| {
                format!(
                    "Ruled out: a hang. Failed calls came back after {}, and the timeout is {}.",
                    human_seconds(mean),
                    human(timeout)
                )
            }));
        }
        Cause::Hanging
            if matches!(probes, Probes::Good { .. })
                && words != Some(CallFailureReason::TlsHandshakeTimeout) =>
        {
            said.push(
                "Not ruled out: something between the control plane and the pods that drops what the API server \
                 sends (Unreachable). Direct probes are answered, and the API server has the same words for both."
                    .to_owned(),
            );
        }
        Cause::Slow if counters.calls >= 1.0 && counters.failed < 1.0 => {
            said.push("Ruled out: a hang. Every call that was counted was answered.".to_owned());
        }
        Cause::FailingOpen if matches!(probes, Probes::Good { .. }) => {
            said.push(
                "By which mechanism cannot be told: direct probes are answered, and of a call that is let pass the \
                 API server says why in its log only."
                    .to_owned(),
            );
        }
        _ => {}
    }
    // What was so before the trouble began rules nothing out.
    let elsewhere = case
        .ruled_out
        .filter(|(until, _)| since.is_none_or(|since| *until > since));
    said.extend(elsewhere.map(|(_, sentence)| sentence.clone()));
    said
}

/// Why nothing can be said of a hook.
pub(super) fn cannot_tell(case: &Case<'_>, counters: &Counters, probes: &Probes<'_>) -> String {
    let mut because = Vec::new();
    if matches!(probes, Probes::Silent) {
        because.push("no direct probe says anything");
    }
    if counters.calls < 1.0 {
        because.push("the API server has counted no call of it of late");
    } else if case.ambiguous {
        because.push("the calls that the API server has counted may be another hook's of the same name");
    }
    if case.canary_passed.is_none() && case.canary_late.is_none() && case.canary_slow.is_none() {
        because.push("no dry-run write says anything of it");
    }
    format!("Cannot tell, because {}.", because.join(", and "))
}
