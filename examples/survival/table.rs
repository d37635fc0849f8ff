//! The table of docs/survival.md.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

/// The default scenarios and how many seconds their outages last: 40 s, or 60 s where nodes become NotReady (50 s after
/// their last renewal, and up to 5 s more).
pub const SHAPES: [(&str, u64); 19] = [
    ("gke-opa-outage", 60),
    ("ignore-hang", 60),
    ("mixed-hang", 60),
    ("hang-quiet-cluster", 40),
    ("many-webhooks-hang", 40),
    ("two-services-hang", 40),
    ("two-api-servers-hang", 40),
    ("ignore-default-hang", 40),
    ("path-lost", 40),
    ("self-blocked", 40),
    ("slow-chain", 40),
    ("first-hook-hang", 40),
    ("leader-lost", 40),
    ("validating-refused", 40),
    ("connections-reset", 40),
    ("certificate-expired", 40),
    ("slow-4s", 40),
    ("slow-6s", 40),
    ("one-of-two-hung", 40),
];

/// Parses results, one JSON object per line, and groups them by scenario.
///
/// # Errors
/// When a line is not JSON.
pub fn results(text: &str) -> serde_json::Result<BTreeMap<String, Vec<Value>>> {
    let mut results: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in text.lines() {
        let result: Value = serde_json::from_str(line)?;
        let name = result["scenario"].as_str().unwrap_or_default().to_owned();
        results.entry(name).or_default().push(result);
    }
    Ok(results)
}

/// One run as a line of progress.
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
        seconds(BYPASSED),
        seconds("control_plane_write_begun_after_seconds"),
        lost(&[run]),
    )
}

/// The whole document.
pub fn document(results: &BTreeMap<String, Vec<Value>>) -> String {
    let none = Vec::new();
    let mut text = HEAD.to_owned();
    for (name, _) in SHAPES {
        let runs = results.get(name).unwrap_or(&none);
        let of = |breaker: bool| -> Vec<&Value> {
            runs.iter().filter(|run| run["with_breaker"] == breaker).collect()
        };
        let (with, without) = (of(true), of(false));
        let without = match without.len() {
            0 => "not played".to_owned(),
            runs => format!("{} (in {runs})", lost(&without)),
        };
        let _ = writeln!(text, "| `{name}` | {} | {without} |", cells(&with).join(" | "));
    }
    let with: Vec<&Value> = results
        .values()
        .flatten()
        .filter(|run| run["with_breaker"] == true)
        .collect();
    let measured = with.iter().filter(|run| run.get(WRITES_PASS).is_some());
    let since = measured.clone().filter_map(|run| run["played_on"].as_str()).min();
    if let Some(since) = since {
        let _ = write!(
            text,
            "\nWhen writes pass was measured in {} of the {} runs with hookwatch, those since {since}.\n",
            measured.count(),
            with.len()
        );
    }
    let ready = |breaker: bool| {
        let runs = results.get(STARTS_API_SERVER).unwrap_or(&none);
        let runs: Vec<&Value> = runs.iter().filter(|run| run["with_breaker"] == breaker).collect();
        spread(&runs, "api_server_ready_after_seconds")
    };
    let _ = write!(
        text,
        "\nWith the fault of `{STARTS_API_SERVER}` another API server starts, which finds that it has a ClusterRole to \
         make.\nReady after, s: {}; without hookwatch {}.\n",
        ready(true),
        ready(false)
    );
    for (which, outages) in [
        ("in which calls hang", &HANGING[..]),
        ("in which calls fail at once", &FAILING_AT_ONCE[..]),
        (
            "in which the leading hookwatch is killed with the fault (`leader-lost`)",
            &["leader-lost"],
        ),
    ] {
        for (field, what) in [
            (BYPASSED, "the bypass was in force"),
            (WRITES_PASS, "writes passed"),
        ] {
            if let Some(Quantiles {
                runs,
                median,
                p95,
                longest,
            }) = after(results, outages, field)
            {
                let _ = write!(
                    text,
                    "\nOf {runs} runs {which}, {what} after {median:.1} s (median), {p95:.1} s (95th percentile) and \
                     {longest:.1} s (longest).\n"
                );
            }
        }
    }
    text
}

/// The field with the seconds until hookwatch says that the bypass is in force on every API server.
pub const BYPASSED: &str = "bypassed_after_seconds";
/// The field with the seconds until the control plane's writes pass at every API server.
pub const WRITES_PASS: &str = "writes_pass_after_seconds";

/// The distribution of such seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantiles {
    pub runs: usize,
    pub median: f64,
    pub p95: f64,
    pub longest: f64,
}

/// Outages in which calls hang and hookwatch already leads. A leader keeps its Lease if a renewal begins after the bypass.
pub const HANGING: [&str; 10] = [
    "gke-opa-outage",
    "ignore-hang",
    "mixed-hang",
    "hang-quiet-cluster",
    "many-webhooks-hang",
    "two-services-hang",
    "two-api-servers-hang",
    "ignore-default-hang",
    "path-lost",
    "first-hook-hang",
];

/// Outages in which calls fail at once.
pub const FAILING_AT_ONCE: [&str; 3] = ["validating-refused", "connections-reset", "certificate-expired"];

/// The seconds in a field, over all runs of these outages with hookwatch that have it; `None` if none has.
pub fn after(results: &BTreeMap<String, Vec<Value>>, outages: &[&str], field: &str) -> Option<Quantiles> {
    let runs = outages.iter().filter_map(|name| results.get(*name)).flatten();
    let with = runs.filter(|run| run["with_breaker"] == true);
    let seconds = sorted(with, field);
    let runs = seconds.len();
    // Nearest rank: the smallest value that this percentage of the runs does not exceed.
    let per_cent = |part: usize| {
        seconds
            .get((runs * part).div_ceil(100).saturating_sub(1))
            .copied()
    };
    Some(Quantiles {
        runs,
        median: per_cent(50)?,
        p95: per_cent(95)?,
        longest: per_cent(100)?,
    })
}

/// The outage in which an API server starts.
const STARTS_API_SERVER: &str = "gke-opa-outage";

const HEAD: &str = "\
# Who survives

<!-- Written by the tests from survival.jsonl: `HOOKWATCH_BLESS=1 cargo test --test repository survival`. -->

What a webhook's outage costs a control plane, with hookwatch and without it: a real kube-apiserver, etcd,
kube-controller-manager and kube-scheduler 1.36.2 on two cores, default settings and no rules. hookwatch runs as an administrator and
so without its [fence](security.md), which a change has to pass elsewhere. Only the kubelets of three nodes are simulated. Each run
is 40 s of the fault, or 60 s, to the end of a node's grace. Times count from the fault; a leader lives if a renewal begins 5 s after
it at the latest, in the unlucky phase.
\"Verdict\" is when every culprit is named with the right cause; a bypass needs two witnesses but not the cause, and may come first.
\"Bypassed\" is when hookwatch says that the bypass is in force on every API server. \"Writes pass\" is measured without its word: from the
first bypass on, kube-controller-manager's user writes a Lease to each API server every 50 ms; the first write that succeeds within 1 s
counts from its beginning, at the API server where that is latest. The control plane's own first write comes later, because leaders write
every 2 s and kubelets every 10 s.

    cargo build --release && cargo run --release --example survival -- --results docs/survival.jsonl

plays what is missing in [survival.jsonl](survival.jsonl) of ten runs each, two without hookwatch, and takes hours; it can be
stopped at any time.

`slow-4s` loses no leader either way: leaders give each attempt 5 s. `ignore-default-hang` costs every write 4 s, which they live
on. Both webhooks of a `slow-chain` are shielded; alone, each would be within every deadline. Webhooks of which one
backend of two hangs (`one-of-two-hung`) let half of the writes through; now and then one is shielded after 12 s. In
`first-hook-hang` hardly any users write; in its runs on the older releases they write all the time. In `two-api-servers-hang` two API
servers serve, and each leader writes to one of them.

| Outage | Runs | Verdict, s | Bypassed, s | Writes pass, s | First control-plane write begun, s | Lost with hookwatch | Innocents bypassed | \
Lost without |
|---|---|---|---|---|---|---|---|---|
";

/// The cells of a row about the runs with hookwatch: their number and results.
pub fn cells(with: &[&Value]) -> [String; 7] {
    // Older runs do not have the field, which is not the same as never.
    let measured: Vec<&Value> = with
        .iter()
        .copied()
        .filter(|run| run.get(WRITES_PASS).is_some())
        .collect();
    [
        with.len().to_string(),
        spread(with, "verdict_after_seconds"),
        spread(with, BYPASSED),
        spread(&measured, WRITES_PASS),
        spread(with, "control_plane_write_begun_after_seconds"),
        lost(with),
        with.iter()
            .filter_map(|run| run["innocents_bypassed"].as_array())
            .map(Vec::len)
            .sum::<usize>()
            .to_string(),
    ]
}

/// The values of a field in these runs, in ascending order; runs without it are left out.
fn sorted<'a>(runs: impl Iterator<Item = &'a Value>, name: &str) -> Vec<f64> {
    let mut seconds: Vec<f64> = runs.filter_map(|run| run[name].as_f64()).collect();
    seconds.sort_by(f64::total_cmp);
    seconds
}

/// Median and worst value of a field, and the number of runs without it.
fn spread(runs: &[&Value], name: &str) -> String {
    let seconds = sorted(runs.iter().copied(), name);
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

/// The sum of what was lost in these runs.
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
    if parts.is_empty() {
        "nothing".to_owned()
    } else {
        parts.join(", ")
    }
}
