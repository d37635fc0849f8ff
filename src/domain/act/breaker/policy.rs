//! What the operator permits: ordered rules, of which the first that matches a hook applies. Annotations of a configuration's
//! owner restrict that, or extend it in one respect ([`PERMIT_ANNOTATION`]).

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

/// The annotation by which the owner of a configuration permits more than the rules do. It does not raise the ceiling.
pub const PERMIT_ANNOTATION: &str = "hookwatch.dev/permit";

/// What the owner of a configuration permits by [`PERMIT_ANNOTATION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub enum Permit {
    /// Nothing: the policy alone decides.
    #[default]
    Nothing,
    /// To skip a validating webhook with `failurePolicy: Ignore` while it is dead.
    SkipWhileDead,
    /// Nothing, as the value is unknown.
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

/// What happens when a bypass reaches its time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AtLimit {
    /// The bypass stays, and a page is sent.
    Hold,
    /// The original is restored even if the webhook still fails, and a page is sent.
    Restore,
}

named!(AtLimit, "The name as it stands in the configuration.", parse);

/// A name, or the beginning or end of a name with a `*` for the rest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When it is empty, has several `*`, or has one in the middle.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a pattern must not be empty".to_owned());
        }
        let rest = text.strip_suffix('*').or_else(|| text.strip_prefix('*'));
        if rest.unwrap_or(text).contains('*') {
            return Err(format!("{text:?} may have one * only, at its beginning or end"));
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether it matches a name.
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

/// Which hooks a rule applies to. An empty condition matches every hook.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleMatch {
    /// Mutating or validating.
    pub kinds: BTreeSet<HookKind>,
    /// Patterns of the configuration's name; one of them must match.
    pub configurations: Vec<Pattern>,
    /// Patterns of the webhook's name; one of them must match.
    pub webhooks: Vec<Pattern>,
    /// Labels of the configuration; all must be there.
    pub labels: Labels,
    /// Annotations of the configuration; all must be there.
    pub annotations: BTreeMap<String, String>,
    /// Causes of the failure; one of them must be the hook's.
    pub causes: BTreeSet<Cause>,
}

/// Labels and annotations of a hook's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PolicySubject {
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
}

/// What the owner of a configuration says by its annotations and labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OwnerAnnotations {
    /// How far a bypass may go.
    pub ceiling: Ceiling,
    /// What is permitted beyond the rules.
    pub permit: Permit,
    /// What rules can match on.
    pub subject: Arc<PolicySubject>,
}

impl RuleMatch {
    /// Whether the rule applies to a hook that fails from this cause.
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

/// One rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRule {
    /// Its name in explanations; unique.
    pub name: Arc<str>,
    /// Which hooks it applies to.
    pub matches: RuleMatch,
    /// The highest mode; the mode of the breaker can be lower.
    pub mode: AutoBreak,
    /// The rungs that may be taken.
    pub rungs: BTreeSet<Rung>,
    /// Whether a hook with `failurePolicy: Ignore` may be skipped while it is dead, regardless of `rungs`.
    pub skip_while_dead: bool,
    /// How long a hook must have been failing before it is bypassed; `None`: [`PolicyRule::hold`] of the rung.
    pub hold: Option<Duration>,
    /// How long a bypass may last; `None`: [`PolicyRule::longest`] and [`PolicyRule::longest_dead`].
    pub longest: Option<Duration>,
    /// What happens at that limit; `None`: a shield stays, a skip is restored.
    pub at_limit: Option<AtLimit>,
    /// Whom to page.
    pub page: Option<Arc<str>>,
}

impl PolicyRule {
    /// The rule for a hook that no rule matches.
    pub fn fallback() -> Self {
        Self {
            name: "default".into(),
            matches: RuleMatch::default(),
            mode: AutoBreak::On,
            rungs: BTreeSet::from([Rung::Shield]),
            skip_while_dead: false,
            hold: None,
            longest: None,
            at_limit: None,
            page: None,
        }
    }

    /// How long a hook must have been failing before it is bypassed at this rung. The wait filters out transient faults; the
    /// verdict is certain without it. A leader survives if it can renew its Lease 5 s after the fault, so a shield, which
    /// costs next to nothing, waits less than a skip. Where a rule permits skips, its `hold` is meant for them, and can only
    /// shorten that of a shield.
    pub fn hold(&self, rung: Rung) -> Duration {
        let default = match rung {
            Rung::Shield => Duration::from_secs(1),
            Rung::Skip => Duration::from_secs(2),
        };
        let permits_skip = self.skip_while_dead || self.rungs.contains(&Rung::Skip);
        match self.hold {
            Some(hold) if rung == Rung::Shield && permits_skip => hold.min(default),
            hold => hold.unwrap_or(default),
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

    /// Whether one of its patterns is exactly this configuration's name.
    pub fn names(&self, configuration: &str) -> bool {
        let mut patterns = self.matches.configurations.iter();
        patterns.any(|pattern| pattern.0 == configuration)
    }

    /// What happens when a bypass at this rung reaches its time limit.
    pub fn at_limit(&self, rung: Rung) -> AtLimit {
        // A shield costs next to nothing. With a skip, more objects are admitted without review every hour.
        self.at_limit.unwrap_or(match rung {
            Rung::Shield => AtLimit::Hold,
            Rung::Skip => AtLimit::Restore,
        })
    }
}

/// Everything that the operator permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// The rules; the first that matches applies.
    pub rules: Vec<PolicyRule>,
    /// The rule for hooks that none of them matches.
    pub fallback: PolicyRule,
    /// Most shields at once, over all replicas, among hooks with at least the same stake. Shields of hooks that fail together
    /// count as one.
    pub most_shielded: usize,
    /// Most skips at once, over all replicas, among hooks with at least the same stake.
    pub most_skipped: usize,
    /// Most skips that begin within [`Policy::rate_window`], over all replicas. Shields have no such limit: one that comes too
    /// late costs leaders, and a hook that keeps relapsing is restored ever later.
    pub rate: usize,
    /// The time over which [`Policy::rate`] counts.
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
    /// The rule that applies to a hook that fails from this cause.
    pub fn rule(&self, id: &HookId, subject: &PolicySubject, cause: Cause) -> &PolicyRule {
        let mut rules = self.rules.iter();
        rules
            .find(|rule| rule.matches.matches(id, subject, cause))
            .unwrap_or(&self.fallback)
    }

    /// Rules that permit skips which neither the owner nor the fence permits, each with the configurations concerned. A
    /// configuration whose owner restricts the bypass is not listed.
    pub fn unusable(&self, hooks: &BTreeMap<HookId, HookFacts>) -> BTreeMap<Arc<str>, BTreeSet<Arc<str>>> {
        let mut unusable = BTreeMap::<_, BTreeSet<_>>::new();
        for (id, facts) in hooks {
            let rule = self.rule(id, &facts.owner.subject, facts.cause.unwrap_or(Cause::Hanging));
            let permits_skip = if facts.ignores {
                // Otherwise the rule permits nothing (`dead`), whatever the fence does.
                let names = id.kind != HookKind::Mutating || rule.names(&id.configuration);
                names && rule.skip_while_dead && facts.owner.permit != Permit::SkipWhileDead
            } else {
                rule.rungs.contains(&Rung::Skip)
            };
            if permits_skip
                && rule.mode == AutoBreak::On
                && facts.owner.ceiling == Ceiling::Open
                && !facts.may_skip
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
            matches: RuleMatch {
                configurations: configurations.iter().map(|text| pattern(text)).collect(),
                ..RuleMatch::default()
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
        let matches = RuleMatch {
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
        // The name of a higher rung of older releases.
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
