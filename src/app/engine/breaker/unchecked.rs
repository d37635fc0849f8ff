//! After the gap: when a hook checks again what it was not asked about for a while, what went in meanwhile is listed.
//!
//! One list at a time, and none is waited for by anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::domain::act::breaker::Stage;
use crate::domain::cluster::hook::HookId;
use crate::domain::report::assessment::Assessment;
use crate::domain::report::unchecked::{Gap, Gaps, Question, Unchecked, Way};
use crate::domain::time::Time;
use crate::domain::vocabulary::Health;
use crate::io::act::breaker::Hand;
use crate::io::client::Connection;
use crate::io::report::unchecked::{Lister, hook_of};

/// The reason of the Event.
pub(super) const REASON: &str = "Unchecked";

/// Watches for gaps.
pub(super) struct Watch {
    gaps: Gaps,
    lister: Lister,
    one: Arc<Semaphore>,
    own: Arc<str>,
}

/// One list to be made.
pub(super) struct Job {
    hook: HookId,
    gap: Gap,
    lister: Lister,
    one: Arc<Semaphore>,
    own: Arc<str>,
}

impl Watch {
    pub(super) fn new(connection: &Connection, namespace: &str) -> Self {
        Self {
            gaps: Gaps::default(),
            lister: Lister::new(connection),
            one: Arc::new(Semaphore::new(1)),
            own: namespace.into(),
        }
    }

    /// Takes in where every hook stands, and which fail open. `since`: since when a hook is bypassed by what stands on its
    /// object. Hands out what is to be listed.
    pub(super) fn look(
        &mut self,
        stages: &BTreeMap<HookId, Stage>,
        assessment: Option<&Assessment>,
        since: impl Fn(&HookId) -> Option<Time>,
        now: Time,
    ) -> Vec<Job> {
        let mut open: BTreeMap<HookId, (Way, Time)> = BTreeMap::new();
        for verdict in assessment.iter().flat_map(|assessment| &assessment.hooks) {
            let fails_open = verdict.health == Health::Failing && verdict.fails_open;
            if let (true, Some(configuration)) = (fails_open, &verdict.configuration) {
                let hook = HookId {
                    kind: verdict.kind,
                    configuration: Arc::clone(configuration),
                    webhook: Arc::clone(&verdict.webhook),
                };
                open.insert(hook, (Way::FailedOpen, verdict.since.unwrap_or(now)));
            }
        }
        for (hook, stage) in stages {
            let way = match stage {
                Stage::Bypassed { rung, .. } => Way::from(*rung),
                Stage::Probation { restored: false } => Way::Skipped,
                _ => continue,
            };
            let since = since(hook).unwrap_or(now);
            // A shielded hook may fail open for everybody else.
            let gap = open.entry(hook.clone()).or_insert((way, since));
            *gap = (gap.0.max(way), gap.1.min(since));
        }
        let over = self.gaps.look(&open, now).into_iter();
        let job = |(hook, gap)| Job {
            hook,
            gap,
            lister: self.lister.clone(),
            one: Arc::clone(&self.one),
            own: Arc::clone(&self.own),
        };
        over.map(job).collect()
    }
}

impl Job {
    /// Lists. `None` when the hook is gone or cannot be read: then nobody knows what it was asked about.
    pub(super) async fn run(self, hand: Arc<Hand>) -> Option<Unchecked> {
        let _turn = self.one.acquire().await.ok()?;
        let id = &self.hook;
        let read = hand.read(id.kind, &id.configuration).await;
        let hook = hook_of(id.kind, read.ok()?.as_ref()?, &id.webhook)?;
        let question = Question {
            hook: &hook,
            gap: self.gap,
            own: &self.own,
        };
        Some(self.lister.list(question).await)
    }
}
