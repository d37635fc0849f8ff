//! The first dashboard: whether the control plane can be written, and if not, what is to blame and since when.

use serde_json::json;

use super::grafana::{CLUSTER, Dashboard, FAILING, Panel, STALE};

/// Label matchers for writes, except dry runs, in the API servers' own metrics.
const WRITES: &str = "cluster=~\"$cluster\", verb=~\"POST|PUT|PATCH|APPLY\", dry_run=\"\"";

/// Link to the dashboard of one webhook from a row of a table that names it.
const WEBHOOK: &str = "/d/hookwatch-webhook?${datasource:queryparam}&${__url_time_range}\
    &var-cluster=${__data.fields.Cluster:percentencode}\
    &var-configuration=${__data.fields.Configuration:percentencode}&var-webhook=${__value.raw:percentencode}";

/// The overview dashboard.
pub fn dashboard() -> Dashboard {
    Dashboard::new(
        "hookwatch-overview",
        "hookwatch: overview",
        "Whether the control plane can be written, which admission webhook is to blame if not, and how much of the \
         time per write is whose.",
    )
    .with_variables(Vec::new())
    .with_rows(vec![
        (4, vec![(9, writes()), (6, bypassed()), (9, elsewhere())]),
        (5, vec![(24, culprits())]),
        (8, vec![(12, write_time()), (12, shares())]),
        (7, vec![(12, causes_over_time()), (12, api_server())]),
        (7, vec![(8, canaries()), (8, canary_time()), (8, probes())]),
        (7, vec![(8, hooks()), (8, sources()), (8, scrapes())]),
    ])
}

fn writes() -> Panel {
    Panel::state(
        "Control-plane writes",
        "How creating and updating objects goes now, over all webhooks and API servers. blocked: writes fail or \
         hang. delayed: they succeed, much more slowly than usual. unknown: neither canaries nor metrics tell. stale: \
         hookwatch has judged nothing for a minute.",
    )
    .coloured(&["flowing", "delayed", "blocked", "unknown", "stale"])
    .present("state", "hookwatch_control_plane_writes", CLUSTER)
    .query(
        format!("max by (cluster) (hookwatch_assessment_timestamp_seconds{{{CLUSTER}}}) < time() - {STALE}"),
        "stale {{cluster}}",
    )
}

fn bypassed() -> Panel {
    Panel::state(
        "Bypassed",
        "Whether webhooks are bypassed now, and how far. shield: the control plane's own writes skip them. skip: all \
         writes do. The breaker's dashboard has how many.",
    )
    .coloured(&["shield", "skip"])
    .query(
        format!("max by (cluster, rung) (hookwatch_breaker_bypassed{{{CLUSTER}}}) > 0"),
        "{{rung}} {{cluster}}",
    )
    .when_empty("nothing")
}

fn culprits() -> Panel {
    Panel::table(
        "Failing webhooks",
        "The webhooks that are named as culprits: act on them. Cause is what is wrong with the hook, effect \
         what that does to writes. A click on the webhook leads to its own dashboard. The runbook of HookwatchHookFailing \
         has the way round a hook.",
        &[
            ("cluster", "Cluster"),
            ("webhook", "Webhook"),
            ("configuration", "Configuration"),
            ("kind", "Kind"),
            ("cause", "Cause"),
            ("effect", "Effect"),
            ("Value #B", "Confidence"),
        ],
    )
    .query(FAILING, "")
    .query(
        "max by (cluster, kind, configuration, webhook) (hookwatch_hook_confidence_ratio{cluster=~\"$cluster\"} \
         and ignoring (health) hookwatch_hook_health{cluster=~\"$cluster\", health=\"failing\"} == 1)",
        "",
    )
    .column("Confidence", "unit", "percentunit")
    .column("Webhook", "custom.width", 400)
    .column("Configuration", "custom.width", 340)
    .column(
        "Webhook",
        "links",
        json!([{"title": "This webhook in depth", "url": WEBHOOK}]),
    )
    .when_empty("no webhook is failing")
}

fn elsewhere() -> Panel {
    Panel::state(
        "Other causes",
        "What impairs writes when no webhook explains it. Bypassing a webhook would not help then. hookwatch itself: all \
         its probes fail, and nothing shows that the fault is elsewhere.",
    )
    .present("cause", "hookwatch_not_a_hook", CLUSTER)
    .query(
        format!("max by (cluster) (hookwatch_self_doubt{{{CLUSTER}}}) == 1"),
        "hookwatch itself {{cluster}}",
    )
    .when_empty("nothing")
}

fn write_time() -> Panel {
    Panel::lines(
        "Time per CREATE and UPDATE",
        "Recent mean time as the API servers count it, and what is usual in calm times. While calls hang this \
         shows nothing at all until the first has timed out: look at the canaries below.",
        "s",
    )
    .query(
        format!("max by (cluster) (hookwatch_control_plane_write_seconds{{{CLUSTER}}})"),
        "recently {{cluster}}",
    )
    .query(
        format!("max by (cluster) (hookwatch_control_plane_usual_write_seconds{{{CLUSTER}}})"),
        "usual {{cluster}}",
    )
}

fn shares() -> Panel {
    Panel::stacked(
        "Extra time by webhook",
        "Which part of the extra time per write is spent in which hook, from 1 % on. Empty while writes take as long as usual. \
         The rest up to 100 % is no webhook's: etcd, load, flow control.",
        "percentunit",
    )
    .query(
        format!("max by (cluster, kind, webhook) (hookwatch_hook_excess_share_ratio{{{CLUSTER}}}) > 0.01"),
        "{{webhook}} ({{kind}}) {{cluster}}",
    )
    .when_empty("no extra time")
}

fn causes_over_time() -> Panel {
    Panel::timeline(
        "Failures over time",
        "Every hook with something wrong about it, by cause, also where it was suspected only; and what was laid to \
         no hook.",
    )
    .query(
        "max by (cluster, webhook, cause) (hookwatch_hook_cause{cluster=~\"$cluster\"})",
        "{{webhook}}: {{cause}} {{cluster}}",
    )
    .query(
        "max by (cluster, cause) (hookwatch_not_a_hook{cluster=~\"$cluster\"}) == 1",
        "not a hook: {{cause}} {{cluster}}",
    )
    .when_empty("nothing")
}

fn api_server() -> Panel {
    Panel::lines(
        "Write latency by API server metrics (p99)",
        "The API servers' own histogram, for comparison; empty where this Prometheus does not scrape them. It \
         falls while backends refuse connections, and stands still while they hang.",
        "s",
    )
    .quantile(0.99, "verb", "apiserver_request_duration_seconds", WRITES)
}

fn canaries() -> Panel {
    Panel::stacked(
        "Canaries by outcome",
        "Dry-run writes by hookwatch through the API server. call_failed: a hook's call failed. One that waits is \
         not counted yet.",
        "cps",
    )
    .coloured(&["written"])
    .rates("outcome", "hookwatch_canaries_total", CLUSTER)
}

fn canary_time() -> Panel {
    Panel::lines(
        "Canary latency (p90), overdue",
        "How long dry-run writes took, by object. A line at 1 named late means that one has been waiting for 2 s or \
         more right now.",
        "s",
    )
    .quantile(0.9, "canary", "hookwatch_canary_duration_seconds", CLUSTER)
    .query(
        "max by (canary) (hookwatch_canary_overdue{cluster=~\"$cluster\"})",
        "{{canary}} late",
    )
    .unit_of_ending("late", "none")
}

fn probes() -> Panel {
    Panel::stacked(
        "Probes by outcome",
        "Direct calls of the hooks' backends by hookwatch, over all hooks.",
        "cps",
    )
    .coloured(&["answered"])
    .rates("outcome", "hookwatch_probes_total", CLUSTER)
}

fn hooks() -> Panel {
    Panel::stacked(
        "Webhooks by health",
        "Every entry of every webhook configuration, by the verdict on it.",
        "none",
    )
    .coloured(&["healthy", "suspect", "failing", "unknown"])
    .each("health", "hookwatch_hooks", CLUSTER)
}

fn sources() -> Panel {
    Panel::lines(
        "Age of the data",
        "Time since each replica of hookwatch last knew the inventory to be current, last scraped each API server, and \
         last judged. A line that climbs is a source that is gone, for that replica.",
        "s",
    )
    .query(
        "time() - max by (cluster, instance) (hookwatch_inventory_current_timestamp_seconds{cluster=~\"$cluster\"})",
        "inventory, {{instance}} {{cluster}}",
    )
    .query(
        "time() - max by (cluster, instance, target) (hookwatch_scrape_last_success_timestamp_seconds{cluster=~\"$cluster\"})",
        "scrape of {{target}}, {{instance}} {{cluster}}",
    )
    .query(
        "time() - max by (cluster, instance) (hookwatch_assessment_timestamp_seconds{cluster=~\"$cluster\"})",
        "assessment, {{instance}} {{cluster}}",
    )
}

fn scrapes() -> Panel {
    Panel::stacked(
        "Scrapes by result",
        "Readings of the API servers' metrics by hookwatch: success, or why they failed.",
        "cps",
    )
    .coloured(&["success"])
    .rates("result", "hookwatch_scrapes_total", CLUSTER)
}
