//! What a request now waits for the hooks that match it, compared with its time limit.
//!
//! [`crate::cluster::chain`] adds up what several hooks cost. A hook whose failures are ignored still delays every matching
//! request by its timeout, and a request that takes longer than its client waits is as good as refused.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::iter;
use std::time::Duration;

use super::conditions::Hit;
use super::counters::Slowness;
use super::evidence::Evidence;
use super::probes::ProbeEvidence;
use super::scene::Scene;
use crate::cluster::chain::{Chain, MetHook};
use crate::cluster::condition::spare::Spare;
use crate::cluster::hook::{Hook, HookId, HookKind, HookRule, Labels, MatchCondition, Scope};
use crate::cluster::matching::{LEASES, RequestShape};
use crate::observe::canary::CanaryTarget;
use crate::text::human;
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::{Cause, Effect, Health};

/// The labels of the Leases that leaders and nodes renew: none.
static UNLABELLED: Labels = Labels::new();

/// Most hooks named in one sentence.
const TOLD: usize = 4;

/// Most classes of tenants' writes that are added to [`CLASSES`] because a hook's rules name the resource.
const TENANTS: usize = 64;

/// Requests of one kind.
#[derive(Debug, Clone)]
struct Class<'a> {
    /// One of them, as the beginning of a sentence.
    name: Cow<'static, str>,
    /// How long one may take.
    deadline: fn() -> Duration,
    /// What happens past that.
    then: &'static str,
    /// Operation, group, version, resource, subresource.
    what: [&'a str; 5],
    /// The namespace of the objects; `Some("")` for an unknown one, `None` for cluster-scoped objects.
    namespace: Option<&'static str>,
    /// Further requests of the class, each with its namespace. The one that waits longest counts for the class.
    also: &'static [([&'static str; 5], Option<&'static str>)],
    /// The canaries that are delayed by whatever delays these requests, regardless of a hook's own matchConditions.
    canaries: &'static [CanaryTarget],
}

/// How long a request may take, and what happens past that.
type GivenUp = (fn() -> Duration, &'static str);

const LEADERS: GivenUp = (
    t::leader_attempt,
    "leaders give an attempt up after 5 s, and exit 10 to 12 s after their last renewal",
);
const NODES: GivenUp = (
    t::kubelet_attempt,
    "kubelets give an attempt up after 10 s, and a node is NotReady 50 to 55 s after its last renewal (40 to 45 s before \
     Kubernetes 1.32; at the defaults)",
);
const KUBELETS: GivenUp = (t::kubelet_attempt, "kubelets give an attempt up after 10 s");
const LONGEST: GivenUp = (t::longest_write, "the API server gives a write up after 34 s");

const fn class(
    name: &'static str,
    what: [&'static str; 5],
    namespace: Option<&'static str>,
    (deadline, then): GivenUp,
    canaries: &'static [CanaryTarget],
) -> Class<'static> {
    Class {
        name: Cow::Borrowed(name),
        deadline,
        then,
        what,
        namespace,
        also: &[],
        canaries,
    }
}

/// The requests that the control plane depends on, the shortest deadline first, then those of tenants.
#[rustfmt::skip] // a table
static CLASSES: [Class<'static>; 9] = [
    class("A renewal of a leader's Lease", ["UPDATE", "coordination.k8s.io", "v1", "leases", ""],
        Some("kube-system"), LEADERS, &[CanaryTarget::KubeSystem, CanaryTarget::NodeLease]),
    class("A renewal of a node's Lease", ["UPDATE", "coordination.k8s.io", "v1", "leases", ""],
        Some("kube-node-lease"), NODES, &[CanaryTarget::NodeLease]),
    class("An update of a node's status", ["UPDATE", "", "v1", "nodes", "status"],
        None, KUBELETS, &[CanaryTarget::NodeLease]),
    class("An update of a Pod's status", ["UPDATE", "", "v1", "pods", "status"], Some(""), LONGEST, &[]),
    class("A change of an EndpointSlice", ["UPDATE", "discovery.k8s.io", "v1", "endpointslices", ""],
        Some(""), LONGEST, &[]),
    class("A token for a ServiceAccount", ["CREATE", "", "v1", "serviceaccounts", "token"],
        Some(""), LONGEST, &[]),
    class("What an API server writes while it starts",
        ["UPDATE", "rbac.authorization.k8s.io", "v1", "clusterroles", ""], None, LONGEST, &[]).and(&STARTS),
    class("A tenant's new Pod", ["CREATE", "", "v1", "pods", ""], Some(""), LONGEST, &[]),
    class("A tenant's change of a Deployment", ["UPDATE", "apps", "v1", "deployments", ""],
        Some(""), LONGEST, &[]),
];

/// What else an API server writes while it starts. ClusterRoles are created if they do not exist, else updated as in [`CLASSES`].
#[rustfmt::skip] // a table
static STARTS: [([&str; 5], Option<&str>); 5] = [
    (["CREATE", "rbac.authorization.k8s.io", "v1", "clusterroles", ""], None),
    (["CREATE", "flowcontrol.apiserver.k8s.io", "v1", "flowschemas", ""], None),
    (["CREATE", "flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", ""], None),
    (["CREATE", "coordination.k8s.io", "v1", "leases", ""], Some("kube-system")),
    (["CREATE", "discovery.k8s.io", "v1", "endpointslices", ""], Some("default")),
];

/// Whether an API server could call the hook for what it writes while it starts.
pub fn meets_starts(hook: &Hook) -> bool {
    let starts = CLASSES.iter().filter(|class| !class.also.is_empty());
    let mut requests = starts.flat_map(|class| class.requests(|_| None));
    requests.any(|request| hook.could_match(&request))
}

/// How long requests of one class wait for webhooks.
#[derive(Debug)]
struct Bill<'a> {
    class: Class<'a>,
    /// The webhooks that they meet, with the wait for each.
    chain: Chain<'a>,
}

/// How long the requests of all classes wait for webhooks.
#[derive(Debug)]
pub struct Costs<'a> {
    /// The failing hooks that requests wait for.
    hooks: BTreeSet<&'a HookId>,
    /// Bills of classes whose deadline is exceeded.
    passed: Vec<Bill<'a>>,
    /// Bills of classes that stay within their deadline.
    within: Vec<Bill<'a>>,
    /// Bills of classes whose deadline would be exceeded if no hook were shielded; empty where none is.
    without_shields: Vec<Bill<'a>>,
}

/// One hook that is waited for, and how long.
#[derive(Debug)]
struct HookCost<'e, 'a> {
    evidence: &'e Evidence<'a>,
    hook: &'a Hook,
    hit: &'e Hit,
    health: Health,
    cost: Duration,
}

impl HookCost<'_, '_> {
    /// No call to it is answered. A slow hook, or one with some hanging backends, still answers some.
    fn surely_fails(&self) -> bool {
        let whole = matches!(self.hit.cause, Some(Cause::Hanging | Cause::Unreachable));
        self.health == Health::Failing && whole
    }
}

/// What bills are computed from.
struct Till<'e, 'a> {
    waited: Vec<HookCost<'e, 'a>>,
    mutating: Vec<&'a Hook>,
    /// Whether a hook that is waited for has `reinvocationPolicy: IfNeeded`.
    reinvoked: bool,
    /// The namespace of hookwatch itself.
    own: &'a str,
}

impl<'a> Costs<'a> {
    /// Adds up the waits for all hooks, given the health and the hit of each.
    pub fn of(all: &[(Evidence<'a>, Health, Hit)]) -> Self {
        let waited = all.iter().filter_map(|(evidence, health, hit)| {
            // Backends that are dead to hookwatch alone may cost no request anything.
            let counts = match health {
                Health::Failing => true,
                Health::Suspect => hit.cause != Some(Cause::Partial),
                _ => false,
            };
            let cost = cost(evidence, hit.cause).filter(|_| counts)?;
            let (hook, health) = (evidence.hook?, *health);
            Some(HookCost {
                evidence,
                hook,
                hit,
                health,
                cost,
            })
        });
        let waited: Vec<_> = waited.collect();
        let scene = all.first().map(|(evidence, ..)| evidence.scene);
        let inventory = scene.and_then(|scene| scene.seen.inventory.as_ref());
        let labels = |namespace: &str| inventory?.namespaces.get(namespace);
        let mutating = scene.into_iter().flat_map(|scene| scene.seen.hooks());
        let till = Till {
            mutating: mutating
                .filter(|hook| hook.id.kind == HookKind::Mutating)
                .collect(),
            reinvoked: waited.iter().any(|one| one.hook.reinvoked),
            own: scene.map_or("", |scene| &*scene.seen.coverage.own_namespace),
            waited,
        };
        let shielded = till.waited.iter().any(|one| one.evidence.is_shielded());
        let tenants = Class::of_tenants(till.waited.iter().map(|one| one.hook));
        let classes: Vec<_> = CLASSES.iter().cloned().chain(tenants).collect();
        let bills = |shields| -> (Vec<_>, Vec<_>) {
            let bills = classes.iter();
            let bills = bills.filter_map(|class| till.bill(class, labels, shields));
            bills.partition(|bill| bill.part() >= 1.0)
        };
        let (passed, within) = bills(true);
        let failing = till.waited.iter().filter(|one| one.health == Health::Failing);
        Self {
            hooks: failing.map(|one| &one.hook.id).collect(),
            passed,
            within,
            without_shields: if shielded { bills(false).0 } else { Vec::new() },
        }
    }

    /// What a hook that is waited for does to writes: it delays them, and blocks those that it keeps past their
    /// deadline. `None` where nothing waits for it.
    pub fn effect(&self, hook: &HookId) -> Option<Effect> {
        self.hooks.get(hook)?;
        if self.passed.iter().any(|bill| bill.is_passed_by(hook)) {
            Some(Effect::Blocking)
        } else {
            Some(Effect::Delaying)
        }
    }

    /// Whether a shielded hook would hold requests past their deadline if no hook were shielded.
    pub fn needs_shield(&self, hook: &HookId) -> bool {
        self.without_shields.iter().any(|bill| bill.is_passed_by(hook))
    }

    /// The earliest deadline exceeded because of this hook, as a sentence; if none is, the client that loses most of its time to
    /// it.
    pub fn sentence(&self, hook: &HookId) -> Option<String> {
        if let Some(bill) = self.passed.iter().find(|bill| bill.is_passed_by(hook)) {
            return Some(bill.sentence());
        }
        self.hooks.get(hook)?;
        let within = self.within.iter().filter(|bill| bill.names(hook));
        // Of equal ones the first.
        let dearest = within.rev().max_by(|a, b| a.part().total_cmp(&b.part()));
        dearest.map(Bill::sentence_within)
    }
}

impl<'a> Till<'_, 'a> {
    /// The bill of the request of a class that waits longest.
    fn bill(
        &self,
        class: &Class<'a>,
        labels: impl Fn(&str) -> Option<&'a Labels>,
        shields: bool,
    ) -> Option<Bill<'a>> {
        let bills = class.requests(labels);
        let bills = bills.filter_map(|request| self.bill_of(class, &request, shields));
        // Of equal ones the first.
        bills.rev().max_by_key(Bill::total)
    }

    /// How long a request of a class waits for the hooks that it meets; `None` if not at all, or if canaries show that it is in
    /// time. `shields`: with the shields that are in place, else as if there were none.
    fn bill_of(&self, class: &Class<'a>, request: &RequestShape<'a>, shields: bool) -> Option<Bill<'a>> {
        // A second mutating hook may change the object; the API server then calls those with `IfNeeded` again.
        let mut mutate = self.mutating.iter().filter(|hook| hook.could_match(request));
        let asked_again = self.reinvoked && mutate.nth(1).is_some();
        let met = self.waited.iter().filter(|one| {
            let (hook, shielded) = (one.hook, one.evidence.is_shielded());
            let (own, added) = (self.own, &hook.added);
            let spared = shields
                && shielded
                && Spare {
                    hookwatch_namespace: own,
                    added,
                }
                .spares(request, None);
            // There is less evidence about requests that a shield spares, so without it a suspicion counts too.
            let counts = one.health == Health::Failing || !shields;
            // Canaries that a shield spares are no evidence about requests without it.
            let let_through =
                || shielded && !shields || class.is_let_through(hook, one.evidence.scene, one.hit.since);
            counts && !spared && hook.could_match(request) && let_through()
        });
        let met: Vec<_> = met.collect();
        // Canaries decide about slow hooks, and about those that hang for a part of their calls: perhaps not for these requests.
        let tell = |one: &&HookCost<'_, '_>| {
            let for_some = match one.hit.cause {
                Some(Cause::Slow) => true,
                Some(Cause::Hanging) => one.evidence.unanswered_part().is_some(),
                _ => false,
            };
            for_some && (shields || !one.evidence.is_shielded())
        };
        let since = met.iter().filter_map(|one| one.hit.since).max();
        let in_time = met.iter().all(tell) && class.is_in_time(met.iter().map(|one| one.evidence), since);
        let met = met.into_iter().map(|one| MetHook {
            hook: one.hook,
            cost: one.cost,
            // A hook that fails ends the chain. Not without shields: there each hook is looked at alone. Nor where the
            // selectors cannot be evaluated: some requests may match only the hooks after it.
            fails: shields && one.surely_fails() && one.hook.knows_selected(request),
        });
        let chain = Chain::of(met, asked_again);
        let bill = Bill {
            class: class.clone(),
            chain,
        };
        (!in_time && bill.total() > Duration::ZERO).then_some(bill)
    }
}

/// How long a request that meets the hook waits for it; `None` below [`t::slow_always`].
fn cost(evidence: &Evidence<'_>, cause: Option<Cause>) -> Option<Duration> {
    let hook = evidence.hook.filter(|hook| hook.id.kind.is_admission())?;
    let called = !evidence.is_uncalled();
    // A counted mean may be too large for a `Duration`.
    let counted = |mean: Option<f64>| Duration::try_from_secs_f64(mean?).ok();
    let cost = match cause? {
        Cause::Hanging => Some(hook.timeout),
        Cause::Unreachable => {
            let refused = evidence.latest().map(|named| named.took);
            refused.max(counted(evidence.counters.failed_mean))
        }
        Cause::Slow => match (&evidence.slowness, &evidence.probes) {
            // Ten seconds have more calls, so that a single one that waited for a lost packet counts less.
            (Some(Slowness { steady, .. }), _) if steady.is_some() => counted(*steady),
            // The mean includes calls from before it was slow: probes may show better what a call costs now.
            (Some(slowness), ProbeEvidence::Slow { least, .. }) => {
                counted(Some(slowness.mean)).max(Some(*least))
            }
            // A canary that waits for it confirms that a single late answer is the present cost of calls.
            (Some(slowness), probes) => {
                let late = probes.late().filter(|_| evidence.canary_waits.is_some());
                counted(Some(slowness.mean)).max(late.map(|(took, _)| took))
            }
            (None, probes) => probes.late().map(|(took, _)| took),
        },
        // A request to a hanging backend waits for the whole timeout, while others get answers.
        Cause::Partial => match &evidence.probes {
            ProbeEvidence::Some { dead, .. } => {
                let hangs = dead.iter().any(|(_, dead)| dead.cause == Cause::Hanging);
                hangs.then_some(hook.timeout)
            }
            _ => None,
        },
        _ => None,
    };
    let cost = cost
        .filter(|_| called && !hook.rules.is_empty())?
        .min(hook.timeout);
    (cost.as_secs_f64() >= t::slow_always()).then_some(cost)
}

impl Class<'static> {
    const fn and(mut self, also: &'static [([&'static str; 5], Option<&'static str>)]) -> Self {
        self.also = also;
        self
    }
}

impl<'a> Class<'a> {
    /// A class of tenants' writes for each resource that the rules of these hooks name: one for Ingresses delays only those.
    fn of_tenants(hooks: impl Iterator<Item = &'a Hook>) -> impl Iterator<Item = Self> {
        let named: BTreeSet<_> = hooks.flat_map(|hook| &hook.rules).flat_map(named).collect();
        named.into_iter().take(TENANTS).map(|(clustered, what)| Class {
            name: Cow::Owned(format!("A tenant's write of {}", what[3])),
            deadline: LONGEST.0,
            then: LONGEST.1,
            what,
            namespace: (!clustered).then_some(""),
            also: &[],
            canaries: &[],
        })
    }

    /// Whether a hook's own matchConditions let such requests through to it. They are not evaluated here: the canaries
    /// for these requests show it, by their waits since the hook failed.
    fn is_let_through(&self, hook: &Hook, scene: &Scene<'_>, since: Option<Time>) -> bool {
        if hook.match_conditions.iter().all(MatchCondition::is_ours) {
            return true;
        }
        let waits = |target: &CanaryTarget| {
            let memory = scene.seen.canaries.get(*target).zip(since);
            memory.and_then(|(memory, since)| memory.passes_since(since, scene.now)) == Some(false)
        };
        !self.canaries.is_empty() && self.canaries.iter().all(waits)
    }

    /// Whether canaries that match each of these hooks show that such requests are in time. `since`: when the last of the hooks
    /// became slow or began to hang. The cost of a slow hook comes from a mean, which one lost packet or one busy second raises,
    /// and that of a hanging one from calls that may be of another kind; a canary waits for all of them.
    fn is_in_time<'e>(
        &self,
        met: impl Iterator<Item = &'e Evidence<'e>> + Clone,
        since: Option<Time>,
    ) -> bool {
        let Some(scene) = met.clone().next().map(|evidence| evidence.scene) else {
            return false;
        };
        let meets_all =
            |target: &CanaryTarget| met.clone().all(|evidence| evidence.covered_by.contains(target));
        let targets = self.canaries.iter().copied().filter(meets_all);
        let canaries = &scene.seen.canaries;
        canaries.take_as_long_as(targets, (self.deadline)(), since, scene.now) == Some(false)
    }

    fn requests(
        &self,
        labels: impl Fn(&str) -> Option<&'a Labels>,
    ) -> impl DoubleEndedIterator<Item = RequestShape<'a>> {
        let all = iter::once((self.what, self.namespace)).chain(self.also.iter().copied());
        all.map(move |([operation, object @ ..], namespace)| RequestShape {
            namespace,
            namespace_labels: namespace.and_then(&labels),
            object_labels: (object == LEASES).then_some(&UNLABELLED),
            ..RequestShape::new(operation, object)
        })
    }

    /// The writes of this class in any namespace.
    fn everywhere(&self) -> impl Iterator<Item = [&'a str; 5]> {
        let also = self.also.iter().filter(|(_, namespace)| namespace.is_none());
        iter::once(self.what).chain(also.map(|(what, _)| *what))
    }
}

/// The resources that a rule names without wildcards and that no class covers. For each: whether it is cluster-scoped; and
/// operation, group, version, resource, subresource.
fn named(rule: &HookRule) -> impl Iterator<Item = (bool, [&str; 5])> {
    let asks = |operation: &str| rule.names_operation(operation);
    let operation = ["CREATE", "UPDATE"].into_iter().find(|operation| asks(operation));
    // Otherwise it names only `DELETE` or `CONNECT`, or nothing.
    let operation = operation.unwrap_or_else(|| rule.operations.first().map_or("CREATE", String::as_str));
    let plain = |name: &&String| !name.contains('*');
    let is_new = move |what: &[&str; 4]| {
        let mut known = CLASSES.iter().flat_map(Class::everywhere);
        !known.any(|known| known[1..] == *what && asks(known[0]))
    };
    let groups = rule.api_groups.iter().filter(plain);
    groups.flat_map(move |group| {
        let names = rule.resources.iter().filter(plain).map(move |name| {
            let (resource, subresource) = name.split_once('/').unwrap_or((name, ""));
            [group.as_str(), rule.version(), resource, subresource]
        });
        let new = names.filter(is_new);
        new.map(move |[group, version, resource, subresource]| {
            let what = [operation, group, version, resource, subresource];
            (rule.scope == Scope::Cluster, what)
        })
    })
}

impl Bill<'_> {
    fn total(&self) -> Duration {
        self.chain.total()
    }

    fn is_passed_by(&self, hook: &HookId) -> bool {
        self.chain.is_passed_by(hook, (self.class.deadline)())
    }

    /// The wait as a part of the deadline; from 1 on the deadline is exceeded.
    fn part(&self) -> f64 {
        self.total().as_secs_f64() / (self.class.deadline)().as_secs_f64()
    }

    /// The hooks to name: the mutating ones, and of the validating ones, which are called in parallel, the slowest.
    fn named(&self) -> impl Iterator<Item = &(&Hook, Duration)> {
        let slowest = self.chain.validating.iter().max_by_key(|(_, cost)| *cost);
        self.chain.mutating.iter().chain(slowest).take(TOLD)
    }

    fn names(&self, hook: &HookId) -> bool {
        self.named().any(|(named, _)| named.id == *hook)
    }

    /// The hooks to name, each with the wait for it, as a list.
    fn told(&self) -> String {
        let paid = self.named();
        let paid = paid.map(|(hook, cost)| format!("{} {}", hook.id.webhook, human(*cost)));
        paid.collect::<Vec<_>>().join(", then ")
    }

    fn sentence(&self) -> String {
        let (total, Class { name, then, .. }) = (human(self.total()), &self.class);
        format!("{name} waits {total} for webhooks now ({}); {then}.", self.told())
    }

    fn sentence_within(&self) -> String {
        let (total, deadline) = (human(self.total()), human((self.class.deadline)()));
        let (name, told) = (&self.class.name, self.told());
        format!("{name} waits {total} of its {deadline} for webhooks now ({told}).")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::matching::tests::hook;

    fn asked(kind: HookKind, name: &str) -> Hook {
        Hook {
            id: HookId::new(kind, name, name),
            ..hook(&["*"])
        }
    }

    fn bill<'a>(mutating: &[(&'a Hook, u64)], validating: &[(&'a Hook, u64)]) -> Bill<'a> {
        let met = mutating.iter().chain(validating);
        let met = met.map(|(hook, seconds)| MetHook {
            hook,
            cost: Duration::from_secs(*seconds),
            fails: false,
        });
        Bill {
            class: CLASSES[0].clone(),
            chain: Chain::of(met, false),
        }
    }

    #[test]
    fn mutating_hooks_are_paid_one_after_the_other_and_of_validating_ones_the_slowest() {
        let [one, two] = ["one", "two"].map(|name| asked(HookKind::Mutating, name));
        let [three, four] = ["three", "four"].map(|name| asked(HookKind::Validating, name));
        let bill = bill(&[(&one, 1), (&two, 2)], &[(&three, 1), (&four, 3)]);
        assert_eq!(bill.total(), Duration::from_secs(6));
        let guilty = [&one, &two, &three, &four].map(|hook| bill.is_passed_by(&hook.id));
        assert_eq!(guilty, [true, true, false, true]);
        let said = bill.sentence();
        assert!(
            said.starts_with("A renewal of a leader's Lease waits 6.0 s for webhooks now (one 1.0 s, then"),
            "{said}"
        );
        assert!(!said.contains("three"), "{said}");
    }

    #[test]
    fn tenants_pay_by_what_the_rules_name_and_kinds_that_are_known_are_not_counted_twice() {
        let rule = |resources: &[&str], scope| HookRule {
            operations: vec!["UPDATE".to_owned()],
            api_groups: vec!["networking.k8s.io".to_owned(), "*".to_owned()],
            api_versions: vec!["v2".to_owned()],
            resources: resources.iter().map(|name| (*name).to_owned()).collect(),
            scope,
        };
        let asked = Hook {
            rules: vec![
                rule(&["ingresses", "ingresses/status", "*/*"], Scope::All),
                rule(&["ingressclasses"], Scope::Cluster),
            ],
            ..asked(HookKind::Mutating, "one")
        };
        let classes: Vec<_> = Class::of_tenants([&asked, &asked].into_iter()).collect();
        let whats: Vec<_> = classes
            .iter()
            .map(|class| (class.what, class.namespace))
            .collect();
        let group = "networking.k8s.io";
        assert_eq!(
            whats,
            [
                (["UPDATE", group, "v2", "ingresses", ""], Some("")),
                (["UPDATE", group, "v2", "ingresses", "status"], Some("")),
                (["UPDATE", group, "v2", "ingressclasses", ""], None),
            ]
        );
        assert!(
            classes
                .iter()
                .all(|class| class.requests(|_| None).any(|one| asked.could_match(&one)))
        );
        let of_pods = |operations: &[&str]| {
            let pods = Hook {
                rules: vec![HookRule {
                    operations: operations.iter().map(|name| (*name).to_owned()).collect(),
                    api_groups: vec![String::new()],
                    api_versions: vec!["*".to_owned()],
                    ..rule(&["pods"], Scope::All)
                }],
                ..asked.clone()
            };
            let classes: Vec<_> = Class::of_tenants([&pods].into_iter()).collect();
            classes
                .into_iter()
                .map(|class| class.what[0].to_owned())
                .collect::<Vec<_>>()
        };
        // A tenant's new Pod is a class of its own, a changed one is not.
        assert_eq!(of_pods(&["UPDATE", "CREATE"]), [""; 0]);
        assert_eq!(of_pods(&["*"]), [""; 0]);
        assert_eq!(of_pods(&["DELETE", "UPDATE"]), ["UPDATE"]);
        assert_eq!(of_pods(&["DELETE"]), ["DELETE"]);
    }

    #[test]
    fn classes_are_held_against_what_their_clients_wait() {
        let deadlines: Vec<u64> = CLASSES.iter().map(|class| (class.deadline)().as_secs()).collect();
        assert_eq!(deadlines[..3], [5, 10, 10]);
        assert!(deadlines[3..].iter().all(|seconds| *seconds == 34));
    }
}
