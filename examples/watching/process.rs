//! A child process that is measured: its input and output, and its CPU time and memory.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::Context;

/// A child process; it is killed when this is dropped.
pub struct Process(Child, Option<BufReader<ChildStdout>>);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// # Errors
    /// When it does not start.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        let out = child.stdout.take().map(BufReader::new);
        Ok(Self(child, out))
    }

    /// The next line of its output.
    ///
    /// # Errors
    /// When it has ended.
    pub fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.1.as_mut().context("its output")?.read_line(&mut line)?;
        anyhow::ensure!(!line.is_empty(), "the process has ended");
        Ok(line)
    }

    /// Writes a line to its input, and returns the next line of its output.
    ///
    /// # Errors
    /// When it has ended.
    pub fn ask(&mut self, line: &str) -> anyhow::Result<String> {
        writeln!(self.0.stdin.as_mut().context("its input")?, "{line}")?;
        self.line()
    }

    /// Its CPU seconds; see [`cpu_of`].
    ///
    /// # Errors
    /// When it has ended, or this is no Linux.
    pub fn cpu(&self) -> anyhow::Result<f64> {
        cpu_of(self.0.id())
    }

    /// Its resident memory in bytes.
    ///
    /// # Errors
    /// When it has ended, or this is no Linux.
    pub fn memory(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        Ok(kilobytes.context("VmRSS")?.parse::<f64>()? * 1024.0)
    }
}

/// Seconds of CPU time that a process has used. The resolution is a nanosecond while no thread has ended, and a hundredth
/// of a second after that.
///
/// # Errors
/// When it has ended, or this is no Linux.
pub fn cpu_of(id: u32) -> anyhow::Result<f64> {
    let of_process = format!("/proc/{id}");
    let mut nanoseconds = 0.0;
    for thread in std::fs::read_dir(format!("{of_process}/task"))? {
        // A thread may end meanwhile.
        let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        let ran = text
            .split_whitespace()
            .next()
            .context("the fields of schedstat")?;
        nanoseconds += ran.parse::<f64>()?;
    }
    let stat = std::fs::read_to_string(format!("{of_process}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("the fields of stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    // This field counts hundredths of a second and includes threads that have ended.
    Ok(f64::max(nanoseconds / 1e9, ticks / 100.0 - 0.01))
}
