//! The table of docs/survival.md.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

/// One run in a line, for whoever waits.
pub fn line(run: &Value) -> String {
    let seconds = |name: &str| {
        run[name]
            .as_f64()
            .map_or_else(|| "-".to_owned(), |value| format!("{value:.1} s"))
    };
    format!(
        "{:<22} {:<10} bypassed {:>7}, first write of the control plane {:>7}; {}",
        run["scenario"].as_str().unwrap_or_default(),
        if run["with_breaker"] == true {
            "hookwatch"
        } else {
            "without"
        },
        seconds("bypassed_after_seconds"),
        seconds("control_plane_write_begun_after_seconds"),
        lost(&[run]),
    )
}

/// The whole document.
pub fn document(shapes: &[(&str, u64)], results: &BTreeMap<String, Vec<Value>>) -> String {
    let none = Vec::new();
    let mut text = HEAD.to_owned();
    for (name, _) in shapes {
        let runs = results.get(*name).unwrap_or(&none);
        let of = |breaker: bool| -> Vec<&Value> {
            runs.iter().filter(|run| run["with_breaker"] == breaker).collect()
        };
        let (with, without) = (of(true), of(false));
        let _ = writeln!(
            text,
            "| `{name}` | {} | {} | {} | {} | {} | {} | {} |",
            with.len(),
            spread(&with, "verdict_after_seconds"),
            spread(&with, "bypassed_after_seconds"),
            spread(&with, "control_plane_write_begun_after_seconds"),
            lost(&with),
            with.iter()
                .filter_map(|run| run["innocents_bypassed"].as_array())
                .map(Vec::len)
                .sum::<usize>(),
            match without.len() {
                0 => "not played".to_owned(),
                runs => format!("{} (in {runs})", lost(&without)),
            },
        );
    }
    text
}

const HEAD: &str = "\
| Outage | Runs | Verdict, s | Bypassed, s | First control-plane write begun, s | Lost with hookwatch | Innocents bypassed | \
Lost without |\n|---|---|---|---|---|---|---|---|\n";

/// Median and worst, and how many had none.
fn spread(runs: &[&Value], name: &str) -> String {
    let mut seconds: Vec<f64> = runs.iter().filter_map(|run| run[name].as_f64()).collect();
    seconds.sort_by(f64::total_cmp);
    let Some(worst) = seconds.last() else {
        return "never".to_owned();
    };
    let never = match runs.len() - seconds.len() {
        0 => String::new(),
        never => format!(", {never} never"),
    };
    format!(
        "{:.1}, at most {worst:.1}{never}",
        seconds[(seconds.len() - 1) / 2]
    )
}

/// What was lost in all of these runs.
fn lost(runs: &[&Value]) -> String {
    let sum = |name: &str| -> u64 {
        runs.iter()
            .filter_map(|run| run["casualties"][name].as_u64())
            .sum()
    };
    let parts: Vec<String> = [
        ("leaders_lost", "leaders"),
        ("node_leases_expired", "node Leases"),
        ("nodes_not_ready", "nodes"),
        ("servers_not_started", "API servers"),
    ]
    .into_iter()
    .filter_map(|(name, word)| match sum(name) {
        0 => None,
        number => Some(format!("{number} {word}")),
    })
    .collect();
    match parts.is_empty() {
        true => "nothing".to_owned(),
        false => parts.join(", "),
    }
}
