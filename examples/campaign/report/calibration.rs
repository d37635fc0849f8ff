//! Calibration: how often claims of a given confidence were right.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{part, percent};
use crate::incident::Kind;
use crate::score::claims::{Claim, Estimate};

/// Number of bands of confidence, each 0.1 wide.
const BANDS: usize = 10;
/// A band is off when the share of right claims differs from the mean confidence by more than this.
const OFF: f64 = 0.05;
/// Least claims for a band to be off: with fewer, the difference may be chance.
const ENOUGH: usize = 200;

/// The claims of one band of confidence.
#[derive(Debug, Serialize)]
pub struct Band {
    pub from: f64,
    pub to: f64,
    pub claims: usize,
    /// The mean confidence.
    pub claimed: f64,
    /// The share that was right.
    pub right: f64,
    /// Whether the two differ by more than five points in at least 200 claims.
    pub off: bool,
    /// Wrong claims: `{claimed cause} of {actual kind}`, and how often.
    pub wrong: BTreeMap<String, usize>,
}

/// The calibration of one of the two confidences of a verdict.
#[derive(Debug, Default, Serialize)]
pub struct Calibration {
    /// Brier score: mean squared difference between confidence and truth. 0 is perfect; always claiming 0.5 gives 0.25.
    /// `None` without claims.
    pub brier: Option<f64>,
    pub bands: Vec<Band>,
}

/// The calibration of both confidences.
#[derive(Debug, Default, Serialize)]
pub struct Calibrations {
    /// Confidence that the webhook is at fault.
    pub webhook: Calibration,
    /// Confidence that the webhook is at fault and the cause is right.
    pub cause: Calibration,
}

impl Calibrations {
    pub(super) fn of<'a>(claims: impl Iterator<Item = &'a Claim>) -> Self {
        let claims: Vec<&Claim> = claims.collect();
        Self {
            webhook: Calibration::of(&claims, |claim| claim.webhook),
            cause: Calibration::of(&claims, |claim| claim.cause),
        }
    }
}

fn band(claimed: f64) -> usize {
    // The small addition keeps a confidence such as 0.7 in the band that begins with it, despite rounding.
    ((claimed * BANDS as f64 + 1e-9) as usize).min(BANDS - 1)
}

impl Calibration {
    fn of(claims: &[&Claim], number: fn(&Claim) -> Estimate) -> Self {
        let mut bands: Vec<Vec<&Claim>> = vec![Vec::new(); BANDS];
        for claim in claims {
            bands[band(number(claim).claimed)].push(claim);
        }
        let bands = bands.iter().enumerate();
        let bands = bands.filter(|(_, inside)| !inside.is_empty());
        let missing: f64 = claims
            .iter()
            .map(|claim| (number(claim).claimed - f64::from(number(claim).right)).powi(2))
            .sum();
        Self {
            brier: (!claims.is_empty()).then(|| missing / claims.len() as f64),
            bands: bands
                .map(|(index, inside)| Band::of(index, inside, number))
                .collect(),
        }
    }
}

impl Band {
    fn of(index: usize, inside: &[&Claim], number: fn(&Claim) -> Estimate) -> Self {
        let mut wrong = BTreeMap::new();
        for claim in inside.iter().filter(|claim| !number(claim).right) {
            let kind = claim.kind.map_or("nothing", Kind::as_str);
            *wrong.entry(format!("{} of {kind}", claim.said)).or_default() += 1;
        }
        let claimed: f64 = inside.iter().map(|claim| number(claim).claimed).sum();
        let claimed = claimed / inside.len() as f64;
        let right = inside.iter().filter(|claim| number(claim).right).count();
        let right = part(right, inside.len());
        Self {
            from: index as f64 / BANDS as f64,
            to: (index + 1) as f64 / BANDS as f64,
            claims: inside.len(),
            claimed,
            right,
            off: inside.len() >= ENOUGH && (right - claimed).abs() > OFF,
            wrong,
        }
    }
}

impl fmt::Display for Calibrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, calibration) in [("webhook right", &self.webhook), ("cause right", &self.cause)] {
            let brier = calibration.brier;
            let brier = brier.map_or_else(|| "-".to_owned(), |brier| format!("{brier:.4}"));
            writeln!(f, "\n{what}, Brier score {brier}")?;
            writeln!(
                f,
                "confidence    claims  claimed    right        wrong most often"
            )?;
            for band in &calibration.bands {
                band.fmt(f)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut wrong: Vec<(&String, &usize)> = self.wrong.iter().collect();
        wrong.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
        let wrong = wrong.iter().take(4);
        let wrong: Vec<String> = wrong.map(|(said, times)| format!("{said} {times}")).collect();
        writeln!(
            f,
            "{:.1} to {:.1}  {:>8}  {:>7}  {:>7}  {:<4}  {}",
            self.from,
            self.to,
            self.claims,
            percent(self.claimed),
            percent(self.right),
            if self.off { "OFF" } else { "" },
            wrong.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(count: usize, right: usize, claimed: f64) -> Vec<Claim> {
        let claim = |index| {
            let estimate = Estimate {
                claimed,
                right: index < right,
            };
            Claim {
                hook: index,
                rule: "a",
                failing: true,
                counted: true,
                kind: None,
                said: "Slow",
                webhook: estimate,
                cause: estimate,
            }
        };
        (0..count).map(claim).collect()
    }

    #[test]
    fn a_band_is_off_by_more_than_five_points_in_enough_claims() {
        let off = |count, right, claimed| {
            let calibration = Calibrations::of(claims(count, right, claimed).iter()).cause;
            assert_eq!(calibration.bands.len(), 1);
            calibration.bands[0].off
        };
        assert!(off(200, 160, 0.9));
        assert!(!off(200, 172, 0.9));
        assert!(!off(199, 0, 0.9));
        assert!(off(200, 200, 0.9));
    }

    #[test]
    fn a_confidence_is_of_the_band_that_it_begins() {
        for tenth in 0..=10 {
            let (claimed, expected) = (f64::from(tenth) / 10.0, (tenth as usize).min(9));
            assert_eq!(band(claimed), expected, "{claimed}");
        }
        assert_eq!(band(0.799), 7);
    }

    #[test]
    fn a_coin_has_a_quarter() {
        let brier = |claims: &[Claim]| Calibrations::of(claims.iter()).webhook.brier;
        assert_eq!(brier(&claims(10, 5, 0.5)), Some(0.25));
        assert_eq!(brier(&claims(10, 10, 1.0)), Some(0.0));
        assert_eq!(brier(&[]), None);
    }
}
