//! What the breaker did, in figures.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{part, percent, percentile, shown};
use crate::incident::Kind;
use crate::score::Score;
use crate::score::breaker::{Handled, Harm, Reckoning, longest};

/// Faults that keep or slow writes, and what was done about them.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    pub faults: usize,
    pub bypassed: usize,
    pub share: f64,
    /// From the fault's beginning to the bypass, in probe intervals.
    pub intervals_median: Option<f64>,
    pub intervals_p95: Option<f64>,
    /// By rung.
    pub rungs: BTreeMap<String, usize>,
    /// Of those that were bypassed.
    pub restored: usize,
    /// From the fault's end to the restore, in seconds.
    pub restored_median: Option<f64>,
    pub restored_p95: Option<f64>,
    /// Faults in which a hook failed again after it had been let back.
    pub relapsed: usize,
    pub relapses: usize,
    /// What held the breaker back where it did nothing.
    pub held_back: BTreeMap<&'static str, usize>,
}

/// See the module's head.
#[derive(Debug, Serialize)]
pub struct BreakerReport {
    /// Bypasses, those of relapses and of changed rungs included.
    pub bypasses: usize,
    /// Bypasses of hooks that nothing was wrong with, each with its incident.
    pub innocent: Vec<(u64, String)>,
    /// For how many seconds the one of those stood that stood the longest: about half a minute is what a shield takes to be gone.
    pub innocent_stood: Option<f64>,
    /// Bypasses that were begun when the fault was over.
    pub late: Vec<(u64, String)>,
    /// Bypasses of hooks that were not called `Failing` by then, each with its incident.
    pub unnamed: Vec<(u64, String)>,
    /// Skips of hooks that fail open, while they are dead.
    pub dead: usize,
    /// Skips of hooks that fail open and were alive, each with its incident.
    pub alive: Vec<(u64, String)>,
    /// Incidents in which a hook was not as its owner has it in the end.
    pub left: Vec<u64>,
    /// Bypasses in quiet hours, each with its hour.
    pub quiet: Vec<(u64, String)>,
    /// The same of those.
    pub quiet_stood: Option<f64>,
    /// Bypasses in hours in which a leader would have been lost without: what always takes its time was too much for it.
    pub needed: Vec<(u64, String)>,
    pub blocking: Figures,
    pub delaying: Figures,
    pub kinds: BTreeMap<Kind, Figures>,
}

impl BreakerReport {
    /// Adds everything up; `None` where there was no breaker.
    pub(super) fn of(scores: &[Score], quiet: &[Score]) -> Option<Self> {
        let reckoned = |scores: &[&Score]| -> Vec<(u64, Reckoning)> {
            let reckonings = scores.iter();
            reckonings
                .filter_map(|score| Some((score.index, score.breaker.clone()?)))
                .collect()
        };
        let (lossy, hours): (Vec<&Score>, Vec<&Score>) = quiet
            .iter()
            .partition(|hour| hour.toll.without_breaker.leaders_lost > 0);
        let incidents = reckoned(&scores.iter().collect::<Vec<_>>());
        let (lossy, hours) = (reckoned(&lossy), reckoned(&hours));
        if incidents.is_empty() && lossy.is_empty() && hours.is_empty() {
            return None;
        }
        let stories = |of: &[(u64, Reckoning)], which: fn(&Reckoning) -> &Vec<String>| {
            let all = of.iter();
            all.flat_map(|(index, reckoning)| which(reckoning).iter().map(|story| (*index, story.clone())))
                .collect()
        };
        let stood =
            |of: &[(u64, Reckoning)]| longest(of.iter().map(|(_, reckoning)| reckoning.innocent_stood));
        let handled = || {
            let handled = incidents.iter().flat_map(|(_, reckoning)| &reckoning.handled);
            handled.filter(|handled| handled.felt && handled.harm != Harm::None)
        };
        let of_kind = |kind| Figures::of(handled().filter(move |handled| handled.kind == kind));
        Some(Self {
            bypasses: incidents.iter().map(|(_, reckoning)| reckoning.bypasses).sum(),
            innocent: stories(&incidents, |reckoning| &reckoning.innocent),
            innocent_stood: stood(&incidents),
            late: stories(&incidents, |reckoning| &reckoning.late),
            unnamed: stories(&incidents, |reckoning| &reckoning.unnamed),
            dead: incidents.iter().map(|(_, reckoning)| reckoning.dead).sum(),
            alive: stories(&incidents, |reckoning| &reckoning.alive),
            left: incidents
                .iter()
                .filter(|(_, reckoning)| !reckoning.left.is_empty())
                .map(|(index, _)| *index)
                .collect(),
            quiet: stories(&hours, |reckoning| &reckoning.innocent),
            quiet_stood: stood(&hours),
            needed: stories(&lossy, |reckoning| &reckoning.innocent),
            blocking: Figures::of(handled().filter(|handled| handled.harm == Harm::Blocking)),
            delaying: Figures::of(handled().filter(|handled| handled.harm == Harm::Delaying)),
            kinds: Kind::WEIGHTS
                .into_iter()
                .map(|(kind, _)| (kind, of_kind(kind)))
                .filter(|(_, figures)| figures.faults > 0)
                .collect(),
        })
    }
}

impl Figures {
    fn of<'a>(handled: impl Iterator<Item = &'a Handled>) -> Self {
        let mut figures = Self::default();
        let (mut intervals, mut restored) = (Vec::new(), Vec::new());
        for handled in handled {
            figures.faults += 1;
            let Some(rung) = handled.rung else {
                let why = handled.held_back.unwrap_or("not named");
                *figures.held_back.entry(why).or_default() += 1;
                continue;
            };
            figures.bypassed += 1;
            *figures.rungs.entry(rung.to_string()).or_default() += 1;
            figures.restored += usize::from(handled.restored.is_some());
            figures.relapsed += usize::from(handled.relapses > 0);
            figures.relapses += handled.relapses;
            intervals.extend(handled.intervals);
            restored.extend(handled.restored);
        }
        figures.share = part(figures.bypassed, figures.faults);
        figures.intervals_median = percentile(&mut intervals, 0.5);
        figures.intervals_p95 = percentile(&mut intervals, 0.95);
        figures.restored_median = percentile(&mut restored, 0.5);
        figures.restored_p95 = percentile(&mut restored, 0.95);
        figures
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let counts = |counts: &mut dyn Iterator<Item = (String, usize)>| {
            let counts: Vec<String> = counts.map(|(what, times)| format!("{what} {times}")).collect();
            counts.join(", ")
        };
        let rungs = counts(&mut self.rungs.iter().map(|(rung, times)| (rung.clone(), *times)));
        let held_back = counts(
            &mut self
                .held_back
                .iter()
                .map(|(why, times)| ((*why).to_owned(), *times)),
        );
        writeln!(
            f,
            "{name:<16} {:>6} {:>8} {:>8}  {:>6} {:>6}   {:>8} {:>6} {:>6}  {:>8} {:>8}  {rungs}; not: {held_back}",
            self.faults,
            self.bypassed,
            percent(self.share),
            shown(self.intervals_median),
            shown(self.intervals_p95),
            self.restored,
            shown(self.restored_median),
            shown(self.restored_p95),
            self.relapsed,
            self.relapses,
        )
    }
}

impl fmt::Display for BreakerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nthe breaker: {} bypasses", self.bypasses)?;
        let unfounded = [
            ("of innocent hooks", &self.innocent, self.innocent_stood),
            ("on quiet days", &self.quiet, self.quiet_stood),
        ];
        for (name, stories, stood) in unfounded {
            let stood = stood.map_or(String::new(), |seconds| {
                format!(", the longest for {seconds:.0} s,")
            });
            writeln!(f, "{name:<17} {}{stood} {stories:?}", stories.len())?;
        }
        writeln!(f, "lost without it   {} {:?}", self.needed.len(), self.needed)?;
        writeln!(f, "after the fault   {} {:?}", self.late.len(), self.late)?;
        writeln!(f, "before named      {} {:?}", self.unnamed.len(), self.unnamed)?;
        writeln!(
            f,
            "skipped as dead   {}, alive {} {:?}",
            self.dead,
            self.alive.len(),
            self.alive
        )?;
        writeln!(f, "never restored    {:?}", self.left)?;
        writeln!(
            f,
            "\n{:<16} faults bypassed    share  median    p95   restored median    p95  relapsed relapses  rungs",
            "felt, harmful"
        )?;
        self.blocking.line(f, "Blocking")?;
        self.delaying.line(f, "Delaying")?;
        for (kind, figures) in &self.kinds {
            figures.line(f, kind.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet_hour(index: u64, leaders_lost: usize, stood: f64) -> Score {
        let mut hour = Score {
            index,
            breaker: Some(Reckoning {
                innocent: vec![format!("hour {index}")],
                innocent_stood: Some(stood),
                ..Reckoning::default()
            }),
            ..Score::default()
        };
        hour.toll.without_breaker.leaders_lost = leaders_lost;
        hour
    }

    #[test]
    fn a_bypass_in_a_quiet_hour_is_unfounded_unless_a_leader_would_have_been_lost_without_it() {
        let report = BreakerReport::of(&[], &[quiet_hour(1, 0, 31.0), quiet_hour(2, 1, 90.0)]).unwrap();
        let told = |story: &[(u64, String)]| story.iter().map(|(hour, _)| *hour).collect::<Vec<_>>();
        assert_eq!((told(&report.quiet), told(&report.needed)), (vec![1], vec![2]));
    }

    #[test]
    fn beside_the_count_of_unfounded_bypasses_stands_how_long_the_longest_stood() {
        let hours = [31.0, 44.0, 12.0].map(|stood| quiet_hour(1, 0, stood));
        let report = BreakerReport::of(&[], &hours).unwrap();
        assert_eq!((report.innocent_stood, report.quiet_stood), (None, Some(44.0)));
        let said = report.to_string();
        assert!(
            said.contains("on quiet days     3, the longest for 44 s,"),
            "{said}"
        );
        assert!(said.contains("of innocent hooks 0 []"), "{said}");
    }
}
