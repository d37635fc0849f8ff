//! The figures of a campaign.

mod breaker;
mod calibration;
mod casualties;
mod flaps;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use crate::incident::Kind;
use crate::naive::THRESHOLDS;
use crate::score::{Found, Score, is_culprit};
use calibration::Calibrations;
use flaps::FlapReport;
pub use rules::{PerRule, per_rule};

/// How the faults of one kind were diagnosed. Shares are from 0 to 1; times are in probe intervals.
#[derive(Debug, Default, Serialize)]
pub struct PerKind {
    pub faults: usize,
    /// Faults that affected too little to have to be diagnosed.
    pub not_felt: usize,
    /// Share of felt faults whose webhook, or fault outside of webhooks, was named at all.
    pub found: f64,
    /// Share of felt faults for which the right cause was named for the longest time.
    pub recall: f64,
    /// Share of the claims with this cause that were right; `None` without claims.
    pub precision: Option<f64>,
    pub claims: usize,
    pub intervals_median: Option<f64>,
    pub intervals_p95: Option<f64>,
    pub intervals_worst: Option<f64>,
    /// Felt faults that were still named more than [`GRACE`](crate::score::GRACE) after they were over.
    pub held: usize,
    /// The wrong causes that were named, and how often.
    pub said_instead: BTreeMap<&'static str, usize>,
}

/// The report of a campaign. Shares are from 0 to 1; lists hold the indexes of incidents.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub seed: u64,
    pub incidents: usize,
    pub requests: u64,
    /// Share of felt faults of webhooks for which the right webhook was called `Failing`.
    pub right_culprit: f64,
    pub right_culprit_and_cause: f64,
    pub culprit_faults: usize,
    /// The same including faults that were not felt or that nothing shows.
    pub right_culprit_of_all: f64,
    pub culprit_faults_of_all: usize,
    /// Share of incidents in which a healthy webhook was called `Failing`.
    pub wrong_culprit: f64,
    pub wrong_culprit_incidents: Vec<u64>,
    pub missed_incidents: Vec<u64>,
    pub misnamed_incidents: Vec<u64>,
    pub wrong_elsewhere_incidents: Vec<u64>,
    pub missed_elsewhere_incidents: Vec<u64>,
    pub held_incidents: Vec<u64>,
    /// Time to the first naming in probe intervals, for faults that make calls fail.
    pub intervals_median: Option<f64>,
    pub intervals_p95: Option<f64>,
    /// Share of incidents in which the core was right by the measure that compares it with the naive judge.
    pub ours_right: f64,
    pub naive_right: f64,
    pub naive_threshold: f64,
    pub quiet_days: f64,
    pub false_alarms: usize,
    pub false_elsewhere: usize,
    pub false_alarm_hours: Vec<u64>,
    pub flaps: FlapReport,
    /// Flaps in the quiet hours.
    pub quiet_flaps: FlapReport,
    pub calibration: Calibrations,
    pub rules: Vec<PerRule>,
    pub kinds: BTreeMap<Kind, PerKind>,
    /// What the breaker did; `None` when it was off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<breaker::BreakerReport>,
    /// The damage to the control plane.
    pub casualties: casualties::CasualtyReport,
}

fn part(of: usize, all: usize) -> f64 {
    if all == 0 { 1.0 } else { of as f64 / all as f64 }
}

/// The `q` quantile (0 to 1) by nearest rank; `None` when there are no values. Sorts the values.
fn percentile(values: &mut [f64], q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * q).round() as usize).copied()
}

impl Report {
    /// The report of all incidents and quiet hours.
    pub fn of(scores: &[Score], quiet: &[Score], seed: u64) -> Self {
        let wrong = which(scores, |score| !score.wrong.is_empty());
        let naive = (0..THRESHOLDS.len())
            .map(|at| {
                let right = |score: &&Score| score.naive.get(at) == Some(&true);
                scores.iter().filter(right).count()
            })
            .enumerate()
            .max_by_key(|(_, right)| *right)
            .unwrap_or_default();
        let mut report = Self {
            seed,
            incidents: scores.len(),
            requests: scores.iter().chain(quiet).map(|score| score.calls).sum(),
            wrong_culprit: wrong.len() as f64 / scores.len().max(1) as f64,
            wrong_culprit_incidents: wrong,
            ours_right: part(scores.iter().filter(|score| score.ours).count(), scores.len()),
            naive_right: part(naive.1, scores.len()),
            naive_threshold: THRESHOLDS[naive.0],
            quiet_days: quiet.len() as f64 / 24.0,
            false_alarms: quiet.iter().map(|score| score.wrong.len()).sum(),
            false_elsewhere: quiet.iter().map(|score| score.wrong_elsewhere.len()).sum(),
            false_alarm_hours: which(quiet, |score| !score.wrong.is_empty()),
            flaps: FlapReport::of(scores),
            quiet_flaps: FlapReport::of(quiet),
            calibration: Calibrations::of(scores.iter().flat_map(|score| &score.claims)),
            rules: per_rule(scores),
            kinds: per_kind(scores),
            breaker: breaker::BreakerReport::of(scores, quiet),
            casualties: casualties::CasualtyReport::of(scores),
            ..Self::default()
        };
        report.add_culprits(scores);
        report.add_lists(scores);
        report
    }

    /// Adds how the webhooks at fault were found.
    fn add_culprits(&mut self, scores: &[Score]) {
        let found = scores.iter().flat_map(|score| &score.found);
        let all: Vec<&Found> = found.filter(|found| is_culprit(found.kind)).collect();
        let felt: Vec<&Found> = all.iter().copied().filter(|found| found.felt).collect();
        let named = |of: &[&Found]| part(of.iter().filter(|found| found.named).count(), of.len());
        let by_name = felt.iter().filter(|found| found.named && found.right_cause);
        let mut quick: Vec<f64> = felt
            .iter()
            .filter(|found| found.kind.fails_calls())
            .filter_map(|found| found.intervals)
            .collect();
        self.right_culprit = named(&felt);
        self.right_culprit_and_cause = part(by_name.count(), felt.len());
        self.culprit_faults = felt.len();
        self.right_culprit_of_all = named(&all);
        self.culprit_faults_of_all = all.len();
        self.intervals_median = percentile(&mut quick, 0.5);
        self.intervals_p95 = percentile(&mut quick, 0.95);
    }

    /// Adds the lists of incidents that are worth a look.
    fn add_lists(&mut self, scores: &[Score]) {
        let hooks = |found: &Found| found.kind.elsewhere().is_none();
        let with = |is: &dyn Fn(&Found) -> bool| which(scores, |score| score.found.iter().any(is));
        self.missed_incidents = with(&|found| hooks(found) && found.felt && !found.named);
        self.misnamed_incidents =
            with(&|found| hooks(found) && found.felt && found.named && !found.right_cause);
        self.wrong_elsewhere_incidents = which(scores, |score| !score.wrong_elsewhere.is_empty());
        self.missed_elsewhere_incidents = with(&|found| !hooks(found) && found.felt && !found.right_cause);
        self.held_incidents = with(&|found| found.held);
    }
}

/// The indexes of the incidents for which `is` holds.
fn which(scores: &[Score], is: impl Fn(&Score) -> bool) -> Vec<u64> {
    let scores = scores.iter().filter(|score| is(score));
    scores.map(|score| score.index).collect()
}

/// The number of claims with this cause, and how many were right. Equal claims of several rules about one webhook count
/// once.
fn claims_of(kind: Kind, scores: &[Score]) -> (usize, usize) {
    let (mut claims, mut right) = (0, 0);
    for score in scores {
        let of_it = score
            .claims
            .iter()
            .filter(|claim| claim.counted && claim.said == kind.as_str());
        let distinct: BTreeSet<(usize, bool)> = of_it.map(|claim| (claim.hook, claim.cause.right)).collect();
        claims += distinct.len();
        right += distinct.iter().filter(|(_, right)| *right).count();
    }
    (claims, right)
}

fn per_kind(scores: &[Score]) -> BTreeMap<Kind, PerKind> {
    let mut kinds = BTreeMap::new();
    for (kind, _) in Kind::WEIGHTS {
        let all: Vec<&Found> = scores
            .iter()
            .flat_map(|score| &score.found)
            .filter(|found| found.kind == kind)
            .collect();
        if all.is_empty() {
            continue;
        }
        let felt: Vec<&&Found> = all.iter().filter(|found| found.felt).collect();
        let mut said_instead = BTreeMap::new();
        for found in felt.iter().filter(|found| !found.right_cause) {
            *said_instead.entry(found.said.unwrap_or("nothing")).or_default() += 1;
        }
        let mut intervals: Vec<f64> = felt.iter().filter_map(|found| found.intervals).collect();
        let (claims, right) = claims_of(kind, scores);
        let named = felt.iter().filter(|found| found.named).count();
        kinds.insert(
            kind,
            PerKind {
                faults: all.len(),
                not_felt: all.len() - felt.len(),
                found: part(named, felt.len()),
                recall: part(felt.iter().filter(|found| found.right_cause).count(), felt.len()),
                precision: (claims > 0).then(|| part(right, claims)),
                claims,
                intervals_median: percentile(&mut intervals, 0.5),
                intervals_p95: percentile(&mut intervals, 0.95),
                intervals_worst: percentile(&mut intervals, 1.0),
                held: felt.iter().filter(|found| found.held).count(),
                said_instead,
            },
        );
    }
    kinds
}

/// The number with one decimal place, or a dash.
fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sum(f)?;
        if self.quiet_days > 0.0 {
            writeln!(
                f,
                "{} false alarms in {:.1} quiet days {:?}; {} of troubles that are no hook's",
                self.false_alarms, self.quiet_days, self.false_alarm_hours, self.false_elsewhere
            )?;
            write!(f, "in quiet hours, {}", self.quiet_flaps)?;
        }
        writeln!(f, "\nmissed            {:?}", self.missed_incidents)?;
        writeln!(f, "misnamed          {:?}", self.misnamed_incidents)?;
        writeln!(f, "missed, no hook   {:?}", self.missed_elsewhere_incidents)?;
        writeln!(f, "wrong, no hook    {:?}", self.wrong_elsewhere_incidents)?;
        writeln!(f, "not let go        {:?}", self.held_incidents)?;
        table(f, "cause", &self.kinds)?;
        self.calibration.fmt(f)?;
        rules::Shown(&self.rules).fmt(f)?;
        if let Some(breaker) = &self.breaker {
            breaker.fmt(f)?;
        }
        self.casualties.fmt(f)
    }
}

impl Report {
    /// Writes the overall figures.
    fn sum(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} incidents of seed {}; {} requests",
            self.incidents, self.seed, self.requests
        )?;
        writeln!(
            f,
            "right culprit  {} of {} faults (and its cause: {})",
            percent(self.right_culprit),
            self.culprit_faults,
            percent(self.right_culprit_and_cause)
        )?;
        writeln!(
            f,
            "  with faults that fewer than three calls met, or that nothing shows: {} of {}",
            percent(self.right_culprit_of_all),
            self.culprit_faults_of_all
        )?;
        writeln!(
            f,
            "wrong culprit  {:.2} % of incidents {:?}",
            self.wrong_culprit * 100.0,
            self.wrong_culprit_incidents
        )?;
        writeln!(
            f,
            "time to verdict where calls fail, in probe intervals: median {}, p95 {}",
            shown(self.intervals_median),
            shown(self.intervals_p95)
        )?;
        writeln!(
            f,
            "by the naive judge's measure: ours {}, naive (p99 above {} s) {}",
            percent(self.ours_right),
            self.naive_threshold,
            percent(self.naive_right)
        )?;
        write!(f, "{}", self.flaps)
    }
}

fn table(f: &mut fmt::Formatter<'_>, title: &str, kinds: &BTreeMap<Kind, PerKind>) -> fmt::Result {
    if kinds.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "\n{title:<20} faults unfelt   found  recall  precision (claims)   median    p95  worst  held  instead"
    )?;
    for (kind, figures) in kinds {
        let precision = figures.precision.map_or_else(|| "-".to_owned(), percent);
        writeln!(
            f,
            "{:<20} {:>6} {:>6} {:>7} {:>7}  {:>9} {:>8}   {:>6} {:>6} {:>6}  {:>4}  {}",
            kind.as_str(),
            figures.faults,
            figures.not_felt,
            percent(figures.found),
            percent(figures.recall),
            precision,
            format!("({})", figures.claims),
            shown(figures.intervals_median),
            shown(figures.intervals_p95),
            shown(figures.intervals_worst),
            figures.held,
            figures
                .said_instead
                .iter()
                .map(|(said, times)| format!("{said} {times}"))
                .collect::<Vec<_>>()
                .join(", ")
        )?;
    }
    Ok(())
}
