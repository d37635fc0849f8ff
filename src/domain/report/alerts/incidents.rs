//! Alerts about failing webhooks: webhooks with the same destination are one incident, and one alert names them all.

use std::collections::BTreeMap;

use super::{AlertCondition, explanation, name, rules};
use crate::diagnose::verdict::Verdict;
use crate::vocabulary::{Cause, Effect};

/// Most webhooks that one sentence names.
const LISTED: usize = 50;
/// Length of a list of webhooks, in bytes, after which no further one is named, so that the first webhook's evidence fits in too.
const LIST_BYTES: usize = 400;

pub(super) fn conditions(verdicts: &[Verdict], found: &mut Vec<AlertCondition>) {
    let mut incidents: BTreeMap<&str, Vec<&Verdict>> = BTreeMap::new();
    for verdict in verdicts.iter().filter(|verdict| verdict.fails_admission()) {
        incidents.entry(&verdict.incident).or_default().push(verdict);
    }
    for (incident, members) in incidents {
        for (effect, rule) in [
            (Effect::Blocking, &rules::HOOK_BLOCKING),
            (Effect::Delaying, &rules::HOOK_DELAYING),
        ] {
            let (own, others): (Vec<_>, Vec<_>) = members.iter().partition(|it| it.effect == effect);
            if own.is_empty() {
                continue;
            }
            let labels = [("effect", effect.as_str()), ("incident", incident)];
            let (summary, explanation) = told(incident, &[own, others].concat());
            found.push(AlertCondition::new(rule, &labels, &summary, &explanation));
        }
        // Independent of the effect: writes that wait for a webhook still pass without its review.
        let open: Vec<_> = members.into_iter().filter(|it| it.fails_open).collect();
        if !open.is_empty() {
            let (summary, explanation) = told(incident, &open);
            found.push(AlertCondition::new(
                &rules::HOOK_FAILING_OPEN,
                &[("incident", incident)],
                &summary,
                &explanation,
            ));
        }
    }
}

/// The summary and the description of an incident. With several webhooks the text has the details of the first and the names of
/// the others.
fn told(incident: &str, members: &[&Verdict]) -> (String, String) {
    let Some((first, others)) = members.split_first() else {
        return (String::new(), String::new());
    };
    let stated = format!("{} is {}.", name(first), cause(first));
    if others.is_empty() {
        let summary = format!("{stated} {}", first.summary);
        return (summary, explanation(first, Vec::new()));
    }
    let together = format!("{} webhooks fail together ({incident}). {stated}", members.len());
    (together, explanation(first, consequences(members)))
}

/// The outcomes of matching writes, each with the webhooks that cause it.
fn consequences(members: &[&Verdict]) -> Vec<String> {
    let closed = |it: &Verdict, effect| !it.fails_open && it.effect == effect;
    let (mut refused, mut slow, mut open, mut rest) = (vec![], vec![], vec![], vec![]);
    for &member in members {
        match member {
            it if it.fails_open => open.push(it),
            it if closed(it, Effect::Blocking) => refused.push(it),
            it if closed(it, Effect::Delaying) => slow.push(it),
            it => rest.push(it),
        }
    }
    let sentences = [
        (
            "Writes that match are refused, or take longer than clients wait",
            refused,
        ),
        ("Writes that match are slow", slow),
        (
            "Writes that match pass without review, and wait first if it hangs",
            open,
        ),
        ("Failing as well", rest),
    ];
    let sentences = sentences.into_iter().filter(|(_, those)| !those.is_empty());
    sentences
        .map(|(what, those)| format!("{what}: {}.", listed(&those)))
        .collect()
}

fn listed(members: &[&Verdict]) -> String {
    let mut list = String::new();
    for (number, member) in members.iter().enumerate() {
        if number == LISTED || list.len() >= LIST_BYTES {
            list.push_str(&format!(" and {} more", members.len() - number));
            break;
        }
        let comma = if number == 0 { "" } else { ", " };
        list.push_str(&format!("{comma}{:?} ({})", member.webhook, cause(member)));
    }
    list
}

fn cause(verdict: &Verdict) -> &'static str {
    verdict.cause.map_or("failing", Cause::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::hook::HookKind;
    use crate::report::alerts::tests::verdict;
    use crate::vocabulary::Health;

    fn hanging(webhook: &str, effect: Effect, fails_open: bool) -> Verdict {
        Verdict {
            fails_open,
            ..verdict(webhook, Health::Failing, Cause::Hanging, effect)
        }
    }

    fn found(verdicts: &[Verdict]) -> Vec<AlertCondition> {
        let mut found = Vec::new();
        conditions(verdicts, &mut found);
        found
    }

    #[test]
    fn that_objects_pass_without_review_is_told_whatever_the_effect() {
        for (effect, beside) in [
            (Effect::Blocking, Some("Blocking")),
            (Effect::Delaying, Some("Delaying")),
            (Effect::FailingOpen, None),
        ] {
            let found = found(&[hanging("w", effect, true)]);
            let told = |it: &AlertCondition| (it.rule.alert, it.labels["effect"].clone());
            let told: Vec<_> = found.iter().map(told).collect();
            let beside = beside.map(|effect| ("HookwatchHookFailing", effect.to_owned()));
            let open = ("HookwatchHookFailingOpen", "FailingOpen".to_owned());
            assert_eq!(told, beside.into_iter().chain([open]).collect::<Vec<_>>());
        }
        let closed = found(&[hanging("w", Effect::Blocking, false)]);
        assert_eq!(closed.len(), 1);
        let conversion = Verdict {
            kind: HookKind::Conversion,
            ..hanging("w", Effect::Blocking, false)
        };
        assert_eq!(found(&[conversion]), []);
    }

    #[test]
    fn a_webhook_that_is_ignored_is_not_listed_among_those_that_refuse() {
        let both = [
            hanging("ignored.example.com", Effect::Blocking, true),
            hanging("strict.example.com", Effect::Blocking, false),
        ];
        let found = found(&both);
        let names: Vec<_> = found.iter().map(|it| it.rule.alert).collect();
        assert_eq!(names, ["HookwatchHookFailing", "HookwatchHookFailingOpen"]);
        let told = &found[0].description;
        for part in [
            "are refused, or take longer than clients wait: \"strict.example.com\" (Hanging). ",
            "pass without review, and wait first if it hangs: \"ignored.example.com\" (Hanging). ",
        ] {
            assert!(told.contains(part), "{told}");
        }
        assert!(!found[1].summary.contains("strict") && !found[1].description.contains("strict"));
    }

    #[test]
    fn of_webhooks_that_find_no_room_it_is_said_how_many_they_are() {
        let names = (0..200).map(|n| format!("w{n}.example.com"));
        let all: Vec<_> = names
            .map(|name| hanging(&name, Effect::Blocking, false))
            .collect();
        let told = &found(&all)[0].description;
        let named = told.matches("(Hanging)").count();
        assert!(told.contains(&format!(" and {} more.", 200 - named)), "{told}");
        assert!(
            told.contains("A canary named it."),
            "what to do fits in as well: {told}"
        );
    }
}
