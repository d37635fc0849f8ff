//! From text to a tree.

use serde_json::Value;

/// How deep parentheses, lists and negations may be nested.
const MAX_DEPTH: u32 = 64;
/// How many links a chain of operators may have: the tree leans to the left and is evaluated by recursion.
const MAX_CHAIN: u32 = 256;

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

/// The complaint about an expression that is no truth value.
pub(super) const NOT_BOOL: &str = "must evaluate to bool";

/// Names an expression may begin with.
const VARIABLES: [&str; 4] = ["request", "object", "oldObject", "namespaceObject"];

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Literal(Value),
    Variable(String),
    List(Vec<Expression>),
    Select(Box<Expression>, String),
    Index(Box<Expression>, Box<Expression>),
    Has(Box<Expression>, String),
    Not(Box<Expression>),
    Binary(Operator, Box<Expression>, Box<Expression>),
    Call(Box<Expression>, Method, Box<Expression>),
    Choice(Box<Expression>, Box<Expression>, Box<Expression>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    And,
    Or,
    Equal,
    Unequal,
    In,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    StartsWith,
    EndsWith,
    Contains,
}

/// Parses a whole expression that must be a truth value.
pub(super) fn parse(text: &str) -> Result<Expression, String> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
        links: 0,
    };
    let expression = parser.choice()?;
    if let Some(token) = parser.peek() {
        return Err(format!("Syntax error: unexpected {token}"));
    }
    if matches!(&expression, Expression::Literal(value) if !value.is_boolean())
        || matches!(expression, Expression::List(_))
    {
        return Err(NOT_BOOL.to_owned());
    }
    Ok(expression)
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Name(String),
    Literal(Value),
    Symbol(&'static str),
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name:?}"),
            Self::Literal(value) => write!(f, "{value}"),
            Self::Symbol(symbol) => write!(f, "{symbol:?}"),
        }
    }
}

const SYMBOLS: [&str; 16] = [
    "&&", "||", "==", "!=", "!", "(", ")", "[", "]", ".", ",", "?", ":", "<", ">", "-",
];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let raw_string = first == 'r' && rest[1..].starts_with(['"', '\'']);
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
        } else if matches!(first, '"' | '\'') || raw_string {
            let (value, after) = string(&rest[usize::from(raw_string)..], raw_string)?;
            tokens.push(Token::Literal(value.into()));
            rest = after;
        } else if first.is_ascii_alphanumeric() || first == '_' {
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            tokens.push(match word {
                "true" => Token::Literal(true.into()),
                "false" => Token::Literal(false.into()),
                "null" => Token::Literal(Value::Null),
                _ if first.is_ascii_digit() => {
                    let number: i64 = word.parse().map_err(|_| format!("invalid number {word:?}"))?;
                    Token::Literal(number.into())
                }
                _ => Token::Name(word.to_owned()),
            });
        } else {
            let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
            let symbol =
                symbol.ok_or_else(|| format!("Syntax error: token recognition error at: {first:?}"))?;
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// Reads a quoted string, raw or with the common escapes.
fn string(text: &str, raw: bool) -> Result<(String, &str), String> {
    let mut characters = text.char_indices();
    let quote = characters.next().map(|(_, quote)| quote);
    let mut value = String::new();
    while let Some((at, character)) = characters.next() {
        match character {
            _ if Some(character) == quote => return Ok((value, &text[at + character.len_utf8()..])),
            '\\' if !raw => match characters.next().map(|(_, escaped)| escaped) {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some(escaped @ ('\\' | '"' | '\'' | '`')) => value.push(escaped),
                _ => return Err("Syntax error: unknown escape in a string".to_owned()),
            },
            '\n' => break,
            _ => value.push(character),
        }
    }
    Err("Syntax error: a string has no end".to_owned())
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
    links: u32,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Symbol(found)) if *found == symbol);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        if self.take(symbol) {
            return Ok(());
        }
        match self.peek() {
            Some(token) => Err(format!("Syntax error: unexpected {token}, expected {symbol:?}")),
            None => Err(format!(
                "Syntax error: the end comes where {symbol:?} is expected"
            )),
        }
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("expression is nested deeper than {MAX_DEPTH} levels"));
        }
        let parsed = inner(self);
        self.depth -= 1;
        parsed
    }

    fn link(&mut self) -> Result<(), String> {
        self.links += 1;
        if self.links > MAX_CHAIN {
            return Err(format!("expression has more than {MAX_CHAIN} operators"));
        }
        Ok(())
    }

    fn choice(&mut self) -> Result<Expression, String> {
        let condition = self.or()?;
        if !self.take("?") {
            return Ok(condition);
        }
        self.deeper(|parser| {
            let yes = parser.choice()?;
            parser.expect(":")?;
            let no = parser.choice()?;
            Ok(Expression::Choice(
                Box::new(condition),
                Box::new(yes),
                Box::new(no),
            ))
        })
    }

    fn or(&mut self) -> Result<Expression, String> {
        let mut left = self.and()?;
        while self.take("||") {
            self.link()?;
            left = Expression::Binary(Operator::Or, Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expression, String> {
        let mut left = self.relation()?;
        while self.take("&&") {
            self.link()?;
            left = Expression::Binary(Operator::And, Box::new(left), Box::new(self.relation()?));
        }
        Ok(left)
    }

    fn relation(&mut self) -> Result<Expression, String> {
        let mut left = self.unary()?;
        loop {
            let operator = match self.peek() {
                Some(Token::Symbol("==")) => Operator::Equal,
                Some(Token::Symbol("!=")) => Operator::Unequal,
                Some(Token::Name(name)) if name == "in" => Operator::In,
                _ => return Ok(left),
            };
            self.at += 1;
            self.link()?;
            left = Expression::Binary(operator, Box::new(left), Box::new(self.unary()?));
        }
    }

    fn unary(&mut self) -> Result<Expression, String> {
        if self.take("!") {
            return self.deeper(|parser| Ok(Expression::Not(Box::new(parser.unary()?))));
        }
        self.member()
    }

    fn member(&mut self) -> Result<Expression, String> {
        let mut of = self.primary()?;
        loop {
            if self.take(".") {
                self.link()?;
                let name = self.name()?;
                of = if self.take("(") {
                    let method = method(&name)?;
                    let argument = self.deeper(Self::choice)?;
                    self.expect(")")?;
                    Expression::Call(Box::new(of), method, Box::new(argument))
                } else {
                    checked(of, name)?
                };
            } else if self.take("[") {
                self.link()?;
                let index = self.deeper(Self::choice)?;
                self.expect("]")?;
                of = Expression::Index(Box::new(of), Box::new(index));
            } else {
                return Ok(of);
            }
        }
    }

    fn primary(&mut self) -> Result<Expression, String> {
        if self.take("(") {
            let inner = self.deeper(Self::choice)?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.take("[") {
            return self.deeper(Self::list);
        }
        match self.peek().cloned() {
            Some(Token::Literal(value)) => {
                self.at += 1;
                Ok(Expression::Literal(value))
            }
            Some(Token::Name(name)) => {
                self.at += 1;
                if self.take("(") {
                    return self.function(&name);
                }
                if VARIABLES.contains(&name.as_str()) {
                    return Ok(Expression::Variable(name));
                }
                Err(format!("undeclared reference to '{name}' (in container '')"))
            }
            Some(token) => Err(format!("Syntax error: unexpected {token}")),
            None => Err("Syntax error: mismatched input '<EOF>'".to_owned()),
        }
    }

    fn list(&mut self) -> Result<Expression, String> {
        let mut items = Vec::new();
        while !self.take("]") {
            if !items.is_empty() {
                self.expect(",")?;
                if self.take("]") {
                    break;
                }
            }
            items.push(self.choice()?);
        }
        Ok(Expression::List(items))
    }

    fn function(&mut self, name: &str) -> Result<Expression, String> {
        if name != "has" {
            return Err(format!("undeclared reference to '{name}' (in container '')"));
        }
        let argument = self.deeper(Self::choice)?;
        self.expect(")")?;
        match argument {
            Expression::Select(of, field) => Ok(Expression::Has(of, field)),
            _ => Err("invalid argument to has() macro".to_owned()),
        }
    }

    fn name(&mut self) -> Result<String, String> {
        match self.peek().cloned() {
            Some(Token::Name(name)) => {
                self.at += 1;
                Ok(name)
            }
            Some(token) => Err(format!("Syntax error: unexpected {token}, expected a field")),
            None => Err("Syntax error: the end comes where a field is expected".to_owned()),
        }
    }
}

fn method(name: &str) -> Result<Method, String> {
    match name {
        "startsWith" => Ok(Method::StartsWith),
        "endsWith" => Ok(Method::EndsWith),
        "contains" => Ok(Method::Contains),
        _ => Err(format!("undeclared reference to '{name}' (in container '')")),
    }
}

/// A field of something; `request` is typed, so a wrong field of it is found at once.
fn checked(of: Expression, field: String) -> Result<Expression, String> {
    let of_request = matches!(&of, Expression::Variable(name) if name == "request");
    if of_request && !REQUEST_FIELDS.contains(&field.as_str()) {
        return Err(format!("undefined field '{field}'"));
    }
    Ok(Expression::Select(Box::new(of), field))
}
