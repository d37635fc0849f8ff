//! Which clocks are told of, and since when they run.

use crate::diagnose::verdict::Verdict;
use crate::observe::deadlines;
use crate::observe::observations::Observations;
use crate::time::Time;
use crate::vocabulary::{Effect, Writes};

/// What gives up next, while writes are blocked since an instant. A slow hook may also keep writes past their deadline that are
/// not said to be blocked: then at most since it is slow.
pub(super) fn clocks(
    seen: &Observations,
    (writes, since): (Writes, Time),
    verdicts: &[Verdict],
    now: Time,
) -> Vec<String> {
    let blocking = verdicts
        .iter()
        .filter(|it| it.fails_admission() && it.effect == Effect::Blocking);
    let held_up = match writes {
        Writes::Blocked => Some(since),
        _ => blocking.filter_map(|it| it.since).min(),
    };
    let told = held_up.map(|since| {
        let release = seen.servers.oldest_release();
        deadlines::running(&seen.canaries, release, since, now)
    });
    told.unwrap_or_default()
}
