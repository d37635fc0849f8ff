//! The record of bypasses on an object, in the annotation [`STATE_ANNOTATION`](super::STATE_ANNOTATION).
//!
//! It is JSON over several lines, which `kubectl get -o yaml` shows as a block of text, and explains itself to people.
//! Different releases read it: unknown fields are kept, and each field is parsed separately, so that an invalid field does not
//! prevent a restore.

use serde_json::{Map, Value, json};

use super::standing::ignoring_value;
use super::{BypassPhase, Rung, original};
use crate::text::bounded;
use crate::time::Time;

/// Most characters of the annotation that the fence permits.
pub const MAX_STATE: usize = 16_384;
/// The version of the format that this release writes.
const VERSION: u64 = 1;
/// The value in place of a rung where failures are ignored.
const IGNORED: &str = "ignore";
/// Most characters of one sentence of a reason or of evidence.
const MAX_SENTENCE: usize = 300;
/// Most sentences of evidence.
const MAX_EVIDENCE: usize = 6;
/// For readers who have never heard of hookwatch.
const NOTE: [&str; 6] = [
    "hookwatch changed the webhooks named here because they kept the API from being written.",
    "It added the matchConditions whose names begin with hookwatch.dev/, and removes them when the webhooks recover.",
    "If failures were ignored by `hookwatch break`, 'applied' has the current and 'original' the former failurePolicy/timeoutSeconds.",
    "To undo it: hookwatch restore CONFIGURATION/WEBHOOK. Without hookwatch: remove those matchConditions,",
    "restore the original where there is one, and remove this annotation last.",
    "To forbid bypasses, annotate the object hookwatch.dev/breaker: off.",
];

/// Who changed an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectWriter {
    /// The replica, or the person.
    pub identity: String,
    /// The release of hookwatch.
    pub version: String,
}

impl ObjectWriter {
    /// Whether it is a person: a person's identity is `USER@HOST`, a replica's the name of its Pod or machine.
    pub fn is_person(&self) -> bool {
        self.identity.contains('@')
    }
}

/// A webhook's `failurePolicy` and `timeoutSeconds`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureFields {
    /// `failurePolicy`.
    pub failure_policy: String,
    /// `timeoutSeconds`.
    pub timeout_seconds: u64,
}

impl FailureFields {
    /// The text in the annotation. The fence prescribes its form.
    pub fn text(&self, webhook: &str) -> String {
        original(webhook, &self.failure_policy, self.timeout_seconds)
    }

    /// Reads that form.
    ///
    /// # Errors
    /// When it is in another form, or the API server would not accept the values.
    pub fn read(webhook: &str, text: &str) -> Result<Self, String> {
        let parts = text
            .strip_prefix(webhook)
            .and_then(|rest| rest.strip_prefix('='))
            .and_then(|rest| rest.split_once('/'));
        let Some((policy, seconds)) = parts else {
            return Err(format!(
                "the original {text:?} is not of the form WEBHOOK=POLICY/SECONDS"
            ));
        };
        match (policy, seconds.parse()) {
            ("Fail" | "Ignore", Ok(seconds @ 1..=30)) => Ok(Self {
                failure_policy: policy.to_owned(),
                timeout_seconds: seconds,
            }),
            _ => Err(format!(
                "the original {text:?} is not valid: failurePolicy is Fail or Ignore, timeoutSeconds 1 to 30"
            )),
        }
    }
}

/// The entry of one webhook in the annotation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AnnotationEntry(Map<String, Value>);

impl AnnotationEntry {
    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    fn time(&self, key: &str) -> Option<Time> {
        serde_json::from_value(self.0.get(key)?.clone()).ok()
    }

    /// The rung; `None` where failures are ignored, and for a rung of another release.
    pub fn rung(&self) -> Option<Rung> {
        Rung::parse(self.text("rung")?).ok()
    }

    /// The phase; `None` for a phase of another release.
    pub fn phase(&self) -> Option<BypassPhase> {
        BypassPhase::parse(self.text("phase")?).ok()
    }

    /// The original fields; `None` when they were not changed.
    ///
    /// # Errors
    /// When the recorded values cannot be restored.
    pub fn original(&self, webhook: &str) -> Result<Option<FailureFields>, String> {
        match self.0.get("original") {
            None => Ok(None),
            Some(Value::String(text)) => FailureFields::read(webhook, text).map(Some),
            Some(other) => Err(format!("the original {other} is no text")),
        }
    }

    /// Whether hookwatch gave a field this value. With a recorded original, the values that ignore failures count as
    /// hookwatch's, whatever else the entry says: an attacker with hookwatch's credentials can change everything in it but the
    /// original. No release sets another `failurePolicy` than `Ignore`, so every restore makes the hook stricter.
    pub fn has_set(&self, field: &str, value: &Value) -> bool {
        let said = || self.0.get("applied").and_then(|applied| applied.get(field));
        let is_ignored = *value == ignoring_value(field);
        self.0.contains_key("original") && (is_ignored || field != "failurePolicy" && said() == Some(value))
    }

    /// When the bypass began.
    pub fn since(&self) -> Option<Time> {
        self.time("since")
    }

    /// When it expires; `None` when no end was given.
    pub fn expires(&self) -> Option<Time> {
        self.time("expires")
    }

    /// How often another writer reverted it and hookwatch applied it again.
    pub fn reverts(&self) -> u64 {
        self.0.get("reverts").and_then(Value::as_u64).unwrap_or(0)
    }

    /// Who wrote the entry.
    pub fn by(&self) -> Option<ObjectWriter> {
        let by = self.0.get("by")?;
        let text = |key: &str| by.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(ObjectWriter {
            identity: text("identity"),
            version: text("version"),
        })
    }

    pub(super) fn set_rung(&mut self, rung: Rung, phase: BypassPhase) {
        self.put("rung", rung.as_str().into());
        self.set_phase(phase);
    }

    pub(super) fn set_ignored(&mut self) {
        self.put("rung", IGNORED.into());
        self.set_phase(BypassPhase::Bypassed);
    }

    pub(super) fn set_phase(&mut self, phase: BypassPhase) {
        self.put("phase", phase.as_str().into());
    }

    /// Records the original fields, and the values that were set.
    pub(super) fn set_fields(
        &mut self,
        webhook: &str,
        original: &FailureFields,
        applied: Map<String, Value>,
    ) {
        self.put("original", original.text(webhook).into());
        self.put("applied", applied.into());
    }

    /// Removes the record of changed fields.
    pub(super) fn forget_fields(&mut self) {
        self.0.remove("original");
        self.0.remove("applied");
    }

    pub(super) fn set_why(&mut self, reason: &str, evidence: &[String]) {
        let evidence: Vec<String> = evidence
            .iter()
            .take(MAX_EVIDENCE)
            .map(|it| sanitized(it))
            .collect();
        self.put("reason", sanitized(reason).into());
        self.put("evidence", evidence.into());
    }

    pub(super) fn set_times(&mut self, since: Option<Time>, now: Time, expires: Option<Time>) {
        self.put("since", json!(since.unwrap_or(now)));
        self.put("changed", json!(now));
        match expires {
            Some(expires) => self.put("expires", json!(expires)),
            None => drop(self.0.remove("expires")),
        }
    }

    pub(super) fn set_by(&mut self, writer: &ObjectWriter) {
        let by = json!({"identity": sanitized(&writer.identity), "version": sanitized(&writer.version)});
        self.put("by", by);
    }

    pub(super) fn count_revert(&mut self) {
        self.put("reverts", (self.reverts() + 1).into());
    }

    fn put(&mut self, key: &str, value: Value) {
        self.0.insert(key.to_owned(), value);
    }
}

/// A sentence for the annotation. The fence takes every quoted text of that form for an original, so no text from outside may
/// look like one. Control characters would make `kubectl get -o yaml` show the annotation as one line.
fn sanitized(text: &str) -> String {
    let text: String = text
        .chars()
        .take(MAX_SENTENCE)
        .map(|character| match character {
            '"' | '\\' => '\'',
            control if control.is_control() => ' ',
            other => other,
        })
        .collect();
    text.replace("=Fail/", "= Fail/")
        .replace("=Ignore/", "= Ignore/")
        .trim()
        .to_owned()
}

/// The texts in an annotation that the fence takes for originals.
fn originals(text: &str) -> impl Iterator<Item = &str> {
    let pieces = text.split('"');
    pieces.filter(|piece| piece.contains("=Fail/") || piece.contains("=Ignore/"))
}

/// Moves each original into the entry of its webhook. The fence prevents an attacker with hookwatch's credentials from removing
/// an original, but not from moving it within the annotation.
fn move_originals(text: &str, webhooks: &mut Map<String, Value>) {
    for original in originals(text) {
        let Some((webhook, _)) = original.rsplit_once('=') else {
            continue;
        };
        let is_one = |text: &str| FailureFields::read(webhook, text).is_ok();
        if is_one(original) {
            let entry = webhooks.entry(webhook).or_insert_with(|| json!({}));
            if !entry["original"].as_str().is_some_and(is_one) {
                entry["original"] = original.into();
            }
        }
    }
}

/// The annotation, parsed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BypassAnnotation {
    webhooks: Map<String, Value>,
    /// All other fields at the top level.
    rest: Map<String, Value>,
}

/// An annotation that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableAnnotation {
    /// What is wrong with it, in one sentence.
    pub why: String,
    /// The texts in it that the fence takes for originals.
    originals: Vec<String>,
}

impl UnreadableAnnotation {
    /// The original of a webhook, if it can still be found.
    pub fn original(&self, webhook: &str) -> Option<FailureFields> {
        let mut originals = self.originals.iter();
        originals.find_map(|text| FailureFields::read(webhook, text).ok())
    }
}

impl BypassAnnotation {
    /// Parses the annotation; without one there are no entries.
    ///
    /// # Errors
    /// When no hookwatch would have written it.
    pub fn read(annotation: Option<&str>) -> Result<Self, UnreadableAnnotation> {
        let Some(text) = annotation else {
            return Ok(Self::default());
        };
        let unreadable = |why: String| UnreadableAnnotation {
            why: bounded(&why),
            originals: originals(text).map(str::to_owned).collect(),
        };
        // With escapes in it, an original would not be recognized by the fence, which compares texts.
        if text.contains('\\') {
            return Err(unreadable(
                "it has a \\ in it, which hookwatch never writes".to_owned(),
            ));
        }
        let mut rest: Map<String, Value> = serde_json::from_str(text)
            .map_err(|error| unreadable(format!("it is not what hookwatch writes: {error}")))?;
        match rest.remove("webhooks") {
            Some(Value::Object(mut webhooks)) => {
                match webhooks.iter().find(|(_, entry)| !entry.is_object()) {
                    Some((name, _)) => Err(unreadable(format!(
                        "what it says of webhook {name:?} is no object"
                    ))),
                    None => {
                        move_originals(text, &mut webhooks);
                        Ok(Self { webhooks, rest })
                    }
                }
            }
            _ => Err(unreadable("it has no object `webhooks`".to_owned())),
        }
    }

    /// Removes the evidence of every entry. No restore needs it.
    pub(super) fn forget_evidence(&mut self) {
        for entry in self.webhooks.values_mut().filter_map(Value::as_object_mut) {
            entry.remove("evidence");
        }
    }

    /// The text of the annotation; `None` when there is no entry.
    pub fn text(&self) -> Option<String> {
        if self.webhooks.is_empty() {
            return None;
        }
        let mut all = self.rest.clone();
        let version = all.get("version").and_then(Value::as_u64).unwrap_or(0);
        all.insert("version".to_owned(), version.max(VERSION).into());
        all.entry("note").or_insert_with(|| json!(NOTE));
        all.insert("webhooks".to_owned(), self.webhooks.clone().into());
        // A value that came from JSON can be written as JSON.
        serde_json::to_string_pretty(&all).ok()
    }

    /// The names of the webhooks with an entry.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.webhooks.keys().map(String::as_str)
    }

    /// The entry of a webhook.
    pub fn entry(&self, webhook: &str) -> Option<AnnotationEntry> {
        self.webhooks
            .get(webhook)?
            .as_object()
            .cloned()
            .map(AnnotationEntry)
    }

    pub(super) fn set(&mut self, webhook: &str, entry: AnnotationEntry) {
        self.webhooks.insert(webhook.to_owned(), entry.0.into());
    }

    /// Removes the entry of a webhook, and defuses every text that looks like its original: it would bring the entry back.
    pub(super) fn forget(&mut self, webhook: &str) {
        self.webhooks.remove(webhook);
        for part in [&mut self.webhooks, &mut self.rest] {
            let text = Value::from(part.clone()).to_string();
            let left = originals(&text).filter(|original| FailureFields::read(webhook, original).is_ok());
            let cleaned = left.fold(text.clone(), |text, original| {
                text.replace(
                    &format!("\"{original}\""),
                    &format!("\"{}\"", sanitized(original)),
                )
            });
            if cleaned != text
                && let Ok(cleaned) = serde_json::from_str(&cleaned)
            {
                *part = cleaned;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> AnnotationEntry {
        let mut entry = AnnotationEntry::default();
        entry.set_ignored();
        let original = FailureFields {
            failure_policy: "Fail".into(),
            timeout_seconds: 10,
        };
        let applied = Map::from_iter([("failurePolicy".to_owned(), json!("Ignore"))]);
        entry.set_fields("w", &original, applied);
        entry.set_why("it hangs", &["seen".to_owned()]);
        entry.set_times(
            None,
            Time::from_unix_millis(1_000),
            Some(Time::from_unix_millis(9_000)),
        );
        entry.set_by(&ObjectWriter {
            identity: "me".into(),
            version: "1".into(),
        });
        entry
    }

    fn written() -> String {
        let mut state = BypassAnnotation::default();
        state.set("w", entry());
        state.text().expect("something")
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let state = BypassAnnotation::read(Some(&written())).expect("readable");
        let read = state.entry("w").expect("an entry");
        assert_eq!(read, entry());
        assert_eq!((read.rung(), read.phase()), (None, Some(BypassPhase::Bypassed)));
        assert_eq!(
            read.original("w").expect("valid").expect("one").timeout_seconds,
            10
        );
        assert_eq!(read.expires(), Some(Time::from_unix_millis(9_000)));
        assert_eq!(read.by().expect("somebody").identity, "me");
    }

    #[test]
    fn a_person_sees_lines_and_the_fence_sees_the_original() {
        let text = written();
        assert!(text.lines().count() > 10 && text.lines().all(|line| !line.ends_with(' ')));
        let originals: Vec<&str> = text.split('"').filter(|piece| piece.contains("=Fail/")).collect();
        assert_eq!(originals, ["w=Fail/10"]);
        assert!(text.contains("hookwatch restore"));
    }

    #[test]
    fn nothing_from_outside_looks_like_an_original() {
        let mut entry = AnnotationEntry::default();
        let forged = "x\"other=Fail/30\"\n\\\"w=Ignore/1\\\"";
        entry.set_why(forged, &[forged.to_owned()]);
        entry.set_by(&ObjectWriter {
            identity: forged.into(),
            version: forged.into(),
        });
        let mut state = BypassAnnotation::default();
        state.set("w", entry);
        let text = state.text().expect("something");
        assert!(
            !text
                .split('"')
                .any(|piece| piece.contains("=Fail/") || piece.contains("=Ignore/"))
        );
    }

    #[test]
    fn what_a_newer_release_adds_is_kept_and_does_no_harm() {
        let text = json!({
            "version": 7, "extra": [1],
            "webhooks": {"w": {"rung": "freeze", "phase": 3, "original": "w=Fail/9", "by": [], "since": "soon", "more": 1}},
        });
        let mut state = BypassAnnotation::read(Some(&text.to_string())).expect("readable");
        let read = state.entry("w").expect("an entry");
        assert_eq!((read.rung(), read.phase(), read.since()), (None, None, None));
        assert_eq!(
            read.original("w").expect("valid").expect("one").timeout_seconds,
            9
        );
        state.set("v", entry());
        let again: Value = serde_json::from_str(&state.text().expect("something")).expect("JSON");
        assert_eq!((&again["version"], &again["extra"]), (&json!(7), &json!([1])));
        assert_eq!(again["webhooks"]["w"], text["webhooks"]["w"]);
    }

    #[test]
    fn nonsense_is_told_and_what_survives_of_it_is_found() {
        for text in [
            "",
            "nonsense",
            "[]",
            "{}",
            "{\"webhooks\": []}",
            "{\"webhooks\": {\"w\": 1}}",
        ] {
            let unreadable = BypassAnnotation::read(Some(text)).expect_err(text);
            assert!(
                !unreadable.why.is_empty() && unreadable.original("w").is_none(),
                "{text}"
            );
        }
        let broken = written().replacen('{', "", 1);
        let unreadable = BypassAnnotation::read(Some(&broken)).expect_err("broken");
        assert_eq!(unreadable.original("w").expect("survives").failure_policy, "Fail");
    }

    #[test]
    fn a_webhook_that_is_forgotten_stays_so_wherever_its_original_stood() {
        for text in [
            json!({"webhooks": {"v": {"original": "w=Fail/10"}}}),
            json!({"webhooks": {"v": {"reason": "w=Fail/10"}}}),
            json!({"webhooks": {"v": {}}, "more": [{"w=Fail/10": 1}]}),
        ] {
            let mut state = BypassAnnotation::read(Some(&text.to_string())).expect("readable");
            assert!(state.entry("w").is_some(), "{text}");
            state.forget("w");
            let left = state.text().expect("v is left");
            let again = BypassAnnotation::read(Some(&left)).expect("readable");
            assert_eq!(Vec::from_iter(again.names()), ["v"], "{left}");
        }
    }

    #[test]
    fn an_original_that_no_longer_validates_is_told() {
        for text in [
            "w=Fail/0",
            "w=Fail/31",
            "w=Maybe/10",
            "w=Fail/x",
            "v=Fail/10",
            "w",
            "",
        ] {
            assert!(FailureFields::read("w", text).is_err(), "{text}");
        }
        assert!(FailureFields::read("a=b", "a=b=Fail/10").is_ok());
    }
}
