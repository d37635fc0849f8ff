//! A bypass on an object: the annotation that records it, the edits that make it and restore the original, and what an object
//! shows of it.

pub mod edit;
mod ownership;
mod patch;
mod rung;
mod standing;
mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use patch::escaped;
pub use rung::{BypassPhase, Ceiling, Rung};
pub use standing::{BypassStanding, standing, state, touched};
pub use state::{AnnotationEntry, BypassAnnotation, FailureFields, ObjectWriter, UnreadableAnnotation};

/// The annotation on a configuration that records its bypasses. The daemon may change only this annotation and match
/// conditions of webhooks.
pub const STATE_ANNOTATION: &str = "hookwatch.dev/bypass";

/// The annotation by which an object's owner limits how far hookwatch may bypass its webhooks; `off` forbids every bypass.
pub const OPT_OUT_ANNOTATION: &str = "hookwatch.dev/breaker";

/// Longest time for which a person can request a bypass.
pub const LONGEST_BY_HAND: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The Kubernetes release, major and minor, since which API servers support `matchConditions` by default.
pub const MATCH_CONDITIONS_SINCE: (u32, u32) = (1, 28);

/// The field manager of every write of hookwatch. The fence permits hookwatch's account no other one.
pub const FIELD_MANAGER: &str = "hookwatch";

/// `timeoutSeconds` of a webhook whose failures a person made the API server ignore. It is the minimum, as every call of a
/// webhook that hangs still waits so long.
pub const IGNORE_SECONDS: u64 = 1;

/// The original `failurePolicy` and `timeoutSeconds` of a webhook as they are recorded in [`STATE_ANNOTATION`]: as a JSON string
/// of their own.
///
/// The fence splits the annotation at its quotes. While the webhook's failures are ignored, it lets hookwatch's account neither
/// add such a string nor remove it.
pub fn original(webhook: &str, failure_policy: &str, timeout_seconds: u64) -> String {
    format!("{webhook}={failure_policy}/{timeout_seconds}")
}
