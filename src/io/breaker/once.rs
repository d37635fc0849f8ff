//! One change as the breaker decides it: made to the very version of the object that the decision rests on, or not.

use http::Method;
use serde_json::{Value, json};

use super::request::{Reply, is_conflict, patch, read_anew, send};
use super::{Hand, Outcome, Patience, Refused, Report, Server, Step, Way, items};
use crate::domain::breaker::{Expects, Outcome as Told, View};
use crate::domain::bypass::edit::{Author, Plan, Wish};
use crate::domain::hook::{HookId, HookKind};
use crate::io::client::Connection;
use crate::io::held::{Answer, ask};

impl Hand {
    /// Makes a wish come true of an object that is what the breaker `expects`, and says what became of it in the
    /// breaker's words and in full. A wish that takes several writes rests on each of them in turn.
    ///
    /// A write whose answer is lost is not asked about: the breaker reads the object anew.
    pub async fn once(
        &self,
        hook: &HookId,
        wish: &Wish,
        author: &Author,
        expects: &Expects,
    ) -> (Told, Report) {
        let mut way = Way::new(self);
        let mut report = Report {
            outcome: Outcome::Contended,
            steps: Vec::new(),
            changes: Vec::new(),
            object: None,
        };
        let told = way.once(hook, wish, author, expects, &mut report).await;
        report.steps = way.steps;
        (told, report)
    }

    /// All configurations of a kind as one API server has heard of them: what it goes by.
    ///
    /// # Errors
    /// Why that is not known.
    pub async fn heard_by(&self, server: &Server, kind: HookKind) -> Result<Vec<Value>, String> {
        let target = format!("{}?resourceVersion=0", kind.path());
        let limit = self.patience.attempt;
        let reply = match server.is_one() {
            true => send(&server.client, &target, None, limit).await,
            // Behind a balancer each connection may lead to another.
            false => read_anew(&server.client, &target, limit).await,
        };
        match reply {
            Reply::Done(list) if list["items"].is_array() => Ok(items(list)),
            Reply::Done(_) => Err("the answer is no list".to_owned()),
            Reply::Refused(status, message) => Err(format!("HTTP {status}: {message}")),
            Reply::NotNow(why, _) | Reply::Unclear(why) => Err(why),
        }
    }

    /// The servers that are asked about what each of them shows: each by itself, or, where there is no way to a
    /// single one, whoever stands behind the configured address.
    pub fn shown_by(&self) -> Vec<Server> {
        let single: Vec<Server> = self.servers.iter().filter(|it| it.is_one()).cloned().collect();
        match single.is_empty() {
            true => self.servers.iter().take(1).cloned().collect(),
            false => single,
        }
    }
}

impl Way<'_> {
    async fn once(
        &mut self,
        hook: &HookId,
        wish: &Wish,
        author: &Author,
        expects: &Expects,
        report: &mut Report,
    ) -> Told {
        let mut object = match self.object(hook.kind, &hook.configuration).await {
            Ok(Some(object)) => object,
            Ok(None) => {
                report.outcome = Outcome::Gone;
                return Told::Gone;
            }
            Err(outcome) => return refused(outcome, report),
        };
        let mut version = expects.version.clone();
        loop {
            let view = View::of(Some(&object), &hook.webhook);
            report.object = Some(object.clone());
            if view.version != version || view.uid != expects.uid {
                return Told::Conflict;
            }
            let edit = match self.plan(&object, hook, wish, author).await {
                Ok(Plan::AlreadySo) => {
                    report.outcome = Outcome::AlreadySo;
                    return Told::Applied(view);
                }
                Ok(Plan::Gone) => {
                    report.outcome = Outcome::Gone;
                    return Told::Gone;
                }
                Err(refusal) => return refused(Outcome::Refused(refusal.into()), report),
                Ok(Plan::Edit(edit)) => edit.only_at(&version.0),
            };
            let written = loop {
                let (server, limit) = match self.server() {
                    Ok(found) => found,
                    Err(outcome) => return refused(outcome, report),
                };
                let target = patch(hook.kind, &hook.configuration, limit);
                let name = server.name.clone();
                match send(&server.client, &target, Some(&edit.patch), limit).await {
                    Reply::Done(object) => {
                        self.steps.push(Step::Applied { server: name });
                        break object;
                    }
                    Reply::NotNow(why, wait) => {
                        self.steps.push(Step::NotNow {
                            server: name,
                            why: why.clone(),
                        });
                        if let Err(outcome) = self.rest(wait, why).await {
                            return refused(outcome, report);
                        }
                    }
                    Reply::Unclear(why) => {
                        self.steps.push(Step::Ambiguous {
                            server: name,
                            why: why.clone(),
                        });
                        report.outcome = Outcome::GaveUp(why);
                        // What came of it is read from another one.
                        self.hand.next();
                        return Told::Ambiguous;
                    }
                    Reply::Refused(404, _) => {
                        report.outcome = Outcome::Gone;
                        return Told::Gone;
                    }
                    Reply::Refused(status, message) if is_conflict(status, &message) => {
                        self.steps.push(Step::Conflict { why: message });
                        return Told::Conflict;
                    }
                    Reply::Refused(status, message) => {
                        return refused(Outcome::Refused(Refused::ByServer { status, message }), report);
                    }
                }
            };
            report.changes.extend(edit.changes);
            let view = View::of(Some(&written), &hook.webhook);
            if edit.last {
                let shown = self.plan(&written, hook, wish, author).await;
                report.object = Some(written);
                if !matches!(shown, Ok(Plan::AlreadySo | Plan::Gone)) {
                    let why = "the API server took the patch, and its answer does not show it".to_owned();
                    return refused(Outcome::GaveUp(why), report);
                }
                report.outcome = Outcome::Applied;
                return Told::Applied(view);
            }
            version = view.version;
            object = written;
        }
    }
}

/// It did not come to what was wanted, and why.
fn refused(outcome: Outcome, report: &mut Report) -> Told {
    let why = outcome.detail().unwrap_or_else(|| outcome.as_str().to_owned());
    report.outcome = outcome;
    Told::Refused(why.into())
}

/// Who hookwatch is to the API server: the user whose dry runs reach a hook on probation.
pub async fn own_user(connection: &Connection) -> Option<String> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let limit = Patience::default().attempt;
    let answer = ask(connection.calls(), Method::POST, path, Some(&review), limit).await;
    match answer {
        Answer::Object(review) => {
            let user = review["status"]["userInfo"]["username"].as_str()?;
            (!user.is_empty()).then(|| user.to_owned())
        }
        _ => None,
    }
}
