//! Reports of the breaker's actions: in the assessment, in metrics, in the log and as Events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::unchecked::REASON;
use crate::app::engine::announce::Announcements;
use crate::domain::act::breaker::{HeldBack, HookStanding, HookState, Notice, NoticeKind, Rung};
use crate::domain::act::fence::AutoBreak;
use crate::domain::cluster::hook::HookId;
use crate::domain::report::announcement::of_action;
use crate::domain::report::unchecked::Unchecked;
use crate::domain::time::Time;
use crate::io::report::metrics::Metrics;

/// Most hooks in the published list, bypassed ones first: `breaker.mostShielded` permits no more bypasses than this.
const MAX_LISTED: usize = 200;
/// How long objects admitted without review are listed in the assessment.
const SHOWN: Duration = Duration::from_secs(3_600);

#[derive(Default)]
pub(super) struct BreakerLog {
    last: BTreeMap<HookId, (NoticeKind, String)>,
    since: BTreeMap<HookId, (&'static str, Option<Rung>, Time)>,
    pub(super) published: Option<Vec<HookStanding>>,
    /// The sentence about objects admitted without review, and when it was reported.
    unchecked: BTreeMap<HookId, (String, Time)>,
}

impl BreakerLog {
    pub(super) fn tell(
        &mut self,
        notice: &Notice,
        uid: &str,
        now: Time,
        metrics: &Metrics,
        announcements: Option<&Announcements>,
    ) {
        if let NoticeKind::HeldBack(reason) = notice.kind {
            metrics.held_back(reason);
        }
        let (news, words) = (notice.kind.as_str(), &notice.words);
        let (webhook, configuration) = (&*notice.hook.webhook, &*notice.hook.configuration);
        let reason = match notice.kind {
            NoticeKind::HeldBack(reason) => Some(reason.as_str()),
            _ => None,
        };
        let page = notice.page.as_deref();
        if is_warning(notice.kind) {
            tracing::warn!(webhook, configuration, news, reason, page, "{words}")
        } else {
            tracing::info!(webhook, configuration, news, reason, page, "{words}")
        }
        if let Some(announcements) = announcements
            && is_for_an_event(notice.kind)
        {
            let mut note = match notice.kind {
                NoticeKind::WouldBypass(rung) => format!("It would be bypassed ({rung}): {words}"),
                NoticeKind::HeldBack(_) => format!("It is not bypassed. {words}"),
                _ => words.clone(),
            };
            if let Some(page) = page {
                note.push_str(&format!(" Responsible: {page}."));
            }
            let note = format!("Webhook {webhook:?}: {note}");
            announcements.hand_in(
                of_action(&notice.hook, uid, news, is_warning(notice.kind), &note),
                now,
            );
        }
        self.last
            .insert(notice.hook.clone(), (notice.kind, notice.words.clone()));
    }

    /// Reports objects admitted without review: in the log, in an Event and in the assessment.
    pub(super) fn unchecked(
        &mut self,
        unchecked: &Unchecked,
        uid: &str,
        now: Time,
        announcements: Option<&Announcements>,
    ) {
        let (hook, sentence) = (&unchecked.hook, unchecked.sentence());
        tracing::info!(
            webhook = &*hook.webhook,
            configuration = &*hook.configuration,
            objects = unchecked.count(),
            "{sentence}"
        );
        for line in unchecked.lines() {
            tracing::debug!("{line}");
        }
        if let Some(announcements) = announcements {
            let warning = unchecked.count() > 0 || !unchecked.not_listed.is_empty();
            let note = format!("Webhook {:?}: {sentence}", hook.webhook);
            announcements.hand_in(of_action(hook, uid, REASON, warning, &note), now);
        }
        self.unchecked.insert(hook.clone(), (sentence, now));
    }

    /// The standings to publish, if they changed. `stages`: of all hooks that do not enforce; `concerns`: hooks whose last
    /// message is still true; `bypassed_since`: according to the object.
    pub(super) fn standings(
        &mut self,
        stages: &BTreeMap<HookId, HookState>,
        concerns: impl Fn(&HookId) -> bool,
        bypassed_since: impl Fn(&HookId) -> Option<Time>,
        mode: AutoBreak,
        now: Time,
    ) -> Option<Vec<HookStanding>> {
        let stage_of = |hook: &HookId| stages.get(hook).copied().unwrap_or(HookState::Enforcing);
        self.last
            .retain(|hook, _| concerns(hook) || stage_of(hook) != HookState::Enforcing);
        self.unchecked.retain(|_, (_, at)| now.since(*at) < SHOWN);
        let mut since = BTreeMap::new();
        let mut standings = Vec::new();
        for hook in self.listed(stages) {
            let stage = stage_of(hook);
            let rung = match stage {
                HookState::Bypassed { rung, .. } => Some(rung),
                _ => None,
            };
            let before = self.since.get(hook).copied();
            let begun = match before {
                Some((state, before, begun)) if (state, before) == (stage.as_str(), rung) => begun,
                _ => now,
            };
            // A bypass may be older than this daemon.
            let known = rung.and_then(|_| bypassed_since(hook));
            let begun = known.map_or(begun, |known| known.min(begun));
            since.insert(hook.clone(), (stage.as_str(), rung, begun));
            let mut standing = HookStanding::new(hook.clone(), stage, begun);
            let last = self.last.get(hook).filter(|_| stage != HookState::Ignored);
            if let Some((news, words)) = last {
                standing.words.clone_from(words);
                match news {
                    NoticeKind::WouldBypass(rung) => standing.would_bypass = Some(*rung),
                    // A bypass that stays in force at its time limit needs an operator as much as one that ends there.
                    NoticeKind::Limit => standing.held_back = Some(HeldBack::Limit.as_str().to_owned()),
                    NoticeKind::HeldBack(reason) if mode != AutoBreak::Off => {
                        standing.held_back = Some(reason.as_str().to_owned());
                    }
                    _ => {}
                }
            }
            let unchecked = self.unchecked.get(hook);
            standing.unchecked = unchecked.map(|(sentence, _)| sentence.clone());
            standings.push(standing);
        }
        self.since = since;
        let news = self.published.as_ref() != Some(&standings);
        self.published = Some(standings.clone());
        news.then_some(standings)
    }

    /// The hooks to list, sorted. If there are more than `MAX_LISTED`, bypassed hooks and those in probation come first, then
    /// ignored ones, then those with only a message.
    fn listed<'a>(&'a self, stages: &'a BTreeMap<HookId, HookState>) -> BTreeSet<&'a HookId> {
        let in_force = |wanted: fn(&HookState) -> bool| {
            let those = stages.iter().filter(move |(_, stage)| wanted(stage));
            those.map(|(hook, _)| hook)
        };
        let changed = in_force(|stage| !matches!(stage, HookState::Enforcing | HookState::Ignored));
        let ignored = in_force(|stage| *stage == HookState::Ignored);
        let said = self.unchecked.keys().chain(self.last.keys());
        let mut listed = BTreeSet::new();
        for hook in changed.chain(ignored).chain(said) {
            if listed.len() >= MAX_LISTED {
                break;
            }
            listed.insert(hook);
        }
        listed
    }
}

fn is_warning(news: NoticeKind) -> bool {
    !matches!(
        news,
        NoticeKind::Probation
            | NoticeKind::Restoring
            | NoticeKind::Restored
            | NoticeKind::HeldBack(HeldBack::Hold | HeldBack::NotRead)
    )
}

/// Whether a notice becomes an Event: not if it passes within seconds, or comes and goes with the evidence.
fn is_for_an_event(news: NoticeKind) -> bool {
    match news {
        NoticeKind::Bypassing(_) | NoticeKind::Restoring => false,
        NoticeKind::HeldBack(reason) => !matches!(
            reason,
            HeldBack::Hold
                | HeldBack::Evidence
                | HeldBack::Stale
                | HeldBack::NotRead
                | HeldBack::SelfDoubt
                // In an outage it usually passes; if it lasts, the log and an alert report it.
                | HeldBack::Ledger
        ),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cluster::hook::HookKind;

    #[test]
    fn a_bypass_is_listed_however_many_webhooks_are_held_back() {
        let hook = |name: &str| HookId::new(HookKind::Validating, name, "w");
        let mut log = BreakerLog::default();
        for number in 0..MAX_LISTED + 50 {
            let news = NoticeKind::HeldBack(HeldBack::Policy);
            log.last
                .insert(hook(&format!("a{number:03}")), (news, String::new()));
        }
        let mut stages = BTreeMap::new();
        for number in 0..MAX_LISTED + 50 {
            stages.insert(hook(&format!("b{number:03}")), HookState::Ignored);
        }
        let stage = HookState::Bypassed {
            rung: Rung::Shield,
            effective: true,
        };
        stages.insert(hook("z"), stage);
        let standings = log.standings(&stages, |_| true, |_| None, AutoBreak::On, Time::default());
        let standings = standings.unwrap();
        assert_eq!(standings.len(), MAX_LISTED);
        let bypassed = standings.iter().filter(|standing| standing.rung.is_some());
        assert_eq!(bypassed.count(), 1);
        let held_back = standings.iter().filter(|standing| standing.held_back.is_some());
        assert_eq!(held_back.count(), 0);
    }

    #[test]
    fn a_bypass_is_as_old_as_its_object_says_however_young_the_daemon_is() {
        let hook = HookId::new(HookKind::Validating, "policy", "w");
        let at = |seconds: u64| Time::from_unix_millis(seconds * 1_000);
        let since = |stage, now| {
            let mut log = BreakerLog::default();
            let stages = BTreeMap::from([(hook.clone(), stage)]);
            let standings = log.standings(&stages, |_| true, |_| Some(at(100)), AutoBreak::On, at(now));
            standings.unwrap()[0].since
        };
        let bypassed = HookState::Bypassed {
            rung: Rung::Skip,
            effective: true,
        };
        assert_eq!(since(bypassed, 500), at(100));
        // Another replica wrote it, and its clock may be ahead.
        assert_eq!(since(bypassed, 50), at(50));
        // The object does not say since when there is a probation.
        assert_eq!(since(HookState::Probation, 500), at(500));
    }
}
