//! A pseudo-terminal with a program in it, and what its screen shows.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// A guard against a test that hangs, not a measurement.
const LIMIT: Duration = Duration::from_secs(60);

struct Shown {
    parser: vt100::Parser,
    raw: Vec<u8>,
    over: bool,
}

impl Shown {
    /// Whether it is in the middle of drawing.
    fn is_half_drawn(&self) -> bool {
        let last = |mark: &[u8]| self.raw.windows(mark.len()).rposition(|bytes| bytes == mark);
        last(b"\x1b[?2026h") > last(b"\x1b[?2026l")
    }
}

/// A program in a terminal of its own.
pub struct Pty {
    master: File,
    child: Child,
    shown: Arc<(Mutex<Shown>, Condvar)>,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

impl Pty {
    /// Starts it. The environment is empty but for what is given and a `PATH`.
    pub fn start(
        rows: u16,
        columns: u16,
        program: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, size(rows, columns)).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = Path::new(OsStr::from_bytes(name.as_bytes()));
        let slave: OwnedFd = rustix::fs::open(
            path,
            OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .unwrap();
        // setsid makes it the controlling terminal, without which nobody is told of a new size, and becomes the program.
        // A test that runs in the background has inherited that ^C is ignored, and so would the program.
        let child = Command::new("env")
            .args(["--default-signal=INT", "setsid", "--ctty"])
            .arg(program)
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", "/nowhere")
            .env("TERM", "xterm-256color")
            .envs(environment.iter().copied())
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave))
            .spawn()
            .unwrap();
        let shown = Shown {
            parser: vt100::Parser::new(cells(rows), cells(columns), 0),
            raw: Vec::new(),
            over: false,
        };
        let shown = Arc::new((Mutex::new(shown), Condvar::new()));
        let master = File::from(master);
        let (mut reading, telling) = (master.try_clone().unwrap(), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut bytes = [0; 65_536];
            loop {
                // The end of the last program in it is an error here.
                let read = reading.read(&mut bytes).unwrap_or(0);
                let mut shown = telling.0.lock().unwrap();
                shown.parser.process(&bytes[..read]);
                shown.raw.extend_from_slice(&bytes[..read]);
                shown.over = read == 0;
                telling.1.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        Self { master, child, shown }
    }

    /// The binary.
    pub fn hookwatch(rows: u16, columns: u16, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start(
            rows,
            columns,
            Path::new(env!("CARGO_BIN_EXE_hookwatch")),
            arguments,
            environment,
        )
    }

    /// Waits until the screen is as wanted, and gives its text. The cursor's place does not count.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&vt100::Screen) -> bool) -> String {
        let began = Instant::now();
        let mut shown = self.shown.0.lock().unwrap();
        while shown.is_half_drawn() || !wanted(shown.parser.screen()) {
            let left = LIMIT.saturating_sub(began.elapsed());
            assert!(
                !left.is_zero() && !shown.over,
                "no {what} (ended: {}) on this screen:\n{}",
                shown.over,
                shown.parser.screen().contents()
            );
            (shown, _) = self.shown.1.wait_timeout(shown, left).unwrap();
        }
        shown.parser.screen().contents()
    }

    /// Waits for a text on the screen.
    pub fn wait_for_text(&self, text: &str) -> String {
        self.wait_for(&format!("{text:?}"), |screen| screen.contents().contains(text))
    }

    /// Everything that was ever written.
    pub fn raw(&self) -> Vec<u8> {
        self.shown.0.lock().unwrap().raw.clone()
    }

    pub fn type_keys(&self, keys: &str) {
        (&self.master).write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        self.shown
            .0
            .lock()
            .unwrap()
            .parser
            .screen_mut()
            .set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.master, size(rows, columns)).unwrap();
    }

    /// What the program has started, while that is one thing.
    pub fn grandchild(&self) -> rustix::process::Pid {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        rustix::process::Pid::from_raw(children.trim().parse().unwrap()).unwrap()
    }

    /// Waits for its end; then with the screen as it was left.
    pub fn end(mut self) -> (ExitStatus, vt100::Screen) {
        let began = Instant::now();
        let mut shown = self.shown.0.lock().unwrap();
        while !shown.over {
            let left = LIMIT.saturating_sub(began.elapsed());
            assert!(
                !left.is_zero(),
                "it does not end:\n{}",
                shown.parser.screen().contents()
            );
            (shown, _) = self.shown.1.wait_timeout(shown, left).unwrap();
        }
        let screen = shown.parser.screen().clone();
        drop(shown);
        (self.child.wait().unwrap(), screen)
    }

    /// Whether the terminal edits lines and shows what is typed, as a shell wants it.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.master).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // It has ended where all is well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps a screen for a person to look at.
pub fn keep(name: &str, screen: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("terminal");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.txt")), screen).unwrap();
}
