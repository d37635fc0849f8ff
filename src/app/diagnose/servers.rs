//! The API servers in the report for people.

use crate::domain::verdict::ScrapeView;

/// Failing checks told.
const TOLD_CHECKS: usize = 5;

/// Lines on one API server: how scraping it goes, how ready it says it is, and what it does not tell.
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
