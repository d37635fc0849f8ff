//! The second dashboard: one webhook in depth.

use super::grafana::{CLUSTER, Dashboard, Panel, variable};

/// Label matchers for the selected webhook in hookwatch's metrics.
const HOOK: &str = "cluster=~\"$cluster\", configuration=~\"$configuration\", webhook=~\"$webhook\"";

/// Label matchers for the selected webhook in the API servers' metrics.
const CALLS: &str = "cluster=~\"$cluster\", name=~\"$webhook\"";

/// The dashboard of one webhook.
pub fn dashboard() -> Dashboard {
    Dashboard::new(
        "hookwatch-webhook",
        "hookwatch: one webhook",
        "One admission webhook in depth: what hookwatch says of it, what direct probes of its backends see, and what \
         the API servers count of it.",
    )
    .with_variables(vec![
        variable(
            "configuration",
            "Configuration",
            "label_values(hookwatch_hook_health{cluster=~\"$cluster\"}, configuration)",
            true,
        ),
        variable(
            "webhook",
            "Webhook",
            "label_values(hookwatch_hook_health{cluster=~\"$cluster\", configuration=~\"$configuration\"}, webhook)",
            true,
        ),
    ])
    .with_rows(vec![
        (5, vec![(6, health()), (6, cause()), (6, confidence()), (6, certificates())]),
        (6, vec![(24, history())]),
        (8, vec![(12, backends()), (12, probe_outcomes())]),
        (8, vec![(12, probe_time()), (12, probe_phases())]),
        (8, vec![(8, calls()), (8, failures()), (8, codes())]),
    ])
}

fn health() -> Panel {
    Panel::state(
        "Health",
        "The verdict. failing: named as a culprit, act on it. suspect: something is odd. unknown: not \
         enough is seen to tell.",
    )
    .coloured(&["healthy", "suspect", "failing", "unknown"])
    .present("health", "hookwatch_hook_health", HOOK)
}

fn cause() -> Panel {
    Panel::state(
        "Cause",
        "What is wrong with the hook, and what that does to writes.",
    )
    .query(
        format!("max by (cause, effect) (hookwatch_hook_cause{{{HOOK}}})"),
        "{{cause}}, {{effect}}",
    )
    .when_empty("nothing is wrong")
}

fn confidence() -> Panel {
    Panel::number(
        "Confidence",
        "How sure the verdict is. A verdict of 0.9 is wrong one time in ten.",
        "percentunit",
    )
    .each("webhook", "hookwatch_hook_confidence_ratio", HOOK)
}

fn certificates() -> Panel {
    Panel::number(
        "Certificates end in",
        "Time until the first certificate ends: served, by a backend; ca, in the caBundle. From then on every call \
         fails.",
        "s",
    )
    .query(
        format!(
            "min by (certificate) (hookwatch_certificate_not_after_timestamp_seconds{{{HOOK}}}) - time()"
        ),
        "{{certificate}}",
    )
    .thresholds(&[(None, "red"), (Some(172_800.0), "orange"), (Some(1_209_600.0), "blue")])
}

fn history() -> Panel {
    Panel::timeline("Failures over time", "The causes of this hook over time.")
        .query(
            format!("max by (webhook, cause) (hookwatch_hook_cause{{{HOOK}}})"),
            "{{webhook}}: {{cause}}",
        )
        .when_empty("nothing")
}

fn backends() -> Panel {
    Panel::stacked(
        "Backends by state",
        "What direct probes say of each address that the API server may dial. One dead backend of three fails no \
         request for as long as pooled connections stay on the others.",
        "none",
    )
    .coloured(&["alive", "slow", "wavering", "dead"])
    .query(
        format!("sum by (state) (max by (kind, configuration, webhook, state) (hookwatch_hook_backends{{{HOOK}}}))"),
        "{{state}}",
    )
}

fn probe_outcomes() -> Panel {
    Panel::stacked(
        "Probes by outcome and connection",
        "Direct calls by hookwatch: on a fresh connection each, and on a pooled one, kept as the API server \
         keeps its own.",
        "cps",
    )
    .query(
        format!("sum by (outcome, connection) (rate(hookwatch_probes_total{{{HOOK}}}[$__rate_interval]))"),
        "{{outcome}}, {{connection}}",
    )
}

fn probe_time() -> Panel {
    Panel::lines(
        "Time per probe (mean)",
        "How long direct calls took, by connection, beside the slowest of a hundred over all hooks. One that still \
         waits is not in here yet.",
        "s",
    )
    .query(
        format!(
            "sum by (connection) (rate(hookwatch_probe_seconds_total{{{HOOK}}}[$__rate_interval])) / \
             sum by (connection) (rate(hookwatch_probes_total{{{HOOK}}}[$__rate_interval]))"
        ),
        "{{connection}}",
    )
    .query(
        "histogram_quantile(0.99, sum by (le, connection) (rate(hookwatch_probe_duration_seconds_bucket\
         {cluster=~\"$cluster\"}[$__rate_interval])))",
        "all webhooks, {{connection}} p99",
    )
}

fn probe_phases() -> Panel {
    Panel::lines(
        "Time per phase of fresh probes (p90), all webhooks",
        "Where direct calls spend their time: name resolution, TCP, TLS, first byte, body. Counted over all hooks.",
        "s",
    )
    .quantile(
        0.9,
        "phase",
        "hookwatch_probe_phase_duration_seconds",
        &format!("{CLUSTER}, connection=\"fresh\""),
    )
}

fn calls() -> Panel {
    Panel::lines(
        "Calls by the API server (p99)",
        "The API servers' own histogram of this webhook name; empty where this Prometheus does not scrape them. \
         Two configurations that use the same name cannot be told apart here.",
        "s",
    )
    .quantile(0.99, "operation", "apiserver_admission_webhook_admission_duration_seconds", CALLS)
}

fn failures() -> Panel {
    Panel::stacked(
        "Rejections and skipped calls",
        "As the API servers count them. no_error: the hook said no, it works. calling_webhook_error: the call \
         failed and the write was refused. skipped: it failed and the write passed without the hook.",
        "cps",
    )
    .rates("error_type", "apiserver_admission_webhook_rejection_count", CALLS)
    .query(
        "sum by (name) (rate(apiserver_admission_webhook_fail_open_count\
         {cluster=~\"$cluster\", name=~\"$webhook\"}[$__rate_interval]))",
        "skipped",
    )
    .when_empty("none")
}

fn codes() -> Panel {
    Panel::stacked(
        "Answers by HTTP status",
        "As the API servers count them; empty where this Prometheus does not scrape them.",
        "cps",
    )
    .rates("code", "apiserver_admission_webhook_request_total", CALLS)
}
