//! The JSON body of a push of alerts.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::domain::report::alerts::{Alert, Batch};
use crate::domain::time::{Time, WallReading};

/// The fields that all alerts have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertEnvelope {
    /// Additional labels from the configuration. A label of the alert itself takes precedence.
    pub labels: BTreeMap<String, String>,
    /// `generatorURL`: where a person can see more.
    pub generator_url: Option<String>,
    /// Time from a push to the `endsAt` of a firing alert: the alert resolves then unless it is pushed again.
    pub ahead: Duration,
}

/// The JSON body of a push at `now`. Times are converted by `wall`, because the daemon's own clock never steps and may differ
/// from Alertmanager's.
pub fn body(batch: &Batch, envelope: &AlertEnvelope, now: Time, wall: WallReading) -> Vec<u8> {
    // `postableAlert` of Alertmanager's API v2.
    let postable = |alert: &Alert, ends_at: Time| {
        let own = alert.labels.iter().map(|(name, value)| (*name, value.as_str()));
        let further = envelope
            .labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        // The alert's own labels identify it, so they override the additional ones.
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
