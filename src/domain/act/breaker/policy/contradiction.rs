//! Rules that contradict each other or themselves. Each would be read past in silence otherwise, and believed in.

use std::collections::BTreeSet;

use super::{Matches, Pattern, Policy, PolicyRule, Rung};
use crate::act::breaker::choice::is_weak;
use crate::act::fence::AutoBreak;
use crate::cluster::matching::has_all;

/// Something in a policy that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// Which rule, by its place.
    pub rule: usize,
    /// Which of its keys.
    pub key: &'static str,
    /// What is wrong, as a sentence without its subject.
    pub what: String,
}

impl Policy {
    /// What in it contradicts itself: rules that can never count or never permit anything.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        for (at, rule) in self.rules.iter().enumerate() {
            let mut contradicts = |key, what| found.push(Contradiction { rule: at, key, what });
            let earlier = self.rules.iter().take(at);
            if earlier.clone().any(|other| other.name == rule.name) {
                contradicts("name", format!("{:?} is the name of an earlier rule", rule.name));
            } else if let Some(other) = earlier
                .clone()
                .find(|other| covers(&other.matches, &rule.matches))
            {
                let name = &other.name;
                contradicts(
                    "match",
                    format!("can never count: the earlier rule {name:?} matches all that this one does"),
                );
            }
            if let Some((key, what)) = of_itself(rule) {
                contradicts(key, what);
            }
        }
        found
    }
}

fn of_itself(rule: &PolicyRule) -> Option<(&'static str, String)> {
    if rule.rungs.is_empty() && rule.mode != AutoBreak::Off {
        return Some((
            "rungs",
            "permits no rung; to do nothing, say mode: off".to_owned(),
        ));
    }
    let causes = &rule.matches.causes;
    if !causes.is_empty() && causes.iter().all(|cause| is_weak(*cause)) && !rule.rungs.contains(&Rung::Shield)
    {
        return Some((
            "rungs",
            "permits only rungs beyond shield for causes that never go past shield".to_owned(),
        ));
    }
    if rule.hold >= Some(rule.longest()) {
        return Some(("longest", "must be longer than hold".to_owned()));
    }
    if rule.skip_while_dead && !rule.rungs.contains(&Rung::Shield) {
        return Some((
            "skipWhileDead",
            "needs the rung shield, which such a skip comes from and goes back to".to_owned(),
        ));
    }
    None
}

/// Whether everything that `narrow` matches is matched by `wide`.
fn covers(wide: &Matches, narrow: &Matches) -> bool {
    fn set<T: Ord>(wide: &BTreeSet<T>, narrow: &BTreeSet<T>) -> bool {
        wide.is_empty() || (!narrow.is_empty() && narrow.is_subset(wide))
    }
    fn patterns(wide: &[Pattern], narrow: &[Pattern]) -> bool {
        let covered = |narrow: &Pattern| wide.iter().any(|wide| pattern(wide, narrow));
        wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(covered))
    }
    set(&wide.kinds, &narrow.kinds)
        && patterns(&wide.configurations, &narrow.configurations)
        && patterns(&wide.webhooks, &narrow.webhooks)
        && has_all(&narrow.labels, &wide.labels)
        && has_all(&narrow.annotations, &wide.annotations)
        && set(&wide.causes, &narrow.causes)
}

fn pattern(wide: &Pattern, narrow: &Pattern) -> bool {
    let beginning = |text: &str| text.strip_suffix('*').map(str::to_owned);
    let end = |text: &str| text.strip_prefix('*').map(str::to_owned);
    if wide.0 == "*" || wide == narrow {
        return true;
    }
    match (beginning(&narrow.0), end(&narrow.0)) {
        (Some(narrow), _) => beginning(&wide.0).is_some_and(|wide| narrow.starts_with(&wide)),
        (None, Some(narrow)) => end(&wide.0).is_some_and(|wide| narrow.ends_with(&wide)),
        (None, None) => wide.matches(&narrow.0),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::vocabulary::Cause;

    fn rule(name: &str, configuration: &str) -> PolicyRule {
        PolicyRule {
            name: name.into(),
            matches: Matches {
                configurations: vec![Pattern::parse(configuration).unwrap()],
                ..Matches::default()
            },
            ..PolicyRule::fallback()
        }
    }

    fn found(rules: Vec<PolicyRule>) -> Vec<(usize, &'static str)> {
        let policy = Policy {
            rules,
            ..Policy::default()
        };
        let found = policy.contradictions();
        found.into_iter().map(|found| (found.rule, found.key)).collect()
    }

    #[test]
    fn a_rule_after_one_that_matches_all_of_it_can_never_count() {
        assert_eq!(found(vec![rule("a", "opa*"), rule("b", "opa-1")]), [(1, "match")]);
        assert_eq!(found(vec![rule("a", "*"), rule("b", "*x")]), [(1, "match")]);
        assert_eq!(found(vec![rule("a", "opa*"), rule("b", "opal*")]), [(1, "match")]);
        assert_eq!(found(vec![rule("a", "opa-1"), rule("b", "opa*")]), []);
        assert_eq!(found(vec![rule("a", "a*"), rule("b", "*b")]), []);
    }

    #[test]
    fn a_rule_for_some_causes_does_not_cover_one_for_all() {
        let mut some = rule("a", "opa");
        some.matches.causes = BTreeSet::from([Cause::Hanging]);
        assert_eq!(found(vec![some.clone(), rule("b", "opa")]), []);
        assert_eq!(found(vec![rule("b", "opa"), some]), [(1, "match")]);
    }

    #[test]
    fn two_rules_of_one_name_cannot_be_told_apart() {
        assert_eq!(found(vec![rule("a", "x"), rule("a", "y")]), [(1, "name")]);
    }

    #[test]
    fn a_rule_that_permits_nothing_has_to_say_that_it_means_it() {
        let mut none = rule("a", "x");
        none.rungs.clear();
        assert_eq!(found(vec![none.clone()]), [(0, "rungs")]);
        none.mode = AutoBreak::Off;
        assert_eq!(found(vec![none]), []);
    }

    #[test]
    fn a_rule_for_weak_causes_without_shield_never_permits_anything() {
        let mut slow = rule("a", "x");
        slow.matches.causes = BTreeSet::from([Cause::Slow, Cause::Partial]);
        slow.rungs = BTreeSet::from([Rung::Skip]);
        assert_eq!(found(vec![slow.clone()]), [(0, "rungs")]);
        slow.matches.causes.insert(Cause::Hanging);
        assert_eq!(found(vec![slow]), []);
    }

    #[test]
    fn a_skip_while_dead_needs_a_shield_to_go_back_to() {
        let mut dead = rule("a", "x");
        dead.skip_while_dead = true;
        assert_eq!(found(vec![dead.clone()]), []);
        dead.rungs = BTreeSet::from([Rung::Skip]);
        assert_eq!(found(vec![dead]), [(0, "skipWhileDead")]);
    }

    #[test]
    fn a_bypass_may_not_be_over_before_it_begins() {
        let mut short = rule("a", "x");
        short.hold = Some(Duration::from_secs(60));
        short.longest = short.hold;
        assert_eq!(found(vec![short.clone()]), [(0, "longest")]);
        short.longest = Some(Duration::from_secs(61));
        assert_eq!(found(vec![short]), []);
    }
}
