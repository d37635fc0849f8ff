//! The objects admitted without review, counted and put into words.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::{GapReason, ObservedObject, Question, ReviewGap, Served, Went};
use crate::cluster::hook::{HookId, HookKind, Labels};
use crate::text::bounded;

/// Most lines of a report. Each is one resource in one namespace.
const MOST_LINES: usize = 200;
/// Most object names in a line.
const MOST_NAMES: usize = 5;
/// Most resources that are named in one sentence.
const MOST_NAMED: usize = 5;

/// The objects of one resource in one namespace that were admitted without review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UncheckedObjects {
    /// The resource's name for `kubectl`, such as `deployments.apps`.
    pub resource: String,
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// How many were created in the gap.
    pub created: usize,
    /// How many were created earlier and changed in the gap.
    pub updated: usize,
    /// The names of the first 5.
    pub names: Vec<String>,
}

/// A resource that could not be listed completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotListed {
    /// The resource's name for `kubectl`, such as `deployments.apps`.
    pub resource: String,
    /// Why it could not be listed completely.
    pub why: String,
}

/// Objects admitted without review, as far as they could be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unchecked {
    /// The hook.
    #[serde(flatten)]
    pub hook: HookId,
    /// When it did not review, and why.
    #[serde(flatten)]
    pub gap: ReviewGap,
    /// What was found, by resource and namespace; at most 200 entries.
    pub found: Vec<UncheckedObjects>,
    /// How many further objects were found, in resources and namespaces beyond the limit of `found`.
    pub further: usize,
    /// Resources that could not be listed completely.
    pub not_listed: Vec<NotListed>,
    /// The hook has match conditions of its owner, by which some of these objects may need no review.
    pub has_conditions: bool,
}

/// Counts objects by resource and namespace while they are listed.
#[derive(Debug)]
pub struct ObjectTally<'a> {
    /// Which objects to count.
    pub question: Question<'a>,
    lines: BTreeMap<(String, Option<String>), UncheckedObjects>,
    further: usize,
    not_listed: Vec<NotListed>,
}

impl<'a> ObjectTally<'a> {
    /// A tally without any objects.
    pub fn new(question: Question<'a>) -> Self {
        Self {
            question,
            lines: BTreeMap::new(),
            further: 0,
            not_listed: Vec::new(),
        }
    }

    /// Counts an object if the hook should have reviewed its write.
    pub fn take(&mut self, served: &Served, seen: &ObservedObject, namespace_labels: Option<&Labels>) {
        let Some(went) = self.question.went(served, seen, namespace_labels) else {
            return;
        };
        let key = (served.name(), seen.namespace.clone());
        if !self.lines.contains_key(&key) && self.lines.len() >= MOST_LINES {
            self.further += 1;
            return;
        }
        let found = self
            .lines
            .entry(key)
            .or_insert_with_key(|(resource, namespace)| UncheckedObjects {
                resource: resource.clone(),
                namespace: namespace.clone(),
                created: 0,
                updated: 0,
                names: Vec::new(),
            });
        match went {
            Went::Created => found.created += 1,
            Went::Updated => found.updated += 1,
        }
        if found.names.len() < MOST_NAMES {
            found.names.push(seen.name.clone());
        }
    }

    /// Records that a resource could not be listed completely.
    pub fn not_listed(&mut self, resource: &str, why: &str) {
        self.not_listed.push(NotListed {
            resource: resource.to_owned(),
            why: bounded(why),
        });
    }

    /// The result, once everything has been listed.
    pub fn end(self) -> Unchecked {
        let Question { hook, gap, .. } = self.question;
        Unchecked {
            hook: hook.id.clone(),
            gap,
            found: self.lines.into_values().collect(),
            further: self.further,
            not_listed: self.not_listed,
            has_conditions: hook.owners_conditions().next().is_some(),
        }
    }
}

impl Unchecked {
    /// The number of objects found.
    pub fn count(&self) -> usize {
        let found = self.found.iter().map(|found| found.created + found.updated);
        found.sum::<usize>() + self.further
    }

    /// A summary in one to three sentences, at most 1024 bytes.
    pub fn sentence(&self) -> String {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for found in &self.found {
            *kinds.entry(&found.resource).or_default() += found.created + found.updated;
        }
        let mut kinds: Vec<(&str, usize)> = kinds.into_iter().collect();
        kinds.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        let mut text = match self.count() {
            0 if !self.not_listed.is_empty() => {
                format!(
                    "Whether objects were admitted without review {} is not known.",
                    self.when()
                )
            }
            0 => format!("No objects were admitted without review {}.", self.when()),
            count => {
                let named = kinds.iter().take(MOST_NAMED);
                let named: Vec<String> = named.map(|(name, count)| format!("{count} {name}")).collect();
                let more = if kinds.len() > MOST_NAMED { ", ..." } else { "" };
                let (objects, are) = if count == 1 {
                    ("object", "is")
                } else {
                    ("objects", "are")
                };
                format!(
                    "{count} {objects} admitted without review {} {are} still there: {}{more}.",
                    self.when(),
                    named.join(", ")
                )
            }
        };
        if let Some(first) = self.not_listed.first() {
            let others = self.not_listed.len() - 1;
            let names: Vec<&str> = self
                .not_listed
                .iter()
                .take(MOST_NAMED)
                .map(|it| it.resource.as_str())
                .collect();
            let more = if others >= MOST_NAMED { ", ..." } else { "" };
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                " Not, or not wholly, listed: {}{more} ({}).",
                names.join(", "),
                first.why
            );
        }
        if self.hook.kind == HookKind::Mutating && self.count() > 0 {
            let _ = write!(text, " {NOT_UNDONE}");
        }
        bounded(&text)
    }

    /// The report as lines: one for each resource in each namespace, and the limits of the search.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}: {}", self.hook.object(), self.when())];
        for found in &self.found {
            let place = match &found.namespace {
                Some(namespace) => format!("{} in {namespace}", found.resource),
                None => found.resource.clone(),
            };
            let more = if found.created + found.updated > found.names.len() {
                ", ..."
            } else {
                ""
            };
            lines.push(format!(
                "  {place}: {} made, {} changed ({}{more})",
                found.created,
                found.updated,
                found.names.join(", ")
            ));
        }
        match self.count() {
            0 => lines.push("  nothing was found".to_owned()),
            _ if self.further > 0 => lines.push(format!("  and {} in further namespaces", self.further)),
            _ => {}
        }
        for kind in &self.not_listed {
            lines.push(format!(
                "  not, or not wholly, listed: {}: {}",
                kind.resource, kind.why
            ));
        }
        lines.push(
            "What has been deleted since, or changed again by the same writer, is not among them.".to_owned(),
        );
        if self.has_conditions {
            lines.push("The webhook's own match conditions may have spared some of them.".to_owned());
        }
        if self.gap.way == GapReason::FailedOpen {
            lines.push(
                "Calls that did not fail were checked, which nothing tells from the others.".to_owned(),
            );
        }
        if self.hook.kind == HookKind::Mutating {
            lines.push(NOT_UNDONE.to_owned());
        }
        lines
    }

    fn when(&self) -> String {
        let how = match self.gap.way {
            GapReason::Shielded => "past its shield",
            GapReason::FailedOpen => "while its failures were ignored",
            GapReason::Skipped => "while it was skipped",
        };
        format!("{how}, from {} to {}", self.gap.from, self.gap.to)
    }
}

/// A remark about mutating hooks: reviewing an object later does not apply their changes.
const NOT_UNDONE: &str = "The webhook is mutating: that it is asked again does not give these objects what it would have \
                          added.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::hook::MatchCondition;
    use crate::cluster::matching::tests::hook;
    use crate::time::Time;

    fn at(seconds: u64) -> Time {
        Time::from_unix_millis(1_795_219_862_000 + seconds * 1_000)
    }

    fn served(resource: &str, namespaced: bool) -> Served {
        Served {
            group: String::new(),
            versions: vec!["v1".to_owned()],
            resource: resource.to_owned(),
            namespaced,
        }
    }

    fn made(name: &str, namespace: Option<&str>) -> ObservedObject {
        ObservedObject {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
            created: Some(at(10)),
            ..ObservedObject::default()
        }
    }

    fn tallied(kind: HookKind, way: GapReason, fill: impl FnOnce(&mut ObjectTally<'_>)) -> Unchecked {
        let mut hook = hook(&["*"]);
        hook.id.kind = kind;
        let (from, to) = (at(0), at(60));
        let gap = ReviewGap { from, to, way };
        let mut tally = ObjectTally::new(Question {
            hook: &hook,
            gap,
            own: "hookwatch",
        });
        fill(&mut tally);
        tally.end()
    }

    #[test]
    fn it_is_told_by_kind_and_namespace_with_the_first_names() {
        let report = tallied(HookKind::Validating, GapReason::Skipped, |tally| {
            for number in 0..7 {
                let name = format!("p{number}");
                tally.take(&served("pods", true), &made(&name, Some("a")), None);
            }
            tally.take(&served("pods", true), &made("q", Some("b")), None);
            tally.take(&served("nodes", false), &made("n", None), None);
            tally.not_listed("secrets", "HTTP 403: no");
        });
        assert_eq!(report.count(), 9);
        let lines = report.lines().join("\n");
        for line in [
            "  pods in a: 7 made, 0 changed (p0, p1, p2, p3, p4, ...)",
            "  pods in b: 1 made, 0 changed (q)",
            "  nodes: 1 made, 0 changed (n)",
            "  not, or not wholly, listed: secrets: HTTP 403: no",
        ] {
            assert!(lines.contains(line), "{lines}");
        }
        assert_eq!(
            report.sentence(),
            "9 objects admitted without review while it was skipped, from 2026-11-21T00:11:02.000Z to \
             2026-11-21T00:12:02.000Z are still there: 8 pods, 1 nodes. Not, or not wholly, listed: secrets (HTTP \
             403: no)."
        );
        assert!(!lines.contains("mutating"));
    }

    #[test]
    fn where_nothing_could_be_listed_nothing_is_said_of_what_went_in() {
        let report = tallied(HookKind::Validating, GapReason::Skipped, |tally| {
            tally.not_listed("secrets", "HTTP 403: no");
        });
        let said = report.sentence();
        assert!(
            said.starts_with("Whether objects were admitted without review while it was skipped"),
            "{said}"
        );
        assert!(
            said.contains("is not known. Not, or not wholly, listed: secrets"),
            "{said}"
        );
    }

    #[test]
    fn of_a_mutating_hook_it_is_said_that_nothing_is_made_up_for() {
        let fill =
            |tally: &mut ObjectTally<'_>| tally.take(&served("pods", true), &made("p", Some("a")), None);
        let report = tallied(HookKind::Mutating, GapReason::FailedOpen, fill);
        assert!(report.sentence().contains("does not give these objects"));
        let lines = report.lines().join("\n");
        assert!(lines.contains("does not give these objects") && lines.contains("nothing tells"));
        let nothing = tallied(HookKind::Mutating, GapReason::Skipped, |_| {});
        assert!(
            nothing
                .sentence()
                .starts_with("No objects were admitted without review while it was skipped")
        );
        assert!(!nothing.sentence().contains("mutating"));
    }

    #[test]
    fn the_list_and_its_sentence_are_bounded() {
        let report = tallied(HookKind::Mutating, GapReason::Skipped, |tally| {
            for number in 0..MOST_LINES + 30 {
                let namespace = format!("namespace-{number:0200}");
                tally.take(&served("pods", true), &made("p", Some(&namespace)), None);
                tally.not_listed(&namespace, &"x".repeat(5_000));
            }
        });
        assert_eq!((report.found.len(), report.further), (MOST_LINES, 30));
        assert_eq!(report.count(), MOST_LINES + 30);
        assert!(report.sentence().len() <= 1_024);
        assert!(report.not_listed.iter().all(|it| it.why.len() <= 1_024));
    }

    #[test]
    fn the_owners_own_conditions_are_told_of_and_ours_are_not() {
        let mut hook = hook(&["*"]);
        let gap = ReviewGap {
            from: at(0),
            to: at(60),
            way: GapReason::Skipped,
        };
        for (name, expected) in [("hookwatch.dev/skip", false), ("theirs", true)] {
            hook.match_conditions = vec![MatchCondition {
                name: name.to_owned(),
                expression: "true".to_owned(),
            }];
            let own = "hookwatch";
            let question = Question {
                hook: &hook,
                gap,
                own,
            };
            assert_eq!(ObjectTally::new(question).end().has_conditions, expected);
        }
    }
}
