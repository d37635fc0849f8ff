//! What a bypass looks like on an object: what is written down on it, the change that makes it, and its way back.

mod draft;
pub mod edit;
mod ownership;
mod rung;
mod standing;
mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use draft::escaped;
pub use rung::{BypassPhase, Ceiling, Rung};
pub use standing::{BypassStanding, standing, state, touched};
pub use state::{AnnotationEntry, BypassAnnotation, FailureFields, ObjectWriter, UnreadableAnnotation};

/// The annotation on a configuration in which a bypass is written down; beside a webhook's match conditions all that the
/// daemon may change.
pub const STATE_ANNOTATION: &str = "hookwatch.dev/bypass";

/// The annotation by whose value `off` an object's owner keeps hookwatch from changing it.
pub const OPT_OUT_ANNOTATION: &str = "hookwatch.dev/breaker";

/// Longest bypass that a person can ask for at once.
pub const LONGEST_BY_HAND: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The release from which on API servers know `matchConditions` without being asked to.
pub const MATCH_CONDITIONS_SINCE: (u32, u32) = (1, 28);

/// The field manager of every write of hookwatch's. The fence lets no other gain ownership of a field.
pub const FIELD_MANAGER: &str = "hookwatch";

/// `timeoutSeconds` of a webhook whose failures a person has had ignored: the least that the API server takes, for every
/// call of a webhook that hangs still waits so long.
pub const IGNORE_SECONDS: u64 = 1;

/// How the original of a webhook's `failurePolicy` and `timeoutSeconds` stands in [`STATE_ANNOTATION`]: as a whole
/// JSON string.
///
/// The fence splits the annotation at its quotes. It lets hookwatch's account neither write such a string down nor forget one
/// as long as the webhook's failures are ignored.
pub fn original(webhook: &str, failure_policy: &str, timeout_seconds: u64) -> String {
    format!("{webhook}={failure_policy}/{timeout_seconds}")
}
