//! What hookwatch knew at one instant of a recording, found out as the daemon finds it out.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use hookwatch::app::terminal::view::ViewModel;
use hookwatch::app::terminal::view::shown::ShownAssessment;
use hookwatch::app::text::CleanText;
use hookwatch::domain::act::fence::AutoBreak;
use hookwatch::domain::audit::periodic::AuditResult;
use hookwatch::domain::recording::RecordingLine;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::time::Time;
use hookwatch::domain::watchdog::{Event, Watchdog, WatchdogEffect};
use hookwatch::io::report::page::past::Past;

/// What there is to draw.
pub struct Moment {
    pub assessment: Arc<Assessment>,
    pub past: Past,
    /// What `top` has, which asks once a second.
    pub known: ViewModel,
}

struct Playing {
    core: Watchdog,
    past: Past,
    known: ViewModel,
    heard: Option<Time>,
    last: Option<Arc<Assessment>>,
}

/// A recording, played until so long after its beginning.
pub fn moment(recording: &str, after: Duration) -> Moment {
    // The mode is the configuration's, and not recorded.
    let mode = if recording == "plan" {
        AutoBreak::Plan
    } else {
        AutoBreak::On
    };
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/moments/{recording}.jsonl.gz"));
    let lines = BufReader::new(GzDecoder::new(std::fs::File::open(path).unwrap())).lines();
    let mut playing = Playing {
        core: Watchdog::new("hookwatch").wanting(mode),
        past: Past::default(),
        known: ViewModel {
            server: CleanText::new("http://127.0.0.1:9880"),
            ..ViewModel::default()
        },
        heard: None,
        last: None,
    };
    let mut began = None;
    for line in lines {
        match serde_json::from_str(&line.unwrap()).unwrap() {
            RecordingLine::Recording(header) => began = Some(header.began),
            RecordingLine::Observed(at, _) if at.since(began.unwrap()) > after => break,
            RecordingLine::Observed(at, event) => playing.observe(event, at),
            RecordingLine::Known(..) | RecordingLine::Lost(..) => {
                panic!("a recording from its beginning, and whole")
            }
        }
    }
    Moment {
        assessment: playing.last.unwrap(),
        past: playing.past,
        known: playing.known,
    }
}

impl Playing {
    fn observe(&mut self, event: Event, at: Time) {
        self.past.observed(&event, at);
        for effect in self.core.handle(event, at) {
            match effect {
                WatchdogEffect::Publish(assessment, _) => self.publish(assessment, at),
                WatchdogEffect::Tell(change) => self.past.told(&change, at),
                WatchdogEffect::Audit(request) => {
                    let findings = request.run(&|| {});
                    let (at, took) = (request.at, Duration::ZERO);
                    self.observe(Event::Audited(Box::new(AuditResult { at, took, findings })), at);
                }
                WatchdogEffect::Announce(_) | WatchdogEffect::Attend(_) => {}
            }
        }
    }

    fn publish(&mut self, assessment: Arc<Assessment>, at: Time) {
        self.past.assessed(&assessment);
        if self
            .heard
            .is_none_or(|heard| at.since(heard) >= Duration::from_secs(1))
        {
            let seen = ShownAssessment::parse(&serde_json::to_vec(&*assessment).unwrap()).unwrap();
            self.known.history.observe(&seen);
            self.known.seen = Some(Arc::new(seen));
            self.heard = Some(at);
        }
        self.last = Some(assessment);
    }
}
