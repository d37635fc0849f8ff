//! Which functions of the control plane fail when a webhook's backends do, and when.
//!
//! [`Chain`] adds up the waits for all webhooks of a request, as in the diagnosis. When a function is lost depends on its
//! writers' timers. Their phase at the start of the fault is unknown, so each forecast time is an interval.

mod suffering;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use strum::IntoStaticStr;

use self::suffering::{ForecastLosses, suffer, tenants_suffer};
use super::Function;
use super::estate::{AuditedHook, Estate, service_key};
use super::reach::{HookReader, Reach, Tenants};
use super::writes::{ObjectScope, WRITES, WriteSort};
use crate::cluster::chain::{Chain, MetHook};
use crate::cluster::hook::{Endpoint, FailurePolicy, Hook, HookId, HookKind, Labels};
use crate::cluster::matching::conditions::ConditionCompiler;
use crate::text::named;

/// How the backends of a webhook fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum BackendFailure {
    /// They accept calls and never answer.
    Hang,
    /// They refuse connections, or there are none.
    Refuse,
    /// They answer just before each call times out.
    Slow,
}

named!(BackendFailure, "The value of `if` in reports.");

impl BackendFailure {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hang, Self::Refuse, Self::Slow];

    fn cost(self, hook: &Hook) -> Duration {
        match self {
            Self::Hang | Self::Slow => hook.timeout,
            Self::Refuse => Duration::ZERO,
        }
    }
}

/// A function that is lost.
#[derive(Debug, Clone, PartialEq)]
pub struct Casualty {
    /// The function of the control plane that is lost.
    pub what: Function,
    /// How long after the fault the function is lost: at the earliest, and at the latest.
    pub after: [Duration; 2],
    /// False if the loss depends on an unknown match condition or label.
    pub is_certain: bool,
    /// How it is lost, as a clause: which write fails, or which leader has exited.
    pub why: String,
}

/// A write that is refused or delayed.
#[derive(Debug, Clone, PartialEq)]
pub struct Suffering {
    /// The write, as a clause for sentences.
    pub name: &'static str,
    /// Operation, and resource with group and subresource, such as `UPDATE leases.coordination.k8s.io`.
    pub object: String,
    /// How long all its webhooks together delay it, at most its client's deadline.
    pub waits: Duration,
    /// In the end the write is refused, or its client gives up.
    pub is_lost: bool,
}

/// What happens if a webhook's backends fail in one way.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// The webhook.
    pub hook: HookId,
    /// How its backends fail.
    pub failure: BackendFailure,
    /// Other webhooks with the same destination, which fail with it; at most the first 100.
    pub together_with: Vec<HookId>,
    /// The functions that are lost, the soonest first.
    pub casualties: Vec<Casualty>,
    /// Every write that is refused or delayed.
    pub writes: Vec<Suffering>,
}

impl Forecast {
    /// The lost functions without which a cluster stops working.
    pub fn vital(&self) -> impl Iterator<Item = &Casualty> {
        self.casualties.iter().filter(|casualty| casualty.what.is_vital())
    }
}

const MAX_TOGETHER: usize = 100;

/// An estate with everything that forecasts and findings precompute or cache. Webhooks are named by their index in
/// [`Estate::subjects`].
pub struct Auditor<'a> {
    /// The input of the audit.
    pub estate: &'a Estate,
    readers: Vec<HookReader>,
    pub(super) tenants: Tenants,
    /// The subjects by destination ([`place_of`]).
    pub(super) places: BTreeMap<String, Vec<usize>>,
    /// By subject, whether it is called for each of [`WRITES`], except the writes to a webhook's own Pods.
    reaches: Vec<Vec<Reach>>,
    /// By subject, the labels of its own Pods, one set per workload; empty if unknown.
    pub(super) pods: Vec<Vec<&'a Labels>>,
    pub(super) zones: BTreeSet<&'a str>,
    /// The forecasts made so far, by destination, in the order of [`BackendFailure::ALL`].
    known: RefCell<BTreeMap<String, [Forecast; 3]>>,
    /// By subject, the first subject with the same namespace and the same own Pods.
    owners: Vec<usize>,
    /// The results of [`Self::asks_again`] so far, by the index of the write and the subject whose own Pods it writes. Its size
    /// grows with the number of webhooks; a table of which webhook reaches whose Pods would grow with the square.
    again: RefCell<BTreeMap<(usize, usize), bool>>,
}

/// A webhook that fails, and whether it is called for each of [`WRITES`].
type Failing<'a> = (&'a HookReader, Vec<Reach>);

impl<'a> Auditor<'a> {
    /// Prepares the audit of an estate.
    pub fn new(estate: &'a Estate) -> Self {
        Self::pausing(estate, &|| {})
    }

    /// Like [`Self::new`], but calls `pause` at least once per webhook, so that a long audit can yield.
    pub fn pausing(estate: &'a Estate, pause: &dyn Fn()) -> Self {
        let (compiler, tenants) = (ConditionCompiler::for_forecasts(), Tenants::of(estate));
        let readers: Vec<HookReader> = estate
            .subjects
            .iter()
            .inspect(|_| pause())
            .map(|subject| HookReader::new(Arc::clone(&subject.hook), &compiler))
            .collect();
        let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, subject) in estate.subjects.iter().enumerate() {
            places.entry(place_of(&subject.hook)).or_default().push(at);
        }
        let reaches: Vec<Vec<Reach>> = readers
            .iter()
            .inspect(|_| pause())
            .map(|reader| {
                WRITES
                    .iter()
                    .map(|write| reader.reach(write, estate, &tenants, None))
                    .collect()
            })
            .collect();
        let pods = estate.subjects.iter().map(|subject| {
            let workloads = estate.workloads(&subject.hook);
            workloads.map(|workload| &workload.labels).collect()
        });
        let pods: Vec<Vec<&Labels>> = pods.collect();
        let mut first = BTreeMap::new();
        let owners = estate.subjects.iter().zip(&pods).enumerate();
        let owners = owners.map(|(at, (subject, pods))| {
            let namespace = service_key(&subject.hook).map(|(namespace, _)| namespace);
            *first.entry((namespace, pods.clone())).or_insert(at)
        });
        Self {
            owners: owners.collect(),
            estate,
            readers,
            tenants,
            places,
            reaches,
            pods,
            zones: zones(estate),
            known: RefCell::default(),
            again: RefCell::default(),
        }
    }

    /// The webhook with this index in the estate.
    pub fn subject(&self, at: usize) -> &AuditedHook {
        &self.estate.subjects[at]
    }

    /// The webhook with this index, ready to evaluate requests.
    pub fn reader(&self, at: usize) -> &HookReader {
        &self.readers[at]
    }

    /// Whether a webhook is called for each of [`WRITES`]; for those to a webhook's own Pods always [`Reach::No`].
    pub fn reaches(&self, at: usize) -> impl Iterator<Item = (&'static WriteSort, Reach)> {
        WRITES.iter().zip(self.reaches[at].iter().copied())
    }

    /// Whether the webhook `at` is called for the creation of a Pod of the webhook `of`.
    pub fn reaches_pods_of(&self, at: usize, of: usize) -> Reach {
        let creation = WRITES
            .iter()
            .position(|write| write.place == ObjectScope::Own && write.what == Function::OwnPods);
        creation.map_or(Reach::No, |index| self.reach_of(at, index, of))
    }

    /// What happens if the webhook with this index fails, and with it those with the same destination.
    pub fn forecast(&self, at: usize, failure: BackendFailure) -> Forecast {
        let hook = &self.readers[at].hook;
        let place = place_of(hook);
        let all = &self.places[&place];
        // Cached: the forecast is the same for all webhooks of a destination, which may be many.
        let mut known = self.known.borrow_mut();
        let known = known.entry(place);
        let known = known.or_insert_with(|| {
            let failing = self.failing(all[0], all);
            BackendFailure::ALL.map(|failure| self.forecast_of(all[0], &failing, failure))
        });
        let of = BackendFailure::ALL.iter().position(|known| *known == failure);
        let others = all.iter().filter(|other| **other != at);
        Forecast {
            hook: hook.id.clone(),
            together_with: others
                .take(MAX_TOGETHER)
                .map(|at| self.readers[*at].hook.id.clone())
                .collect(),
            ..known[of.unwrap_or_default()].clone()
        }
    }

    /// What happens in each way of failing if this webhook fails and others with its destination do not.
    pub fn forecasts_alone(&self, at: usize) -> [Forecast; 3] {
        let hook = &self.readers[at].hook;
        let place = place_of(hook);
        if self.places[&place].len() == 1 {
            return BackendFailure::ALL.map(|failure| self.forecast(at, failure));
        }
        let failing = self.failing(at, &[at]);
        BackendFailure::ALL.map(|failure| self.forecast_of(at, &failing, failure))
    }

    /// What happens if all these webhooks fail together; `None` if `all` is empty. Only the own Pods of the first are considered.
    pub fn forecast_together(&self, all: &[usize], failure: BackendFailure) -> Option<Forecast> {
        let first = *all.first()?;
        Some(self.forecast_of(first, &self.failing(first, all), failure))
    }

    /// The vital writes ([`Function::is_vital`]) that are lost, in some way of failing, if only this webhook fails.
    pub fn vital_writes(&self, at: usize) -> Vec<&'static WriteSort> {
        let reader = &self.readers[at];
        let hook = &reader.hook;
        let met = WRITES.iter().enumerate().filter(|(index, write)| {
            write.what.is_vital() && self.reach_of(at, *index, at) >= Reach::May && {
                let once = std::iter::once(MetHook {
                    hook,
                    cost: hook.timeout,
                    fails: false,
                });
                let again = hook.reinvoked && self.asks_again(*index, at);
                let waits = Chain::of(once, again).total();
                hook.failure_policy == FailurePolicy::Fail || waits >= (write.deadline)()
            }
        });
        met.map(|(_, write)| write).collect()
    }

    /// These webhooks, with [`ObjectScope::Own`] meaning the Pods of `of`.
    fn failing(&self, of: usize, all: &[usize]) -> Vec<Failing<'_>> {
        let each = all.iter().map(|at| {
            let reaches = (0..WRITES.len()).map(|index| self.reach_of(*at, index, of));
            (&self.readers[*at], reaches.collect())
        });
        each.collect()
    }

    fn forecast_of(&self, at: usize, failing: &[Failing<'_>], failure: BackendFailure) -> Forecast {
        let hook = &self.readers[at].hook;
        let mut found = ForecastLosses::default();
        for (index, write) in WRITES.iter().enumerate() {
            let met = failing.iter().map(|(reader, reaches)| (*reader, reaches[index]));
            let met: Vec<_> = met.filter(|(_, reach)| *reach >= Reach::May).collect();
            let reinvoked = met.iter().any(|(reader, _)| reader.hook.reinvoked);
            suffer(
                write,
                reinvoked && self.asks_again(index, at),
                &met,
                failure,
                &mut found,
            );
        }
        let failing: Vec<&HookReader> = failing.iter().map(|(reader, _)| *reader).collect();
        tenants_suffer(&failing, &self.tenants, failure, &mut found);
        found.follow(service_key(hook).is_some());
        Forecast {
            hook: hook.id.clone(),
            failure,
            together_with: Vec::new(),
            casualties: found.sorted(),
            writes: found.writes,
        }
    }

    /// Whether one of [`WRITES`], with [`ObjectScope::Own`] meaning the Pods of `of`, meets several mutating webhooks: then one
    /// with `reinvocationPolicy: IfNeeded` may be called twice.
    fn asks_again(&self, index: usize, of: usize) -> bool {
        let of = if WRITES[index].place == ObjectScope::Own {
            self.owners[of]
        } else {
            0
        };
        if let Some(known) = self.again.borrow().get(&(index, of)) {
            return *known;
        }
        let mutates = |at: &usize| {
            self.readers[*at].hook.id.kind == HookKind::Mutating
                && self.reach_of(*at, index, of) >= Reach::May
        };
        let again = (0..self.readers.len()).filter(mutates).nth(1).is_some();
        self.again.borrow_mut().insert((index, of), again);
        again
    }

    /// Whether the webhook `at` is called for one of [`WRITES`], with [`ObjectScope::Own`] meaning the Pods of `of`.
    fn reach_of(&self, at: usize, index: usize, of: usize) -> Reach {
        let write = &WRITES[index];
        if write.place != ObjectScope::Own {
            return self.reaches[at][index];
        }
        let Some((namespace, _)) = service_key(&self.readers[of].hook) else {
            return Reach::No;
        };
        let own = Some((&*namespace, &*self.pods[of]));
        self.readers[at].reach(write, self.estate, &self.tenants, own)
    }
}

/// The destination of a webhook's calls. Webhooks with the same destination fail together; one without a valid target is alone.
fn place_of(hook: &Hook) -> String {
    hook.target.place().unwrap_or_else(|| hook.id.to_string())
}

/// The zone of an endpoint, from its EndpointSlice or else from its node; `None` if neither has one.
pub(super) fn zone<'a>(estate: &'a Estate, endpoint: &'a Endpoint) -> Option<&'a str> {
    let node = || estate.nodes.get(endpoint.node.as_deref()?)?.zone.as_deref();
    endpoint.zone.as_deref().or_else(node)
}

fn zones(estate: &Estate) -> BTreeSet<&str> {
    let endpoints = estate.subjects.iter().flat_map(|subject| subject.hook.living());
    let of_endpoints = endpoints.filter_map(|endpoint| zone(estate, endpoint));
    let nodes = estate.nodes.values();
    of_endpoints
        .chain(nodes.filter_map(|node| node.zone.as_deref()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::reach::NAME_LABEL;
    use super::*;
    use crate::cluster::hook::{HookTarget, ServiceState, ServiceTarget};
    use crate::cluster::matching::tests::hook;

    /// A mutating webhook for Pods of its own namespace alone, asked again about what others change.
    fn of_namespace(number: usize, namespace: &str) -> AuditedHook {
        let mut hook = hook(&["pods"]);
        hook.id = HookId::new(HookKind::Mutating, &format!("c{number}"), "w");
        hook.reinvoked = true;
        hook.namespace_selector.match_labels = [(NAME_LABEL.to_owned(), namespace.to_owned())].into();
        hook.target = HookTarget::Service(ServiceTarget {
            namespace: namespace.to_owned(),
            name: format!("s{number}"),
            port: 443,
            path: "/".to_owned(),
            service: ServiceState::Missing,
        });
        AuditedHook {
            hook: Arc::new(hook),
            source: None,
        }
    }

    #[test]
    fn what_is_remembered_of_own_pods_grows_with_the_namespaces_of_webhooks_and_not_with_the_square() {
        // The last one shares the namespace of the first.
        let subjects = (0..=40).map(|number| of_namespace(number, &format!("n{}", number % 40)));
        let estate = Estate {
            subjects: subjects.collect(),
            is_cluster: true,
            ..Estate::default()
        };
        let auditor = Auditor::new(&estate);
        for at in 0..=40 {
            auditor.forecast(at, BackendFailure::Hang);
            auditor.vital_writes(at);
        }
        let known: Vec<(usize, usize)> = auditor.again.borrow().keys().copied().collect();
        let is_own = |(write, _): &&(usize, usize)| WRITES[*write].place == ObjectScope::Own;
        let mut owners: Vec<usize> = known.iter().filter(is_own).map(|(_, of)| *of).collect();
        owners.sort_unstable();
        owners.dedup();
        assert_eq!(owners, (0..40).collect::<Vec<_>>(), "the last is like the first");
        let creation = WRITES.iter().position(|write| write.place == ObjectScope::Own);
        let again = |of| auditor.asks_again(creation.expect("a write to own Pods"), of);
        assert_eq!([0, 40, 1].map(again), [true, true, false]);
    }
}
