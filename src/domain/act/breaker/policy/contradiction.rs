//! Rules that contradict each other or themselves: they would have no effect, and the operator would not notice.

use std::collections::BTreeSet;

use super::{Pattern, Policy, PolicyRule, RuleMatch, Rung};
use crate::act::breaker::choice::is_weak;
use crate::act::fence::AutoBreak;
use crate::cluster::matching::has_all;

/// Something in a policy that cannot be intended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The index of the rule.
    pub rule: usize,
    /// The key in the rule.
    pub key: &'static str,
    /// What is wrong, as a sentence without its subject.
    pub what: String,
}

impl Policy {
    /// Rules that can never apply, and rules that can never permit anything.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let earlier = self.rules.iter().take(index);
            let with_earlier = contradiction_with(earlier, rule);
            let contradictions = with_earlier.into_iter().chain(contradiction_within(rule));
            found.extend(contradictions.map(|(key, what)| Contradiction {
                rule: index,
                key,
                what,
            }));
        }
        found
    }
}

/// Why a rule can never apply beside the earlier ones: the key, and what is wrong with it.
fn contradiction_with<'a>(
    mut earlier: impl Iterator<Item = &'a PolicyRule> + Clone,
    rule: &PolicyRule,
) -> Option<(&'static str, String)> {
    if earlier.clone().any(|other| other.name == rule.name) {
        return Some(("name", format!("{:?} is the name of an earlier rule", rule.name)));
    }
    let other = earlier.find(|other| covers(&other.matches, &rule.matches))?;
    let name = &other.name;
    Some((
        "match",
        format!("can never count: the earlier rule {name:?} matches all that this one does"),
    ))
}

/// Why a rule can never permit anything: the key, and what is wrong with it.
fn contradiction_within(rule: &PolicyRule) -> Option<(&'static str, String)> {
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
fn covers(wide: &RuleMatch, narrow: &RuleMatch) -> bool {
    fn set_covers<T: Ord>(wide: &BTreeSet<T>, narrow: &BTreeSet<T>) -> bool {
        wide.is_empty() || (!narrow.is_empty() && narrow.is_subset(wide))
    }
    fn patterns_cover(wide: &[Pattern], narrow: &[Pattern]) -> bool {
        let covered = |narrow: &Pattern| wide.iter().any(|wide| pattern_covers(wide, narrow));
        wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(covered))
    }
    set_covers(&wide.kinds, &narrow.kinds)
        && patterns_cover(&wide.configurations, &narrow.configurations)
        && patterns_cover(&wide.webhooks, &narrow.webhooks)
        && has_all(&narrow.labels, &wide.labels)
        && has_all(&narrow.annotations, &wide.annotations)
        && set_covers(&wide.causes, &narrow.causes)
}

/// Whether every name that `narrow` matches is matched by `wide`.
fn pattern_covers(wide: &Pattern, narrow: &Pattern) -> bool {
    let (wide_text, narrow_text) = (wide.0.as_str(), narrow.0.as_str());
    if wide_text == "*" {
        return true;
    }
    if let Some(beginning) = narrow_text.strip_suffix('*') {
        return wide_text
            .strip_suffix('*')
            .is_some_and(|wide| beginning.starts_with(wide));
    }
    if let Some(end) = narrow_text.strip_prefix('*') {
        return wide_text
            .strip_prefix('*')
            .is_some_and(|wide| end.ends_with(wide));
    }
    wide.matches(narrow_text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::vocabulary::Cause;

    fn rule(name: &str, configuration: &str) -> PolicyRule {
        PolicyRule {
            name: name.into(),
            matches: RuleMatch {
                configurations: vec![Pattern::parse(configuration).unwrap()],
                ..RuleMatch::default()
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
