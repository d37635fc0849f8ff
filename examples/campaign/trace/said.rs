//! Converts the library's types to lines of a trace.

use std::collections::BTreeMap;
use std::fmt::Write;

use hookwatch::domain::act::breaker::To;
use hookwatch::domain::cluster::hook::{HookId, HookKind, Subject};
use hookwatch::domain::diagnose::verdict::{ControlPlane, Verdict};
use hookwatch::domain::report::assessment::Assessment;

use crate::breaking::Act;
use crate::model::At;

/// The verdict on a webhook or on the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    words: [&'static str; 3],
    /// The bits of an `f64`, so that the type can be [`Eq`].
    confidence: Option<u64>,
}

/// Stands for an empty field.
const NOTHING: &str = "-";

fn hook(verdict: &Verdict) -> Said {
    Said {
        words: [
            verdict.health.as_str(),
            verdict.cause.map_or(NOTHING, |cause| cause.as_str()),
            verdict.effect.as_str(),
        ],
        confidence: Some(verdict.confidence.to_bits()),
    }
}

fn plane(plane: &ControlPlane) -> Said {
    let found = plane.not_a_hook.as_ref();
    Said {
        words: [
            plane.writes.as_str(),
            found.map_or(NOTHING, |found| found.cause.as_str()),
            NOTHING,
        ],
        confidence: found.map(|found| found.confidence.to_bits()),
    }
}

/// Recorded when a webhook that had a verdict no longer has one.
const GONE: Said = Said {
    words: ["gone", NOTHING, NOTHING],
    confidence: None,
};

/// Whether a state, as [`to`] names it, is a bypass.
pub fn is_bypass(to: &str) -> bool {
    rank(to) > 0
}

/// The rank of a state, as [`to`] names it: a bypass with a higher rank exempts more writes. 0 for no bypass.
pub fn rank(to: &str) -> u8 {
    match to {
        "shield" => 1,
        "skip" => 2,
        "ignore" => 3,
        _ => 0,
    }
}

fn to(to: To) -> &'static str {
    match to {
        To::Bypass(rung) => rung.as_str(),
        To::Probation => "probation",
        To::Original => "original",
    }
}

fn name(kind: HookKind, configuration: Option<&str>, webhook: &str) -> String {
    format!("{}/{}/{webhook}", kind.as_str(), configuration.unwrap_or(NOTHING))
}

/// Records every change as one line. The fields are separated by tabs: microseconds; `hook`, `plane` or `act`; the webhook
/// (or `-`); and the new state.
#[derive(Debug, Default)]
pub struct Scribe {
    hooks: BTreeMap<Subject, Said>,
    plane: Option<Said>,
    lines: Vec<(At, String)>,
}

impl Scribe {
    pub fn note(&mut self, at: At, assessment: &Assessment) {
        let mut now = BTreeMap::new();
        for verdict in &assessment.hooks {
            now.entry(verdict.subject()).or_insert_with(|| hook(verdict));
        }
        let before = std::mem::take(&mut self.hooks);
        for (who, said) in &now {
            if before.get(who) != Some(said) {
                self.write_hook(at, who, *said);
            }
        }
        for who in before.keys().filter(|who| !now.contains_key(*who)) {
            self.write_hook(at, who, GONE);
        }
        self.hooks = now;
        let plane = plane(&assessment.control_plane);
        if self.plane != Some(plane) {
            self.plane = Some(plane);
            let [writes, not_a_hook, _] = plane.words;
            let confidence = confidence(plane);
            let line = format!("plane\t{NOTHING}\t{writes}\t{not_a_hook}\t{confidence}");
            self.lines.push((at, line));
        }
    }

    fn write_hook(&mut self, at: At, (kind, configuration, webhook): &Subject, said: Said) {
        let (name, confidence) = (name(*kind, configuration.as_deref(), webhook), confidence(said));
        let [health, cause, effect] = said.words;
        let line = format!("hook\t{name}\t{health}\t{cause}\t{effect}\t{confidence}");
        self.lines.push((at, line));
    }

    pub fn act(&mut self, act: &Act, id: &HookId) {
        let name = name(id.kind, Some(&id.configuration), &id.webhook);
        self.lines.push((act.at, format!("act\t{name}\t{}", to(act.to))));
    }

    /// All lines ordered by instant. Verdicts come before the breaker's changes of the same instant, if they were noted first.
    pub fn text(mut self) -> String {
        self.lines.sort_by_key(|(at, _)| *at);
        let mut text = String::new();
        for (at, line) in self.lines {
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "{at}\t{line}");
        }
        text
    }
}

/// The confidence with enough digits to parse back to the same `f64`.
fn confidence(said: Said) -> String {
    said.confidence
        .map_or_else(|| NOTHING.to_owned(), |bits| f64::from_bits(bits).to_string())
}
