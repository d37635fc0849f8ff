//! What the operator permits: ordered rules, of which the first that matches a hook counts, and the annotation by which
//! a configuration's owner can only restrict it.

mod contradiction;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::observed::HookFacts;
use crate::act::fence::AutoBreak;
use crate::cluster::hook::{HookId, HookKind, Labels};
use crate::cluster::matching::has_all;
use crate::text::named;
use crate::vocabulary::Cause;

pub use crate::act::bypass::{Ceiling, Rung};
pub use contradiction::Contradiction;

/// The annotation by which the owner of a configuration permits more than the rules do. It lifts no ceiling.
pub const PERMIT_ANNOTATION: &str = "hookwatch.dev/permit";

/// What the owner of a configuration permits by [`PERMIT_ANNOTATION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub enum Permit {
    /// Nothing: the policy alone decides.
    #[default]
    Nothing,
    /// To skip a validating webhook with `failurePolicy: Ignore` while it is dead.
    SkipWhileDead,
    /// Nothing, for the value is not a known one.
    Unreadable,
}

impl Permit {
    /// Reads the annotation's value.
    pub fn read(annotation: Option<&str>) -> Self {
        match annotation.map(str::trim) {
            None => Self::Nothing,
            Some("skip-while-dead") => Self::SkipWhileDead,
            Some(_) => Self::Unreadable,
        }
    }
}

/// What is done when a bypass has lasted as long as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AtLimit {
    /// The bypass stays, and a page is sent.
    Hold,
    /// The original is restored, broken or not, and a page is sent.
    Restore,
}

named!(AtLimit, "The name as it stands in the configuration.", parse);

/// A name, or the beginning or end of one with a `*` for the rest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When it is empty, or has a `*` elsewhere than at one of its ends.
    pub fn parse(text: &str) -> Result<Self, String> {
        let stars = text.matches('*').count();
        let at_an_end = text.starts_with('*') || text.ends_with('*');
        match (text.is_empty(), stars) {
            (true, _) => Err("a pattern must not be empty".to_owned()),
            (false, 0) => Ok(Self(text.to_owned())),
            (false, 1) if at_an_end => Ok(Self(text.to_owned())),
            _ => Err(format!("{text:?} may have one * only, at its beginning or end")),
        }
    }

    /// Whether a name is meant.
    pub fn matches(&self, name: &str) -> bool {
        if let Some(beginning) = self.0.strip_suffix('*') {
            name.starts_with(beginning)
        } else if let Some(end) = self.0.strip_prefix('*') {
            name.ends_with(end)
        } else {
            self.0 == name
        }
    }
}

/// Which hooks a rule is about. Each condition that is left empty is met by all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matches {
    /// Mutating or validating.
    pub kinds: BTreeSet<HookKind>,
    /// Names of configurations; one of them must match.
    pub configurations: Vec<Pattern>,
    /// Names of webhooks; one of them must match.
    pub webhooks: Vec<Pattern>,
    /// Labels that the configuration must have, all of them.
    pub labels: Labels,
    /// Annotations that it must have, all of them.
    pub annotations: BTreeMap<String, String>,
    /// Causes; the hook's must be one of them.
    pub causes: BTreeSet<Cause>,
}

/// Labels and annotations of the configuration that a hook is in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PolicySubject {
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
}

/// What the owner of a configuration says on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OwnerWord {
    /// How far a bypass may go.
    pub ceiling: Ceiling,
    /// What is permitted beyond the rules.
    pub permit: Permit,
    /// What rules can match on.
    pub subject: Arc<PolicySubject>,
}

impl Matches {
    /// Whether a hook that fails from this cause is meant.
    pub fn matches(&self, id: &HookId, subject: &PolicySubject, cause: Cause) -> bool {
        let named = |patterns: &[Pattern], name: &str| {
            patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(name))
        };
        (self.kinds.is_empty() || self.kinds.contains(&id.kind))
            && named(&self.configurations, &id.configuration)
            && named(&self.webhooks, &id.webhook)
            && has_all(&subject.labels, &self.labels)
            && has_all(&subject.annotations, &self.annotations)
            && (self.causes.is_empty() || self.causes.contains(&cause))
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRule {
    /// What it is called in explanations; unique.
    pub name: Arc<str>,
    /// Which hooks it is about.
    pub matches: Matches,
    /// What may be done at most; the mode of the whole can be lower.
    pub mode: AutoBreak,
    /// The rungs that may be taken.
    pub rungs: BTreeSet<Rung>,
    /// Whether a hook with `failurePolicy: Ignore` may be skipped while it is dead, regardless of `rungs`.
    pub skip_while_dead: bool,
    /// How long a hook must have been failing before it is bypassed; `None`: [`PolicyRule::hold`] of the rung.
    pub hold: Option<Duration>,
    /// How long a bypass may last; `None`: [`PolicyRule::longest`] and [`PolicyRule::longest_dead`].
    pub longest: Option<Duration>,
    /// What is done then; `None`: a shield stays, a skip is restored.
    pub at_limit: Option<AtLimit>,
    /// Whom to page.
    pub page: Option<Arc<str>>,
}

impl PolicyRule {
    /// What holds for a hook that no rule is about.
    pub fn fallback() -> Self {
        Self {
            name: "default".into(),
            matches: Matches::default(),
            mode: AutoBreak::On,
            rungs: BTreeSet::from([Rung::Shield]),
            skip_while_dead: false,
            hold: None,
            longest: None,
            at_limit: None,
            page: None,
        }
    }

    /// How long a hook must have been failing before it is bypassed at this rung. A verdict is certain before it names
    /// a culprit; this wait is for transient faults. A leader survives if a renewal begins 5 s after the fault, so a
    /// shield, which costs next to nothing, waits less than a rung that goes further. Where a rule permits more than a
    /// shield, its value is for that rung.
    pub fn hold(&self, rung: Rung) -> Duration {
        let usual = match rung {
            Rung::Shield => Duration::from_secs(1),
            Rung::Skip => Duration::from_secs(2),
        };
        let goes_further = self.skip_while_dead || self.rungs.iter().any(|rung| *rung > Rung::Shield);
        match self.hold {
            Some(hold) if rung == Rung::Shield && goes_further => hold.min(usual),
            hold => hold.unwrap_or(usual),
        }
    }

    /// How long a bypass may last.
    pub fn longest(&self) -> Duration {
        self.longest.unwrap_or(Duration::from_secs(3_600))
    }

    /// How long a skip while dead may last before it becomes a shield.
    pub fn longest_dead(&self) -> Duration {
        self.longest.unwrap_or(Duration::from_secs(900))
    }

    /// Whether it is about this configuration by its whole name.
    pub fn names(&self, configuration: &str) -> bool {
        let mut patterns = self.matches.configurations.iter();
        patterns.any(|pattern| pattern.0 == configuration)
    }

    /// What is done when a bypass at this rung has lasted as long as it may.
    pub fn at_limit(&self, rung: Rung) -> AtLimit {
        // A shield costs next to nothing, a hook that checks nothing costs more every hour.
        self.at_limit.unwrap_or(match rung {
            Rung::Shield => AtLimit::Hold,
            Rung::Skip => AtLimit::Restore,
        })
    }
}

/// All that the operator permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// The rules; the first that matches counts.
    pub rules: Vec<PolicyRule>,
    /// For hooks that none matches.
    pub fallback: PolicyRule,
    /// Shields that may stand at once, over all replicas, among hooks with at least the same stake. Those of hooks that
    /// share their backends are one.
    pub most_shielded: usize,
    /// Hooks that may be skipped at once, over all replicas, among those with at least the same stake.
    pub most_skipped: usize,
    /// Skips that may begin within [`Policy::rate_window`], over all replicas. Shields have no such limit: each relapse
    /// delays a hook's restore further, and a shield that comes too late costs leaders.
    pub rate: usize,
    /// Over which time they are counted.
    pub rate_window: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            fallback: PolicyRule::fallback(),
            most_shielded: 20,
            most_skipped: 2,
            rate: 5,
            rate_window: Duration::from_secs(600),
        }
    }
}

impl Policy {
    /// The rule that counts for a hook that fails from this cause.
    pub fn rule(&self, id: &HookId, subject: &PolicySubject, cause: Cause) -> &PolicyRule {
        let mut rules = self.rules.iter();
        rules
            .find(|rule| rule.matches.matches(id, subject, cause))
            .unwrap_or(&self.fallback)
    }

    /// Rules that permit to skip webhooks that neither their owner nor the fence lets be skipped, with the configurations. Where
    /// the owner permits less, that is not the rule's fault.
    pub fn unusable(&self, hooks: &BTreeMap<HookId, HookFacts>) -> BTreeMap<Arc<str>, BTreeSet<Arc<str>>> {
        let mut unusable = BTreeMap::<_, BTreeSet<_>>::new();
        for (id, facts) in hooks {
            let rule = self.rule(id, &facts.owner.subject, facts.cause.unwrap_or(Cause::Hanging));
            let skips = if facts.ignores {
                rule.skip_while_dead && facts.owner.permit != Permit::SkipWhileDead
            } else {
                rule.rungs.contains(&Rung::Skip)
            };
            if skips && rule.mode == AutoBreak::On && facts.owner.ceiling == Ceiling::Open && !facts.may_skip
            {
                let configurations = unusable.entry(Arc::clone(&rule.name)).or_default();
                configurations.insert(Arc::clone(&id.configuration));
            }
        }
        unusable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    fn rule(name: &str, configurations: &[&str]) -> PolicyRule {
        PolicyRule {
            name: name.into(),
            matches: Matches {
                configurations: configurations.iter().map(|text| pattern(text)).collect(),
                ..Matches::default()
            },
            ..PolicyRule::fallback()
        }
    }

    fn hook(configuration: &str) -> HookId {
        HookId::new(HookKind::Validating, configuration, "w")
    }

    #[test]
    fn the_first_rule_that_matches_counts_and_without_one_the_ceiling_is_shield() {
        let policy = Policy {
            rules: vec![rule("a", &["opa"]), rule("b", &["op*"])],
            ..Policy::default()
        };
        let name = |configuration: &str| {
            let rule = policy.rule(&hook(configuration), &PolicySubject::default(), Cause::Hanging);
            rule.name.to_string()
        };
        assert_eq!((name("opa").as_str(), name("opal").as_str()), ("a", "b"));
        assert_eq!(name("other"), "default");
        let fallback = policy.rule(&hook("other"), &PolicySubject::default(), Cause::Hanging);
        assert_eq!(fallback.rungs, BTreeSet::from([Rung::Shield]));
    }

    #[test]
    fn a_rule_matches_only_where_each_of_its_conditions_is_met() {
        let matches = Matches {
            kinds: BTreeSet::from([HookKind::Validating]),
            configurations: vec![pattern("opa*")],
            webhooks: vec![pattern("*w")],
            labels: Labels::from([("team".into(), "a".into())]),
            annotations: BTreeMap::from([("tier".into(), "1".into())]),
            causes: BTreeSet::from([Cause::Hanging]),
        };
        let subject = PolicySubject {
            labels: Labels::from([("team".into(), "a".into()), ("x".into(), "y".into())]),
            annotations: BTreeMap::from([("tier".into(), "1".into())]),
        };
        assert!(matches.matches(&hook("opa-1"), &subject, Cause::Hanging));
        let mutating = HookId::new(HookKind::Mutating, "opa-1", "w");
        assert!(!matches.matches(&mutating, &subject, Cause::Hanging));
        assert!(!matches.matches(&hook("ops"), &subject, Cause::Hanging));
        assert!(!matches.matches(&hook("opa-1"), &PolicySubject::default(), Cause::Hanging));
        assert!(!matches.matches(&hook("opa-1"), &subject, Cause::Refused));
        let other = HookId::new(HookKind::Validating, "opa-1", "v");
        assert!(!matches.matches(&other, &subject, Cause::Hanging));
    }

    #[test]
    fn an_unreadable_annotation_permits_nothing() {
        let permitted = |text: Option<&str>| {
            let ceiling = Ceiling::read(text);
            Rung::ALL
                .iter()
                .copied()
                .filter(|rung| ceiling.permits(*rung))
                .count()
        };
        assert_eq!(permitted(None), 2);
        assert_eq!((permitted(Some("skip")), permitted(Some(" Shield "))), (2, 1));
        // Once there was a farther rung.
        assert_eq!(permitted(Some("Ignore")), 2);
        for text in ["off", "OFF", "", "on", "{}", "shield,skip", "\u{1F4A5}"] {
            assert_eq!(permitted(Some(text)), 0, "{text:?}");
        }
    }

    #[test]
    fn an_annotation_other_than_skip_while_dead_permits_nothing_more() {
        assert_eq!(Permit::read(None), Permit::Nothing);
        assert_eq!(Permit::read(Some(" skip-while-dead ")), Permit::SkipWhileDead);
        for text in ["", "skip", "Skip-While-Dead", "skip-while-dead,ignore", "true"] {
            assert_eq!(Permit::read(Some(text)), Permit::Unreadable, "{text:?}");
        }
    }

    #[test]
    fn a_pattern_that_matches_a_configuration_does_not_name_it() {
        assert!(rule("a", &["x*", "opa"]).names("opa"));
        assert!(!rule("a", &["opa*", "*"]).names("opa"));
        assert!(!rule("a", &[]).names("opa"));
    }

    #[test]
    fn a_pattern_is_a_name_or_one_end_of_it() {
        assert!(pattern("*").matches("anything"));
        assert!(pattern("a*").matches("ab") && !pattern("a*").matches("ba"));
        assert!(pattern("*a").matches("ba") && !pattern("*a").matches("ab"));
        assert!(pattern("a").matches("a") && !pattern("a").matches("ab"));
        for text in ["", "a*b", "**", "*a*"] {
            assert!(Pattern::parse(text).is_err(), "{text:?}");
        }
    }
}
