//! The API server's evidence on a conversion webhook or the server behind an APIService.
//!
//! For a conversion webhook, that is the conversions that the API server counted; for an APIService, the `Available` condition
//! that the aggregator sets. Neither is evidence about admission or about writes in general.

use super::counters::Counters;
use crate::cluster::hook::{Aggregated, Available, Extension, Hook};
use crate::observe::canary::CallFailureReason;
use crate::observe::history::Windows;
use crate::text::{human, listed};
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::Cause;

/// Most versions that are listed; of the rest only the number.
const NAMES_TOLD: usize = 4;

/// The API server's evidence on one conversion webhook or APIService.
#[derive(Debug, Default)]
pub struct Theirs {
    /// `Some` if it fails, and in that the cause if it is known.
    pub fails: Option<Option<Cause>>,
    /// Since when it has worked without a failure; `None` where that is not known.
    pub works_since: Option<Time>,
    /// When the condition last changed, or when the counted span began.
    pub since: Option<Time>,
    /// How many API servers' gauges say that it is not available.
    pub unavailable: f64,
    /// How often it became unavailable within the last minute, added up over all API servers.
    pub became_unavailable: f64,
}

/// The aggregator's condition on an APIService.
pub fn available(hook: Option<&Hook>) -> Option<&Available> {
    match hook?.extension.as_ref()? {
        Extension::Aggregated(Aggregated { available, .. }) => available.as_ref(),
        Extension::Conversion(_) => None,
    }
}

impl Theirs {
    /// Reads what was counted of an APIService, and what its object says.
    pub fn aggregated(name: &str, hook: Option<&Hook>, windows: &Windows) -> Self {
        let gained = windows.minute.as_ref().map(|minute| &minute.gained.others);
        let unavailable = gained.and_then(|others| others.unavailable.get(name));
        let unavailable = unavailable.copied().unwrap_or_default();
        let became_unavailable = gained.and_then(|others| others.became_unavailable.get(name));
        let available = available(hook);
        let status = available.and_then(|available| available.status);
        // The condition comes at once, the gauge with the next scrape: where both are there the condition is newer.
        let fails = status == Some(false) || status.is_none() && unavailable >= 1.0;
        let since = available.and_then(|available| available.since);
        Self {
            fails: fails.then(|| available.and_then(Available::cause)),
            works_since: (status == Some(true)).then(|| since.unwrap_or_default()),
            since,
            unavailable,
            became_unavailable: became_unavailable.copied().unwrap_or_default(),
        }
    }

    /// Reads what was counted of a conversion webhook.
    pub fn converter(counted: &Counters) -> Self {
        let timed_out = counted.failed_mean >= Some(t::handshake_timeout());
        let (fails, since) = (counted.failed >= 1.0, counted.from());
        Self {
            fails: fails.then(|| timed_out.then_some(Cause::Hanging)),
            works_since: since.filter(|_| !fails && counted.calls >= 1.0),
            since,
            ..Self::default()
        }
    }
}

impl Available {
    /// The mechanism behind it, from the aggregator's own reasons and sentences (1.36,
    /// `kube-aggregator/pkg/controllers/status/remote/remote_available_controller.go`).
    fn cause(&self) -> Option<Cause> {
        match self.reason.as_str() {
            "ServiceNotFound" | "ServicePortError" => Some(Cause::NoService),
            "EndpointsNotFound" | "MissingEndpoints" => Some(Cause::NoEndpoints),
            "FailedDiscoveryCheck" if self.message.contains("bad status from ") => Some(Cause::Erroring),
            "FailedDiscoveryCheck" if self.message.starts_with("timed out waiting for ") => {
                Some(Cause::Hanging)
            }
            "FailedDiscoveryCheck" => {
                // What follows `Get "URL"`.
                let why = self.message.split_once("\": ");
                let why = why.map_or(&*self.message, |(_, why)| why);
                match CallFailureReason::of_transport(why) {
                    CallFailureReason::Other => None,
                    reason => Some(reason.into()),
                }
            }
            _ => None,
        }
    }
}

/// What the API server's own aggregator says, as sentences.
pub fn aggregator(hook: Option<&Hook>, theirs: &Theirs, now: Time) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(available) = available(hook) {
        let since = available.since.map(|since| human(now.since(since)));
        let since = since.map_or_else(String::new, |since| format!(" for {since}"));
        let (reason, message) = (&available.reason, available.message.trim_end_matches('.'));
        let (told, why) = match available.status {
            Some(true) => ("available", String::new()),
            Some(false) => ("not available", format!(", {reason}: {message}")),
            None => ("not known to be available", format!(", {reason}: {message}")),
        };
        said.push(format!(
            "The API server's own aggregator has called it {told}{since}{why}."
        ));
    }
    let unavailable = theirs.unavailable;
    if unavailable >= 1.0 {
        let s = if unavailable > 1.5 { "s" } else { "" };
        said.push(format!(
            "The metrics of {unavailable:.0} API server{s} say that it is not available."
        ));
    }
    let times = theirs.became_unavailable;
    if times >= 2.0 {
        said.push(format!("It became unavailable {times:.0} times within a minute."));
    }
    said
}

/// Which requests a failing conversion webhook or APIService affects, in one sentence.
pub fn concerned(hook: &Hook) -> Option<String> {
    Some(match hook.extension.as_ref()? {
        Extension::Conversion(conversion) => {
            let others = match conversion.others.as_slice() {
                [] => "in another version".to_owned(),
                others => format!("in {}", listed(others, NAMES_TOLD)),
            };
            format!(
                "It concerns {} in group {} only: GET, watch and writes {others}, LIST once an object changes (until \
                 then the API server has them converted), and objects that are not stored as {}.",
                conversion.resource, conversion.group, conversion.stored
            )
        }
        Extension::Aggregated(aggregated) => format!(
            "It concerns {}/{} only, but also everything that needs complete discovery: the deletion of \
             namespaces, resource quota and garbage collection.",
            aggregated.group, aggregated.version
        ),
    })
}

#[cfg(test)]
mod tests;
