//! Child processes that never outlive us, even if we are killed.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

/// How many of the last lines of a log an error shows.
const SHOWN_LINES: usize = 12;
/// How much of the end of a log is read for that, in bytes.
const SHOWN_BYTES: u64 = 16 << 10;

/// One server process. Dropping it kills it and waits until it is gone.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Mutex<Child>,
    log: PathBuf,
    input: Input,
}

impl Process {
    /// Starts a binary with its output in a log file of its own.
    ///
    /// It gets nothing of our environment: a proxy set there would be used for calls to hooks. And it gets a
    /// process group of its own, so that Ctrl-C at a terminal reaches us alone and we decide what ends first.
    ///
    /// # Errors
    /// When it cannot be started, or the guard is gone.
    pub fn start(
        name: &'static str,
        binary: &Path,
        arguments: impl IntoIterator<Item = OsString>,
        directory: &Path,
        guard: &ProcessGuard,
    ) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&log)
            .with_context(|| format!("opening {}", log.display()))?;
        let errors = output.try_clone().context("sharing a log file")?;
        let child = Command::new(binary)
            .args(arguments)
            .env_clear()
            .env("HOME", directory)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", binary.display()))?;
        let process = Self {
            name,
            child: Mutex::new(child),
            log,
            input: Arc::clone(&guard.input),
        };
        tell(&guard.input, &process.id().to_string()).context("the shell that cleans up after us is gone")?;
        Ok(process)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.with(|child| child.id())
    }

    /// Sends a signal; nothing happens when the process has ended.
    pub fn signal(&self, signal: Signal) {
        self.with(|child| {
            // Until its exit has been collected, here and under this lock, the id belongs to no other process.
            if let Ok(None) = child.try_wait()
                && let Some(pid) = pid(child)
            {
                let _ = kill_process(pid, signal);
            }
        });
    }

    /// Kills it and waits until it is gone.
    pub fn end(&self) {
        self.with(end);
        // The guard must not kill this id later, when it may be another process's. If the guard is gone, it kills nothing.
        let _ = tell(&self.input, &format!("-{}", self.id()));
    }

    /// Fails when the process has exited, with the end of its log.
    ///
    /// # Errors
    /// When it has exited.
    pub fn check(&self) -> anyhow::Result<()> {
        match self.with(Child::try_wait) {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                anyhow::bail!("{} ended by itself ({status})\n{}", self.name, self.last_words())
            }
            Err(error) => Err(error).with_context(|| format!("looking after {}", self.name)),
        }
    }

    /// The last lines of its log, with its name above them.
    pub fn last_words(&self) -> String {
        let text = tail(&self.log).unwrap_or_else(|error| format!("(no log: {error})"));
        let lines: Vec<_> = text.lines().collect();
        let from = lines.len().saturating_sub(SHOWN_LINES);
        format!(
            "the last lines of {}:\n  {}",
            self.name,
            lines[from..].join("\n  ")
        )
    }

    fn with<T>(&self, work: impl FnOnce(&mut Child) -> T) -> T {
        work(&mut self.child.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        Self::end(self);
    }
}

/// Kills a child and waits for it. SIGKILL also ends a process that is stopped, and no process here needs a graceful end.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(SHOWN_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(SHOWN_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The guard's script. It reads process ids, one a line, until its input ends, which happens when this process ends, even by
/// SIGKILL. Then it kills these processes and removes the directory `$0`. An id after a minus is dropped: that process has ended.
const GUARD: &str = r#"
all=
while read -r one; do
  case $one in
    -*) kept=; for id in $all; do [ "-$id" = "$one" ] || kept="$kept $id"; done; all=$kept ;;
    *) all="$all $one" ;;
  esac
done
[ -z "$all" ] || kill -KILL $all
sleep 1
rm -rf -- "$0"
"#;

/// A small shell that kills our processes and removes their directory when this process was killed before it could.
///
/// Dropping it only ends the shell: by then the processes have been ended in order.
#[derive(Debug)]
pub struct ProcessGuard {
    shell: Child,
    input: Input,
}

/// The pipe that the guard reads from. No other process holds its writing end open: the standard library's pipes are not
/// inherited by other children.
type Input = Arc<Mutex<Option<ChildStdin>>>;

fn tell(input: &Input, line: &str) -> std::io::Result<()> {
    match &mut *input.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(input) => writeln!(input, "{line}"),
        None => Ok(()),
    }
}

impl ProcessGuard {
    /// Starts it; `directory` is what it removes.
    ///
    /// # Errors
    /// When there is no shell.
    pub fn start(directory: &Path) -> anyhow::Result<Self> {
        let mut shell = Command::new("sh")
            .arg("-c")
            .arg(GUARD)
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("starting a shell that cleans up after us")?;
        let Some(input) = shell.stdin.take() else {
            end(&mut shell);
            anyhow::bail!("the shell that cleans up after us has no input");
        };
        let input = Arc::new(Mutex::new(Some(input)));
        Ok(Self { shell, input })
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        end(&mut self.shell);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::super::directory::PrivateDirectory;
    use super::*;

    /// A guard against a test that hangs, not a measurement.
    const LIMIT: Duration = Duration::from_secs(20);

    fn until(condition: impl Fn() -> bool) {
        let begin = Instant::now();
        while !condition() {
            assert!(begin.elapsed() < LIMIT, "the test hangs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn shell(script: &str, directory: &Path, guard: &ProcessGuard) -> Process {
        let arguments = ["-c", script].map(OsString::from);
        Process::start("shell", Path::new("/bin/sh"), arguments, directory, guard).unwrap()
    }

    fn runs(id: u32) -> bool {
        let pid = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
        rustix::process::test_kill_process(pid).is_ok()
    }

    #[test]
    fn a_dropped_process_is_gone_even_when_it_was_stopped() {
        let directory = PrivateDirectory::create().unwrap();
        let guard = ProcessGuard::start(directory.path()).unwrap();
        let process = shell("while :; do sleep 1; done", directory.path(), &guard);
        let id = process.id();
        process.signal(Signal::STOP);
        assert!(runs(id));
        drop(process);
        assert!(!runs(id));
    }

    #[test]
    fn a_process_that_ends_by_itself_is_reported_with_its_last_words() {
        let directory = PrivateDirectory::create().unwrap();
        let guard = ProcessGuard::start(directory.path()).unwrap();
        let process = shell("echo no such flag >&2; exit 3", directory.path(), &guard);
        until(|| process.check().is_err());
        let error = process.check().unwrap_err().to_string();
        assert!(
            error.contains("no such flag") && error.contains("exit status: 3"),
            "{error}"
        );
        process.signal(Signal::STOP);
    }

    #[test]
    fn when_the_input_ends_the_guard_kills_what_it_watches_and_removes_the_directory() {
        let directory = PrivateDirectory::create().unwrap();
        let inner = directory.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let mut guard = ProcessGuard::start(&inner).unwrap();
        let process = shell("while :; do sleep 1; done", &inner, &guard);
        // What becomes of the pipe when this process dies.
        drop(guard.input.lock().unwrap().take());
        guard.shell.wait().unwrap();
        assert!(process.check().is_err());
        assert!(!inner.exists());
    }

    #[test]
    fn what_has_ended_is_no_business_of_the_guards_any_more() {
        let directory = PrivateDirectory::create().unwrap();
        let inner = directory.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let mut guard = ProcessGuard::start(&inner).unwrap();
        // Another process, which got the id of one of ours that had ended.
        let mut other = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        for line in [format!("{}", other.id()), format!("-{}", other.id())] {
            tell(&guard.input, &line).unwrap();
        }
        let process = shell("while :; do sleep 1; done", &inner, &guard);
        drop(guard.input.lock().unwrap().take());
        guard.shell.wait().unwrap();
        assert!(process.check().is_err());
        assert!(other.try_wait().unwrap().is_none(), "it was killed");
        end(&mut other);
    }
}
