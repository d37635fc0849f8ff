//! What `matchConditions` come to for a forecast: true, false, an error, or not known.
//!
//! A forecast may say "may be asked"; the breaker may not act on that. So this is a reading of its own, beside
//! [`super::conditions`], which tells less and is what the daemon judges by. It knows the object where the caller does,
//! `null` as `namespaceObject` (a webhook's conditions have none), and more of CEL's functions. `authorizer`, what a request
//! carries beside the fields of [`ConditionRequest`], and functions that are not known here make an answer unknown, unless the rest of the
//! expression decides it alone.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators as op};
use cel::extensions::strings;
use cel::{Context, Env, ParseErrors, Program, Value, to_value};
use serde_json::Value as Json;

use super::conditions::{ConditionRequest, may_be_evaluated};

/// Longer expressions are not evaluated, in bytes. A shield's has some 4,000.
const MAX_BYTES: usize = 16 * 1_024;
/// Longest pattern that is compiled, in bytes.
const MAX_PATTERN: usize = 256;

/// What is evaluated. None of them makes a long text of a short one.
const EVALUATED: [&str; 38] = [
    op::CONDITIONAL,
    op::LOGICAL_AND,
    op::LOGICAL_OR,
    op::LOGICAL_NOT,
    op::ADD,
    op::SUBSTRACT,
    op::NEGATE,
    op::EQUALS,
    op::NOT_EQUALS,
    op::GREATER_EQUALS,
    op::LESS_EQUALS,
    op::GREATER,
    op::LESS,
    op::INDEX,
    op::OPT_INDEX,
    op::OPT_SELECT,
    op::IN,
    op::NOT_STRICTLY_FALSE,
    "startsWith",
    "endsWith",
    "contains",
    "size",
    "matches",
    "hasValue",
    "orValue",
    "lowerAscii",
    "upperAscii",
    "trim",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "substring",
    "split",
    "join",
    "string",
    "int",
    "exists_one",
    "type",
];

/// The authorizer's functions and others of Kubernetes that have no meaning here: an expression that calls them is evaluated
/// around them (`apiserver/pkg/cel/library`).
const UNKNOWN: [&str; 20] = [
    "group",
    "resource",
    "subresource",
    "namespace",
    "name",
    "check",
    "allowed",
    "reason",
    "errored",
    "serviceAccount",
    "path",
    "fieldSelector",
    "labelSelector",
    "requestResource",
    "find",
    "findAll",
    "isURL",
    "url",
    "quantity",
    "isQuantity",
];

/// Fields of a request that [`ConditionRequest`] does not know.
const UNKNOWN_FIELDS: [&str; 3] = ["options", "extra", "uid"];

/// What conditions come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionOutcome {
    /// All are true: the webhook is called.
    True,
    /// One is false: it is not, whatever the others come to.
    False,
    /// One is an error and none is false: under `Fail` the request is refused without a call, under `Ignore` the webhook is
    /// not called.
    Error,
    /// Not known: the webhook may be called.
    Unknown,
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
pub struct ConditionForecast {
    env: Arc<Env>,
    programs: Vec<Option<Arc<CompiledCondition>>>,
}

struct CompiledCondition {
    program: Program,
    mentions: Mentions,
}

/// What an expression asks about that may not be known.
#[derive(Debug, Clone, Copy, Default)]
struct Mentions {
    object: bool,
    old_object: bool,
    /// The authorizer, or a function that has no meaning here.
    unknowable: bool,
    /// A field of a request that is not known, for which `has` would say that it is absent.
    field: bool,
}

/// Compiles conditions for forecasts, each text once: a project's webhooks, and those of a tool in many places, have the same.
pub struct ForecastCompiler {
    env: Arc<Env>,
    /// `None` for one that is not evaluated.
    known: RefCell<BTreeMap<String, Option<Arc<CompiledCondition>>>>,
}

/// Texts that are remembered.
const MAX_KNOWN: usize = 1_000;

impl Default for ForecastCompiler {
    fn default() -> Self {
        let mut env = Env::stdlib();
        // They are declared once, so that this cannot fail; without them a function is unknown, and no more.
        let _ = strings(&mut env);
        Self {
            env: Arc::new(env),
            known: RefCell::default(),
        }
    }
}

impl ForecastCompiler {
    /// The conditions with these expressions, in their order.
    pub fn conditions<'a>(&self, expressions: impl Iterator<Item = &'a str>) -> ConditionForecast {
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
        ConditionForecast {
            env: Arc::clone(&self.env),
            programs: programs.collect(),
        }
    }

    fn condition(&self, text: &str) -> Option<CompiledCondition> {
        let text = Some(text).filter(|text| text.len() <= MAX_BYTES)?;
        let program = self.env.compile(text).ok()?;
        let calls = [EVALUATED.as_slice(), &UNKNOWN].concat();
        let expression = program.expression();
        let bounded = may_be_evaluated(expression, &calls) && patterns_are_short(expression);
        let mentions = mentions(expression);
        bounded.then_some(CompiledCondition { program, mentions })
    }

    /// Whether the text is CEL at all; types are not checked.
    ///
    /// # Errors
    /// What the parser says of it.
    pub fn check(&self, text: &str) -> Result<(), ParseErrors> {
        self.env.compile(text).map(drop)
    }
}

impl ConditionForecast {
    /// Whether each of them was compiled and can be evaluated.
    pub fn are_compiled(&self) -> bool {
        self.programs.iter().all(Option::is_some)
    }

    /// What they come to for a request.
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
        let mut request = asked.request();
        if let (true, Some(fields)) = (asked.name.is_empty(), request.as_object_mut()) {
            fields.remove("name");
        }
        let Ok(request) = to_value(request) else {
            return ConditionOutcome::Unknown;
        };
        context.add_variable_from_value("request", request);
        context.add_variable_from_value("namespaceObject", Value::Null);
        let mut declare = |name: &str, known: RequestObject<'_>| {
            let value = match known {
                RequestObject::Null => Value::Null,
                RequestObject::Object(object) => match to_value(object) {
                    Ok(value) => value,
                    Err(_) => return false,
                },
                RequestObject::Unknown => return false,
            };
            context.add_variable_from_value(name.to_owned(), value);
            true
        };
        let knows = (declare("object", object), declare("oldObject", old));
        let said = self
            .programs
            .iter()
            .map(|condition| said(condition.as_deref(), &context, knows));
        said.fold(ConditionOutcome::True, |all, one| match (all, one) {
            (ConditionOutcome::False, _) | (_, ConditionOutcome::False) => ConditionOutcome::False,
            // An unknown one may be false, which would win over the error.
            (ConditionOutcome::Unknown, _) | (_, ConditionOutcome::Unknown) => ConditionOutcome::Unknown,
            (ConditionOutcome::Error, _) | (_, ConditionOutcome::Error) => ConditionOutcome::Error,
            (ConditionOutcome::True, ConditionOutcome::True) => ConditionOutcome::True,
        })
    }
}

/// What one condition comes to, given whether the object and the old object are known.
fn said(
    condition: Option<&CompiledCondition>,
    context: &Context<'_, '_>,
    (object, old): (bool, bool),
) -> ConditionOutcome {
    let Some(CompiledCondition { program, mentions }) = condition else {
        return ConditionOutcome::Unknown;
    };
    let unknown = mentions.unknowable || mentions.object && !object || mentions.old_object && !old;
    match program.execute(context) {
        _ if mentions.field => ConditionOutcome::Unknown,
        Ok(Value::Bool(true)) => ConditionOutcome::True,
        Ok(Value::Bool(false)) => ConditionOutcome::False,
        Ok(_) | Err(_) if unknown => ConditionOutcome::Unknown,
        Ok(_) | Err(_) => ConditionOutcome::Error,
    }
}

/// Calls a function for an expression and everything in it.
fn walk<'a>(expression: &'a IdedExpr, see: &mut dyn FnMut(&'a IdedExpr)) {
    let mut open = vec![expression];
    while let Some(expression) = open.pop() {
        see(expression);
        match &expression.expr {
            Expr::Call(call) => open.extend(call.target.iter().map(AsRef::as_ref).chain(&call.args)),
            Expr::Comprehension(each) => {
                open.extend([&each.iter_range, &each.accu_init, &each.loop_cond]);
                open.extend([&each.loop_step, &each.result]);
            }
            Expr::List(list) => open.extend(&list.elements),
            Expr::Map(map) => open.extend(map.entries.iter().flat_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                EntryExpr::StructField(field) => vec![&field.value],
            })),
            Expr::Select(select) => open.push(&select.operand),
            Expr::Unspecified | Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) => {}
        }
    }
}

fn mentions(expression: &IdedExpr) -> Mentions {
    let mut found = Mentions::default();
    walk(expression, &mut |expression| match &expression.expr {
        Expr::Ident(name) => match name.as_str() {
            "object" => found.object = true,
            "oldObject" => found.old_object = true,
            "authorizer" | "params" | "variables" => found.unknowable = true,
            _ => {}
        },
        Expr::Call(call) => {
            found.unknowable |= UNKNOWN.contains(&&*call.func_name);
            let named = |argument: &IdedExpr| literal(argument).is_some_and(is_unknown);
            let selects = [op::OPT_SELECT, op::INDEX, op::OPT_INDEX].contains(&&*call.func_name);
            found.field |=
                selects && call.args.iter().any(named) && call.args.first().is_some_and(is_request);
        }
        Expr::Select(select) => found.field |= is_unknown(&select.field) && is_request(&select.operand),
        _ => {}
    });
    found
}

fn is_unknown(field: &str) -> bool {
    UNKNOWN_FIELDS.contains(&field)
}

/// The text of a literal.
fn literal(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// Whether it is the request or a part of it.
fn is_request(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Ident(name) => name == "request",
        Expr::Select(select) => is_request(&select.operand),
        _ => false,
    }
}

/// Whether every pattern stands in the expression itself and is short: one that is made of the request could cost anything.
fn patterns_are_short(expression: &IdedExpr) -> bool {
    let mut short = true;
    walk(expression, &mut |expression| {
        if let Expr::Call(call) = &expression.expr
            && call.func_name == "matches"
        {
            let pattern = call.args.last().and_then(literal);
            short &= pattern.is_some_and(|pattern| pattern.len() <= MAX_PATTERN);
        }
    });
    short
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{RequestShape, Requester};
    use super::*;

    fn asked() -> ConditionRequest<'static> {
        ConditionRequest {
            shape: RequestShape {
                operation: "CREATE",
                version: "v1",
                resource: "pods",
                namespace: Some("tenant"),
                ..RequestShape::default()
            },
            kind: Some("Pod"),
            name: "web-0",
            by: Requester {
                user: "system:serviceaccount:kube-system:replicaset-controller",
                groups: &["system:serviceaccounts", "system:authenticated"],
            },
            dry_run: false,
        }
    }

    fn pod() -> Json {
        json!({"metadata": {"name": "web-0", "labels": {"app": "web"}},
               "spec": {"containers": [{"name": "a", "image": "registry.example/a:1"}]}})
    }

    fn outcome(conditions: &[&str]) -> ConditionOutcome {
        let conditions = ForecastCompiler::default().conditions(conditions.iter().copied());
        conditions.outcome(&asked(), RequestObject::Object(&pod()), RequestObject::Null)
    }

    #[test]
    fn what_is_asked_of_request_and_object_is_answered() {
        for (expression, wanted) in [
            ("object.metadata.labels['app'] == 'web'", ConditionOutcome::True),
            (
                "object.metadata.?labels['team'].orValue('none') == 'none'",
                ConditionOutcome::True,
            ),
            (
                "has(object.metadata.labels) && 'team' in object.metadata.labels",
                ConditionOutcome::False,
            ),
            (
                "object.spec.containers.all(c, c.image.startsWith('registry.example/'))",
                ConditionOutcome::True,
            ),
            (
                "oldObject == null && namespaceObject == null",
                ConditionOutcome::True,
            ),
            (
                "request.userInfo.username.matches('^system:serviceaccount:kube-.*')",
                ConditionOutcome::True,
            ),
            ("request.name.lowerAscii() == 'web-0'", ConditionOutcome::True),
            (
                "!(request.namespace in ['kube-system', 'tenant'])",
                ConditionOutcome::False,
            ),
            ("has(request.subResource)", ConditionOutcome::False),
        ] {
            assert_eq!(outcome(&[expression]), wanted, "{expression}");
        }
    }

    #[test]
    fn an_absent_key_is_an_error_and_what_is_unknown_is_not() {
        for (expression, wanted) in [
            ("object.metadata.annotations['a'] == 'b'", ConditionOutcome::Error),
            ("request.subResource == 'status'", ConditionOutcome::Error),
            ("request.name", ConditionOutcome::Error),
            (
                "authorizer.group('').resource('pods').check('create').allowed()",
                ConditionOutcome::Unknown,
            ),
            (
                "request.operation == 'DELETE' && authorizer.path('/x').check('get').allowed()",
                ConditionOutcome::False,
            ),
            (
                "authorizer.path('/x').check('get').allowed() || request.operation == 'CREATE'",
                ConditionOutcome::True,
            ),
            ("request.options.dryRun == ['All']", ConditionOutcome::Unknown),
            ("has(request.userInfo.extra)", ConditionOutcome::Unknown),
            (
                "cidr('10.0.0.0/8').containsIP('10.1.1.1')",
                ConditionOutcome::Unknown,
            ),
            ("no CEL at all", ConditionOutcome::Unknown),
        ] {
            assert_eq!(outcome(&[expression]), wanted, "{expression}");
        }
    }

    #[test]
    fn one_that_is_false_wins_over_errors_and_an_unknown_one_may_be_false() {
        assert_eq!(
            outcome(&["request.subResource == ''", "false"]),
            ConditionOutcome::False
        );
        assert_eq!(
            outcome(&["request.subResource == ''", "true"]),
            ConditionOutcome::Error
        );
        let allowed = "authorizer.path('/x').check('get').allowed()";
        assert_eq!(
            outcome(&["request.subResource == ''", allowed]),
            ConditionOutcome::Unknown
        );
        assert_eq!(outcome(&[]), ConditionOutcome::True);
    }

    #[test]
    fn an_unknown_object_decides_nothing_that_asks_about_it() {
        let with = |expression| {
            let conditions = ForecastCompiler::default().conditions([expression].into_iter());
            conditions.outcome(&asked(), RequestObject::Unknown, RequestObject::Null)
        };
        assert_eq!(with("has(object.metadata.labels)"), ConditionOutcome::Unknown);
        assert_eq!(
            with("request.namespace != 'tenant' && has(object.spec)"),
            ConditionOutcome::False
        );
        assert_eq!(with("oldObject == null"), ConditionOutcome::True);
    }

    #[test]
    fn patterns_that_are_long_or_not_literal_are_not_compiled() {
        let long = format!("request.name.matches('{}')", "a{1000}".repeat(40));
        for expression in ["request.name.matches(request.namespace)", &long] {
            assert_eq!(outcome(&[expression]), ConditionOutcome::Unknown, "{expression}");
        }
    }
}
