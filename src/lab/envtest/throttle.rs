//! A process that is stopped most of the time, as on a machine whose disk or CPU is overloaded.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinHandle;

use super::process::Process;

/// How long it is stopped in every round of 500 ms. A request at a random time waits 160 ms on average; clients that wait for
/// each other arrive while it runs, and the average is lower.
const STOPPED: Duration = Duration::from_millis(400);
/// How long it runs in every round.
const RUNNING: Duration = Duration::from_millis(100);

/// Keeps a process stopped four fifths of the time. Dropping it lets the process run.
#[derive(Debug)]
pub struct Throttle {
    process: Arc<Process>,
    over: Arc<Mutex<bool>>,
    task: JoinHandle<()>,
}

impl Throttle {
    pub(super) fn start(process: Arc<Process>) -> Self {
        let over = Arc::new(Mutex::new(false));
        let task = tokio::spawn(take_turns(Arc::clone(&process), Arc::clone(&over)));
        Self { process, over, task }
    }
}

async fn take_turns(process: Arc<Process>, over: Arc<Mutex<bool>>) {
    loop {
        for (signal, span) in [(Signal::STOP, STOPPED), (Signal::CONT, RUNNING)] {
            {
                // Held while the signal is sent, so that no SIGSTOP comes after the SIGCONT of `drop`.
                let over = over.lock().unwrap_or_else(PoisonError::into_inner);
                if *over {
                    return;
                }
                process.signal(signal);
            }
            tokio::time::sleep(span).await;
        }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        *over = true;
        self.process.signal(Signal::CONT);
        self.task.abort();
    }
}
