//! The same scenario once more without the breaker: what its figures are to be held against.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::director::{Director, Timing};
use super::judge::rounded;
use super::stage::Stage;
use super::teller::{Account, Teller};
use super::{DaemonArguments, StartingDaemon};
use crate::lab::clients::Casualties;
use crate::lab::control_plane::Kind;
use crate::lab::scenario::Scenario;

/// Longest wait for a write once the fault is gone: what hangs then ends within the API server's own limit of 34 s.
pub const AFTER: Duration = Duration::from_secs(45);

/// What a scenario came to without the breaker, over as long a fault.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WithoutBreaker {
    /// From the fault until it was removed.
    pub fault_removed_after_seconds: f64,
    /// From the fault to the end of the first create or update that was begun after it and succeeded at once;
    /// `None` when there was none.
    pub first_write_after_seconds: Option<f64>,
    /// What was lost.
    pub casualties: Casualties,
}

impl WithoutBreaker {
    /// One that was measured.
    pub fn new(removed: Duration, first_write: Option<Duration>, casualties: Casualties) -> Self {
        Self {
            fault_removed_after_seconds: rounded(removed),
            first_write_after_seconds: first_write.map(rounded),
            casualties,
        }
    }

    /// The same in words.
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

/// Plays it on a lab of its own, with a fault that lasts as long.
///
/// # Errors
/// When the lab or the daemon fails.
pub async fn measure(
    kind: Kind,
    scenario: &'static Scenario,
    (timing, lasting): (Timing, Duration),
    start_daemon: impl FnMut(DaemonArguments) -> StartingDaemon,
) -> anyhow::Result<WithoutBreaker> {
    let stage = Stage::set_up(kind, Some(scenario), None, start_daemon).await?;
    let silent = Account {
        out: None,
        colour: false,
    };
    let teller = Teller::new(silent, Instant::now());
    let director = Director::new(&stage, scenario, timing, teller);
    let measured = director.measure(lasting).await;
    let left = stage.leave().await;
    let measured = measured?;
    left?;
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_whether_writes_came_back_before_the_fault_was_removed_after_it_or_never() {
        let seconds = Duration::from_secs;
        let said = |first: Option<u64>| {
            WithoutBreaker::new(seconds(20), first.map(seconds), Casualties::default()).sentence()
        };
        assert!(said(Some(3)).contains("3.0 s after the fault, which lasted 20.0 s"));
        assert!(said(Some(24)).contains("removed after 20.0 s; the first did after 24.0 s"));
        assert!(said(None).starts_with("no write went through at once, though"));
    }
}
