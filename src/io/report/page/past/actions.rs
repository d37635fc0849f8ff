//! The breaker's actions, derived from the changes of the standings that it publishes.

use std::collections::BTreeMap;
use strum::IntoStaticStr;

use super::{Mark, MarkKind, MarkSubject, anchor_of};
use crate::domain::act::breaker::HookStanding;
use crate::domain::act::fence::BreakerView;
use crate::domain::cluster::hook::HookId;
use crate::domain::text::named;
use crate::domain::time::Time;

/// Most hooks followed at once; the breaker lists no more.
const MAX_FOLLOWED: usize = 400;

/// What the breaker did with a hook, or would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PastAction {
    /// The hook is bypassed, in effect on every API server.
    Bypassed,
    /// On probation: only hookwatch's own dry runs reach the hook.
    #[strum(serialize = "on probation")]
    Probation,
    /// The bypass was removed and the original restored.
    Restored,
    /// Something keeps reverting the bypass.
    Contested,
    /// Bypassed by `failurePolicy: Ignore`, which only an administrator ends.
    Ignored,
    /// The hook was removed from the cluster while it was bypassed.
    Gone,
    /// The hook would be bypassed if `autoBreak` were on.
    #[strum(serialize = "would bypass")]
    Planned,
}

named!(PastAction, "What it is called in a list.");

impl PastAction {
    fn of(standing: &HookStanding) -> Option<Self> {
        match standing.state.as_str() {
            "bypassed" if standing.effective => Some(Self::Bypassed),
            "probation" => Some(Self::Probation),
            "contested" => Some(Self::Contested),
            "ignored" => Some(Self::Ignored),
            "enforcing" if standing.would_bypass.is_some() => Some(Self::Planned),
            _ => None,
        }
    }
}

/// The last action for each hook, to tell which standings are new.
#[derive(Debug, Default)]
pub(super) struct Actions {
    told: BTreeMap<HookId, (PastAction, String)>,
    begun: bool,
}

impl Actions {
    /// The changes since the last call, as marks. `is_gone`: whether a hook is not in the cluster any more.
    pub(super) fn news(
        &mut self,
        breaker: &BreakerView,
        is_gone: impl Fn(&HookId) -> bool,
        now: Time,
    ) -> Vec<Mark> {
        let over = |hook: &HookId, before| over(hook, before, is_gone(hook), now);
        let mut marks = Vec::new();
        let mut told = BTreeMap::new();
        for standing in breaker.hooks.iter().take(MAX_FOLLOWED) {
            let before = self.told.remove(&standing.hook);
            let under_way = standing.state == "bypassed" && !standing.effective;
            let Some(action) = PastAction::of(standing) else {
                match before {
                    // While a bypass propagates, the last action stays. So does a planned one, so that it is listed only once
                    // even if a guard rail blocks it in between.
                    Some(before) if under_way || before.0 == PastAction::Planned => {
                        told.insert(standing.hook.clone(), before);
                    }
                    Some((before, _)) => marks.extend(over(&standing.hook, before)),
                    None => {}
                }
                continue;
            };
            let rung = standing.rung.or(standing.would_bypass);
            let how = rung.map_or_else(String::new, |rung| format!(" ({rung})"));
            if before
                .as_ref()
                .is_none_or(|before| *before != (action, how.clone()))
            {
                // Standings in the first assessment began earlier, before hookwatch started.
                let began = (!self.begun).then_some(standing.since);
                let what = match action {
                    PastAction::Bypassed => format!("is bypassed{how}"),
                    PastAction::Probation => "is on probation".to_owned(),
                    PastAction::Contested => "is contested, and left alone".to_owned(),
                    PastAction::Planned => format!("would be bypassed{how}"),
                    PastAction::Ignored => "is bypassed (ignore)".to_owned(),
                    PastAction::Restored => "is restored".to_owned(),
                    PastAction::Gone => "is gone".to_owned(),
                };
                marks.push(mark(
                    &standing.hook,
                    action,
                    &format!("{what}. {}", standing.words),
                    began,
                    now,
                ));
            }
            told.insert(standing.hook.clone(), (action, how));
        }
        for (hook, (before, _)) in &self.told {
            marks.extend(over(hook, *before));
        }
        (self.told, self.begun) = (told, true);
        marks
    }
}

/// The mark for a hook that the breaker no longer handles; `None` if it was not bypassed before.
fn over(hook: &HookId, before: PastAction, is_gone: bool, now: Time) -> Option<Mark> {
    let (action, text) = if is_gone {
        (PastAction::Gone, "is gone.")
    } else {
        (PastAction::Restored, "is restored.")
    };
    let was_in_force = !matches!(before, PastAction::Planned | PastAction::Contested);
    was_in_force.then(|| mark(hook, action, text, None, now))
}

fn mark(hook: &HookId, action: PastAction, what: &str, began: Option<Time>, now: Time) -> Mark {
    Mark {
        at: now,
        kind: MarkKind::Breaker(Some(action)),
        hook: Some(MarkSubject {
            anchor: anchor_of(hook.kind, &hook.configuration, &hook.webhook),
            webhook: hook.webhook.clone(),
        }),
        began: began.filter(|began| *began < now),
        text: format!("{} ({}) {}", hook.webhook, hook.configuration, what.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::act::breaker::{HookState, Rung};
    use crate::domain::act::fence::AutoBreak;
    use crate::domain::cluster::hook::HookKind;

    fn at(seconds: u64) -> Time {
        Time::from_unix_millis(1_800_000_000_000 + seconds * 1_000)
    }

    fn breaker(stage: Option<HookState>) -> BreakerView {
        let hook = HookId::new(HookKind::Validating, "c", "w");
        BreakerView {
            hooks: stage
                .map(|stage| HookStanding::new(hook, stage, at(0)))
                .into_iter()
                .collect(),
            ..BreakerView::new(AutoBreak::On, None)
        }
    }

    fn bypassed(rung: Rung, effective: bool) -> Option<HookState> {
        Some(HookState::Bypassed { rung, effective })
    }

    #[test]
    fn a_bypass_is_marked_when_it_is_in_force_and_again_when_it_goes_further_or_is_over() {
        let mut actions = Actions::default();
        let story = [
            None,
            bypassed(Rung::Shield, false),
            bypassed(Rung::Shield, true),
            bypassed(Rung::Shield, true),
            bypassed(Rung::Skip, false),
            bypassed(Rung::Skip, true),
            Some(HookState::Probation),
            Some(HookState::Enforcing),
            None,
        ];
        let marks: Vec<Mark> = story
            .into_iter()
            .zip(1..)
            .flat_map(|(stage, second)| actions.news(&breaker(stage), there, at(second)))
            .collect();
        let told: Vec<_> = marks.iter().map(|mark| (mark.at, mark.kind)).collect();
        let kind = |action| MarkKind::Breaker(Some(action));
        assert_eq!(
            told,
            [
                (at(3), kind(PastAction::Bypassed)),
                (at(6), kind(PastAction::Bypassed)),
                (at(7), kind(PastAction::Probation)),
                (at(8), kind(PastAction::Restored)),
            ]
        );
        assert_eq!(marks[1].text, "w (c) is bypassed (skip).");
    }

    fn there(_: &HookId) -> bool {
        false
    }

    #[test]
    fn a_webhook_that_is_removed_while_it_is_bypassed_is_gone_and_not_restored() {
        for stage in [bypassed(Rung::Skip, true), Some(HookState::Probation)] {
            for left in [None, Some(HookState::Enforcing)] {
                let mut actions = Actions::default();
                actions.news(&breaker(stage), there, at(1));
                let marks = actions.news(&breaker(left), |_| true, at(2));
                let told: Vec<_> = marks.iter().map(|mark| (mark.kind, mark.text.as_str())).collect();
                let gone = MarkKind::Breaker(Some(PastAction::Gone));
                assert_eq!(told, [(gone, "w (c) is gone.")]);
            }
        }
    }

    #[test]
    fn a_webhook_whose_failures_are_ignored_is_not_restored_until_that_ends() {
        let mut actions = Actions::default();
        actions.news(&breaker(bypassed(Rung::Skip, true)), there, at(1));
        let marks = actions.news(&breaker(Some(HookState::Ignored)), there, at(2));
        assert_eq!(marks.len(), 1);
        assert_eq!(marks[0].kind, MarkKind::Breaker(Some(PastAction::Ignored)));
        let text = "w (c) is bypassed (ignore). Its failures are ignored, ";
        assert!(marks[0].text.starts_with(text), "{}", marks[0].text);
        let marks = actions.news(&breaker(None), there, at(3));
        assert_eq!(marks[0].kind, MarkKind::Breaker(Some(PastAction::Restored)));
    }

    #[test]
    fn what_was_bypassed_before_hookwatch_looked_began_before() {
        let marks = Actions::default().news(&breaker(bypassed(Rung::Skip, true)), there, at(60));
        assert_eq!(marks[0].began, Some(at(0)));
    }

    #[test]
    fn what_would_be_done_is_marked_and_its_end_is_not() {
        let mut actions = Actions::default();
        let mut planned = breaker(Some(HookState::Enforcing));
        planned.hooks[0].would_bypass = Some(Rung::Shield);
        let marks = actions.news(&planned, there, at(1));
        assert_eq!(marks[0].text, "w (c) would be bypassed (shield).");
        // Held back for a moment, and then it would be done again.
        assert_eq!(
            actions.news(&breaker(Some(HookState::Enforcing)), there, at(2)),
            []
        );
        assert_eq!(actions.news(&planned, there, at(3)), []);
        assert_eq!(actions.news(&breaker(None), there, at(4)), []);
    }

    #[test]
    fn what_is_no_longer_contested_is_not_called_restored() {
        let mut actions = Actions::default();
        let marks = actions.news(&breaker(Some(HookState::Contested)), there, at(1));
        assert_eq!(marks[0].text, "w (c) is contested, and left alone.");
        assert_eq!(
            actions.news(&breaker(Some(HookState::Enforcing)), there, at(2)),
            []
        );
        assert_eq!(actions.news(&breaker(None), there, at(3)), []);
    }
}
