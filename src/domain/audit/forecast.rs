//! Which functions of the control plane die when the backends of a webhook do, and when.
//!
//! What all webhooks of a request cost together is reckoned by [`Chain`], as in the diagnosis. When a function is lost follows
//! from the timers of who writes: they were at some phase when the fault began, so each time is an interval.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Function;
use super::estate::{Estate, Subject, service_key};
use super::reach::{Reach, Reader, TENANT, Tenants, named};
use super::writes::{Place, WRITES, Write};
use crate::domain::chain::Chain;
use crate::domain::hook::{FailurePolicy, Hook, HookId, HookKind, Labels};
use crate::domain::matching::RequestShape;
use crate::domain::matching::outcome::Compiler;
use crate::domain::thresholds::longest_write;

/// How the backends of a webhook fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Failure {
    /// They take calls and never answer.
    Hang,
    /// They refuse connections, or there are none.
    Refuse,
    /// They answer just before each call times out.
    Slow,
}

impl Failure {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hang, Self::Refuse, Self::Slow];

    /// The value of `if` in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hang => "hang",
            Self::Refuse => "refuse",
            Self::Slow => "slow",
        }
    }

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
    /// Which one.
    pub what: Function,
    /// Between how long after the fault, at the earliest and at the latest.
    pub after: [Duration; 2],
    /// False where it rests on a condition or a label that is not known.
    pub is_certain: bool,
    /// Which write is lost, or whose loss takes it along, as a clause.
    pub why: String,
}

/// A write that suffers.
#[derive(Debug, Clone, PartialEq)]
pub struct Suffering {
    /// It, in words.
    pub name: &'static str,
    /// Operation, and resource with group and subresource, as `UPDATE leases.coordination.k8s.io`.
    pub object: String,
    /// How long it waits.
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
    pub failure: Failure,
    /// Other webhooks that are called at the same place, and fail with it.
    pub together_with: Vec<HookId>,
    /// What is lost, the soonest first.
    pub casualties: Vec<Casualty>,
    /// Every write that is refused or delayed.
    pub writes: Vec<Suffering>,
}

impl Forecast {
    /// What is lost that a cluster is lost without.
    pub fn vital(&self) -> impl Iterator<Item = &Casualty> {
        self.casualties.iter().filter(|casualty| casualty.what.is_vital())
    }
}

/// Leaders exit 10 s after the begin of the first renewal that fails, which begins up to 2 s after the fault
/// (`client-go/tools/leaderelection`). Half a second on both sides for what is under way.
const LEADERS: [Duration; 2] = [Duration::from_millis(9_500), Duration::from_millis(12_500)];
/// A node's Lease lasts 40 s and was renewed up to 10.4 s before the fault (`kubelet`, `nodeLeaseDurationSeconds`).
const NODES: [Duration; 2] = [Duration::from_secs(29), Duration::from_secs(41)];
/// What leaders do ends with them; it is noticed when it is next needed.
const WITH_LEADERS: [Duration; 2] = [Duration::from_millis(9_500), Duration::from_secs(24)];
/// The post-start hook `rbac/bootstrap-roles` begins no attempt after 30 s, and waits for one under way
/// (`pkg/registry/rbac/rest/storage_rbac.go`).
const STARTS: Duration = Duration::from_secs(30);
/// A write that fails is made within so long of the fault.
const NEXT_WRITE: Duration = Duration::from_secs(10);

/// Everything that is audited, ready to be asked.
pub struct Auditor<'a> {
    /// What is audited.
    pub estate: &'a Estate,
    readers: Vec<Reader>,
    tenants: Tenants,
    compiler: Compiler,
    /// Subjects that are called at one place.
    places: BTreeMap<String, Vec<usize>>,
    /// By subject, how far it reaches each of [`WRITES`]; writes to its own Pods apart.
    reaches: Vec<Vec<Reach>>,
    /// By write, how many mutating webhooks it meets.
    mutators: Vec<usize>,
}

impl<'a> Auditor<'a> {
    /// Reads an estate.
    pub fn new(estate: &'a Estate) -> Self {
        let (compiler, tenants) = (Compiler::default(), Tenants::of(estate));
        let readers: Vec<Reader> = estate
            .subjects
            .iter()
            .map(|subject| Reader::new(subject, &compiler))
            .collect();
        let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, subject) in estate.subjects.iter().enumerate() {
            let place = subject
                .hook
                .target
                .place()
                .unwrap_or_else(|| subject.hook.id.to_string());
            places.entry(place).or_default().push(at);
        }
        let reaches: Vec<Vec<Reach>> = readers
            .iter()
            .map(|reader| {
                WRITES
                    .iter()
                    .map(|write| reader.reach(write, estate, &tenants, None))
                    .collect()
            })
            .collect();
        let mutators = (0..WRITES.len()).map(|write| {
            let asked = readers.iter().zip(&reaches);
            let asked = asked.filter(|(reader, reaches)| {
                reader.hook.id.kind == HookKind::Mutating && reaches[write] >= Reach::May
            });
            asked.count()
        });
        let mutators = mutators.collect();
        Self {
            estate,
            readers,
            tenants,
            compiler,
            places,
            reaches,
            mutators,
        }
    }

    /// The webhook in this place of the estate.
    pub fn subject(&self, at: usize) -> &Subject {
        &self.estate.subjects[at]
    }

    /// Its reading of requests.
    pub fn reader(&self, at: usize) -> &Reader {
        &self.readers[at]
    }

    /// Where tenants are.
    pub const fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// How far a webhook reaches each of [`WRITES`].
    pub fn reaches(&self, at: usize) -> impl Iterator<Item = (&'static Write, Reach)> {
        WRITES.iter().zip(self.reaches[at].iter().copied())
    }

    /// How far one webhook reaches a write that is made for the Pods of another one.
    pub fn reaches_pods_of(&self, at: usize, write: &Write, of: usize) -> Reach {
        let hook = &self.readers[of].hook;
        let Some((namespace, _)) = service_key(hook) else {
            return Reach::No;
        };
        let pods: Vec<&Labels> = self
            .estate
            .workloads(hook)
            .map(|workload| &workload.labels)
            .collect();
        self.readers[at].reach(write, self.estate, &self.tenants, Some((&namespace, &pods)))
    }

    /// What happens if the webhook in this place of the estate fails, and with it those that are called at the same place.
    pub fn forecast(&self, at: usize, failure: Failure) -> Forecast {
        let hook = &self.readers[at].hook;
        let place = hook.target.place().unwrap_or_else(|| hook.id.to_string());
        self.forecast_of(at, &self.failing(&self.places[&place]), failure)
    }

    /// What happens if it alone fails: its own part.
    pub fn forecast_alone(&self, at: usize, failure: Failure) -> Forecast {
        self.forecast_of(at, &self.failing(&[at]), failure)
    }

    /// What happens if all these fail together.
    pub fn forecast_together(&self, all: &[usize], failure: Failure) -> Option<Forecast> {
        Some(self.forecast_of(*all.first()?, &self.failing(all), failure))
    }

    /// What happens if it alone fails, were it configured like this.
    pub fn forecast_patched(&self, at: usize, hook: Hook, failure: Failure) -> Forecast {
        let reader = Reader::of(Arc::new(hook), &self.compiler);
        self.forecast_of(at, &[(None, &reader)], failure)
    }

    fn failing(&self, all: &[usize]) -> Vec<(Option<usize>, &Reader)> {
        all.iter().map(|at| (Some(*at), &self.readers[*at])).collect()
    }

    fn forecast_of(&self, at: usize, failing: &[(Option<usize>, &Reader)], failure: Failure) -> Forecast {
        let hook = &self.readers[at].hook;
        let mut found = Found::default();
        for (index, write) in WRITES.iter().enumerate() {
            let met = failing.iter().map(|(known, reader)| {
                let known = known.filter(|_| write.place != Place::Own);
                let reach = match known {
                    Some(known) => self.reaches[known][index],
                    None => self.reach_of(reader, write, at),
                };
                (*reader, reach)
            });
            let met: Vec<_> = met.filter(|(_, reach)| *reach >= Reach::May).collect();
            suffer(write, self.mutators[index], &met, failure, &mut found);
        }
        let failing: Vec<&Reader> = failing.iter().map(|(_, reader)| *reader).collect();
        tenants_suffer(&failing, failure, &mut found);
        found.follow();
        let together_with = failing
            .iter()
            .map(|reader| &reader.hook.id)
            .filter(|id| **id != hook.id);
        Forecast {
            hook: hook.id.clone(),
            failure,
            together_with: together_with.cloned().collect(),
            casualties: found.sorted(),
            writes: found.writes,
        }
    }
    /// How far one reaches a write that is not in the table of reaches.
    fn reach_of(&self, reader: &Reader, write: &Write, of: usize) -> Reach {
        let hook = &self.readers[of].hook;
        let key = service_key(hook);
        let pods: Vec<&Labels> = self
            .estate
            .workloads(hook)
            .map(|workload| &workload.labels)
            .collect();
        let own = key.as_ref().map(|(namespace, _)| (&**namespace, &*pods));
        reader.reach(write, self.estate, &self.tenants, own)
    }
}

/// What becomes of one write.
fn suffer(write: &Write, mutators: usize, met: &[(&Reader, Reach)], failure: Failure, found: &mut Found) {
    if met.is_empty() {
        return;
    }
    let costs = met
        .iter()
        .map(|(reader, _)| (&*reader.hook, failure.cost(&reader.hook)));
    let chain = Chain::of(costs, mutators > 1);
    let deadline = (write.deadline)();
    let refused = refused_after(&chain, failure);
    let total = chain.total();
    let lost = refused.or((total >= deadline).then_some(deadline));
    let waits = lost.unwrap_or(total).min(deadline);
    let [group, _, resource, subresource] = write.object;
    if lost.is_some() || !total.is_zero() {
        found.writes.push(Suffering {
            name: write.name,
            object: format!("{} {}", write.operation, dotted(resource, subresource, group)),
            waits,
            is_lost: lost.is_some(),
        });
    }
    if lost.is_none() {
        return;
    }
    let certain = met.iter().all(|(_, reach)| *reach == Reach::Yes);
    let how = match refused {
        Some(after) if after.is_zero() => format!("{} is refused at once", write.name),
        Some(after) if after < deadline => {
            format!("{} is refused after {:.0} s", write.name, after.as_secs_f64())
        }
        _ => format!(
            "{} takes longer than the {:.0} s that its client waits",
            write.name,
            deadline.as_secs_f64()
        ),
    };
    let after = match write.what {
        Function::LeaderElection => LEADERS,
        Function::NodeHeartbeat => NODES,
        Function::ApiServerStart => {
            // How many of the roles are missing is not known, and an attempt at all of them is waited for.
            let attempt = waits.mul_f64(0.4);
            [STARTS + attempt, STARTS + attempt + Duration::from_secs(15)]
        }
        _ => [
            waits.saturating_sub(Duration::from_millis(500)),
            waits + NEXT_WRITE,
        ],
    };
    found.lose(write.what, after, certain, how);
}

/// What becomes of tenants' writes of what the rules name.
fn tenants_suffer(failing: &[&Reader], failure: Failure, found: &mut Found) {
    for (object, operation, namespaced) in failing.iter().flat_map(|reader| named(&reader.hook)) {
        let [group, version, resource, subresource] = &object;
        let shape = RequestShape {
            operation,
            group,
            version,
            resource,
            subresource,
            namespace: namespaced.then_some(TENANT),
            ..RequestShape::default()
        };
        let asked = failing.iter().filter(|reader| reader.hook.could_match(&shape));
        let chain = Chain::of(
            asked
                .clone()
                .map(|reader| (&*reader.hook, failure.cost(&reader.hook))),
            false,
        );
        let fails = failure != Failure::Slow
            && asked
                .clone()
                .any(|reader| reader.hook.failure_policy == FailurePolicy::Fail);
        let total = chain.total();
        let deadline = longest_write();
        if asked.clone().next().is_some() && (fails || total >= deadline) {
            let total = total.min(deadline);
            let certain = asked
                .clone()
                .all(|reader| reader.hook.match_conditions.is_empty());
            found.lose(
                Function::TenantWrites,
                [total, total + NEXT_WRITE],
                certain,
                format!("{operation} of {resource} is refused"),
            );
            found.writes.push(Suffering {
                name: "a write of what its rules name",
                object: format!("{operation} {}", dotted(resource, subresource, group)),
                waits: total,
                is_lost: true,
            });
        }
    }
}

/// When the first call that fails refuses the request; `None` where none does.
fn refused_after(chain: &Chain<'_>, failure: Failure) -> Option<Duration> {
    let fails = |hook: &Hook| failure != Failure::Slow && hook.failure_policy == FailurePolicy::Fail;
    let mut waited = Duration::ZERO;
    for (hook, cost) in &chain.mutating {
        waited += *cost;
        if fails(hook) {
            // One that is asked twice refuses the first time.
            return Some(waited.min(waited.saturating_sub(*cost) + hook.timeout));
        }
    }
    let validating = chain.validating.iter().filter(|(hook, _)| fails(hook));
    // All are waited for, also once one has failed.
    validating.map(|(_, cost)| *cost).max().map(|_| chain.total())
}

fn dotted(resource: &str, subresource: &str, group: &str) -> String {
    let below = if subresource.is_empty() {
        String::new()
    } else {
        format!("/{subresource}")
    };
    if group.is_empty() {
        format!("{resource}{below}")
    } else {
        format!("{resource}.{group}{below}")
    }
}

/// What is found to be lost.
#[derive(Default)]
struct Found {
    casualties: BTreeMap<Function, Casualty>,
    writes: Vec<Suffering>,
}

impl Found {
    /// Takes a loss in; of several of one function the surest counts, and of those the soonest.
    fn lose(&mut self, what: Function, after: [Duration; 2], is_certain: bool, why: String) {
        let casualty = Casualty {
            what,
            after,
            is_certain,
            why,
        };
        let rank = |casualty: &Casualty| (!casualty.is_certain, casualty.after);
        let known = self.casualties.get(&what);
        if known.is_none_or(|known| rank(&casualty) < rank(known)) {
            self.casualties.insert(what, casualty);
        }
    }

    /// What leaders do is lost with them.
    fn follow(&mut self) {
        let Some(leaders) = self.casualties.get(&Function::LeaderElection) else {
            return;
        };
        let is_certain = leaders.is_certain;
        for (what, who) in [
            (Function::PodScheduling, "kube-scheduler has exited"),
            (Function::OwnPods, "kube-controller-manager has exited"),
            (Function::KubeSystemPods, "kube-controller-manager has exited"),
            (Function::NamespaceDelete, "kube-controller-manager has exited"),
            (Function::ServiceEndpoints, "kube-controller-manager has exited"),
        ] {
            let known = self.casualties.get(&what);
            if known.is_none_or(|known| !known.is_certain && is_certain) {
                self.casualties.remove(&what);
                self.lose(what, WITH_LEADERS, is_certain, who.to_owned());
            }
        }
    }

    fn sorted(&self) -> Vec<Casualty> {
        let mut sorted: Vec<Casualty> = self.casualties.values().cloned().collect();
        sorted.sort_by_key(|casualty| (casualty.after, casualty.what));
        sorted
    }
}
