//! What hookwatch knew at one instant of a recording, found out as the daemon finds it out.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use hookwatch::app::terminal::view::Known;
use hookwatch::app::terminal::view::seen::Seen;
use hookwatch::app::terminal::view::text::Text;
use hookwatch::domain::act::fence::AutoBreak;
use hookwatch::domain::audit::standing::Audited;
use hookwatch::domain::recording::Line;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::time::Time;
use hookwatch::domain::watchdog::{Effect, Event, Watchdog};
use hookwatch::io::report::page::past::Past;

/// What there is to draw.
pub struct Moment {
    pub assessment: Arc<Assessment>,
    pub past: Past,
    /// What `top` has, which asks once a second.
    pub known: Known,
}

struct Playing {
    core: Watchdog,
    past: Past,
    known: Known,
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
        known: Known {
            server: Text::new("http://127.0.0.1:9880"),
            ..Known::default()
        },
        heard: None,
        last: None,
    };
    let mut began = None;
    for line in lines {
        match serde_json::from_str(&line.unwrap()).unwrap() {
            Line::Recording(header) => began = Some(header.began),
            Line::Observed(at, _) if at.since(began.unwrap()) > after => break,
            Line::Observed(at, event) => playing.observe(event, at),
            Line::Known(..) | Line::Lost(..) => panic!("a recording from its beginning, and whole"),
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
                Effect::Publish(assessment, _) => self.publish(assessment, at),
                Effect::Tell(change) => self.past.told(&change, at),
                Effect::Audit(request) => {
                    let findings = request.carry_out(&|| {});
                    let (at, took) = (request.at, Duration::ZERO);
                    self.observe(Event::Audited(Box::new(Audited { at, took, findings })), at);
                }
                Effect::Announce(_) | Effect::Attend(_) => {}
            }
        }
    }

    fn publish(&mut self, assessment: Arc<Assessment>, at: Time) {
        self.past.assessed(&assessment);
        if self
            .heard
            .is_none_or(|heard| at.since(heard) >= Duration::from_secs(1))
        {
            let seen = Seen::parse(&serde_json::to_vec(&*assessment).unwrap()).unwrap();
            self.known.history.heard(&seen);
            self.known.seen = Some(Arc::new(seen));
            self.heard = Some(at);
        }
        self.last = Some(assessment);
    }
}
