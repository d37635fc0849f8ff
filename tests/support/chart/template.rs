//! The subset of Go templates that the chart uses. Anything else panics with the text in question, as does a missing value,
//! for which Helm would print nothing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The templates of a chart: parsed files by path, and named templates by name.
pub struct Templates {
    files: BTreeMap<String, Vec<Node>>,
    named: BTreeMap<String, Vec<Node>>,
    chart_files: BTreeMap<String, String>,
}

enum Node {
    Text(String),
    Print(Pipe),
    /// The condition, then the nodes for true and for false.
    If(Pipe, Vec<Self>, Vec<Self>),
    /// The condition's value as the dot, and the nodes if it is true.
    With(Pipe, Vec<Self>),
    /// The nodes for each item of a list as the dot.
    Range(Pipe, Vec<Self>),
}

/// Commands; each gets the result of the one before as its last argument.
type Pipe = Vec<Vec<Term>>;

enum Term {
    /// A path from the dot, or from the root.
    Path(bool, Vec<String>),
    Literal(Value),
    Function(String),
    Nested(Pipe),
}

enum Token {
    Text(String),
    Action(Vec<String>),
}

impl Templates {
    /// Parses templates by path. `chart_files` are the files for `.Files.Get`.
    pub fn read(templates: &BTreeMap<String, String>, chart_files: BTreeMap<String, String>) -> Self {
        let mut named = BTreeMap::new();
        let mut files = BTreeMap::new();
        for (path, text) in templates {
            let mut tokens = tokens(text).into_iter();
            let (nodes, end) = nodes(&mut tokens, &mut named);
            assert_eq!(end, "", "{path}: an end of nothing");
            files.insert(path.clone(), nodes);
        }
        Self {
            files,
            named,
            chart_files,
        }
    }

    /// The output of a template.
    pub fn rendered(&self, path: &str, root: &Value) -> String {
        self.printed(&self.files[path], root, root)
    }

    fn printed(&self, nodes: &[Node], root: &Value, dot: &Value) -> String {
        let one = |node: &Node| match node {
            Node::Text(text) => text.clone(),
            Node::Print(pipe) => shown(&self.value(pipe, root, dot)),
            Node::If(asked, yes, no) => {
                let chosen = if is_true(&self.value(asked, root, dot)) {
                    yes
                } else {
                    no
                };
                self.printed(chosen, root, dot)
            }
            Node::With(asked, nodes) => {
                let value = self.value(asked, root, dot);
                if is_true(&value) {
                    self.printed(nodes, root, &value)
                } else {
                    String::new()
                }
            }
            Node::Range(list, nodes) => {
                let list = self.value(list, root, dot);
                let items = list.as_array().expect("a list").iter();
                items.map(|item| self.printed(nodes, root, item)).collect()
            }
        };
        nodes.iter().map(one).collect()
    }

    fn value(&self, pipe: &Pipe, root: &Value, dot: &Value) -> Value {
        let mut before = None;
        for command in pipe {
            let mut terms = command.iter();
            let first = terms.next().expect("a command");
            let arguments = terms.map(|term| self.term(term, root, dot)).chain(before.take());
            let arguments: Vec<Value> = arguments.collect();
            before = Some(match first {
                Term::Function(name) => self.call(name, &arguments, root),
                Term::Path(_, path) if path.join(".") == "Files.Get" => {
                    let file = text(&arguments[0]);
                    self.chart_files
                        .get(file)
                        .unwrap_or_else(|| panic!("no file {file}"))
                        .clone()
                        .into()
                }
                term => {
                    assert!(arguments.is_empty(), "{arguments:?} are given to a value");
                    self.term(term, root, dot)
                }
            });
        }
        before.expect("a pipe")
    }

    fn term(&self, term: &Term, root: &Value, dot: &Value) -> Value {
        match term {
            Term::Literal(value) => value.clone(),
            Term::Nested(pipe) => self.value(pipe, root, dot),
            Term::Function(name) => panic!("{name} is an argument"),
            Term::Path(is_root, path) => {
                let mut at = if *is_root { root } else { dot };
                for key in path {
                    at = at.get(key).unwrap_or_else(|| panic!("there is no {path:?}"));
                }
                at.clone()
            }
        }
    }

    fn call(&self, name: &str, arguments: &[Value], root: &Value) -> Value {
        match (name, arguments) {
            ("include", [name, dot]) => {
                let nodes = self
                    .named
                    .get(text(name))
                    .unwrap_or_else(|| panic!("no template {name}"));
                assert_eq!(dot, root, "templates are included with all values");
                self.printed(nodes, root, dot).into()
            }
            ("toYaml", [value]) => serde_saphyr::to_string(value).unwrap().trim_end().into(),
            ("toJson", [value]) => value.to_string().into(),
            ("quote", [value]) => format!("{:?}", shown(value)).into(),
            ("squote", [value]) => format!("'{}'", shown(value)).into(),
            ("indent", [by, value]) => indented(by, text(value)).into(),
            ("nindent", [by, value]) => format!("\n{}", indented(by, text(value))).into(),
            ("sha256sum", [value]) => {
                let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text(value).as_bytes());
                digest
                    .as_ref()
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<String>()
                    .into()
            }
            ("default", [default, value]) => if is_true(value) { value } else { default }.clone(),
            ("ternary", [yes, no, asked]) => if is_true(asked) { yes } else { no }.clone(),
            ("list", values) => values.into(),
            ("kindIs", [kind, value]) => match text(kind) {
                "slice" => value.is_array().into(),
                kind => panic!("{kind} is not among the kinds that the chart asks for"),
            },
            ("replace", [from, to, value]) => text(value).replace(text(from), text(to)).into(),
            ("has", [value, list]) => list.as_array().expect("a list").contains(value).into(),
            ("fail", [why]) => panic!("the chart refuses this: {}", text(why)),
            ("not", [value]) => (!is_true(value)).into(),
            ("or", values) => values
                .iter()
                .find(|value| is_true(value))
                .unwrap_or(&values[values.len() - 1])
                .clone(),
            ("dict", pairs) => {
                let pairs = pairs
                    .chunks(2)
                    .map(|pair| (text(&pair[0]).to_owned(), pair[1].clone()));
                Value::Object(pairs.collect())
            }
            ("merge", maps) => {
                let mut merged = json!({});
                for map in maps.iter().rev() {
                    json_patch::merge(&mut merged, map);
                }
                merged
            }
            _ => panic!(
                "{name} with {} arguments is not among what the chart uses",
                arguments.len()
            ),
        }
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        value => panic!("{value} is printed"),
    }
}

fn indented(by: &Value, text: &str) -> String {
    let by = " ".repeat(by.as_u64().expect("a number") as usize);
    let lines: Vec<String> = text.split('\n').map(|line| format!("{by}{line}")).collect();
    lines.join("\n")
}

/// Splits a template into texts and actions. Removes comments, and whitespace next to a `-`.
fn tokens(template: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut rest, mut trims) = (template, false);
    loop {
        let (before, action) = rest
            .split_once("{{")
            .map_or((rest, None), |(before, after)| (before, Some(after)));
        let mut before = if trims { before.trim_start() } else { before };
        if action.is_some_and(|action| action.starts_with("- ")) {
            before = before.trim_end();
        }
        tokens.push(Token::Text(before.to_owned()));
        let Some(action) = action else {
            return tokens;
        };
        let (inside, after) = action
            .split_once("}}")
            .unwrap_or_else(|| panic!("no end: {action}"));
        let inside = inside.strip_prefix("- ").unwrap_or(inside);
        trims = inside.ends_with(" -");
        let inside = inside.strip_suffix(" -").unwrap_or(inside).trim();
        if !inside.starts_with("/*") {
            tokens.push(Token::Action(words(inside)));
        }
        rest = after;
    }
}

/// The words of an action: names, texts in quotes, parentheses and bars.
fn words(action: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for letter in action.chars() {
        let ends = !is_quoted && (letter.is_whitespace() || "()|".contains(letter));
        if letter == '"' {
            is_quoted = !is_quoted;
        }
        if !ends {
            word.push(letter);
            continue;
        }
        words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        words.extend((!letter.is_whitespace()).then(|| letter.to_string()));
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// Parses nodes up to an `else`, an `end` or the end of the text, and returns which it was.
fn nodes(
    tokens: &mut impl Iterator<Item = Token>,
    named: &mut BTreeMap<String, Vec<Node>>,
) -> (Vec<Node>, &'static str) {
    let mut all = Vec::new();
    while let Some(token) = tokens.next() {
        let action = match token {
            Token::Text(text) => {
                all.push(Node::Text(text));
                continue;
            }
            Token::Action(action) => action,
        };
        let rest = || pipe(&mut action[1..].iter().map(String::as_str));
        match action[0].as_str() {
            "end" => return (all, "end"),
            "else" => return (all, "else"),
            "define" => {
                let (body, _) = nodes(tokens, named);
                named.insert(action[1].trim_matches('"').to_owned(), body);
            }
            "with" => all.push(Node::With(rest(), nodes(tokens, named).0)),
            "range" => all.push(Node::Range(rest(), nodes(tokens, named).0)),
            "if" => {
                let (yes, end) = nodes(tokens, named);
                let no = if end == "else" {
                    nodes(tokens, named).0
                } else {
                    Vec::new()
                };
                all.push(Node::If(rest(), yes, no));
            }
            _ => all.push(Node::Print(pipe(&mut action.iter().map(String::as_str)))),
        }
    }
    (all, "")
}

/// Parses a pipe up to a closing parenthesis or the end.
fn pipe<'a>(words: &mut impl Iterator<Item = &'a str>) -> Pipe {
    let mut commands = vec![Vec::new()];
    while let Some(word) = words.next() {
        let path = |path: &str| {
            path.split('.')
                .filter(|key| !key.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let term = match word {
            ")" => break,
            "|" => {
                commands.push(Vec::new());
                continue;
            }
            "(" => Term::Nested(pipe(words)),
            word if word.starts_with('$') => Term::Path(true, path(&word[1..])),
            word if word.starts_with('.') => Term::Path(false, path(word)),
            word => match serde_json::from_str(word) {
                Ok(literal) => Term::Literal(literal),
                Err(_) => Term::Function(word.to_owned()),
            },
        };
        commands.last_mut().expect("a command").push(term);
    }
    commands
}

/// The root object of every template.
pub fn root(namespace: &str, chart: &Value, values: &Value) -> Value {
    json!({
        "Release": {"Name": "any-release", "Namespace": namespace},
        "Chart": {"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]},
        "Values": values,
    })
}
