//! Evaluates the owner's `matchConditions` for a request.
//!
//! The API server calls a webhook if all of its conditions are true, and does not if one is false, whatever the others evaluate
//! to (kube-apiserver 1.36, `admission/plugin/webhook/matchconditions`). Here they are evaluated against hypothetical requests,
//! with a known user and resource, and the object where the caller has one. `namespaceObject` is `null`, as a webhook's
//! conditions have none. `authorizer` makes an answer unknown unless the rest of the expression decides it alone. So do
//! expressions that could be expensive, and request fields beyond those of [`ConditionRequest`]: `has` would say that they are
//! absent.
//!
//! A forecast may say "may be asked"; the breaker may not act on that. So a compiler [for forecasts](ConditionCompiler::for_forecasts)
//! evaluates longer expressions and more of CEL's functions than that by which the daemon judges.

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

/// Longer expressions are not evaluated, in bytes. The API server takes them as long as an object may be.
const MAX_BYTES: usize = 1_024;
/// The same of a forecast. A shield's has some 4,000.
const MAX_FORECAST_BYTES: usize = 16 * 1_024;
/// Texts that are remembered.
const MAX_KNOWN: usize = 1_000;

/// The fields of a request that conditions may use.
#[derive(Debug, Clone, Copy)]
pub struct ConditionRequest<'a> {
    /// What is written, and where.
    pub shape: RequestShape<'a>,
    /// The kind of the object, where it is known.
    pub kind: Option<&'a str>,
    /// The object's name.
    pub name: &'a str,
    /// Who writes it.
    pub by: Requester<'a>,
    /// It is a dry run.
    pub dry_run: bool,
}

/// The result of conditions; of several results the last in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionOutcome {
    /// All are true: the webhook is called.
    True,
    /// One is an error and none is false: under `Fail` the request is refused without a call, under `Ignore` the webhook is
    /// not called.
    Error,
    /// Not known: the webhook may be called. An unknown one may be false, which would win over an error.
    Unknown,
    /// One is false: it is not, whatever the others evaluate to.
    False,
}

/// An object of a request.
#[derive(Debug, Clone, Copy)]
pub enum RequestObject<'a> {
    /// There is none: `object` of a deletion, `oldObject` of a creation.
    Null,
    /// This one.
    Object(&'a Json),
    /// There is one, and it is not known.
    Unknown,
}

/// The conditions of one webhook.
pub struct MatchConditions {
    env: Arc<Env>,
    /// `None` for one that is not evaluated.
    programs: Vec<Option<Arc<CompiledCondition>>>,
}

struct CompiledCondition {
    program: Program,
    mentions: Mentions,
}

/// Compiles conditions, each text once: a project's webhooks, and those of a tool in many places, have the same.
pub struct ConditionCompiler {
    env: Arc<Env>,
    /// What an expression may call.
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
    /// One that evaluates more, for answers that nothing is done by.
    pub fn for_forecasts() -> Self {
        let mut env = Env::stdlib();
        // They are declared once, so that this cannot fail; without them a function is unknown, and no more.
        let _ = strings(&mut env);
        Self {
            env: Arc::new(env),
            calls: [&CALLS[..], &FURTHER_CALLS, &UNKNOWN].concat(),
            max_bytes: MAX_FORECAST_BYTES,
            known: RefCell::default(),
        }
    }

    /// The conditions with these expressions, in their order.
    pub fn conditions<'a>(&self, expressions: impl Iterator<Item = &'a str>) -> MatchConditions {
        let mut known = self.known.borrow_mut();
        let programs = expressions.map(|text| {
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
            programs: programs.collect(),
        }
    }

    fn condition(&self, text: &str) -> Option<CompiledCondition> {
        let text = Some(text).filter(|text| self.may_be_parsed(text))?;
        let program = self.env.compile(text).ok()?;
        let expression = program.expression();
        let mentions = mentions(expression);
        let bounded = may_be_evaluated(expression, &self.calls) && !mentions.costly_pattern;
        bounded.then_some(CompiledCondition { program, mentions })
    }

    /// Whether the text is CEL at all; types are not checked, nor is what is too long.
    ///
    /// # Errors
    /// The parser's message.
    pub fn check(&self, text: &str) -> Result<(), ParseErrors> {
        if self.may_be_parsed(text) {
            self.env.compile(text).map(drop)?;
        }
        Ok(())
    }

    /// Whether it is short enough to be parsed.
    fn may_be_parsed(&self, text: &str) -> bool {
        text.len() <= self.max_bytes && links(text) <= MAX_LINKS
    }
}

impl MatchConditions {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.programs.len()
    }

    /// Whether each of them was compiled and can be evaluated.
    pub fn are_compiled(&self) -> bool {
        self.programs.iter().all(Option::is_some)
    }

    /// Their result for a request.
    pub fn outcome(
        &self,
        asked: &ConditionRequest<'_>,
        object: RequestObject<'_>,
        old: RequestObject<'_>,
    ) -> ConditionOutcome {
        if self.programs.is_empty() {
            return ConditionOutcome::True;
        }
        let mut context = Context::with_env(Arc::clone(&self.env));
        context.add_variable_from_value("request", value_of(&asked.request()));
        context.add_variable_from_value("namespaceObject", Value::Null);
        let mut declare = |name: &str, known: RequestObject<'_>| {
            let value = match known {
                RequestObject::Null => Value::Null,
                RequestObject::Object(object) => value_of(object),
                RequestObject::Unknown => return false,
            };
            context.add_variable_from_value(name.to_owned(), value);
            true
        };
        let knows = (declare("object", object), declare("oldObject", old));
        let said = self
            .programs
            .iter()
            .map(|condition| said(condition.as_deref(), &context, knows, asked.kind.is_some()));
        said.max().unwrap_or(ConditionOutcome::True)
    }

    /// Whether they let a request without a known object through to the hook; `None` where that is unknown.
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

    /// As conditions see it. What is left out cannot be asked about; what an API server leaves out of an AdmissionReview
    /// because it is empty is left out as well.
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
            "operation": shape.operation, "dryRun": self.dry_run,
            "userInfo": {"username": self.by.user, "groups": self.by.groups},
        });
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

/// The result of one condition, given whether the object and the old object, and the kind, are known.
fn said(
    condition: Option<&CompiledCondition>,
    context: &Context<'_, '_>,
    (object, old): (bool, bool),
    kind: bool,
) -> ConditionOutcome {
    let Some(CompiledCondition { program, mentions }) = condition else {
        return ConditionOutcome::Unknown;
    };
    let unknown = mentions.unknowable || mentions.object && !object || mentions.old_object && !old;
    match program.execute(context) {
        _ if mentions.unknown_field || mentions.kind && !kind => ConditionOutcome::Unknown,
        Ok(Value::Bool(true)) => ConditionOutcome::True,
        Ok(Value::Bool(false)) => ConditionOutcome::False,
        Ok(_) | Err(_) if unknown => ConditionOutcome::Unknown,
        Ok(_) | Err(_) => ConditionOutcome::Error,
    }
}

#[cfg(test)]
mod tests;
