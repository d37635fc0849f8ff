//! Parses the values of single variables.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Reads variables and collects invalid values.
pub(super) struct VariableReader<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    pub(super) complaints: Vec<String>,
}

impl<'a> VariableReader<'a> {
    pub(super) fn new(variable: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            variable,
            complaints: Vec::new(),
        }
    }

    /// Records that the value of `name` is not used, and why. Values are not quoted, because some are secrets.
    pub(super) fn complain(&mut self, name: &str, why: &str) {
        let complaint = format!("{name} is not used: {why}");
        // Both signals read some variables; one complaint is enough.
        if !self.complaints.contains(&complaint) {
            self.complaints.push(complaint);
        }
    }

    /// The trimmed value; `None` if it is not set or empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let text = (self.variable)(name)?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The value in lower case, for values that are not case-sensitive.
    pub(super) fn word(&self, name: &str) -> Option<String> {
        self.text(name).map(|text| text.to_ascii_lowercase())
    }

    /// A boolean: true only for `true`, not case-sensitive, as in the specification.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        match self.word(name).as_deref() {
            Some("true") => true,
            None | Some("false") => false,
            Some(_) => {
                self.complain(name, "it is neither true nor false");
                false
            }
        }
    }

    pub(super) fn number(&mut self, name: &str, default: u64, allowed: RangeInclusive<u64>) -> u64 {
        let (first, last) = (allowed.start(), allowed.end());
        let why = format!("it is no whole number from {first} to {last}");
        self.parsed(name, default, |number| allowed.contains(number), &why)
    }

    /// A duration given in milliseconds: 1 ms to 24 h.
    pub(super) fn millis(&mut self, name: &str, default: u64) -> Duration {
        Duration::from_millis(self.number(name, default, 1..=86_400_000))
    }

    /// The sampling ratio, 0 to 1; 1 if it is not set or invalid.
    pub(super) fn ratio(&mut self) -> f64 {
        const NAME: &str = "OTEL_TRACES_SAMPLER_ARG";
        let allowed = |ratio: &f64| (0.0..=1.0).contains(ratio);
        self.parsed(NAME, 1.0, allowed, "it is no number from 0 to 1")
    }

    /// The parsed value, or `default` if it is not set. If it cannot be parsed or is not `allowed`, complains with `why` and
    /// returns `default`.
    fn parsed<T: FromStr>(&mut self, name: &str, default: T, allowed: impl Fn(&T) -> bool, why: &str) -> T {
        let Some(text) = self.text(name) else {
            return default;
        };
        let parsed = text.parse().ok().filter(allowed);
        if parsed.is_none() {
            self.complain(name, why);
        }
        parsed.unwrap_or(default)
    }

    /// A comma-separated list in lower case; `None` if it is not set or empty.
    pub(super) fn list(&self, name: &str) -> Option<Vec<String>> {
        let text = self.text(name)?;
        let names = text.split(',').map(|name| name.trim().to_ascii_lowercase());
        Some(names.filter(|name| !name.is_empty()).collect())
    }

    /// A comma-separated list of `key=value`, percent-encoded as in W3C baggage. If one pair is invalid, the whole list is ignored.
    pub(super) fn pairs(&mut self, name: &str) -> Vec<(String, String)> {
        let text = self.text(name).unwrap_or_default();
        let pairs = text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=')?;
                let (key, value) = (decode(key.trim())?, decode(value.trim())?);
                (!key.is_empty()).then_some((key, value))
            });
        match pairs.collect() {
            Some(pairs) => pairs,
            None => {
                self.complain(name, "it is no list of key=value between commas");
                Vec::new()
            }
        }
    }
}

/// Decodes `%XX`; `None` if an escape is invalid or the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let byte = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |digit: u8| char::from(digit).to_digit(16);
                rest = after;
                u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?
            }
            (b'%', _) => return None,
            _ => *first,
        };
        decoded.push(byte);
    }
    String::from_utf8(decoded).ok()
}
