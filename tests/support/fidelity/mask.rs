//! Masks what is different in every run.

use serde_json::Value;

/// Fields whose values differ in every run, with their masks.
const FIELDS: [(&str, &str); 6] = [
    ("caBundle", "CA"),
    ("resourceVersion", "VERSION"),
    ("uid", "UID"),
    ("creationTimestamp", "TIME"),
    ("token", "TOKEN"),
    ("request", "PEM"),
];

/// Prefixes of a resourceVersion in a text.
const VERSIONS: [&str; 2] = ["resourceVersion=", "current: "];

/// Masks every string of a value, and whole values by their field.
pub fn value(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // The cases do not depend on managedFields, which the embedded control plane does not record here.
            fields.remove("managedFields");
            let path = fields.get("path").and_then(Value::as_str);
            let field = path.and_then(|path| path.rsplit('/').next());
            let mask = FIELDS.iter().find(|(name, _)| Some(*name) == field);
            if let (Some((_, mask)), Some(tested)) = (mask, fields.get_mut("value")) {
                *tested = (*mask).into();
            }
            for (name, inner) in fields {
                match FIELDS.iter().find(|(field, _)| field == name) {
                    // User names are constant.
                    Some((_, mask)) if inner.is_string() && is_changing(inner) => *inner = (*mask).into(),
                    _ => self::value(inner),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(self::value),
        Value::String(text) => *text = self::text(text),
        _ => {}
    }
}

/// Whether a uid is generated: that of the token file's user is always its name.
fn is_changing(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text != "lab-admin")
}

/// Masks ports of 127.0.0.1, generated names, uids and times.
pub fn text(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after_host = masked.ends_with("127.0.0.1:");
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if after_host && digits > 0 && &rest[..digits] != "1" {
            masked.push_str("PORT");
            rest = &rest[digits..];
        } else if digits > 0 && VERSIONS.iter().any(|before| masked.ends_with(before)) {
            masked.push_str("VERSION");
            rest = &rest[digits..];
        } else if masked.ends_with("found-") && is_shaped(rest, "aaaaa") {
            masked.push_str("NAME");
            rest = &rest[5..];
        } else if is_shaped(rest, "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh") {
            masked.push_str("UID");
            rest = &rest[36..];
        } else if is_shaped(rest, "dddd-dd-ddTdd:dd:ddZ") {
            masked.push_str("TIME");
            rest = &rest[20..];
        } else {
            masked.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    masked
}

/// Whether a text begins with a shape: `a` is a digit or letter, `d` a digit, `h` a hexadecimal digit, others are literal.
fn is_shaped(text: &str, shape: &str) -> bool {
    let mut characters = text.chars();
    shape.chars().all(|wanted| {
        characters.next().is_some_and(|found| match wanted {
            'a' => found.is_ascii_digit() || found.is_ascii_lowercase(),
            'd' => found.is_ascii_digit(),
            'h' => found.is_ascii_digit() || ('a'..='f').contains(&found),
            other => found == other,
        })
    })
}
