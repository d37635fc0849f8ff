//! A ValidatingAdmissionPolicy, evaluated as an API server does it.

use std::sync::Arc;

use cel::common::types::{CelInt, DYN_TYPE, LIST_TYPE};
use cel::common::value::CowVal;
use cel::{Context, Env, ExecutionError, Program, Value as Cel, extensions, to_value};
use serde_json::Value;

type Overload = for<'b, 'v> fn(Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError>;

/// Variables and validations, each compiled, by their names and messages.
pub struct Policy {
    env: Arc<Env>,
    variables: Vec<(String, Program)>,
    validations: Vec<(String, Program)>,
}

/// One request, as far as the fence looks at it.
pub struct Request<'a> {
    pub operation: &'a str,
    pub resource: &'a str,
    pub name: &'a str,
    pub before: Value,
    pub after: Value,
}

impl Policy {
    /// Compiles a policy, with those of its validations that are wanted.
    pub fn new(policy: &Value, wanted: impl Fn(&str) -> bool) -> Self {
        let mut env = Env::stdlib();
        extensions::strings(&mut env).unwrap();
        // Of Kubernetes' own list library.
        for (name, id, place) in [
            ("indexOf", "list.indexOf(dyn)", first as Overload),
            ("lastIndexOf", "list.lastIndexOf(dyn)", last),
        ] {
            env.add_member_overload(name, id, LIST_TYPE, vec![DYN_TYPE], place)
                .unwrap();
        }
        let compiled = |expression: &Value| {
            let text = expression.as_str().unwrap();
            env.compile(text)
                .unwrap_or_else(|error| panic!("{text}: {error}"))
        };
        let of = |list: &str, name: &str| -> Vec<(String, Program)> {
            let list = policy["spec"][list].as_array().unwrap().iter();
            let named = list.map(|entry| (entry[name].as_str().unwrap(), &entry["expression"]));
            named
                .map(|(name, text)| (name.to_owned(), compiled(text)))
                .collect()
        };
        let variables = of("variables", "name").into_iter();
        let variables = variables.map(|(name, program)| (format!("variables.{name}"), program));
        let mut validations = of("validations", "message");
        validations.retain(|(message, _)| wanted(message));
        Self {
            variables: variables.collect(),
            validations,
            env: Arc::new(env),
        }
    }

    /// The messages of its validations.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.validations.iter().map(|(message, _)| message.as_str())
    }

    /// What it says against a request; `None` when it lets it through. What errs is refused (`failurePolicy: Fail`).
    pub fn refusal(&self, request: &Request<'_>) -> Option<String> {
        let mut context = Context::with_env(Arc::clone(&self.env));
        let asked = serde_json::json!({
            "operation": request.operation, "name": request.name, "resource": {"resource": request.resource},
        });
        for (name, value) in [
            ("request", &asked),
            ("object", &request.after),
            ("oldObject", &request.before),
        ] {
            context.add_variable_from_value(name, to_value(value).unwrap());
        }
        for (name, program) in &self.variables {
            // One that errs is missing for whoever needs it, and for nobody else.
            if let Ok(value) = program.execute(&context) {
                context.add_variable_from_value(name.clone(), value);
            }
        }
        let mut validations = self.validations.iter();
        validations.find_map(|(message, program)| match program.execute(&context) {
            Ok(Cel::Bool(true)) => None,
            Ok(_) => Some(message.clone()),
            Err(error) => Some(format!("{message}: {error}")),
        })
    }
}

fn first<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    place(&arguments, false)
}

fn last<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    place(&arguments, true)
}

/// Where something stands in a list; -1 where it does not.
fn place<'b, 'v>(arguments: &[CowVal<'b, 'v>], last: bool) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [list, sought] = arguments else {
        return Err(ExecutionError::missing_argument_or_target());
    };
    let list = list.as_ref().as_iterable();
    let list =
        list.ok_or_else(|| ExecutionError::function_error("indexOf", "of something other than a list"))?;
    let (mut items, mut found, mut at) = (list.iter(), -1, 0);
    while let Some(item) = items.next() {
        if item.equals(sought.as_ref()) && (last || found < 0) {
            found = at;
        }
        at += 1;
    }
    Ok(CowVal::owned(CelInt::from(found)))
}
