//! The match conditions that hookwatch may add to a webhook, as literal CEL. [`super::matching::conditions`] evaluates the
//! conditions that a webhook's owner wrote.
//!
//! The API server calls a webhook only where all of its `matchConditions` are true, and decides that before any
//! network I/O (stable since Kubernetes 1.30). So a request for which a condition is false skips the webhook and its
//! timeout, and `failurePolicy` stays as it was. These texts are the only ones that the shipped fence, a
//! ValidatingAdmissionPolicy, lets hookwatch write.
//!
//! Each expression is *total*: it evaluates without an error, whichever fields a request lacks. Under `failurePolicy: Fail`
//! the API server refuses a request for which an expression errs. Cluster-scoped requests have no `request.namespace`: a bare
//! `request.namespace in [...]` was seen to block every write of Nodes. So `has()` guards each optional field, and
//! expressions use only `request`: `namespaceObject` is null for webhooks, `object` is null in a deletion.

pub mod spare;
#[cfg(test)]
mod tests;

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use self::spare::Spare;
use super::hook::{Added, Hook, MatchCondition};
use crate::text::named;

/// One of the conditions that hookwatch writes; later variants are stricter: they let fewer requests through to the webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BypassCondition {
    /// Spares what keeps the control plane alive and enforces everything else.
    Shield,
    /// Lets only hookwatch's own dry-run canaries through to the webhook.
    Probation,
    /// Spares everything.
    Skip,
}

named!(
    BypassCondition,
    "The name as it stands in JSON and on the page.",
    all
);

/// The prefix of the name of every condition that hookwatch writes.
pub const CONDITION_PREFIX: &str = "hookwatch.dev/";

impl MatchCondition {
    /// Whether hookwatch wrote this condition, judged by its name.
    pub fn is_ours(&self) -> bool {
        self.name.starts_with(CONDITION_PREFIX)
    }
}

/// Namespaces whose objects keep the control plane alive. A shield spares hookwatch's own namespace as well.
pub const SHIELDED_NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

impl Hook {
    /// The strictest of hookwatch's conditions on this webhook; `None` if it has none.
    pub fn bypass(&self) -> Option<BypassCondition> {
        let has = |bypass: &BypassCondition| {
            let mut conditions = self.match_conditions.iter();
            conditions.any(|condition| condition.name == bypass.name())
        };
        BypassCondition::ALL.iter().copied().filter(has).max()
    }

    /// The match conditions that are not hookwatch's.
    pub fn owners_conditions(&self) -> impl Iterator<Item = &MatchCondition> {
        let conditions = self.match_conditions.iter();
        conditions.filter(|condition| !condition.is_ours())
    }
}

impl BypassCondition {
    /// Whether all users' writes skip the webhook, not only those of the control plane.
    pub const fn covers_all_users(self) -> bool {
        matches!(self, Self::Probation | Self::Skip)
    }

    /// The condition's `name` in `matchConditions`, qualified with hookwatch's prefix to avoid collisions.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shield => "hookwatch.dev/shield",
            Self::Skip => "hookwatch.dev/skip",
            Self::Probation => "hookwatch.dev/probation",
        }
    }

    /// The condition's `expression`, for a hookwatch that runs in the namespace `own_namespace` and authenticates as the user
    /// `own_user`; `added` is what the webhook's owner adds to what a shield spares.
    pub fn expression(self, own_namespace: &str, own_user: &str, added: &Added) -> String {
        match self {
            Self::Shield => Spare {
                hookwatch_namespace: own_namespace,
                added,
            }
            .expression(),
            Self::Skip => "false".to_owned(),
            Self::Probation => cel_and(&[
                "has(request.dryRun)".to_owned(),
                "request.dryRun".to_owned(),
                cel_user_is(own_user),
            ]),
        }
    }
}

fn cel_user_is(name: &str) -> String {
    cel_and(&[
        "has(request.userInfo.username)".to_owned(),
        format!("request.userInfo.username == {}", cel_string(name)),
    ])
}

fn cel_and(terms: &[String]) -> String {
    format!("({})", terms.join(" && "))
}

fn cel_or(terms: &[String]) -> String {
    format!("({})", terms.join(" || "))
}

fn cel_list(items: &[&str]) -> String {
    let items: Vec<String> = items.iter().copied().map(cel_string).collect();
    format!("[{}]", items.join(", "))
}

/// A CEL string literal, written as JSON: CEL has every escape sequence of JSON.
fn cel_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
