//! One mapping of the configuration file, read key by key so that every mistake is found in one go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Map, Value};

use super::ConfigError;
use crate::domain::act::fence::AutoBreak;
use crate::domain::cluster::hook::ProbeLevel;

#[derive(Default)]
pub(super) struct Notes {
    pub(super) errors: Vec<ConfigError>,
    /// Every key that was looked for, whether it was there or not.
    pub(super) known: BTreeSet<String>,
}

/// One mapping of the file. Keys are taken out as they are read; what is left is unknown.
pub(super) struct Section<'a> {
    pub(super) path: String,
    pub(super) keys: Map<String, Value>,
    pub(super) notes: &'a mut Notes,
}

impl Section<'_> {
    pub(super) fn error(&mut self, key: &str, what: impl Into<String>) {
        let error = ConfigError::new(format!("{}{key}", self.path), what);
        self.notes.errors.push(error);
    }

    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.notes.known.insert(format!("{}{key}", self.path));
        self.keys.remove(key)
    }

    /// Whether a key has a value.
    pub(super) fn says(&self, key: &str) -> bool {
        self.keys.get(key).is_some_and(|value| !value.is_null())
    }

    /// Reads the value of a key. `None` if there is none, or `read` fails; its message is then noted as a mistake.
    fn given<T>(&mut self, key: &str, read: impl FnOnce(Value) -> Result<T, String>) -> Option<T> {
        let value = self.take(key).filter(|value| !value.is_null())?;
        read(value).map_err(|why| self.error(key, why)).ok()
    }

    pub(super) fn section<T>(&mut self, key: &str, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let keys = self.mapping(key, "must be a mapping of keys to values");
        self.within(key, keys, read)
    }

    pub(super) fn list<T>(&mut self, key: &str, read: impl Fn(&mut Section<'_>) -> Option<T>) -> Vec<T> {
        let mut values = Vec::new();
        for (at, entry) in self.entries(key).into_iter().enumerate() {
            let place = format!("{key}[{at}]");
            match entry {
                Value::Object(keys) => values.extend(self.within(&place, keys, &read)),
                _ => self.error(&place, "must be a mapping of keys to values"),
            }
        }
        values
    }

    /// Reads a nested mapping. Keys that `read` did not ask for are noted as mistakes.
    fn within<T>(
        &mut self,
        place: &str,
        keys: Map<String, Value>,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        let mut section = Section {
            path: format!("{}{place}.", self.path),
            keys,
            notes: self.notes,
        };
        let value = read(&mut section);
        section.refuse_the_rest();
        value
    }

    /// A mapping; `else_wrong` is the message for any other value.
    fn mapping(&mut self, key: &str, else_wrong: &str) -> Map<String, Value> {
        let keys = self.given(key, |value| match value {
            Value::Object(keys) => Ok(keys),
            _ => Err(else_wrong.to_owned()),
        });
        keys.unwrap_or_default()
    }

    pub(super) fn entries(&mut self, key: &str) -> Vec<Value> {
        let entries = self.given(key, |value| match value {
            Value::Array(entries) => Ok(entries),
            _ => Err("must be a list".to_owned()),
        });
        entries.unwrap_or_default()
    }

    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        self.given(key, |value| match value {
            Value::String(text) => Ok(text),
            other => Err(format!("must be text, not {other}")),
        })
    }

    /// An address to listen on, as it was given for a key.
    pub(super) fn address(&mut self, key: &str, text: &str, example: &str) -> Option<SocketAddr> {
        let address = text.parse().ok();
        if address.is_none() {
            self.error(
                key,
                format!("{text:?} is not ADDRESS:PORT, for example {example}"),
            );
        }
        address
    }

    /// A mapping of arbitrary names to text.
    pub(super) fn texts(&mut self, key: &str) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        for (name, value) in self.mapping(key, "must be a mapping of names to text") {
            match value {
                Value::String(text) => {
                    texts.insert(name, text);
                }
                other => self.error(&format!("{key}.{name}"), format!("must be text, not {other}")),
            }
        }
        texts
    }

    /// A text that `parse` converts. `None` if there is none, or `parse` fails; its message is then noted as a mistake.
    pub(super) fn read<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let read = parse(&self.text(key)?);
        read.map_err(|why| self.error(key, why)).ok()
    }

    pub(super) fn required_text(&mut self, key: &str) -> Option<String> {
        if !self.says(key) {
            self.error(key, "is missing");
        }
        self.text(key)
    }

    pub(super) fn flag(&mut self, key: &str, default: bool) -> bool {
        let flag = self.given(key, |value| match value {
            Value::Bool(flag) => Ok(flag),
            other => Err(format!("must be true or false, not {other}")),
        });
        flag.unwrap_or(default)
    }

    pub(super) fn number(&mut self, key: &str, default: u64, range: RangeInclusive<u64>) -> u64 {
        let (least, most) = (range.start(), range.end());
        let number = self.given(key, |value| {
            let number = value.as_u64().filter(|number| range.contains(number));
            number.ok_or_else(|| format!("must be a whole number from {least} to {most}, not {value}"))
        });
        number.unwrap_or(default)
    }

    /// An interval or a timeout, from `at_least` to 1 min.
    pub(super) fn duration(&mut self, key: &str, default: Duration, at_least: Duration) -> Duration {
        // What was seen a minute ago says little about now: with longer intervals verdicts would come and go.
        const AT_MOST: Duration = Duration::from_secs(60);
        self.span(key, default, at_least..=AT_MOST)
    }

    /// `interval` and `alertInterval`, each with its default and its lower bound. The second is at most the first: an incident is
    /// never watched less closely.
    pub(super) fn intervals(
        &mut self,
        calm: (Duration, Duration),
        alert: (Duration, Duration),
    ) -> (Duration, Duration) {
        let interval = self.duration("interval", calm.0, calm.1);
        let alert_interval = self.duration("alertInterval", alert.0, alert.1);
        (interval, alert_interval.min(interval))
    }

    /// A duration within `range`.
    pub(super) fn span(&mut self, key: &str, default: Duration, range: RangeInclusive<Duration>) -> Duration {
        let duration = self.given(key, |value| {
            let Some(text) = value.as_str() else {
                return Err(format!("must be a duration like 5s or 2m, not {value}"));
            };
            crate::app::duration(text, &range)
        });
        duration.unwrap_or(default)
    }

    /// YAML 1.1 readers turn a bare `on` or `off` into a boolean; this turns it back into the word.
    fn restore_word(&mut self, key: &str) {
        if let Some(Value::Bool(on)) = self.keys.get(key) {
            let word = if *on { "on" } else { "off" };
            self.keys.insert(key.to_owned(), word.into());
        }
    }

    pub(super) fn level(&mut self, key: &str, default: ProbeLevel) -> ProbeLevel {
        self.restore_word(key);
        self.read(key, ProbeLevel::parse).unwrap_or(default)
    }

    /// The mode from the flag, else from the file. Both are checked.
    pub(super) fn auto_break(&mut self, key: &str, flag: Option<&str>) -> AutoBreak {
        self.restore_word(key);
        let file = self.read(key, AutoBreak::parse);
        let flag = flag.and_then(|text| {
            let read = AutoBreak::parse(text);
            read.map_err(|why| self.error("--auto-break", why)).ok()
        });
        flag.or(file).unwrap_or_default()
    }

    pub(super) fn refuse_the_rest(&mut self) {
        for (key, _) in std::mem::take(&mut self.keys) {
            self.error(&key, "is not a key of hookwatch");
        }
    }
}
