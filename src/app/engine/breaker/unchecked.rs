//! Lists the objects admitted without review while a webhook was bypassed or failed open, once that gap has ended.
//!
//! Every replica tracks the gaps; only the leader runs the jobs, in the background and one at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::domain::act::breaker::HookState;
use crate::domain::cluster::hook::HookId;
use crate::domain::report::assessment::Assessment;
use crate::domain::report::unchecked::{GapReason, Gaps, Question, ReviewGap, Unchecked};
use crate::domain::time::Time;
use crate::domain::vocabulary::Health;
use crate::io::act::breaker::ConfigWriter;
use crate::io::client::Connection;
use crate::io::report::unchecked::{ObjectLister, hook_of};

/// The `reason` of the Event that reports the list. Documented in `docs/breaker.md`.
pub(super) const REASON: &str = "Unchecked";

/// How long a follower keeps a gap that has ended, to report it if it becomes the leader: at the end of the gap there may have
/// been none.
const KEPT: Duration = Duration::from_secs(60);

pub(super) struct GapWatch {
    gaps: Gaps,
    pub(super) ended: EndedGaps,
    /// Lists what was admitted during a gap that has ended.
    pub(super) lister: GapLister,
}

/// Gaps that have ended and that this replica has not reported, each with the time it was announced.
#[derive(Debug, Default)]
pub(super) struct EndedGaps(Vec<(Time, (HookId, ReviewGap))>);

impl EndedGaps {
    /// Takes in gaps that have just ended. Returns those to report: none, unless this replica leads.
    pub(super) fn due(
        &mut self,
        ended: Vec<(HookId, ReviewGap)>,
        leads: bool,
        now: Time,
    ) -> Vec<(HookId, ReviewGap)> {
        self.0.retain(|(told, _)| now.since(*told) < KEPT);
        self.0.extend(ended.into_iter().map(|gap| (now, gap)));
        let due = if leads {
            std::mem::take(&mut self.0)
        } else {
            Vec::new()
        };
        due.into_iter().map(|(_, gap)| gap).collect()
    }
}

/// Lists what was admitted during gaps, one gap at a time.
#[derive(Clone)]
pub(super) struct GapLister {
    lister: ObjectLister,
    one_at_a_time: Arc<Semaphore>,
    own_namespace: Arc<str>,
}

impl GapWatch {
    pub(super) fn new(connection: &Connection, namespace: &str) -> Self {
        Self {
            gaps: Gaps::default(),
            ended: EndedGaps::default(),
            lister: GapLister {
                lister: ObjectLister::new(connection),
                one_at_a_time: Arc::new(Semaphore::new(1)),
                own_namespace: namespace.into(),
            },
        }
    }

    /// Updates the gaps from every hook's stage and verdict. Returns each gap that has been over for 30 s.
    ///
    /// `bypassed_since`: when a hook's bypass began, as recorded on its configuration.
    pub(super) fn update(
        &mut self,
        stages: &BTreeMap<HookId, HookState>,
        assessment: Option<&Assessment>,
        bypassed_since: impl Fn(&HookId) -> Option<Time>,
        now: Time,
    ) -> Vec<(HookId, ReviewGap)> {
        let mut open: BTreeMap<HookId, (GapReason, Time)> = BTreeMap::new();
        for verdict in assessment.iter().flat_map(|assessment| &assessment.hooks) {
            let fails_open = verdict.health == Health::Failing && verdict.fails_open;
            if let Some(hook) = verdict.hook().filter(|_| fails_open) {
                open.insert(hook, (GapReason::FailedOpen, verdict.since.unwrap_or(now)));
            }
        }
        for (hook, stage) in stages {
            let way = match stage {
                HookState::Bypassed { rung, .. } => GapReason::from(*rung),
                // Only hookwatch's own dry runs reach it.
                HookState::Probation => GapReason::Skipped,
                _ => continue,
            };
            let since = bypassed_since(hook).unwrap_or(now);
            // A shielded hook still gets all other calls and may fail open on them: keep the wider way and the earlier
            // start.
            let (widest, earliest) = open.entry(hook.clone()).or_insert((way, since));
            *widest = way.max(*widest);
            *earliest = since.min(*earliest);
        }
        let were_left_out = self.gaps.left_out() > 0;
        let over = self.gaps.look(&open, now);
        let left_out = self.gaps.left_out();
        if left_out > 0 && !were_left_out {
            tracing::warn!(
                webhooks = left_out,
                "too many webhooks fail open: what these admit without review may not be listed afterwards; \
                 `hookwatch unchecked CONFIG/WEBHOOK --since WHEN` lists it"
            );
        }
        over
    }
}

impl GapLister {
    /// `None` when the hook is gone or its configuration cannot be read: without its rules there is nothing to match
    /// objects against. That it could not be read is logged, as nothing else reports that gap.
    pub(super) async fn list(
        self,
        id: HookId,
        gap: ReviewGap,
        writer: Arc<ConfigWriter>,
    ) -> Option<Unchecked> {
        let _turn = self.one_at_a_time.acquire().await.ok()?;
        let read = writer.read(id.kind, &id.configuration).await;
        if let Err(outcome) = &read {
            tracing::warn!(
                webhook = &*id.webhook,
                configuration = &*id.configuration,
                ?outcome,
                "cannot list the objects admitted without review: the webhook's configuration cannot be read"
            );
        }
        let hook = hook_of(id.kind, read.ok()?.as_ref()?, &id.webhook)?;
        let question = Question {
            hook: &hook,
            gap,
            own: &self.own_namespace,
        };
        Some(self.lister.list(question).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cluster::hook::HookKind;

    #[test]
    fn a_gap_that_ends_while_no_replica_leads_is_reported_by_the_next_leader_within_a_minute() {
        let at = |seconds: u64| Time::from_unix_millis(seconds * 1_000);
        let hook = HookId::new(HookKind::Validating, "c", "w");
        let gap = ReviewGap {
            from: at(10),
            to: at(20),
            way: GapReason::Skipped,
        };
        let mut ended = EndedGaps::default();
        assert_eq!(ended.due(vec![(hook.clone(), gap)], false, at(50)), []);
        assert_eq!(ended.due(Vec::new(), true, at(109)), [(hook.clone(), gap)]);
        assert_eq!(ended.due(Vec::new(), true, at(109)), [], "it is reported once");
        ended.due(vec![(hook, gap)], false, at(200));
        assert_eq!(
            ended.due(Vec::new(), true, at(260)),
            [],
            "another replica reported it"
        );
    }
}
