//! Formatting for people: durations, lists, and foreign text cut to a length. Also names that Kubernetes defines.

use std::borrow::Borrow;
use std::time::Duration;

/// Adds `as_str` to an enum whose variants `strum` names; with `all` also the list `ALL` of its variants, and with `parse` both
/// that list and `parse`.
#[macro_export]
macro_rules! named {
    ($of:ident, $what:literal) => {
        impl $of {
            #[doc = $what]
            pub fn as_str(self) -> &'static str {
                self.into()
            }
        }
    };
    ($of:ident, $what:literal, all) => {
        named!($of, $what);

        impl $of {
            /// All variants, in the order of their declaration.
            pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
        }
    };
    ($of:ident, $what:literal, parse) => {
        named!($of, $what, all);

        impl $of {
            /// The variant of this name.
            ///
            /// # Errors
            /// When no variant has this name; the text lists the valid ones.
            pub fn parse(text: &str) -> Result<Self, String> {
                $crate::text::one_of(text, Self::ALL)
            }
        }
    };
}
pub use named;

/// What an API server's 401 means, and what to do next.
pub const NOT_ACCEPTED: &str = "hookwatch's credentials are not accepted: renew them, and restart hookwatch if they are \
                                a client certificate";

/// Most bytes that are kept of an API server's message.
pub const MAX_MESSAGE: usize = 1_024;

/// The one of `all` that has this name.
///
/// # Errors
/// When none has this name; the text lists the valid ones.
pub fn one_of<T: Copy + Into<&'static str>>(text: &str, all: &[T]) -> Result<T, String> {
    let name = |one: T| -> &'static str { one.into() };
    let found = all.iter().copied().find(|one| name(*one) == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().copied().map(name).collect();
        format!("{text:?} is not one of {}", names.join(", "))
    })
}

/// Cuts a foreign text to [`MAX_MESSAGE`] bytes at a character boundary. Each control character becomes a space, so that a line
/// feed still separates words.
pub fn bounded(text: &str) -> String {
    bounded_to(MAX_MESSAGE, text)
}

/// Like [`bounded`], cut to `most` bytes.
pub fn bounded_to(most: usize, text: &str) -> String {
    let mut kept = String::new();
    for character in text.chars() {
        let character = if character.is_control() { ' ' } else { character };
        if kept.len() + character.len_utf8() > most {
            break;
        }
        kept.push(character);
    }
    kept
}

/// A duration as a person writes it: `3 ms`, `801 ms`, `2.0 s`.
pub fn human(duration: Duration) -> String {
    human_seconds(duration.as_secs_f64())
}

/// Seconds as a person writes them: `under 1 ms`, whole milliseconds below 1 s, tenths of a second below 120 s, else whole minutes.
pub fn human_seconds(seconds: f64) -> String {
    if seconds < 0.000_95 {
        "under 1 ms".to_owned()
    } else if seconds < 0.9995 {
        // Rounds as `{:.0}` does, but is cheaper: a tick over a thousand webhooks formats thousands of these.
        format!("{} ms", (seconds * 1_000.0).round_ties_even() as u64)
    } else if seconds < 120.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.0} min", seconds / 60.0)
    }
}

/// The first `told` names, separated by commas, and how many more there are.
pub fn listed<S: Borrow<str>>(names: &[S], told: usize) -> String {
    let (told, more) = names.split_at(told.min(names.len()));
    let more = (!more.is_empty()).then(|| format!(" and {} more", more.len()));
    told.join(", ") + &more.unwrap_or_default()
}

/// FNV-1a over all parts, each followed by a zero byte. The same in every release, which the standard library's hasher does
/// not promise.
pub fn stable_hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A resource with its API group, as `kubectl` takes it: `deployments.apps`.
pub fn dotted(resource: &str, group: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

/// The user name of hookwatch's ServiceAccount, when hookwatch is installed in this namespace.
pub fn own_account(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:hookwatch")
}

/// The groups in which the API server puts the ServiceAccount of [`own_account`].
pub fn own_groups(namespace: &str) -> [String; 3] {
    [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ]
}

/// Whether it is a DNS label (RFC 1123), the format of namespace names.
pub fn is_dns_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// The text with its first letter in upper case, if that is an ASCII letter.
pub fn capital(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters_and_line_feeds_become_spaces() {
        assert_eq!(bounded(&"é".repeat(1_000)), "é".repeat(MAX_MESSAGE / 2));
        assert_eq!(bounded_to(3, "éé"), "é");
        assert_eq!(bounded("one\ntwo\tthree"), "one two three");
        assert_eq!(bounded("short"), "short");
    }
}
