//! `hookwatch break` and `hookwatch restore`: what the breaker does, as manual commands.
//!
//! Both need only access to an API server: no daemon, no Lease, no configuration file.

pub(super) mod arguments;
mod follow_up;
mod freeze;
mod session;
mod show;
mod unchecked;

use std::process::ExitCode;
use std::sync::Arc;

use super::progress::during;
use super::{BadUsage, tell};
use crate::domain::act::bypass::edit::{Desired, FieldChange, Plan, plan, restore_differs_when_fenced};
use crate::domain::act::bypass::{Rung, standing, touched};
use crate::domain::cluster::condition::SHIELDED_NAMESPACES;
use crate::domain::cluster::hook::{HookId, HookKind};
use crate::domain::cluster::inventory::Inventory;
use crate::domain::observe::observations::{Spared, TrafficByHook};
use crate::domain::text::listed;
use crate::domain::time::Time;
use crate::io::act::audit::AuditRecord;
use crate::io::act::breaker::{PatchOutcome, PatchReport, own_user};
use crate::io::report::unchecked::{ObjectLister, hook_of};

pub use arguments::{
    ActArguments, BreakArguments, ClusterArguments, FreezeArguments, PlanArguments, RestoreArguments,
    UncheckedArguments,
};
pub use freeze::{freeze, unfreeze};
use session::Session;
pub use unchecked::unchecked;

struct ChangeMade {
    hook: HookId,
    uid: String,
    report: PatchReport,
    at: Time,
}

/// Bypasses hooks. A failure for one of several does not stop the others.
///
/// # Errors
/// When the cluster cannot be reached, the only webhook that is named does not exist, or the result cannot be printed.
pub async fn break_hooks(arguments: BreakArguments) -> anyhow::Result<ExitCode> {
    let mut session = Session::open_to_act(arguments.act).await?;
    let desired = session.bypass(arguments.rung, arguments.reason, arguments.at_most);
    let found = session.find_all(&arguments.targets, arguments.kind).await?;
    let shown = session.show_all(found, &desired).await;
    if !shown.is_empty() && session.confirm(arguments.yes) {
        session.carry_out_all(&shown, &desired, false).await;
    }
    session.end()
}

/// Shows what [`break_hooks`] would change, or why it would not, and changes nothing.
///
/// # Errors
/// As for [`break_hooks`].
pub async fn plan_hooks(arguments: PlanArguments) -> anyhow::Result<ExitCode> {
    let mut session = Session::open(arguments.cluster).await?;
    let desired = session.bypass(arguments.rung, "TEXT".to_owned(), arguments.at_most);
    let found = session.find_all(&arguments.targets, arguments.kind).await?;
    let shown = session.show_all(found, &desired).await;
    let plans = shown
        .iter()
        .map(|(hook, _, changes)| show::document(hook, changes));
    session.end_with(&plans.collect::<Vec<_>>())
}

/// Restores bypassed webhooks.
///
/// # Errors
/// As for [`break_hooks`].
pub async fn restore(arguments: RestoreArguments) -> anyhow::Result<ExitCode> {
    let mut session = Session::open_to_act(arguments.act).await?;
    let mut found = Vec::new();
    match &arguments.target {
        Some(target) => found.push(session.find(target, arguments.kind).await?),
        None => {
            for kind in kinds(arguments.kind) {
                match during(
                    &format!("listing {}s", kind.configuration_kind()),
                    session.writer.list(kind),
                )
                .await
                {
                    Ok(objects) => found.extend(session.left_behind(kind, &objects, arguments.expired)),
                    Err(outcome) => {
                        session.failed(&format!("{}s: {}", kind.configuration_kind(), outcome.words()))
                    }
                }
            }
        }
    }
    // A webhook may delay this request, so it is made only if the answer matters.
    let matters = |(hook, object): &(HookId, _)| restore_differs_when_fenced(object, &hook.webhook);
    if found.iter().any(matters) {
        let user = during("asking who it is", own_user(&session.connection)).await;
        // The fence restricts every ServiceAccount in hookwatch's namespace.
        let accounts = format!("system:serviceaccount:{}:", session.arguments.namespace);
        session.author.fenced = user.is_some_and(|user| user.starts_with(&accounts));
    }
    let shown = session.show_all(found, &Desired::Restore).await;
    if shown.is_empty() {
        // What could not be read may still need a restore.
        if session.succeeded {
            session.say("Nothing to restore.");
        }
    } else if session.confirm(arguments.yes) {
        let restored = session.carry_out_all(&shown, &Desired::Restore, arguments.expired);
        let some = restored.await > 0;
        if session.succeeded && some {
            session.say(
                "A daemon with autoBreak: on bypasses it again while it fails. To prevent that, run hookwatch freeze now.",
            );
        }
    }
    session.end()
}

/// Names of the webhooks in a configuration, for the error about a mistyped one.
fn names(object: &serde_json::Value) -> String {
    const SOME: usize = 10;
    let hooks = object["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<String> = hooks.iter().map(|hook| hook["name"].to_string()).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        listed(&names, SOME)
    }
}

/// The kinds of configuration to search: the named one, or both.
fn kinds(named: Option<HookKind>) -> impl Iterator<Item = HookKind> {
    let is_meant = move |kind: &HookKind| named.is_none_or(|named| named == *kind);
    HookKind::ADMISSION.into_iter().filter(is_meant)
}

/// A hook with its object and what would be changed of it.
type ShownChange = (HookId, serde_json::Value, Vec<FieldChange>);

impl Session {
    /// The selected hooks, each once, with their objects. One of several that cannot be read is reported and skipped.
    async fn find_all(
        &mut self,
        targets: &[(String, String)],
        kind: Option<HookKind>,
    ) -> anyhow::Result<Vec<(HookId, serde_json::Value)>> {
        let mut found: Vec<(HookId, serde_json::Value)> = Vec::new();
        for target in targets {
            match self.find(target, kind).await {
                Ok((hook, object)) => {
                    if found.iter().all(|(known, _)| *known != hook) {
                        found.push((hook, object));
                    }
                }
                Err(error) if targets.len() == 1 => return Err(error),
                Err(error) => self.failed(&format!("{error:#}")),
            }
        }
        Ok(found)
    }

    /// Shows what would be changed in each of these hooks. Those without a change are left out.
    async fn show_all(
        &mut self,
        found: Vec<(HookId, serde_json::Value)>,
        desired: &Desired,
    ) -> Vec<ShownChange> {
        let mut shown = Vec::new();
        for (hook, object) in found {
            if let Some(changes) = self.show(&hook, &object, desired).await {
                shown.push((hook, object, changes));
            }
        }
        shown
    }

    /// Makes the changes one after another, whether or not each succeeds. Returns how many succeeded.
    async fn carry_out_all(&mut self, shown: &[ShownChange], desired: &Desired, only_expired: bool) -> usize {
        let mut made = Vec::new();
        for (hook, object, _) in shown {
            made.extend(self.carry_out(hook, object, desired, only_expired).await);
        }
        self.follow_up(desired, &made).await;
        made.len()
    }

    /// The one hook that is meant, with its object.
    async fn find(
        &self,
        (configuration, webhook): &(String, String),
        kind: Option<HookKind>,
    ) -> anyhow::Result<(HookId, serde_json::Value)> {
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for kind in kinds(kind) {
            let reading = self.writer.read(kind, configuration);
            let read = during(
                &format!("reading {} {configuration}", kind.configuration_kind()),
                reading,
            )
            .await;
            if let Some(object) = read.map_err(|outcome| anyhow::anyhow!(outcome.words()))? {
                let hooks = object["webhooks"].as_array();
                let here = hooks.is_some_and(|hooks| hooks.iter().any(|hook| hook["name"] == *webhook));
                let noted = touched(&object).iter().any(|(name, _)| name == webhook);
                if here || noted {
                    found.push((HookId::new(kind, configuration, webhook), object));
                } else {
                    others.push(names(&object));
                }
            }
        }
        let why = match (found.pop(), found.is_empty()) {
            (Some(only), true) => return Ok(only),
            (Some(_), false) => format!(
                "there is a validating and a mutating configuration {configuration:?} with a webhook {webhook:?}: \
                 say which by --kind"
            ),
            (None, _) if others.is_empty() => format!("there is no configuration {configuration:?}"),
            (None, _) => format!(
                "there is no webhook {webhook:?} in the configuration {configuration:?}; it has {}",
                others.join(" and ")
            ),
        };
        Err(BadUsage::new(why).into())
    }

    /// The webhooks in these objects that hookwatch has changed; with `expired`, only those whose bypass is over.
    fn left_behind(
        &self,
        kind: HookKind,
        objects: &[serde_json::Value],
        expired: bool,
    ) -> Vec<(HookId, serde_json::Value)> {
        let now = (self.clock)();
        let mut left = Vec::new();
        for object in objects {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            for (webhook, standing) in touched(object) {
                if !expired || standing.is_over(now) {
                    left.push((HookId::new(kind, name, &webhook), object.clone()));
                }
            }
        }
        left
    }

    /// Shows what would be changed, and returns it if there is anything to do.
    async fn show(
        &mut self,
        hook: &HookId,
        object: &serde_json::Value,
        desired: &Desired,
    ) -> Option<Vec<FieldChange>> {
        match plan(object, &hook.webhook, desired, &self.author, (self.clock)()) {
            Ok(Plan::Edit(edit)) => {
                self.say(&show::changes(hook, desired, &edit.changes));
                if let Desired::Bypass {
                    rung: Rung::Shield, ..
                } = desired
                    && let Some(caution) = self.spared(hook, object).await.and_then(show::caution)
                {
                    self.say(caution);
                }
                Some(edit.changes)
            }
            Ok(Plan::AlreadySo) => {
                let left = *desired == Desired::Restore && standing(object, &hook.webhook).is_ignored();
                let what = if left {
                    "its failures are ignored, and only an administrator can end that: the fence is around this account."
                } else {
                    "it is so already."
                };
                self.say(&format!("{}: {what}", hook.object()));
                None
            }
            Ok(Plan::Gone) => {
                self.gone(hook, desired);
                None
            }
            Err(refusal) => {
                self.failed(&format!("{}: {refusal}.", hook.object()));
                None
            }
        }
    }

    /// What this webhook matches of the requests that a shield exempts.
    async fn spared(&self, id: &HookId, object: &serde_json::Value) -> Option<Spared> {
        let hook = hook_of(id.kind, object, &id.webhook)?;
        let lister = ObjectLister::new(&self.connection);
        let namespaces = during("reading namespaces", lister.labels(&SHIELDED_NAMESPACES)).await;
        let inventory = Inventory {
            hooks: vec![Arc::new(hook)],
            namespaces,
            ..Inventory::default()
        };
        let mut traffic = TrafficByHook::default();
        traffic.take(&inventory, &self.arguments.namespace, &[]);
        Some(traffic.spared(id))
    }

    /// The webhook no longer exists: that counts as restored, and not as bypassed.
    fn gone(&mut self, hook: &HookId, desired: &Desired) {
        let what = format!("{}: there is no such webhook any more.", hook.object());
        if *desired == Desired::Restore {
            self.say(&what);
        } else {
            self.failed(&what);
        }
    }

    /// Makes the change; returns it if the desired state was reached. `only_expired`: leaves a bypass alone that has not
    /// expired.
    async fn carry_out(
        &mut self,
        hook: &HookId,
        object: &serde_json::Value,
        desired: &Desired,
        only_expired: bool,
    ) -> Option<ChangeMade> {
        let work = async {
            if only_expired {
                self.writer.restore_expired(hook, &self.author).await
            } else {
                self.writer.carry_out(hook, desired, &self.author).await
            }
        };
        let report = during(&format!("changing {}", hook.object()), work).await;
        let now = (self.clock)();
        let record = AuditRecord::new(hook, desired, &self.author, &report, now);
        let steps = record.steps.clone();
        self.record(record);
        for step in steps {
            tell(format_args!("  {step}"));
        }
        match &report.outcome {
            PatchOutcome::Applied | PatchOutcome::AlreadySo => {
                self.say(&format!("{}: {}.", hook.object(), show::done(desired)));
                return Some(ChangeMade {
                    hook: hook.clone(),
                    uid: object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
                    report,
                    at: now,
                });
            }
            PatchOutcome::Gone => self.gone(hook, desired),
            PatchOutcome::Renewed => {
                self.say(&format!("{}: {}.", hook.object(), report.outcome.words()));
            }
            outcome => self.failed(&format!("{}: {}.", hook.object(), outcome.words())),
        }
        None
    }
}
