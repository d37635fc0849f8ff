//! The breaker's part of the report.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{part, percent, percentile, shown};
use crate::incident::Kind;
use crate::score::Score;
use crate::score::breaker::{Handled, Harm, Reckoning, longest};

/// Felt faults that block or delay writes, and what the breaker did about them.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    pub faults: usize,
    pub bypassed: usize,
    pub share: f64,
    /// From the fault's beginning to the bypass, in probe intervals.
    pub intervals_median: Option<f64>,
    pub intervals_p95: Option<f64>,
    /// Bypassed faults by their highest rung.
    pub rungs: BTreeMap<String, usize>,
    /// Bypassed faults whose webhooks were all restored.
    pub restored: usize,
    /// From the fault's end to the restore, in seconds.
    pub restored_median: Option<f64>,
    pub restored_p95: Option<f64>,
    /// Faults with relapses: a webhook was bypassed again after it had been restored or put on probation.
    pub relapsed: usize,
    pub relapses: usize,
    /// Faults without a bypass by the reason that held the breaker back.
    pub held_back: BTreeMap<&'static str, usize>,
}

/// What the breaker did in all incidents and quiet hours.
#[derive(Debug, Serialize)]
pub struct BreakerReport {
    /// Bypasses, including those after relapses and changes of the rung.
    pub bypasses: usize,
    /// Bypasses of innocent webhooks, each with the index of its incident.
    pub innocent: Vec<(u64, String)>,
    /// Seconds that the longest of the innocent bypasses lasted. The breaker takes about 30 s to remove a shield.
    pub innocent_stood: Option<f64>,
    /// Bypasses that began after the fault was over.
    pub late: Vec<(u64, String)>,
    /// Bypasses of webhooks that were not called `Failing` at that time, each with the index of its incident.
    pub unnamed: Vec<(u64, String)>,
    /// Skips of webhooks that fail open.
    pub dead: usize,
    /// Those of the skips that began while no fault kept the webhook from answering, each with the index of its incident.
    pub alive: Vec<(u64, String)>,
    /// Incidents in which a webhook was never restored.
    pub left: Vec<u64>,
    /// Bypasses of innocent webhooks in quiet hours, each with the index of its hour.
    pub quiet: Vec<(u64, String)>,
    /// Seconds that the longest of those lasted.
    pub quiet_stood: Option<f64>,
    /// Bypasses in quiet hours in which a leader would have been lost without the breaker, because a webhook is always slow.
    pub needed: Vec<(u64, String)>,
    pub blocking: Figures,
    pub delaying: Figures,
    pub kinds: BTreeMap<Kind, Figures>,
}

impl BreakerReport {
    /// The breaker's report; `None` when it was off.
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
