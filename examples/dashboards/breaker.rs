//! The third dashboard: what is bypassed, what would be, and what holds the breaker back.

use super::grafana::{CLUSTER, Dashboard, Panel};

/// The dashboard of the breaker.
pub fn dashboard() -> Dashboard {
    Dashboard::new(
        "hookwatch-breaker",
        "hookwatch: breaker",
        "Which bypasses are in force and which would be, what the breaker did, and which guard rails held it back.",
    )
    .with_variables(Vec::new())
    .with_rows(vec![
        (7, vec![(6, mode()), (9, bypassed()), (9, would_bypass())]),
        (8, vec![(12, states()), (12, held_back())]),
        (8, vec![(12, actions()), (12, began_to_hold_back())]),
    ])
}

fn mode() -> Panel {
    Panel::state(
        "Mode in effect",
        "What is done about a culprit. on is plan for as long as the fence around hookwatch's account is not proven. \
         frozen: by `hookwatch freeze`, nothing new is bypassed.",
    )
    .present("mode", "hookwatch_breaker_mode", CLUSTER)
    .query(
        format!("max by (cluster) (hookwatch_breaker_frozen{{{CLUSTER}}}) == 1"),
        "frozen {{cluster}}",
    )
}

fn bypassed() -> Panel {
    Panel::lines(
        "Bypassed webhooks",
        "By how far. shield: what keeps the control plane alive goes past the webhook. skip, ignore: everything does, \
         or everything whose call fails.",
        "short",
    )
    .each("rung", "hookwatch_breaker_bypassed", CLUSTER)
}

fn would_bypass() -> Panel {
    Panel::lines(
        "Webhooks that would be bypassed",
        "Those of which the mode alone says no: what on would do.",
        "short",
    )
    .each("rung", "hookwatch_breaker_would_bypass", CLUSTER)
}

fn states() -> Panel {
    Panel::lines(
        "Webhooks by breaker state",
        "Those that the breaker acts on. contested: another client keeps removing the bypass, and hookwatch has stopped. ignored: `hookwatch break` set failurePolicy to Ignore, and \
         an administrator takes that back.",
        "short",
    )
    .each("state", "hookwatch_breaker_hooks", CLUSTER)
}

fn held_back() -> Panel {
    Panel::lines(
        "Held back now",
        "Culprits that are not bypassed, by the guard rail. The runbook of HookwatchHeldBack says what each waits for.",
        "short",
    )
    .query(
        "max by (cluster, reason) (hookwatch_breaker_held_back{cluster=~\"$cluster\"}) > 0",
        "{{reason}} {{cluster}}",
    )
    .when_empty("nothing is held back")
}

fn actions() -> Panel {
    Panel::lines(
        "Changes of webhook configurations",
        "In five minutes, by action and outcome.",
        "short",
    )
    .query(
        "sum by (cluster, action, outcome) (increase(hookwatch_breaker_actions_total{cluster=~\"$cluster\"}[5m])) > 0",
        "{{action}}: {{outcome}} {{cluster}}",
    )
    .when_empty("nothing was changed")
}

fn began_to_hold_back() -> Panel {
    Panel::lines(
        "Newly held back",
        "How often in five minutes a culprit began not to be bypassed, by the guard rail.",
        "short",
    )
    .query(
        "sum by (cluster, reason) (increase(hookwatch_breaker_held_back_total{cluster=~\"$cluster\"}[5m])) > 0",
        "{{reason}} {{cluster}}",
    )
    .when_empty("nothing was held back")
}
