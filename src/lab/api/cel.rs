//! The part of CEL that `matchConditions` of hookwatch and of most hooks are written in.
//!
//! Literals, field selection, `has()`, `!`, `&&`, `||`, `==`, `!=`, `in`, lists, indexing, parentheses, `?:` and
//! `startsWith`, `endsWith` and `contains` on strings. Anything else is a compile error, so an expression either means here
//! what it means to a real API server or is refused.

mod parse;
#[cfg(test)]
mod shield;

use std::borrow::Cow;

use serde_json::Value;

use parse::{Expression, Method, Operator};

/// Longest expression taken, in bytes.
const MAX_LENGTH: usize = 16 * 1_024;

/// A compiled expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Program(Expression);

/// What an expression can refer to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variables<'a> {
    /// The AdmissionRequest without its objects; a field that is not set is absent.
    pub request: &'a Value,
    /// The object, `null` for a deletion.
    pub object: &'a Value,
    /// The object as it was, `null` for a creation.
    pub old_object: &'a Value,
}

impl Program {
    /// Compiles an expression.
    ///
    /// # Errors
    /// A sentence on what is not understood.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err(format!("expression is longer than {MAX_LENGTH} bytes"));
        }
        parse::parse(text).map(Self).map_err(|why| {
            if why == parse::NOT_BOOL {
                why
            } else {
                format!("compilation failed: ERROR: <input>:1:1: {why}")
            }
        })
    }

    /// Evaluates it to a truth value.
    ///
    /// # Errors
    /// CEL's own words, for instance `no such key: namespace`.
    pub(super) fn evaluate(&self, variables: Variables<'_>) -> Result<bool, String> {
        boolean(evaluate(&self.0, variables)?.as_ref())
    }
}

type Evaluated<'a> = Result<Cow<'a, Value>, String>;

fn evaluate<'a>(expression: &'a Expression, variables: Variables<'a>) -> Evaluated<'a> {
    match expression {
        Expression::Literal(value) => Ok(Cow::Borrowed(value)),
        Expression::Variable(name) => Ok(Cow::Borrowed(match name.as_str() {
            "request" => variables.request,
            "object" => variables.object,
            "oldObject" => variables.old_object,
            // `namespaceObject` is null for webhooks; the parser lets no other name through.
            _ => &Value::Null,
        })),
        Expression::List(items) => {
            let items: Result<Vec<Value>, String> = items
                .iter()
                .map(|item| evaluate(item, variables).map(Cow::into_owned))
                .collect();
            Ok(Cow::Owned(Value::Array(items?)))
        }
        Expression::Select(of, field) => select(evaluate(of, variables)?, field),
        Expression::Index(of, index) => {
            let index = evaluate(index, variables)?;
            element(evaluate(of, variables)?, &index)
        }
        Expression::Has(of, field) => match evaluate(of, variables)?.as_ref() {
            Value::Object(fields) => Ok(Cow::Owned(fields.contains_key(field).into())),
            _ => Err(no_overload()),
        },
        Expression::Not(inner) => Ok(Cow::Owned(
            (!boolean(evaluate(inner, variables)?.as_ref())?).into(),
        )),
        Expression::Binary(operator, left, right) => binary(*operator, left, right, variables),
        Expression::Call(of, method, argument) => {
            let of = evaluate(of, variables)?;
            call(&of, *method, evaluate(argument, variables)?.as_ref())
        }
        Expression::Choice(condition, yes, no) => {
            let chosen = if boolean(evaluate(condition, variables)?.as_ref())? {
                yes
            } else {
                no
            };
            evaluate(chosen, variables)
        }
    }
}

fn binary<'a>(
    operator: Operator,
    left: &'a Expression,
    right: &'a Expression,
    variables: Variables<'a>,
) -> Evaluated<'a> {
    let both = || Ok::<_, String>((evaluate(left, variables)?, evaluate(right, variables)?));
    let answer = match operator {
        Operator::And => return decide(left, right, variables, false),
        Operator::Or => return decide(left, right, variables, true),
        Operator::Equal => {
            let (left, right) = both()?;
            left == right
        }
        Operator::Unequal => {
            let (left, right) = both()?;
            left != right
        }
        Operator::In => {
            let (left, right) = both()?;
            match (left.as_ref(), right.as_ref()) {
                (item, Value::Array(items)) => items.contains(item),
                (Value::String(key), Value::Object(fields)) => fields.contains_key(key),
                _ => return Err(no_overload()),
            }
        }
    };
    Ok(Cow::Owned(answer.into()))
}

/// `&&` and `||`: one side that decides is enough, whichever it is and even when the other side is an error.
fn decide<'a>(
    left: &'a Expression,
    right: &'a Expression,
    variables: Variables<'a>,
    decisive: bool,
) -> Evaluated<'a> {
    let truth = |side| evaluate(side, variables).and_then(|value| boolean(&value));
    let left = truth(left);
    if left == Ok(decisive) {
        return Ok(Cow::Owned(decisive.into()));
    }
    match (left, truth(right)) {
        (_, Ok(right)) if right == decisive => Ok(Cow::Owned(decisive.into())),
        (Err(error), _) | (_, Err(error)) => Err(error),
        _ => Ok(Cow::Owned((!decisive).into())),
    }
}

fn select<'a>(of: Cow<'a, Value>, field: &str) -> Evaluated<'a> {
    let missing = || format!("no such key: {field}");
    match of {
        Cow::Borrowed(Value::Object(fields)) => fields.get(field).map(Cow::Borrowed).ok_or_else(missing),
        Cow::Owned(Value::Object(mut fields)) => fields.remove(field).map(Cow::Owned).ok_or_else(missing),
        _ => Err(no_overload()),
    }
}

fn element<'a>(of: Cow<'a, Value>, index: &Value) -> Evaluated<'a> {
    match index {
        Value::String(key) => select(of, key),
        Value::Number(at) => {
            let at = at.as_u64().and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| of.get(at).cloned())
                .map(Cow::Owned)
                .ok_or_else(|| "index out of bounds".to_owned())
        }
        _ => Err(no_overload()),
    }
}

fn call(of: &Value, method: Method, argument: &Value) -> Evaluated<'static> {
    let (Some(of), Some(argument)) = (of.as_str(), argument.as_str()) else {
        return Err(no_overload());
    };
    let answer = match method {
        Method::StartsWith => of.starts_with(argument),
        Method::EndsWith => of.ends_with(argument),
        Method::Contains => of.contains(argument),
    };
    Ok(Cow::Owned(answer.into()))
}

fn boolean(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(no_overload)
}

fn no_overload() -> String {
    "no such overload".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(expression: &str, request: &Value) -> Result<bool, String> {
        let object = json!({"metadata": {"name": "x", "labels": {"app": "web"}}});
        Program::compile(expression)?.evaluate(Variables {
            request,
            object: &object,
            old_object: &Value::Null,
        })
    }

    fn namespaced() -> Value {
        json!({
            "namespace": "kube-system", "operation": "CREATE", "dryRun": false,
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "userInfo": {"username": "system:apiserver", "groups": ["system:masters", "system:authenticated"]},
        })
    }

    #[test]
    fn expressions_as_hookwatch_writes_them() {
        for (expression, wanted) in [
            ("true", true),
            ("false", false),
            ("request.dryRun", false),
            ("!request.dryRun", true),
            ("has(request.namespace)", true),
            ("has(request.subResource)", false),
            (
                "!has(request.subResource) || request.subResource != 'status'",
                true,
            ),
            ("request.namespace == \"kube-system\"", true),
            (
                "!(has(request.namespace) && request.namespace in ['kube-system', 'kube-node-lease'])",
                false,
            ),
            ("request.userInfo.username != 'system:apiserver'", false),
            (
                "has(request.userInfo.groups) && 'system:masters' in request.userInfo.groups",
                true,
            ),
            ("\"system:nodes\" in request.userInfo.groups", false),
            (
                "request.resource.group == '' && request.resource.resource in ['pods']",
                true,
            ),
            (
                "request.operation == 'UPDATE' || request.operation == 'CREATE'",
                true,
            ),
            (
                "request.userInfo.username.startsWith('system:') && (true && !false)",
                true,
            ),
            (
                "request.userInfo.username.endsWith('x') || request.userInfo.username.contains('api')",
                true,
            ),
            (
                "object.metadata.labels['app'] == 'web' && oldObject == null",
                true,
            ),
            ("'app' in object.metadata.labels", true),
            ("has(request.namespace) ? request.namespace == 'x' : true", false),
            ("request.userInfo.groups[1] == 'system:authenticated'", true),
            ("request.userInfo == null // nobody", false),
            (r"'it\'s' == r'it' || 1 == 1", true),
        ] {
            assert_eq!(run(expression, &namespaced()), Ok(wanted), "{expression}");
        }
    }

    #[test]
    fn an_absent_field_is_an_error_unless_the_other_side_decides() {
        let cluster_scoped = json!({"dryRun": true, "userInfo": {"username": "u"}});
        let missing = Err("no such key: namespace".to_owned());
        for (expression, wanted) in [
            ("request.namespace == 'x'", missing.clone()),
            ("!(request.namespace in ['x'])", missing.clone()),
            ("request.namespace == 'x' && true", missing.clone()),
            ("request.namespace == 'x' && false", Ok(false)),
            ("false && request.namespace == 'x'", Ok(false)),
            ("request.namespace == 'x' || true", Ok(true)),
            ("request.namespace == 'x' || false", missing),
            ("!has(request.namespace) || request.namespace == 'x'", Ok(true)),
            (
                "'a' in request.userInfo.groups",
                Err("no such key: groups".to_owned()),
            ),
            ("request.dryRun", Ok(true)),
            (
                "request.userInfo.username && true",
                Err("no such overload".to_owned()),
            ),
        ] {
            assert_eq!(run(expression, &cluster_scoped), wanted, "{expression}");
        }
    }

    #[test]
    fn what_is_not_understood_does_not_compile() {
        for expression in [
            "",
            "request.",
            "(true",
            "true true",
            "'open",
            "request.uid == 'x'",
            "nobody.knows",
            "request.namespace.matches('a.*')",
            "request.userInfo.groups.exists(g, g == 'x')",
            "size(request.namespace) == 1",
            "has(request)",
            "'text'",
            "1 < 2",
            "true &&",
            "true & false",
        ] {
            assert!(Program::compile(expression).is_err(), "{expression:?} compiled");
        }
        assert!(Program::compile(&"!".repeat(10_000)).is_err(), "depth is bounded");
        assert!(Program::compile(&"(".repeat(10_000)).is_err(), "depth is bounded");
        assert!(Program::compile(&format!("true{}", " || false".repeat(200))).is_ok());
    }
}
