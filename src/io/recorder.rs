//! Writes recordings: gzip-compressed parts in one folder. The oldest parts are removed to stay within the size limit.
//!
//! Writing must never block the core, so a separate thread writes. The queue to it is bounded in lines and in bytes. While it
//! is full, observations are lost, and the recording says how many.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::domain::observe::canary::FurtherCanary;
use crate::domain::recording::{Header, RecordingLine, VERSION};
use crate::domain::time::Time;
use crate::domain::watchdog::Event;

/// Most observations in the queue.
const QUEUE: usize = 4_096;
/// Most bytes in the queue. A larger line, such as the inventory of a huge cluster, is accepted if the queue is empty.
const QUEUE_BYTES: usize = 16 << 20;
/// Longest wait at the end for the queue to be written: a hanging disk must not keep the process from stopping.
const STOP: Duration = Duration::from_secs(3);
/// Time between two flushes. A kill loses what was recorded since the last one.
const FLUSH: Duration = Duration::from_secs(5);
/// Pause before a folder that could not be written to is tried again.
const RETRY: Duration = Duration::from_secs(60);
/// Parts that fill the space limit: a part ends once it reaches an eighth of it.
const PARTS: u64 = 8;
/// Start of the name of every part.
const PREFIX: &str = "hookwatch-";
/// End of the name of every part.
const SUFFIX: &str = ".jsonl.gz";

/// Where recordings are written and how much space they may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecorderOptions {
    /// The folder; created if it does not exist.
    pub directory: PathBuf,
    /// Size limit of all parts in the folder together, in bytes.
    pub max_bytes: u64,
    /// hookwatch's own namespace, for the header.
    pub namespace: String,
    /// The configured further canaries, for the header.
    pub canaries: Vec<FurtherCanary>,
}

/// A recording could not be started: its folder, its first part or the writer's thread could not be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot record to {directory}: {source}")]
pub struct RecorderError {
    directory: String,
    source: io::Error,
}

/// Records events. Dropping it writes out the queue, for at most 3 s.
#[derive(Debug)]
pub struct Recorder {
    queue: Option<SyncSender<QueuedLine>>,
    /// Bytes in the queue.
    waiting: Arc<AtomicUsize>,
    /// Lost observations that the recording does not mention yet.
    lost: u64,
    /// Disconnected when the writer has ended.
    ended: Receiver<()>,
}

/// A line in the queue to the writer.
#[derive(Debug)]
struct QueuedLine {
    text: String,
    kept: Option<CarriedEvent>,
}

/// The events that are observed only on change. Every part begins with the last one of each, so that it can be read alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CarriedEvent {
    Inventory,
    Watches,
}

impl Recorder {
    /// Starts a recording at `now` and opens its first part.
    ///
    /// # Errors
    /// If the folder cannot be created or written to, or no thread can be started.
    pub fn start(options: RecorderOptions, now: Time) -> Result<Self, RecorderError> {
        let failed = |source| RecorderError {
            directory: options.directory.display().to_string(),
            source,
        };
        std::fs::create_dir_all(&options.directory).map_err(failed)?;
        let (queue, entries) = sync_channel(QUEUE);
        let mut parts = Parts::new(options.clone(), now);
        parts.begin().map_err(failed)?;
        let waiting = Arc::new(AtomicUsize::new(0));
        let (writer, ended) = channel();
        let room = Arc::clone(&waiting);
        std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || {
                // Dropped when the thread ends, even by a panic.
                let _writer = writer;
                parts.write_all(&entries, &room);
            })
            .map_err(failed)?;
        Ok(Self {
            queue: Some(queue),
            waiting,
            lost: 0,
            ended,
        })
    }

    /// Records that the core received `event` at `now`. Never blocks: if the queue is full the event is lost and counted.
    pub fn record(&mut self, now: Time, event: &Event) {
        if self.lost > 0 {
            let lost = self.lost;
            if self.send(None, &RecordingLine::<&Event>::Lost(now, lost)) {
                self.lost = 0;
            }
        }
        let kept = match event {
            Event::Inventory(_) => Some(CarriedEvent::Inventory),
            Event::Watches(_) => Some(CarriedEvent::Watches),
            _ => None,
        };
        if !self.send(kept, &RecordingLine::Observed(now, event)) {
            self.lost += 1;
        }
    }

    fn send(&self, kept: Option<CarriedEvent>, line: &RecordingLine<&Event>) -> bool {
        let Ok(text) = serde_json::to_string(line) else {
            return false;
        };
        let bytes = text.len();
        let before = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        let fits = before == 0 || before + bytes <= QUEUE_BYTES;
        let queue = self.queue.as_ref().filter(|_| fits);
        let sent = queue.is_some_and(|queue| queue.try_send(QueuedLine { text, kept }).is_ok());
        if !sent {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        sent
    }

    /// Closes the queue. Returns whether the writer finished within `patience`.
    fn end(&mut self, patience: Duration) -> bool {
        self.queue = None;
        self.ended.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.end(STOP) {
            tracing::warn!(
                bytes = self.waiting.load(Ordering::Relaxed),
                "the disk did not take the end of the recording within {} s",
                STOP.as_secs()
            );
        }
    }
}

/// The writer's state: the open part, and the lines with which the next part must begin.
#[derive(Debug)]
struct Parts {
    options: RecorderOptions,
    began: Time,
    next: u32,
    open: Option<GzEncoder<File>>,
    inventory: Option<String>,
    watches: Option<String>,
    failed: Option<Instant>,
    /// Lines lost because no part was open, or not flushed when a part was given up. The next part says how many.
    lost: u64,
    /// Lines of the open part since it was last flushed.
    unflushed: u64,
}

impl Parts {
    const fn new(options: RecorderOptions, began: Time) -> Self {
        Self {
            options,
            began,
            next: 0,
            open: None,
            inventory: None,
            watches: None,
            failed: None,
            lost: 0,
            unflushed: 0,
        }
    }

    fn write_all(&mut self, entries: &Receiver<QueuedLine>, waiting: &AtomicUsize) {
        let mut flushed = Instant::now();
        loop {
            match entries.recv_timeout(FLUSH) {
                Ok(entry) => {
                    let bytes = entry.text.len();
                    self.take(entry);
                    waiting.fetch_sub(bytes, Ordering::Relaxed);
                    let result = self.turn();
                    self.note(result);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if flushed.elapsed() >= FLUSH {
                flushed = Instant::now();
                let result = self.flush();
                self.note(result);
            }
        }
        let result = self.end();
        self.note(result);
    }

    fn take(&mut self, entry: QueuedLine) {
        if self.open.is_none() && self.failed.is_none_or(|failed| failed.elapsed() >= RETRY) {
            let result = self.begin();
            self.note(result);
        }
        let result = match &mut self.open {
            Some(part) => {
                self.unflushed += 1;
                writeln!(part, "{}", entry.text)
            }
            None => {
                self.lost += 1;
                Ok(())
            }
        };
        self.note(result);
        // The next part repeats it as `known` instead of `observed`.
        let known = || entry.text.replacen("\"observed\"", "\"known\"", 1);
        match entry.kept {
            Some(CarriedEvent::Inventory) => self.inventory = Some(known()),
            Some(CarriedEvent::Watches) => self.watches = Some(known()),
            None => {}
        }
    }

    /// Handles the result of a write. On failure closes the part, whose flushed lines stay readable, and logs the first
    /// failure; logs once when writing works again.
    fn note(&mut self, result: io::Result<()>) {
        let directory = self.options.directory.display();
        match result {
            Ok(()) if self.open.is_some() && self.failed.take().is_some() => {
                tracing::info!(%directory, "recording again");
            }
            Ok(()) => {}
            Err(error) => {
                self.open = None;
                self.lost += std::mem::take(&mut self.unflushed);
                if self.failed.replace(Instant::now()).is_none() {
                    // A gap: the skipped number makes a replay start a new core with the next part.
                    self.next += 1;
                    tracing::warn!(%directory, %error, "cannot record; retrying every minute");
                }
            }
        }
    }

    /// Makes all lines written so far readable, then starts a new part if this one is large enough.
    fn flush(&mut self) -> io::Result<()> {
        if let Some(part) = &mut self.open {
            part.flush()?;
            self.unflushed = 0;
        }
        self.turn()
    }

    /// Ends a part that is large enough and begins the next.
    fn turn(&mut self) -> io::Result<()> {
        let most = self.options.max_bytes / PARTS;
        if let Some(part) = &self.open
            && part.get_ref().metadata()?.len() >= most
        {
            self.end()?;
            self.begin()?;
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        if let Some(part) = self.open.take() {
            part.finish()?;
            self.unflushed = 0;
        }
        Ok(())
    }

    /// Opens the next part and makes room for it.
    fn begin(&mut self) -> io::Result<()> {
        self.make_room()?;
        let header = Header {
            version: VERSION,
            hookwatch: env!("CARGO_PKG_VERSION").to_owned(),
            began: self.began,
            part: self.next,
            namespace: self.options.namespace.clone(),
            canaries: self.options.canaries.clone(),
        };
        let name = format!(
            "{PREFIX}{:013}-{:05}{SUFFIX}",
            self.began.unix_millis(),
            self.next
        );
        // Counted before writing: if this part's file cannot be written, the next attempt uses another name.
        self.next += 1;
        let path = self.options.directory.join(name);
        let part = self.first_lines(&path, header);
        if part.is_err() {
            // Otherwise a full disk would collect an empty file every minute.
            let _ = std::fs::remove_file(&path);
        }
        self.open = Some(part?);
        self.lost = 0;
        Ok(())
    }

    /// Creates a part with its first lines: the header, the carried events, and how many lines were lost.
    fn first_lines(&self, path: &Path, header: Header) -> io::Result<GzEncoder<File>> {
        let mut part = GzEncoder::new(private(path)?, Compression::fast());
        writeln!(part, "{}", json(&RecordingLine::<&Event>::Recording(header))?)?;
        for known in [&self.inventory, &self.watches].into_iter().flatten() {
            writeln!(part, "{known}")?;
        }
        if self.lost > 0 {
            let lost = RecordingLine::<&Event>::Lost(self.began, self.lost);
            writeln!(part, "{}", json(&lost)?)?;
        }
        // A kill must not leave a part without its header.
        part.flush()?;
        Ok(part)
    }

    /// Removes the oldest parts of all recordings in the folder until another part fits. Other files are left alone.
    ///
    /// Another process may remove parts at the same time.
    fn make_room(&self) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Time::from_unix(now).max(self.began).unix_millis();
        let mut parts = Vec::new();
        for entry in std::fs::read_dir(&self.options.directory)? {
            let entry = entry?;
            if let Some(part) = entry.file_name().to_str().and_then(part_of)
                && let Ok(metadata) = entry.metadata()
            {
                // Parts dated in the future go first: the clock was wrong when they were written.
                parts.push(((part.0 <= now, part), entry.path(), metadata.len()));
            }
        }
        parts.sort();
        let mut room: u64 = parts.iter().map(|(_, _, bytes)| bytes).sum();
        let most = self.options.max_bytes - self.options.max_bytes / PARTS;
        let mut failed = None;
        for (_, path, bytes) in parts {
            if room <= most {
                break;
            }
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => failed = Some(error),
                _ => room -= bytes,
            }
        }
        match failed {
            Some(error) if room > most => Err(error),
            _ => Ok(()),
        }
    }
}

/// Parses the name of a part: when its recording began, in Unix milliseconds, and the number of the part. Parts sort by this in
/// the order in which they were written. `None` if it is not the name of a part.
pub fn part_of(name: &str) -> Option<(u64, u64)> {
    let name = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let (began, part) = name.split_once('-')?;
    let number = |digits: &str| {
        let all = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| all)
    };
    number(began).zip(number(part))
}

fn json(line: &RecordingLine<&Event>) -> io::Result<String> {
    serde_json::to_string(line).map_err(io::Error::other)
}

/// Creates a file that only its owner can read: the names in a recording are confidential.
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::MultiGzDecoder;

    use super::*;
    use crate::domain::cluster::inventory::WatchReport;

    const NOW: Time = Time::from_unix_millis(1_795_219_862_156);

    fn options(directory: &Path, max_bytes: u64) -> RecorderOptions {
        RecorderOptions {
            directory: directory.to_owned(),
            max_bytes,
            namespace: "hookwatch".into(),
            canaries: Vec::new(),
        }
    }

    fn parts(directory: &Path) -> Vec<String> {
        let names = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| part_of(name).is_some())
            .collect();
        names.sort();
        names
    }

    fn lines(path: &Path) -> Vec<String> {
        let mut text = String::new();
        let file = File::open(path).unwrap();
        let _ = MultiGzDecoder::new(file).read_to_string(&mut text);
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_was_observed_is_written_in_order_behind_a_header() {
        let directory = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::start(options(directory.path(), 1 << 20), NOW).unwrap();
        recorder.record(NOW, &Event::Watches(Vec::new()));
        recorder.record(NOW + Duration::from_millis(1), &Event::Tick);
        drop(recorder);
        let [part] = &parts(directory.path())[..] else {
            panic!("not one part");
        };
        let lines = lines(&directory.path().join(part));
        assert!(
            lines[0].starts_with("{\"recording\":{\"version\":1,"),
            "{lines:?}"
        );
        assert_eq!(
            lines[1..],
            [
                r#"{"observed":["2026-11-21T00:11:02.156Z",{"Watches":[]}]}"#,
                r#"{"observed":["2026-11-21T00:11:02.157Z","Tick"]}"#,
            ]
        );
    }

    /// A recorder whose disk takes nothing, with what waits for it and what its writer holds.
    fn stalled() -> (Recorder, Receiver<QueuedLine>, std::sync::mpsc::Sender<()>) {
        let (queue, entries) = sync_channel(QUEUE);
        let (writer, ended) = channel();
        let recorder = Recorder {
            queue: Some(queue),
            waiting: Arc::default(),
            lost: 0,
            ended,
        };
        (recorder, entries, writer)
    }

    #[test]
    fn what_waits_for_a_stalled_disk_is_bounded_in_bytes_and_what_is_lost_is_counted() {
        let (mut recorder, entries, writer) = stalled();
        let large = Event::Watches(vec![WatchReport {
            watch: "x".repeat(QUEUE_BYTES / 4),
            health: crate::domain::cluster::inventory::InventoryHealth::Current,
            known_good: None,
        }]);
        for _ in 0..10 {
            recorder.record(NOW, &large);
        }
        let lines: Vec<String> = entries.try_iter().map(|entry| entry.text).collect();
        let waiting: usize = lines.iter().map(String::len).sum();
        assert!(waiting <= QUEUE_BYTES, "{waiting} bytes");
        let (large, told): (Vec<&String>, Vec<&String>) =
            lines.iter().partition(|line| line.starts_with("{\"observed\""));
        assert!(
            told.iter()
                .all(|line| line.starts_with("{\"lost\"") && line.ends_with(",1]}"))
        );
        assert_eq!((large.len(), told.len() as u64 + recorder.lost), (3, 7));
        drop(writer);
    }

    #[test]
    fn a_line_larger_than_the_queue_may_wait_alone() {
        let (mut recorder, entries, writer) = stalled();
        let huge = Event::Watches(vec![WatchReport {
            watch: "x".repeat(QUEUE_BYTES),
            health: crate::domain::cluster::inventory::InventoryHealth::Current,
            known_good: None,
        }]);
        recorder.record(NOW, &huge);
        recorder.record(NOW, &Event::Tick);
        assert_eq!((entries.try_iter().count(), recorder.lost), (1, 1));
        drop(writer);
    }

    #[test]
    fn the_end_waits_for_a_stalled_disk_no_longer_than_it_may() {
        let (mut recorder, _entries, writer) = stalled();
        assert!(!recorder.end(Duration::ZERO));
        drop(writer);
        assert!(recorder.end(Duration::ZERO));
    }

    #[test]
    fn a_full_part_ends_and_the_next_begins_with_what_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let mut parts = Parts::new(options(directory.path(), PARTS * 64), NOW);
        parts.begin().unwrap();
        let watches = Event::Watches(vec![WatchReport {
            watch: "Services".into(),
            health: crate::domain::cluster::inventory::InventoryHealth::Current,
            known_good: Some(NOW),
        }]);
        parts.take(QueuedLine {
            text: json(&RecordingLine::Observed(NOW, &watches)).unwrap(),
            kept: Some(CarriedEvent::Watches),
        });
        parts.flush().unwrap();
        parts.end().unwrap();
        let lines = lines(&directory.path().join(&super::tests::parts(directory.path())[1]));
        assert!(lines[0].contains("\"part\":1"), "{lines:?}");
        assert!(lines[1].starts_with("{\"known\":["), "{lines:?}");
    }

    #[test]
    fn the_oldest_parts_go_when_all_take_more_room_than_they_may_and_nothing_else_goes() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("notes.jsonl.gz");
        std::fs::write(&kept, [0; 4_096]).unwrap();
        let mut parts = Parts::new(options(directory.path(), PARTS * 100), NOW);
        for _ in 0..40 {
            parts.begin().unwrap();
            parts.end().unwrap();
        }
        let left = super::tests::parts(directory.path());
        let bytes: u64 = left
            .iter()
            .map(|name| std::fs::metadata(directory.path().join(name)).unwrap().len())
            .sum();
        assert!(bytes <= PARTS * 100 + 200, "{bytes} in {left:?}");
        assert!(left.last().unwrap().ends_with("-00039.jsonl.gz"), "{left:?}");
        assert!(kept.exists());
    }

    #[test]
    fn what_was_flushed_can_be_read_after_a_kill() {
        let directory = tempfile::tempdir().unwrap();
        let mut parts = Parts::new(options(directory.path(), 1 << 20), NOW);
        parts.begin().unwrap();
        parts.take(QueuedLine {
            text: json(&RecordingLine::Observed(NOW, &Event::Tick)).unwrap(),
            kept: None,
        });
        parts.flush().unwrap();
        // Not ended: the file lacks its end, as after a kill.
        let path = directory.path().join(&super::tests::parts(directory.path())[0]);
        assert_eq!(lines(&path).len(), 2);
    }

    #[test]
    fn the_header_of_a_part_can_be_read_after_a_kill_that_follows_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut parts = Parts::new(options(directory.path(), 1 << 20), NOW);
        parts.begin().unwrap();
        let path = directory.path().join(&super::tests::parts(directory.path())[0]);
        assert_eq!(lines(&path).len(), 1);
    }

    #[test]
    fn a_part_after_a_failed_write_does_not_follow_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let mut parts = Parts::new(options(directory.path(), 1 << 20), NOW);
        parts.begin().unwrap();
        for _ in 0..3 {
            parts.note(Err(io::Error::other("no room")));
        }
        parts.begin().unwrap();
        let written = super::tests::parts(directory.path());
        assert!(written[1].ends_with("-00002.jsonl.gz"), "{written:?}");
        let lines = lines(&directory.path().join(&written[1]));
        assert!(lines[0].contains("\"part\":2"), "{lines:?}");
    }

    #[test]
    fn what_was_not_written_out_when_a_part_is_given_up_is_counted_as_lost() {
        let directory = tempfile::tempdir().unwrap();
        let mut parts = Parts::new(options(directory.path(), 1 << 20), NOW);
        parts.begin().unwrap();
        let line = |text: &str| QueuedLine {
            text: text.to_owned(),
            kept: None,
        };
        parts.take(line("written"));
        parts.flush().unwrap();
        parts.take(line("lost"));
        parts.note(Err(io::Error::other("no room")));
        parts.begin().unwrap();
        let written = super::tests::parts(directory.path());
        let lines = lines(&directory.path().join(&written[1]));
        assert!(
            lines[1].starts_with("{\"lost\"") && lines[1].ends_with(",1]}"),
            "{lines:?}"
        );
    }

    #[test]
    fn the_oldest_part_goes_first_however_long_its_number_is() {
        let directory = tempfile::tempdir().unwrap();
        let old = directory.path().join("hookwatch-1795219862156-99999.jsonl.gz");
        let new = directory.path().join("hookwatch-1795219862156-100000.jsonl.gz");
        for part in [&old, &new] {
            std::fs::write(part, [0; 500]).unwrap();
        }
        Parts::new(options(directory.path(), 1_000), NOW)
            .make_room()
            .unwrap();
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn what_a_clock_that_was_ahead_has_dated_goes_first_and_what_another_process_wrote_in_its_turn() {
        let directory = tempfile::tempdir().unwrap();
        let part = |began: u64| {
            directory
                .path()
                .join(format!("hookwatch-{began:013}-00000.jsonl.gz"))
        };
        let [older, later, ahead] = [
            part(1_795_219_862_000),
            part(1_795_219_900_000),
            part(1_995_219_862_156),
        ];
        for part in [&older, &later, &ahead] {
            std::fs::write(part, [0; 500]).unwrap();
        }
        let left = |most| {
            Parts::new(options(directory.path(), most), NOW)
                .make_room()
                .unwrap();
            [&older, &later, &ahead].map(|part| part.exists())
        };
        assert_eq!(left(1_200), [true, true, false]);
        assert_eq!(left(1_000), [false, true, false]);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = Recorder::start(options(&file.join("below"), 1 << 20), NOW).unwrap_err();
        assert!(error.to_string().contains("file/below"), "{error}");
    }
}
