//! Checks a CEL expression before it is evaluated (which functions it calls, how deeply it nests, which variables it uses), and
//! converts JSON to the values of its variables.

use std::collections::HashMap;

use cel::Value;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators as op};
use serde_json::Value as Json;

/// Deepest nesting of an expression that is evaluated. Evaluation recurses, and must not overflow the stack.
const MAX_DEPTH: usize = 48;
/// Longest regular expression of a call of `matches` that is compiled, in bytes.
const MAX_PATTERN: usize = 256;
/// Most calls of `matches` in an expression. Each compiles its pattern again whenever it is evaluated.
const MAX_PATTERNS: usize = 8;
/// Most operators and fields ([`links`]) of an expression that is parsed.
pub const MAX_LINKS: usize = 1_000;

/// The operators and functions that any expression may call. None of them makes a long text from a short one, compiles a
/// pattern, or depends on anything but its arguments.
pub const CALLS: [&str; 18] = [
    op::CONDITIONAL,
    op::LOGICAL_AND,
    op::LOGICAL_OR,
    op::LOGICAL_NOT,
    op::ADD,
    op::EQUALS,
    op::NOT_EQUALS,
    op::GREATER_EQUALS,
    op::LESS_EQUALS,
    op::GREATER,
    op::LESS,
    op::INDEX,
    op::IN,
    op::NOT_STRICTLY_FALSE,
    "startsWith",
    "endsWith",
    "contains",
    "size",
];

/// Operators and functions that an expression may call in a forecast only. None of them makes a long text from a short one: `join`
/// does, with a long separator, so it is not here.
pub(super) const FURTHER_CALLS: [&str; 18] = [
    op::SUBSTRACT,
    op::NEGATE,
    op::OPT_INDEX,
    op::OPT_SELECT,
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
    "string",
    "int",
    "type",
];

/// Functions of Kubernetes' CEL libraries that are not implemented here, such as the authorizer's (`apiserver/pkg/cel/library`).
/// Calling one is an error, which makes the result unknown unless the rest of the expression decides it.
pub(super) const UNKNOWN: [&str; 20] = [
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

/// Fields of a request that [`super::conditions::ConditionRequest`] does not have.
const UNKNOWN_FIELDS: [&str; 3] = ["options", "extra", "uid"];
/// Operators that select a field by a string, as `.field` does.
const SELECTS: [&str; 3] = [op::OPT_SELECT, op::INDEX, op::OPT_INDEX];

/// Parts of an expression that can make its result unknown, or evaluation expensive.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mentions {
    pub(super) object: bool,
    pub(super) old_object: bool,
    /// It uses the authorizer, a variable of policies, or a function of [`UNKNOWN`].
    pub(super) unknowable: bool,
    /// It uses a field of [`UNKNOWN_FIELDS`], which `has` would wrongly find absent.
    pub(super) unknown_field: bool,
    /// It uses the name of the request's kind, which `has` would wrongly find absent if the caller does not know it.
    pub(super) kind: bool,
    /// It calls `matches` with a long pattern or with one that is no literal, as a pattern from the request could cost anything, or
    /// more than [`MAX_PATTERNS`] times.
    pub(super) costly_pattern: bool,
}

impl Mentions {
    /// Records that the expression selects `field` of `operand`.
    fn select(&mut self, operand: &IdedExpr, field: &str) {
        if is_request(operand) {
            self.unknown_field |= UNKNOWN_FIELDS.contains(&field);
            // `request.kind` itself has its group and version.
            self.kind |= field == "kind" && !matches!(operand.expr, Expr::Ident(_));
        }
    }
}

/// An upper bound of the number of operators and fields in an expression's text. A chain of them becomes a syntax tree of the
/// same depth, and even dropping it recurses. Chains of `&&` and `||`, and parentheses, do not count: the parser balances or
/// limits them.
pub fn links(text: &str) -> usize {
    let signs = text.bytes().filter(|byte| b"+-*/%.[?<>=".contains(byte));
    signs.count() + text.matches("in").count()
}

/// Converts JSON to a CEL value. A whole number becomes an `int`, as in the API server, which has the schema; serde would make it
/// a `uint`, which CEL does not add to an `int`.
pub fn value_of(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(value) => match value.as_i64() {
            Some(value) => Value::Int(value),
            None => Value::Float(value.as_f64().unwrap_or_default()),
        },
        Json::String(value) => value.as_str().into(),
        Json::Array(items) => items.iter().map(value_of).collect::<Vec<_>>().into(),
        Json::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(field, value)| (field.as_str(), value_of(value)));
            fields.collect::<HashMap<_, _>>().into()
        }
    }
}

/// The direct subexpressions of an expression; `None` for a message literal or an unspecified node, which are not evaluated.
pub fn parts(expression: &IdedExpr) -> Option<Vec<&IdedExpr>> {
    Some(match &expression.expr {
        Expr::Unspecified | Expr::Struct(_) => return None,
        Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => call.target.iter().map(AsRef::as_ref).chain(&call.args).collect(),
        Expr::Comprehension(each) => {
            let range = [&each.iter_range, &each.accu_init, &each.loop_cond];
            range.into_iter().chain([&each.loop_step, &each.result]).collect()
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => {
            let entries = map.entries.iter().map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => Some([&entry.key, &entry.value]),
                EntryExpr::StructField(_) => None,
            });
            entries
                .collect::<Option<Vec<_>>>()?
                .into_iter()
                .flatten()
                .collect()
        }
        Expr::Select(select) => vec![&select.operand],
    })
}

/// Whether an expression calls only `calls`, nests no deeper than [`MAX_DEPTH`], and has no loop within a loop or over the result
/// of one, and no `matches` in a loop.
pub(super) fn may_be_evaluated(expression: &IdedExpr, calls: &[&str]) -> bool {
    let mut open = vec![(expression, 0, false)];
    while let Some((expression, depth, looping)) = open.pop() {
        let (permitted, loops) = match &expression.expr {
            Expr::Call(call) => {
                let compiles = looping && call.func_name == "matches";
                (calls.contains(&&*call.func_name) && !compiles, looping)
            }
            Expr::Comprehension(_) => (!looping, true),
            _ => (true, looping),
        };
        match parts(expression) {
            Some(parts) if permitted && depth <= MAX_DEPTH => {
                open.extend(parts.into_iter().map(|part| (part, depth + 1, loops)));
            }
            _ => return false,
        }
    }
    true
}

/// The [`Mentions`] of an expression and all its subexpressions.
pub(super) fn mentions(expression: &IdedExpr) -> Mentions {
    let mut found = Mentions::default();
    let mut patterns = 0;
    let mut open = vec![expression];
    while let Some(expression) = open.pop() {
        match &expression.expr {
            Expr::Ident(name) => match name.as_str() {
                "object" => found.object = true,
                "oldObject" => found.old_object = true,
                "authorizer" | "params" | "variables" => found.unknowable = true,
                _ => {}
            },
            Expr::Call(call) => {
                found.unknowable |= UNKNOWN.contains(&&*call.func_name);
                if SELECTS.contains(&&*call.func_name)
                    && let [operand, field, ..] = &call.args[..]
                    && let Some(field) = literal(field)
                {
                    found.select(operand, field);
                }
                if call.func_name == "matches" {
                    patterns += 1;
                    let pattern = call.args.last().and_then(literal);
                    found.costly_pattern |= pattern.is_none_or(|pattern| pattern.len() > MAX_PATTERN);
                    found.costly_pattern |= patterns > MAX_PATTERNS;
                }
            }
            Expr::Select(select) => found.select(&select.operand, &select.field),
            _ => {}
        }
        open.extend(parts(expression).into_iter().flatten());
    }
    found
}

fn literal(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// Whether an expression is the variable `request` or a field of it.
fn is_request(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Ident(name) => name == "request",
        Expr::Select(select) => is_request(&select.operand),
        Expr::Call(call) if SELECTS.contains(&&*call.func_name) => call.args.first().is_some_and(is_request),
        _ => false,
    }
}
