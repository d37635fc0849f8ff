//! Objects admitted without review: those written while a hook that matches them was bypassed or failed open.
//!
//! An object records when it was created, and when each of its writers last changed it (`metadata.managedFields`). Comparing
//! that with the hook's rules and selectors yields a list of objects to review. Its limits: objects deleted since, or changed
//! again by the same writer, are missing, and whether the hook would have objected is unknown.

mod gaps;
mod report;

use std::time::Duration;

use serde::Serialize;

use crate::act::bypass::Rung;
use crate::cluster::condition::spare::Spare;
use crate::cluster::hook::{Hook, Labels};
use crate::cluster::matching::RequestShape;
use crate::text::dotted;
use crate::time::{Time, WallReading};

pub use gaps::Gaps;
pub use report::{NotListed, ObjectTally, Unchecked, UncheckedObjects};

/// Tolerance in comparisons with the times in objects, which are whole seconds by an API server's clock.
const GRAIN: Duration = Duration::from_secs(1);

/// Why a hook did not review writes that match it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// It was shielded: it was not called for the writes that keep the control plane alive.
    Shielded,
    /// Its calls failed and its `failurePolicy` was `Ignore`, set by its owner or by hookwatch.
    FailedOpen,
    /// It was skipped: it was not called at all.
    Skipped,
}

impl From<Rung> for GapReason {
    fn from(rung: Rung) -> Self {
        match rung {
            Rung::Shield => Self::Shielded,
            Rung::Skip => Self::Skipped,
        }
    }
}

/// A period in which a hook did not review writes that match it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReviewGap {
    /// When reviews stopped.
    pub from: Time,
    /// When reviews resumed.
    pub to: Time,
    /// Why the hook did not review.
    pub way: GapReason,
}

impl ReviewGap {
    /// The same gap in wall-clock time, in which the API server dates objects.
    pub fn dated(self, wall: WallReading) -> Self {
        Self {
            from: wall.date(self.from),
            to: wall.date(self.to),
            way: self.way,
        }
    }
}

/// A resource that an API server serves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Served {
    /// The API group; empty for the core group.
    pub group: String,
    /// The served versions, the preferred one first.
    pub versions: Vec<String>,
    /// The resource, in the plural.
    pub resource: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

impl Served {
    /// The resource's name for `kubectl`, such as `deployments.apps`.
    pub fn name(&self) -> String {
        dotted(&self.resource, &self.group)
    }
}

/// The parts of an object's metadata that show when it was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedObject {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: Option<String>,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.creationTimestamp`.
    pub created: Option<Time>,
    /// When each writer last changed the object, and through which subresource (empty for the object itself).
    pub changed: Vec<(Time, String)>,
}

/// How an object was written in the gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Went {
    /// It was created.
    Created,
    /// It existed before, and was changed.
    Updated,
}

/// What to search for: objects that a hook did not review in a gap.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The hook in its original form.
    pub hook: &'a Hook,
    /// When it did not review, and why.
    pub gap: ReviewGap,
    /// hookwatch's own namespace, whose objects a shield spares.
    pub own: &'a str,
}

impl Question<'_> {
    /// Whether objects of this resource can be among those that the hook did not review.
    pub fn concerns(&self, served: &Served) -> bool {
        let hook = self.hook;
        let subresources = hook.rules.iter().flat_map(|rule| &rule.resources);
        let subresources = subresources.map(|resource| match resource.split_once('/') {
            Some((_, "*")) | None => "",
            Some((_, subresource)) => subresource,
        });
        let namespaces = if served.namespaced {
            [Some("any"), Some("kube-system")]
        } else {
            [None, None]
        };
        let mut subresources: Vec<&str> = subresources.chain([""]).collect();
        subresources.sort_unstable();
        subresources.dedup();
        subresources.into_iter().any(|subresource| {
            namespaces.into_iter().any(|namespace| {
                ["CREATE", "UPDATE"].into_iter().any(|operation| {
                    let request = RequestShape {
                        operation,
                        subresource,
                        namespace,
                        ..RequestShape::default()
                    };
                    self.asks(served, request)
                })
            })
        })
    }

    /// How the object was written in the gap, if the hook should have reviewed that write; else `None`. `namespace_labels` are the
    /// labels of the object's namespace; `None` means unknown and excludes nothing.
    pub fn went(
        &self,
        served: &Served,
        seen: &ObservedObject,
        namespace_labels: Option<&Labels>,
    ) -> Option<Went> {
        let within = |at: Time| at + GRAIN > self.gap.from && at <= self.gap.to + GRAIN;
        let is_update = |at: Time| seen.created.is_none_or(|created| at > created + GRAIN);
        // Writes of a status or another subresource do not change labels.
        let relabels =
            |(at, below): &(Time, String)| below.is_empty() && is_update(*at) && *at + GRAIN > self.gap.from;
        let keeps_labels = !seen.changed.iter().any(relabels);
        let request = |operation, subresource| RequestShape {
            operation,
            subresource,
            namespace: seen.namespace.as_deref(),
            namespace_labels,
            // `objectSelector` matches an update by its old or its new labels: an update may have removed the label that matched.
            object_labels: Some(&seen.labels).filter(|_| keeps_labels),
            ..RequestShape::default()
        };
        if seen.created.is_some_and(within) && self.asks(served, request("CREATE", "")) {
            return Some(Went::Created);
        }
        let mut changed = seen.changed.iter();
        let updated = changed.any(|(at, subresource)| {
            within(*at) && is_update(*at) && self.asks(served, request("UPDATE", subresource))
        });
        updated.then_some(Went::Updated)
    }

    /// Whether the hook would have been called for this request without the gap, and was not.
    fn asks(&self, served: &Served, request: RequestShape<'_>) -> bool {
        // By default (`matchPolicy: Equivalent`) a rule for one version covers the others as well.
        served.versions.iter().any(|version| {
            let request = RequestShape {
                group: &served.group,
                version,
                resource: &served.resource,
                ..request
            };
            let (own, added) = (self.own, &self.hook.added);
            let unchecked = self.gap.way != GapReason::Shielded
                || Spare {
                    hookwatch_namespace: own,
                    added,
                }
                .spares(&request, None);
            unchecked && self.hook.could_match(&request)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::hook::Selector;
    use crate::cluster::matching::tests::hook;

    fn at(seconds: u64) -> Time {
        Time::from_unix_millis(1_795_219_862_000 + seconds * 1_000)
    }

    fn question(hook: &Hook, way: GapReason) -> Question<'_> {
        Question {
            hook,
            gap: ReviewGap {
                from: at(100),
                to: at(200),
                way,
            },
            own: "hookwatch",
        }
    }

    fn pods() -> Served {
        Served {
            group: String::new(),
            versions: vec!["v1".to_owned()],
            resource: "pods".to_owned(),
            namespaced: true,
        }
    }

    fn pod(namespace: &str, created: u64, changed: &[(u64, &str)]) -> ObservedObject {
        let changed = changed.iter();
        ObservedObject {
            name: "p".to_owned(),
            namespace: Some(namespace.to_owned()),
            created: Some(at(created)),
            changed: changed
                .map(|(seconds, subresource)| (at(*seconds), (*subresource).to_owned()))
                .collect(),
            ..ObservedObject::default()
        }
    }

    #[test]
    fn what_was_made_or_changed_meanwhile_counts_and_nothing_else() {
        let hook = hook(&["pods"]);
        let question = question(&hook, GapReason::Skipped);
        let went =
            |created, changed: &[(u64, &str)]| question.went(&pods(), &pod("tenant", created, changed), None);
        assert_eq!(went(150, &[(150, "")]), Some(Went::Created));
        assert_eq!(went(50, &[(50, ""), (150, "")]), Some(Went::Updated));
        assert_eq!(went(50, &[(50, ""), (250, "")]), None);
        assert_eq!(went(250, &[(250, "")]), None);
        // To the second, and on another clock: rather one too many.
        assert_eq!(went(100, &[]), Some(Went::Created));
        assert_eq!(went(201, &[]), Some(Went::Created));
        assert_eq!((went(98, &[]), went(202, &[])), (None, None));
    }

    #[test]
    fn a_change_of_the_status_counts_where_the_hook_is_asked_about_that() {
        let seen = pod("tenant", 50, &[(150, "status")]);
        for (resources, expected) in [
            (["pods"], None),
            (["pods/status"], Some(Went::Updated)),
            (["*/*"], Some(Went::Updated)),
        ] {
            let hook = hook(&resources);
            assert_eq!(
                question(&hook, GapReason::Skipped).went(&pods(), &seen, None),
                expected
            );
        }
    }

    #[test]
    fn what_is_made_is_no_update_of_a_hook_that_is_asked_about_updates_alone() {
        let mut hook = hook(&["pods"]);
        hook.rules[0].operations = vec!["UPDATE".to_owned()];
        let question = question(&hook, GapReason::FailedOpen);
        let made = pod("tenant", 150, &[(150, "")]);
        assert_eq!(question.went(&pods(), &made, None), None);
        let changed = pod("tenant", 150, &[(150, ""), (160, "")]);
        assert_eq!(question.went(&pods(), &changed, None), Some(Went::Updated));
    }

    #[test]
    fn selectors_leave_out_what_the_hook_is_never_asked_about() {
        let mut hook = hook(&["*"]);
        let label = |value: &str| Labels::from([("team".to_owned(), value.to_owned())]);
        hook.namespace_selector = Selector {
            match_labels: label("a"),
            expressions: Vec::new(),
        };
        let (question, made) = (question(&hook, GapReason::Skipped), pod("tenant", 150, &[]));
        let (own, other) = (label("a"), label("b"));
        assert_eq!(question.went(&pods(), &made, Some(&other)), None);
        assert_eq!(question.went(&pods(), &made, Some(&own)), Some(Went::Created));
        assert_eq!(question.went(&pods(), &made, None), Some(Went::Created));
    }

    #[test]
    fn an_update_may_have_taken_the_label_away_by_which_it_met_the_hook() {
        let mut hook = hook(&["pods"]);
        hook.object_selector.match_labels = Labels::from([("app".to_owned(), "web".to_owned())]);
        let question = question(&hook, GapReason::Skipped);
        let went =
            |created, changed: &[(u64, &str)]| question.went(&pods(), &pod("tenant", created, changed), None);
        assert_eq!(went(50, &[(50, ""), (150, "")]), Some(Went::Updated));
        assert_eq!(went(150, &[(150, ""), (180, "")]), Some(Went::Created));
        assert_eq!(went(150, &[(150, ""), (250, "")]), Some(Went::Created));
        assert_eq!(
            went(150, &[(150, ""), (180, "status")]),
            None,
            "it has the labels that it was made with"
        );
    }

    #[test]
    fn below_a_shield_a_tenants_objects_were_checked() {
        let hook = hook(&["*", "pods/status"]);
        let question = question(&hook, GapReason::Shielded);
        let went = |seen: &ObservedObject| question.went(&pods(), seen, None);
        assert_eq!(went(&pod("tenant", 150, &[])), None);
        assert_eq!(went(&pod("kube-system", 150, &[])), Some(Went::Created));
        assert_eq!(went(&pod("hookwatch", 150, &[])), Some(Went::Created));
        // How a tenant's Pod is, say nodes, which a shield spares.
        assert_eq!(went(&pod("tenant", 50, &[(150, "status")])), Some(Went::Updated));
    }

    #[test]
    fn kinds_are_listed_that_the_hook_is_asked_about_in_any_version() {
        let mut hook = hook(&["deployments", "deployments/scale"]);
        hook.rules[0].api_groups = vec!["apps".to_owned()];
        hook.rules[0].api_versions = vec!["v1".to_owned()];
        let deployments = Served {
            group: "apps".to_owned(),
            versions: vec!["v2".to_owned(), "v1".to_owned()],
            resource: "deployments".to_owned(),
            namespaced: true,
        };
        assert!(question(&hook, GapReason::Skipped).concerns(&deployments));
        assert!(!question(&hook, GapReason::Skipped).concerns(&pods()));
        assert!(
            question(&hook, GapReason::Shielded).concerns(&deployments),
            "in kube-system"
        );
        let roles = Served {
            group: "apps".to_owned(),
            namespaced: false,
            ..deployments
        };
        assert!(!question(&hook, GapReason::Shielded).concerns(&roles));
    }

    #[test]
    fn times_are_read_as_objects_have_them() {
        assert_eq!(Time::parse("2026-11-21T00:11:02Z"), Some(at(0)));
        assert_eq!((Time::parse("yesterday"), Time::parse("")), (None, None));
    }
}
