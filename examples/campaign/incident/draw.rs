//! Draws an incident: the cluster, the main fault, perhaps a second fault, and the noise.

use std::sync::Arc;

use clap::ValueEnum;

use super::noise::Noise;
use super::{Fault, Incident, Kind, elsewhere, faults, life, stage};
use crate::model::cluster::Cluster;
use crate::model::{At, SECOND, as_seconds, seconds};
use crate::random::Random;

/// The model runs for this long before hookwatch starts, so that connections are open by then.
pub(super) const HEAD: At = 40 * SECOND;
/// The incident continues for this long after the last fault, to see the verdicts clear.
pub(super) const TAIL: At = 80 * SECOND;
/// Probability that a second fault is tried.
const OVERLAPPING: f64 = 0.47;
/// Most clusters drawn until one has a webhook that can have the fault.
const TRIES: usize = 400;

/// The distribution that incidents are drawn from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Draws {
    /// Every cause with about the same probability
    #[default]
    Usual,
    /// Realistic incidents: many webhooks on one Service, chains of webhooks with policy Ignore, API servers that restart
    Life,
}

impl Draws {
    /// The incident with this index.
    pub fn incident(self, seed: u64, index: u64) -> Incident {
        match self {
            Self::Usual => incident(seed, index),
            Self::Life => life::incident(seed, index),
        }
    }
}

/// The usual incident with this index.
pub fn incident(seed: u64, index: u64) -> Incident {
    let mut random = Random::of(seed, index);
    loop {
        let weights = Kind::WEIGHTS.map(|(_, weight)| weight);
        let kind = Kind::WEIGHTS[random.weighted(weights)].0;
        if let Some(incident) = (0..TRIES).find_map(|_| staged(kind, &mut random)) {
            return incident;
        }
    }
}

fn staged(kind: Kind, random: &mut Random) -> Option<Incident> {
    let mut cluster = stage::cluster(random);
    let begin = HEAD;
    let from = if random.chance(0.04) {
        begin - seconds(random.between(3.0, 30.0))
    } else {
        begin + seconds(random.log_between(45.0, 400.0))
    };
    let until = from + seconds(random.between(70.0, 240.0));
    let (mut found, mut end) = (Vec::new(), until);
    if kind != Kind::Noise {
        found.push(inject(&mut cluster, kind, (from, until), &[], random)?);
        if kind != Kind::ApiServerDown && random.chance(OVERLAPPING) {
            let from = from + seconds(random.between(0.0, 60.0));
            let span = (from, from + seconds(random.between(60.0, 180.0)));
            let taken = taken(&cluster, &found);
            if let Some(other) = second(&mut cluster, kind, span, &taken, random) {
                end = end.max(other.until);
                found.push(other);
            }
        }
    }
    let happenings = match kind {
        Kind::Noise => 2 + random.below(4),
        _ => random.weighted([0.4, 0.35, 0.25]),
    };
    let mut noise = Noise::default();
    for _ in 0..happenings {
        let at = begin + seconds(random.between(30.0, as_seconds(end - begin)));
        let taken = taken(&cluster, &found);
        noise.add(&mut cluster, at, &taken, random);
    }
    Some(finished(cluster, end + TAIL, found, noise, random))
}

pub(super) fn finished(
    cluster: Cluster,
    end: At,
    faults: Vec<Fault>,
    noise: Noise,
    random: &mut Random,
) -> Incident {
    Incident {
        cluster: Arc::new(cluster),
        begin: HEAD,
        end,
        faults,
        noise: noise.said,
        gaps: noise.gaps,
        pauses: Vec::new(),
        world: random.fork(),
        observers: random.fork(),
    }
}

/// Indexes of the Services whose webhooks already have a fault.
pub(super) fn taken(cluster: &Cluster, found: &[Fault]) -> Vec<usize> {
    let hooks = found.iter().flat_map(|fault| &fault.hooks);
    hooks.map(|hook| cluster.hooks[*hook].service).collect()
}

fn inject(
    cluster: &mut Cluster,
    kind: Kind,
    span: (At, At),
    taken: &[usize],
    random: &mut Random,
) -> Option<Fault> {
    match kind.elsewhere() {
        Some(_) => elsewhere::inject(cluster, kind, span, random),
        None => faults::inject(cluster, kind, span, taken, random),
    }
}

/// Adds a second fault: of another webhook, or outside of webhooks.
fn second(
    cluster: &mut Cluster,
    first: Kind,
    span: (At, At),
    taken: &[usize],
    random: &mut Random,
) -> Option<Fault> {
    let told = Kind::WEIGHTS.map(|(kind, _)| kind);
    let told = told.into_iter().filter(|kind| *kind != Kind::Noise);
    let (of_none, of_hooks): (Vec<Kind>, Vec<Kind>) = told.partition(|kind| kind.elsewhere().is_some());
    // An API server that is down hides every other fault.
    let of_none: Vec<Kind> = of_none
        .into_iter()
        .filter(|kind| *kind != Kind::ApiServerDown)
        .collect();
    let of_hook = first.elsewhere().is_some() || random.chance(0.55);
    let kind = random.pick(if of_hook { &of_hooks } else { &of_none })?;
    inject(cluster, kind, span, taken, random)
}

/// An incident of this length without a fault, only noise. In three of ten, the webhooks of one Service are always slow
/// (see [`stage::take_long`]). hookwatch's process is paused from time to time.
pub fn quiet(seed: u64, index: u64, length: At) -> Incident {
    let mut random = Random::of(seed ^ 0x0051_1e70, index);
    let mut cluster = stage::cluster(&mut random);
    let mut noise = Noise::default();
    // Recorded as a fault from instant 0: to call such a webhook slow is right, to bypass it is not.
    let always_slow = random
        .chance(0.3)
        .then(|| stage::take_long(&mut cluster, &mut random));
    let faults = always_slow.map(|(hooks, severity)| {
        let note = format!("always takes {severity:.1} s");
        let fault = Fault::new(Kind::Slow, hooks, (0, HEAD + length), note);
        Fault { severity, ..fault }
    });
    let mut at = HEAD + seconds(random.exponential(600.0));
    while at < HEAD + length {
        noise.add(&mut cluster, at, &[], &mut random);
        at += seconds(random.exponential(1_200.0));
    }
    let mut pauses = Vec::new();
    let mut at = HEAD + seconds(random.exponential(600.0));
    while at < HEAD + length {
        let until = at + seconds(random.log_between(0.3, 10.0));
        let stands = format!("hookwatch stands still for {:.1} s", as_seconds(until - at));
        noise.say(at, &stands);
        pauses.push((at, until));
        at = until + seconds(random.exponential(900.0));
    }
    let faults = faults.into_iter().collect();
    let quiet = finished(cluster, HEAD + length, faults, noise, &mut random);
    Incident { pauses, ..quiet }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_that_the_core_can_say_makes_up_four_percent_and_a_third_overlap() {
        let drawn: Vec<Incident> = (0..5_000).map(|index| incident(1, index)).collect();
        for (kind, _) in Kind::WEIGHTS {
            let first = |incident: &&Incident| match incident.faults.first() {
                Some(fault) => fault.kind == kind,
                None => kind == Kind::Noise,
            };
            let part = drawn.iter().filter(first).count() as f64 / drawn.len() as f64;
            assert!(part >= 0.04, "{}: {part}", kind.as_str());
        }
        let overlapping = drawn.iter().filter(|incident| incident.faults.len() > 1).count();
        assert!((1_600..2_000).contains(&overlapping), "{overlapping}");
    }

    /// The incidents of a seed never change, so that published measurements can be repeated. New draws need a new [`Draws`].
    #[test]
    fn the_usual_draws_are_what_they_always_were() {
        // FNV-1a.
        let hash = |text: String| {
            text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
        };
        let drawn: Vec<String> = (0..20)
            .map(|index| {
                let incident = incident(1, index);
                let Incident { faults, noise, .. } = &incident;
                // Both streams are forked last, so they differ if any earlier draw differs.
                format!(
                    "{faults:?} {noise:?} {:?} {:?}",
                    incident.world, incident.observers
                )
            })
            .collect();
        assert_eq!(hash(drawn.concat()), 15_849_136_646_545_237_396);
    }

    #[test]
    fn the_same_number_is_the_same_incident() {
        let (a, b) = (incident(5, 77), incident(5, 77));
        assert_eq!((a.begin, a.end, &a.noise), (b.begin, b.end, &b.noise));
        assert_eq!(format!("{:?}", a.faults), format!("{:?}", b.faults));
    }
}
