//! The hooks that the breaker handles: a line per hook that is bypassed, being restored, or held back by a guard rail.

use maud::{Markup, html};

use super::text::{Foreign, clock, within};
use crate::domain::act::breaker::HookStanding;
use crate::domain::act::fence::AutoBreak;
use crate::domain::act::leadership::{ReplicaRole, ReplicaView};
use crate::domain::report::assessment::Assessment;
use crate::domain::time::Time;

/// Most bytes of markup for all lines together.
const ROOM: usize = 8_000;

/// The section. Empty if the breaker handles no hook and there is no [`leader_note`].
pub(super) fn standings(assessment: &Assessment) -> Markup {
    let breaker = &assessment.breaker;
    let note = leader_note(assessment);
    if breaker.hooks.is_empty() && note.is_none() {
        return html! {};
    }
    let (lines, left_out) = within(ROOM, &breaker.hooks, |standing| line(standing, assessment.at));
    html! {
        section #breaker {
            h2 { "Breaker " span.quiet { (breaker.effective.as_str()) } }
            @if let Some(note) = note { p { (Foreign(&note)) } }
            ul.standings { (lines) }
            @if left_out > 0 {
                p.quiet { "and " (left_out) " more; all of them are in the " a href="/api/v1/assessment" { "API" } "." }
            }
        }
    }
}

/// A note that only the leader shows its breaker's hooks; `None` if this replica leads, no webhook fails or the breaker is
/// off.
fn leader_note(assessment: &Assessment) -> Option<String> {
    let replica = assessment.replica.as_ref()?;
    let matters = assessment.breaker.effective != AutoBreak::Off && assessment.culprits().next().is_some();
    let follows = replica.role != ReplicaRole::Leader;
    (matters && follows).then(|| ReplicaView::only_the_leader_shows(replica.holder.as_deref()))
}

/// A hook's state in a few words; `None` while it is enforcing and nothing is planned or held back.
pub(super) fn state(standing: &HookStanding) -> Option<String> {
    let held_back = standing.held_back.as_ref();
    let held_back = held_back.map(|reason| format!("held back ({reason})"));
    let state = match (&standing.rung, &standing.would_bypass) {
        (Some(rung), _) if standing.effective => Some(format!("bypassed ({rung})")),
        (Some(rung), _) => Some(format!("bypassed ({rung}), not on every API server yet")),
        (None, Some(rung)) => return Some(format!("would be bypassed ({rung})")),
        (None, None) if standing.state == "enforcing" => None,
        (None, None) if standing.state == "probation" => Some("on probation".to_owned()),
        (None, None) => Some(standing.state.clone()),
    };
    let told: Vec<_> = state.into_iter().chain(held_back).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

fn line(standing: &HookStanding, now: Time) -> Markup {
    let state = state(standing).unwrap_or_else(|| standing.state.clone());
    html! {
        li {
            (Foreign(&standing.hook.webhook)) " "
            small { (standing.hook.kind.as_str()) " · " (Foreign(&standing.hook.configuration)) }
            " " b { (state) } " since " (clock(standing.since, now)) " UTC. " (Foreign(&standing.words))
            @if let Some(unchecked) = &standing.unchecked {
                " " (Foreign(unchecked))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::domain::act::breaker::{HeldBack, HookState, Rung};
    use crate::domain::act::fence::BreakerView;
    use crate::domain::cluster::hook::{HookId, HookKind};
    use crate::domain::watchdog::{Event, Watchdog, WatchdogEffect};

    const AT: Time = Time::from_unix_millis(1_795_219_862_156);

    fn assessment(at: Time, hooks: Vec<HookStanding>) -> Assessment {
        let effects = Watchdog::new("hookwatch").handle(Event::Tick, at);
        let published = effects.into_iter().find_map(|effect| match effect {
            WatchdogEffect::Publish(assessment, _) => Some(Arc::unwrap_or_clone(assessment)),
            _ => None,
        });
        let breaker = BreakerView {
            hooks,
            ..BreakerView::new(AutoBreak::On, None)
        };
        Assessment {
            breaker,
            ..published.expect("an assessment")
        }
    }

    fn shown(hooks: Vec<HookStanding>) -> String {
        standings(&assessment(AT + Duration::from_secs(60), hooks)).into_string()
    }

    fn standing(stage: HookState) -> HookStanding {
        let hook = HookId::new(HookKind::Validating, "c", "<w>");
        HookStanding::new(hook, stage, AT)
    }

    #[test]
    fn since_when_has_the_date_where_that_is_more_than_a_day_ago() {
        let later = AT + Duration::from_secs(5 * 86_400);
        let page = standings(&assessment(later, vec![standing(HookState::Contested)])).into_string();
        assert!(page.contains(">2026-11-21 00:11:02</time>"), "{page}");
        assert!(shown(vec![standing(HookState::Contested)]).contains(">00:11:02</time>"));
    }

    #[test]
    fn a_bypass_is_shown_with_how_far_it_goes_and_whether_it_is_in_force() {
        let stage = |effective| HookState::Bypassed {
            rung: Rung::Shield,
            effective,
        };
        let page = shown(vec![standing(stage(true))]);
        assert!(page.contains("bypassed (shield)</b> since") && page.contains("<bdi>&lt;w&gt;</bdi>"));
        assert!(shown(vec![standing(stage(false))]).contains("not on every API server yet"));
        let mut overdue = standing(stage(true));
        overdue.held_back = Some(HeldBack::Limit.as_str().to_owned());
        assert!(shown(vec![overdue]).contains("bypassed (shield), held back (limit)"));
        let mut restored = standing(HookState::Enforcing);
        restored.unchecked = Some("3 objects went in <unchecked>.".to_owned());
        let page = shown(vec![restored]);
        assert!(
            page.contains("enforcing</b> since") && page.contains("3 objects went in &lt;unchecked&gt;.")
        );
    }

    #[test]
    fn what_is_only_planned_or_held_back_says_so_and_nothing_takes_no_room() {
        let mut planned = standing(HookState::Enforcing);
        planned.would_bypass = Some(Rung::Skip);
        let mut held_back = standing(HookState::Enforcing);
        held_back.held_back = Some("budget".to_owned());
        let page = shown(vec![planned, held_back]);
        assert!(page.contains("would be bypassed (skip)") && page.contains("held back (budget)"));
        assert_eq!(shown(Vec::new()), "");
    }

    #[test]
    fn more_than_there_is_room_for_is_counted() {
        let page = shown((0..200).map(|_| standing(HookState::Contested)).collect());
        assert!(page.len() < ROOM + 500 && page.contains("more; all of them are in the"));
    }
}
