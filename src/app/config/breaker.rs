//! The section `breaker`: what the breaker may do.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::section::Section;
use crate::domain::act::breaker::policy::{AtLimit, Pattern, Policy, PolicyRule, RuleMatch, Rung};
use crate::domain::cluster::hook::HookKind;
use crate::domain::text::one_of;
use crate::domain::vocabulary::Cause;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Most rules in a policy: more than a person can keep in mind.
const MAX_RULES: usize = 200;

/// Reads the section: the policy, whose contradictions are noted as mistakes, and the path of the audit log.
pub(super) fn read(section: &mut Section<'_>) -> (Policy, Option<PathBuf>) {
    let audit_log = section.text("auditLog").map(PathBuf::from);
    (policy(section), audit_log)
}

fn policy(section: &mut Section<'_>) -> Policy {
    let default = Policy::default();
    let policy = Policy {
        most_shielded: section.number("mostShielded", default.most_shielded as u64, 1..=200) as usize,
        most_skipped: section.number("mostSkipped", default.most_skipped as u64, 1..=20) as usize,
        rate: section.number("rate", default.rate as u64, 1..=100) as usize,
        rate_window: section.span("rateWindow", default.rate_window, MINUTE..=DAY),
        rules: section.list("rules", rule),
        fallback: default.fallback,
    };
    if policy.rules.len() > MAX_RULES {
        section.error(
            "rules",
            format!("has {} rules, {MAX_RULES} are taken", policy.rules.len()),
        );
        return policy;
    }
    for found in policy.contradictions() {
        let name = &policy.rules[found.rule].name;
        section.error(
            &format!("rules[{}].{}", found.rule, found.key),
            format!("of the rule {name:?}: {}", found.what),
        );
    }
    policy
}

fn rule(section: &mut Section<'_>) -> Option<PolicyRule> {
    let default = PolicyRule::fallback();
    // A rule with mistakes stays in the list, so that the indexes in errors are those in the file.
    let name = section.required_text("name").unwrap_or_default();
    let matches = section.section("match", |section| RuleMatch {
        kinds: section.set("kinds", |text| {
            one_of(text, &[HookKind::Mutating, HookKind::Validating])
        }),
        configurations: section
            .set("configurations", Pattern::parse)
            .into_iter()
            .collect(),
        webhooks: section.set("webhooks", Pattern::parse).into_iter().collect(),
        labels: section.texts("labels"),
        annotations: section.texts("annotations"),
        causes: section.set("causes", Cause::parse),
    });
    // Read even if not given, so that `Config::keys` knows these keys.
    let (says_mode, says_rungs) = (section.says("mode"), section.says("rungs"));
    let mode = Some(section.auto_break("mode", None)).filter(|_| says_mode);
    let rungs = Some(section.set("rungs", Rung::parse)).filter(|_| says_rungs);
    let (says_hold, says_longest) = (section.says("hold"), section.says("longest"));
    let hold = section.span("hold", default.hold(Rung::Skip), Duration::ZERO..=MINUTE * 10);
    let longest = section.span("longest", default.longest(), MINUTE..=DAY * 7);
    let at_limit = section.read("atLimit", AtLimit::parse);
    Some(PolicyRule {
        name: name.into(),
        matches,
        mode: mode.unwrap_or(default.mode),
        rungs: rungs.unwrap_or(default.rungs),
        skip_while_dead: section.flag("skipWhileDead", default.skip_while_dead),
        hold: says_hold.then_some(hold),
        longest: says_longest.then_some(longest),
        at_limit,
        page: section.text("page").map(Into::into),
    })
}

impl Section<'_> {
    /// A list of texts, each read by `parse`.
    fn set<T: Ord>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> BTreeSet<T> {
        let mut values = BTreeSet::new();
        for (at, entry) in self.entries(key).into_iter().enumerate() {
            let read = match entry.as_str() {
                Some(text) => parse(text),
                None => Err(format!("must be text, not {entry}")),
            };
            match read {
                Ok(value) => _ = values.insert(value),
                Err(why) => self.error(&format!("{key}[{at}]"), why),
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigArguments};
    use super::*;
    use crate::domain::act::fence::AutoBreak;

    fn parse(text: &str) -> Result<Policy, Vec<String>> {
        match Config::parse(text, &ConfigArguments::default()) {
            Ok(config) => Ok(config.breaker),
            Err(errors) => Err(errors.into_iter().map(|error| error.key).collect()),
        }
    }

    #[test]
    fn without_a_section_the_ceiling_is_shield() {
        assert_eq!(parse(""), Ok(Policy::default()));
        assert_eq!(parse("").unwrap().fallback.rungs, BTreeSet::from([Rung::Shield]));
    }

    #[test]
    fn a_rule_is_read_with_all_that_it_says() {
        let policy = parse(
            "
breaker:
  mostSkipped: 3
  rules:
    - name: injectors
      match:
        kinds: [mutating]
        configurations: ['istio-*', linkerd]
        labels: {tier: mesh}
        causes: [Hanging]
      rungs: [shield, skip]
      skipWhileDead: true
      hold: 5s
      longest: 30m
      atLimit: hold
      page: mesh-team
    - name: the rest
      mode: plan
",
        );
        let policy = policy.unwrap();
        assert_eq!(policy.most_skipped, 3);
        let rule = &policy.rules[0];
        assert_eq!(rule.rungs, BTreeSet::from([Rung::Shield, Rung::Skip]));
        assert_eq!(
            (rule.hold, rule.longest),
            (Some(Duration::from_secs(5)), Some(MINUTE * 30))
        );
        assert_eq!(rule.at_limit, Some(AtLimit::Hold));
        assert!(rule.skip_while_dead && !policy.rules[1].skip_while_dead);
        assert_eq!((policy.rules[1].hold, policy.rules[1].longest), (None, None));
        assert_eq!(rule.page.as_deref(), Some("mesh-team"));
        assert_eq!(rule.matches.configurations.len(), 2);
        assert_eq!(policy.rules[1].mode, AutoBreak::Plan);
    }

    #[test]
    fn every_mistake_is_named_by_its_key() {
        let errors = parse(
            "
breaker:
  mostSkipped: 0
  rateWindow: 1s
  rules:
    - match: {kinds: [converting], configurations: ['a*b'], labels: {a: 1}, causes: [Bored]}
      rungs: [shield, jump]
      atLimit: wait
      skipWhileDead: sometimes
      hold: never
      colour: blue
",
        );
        let expected = [
            "breaker.mostSkipped",
            "breaker.rateWindow",
            "breaker.rules[0].name",
            "breaker.rules[0].match.kinds[0]",
            "breaker.rules[0].match.configurations[0]",
            "breaker.rules[0].match.labels.a",
            "breaker.rules[0].match.causes[0]",
            "breaker.rules[0].rungs[1]",
            "breaker.rules[0].hold",
            "breaker.rules[0].atLimit",
            "breaker.rules[0].skipWhileDead",
            "breaker.rules[0].colour",
        ];
        assert_eq!(errors, Err(expected.map(str::to_owned).into()));
    }

    #[test]
    fn a_rule_that_contradicts_another_is_a_mistake() {
        let errors = parse(
            "
breaker:
  rules:
    - {name: all, rungs: [shield]}
    - {name: injector, match: {webhooks: [i]}, rungs: [skip]}
    - {name: all, match: {webhooks: [j]}, rungs: []}
",
        );
        let expected = [
            "breaker.rules[1].match",
            "breaker.rules[2].name",
            "breaker.rules[2].rungs",
        ];
        assert_eq!(errors, Err(expected.map(str::to_owned).into()));
    }
}
