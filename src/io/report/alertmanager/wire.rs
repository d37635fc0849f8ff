//! Alerts as Alertmanager reads them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::domain::report::alerts::{Alert, Batch};
use crate::domain::time::{Time, WallReading};

/// What every alert carries, whatever it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertEnvelope {
    /// Further labels.
    pub labels: BTreeMap<String, String>,
    /// Where a person sees more.
    pub generator_url: Option<String>,
    /// How far ahead of now `endsAt` of a firing alert is.
    pub ahead: Duration,
}

/// The body of a push at `now`, dated by `wall`: the daemon's own clock never steps, so it may show another time than
/// Alertmanager's.
pub fn body(batch: &Batch, envelope: &AlertEnvelope, now: Time, wall: WallReading) -> Vec<u8> {
    // As `postableAlert` of the API has it.
    let postable = |alert: &Alert, ends_at: Time| {
        let own = alert.labels.iter().map(|(name, value)| (*name, value.as_str()));
        let further = envelope
            .labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        // What makes an alert what it is cannot be overridden.
        let labels: BTreeMap<&str, &str> = further.chain(own).collect();
        let mut postable = json!({
            "labels": labels,
            "annotations": {
                "summary": alert.summary,
                "description": alert.description,
                "runbook_url": alert.runbook_url,
            },
            "startsAt": wall.date(alert.since),
            "endsAt": ends_at,
        });
        if let Some(url) = &envelope.generator_url {
            postable["generatorURL"] = url.as_str().into();
        }
        postable
    };
    let firing = batch
        .firing
        .iter()
        .map(|alert| postable(alert, wall.date(now) + envelope.ahead));
    let ended = batch
        .ended
        .iter()
        .map(|ended| postable(&ended.alert, wall.date(ended.at)));
    firing.chain(ended).collect::<Value>().to_string().into_bytes()
}
