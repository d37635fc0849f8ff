//! What the owner's `matchConditions` say of a request.
//!
//! The API server shows a webhook a request if all of its conditions are true, and does not if one is false, whatever
//! becomes of the others (kube-apiserver 1.36, `admission/plugin/webhook/matchconditions`). Here they are evaluated against
//! requests that hookwatch makes up, of which it knows who writes what, and not the object. What cannot be told for that,
//! and what could cost much to evaluate, is said to be unknown.

use std::sync::Arc;

use cel::common::ast::{EntryExpr, Expr, IdedExpr, operators as op};
use cel::{Context, Env, Program, Value, to_value};
use serde_json::json;

use super::{RequestShape, Requester};

/// Longer ones are not evaluated. The API server takes them as long as an object may be.
const MAX_BYTES: usize = 1_024;
/// Nor are those that are nested deeper: evaluation recurses.
const MAX_DEPTH: usize = 48;

/// What an expression may call. Nothing in it makes a long text of a short one, compiles a pattern, or asks anything but
/// the request.
const CALLS: [&str; 18] = [
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

/// A request as far as conditions may ask about it.
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

/// Compiles conditions.
pub struct ConditionCompiler(Arc<Env>);

impl Default for ConditionCompiler {
    fn default() -> Self {
        Self(Arc::new(Env::stdlib()))
    }
}

/// The conditions of a hook.
pub struct MatchConditions {
    env: Arc<Env>,
    /// `None` for one that is not evaluated.
    programs: Vec<Option<Program>>,
}

impl ConditionCompiler {
    /// The conditions with these expressions.
    pub fn conditions<'a>(&self, expressions: impl Iterator<Item = &'a str>) -> MatchConditions {
        let programs = expressions.map(|text| {
            let text = Some(text).filter(|text| text.len() <= MAX_BYTES)?;
            let program = self.0.compile(text).ok()?;
            may_be_evaluated(program.expression(), &CALLS).then_some(program)
        });
        MatchConditions {
            env: Arc::clone(&self.0),
            programs: programs.collect(),
        }
    }
}

impl MatchConditions {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.programs.len()
    }

    /// Whether they let a request through to the hook; `None` where that cannot be told.
    pub fn let_through(&self, asked: &ConditionRequest<'_>) -> Option<bool> {
        if self.programs.is_empty() {
            return Some(true);
        }
        let mut context = Context::with_env(Arc::clone(&self.env));
        context.add_variable_from_value("request", to_value(asked.request()).ok()?);
        let says = |program: &Option<Program>| match program.as_ref()?.execute(&context) {
            Ok(Value::Bool(says)) => Some(says),
            _ => None,
        };
        let said: Vec<Option<bool>> = self.programs.iter().map(says).collect();
        if said.contains(&Some(false)) {
            Some(false)
        } else {
            said.into_iter().collect::<Option<Vec<bool>>>().map(|_| true)
        }
    }
}

impl ConditionRequest<'_> {
    /// As conditions see it. What is left out cannot be asked about; what an API server leaves out of an AdmissionReview
    /// because it is empty is left out as well.
    pub(super) fn request(&self) -> serde_json::Value {
        let shape = &self.shape;
        let resource = json!({"group": shape.group, "version": shape.version, "resource": shape.resource});
        let mut kind = json!({"group": shape.group, "version": shape.version});
        if let Some(known) = self.kind {
            kind["kind"] = known.into();
        }
        let mut request = json!({
            "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
            "name": self.name, "operation": shape.operation, "dryRun": self.dry_run,
            "userInfo": {"username": self.by.user, "groups": self.by.groups},
        });
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

/// Whether an expression calls nothing but these, is not nested too deep, and has no loop within a loop.
pub(super) fn may_be_evaluated(expression: &IdedExpr, calls: &[&str]) -> bool {
    let mut open = vec![(expression, 0, false)];
    while let Some((expression, depth, looping)) = open.pop() {
        if depth > MAX_DEPTH {
            return false;
        }
        let mut inner: Vec<&IdedExpr> = Vec::new();
        let mut loops = looping;
        match &expression.expr {
            Expr::Unspecified | Expr::Struct(_) => return false,
            Expr::Ident(_) | Expr::Literal(_) => {}
            Expr::Call(call) if calls.contains(&&*call.func_name) => {
                inner.extend(call.target.iter().map(AsRef::as_ref).chain(&call.args));
            }
            Expr::Call(_) => return false,
            Expr::Comprehension(_) if looping => return false,
            Expr::Comprehension(each) => {
                loops = true;
                inner.extend([&each.iter_range, &each.accu_init, &each.loop_cond]);
                inner.extend([&each.loop_step, &each.result]);
            }
            Expr::List(list) => inner.extend(&list.elements),
            Expr::Map(map) => {
                for entry in &map.entries {
                    match &entry.expr {
                        EntryExpr::StructField(_) => return false,
                        EntryExpr::MapEntry(entry) => inner.extend([&entry.key, &entry.value]),
                    }
                }
            }
            Expr::Select(select) => inner.push(&select.operand),
        }
        open.extend(inner.into_iter().map(|inner| (inner, depth + 1, loops)));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What conditions say of the renewal of a node's Lease.
    fn says(conditions: &[&str]) -> Option<bool> {
        let conditions = ConditionCompiler::default().conditions(conditions.iter().copied());
        conditions.let_through(&ConditionRequest {
            shape: RequestShape {
                operation: "UPDATE",
                group: "coordination.k8s.io",
                version: "v1",
                resource: "leases",
                namespace: Some("kube-node-lease"),
                ..RequestShape::default()
            },
            kind: Some("Lease"),
            name: "node-1",
            by: Requester {
                user: "system:node:node-1",
                groups: &["system:nodes", "system:authenticated"],
            },
            dry_run: false,
        })
    }

    #[test]
    fn what_conditions_ask_about_the_request_is_answered() {
        for (expression, wanted) in [
            ("true", true),
            ("request.operation == 'UPDATE' && request.name != 'x'", true),
            ("!('system:nodes' in request.userInfo.groups)", false),
            ("!request.userInfo.username.startsWith('system:node:')", false),
            ("request.userInfo.groups.exists(g, g.endsWith(':nodes'))", true),
            ("request.resource.group != 'coordination.k8s.io'", false),
            (
                "!(request.namespace in ['kube-system', 'kube-node-lease'])",
                false,
            ),
            ("request.dryRun", false),
            (
                "has(request.subResource) && request.subResource == 'status'",
                false,
            ),
            (
                "request.kind.kind == 'Lease' ? request.name.size() > 3 : false",
                true,
            ),
        ] {
            assert_eq!(says(&[expression]), Some(wanted), "{expression}");
        }
    }

    #[test]
    fn what_conditions_ask_about_the_object_or_the_authorizer_is_unknown() {
        for expression in [
            "object.metadata.labels['a'] == 'b'",
            "!has(oldObject.metadata)",
            "authorizer.group('').resource('pods').check('create').allowed()",
            "request.uid == ''",
            "request.options.dryRun == ['All']",
            "request.userInfo.extra['a'] == ['b']",
            "request.name.matches('^n')",
            "no CEL at all",
            "",
        ] {
            assert_eq!(says(&[expression]), None, "{expression}");
        }
    }

    #[test]
    fn one_that_is_false_keeps_a_request_away_whatever_the_others_say() {
        assert_eq!(says(&[]), Some(true));
        assert_eq!(says(&["object.x", "false", "true"]), Some(false));
        assert_eq!(says(&["true", "object.x"]), None);
        assert_eq!(says(&["true", "true"]), Some(true));
    }

    #[test]
    fn what_would_take_long_or_recurse_deep_is_not_evaluated() {
        let long = format!("true{}", " || true".repeat(200));
        let deep = format!("{}true{}", "(".repeat(400), ")".repeat(400));
        let chain = format!("request{} == ''", ".a".repeat(400));
        let sum = format!("1{} > 0", "+1".repeat(400));
        let list = format!("[{}]", ["1"; 100].join(","));
        let loops = format!("{list}.all(a, {list}.all(b, a == b))");
        let grows = format!("'a'{}.size() > 0", ".replace('a', 'aaaaaaaa')".repeat(30));
        for expression in [long, deep, chain, sum, loops, grows] {
            assert_eq!(says(&[&expression]), None, "{expression}");
        }
    }
}
