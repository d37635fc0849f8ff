//! Statistics of repeated measurements: median and quartiles.

use std::fmt;
use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Measurements of one thing.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// The ratios of pairs of measurements. Both of a pair were made at about the same time, under the same load.
    pub fn over(&self, other: &Self) -> Self {
        self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect()
    }

    /// The differences of pairs of measurements; see [`Self::over`].
    pub fn minus(&self, other: &Self) -> Self {
        self.0.iter().zip(&other.0).map(|(a, b)| a - b).collect()
    }

    pub fn times(&self, factor: f64) -> Self {
        self.0.iter().map(|value| value * factor).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// A quantile (`part` from 0 to 1), interpolated linearly; NaN without measurements.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = part * (sorted.len().saturating_sub(1)) as f64;
        let (below, above) = (sorted.get(at.floor() as usize), sorted.get(at.ceil() as usize));
        match (below, above) {
            (Some(below), Some(above)) => below + (above - below) * at.fract(),
            _ => f64::NAN,
        }
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

/// `12.3 (11.9 to 12.8)`: the median and the quartiles, each with three significant digits.
impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            0 => write!(f, "not measured"),
            1 => write!(f, "{}", digits(self.median())),
            _ => write!(
                f,
                "{} ({} to {})",
                digits(self.median()),
                digits(self.quantile(0.25)),
                digits(self.quantile(0.75))
            ),
        }
    }
}

/// The value with three significant digits; integer digits are never rounded.
pub fn digits(value: f64) -> String {
    let whole = value.abs().log10().floor();
    let decimals = if whole.is_finite() {
        (2.0 - whole).clamp(0.0, 4.0)
    } else {
        0.0
    };
    format!("{value:.*}", decimals as usize)
}

/// A named piece of work to measure.
pub type Work<'a> = (&'static str, Box<dyn FnMut() + 'a>);

/// A piece of work whose result the compiler must not optimise away.
pub fn work<'a, T>(name: &'static str, mut does: impl FnMut() -> T + 'a) -> Work<'a> {
    (name, Box::new(move || drop(black_box(does()))))
}

/// CPU seconds of each work. In each round all take turns, and each round starts with a different one.
pub fn in_turn(rounds: usize, works: &mut [Work<'_>]) -> Vec<Samples> {
    let mut took = vec![Samples::default(); works.len()];
    for round in 0..rounds {
        for turn in 0..works.len() {
            let at = (round + turn) % works.len();
            let begun = cpu();
            black_box(&mut works[at].1)();
            took[at].push(cpu() - begun);
        }
    }
    took
}

/// CPU seconds of this thread and of child processes that have ended. Other load on the machine affects it only through
/// the caches.
fn cpu() -> f64 {
    let own = clock_gettime(ClockId::ThreadCPUTime);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    // User and system time of the children, in hundredths of a second.
    let children = fields.split_whitespace().skip(13).take(2);
    let ticks: f64 = children.filter_map(|field| field.parse::<f64>().ok()).sum();
    own.tv_sec as f64 + own.tv_nsec as f64 / 1e9 + ticks / 100.0
}

pub fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}
