//! A ValidatingAdmissionPolicy, evaluated as an API server does it.

use std::sync::Arc;

use cel::common::types::{CelInt, DYN_TYPE, LIST_TYPE};
use cel::common::value::CowVal;
use cel::{Context, Env, ExecutionError, Program, Value as Cel, extensions};
use hookwatch_domain::cluster::matching::expression::value_of;
use serde_json::Value;

type Overload = for<'b, 'v> fn(Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError>;

/// Variables and validations.
pub struct Policy {
    env: Arc<Env>,
    variables: Vec<Clause>,
    validations: Vec<Clause>,
}

/// A variable by its name, or a validation by its message.
struct Clause {
    name: String,
    program: Program,
    /// The places of the variables that it needs, those that these need before them.
    needs: Vec<usize>,
    /// Whether it looks at the object that is written.
    is_of_object: bool,
}

/// One request, as far as the fence looks at it, but for the object that it writes.
pub struct Request<'a> {
    pub operation: &'a str,
    pub resource: &'a str,
    pub name: &'a str,
    pub before: &'a Value,
}

/// A policy that knows a request but for the object that it writes.
pub struct Asked<'a> {
    policy: &'a Policy,
    context: Context<'static, 'static>,
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
        let clause = |name: &str, expression: &Value, known: &[Clause]| {
            let text = expression.as_str().unwrap();
            let mut needs = Vec::new();
            for (place, variable) in known.iter().enumerate() {
                let is_end =
                    |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
                if text.split(&variable.name).skip(1).any(is_end) {
                    needs.extend(variable.needs.iter().copied().chain([place]));
                }
            }
            needs.sort_unstable();
            needs.dedup();
            let program = env.compile(text);
            let program = program.unwrap_or_else(|error| panic!("{text}: {error}"));
            Clause {
                name: name.to_owned(),
                program,
                is_of_object: text.contains("object") || needs.iter().any(|place| known[*place].is_of_object),
                needs,
            }
        };
        let listed = |list: &str| policy["spec"][list].as_array().unwrap().iter();
        let mut variables = Vec::new();
        for entry in listed("variables") {
            let name = format!("variables.{}", entry["name"].as_str().unwrap());
            let variable = clause(&name, &entry["expression"], &variables);
            variables.push(variable);
        }
        let validations = listed("validations").filter_map(|entry| {
            let message = entry["message"].as_str().unwrap();
            wanted(message).then(|| clause(message, &entry["expression"], &variables))
        });
        Self {
            validations: validations.collect(),
            variables,
            env: Arc::new(env),
        }
    }

    /// The messages of its validations.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        self.validations.iter().map(|clause| clause.name.as_str())
    }

    /// Evaluates the variables that do not look at the object that is written.
    pub fn asked(&self, request: &Request<'_>) -> Asked<'_> {
        let mut context = Context::with_env(Arc::clone(&self.env));
        let asked = serde_json::json!({
            "operation": request.operation, "name": request.name, "resource": {"resource": request.resource},
        });
        for (name, value) in [("request", &asked), ("oldObject", request.before)] {
            context.add_variable_from_value(name, value_of(value));
        }
        for variable in self.variables.iter().filter(|variable| !variable.is_of_object) {
            variable.evaluate(&mut context);
        }
        Asked {
            policy: self,
            context,
        }
    }
}

impl Clause {
    /// Adds a variable's value. One that errs is missing for what needs it, and for nothing else.
    fn evaluate(&self, context: &mut Context<'_, '_>) {
        if let Ok(value) = self.program.execute(context) {
            context.add_variable_from_value(self.name.clone(), value);
        }
    }
}

impl Asked<'_> {
    /// What the policy says against an object that is written; `None` when it lets it through. What errs is refused
    /// (`failurePolicy: Fail`).
    ///
    /// A variable is evaluated when the first that needs it is, as an API server does it.
    pub fn refusal(&self, after: &Value) -> Option<String> {
        let Policy {
            variables,
            validations,
            ..
        } = self.policy;
        let mut context = self.context.new_inner_scope();
        context.add_variable_from_value("object", value_of(after));
        let mut known: Vec<bool> = variables.iter().map(|variable| !variable.is_of_object).collect();
        validations.iter().find_map(|clause| {
            for place in &clause.needs {
                if !std::mem::replace(&mut known[*place], true) {
                    variables[*place].evaluate(&mut context);
                }
            }
            match clause.program.execute(&context) {
                Ok(Cel::Bool(true)) => None,
                Ok(_) => Some(clause.name.clone()),
                Err(error) => Some(format!("{}: {error}", clause.name)),
            }
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
