//! A command's connection to a cluster, its prompts and output, and its exit code.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::arguments::{self, ActArguments, ClusterArguments};
use crate::app::engine::clock;
use crate::app::progress::during;
use crate::app::{BadUsage, Output, print, print_text, tell, to_json};
use crate::domain::act::bypass::ObjectWriter;
use crate::domain::act::bypass::edit::{Author, Desired, Why};
use crate::domain::text::own_account;
use crate::io::Clock;
use crate::io::act::audit::{self, AuditRecord};
use crate::io::act::breaker::{ConfigWriter, RetryPolicy, knows_match_conditions, servers};
use crate::io::act::ledger::LedgerObject;
use crate::io::client::Connection;
use crate::io::report::events::EventWriter;

/// A connection to a cluster, and the acting identity.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) writer: ConfigWriter,
    pub(super) author: Author,
    pub(super) ledger: LedgerObject,
    pub(super) events: EventWriter,
    pub(super) clock: Clock,
    pub(super) arguments: ClusterArguments,
    pub(super) audit_log: Option<PathBuf>,
    /// Whether nothing has failed so far.
    pub(super) succeeded: bool,
    /// The audit records of this session.
    pub(super) records: Vec<AuditRecord>,
}

/// Longest wait until the audit log is open.
const OPEN_LIMIT: Duration = Duration::from_secs(3);

/// Tries to open an audit log. A disk that hangs delays a change only by [`OPEN_LIMIT`].
async fn try_to_open(log: PathBuf) -> Result<(), String> {
    let opened = tokio::task::spawn_blocking(move || audit::open(&log));
    match tokio::time::timeout(OPEN_LIMIT, opened).await {
        Ok(Ok(opened)) => opened.map(drop).map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("not within {} s", OPEN_LIMIT.as_secs())),
    }
}

impl Session {
    /// A session that makes changes. It opens the audit log first, so that a failure there is known before any change.
    pub(super) async fn open_to_act(arguments: ActArguments) -> anyhow::Result<Self> {
        if let Some(log) = &arguments.audit_log
            && let Err(error) = try_to_open(log.clone()).await
        {
            return Err(BadUsage::new(format_args!(
                "nothing was changed: the audit log {} cannot be opened: {error}; to do without one, leave --audit-log away \
                 and unset HOOKWATCH_AUDIT_LOG",
                log.display()
            ))
            .into());
        }
        Ok(Self {
            audit_log: arguments.audit_log,
            ..Self::open(arguments.cluster).await?
        })
    }

    pub(super) async fn open(arguments: ClusterArguments) -> anyhow::Result<Self> {
        let opening = Connection::open(arguments.kubeconfig.as_deref(), arguments.context.as_deref());
        let connection = during("making a client", opening).await.map_err(BadUsage::new)?;
        let (servers, trouble) = during("looking for the API servers", servers(&connection, &[])).await;
        if let Some(trouble) = trouble {
            tell(format_args!(
                "hookwatch: {trouble}; {} stands for all of them",
                connection.server()
            ));
        }
        let identity = arguments::user_at_host();
        let author = Author {
            namespace: arguments.namespace.clone(),
            account: own_account(&arguments.namespace),
            writer: ObjectWriter {
                identity: identity.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            match_conditions: during("asking for the version", knows_match_conditions(&connection)).await,
            fenced: false,
        };
        let clock = clock();
        let writer = ConfigWriter::new(servers, Arc::clone(&clock), RetryPolicy::default());
        Ok(Self {
            ledger: LedgerObject::new(&connection).over(writer.clients()),
            writer,
            author,
            events: EventWriter::new(&connection, &identity),
            connection,
            clock,
            arguments,
            audit_log: None,
            succeeded: true,
            records: Vec::new(),
        })
    }

    /// The state to which `break` brings a hook.
    pub(super) fn bypass(
        &self,
        rung: arguments::RequestedRung,
        reason: String,
        at_most: Duration,
    ) -> Desired {
        rung.desired(Why {
            reason,
            evidence: vec!["It was requested with `hookwatch break`.".to_owned()],
            expires: Some((self.clock)() + at_most),
        })
    }

    /// Prints a message for people.
    pub(super) fn say(&self, text: &str) {
        // With JSON output a program reads standard output, and people read standard error.
        match self.arguments.output {
            Output::Text => {
                let _ = print_text(&format!("{text}\n"));
            }
            Output::Json => tell(text),
        }
    }

    /// Prints a failure, after which the session has not succeeded.
    pub(super) fn failed(&mut self, why: &str) {
        tell(format_args!("hookwatch: {why}"));
        self.succeeded = false;
    }

    /// Asks the person for confirmation, unless `yes` was given.
    pub(super) fn confirm(&mut self, yes: bool) -> bool {
        let server = self.connection.server();
        if yes {
            self.say(&format!("On {server}."));
            return true;
        }
        if !std::io::stdin().is_terminal() {
            self.failed("nothing was changed: there is no terminal to ask on; give --yes");
            return false;
        }
        let mut asking = std::io::stderr();
        let _ = write!(asking, "On {server}. Change this? [y/N] ").and_then(|()| asking.flush());
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        let confirmed = read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes");
        if !confirmed {
            self.failed("nothing was changed");
        }
        confirmed
    }

    /// Ends with the audit records as the result.
    pub(super) fn end(self) -> anyhow::Result<ExitCode> {
        self.end_with(&self.records)
    }

    /// Ends with a result, which is printed for programs, and the exit code.
    pub(super) fn end_with(&self, result: &impl Serialize) -> anyhow::Result<ExitCode> {
        if self.arguments.output == Output::Json {
            print(&to_json(result)?)?;
        }
        Ok(if self.succeeded {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
