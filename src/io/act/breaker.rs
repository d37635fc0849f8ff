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

use self::request::{ApiReply, cached, list, read_on_new_connection, send};
use crate::domain::act::bypass::edit::{Author, Desired, EditRefusal, FieldChange, Plan, plan};
use crate::domain::cluster::hook::{HookId, HookKind};
use crate::io::Clock;
use crate::io::client::request::items;

pub use change::own_user;
pub use servers::{ApiServerClient, all_know_match_conditions, knows_match_conditions, servers};

/// How often an address is asked that has an unknown number of API servers behind it.
const READS_PER_BALANCER: usize = 5;

/// Time limits of requests, and how they are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Longest wait for one answer.
    pub attempt: Duration,
    /// Longest time for one desired state, with all attempts and waits.
    pub whole: Duration,
    /// Conflicts with other writers after which it is given up.
    pub conflicts: u32,
    /// The wait before the second attempt; each further wait is twice as long.
    pub first_wait: Duration,
    /// Longest wait between two attempts. An API server's `Retry-After` may be longer.
    pub longest_wait: Duration,
    /// Longest wait until a change has propagated to every API server.
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

/// One event during a patch session, in words for the log and the audit log.
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
    /// An API server could not be asked; the next one is asked after a wait.
    #[strum(to_string = "{server} could not be asked: {why}")]
    NotNow {
        /// Which API server.
        server: String,
        /// The reason.
        why: String,
    },
}

/// Why a desired state was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatchRefusal {
    /// hookwatch itself refused it, before anything was sent.
    #[error(transparent)]
    ByPlan(#[from] EditRefusal),
    /// An API server refused it.
    #[error("the API server refuses it (HTTP {status}): {message}")]
    ByServer {
        /// HTTP status.
        status: u16,
        /// Its message.
        message: String,
    },
}

/// How a patch session ended.
#[derive(Debug, Clone, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PatchOutcome {
    /// The desired state was reached by a write of this session.
    Applied,
    /// The desired state was reached before.
    AlreadySo,
    /// There is no such webhook, or no such configuration.
    Gone,
    /// It is not permitted or not possible.
    Refused(PatchRefusal),
    /// Other writers kept changing the object.
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

/// Whether a change has propagated to one API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Propagation {
    /// The API server.
    pub server: String,
    /// `Ok` if it has, otherwise why that is unknown.
    pub propagated: Result<(), String>,
}

/// Reads and changes webhook configurations.
pub struct ConfigWriter {
    servers: Vec<ApiServerClient>,
    /// Counts up when a server did not answer, and so selects the current server. It is kept between sessions, so that such a
    /// server is not the first in the next one.
    turn: AtomicUsize,
    clock: Clock,
    retry: RetryPolicy,
}

impl ConfigWriter {
    /// A writer for these API servers. It asks the first one while that answers, then the others in turn.
    pub fn new(servers: Vec<ApiServerClient>, clock: Clock, retry: RetryPolicy) -> Self {
        Self {
            servers,
            turn: AtomicUsize::new(0),
            clock,
            retry,
        }
    }

    /// The API servers.
    pub fn servers(&self) -> &[ApiServerClient] {
        &self.servers
    }

    /// The clients of the API servers, in the same order.
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

    /// Whether the desired state has propagated to each API server. One that does not show it is polled until the time limit.
    /// Where one cannot be reached directly, the configured address is asked as well, several times.
    pub async fn propagation(&self, hook: &HookId, desired: &Desired, author: &Author) -> Vec<Propagation> {
        let (single, any): (Vec<&ApiServerClient>, Vec<&ApiServerClient>) =
            self.servers.iter().partition(|server| server.is_single);
        let asking = async |server: &ApiServerClient, visits| Propagation {
            server: server.name.clone(),
            propagated: self
                .has_propagated(&server.client, visits, hook, desired, author)
                .await,
        };
        let mut shown = join_all(single.into_iter().map(|server| asking(server, 1))).await;
        if shown.is_empty() || shown.iter().any(|shown| shown.propagated.is_err()) {
            shown.extend(join_all(any.into_iter().map(|server| asking(server, READS_PER_BALANCER))).await);
        }
        shown
    }

    /// Switches to the next API server.
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
        let until = Instant::now() + self.retry.spread;
        let target = cached(hook.kind, &hook.configuration);
        let mut left = visits;
        loop {
            let limit = until.saturating_duration_since(Instant::now());
            let limit = self.retry.attempt.min(limit);
            let why = match read_on_new_connection(client, &target, limit).await {
                ApiReply::Done(mut list) => {
                    let object = named(items(&mut list), &hook.configuration);
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
                Some(why) if Instant::now() + self.retry.first_wait >= until => return Err(why),
                Some(_) => {
                    left = visits;
                    sleep(self.retry.first_wait).await;
                }
            }
        }
    }
}

/// The object of this name. An API server that does not support the field selector lists all objects.
fn named(items: Vec<Value>, name: &str) -> Option<Value> {
    items.into_iter().find(|item| item["metadata"]["name"] == name)
}

/// All requests for one desired state: the time that is left for them, and what happened so far.
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
            until: Instant::now() + writer.retry.whole,
            wait: writer.retry.first_wait,
            steps: Vec::new(),
        }
    }

    async fn object(&mut self, kind: HookKind, name: &str) -> Result<Option<Value>, PatchOutcome> {
        let items = self.read(&list(kind, Some(name))).await?;
        Ok(named(items, name))
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

    /// The outcome of a refusal. After 401 or 403 the next session asks another API server: perhaps only this one does not know
    /// hookwatch or its permissions.
    fn refusal(&self, status: u16, message: String) -> PatchOutcome {
        if matches!(status, 401 | 403) {
            self.writer.next();
        }
        PatchOutcome::Refused(PatchRefusal::ByServer { status, message })
    }

    /// Notes that a server could not be asked, and waits before the next one is.
    ///
    /// # Errors
    /// When there is no time left.
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
            Some(server) => Ok((server, self.writer.retry.attempt.min(left))),
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
        self.wait = self.writer.retry.next_wait(self.wait);
        if Instant::now() + wait >= self.until {
            return Err(PatchOutcome::GaveUp(why));
        }
        sleep(wait).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
