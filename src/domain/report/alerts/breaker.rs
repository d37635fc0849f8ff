//! Alerts about bypasses: those in force, those that another writer keeps reverting, those that a guard rail blocks, and those
//! that no hookwatch would end.

use std::collections::BTreeMap;

use super::{AlertCondition, rules};
use crate::act::breaker::{HeldBack, HookStanding};
use crate::act::fence::AutoBreak;
use crate::diagnose::verdict::Verdict;
use crate::report::assessment::Assessment;
use crate::vocabulary::Health;

/// Reasons for not bypassing a failing webhook without the alert HookwatchHeldBack: they follow from how hookwatch is configured,
/// or have an alert of their own. The Prometheus rule leaves out the same ones.
pub const EXPECTED: [HeldBack; 7] = [
    HeldBack::OptedOut,
    HeldBack::Policy,
    HeldBack::Plan,
    HeldBack::Contested,
    HeldBack::NothingToShield,
    HeldBack::WithinDeadlines,
    HeldBack::Hold,
];

pub(super) fn conditions(assessment: &Assessment, found: &mut Vec<AlertCondition>) {
    let breaker = &assessment.breaker;
    let hooks = || breaker.hooks.iter();
    let mut bypassed: BTreeMap<_, Vec<&HookStanding>> = BTreeMap::new();
    for standing in hooks() {
        if let Some(rung) = standing.skipped() {
            bypassed.entry(rung).or_default().push(standing);
        }
    }
    // Without webhooks on probation: their `since` is the start of probation, and the bypass began earlier.
    let dated = hooks().filter(|it| it.rung.is_some());
    let since = |rung| {
        dated
            .clone()
            .filter(|it| it.rung == Some(rung))
            .map(|it| it.since)
            .min()
    };
    for (rung, standings) in &bypassed {
        let condition = AlertCondition::new(
            &rules::BYPASSED,
            &[("rung", rung.as_str())],
            &match standings[..] {
                [one] => format!("{} is bypassed ({rung}).", one.hook.object()),
                _ => format!("Webhooks that are bypassed ({rung}): {}.", standings.len()),
            },
            &bypasses(standings, &assessment.hooks),
        );
        found.push(condition.held_since(since(*rung)));
    }
    in_states(&breaker.hooks, found);
    if breaker.is_disarmed() {
        found.push(AlertCondition::new(
            &rules::HELD_BACK_BY_FENCE,
            &[],
            "hookwatch would bypass nothing in an outage.",
            &breaker.why,
        ));
    }
    if let Some(order) = &breaker.frozen {
        let summary = "hookwatch is frozen and would bypass nothing in an outage.";
        let condition = AlertCondition::new(&rules::FROZEN, &[], summary, order);
        found.push(condition.held_since(breaker.frozen_since));
    }
    if breaker.effective == AutoBreak::On {
        held_back(hooks(), found);
    } else if !bypassed.is_empty() {
        let all: Vec<&HookStanding> = bypassed.into_values().flatten().collect();
        let summary = "Webhooks are bypassed, and this hookwatch may not restore them.";
        let description = format!("{} Run hookwatch restore --all.", words(&all));
        let condition = AlertCondition::new(&rules::BYPASS_ORPHANED, &[], summary, &description);
        // A hookwatch with `autoBreak: on` may only be waiting for the proof of its fence, and restore them soon.
        let for_good = breaker.wanted != AutoBreak::On;
        let since = dated.map(|it| it.since).min();
        found.push(condition.held_since(since.filter(|_| for_good)));
    }
}

/// Alert conditions that depend only on the state of the bypass.
fn in_states(standings: &[HookStanding], found: &mut Vec<AlertCondition>) {
    for (state, rule, what) in [
        (
            "contested",
            &rules::CONTESTED,
            "Something keeps reverting bypasses, so hookwatch has stopped. Webhooks",
        ),
        (
            "ignored",
            &rules::IGNORED,
            "Webhooks with failurePolicy set to Ignore by `hookwatch break`",
        ),
    ] {
        let those: Vec<&HookStanding> = standings.iter().filter(|it| it.state == state).collect();
        if !those.is_empty() {
            let summary = format!("{what}: {}.", those.len());
            found.push(AlertCondition::new(
                rule,
                &[("state", state)],
                &summary,
                &words(&those),
            ));
        }
    }
}

fn held_back<'a>(standings: impl Iterator<Item = &'a HookStanding>, found: &mut Vec<AlertCondition>) {
    let mut by_reason: BTreeMap<&str, Vec<&HookStanding>> = BTreeMap::new();
    for standing in standings {
        let Some(reason) = standing.held_back.as_deref() else {
            continue;
        };
        if !EXPECTED.iter().any(|expected| expected.as_str() == reason) {
            by_reason.entry(reason).or_default().push(standing);
        }
    }
    for (reason, standings) in by_reason {
        found.push(AlertCondition::new(
            &rules::HELD_BACK,
            &[("reason", reason)],
            &format!(
                "Failing webhooks that are not bypassed ({reason}): {}.",
                standings.len()
            ),
            &words(&standings),
        ));
    }
}

/// For each bypass, since when and why it is in force, and the command that restores the webhook.
fn bypasses(standings: &[&HookStanding], verdicts: &[Verdict]) -> String {
    let said = standings.iter().flat_map(|standing| {
        let mut verdicts = verdicts.iter();
        let verdict = verdicts.find(|it| it.hook().as_ref() == Some(&standing.hook));
        let unwell = verdict.filter(|it| it.health != Health::Healthy);
        let command = verdict.and_then(Verdict::restore_command);
        [
            Some(format!("{}: since {}.", standing.hook.object(), standing.since)),
            Some(standing.words.clone()).filter(|words| !words.is_empty()),
            unwell.map(|it| it.summary.clone()),
            command.map(|command| format!("To restore it now: {command}.")),
        ]
    });
    said.flatten().collect::<Vec<_>>().join(" ")
}

/// Each hook with the last message about it.
fn words(standings: &[&HookStanding]) -> String {
    let said = standings.iter().map(|standing| {
        let name = standing.hook.object();
        if standing.words.is_empty() {
            format!("{name}.")
        } else {
            format!("{name}: {}", standing.words)
        }
    });
    said.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::breaker::{HookState, Rung};
    use crate::act::fence::{BreakerView, Proof};
    use crate::cluster::condition::BypassCondition;
    use crate::cluster::hook::{HookId, HookKind};
    use crate::report::alerts::tests::{calm, verdict};
    use crate::time::Time;
    use crate::vocabulary::{Cause, Effect};

    fn standing(webhook: &str, stage: HookState) -> HookStanding {
        let hook = HookId::new(HookKind::Validating, "policy", webhook);
        HookStanding::new(hook, stage, Time::default())
    }

    fn bypassed(webhook: &str, rung: Rung) -> HookStanding {
        let effective = true;
        standing(webhook, HookState::Bypassed { rung, effective })
    }

    fn held_back(webhook: &str, reason: HeldBack) -> HookStanding {
        HookStanding {
            held_back: Some(reason.as_str().to_owned()),
            words: reason.sentence().to_owned(),
            ..standing(webhook, HookState::Enforcing)
        }
    }

    /// Each alert with the label that it has beside those of every alert.
    fn told(mode: AutoBreak, hooks: Vec<HookStanding>) -> Vec<(&'static str, String)> {
        let mut assessment = calm(Time::default());
        assessment.breaker = BreakerView::new(mode, Some(&Proof::Unneeded));
        assessment.breaker.hooks = hooks;
        let mut found = Vec::new();
        conditions(&assessment, &mut found);
        let label = |condition: &AlertCondition| {
            let every = ["alertname", "severity", "source"];
            let mut own = condition.labels.iter().filter(|(name, _)| !every.contains(name));
            let own = own.by_ref().map(|(name, value)| format!("{name}={value}"));
            own.collect::<Vec<_>>().join(" ")
        };
        found.iter().map(|it| (it.rule.alert, label(it))).collect()
    }

    #[test]
    fn what_is_bypassed_is_told_by_its_rung_and_what_is_contested_as_such() {
        let hooks = vec![
            bypassed("a", Rung::Skip),
            bypassed("b", Rung::Shield),
            bypassed("c", Rung::Skip),
            standing("d", HookState::Probation),
            standing("e", HookState::Contested),
            standing("f", HookState::Ignored),
        ];
        assert_eq!(
            told(AutoBreak::On, hooks),
            [
                ("HookwatchBypassed", "rung=shield".to_owned()),
                ("HookwatchBypassed", "rung=skip".to_owned()),
                ("HookwatchContested", "state=contested".to_owned()),
                ("HookwatchBypassOrphaned", "state=ignored".to_owned()),
            ]
        );
    }

    #[test]
    fn a_webhook_on_probation_is_bypassed_still_and_orphaned_where_no_daemon_may_end_it() {
        let hooks = || vec![standing("d", HookState::Probation)];
        let both = [
            ("HookwatchBypassed", "rung=skip".to_owned()),
            ("HookwatchBypassOrphaned", String::new()),
        ];
        assert_eq!(told(AutoBreak::On, hooks()), both[..1]);
        assert_eq!(told(AutoBreak::Plan, hooks()), both);
    }

    #[test]
    fn a_bypass_is_told_with_since_when_why_and_how_to_end_it() {
        let mut assessment = calm(Time::default());
        assessment.breaker = BreakerView::new(AutoBreak::On, Some(&Proof::Unneeded));
        let mut verdict = verdict("w", Health::Failing, Cause::Hanging, Effect::Blocking);
        verdict.summary = "It hangs.".to_owned();
        verdict.bypass = Some(BypassCondition::Shield);
        let hook = verdict.hook().unwrap();
        let stage = HookState::Bypassed {
            rung: Rung::Shield,
            effective: true,
        };
        assessment.breaker.hooks = vec![HookStanding::new(hook.clone(), stage, Time::from_unix_millis(0))];
        assessment.hooks = vec![verdict];
        let mut found = Vec::new();
        conditions(&assessment, &mut found);
        let told = &found[0].description;
        let restore = format!(
            "To restore it now: hookwatch restore {}/{}",
            hook.configuration, hook.webhook
        );
        assert!(
            told.contains(": since 1970-01-01T00:00:00") && told.contains(" It hangs. "),
            "{told}"
        );
        assert!(told.contains(&restore), "{told}");
    }

    #[test]
    fn a_bypass_has_held_since_it_was_made_and_is_not_orphaned_by_a_fence_that_is_not_proven_yet() {
        let since = |seconds: u64| Time::from_unix_millis(seconds * 1_000);
        let bypassed = |at| HookStanding {
            since: since(at),
            ..bypassed("w", Rung::Skip)
        };
        let on_probation = HookStanding {
            since: since(5),
            ..standing("p", HookState::Probation)
        };
        let held = |mode, proof: Option<&Proof>| {
            let mut assessment = calm(Time::default());
            assessment.breaker = BreakerView::new(mode, proof);
            assessment.breaker.hooks = vec![bypassed(20), bypassed(10), on_probation.clone()];
            let mut found = Vec::new();
            conditions(&assessment, &mut found);
            let told = found.iter().filter(|it| it.rule.alert != "HookwatchHeldBack");
            told.map(|it| it.since).collect::<Vec<_>>()
        };
        assert_eq!(held(AutoBreak::Plan, None), [Some(since(10)), Some(since(10))]);
        assert_eq!(held(AutoBreak::On, None), [Some(since(10)), None]);
    }

    #[test]
    fn what_a_guard_rail_holds_back_is_told_by_its_reason_unless_that_was_wanted() {
        let all = || {
            HeldBack::ALL
                .iter()
                .map(|reason| held_back("w", *reason))
                .collect::<Vec<_>>()
        };
        let told_of = told(AutoBreak::On, all());
        assert_eq!(told_of.len(), HeldBack::ALL.len() - EXPECTED.len());
        assert!(told_of.contains(&("HookwatchHeldBack", "reason=evidence".to_owned())));
        for expected in EXPECTED {
            let label = format!("reason={}", expected.as_str());
            assert!(!told_of.contains(&("HookwatchHeldBack", label)));
        }
        assert_eq!(told(AutoBreak::Plan, all()), [], "it would do nothing anyway");
    }

    #[test]
    fn that_the_fence_keeps_a_breaker_that_is_on_from_acting_is_told_with_the_reason() {
        let mut assessment = calm(Time::default());
        let told = |assessment: &Assessment| {
            let mut found = Vec::new();
            conditions(assessment, &mut found);
            found
        };
        let proof = Proof::NotProven("it is missing".to_owned());
        assessment.breaker = BreakerView::new(AutoBreak::On, Some(&proof));
        let found = told(&assessment);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].rule.alert, "HookwatchHeldBack");
        assert_eq!(found[0].labels["reason"], "fence");
        assert!(
            found[0].description.contains("it is missing"),
            "{}",
            found[0].description
        );
        for mode in [AutoBreak::Plan, AutoBreak::Off] {
            assessment.breaker = BreakerView::new(mode, Some(&proof));
            assert_eq!(told(&assessment).len(), 0, "that is what was wanted");
        }
    }

    #[test]
    fn a_freeze_is_told_with_the_order() {
        let mut assessment = calm(Time::default());
        assessment.breaker.frozen = Some("Frozen by alice.".to_owned());
        let mut found = Vec::new();
        conditions(&assessment, &mut found);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].labels["reason"], "freeze");
        assert_eq!(found[0].description, "Frozen by alice.");
    }

    #[test]
    fn a_bypass_that_this_daemon_may_not_end_is_orphaned() {
        let hooks = || vec![bypassed("a", Rung::Shield)];
        let names = |mode| {
            let told = told(mode, hooks());
            told.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(AutoBreak::On), ["HookwatchBypassed"]);
        let both = ["HookwatchBypassed", "HookwatchBypassOrphaned"];
        assert_eq!(
            (names(AutoBreak::Plan), names(AutoBreak::Off)),
            (both.to_vec(), both.to_vec())
        );
        assert_eq!(told(AutoBreak::Plan, Vec::new()), []);
    }
}
