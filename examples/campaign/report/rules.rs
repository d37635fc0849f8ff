//! How often each rule of the diagnosis is right, and how many faults it finds.

use std::collections::BTreeMap;
use std::fmt;

use hookwatch::domain::diagnose::rules::TABLE;
use hookwatch::domain::vocabulary::Health;
use serde::Serialize;

use super::{part, percent};
use crate::score::claims::Claim;
use crate::score::{Found, Score, is_culprit};

/// How many claims there were, and how many were right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Tally {
    pub claims: usize,
    /// The webhook was at fault.
    pub webhook_right: usize,
    /// The webhook was at fault and the cause was right.
    pub cause_right: usize,
}

/// One rule.
#[derive(Debug, Serialize)]
pub struct PerRule {
    pub name: &'static str,
    pub health: Health,
    /// What counts as a claim; see [`Claim::counted`].
    #[serde(flatten)]
    pub counted: Tally,
    /// Every suspicion, with any cause and however short.
    pub suspicions: Tally,
    /// Number of claims in [`PerRule::measured`]. The next two fields are the shares that were right, which the rule's two
    /// confidences should equal; `None` without claims.
    pub measured: usize,
    pub webhook: Option<f64>,
    pub cause: Option<f64>,
    /// Share of all felt faults for which this rule was the first to call the right webhook `Failing`.
    pub named_first: f64,
    /// Share of all felt faults for which this rule called the right webhook `Failing` at some time.
    pub named: f64,
}

impl Tally {
    fn add(&mut self, claim: &Claim) {
        self.claims += 1;
        self.webhook_right += usize::from(claim.webhook.right);
        self.cause_right += usize::from(claim.cause.right);
    }

    fn shares(self) -> Option<(f64, f64)> {
        let share = |right| part(right, self.claims);
        (self.claims > 0).then(|| (share(self.webhook_right), share(self.cause_right)))
    }

    /// The shares with one more right and one more wrong claim (Laplace's rule of succession), which keeps shares of few
    /// claims near one half. `None` without claims.
    pub fn smoothed(self) -> Option<(f64, f64)> {
        let share = |right| (right + 1) as f64 / (self.claims + 2) as f64;
        (self.claims > 0).then(|| (share(self.webhook_right), share(self.cause_right)))
    }
}

impl PerRule {
    /// What the rule's confidences are fitted to: all suspicions of a rule that suspects, and the claims of any other rule.
    pub fn measured(&self) -> Tally {
        if self.health == Health::Suspect {
            self.suspicions
        } else {
            self.counted
        }
    }
}

/// The figures of every rule, in the order of [`TABLE`].
pub fn per_rule(scores: &[Score]) -> Vec<PerRule> {
    let (mut counted, mut suspicions) = (BTreeMap::new(), BTreeMap::new());
    for claim in scores.iter().flat_map(|score| &score.claims) {
        if claim.counted {
            counted
                .entry(claim.rule)
                .or_insert_with(Tally::default)
                .add(claim);
        }
        if !claim.failing {
            suspicions
                .entry(claim.rule)
                .or_insert_with(Tally::default)
                .add(claim);
        }
    }
    let felt: Vec<&Found> = scores
        .iter()
        .flat_map(|score| &score.found)
        .filter(|found| is_culprit(found.kind) && found.felt)
        .collect();
    let share = |which: &dyn Fn(&Found) -> bool| {
        let found = felt.iter().filter(|found| which(found)).count();
        found as f64 / felt.len().max(1) as f64
    };
    let of_rule = |name: &'static str, health| {
        let mut rule = PerRule {
            name,
            health,
            counted: counted.get(name).copied().unwrap_or_default(),
            suspicions: suspicions.get(name).copied().unwrap_or_default(),
            measured: 0,
            webhook: None,
            cause: None,
            named_first: share(&|found| found.first_rule == Some(name)),
            named: share(&|found| found.rules.contains(name)),
        };
        rule.measured = rule.measured().claims;
        (rule.webhook, rule.cause) = rule.measured().shares().unzip();
        rule
    };
    TABLE.iter().map(|rule| of_rule(rule.name, rule.health)).collect()
}

/// Displays the rules as a table, without those that made no claim.
pub(super) struct Shown<'a>(pub(super) &'a [PerRule]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<40} claims  webhook    cause   suspicions  webhook    cause    named first     ever",
            "rule"
        )?;
        let shares = |tally: Tally| {
            tally.shares().map_or_else(
                || ("-".to_owned(), "-".to_owned()),
                |(webhook, cause)| (percent(webhook), percent(cause)),
            )
        };
        let said = |rule: &&PerRule| rule.counted.claims + rule.suspicions.claims > 0;
        for rule in self.0.iter().filter(said) {
            let (webhook, cause) = shares(rule.counted);
            let (suspected_webhook, suspected_cause) = shares(rule.suspicions);
            writeln!(
                f,
                "{:<40} {:>6}  {webhook:>7}  {cause:>7}   {:>10}  {suspected_webhook:>7}  {suspected_cause:>7}   {:>12}  {:>7}",
                rule.name,
                rule.counted.claims,
                rule.suspicions.claims,
                percent(rule.named_first),
                percent(rule.named)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_claims_are_drawn_towards_one_half() {
        let tally = |claims, webhook_right, cause_right| Tally {
            claims,
            webhook_right,
            cause_right,
        };
        assert_eq!(tally(0, 0, 0).smoothed(), None);
        assert_eq!(tally(2, 2, 0).smoothed(), Some((0.75, 0.25)));
        assert_eq!(tally(998, 899, 499).smoothed(), Some((0.9, 0.5)));
    }

    #[test]
    fn rules_stand_in_the_order_of_the_table() {
        let rules = per_rule(&[]);
        let names = rules.iter().map(|rule| rule.name);
        assert!(names.eq(TABLE.iter().map(|rule| rule.name)));
        assert!(rules.iter().all(|rule| rule.webhook.is_none()));
    }
}
