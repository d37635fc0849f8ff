//! Which requests of the control plane a webhook is called for by its rules, its selectors and its owner's conditions, and
//! whether these treat hookwatch's canaries like the control plane's requests.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::condition::SHIELDED_NAMESPACES;
use crate::cluster::condition::spare::Spare;
use crate::cluster::hook::{Hook, HookId, HookRule, Labels, Scope};
use crate::cluster::inventory::Inventory;
use crate::cluster::matching::conditions::{ConditionCompiler, ConditionRequest, MatchConditions};
use crate::cluster::matching::requesters::{ADMIN, API_SERVER, MANAGER, SCHEDULER, by, controller, node};
use crate::cluster::matching::{LEASES, RequestShape, Requester};
use crate::observe::canary::{CanaryTarget, FurtherCanary, OBJECT};
use crate::observe::observations::canary_write::{CONFIG_MAPS, CanaryWrite};
use crate::text::{own_account, own_groups};

/// Most condition evaluations for one webhook: enough for a thousand requests with four conditions.
const MOST_OF_ONE: usize = 4_096;

/// Most condition evaluations after one inventory change, for all webhooks together. Without it, thousands of webhooks with long
/// conditions would keep hookwatch busy for a minute. The remaining ones are evaluated after the next changes; until then their
/// conditions count as not evaluable.
const MOST_AT_ONCE: usize = 16_384;

/// The cost of compiling a condition, in evaluations.
const TO_COMPILE: usize = 8;

const SOME_NAME: &str = "x";

/// Writers that exist in every cluster, one of each kind that conditions distinguish.
const WRITERS: [Requester<'static>; 7] = [
    SCHEDULER,
    MANAGER,
    NODE,
    API_SERVER,
    controller("system:serviceaccount:kube-system:generic-garbage-collector"),
    by(
        "system:serviceaccount:default:default",
        &[
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated",
        ],
    ),
    ADMIN,
];
const NODE: Requester<'static> = node("system:node:x");

/// Leases that leaders and nodes of every cluster renew every few seconds: namespace, name, and the writer.
const RENEWALS: [(&str, &str, Requester<'static>); 3] = [
    ("kube-system", "kube-scheduler", SCHEDULER),
    ("kube-system", "kube-controller-manager", MANAGER),
    ("kube-node-lease", SOME_NAME, NODE),
];

/// The most important request that a shield would spare among those that a webhook is called for; later variants are more
/// certain to harm the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spared {
    /// It is called for no such request.
    Nothing,
    /// Its rules cover such requests, but its selectors and conditions let none through from a known writer. Only counted calls
    /// can show whether there are any.
    NoKnownWriter,
    /// It is called for writes of the control plane.
    ControlPlane,
    /// It is certainly called for renewals of leaders' or nodes' Leases.
    Renewals,
}

/// The requests that a webhook is called for, as far as a bypass and the canaries depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchedTraffic {
    /// The requests among them that a shield would spare.
    pub spared: Spared,
    /// Whether it treats hookwatch's canaries unlike the same writes of other users.
    pub singles_out_canaries: bool,
}

/// The result for one webhook.
#[derive(Debug)]
struct KnownTraffic {
    hook: Arc<Hook>,
    matched: MatchedTraffic,
    /// The canaries that rules, selectors and conditions certainly keep from it.
    kept: BTreeSet<CanaryTarget>,
    /// The budget of all webhooks was used up before its conditions were evaluated.
    is_unfinished: bool,
}

/// Which requests each webhook is called for.
#[derive(Debug, Default)]
pub struct TrafficByHook {
    known: BTreeMap<HookId, KnownTraffic>,
    /// The labels of the canaries' and shielded namespaces with which `known` was computed.
    labels: Vec<Option<Labels>>,
}

impl TrafficByHook {
    /// Updates the results for a new inventory. `own` is hookwatch's namespace; `further` are the configured canaries.
    pub fn take(&mut self, inventory: &Inventory, own: &str, further: &[FurtherCanary]) {
        let labels = |namespace: &str| inventory.namespaces.get(namespace);
        let [system, leases] = SHIELDED_NAMESPACES;
        let canaries = CanaryWrite::all(own, further);
        let namespaces = canaries
            .iter()
            .map(|canary| canary.namespace)
            .chain([system, leases]);
        let by: Vec<Option<Labels>> = namespaces.map(|known| labels(known).cloned()).collect();
        let mut before = std::mem::take(&mut self.known);
        if std::mem::replace(&mut self.labels, by) != self.labels {
            before.clear();
        }
        let compiler = ConditionCompiler::default();
        let mut left = MOST_AT_ONCE;
        let hooks = inventory.hooks.iter().map(|hook| {
            let known = before.remove(&hook.id);
            let known = known.filter(|known| {
                !known.is_unfinished && (Arc::ptr_eq(&known.hook, hook) || known.hook.asks_like(hook))
            });
            let known = known.map(|known| KnownTraffic {
                // With this pointer, comparing the next inventory is cheap while the hook is unchanged.
                hook: Arc::clone(hook),
                ..known
            });
            let known = known.unwrap_or_else(|| {
                let budget = left.min(MOST_OF_ONE);
                let subject = MatchSubject::of(hook, own, &labels, &compiler, budget);
                let (matched, kept) = subject.matched(&canaries);
                let rest = subject.left.get();
                left -= budget - rest.unwrap_or(0);
                KnownTraffic {
                    hook: Arc::clone(hook),
                    matched,
                    kept,
                    is_unfinished: rest.is_none() && budget < MOST_OF_ONE,
                }
            });
            (hook.id.clone(), known)
        });
        self.known = hooks.collect();
    }

    /// The requests that a webhook is called for and a shield would spare; [`Spared::Nothing`] for an unknown webhook.
    pub fn spared(&self, hook: &HookId) -> Spared {
        self.of(hook).map_or(Spared::Nothing, |matched| matched.spared)
    }

    /// Whether rules, selectors and the owner's conditions certainly keep a canary from a hook.
    pub fn keeps(&self, hook: &HookId, target: CanaryTarget) -> bool {
        self.known
            .get(hook)
            .is_some_and(|known| known.kept.contains(&target))
    }

    /// The result for a webhook; `None` if it is not in the inventory.
    pub fn of(&self, hook: &HookId) -> Option<MatchedTraffic> {
        self.known.get(hook).map(|known| known.matched)
    }
}

/// A webhook, and what is needed to match requests against it.
struct MatchSubject<'a> {
    hook: &'a Hook,
    /// Its owner's conditions; `None` if the budget does not even suffice to compile them.
    conditions: Option<MatchConditions>,
    /// The assumed result of conditions that cannot be evaluated: true, unless their text names hookwatch or dry runs.
    assumed: bool,
    /// How many evaluations are left; `None` once one was needed that the budget did not allow.
    left: Cell<Option<usize>>,
    own: &'a str,
    /// The labels of a namespace; unknown labels match every selector.
    labels: &'a dyn Fn(&str) -> Option<&'a Labels>,
}

impl<'a> MatchSubject<'a> {
    fn of(
        hook: &'a Hook,
        own: &'a str,
        labels: &'a dyn Fn(&str) -> Option<&'a Labels>,
        compiler: &ConditionCompiler,
        budget: usize,
    ) -> Self {
        let expressions = || hook.owners_conditions().map(|condition| &*condition.expression);
        let left = budget.checked_sub(TO_COMPILE * expressions().count());
        Self {
            hook,
            conditions: left.map(|_| compiler.conditions(expressions())),
            left: Cell::new(left),
            assumed: !expressions().any(names_hookwatch),
            own,
            labels,
        }
    }

    /// The result for this webhook, and the canaries that are certainly kept from it.
    fn matched(&self, canaries: &[CanaryWrite<'_>]) -> (MatchedTraffic, BTreeSet<CanaryTarget>) {
        let selected = self.hook.selects_hookwatch();
        let by_rules = |request: &RequestShape<'_>| self.hook.could_match(request);
        let by_all = |request: &RequestShape<'_>| {
            by_rules(request) && WRITERS.iter().any(|by| self.matches_write_of(*by, request))
        };
        let [.., canary, _] = CONFIG_MAPS;
        let not_canaries = |resource: &str| resource != canary;
        let spared = if !selected && self.is_asked_about_renewals() {
            Spared::Renewals
        } else if !selected && self.is_asked(&not_canaries, &by_all) {
            Spared::ControlPlane
        } else if self.is_asked(&|_| true, &by_rules) {
            Spared::NoKnownWriter
        } else {
            Spared::Nothing
        };
        let (kept, is_singled_out) = self.canaries(canaries);
        let matched = MatchedTraffic {
            spared,
            singles_out_canaries: selected || is_singled_out,
        };
        (matched, kept)
    }

    /// Whether its conditions let a request through; `None` if they cannot be evaluated or the budget is used up.
    fn let_through(&self, asked: &ConditionRequest<'_>) -> Option<bool> {
        let conditions = self.conditions.as_ref()?;
        let left = self
            .left
            .get()
            .and_then(|left| left.checked_sub(conditions.count()));
        self.left.set(left);
        left.and_then(|_| conditions.let_through(asked))
    }

    /// Whether its conditions let a writer's request through, or may do so as far as they cannot be evaluated.
    fn matches_write_of(&self, by: Requester<'_>, shape: &RequestShape<'_>) -> bool {
        let asked = ConditionRequest {
            shape: *shape,
            kind: None,
            name: SOME_NAME,
            by,
            dry_run: false,
        };
        self.let_through(&asked).unwrap_or(self.assumed)
    }

    /// Whether it is called for a request that a shield spares: for resources accepted by `within` in the control plane's
    /// namespaces, or for objects of certain kinds in any namespace. `asks` decides for one request.
    fn is_asked(&self, within: &dyn Fn(&str) -> bool, asks: &dyn Fn(&RequestShape<'_>) -> bool) -> bool {
        self.is_asked_about_objects(asks) || self.is_asked_within(within, asks)
    }

    fn is_asked_within(
        &self,
        counts: &dyn Fn(&str) -> bool,
        asks: &dyn Fn(&RequestShape<'_>) -> bool,
    ) -> bool {
        SHIELDED_NAMESPACES.into_iter().any(|namespace| {
            self.hook
                .rules
                .iter()
                .flat_map(operations)
                .any(|(rule, operation)| {
                    let mut resources = rule.resources.iter();
                    resources.any(|resource| {
                        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                        // Namespaces themselves are not spared, whatever their names.
                        let resource = if resource == "*" { "pods" } else { resource };
                        let subresource = if subresource == "*" { "" } else { subresource };
                        resource != "namespaces"
                            && counts(resource)
                            && rule.scope != Scope::Cluster
                            && asks(&RequestShape {
                                namespace: Some(namespace),
                                namespace_labels: (self.labels)(namespace),
                                ..RequestShape::new(
                                    operation,
                                    [rule.group(), rule.version(), resource, subresource],
                                )
                            })
                    })
                })
        })
    }

    fn is_asked_about_objects(&self, asks: &dyn Fn(&RequestShape<'_>) -> bool) -> bool {
        let spare = Spare {
            hookwatch_namespace: self.own,
            added: &self.hook.added,
        };
        let asks_in = |rule: &HookRule, namespace, operation, (group, resource, subresource)| {
            let object = [group, rule.version(), resource, subresource];
            asks(&RequestShape {
                namespace,
                namespace_labels: namespace.and_then(self.labels),
                ..RequestShape::new(operation, object)
            })
        };
        // If the table of spared objects names no namespace, a kind's scope is unknown: a cluster-scoped and a namespaced object
        // are both tried.
        self.hook
            .rules
            .iter()
            .flat_map(operations)
            .any(|(rule, operation)| {
                let mut objects = spare.objects().filter(|(spared, ..)| *spared == operation);
                objects.any(|(operation, object, namespace)| {
                    let anywhere = namespace.is_none() && asks_in(rule, None, operation, object);
                    anywhere || asks_in(rule, namespace.or(Some("")), operation, object)
                })
            })
    }

    /// Whether it is certainly called for renewals of leaders' or nodes' Leases.
    fn is_asked_about_renewals(&self) -> bool {
        let unlabelled = Labels::new();
        RENEWALS.into_iter().any(|(namespace, name, by)| {
            let asked = ConditionRequest {
                shape: RequestShape {
                    namespace: Some(namespace),
                    namespace_labels: (self.labels)(namespace),
                    object_labels: Some(&unlabelled),
                    ..RequestShape::new("UPDATE", LEASES)
                },
                kind: Some("Lease"),
                name,
                by,
                dry_run: false,
            };
            self.hook.could_match(&asked.shape) && self.let_through(&asked) == Some(true)
        })
    }

    /// The canaries that are certainly kept from it, and whether its conditions treat a canary unlike the same write of every other
    /// writer. If they cannot be evaluated, whether their text names hookwatch or dry runs.
    fn canaries(&self, canaries: &[CanaryWrite<'_>]) -> (BTreeSet<CanaryTarget>, bool) {
        let account = own_account(self.own);
        let groups = own_groups(self.own);
        let groups = groups.each_ref().map(String::as_str);
        let hookwatch = Requester {
            user: &account,
            groups: &groups,
        };
        let (mut kept, mut is_singled_out) = (BTreeSet::new(), false);
        for canary in canaries {
            let asked = canary.operations().iter().map(|operation| ConditionRequest {
                shape: canary.shape(operation, (self.labels)(canary.namespace)),
                kind: Some(canary.kind),
                name: OBJECT,
                by: hookwatch,
                dry_run: true,
            });
            let mut asked = asked
                .filter(|asked| self.hook.could_match(&asked.shape))
                .peekable();
            if let Some(first) = asked.peek() {
                let others = WRITERS.iter().map(|by| ConditionRequest {
                    name: SOME_NAME,
                    by: *by,
                    dry_run: false,
                    ..*first
                });
                is_singled_out |= match self.let_through(first) {
                    Some(says) => others
                        .map(|other| self.let_through(&other))
                        .all(|other| other == Some(!says)),
                    None => !self.assumed,
                };
            }
            if asked.all(|asked| self.let_through(&asked) == Some(false)) {
                kept.insert(canary.target);
            }
        }
        (kept, is_singled_out)
    }
}

/// Each operation of a rule that a shield can spare; `CONNECT` never is.
fn operations(rule: &HookRule) -> impl Iterator<Item = (&HookRule, &str)> {
    let operations = ["CREATE", "UPDATE", "DELETE"].into_iter();
    let named = operations.filter(|operation| rule.names_operation(operation));
    named.map(move |operation| (rule, operation))
}

/// Whether a text is about hookwatch's own writes, by naming hookwatch or dry runs.
fn names_hookwatch(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("hookwatch") || text.contains("dryrun")
}

impl Hook {
    /// Whether its objectSelector names hookwatch. It may then select no other objects.
    fn selects_hookwatch(&self) -> bool {
        let labels = self.object_selector.match_labels.iter();
        let mut labels = labels.flat_map(|(key, value)| [key, value]);
        let expressions = self.object_selector.expressions.iter();
        let mut expressions = expressions.flat_map(|known| known.values.iter().chain([&known.key]));
        labels.any(|text| names_hookwatch(text)) || expressions.any(|text| names_hookwatch(text))
    }

    /// Whether it agrees with another webhook in all fields that decide which requests it is called for.
    fn asks_like(&self, other: &Self) -> bool {
        self.rules == other.rules
            && self.match_policy == other.match_policy
            && self.namespace_selector == other.namespace_selector
            && self.object_selector == other.object_selector
            && self.added == other.added
            && self.owners_conditions().eq(other.owners_conditions())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::hook::{HookKind, HookTarget, MatchCondition, MatchPolicy, Selector};

    fn meets(operations: &[&str], group: &str, resources: &[&str], selector: Selector) -> bool {
        spared(&asked(operations, group, resources, selector)) >= Spared::ControlPlane
    }

    fn asked(operations: &[&str], group: &str, resources: &[&str], selector: Selector) -> Hook {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let id = HookId::new(HookKind::Validating, "c", "w");
        Hook {
            rules: vec![HookRule {
                operations: texts(operations),
                api_groups: texts(&[group]),
                api_versions: texts(&["*"]),
                resources: texts(resources),
                scope: Scope::All,
            }],
            namespace_selector: selector,
            ..Hook::new(id, HookTarget::Invalid(String::new()))
        }
    }

    fn matched(hook: &Hook) -> MatchedTraffic {
        let namespaces = ["kube-system", "kube-node-lease", "own"].map(str::to_owned);
        let labelled = namespaces.map(|name| (name.clone(), Labels::from([("name".to_owned(), name)])));
        let inventory = Inventory {
            hooks: vec![Arc::new(hook.clone())],
            namespaces: labelled.into(),
            ..Inventory::default()
        };
        let mut traffic = TrafficByHook::default();
        traffic.take(&inventory, "own", &[]);
        traffic.of(&hook.id).unwrap()
    }

    fn spared(hook: &Hook) -> Spared {
        matched(hook).spared
    }

    fn only(namespace: &str) -> Selector {
        Selector {
            match_labels: Labels::from([("name".to_owned(), namespace.to_owned())]),
            expressions: Vec::new(),
        }
    }

    #[test]
    fn whatever_is_asked_about_objects_in_kube_system_is_spared_by_a_shield() {
        assert!(meets(&["*"], "*", &["*"], Selector::default()));
        assert!(meets(&["CREATE"], "apps", &["deployments"], Selector::default()));
        assert!(meets(
            &["UPDATE"],
            "coordination.k8s.io",
            &["leases"],
            only("kube-node-lease")
        ));
        assert!(!meets(&["CREATE"], "apps", &["deployments"], only("shop")));
    }

    #[test]
    fn a_rule_for_every_group_is_asked_about_pods_of_the_core_group() {
        let expression = "request.resource.group == \"\" && request.resource.version == \"v1\"";
        for (group, is_met) in [("*", true), ("", true), ("apps", false)] {
            let mut hook = asked(&["CREATE"], group, &["pods"], only("kube-system"));
            hook.match_conditions = on_condition(&[expression]).match_conditions;
            assert_eq!(spared(&hook) >= Spared::ControlPlane, is_met, "{group:?}");
        }
    }

    #[test]
    fn what_keeps_nodes_alive_is_spared_wherever_it_is() {
        assert!(meets(&["UPDATE"], "", &["nodes/status"], only("shop")));
        assert!(meets(
            &["CREATE"],
            "authentication.k8s.io",
            &["tokenreviews"],
            only("shop")
        ));
    }

    #[test]
    fn execs_and_namespaces_are_not_spared() {
        assert!(!meets(&["CONNECT"], "", &["pods/exec"], Selector::default()));
        assert!(!meets(&["CREATE"], "", &["namespaces"], Selector::default()));
    }

    #[test]
    fn what_hookwatch_alone_writes_is_told_apart_from_what_the_control_plane_lives_on() {
        let configmaps = |selector| asked(&["*"], "", &["configmaps"], selector);
        assert_eq!(spared(&configmaps(Selector::default())), Spared::NoKnownWriter);
        assert_eq!(spared(&configmaps(only("own"))), Spared::Nothing);
        assert_eq!(
            spared(&asked(&["*"], "*", &["*"], only("own"))),
            Spared::ControlPlane
        );
    }

    fn on_condition(expressions: &[&str]) -> Hook {
        let conditions = expressions.iter().map(|expression| MatchCondition {
            name: "mine".to_owned(),
            expression: (*expression).to_owned(),
        });
        Hook {
            match_conditions: conditions.collect(),
            ..asked(&["*"], "*", &["*"], Selector::default())
        }
    }

    #[test]
    fn what_the_owners_conditions_keep_from_a_hook_does_not_meet_it() {
        for (expression, wanted) in [
            ("!('system:nodes' in request.userInfo.groups)", Spared::Renewals),
            (
                "request.resource.group != 'coordination.k8s.io'",
                Spared::ControlPlane,
            ),
            (
                "!request.userInfo.username.startsWith('system:')",
                Spared::ControlPlane,
            ),
            ("request.name == 'kube-scheduler'", Spared::Renewals),
            ("request.name == 'kube-apiserver'", Spared::NoKnownWriter),
            ("request.resource.resource == 'leases'", Spared::Renewals),
            ("object.metadata.labels['a'] == 'b'", Spared::ControlPlane),
            (
                "authorizer.group('').resource('x').check('y').allowed()",
                Spared::ControlPlane,
            ),
            (
                "request.namespace != 'kube-system' && request.namespace != 'kube-node-lease'",
                Spared::ControlPlane,
            ),
            ("request.operation == 'CONNECT'", Spared::NoKnownWriter),
        ] {
            assert_eq!(spared(&on_condition(&[expression])), wanted, "{expression}");
        }
        let own = MatchCondition {
            name: "hookwatch.dev/shield".to_owned(),
            expression: "false".to_owned(),
        };
        let mut shielded = on_condition(&[]);
        shielded.match_conditions = vec![own];
        assert_eq!(spared(&shielded), Spared::Renewals, "our own do not count");
    }

    #[test]
    fn a_hook_that_singles_hookwatch_out_is_not_known_to_match_others_and_is_reported() {
        for expression in [
            "request.dryRun",
            "request.name == 'hook' + 'watch-canary'",
            "request.userInfo.username.endsWith(':hookwatch')",
            "'system:serviceaccounts:own' in request.userInfo.groups",
            // What cannot be evaluated is searched for words.
            "object.metadata.name == 'HookWatch-canary'",
        ] {
            let matched = matched(&on_condition(&[expression]));
            assert_eq!(matched.spared, Spared::NoKnownWriter, "{expression}");
            assert!(matched.singles_out_canaries, "{expression}");
        }
        let selected = Hook {
            object_selector: Selector {
                match_labels: Labels::from([("app".to_owned(), "hookwatch".to_owned())]),
                expressions: Vec::new(),
            },
            ..on_condition(&[])
        };
        let matched = matched(&selected);
        assert_eq!(
            (matched.spared, matched.singles_out_canaries),
            (Spared::NoKnownWriter, true)
        );
    }

    #[test]
    fn only_a_hook_that_treats_canaries_unlike_the_same_writes_of_others_is_told_of() {
        let told = |expression: &str| matched(&on_condition(&[expression])).singles_out_canaries;
        for excluded in [
            "request.dryRun != true",
            "!request.userInfo.username.startsWith('system:serviceaccount:own:')",
        ] {
            assert!(told(excluded), "{excluded}");
        }
        for other in [
            "request.userInfo.username != 'somebody'",
            "!('system:nodes' in request.userInfo.groups)",
            "request.namespace != 'kube-system'",
            "request.operation == 'CREATE'",
        ] {
            assert!(!told(other), "{other}");
        }
    }

    #[test]
    fn what_is_known_of_a_hook_is_recomputed_only_once_its_fields_or_the_namespaces_change() {
        let hook = on_condition(&["request.dryRun"]);
        let take = |traffic: &mut TrafficByHook, hook: &Hook, namespaces: &[&str]| {
            let labels = |name: &&str| {
                (
                    (*name).to_owned(),
                    Labels::from([("a".to_owned(), "b".to_owned())]),
                )
            };
            let inventory = Inventory {
                hooks: vec![Arc::new(hook.clone())],
                namespaces: namespaces.iter().map(labels).collect(),
                ..Inventory::default()
            };
            traffic.take(&inventory, "own", &[]);
            traffic.of(&hook.id).unwrap().spared
        };
        let mut traffic = TrafficByHook::default();
        assert_eq!(take(&mut traffic, &hook, &[]), Spared::NoKnownWriter);
        let unconditional = on_condition(&[]);
        assert_eq!(take(&mut traffic, &unconditional, &[]), Spared::Renewals);
        let narrowed = Hook {
            namespace_selector: only("shop"),
            ..asked(&["*"], "apps", &["deployments"], Selector::default())
        };
        assert_eq!(take(&mut traffic, &narrowed, &[]), Spared::ControlPlane);
        assert_eq!(
            take(&mut traffic, &narrowed, &["kube-system", "kube-node-lease"]),
            Spared::Nothing
        );
    }

    #[test]
    fn under_another_match_policy_a_hook_is_shown_other_requests() {
        let equivalent = on_condition(&[]);
        let exact = Hook {
            match_policy: MatchPolicy::Exact,
            ..equivalent.clone()
        };
        assert!(equivalent.asks_like(&equivalent));
        assert!(!equivalent.asks_like(&exact));
    }

    /// As many webhooks as are watched, with as many conditions as they may have, beside one that is in the leaders' way.
    #[test]
    fn webhooks_with_endless_conditions_are_evaluated_no_more_than_so_many_at_once() {
        let mut trap = on_condition(&["request.name != 'a'"; 63]);
        trap.match_conditions.push(MatchCondition {
            name: "nothing".into(),
            expression: "false".into(),
        });
        let named = |hook: &Hook, name: &str| {
            let id = HookId::new(HookKind::Validating, name, "w");
            Arc::new(Hook { id, ..hook.clone() })
        };
        let traps = (0..20).map(|number| named(&trap, &format!("trap-{number:02}")));
        let policy = named(&on_condition(&["request.operation == 'UPDATE'"]), "zz-policy");
        let inventory = Inventory {
            hooks: traps.chain([Arc::clone(&policy)]).collect(),
            ..Inventory::default()
        };
        let mut traffic = TrafficByHook::default();
        traffic.take(&inventory, "own", &[]);
        let unfinished =
            |traffic: &TrafficByHook| traffic.known.values().filter(|known| known.is_unfinished).count();
        let first = unfinished(&traffic);
        assert!((10..20).contains(&first), "{first} are left for later");
        assert_eq!(
            traffic.of(&policy.id).map(|matched| matched.spared),
            Some(Spared::ControlPlane),
            "what could not be evaluated counts as met by others"
        );
        for _ in 0..10 {
            traffic.take(&inventory, "own", &[]);
        }
        assert_eq!(unfinished(&traffic), 0);
        assert_eq!(
            traffic.of(&policy.id).map(|matched| matched.spared),
            Some(Spared::Renewals)
        );
    }

    #[test]
    fn a_webhook_without_conditions_is_finished_when_the_budget_is_spent() {
        let named = |hook: &Hook, name: &str| {
            let id = HookId::new(HookKind::Validating, name, "w");
            Arc::new(Hook { id, ..hook.clone() })
        };
        let trap = on_condition(&["request.name != 'a'"; 64]);
        let traps = (0..20).map(|number| named(&trap, &format!("trap-{number:02}")));
        let plain = named(&on_condition(&[]), "zz-plain");
        let inventory = Inventory {
            hooks: traps.chain([Arc::clone(&plain)]).collect(),
            ..Inventory::default()
        };
        let mut traffic = TrafficByHook::default();
        traffic.take(&inventory, "own", &[]);
        assert!(traffic.known.values().any(|known| known.is_unfinished));
        assert!(!traffic.known[&plain.id].is_unfinished);
    }
}
