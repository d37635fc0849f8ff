//! Evaluates the `matchConditions` that a webhook's owner wrote. [`crate::cluster::condition`] has those that hookwatch writes.
//!
//! The API server calls a webhook if all of its conditions are true, and does not if one is false, whatever the others evaluate
//! to (kube-apiserver 1.36, `admission/plugin/webhook/matchconditions`). Here conditions are evaluated for hypothetical
//! requests, with a known user and resource, and with the object if the caller has it. `namespaceObject` is `null`, as for all
//! webhooks. The result is unknown if an expression
//! - uses `authorizer`, or an object that the caller does not have, unless the rest of the expression decides the result;
//! - uses request fields that [`ConditionRequest`] lacks: `has` would wrongly find them absent;
//! - could be expensive, in which case it is not evaluated.
//!
//! The daemon's diagnosis, on which the breaker acts, uses the default compiler. The breaker never acts on forecasts, so the
//! compiler [for forecasts](ConditionCompiler::for_forecasts) evaluates longer expressions and more of CEL's functions.

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

/// The longest expression that the default compiler evaluates, in bytes. The API server accepts whatever fits into an object.
const MAX_BYTES: usize = 1_024;
/// The longest expression that a forecast evaluates, in bytes. A shield's condition has about 6,000.
const MAX_FORECAST_BYTES: usize = 16 * 1_024;
/// Most compiled expressions that a compiler caches.
const MAX_KNOWN: usize = 1_000;

/// The fields of a hypothetical request that conditions can use.
#[derive(Debug, Clone, Copy)]
pub struct ConditionRequest<'a> {
    /// The operation, resource and namespace.
    pub shape: RequestShape<'a>,
    /// The object's kind; `None` if it is not known.
    pub kind: Option<&'a str>,
    /// The object's name; empty if the request has none.
    pub name: &'a str,
    /// The user that makes the request.
    pub by: Requester<'a>,
    /// Whether it is a dry run.
    pub dry_run: bool,
}

/// The result of one condition, or of all of a webhook's conditions. The latter is the greatest of their results in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionOutcome {
    /// All conditions are true: the webhook is called.
    True,
    /// A condition errs and none is false: under `failurePolicy: Fail` the request is refused without a call, under `Ignore` the
    /// webhook is not called.
    Error,
    /// A condition is unknown and none is false: the webhook may be called. Ranks above an error, as the unknown condition may
    /// be false, and false outranks an error.
    Unknown,
    /// A condition is false: the webhook is not called.
    False,
}

/// `object` or `oldObject` of a request.
#[derive(Debug, Clone, Copy)]
pub enum RequestObject<'a> {
    /// The request has no such object: a deletion has no `object`, a creation no `oldObject`.
    Null,
    /// The object itself.
    Object(&'a Json),
    /// The caller does not have the object.
    Unknown,
}

impl RequestObject<'_> {
    /// The CEL value; `None` if it is unknown.
    fn value(self) -> Option<Value> {
        match self {
            Self::Null => Some(Value::Null),
            Self::Object(object) => Some(value_of(object)),
            Self::Unknown => None,
        }
    }
}

/// Which optional parts of a request the caller knows.
#[derive(Clone, Copy)]
struct KnownParts {
    object: bool,
    old_object: bool,
    kind: bool,
}

/// The compiled conditions of one webhook.
pub struct MatchConditions {
    env: Arc<Env>,
    /// `None` for a condition that is not evaluated.
    conditions: Vec<Option<Arc<CompiledCondition>>>,
}

struct CompiledCondition {
    program: Program,
    mentions: Mentions,
}

/// Compiles conditions, and caches them: the webhooks of one project often have the same expressions.
pub struct ConditionCompiler {
    env: Arc<Env>,
    /// The operators and functions that an expression may call.
    calls: Vec<&'static str>,
    /// The longest expression, in bytes.
    max_bytes: usize,
    /// The cache; `None` for an expression that is not evaluated.
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
    /// A compiler that evaluates more than the default. The breaker must not act on its results.
    pub fn for_forecasts() -> Self {
        let mut env = Env::stdlib();
        // Fails only if the functions are declared already. Without them the result of conditions that call one is unknown.
        let _ = strings(&mut env);
        Self {
            env: Arc::new(env),
            calls: [&CALLS[..], &FURTHER_CALLS, &UNKNOWN].concat(),
            max_bytes: MAX_FORECAST_BYTES,
            known: RefCell::default(),
        }
    }

    /// Compiles these expressions. The result of one that cannot be evaluated is unknown for every request.
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

    /// Checks an expression's syntax. Types are not checked, and an expression that is too long passes.
    ///
    /// # Errors
    /// The parser's messages, if the text is not CEL.
    pub fn check(&self, text: &str) -> Result<(), ParseErrors> {
        if self.may_be_parsed(text) {
            self.env.compile(text)?;
        }
        Ok(())
    }

    /// Whether a text is short enough to be parsed.
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

    /// The result of all conditions for a request; `True` if there are none.
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

    /// Whether the conditions let a request through to the webhook, whatever its object; `None` if that is unknown or a
    /// condition errs.
    pub fn let_through(&self, asked: &ConditionRequest<'_>) -> Option<bool> {
        match self.outcome(asked, RequestObject::Unknown, RequestObject::Unknown) {
            ConditionOutcome::True => Some(true),
            ConditionOutcome::False => Some(false),
            ConditionOutcome::Error | ConditionOutcome::Unknown => None,
        }
    }
}

impl ConditionRequest<'_> {
    /// Group and version of the object's kind. For a few subresources they differ from the resource's (kubernetes 1.36,
    /// `pkg/registry/core/{pod,serviceaccount}`, `*/scale`).
    fn kind_of(&self) -> (&str, &str) {
        match self.shape.subresource {
            "token" => ("authentication.k8s.io", "v1"),
            "scale" => ("autoscaling", "v1"),
            "eviction" => ("policy", "v1"),
            _ => (self.shape.group, self.shape.version),
        }
    }

    /// The variable `request` of conditions. Empty optional fields are absent, as in the API server's AdmissionReviews.
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
