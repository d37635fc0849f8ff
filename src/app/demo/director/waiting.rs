//! What each part of a demo waits for, and how long.

use std::time::{Duration, Instant};

use super::Director;
use crate::app::demo::judge::{DemoPhase, is_of};
use crate::app::demo::timeline::DemoEvent;
use crate::app::terminal::view::shown::ShownAssessment;
use crate::domain::vocabulary::{Health, Writes};
use crate::lab::cluster::LabHook;

/// How long after the verdict a bypass is waited for: the breaker first waits for its hold time, and reads the object from
/// every API server.
const BYPASS: Duration = Duration::from_secs(20);
/// How long a restore may take once every hook is healthy.
const RESTORE: Duration = Duration::from_secs(180);

impl Director<'_> {
    pub(super) async fn wait_for_quiet(&mut self) -> anyhow::Result<()> {
        if let Some(breaking) = &mut self.breaking {
            breaking.note(self.scenario.hooks_before()).await?;
        }
        self.teller.tell(self.stage.started())?;
        let began = Instant::now();
        let mut seen_healthy = false;
        loop {
            let assessment = self.look(DemoPhase::Baseline).await?;
            let hooks = self.scenario.hooks_before();
            seen_healthy |= assessment.as_ref().is_some_and(|seen| all_healthy(seen, hooks));
            if seen_healthy && began.elapsed() >= self.timing.baseline {
                break;
            }
            anyhow::ensure!(
                began.elapsed() < self.timing.first_healthy.max(self.timing.baseline),
                "the daemon did not find all webhooks Healthy within {} s",
                self.timing.first_healthy.as_secs()
            );
        }
        let recent = self.stage.workload.recent(Duration::from_secs(3));
        self.teller.tell(DemoEvent::Quiet {
            writes_per_second: recent.writes_per_second,
            median: recent.median,
        })
    }

    /// Watches while the fault lasts.
    pub(super) async fn look_on(&mut self) -> anyhow::Result<()> {
        let since = self.moments.fault.map_or_else(Instant::now, |(at, _)| at);
        loop {
            self.look(DemoPhase::Fault(since.elapsed())).await?;
            let elapsed = since.elapsed();
            let enough = match self.judge.time_to_verdict() {
                _ if self.scenario.is_quiet() => elapsed >= self.timing.quiet,
                None => elapsed >= self.timing.verdict,
                Some(verdict) => {
                    let failure_due = self.judge.worst_writes() == Writes::Blocked
                        && self.moments.first_failure.is_none()
                        && elapsed < self.timing.first_failure;
                    let page_due = self
                        .pages
                        .as_ref()
                        .is_some_and(|pages| !pages.first_page_came_or_late());
                    // A webhook that is not bypassed by then is not going to be.
                    let bypass_due = self.breaking.as_ref().is_some_and(|it| {
                        if it.has_bypassed() {
                            !it.is_through() && elapsed < self.timing.verdict
                        } else {
                            elapsed < verdict + BYPASS
                        }
                    });
                    let shortest = self.scenario.lasts_at_least.max(verdict + self.timing.linger);
                    elapsed >= shortest && !failure_due && !page_due && !bypass_due
                }
            };
            if enough {
                return Ok(());
            }
        }
    }

    pub(super) async fn wait_for_recovery(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        while since.elapsed() < self.timing.recovery {
            let assessment = self.look(DemoPhase::Recovery).await?;
            let hooks = self.scenario.hooks_after();
            let all_well =
                |seen: &ShownAssessment| all_healthy(seen, hooks) && seen.control_plane.not_a_hook.is_none();
            if assessment.as_ref().is_some_and(all_well) {
                let after = since.elapsed();
                self.moments.recovered_after = Some(after);
                return self.teller.tell(DemoEvent::Recovered(after));
            }
        }
        self.teller.tell(DemoEvent::NotRecovered)
    }

    pub(super) async fn wait_for_restore(&mut self) -> anyhow::Result<()> {
        let Some(mut breaking) = self.breaking.take() else {
            return Ok(());
        };
        let since = Instant::now();
        let mut whole = breaking.look_at_objects().await?;
        while !whole && since.elapsed() < RESTORE {
            // The follower of the breaker is put back for each look, which feeds it.
            self.breaking = Some(breaking);
            self.look(DemoPhase::Recovery).await?;
            match self.breaking.take() {
                Some(back) => breaking = back,
                None => return Ok(()),
            }
            whole = breaking.look_at_objects().await?;
        }
        for event in breaking.check(since.elapsed()).await? {
            self.teller.tell(event)?;
        }
        self.breaking = Some(breaking);
        Ok(())
    }

    pub(super) async fn wait_for_end_of_pages(&mut self) -> anyhow::Result<()> {
        while self
            .pages
            .as_ref()
            .is_some_and(|pages| !pages.all_resolved_or_late())
        {
            self.look(DemoPhase::Recovery).await?;
        }
        Ok(())
    }
}

/// Whether every one of these hooks is in the assessment and healthy.
fn all_healthy(assessment: &ShownAssessment, hooks: &[LabHook]) -> bool {
    let is_healthy = |lab: &LabHook| {
        let mut verdicts = assessment.hooks.iter();
        verdicts.any(|hook| is_of(*lab, hook) && hook.health == Health::Healthy)
    };
    hooks.iter().all(is_healthy)
}
