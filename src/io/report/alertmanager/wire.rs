//! Alerts as Alertmanager reads them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::domain::report::alerts::{Alert, Batch};
use crate::domain::time::{Time, WallReading};

/// What every alert carries, whatever it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertEnvelope {
    /// Further labels.
    pub labels: BTreeMap<String, String>,
    /// Where a person sees more.
    pub generator_url: Option<String>,
    /// How far ahead of now an alert ends that nobody has seen end.
    pub ahead: Duration,
}

/// One alert as `postableAlert` of the API has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Postable<'a> {
    labels: BTreeMap<&'a str, &'a str>,
    annotations: Annotations<'a>,
    starts_at: Time,
    ends_at: Time,
    #[serde(rename = "generatorURL", skip_serializing_if = "Option::is_none")]
    generator_url: Option<&'a str>,
}

#[derive(Serialize)]
struct Annotations<'a> {
    summary: &'a str,
    description: &'a str,
    runbook_url: &'a str,
}

/// The body of a push at `now`, dated by `wall`: the daemon's own clock never steps, so it may show another time than
/// Alertmanager's.
///
/// # Errors
/// When it cannot be written as JSON, which is a mistake in this file.
pub fn body(
    batch: &Batch,
    envelope: &AlertEnvelope,
    now: Time,
    wall: WallReading,
) -> Result<Vec<u8>, serde_json::Error> {
    let postable = |alert: &Alert, ends_at: Time| -> serde_json::Result<_> {
        let own = alert.labels.iter().map(|(name, value)| (*name, value.as_str()));
        let further = envelope
            .labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        serde_json::to_value(Postable {
            // What makes an alert what it is cannot be overridden.
            labels: further.chain(own).collect(),
            annotations: Annotations {
                summary: &alert.summary,
                description: &alert.description,
                runbook_url: &alert.runbook_url,
            },
            starts_at: wall.date(alert.since),
            ends_at,
            generator_url: envelope.generator_url.as_deref(),
        })
    };
    let firing = batch
        .firing
        .iter()
        .map(|alert| postable(alert, wall.date(now) + envelope.ahead));
    let ended = batch
        .ended
        .iter()
        .map(|ended| postable(&ended.alert, wall.date(ended.at)));
    serde_json::to_vec(&firing.chain(ended).collect::<Result<Vec<_>, _>>()?)
}
