//! Pods that are replaced one by one.

use crate::model::cluster::{Backend, Service};
use crate::model::manner::Manner;
use crate::model::timeline::Timeline;
use crate::model::{At, seconds};
use crate::random::Random;

/// How well a rollout goes, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Rollout {
    /// A new Pod is listed for so long before it serves.
    pub early: f64,
    /// An old one is listed for so long after it has stopped.
    pub late: f64,
}

impl Rollout {
    /// Replaces every Pod of a Service, from an instant on; says when that is done.
    pub fn run(self, service: &mut Service, index: usize, mut at: At, random: &mut Random) -> At {
        for leaving in service.listed(at) {
            let number = service.backends.len() as u8 + 100;
            let mut new = Backend::new(([10, 0, index as u8, number], 8443).into());
            let serves = at + seconds(self.early);
            for line in [&mut new.to_api, &mut new.to_us] {
                *line = Timeline::always(Manner::Refusing);
                line.set(serves, Manner::Well);
            }
            new.listed = Timeline::always(false);
            new.listed.set(at, true);
            // Whoever looks at readiness alone takes the old one away as soon as the new one is listed.
            let stops = serves + seconds(random.between(1.0, 5.0));
            let leaving = &mut service.backends[leaving];
            leaving.to_api.set(stops, Manner::Refusing);
            leaving.to_us.set(stops, Manner::Refusing);
            leaving.listed.set(stops + seconds(self.late), false);
            service.backends.push(new);
            at = stops + seconds(random.between(5.0, 15.0));
        }
        at
    }
}
