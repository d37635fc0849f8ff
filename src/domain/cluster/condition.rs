//! The match conditions that hookwatch may add to a hook, as literal CEL.
//!
//! The API server calls a hook only where all of its `matchConditions` are true, and decides that before any
//! network I/O (stable since Kubernetes 1.30). So a condition that is false for a request spares that request the
//! hook and its timeout, and leaves `failurePolicy` as it was. These texts are the only ones that the shipped
//! fence, a ValidatingAdmissionPolicy, lets hookwatch write.
//!
//! Each is *total*: it never errs, whichever fields a request lacks. An expression that errs makes the API server
//! refuse the request under `failurePolicy: Fail`; on a cluster-scoped request `request.namespace` is absent, and a
//! bare `request.namespace in [...]` was seen to block every write of Nodes. So each optional field is guarded by
//! `has()`, and only `request` is used: `namespaceObject` is null for webhooks, `object` is null in a deletion.

pub mod spare;
#[cfg(test)]
mod tests;

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use self::spare::Spare;
use super::hook::{Added, Hook, MatchCondition};
use crate::text::named;

/// One of the conditions that hookwatch writes, from the one that lets most through to the hook to the one that lets
/// least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BypassCondition {
    /// Spares what keeps the control plane alive and enforces everything else.
    Shield,
    /// Lets nothing through to the hook but hookwatch's own dry-run canaries.
    Probation,
    /// Spares everything.
    Skip,
}

named!(
    BypassCondition,
    "The name as it stands in JSON and on the page.",
    all
);

/// What every name of a condition of hookwatch's begins with.
pub const CONDITION_PREFIX: &str = "hookwatch.dev/";

impl MatchCondition {
    /// Whether it is one of hookwatch's, by its name.
    pub fn is_ours(&self) -> bool {
        self.name.starts_with(CONDITION_PREFIX)
    }
}

/// Namespaces whose objects keep the control plane alive, besides hookwatch's own.
pub const SHIELDED_NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

impl Hook {
    /// What limits what is shown to it, as it stands on the object, hookwatch's or not; the one that lets least through.
    pub fn bypass(&self) -> Option<BypassCondition> {
        let has = |name| {
            self.match_conditions
                .iter()
                .any(|condition| condition.name == name)
        };
        let mut least_first = BypassCondition::ALL.iter().copied().rev();
        least_first.find(|bypass| has(bypass.name()))
    }
}

impl BypassCondition {
    /// Whether no user's write is shown to the hook.
    pub const fn covers_all_users(self) -> bool {
        matches!(self, Self::Probation | Self::Skip)
    }

    /// The condition's `name` in `matchConditions`: a qualified name, so that it collides with no other.
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
