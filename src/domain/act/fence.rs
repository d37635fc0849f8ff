//! The fence: the policy that limits what hookwatch may write, and how hookwatch proves that it holds.
//!
//! RBAC cannot limit a permission to fields, so a ValidatingAdmissionPolicy (`deploy/base/fence.yaml`), the fence,
//! limits which patches of webhook configurations hookwatch may make. Before it acts, hookwatch attempts by dry runs what the
//! fence must refuse and what it must allow. It acts only when the fence itself makes every one of these refusals and nothing
//! else is refused.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use strum::{IntoStaticStr, VariantArray};

use super::breaker::HookStanding;
use super::bypass::{FIELD_MANAGER, STATE_ANNOTATION, escaped};
use crate::cluster::condition::BypassCondition;
use crate::cluster::hook::{Added, HookKind};
use crate::text::{bounded, named, own_account};
use crate::time::Time;

/// The name of the policy, and of its binding.
pub const FENCE: &str = "hookwatch-fence";

/// The name of a configuration that hookwatch attempts to create, and the fence refuses.
pub const NEVER_MADE: &str = "hookwatch-fence-proof";

/// The name of the two configurations, a validating and a mutating one, on which changes are attempted
/// (`deploy/base/proof.yaml`).
///
/// Their webhook has no rules, so no API server ever calls it.
pub const PROOF: &str = "hookwatch-proof";

/// What an annotation of the validating one adds to its shield. The mutating one has no such annotation.
pub const PROOF_SPARE: &str = "self,leases=hookwatch-proof";

/// What the operator wants hookwatch to do about a failing webhook.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AutoBreak {
    /// Nothing.
    Off,
    /// Say what would be done.
    #[default]
    Plan,
    /// Bypass it.
    On,
}

named!(AutoBreak, "The name wherever it is written.", parse);

/// Configurations whose webhooks the fence permits to skip without an annotation. `*` is all of them.
///
/// A parameter of the policy, its variable `maySkip`: a list in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MaySkip(BTreeSet<String>);

impl MaySkip {
    /// The name of the variable.
    pub const VARIABLE: &str = "maySkip";

    /// All configurations.
    pub fn all() -> Self {
        Self(BTreeSet::from(["*".to_owned()]))
    }

    /// Reads the variable of the policy object.
    ///
    /// # Errors
    /// When there is no such variable, or it is no list of names.
    pub fn read(policy: &Value) -> Result<Self, String> {
        let variables = policy.pointer("/spec/variables").and_then(Value::as_array);
        let mut variables = variables.into_iter().flatten();
        let found = variables.find(|variable| variable["name"] == Self::VARIABLE);
        let Some(text) = found.and_then(|variable| variable["expression"].as_str()) else {
            return Err(format!(
                "the policy {FENCE} has no variable {}; apply deploy/base of this release",
                Self::VARIABLE
            ));
        };
        serde_json::from_str(text).map(Self).map_err(|_| {
            let shown = bounded(text);
            format!(
                "the variable {} of the policy {FENCE} is no list of names in double quotes: {shown}",
                Self::VARIABLE
            )
        })
    }

    /// Whether it names a configuration.
    pub fn names(&self, configuration: &str) -> bool {
        self.0.contains("*") || self.0.contains(configuration)
    }
}

/// The result of proving the fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// It refused everything it must refuse and allowed what it must allow.
    Proven(MaySkip),
    /// The fence allowed what it must refuse, or something else refused it.
    NotProven(String),
    /// RBAC refuses already, so hookwatch may not act.
    NotAllowedToAct(String),
    /// The fence could not be tried.
    Unknown(String),
    /// The cluster is a lab whose API server has no policies and whose objects need no protection.
    Unneeded,
}

impl Proof {
    /// How long a proof is valid while the fence cannot be tried again: the time of about two checks.
    pub const VALID_FOR: Duration = Duration::from_secs(1_200);

    /// Whether hookwatch may act.
    pub const fn permits(&self) -> bool {
        matches!(self, Self::Proven(_) | Self::Unneeded)
    }

    /// Whether the webhooks of a configuration may be skipped without an annotation on it. `true` without a proof, as hookwatch
    /// may not act at all then.
    pub fn lets_skip(&self, configuration: &str) -> bool {
        match self {
            Self::Proven(may_skip) => may_skip.names(configuration),
            _ => true,
        }
    }
}

/// What hookwatch may do about failing webhooks at this instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BreakerView {
    /// What its operator wants.
    pub wanted: AutoBreak,
    /// The mode in force. `on` becomes `plan` while the fence is not proven.
    pub effective: AutoBreak,
    /// Why, in one sentence.
    pub why: String,
    /// A person's order to begin no bypass, in words; `None` where there is none, or none was read.
    pub frozen: Option<String>,
    /// When the freeze order was given, if that is readable.
    #[serde(skip)]
    pub frozen_since: Option<Time>,
    /// Each hook that the breaker deals with now.
    pub hooks: Vec<HookStanding>,
}

impl BreakerView {
    /// Whether the operator wants hookwatch to act, and it may only plan.
    pub fn is_disarmed(&self) -> bool {
        self.wanted == AutoBreak::On && self.effective != AutoBreak::On
    }

    /// The mode in force by the newest proof; `None` before there is one.
    pub fn new(wanted: AutoBreak, proof: Option<&Proof>) -> Self {
        let holds = proof.is_some_and(Proof::permits);
        let effective = if wanted == AutoBreak::On && !holds {
            AutoBreak::Plan
        } else {
            wanted
        };
        let why = match proof {
            _ if wanted != AutoBreak::On => format!("autoBreak is {}.", wanted.as_str()),
            None => "The fence was not tried yet.".to_owned(),
            Some(Proof::Proven(_)) => "The fence is proven.".to_owned(),
            Some(Proof::Unneeded) => "In a lab no fence is needed.".to_owned(),
            Some(Proof::NotProven(why)) => {
                format!("The fence does not hold, or this is not the account that it binds: {why}.")
            }
            Some(Proof::NotAllowedToAct(why)) => {
                format!("hookwatch may not act; apply deploy/overlays/breaker to let it: {why}.")
            }
            Some(Proof::Unknown(why)) => format!("The fence could not be tried: {why}."),
        };
        Self {
            wanted,
            effective,
            why,
            frozen: None,
            frozen_since: None,
            hooks: Vec::new(),
        }
    }
}

/// A write that is attempted by a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceAttempt {
    /// Creates a configuration.
    Create,
    /// Adds a label to one.
    Label,
    /// Adds an owner reference to one, by which the garbage collector could delete it.
    Owner,
    /// Adds an annotation that is not hookwatch's.
    Annotation,
    /// Removes all webhooks from one.
    Webhooks,
    /// Writes hookwatch's annotation.
    State,
    /// Adds a match condition of hookwatch, with exactly the expression of a real bypass.
    Condition(BypassCondition),
    /// Adds a match condition with the name of a shield and another expression.
    Foreign,
}

/// The request of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptRequest {
    /// The media type of a patch; `None` for a `POST`.
    pub patch: Option<&'static str>,
    /// Path and query.
    pub target: String,
    /// The body.
    pub body: Value,
}

/// What an answer to an attempt means for the proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptResult {
    /// The answer is as expected; the other attempts decide.
    AsExpected,
    /// The fence is not proven, whatever the other attempts show.
    Failed(Proof),
}

impl FenceAttempt {
    /// All attempts on one configuration, in this order.
    pub const ALL: [Self; 10] = [
        // The first one shows whether hookwatch may act at all.
        Self::State,
        Self::Create,
        Self::Label,
        Self::Owner,
        Self::Annotation,
        Self::Webhooks,
        Self::Foreign,
        Self::Condition(BypassCondition::Shield),
        Self::Condition(BypassCondition::Skip),
        Self::Condition(BypassCondition::Probation),
    ];

    /// The message with which the fence must refuse it on [`PROOF`] of a kind; `None` when it must allow it. The validating
    /// configuration is annotated `hookwatch.dev/breaker: skip`, the mutating one is not.
    pub fn refusal(self, kind: HookKind, may_skip: &MaySkip) -> Option<&'static str> {
        match self {
            Self::Condition(BypassCondition::Skip | BypassCondition::Probation)
                if kind == HookKind::Mutating && !may_skip.names(PROOF) =>
            {
                Some("neither an annotation of the object's nor maySkip permits it")
            }
            Self::Create => Some("hookwatch neither creates nor deletes webhook configurations"),
            Self::Label | Self::Owner => {
                Some("nothing of the object changes but its annotations and webhooks")
            }
            Self::Annotation => Some("no annotation changes but hookwatch.dev/bypass"),
            Self::Webhooks => {
                Some("webhooks stay as many, under the same names, each of them once, and in the same order")
            }
            Self::Foreign => Some(
                "a match condition of hookwatch's is the only one of its own, in one of the known texts, and explained in \
                 hookwatch.dev/bypass",
            ),
            Self::State | Self::Condition(_) => None,
        }
    }

    /// The request to [`PROOF`] of a kind, of a hookwatch in this namespace.
    pub fn request(self, kind: HookKind, namespace: &str) -> AttemptRequest {
        // RBAC permits hookwatch to create the ledger, and so any validating configuration, but no mutating one.
        let kind = if self == Self::Create {
            HookKind::Validating
        } else {
            kind
        };
        let condition = |name: &str, expression: String| {
            json!([
                {"op": "add", "path": "/webhooks/0/matchConditions", "value": [
                    {"name": name, "expression": expression},
                ]},
                {"op": "add", "path": format!("/metadata/annotations/{}", escaped(STATE_ANNOTATION)), "value": "{}"},
            ])
        };
        let body = match self {
            Self::Create => json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": HookKind::Validating.configuration_kind(),
                "metadata": {"name": NEVER_MADE},
                "webhooks": [],
            }),
            Self::Label => json!({"metadata": {"labels": {NEVER_MADE: "label"}}}),
            Self::Owner => json!({"metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "Namespace", "name": NEVER_MADE, "uid": NEVER_MADE},
            ]}}),
            Self::Annotation => json!({"metadata": {"annotations": {NEVER_MADE: "annotation"}}}),
            Self::Webhooks => json!({"webhooks": []}),
            Self::State => json!({"metadata": {"annotations": {STATE_ANNOTATION: NEVER_MADE}}}),
            Self::Condition(wanted) => {
                let spare = (kind == HookKind::Validating).then_some(PROOF_SPARE);
                let (added, _) = Added::read(spare, Some(PROOF));
                let text = wanted.expression(namespace, &own_account(namespace), &added);
                condition(wanted.name(), text)
            }
            Self::Foreign => condition(
                BypassCondition::Shield.name(),
                "request.operation == \"CONNECT\"".to_owned(),
            ),
        };
        let (patch, name) = match self {
            Self::Create => (None, String::new()),
            Self::Condition(_) | Self::Foreign => (Some("application/json-patch+json"), format!("/{PROOF}")),
            _ => (Some("application/merge-patch+json"), format!("/{PROOF}")),
        };
        AttemptRequest {
            patch,
            target: format!("{}{name}?dryRun=All&fieldManager={FIELD_MANAGER}", kind.path()),
            body,
        }
    }

    /// Reads the API server's answer: its status, and its message when it is a refusal. `refusal`: the expected one.
    pub fn read(self, refusal: Option<&str>, status: u16, message: &str) -> AttemptResult {
        let failed = |proof: fn(String) -> Proof, why: String| AttemptResult::Failed(proof(bounded(&why)));
        if (200..300).contains(&status) {
            return match refusal {
                None => AttemptResult::AsExpected,
                Some(_) => failed(Proof::NotProven, format!("nothing refused {self}")),
            };
        }
        match (policy(message), refusal) {
            (Some((FENCE, said)), Some(refusal)) if said == refusal => AttemptResult::AsExpected,
            (Some((FENCE, said)), _) => failed(Proof::NotProven, format!("of {self} it said: {said}")),
            (Some((other, _)), _) => failed(
                Proof::NotProven,
                format!("the policy {other} refused {self} instead"),
            ),
            (None, _) if status == 403 && message.contains("User \"") && message.contains(" cannot ") => {
                failed(Proof::NotAllowedToAct, message.to_owned())
            }
            (None, _) if status == 404 => failed(
                Proof::NotProven,
                format!("there is no {PROOF} to try it at; apply deploy/base of this release"),
            ),
            (None, _) => failed(Proof::Unknown, format!("{self} got HTTP {status}: {message}")),
        }
    }
}

impl fmt::Display for FenceAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "a new webhook configuration",
            Self::Label => "a label on a webhook configuration",
            Self::Owner => "an owner reference on a webhook configuration",
            Self::Annotation => "another client's annotation on a webhook configuration",
            Self::Webhooks => "a webhook configuration without its webhooks",
            Self::State => "hookwatch's own annotation on a webhook configuration",
            Self::Condition(BypassCondition::Shield) => "a shield in the text of this release",
            Self::Condition(BypassCondition::Skip) => "a skip",
            Self::Condition(BypassCondition::Probation) => "a probation",
            Self::Foreign => "a shield in another text",
        })
    }
}

/// The ValidatingAdmissionPolicy that refused, or its binding if that has another name than [`FENCE`], and the message. Only
/// the beginning counts: the text after it could come from anyone.
fn policy(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("ValidatingAdmissionPolicy '")?;
    let (name, rest) = rest.split_once("' with binding '")?;
    let (binding, said) = rest.split_once("' denied request: ")?;
    Some((if name == FENCE { binding } else { name }, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(by: &str, said: &str) -> String {
        format!(
            "x.y \"z\" is forbidden: ValidatingAdmissionPolicy '{by}' with binding '{by}' denied request: {said}"
        )
    }

    fn refusal(attempt: FenceAttempt) -> Option<&'static str> {
        attempt.refusal(HookKind::Validating, &MaySkip::default())
    }

    #[test]
    fn a_skip_is_refused_where_neither_an_annotation_nor_the_fence_permits_it() {
        let skip = FenceAttempt::Condition(BypassCondition::Skip);
        let refused = |kind, may_skip: &MaySkip| skip.refusal(kind, may_skip).is_some();
        let unnamed = MaySkip::default();
        assert!(!refused(HookKind::Validating, &unnamed) && refused(HookKind::Mutating, &unnamed));
        assert!(!refused(HookKind::Mutating, &MaySkip::all()));
        let shield = FenceAttempt::Condition(BypassCondition::Shield);
        assert_eq!(shield.refusal(HookKind::Mutating, &unnamed), None);
    }

    #[test]
    fn what_the_fence_lets_be_skipped_is_read_or_told_what_is_wrong() {
        let read = |variables: Value| MaySkip::read(&json!({"spec": {"variables": variables}}));
        let of = |text: &str| {
            read(json!([{"name": "x", "expression": "1"}, {"name": "maySkip", "expression": text}]))
        };
        assert_eq!(of("[]"), Ok(MaySkip::default()));
        assert_eq!(of(" [ \"*\" ]\n"), Ok(MaySkip::all()));
        let opa = of("[\"opa\"]").unwrap_or_default();
        assert!(opa.names("opa") && !opa.names("opal"));
        for text in ["", "['opa']", "{}", "[1]", "true"] {
            assert!(
                of(text).is_err_and(|why| why.contains("no list of names")),
                "{text}"
            );
        }
        assert!(read(json!([])).is_err_and(|why| why.contains("no variable")));
    }

    #[test]
    fn only_the_fences_own_refusal_counts() {
        let Some(right) = refusal(FenceAttempt::Label) else {
            panic!("a label is refused")
        };
        let read = |message: &str| FenceAttempt::Label.read(Some(right), 422, message);
        assert_eq!(read(&refused(FENCE, right)), AttemptResult::AsExpected);
        for wrong in [
            refused("other", right),
            refused(FENCE, "expression 'x' resulted in error: no such key"),
            refused(FENCE, right).replacen(FENCE, "other", 1),
            refused("other", right).replacen("other", FENCE, 1),
            refused("other", &refused(FENCE, right)),
        ] {
            let read = read(&wrong);
            assert!(
                matches!(read, AttemptResult::Failed(Proof::NotProven(_))),
                "{wrong}: {read:?}"
            );
        }
        assert!(matches!(
            read("the server could not write"),
            AttemptResult::Failed(Proof::Unknown(_))
        ));
    }

    #[test]
    fn what_is_let_through_proves_the_contrary_but_for_our_own_annotation() {
        for attempt in FenceAttempt::ALL {
            let read = attempt.read(refusal(attempt), 200, "");
            match attempt {
                FenceAttempt::State | FenceAttempt::Condition(_) => {
                    assert_eq!(read, AttemptResult::AsExpected)
                }
                _ => assert!(
                    matches!(read, AttemptResult::Failed(Proof::NotProven(_))),
                    "{attempt:?}"
                ),
            }
        }
    }

    #[test]
    fn a_missing_permission_is_not_a_fence() {
        let rbac = "x is forbidden: User \"system:serviceaccount:h:h\" cannot patch resource \"x\" in API group \"y\" \
                    at the cluster scope";
        for attempt in FenceAttempt::ALL {
            let read = attempt.read(refusal(attempt), 403, rbac);
            assert_eq!(
                read,
                AttemptResult::Failed(Proof::NotAllowedToAct(rbac.to_owned()))
            );
        }
    }

    #[test]
    fn every_attempt_is_a_dry_run_under_our_own_field_manager() {
        for kind in [HookKind::Validating, HookKind::Mutating] {
            for attempt in FenceAttempt::ALL {
                let target = attempt.request(kind, "hookwatch").target;
                assert!(target.ends_with("?dryRun=All&fieldManager=hookwatch"), "{target}");
            }
        }
    }

    #[test]
    fn a_fence_of_another_release_is_not_proven() {
        let Some(refusal) = refusal(FenceAttempt::Foreign) else {
            panic!("another text is refused")
        };
        let read = FenceAttempt::Condition(BypassCondition::Shield).read(None, 422, &refused(FENCE, refusal));
        assert!(
            matches!(read, AttemptResult::Failed(Proof::NotProven(_))),
            "{read:?}"
        );
        let read = FenceAttempt::State.read(None, 404, "not found");
        assert!(
            matches!(read, AttemptResult::Failed(Proof::NotProven(_))),
            "{read:?}"
        );
    }

    #[test]
    fn without_a_proven_fence_there_is_no_action() {
        let not_proven = [
            None,
            Some(Proof::NotProven("x".to_owned())),
            Some(Proof::NotAllowedToAct("x".to_owned())),
            Some(Proof::Unknown("x".to_owned())),
        ];
        for proof in not_proven {
            assert_eq!(
                BreakerView::new(AutoBreak::On, proof.as_ref()).effective,
                AutoBreak::Plan
            );
        }
        for &wanted in AutoBreak::ALL {
            let breaker = BreakerView::new(wanted, Some(&Proof::Proven(MaySkip::default())));
            assert_eq!((breaker.wanted, breaker.effective), (wanted, wanted));
        }
    }
}
