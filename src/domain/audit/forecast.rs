//! Which functions of the control plane fail when a webhook's backends do, and when.
//!
//! [`Chain`] adds up what all webhooks of a request cost together, as in the diagnosis. When a function is lost follows from
//! its writers' timers: their phase at the start of the fault is unknown, so each time is an interval.

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
    /// They take calls and never answer.
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
    /// Between how long after the fault, at the earliest and at the latest.
    pub after: [Duration; 2],
    /// False where it depends on an unknown condition or label.
    pub is_certain: bool,
    /// Which write is lost, or whose loss takes it along, as a clause.
    pub why: String,
}

/// A write that is refused or delayed.
#[derive(Debug, Clone, PartialEq)]
pub struct Suffering {
    /// The write, as a clause for sentences.
    pub name: &'static str,
    /// Operation, and resource with group and subresource, as `UPDATE leases.coordination.k8s.io`.
    pub object: String,
    /// How long all its webhooks together delay it.
    pub waits: Duration,
    /// It is refused, or given up by its client, in the end.
    pub is_lost: bool,
}

/// What happens if a webhook's backends fail in one way.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// The webhook.
    pub hook: HookId,
    /// How they fail.
    pub failure: BackendFailure,
    /// Other webhooks that are called at the same place, and fail with it: the first 100.
    pub together_with: Vec<HookId>,
    /// What is lost, the soonest first.
    pub casualties: Vec<Casualty>,
    /// Every write that is refused or delayed.
    pub writes: Vec<Suffering>,
}

impl Forecast {
    /// Lost functions without which a cluster stops working.
    pub fn vital(&self) -> impl Iterator<Item = &Casualty> {
        self.casualties.iter().filter(|casualty| casualty.what.is_vital())
    }
}

const MAX_TOGETHER: usize = 100;

/// Everything that is audited, ready to be asked.
pub struct Auditor<'a> {
    /// What is audited.
    pub estate: &'a Estate,
    readers: Vec<HookReader>,
    pub(super) tenants: Tenants,
    /// Subjects that are called at one place.
    pub(super) places: BTreeMap<String, Vec<usize>>,
    /// By subject, how far it reaches each of [`WRITES`]; writes to its own Pods apart.
    reaches: Vec<Vec<Reach>>,
    /// By subject, the labels of its own Pods.
    pub(super) pods: Vec<Vec<&'a Labels>>,
    pub(super) zones: BTreeSet<&'a str>,
    /// Forecasts that were made, by place, in the order of [`BackendFailure::ALL`].
    known: RefCell<BTreeMap<String, [Forecast; 3]>>,
    /// By subject, the first one that has the same namespace and own Pods.
    owners: Vec<usize>,
    /// What is known of [`Self::asks_again`], by write and whose own Pods are meant. That grows with the webhooks;
    /// how far each reaches the Pods of each other one would grow with their square.
    again: RefCell<BTreeMap<(usize, usize), bool>>,
}

/// A webhook that fails, and how far it reaches each of [`WRITES`].
type Failing<'a> = (&'a HookReader, Vec<Reach>);

impl<'a> Auditor<'a> {
    /// Reads an estate.
    pub fn new(estate: &'a Estate) -> Self {
        Self::pausing(estate, &|| {})
    }

    /// The same. `pause` is called between any two webhooks.
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

    /// The webhook in this place of the estate.
    pub fn subject(&self, at: usize) -> &AuditedHook {
        &self.estate.subjects[at]
    }

    /// Its reading of requests.
    pub fn reader(&self, at: usize) -> &HookReader {
        &self.readers[at]
    }

    /// How far a webhook reaches each of [`WRITES`].
    pub fn reaches(&self, at: usize) -> impl Iterator<Item = (&'static WriteSort, Reach)> {
        WRITES.iter().zip(self.reaches[at].iter().copied())
    }

    /// How far one webhook reaches the creation of a Pod of another one.
    pub fn reaches_pods_of(&self, at: usize, of: usize) -> Reach {
        let creation = WRITES
            .iter()
            .position(|write| write.place == ObjectScope::Own && write.what == Function::OwnPods);
        creation.map_or(Reach::No, |index| self.reach_of(at, index, of))
    }

    /// What happens if the webhook in this place of the estate fails, and with it those that are called at the same place.
    pub fn forecast(&self, at: usize, failure: BackendFailure) -> Forecast {
        let hook = &self.readers[at].hook;
        let place = place_of(hook);
        let all = &self.places[&place];
        // The same for all of them, of which there may be many.
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

    /// What happens, in each way, if this webhook fails and others at its place do not.
    pub fn forecasts_alone(&self, at: usize) -> [Forecast; 3] {
        let hook = &self.readers[at].hook;
        let place = place_of(hook);
        if self.places[&place].len() == 1 {
            return BackendFailure::ALL.map(|failure| self.forecast(at, failure));
        }
        let failing = self.failing(at, &[at]);
        BackendFailure::ALL.map(|failure| self.forecast_of(at, &failing, failure))
    }

    /// What happens if all these fail together. Of their own Pods only those of the first count.
    pub fn forecast_together(&self, all: &[usize], failure: BackendFailure) -> Option<Forecast> {
        let first = *all.first()?;
        Some(self.forecast_of(first, &self.failing(first, all), failure))
    }

    /// Writes without which a cluster stops working and that are lost if only this webhook fails, in any way.
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

    /// These webhooks, where writes to own Pods are those to the Pods of `of`.
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

    /// Whether one of [`WRITES`] meets several mutating webhooks, own Pods being those of `of`: then one with
    /// `reinvocationPolicy: IfNeeded` may be called twice.
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

    /// How far one webhook reaches one of [`WRITES`], own Pods being those of another one.
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

/// Where a webhook is called: those of one place fail together.
fn place_of(hook: &Hook) -> String {
    hook.target.place().unwrap_or_else(|| hook.id.to_string())
}

/// By its slice, or by its node.
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
