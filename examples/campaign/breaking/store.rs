//! The model's store of webhook configurations and of the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hookwatch::domain::act::breaker::{
    Action, Book, BypassState, ObjectChange, Observation, ObservedHook, OwnerAnnotations, ResourceVersion,
    Rung, Ticket, To, WriteOutcome,
};
use hookwatch::domain::cluster::hook::{HookId, HookKind};

use crate::model::At;
use crate::model::bypass::Form;
use crate::model::cluster::Cluster;

/// Identifies the webhook configuration that holds a webhook.
type Configuration = (HookKind, Arc<str>);

/// The answer to a request, and the webhook whose form it changed, if any.
pub(super) struct Served {
    pub(super) answer: Observation,
    pub(super) reformed: Option<(usize, Form)>,
}

/// One version of a webhook configuration.
#[derive(Debug, Clone)]
struct Object {
    since: At,
    version: ResourceVersion,
    /// The bypassed webhooks of the configuration: name, rung, and whether it is on probation.
    ours: BTreeMap<Arc<str>, (Rung, bool)>,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    index: BTreeMap<HookId, usize>,
    /// Webhooks with `failurePolicy: Ignore`.
    ignored: BTreeSet<HookId>,
    /// Every version of each object, the newest last.
    objects: BTreeMap<Configuration, Vec<Object>>,
    ledger: Option<(ResourceVersion, Book)>,
    ledger_shown: Vec<(At, ResourceVersion)>,
    versions: u64,
}

impl Store {
    pub(super) fn new(cluster: &Cluster) -> Self {
        let mut store = Self::default();
        for (index, hook) in cluster.hooks.iter().enumerate() {
            let object = Object {
                since: 0,
                version: store.version(),
                ours: BTreeMap::new(),
            };
            store.objects.insert(configuration(&hook.id), vec![object]);
            store.index.insert(hook.id.clone(), index);
            if !hook.fails {
                store.ignored.insert(hook.id.clone());
            }
        }
        store
    }

    fn version(&mut self) -> ResourceVersion {
        self.versions += 1;
        ResourceVersion::new(&self.versions.to_string())
    }

    /// Webhooks that are bypassed or on probation.
    pub(super) fn touched(&self) -> Vec<usize> {
        let newest = |id: &HookId| self.objects.get(&configuration(id))?.last();
        let touched = |id: &HookId| newest(id).is_some_and(|object| object.ours.contains_key(&id.webhook));
        let hooks = self.index.iter().filter(|(id, _)| touched(id));
        hooks.map(|(_, index)| *index).collect()
    }

    /// The ledger's version and the state of these webhooks as they were at `at`, as an API server with a stale cache shows them.
    pub(super) fn shown<'a>(
        &self,
        hooks: impl Iterator<Item = &'a HookId>,
        at: At,
    ) -> (Option<ResourceVersion>, Vec<(HookId, ObservedHook)>) {
        let ledger = self.ledger_shown.iter().rev().find(|(since, _)| *since <= at);
        let views = hooks.filter_map(|id| {
            let states = self.objects.get(&configuration(id))?;
            let state = states.iter().rev().find(|state| state.since <= at)?;
            Some((id.clone(), self.view(state, id)))
        });
        (ledger.map(|(_, version)| version.clone()), views.collect())
    }

    /// Executes an action; `None` when it is not a request or its webhook does not exist.
    pub(super) fn serve(&mut self, action: &Action, now: At) -> Option<Served> {
        Some(match action {
            Action::ReadLedger => {
                let (version, book) = self.ledger.clone().unzip();
                let book = book.unwrap_or_default();
                Served::answer(Observation::Ledger { version, book })
            }
            Action::WriteLedger {
                ticket,
                version,
                book,
            } => {
                let known = self.ledger.as_ref().map(|(version, _)| version);
                let outcome = if known == version.as_ref() {
                    let version = self.version();
                    self.ledger = Some((version.clone(), book.clone()));
                    self.ledger_shown.push((now, version.clone()));
                    WriteOutcome::Written(version)
                } else {
                    WriteOutcome::Conflict
                };
                Served::outcome(*ticket, outcome)
            }
            Action::Read { ticket, hook } => {
                let states = self.objects.get(&configuration(hook))?;
                let view = self.view(states.last()?, hook);
                Served::read(*ticket, Some(view))
            }
            Action::Change(change) => return self.change(change, now),
            Action::Tell(_) => return None,
        })
    }

    fn view(&self, object: &Object, id: &HookId) -> ObservedHook {
        let shown = match object.ours.get(&id.webhook) {
            Some((rung, probation)) => BypassState::Ours {
                rung: *rung,
                probation: *probation,
            },
            None => BypassState::Original,
        };
        ObservedHook {
            version: object.version.clone(),
            uid: "uid".into(),
            shown,
            owner: OwnerAnnotations::default(),
            ignores: self.ignored.contains(id),
            left_over: false,
            by_hand_until: None,
        }
    }

    fn change(&mut self, change: &ObjectChange, now: At) -> Option<Served> {
        let id = &change.hook;
        let hook = *self.index.get(id)?;
        let version = self.version();
        let newest = self.objects.get(&configuration(id))?.last()?;
        if newest.version != change.expects.version || self.view(newest, id).shown != change.expects.shown {
            return Some(Served::outcome(change.ticket, WriteOutcome::Conflict));
        }
        let mut object = Object {
            since: now,
            version,
            ours: newest.ours.clone(),
        };
        let before = object.ours.remove(&id.webhook);
        let ours = match change.to {
            To::Original => None,
            To::Probation => Some((before.map_or(Rung::Skip, |(rung, _)| rung), true)),
            To::Bypass(rung) => Some((rung, false)),
        };
        object
            .ours
            .extend(ours.map(|ours| (Arc::clone(&id.webhook), ours)));
        let applied = WriteOutcome::Applied(self.view(&object, id));
        self.objects.get_mut(&configuration(id))?.push(object);
        Some(Served {
            reformed: Some((hook, change.to.into())),
            ..Served::outcome(change.ticket, applied)
        })
    }
}

impl Served {
    fn answer(answer: Observation) -> Self {
        Self {
            answer,
            reformed: None,
        }
    }

    fn outcome(ticket: Ticket, outcome: WriteOutcome) -> Self {
        Self::answer(Observation::Outcome { ticket, outcome })
    }

    fn read(ticket: Ticket, view: Option<ObservedHook>) -> Self {
        Self::answer(Observation::Read { ticket, view })
    }

    /// The answer when no API server serves; `None` for an action that is not a request.
    pub(super) fn refused(action: &Action) -> Option<Self> {
        Some(match action {
            Action::ReadLedger => Self::answer(Observation::NoLedger),
            Action::Read { ticket, .. } => Self::read(*ticket, None),
            Action::WriteLedger { ticket, .. } => {
                let why = WriteOutcome::Refused("no API server answers".into());
                Self::outcome(*ticket, why)
            }
            Action::Change(change) => Self::outcome(change.ticket, WriteOutcome::GaveUp),
            Action::Tell(_) => return None,
        })
    }
}

fn configuration(id: &HookId) -> Configuration {
    (id.kind, Arc::clone(&id.configuration))
}
