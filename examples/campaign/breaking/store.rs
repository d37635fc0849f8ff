//! The model's store of webhook configurations, and the ledger in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hookwatch::domain::act::breaker::{
    Action, Book, BypassState, Ceiling, ObjectChange, Observation, ObservedHook, Permit, ResourceVersion,
    Rung, To, WriteOutcome,
};
use hookwatch::domain::cluster::hook::{HookId, HookKind};

use crate::model::At;
use crate::model::bypass::Form;
use crate::model::cluster::Cluster;

/// The object that a hook is in.
type Configuration = (HookKind, Arc<str>);

/// An answer, and which hook stands in another form from now on.
pub(super) struct Served {
    pub(super) answer: Observation,
    pub(super) reformed: Option<(usize, Form)>,
}

/// One webhook configuration.
#[derive(Debug, Clone)]
struct Object {
    since: At,
    version: ResourceVersion,
    /// What differs from what the owner wants.
    ours: BTreeMap<Arc<str>, (Rung, bool)>,
}

#[derive(Debug, Default)]
pub(super) struct Store {
    index: BTreeMap<HookId, usize>,
    /// Whose failures their owners ignore.
    ignored: BTreeSet<HookId>,
    /// Every state of each object, the newest last.
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

    /// Hooks that are not as their owners have them.
    pub(super) fn touched(&self) -> Vec<usize> {
        let newest = |id: &HookId| self.objects.get(&configuration(id))?.last();
        let touched = |id: &HookId| newest(id).is_some_and(|object| object.ours.contains_key(&id.webhook));
        let hooks = self.index.iter().filter(|(id, _)| touched(id));
        hooks.map(|(_, index)| *index).collect()
    }

    /// The version of the ledger and how some hooks stand, as an API server shows it that is not quite up to date.
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

    /// Does what is asked for; `None` when nothing was.
    pub(super) fn serve(&mut self, action: &Action, now: At) -> Option<Served> {
        let answer = |answer| {
            Some(Served {
                answer,
                reformed: None,
            })
        };
        match action {
            Action::ReadLedger => {
                let (version, book) = self.ledger.clone().unzip();
                answer(Observation::Ledger {
                    version,
                    book: book.unwrap_or_default(),
                })
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
                answer(Observation::Outcome {
                    ticket: *ticket,
                    outcome,
                })
            }
            Action::Read { ticket, hook } => {
                let states = self.objects.get(&configuration(hook))?;
                answer(Observation::Read {
                    ticket: *ticket,
                    view: Some(self.view(states.last()?, hook)),
                })
            }
            Action::Change(change) => self.change(change, now),
            Action::Tell(_) => None,
        }
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
            ceiling: Ceiling::Open,
            permit: Permit::Nothing,
            subject: Arc::default(),
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
            let outcome = WriteOutcome::Conflict;
            return Some(Served {
                answer: Observation::Outcome {
                    ticket: change.ticket,
                    outcome,
                },
                reformed: None,
            });
        }
        let mut object = Object {
            since: now,
            version,
            ours: newest.ours.clone(),
        };
        let form = match change.to {
            To::Original => {
                object.ours.remove(&id.webhook);
                Form::Original
            }
            To::Probation => {
                let rung = object.ours.get(&id.webhook).map_or(Rung::Skip, |(rung, _)| *rung);
                object.ours.insert(Arc::clone(&id.webhook), (rung, true));
                Form::OnProbation
            }
            To::Bypass(rung) => {
                object.ours.insert(Arc::clone(&id.webhook), (rung, false));
                match rung {
                    Rung::Shield => Form::Shielded,
                    Rung::Skip => Form::Skipped,
                }
            }
        };
        let applied = WriteOutcome::Applied(self.view(&object, id));
        self.objects.get_mut(&configuration(id))?.push(object);
        Some(Served {
            answer: Observation::Outcome {
                ticket: change.ticket,
                outcome: applied,
            },
            reformed: Some((hook, form)),
        })
    }
}

impl Served {
    /// Nobody takes it.
    pub(super) fn refused(action: &Action) -> Option<Self> {
        let refused = || WriteOutcome::Refused("no API server answers".into());
        let answer = match action {
            Action::ReadLedger => Observation::NoLedger,
            Action::Read { ticket, .. } => Observation::Read {
                ticket: *ticket,
                view: None,
            },
            Action::WriteLedger { ticket, .. } => Observation::Outcome {
                ticket: *ticket,
                outcome: refused(),
            },
            Action::Change(change) => Observation::Outcome {
                ticket: change.ticket,
                outcome: refused(),
            },
            Action::Tell(_) => return None,
        };
        Some(Self {
            answer,
            reformed: None,
        })
    }
}

fn configuration(id: &HookId) -> Configuration {
    (id.kind, Arc::clone(&id.configuration))
}
