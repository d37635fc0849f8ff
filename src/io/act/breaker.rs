//! Writes webhook configurations, on API servers that may be in trouble.
//!
//! Each edit is [`plan`]ned from the object as just read, so every step can be repeated, or resumed by another replica
//! after a crash: a lost answer is resolved by reading again, a conflict by planning again. Nothing here decides
//! whether to act.

mod change;
mod request;
mod servers;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use serde_json::Value;
use strum::{Display, IntoStaticStr};
use thiserror::Error;
use tokio::time::{Instant, sleep};

use self::request::{ApiReply, list, observed, read_on_new_connection, send};
use crate::domain::act::bypass::edit::{Author, Desired, EditRefusal, FieldChange, Plan, plan};
use crate::domain::cluster::hook::{HookId, HookKind};
use crate::io::Clock;
use crate::io::client::request::items;

pub use change::own_user;
pub use servers::{ApiServerClient, all_know_match_conditions, knows_match_conditions, servers};

/// Visits to an address with an unknown number of API servers behind it.
const VISITS: usize = 5;

/// How long and how often to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// For one answer.
    pub attempt: Duration,
    /// For one desired state, all attempts and waits together.
    pub whole: Duration,
    /// Conflicts with other writers before it is given up.
    pub conflicts: u32,
    /// Before the second attempt; each further wait is twice as long.
    pub first_wait: Duration,
    /// Longest wait between two attempts, but for what a server asks for.
    pub longest_wait: Duration,
    /// Until a change has propagated to every API server.
    pub spread: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempt: Duration::from_secs(5),
            whole: Duration::from_secs(60),
            conflicts: 5,
            first_wait: Duration::from_millis(200),
            longest_wait: Duration::from_secs(5),
            spread: Duration::from_secs(10),
        }
    }
}

impl RetryPolicy {
    /// The wait after a previous `wait`; after zero, the first one.
    pub fn next_wait(&self, wait: Duration) -> Duration {
        (wait * 2).clamp(self.first_wait, self.longest_wait)
    }
}

/// One thing that happened on the way, in words for the log and the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum PatchStep {
    /// A patch was written.
    #[strum(to_string = "{server} wrote it")]
    Applied {
        /// Which API server took it.
        server: String,
    },
    /// Another writer changed the object first.
    #[strum(to_string = "another write came first: {why}")]
    Conflict {
        /// What the API server said.
        why: String,
    },
    /// It is not clear whether a patch was written. The object is read again.
    #[strum(to_string = "{server} may have written it: {why}")]
    Ambiguous {
        /// Which API server was asked.
        server: String,
        /// What came back.
        why: String,
    },
    /// An API server could not be asked; after a while the next one is.
    #[strum(to_string = "{server} could not be asked: {why}")]
    NotNow {
        /// Which.
        server: String,
        /// What came back.
        why: String,
    },
}

/// Why it was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatchRefusal {
    /// By ourselves, before anything was sent.
    #[error(transparent)]
    ByPlan(#[from] EditRefusal),
    /// By an API server.
    #[error("the API server refuses it (HTTP {status}): {message}")]
    ByServer {
        /// HTTP status.
        status: u16,
        /// Its words.
        message: String,
    },
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PatchOutcome {
    /// It is as wished, by what was written here.
    Applied,
    /// It was as wished before.
    AlreadySo,
    /// There is no such webhook, or no such configuration.
    Gone,
    /// It must not or cannot be done.
    Refused(PatchRefusal),
    /// Others kept changing the object.
    Contended,
    /// The bypass that should have expired continues: it was renewed meanwhile.
    Renewed,
    /// No API server gave a usable answer. A later session can continue from whatever was written.
    GaveUp(String),
}

/// What a patch session did, and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchReport {
    /// How it ended.
    pub outcome: PatchOutcome,
    /// What happened on the way.
    pub steps: Vec<PatchStep>,
    /// What was changed.
    pub changes: Vec<FieldChange>,
}

/// Whether one API server has observed a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Propagation {
    /// Which.
    pub server: String,
    /// Or why that is not known.
    pub propagated: Result<(), String>,
}

/// Reads and changes webhook configurations.
pub struct ConfigWriter {
    servers: Vec<ApiServerClient>,
    /// The current server. It outlives one session: a server that did not answer is not asked first in the next.
    turn: AtomicUsize,
    clock: Clock,
    patience: RetryPolicy,
}

impl ConfigWriter {
    /// A writer for these API servers: the first one while it answers, then the others in turn.
    pub fn new(servers: Vec<ApiServerClient>, clock: Clock, patience: RetryPolicy) -> Self {
        Self {
            servers,
            turn: AtomicUsize::new(0),
            clock,
            patience,
        }
    }

    /// All of them.
    pub fn servers(&self) -> &[ApiServerClient] {
        &self.servers
    }

    /// The clients of all of them, in the same order.
    pub fn clients(&self) -> Vec<Client> {
        self.servers.iter().map(|server| server.client.clone()).collect()
    }

    /// All configurations of a kind.
    ///
    /// # Errors
    /// When no API server answers in time, or one refuses.
    pub async fn list(&self, kind: HookKind) -> Result<Vec<Value>, PatchOutcome> {
        let mut session = PatchSession::new(self);
        session.read(&list(kind, None)).await
    }

    /// One configuration; `None` when there is none of this name.
    ///
    /// # Errors
    /// As for [`Self::list`].
    pub async fn read(&self, kind: HookKind, configuration: &str) -> Result<Option<Value>, PatchOutcome> {
        let mut session = PatchSession::new(self);
        session.object(kind, configuration).await
    }

    /// Whether the desired state has propagated to each API server; one that has not shown it is polled until the time
    /// limit. Where one cannot be reached directly, the server at the configured address is asked as well, several
    /// times.
    pub async fn shown(&self, hook: &HookId, desired: &Desired, author: &Author) -> Vec<Propagation> {
        let (single, any): (Vec<&ApiServerClient>, Vec<&ApiServerClient>) =
            self.servers.iter().partition(|server| server.one);
        let asking = async |server: &ApiServerClient, visits| Propagation {
            server: server.name.clone(),
            propagated: self
                .has_propagated(&server.client, visits, hook, desired, author)
                .await,
        };
        let mut shown = join_all(single.into_iter().map(|server| asking(server, 1))).await;
        if shown.is_empty() || shown.iter().any(|shown| shown.propagated.is_err()) {
            shown.extend(join_all(any.into_iter().map(|server| asking(server, VISITS))).await);
        }
        shown
    }

    /// Switches to the next API server: the one asked last gave no proper answer.
    fn next(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
    }

    async fn has_propagated(
        &self,
        client: &Client,
        visits: usize,
        hook: &HookId,
        desired: &Desired,
        author: &Author,
    ) -> Result<(), String> {
        let until = Instant::now() + self.patience.spread;
        let target = observed(hook.kind, &hook.configuration);
        let mut left = visits;
        loop {
            let limit = until.saturating_duration_since(Instant::now());
            let limit = self.patience.attempt.min(limit);
            let why = match read_on_new_connection(client, &target, limit).await {
                ApiReply::Done(mut list) => {
                    let object = one(items(&mut list), &hook.configuration);
                    match object.map(|it| plan(&it, &hook.webhook, desired, author, (self.clock)())) {
                        Some(Ok(Plan::AlreadySo)) => None,
                        None | Some(Ok(Plan::Gone)) if *desired == Desired::Restore => None,
                        Some(Err(refusal)) => Some(refusal.to_string()),
                        _ => Some("it has not heard of the change yet".to_owned()),
                    }
                }
                ApiReply::Refused(status, message) => return Err(format!("HTTP {status}: {message}")),
                ApiReply::NotNow(why, _) | ApiReply::Unclear(why) => Some(why),
            };
            match why {
                None if left <= 1 => return Ok(()),
                None => left -= 1,
                Some(why) if Instant::now() + self.patience.first_wait >= until => return Err(why),
                Some(_) => {
                    left = visits;
                    sleep(self.patience.first_wait).await;
                }
            }
        }
    }
}

/// A server that does not know field selectors of this kind answers with all.
fn one(items: Vec<Value>, name: &str) -> Option<Value> {
    items.into_iter().find(|item| item["metadata"]["name"] == name)
}

/// One attempt at a desired state: which server is asked next, how long it has, and what happened so far.
struct PatchSession<'a> {
    writer: &'a ConfigWriter,
    until: Instant,
    wait: Duration,
    steps: Vec<PatchStep>,
}

impl<'a> PatchSession<'a> {
    fn new(writer: &'a ConfigWriter) -> Self {
        Self {
            writer,
            until: Instant::now() + writer.patience.whole,
            wait: writer.patience.first_wait,
            steps: Vec::new(),
        }
    }

    async fn object(&mut self, kind: HookKind, name: &str) -> Result<Option<Value>, PatchOutcome> {
        let items = self.read(&list(kind, Some(name))).await?;
        Ok(one(items, name))
    }

    /// Reads until a server answers.
    async fn read(&mut self, target: &str) -> Result<Vec<Value>, PatchOutcome> {
        loop {
            let (server, limit) = self.server()?;
            match send(&server.client, target, None, limit).await {
                ApiReply::Done(mut list) if list["items"].is_array() => return Ok(items(&mut list)),
                ApiReply::Done(_) => {
                    let why = "the answer is no list: something other than an API server answers".to_owned();
                    self.failed(server, why, None).await?;
                }
                ApiReply::Refused(status, message) => return Err(self.refusal(status, message)),
                ApiReply::NotNow(why, wait) => self.failed(server, why, wait).await?,
                ApiReply::Unclear(why) => self.failed(server, why, None).await?,
            }
        }
    }

    /// What an API server answered that refuses. One that does not know us, or what we may do, may be the only one: the next
    /// session asks another.
    fn refusal(&self, status: u16, message: String) -> PatchOutcome {
        if matches!(status, 401 | 403) {
            self.writer.next();
        }
        PatchOutcome::Refused(PatchRefusal::ByServer { status, message })
    }

    async fn failed(
        &mut self,
        server: &ApiServerClient,
        why: String,
        wait: Option<Duration>,
    ) -> Result<(), PatchOutcome> {
        self.steps.push(PatchStep::NotNow {
            server: server.name.clone(),
            why: why.clone(),
        });
        self.rest(wait, why).await
    }

    /// The current server, and its time limit.
    fn server(&self) -> Result<(&'a ApiServerClient, Duration), PatchOutcome> {
        let servers = &self.writer.servers;
        let left = self.until.saturating_duration_since(Instant::now());
        let turn = self.writer.turn.load(Ordering::Relaxed);
        match servers.get(turn % servers.len().max(1)) {
            Some(_) if left.is_zero() => Err(PatchOutcome::GaveUp("the time for it is over".to_owned())),
            Some(server) => Ok((server, self.writer.patience.attempt.min(left))),
            None => Err(PatchOutcome::GaveUp("no API server is known".to_owned())),
        }
    }

    /// Waits before the next server is asked, or gives up because of `why`.
    async fn rest(&mut self, asked_for: Option<Duration>, why: String) -> Result<(), PatchOutcome> {
        // A server's `Retry-After` does not bind another server.
        self.writer.next();
        let wait = match asked_for {
            Some(asked_for) if self.writer.servers.len() < 2 => asked_for.max(self.wait),
            _ => self.wait,
        };
        self.wait = self.writer.patience.next_wait(self.wait);
        if Instant::now() + wait >= self.until {
            return Err(PatchOutcome::GaveUp(why));
        }
        sleep(wait).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
