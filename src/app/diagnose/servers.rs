//! The API servers in the report for people.

use crate::domain::observe::views::{ScrapeView, StoredView};
use crate::domain::text::human_seconds;

/// Most failing checks that are listed.
const TOLD_CHECKS: usize = 5;

/// Lines on one API server: the state of its scrapes, its readiness, and its missing metrics.
pub(super) fn about(server: &ScrapeView) -> Vec<String> {
    let version = server.version.as_deref().unwrap_or("version unknown");
    let scraped = server.failure.as_deref().unwrap_or("scraped");
    let several = match server.replicas {
        0 | 1 => String::new(),
        many => format!(", {many} processes behind it"),
    };
    let readiness = &server.readiness;
    let ready = match (readiness.state, &readiness.why) {
        ("unknown", Some(why)) => format!("readiness unknown: {why}"),
        ("not_ready", _) => {
            let told = readiness.failing.iter().take(TOLD_CHECKS);
            format!(
                "NOT READY: {}",
                told.map(String::as_str).collect::<Vec<_>>().join(", ")
            )
        }
        (state, _) => state.to_owned(),
    };
    let mut lines = vec![format!(
        "  API server {} ({version}{several}): {scraped}; {ready}",
        server.target
    )];
    for silent in &server.silent {
        let started = silent.started.map_or_else(
            || "one of them".to_owned(),
            |started| format!("the one started at {started}"),
        );
        lines.push(format!("    {started} has not answered since {}", silent.since));
    }
    lines.extend(server.missing.iter().map(|missing| format!("    {missing}")));
    lines
}

/// Lines on the Prometheus: whether verdicts use it, the age and interval of its samples, and what it has not stored.
pub(super) fn about_stored(stored: &StoredView) -> Vec<String> {
    let seconds = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), human_seconds);
    let used = if stored.used {
        "verdicts rest on it"
    } else {
        "not used: the API servers are scraped, or it has nothing new enough"
    };
    let read = stored.failure.as_deref().unwrap_or("read");
    let (count, age) = (stored.api_servers, seconds(stored.age_seconds));
    let resolution = seconds(stored.resolution_seconds);
    let mut lines = vec![format!(
        "  Prometheus {}: {read}; API servers {count}, newest scrape {age} old, interval {resolution}; {used}",
        stored.source
    )];
    lines.extend(stored.missing.iter().map(|missing| format!("    {missing}")));
    lines
}
