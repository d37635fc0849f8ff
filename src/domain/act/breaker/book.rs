//! The breaker's part of the ledger: what replicas must agree on before one of them changes an object.
//!
//! A bypass is recorded here first, with the ledger's version as the precondition. So of several replicas one wins, all
//! count the same, and a record outlives its replica. What *is* bypassed is recorded on the objects themselves; the
//! book says what may be, and remembers what was.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::observed::Stake;
use super::policy::Rung;
use crate::cluster::hook::HookId;
use crate::text::bounded;
use crate::time::Time;
use crate::vocabulary::Cause;

/// Its key in the ledger.
pub const KEY: &str = "breaker";

/// A `resourceVersion`: equal for equal content, never used again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceVersion(pub Arc<str>);

impl ResourceVersion {
    /// Wraps the text.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }
}

/// What replicas agree on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
pub struct Book {
    /// Who froze the breaker and why; `None` when it is not frozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<Freeze>,
    /// When skips were begun recently, by the clocks of those who began them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<Time>,
    /// A line per hook that is bypassed, is about to be, or recently was.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "write")]
    pub entries: BTreeMap<HookId, BookEntry>,
}

/// Bytes of a line beside the names in it, at most.
const LINE: usize = 400;
/// Bytes of lines with which the book is full. The ledger has 128 KiB, for who leads and what other releases keep as well.
const FULL: usize = 112 << 10;

impl Book {
    /// Parses a book, and returns the parts that are invalid. An invalid line is ignored, as the objects record what is
    /// bypassed. An invalid freeze order still freezes.
    pub fn read(text: &Value) -> (Self, Vec<Value>) {
        let mut nonsense = Vec::new();
        if !(text.is_object() || text.is_null()) {
            nonsense.push(text.clone());
        }
        let order = text.get("frozen");
        let order = order.filter(|order| !matches!(order, Value::Null | Value::Bool(false)));
        let frozen = order.map(|order| {
            Freeze::deserialize(order).unwrap_or_else(|error| {
                nonsense.push(order.clone());
                Freeze {
                    by: "an unknown client".into(),
                    reason: bounded(&format!("the order in the ledger cannot be read: {error}")).into(),
                    at: Time::default(),
                }
            })
        });
        let begun = sensible(text.get("begun"), &mut nonsense);
        let lines: Vec<BookLine<BookEntry>> = sensible(text.get("entries"), &mut nonsense);
        let entries = lines.into_iter().map(|line| (line.hook, line.entry)).collect();
        let book = Self {
            frozen,
            begun,
            entries,
        };
        (book, nonsense)
    }

    /// Whether a line more fits. The last quarter is kept for webhooks that Leases meet: an installer of broken webhooks could
    /// otherwise use up the room of one that all wait for.
    pub(super) fn has_room(&self, stake: Stake) -> bool {
        let most = if stake == Stake::Renewals {
            FULL
        } else {
            FULL / 4 * 3
        };
        self.bytes() + LINE <= most
    }

    /// Bytes that the lines take, at most.
    fn bytes(&self) -> usize {
        let lines = self.entries.iter().map(|(hook, entry)| {
            LINE + hook.configuration.len() + hook.webhook.len() + entry.by.len() + entry.seen.0.len()
        });
        lines.sum()
    }
}

/// A person's order to do nothing new.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Freeze {
    /// Who gave the order, as recorded by `hookwatch freeze`.
    pub by: Arc<str>,
    /// The reason given, for people.
    pub reason: Arc<str>,
    /// When the order was given, by the clock of who gave it.
    pub at: Time,
}

impl Freeze {
    /// Since when; `None` of an order that could not be read, and so has no date.
    pub fn since(&self) -> Option<Time> {
        (self.at > Time::default()).then_some(self.at)
    }

    /// The order in words, with how to take it back.
    pub fn sentence(&self) -> String {
        let Self { by, reason, at } = self;
        format!(
            "Frozen since {at} by {by}: {reason}. Nothing new is bypassed. To end that: hookwatch unfreeze."
        )
    }
}

/// The stage of a bypass in the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryStage {
    /// The hook is bypassed, or will be next. It counts towards the budget.
    Held,
    /// Due to be restored, by any replica. It counts as a bypass until the restore is observed.
    Leaving,
    /// The original is in place. Remembered for a while.
    Out,
}

/// The line of a hook.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BookEntry {
    /// Its stage.
    #[serde(deserialize_with = "stage")]
    pub place: EntryStage,
    /// The rung that was chosen.
    #[serde(deserialize_with = "rung")]
    pub rung: Rung,
    /// The cause for which the bypass was decided on.
    #[serde(deserialize_with = "cause")]
    pub cause: Cause,
    /// Who suffered by the hook when the bypass was decided on.
    #[serde(default, deserialize_with = "stake")]
    pub stake: Stake,
    /// Who wrote the line. Only they may begin the bypass, and only for a while.
    pub by: Arc<str>,
    /// When the bypass was decided on, by the clock of who did.
    pub since: Time,
    /// When the line was written, by the clock of who did. It makes every writing a change that others see.
    pub at: Time,
    /// The version of the object when the line was written. If it still has it, nothing was done to it since.
    pub seen: ResourceVersion,
    /// How often another writer reverted the bypass.
    #[serde(default)]
    pub reverts: u8,
    /// How often the hook failed again after a restore.
    #[serde(default)]
    pub relapses: u8,
    /// Another writer keeps reverting it: hookwatch has stopped.
    #[serde(default)]
    pub contested: bool,
    /// It lasted as long as it may: not again before the hook was well.
    #[serde(default)]
    pub spent: bool,
    /// A person made this bypass. Its removal does not count as a revert.
    #[serde(default)]
    pub by_hand: bool,
    /// Its skips while dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skips: Option<Skips>,
}

/// What is remembered of the skips of a hook that was dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Skips {
    /// The last one is in force, or will be next.
    pub on: bool,
    /// When the last one was decided on, by the clock of who did.
    pub since: Time,
    /// How many were decided on.
    pub times: u8,
    /// One lasted as long as it may: not again before the line is forgotten.
    #[serde(default)]
    pub spent: bool,
}

impl BookEntry {
    /// Whether it counts among the bypassed.
    pub fn counts(&self) -> bool {
        self.place != EntryStage::Out
    }
}

/// An entry with its key: hooks cannot be keys of a JSON object.
#[derive(Serialize, Deserialize)]
struct BookLine<E> {
    hook: HookId,
    #[serde(flatten)]
    entry: E,
}

fn write<S: Serializer>(entries: &BTreeMap<HookId, BookEntry>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(entries.iter().map(|(hook, entry)| BookLine {
        hook: hook.clone(),
        entry,
    }))
}

/// The valid items of a list; the others are `nonsense`.
fn sensible<T: DeserializeOwned>(list: Option<&Value>, nonsense: &mut Vec<Value>) -> Vec<T> {
    let list = match list {
        None | Some(Value::Null) => &[],
        Some(Value::Array(list)) => list.as_slice(),
        Some(other) => std::slice::from_ref(other),
    };
    let read = list.iter().filter_map(|item| match T::deserialize(item) {
        Ok(item) => Some(item),
        Err(_) => {
            nonsense.push(item.clone());
            None
        }
    });
    read.collect()
}

/// A stage by its name. One that only another release knows counts, as what is bypassed does.
fn stage<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EntryStage, D::Error> {
    let name = Value::deserialize(deserializer)?;
    Ok(EntryStage::deserialize(name).unwrap_or(EntryStage::Held))
}

/// A rung by its name. An unknown one of another release, such as the former `ignore`, counts as the farthest.
fn rung<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rung, D::Error> {
    let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    Ok(Rung::parse(&name).unwrap_or(Rung::Skip))
}

/// The affected clients, by name. An unknown one of another release counts as the usual.
fn stake<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Stake, D::Error> {
    let name = serde_json::Value::deserialize(deserializer)?;
    Ok(Stake::deserialize(name).unwrap_or_default())
}

/// A cause by its name. One that only another release knows becomes the least that it can be.
fn cause<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cause, D::Error> {
    let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    Ok(Cause::parse(&name).unwrap_or(Cause::Slow))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::hook::HookKind;

    fn read(text: &str) -> (Book, Vec<Value>) {
        Book::read(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn a_book_reads_back_as_it_was_written_and_an_empty_one_takes_no_room() {
        let entry = BookEntry {
            place: EntryStage::Leaving,
            rung: Rung::Skip,
            cause: Cause::Hanging,
            stake: Stake::Renewals,
            by: "a".into(),
            since: Time::from_unix_millis(1),
            at: Time::from_unix_millis(2),
            seen: ResourceVersion::new("7"),
            reverts: 1,
            relapses: 2,
            contested: false,
            spent: true,
            by_hand: false,
            skips: Some(Skips {
                on: true,
                since: Time::from_unix_millis(5),
                times: 3,
                spent: false,
            }),
        };
        let book = Book {
            frozen: Some(Freeze {
                by: "me".into(),
                reason: "because".into(),
                at: Time::from_unix_millis(3),
            }),
            begun: vec![Time::from_unix_millis(4)],
            entries: BTreeMap::from([(HookId::new(HookKind::Mutating, "c", "w"), entry)]),
        };
        let text = serde_json::to_string(&book).unwrap();
        let lines = Book {
            entries: book.entries.clone(),
            ..Book::default()
        };
        let written = serde_json::to_string(&lines).unwrap();
        assert!(written.len() <= book.bytes(), "{written}");
        assert_eq!(read(&text), (book, Vec::new()), "{text}");
        assert_eq!(serde_json::to_string(&Book::default()).unwrap(), "{}");
        assert_eq!(read("{}"), (Book::default(), Vec::new()));
        let newer = text
            .replace("Hanging", "Haunted")
            .replace("\"leaving\"", "\"lingering\"")
            .replace("\"skip\"", "\"ignore\"")
            .replace("\"spent\"", "\"extra\":1,\"spent\"");
        let (newer, nonsense) = read(&newer);
        assert_eq!(nonsense, Vec::<Value>::new());
        assert!(newer.entries.values().all(
            |entry| (entry.cause, entry.rung, entry.place) == (Cause::Slow, Rung::Skip, EntryStage::Held)
        ));
    }

    #[test]
    fn what_makes_no_sense_costs_neither_the_lines_beside_it_nor_an_order_to_freeze() {
        let line = |at: Value| {
            json!({"hook": HookId::new(HookKind::Validating, "c", "w"), "place": "held", "rung": "skip",
                "cause": "Hanging", "by": "a", "since": Time::default(), "at": at, "seen": "7"})
        };
        let (good, bad) = (line(json!(Time::default())), line(json!("soon")));
        let text = json!({"frozen": "please", "begun": ["soon"], "entries": [good, bad, 3]});
        let (book, nonsense) = Book::read(&text);
        assert_eq!(nonsense, [json!("please"), json!("soon"), bad, json!(3)]);
        assert_eq!(book.entries.len(), 1);
        assert!(
            book.frozen
                .is_some_and(|order| order.sentence().contains("hookwatch unfreeze"))
        );
        assert_eq!(Book::read(&json!(3)), (Book::default(), vec![json!(3)]));
        assert_eq!(
            Book::read(&json!({"frozen": false})),
            (Book::default(), Vec::new())
        );
    }
}
