//! The match conditions hookwatch may add to a hook, as CEL, word for word.
//!
//! The API server calls a hook only where all of its `matchConditions` are true, and decides that before any
//! network I/O (stable since Kubernetes 1.30). So a condition that is false for a request spares that request the
//! hook and its timeout, and leaves `failurePolicy` as it was. These texts are the only ones that the shipped
//! fence, a ValidatingAdmissionPolicy, lets hookwatch write.
//!
//! Each is *total*: it never errs, whatever a request lacks. An expression that errs makes the API server refuse
//! the request under `failurePolicy: Fail`; on a cluster-scoped request `request.namespace` is absent, and a bare
//! `request.namespace in [...]` was seen to block every write of Nodes. So each optional field stands behind
//! `has()`, and nothing but `request` is used: `namespaceObject` is null for webhooks, `object` is null in a
//! deletion.

mod draft;
pub mod edit;
mod ownership;
mod rung;
pub mod spare;
mod standing;
mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use draft::escaped;
pub use rung::{Phase, Rung};
pub use standing::{Standing, standing, state, touched};
pub use state::{Entry, Fields, State, Unreadable, Writer};

use self::spare::Spare;
use super::hook::Added;

/// One of the conditions that hookwatch writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// Spares what keeps the control plane alive and enforces everything else.
    Shield,
    /// Spares everything.
    Skip,
    /// Lets nothing through to the hook but hookwatch's own dry-run canaries.
    Probation,
}

/// What every name of a condition of hookwatch's begins with.
pub const CONDITION_PREFIX: &str = "hookwatch.dev/";

/// The annotation on a configuration in which a bypass is written down; beside a webhook's match conditions all that the
/// daemon may change.
pub const STATE_ANNOTATION: &str = "hookwatch.dev/bypass";

/// The annotation by whose value `off` an object's owner keeps hookwatch from changing it.
pub const OPT_OUT_ANNOTATION: &str = "hookwatch.dev/breaker";

/// Longest bypass that a person can ask for at once.
pub const LONGEST_BY_HAND: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The one configuration that is hookwatch's own: a ValidatingWebhookConfiguration without webhooks.
pub const LEDGER: &str = "hookwatch-ledger";

/// The field manager of every write of hookwatch's. The fence lets no other gain ownership of a field.
pub const FIELD_MANAGER: &str = "hookwatch";

/// `timeoutSeconds` of a webhook whose failures a person has had ignored: the least that the API server takes, for every
/// call of a webhook that hangs still waits so long.
pub const IGNORE_SECONDS: u64 = 1;

/// How the original of a webhook's `failurePolicy` and `timeoutSeconds` stands in [`STATE_ANNOTATION`]: as a whole
/// JSON string.
///
/// The fence splits the annotation at its quotes. It lets nobody whom it is around write such a string down, nor forget
/// one as long as the webhook's failures are ignored.
pub fn original(webhook: &str, failure_policy: &str, timeout_seconds: u64) -> String {
    format!("{webhook}={failure_policy}/{timeout_seconds}")
}

/// Namespaces whose objects keep the control plane alive, besides hookwatch's own.
pub const SHIELDED_NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

impl Condition {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Shield, Self::Skip, Self::Probation];

    /// The condition's `name` in `matchConditions`: a qualified name, so that nobody else's can be meant.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shield => "hookwatch.dev/shield",
            Self::Skip => "hookwatch.dev/skip",
            Self::Probation => "hookwatch.dev/probation",
        }
    }

    /// The condition's `expression`, for a hookwatch in the namespace `own_namespace` that the API server knows as
    /// the user `own_user`; `added` is what the hook's owner adds to what a shield spares.
    pub fn expression(self, own_namespace: &str, own_user: &str, added: &Added) -> String {
        match self {
            Self::Shield => Spare {
                own: own_namespace,
                added,
            }
            .expression(),
            Self::Skip => "false".to_owned(),
            Self::Probation => all(&[
                "has(request.dryRun)".to_owned(),
                "request.dryRun".to_owned(),
                user_is(own_user),
            ]),
        }
    }
}

fn user_is(name: &str) -> String {
    all(&[
        "has(request.userInfo.username)".to_owned(),
        format!("request.userInfo.username == {}", quoted(name)),
    ])
}

fn all(terms: &[String]) -> String {
    format!("({})", terms.join(" && "))
}

fn any(terms: &[String]) -> String {
    format!("({})", terms.join(" || "))
}

fn list(items: &[&str]) -> String {
    let items: Vec<String> = items.iter().copied().map(quoted).collect();
    format!("[{}]", items.join(", "))
}

/// A string literal of CEL. What comes in are names of Kubernetes objects and users, which hold neither quotes nor
/// control characters; they are escaped all the same.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
