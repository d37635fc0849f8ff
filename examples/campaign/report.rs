//! The figures of a campaign.

mod breaker;
mod casualties;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::incident::Kind;
use crate::naive::THRESHOLDS;
use crate::score::{Claim, Found, Score, is_culprit};

/// How one kind of fault was found.
#[derive(Debug, Default, Serialize)]
pub struct PerKind {
    pub faults: usize,
    /// Faults that touched too little for anybody to be named.
    pub not_felt: usize,
    /// The right hook, or the right trouble, was named at all.
    pub found: f64,
    /// And called by its right name for most of the time.
    pub recall: f64,
    /// Claims of this cause that were right; of nothing when nobody made any.
    pub precision: Option<f64>,
    pub claims: usize,
    pub intervals_median: Option<f64>,
    pub intervals_p95: Option<f64>,
    pub intervals_worst: Option<f64>,
    /// Named long after the fault was over.
    pub held: usize,
    /// What was said instead, how often.
    pub said_instead: BTreeMap<&'static str, usize>,
}

/// How often claims of a confidence were right.
#[derive(Debug, Serialize)]
pub struct Bin {
    pub from: f64,
    pub to: f64,
    pub claims: usize,
    pub right: f64,
    /// What was said of what instead, how often.
    pub wrong: BTreeMap<String, usize>,
}

/// See the module's head.
#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub incidents: usize,
    pub requests: u64,
    /// Faults of hooks that somebody has to be named for, and for which the right one was.
    pub right_culprit: f64,
    pub right_culprit_and_cause: f64,
    pub culprit_faults: usize,
    /// The same with the faults that nobody felt, or that nothing shows.
    pub right_culprit_of_all: f64,
    pub culprit_faults_of_all: usize,
    /// Incidents in which a hook was named that was well.
    pub wrong_culprit: f64,
    pub wrong_culprit_incidents: Vec<u64>,
    pub missed_incidents: Vec<u64>,
    pub misnamed_incidents: Vec<u64>,
    pub wrong_elsewhere_incidents: Vec<u64>,
    pub missed_elsewhere_incidents: Vec<u64>,
    pub held_incidents: Vec<u64>,
    /// In probe intervals, for faults that make calls fail.
    pub intervals_median: Option<f64>,
    pub intervals_p95: Option<f64>,
    /// By the measure that the naive judge is held to.
    pub ours_right: f64,
    pub naive_right: f64,
    pub naive_threshold: f64,
    pub quiet_days: f64,
    pub false_alarms: usize,
    pub false_elsewhere: usize,
    pub false_alarm_hours: Vec<u64>,
    pub calibration: Vec<Bin>,
    pub kinds: BTreeMap<Kind, PerKind>,
    /// What the breaker did, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<breaker::BreakerReport>,
    /// What incidents cost the control plane.
    pub casualties: casualties::CasualtyReport,
}

fn part(of: usize, all: usize) -> f64 {
    if all == 0 { 1.0 } else { of as f64 / all as f64 }
}

/// The value below which this part of them lies.
fn percentile(values: &mut [f64], q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * q).round() as usize).copied()
}

impl Report {
    /// Adds everything up.
    pub fn of(scores: &[Score], quiet: &[Score], seed: u64) -> Self {
        let culprit = |found: &&Found| is_culprit(found.kind) && found.felt;
        let culprits: Vec<&Found> = scores
            .iter()
            .flat_map(|score| &score.found)
            .filter(culprit)
            .collect();
        let all: Vec<&Found> = scores
            .iter()
            .flat_map(|score| &score.found)
            .filter(|found| is_culprit(found.kind))
            .collect();
        let incidents = |which: &dyn Fn(&Score) -> bool| -> Vec<u64> {
            scores
                .iter()
                .filter(|score| which(score))
                .map(|score| score.index)
                .collect()
        };
        let mut quick: Vec<f64> = culprits
            .iter()
            .filter(|found| found.kind.fails_calls())
            .filter_map(|found| found.intervals)
            .collect();
        let naive = (0..THRESHOLDS.len())
            .map(|at| {
                scores
                    .iter()
                    .filter(|score| score.naive.get(at) == Some(&true))
                    .count()
            })
            .enumerate()
            .max_by_key(|(_, right)| *right)
            .unwrap_or_default();
        let wrong = incidents(&|score| !score.wrong.is_empty());
        let hooks = |found: &Found| found.kind.elsewhere().is_none();
        Self {
            seed,
            incidents: scores.len(),
            requests: scores.iter().chain(quiet).map(|score| score.calls).sum(),
            right_culprit: part(
                culprits.iter().filter(|found| found.named).count(),
                culprits.len(),
            ),
            right_culprit_and_cause: part(
                culprits
                    .iter()
                    .filter(|found| found.named && found.right_cause)
                    .count(),
                culprits.len(),
            ),
            culprit_faults: culprits.len(),
            right_culprit_of_all: part(all.iter().filter(|found| found.named).count(), all.len()),
            culprit_faults_of_all: all.len(),
            wrong_culprit: wrong.len() as f64 / scores.len().max(1) as f64,
            wrong_culprit_incidents: wrong,
            missed_incidents: incidents(&|score| {
                score
                    .found
                    .iter()
                    .any(|found| hooks(found) && found.felt && !found.named)
            }),
            misnamed_incidents: incidents(&|score| {
                let misnamed =
                    |found: &Found| hooks(found) && found.felt && found.named && !found.right_cause;
                score.found.iter().any(misnamed)
            }),
            wrong_elsewhere_incidents: incidents(&|score| !score.wrong_elsewhere.is_empty()),
            missed_elsewhere_incidents: incidents(&|score| {
                score
                    .found
                    .iter()
                    .any(|found| !hooks(found) && found.felt && !found.right_cause)
            }),
            held_incidents: incidents(&|score| score.found.iter().any(|found| found.held)),
            intervals_median: percentile(&mut quick, 0.5),
            intervals_p95: percentile(&mut quick, 0.95),
            ours_right: part(scores.iter().filter(|score| score.ours).count(), scores.len()),
            naive_right: part(naive.1, scores.len()),
            naive_threshold: THRESHOLDS[naive.0],
            quiet_days: quiet.len() as f64 / 24.0,
            false_alarms: quiet.iter().map(|score| score.wrong.len()).sum(),
            false_elsewhere: quiet.iter().map(|score| score.wrong_elsewhere.len()).sum(),
            false_alarm_hours: quiet
                .iter()
                .filter(|score| !score.wrong.is_empty())
                .map(|score| score.index)
                .collect(),
            calibration: calibration(scores),
            kinds: per_kind(scores),
            breaker: breaker::BreakerReport::of(scores, quiet),
            casualties: casualties::CasualtyReport::of(scores),
        }
    }
}

fn calibration(scores: &[Score]) -> Vec<Bin> {
    let edges = [0.0, 0.55, 0.7, 0.8, 0.88, 0.93, 1.01];
    let claims: Vec<&Claim> = scores.iter().flat_map(|score| &score.claims).collect();
    let bin = |edge: &[f64]| {
        let inside: Vec<_> = claims
            .iter()
            .filter(|claim| (edge[0]..edge[1]).contains(&claim.confidence))
            .collect();
        let mut wrong = BTreeMap::new();
        for claim in inside.iter().filter(|claim| !claim.right) {
            let kind = claim.kind.map_or("nothing", Kind::as_str);
            *wrong.entry(format!("{} of {kind}", claim.cause)).or_default() += 1;
        }
        Bin {
            wrong,
            from: edge[0],
            to: edge[1].min(1.0),
            claims: inside.len(),
            right: part(inside.iter().filter(|claim| claim.right).count(), inside.len()),
        }
    };
    edges.windows(2).map(bin).filter(|bin| bin.claims > 0).collect()
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
        let claims: Vec<&Claim> = scores
            .iter()
            .flat_map(|score| &score.claims)
            .filter(|claim| claim.cause == kind.as_str())
            .collect();
        let right = claims.iter().filter(|claim| claim.right).count();
        let named = felt.iter().filter(|found| found.named).count();
        kinds.insert(
            kind,
            PerKind {
                faults: all.len(),
                not_felt: all.len() - felt.len(),
                found: part(named, felt.len()),
                recall: part(felt.iter().filter(|found| found.right_cause).count(), felt.len()),
                precision: (!claims.is_empty()).then(|| part(right, claims.len())),
                claims: claims.len(),
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

/// A number or a dash.
fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        if self.quiet_days > 0.0 {
            writeln!(
                f,
                "{} false alarms in {:.1} quiet days {:?}; {} of troubles that are no hook's",
                self.false_alarms, self.quiet_days, self.false_alarm_hours, self.false_elsewhere
            )?;
        }
        writeln!(f, "\nmissed            {:?}", self.missed_incidents)?;
        writeln!(f, "misnamed          {:?}", self.misnamed_incidents)?;
        writeln!(f, "missed, no hook   {:?}", self.missed_elsewhere_incidents)?;
        writeln!(f, "wrong, no hook    {:?}", self.wrong_elsewhere_incidents)?;
        writeln!(f, "not let go        {:?}", self.held_incidents)?;
        table(f, "cause", &self.kinds)?;
        writeln!(f, "\nconfidence     claims  right    wrong most often")?;
        for bin in &self.calibration {
            let mut wrong: Vec<(&String, &usize)> = bin.wrong.iter().collect();
            wrong.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
            let wrong: Vec<String> = wrong
                .iter()
                .take(4)
                .map(|(said, times)| format!("{said} {times}"))
                .collect();
            let (right, wrong) = (percent(bin.right), wrong.join(", "));
            writeln!(
                f,
                "{:.2} to {:.2}  {:8}  {right:<8} {wrong}",
                bin.from, bin.to, bin.claims
            )?;
        }
        if let Some(breaker) = &self.breaker {
            breaker.fmt(f)?;
        }
        self.casualties.fmt(f)
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
