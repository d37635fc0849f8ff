//! Whether hookwatch may act, and how it finds out.
//!
//! RBAC cannot limit a permission to fields, so a ValidatingAdmissionPolicy (`deploy/base/fence.yaml`), the fence,
//! limits which patches of webhook configurations hookwatch may make. hookwatch does not take it on trust. Before it
//! acts it attempts, by dry runs, what the fence must refuse; it acts only when every refusal comes from the fence and
//! everything the fence must allow is allowed. Without a fence it does not use its permission.

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

/// The name of a configuration that the fence does not let hookwatch make.
pub const NEVER_MADE: &str = "hookwatch-fence-proof";

/// The two configurations, a validating and a mutating one, that everything is attempted at (`deploy/base/proof.yaml`).
///
/// Their webhook has no rules, so no API server ever calls it. The mutating one has no annotation that adds to a shield.
pub const PROOF: &str = "hookwatch-proof";

/// What the owner of the validating one adds to its shield.
pub const PROOF_SPARE: &str = "self,leases=hookwatch-proof";

/// What an operator wants done about a culprit.
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
    /// The variable that says so.
    pub const VARIABLE: &str = "maySkip";

    /// All configurations.
    pub fn all() -> Self {
        Self(BTreeSet::from(["*".to_owned()]))
    }

    /// Reads it out of the policy, as the API server has it.
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

/// What is known of the fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// It refused everything it must refuse and allowed what it must allow.
    Proven(MaySkip),
    /// The fence allowed what it must refuse, or something else refused it.
    NotProven(String),
    /// RBAC refuses already: there is nothing to fence.
    NotAllowedToAct(String),
    /// It could not be tried.
    Unknown(String),
    /// It is a lab whose API server knows no policies, and whose objects are worth nothing.
    Unneeded,
}

impl Proof {
    /// How long a proof counts while the fence cannot be tried again: about two checks.
    pub const LASTS: Duration = Duration::from_secs(1_200);

    /// Whether it permits to act.
    pub const fn permits(&self) -> bool {
        matches!(self, Self::Proven(_) | Self::Unneeded)
    }

    /// Whether the webhooks of a configuration may be skipped without an annotation on it. Unknown where hookwatch may not
    /// act at all.
    pub fn lets_skip(&self, configuration: &str) -> bool {
        match self {
            Self::Proven(may_skip) => may_skip.names(configuration),
            _ => true,
        }
    }
}

/// What hookwatch may do about a culprit at this instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BreakerView {
    /// What its operator wants.
    pub wanted: AutoBreak,
    /// The mode in force. `on` becomes `plan` while the fence is not proven.
    pub effective: AutoBreak,
    /// Why, in one sentence.
    pub why: String,
    /// A person's order to do nothing new, in words; `None` where there is none, or none was read.
    pub frozen: Option<String>,
    /// When the freeze order was given, if that is readable.
    #[serde(skip)]
    pub frozen_since: Option<Time>,
    /// Each hook that the breaker deals with now.
    pub hooks: Vec<HookStanding>,
}

impl BreakerView {
    /// Whether its operator wants it to act and it only plans.
    pub fn is_disarmed(&self) -> bool {
        self.wanted == AutoBreak::On && self.effective != AutoBreak::On
    }

    /// Decides. `proof` is the newest, `None` before there is one.
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

/// One thing that is attempted, by a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceAttempt {
    /// To make a configuration.
    Create,
    /// To put a label on one.
    Label,
    /// To put one's fate into the garbage collector's hands.
    Owner,
    /// To write an annotation that is not hookwatch's.
    Annotation,
    /// To take all webhooks out of one.
    Webhooks,
    /// To write hookwatch's annotation.
    State,
    /// To write a condition of hookwatch's, in the very text that it would have in an outage.
    Condition(BypassCondition),
    /// To write any other text under the name of one.
    Foreign,
}

/// The parts of a request that an attempt varies.
#[derive(Debug, Clone, PartialEq)]
pub struct Asking {
    /// The media type of a patch; `None` for a `POST`.
    pub patch: Option<&'static str>,
    /// Path and query.
    pub target: String,
    /// The body.
    pub body: Value,
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptResult {
    /// As required.
    AsItHasToBe,
    /// The end: no further attempt changes it.
    Settled(Proof),
}

impl FenceAttempt {
    /// All that are made at one configuration, in this order.
    pub const ALL: [Self; 10] = [
        // Whether hookwatch may act at all shows at the first.
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

    /// The fence's expected refusal at [`PROOF`] of a kind; `None` when it must allow it. The validating one is annotated
    /// `hookwatch.dev/breaker: skip`, the mutating one is not.
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

    /// The request, at [`PROOF`] of a kind, of a hookwatch in this namespace.
    pub fn asking(self, kind: HookKind, namespace: &str) -> Asking {
        // RBAC permits it to create the ledger, and so any validating configuration.
        let kind = match self {
            Self::Create => HookKind::Validating,
            _ => kind,
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
        Asking {
            patch,
            target: format!("{}{name}?dryRun=All&fieldManager={FIELD_MANAGER}", kind.path()),
            body,
        }
    }

    /// Reads the API server's answer: its status, and its message when that is not a success. `refusal`: what it should be.
    pub fn read(self, refusal: Option<&str>, status: u16, message: &str) -> AttemptResult {
        let settled = |proof: fn(String) -> Proof, why: String| AttemptResult::Settled(proof(bounded(&why)));
        if (200..300).contains(&status) {
            return match refusal {
                None => AttemptResult::AsItHasToBe,
                Some(_) => settled(Proof::NotProven, format!("nothing refused {self}")),
            };
        }
        match (policy(message), refusal) {
            (Some((FENCE, said)), Some(refusal)) if said == refusal => AttemptResult::AsItHasToBe,
            (Some((FENCE, said)), _) => settled(Proof::NotProven, format!("of {self} it said: {said}")),
            (Some((other, _)), _) => settled(
                Proof::NotProven,
                format!("the policy {other} refused {self} instead"),
            ),
            (None, _) if status == 403 && message.contains("User \"") && message.contains(" cannot ") => {
                settled(Proof::NotAllowedToAct, message.to_owned())
            }
            (None, _) if status == 404 => settled(
                Proof::NotProven,
                format!("there is no {PROOF} to try it at; apply deploy/base of this release"),
            ),
            (None, _) => settled(Proof::Unknown, format!("{self} got HTTP {status}: {message}")),
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

/// Which ValidatingAdmissionPolicy refused, and its message: [`FENCE`] where its binding has that name as well. Only the
/// first counts: anyone may have written the text after it.
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
        assert_eq!(read(&refused(FENCE, right)), AttemptResult::AsItHasToBe);
        for wrong in [
            refused("other", right),
            refused(FENCE, "expression 'x' resulted in error: no such key"),
            refused(FENCE, right).replacen(FENCE, "other", 1),
            refused("other", right).replacen("other", FENCE, 1),
            refused("other", &refused(FENCE, right)),
        ] {
            let read = read(&wrong);
            assert!(
                matches!(read, AttemptResult::Settled(Proof::NotProven(_))),
                "{wrong}: {read:?}"
            );
        }
        assert!(matches!(
            read("the server could not write"),
            AttemptResult::Settled(Proof::Unknown(_))
        ));
    }

    #[test]
    fn what_is_let_through_proves_the_contrary_but_for_our_own_annotation() {
        for attempt in FenceAttempt::ALL {
            let read = attempt.read(refusal(attempt), 200, "");
            match attempt {
                FenceAttempt::State | FenceAttempt::Condition(_) => {
                    assert_eq!(read, AttemptResult::AsItHasToBe)
                }
                _ => assert!(
                    matches!(read, AttemptResult::Settled(Proof::NotProven(_))),
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
                AttemptResult::Settled(Proof::NotAllowedToAct(rbac.to_owned()))
            );
        }
    }

    #[test]
    fn every_attempt_is_a_dry_run_under_our_own_field_manager() {
        for kind in [HookKind::Validating, HookKind::Mutating] {
            for attempt in FenceAttempt::ALL {
                let target = attempt.asking(kind, "hookwatch").target;
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
            matches!(read, AttemptResult::Settled(Proof::NotProven(_))),
            "{read:?}"
        );
        let read = FenceAttempt::State.read(None, 404, "not found");
        assert!(
            matches!(read, AttemptResult::Settled(Proof::NotProven(_))),
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
