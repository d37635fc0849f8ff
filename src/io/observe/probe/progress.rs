//! The phase that a probe has reached, readable from outside while it runs.
//!
//! The whole attempt runs under one deadline. When it passes, the attempt is dropped in mid-flight; the phase it was in
//! must still be known, because "timed out" without the phase is no help.

use std::sync::Mutex;

use tokio::time::Instant;

use crate::domain::observe::probe::{PhaseDurations, ProbePhase};
use crate::io::lock;

/// The stop-watch of one probe.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<PhaseClock>);

#[derive(Debug, Default)]
struct PhaseClock {
    current: Option<(ProbePhase, Instant)>,
    phases: PhaseDurations,
    /// A handshake is done and not reported yet.
    shaken: bool,
}

impl Progress {
    /// Ends the current phase, if any, and begins `phase`.
    pub(super) fn enter(&self, phase: ProbePhase) {
        let mut inner = lock(&self.0);
        inner.close();
        inner.current = Some((phase, Instant::now()));
    }

    pub(super) fn shake(&self) {
        lock(&self.0).shaken = true;
    }

    /// Whether a handshake is done and was not reported yet; true once for each handshake.
    pub(super) fn take_shaken(&self) -> bool {
        std::mem::take(&mut lock(&self.0).shaken)
    }

    /// The durations of the phases so far, including the current one.
    pub(super) fn so_far(&self) -> PhaseDurations {
        let inner = lock(&self.0);
        let mut ended = PhaseClock { ..*inner };
        drop(inner);
        ended.close();
        ended.phases
    }

    /// Forgets what was measured: the attempt restarts on another connection.
    pub(super) fn restart(&self) {
        *lock(&self.0) = PhaseClock::default();
    }

    /// The current phase; [`ProbePhase::Connect`] before the first one begins.
    pub(super) fn phase(&self) -> ProbePhase {
        lock(&self.0)
            .current
            .map_or(ProbePhase::Connect, |(phase, _)| phase)
    }

    /// Ends the current phase and returns all durations, including that of an unfinished phase.
    pub(super) fn finish(&self) -> PhaseDurations {
        let mut inner = lock(&self.0);
        inner.close();
        inner.phases
    }
}

impl PhaseClock {
    fn close(&mut self) {
        let Some((phase, since)) = self.current.take() else {
            return;
        };
        let spent = since.elapsed();
        let slot = match phase {
            ProbePhase::Resolve => &mut self.phases.resolve,
            ProbePhase::Connect => &mut self.phases.connect,
            ProbePhase::Tls => &mut self.phases.tls,
            ProbePhase::FirstByte => &mut self.phases.first_byte,
            ProbePhase::Body => &mut self.phases.body,
            ProbePhase::Withheld => return,
        };
        // A phase that is entered twice adds up.
        *slot = Some(slot.unwrap_or_default() + spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_that_was_not_reached_has_no_duration() {
        let progress = Progress::default();
        progress.enter(ProbePhase::Connect);
        progress.enter(ProbePhase::Tls);
        assert_eq!(progress.phase(), ProbePhase::Tls);
        let phases = progress.finish();
        assert!(phases.connect.is_some() && phases.tls.is_some());
        assert_eq!(
            (phases.resolve, phases.first_byte, phases.body),
            (None, None, None)
        );
    }

    #[test]
    fn a_restart_forgets_the_earlier_connection() {
        let progress = Progress::default();
        progress.enter(ProbePhase::FirstByte);
        progress.restart();
        progress.enter(ProbePhase::Connect);
        assert_eq!(progress.finish().first_byte, None);
    }
}
