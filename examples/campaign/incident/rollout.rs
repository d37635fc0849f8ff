//! A rollout: Pods are replaced one by one.

use crate::model::cluster::{Backend, Service};
use crate::model::manner::Manner;
use crate::model::timeline::Timeline;
use crate::model::{At, seconds};
use crate::random::Random;

/// For how long Pods are ready endpoints without serving, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Rollout {
    /// Seconds that a new Pod is a ready endpoint before it serves.
    pub early: f64,
    /// Seconds that an old Pod remains a ready endpoint after it has stopped.
    pub late: f64,
}

impl Rollout {
    /// Replaces every ready Pod of a Service, starting at `at`; returns when the rollout is done.
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
            // A controller that only checks readiness stops the old Pod soon after the new one becomes ready.
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
