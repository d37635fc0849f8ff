//! The last minutes, according to the answers.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::shown::{HookKey, ShownAssessment, ShownHook};
use crate::domain::time::Time;
use crate::domain::vocabulary::{Health, Writes};

/// How far back it goes.
pub const SPAN: Duration = Duration::from_secs(600);
/// Answers kept; one a second comes.
const MOST: usize = 1_200;
/// The scale of the curve, in seconds: what is beyond its ends is drawn at them. A write is cut at 34 s.
const SCALE: (f64, f64) = (0.001, 34.0);
/// Culprits remembered from one answer to the next.
const CULPRITS: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq)]
struct ShownSample {
    at: Time,
    writes: Writes,
    seconds: Option<f64>,
    mark: Option<VerdictMark>,
}

/// What happened to verdicts at one instant, the gravest that did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerdictMark {
    /// A culprit recovered.
    Well,
    /// Something was bypassed or came back.
    Breaker,
    /// A hook was named as a culprit.
    Failing,
}

impl VerdictMark {
    /// The letter under the curve.
    pub const fn letter(self) -> char {
        match self {
            Self::Well => '+',
            Self::Breaker => 'B',
            Self::Failing => 'F',
        }
    }
}

/// One column of the curve.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CurveColumn {
    /// The worst that writes did; `None` where nothing is known.
    pub writes: Option<Writes>,
    /// The longest mean time per write, in seconds; `None` where none came back.
    pub seconds: Option<f64>,
    /// What happened.
    pub mark: Option<VerdictMark>,
}

impl CurveColumn {
    /// How high it is, 0 to 1 on a logarithmic scale.
    pub fn height(&self) -> Option<f64> {
        let seconds = self.seconds?.clamp(SCALE.0, SCALE.1);
        Some((seconds / SCALE.0).log10() / (SCALE.1 / SCALE.0).log10())
    }
}

/// The last minutes.
#[derive(Debug, Clone, Default)]
pub struct ShownHistory {
    samples: VecDeque<ShownSample>,
    culprits: BTreeSet<HookKey>,
    bypassed: usize,
    begun: bool,
}

impl ShownHistory {
    /// Takes in an answer. One of the same instant as the last says nothing new.
    pub fn heard(&mut self, seen: &ShownAssessment) {
        let last = self.samples.back().map(|sample| sample.at);
        if last == Some(seen.at) {
            return;
        }
        if last.is_some_and(|last| seen.at < last) {
            // Another daemon, or another clock: the order of old and new samples is unknown.
            self.samples.clear();
        }
        let failing = seen.hooks.iter().filter(|hook| hook.health == Health::Failing);
        let culprits: BTreeSet<HookKey> = failing.take(CULPRITS).map(ShownHook::key).collect();
        let bypassed = seen
            .breaker
            .hooks
            .iter()
            .filter(|standing| standing.rung.is_some())
            .count();
        let changed = [
            (!culprits.is_subset(&self.culprits), VerdictMark::Failing),
            (bypassed != self.bypassed, VerdictMark::Breaker),
            (!self.culprits.is_subset(&culprits), VerdictMark::Well),
        ];
        let mark = changed
            .into_iter()
            .find(|(changed, _)| *changed)
            .map(|(_, mark)| mark);
        // How it was before the first answer is not known.
        let mark = mark.filter(|_| self.begun);
        (self.culprits, self.bypassed, self.begun) = (culprits, bypassed, true);
        self.samples.push_back(ShownSample {
            at: seen.at,
            writes: seen.control_plane.writes,
            seconds: seen.control_plane.write_seconds,
            mark,
        });
        while self.samples.len() > MOST
            || self
                .samples
                .front()
                .is_some_and(|first| seen.at.since(first.at) > SPAN)
        {
            self.samples.pop_front();
        }
    }

    /// The span in this many columns, the newest last. A column keeps covering the same seconds from one answer to the
    /// next.
    pub fn columns(&self, count: usize) -> (Vec<CurveColumn>, Duration) {
        let count = count.max(1);
        let step = (SPAN.as_secs().div_ceil(count as u64)).max(1);
        let mut columns = vec![CurveColumn::default(); count];
        let Some(newest) = self.samples.back() else {
            return (columns, Duration::from_secs(step));
        };
        let slot = |at: Time| at.unix_millis() / 1_000 / step;
        for sample in &self.samples {
            let back = (slot(newest.at) - slot(sample.at)) as usize;
            let Some(column) = count
                .checked_sub(1 + back)
                .and_then(|place| columns.get_mut(place))
            else {
                continue;
            };
            column.writes = column.writes.max(Some(sample.writes));
            column.seconds = match (column.seconds, sample.seconds) {
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            };
            column.mark = column.mark.max(sample.mark);
        }
        (columns, Duration::from_secs(step))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(millis: u64, writes: &str, seconds: Option<f64>, failing: &[&str]) -> ShownAssessment {
        let hook =
            |name| json!({"kind": "Validating", "configuration": "c", "webhook": name, "health": "Failing"});
        let hooks: Vec<_> = failing.iter().map(hook).collect();
        let at = Time::from_unix_millis(1_795_219_862_000 + millis);
        let seen = json!({
            "at": at, "hooks": hooks,
            "control_plane": {"writes": writes, "summary": "", "write_seconds": seconds},
        });
        ShownAssessment::parse(seen.to_string().as_bytes()).expect("an assessment")
    }

    #[test]
    fn a_column_shows_the_worst_of_its_time_and_verdicts_leave_their_letters() {
        let mut history = ShownHistory::default();
        history.heard(&seen(0, "Flowing", Some(0.004), &[]));
        history.heard(&seen(60_000, "Blocked", None, &["w"]));
        history.heard(&seen(60_500, "Delayed", Some(3.0), &["w"]));
        history.heard(&seen(120_000, "Flowing", Some(0.004), &[]));
        let (columns, step) = history.columns(60);
        assert_eq!(step, Duration::from_secs(10));
        let known: Vec<&CurveColumn> = columns.iter().filter(|column| column.writes.is_some()).collect();
        assert_eq!(known.len(), 3);
        assert_eq!(
            (known[1].writes, known[1].seconds, known[1].mark),
            (Some(Writes::Blocked), Some(3.0), Some(VerdictMark::Failing))
        );
        assert_eq!((known[0].mark, known[2].mark), (None, Some(VerdictMark::Well)));
        assert!(known[0].height() < known[1].height());
        assert_eq!(
            columns.last().and_then(|column| column.writes),
            Some(Writes::Flowing)
        );
    }

    #[test]
    fn what_failed_before_the_first_look_is_no_event() {
        let mut history = ShownHistory::default();
        history.heard(&seen(0, "Blocked", None, &["w"]));
        let (columns, _) = history.columns(10);
        assert!(columns.iter().all(|column| column.mark.is_none()));
        assert_eq!(columns[9].height(), None);
    }

    #[test]
    fn it_is_bounded_and_a_clock_that_went_back_restarts_it() {
        let mut history = ShownHistory::default();
        for second in 0..5_000 {
            history.heard(&seen(second * 200, "Flowing", Some(0.1), &[]));
            history.heard(&seen(second * 200, "Flowing", Some(0.1), &[]));
        }
        assert!(history.samples.len() <= MOST);
        history.heard(&seen(7, "Flowing", Some(0.1), &[]));
        assert_eq!(history.samples.len(), 1);
        for count in [0, 1, 7, 5_000] {
            assert_eq!(history.columns(count).0.len(), count.max(1));
        }
    }
}
