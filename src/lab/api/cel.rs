//! `matchConditions`, evaluated by the `cel` crate.
//!
//! Supports everything that hookwatch writes, and most of what webhook owners write. Undeclared names and functions are compile
//! errors, and so is what could cost much: patterns, arithmetic other than `+`, nested loops. So an expression either means what
//! it means to a real API server or is refused.

#[cfg(test)]
mod shield;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cel::common::ast::{Expr, IdedExpr, LiteralValue};
use cel::{Context, Env, ExecutionError, Value as Cel};
use serde_json::Value;

use crate::domain::cluster::matching::expression::{CALLS, MAX_LINKS, links, parts, value_of};

/// Longest expression taken, in bytes.
const MAX_LENGTH: usize = 16 * 1_024;
/// How deep an expression may be nested, each field and each operator of a chain being a level.
const MAX_DEPTH: usize = 64;
/// Most compiled expressions that are cached; further ones are compiled again each time.
const MAX_KNOWN: usize = 1_000;

/// Fields of `request` that match conditions may refer to.
const REQUEST_FIELDS: [&str; 12] = [
    "kind",
    "resource",
    "subResource",
    "requestKind",
    "requestResource",
    "requestSubResource",
    "name",
    "namespace",
    "operation",
    "userInfo",
    "dryRun",
    "options",
];
/// Names an expression may begin with.
const VARIABLES: [&str; 4] = ["request", "object", "oldObject", "namespaceObject"];

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));
static KNOWN: LazyLock<Mutex<HashMap<String, Arc<Program>>>> = LazyLock::new(Mutex::default);

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Program {
    program: cel::Program,
    /// The variables that the expression refers to.
    variables: Vec<&'static str>,
}

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
    /// Compiles an expression, or takes it from the cache: a shield's takes 30 ms in a debug build, and every change of a
    /// configuration compiles the expressions of all webhooks.
    ///
    /// # Errors
    /// A sentence on what does not compile.
    pub(super) fn of(text: &str) -> Result<Arc<Self>, String> {
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = known().get(text) {
            return Ok(Arc::clone(program));
        }
        let program = Arc::new(Self::compile(text)?);
        let mut known = known();
        if known.len() < MAX_KNOWN {
            known.insert(text.to_owned(), Arc::clone(&program));
        }
        Ok(program)
    }

    fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err(format!("expression is longer than {MAX_LENGTH} bytes"));
        }
        if links(text) > MAX_LINKS {
            return Err(format!("expression has more than {MAX_LINKS} operators"));
        }
        let failed = |why: &dyn std::fmt::Display| format!("compilation failed: {why}");
        let program = ENVIRONMENT.compile(text).map_err(|why| failed(&why))?;
        let expression = program.expression();
        check(expression, 0, &[]).map_err(|why| failed(&format_args!("ERROR: <input>:1:1: {why}")))?;
        match &expression.expr {
            Expr::Literal(LiteralValue::Boolean(_)) => {}
            Expr::Literal(_) | Expr::List(_) | Expr::Map(_) => return Err("must evaluate to bool".to_owned()),
            _ => {}
        }
        let named = program.references();
        let variables = VARIABLES.into_iter().filter(|name| named.has_variable(name));
        Ok(Self {
            variables: variables.collect(),
            program,
        })
    }

    /// Evaluates it to a truth value.
    ///
    /// # Errors
    /// CEL's own words, for instance `no such key: namespace`.
    pub(super) fn evaluate(&self, variables: Variables<'_>) -> Result<bool, String> {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        for name in &self.variables {
            let value = match *name {
                "request" => variables.request,
                "object" => variables.object,
                "oldObject" => variables.old_object,
                // `namespaceObject` is null for webhooks.
                _ => &Value::Null,
            };
            context.add_variable_from_value(*name, value_of(value));
        }
        match self.program.execute(&context) {
            Ok(Cel::Bool(answer)) => Ok(answer),
            Err(ExecutionError::NoSuchKey(key)) => Err(format!("no such key: {key}")),
            Err(ExecutionError::IndexOutOfBounds(_)) => Err("index out of bounds".to_owned()),
            Ok(_) | Err(ExecutionError::NoSuchOverload(_) | ExecutionError::UnexpectedType { .. }) => {
                Err("no such overload".to_owned())
            }
            Err(other) => Err(other.to_string()),
        }
    }
}

/// Whether everything in an expression is declared, and cheap. `bound` are the names that a loop around it declares.
fn check(expression: &IdedExpr, depth: usize, bound: &[&str]) -> Result<(), String> {
    let undeclared = |name: &str| Err(format!("undeclared reference to '{name}' (in container '')"));
    if depth > MAX_DEPTH {
        return Err(format!("expression is nested deeper than {MAX_DEPTH} levels"));
    }
    let mut bound = bound;
    let in_loop;
    match &expression.expr {
        Expr::Ident(name) if !VARIABLES.contains(&&**name) && !bound.contains(&&**name) => {
            return undeclared(name);
        }
        Expr::Call(call) if !CALLS.contains(&&*call.func_name) => return undeclared(&call.func_name),
        Expr::Select(select)
            if matches!(&select.operand.expr, Expr::Ident(name) if name == "request")
                && !REQUEST_FIELDS.contains(&&*select.field) =>
        {
            return Err(format!("undefined field '{}'", select.field));
        }
        Expr::Comprehension(each) => {
            if !bound.is_empty() {
                return Err("a loop in a loop is not evaluated here".to_owned());
            }
            in_loop = [each.iter_var.as_str(), each.accu_var.as_str()];
            bound = &in_loop;
        }
        _ => {}
    }
    let Some(parts) = parts(expression) else {
        return Err("a message is not evaluated here".to_owned());
    };
    parts
        .into_iter()
        .try_for_each(|part| check(part, depth + 1, bound))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(expression: &str, request: &Value) -> Result<bool, String> {
        let object = json!({"metadata": {"name": "x", "labels": {"app": "web"}}, "spec": {"replicas": 3}});
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
            ("request.userInfo.groups.exists(g, g == 'system:masters')", true),
            ("size(request.namespace) == 1 || 2 < 1", false),
            ("object.spec.replicas + 1 == 4", true),
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
            "request.userInfo.groups.all(g, request.userInfo.groups.exists(h, g == h))",
            "request.userInfo.groups.map(g, g + 'x').exists(g, g == 'x')",
            "request.userInfo.groups.exists(g, h == 'x')",
            "has(request)",
            "'text'",
            "['text']",
            "1 - 2 == 3",
            "true &&",
            "true & false",
        ] {
            assert!(Program::compile(expression).is_err(), "{expression:?} compiled");
        }
        assert!(Program::compile(&"!".repeat(10_000)).is_err(), "depth is bounded");
        assert!(Program::compile(&"(".repeat(10_000)).is_err(), "depth is bounded");
        for deep in ["true == ", "1 < ", "1 in ", "1 + ", "true ? true : "] {
            let text = format!("{}true", deep.repeat(MAX_LENGTH / deep.len() - 1));
            assert!(Program::compile(&text).is_err(), "depth is bounded: {deep}");
        }
        assert!(Program::compile(&format!("true{}", " || false".repeat(200))).is_ok());
    }
}
