//! The ledger: what replicas agree on while Leases cannot be written.
//!
//! It is the annotation `hookwatch.dev/ledger` on an empty ValidatingWebhookConfiguration, `hookwatch-ledger`. Writes
//! to webhook configurations are never sent to webhooks (kube-apiserver 1.36,
//! `admission/plugin/webhook/predicates/rules/rules.go`), so no webhook that the API serves can block one.
//!
//! Replicas of different releases share a ledger. Each keeps unknown keys of the ledger and of its actor, which later releases
//! may add. It writes the breaker's [`book`] with the fields that it knows and no others, and a bid replaces a ledger that
//! cannot be read. A copy of what could not be parsed is kept.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::breaker::book::{self, Book};
use super::leadership::{Bid, HolderRecord, UNREADABLE};
use crate::text::{bounded, bounded_to};

/// The object that holds it, a ValidatingWebhookConfiguration.
pub const OBJECT: &str = "hookwatch-ledger";
/// The annotation on it.
pub const ANNOTATION: &str = "hookwatch.dev/ledger";
/// Most bytes of the annotation. All annotations of an object have 256 KiB together.
pub const MAX_BYTES: usize = 128 << 10;
/// Longest valid identity in bytes: a Pod's name and a suffix.
const MAX_IDENTITY: usize = 300;
/// The version of the format that this release writes.
const VERSION: u64 = 1;
/// The key of the copy of what could not be parsed.
const COPY: &str = "unreadable";
/// Most bytes of that copy.
const MAX_COPY: usize = 16 << 10;

/// The content of the annotation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// The version of the format. That of a newer release is kept, as this release can read what it wrote.
    #[serde(default)]
    version: u64,
    /// The replica that may act; `None` when it released the ledger, or no replica has claimed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actor: Option<Actor>,
    /// What other releases keep here.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Actor {
    identity: Arc<str>,
    /// When it became the actor, by its own wall clock, for people.
    #[serde(default)]
    since: String,
    /// How often it has renewed that. It makes every renewal a change that other replicas see.
    #[serde(default)]
    renewed: u64,
    /// How many seconds other replicas must see it unchanged before they may take over.
    #[serde(default)]
    seconds: u64,
    /// How often the actor has changed.
    #[serde(default)]
    transitions: u64,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// The annotation, as far as it could be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerReading {
    /// It was parsed.
    Ledger(Ledger),
    /// It cannot be parsed. Another replica may still act by it, so it counts as held for a term, and is then replaced.
    Unreadable {
        /// What is wrong with it.
        why: String,
        /// The beginning of the text, for the copy.
        text: String,
    },
}

impl Ledger {
    /// The breaker's part, and its invalid parts.
    fn book(&self) -> (Book, Vec<Value>) {
        Book::read(self.rest.get(book::KEY).unwrap_or(&Value::Null))
    }

    fn keep_copy(&mut self, text: &str) {
        self.rest
            .insert(COPY.to_owned(), bounded_to(MAX_COPY, text).into());
    }

    /// The annotation. `None` when it would be larger than [`MAX_BYTES`] even without the copy.
    fn text(mut self) -> Option<String> {
        let text = serde_json::to_string(&self).ok()?;
        if text.len() <= MAX_BYTES {
            return Some(text);
        }
        self.rest.remove(COPY)?;
        let text = serde_json::to_string(&self).ok()?;
        (text.len() <= MAX_BYTES).then_some(text)
    }
}

impl LedgerReading {
    /// Reads the annotation; one that is absent or empty is an empty ledger.
    pub fn of(annotation: Option<&str>) -> Self {
        let text = annotation.unwrap_or_default();
        if text.trim().is_empty() {
            return Self::Ledger(Ledger::default());
        }
        let unreadable = |why: String| Self::Unreadable {
            why: bounded(&why),
            text: bounded_to(MAX_COPY, text),
        };
        if text.len() > MAX_BYTES {
            return unreadable(format!("it has {} bytes, {MAX_BYTES} are read", text.len()));
        }
        match serde_json::from_str::<Ledger>(text) {
            Err(error) => unreadable(error.to_string()),
            Ok(ledger) => match &ledger.actor {
                Some(actor) if actor.identity.is_empty() || actor.identity.len() > MAX_IDENTITY => {
                    unreadable("its actor has no usable identity".to_owned())
                }
                _ => Self::Ledger(ledger),
            },
        }
    }

    /// Who holds it, for the election, in an object of this `metadata.uid` and `resourceVersion`.
    pub fn record(&self, uid: &str, version: &str) -> HolderRecord {
        let actor = match self {
            Self::Ledger(ledger) => ledger.actor.as_ref(),
            Self::Unreadable { .. } => None,
        };
        HolderRecord {
            holder: match self {
                Self::Ledger(_) => actor.map(|actor| Arc::clone(&actor.identity)),
                Self::Unreadable { .. } => Some(UNREADABLE.into()),
            },
            term: Duration::from_secs(actor.map_or(0, |actor| actor.seconds)),
            transitions: actor.map_or(0, |actor| actor.transitions),
            uid: uid.to_owned(),
            version: version.to_owned(),
        }
    }

    /// The valid lines of the breaker's part.
    ///
    /// # Errors
    /// What is wrong with the annotation.
    pub fn book(&self) -> Result<Book, String> {
        match self {
            Self::Unreadable { why, .. } => Err(why.clone()),
            Self::Ledger(ledger) => Ok(ledger.book().0),
        }
    }

    /// What is wrong with it and the consequence, as the rest of a sentence about it; `None` when all of it is valid.
    pub fn complaint(&self) -> Option<String> {
        match self {
            Self::Unreadable { why, .. } => Some(format!(
                "is unreadable and will be replaced, an order to freeze in it as well; a copy stays in it as {COPY:?}: {why}"
            )),
            Self::Ledger(ledger) => {
                let (_, invalid) = ledger.book();
                let first = bounded(&invalid.first()?.to_string());
                Some(format!(
                    "makes no sense in {} places, which count as nothing, but for an order to freeze, which holds; the breaker's next \
                     write leaves a copy in it as {COPY:?}: {first}",
                    invalid.len()
                ))
            }
        }
    }

    /// The annotation with this book in it. `None` when it would be larger than [`MAX_BYTES`], or the current one cannot be
    /// parsed.
    pub fn with_book(&self, book: &Book) -> Option<String> {
        let Self::Ledger(ledger) = self else { return None };
        let mut ledger = ledger.clone();
        let (_, invalid) = ledger.book();
        if !invalid.is_empty() {
            ledger.keep_copy(&Value::Array(invalid).to_string());
        }
        ledger.version = ledger.version.max(VERSION);
        if *book == Book::default() {
            ledger.rest.remove(book::KEY);
        } else {
            let text = serde_json::to_value(book).ok()?;
            ledger.rest.insert(book::KEY.to_owned(), text);
        }
        ledger.text()
    }

    /// The annotation with this bid in it; `now` is the wall clock's time as text. `None` when it would be larger than
    /// [`MAX_BYTES`].
    pub fn with_bid(&self, bid: &Bid, now: &str) -> Option<String> {
        let mut ledger = match self {
            Self::Ledger(ledger) => ledger.clone(),
            Self::Unreadable { text, .. } => {
                let mut ledger = Ledger::default();
                ledger.keep_copy(text);
                ledger
            }
        };
        ledger.version = ledger.version.max(VERSION);
        let before = ledger.actor.take();
        ledger.actor = bid.holder.as_ref().map(|identity| {
            let same = before.filter(|before| before.identity == *identity);
            Actor {
                identity: Arc::clone(identity),
                since: same
                    .as_ref()
                    .map_or_else(|| now.to_owned(), |actor| actor.since.clone()),
                renewed: same.as_ref().map_or(0, |actor| actor.renewed.saturating_add(1)),
                seconds: bid.term.as_secs() + u64::from(bid.term.subsec_nanos() > 0),
                transitions: bid.transitions,
                rest: same.map(|actor| actor.rest).unwrap_or_default(),
            }
        });
        ledger.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const NOW: &str = "2026-11-21T00:11:02Z";

    fn bid(holder: Option<&str>) -> Bid {
        Bid {
            precondition: Some("1".into()),
            holder: holder.map(Into::into),
            changes_hands: true,
            transitions: 4,
            term: Duration::from_millis(14_500),
        }
    }

    fn value(text: Option<String>) -> Value {
        serde_json::from_str(&text.expect("it fits")).expect("JSON")
    }

    #[test]
    fn an_empty_ledger_has_no_holder() {
        for text in [None, Some(""), Some(" "), Some("{}")] {
            let record = LedgerReading::of(text).record("u", "7");
            assert_eq!((record.holder, record.version.as_str()), (None, "7"), "{text:?}");
        }
    }

    #[test]
    fn an_actor_is_written_renewed_and_released() {
        let first = LedgerReading::of(None)
            .with_bid(&bid(Some("a")), NOW)
            .expect("it fits");
        let record = LedgerReading::of(Some(&first)).record("u", "2");
        assert_eq!(record.holder.as_deref(), Some("a"));
        assert_eq!(record.term, Duration::from_secs(15), "never less than is meant");
        assert_eq!(record.transitions, 4);
        let second = LedgerReading::of(Some(&first))
            .with_bid(&bid(Some("a")), "later")
            .expect("it fits");
        assert_ne!(first, second, "a renewal is always a change");
        let actor = value(Some(second.clone()))["actor"].clone();
        assert_eq!(
            (&actor["renewed"], &actor["since"]),
            (&json!(1), &json!(NOW)),
            "{actor}"
        );
        let other = value(LedgerReading::of(Some(&second)).with_bid(&bid(Some("b")), "later"));
        assert_eq!(
            (&other["actor"]["renewed"], &other["actor"]["since"]),
            (&json!(0), &json!("later"))
        );
        let released = LedgerReading::of(Some(&second))
            .with_bid(&bid(None), NOW)
            .expect("it fits");
        assert_eq!(LedgerReading::of(Some(&released)).record("u", "3").holder, None);
    }

    #[test]
    fn what_another_release_keeps_there_stays() {
        let text = json!({
            "version": 3,
            "frozen": {"by": "a person"},
            "bypassed": {"validating/c/w": {"failurePolicy": "Fail"}},
            "actor": {"identity": "a", "renewed": 5, "hint": [1]},
        })
        .to_string();
        let written = value(LedgerReading::of(Some(&text)).with_bid(&bid(Some("a")), NOW));
        assert_eq!(written["version"], 3);
        assert_eq!(written["frozen"]["by"], "a person");
        assert_eq!(written["bypassed"]["validating/c/w"]["failurePolicy"], "Fail");
        assert_eq!(
            (&written["actor"]["renewed"], &written["actor"]["hint"]),
            (&json!(6), &json!([1]))
        );
    }

    #[test]
    fn a_book_stands_beside_the_actor_and_neither_costs_the_other_anything() {
        let first = LedgerReading::of(None)
            .with_bid(&bid(Some("a")), NOW)
            .expect("it fits");
        let reading = LedgerReading::of(Some(&first));
        assert_eq!(reading.book(), Ok(Book::default()));
        let book = Book {
            skips_begun: vec![crate::time::Time::from_unix_millis(4)],
            ..Book::default()
        };
        let text = reading.with_book(&book).expect("it fits");
        let reading = LedgerReading::of(Some(&text));
        assert_eq!(reading.record("u", "2").holder.as_deref(), Some("a"));
        let renewed = reading.with_bid(&bid(Some("b")), NOW).expect("it fits");
        let reading = LedgerReading::of(Some(&renewed));
        assert_eq!(reading.book(), Ok(book));
        let emptied = reading.with_book(&Book::default());
        assert_eq!(value(emptied)["actor"]["identity"], "b");
    }

    #[test]
    fn a_book_that_makes_no_sense_is_said_and_replaced_and_a_copy_is_kept() {
        let text = r#"{"breaker": {"entries": [{"place": "haunted"}]}, "actor": {"identity": "a"}}"#;
        let reading = LedgerReading::of(Some(text));
        assert_eq!(reading.book(), Ok(Book::default()));
        assert!(reading.complaint().is_some_and(|why| why.contains("haunted")));
        let written = reading.with_book(&Book::default()).expect("it fits");
        let reading = LedgerReading::of(Some(&written));
        assert_eq!((reading.book(), reading.complaint()), (Ok(Book::default()), None));
        assert_eq!(reading.record("u", "2").holder.as_deref(), Some("a"));
        assert_eq!(value(Some(written))["unreadable"], r#"[{"place":"haunted"}]"#);
        let nonsense = LedgerReading::of(Some("nonsense"));
        assert!(nonsense.book().is_err() && nonsense.complaint().is_some());
        assert_eq!(nonsense.with_book(&Book::default()), None);
    }

    #[test]
    fn a_copy_of_what_made_no_sense_takes_no_room_from_the_ledger() {
        let text = json!({"kept": "x".repeat(100 << 10), "breaker": "x".repeat(MAX_COPY)}).to_string();
        for (begun, kept) in [(0, true), (900, false)] {
            let book = Book {
                skips_begun: vec![crate::time::Time::from_unix_millis(4); begun],
                ..Book::default()
            };
            let written = LedgerReading::of(Some(&text)).with_book(&book);
            assert_eq!(value(written).get("unreadable").is_some(), kept, "{begun}");
        }
    }

    #[test]
    fn what_cannot_be_read_counts_as_held_until_it_is_replaced() {
        let huge = format!("{{\"x\": \"{}\"}}", "x".repeat(MAX_BYTES));
        let long = json!({"actor": {"identity": "x".repeat(301)}}).to_string();
        for text in [
            "nonsense",
            "[]",
            "{\"actor\": 3}",
            "{\"actor\": {\"identity\": \"\"}}",
            &huge,
            &long,
        ] {
            let reading = LedgerReading::of(Some(text));
            assert!(matches!(reading, LedgerReading::Unreadable { .. }));
            assert_eq!(reading.record("u", "1").holder.as_deref(), Some("unreadable"));
            let written = value(reading.with_bid(&bid(Some("a")), NOW));
            assert_eq!(written["actor"]["identity"], "a");
            let copy = written["unreadable"].as_str().expect("a copy");
            assert!(text.starts_with(copy) && (copy.len() == MAX_COPY || copy == text));
        }
    }

    #[test]
    fn a_ledger_that_would_grow_too_large_is_not_written() {
        let full = json!({"kept": "x".repeat(MAX_BYTES - 20)}).to_string();
        assert!(matches!(LedgerReading::of(Some(&full)), LedgerReading::Ledger(_)));
        assert_eq!(
            LedgerReading::of(Some(&full)).with_bid(&bid(Some("a")), NOW),
            None
        );
    }

    proptest! {
        #[test]
        fn whatever_was_read_can_be_written_and_read_again(text in "\\PC{0,200}") {
            if let Some(written) = LedgerReading::of(Some(&text)).with_bid(&bid(Some("a")), NOW) {
                let again = LedgerReading::of(Some(&written)).record("u", "1");
                prop_assert_eq!(again.holder.as_deref(), Some("a"));
            }
        }
    }
}
