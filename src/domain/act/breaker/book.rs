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

/// The key of the book in the ledger.
pub const KEY: &str = "breaker";

/// A `resourceVersion`: equal for equal content, never used again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceVersion(pub Arc<str>);

impl ResourceVersion {
    /// A version by its text.
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
    /// When recent skips began, by the clocks of the replicas that began them.
    #[serde(rename = "begun", skip_serializing_if = "Vec::is_empty")]
    pub skips_begun: Vec<Time>,
    /// A line per hook that is bypassed, is about to be, or recently was.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "write_entries")]
    pub entries: BTreeMap<HookId, BookEntry>,
}

/// Most bytes of a line without the names in it.
const MAX_LINE: usize = 400;
/// Bytes of lines from which on the book is full. The other 16 KiB of the ledger are for the leader and for what other
/// releases keep.
const MAX_LINES: usize = 112 << 10;

impl Book {
    /// Parses a book, and returns the parts that are invalid. An invalid line is ignored, as the objects record what is
    /// bypassed. An invalid freeze order still freezes.
    pub fn read(text: &Value) -> (Self, Vec<Value>) {
        let mut invalid = Vec::new();
        if !(text.is_object() || text.is_null()) {
            invalid.push(text.clone());
        }
        let order = text.get("frozen");
        let order = order.filter(|order| !matches!(order, Value::Null | Value::Bool(false)));
        let frozen = order.map(|order| {
            Freeze::deserialize(order).unwrap_or_else(|error| {
                invalid.push(order.clone());
                Freeze {
                    by: "an unknown client".into(),
                    reason: bounded(&format!("the order in the ledger cannot be read: {error}")).into(),
                    at: Time::default(),
                }
            })
        });
        let skips_begun = valid_items(text.get("begun"), &mut invalid);
        let lines: Vec<BookLine<BookEntry>> = valid_items(text.get("entries"), &mut invalid);
        let entries = lines.into_iter().map(|line| (line.hook, line.entry)).collect();
        let book = Self {
            frozen,
            skips_begun,
            entries,
        };
        (book, invalid)
    }

    /// Whether another line fits. The last quarter is reserved for webhooks that Lease renewals are sent to: otherwise
    /// webhooks that only their installer uses could fill the book.
    pub(super) fn has_room(&self, stake: Stake) -> bool {
        let most = if stake == Stake::Renewals {
            MAX_LINES
        } else {
            MAX_LINES / 4 * 3
        };
        self.bytes() + MAX_LINE <= most
    }

    /// An upper bound of the bytes of all lines.
    fn bytes(&self) -> usize {
        let lines = self.entries.iter().map(|(hook, entry)| {
            MAX_LINE
                + hook.configuration.len()
                + hook.webhook.len()
                + entry.by.len()
                + entry.object_version.0.len()
        });
        lines.sum()
    }
}

/// A person's order to begin no bypass.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Freeze {
    /// Who gave the order, as recorded by `hookwatch freeze`.
    pub by: Arc<str>,
    /// The reason given, for people.
    pub reason: Arc<str>,
    /// When the order was given, by that person's clock.
    pub at: Time,
}

impl Freeze {
    /// When the order was given; `None` for an order that could not be read.
    pub fn since(&self) -> Option<Time> {
        (self.at > Time::default()).then_some(self.at)
    }

    /// The order in words, with the command that ends it.
    pub fn sentence(&self) -> String {
        let Self { by, reason, at } = self;
        format!(
            "Frozen since {at} by {by}: {reason}. Nothing new is bypassed. To end that: hookwatch unfreeze."
        )
    }
}

/// The stage of a bypass in the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EntryStage {
    /// The hook is bypassed, or will be next. It counts towards the budget.
    #[serde(rename = "held")]
    Bypassed,
    /// Any replica may restore the hook. It counts as bypassed until every API server shows the original.
    #[serde(rename = "leaving")]
    Restoring,
    /// The original is in force. The line keeps the history of the hook for a while.
    #[serde(rename = "out")]
    Restored,
}

/// The line of a hook in the book.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BookEntry {
    /// Its stage.
    #[serde(rename = "place", deserialize_with = "read_stage")]
    pub stage: EntryStage,
    /// The rung that was chosen.
    #[serde(deserialize_with = "read_rung")]
    pub rung: Rung,
    /// The cause for which the bypass was decided on.
    #[serde(deserialize_with = "read_cause")]
    pub cause: Cause,
    /// Who was affected by the hook when the bypass was decided on.
    #[serde(default, deserialize_with = "read_stake")]
    pub stake: Stake,
    /// The replica that wrote the line. Only this replica may begin the bypass, for a limited time.
    pub by: Arc<str>,
    /// When the bypass was decided on, by the clock of the replica that did.
    pub since: Time,
    /// When the line was written, by the clock of its writer. It makes every write a change that other replicas see.
    pub at: Time,
    /// The version of the object when the line was written. An object that still has it has not changed since.
    #[serde(rename = "seen")]
    pub object_version: ResourceVersion,
    /// How often another writer reverted the bypass.
    #[serde(default)]
    pub reverts: u8,
    /// How often the hook failed again after a restore.
    #[serde(default)]
    pub relapses: u8,
    /// Another writer keeps reverting it: hookwatch has stopped.
    #[serde(default)]
    pub contested: bool,
    /// The bypass reached its time limit: there is no other before the hook was healthy.
    #[serde(default, rename = "spent")]
    pub limit_reached: bool,
    /// A person made this bypass, so its removal does not count as a revert.
    #[serde(default)]
    pub by_hand: bool,
    /// The skips of the hook while it was dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skips: Option<Skips>,
}

/// The history of a hook's skips while it was dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Skips {
    /// Whether the last skip is in force, or will be next.
    pub on: bool,
    /// When the last skip was decided on, by the clock of the replica that did.
    pub since: Time,
    /// How many skips were decided on.
    pub times: u8,
    /// A skip reached its time limit: there is no other before the line is removed.
    #[serde(default, rename = "spent")]
    pub limit_reached: bool,
}

impl BookEntry {
    /// Whether the line says more than that a bypass was decided on.
    pub(super) fn has_history(&self) -> bool {
        self.reverts > 0 || self.relapses > 0 || self.contested || self.limit_reached
    }

    /// Whether the hook counts as bypassed.
    pub fn counts_as_bypassed(&self) -> bool {
        self.stage != EntryStage::Restored
    }
}

/// A line together with its hook: a hook cannot be a key of a JSON object.
#[derive(Serialize, Deserialize)]
struct BookLine<E> {
    hook: HookId,
    #[serde(flatten)]
    entry: E,
}

fn write_entries<S: Serializer>(
    entries: &BTreeMap<HookId, BookEntry>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(entries.iter().map(|(hook, entry)| BookLine {
        hook: hook.clone(),
        entry,
    }))
}

/// The valid items of a list. Adds the other items to `invalid`.
fn valid_items<T: DeserializeOwned>(list: Option<&Value>, invalid: &mut Vec<Value>) -> Vec<T> {
    let list = match list {
        None | Some(Value::Null) => &[],
        Some(Value::Array(list)) => list.as_slice(),
        Some(other) => std::slice::from_ref(other),
    };
    let read = list.iter().filter_map(|item| match T::deserialize(item) {
        Ok(item) => Some(item),
        Err(_) => {
            invalid.push(item.clone());
            None
        }
    });
    read.collect()
}

/// A stage by its name. A name of another release counts as bypassed.
fn read_stage<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EntryStage, D::Error> {
    let name = Value::deserialize(deserializer)?;
    Ok(EntryStage::deserialize(name).unwrap_or(EntryStage::Bypassed))
}

/// A rung by its name. A name of another release, such as the former `ignore`, counts as the highest rung.
fn read_rung<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rung, D::Error> {
    let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    Ok(Rung::parse(&name).unwrap_or(Rung::Skip))
}

/// The affected clients, by name. A name of another release counts as the default.
fn read_stake<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Stake, D::Error> {
    let name = Value::deserialize(deserializer)?;
    Ok(Stake::deserialize(name).unwrap_or_default())
}

/// A cause by its name. A name of another release counts as [`Cause::Slow`], which permits least.
fn read_cause<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cause, D::Error> {
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
            stage: EntryStage::Restoring,
            rung: Rung::Skip,
            cause: Cause::Hanging,
            stake: Stake::Renewals,
            by: "a".into(),
            since: Time::from_unix_millis(1),
            at: Time::from_unix_millis(2),
            object_version: ResourceVersion::new("7"),
            reverts: 1,
            relapses: 2,
            contested: false,
            limit_reached: true,
            by_hand: false,
            skips: Some(Skips {
                on: true,
                since: Time::from_unix_millis(5),
                times: 3,
                limit_reached: false,
            }),
        };
        let book = Book {
            frozen: Some(Freeze {
                by: "me".into(),
                reason: "because".into(),
                at: Time::from_unix_millis(3),
            }),
            skips_begun: vec![Time::from_unix_millis(4)],
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
        let (newer, invalid) = read(&newer);
        assert_eq!(invalid, Vec::<Value>::new());
        assert!(
            newer
                .entries
                .values()
                .all(|entry| (entry.cause, entry.rung, entry.stage)
                    == (Cause::Slow, Rung::Skip, EntryStage::Bypassed))
        );
    }

    #[test]
    fn an_invalid_line_keeps_the_valid_lines_and_an_invalid_freeze_order_still_freezes() {
        let line = |at: Value| {
            json!({"hook": HookId::new(HookKind::Validating, "c", "w"), "place": "held", "rung": "skip",
                "cause": "Hanging", "by": "a", "since": Time::default(), "at": at, "seen": "7"})
        };
        let (good, bad) = (line(json!(Time::default())), line(json!("soon")));
        let text = json!({"frozen": "please", "begun": ["soon"], "entries": [good, bad, 3]});
        let (book, invalid) = Book::read(&text);
        assert_eq!(invalid, [json!("please"), json!("soon"), bad, json!(3)]);
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
