//! Reads which paths a Rust file mentions, without compiling it: comments, strings and test modules are left
//! out, `use` trees are spread, and `self` and `super` are resolved.

/// What a file mentions.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// Every path of two names or more, and every import. Within the crate a path begins with `crate`.
    pub paths: Vec<Vec<String>>,
    /// Modules that exist in tests only and stand in files of their own.
    pub test_modules: Vec<String>,
}

/// Reads the text of the file of `module`, for example `["domain", "hook"]`.
pub fn mentions(text: &str, module: &[&str]) -> Mentions {
    let tokens = tokens(text);
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
        file: module.iter().map(|name| (*name).to_owned()).collect(),
        inline: Vec::new(),
        depth: 0,
        found: Mentions::default(),
    };
    reader.read();
    reader.found
}

/// Names, `::`, and single punctuation characters.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let name = |c: char| c.is_alphanumeric() || c == '_';
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        match (at(i), at(i + 1)) {
            ('/', '/') => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            ('/', '*') => {
                let mut depth = 0;
                loop {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 || i >= chars.len() {
                        break;
                    }
                }
            }
            ('"', _) => i = after_string(&chars, i),
            // A character, or a lifetime.
            ('\'', '\\') => {
                i += 3;
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
            }
            ('\'', _) if at(i + 2) == '\'' => i += 3,
            ('\'', _) => i += 1,
            (':', ':') => {
                tokens.push("::".to_owned());
                i += 2;
            }
            (c, _) if name(c) => {
                let start = i;
                while name(at(i)) {
                    i += 1;
                }
                let word: String = chars[start..i].iter().collect();
                let prefix = ["r", "b", "br", "c", "cr"].contains(&word.as_str());
                if prefix && at(i) == '"' && !word.contains('r') {
                    i = after_string(&chars, i);
                } else if prefix && word.contains('r') && (at(i) == '"' || at(i) == '#' && raw(&chars, i)) {
                    i = after_raw_string(&chars, i);
                } else if word == "r" && at(i) == '#' {
                    i += 1;
                } else {
                    tokens.push(word);
                }
            }
            (c, _) if c.is_whitespace() => i += 1,
            (c, _) => {
                tokens.push(c.to_string());
                i += 1;
            }
        }
    }
    tokens
}

fn after_string(chars: &[char], quote: usize) -> usize {
    let mut i = quote + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// Whether the `#`s lead to a string, and not to a raw name.
fn raw(chars: &[char], hashes: usize) -> bool {
    chars[hashes..].iter().find(|c| **c != '#') == Some(&'"')
}

fn after_raw_string(chars: &[char], start: usize) -> usize {
    let hashes = chars[start..].iter().take_while(|c| **c == '#').count();
    let mut i = start + hashes + 1;
    while i < chars.len() {
        let closes =
            chars[i] == '"' && chars[i + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes;
        if closes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    i
}

struct Reader<'a> {
    tokens: &'a [String],
    at: usize,
    file: Vec<String>,
    /// Modules within the file, with the depth of braces at which each ends.
    inline: Vec<(String, usize)>,
    depth: usize,
    found: Mentions,
}

impl Reader<'_> {
    fn token(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    fn starts_with(&self, expected: &[&str]) -> bool {
        expected
            .iter()
            .enumerate()
            .all(|(i, token)| self.token(i) == *token)
    }

    fn read(&mut self) {
        while self.at < self.tokens.len() {
            if self.starts_with(&["#", "[", "cfg", "(", "test", ")", "]"]) {
                self.at += 7;
                self.skip_test_item();
                continue;
            }
            match self.token(0) {
                "{" => self.depth += 1,
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.inline.last().is_some_and(|(_, depth)| *depth == self.depth) {
                        self.inline.pop();
                    }
                }
                "mod" if is_name(self.token(1)) && self.token(2) == "{" => {
                    self.inline.push((self.token(1).to_owned(), self.depth));
                }
                "use" => {
                    self.at += 1;
                    self.use_tree(Vec::new());
                    continue;
                }
                "extern" if self.token(1) == "crate" => {
                    let name = self.token(2).to_owned();
                    self.note(vec![name]);
                }
                word if is_name(word) => {
                    self.path();
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// What follows exists in tests only: a module of its own file, or anything up to its end.
    fn skip_test_item(&mut self) {
        let mut depth = 0_usize;
        let mut module = None;
        while self.at < self.tokens.len() {
            match self.token(0) {
                "mod" if depth == 0 => module = Some(self.token(1).to_owned()),
                ";" if depth == 0 => {
                    self.found.test_modules.extend(module);
                    self.at += 1;
                    return;
                }
                "{" | "(" | "[" => depth += 1,
                "}" if depth == 1 => {
                    self.at += 1;
                    return;
                }
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
        }
    }

    /// A path in an expression or a type, or a single word.
    fn path(&mut self) {
        // The `::name` of `<T as Trait>::name` begins no path; that of `-> ::krate::name` does.
        let before = |back: usize| {
            self.at
                .checked_sub(back)
                .map_or("", |at| self.tokens[at].as_str())
        };
        let continued = before(1) == "::" && before(2) == ">" && !["-", "="].contains(&before(3));
        let mut path = vec![self.token(0).to_owned()];
        self.at += 1;
        while self.token(0) == "::" && is_name(self.token(1)) {
            path.push(self.token(1).to_owned());
            self.at += 2;
        }
        if path.len() > 1 && !continued {
            self.note(path);
        }
    }

    /// `a::b`, `a::{b, c::d}`, `a::*`, `a as b`: one path for each leaf.
    fn use_tree(&mut self, mut path: Vec<String>) {
        loop {
            match self.token(0) {
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while self.at < self.tokens.len() && self.token(0) != "}" {
                        self.use_tree(path.clone());
                        if self.token(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "as" => {
                    // The alias could stand for a whole layer, so the import counts as one of everything in it.
                    if path.len() == 1 {
                        path.push("*".to_owned());
                    }
                    self.at += 2;
                }
                "self" if !path.is_empty() => self.at += 1,
                word if is_name(word) || word == "*" => {
                    path.push(word.to_owned());
                    self.at += 1;
                }
                _ => break,
            }
        }
        self.note(path);
    }

    fn note(&mut self, path: Vec<String>) {
        let mut base: Vec<String> = self.file.clone();
        base.extend(self.inline.iter().map(|(name, _)| name.clone()));
        let mut rest = path.iter().peekable();
        match rest.peek().map(|name| name.as_str()) {
            Some("self" | "super") => {
                while let Some(name) = rest.next_if(|name| matches!(name.as_str(), "self" | "super")) {
                    if name == "super" {
                        base.pop();
                    }
                }
            }
            Some("crate") => {
                rest.next();
                // The domain is a crate of its own.
                base.truncate(usize::from(base.first().is_some_and(|layer| layer == "domain")));
            }
            _ => {
                self.found.paths.push(path);
                return;
            }
        }
        let absolute = std::iter::once("crate".to_owned())
            .chain(base)
            .chain(rest.cloned());
        self.found.paths.push(absolute.collect());
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}
