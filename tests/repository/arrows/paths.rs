//! Reads which paths a Rust file mentions, without compiling it: comments, strings and test modules are left
//! out, `use` trees are spread, and `self` and `super` are resolved.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// What a file mentions.
#[derive(Debug, Default)]
pub struct Mentions {
    /// Every path of two names or more, and every import. Within the crate a path begins with `crate`.
    pub paths: Vec<Vec<String>>,
    /// Modules that exist in tests only and stand in files of their own.
    pub test_modules: Vec<String>,
}

/// Reads the text of the file of `module`, for example `["domain", "hook"]`.
pub fn mentions(text: &str, module: &[&str]) -> Mentions {
    let tokens = text.parse().expect("the file is Rust");
    let module = module.iter().map(|name| (*name).to_owned()).collect();
    let mut reader = Reader {
        module,
        found: Mentions::default(),
    };
    reader.read(tokens);
    reader.found
}

struct Reader {
    /// Where the tokens stand.
    module: Vec<String>,
    found: Mentions,
}

impl Reader {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = match &*tokens {
            // Who may know this, and not what it knows: `pub(in crate::io)`.
            [TokenTree::Ident(word), ..] if word == "in" => return,
            all => all,
        };
        while let [token, after @ ..] = rest {
            rest = match (token, after) {
                (TokenTree::Punct(hash), [TokenTree::Group(attribute), item @ ..])
                    if hash.as_char() == '#'
                        && attribute.stream().to_string().replace(' ', "") == "cfg(test)" =>
                {
                    self.skip_test_item(item)
                }
                (TokenTree::Ident(word), [TokenTree::Ident(name), TokenTree::Group(body), after @ ..])
                    if word == "mod" =>
                {
                    self.module.push(name.to_string());
                    self.read(body.stream());
                    self.module.pop();
                    after
                }
                (TokenTree::Ident(word), [TokenTree::Ident(next), after @ ..])
                    if word == "extern" && next == "crate" =>
                {
                    self.path(Vec::new(), after, true)
                }
                (TokenTree::Ident(word), _) if word == "use" => self.path(Vec::new(), after, true),
                (TokenTree::Ident(_), _) => self.path(Vec::new(), rest, false),
                (TokenTree::Group(group), _) => {
                    self.read(group.stream());
                    after
                }
                (TokenTree::Punct(_) | TokenTree::Literal(_), _) => after,
            };
        }
    }

    /// What follows exists in tests only: a module of its own file, or anything up to its end.
    fn skip_test_item<'t>(&mut self, tokens: &'t [TokenTree]) -> &'t [TokenTree] {
        let is_end = |token: &TokenTree| match token {
            TokenTree::Punct(punct) => punct.as_char() == ';',
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            _ => false,
        };
        let end = tokens.iter().position(is_end).map_or(tokens.len(), |end| end + 1);
        let (item, after) = tokens.split_at(end);
        if let [
            ..,
            TokenTree::Ident(word),
            TokenTree::Ident(name),
            TokenTree::Punct(_),
        ] = item
            && word == "mod"
        {
            self.found.test_modules.push(name.to_string());
        }
        after
    }

    /// Reads on behind `path`, and returns what comes after it: `a::b`, `a::{b, c::d}`, `a::*`, `a as b`. There is one path for
    /// each leaf of an import. A single word is a path only there.
    fn path<'t>(
        &mut self,
        mut path: Vec<String>,
        tokens: &'t [TokenTree],
        is_import: bool,
    ) -> &'t [TokenTree] {
        let mut rest = after_colons(tokens).unwrap_or(tokens);
        match rest {
            [TokenTree::Ident(name), after @ ..] => {
                let name = name.to_string();
                if name != "self" || path.is_empty() {
                    path.push(name.trim_start_matches("r#").to_owned());
                }
                if after_colons(after).is_some() {
                    return self.path(path, after, is_import);
                }
                // The alias could stand for a whole layer, so the import counts as one of everything in it.
                if is_import
                    && path.len() == 1
                    && after.first().is_some_and(|token| token.to_string() == "as")
                {
                    path.push("*".to_owned());
                }
                rest = after;
            }
            [TokenTree::Punct(star), after @ ..] if star.as_char() == '*' => {
                path.push("*".to_owned());
                rest = after;
            }
            [TokenTree::Group(tree), after @ ..] if is_import => {
                let tree: Vec<TokenTree> = tree.stream().into_iter().collect();
                for branch in tree.split(|token| token.to_string() == ",") {
                    self.path(path.clone(), branch, true);
                }
                return after;
            }
            _ => {}
        }
        if path.len() > 1 || is_import && !path.is_empty() {
            self.note(path);
        }
        rest
    }

    fn note(&mut self, path: Vec<String>) {
        let mut names = path.iter().map(String::as_str).peekable();
        let mut base = self.module.clone();
        match names.peek() {
            Some(&("self" | "super")) => {
                while let Some(name) = names.next_if(|name| matches!(*name, "self" | "super")) {
                    if name == "super" {
                        base.pop();
                    }
                }
            }
            Some(&"crate") => {
                names.next();
                // The domain is a crate of its own.
                base.truncate(usize::from(base.first().is_some_and(|layer| layer == "domain")));
            }
            _ => return self.found.paths.push(path),
        }
        base.insert(0, "crate".to_owned());
        base.extend(names.map(str::to_owned));
        self.found.paths.push(base);
    }
}

/// What comes after a `::`.
fn after_colons(tokens: &[TokenTree]) -> Option<&[TokenTree]> {
    match tokens {
        [TokenTree::Punct(first), TokenTree::Punct(_), after @ ..]
            if first.as_char() == ':' && first.spacing() == Spacing::Joint =>
        {
            Some(after)
        }
        _ => None,
    }
}
