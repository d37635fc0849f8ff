//! The course of one demo: quiet, fault, verdict, repair.

mod waiting;

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;

use super::breaking::BreakerFollower;
use super::flaps::{self, FlapCounter};
use super::judge::{DemoPhase, Judge, rounded};
use super::pages::Pages;
use super::played::Played;
use super::report::{closing, report};
use super::stage::DemoStage;
use super::survival::{AFTER, Survival};
use super::teller::Teller;
use super::timeline::DemoEvent;
use crate::app::terminal::view::shown::ShownAssessment;
use crate::lab::cluster::LabHook;
use crate::lab::scenario::{Injected, Scenario, SecondApiServerRole};
use crate::lab::workload::FirstFailure;

/// How long the parts of a demo take.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Time between two reads of the assessment.
    pub poll: Duration,
    /// Quiet time before the fault, for the daemon to learn what is usual.
    pub baseline: Duration,
    /// Longest wait until every hook has been found healthy for the first time.
    pub first_healthy: Duration,
    /// Longest wait for the expected verdicts.
    pub verdict: Duration,
    /// How long to keep looking for false culprits after the expected verdicts.
    pub linger: Duration,
    /// How long to wait for a user's first failure when writes are blocked and none has failed yet.
    pub first_failure: Duration,
    /// How long to observe if nothing is broken.
    pub quiet: Duration,
    /// Longest wait until every hook is found healthy again.
    pub recovery: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            poll: Duration::from_millis(200),
            baseline: seconds(8),
            first_healthy: seconds(30),
            verdict: seconds(60),
            linger: seconds(5),
            // The longest timeout of a lab hook is 10 s.
            first_failure: seconds(12),
            quiet: seconds(20),
            recovery: seconds(45),
        }
    }
}

impl Timing {
    /// For measuring: the fault comes at a random instant within 3 s, the time between two writes of a canary, and the
    /// assessment is read more often.
    pub fn at_any_instant() -> Self {
        let usual = Self::default();
        let toss = RandomState::new().hash_one(()) % 3_000;
        Self {
            poll: Duration::from_millis(50),
            baseline: usual.baseline + Duration::from_millis(toss),
            ..usual
        }
    }
}

/// How long a daemon may leave every request unanswered before the demo fails.
const SILENCE_LIMIT: Duration = Duration::from_secs(15);

/// The instants that the report needs.
#[derive(Debug, Default)]
pub struct Moments {
    /// When the fault was in force.
    pub fault: Option<(Instant, Timestamp)>,
    /// When the last expected verdict appeared.
    pub verdict: Option<(Instant, Timestamp)>,
    /// The first failure of a user's request after the fault.
    pub first_failure: Option<FirstFailure>,
    pub removed: Option<Instant>,
    /// From the removal of the fault until every hook was healthy.
    pub recovered_after: Option<Duration>,
}

impl Moments {
    fn lasted(&self) -> Option<Duration> {
        let (fault, removed) = self.fault.map(|(at, _)| at).zip(self.removed)?;
        Some(removed - fault)
    }
}

/// Runs one demo and reports on it.
pub struct Director<'a> {
    stage: &'a DemoStage,
    scenario: &'static Scenario,
    timing: Timing,
    judge: Judge,
    flaps: FlapCounter,
    moments: Moments,
    last_answer: Instant,
    teller: Teller,
    /// Follows the alerts; `None` if they are not followed.
    pub pages: Option<Pages>,
    /// Follows the breaker; `None` if it is off.
    pub breaking: Option<BreakerFollower>,
}

impl<'a> Director<'a> {
    pub fn new(stage: &'a DemoStage, scenario: &'static Scenario, timing: Timing, teller: Teller) -> Self {
        Self {
            stage,
            scenario,
            timing,
            judge: Judge::new(scenario),
            flaps: FlapCounter::default(),
            moments: Moments::default(),
            last_answer: Instant::now(),
            teller,
            pages: None,
            breaking: None,
        }
    }

    /// Plays the whole scenario, up to the last line.
    ///
    /// # Errors
    /// When the lab or the daemon fails; a wrong verdict is no error but a report.
    pub async fn play(mut self) -> anyhow::Result<Played> {
        self.wait_for_quiet().await?;
        let injected = self.break_it().await?;
        self.look_on().await?;
        if self.moments.first_failure.is_none() {
            self.teller.tell(DemoEvent::NoFailure)?;
        }
        if let Some(breaking) = &mut self.breaking {
            let (flows, slowdown) = (self.stage.workload.flows(), self.stage.workload.slowdown());
            for event in breaking.under_the_fault(flows, slowdown, self.judge.verdicts()) {
                self.teller.tell(event)?;
            }
        }
        injected.clear(&self.stage.target()).await?;
        let removed = Instant::now();
        self.moments.removed = Some(removed);
        if !self.scenario.is_quiet() {
            self.flaps.fault_changes(removed);
            self.teller.tell(DemoEvent::Removed)?;
            if let Some(pages) = &mut self.pages {
                pages.removed = Some(removed);
            }
            self.wait_for_recovery().await?;
            self.wait_for_restore().await?;
            self.wait_for_end_of_pages().await?;
        }
        let casualties = self.stage.clients.casualties();
        self.teller.tell(DemoEvent::Casualties(casualties))?;
        let flaps = self.flaps.found();
        if let Some(text) = flaps::sentence(flaps) {
            self.teller.tell(DemoEvent::Flaps(text))?;
        }
        let counted = (self.stage.clients.leaders(), casualties, flaps);
        let mut report = report(self.scenario, &self.judge, &self.moments, counted);
        if let Some(pages) = self.pages.take() {
            let (pages, objections) = pages.report(self.scenario.is_quiet());
            report.object(objections);
            report.pages = Some(pages);
        }
        let bypassed = self.breaking.as_ref().is_some_and(BreakerFollower::has_bypassed);
        if let Some(breaking) = &self.breaking {
            let (breaker, objections) = breaking.report(self.stage.probe_interval(), self.judge.verdicts());
            report.object(objections);
            report.breaker = Some(breaker);
        }
        Ok(Played {
            closing: closing(&self.judge, &self.moments, report.correct),
            lasted: self.moments.lasted().filter(|_| bypassed),
            teller: self.teller,
            report,
        })
    }

    /// Plays a fault of this duration, and counts which clients survive it. The breaker's changes are left in place.
    pub async fn survive(mut self, lasting: Duration) -> anyhow::Result<Survival> {
        self.wait_for_quiet().await?;
        let passages = self.stage.clients.passages().await?;
        let injected = self.break_it().await?;
        let passages = passages.watch();
        let fault = self.moments.fault.map_or_else(Instant::now, |(at, _)| at);
        while fault.elapsed() < lasting {
            self.look(DemoPhase::Fault(fault.elapsed())).await?;
        }
        // Taken before the removal: the first write may succeed while the fault is still being removed.
        let removed = Instant::now();
        injected.clear(&self.stage.target()).await?;
        let workload = &self.stage.workload;
        while workload.first_success().is_none() && removed.elapsed() < AFTER {
            tokio::time::sleep(self.timing.poll).await;
        }
        let after = |at: Instant| rounded(at.saturating_duration_since(fault));
        let breaking = self.breaking.as_ref();
        let bypassed = breaking.map(BreakerFollower::bypassed).unwrap_or_default();
        let culprits = self.scenario.expected;
        // Sibling webhooks share the end of the culprit's name, and its fault.
        let innocent = |name: &String| !culprits.iter().any(|it| name.ends_with(it.hook.webhook()));
        Ok(Survival {
            scenario: self.scenario.name,
            with_breaker: breaking.is_some(),
            leaders: self.stage.clients.leaders(),
            fault_removed_after_seconds: after(removed),
            verdict_after_seconds: self.judge.time_to_verdict().map(rounded),
            bypassed_after_seconds: breaking.and_then(|it| it.bypassed_after).map(rounded),
            first_write_after_seconds: workload.first_success().map(|first| after(first.ended)),
            control_plane_write_begun_after_seconds: workload
                .first_of_control_plane()
                .map(|first| after(first.began)),
            writes_pass_after_seconds: passages.passed_at().map(after),
            api_server_ready_after_seconds: self.stage.clients.api_server_started_at().map(after),
            innocents_bypassed: bypassed.iter().filter(|name| innocent(name)).cloned().collect(),
            bypassed,
            held_back: breaking.map(BreakerFollower::held_back).unwrap_or_default(),
            casualties: self.stage.clients.casualties(),
        })
    }

    /// Plays up to the fault and leaves it in force until the returned value is dropped.
    pub async fn play_until_broken(mut self) -> anyhow::Result<Injected> {
        self.wait_for_quiet().await?;
        self.break_it().await
    }

    async fn break_it(&mut self) -> anyhow::Result<Injected> {
        self.stage.workload.forget_failures();
        if let Some(pages) = &mut self.pages {
            pages.ignore_current().await?;
        }
        let injected = self.scenario.inject(&self.stage.target()).await?;
        if let Some(breaking) = &mut self.breaking
            && self.scenario.hooks_before() != self.scenario.hooks_after()
        {
            breaking.note(self.scenario.hooks_after()).await?;
        }
        self.stage.lose_leader();
        self.stage.clients.count_casualties();
        if self.scenario.second_api_server == SecondApiServerRole::StartsWithFault {
            self.stage.clients.start_api_server();
        }
        let broken: Vec<LabHook> = self.scenario.expected.iter().map(|it| it.hook).collect();
        self.stage.workload.await_success(&broken);
        let fault = Instant::now();
        self.moments.fault = Some((fault, Timestamp::now()));
        if let Some(pages) = &mut self.pages {
            pages.fault = Some(fault);
        }
        if !self.scenario.is_quiet() {
            self.flaps.fault_changes(fault);
            self.teller.tell(DemoEvent::Injected {
                summary: self.scenario.summary.to_owned(),
                symptom: self.scenario.symptom.to_owned(),
            })?;
        }
        Ok(injected)
    }

    /// Waits for the next poll, reads the assessment and reports what is new. `None` when there was no answer.
    async fn look(&mut self, phase: DemoPhase) -> anyhow::Result<Option<ShownAssessment>> {
        tokio::time::sleep(self.timing.poll).await;
        let assessment = match self.stage.assessment().await {
            Ok(assessment) => {
                self.last_answer = Instant::now();
                Some(assessment)
            }
            Err(error) if self.last_answer.elapsed() > SILENCE_LIMIT => {
                return Err(error).context("the daemon gives no assessment");
            }
            Err(_) => None,
        };
        // The clock is read again: the time of the answer counts, not that of the request.
        let phase = match (phase, self.moments.fault) {
            (DemoPhase::Fault(_), Some((fault, _))) => DemoPhase::Fault(fault.elapsed()),
            (phase, _) => phase,
        };
        if matches!(phase, DemoPhase::Fault(_)) {
            self.look_for_failure()?;
        }
        if let Some(assessment) = &assessment {
            self.flaps.observe(Instant::now(), assessment);
            for news in self.judge.observe(phase, assessment) {
                self.teller.tell(news)?;
            }
        }
        if let (Some(breaking), Some(assessment), Some((fault, _))) =
            (&mut self.breaking, &assessment, self.moments.fault)
        {
            // A success after the removal of the fault does not count for the breaker.
            let first = self.stage.workload.first_success();
            let first = first.filter(|_| matches!(phase, DemoPhase::Fault(_)));
            let before = breaking.bypassed_at;
            for event in breaking.observe(fault, assessment, first) {
                self.teller.tell(event)?;
            }
            if breaking.bypassed_at != before {
                self.stage.workload.count_flows();
            }
            if let Some(removed) = self.moments.removed {
                breaking.observe_return(removed.elapsed(), assessment);
            }
        }
        if phase != DemoPhase::Baseline
            && let Some(pages) = &mut self.pages
        {
            for event in pages.look().await? {
                self.teller.tell(event)?;
            }
        }
        if self.moments.verdict.is_none() && self.judge.has_verdict() {
            self.moments.verdict = Some((Instant::now(), Timestamp::now()));
        }
        Ok(assessment)
    }

    fn look_for_failure(&mut self) -> anyhow::Result<()> {
        if self.moments.first_failure.is_some() {
            return Ok(());
        }
        let Some(failure) = self.stage.workload.first_failure() else {
            return Ok(());
        };
        self.moments.first_failure = Some(failure.clone());
        self.teller.tell(DemoEvent::FirstFailure {
            request: failure.request,
            text: failure.text,
            waited: failure.waited,
        })
    }
}
