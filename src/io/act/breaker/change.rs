//! How a change is made: read, plan, patch, and check the answer.
//!
//! A person's change is planned again after a conflict or a lost answer. A breaker's change is made to exactly the
//! version that the decision is based on, or not at all.

use http::Method;
use serde_json::{Value, json};

use super::request::{ApiReply, is_conflict, patch, read_on_new_connection, send};
use super::{ApiServerClient, ConfigWriter, PatchOutcome, PatchReport, PatchSession, PatchStep, RetryPolicy};
use crate::domain::act::breaker::{Expects, ObservedHook, ResourceVersion, WriteOutcome};
use crate::domain::act::bypass::edit::{Author, Desired, Edit, FieldChange, Plan, plan};
use crate::domain::act::bypass::standing;
use crate::domain::cluster::hook::{HookId, HookKind};
use crate::io::client::Connection;
use crate::io::client::request::items;
use crate::io::coordination::ask;

impl ConfigWriter {
    /// Brings a webhook to its desired state. Dropping the future stops between two requests; the object then is the original, or
    /// records how to restore it.
    pub async fn carry_out(&self, hook: &HookId, desired: &Desired, author: &Author) -> PatchReport {
        self.repeat(BatchMember::new(hook, desired, None), author).await
    }

    /// As [`Self::carry_out`], restores a webhook, but only if its bypass is still over when its object is read.
    pub async fn restore_expired(&self, hook: &HookId, author: &Author) -> PatchReport {
        let member = BatchMember {
            only_expired: true,
            ..BatchMember::new(hook, &Desired::Restore, None)
        };
        self.repeat(member, author).await
    }

    /// Settles a change, and repeats that after conflicts and lost answers.
    async fn repeat(&self, mut member: BatchMember<'_>, author: &Author) -> PatchReport {
        let mut session = PatchSession::new(self);
        let mut conflicts = 0;
        let outcome = loop {
            session.settle(std::slice::from_mut(&mut member), author).await;
            match member.settled.take() {
                Some((WriteOutcome::Conflict, _)) if conflicts < self.retry.conflicts => conflicts += 1,
                // The next read shows what the lost write changed, if anything.
                Some((WriteOutcome::Ambiguous, PatchOutcome::GaveUp(why))) => {
                    if let Err(outcome) = session.rest(None, why).await {
                        break outcome;
                    }
                }
                Some((_, outcome)) => break outcome,
                None => break PatchOutcome::Contended,
            }
        };
        member.report(outcome, session.steps)
    }

    /// Brings webhooks of one configuration to their desired states, in one write if possible, and only if the object is as
    /// expected. Returns each outcome for the breaker, and a full report. A change may take several writes; one that follows
    /// it then finds another version than it expects.
    ///
    /// A write whose answer is lost is not repeated: the breaker reads the object again.
    pub async fn carry_out_together(
        &self,
        changes: &[(HookId, Desired, Expects)],
        author: &Author,
    ) -> Vec<(WriteOutcome, PatchReport)> {
        let mut session = PatchSession::new(self);
        let members = changes.iter().map(|(hook, desired, expects)| {
            let expects = (&*expects.uid, expects.version.clone());
            BatchMember::new(hook, desired, Some(expects))
        });
        let mut members: Vec<BatchMember<'_>> = members.collect();
        session.settle(&mut members, author).await;
        let is_lost = |member: &BatchMember<'_>| matches!(member.settled, Some((WriteOutcome::Ambiguous, _)));
        if members.iter().any(is_lost) {
            // The breaker's next read asks another API server.
            self.next();
        }
        let unsettled = || refused(&PatchOutcome::Contended);
        let outcomes = members.into_iter().map(|mut member| {
            let (for_breaker, outcome) = member.settled.take().unwrap_or_else(unsettled);
            (for_breaker, member.report(outcome, session.steps.clone()))
        });
        outcomes.collect()
    }

    /// All configurations of a kind in an API server's cache, which it has in force.
    ///
    /// # Errors
    /// Why that is not known.
    pub async fn list_cached(&self, server: &ApiServerClient, kind: HookKind) -> Result<Vec<Value>, String> {
        let target = format!("{}?resourceVersion=0", kind.path());
        let limit = self.retry.attempt;
        let reply = if server.is_single {
            send(&server.client, &target, None, limit).await
        } else {
            read_on_new_connection(&server.client, &target, limit).await
        };
        match reply {
            ApiReply::Done(mut list) if list["items"].is_array() => Ok(items(&mut list)),
            ApiReply::Done(_) => Err("the answer is no list".to_owned()),
            ApiReply::Refused(status, message) => Err(format!("HTTP {status}: {message}")),
            ApiReply::NotNow(why, _) | ApiReply::Unclear(why) => Err(why),
        }
    }

    /// The API servers to ask for what each has in force: every one directly and, where one of them is unreachable, the
    /// configured address as well.
    pub fn servers_to_ask(&self, is_out_of_reach: impl Fn(&str) -> bool) -> Vec<ApiServerClient> {
        let single = self.servers.iter().filter(|it| it.is_single);
        let mut asked: Vec<ApiServerClient> = single.cloned().collect();
        if asked.is_empty() || asked.iter().any(|server| is_out_of_reach(&server.name)) {
            asked.extend(self.servers.iter().find(|it| !it.is_single).cloned());
        }
        asked
    }
}

/// One of several desired states that are carried out together.
struct BatchMember<'a> {
    hook: &'a HookId,
    desired: &'a Desired,
    /// The uid and the version that its object must have; `None` where any will do.
    expects: Option<(&'a str, ResourceVersion)>,
    /// Whether nothing is changed unless its bypass is over.
    only_expired: bool,
    /// The outcome for the breaker and the report, once known.
    settled: Option<(WriteOutcome, PatchOutcome)>,
    changes: Vec<FieldChange>,
    /// The possible changes of a write whose answer was lost.
    unclear: Option<Vec<FieldChange>>,
    /// Whether anything has been written for it, or may have been.
    wrote: bool,
}

impl<'a> BatchMember<'a> {
    fn new(hook: &'a HookId, desired: &'a Desired, expects: Option<(&'a str, ResourceVersion)>) -> Self {
        Self {
            hook,
            desired,
            expects,
            only_expired: false,
            settled: None,
            changes: Vec::new(),
            unclear: None,
            wrote: false,
        }
    }

    fn report(self, outcome: PatchOutcome, steps: Vec<PatchStep>) -> PatchReport {
        PatchReport {
            outcome,
            steps,
            changes: self.changes,
        }
    }

    fn view(&self, object: &Value) -> ObservedHook {
        ObservedHook::of(Some(object), &self.hook.webhook)
    }
}

/// One patch for several members.
#[derive(Default)]
struct PatchBatch {
    operations: Vec<Value>,
    /// The members that it is for, by their indices, and what it changes for each.
    parts: Vec<(usize, Vec<FieldChange>)>,
    /// Whether it brings them to their desired states.
    last: bool,
}

impl PatchSession<'_> {
    /// Settles every member. The object is read once; later writes build on the answers to earlier ones.
    async fn settle(&mut self, members: &mut [BatchMember<'_>], author: &Author) {
        let Some(hook) = members.first().map(|first| first.hook.clone()) else {
            return;
        };
        let mut object = match self.object(hook.kind, &hook.configuration).await {
            Ok(Some(object)) => object,
            Ok(None) => return settle_rest(members, &gone()),
            Err(outcome) => return settle_rest(members, &not_done(outcome)),
        };
        // After an API server has refused a patch for several members, each gets a patch of its own.
        let mut max_members = usize::MAX;
        loop {
            let draft = self.draft(members, &object, max_members, author);
            let Some((first, _)) = draft.parts.first() else {
                return;
            };
            let patch = match &members[*first].expects {
                Some((_, version)) => only_at(version, draft.operations),
                None => Value::Array(draft.operations),
            };
            let reply = match self.write(&hook, &patch).await {
                Ok(reply) => reply,
                Err(outcome) => return settle_rest(members, &not_done(outcome)),
            };
            let mut settle_parts = |outcome: (WriteOutcome, PatchOutcome)| {
                for (place, _) in &draft.parts {
                    members[*place].settled = Some(outcome.clone());
                }
            };
            match reply {
                ApiReply::Done(written) => {
                    for (place, changes) in draft.parts {
                        let member = &mut members[place];
                        member.wrote = true;
                        member.changes.extend(changes);
                        self.check_answer(member, &written, draft.last, author);
                    }
                    object = written;
                }
                ApiReply::Unclear(why) => {
                    for (place, changes) in draft.parts {
                        members[place].wrote = true;
                        members[place].unclear = Some(changes);
                    }
                    return settle_rest(members, &(WriteOutcome::Ambiguous, PatchOutcome::GaveUp(why)));
                }
                ApiReply::Refused(404, _) => return settle_rest(members, &gone()),
                ApiReply::Refused(status, message) if is_conflict(status, &message) => {
                    self.steps.push(PatchStep::Conflict { why: message });
                    return settle_rest(members, &(WriteOutcome::Conflict, PatchOutcome::Contended));
                }
                ApiReply::Refused(..) if draft.parts.len() > 1 => max_members = 1,
                ApiReply::Refused(status, message) => {
                    settle_parts(refused(&self.refusal(status, message)));
                }
                ApiReply::NotNow(why, _) => settle_parts(not_done(PatchOutcome::GaveUp(why))),
            }
        }
    }

    /// Plans the next patch for the members that are not settled, each on the result of those before it. Settles those that
    /// need no write.
    fn draft(
        &mut self,
        members: &mut [BatchMember<'_>],
        object: &Value,
        max_members: usize,
        author: &Author,
    ) -> PatchBatch {
        let mut after = object.clone();
        let mut draft = PatchBatch {
            last: true,
            ..PatchBatch::default()
        };
        for (place, member) in members
            .iter_mut()
            .enumerate()
            .filter(|(_, member)| member.settled.is_none())
        {
            if draft.parts.len() >= max_members || !draft.last {
                break;
            }
            let Some(edit) = self.edit_for(member, &after, author) else {
                continue;
            };
            if !edit.last && !draft.parts.is_empty() {
                continue;
            }
            let (Value::Array(operations), last) = (edit.patch, edit.last) else {
                continue;
            };
            if !apply(&mut after, &operations) {
                // It cannot be combined with the others.
                continue;
            }
            draft.operations.extend(operations);
            draft.parts.push((place, edit.changes));
            draft.last = last;
        }
        draft
    }

    /// Plans the edit for a member; `None`, and the member settled, where no write is needed. `object`: the result of the edits
    /// before it.
    fn edit_for(&self, member: &mut BatchMember<'_>, object: &Value, author: &Author) -> Option<Edit> {
        let view = member.view(object);
        let is_other =
            |(uid, version): &(&str, ResourceVersion)| view.version != *version || *view.uid != **uid;
        if member.expects.as_ref().is_some_and(is_other) {
            member.settled = Some((WriteOutcome::Conflict, PatchOutcome::Contended));
            return None;
        }
        let now = (self.writer.clock)();
        if member.only_expired && !standing(object, &member.hook.webhook).is_over(now) {
            member.settled = Some(refused(&PatchOutcome::Renewed));
            return None;
        }
        let planned = plan(object, &member.hook.webhook, member.desired, author, now);
        if let Some(sent) = member.unclear.take()
            && !matches!(&planned, Ok(Plan::Edit(edit)) if edit.changes == sent)
        {
            member.changes.extend(sent);
        }
        let outcome = match planned {
            Ok(Plan::Edit(edit)) => return Some(edit),
            Ok(Plan::AlreadySo) if !member.wrote => (WriteOutcome::Applied(view), PatchOutcome::AlreadySo),
            Ok(Plan::Gone) if !member.wrote || *member.desired != Desired::Restore => gone(),
            Ok(Plan::AlreadySo | Plan::Gone) => (WriteOutcome::Applied(view), PatchOutcome::Applied),
            Err(refusal) => refused(&PatchOutcome::Refused(refusal.into())),
        };
        member.settled = Some(outcome);
        None
    }

    /// Sends a patch until an API server takes it or refuses it.
    async fn write(&mut self, hook: &HookId, body: &Value) -> Result<ApiReply, PatchOutcome> {
        loop {
            let (server, limit) = self.server()?;
            let target = patch(hook.kind, &hook.configuration, limit);
            let name = server.name.clone();
            let reply = send(&server.client, &target, Some(body), limit).await;
            match &reply {
                ApiReply::Done(_) => self.steps.push(PatchStep::Applied { server: name }),
                ApiReply::Unclear(why) => self.steps.push(PatchStep::Ambiguous {
                    server: name,
                    why: why.clone(),
                }),
                ApiReply::NotNow(why, wait) => {
                    self.failed(server, why.clone(), *wait).await?;
                    continue;
                }
                ApiReply::Refused(..) => {}
            }
            return Ok(reply);
        }
    }

    /// Settles a member by the object in the answer to its last write.
    fn check_answer(&self, member: &mut BatchMember<'_>, object: &Value, last: bool, author: &Author) {
        let view = member.view(object);
        if !last {
            if let Some((_, version)) = &mut member.expects {
                *version = view.version;
            }
            return;
        }
        let now = (self.writer.clock)();
        member.settled = Some(
            match plan(object, &member.hook.webhook, member.desired, author, now) {
                Ok(Plan::AlreadySo | Plan::Gone) => (WriteOutcome::Applied(view), PatchOutcome::Applied),
                // An API server that does not know a field silently drops it.
                _ => refused(&PatchOutcome::GaveUp(
                    "the API server took the patch, and its answer does not show it".to_owned(),
                )),
            },
        );
    }
}

/// Settles all members that are not settled yet with the same outcome.
fn settle_rest(members: &mut [BatchMember<'_>], outcome: &(WriteOutcome, PatchOutcome)) {
    for member in members.iter_mut().filter(|member| member.settled.is_none()) {
        member.settled = Some(outcome.clone());
    }
}

/// There is no such webhook, or no such configuration.
fn gone() -> (WriteOutcome, PatchOutcome) {
    (WriteOutcome::Gone, PatchOutcome::Gone)
}

/// Nothing was written: it was refused, or no API server answered in time.
fn not_done(outcome: PatchOutcome) -> (WriteOutcome, PatchOutcome) {
    match outcome {
        PatchOutcome::GaveUp(_) => (WriteOutcome::GaveUp, outcome),
        outcome => refused(&outcome),
    }
}

/// It was refused.
fn refused(outcome: &PatchOutcome) -> (WriteOutcome, PatchOutcome) {
    (WriteOutcome::Refused(outcome.words().into()), outcome.clone())
}

/// A patch of exactly this version of the object: it fails if the object has changed.
fn only_at(version: &ResourceVersion, mut operations: Vec<Value>) -> Value {
    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
    operations.insert(0, test);
    Value::Array(operations)
}

/// Applies an edit that was planned from the object, so its tests hold. False, and the object unchanged, where it does not
/// apply.
fn apply(object: &mut Value, operations: &[Value]) -> bool {
    let operations = operations.iter().filter(|operation| operation["op"] != "test");
    let operations: Result<json_patch::Patch, _> = serde_json::from_value(operations.cloned().collect());
    operations.is_ok_and(|operations| json_patch::patch(object, &operations).is_ok())
}

/// hookwatch's user name at the API server: its dry runs reach a hook on probation.
pub async fn own_user(connection: &Connection) -> Option<String> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let limit = RetryPolicy::default().attempt;
    let answer = ask(connection.calls(), Method::POST, path, Some(&review), limit).await;
    let review = answer.ok()?;
    let user = review["status"]["userInfo"]["username"].as_str()?;
    (!user.is_empty()).then(|| user.to_owned())
}
