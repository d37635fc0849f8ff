//! A demo that was played: the comparison with a run without the breaker, and the last line.

use std::time::Duration;

use super::DemoReport;
use super::casualties;
use super::survival::WithoutBreaker;
use super::teller::Teller;
use super::timeline::DemoEvent;

/// A demo that has been played up to its last line.
pub struct Played {
    pub report: DemoReport,
    pub teller: Teller,
    /// How long the fault lasted, if anything was bypassed during it.
    pub lasted: Option<Duration>,
    pub(super) closing: String,
}

impl Played {
    /// Prints the comparison with the run without the breaker, and adds that run to the report.
    pub fn compare(&mut self, without: WithoutBreaker) -> anyhow::Result<()> {
        let Some(breaker) = &mut self.report.breaker else {
            return Ok(());
        };
        let first = breaker
            .first_write_after_seconds
            .zip(breaker.first_write_after_intervals);
        let with = first.map_or_else(
            || "no write went through at once while the fault lasted".to_owned(),
            |(seconds, intervals)| {
                format!(
                    "the first write that went through at once {seconds:.1} s after the fault, {intervals:.1} probe \
                     intervals"
                )
            },
        );
        self.teller.tell(DemoEvent::Breaker {
            label: "with breaker",
            text: with,
        })?;
        self.teller.tell(DemoEvent::Breaker {
            label: "without breaker",
            text: format!("{} (played once more)", without.sentence()),
        })?;
        for event in casualties::compared(self.report.casualties, without.casualties) {
            self.teller.tell(event)?;
        }
        breaker.without_breaker = Some(without);
        Ok(())
    }

    /// Prints the last line and returns the report.
    pub fn close(mut self) -> anyhow::Result<DemoReport> {
        self.teller.tell(DemoEvent::Closing {
            correct: self.report.correct,
            text: self.closing,
            objections: self.report.objections.clone(),
        })?;
        Ok(self.report)
    }
}
