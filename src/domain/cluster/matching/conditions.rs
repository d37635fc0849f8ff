//! Evaluates the `matchConditions` that a webhook's owner wrote, for a request. [`crate::cluster::condition`] has those that
//! hookwatch writes.
//!
//! The API server calls a webhook if all of its conditions are true, and does not if one is false, whatever the others evaluate
//! to (kube-apiserver 1.36, `admission/plugin/webhook/matchconditions`). Here they are evaluated against hypothetical requests,
//! with a known user and resource, and the object where the caller has one. `namespaceObject` is `null`, as a webhook's
//! conditions have none. What is not known:
//! - `authorizer`, and an object that the caller does not have: unless the rest of the expression decides the result alone.
//! - Request fields beyond those of [`ConditionRequest`], of which `has` would say that they are absent: always.
//! - Expressions that could be expensive: always, as they are not evaluated.
//!
//! A forecast may say "may be called"; the breaker may not act on that. So a compiler [for forecasts](ConditionCompiler::for_forecasts)
//! evaluates longer expressions and more of CEL's functions than the one by which the daemon judges.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cel::extensions::strings;
use cel::{Context, Env, ParseErrors, Program, Value};
use serde_json::{Value as Json, json};

use super::expression::{
    CALLS, FURTHER_CALLS, MAX_LINKS, Mentions, UNKNOWN, links, may_be_evaluated, mentions, value_of,
};
use super::{RequestShape, Requester};

/// The longest expression that the daemon evaluates, in bytes. The API server accepts whatever fits into an object.
const MAX_BYTES: usize = 1_024;
/// The longest that a forecast evaluates, in bytes. A shield has about 6,000.
const MAX_FORECAST_BYTES: usize = 16 * 1_024;
/// Most expressions that a compiler remembers.
const MAX_KNOWN: usize = 1_000;

/// The fields of a request that conditions may use.
#[derive(Debug, Clone, Copy)]
pub struct ConditionRequest<'a> {
    /// What is written, and where.
    pub shape: RequestShape<'a>,
    /// The object's kind; `None` if it is not known.
    pub kind: Option<&'a str>,
    /// The object's name.
    pub name: &'a str,
    /// Who writes it.
    pub by: Requester<'a>,
    /// Whether it is a dry run.
    pub dry_run: bool,
}

/// The result of one condition, or of all of a webhook's: then the last in this order that any of them has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionOutcome {
    /// All are true: the webhook is called.
    True,
    /// One is an error and none is false: under `Fail` the request is refused without a call, under `Ignore` the webhook is
    /// not called.
    Error,
    /// One is unknown and none is false: the webhook may be called. An unknown one may be false, which would win over an error.
    Unknown,
    /// One is false: the webhook is not called.
    False,
}

/// `object` or `oldObject` of a request.
#[derive(Debug, Clone, Copy)]
pub enum RequestObject<'a> {
    /// The request has none, as a deletion has no `object` and a creation no `oldObject`.
    Null,
    /// The object itself.
    Object(&'a Json),
    /// The caller does not have it.
    Unknown,
}

impl RequestObject<'_> {
    /// As CEL sees it; `None` if it is unknown.
    fn value(self) -> Option<Value> {
        match self {
            Self::Null => Some(Value::Null),
            Self::Object(object) => Some(value_of(object)),
            Self::Unknown => None,
        }
    }
}

/// What the caller knows of a request besides the fields that [`ConditionRequest`] must have.
#[derive(Clone, Copy)]
struct KnownParts {
    object: bool,
    old_object: bool,
    kind: bool,
}

/// The conditions of one webhook.
pub struct MatchConditions {
    env: Arc<Env>,
    /// `None` for one that is not evaluated.
    conditions: Vec<Option<Arc<CompiledCondition>>>,
}

struct CompiledCondition {
    program: Program,
    mentions: Mentions,
}

/// Compiles conditions, each expression once: the webhooks of one project often have the same.
pub struct ConditionCompiler {
    env: Arc<Env>,
    /// The operators and functions that an expression may call.
    calls: Vec<&'static str>,
    /// The longest expression, in bytes.
    max_bytes: usize,
    /// `None` for one that is not evaluated.
    known: RefCell<BTreeMap<String, Option<Arc<CompiledCondition>>>>,
}

impl Default for ConditionCompiler {
    fn default() -> Self {
        Self {
            env: Arc::new(Env::stdlib()),
            calls: CALLS.into(),
            max_bytes: MAX_BYTES,
            known: RefCell::default(),
        }
    }
}

impl ConditionCompiler {
    /// Evaluates more than the default does. Only for answers on which the breaker does not act.
    pub fn for_forecasts() -> Self {
        let mut env = Env::stdlib();
        // This fails only for functions that are declared already. Without them the conditions that call one are unknown.
        let _ = strings(&mut env);
        Self {
            env: Arc::new(env),
            calls: [&CALLS[..], &FURTHER_CALLS, &UNKNOWN].concat(),
            max_bytes: MAX_FORECAST_BYTES,
            known: RefCell::default(),
        }
    }

    /// Compiles these expressions and keeps their order. One that cannot be evaluated is unknown for every request.
    pub fn conditions<'a>(&self, expressions: impl Iterator<Item = &'a str>) -> MatchConditions {
        let mut known = self.known.borrow_mut();
        let conditions = expressions.map(|text| {
            if let Some(condition) = known.get(text) {
                return condition.clone();
            }
            let condition = self.condition(text).map(Arc::new);
            if known.len() < MAX_KNOWN {
                known.insert(text.to_owned(), condition.clone());
            }
            condition
        });
        MatchConditions {
            env: Arc::clone(&self.env),
            conditions: conditions.collect(),
        }
    }

    fn condition(&self, text: &str) -> Option<CompiledCondition> {
        if !self.may_be_parsed(text) {
            return None;
        }
        let program = self.env.compile(text).ok()?;
        let expression = program.expression();
        let mentions = mentions(expression);
        let bounded = may_be_evaluated(expression, &self.calls) && !mentions.costly_pattern;
        bounded.then_some(CompiledCondition { program, mentions })
    }

    /// Parses an expression. Types are not checked, and one that is too long passes.
    ///
    /// # Errors
    /// The parser's messages, if it is no CEL.
    pub fn check(&self, text: &str) -> Result<(), ParseErrors> {
        if self.may_be_parsed(text) {
            self.env.compile(text)?;
        }
        Ok(())
    }

    /// Whether it is short enough to be parsed.
    fn may_be_parsed(&self, text: &str) -> bool {
        text.len() <= self.max_bytes && links(text) <= MAX_LINKS
    }
}

impl MatchConditions {
    /// The number of conditions.
    pub fn count(&self) -> usize {
        self.conditions.len()
    }

    /// Whether all of them were compiled and can be evaluated.
    pub fn are_compiled(&self) -> bool {
        self.conditions.iter().all(Option::is_some)
    }

    /// Their result for a request.
    pub fn outcome(
        &self,
        asked: &ConditionRequest<'_>,
        object: RequestObject<'_>,
        old: RequestObject<'_>,
    ) -> ConditionOutcome {
        if self.conditions.is_empty() {
            return ConditionOutcome::True;
        }
        let mut context = Context::with_env(Arc::clone(&self.env));
        context.add_variable_from_value("request", value_of(&asked.request()));
        context.add_variable_from_value("namespaceObject", Value::Null);
        let mut declare = |name: &str, object: RequestObject<'_>| {
            let value = object.value();
            let is_known = value.is_some();
            if let Some(value) = value {
                context.add_variable_from_value(name.to_owned(), value);
            }
            is_known
        };
        let known = KnownParts {
            object: declare("object", object),
            old_object: declare("oldObject", old),
            kind: asked.kind.is_some(),
        };
        let outcomes = self.conditions.iter().map(|condition| {
            let condition = condition.as_deref();
            condition.map_or(ConditionOutcome::Unknown, |condition| {
                condition.outcome(&context, known)
            })
        });
        outcomes.max().unwrap_or(ConditionOutcome::True)
    }

    /// Whether they let a request through to the webhook, whatever its object is; `None` if that is unknown or one of them is
    /// an error.
    pub fn let_through(&self, asked: &ConditionRequest<'_>) -> Option<bool> {
        match self.outcome(asked, RequestObject::Unknown, RequestObject::Unknown) {
            ConditionOutcome::True => Some(true),
            ConditionOutcome::False => Some(false),
            ConditionOutcome::Error | ConditionOutcome::Unknown => None,
        }
    }
}

impl ConditionRequest<'_> {
    /// Group and version of the kind, which is not the resource's for a few subresources (kubernetes 1.36,
    /// `pkg/registry/core/{pod,serviceaccount}`, `*/scale`).
    fn kind_of(&self) -> (&str, &str) {
        match self.shape.subresource {
            "token" => ("authentication.k8s.io", "v1"),
            "scale" => ("autoscaling", "v1"),
            "eviction" => ("policy", "v1"),
            _ => (self.shape.group, self.shape.version),
        }
    }

    /// `request` as conditions see it. Like an AdmissionReview of the API server it has no empty optional fields.
    fn request(&self) -> Json {
        let shape = &self.shape;
        let resource = json!({"group": shape.group, "version": shape.version, "resource": shape.resource});
        let (group, version) = self.kind_of();
        let mut kind = json!({"group": group, "version": version});
        if let Some(known) = self.kind {
            kind["kind"] = known.into();
        }
        let mut request = json!({
            "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
            "operation": shape.operation, "dryRun": self.dry_run, "userInfo": {},
        });
        if !self.by.user.is_empty() {
            request["userInfo"]["username"] = self.by.user.into();
        }
        if !self.by.groups.is_empty() {
            request["userInfo"]["groups"] = self.by.groups.into();
        }
        if !self.name.is_empty() {
            request["name"] = self.name.into();
        }
        if let Some(namespace) = shape.namespace {
            request["namespace"] = namespace.into();
        }
        if !shape.subresource.is_empty() {
            request["subResource"] = shape.subresource.into();
            request["requestSubResource"] = shape.subresource.into();
        }
        request
    }
}

impl CompiledCondition {
    fn outcome(&self, context: &Context<'_, '_>, known: KnownParts) -> ConditionOutcome {
        let mentions = &self.mentions;
        if mentions.unknown_field || mentions.kind && !known.kind {
            return ConditionOutcome::Unknown;
        }
        let mentions_unknown = mentions.unknowable
            || mentions.object && !known.object
            || mentions.old_object && !known.old_object;
        match self.program.execute(context) {
            Ok(Value::Bool(true)) => ConditionOutcome::True,
            Ok(Value::Bool(false)) => ConditionOutcome::False,
            Ok(_) | Err(_) if mentions_unknown => ConditionOutcome::Unknown,
            Ok(_) | Err(_) => ConditionOutcome::Error,
        }
    }
}

#[cfg(test)]
mod tests;
