//! What a CEL expression calls, how deep it goes, and what it asks about, before it is evaluated; and the values that it is
//! given.

use std::collections::HashMap;

use cel::Value;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators as op};
use serde_json::Value as Json;

/// Those that are nested deeper are not evaluated: evaluation recurses.
const MAX_DEPTH: usize = 48;
/// Longest pattern that is compiled, in bytes.
const MAX_PATTERN: usize = 256;
/// Most [`links`] of an expression that is parsed.
pub const MAX_LINKS: usize = 1_000;

/// What any expression may call. Nothing in it makes a long text of a short one, compiles a pattern, or asks anything but
/// the request.
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

/// What is evaluated in a forecast besides. None of them makes a long text of a short one: `join` is not here, as a list of
/// single characters is joined by a long text.
pub(super) const FURTHER_CALLS: [&str; 19] = [
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
    "exists_one",
    "type",
];

/// The authorizer's functions and others of Kubernetes that have no meaning here (`apiserver/pkg/cel/library`): calling one is an
/// error, which makes the answer unknown unless the rest of the expression decides it.
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

/// Fields of a request that [`super::conditions::ConditionRequest`] does not know.
const UNKNOWN_FIELDS: [&str; 3] = ["options", "extra", "uid"];
/// Calls that select a field by a text, as `.field` does.
const SELECTS: [&str; 3] = [op::OPT_SELECT, op::INDEX, op::OPT_INDEX];

/// What an expression asks about that may not be known.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mentions {
    pub(super) object: bool,
    pub(super) old_object: bool,
    /// The authorizer, or a function that has no meaning here.
    pub(super) unknowable: bool,
    /// A field of a request that is not known, for which `has` would say that it is absent.
    pub(super) unknown_field: bool,
    /// The name of the request's kind, for which it would say so where that is not known.
    pub(super) kind: bool,
    /// A pattern that does not stand in the expression itself, or is long: one that is made of the request could cost anything.
    pub(super) costly_pattern: bool,
}

impl Mentions {
    /// Takes in that a field of an expression is selected.
    fn select(&mut self, operand: &IdedExpr, field: &str) {
        if is_request(operand) {
            self.unknown_field |= UNKNOWN_FIELDS.contains(&field);
            // `request.kind` itself has its group and version.
            self.kind |= field == "kind" && !matches!(operand.expr, Expr::Ident(_));
        }
    }
}

/// At most how many operators and fields an expression has, by its text. It is parsed into a tree as deep as a chain of them is
/// long, which recursion takes apart, also to drop it. The parser itself balances `&&` and `||`, and limits parentheses.
pub fn links(text: &str) -> usize {
    let signs = text.bytes().filter(|byte| b"+-*/%.[?<>=".contains(byte));
    signs.count() + text.matches("in").count()
}

/// JSON as CEL sees it. A whole number is an `int`, as the API server has it from a schema; serde would make it a `uint`, which
/// no sum with an `int` takes.
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

/// What an expression is made of; `None` for a message or what is no expression, which are not evaluated.
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

/// Whether an expression calls nothing but these, is not nested too deep, and has no loop within a loop, nor over
/// what a loop makes.
pub(super) fn may_be_evaluated(expression: &IdedExpr, calls: &[&str]) -> bool {
    let mut open = vec![(expression, 0, false)];
    while let Some((expression, depth, looping)) = open.pop() {
        let (permitted, loops) = match &expression.expr {
            Expr::Call(call) => (calls.contains(&&*call.func_name), looping),
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

/// What an expression and everything in it asks about.
pub(super) fn mentions(expression: &IdedExpr) -> Mentions {
    let mut found = Mentions::default();
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
                    let pattern = call.args.last().and_then(literal);
                    found.costly_pattern |= pattern.is_none_or(|pattern| pattern.len() > MAX_PATTERN);
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

/// Whether it is the request or a part of it, by its own name.
fn is_request(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Ident(name) => name == "request",
        Expr::Select(select) => is_request(&select.operand),
        Expr::Call(call) if SELECTS.contains(&&*call.func_name) => call.args.first().is_some_and(is_request),
        _ => false,
    }
}
