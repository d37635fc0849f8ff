//! The history that `hookwatch top` draws: the time per write and the changes of verdicts, as the daemon's answers showed them.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::shown::{HookKey, ShownAssessment, ShownHook, ShownStanding};
use crate::domain::time::Time;
use crate::domain::vocabulary::{Health, Writes};

/// The age at which a sample is dropped.
const SPAN: Duration = Duration::from_secs(600);
/// Most samples that are kept: 600 s at one a second, the fastest rate of requests, and as many again.
const MOST: usize = 1_200;
/// The least and the greatest time per write that the curve shows, in seconds: the API server ends a write after 34 s.
const SCALE: (f64, f64) = (0.001, 34.0);

#[derive(Debug, Clone, Copy, PartialEq)]
struct WriteSample {
    at: Time,
    writes: Writes,
    seconds: Option<f64>,
    mark: Option<VerdictMark>,
}

/// How the verdicts of an answer differ from those before it. Of several differences, the last in this order is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerdictMark {
    /// A culprit was seen healthy.
    Recovered,
    /// A bypass began or ended.
    Breaker,
    /// A webhook became a culprit.
    Failing,
}

impl VerdictMark {
    /// The letter under the curve.
    pub const fn letter(self) -> char {
        match self {
            Self::Recovered => '+',
            Self::Breaker => 'B',
            Self::Failing => 'F',
        }
    }
}

/// One column of the curve.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CurveColumn {
    /// The worst state of writes within the column's time; `None` without a sample.
    pub writes: Option<Writes>,
    /// The longest mean time per write, in seconds; `None` if no write came back.
    pub seconds: Option<f64>,
    /// The last in the order of [`VerdictMark`] among the marks of that time.
    pub mark: Option<VerdictMark>,
}

impl CurveColumn {
    /// Its height, 0 to 1 on a logarithmic scale; `None` if no write came back.
    pub fn height(&self) -> Option<f64> {
        let (least, greatest) = SCALE;
        let seconds = self.seconds?.clamp(least, greatest);
        Some((seconds / least).log(greatest / least))
    }
}

/// What the daemon answered within the last ten minutes.
#[derive(Debug, Clone, Default)]
pub struct WriteHistory {
    samples: VecDeque<WriteSample>,
    /// Webhooks that were named as failing and not seen healthy since.
    culprits: BTreeSet<HookKey>,
    bypassed: BTreeSet<HookKey>,
}

impl WriteHistory {
    /// Records an answer, unless the one before it was made at the same instant.
    pub fn observe(&mut self, seen: &ShownAssessment) {
        let last = self.samples.back().map(|sample| sample.at);
        if last == Some(seen.at) {
            return;
        }
        if last.is_some_and(|last| seen.at < last) {
            // Another daemon answers, or its clock was set back: the two cannot be compared.
            *self = Self::default();
        }
        let mark = self.mark(seen);
        self.samples.push_back(WriteSample {
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

    /// Compares the verdicts of an answer with those before it. The first answer has nothing to be compared with.
    fn mark(&mut self, seen: &ShownAssessment) -> Option<VerdictMark> {
        let with = |health: Health| {
            let hooks = seen.hooks.iter().filter(move |hook| hook.health == health);
            hooks.map(ShownHook::key)
        };
        let known: BTreeSet<HookKey> = seen.hooks.iter().map(ShownHook::key).collect();
        let bypassed = seen.breaker.hooks.iter().filter(|hook| hook.rung.is_some());
        let bypassed: BTreeSet<HookKey> = bypassed.map(ShownStanding::key).collect();

        let is_first = self.samples.is_empty();
        // A webhook that was deleted did not recover.
        self.culprits.retain(|culprit| known.contains(culprit));
        let has_recovered = with(Health::Healthy)
            .filter(|hook| self.culprits.remove(hook))
            .count()
            > 0;
        let has_failed = with(Health::Failing)
            .filter(|hook| self.culprits.insert(hook.clone()))
            .count()
            > 0;
        let is_bypass_changed = bypassed != self.bypassed;
        self.bypassed = bypassed;

        if is_first {
            None
        } else if has_failed {
            Some(VerdictMark::Failing)
        } else if is_bypass_changed {
            Some(VerdictMark::Breaker)
        } else {
            has_recovered.then_some(VerdictMark::Recovered)
        }
    }

    /// The curve in `count` columns (at least 1), the newest last, and the seconds per column, a whole number. Up to 600
    /// columns cover at most ten minutes. Columns are aligned to the clock, so between two answers all samples move together or
    /// not at all.
    pub fn columns(&self, count: usize) -> (Vec<CurveColumn>, Duration) {
        let count = count.max(1);
        let step = (SPAN.as_secs() / count as u64).max(1);
        let mut columns = vec![CurveColumn::default(); count];
        let Some(newest) = self.samples.back() else {
            return (columns, Duration::from_secs(step));
        };
        let slot = |at: Time| at.unix_millis() / 1_000 / step;
        for sample in &self.samples {
            let back = (slot(newest.at) - slot(sample.at)) as usize;
            let Some(column) = columns.iter_mut().nth_back(back) else {
                continue;
            };
            column.writes = column.writes.max(Some(sample.writes));
            column.seconds = [column.seconds, sample.seconds]
                .into_iter()
                .flatten()
                .reduce(f64::max);
            column.mark = column.mark.max(sample.mark);
        }
        (columns, Duration::from_secs(step))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn assessment(millis: u64, hooks: &[(&str, Health)], bypassed: &[&str]) -> serde_json::Value {
        let hook = |(name, health): &(&str, Health)| json!({"kind": "Validating", "configuration": "c", "webhook": name, "health": health});
        let standing = |name| {
            json!({"kind": "Validating", "configuration": "c", "webhook": name, "state": "bypassed", "rung": "skip",
                "since": null, "would_bypass": null, "held_back": null})
        };
        let hooks: Vec<_> = hooks.iter().map(hook).collect();
        let standings: Vec<_> = bypassed.iter().map(standing).collect();
        json!({
            "at": Time::from_unix_millis(1_795_219_862_000 + millis), "hooks": hooks,
            "control_plane": {"writes": "Flowing", "summary": ""}, "breaker": {"hooks": standings},
        })
    }

    fn parsed(assessment: &serde_json::Value) -> ShownAssessment {
        ShownAssessment::parse(assessment.to_string().as_bytes()).expect("an assessment")
    }

    fn seen(millis: u64, writes: &str, seconds: Option<f64>, failing: &[&str]) -> ShownAssessment {
        let hooks: Vec<(&str, Health)> = failing.iter().map(|name| (*name, Health::Failing)).collect();
        let mut seen = assessment(millis, &hooks, &[]);
        seen["control_plane"] = json!({"writes": writes, "summary": "", "write_seconds": seconds});
        parsed(&seen)
    }

    /// The webhooks of an answer with their health, and those of them that are bypassed.
    type HistoryAnswer<'a> = (&'a [(&'a str, Health)], &'a [&'a str]);

    /// The marks of answers, one second apart.
    fn marks(answers: &[HistoryAnswer<'_>]) -> String {
        let mut history = WriteHistory::default();
        for (second, (hooks, bypassed)) in (0..).zip(answers) {
            history.observe(&parsed(&assessment(second * 1_000, hooks, bypassed)));
        }
        let mark = |sample: &WriteSample| sample.mark.map_or(' ', VerdictMark::letter);
        history.samples.iter().map(mark).collect()
    }

    #[test]
    fn a_column_shows_the_worst_of_its_time_and_verdicts_leave_their_letters() {
        let mut history = WriteHistory::default();
        history.observe(&seen(0, "Flowing", Some(0.004), &[]));
        history.observe(&seen(60_000, "Blocked", None, &["w"]));
        history.observe(&seen(60_500, "Delayed", Some(3.0), &["w"]));
        let mut recovered = assessment(120_000, &[("w", Health::Healthy)], &[]);
        recovered["control_plane"]["write_seconds"] = 0.004.into();
        history.observe(&parsed(&recovered));
        let (columns, step) = history.columns(60);
        assert_eq!(step, Duration::from_secs(10));
        let known: Vec<&CurveColumn> = columns.iter().filter(|column| column.writes.is_some()).collect();
        assert_eq!(known.len(), 3);
        assert_eq!(
            (known[1].writes, known[1].seconds, known[1].mark),
            (Some(Writes::Blocked), Some(3.0), Some(VerdictMark::Failing))
        );
        assert_eq!(
            (known[0].mark, known[2].mark),
            (None, Some(VerdictMark::Recovered))
        );
        assert!(known[0].height() < known[1].height());
        assert_eq!(
            columns.last().and_then(|column| column.writes),
            Some(Writes::Flowing)
        );
    }

    #[test]
    fn what_failed_before_the_first_look_is_no_event() {
        let mut history = WriteHistory::default();
        history.observe(&seen(0, "Blocked", None, &["w"]));
        let (columns, _) = history.columns(10);
        assert!(columns.iter().all(|column| column.mark.is_none()));
        assert_eq!(columns[9].height(), None);
    }

    #[test]
    fn a_culprit_recovers_only_when_it_is_seen_healthy() {
        use Health::{Failing, Healthy, Suspect, Unknown};
        let health = |health| [("w", health)];
        let row = [Healthy, Failing, Unknown, Failing, Suspect, Healthy, Failing].map(health);
        let answers: Vec<_> = row.iter().map(|hooks| (&hooks[..], &[][..])).collect();
        assert_eq!(marks(&answers), " F   +F");
        let deleted: [HistoryAnswer<'_>; 3] = [(&[], &[]), (&[("w", Failing)], &[]), (&[], &[])];
        assert_eq!(marks(&deleted), " F ");
    }

    #[test]
    fn a_bypass_that_ends_as_another_begins_is_marked() {
        let bypassed: [&[&str]; 4] = [&[], &["a"], &["a"], &["b"]];
        assert_eq!(marks(&bypassed.map(|bypassed| (&[][..], bypassed))), " B B");
    }

    #[test]
    fn after_the_clock_went_back_the_first_answer_has_no_mark() {
        let (old, new) = (
            assessment(9_000, &[("w", Health::Failing)], &["a"]),
            assessment(0, &[("v", Health::Failing), ("w", Health::Healthy)], &["b"]),
        );
        let mut history = WriteHistory::default();
        history.observe(&parsed(&old));
        history.observe(&parsed(&new));
        let marks: Vec<_> = history.samples.iter().map(|sample| sample.mark).collect();
        assert_eq!(marks, [None]);
    }

    #[test]
    fn columns_cover_no_more_than_what_is_kept() {
        let history = WriteHistory::default();
        for count in 1..=600 {
            let (columns, step) = history.columns(count);
            assert!(step * columns.len() as u32 <= SPAN, "{count}");
        }
    }

    #[test]
    fn it_is_bounded_and_a_clock_that_went_back_restarts_it() {
        let mut history = WriteHistory::default();
        for second in 0..5_000 {
            history.observe(&seen(second * 200, "Flowing", Some(0.1), &[]));
            history.observe(&seen(second * 200, "Flowing", Some(0.1), &[]));
        }
        assert!(history.samples.len() <= MOST);
        history.observe(&seen(7, "Flowing", Some(0.1), &[]));
        assert_eq!(history.samples.len(), 1);
        for count in [0, 1, 7, 5_000] {
            assert_eq!(history.columns(count).0.len(), count.max(1));
        }
    }
}
