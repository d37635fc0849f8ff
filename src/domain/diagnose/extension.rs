//! What the API server's side says of a conversion webhook or the server behind an APIService.
//!
//! Its side is the conversions that it counted, or its own aggregator saying that the service is not available. It says
//! nothing about admission or about writes in general.

use crate::domain::canary::CallFailureReason;
use crate::domain::history::{Window, Windows};
use crate::domain::hook::{Aggregated, Available, Hook, HookKind, OtherKind};
use crate::domain::snapshot::ConversionSeries;
use crate::domain::thresholds as t;
use crate::domain::time::Time;
use crate::domain::vocabulary::{Cause, human, human_seconds};

/// Versions told one by one; the rest is a number.
const NAMES_TOLD: usize = 4;

/// What the API server's side says.
#[derive(Debug, Default)]
pub struct Theirs {
    /// It fails, for this cause where that can be told.
    pub fails: Option<Option<Cause>>,
    /// It has worked: since this instant, no failure after it.
    pub works_since: Option<Time>,
    /// Since when it fails.
    pub since: Option<Time>,
    /// Calls are slow.
    pub slow: bool,
    /// What was counted.
    pub counted: Option<Conversions>,
    /// How many API servers' gauges say that it is not available.
    pub unavailable: f64,
    /// How often it became so within a minute.
    pub became_unavailable: f64,
}

/// Conversions over the span that tells most.
#[derive(Debug, Clone, Copy)]
pub struct Conversions {
    /// What was counted.
    pub series: ConversionSeries,
    /// Beginning and end of the span.
    pub span: (Time, Time),
}

/// What the aggregator says of an APIService.
pub fn available(hook: Option<&Hook>) -> Option<&Available> {
    match hook?.other.as_ref()? {
        OtherKind::Aggregated(Aggregated { available, .. }) => available.as_ref(),
        OtherKind::Conversion(_) => None,
    }
}

impl Theirs {
    /// Reads what was counted of the hook, and what its object says.
    pub fn of(kind: HookKind, name: &str, hook: Option<&Hook>, windows: &Windows) -> Self {
        if kind == HookKind::Conversion {
            return Self::converter(name, windows);
        }
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
            ..Self::default()
        }
    }

    /// The newest interval in which anything was converted; a failure is looked for over the whole minute, for the
    /// API server itself tries again only every half minute.
    fn converter(crd: &str, windows: &Windows) -> Self {
        let over = |window: &Option<Window>| {
            let window = window.as_ref()?;
            let series = *window.gained.others.conversions.get(crd)?;
            let span = (window.from, window.to);
            Some(Conversions { series, span })
        };
        let spans = [&windows.newest, &windows.recent, &windows.minute];
        let Some(counted) = spans.into_iter().find_map(over) else {
            return Self::default();
        };
        let ConversionSeries { succeeded, failed } = counted.series;
        let timed_out = failed.mean().filter(|mean| *mean >= t::handshake_timeout());
        let fails = failed.count >= 1.0;
        Self {
            fails: fails.then_some(timed_out.map(|_| Cause::Hanging)),
            works_since: (!fails && succeeded.count >= 1.0).then_some(counted.span.0),
            since: Some(counted.span.0),
            slow: succeeded.mean().is_some_and(|mean| mean >= t::slow_always()),
            counted: Some(counted),
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
            "FailedDiscoveryCheck" => match CallFailureReason::of_transport(&self.message) {
                CallFailureReason::Other => None,
                reason => Some(reason.into()),
            },
            _ => None,
        }
    }
}

impl Conversions {
    pub fn sentence(&self, crd: &str) -> String {
        let (from, to) = self.span;
        let span = human(to.since(from));
        let ConversionSeries { succeeded, failed } = &self.series;
        let all = failed.count + succeeded.count;
        let (many, told) = if failed.count >= 1.0 {
            (
                format!("{:.0} failed conversions of {crd} of {all:.0}", failed.count),
                failed,
            )
        } else {
            (format!("{all:.0} conversions of {crd}"), succeeded)
        };
        let each = told.mean().map(human_seconds);
        let each = each.map_or_else(String::new, |each| format!(", {each} each"));
        format!("The API server counted {many} in {span}{each}.")
    }
}

/// What the API server's own aggregator says.
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

/// What an extension in trouble concerns.
pub fn concerned(hook: &Hook) -> Option<String> {
    Some(match hook.other.as_ref()? {
        OtherKind::Conversion(conversion) => {
            let mut others: Vec<&str> = conversion.others.iter().map(String::as_str).collect();
            let further = format!("{} more", others.len().saturating_sub(NAMES_TOLD));
            if others.len() > NAMES_TOLD {
                others.truncate(NAMES_TOLD);
                others.push(&further);
            }
            let others = match others.as_slice() {
                [] => "in another version".to_owned(),
                others => format!("in {}", others.join(", ")),
            };
            format!(
                "It concerns {} in group {} only: GET, watch and writes {others}, LIST once an object changes (until \
                 then the API server has them converted), and objects that are not stored as {}.",
                conversion.resource, conversion.group, conversion.stored
            )
        }
        OtherKind::Aggregated(aggregated) => format!(
            "It concerns {}/{} only; but whoever needs complete discovery suffers with it: the deletion of \
             namespaces, resource quota and garbage collection.",
            aggregated.group, aggregated.version
        ),
    })
}

#[cfg(test)]
mod tests;
