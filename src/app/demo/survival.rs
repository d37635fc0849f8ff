//! Which clients survive a fault that lasts a given time, with the breaker or without it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::breaking::BreakerFollower;
use super::director::{Director, Timing};
use super::stage::DemoStage;
use super::teller::Teller;
use super::{DaemonArguments, StartingDaemon};
use crate::domain::act::bypass::Rung;
use crate::lab::clients::{Casualties, Leaders};
use crate::lab::control_plane::ControlPlaneKind;
use crate::lab::scenario::Scenario;

/// Longest wait for a successful write after the removal of the fault: hanging writes end within the API server's limit of 34
/// s.
pub const AFTER: Duration = Duration::from_secs(45);

/// What survived a scenario. All times count from the fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Survival {
    /// The scenario's name.
    pub scenario: &'static str,
    /// Whether hookwatch was allowed to bypass webhooks.
    pub with_breaker: bool,
    /// Whether kube-controller-manager and kube-scheduler were simulated or real.
    pub leaders: Leaders,
    /// Until the fault was removed.
    pub fault_removed_after_seconds: f64,
    /// Until the last of the expected verdicts; `None` when there was none in time.
    pub verdict_after_seconds: Option<f64>,
    /// From the fault until the first bypass had propagated to every API server; `None` without a bypass.
    pub bypassed_after_seconds: Option<f64>,
    /// Until the end of the first create or update that was begun after the fault and succeeded at once.
    pub first_write_after_seconds: Option<f64>,
    /// Until the first write of the control plane itself began that succeeded at once.
    pub control_plane_write_begun_after_seconds: Option<f64>,
    /// Until the first write to kube-system in the control plane's name that passes under a bypass began, at the API server where
    /// that was latest, whatever hookwatch says of it; `None` without a bypass.
    pub writes_pass_after_seconds: Option<f64>,
    /// Until the API server was ready that was started together with the fault; `None` if none was started or it never was
    /// ready.
    pub api_server_ready_after_seconds: Option<f64>,
    /// The webhooks that were bypassed, in order.
    pub bypassed: Vec<String>,
    /// The bypassed webhooks that had no part in the fault.
    pub innocents_bypassed: Vec<String>,
    /// Culprits that were not bypassed, with the guard rail that kept the breaker from it.
    pub held_back: BTreeMap<String, String>,
    /// What clients lost.
    pub casualties: Casualties,
}

/// The outcome of a scenario without the breaker, over a fault of the same length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WithoutBreaker {
    /// From the fault until it was removed.
    pub fault_removed_after_seconds: f64,
    /// From the fault to the end of the first create or update that began after it and succeeded at once; `None` if there was
    /// none.
    pub first_write_after_seconds: Option<f64>,
    /// What clients lost.
    pub casualties: Casualties,
}

impl WithoutBreaker {
    /// The times in words.
    pub fn sentence(&self) -> String {
        let removed = self.fault_removed_after_seconds;
        match self.first_write_after_seconds {
            None => {
                format!("no write went through at once, though the fault was removed after {removed:.1} s")
            }
            Some(first) if first < removed => format!(
                "the first write that went through at once {first:.1} s after the fault, which lasted {removed:.1} s"
            ),
            Some(first) => format!(
                "no write went through at once until the fault was removed after {removed:.1} s; the first did after \
                 {first:.1} s"
            ),
        }
    }
}

/// Plays a scenario on a lab of its own, with a fault of this duration, and counts which clients survive it.
pub async fn survive(
    kind: ControlPlaneKind,
    scenario: &'static Scenario,
    (timing, lasting): (Timing, Duration),
    auto_break: Option<Rung>,
    start_daemon: impl FnMut(DaemonArguments) -> StartingDaemon,
) -> anyhow::Result<Survival> {
    let stage = DemoStage::set_up(kind, Some(scenario), auto_break, start_daemon).await?;
    let teller = Teller {
        out: None,
        colour: false,
        started: Instant::now(),
    };
    let mut director = Director::new(&stage, scenario, timing, teller);
    director.breaking = auto_break.map(|_| BreakerFollower::new(stage.client()));
    let survived = director.survive(lasting).await;
    stage.leave(survived).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_whether_writes_came_back_before_the_fault_was_removed_after_it_or_never() {
        let said = |first: Option<f64>| {
            let without = WithoutBreaker {
                fault_removed_after_seconds: 20.0,
                first_write_after_seconds: first,
                casualties: Casualties::default(),
            };
            without.sentence()
        };
        assert!(said(Some(3.0)).contains("3.0 s after the fault, which lasted 20.0 s"));
        assert!(said(Some(24.0)).contains("removed after 20.0 s; the first did after 24.0 s"));
        assert!(said(None).starts_with("no write went through at once, though"));
    }
}
